"""Text for people: numbers, amounts, durations, counted nouns and lists, the same everywhere; without torch."""

from __future__ import annotations

import math
import numbers
import re
import unicodedata
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np

MISSING = "–"
MAX_LISTED = 10  # items named in a message
PREFIXES = ("", "k", "M", "G", "T", "P", "E", "Z")
# Scripts without spaces between words (Thai, Burmese, Khmer, Japanese, Chinese): a word may be next to other letters.
UNSPACED = re.compile("[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\U00020000-\U0003ffff]")


# Numbers


def format_number(value: object, digits: int = 3) -> str:
    """Returns a number with significant digits: 12,345; 1.23 M; 0.0457; 3.2·10^−5; a dash if missing; texts unchanged.

    Args:
        value: The number.
        digits: Significant digits; integers below 100,000 have all.
    """
    if value is None or isinstance(value, bool) or not isinstance(value, numbers.Real):
        return MISSING if value is None else str(value)
    number = int(value) if isinstance(value, numbers.Integral) else float(value)
    if not is_finite(number):
        return _not_finite(number)
    if abs(number) < 100_000 and float(number).is_integer():
        return f"{int(number):,}".replace("-", "−")
    size = abs(float(f"{number:.{digits}g}"))
    if 1e5 <= size < 1e15:
        return format_amount(number, digits=digits)
    if size >= 1e15 or 0 < size < 1e-4:
        return _power_of_ten(number, digits)
    return ("−" if number < 0 else "") + significant(size, digits)


def format_decimals(value: object, decimals: int = 3, digits: int = 1) -> str:
    """Returns a number with fixed decimals, for columns of metrics: 0.843, 1,066.25; a dash if it is no number.

    Args:
        value: The number.
        decimals: Digits behind the point.
        digits: Significant digits of a value below 1, which has more decimals if it needs them.
    """
    if isinstance(value, bool) or not isinstance(value, int | float):
        return MISSING
    if not is_finite(value):
        return _not_finite(value) if isinstance(value, float) else MISSING
    size = abs(value)
    if size >= 1e6 or 0 < size < 1e-4:
        return _power_of_ten(value, 3, keep_zeros=True)
    if 0 < size < 1:
        decimals = max(decimals, digits - 1 - math.floor(math.log10(size)))
    text = f"{value:,.{decimals}f}".replace("-", "−")
    return text.removeprefix("−") if not text.strip("−0.,") else text


def format_amount(value: float | None, unit: str = "", digits: int = 3) -> str:
    """Returns a number with an SI prefix and a unit: 1_020_000 → "1.02 M", with "FLOP" "1.02 MFLOP"."""
    if value is None or not is_finite(value):
        return format_number(value)
    size, index = abs(float(value)), 0
    while size >= 999.5 and index + 1 < len(PREFIXES):
        size, index = size / 1000, index + 1
    suffix = PREFIXES[index] + unit
    return f"{'−' if value < 0 else ''}{significant(size, digits)}{' ' if suffix else ''}{suffix}"


def format_whole(value: float) -> str:
    """Returns all digits of a number; of one with more than fifteen, which Python may refuse to write, its size."""
    if value < 10**15:
        return f"{value:,}"
    return "infinitely many" if value == math.inf else f"about 10^{math.floor(math.log10(value))}"


def format_duration(seconds: float | None) -> str:
    """Returns a time: 0.042 → "42 ms", 35.2 → "35.2 s", 750 → "12 min 30 s", 4800 → "1 h 20 min"."""
    if seconds is None or not is_finite(seconds):
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
    if share is None or not is_finite(share):
        return MISSING
    text = f"{100 * share:+.1f} %".replace("-", "−")
    return "±0.0 %" if text in ("+0.0 %", "−0.0 %") else text


def significant(value: float, digits: int) -> str:
    """Returns a positive number with significant digits, without zeros at the end of a fraction."""
    if value == 0:
        return "0"
    rounded = float(f"{value:.{digits}g}")
    text = f"{rounded:,.{max(digits - 1 - math.floor(math.log10(rounded)), 0)}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def is_finite(value: float) -> bool:
    """Returns whether a number is finite; an integer beyond every float is not."""
    try:
        return math.isfinite(value)
    except OverflowError:
        return False


def _not_finite(value: float) -> str:
    if isinstance(value, float) and math.isnan(value):
        return "not a number"
    return "∞" if value > 0 else "−∞"


def _power_of_ten(value: float, digits: int, keep_zeros: bool = False) -> str:
    mantissa, exponent = f"{value:.{digits - 1}e}".split("e")
    mantissa = mantissa.rstrip("0").rstrip(".") if "." in mantissa and not keep_zeros else mantissa
    return f"{mantissa}·10^{int(exponent)}".replace("-", "−")


# Nouns and lists


def plural(count: int, one: str, many: str = "") -> str:
    """Returns a number with its noun: "1 text", "2,000 texts"; with "entry is" and "entries are", "1 entry is"."""
    return f"{count:,} {one if count == 1 else many or f'{one}s'}"


def listed(items: Sequence[str], limit: int = MAX_LISTED, separator: str = ", ", total: int | None = None) -> str:
    """Returns items in one text: "a, b and 3 more"; one per line if the separator is a line end.

    Args:
        items: The items, or the first of them.
        limit: Items that are named.
        separator: Between two of them.
        total: The number of all items, if `items` are only the first.
    """
    shown, more = separator.join(items[:limit]), (len(items) if total is None else total) - limit
    before = separator if "\n" in separator else " "
    return shown if more <= 0 else f"{shown}{before}and {more:,} more"


def evenly_spaced(count: int, most: int) -> np.ndarray:
    """Returns at most `most` of the numbers below `count`, the first and the last among them, at even distances."""
    import numpy as np

    return np.linspace(0, count - 1, min(most, count)).astype(np.int64)


# Texts from data

# Control characters would vanish or break a page: those of ASCII become their symbols in Unicode. What no UTF-8 file
# can hold (lone surrogates), no page may (C1, non-characters), or what reorders the text beside it (overrides and
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
