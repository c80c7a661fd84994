"""Metrics of generated text beside references: BLEU and chrF by sacreBLEU, COCO's BLEU-1 to BLEU-4 and CIDEr.

Papineni et al., "BLEU" (2002): common n-grams of words. Popović, "chrF" (2015): common n-grams of characters.
Post, "A call for clarity in reporting BLEU scores" (2018): a score depends on how words are split and on more, so it
goes with a signature that states all of it. Vedantam et al., "CIDEr" (2015): n-grams weigh the more the fewer images
they describe. The BLEU-n and CIDEr here equal those of pycocoevalcap for the same words (its CIDEr is the variant
CIDEr-D). COCO's word splitter is a Java program; ours lowercases and drops punctuation alike, but keeps "man's" and
"can't" whole, hence a signature of our own.
"""

from __future__ import annotations

import math
import re
import unicodedata
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..core.metrics import MetricValues
from .alignment import UNSPACED

SAMPLED_TEXTS = 2_000  # by which the scoring is chosen
SPACE_FRACTION = 0.05  # fewer spaces among the characters: a script without spaces between words
CLOSED_VOCABULARY = 20  # mean occurrences of a word from which on a vocabulary counts as closed
MAX_ORDER = 4  # words of an n-gram
CIDER_SIGMA = 6.0  # standard deviation of the length penalty
COCO_SMALL, COCO_TINY = 1e-9, 1e-15  # that COCO adds to denominators and numerators
COCO_WORDS = "case:lc|punctuation:off|words:seriatim"

References = Sequence[Sequence[str]]  # of each input, one or more


# Translations


@dataclass(frozen=True)
class Scoring:
    """How texts are scored.

    Args:
        tokenize: How sacreBLEU splits words: 13a, or char for scripts without spaces.
        closed: Whether the targets are of a closed vocabulary (letters, phonemes, dates, single words), where an
            output is right or wrong: then the exact match is the first metric.
    """

    tokenize: str = "13a"
    closed: bool = False

    @classmethod
    def of(cls, targets: Sequence[str], characters: bool = False) -> Scoring:
        """Returns the scoring that suits targets; `characters` if the model generates character by character."""
        texts = [target.strip() for target in targets[:SAMPLED_TEXTS]]
        unspaced = is_unspaced(texts)
        words = [word for text in texts for word in text.split()]
        few = 0 < len(set(words)) * CLOSED_VOCABULARY <= len(words)
        single_words = unspaced and not any(UNSPACED.search(text) for text in texts)
        return cls("char" if unspaced else "13a", characters or few or single_words)


def is_unspaced(texts: Sequence[str]) -> bool:
    """Returns whether texts of more than a character have hardly any spaces: Chinese, Japanese, Thai, single words."""
    spaces, characters = sum(text.count(" ") for text in texts), sum(map(len, texts))
    return characters > len(texts) and spaces < SPACE_FRACTION * characters


def translation_metrics(hypotheses: Sequence[str], references: References, scoring: Scoring) -> MetricValues:
    """Returns BLEU and chrF with the first reference, BLEU with all if there are several, and exact matches."""
    first = [group[:1] for group in references]
    scores = {"bleu": bleu(hypotheses, first, scoring.tokenize)}
    if any(len(group) > 1 for group in references):
        scores["bleu_all"] = bleu(hypotheses, references, scoring.tokenize)
    scores["chrf"] = chrf(hypotheses, first)
    values = {name: value for name, (value, _) in scores.items()}
    values = order_by_scoring(values, hypotheses, references, scoring.closed)
    signatures = {name: signature for name, (_, signature) in scores.items()}
    return MetricValues(values | {"sentences": float(len(hypotheses))}, signatures)


def order_by_scoring(
    values: dict[str, float], hypotheses: Sequence[str], references: References, closed: bool
) -> dict[str, float]:
    """Returns metrics with the fraction of exact matches: first for a closed vocabulary, else last."""
    exact = {"exact_match": float(np.mean(exact_matches(hypotheses, references)))}
    return exact | values if closed else values | exact


def bleu(hypotheses: Sequence[str], references: References, tokenize: str = "13a") -> tuple[float, str]:
    """Returns the corpus BLEU, from 0 to 100, and its signature."""
    from sacrebleu.metrics import BLEU

    metric = BLEU(tokenize=tokenize, force=True)
    return float(metric.corpus_score(list(hypotheses), _streams(references)).score), str(metric.get_signature())


def chrf(hypotheses: Sequence[str], references: References) -> tuple[float, str]:
    """Returns the corpus chrF, from 0 to 100, and its signature."""
    from sacrebleu.metrics import CHRF

    metric = CHRF()
    return float(metric.corpus_score(list(hypotheses), _streams(references)).score), str(metric.get_signature())


def sentence_chrf(hypotheses: Sequence[str], references: References) -> list[float]:
    """Returns the chrF of each sentence with its nearest reference."""
    from sacrebleu.metrics import CHRF

    metric = CHRF()
    return [
        float(metric.sentence_score(text, list(group)).score)
        for text, group in zip(hypotheses, references, strict=True)
    ]


def exact_matches(hypotheses: Sequence[str], references: References) -> list[bool]:
    """Returns for each hypothesis whether it equals a reference."""
    return [text in group for text, group in zip(hypotheses, references, strict=True)]


def _streams(references: References) -> list[list[Any]]:
    """Returns references as sacreBLEU takes them: the first of every sentence, the second of each or None, …"""
    most = max(map(len, references))
    return [[group[n] if n < len(group) else None for group in references] for n in range(most)]


# Captions

# A hyphen or an apostrophe inside a word belongs to it, and a point, comma or colon inside a number.
LOOSE_PUNCTUATION = re.compile(r"(?<!\w)[-']|[-'](?!\w)|(?<!\d)[.,:]|[.,:](?!\d)")
INNER_PUNCTUATION = "-'.,:"


class _PunctuationToSpace(dict[int, int | str]):
    """A table for `str.translate`, filled on demand: a space for punctuation and symbols."""

    def __missing__(self, code: int) -> int | str:
        character = chr(code)
        is_sign = character not in INNER_PUNCTUATION and unicodedata.category(character)[0] in "PS"
        self[code] = " " if is_sign else code
        return self[code]


PUNCTUATION_TO_SPACE = _PunctuationToSpace()


def caption_words(text: str) -> list[str]:
    """Returns the words that caption metrics compare; in scripts without spaces, the characters."""
    text = unicodedata.normalize("NFC", text).lower().replace("’", "'")
    return UNSPACED.sub(r" \g<0> ", LOOSE_PUNCTUATION.sub(" ", text).translate(PUNCTUATION_TO_SPACE)).split()


def caption_metrics(hypotheses: Sequence[str], references: References, closed: bool = False) -> MetricValues:
    """Returns CIDEr (up to 10, as COCO's), BLEU-4 to BLEU-1 (up to 100) and exact matches, with all references.

    Args:
        hypotheses: A caption of each image.
        references: One or more captions of each image.
        closed: Whether exact matches come first; see `Scoring`.
    """
    captions = [caption_words(text) for text in hypotheses]
    reference_words = [[caption_words(text) for text in group] for group in references]
    scores = coco_bleu(captions, reference_words)
    values = {"cider": float(np.mean(cider(captions, reference_words)))}
    values |= {f"bleu{order}": 100 * scores[order - 1] for order in range(MAX_ORDER, 0, -1)}
    values = order_by_scoring(values, hypotheses, references, closed)
    several = f"refs:{'all' if any(len(group) > 1 for group in references) else 1}"
    signatures = {f"bleu{order}": f"coco|{several}|{COCO_WORDS}|len:closest" for order in range(MAX_ORDER, 0, -1)}
    signatures = {"cider": f"coco CIDEr-D|{several}|{COCO_WORDS}|df:refs"} | signatures
    return MetricValues(values | {"captions": float(len(hypotheses))}, signatures)


Words = Sequence[str]
Ngrams = Counter[tuple[str, ...]]


def count_ngrams(words: Words, order: int) -> Ngrams:
    """Returns how often each n-gram of `order` words occurs."""
    return Counter(zip(*(words[start:] for start in range(order)), strict=False))


def coco_bleu(captions: Sequence[Words], references: Sequence[Sequence[Words]]) -> list[float]:
    """Returns BLEU-1 to BLEU-4 of all captions, from 0 to 1, with the length of the closest reference."""
    product, scores = 1.0, []
    for order in range(1, MAX_ORDER + 1):
        correct = total = 0
        for words, group in zip(captions, references, strict=True):
            largest: Ngrams = Counter()  # the largest count of each n-gram in a reference
            for reference in group:
                largest |= count_ngrams(reference, order)
            correct += (count_ngrams(words, order) & largest).total()
            total += max(len(words) - order + 1, 0)
        product *= (correct + COCO_TINY) / (total + COCO_SMALL)
        scores.append(product ** (1 / order))
    closest = [
        min((abs(len(words) - len(reference)), len(reference)) for reference in group)[1]
        for words, group in zip(captions, references, strict=True)
    ]
    ratio = (sum(map(len, captions)) + COCO_TINY) / (sum(closest) + COCO_SMALL)
    return [score * math.exp(1 - 1 / ratio) for score in scores] if ratio < 1 else scores


def cider(captions: Sequence[Words], references: Sequence[Sequence[Words]]) -> list[float]:
    """Returns the CIDEr-D of each image: the mean over its references and over n of ten times the cosine between the
    n-grams of caption and reference, each weighted by the logarithm of its inverse document frequency."""
    totals = [[0.0] * len(group) for group in references]
    for order in range(1, MAX_ORDER + 1):
        counted = [[count_ngrams(reference, order) for reference in group] for group in references]
        frequency = Counter(ngram for group in counted for ngram in set().union(*group))  # images with the n-gram
        for image, words in enumerate(captions):
            vector, norm = tf_idf(count_ngrams(words, order), frequency, len(captions))
            for number, ngrams in enumerate(counted[image]):
                other, other_norm = tf_idf(ngrams, frequency, len(captions))
                common = sum(min(vector[ngram], value) * value for ngram, value in other.items() if ngram in vector)
                totals[image][number] += common / (norm * other_norm) if norm and other_norm else 0.0
    scores = []
    for words, group, similarities in zip(captions, references, totals, strict=True):
        # COCO measures length in bigrams, so that texts of no word and of one word are equally long.
        differences = [max(len(words) - 1, 0) - max(len(reference) - 1, 0) for reference in group]
        penalties = [math.exp(-(difference**2) / (2 * CIDER_SIGMA**2)) for difference in differences]
        total = sum(value * penalty for value, penalty in zip(similarities, penalties, strict=True))
        scores.append(10 * total / len(group) / MAX_ORDER)
    return scores


def tf_idf(counts: Ngrams, frequency: Mapping[tuple[str, ...], int], images: int) -> tuple[dict[Any, float], float]:
    """Returns the weighted counts of n-grams, and their norm."""
    weights = {
        ngram: count * (math.log(images) - math.log(max(frequency[ngram], 1))) for ngram, count in counts.items()
    }
    return weights, math.sqrt(sum(weight**2 for weight in weights.values()))
