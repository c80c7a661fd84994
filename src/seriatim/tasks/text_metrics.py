"""Metrics of generated text beside references: BLEU and chrF by sacreBLEU, COCO's BLEU-1 to BLEU-4 and CIDEr.

Papineni et al., "BLEU" (2002): common n-grams of words. Popović, "chrF" (2015): common n-grams of characters.
Post, "A call for clarity in reporting BLEU scores" (2018): a score depends on how words are split and on more, so it
goes with a signature that states all of it. Vedantam et al., "CIDEr" (2015): n-grams weigh the more the fewer images
they describe. The BLEU-n and CIDEr here equal those of pycocoevalcap for the same words (its CIDEr is the variant
CIDEr-D). COCO's word splitter is a Java program; ours lowercases and drops punctuation alike, but keeps "man's" and
"can't" whole, hence a signature of our own.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Sequence
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
    counts = NgramCounts.of(
        [caption_words(text) for text in hypotheses], [[caption_words(text) for text in group] for group in references]
    )
    scores = coco_bleu(counts)
    values = {"cider": float(cider(counts).mean())}
    values |= {f"bleu{order}": 100 * scores[order - 1] for order in range(MAX_ORDER, 0, -1)}
    values = order_by_scoring(values, hypotheses, references, closed)
    several = f"refs:{'all' if any(len(group) > 1 for group in references) else 1}"
    signatures = {f"bleu{order}": f"coco|{several}|{COCO_WORDS}|len:closest" for order in range(MAX_ORDER, 0, -1)}
    signatures = {"cider": f"coco CIDEr-D|{several}|{COCO_WORDS}|df:refs"} | signatures
    return MetricValues(values | {"captions": float(len(hypotheses))}, signatures)


@dataclass(frozen=True)
class OrderCounts:
    """The n-grams of one length: each entry counts one in a sentence, sorted by sentence and n-gram."""

    sentences: np.ndarray  # (E,)
    ngrams: np.ndarray  # (E,) numbers from 0
    counts: np.ndarray  # (E,)
    size: int  # distinct n-grams of all sentences

    def take(self, entries: np.ndarray) -> OrderCounts:
        return OrderCounts(self.sentences[entries], self.ngrams[entries], self.counts[entries], self.size)


@dataclass(frozen=True)
class NgramCounts:
    """The n-grams of captions and references, counted once for all metrics. Captions are numbered by their image."""

    caption_lengths: np.ndarray  # (P,) words
    reference_lengths: np.ndarray  # (R,)
    images: np.ndarray  # (R,) the image of each reference
    orders: list[tuple[OrderCounts, OrderCounts]]  # of captions and references, for n = 1, 2, …

    @classmethod
    def of(cls, captions: Sequence[Sequence[str]], references: Sequence[Sequence[Sequence[str]]]) -> NgramCounts:
        """Returns the counts of words; each image has a caption and one or more references."""
        if len(captions) != len(references) or not len(captions) or not all(len(group) for group in references):
            raise ValueError("each image has a caption and at least one reference")
        sentences = [*captions, *(words for group in references for words in group)]
        lengths = np.array([len(words) for words in sentences])
        images = np.repeat(np.arange(len(captions)), [len(group) for group in references])
        numbers: dict[str, int] = {}
        flat = [numbers.setdefault(word, len(numbers)) for words in sentences for word in words]
        orders = []
        for counted in _count_orders(np.array(flat, dtype=np.int64), lengths):
            is_caption = counted.sentences < len(captions)
            rest = counted.take(~is_caption)
            shifted = OrderCounts(rest.sentences - len(captions), rest.ngrams, rest.counts, rest.size)
            orders.append((counted.take(is_caption), shifted))
        return cls(lengths[: len(captions)], lengths[len(captions) :], images, orders)


def _count_orders(flat: np.ndarray, lengths: np.ndarray) -> Iterator[OrderCounts]:
    """Yields the counts for n = 1, 2, …; an n-gram is numbered by the (n−1)-gram before it and its last word."""
    sentences = np.repeat(np.arange(len(lengths)), lengths)
    remaining = np.repeat(np.cumsum(lengths), lengths) - np.arange(len(flat))  # words to the end of the sentence
    size = int(flat.max(initial=-1)) + 1
    starts, ngrams, vocab_size = np.arange(len(flat)), flat, max(size, 1)
    for order in range(1, MAX_ORDER + 1):
        if order > 1:
            fits = remaining[starts] >= order
            starts = starts[fits]
            distinct, ngrams = np.unique(ngrams[fits] * vocab_size + flat[starts + order - 1], return_inverse=True)
            size = len(distinct)
        keys, counts = np.unique(sentences[starts] * max(size, 1) + ngrams, return_counts=True)
        yield OrderCounts(keys // max(size, 1), keys % max(size, 1), counts, size)


def coco_bleu(table: NgramCounts) -> list[float]:
    """Returns BLEU-1 to BLEU-4 of all captions, from 0 to 1, with the length of the closest reference."""
    lengths, product, scores = table.caption_lengths, 1.0, []
    for order, (captions, references) in enumerate(table.orders, 1):
        size = max(captions.size, 1)
        reference_keys = table.images[references.sentences] * size + references.ngrams
        keys, positions = np.unique(reference_keys, return_inverse=True)
        most = np.zeros(len(keys), dtype=np.int64)  # the largest count of an n-gram in a reference of an image
        np.maximum.at(most, positions, references.counts)
        entries, matches = _find_sorted(keys, captions.sentences * size + captions.ngrams)
        correct = int(np.minimum(captions.counts[entries], most[matches]).sum())
        total = int(np.maximum(lengths - order + 1, 0).sum())
        product *= (correct + COCO_TINY) / (total + COCO_SMALL)
        scores.append(product ** (1 / order))
    distances = np.abs(table.reference_lengths - lengths[table.images])
    nearest = np.lexsort((table.reference_lengths, distances, table.images))
    first = np.unique(table.images, return_index=True)[1]  # images are in order, also after the sort
    closest = int(table.reference_lengths[nearest][first].sum())
    ratio = (int(lengths.sum()) + COCO_TINY) / (closest + COCO_SMALL)
    return [score * float(np.exp(1 - 1 / ratio)) for score in scores] if ratio < 1 else scores


def cider(table: NgramCounts) -> np.ndarray:
    """Returns the CIDEr-D of each image (P,): the mean over its references and over n of ten times the cosine between
    the n-grams of caption and reference, each weighted by the logarithm of its inverse document frequency."""
    images = len(table.caption_lengths)
    total = np.zeros(len(table.reference_lengths))
    for captions, references in table.orders:
        size = max(captions.size, 1)
        reference_keys = table.images[references.sentences] * size + references.ngrams
        frequency = np.bincount(np.unique(reference_keys) % size, minlength=size)
        weights = np.log(images) - np.log(np.maximum(frequency, 1))
        caption_values = captions.counts * weights[captions.ngrams]
        reference_values = references.counts * weights[references.ngrams]
        entries, matches = _find_sorted(captions.sentences * size + captions.ngrams, reference_keys)
        common = np.minimum(caption_values[matches], reference_values[entries]) * reference_values[entries]
        product = np.bincount(references.sentences[entries], common, len(total))
        norms = np.sqrt(np.bincount(captions.sentences, caption_values**2, images))[table.images]
        norms *= np.sqrt(np.bincount(references.sentences, reference_values**2, len(total)))
        total += np.divide(product, norms, out=np.zeros_like(total), where=norms > 0)
    # COCO measures length in bigrams, so that texts of no word and of one word are equally long.
    reference_pairs, caption_pairs = (
        np.maximum(lengths - 1, 0) for lengths in (table.reference_lengths, table.caption_lengths)
    )
    total *= np.exp(-((caption_pairs[table.images] - reference_pairs) ** 2) / (2 * CIDER_SIGMA**2))
    means = np.bincount(table.images, total, images) / np.bincount(table.images, minlength=images)
    return np.asarray(10 * means / MAX_ORDER)


def _find_sorted(ordered: np.ndarray, keys: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns which keys are among the sorted ones, and their positions there."""
    positions = np.searchsorted(ordered, keys)
    entries = np.flatnonzero(positions < len(ordered))
    entries = entries[ordered[positions[entries]] == keys[entries]]
    return entries, positions[entries]
