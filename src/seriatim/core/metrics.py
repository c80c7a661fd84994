"""Metrics: the label, direction and number format of each metric, declared once.

A task returns its metrics as a dict from name to value. The command line, reports and model cards look up here how a
metric is labeled and formatted, so that an accuracy is a percentage and a perplexity has two decimals everywhere. A
metric without an entry takes its name as label; a name that contains a known one (`top5_accuracy`, `mae_wind`) is
formatted like that one. A task declares its own metrics with `register_metric`.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal

from .text import MISSING as MISSING
from .text import format_decimals

if TYPE_CHECKING:
    import numpy as np

SCORE_WIDTHS = {"mean": 1, "ratio": 2, "f1": 3, "bleu": 10}  # numbers of each example; see `ExampleScores`
MIN_SIGNIFICANT, MAX_DIGITS = 3, 4  # significant digits of a small value, and digits that a large value needs


@dataclass(frozen=True)
class Metric:
    """The declaration of a metric."""

    label: str
    direction: Literal["lower", "higher", "neither"] = "lower"  # which values are better
    digits: int = 3  # decimals, of the percentage if it is one
    percent: bool = False
    description: str = ""
    is_count: bool = False  # it counts what was evaluated
    stands_for_loss: Literal["never", "always", "beside others"] = "never"  # shown first if the loss is monitored


@dataclass(frozen=True)
class ExampleScores:
    """What each example contributes to a metric; two models are compared on the same examples by it.

    Args:
        kind: How sums over the examples give the metric. "mean": of the values (n,1). "ratio": of two sums (n,2).
            "f1": correct, predicted and expected ones (n,3). "bleu": the length of hypothesis and reference, matching
            n-grams and all n-grams of one to four words (n,10).
        values: (n,k), in the order of the examples of the split.
    """

    kind: Literal["mean", "ratio", "f1", "bleu"]
    values: np.ndarray

    def __post_init__(self) -> None:
        if self.values.ndim != 2 or self.values.shape[1] != SCORE_WIDTHS.get(self.kind):
            raise ValueError(f"scores of shape {self.values.shape} are none of a {self.kind}")


@dataclass(frozen=True)
class Measured(Mapping[str, float]):
    """Metrics by name, with what they were computed from.

    Args:
        metrics: Name → value.
        signatures: How metrics with several definitions, such as BLEU, were computed.
        examples: What each example contributes to a metric.
    """

    metrics: Mapping[str, float] = field(default_factory=dict)
    signatures: Mapping[str, str] = field(default_factory=dict)
    examples: Mapping[str, ExampleScores] = field(default_factory=dict)

    def __getitem__(self, name: str) -> float:
        return self.metrics[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.metrics)

    def __len__(self) -> int:
        return len(self.metrics)


def _percentage(label: str, description: str, direction: Literal["lower", "higher"] = "higher") -> Metric:
    return Metric(label, direction, 1, True, description)


def _of_text(metric: Metric, stands_for_loss: Literal["always", "beside others"] = "always") -> Metric:
    """Returns a metric of generated text, which says more than the loss."""
    return replace(metric, stands_for_loss=stands_for_loss)


def _count(label: str) -> Metric:
    return Metric(label, "neither", 0, description="the number evaluated", is_count=True)


METRICS = {
    "loss": Metric("Loss", description="the quantity that training minimizes"),
    "perplexity": Metric("Perplexity", digits=2, description="e^loss: the number of equally likely choices"),
    "bits_per_character": Metric("Bits per character", description="compressed size with this model"),
    "bits_per_byte": Metric("Bits per byte", description="compressed size with this model, whatever its tokens are"),
    "nll": Metric("Negative log-likelihood", description="nats per frame or example"),
    "accuracy": _percentage("Accuracy", "share of correct predictions"),
    "error": _percentage("Error", "share of wrong predictions", "lower"),
    "exact_match": _of_text(_percentage("Exact match", "share of answers that equal a reference"), "beside others"),
    "macro_f1": _percentage("Macro F1", "mean of the F1 of each class: rare classes count as much as common ones"),
    "micro_f1": _percentage("Micro F1", "F1 over all decisions together"),
    "f1": _percentage("F1", "harmonic mean of precision and recall"),
    "precision": _percentage("Precision", "share of the predicted that is correct"),
    "recall": _percentage("Recall", "share of the references that is predicted"),
    "mse": Metric("MSE", description="mean squared error"),
    "rmse": Metric("RMSE", description="root mean squared error"),
    "mae": Metric("MAE", description="mean absolute error"),
    "mase": Metric("MASE", description="absolute error relative to the seasonal naive forecast, averaged over series"),
    "msis": Metric("MSIS", description="width of an interval and how far values are outside, on the scale of MASE"),
    "smape": _percentage("sMAPE", "absolute error relative to the mean of value and forecast", "lower"),
    "coverage": Metric("Coverage", "neither", 1, True, "share within the band; best at the band's nominal share"),
    "pinball": Metric("Quantile loss", description="mean pinball loss over the quantiles"),
    "r2": Metric("R²", "higher", description="explained share of the variance; 0 is the mean, 1 is perfect"),
    "spearman": Metric("Spearman", "higher", description="rank correlation, from −1 to 1"),
    "pearson": Metric("Pearson", "higher", description="correlation, from −1 to 1"),
    "bleu": _of_text(Metric("BLEU", "higher", 1, description="n-gram overlap with the reference, up to 100")),
    "bleu_all": Metric("BLEU (all references)", "higher", 1, description="n-gram overlap with any reference"),
    "chrf": Metric("chrF", "higher", 1, description="character n-gram overlap with the reference, up to 100"),
    "bleu1": Metric("BLEU-1", "higher", 1, description="word overlap with any reference, up to 100"),
    "bleu2": Metric("BLEU-2", "higher", 1, description="overlap of up to two words with any reference, up to 100"),
    "bleu3": Metric("BLEU-3", "higher", 1, description="overlap of up to three words with any reference, up to 100"),
    "bleu4": Metric("BLEU-4", "higher", 1, description="overlap of up to four words with any reference, up to 100"),
    "cider": _of_text(
        Metric("CIDEr", "higher", 3, description="n-gram overlap with the references, weighted by rarity, to 10")
    ),
    "pointing": _percentage("Pointing", "share of nouns for which the attention's peak lies in the noun's box"),
    "pointing_mass": _percentage("Attention in the box", "share of the attention for a noun that lies in its box"),
    "tokens": _count("Tokens"),
    "examples": _count("Examples"),
    "frames": _count("Frames"),
    "sequences": _count("Sequences"),
    "series": _count("Series"),
    "values": _count("Values"),
    "words": _count("Words"),
    "sentences": _count("Sentences"),
    "captions": _count("Captions"),
    "nouns": _count("Nouns"),
    "entities": _count("Entities"),
    "questions": _count("Questions"),
}
# 1 − error, if they equal it. Those that are the error of any task that has them come first: of a tagger of entities
# that is right or wrong throughout, the accuracy equals F1 too.
COMPLEMENTS = ("f1", "micro_f1", "accuracy", "macro_f1", "exact_match")


def register_metric(name: str, metric: Metric) -> None:
    """Declares a metric of a task, or replaces a declaration."""
    METRICS[name] = metric


def get_metric(name: str) -> Metric:
    """Returns the declaration of a metric, or one derived from its name."""
    if name in METRICS:
        return METRICS[name]
    words = name.split("_")
    label = " ".join(words)
    label = label[:1].upper() + label[1:]
    suffixes = ["_".join(words[first:]) for first in range(1, len(words))]
    prefixes = ["_".join(words[:last]) for last in range(len(words) - 1, 0, -1)]
    known = next((part for part in [*suffixes, *prefixes] if part in METRICS), None)
    if known is None:
        return Metric(label)
    if known in prefixes:  # such as msis_95, mae_wind
        label = " ".join([METRICS[known].label, *words[known.count("_") + 1 :]])
    return replace(METRICS[known], label=label)


def metric_label(name: str) -> str:
    return get_metric(name).label


def label_in_sentence(name: str) -> str:
    """Returns the label in lower case, unless it is a name or an abbreviation."""
    label = metric_label(name)
    return label if label in ("Spearman", "Pearson") or not label[1:2].islower() else label[0].lower() + label[1:]


def format_metric(name: str, value: object, extra_digits: int = 0) -> str:
    """Returns a value as text: 0.8432 → "84.3 %", 1066.0 → "1,066"."""
    metric, number = get_metric(name), finite(value)
    if metric.is_count:
        return f"{number:,.0f}" if number is not None else format_decimals(value)
    if metric.percent:
        digits = metric.digits + extra_digits
        return f"{format_decimals(100 * number, digits)} %" if number is not None else format_decimals(value)
    size = abs(number or 0)
    integer_digits = 1 if size < 10 else math.floor(math.log10(size)) + 1
    digits = max(min(metric.digits, MAX_DIGITS - integer_digits) + extra_digits, 0)
    if metric.direction == "higher" and size < 0.5 * 10**-digits:
        return format_decimals(0.0, digits)  # a tiny score is 0; of a tiny error the digits matter
    return format_decimals(
        value, digits, 1 if metric.digits == 1 else MIN_SIGNIFICANT
    )  # more digits of BLEU mean nothing


def describe_metric(name: str, value: object) -> str:
    """Returns label and value for a sentence: "accuracy 84.3 %"."""
    return f"{label_in_sentence(name)} {format_metric(name, value)}"


def main_metric(values: Mapping[str, object], monitor: str = "loss") -> str:
    """Returns the metric to show first: the monitored one, or an easier one that says the same.

    An error is shown as its complement, such as accuracy; a loss as the first metric that declares to stand for it, if
    there is one that always does, as for generated text.
    """
    declared = {name: METRICS[name].stands_for_loss for name in values if name in METRICS}
    if monitor == "loss" and "always" in declared.values():
        return next(name for name, stands in declared.items() if stands != "never")
    error = finite(values.get("error"))
    if monitor != "error" or error is None:
        return monitor
    return next((name for name in COMPLEMENTS if _equal(values.get(name), 1 - error)), monitor)


def displayed_metrics(values: Mapping[str, object], monitor: str = "loss") -> list[str]:
    """Returns the metrics that deserve a column, the main one first: no counts, and no duplicates of the loss."""
    first = main_metric(values, monitor)
    omitted = (first, monitor) if monitor != "loss" else (first,)
    others = [name for name in values if not get_metric(name).is_count and name not in omitted]
    others = [name for name in others if name == "loss" or not _equal(values[name], finite(values.get("loss")))]
    if _equal(values.get("bits_per_byte"), finite(values.get("bits_per_character"))):  # the text is ASCII
        others = [name for name in others if name != "bits_per_byte"]
    return [name for name in (first,) if name in values] + others


def _equal(value: object, other: float | int | None) -> bool:
    number = finite(value)
    return number is not None and other is not None and math.isclose(number, other, rel_tol=1e-9, abs_tol=1e-9)


def merge_metrics(splits: Iterable[Mapping[str, object]]) -> dict[str, object]:
    """Returns every metric of several dicts in their order, with its first value."""
    merged: dict[str, object] = {}
    for values in splits:
        for name, value in values.items():
            merged.setdefault(name, value)
    return merged


def is_better(name: str, value: float, other: float) -> bool:
    """Returns whether the first value is better than the second."""
    return value > other if get_metric(name).direction == "higher" else value < other


def finite(value: object) -> float | int | None:
    """Returns the value if it is a finite number, else None; an integer beyond every float counts as infinite."""
    if isinstance(value, float | int) and not isinstance(value, bool) and abs(value) <= sys.float_info.max:
        return value
    return None
