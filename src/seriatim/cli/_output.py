"""What commands print: data to stdout, everything else to stderr, plain where no terminal is."""

from __future__ import annotations

import json
import math
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ..core.errors import SeriatimError
from ..core.measures import NONE, finite, first_of, measure, phrase, shown, telling

SHORT = {"bits_per_character": "bits/character", "nll": "NLL"}


def complain(error: SeriatimError) -> None:
    red, dim, off = ("\033[31m", "\033[2m", "\033[0m") if _coloured(sys.stderr) else ("", "", "")
    print(f"{red}error{off} {dim}[{error.code}]{off} {error.cause}", file=sys.stderr)
    if error.remedy:
        print(f"  → {error.remedy}", file=sys.stderr)


def first_process() -> bool:
    """Whether this is the one of torchrun's processes that speaks to the user."""
    return os.environ.get("RANK", "0") == "0"


def note(text: str) -> None:
    dim, off = ("\033[2m", "\033[0m") if _coloured(sys.stderr) else ("", "")
    print(f"{dim}{text}{off}", file=sys.stderr, flush=True)


def once() -> Callable[[str], None]:
    """A `note` for several models on one data: what is the same for all is told once."""
    told: set[str] = set()

    def tell(text: str) -> None:
        if text not in told:
            told.add(text)
            note(text)

    return tell


def silent(text: str) -> None:
    """What `note` is with --quiet."""


def print_json(value: Any) -> None:
    print(json.dumps(_finite(value), ensure_ascii=False, indent=2, default=float))


def _finite(value: Any) -> Any:
    """JSON has neither infinity nor NaN: the log-probability of what is impossible is null."""
    if isinstance(value, dict):
        return {key: _finite(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(inner) for inner in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def print_table(headings: Sequence[str], rows: Sequence[Sequence[str]], left: int = 1) -> None:
    """Aligned columns; the first `left` to the left, figures to the right."""
    widths = [max(len(row[i]) for row in (headings, *rows)) for i in range(len(headings))]

    def line(cells: Sequence[str]) -> str:
        pairs = enumerate(zip(cells, widths, strict=True))
        return "  ".join(c.ljust(w) if i < left else c.rjust(w) for i, (c, w) in pairs).rstrip()

    bold, off = ("\033[1m", "\033[0m") if _coloured(sys.stdout) else ("", "")
    print(f"{bold}{line(headings)}{off}")
    for row in rows:
        print(line(row))


def print_measures(parts: Sequence[tuple[str, Mapping[str, Any]]], objective: str) -> None:
    """A row a part, or a baseline on it; a column a measure, the one that decided first."""
    given = first_of(values for _, values in parts)
    names = telling(given, objective)
    unit = {"loss": "loss (nats/token)"} if "perplexity" in given else {}
    rows = [(part, *(shown(name, values.get(name), 1) for name in names)) for part, values in parts]
    print_table(["part", *(unit.get(name) or heading(name) for name in names)], rows)


def heading(name: str) -> str:
    """A measure over a column."""
    return SHORT.get(name) or phrase(name)


def exactly(name: str, value: Any) -> str:
    """A measure with all the digits that can matter to anybody."""
    if finite(value) is None or measure(name).counts:
        return shown(name, value)
    return f"{100 * value:.5g} %" if measure(name).percent else f"{value:,.6g}"


def bar(share: float, width: int = 30) -> str:
    """A share of one as a bar of eighths."""
    eighths = round(max(0.0, min(share, 1.0)) * width * 8)
    return "█" * (eighths // 8) + ("", *"▏▎▍▌▋▊▉")[eighths % 8]


def amount(value: float | None, unit: str = "") -> str:
    """1234567 → '1.23 M'."""
    if value is None:
        return NONE
    for size, prefix in ((1e18, "E"), (1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= 0.9995 * size:
            return f"{value / size:.3g} {prefix}{unit}"
    return f"{value:.3g} {unit}".rstrip()


def duration(seconds: float | None) -> str:
    if seconds is None:
        return NONE
    if seconds < 100:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02} min" if hours else f"{minutes} min {rest:02} s"


def visible(text: str) -> str:
    """A token as one can see it: line ends and control characters are escaped, spaces marked."""
    escaped = text.encode("unicode_escape").decode() if not text.isprintable() else text
    return escaped.replace(" ", "␣")


def one_line(text: str) -> str:
    """A text on a single line, so that line N of the output belongs to line N of the input."""
    return text.replace("\\", "\\\\").replace("\n", "\\n").replace("\r", "\\r")


def _coloured(stream: Any) -> bool:
    return bool(stream.isatty()) and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
