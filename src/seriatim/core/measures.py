"""The measures by which models are judged: what each is called, which way is better, and how it is written.

A task returns its measures by name. Whoever shows them (the command line, reports, cards) looks here, so that an
accuracy is a percentage and a perplexity has two decimals everywhere. A measure of a user's own task needs no entry:
its name is its title, and one that is made from a known name (`top5_accuracy`, `mae_wind`) is written like that one.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

NONE = "–"
LEAST, MOST = 3, 4  # digits that even a small measure keeps, and that a large one needs


@dataclass(frozen=True)
class Measure:
    """`digits` are decimals, of the percentage where it is one; `hint` says what it is, in a few words; `counts` where
    it says how much was evaluated, not how well."""

    title: str
    better: Literal["lower", "higher", "neither"] = "lower"
    digits: int = 3
    percent: bool = False
    hint: str = ""
    counts: bool = False


class Measured(dict[str, float]):
    """Measures, and the signatures of those whose figure depends on how it was taken, as that of BLEU does."""

    def __init__(self, values: Mapping[str, float], signatures: Mapping[str, str] | None = None) -> None:
        super().__init__(values)
        self.signatures = dict(signatures or {})


def signatures(values: Mapping[str, float]) -> dict[str, str]:
    return values.signatures if isinstance(values, Measured) else {}


def _share(title: str, hint: str, better: Literal["lower", "higher"] = "higher") -> Measure:
    return Measure(title, better, 1, True, hint)


def _count(title: str) -> Measure:
    return Measure(title, "neither", 0, hint="how many were evaluated", counts=True)


MEASURES = {
    "loss": Measure("Loss", hint="what training makes small"),
    "perplexity": Measure("Perplexity", digits=2, hint="choices that the model hesitates between, e^loss"),
    "bits_per_character": Measure("Bits per character", hint="what a perfect compressor would need with this model"),
    "nll": Measure("Negative log-likelihood", hint="nats for a whole frame or example"),
    "accuracy": _share("Accuracy", "share that is right"),
    "error": _share("Error", "share that is wrong", "lower"),
    "exact_match": _share("Exact match", "share of answers that are right to the letter"),
    "macro_f1": _share("Macro F1", "F1 of each class, averaged: rare classes count as much as common ones"),
    "micro_f1": _share("Micro F1", "F1 over all decisions together"),
    "f1": _share("F1", "harmonic mean of precision and recall"),
    "precision": _share("Precision", "share of what was found that is right"),
    "recall": _share("Recall", "share of what is there that was found"),
    "mse": Measure("MSE", hint="mean of the squared errors"),
    "rmse": Measure("RMSE", hint="root of the mean of the squared errors"),
    "mae": Measure("MAE", hint="mean of the absolute errors"),
    "mase": Measure("MASE", hint="absolute error against that of the seasonal naive forecast; below 1 is better"),
    "smape": _share("sMAPE", "absolute error as a share of the mean of value and forecast", "lower"),
    "coverage": Measure("Coverage", "neither", 1, True, "share within the band; best where it is what was asked for"),
    "pinball": Measure("Quantile loss", hint="mean pinball loss over the quantiles"),
    "r2": Measure("R²", "higher", hint="share of the variance that is explained; 0 is the mean, 1 is perfect"),
    "spearman": Measure("Spearman", "higher", hint="rank correlation, from −1 to 1"),
    "pearson": Measure("Pearson", "higher", hint="correlation, from −1 to 1"),
    "bleu": Measure("BLEU", "higher", 1, hint="n-grams in common with the reference, up to 100"),
    "bleu_all": Measure("BLEU (all references)", "higher", 1, hint="n-grams in common with any reference, up to 100"),
    "chrf": Measure("chrF", "higher", 1, hint="character n-grams in common with the reference, up to 100"),
    "bleu1": Measure("BLEU-1", "higher", 1, hint="words in common with any reference, up to 100"),
    "bleu2": Measure("BLEU-2", "higher", 1, hint="words and pairs of words in common with any reference, up to 100"),
    "bleu3": Measure("BLEU-3", "higher", 1, hint="n-grams up to three words in common with any reference, up to 100"),
    "bleu4": Measure("BLEU-4", "higher", 1, hint="n-grams up to four words in common with any reference, up to 100"),
    "cider": Measure("CIDEr", "higher", 3, hint="n-grams in common with people's captions, rare ones first, up to 10"),
    "pointing": _share("Pointing", "share of nouns that the attention's peak lies in the box of"),
    "pointing_mass": _share("Attention in the box", "share of the attention for a noun that lies in its box"),
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


def measure(name: str) -> Measure:
    """The entry of a measure, or one made from its name."""
    if name in MEASURES:
        return MEASURES[name]
    words = name.split("_")
    title = " ".join(words)
    title = title[:1].upper() + title[1:]
    tails = ["_".join(words[first:]) for first in range(1, len(words))]
    heads = ["_".join(words[:last]) for last in range(len(words) - 1, 0, -1)]
    known = next((MEASURES[part] for part in [*tails, *heads] if part in MEASURES), Measure(title))
    return replace(known, title=title)


def title(name: str) -> str:
    return measure(name).title


def phrase(name: str) -> str:
    """The title within a sentence: names and abbreviations keep their capitals."""
    text = title(name)
    return text if text in ("Spearman", "Pearson") or not text[1:2].islower() else text[0].lower() + text[1:]


def shown(name: str, value: Any, more: int = 0) -> str:
    """A value as people read it: 0.8432 → "84.3 %", 1066.0 → "1,066"; with `more` digits where asked for."""
    about = measure(name)
    if about.counts:
        return f"{value:,.0f}" if finite(value) is not None else plain(value)
    if about.percent:
        return f"{plain(100 * value, about.digits + more)} %" if finite(value) is not None else plain(value)
    size = abs(finite(value) or 0)
    before = 1 if size < 10 else math.floor(math.log10(size)) + 1
    digits = max(min(about.digits, MOST - before) + more, 0)
    if about.better == "higher" and size < 0.5 * 10**-digits:
        return plain(0.0, digits)  # nothing was reached: by how little more does not matter, as it does of an error
    return plain(value, digits, LEAST)


def told(name: str, value: Any) -> str:
    """Name and value within a sentence: "accuracy 84.3 %"."""
    return f"{phrase(name)} {shown(name, value)}"


def main(values: Mapping[str, Any], objective: str = "loss") -> str:
    """The measure to show first: the objective, but an error is easier to read as the share that is right, and of
    translations and captions people ask whether they are good, not how likely."""
    if objective == "loss" and ("bleu" in values or "cider" in values):
        return next(name for name in values if name in ("bleu", "cider", "exact_match"))
    error = finite(values.get("error"))
    if objective != "error" or error is None:
        return objective
    return next((name for name in RIGHT if _equal(values.get(name), 1 - error)), objective)


def telling(values: Mapping[str, Any], objective: str = "loss") -> list[str]:
    """The measures worth a column, the main one first: no counts, and nothing that is the loss by another name."""
    first = main(values, objective)
    left_out = (first, objective) if objective != "loss" else (first,)
    others = [name for name in values if not measure(name).counts and name not in left_out]
    others = [name for name in others if name == "loss" or not _equal(values[name], finite(values.get("loss")))]
    return [name for name in (first,) if name in values] + others


RIGHT = ("accuracy", "f1", "micro_f1", "macro_f1", "exact_match")  # what an error may be the rest of


def _equal(value: Any, other: float | int | None) -> bool:
    return finite(value) is not None and other is not None and math.isclose(value, other, rel_tol=1e-9, abs_tol=1e-9)


def first_of(parts: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """Every measure of some parts, in their order, with its first value."""
    found: dict[str, Any] = {}
    for values in parts:
        for name, value in values.items():
            found.setdefault(name, value)
    return found


def better(name: str, one: float, other: float) -> bool:
    """Whether the first value is better than the second."""
    return one > other if measure(name).better == "higher" else one < other


def finite(value: Any) -> float | int | None:
    number = isinstance(value, float | int) and not isinstance(value, bool)
    return value if number and math.isfinite(value) else None


def plain(value: Any, digits: int = 3, significant: int = 1) -> str:
    """A number with so many decimals, more where it is small; very large and very small ones as powers of ten."""
    number = finite(value)
    if number is None:
        return _unreadable(value)
    size = abs(number)
    if size >= 1e6 or 0 < size < 1e-4:
        mantissa, exponent = f"{number:.2e}".split("e")
        return f"{mantissa}·10^{int(exponent)}".replace("-", "−")
    if 0 < size < 1:
        digits = max(digits, significant - 1 - math.floor(math.log10(size)))
    text = f"{number:,.{digits}f}".replace("-", "−")
    return text.removeprefix("−") if not text.strip("−0.,") else text


def _unreadable(value: Any) -> str:
    """A figure that is missing is a dash; one that is not finite is told."""
    if isinstance(value, float):
        return "not a number" if math.isnan(value) else "∞" if value > 0 else "−∞"
    return NONE
