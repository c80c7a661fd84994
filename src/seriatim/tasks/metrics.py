"""Metrics of predictions against references: of classes, numbers and generated text. Tests compare them with others'.

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
from typing import TYPE_CHECKING, Any

import numpy as np

from ..core.metrics import ExampleScores, Measured
from ..core.text import UNSPACED

if TYPE_CHECKING:
    from ..decode.seq2seq import TargetScores

Scores = Sequence[np.ndarray] | np.ndarray
References = Sequence[Sequence[str]]  # of each input, one or more
MAX_EXPONENT = 700.0  # e to a higher power is not a number
SAMPLED_TEXTS = 2_000  # by which the scoring is chosen
SPACE_FRACTION = 0.05  # fewer spaces among the characters: a script without spaces between words
CLOSED_VOCABULARY = 20  # mean occurrences of a word from which on a vocabulary counts as closed
MAX_ORDER = 4  # words of an n-gram
CIDER_SIGMA = 6.0  # standard deviation of the length penalty
COCO_SMALL, COCO_TINY = 1e-9, 1e-15  # that COCO adds to denominators and numerators
COCO_WORDS = "case:lc|punctuation:off|words:seriatim"


def perplexity(loss: float) -> float:
    """Returns e^loss, limited to what a number can be."""
    return math.exp(min(loss, MAX_EXPONENT))


def token_metrics(scores: Sequence[TargetScores]) -> dict[str, float]:
    """Returns accuracy, loss and perplexity of the true tokens, and their number."""
    log_probs = np.concatenate([one.log_probs for one in scores])
    correct = np.concatenate([one.correct for one in scores])
    loss = -float(log_probs.mean(dtype=np.float64))
    counts = {"tokens": float(len(log_probs))}
    return {"accuracy": float(correct.mean()), "loss": loss, "perplexity": perplexity(loss), **counts}


# Classes


def class_metrics(scores: Scores, references: np.ndarray) -> Measured:
    """Returns accuracy, macro F1 and error of scores (n,classes) against class indices (n,)."""
    scores = np.stack(list(scores))
    predictions = scores.argmax(axis=1)
    counts = class_counts(predictions, references, scores.shape[1])
    accuracy = float(counts[0].sum() / len(references))
    values = {
        "accuracy": accuracy,
        "macro_f1": mean_f1(*counts),
        "error": 1 - accuracy,
        "examples": float(len(references)),
    }
    return Measured(values, examples={"accuracy": mean_scores(predictions == references)})


def mean_scores(values: np.ndarray | Sequence[float]) -> ExampleScores:
    """Returns the scores of a metric that is the mean of values (n,)."""
    return ExampleScores("mean", np.asarray(values, dtype=np.float32)[:, None])


def multi_label_metrics(logits: Scores, references: np.ndarray) -> Measured:
    """Returns subset accuracy, micro and macro F1 of logits (n,labels) against multi-hot references (n,labels).

    The error is 1 − micro F1.
    """
    counts, predicted, expected = multi_label_counts(logits, references)
    correct, predictions, targets = counts
    micro_f1 = float(2 * correct.sum() / max(predictions.sum() + targets.sum(), 1))
    exact = (predicted == expected).all(axis=1)
    values = {
        "accuracy": float(exact.mean()),
        "micro_f1": micro_f1,
        "macro_f1": mean_f1(*counts),
        "error": 1 - micro_f1,
        "examples": float(len(references)),
    }
    by_example = np.stack([(predicted & expected).sum(axis=1), predicted.sum(axis=1), expected.sum(axis=1)], axis=1)
    examples = {"accuracy": mean_scores(exact), "micro_f1": ExampleScores("f1", by_example.astype(np.float32))}
    return Measured(values, examples=examples)


Counts = tuple[np.ndarray, np.ndarray, np.ndarray]  # of each class (classes,): correct, predicted, expected


def class_counts(predictions: np.ndarray, references: np.ndarray, classes: int) -> Counts:
    """Returns how often each class was predicted correctly, predicted, and expected."""
    correct = references[references == predictions]
    counted = [np.bincount(labels, minlength=classes) for labels in (correct, predictions, references)]
    return counted[0], counted[1], counted[2]


def multi_label_counts(logits: Scores, references: np.ndarray) -> tuple[Counts, np.ndarray, np.ndarray]:
    """Returns the counts of each label, and what was predicted and expected as booleans (n,labels)."""
    predicted, expected = np.stack(list(logits)) > 0, references > 0.5
    counts = (predicted & expected).sum(axis=0), predicted.sum(axis=0), expected.sum(axis=0)
    return counts, predicted, expected


def confusion(references: np.ndarray, predictions: np.ndarray, classes: int) -> np.ndarray:
    """Returns how often each class (row) was predicted as each class (column)."""
    return np.bincount(references * classes + predictions, minlength=classes * classes).reshape(classes, classes)


def precision_recall_f1(correct: np.ndarray, predicted: np.ndarray, expected: np.ndarray) -> tuple[np.ndarray, ...]:
    """Returns precision, recall and F1 from counts; 0 if nothing was predicted or nothing was expected."""
    precision = correct / np.maximum(predicted, 1)
    recall = correct / np.maximum(expected, 1)
    f1 = 2 * correct / np.maximum(predicted + expected, 1)
    return precision, recall, f1


def mean_f1(correct: np.ndarray, predicted: np.ndarray, expected: np.ndarray) -> float:
    """Returns the mean F1 of the classes that occur, as a reference or as a prediction."""
    f1 = precision_recall_f1(correct, predicted, expected)[2]
    occurs = (predicted + expected) > 0
    return float(f1[occurs].mean()) if occurs.any() else 0.0


# Numbers


def regression_metrics(predictions: np.ndarray, references: np.ndarray) -> Measured:
    """Returns MSE, MAE, R², Spearman's and Pearson's correlation of values (n,targets), as means over the targets."""
    predictions, references = predictions.astype(np.float64), references.astype(np.float64)
    errors = predictions - references
    pairs = list(zip(references.T, predictions.T, strict=True))
    values = {
        "mse": float((errors**2).mean()),
        "mae": float(np.abs(errors).mean()),
        "r2": float(np.mean([r_squared(*pair) for pair in pairs])),
        "spearman": float(np.mean([spearman(*pair) for pair in pairs])),
        "pearson": float(np.mean([pearson(*pair) for pair in pairs])),
        "examples": float(len(references)),
    }
    by_example = {"mse": (errors**2).mean(axis=1), "mae": np.abs(errors).mean(axis=1)}
    return Measured(values, examples={name: mean_scores(errors) for name, errors in by_example.items()})


def ranks(values: np.ndarray) -> np.ndarray:
    """Returns the rank of each value, 1 for the smallest; equal values share the mean of their ranks."""
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    ends = np.cumsum(counts)
    return ((2 * ends - counts + 1) / 2)[inverse]


def pearson(first: np.ndarray, second: np.ndarray) -> float:
    """Returns Pearson's correlation; 0 if one of them is constant."""
    first, second = first - first.mean(), second - second.mean()
    norm = float(np.sqrt((first**2).sum() * (second**2).sum()))
    return float((first * second).sum()) / norm if norm > 0 else 0.0


def spearman(first: np.ndarray, second: np.ndarray) -> float:
    """Returns the correlation of the ranks."""
    return pearson(ranks(first), ranks(second))


def r_squared(references: np.ndarray, predictions: np.ndarray) -> float:
    """Returns 1 − Σ (y − ŷ)² / Σ (y − ȳ)²; 0 if all references are equal."""
    total = float(((references - references.mean()) ** 2).sum())
    return 1.0 - float(((references - predictions) ** 2).sum()) / total if total > 0 else 0.0


def mean_and_std(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns mean and standard deviation of each column (columns,) in float32; a constant column has std 1."""
    mean = values.mean(axis=0, dtype=np.float64)
    differences = values - mean
    std = np.sqrt(np.square(differences, out=differences).mean(axis=0, dtype=np.float64))
    std = np.where(std > 1e-7 * np.maximum(np.abs(mean), 1e-30), std, 1.0)
    return mean.astype(np.float32), std.astype(np.float32)


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


def translation_metrics(hypotheses: Sequence[str], references: References, scoring: Scoring) -> Measured:
    """Returns BLEU and chrF with the first reference, BLEU with all if there are several, and exact matches."""
    first = [group[:1] for group in references]
    scores = {"bleu": bleu(hypotheses, first, scoring.tokenize)}
    if any(len(group) > 1 for group in references):
        scores["bleu_all"] = bleu(hypotheses, references, scoring.tokenize)
    scores["chrf"] = chrf(hypotheses, first)
    values = {name: value for name, (value, _) in scores.items()}
    values = order_by_scoring(values, hypotheses, references, scoring.closed)
    signatures = {name: signature for name, (_, signature) in scores.items()}
    examples = {
        "bleu": ExampleScores("bleu", bleu_counts(hypotheses, first, scoring.tokenize)),
        "exact_match": mean_scores(exact_matches(hypotheses, references)),
    }
    return Measured(values | {"sentences": float(len(hypotheses))}, signatures, examples)


def order_by_scoring(
    values: dict[str, float], hypotheses: Sequence[str], references: References, closed: bool
) -> dict[str, float]:
    """Returns metrics with the fraction of exact matches: first for a closed vocabulary, else last."""
    exact = {"exact_match": float(np.mean(exact_matches(hypotheses, references)))}
    return exact | values if closed else values | exact


def bleu(
    hypotheses: Sequence[str], references: References, tokenize: str = "13a", order: int = MAX_ORDER
) -> tuple[float, str]:
    """Returns the corpus BLEU with n-grams of up to `order` words, from 0 to 100, and its signature."""
    from sacrebleu.metrics import BLEU

    metric = BLEU(tokenize=tokenize, max_ngram_order=order, force=True)
    return float(metric.corpus_score(list(hypotheses), _streams(references)).score), str(metric.get_signature())


def bleu_counts(hypotheses: Sequence[str], references: References, tokenize: str = "13a") -> np.ndarray:
    """Returns of each sentence (n,10) both lengths, matching and all n-grams of one to four words."""
    from sacrebleu.metrics import BLEU

    metric = BLEU(tokenize=tokenize, force=True)
    scores = [
        metric.corpus_score([text], _streams([group])) for text, group in zip(hypotheses, references, strict=True)
    ]
    counts = [(score.sys_len, score.ref_len, *score.counts, *score.totals) for score in scores]
    return np.array(counts, dtype=np.float32).reshape(len(hypotheses), 2 + 2 * MAX_ORDER)


def longest_ngram(references: References, tokenize: str = "13a") -> int:
    """Returns the words of the longest reference as BLEU splits them, from 1 to 4: without any n-gram of an order that
    it takes, BLEU is 0 however good the texts are."""
    from sacrebleu.metrics import BLEU

    split = BLEU(tokenize=tokenize).tokenizer
    return max(1, min(MAX_ORDER, max(len(split(text).split()) for group in references for text in group)))


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


def caption_metrics(hypotheses: Sequence[str], references: References, closed: bool = False) -> Measured:
    """Returns CIDEr (up to 10, as COCO's), BLEU-4 to BLEU-1 (up to 100) and exact matches, with all references.

    Args:
        hypotheses: A caption of each image.
        references: One or more captions of each image.
        closed: Whether exact matches come first; see `Scoring`.
    """
    captions = [caption_words(text) for text in hypotheses]
    reference_words = [[caption_words(text) for text in group] for group in references]
    scores = coco_bleu(captions, reference_words)
    ciders = cider(captions, reference_words)
    values = {"cider": float(np.mean(ciders))}
    values |= {f"bleu{order}": 100 * scores[order - 1] for order in range(MAX_ORDER, 0, -1)}
    values = order_by_scoring(values, hypotheses, references, closed)
    several = f"refs:{'all' if any(len(group) > 1 for group in references) else 1}"
    signatures = {f"bleu{order}": f"coco|{several}|{COCO_WORDS}|len:closest" for order in range(MAX_ORDER, 0, -1)}
    signatures = {"cider": f"coco CIDEr-D|{several}|{COCO_WORDS}|df:refs"} | signatures
    examples = {
        "cider": mean_scores(ciders),
        "exact_match": mean_scores(exact_matches(hypotheses, references)),
    }
    return Measured(values | {"captions": float(len(hypotheses))}, signatures, examples)


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


def tf_idf(
    counts: Ngrams, frequency: Mapping[tuple[str, ...], int], images: int
) -> tuple[dict[tuple[str, ...], float], float]:
    """Returns the weighted counts of n-grams, and their norm."""
    weights = {
        ngram: count * (math.log(images) - math.log(max(frequency[ngram], 1))) for ngram, count in counts.items()
    }
    return weights, math.sqrt(sum(weight**2 for weight in weights.values()))
