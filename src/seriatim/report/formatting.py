"""Numbers and texts as people read them, and arrays as charts store and fold them."""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Iterable, Sequence

import numpy as np

from ..core.metrics import MISSING, finite

MAX_LISTED = 12  # values named in an alt text
PREFIXES = ("", "k", "M", "G", "T", "P", "E", "Z")


# Numbers


def format_number(value: object, digits: int = 3) -> str:
    """Returns a number as people read it: 12,345; 1.23 M; 0.0457; 3.2·10^−5; a dash if missing; texts unchanged."""
    if isinstance(value, np.generic):
        value = value.item()
    if value is None or isinstance(value, bool) or not isinstance(value, int | float):
        return MISSING if value is None else str(value)
    if not math.isfinite(value):
        return "not a number" if math.isnan(value) else "∞" if value > 0 else "−∞"
    if float(value).is_integer() and abs(value) < 100_000:
        return f"{int(value):,}".replace("-", "−")
    size = abs(float(f"{value:.{digits}g}"))
    if 1e5 <= size < 1e15:
        return with_prefix(value, digits=digits)
    if size >= 1e15 or 0 < size < 1e-4:
        mantissa, exponent = f"{value:.{digits - 1}e}".split("e")
        mantissa = mantissa.rstrip("0").rstrip(".") if "." in mantissa else mantissa
        return f"{mantissa}·10^{int(exponent)}".replace("-", "−")
    return ("−" if value < 0 else "") + significant(size, digits)


def with_prefix(value: float | int | None, unit: str = "", digits: int = 3) -> str:
    """Returns a number with an SI prefix and a unit: 1_020_000 → "1.02 M", with "FLOP" "1.02 MFLOP"."""
    if value is None or not math.isfinite(value):
        return format_number(value)
    size, index = abs(float(value)), 0
    while size >= 999.5 and index + 1 < len(PREFIXES):
        size, index = size / 1000, index + 1
    suffix = PREFIXES[index] + unit
    return f"{'−' if value < 0 else ''}{significant(size, digits)}{' ' if suffix else ''}{suffix}"


def significant(value: float, digits: int) -> str:
    """Returns a number with so many significant digits, without zeros at the end of a fraction."""
    if value == 0:
        return "0"
    rounded = float(f"{value:.{digits}g}")
    text = f"{rounded:,.{max(digits - 1 - math.floor(math.log10(rounded)), 0)}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def format_duration(seconds: float | int | None) -> str:
    """Returns a time: 0.042 → "42 ms", 35.2 → "35.2 s", 750 → "12 min 30 s"."""
    if seconds is None or not math.isfinite(seconds):
        return format_number(seconds)
    if seconds < 1:
        return f"{significant(seconds * 1000, 3)} ms" if seconds else "0 s"
    if seconds < 119.5:
        return f"{significant(seconds, 3)} s"
    whole = round(seconds)
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02} min"


def format_change(share: float | None) -> str:
    """Returns a relative difference: 0.031 → "+3.1 %"."""
    if finite(share) is None or share is None:
        return MISSING
    text = f"{100 * share:+.1f} %".replace("-", "−")
    return "±0.0 %" if text in ("+0.0 %", "−0.0 %") else text


def list_values(pairs: Iterable[tuple[str, float | None]], limit: int = MAX_LISTED) -> str:
    """Returns "name value, name value, …" of the pairs with a value."""
    present = [f"{name} {format_number(value)}".strip() for name, value in pairs if value is not None]
    return ", ".join(present[:limit]) + (f" and {len(present) - limit} more" if len(present) > limit else "")


# Arrays


def row(values: np.ndarray | Sequence[float]) -> tuple[float | None, ...]:
    """Returns an array (n,) with four significant digits, which is what a drawing shows; NaN becomes None."""
    return tuple(float(f"{value:.4g}") if math.isfinite(value) else None for value in np.asarray(values, float))


def matrix(values: np.ndarray) -> tuple[tuple[float | None, ...], ...]:
    """Returns an array (rows, columns) with four significant digits; NaN becomes None."""
    return tuple(row(line) for line in values)


def fold(
    values: np.ndarray, labels: Sequence[str], limit: int, axis: int, keep_first: bool = False
) -> tuple[np.ndarray, list[str]]:
    """Returns the values with at most `limit` cells along an axis, and the labels of these cells.

    Neighbors are averaged; with `keep_first`, the first cells stay and the others are summed in one, as for counts.
    """
    count = values.shape[axis]
    if count <= limit:
        return values, list(labels)
    if keep_first:
        first, others = np.split(values, [limit - 1], axis=axis)
        names = [*labels[: limit - 1], f"{count - limit + 1} others"]
        return np.concatenate([first, others.sum(axis=axis, keepdims=True)], axis=axis), names
    groups = np.array_split(np.arange(count), limit)
    missing = np.isnan(values)
    sums = np.stack([np.where(missing, 0, values).take(group, axis=axis).sum(axis=axis) for group in groups], axis=axis)
    counts = np.stack([(~missing).take(group, axis=axis).sum(axis=axis) for group in groups], axis=axis)
    means = np.where(counts > 0, sums / np.maximum(counts, 1), np.nan)
    return means, [f"{labels[group[0]]}…" if len(group) > 1 else labels[group[0]] for group in groups]


def principal_components(vectors: np.ndarray) -> tuple[np.ndarray, tuple[float, float]]:
    """Returns vectors (n,D) along their first two principal components (n,2), and the share of variance of each.

    The sign of a component is such that the vector furthest out has a positive coordinate.
    """
    centered = vectors.astype(np.float64) - vectors.mean(axis=0, dtype=np.float64)
    _, sizes, directions = np.linalg.svd(centered, full_matrices=False)
    directions = np.concatenate([directions[:2], np.zeros((2 - len(directions[:2]), vectors.shape[1]))])
    points = centered @ directions.T  # (n,2)
    outermost = points[np.abs(points).argmax(axis=0), [0, 1]]
    total = float((sizes**2).sum())
    differ = total > 1e-12 * max(float((vectors.astype(np.float64) ** 2).sum()), 1e-300)
    shares = [float(size**2) / total if differ else 0.0 for size in [*sizes[:2].tolist(), 0.0, 0.0][:2]]
    return points * np.where(outermost < 0, -1.0, 1.0) * differ, (shares[0], shares[1])


# Texts

# Control characters would vanish or break a page: those of ASCII have symbols of their own in Unicode. What no UTF-8
# file can hold (lone surrogates), no page may (C1, non-characters), or what reorders the text beside it (overrides and
# isolates of direction) becomes the replacement character.
CONTROLS = {code: chr(0x2400 + code) for code in range(32) if chr(code) not in "\n\t"} | {0x7F: "␡"}
UNSAFE = re.compile("[\u0080-\u009f\u202a-\u202e\u2066-\u2069\ud800-\udfff\ufdd0-\ufdef\ufffe\uffff]")


def clean_text(text: object, limit: int = 4_000) -> str:
    """Returns a text from data fit for a page: control characters as symbols, cut after `limit` characters."""
    cleaned = UNSAFE.sub("\ufffd", str(text).translate(CONTROLS))
    return cleaned if len(cleaned) <= limit else cleaned[:limit] + " …"


def one_line(text: object, limit: int = 40) -> str:
    """Returns a text from data as one short line for a chart."""
    line = " ".join(clean_text(text).split())
    return line if len(line) <= limit else line[: limit - 1] + "…"


def text_width(text: str) -> int:
    """Returns the width of a text in letters: wide East Asian characters count two, combining marks none."""
    return sum(
        0
        if unicodedata.category(char) in ("Mn", "Me", "Cf")
        else 2
        if unicodedata.east_asian_width(char) in "WF"
        else 1
        for char in text
    )
