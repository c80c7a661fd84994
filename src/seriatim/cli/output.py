"""What commands print: results to stdout, all else to stderr, plain without a terminal."""

from __future__ import annotations

import json
import math
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, TextIO, TypeVar

from ..core.errors import SeriatimError
from ..core.metrics import (
    displayed_metrics,
    finite,
    format_metric,
    get_metric,
    label_in_sentence,
    merge_metrics,
)
from ..core.text import format_duration

if TYPE_CHECKING:
    from rich.progress import Progress

T = TypeVar("T")
LINE_SECONDS = 15.0  # between two lines without a terminal
DELAY = 1.0  # seconds before a bar is shown at all
COLUMN_LABELS = {"bits_per_character": "bits/character", "bits_per_byte": "bits/byte", "nll": "NLL"}


def has_color(stream: TextIO) -> bool:
    """Returns whether a stream is a terminal that shows colors."""
    return bool(stream.isatty()) and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def print_error(error: SeriatimError) -> None:
    """Prints code, cause and remedy of an error to stderr."""
    red, dim, off = ("\033[31m", "\033[2m", "\033[0m") if has_color(sys.stderr) else ("", "", "")
    print(f"{red}error{off} {dim}[{error.code}]{off} {error.cause}", file=sys.stderr)
    if error.remedy:
        print(f"  → {error.remedy}", file=sys.stderr)


def is_first_process() -> bool:
    """Returns whether this is the process of rank 0, which prints."""
    return os.environ.get("RANK", "0") == "0"


def note(text: str) -> None:
    """Prints a note to stderr."""
    dim, off = ("\033[2m", "\033[0m") if has_color(sys.stderr) else ("", "")
    print(f"{dim}{text}{off}", file=sys.stderr, flush=True)


def silent(text: str) -> None:
    """Prints nothing: the `note` of --quiet."""


def note_once() -> Callable[[str], None]:
    """Returns a `note` for several models on the same data, which prints equal notes once."""
    printed: set[str] = set()

    def print_new(text: str) -> None:
        if text not in printed:
            printed.add(text)
            note(text)

    return print_new


def print_json(value: object) -> None:
    """Prints a value as JSON; infinity and NaN, which JSON lacks, become null."""
    print(json.dumps(replace_infinite(value), ensure_ascii=False, indent=2, default=str))


def replace_infinite(value: object) -> object:
    """Returns a value with null in place of infinity and NaN."""
    if isinstance(value, Mapping):
        return {key: replace_infinite(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [replace_infinite(inner) for inner in value]
    if hasattr(value, "item") and hasattr(value, "tolist"):  # an array or a number of numpy or torch
        value = value.item() if getattr(value, "ndim", 1) == 0 else value.tolist()
    return None if isinstance(value, float) and not math.isfinite(value) else value


def print_table(headings: Sequence[str], rows: Sequence[Sequence[str]], left: int = 1, text_last: bool = False) -> None:
    """Prints aligned columns, the first `left` and a last one of text to the left, the others to the right."""
    lefts = {*range(left), *([len(headings) - 1] if text_last else [])}
    widths = [max(len(row[column]) for row in (headings, *rows)) for column in range(len(headings))]
    bold, off = ("\033[1m", "\033[0m") if has_color(sys.stdout) else ("", "")
    for number, row in enumerate((headings, *rows)):
        cells = enumerate(zip(row, widths, strict=True))
        line = "  ".join(
            cell.ljust(width) if column in lefts else cell.rjust(width) for column, (cell, width) in cells
        ).rstrip()
        print(f"{bold}{line}{off}" if number == 0 else line)


def print_metrics(rows: Sequence[tuple[str, Mapping[str, object]]], monitor: str) -> None:
    """Prints a row per split or baseline and a column per metric, the monitored one first."""
    merged = merge_metrics(values for _, values in rows)
    names = displayed_metrics(merged, monitor)
    units = {"loss": "loss (nats/token)"} if "perplexity" in merged else {}
    cells = [(label, *(format_metric(name, values.get(name), 1) for name in names)) for label, values in rows]
    print_table(["split", *(units.get(name) or column_label(name) for name in names)], cells)


def column_label(name: str) -> str:
    """Returns the name of a metric above a column."""
    return COLUMN_LABELS.get(name) or label_in_sentence(name)


def format_exact(name: str, value: float) -> str:
    """Returns a metric with six significant digits."""
    metric = get_metric(name)
    if finite(value) is None or metric.is_count:
        return format_metric(name, value)
    return f"{100 * value:.5g} %" if metric.percent else f"{value:,.6g}"


def escape_line(value: object) -> str:
    """Returns a value on a single line, so that line N of the output belongs to line N of the input."""
    if hasattr(value, "tolist"):
        value = value.tolist()
    text = " ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
    return text.replace("\\", "\\\\").replace("\n", "\\n").replace("\r", "\\r")


def make_bar() -> Progress:
    """Returns a progress bar of rich on stderr."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

    return Progress(
        TextColumn("{task.description}"),
        BarColumn(bar_width=24),
        TextColumn("{task.percentage:>3.0f}%"),
        TextColumn("{task.fields[figures]}"),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        console=Console(stderr=True),
        transient=True,
    )


def track(items: Iterable[T], label: str, total: int | None = None, quiet: bool = False) -> Iterator[T]:
    """Yields items and shows how many have passed; nothing if it takes less than a second."""
    bar: Progress | None = None
    start = last_line = time.monotonic()
    try:
        for count, item in enumerate(items, 1):
            yield item
            now = time.monotonic()
            if quiet or now - start < DELAY:
                continue
            if sys.stderr.isatty():
                if bar is None:
                    bar = make_bar()
                    bar.start()
                    bar.add_task(label, total=total, figures="")
                bar.update(bar.task_ids[0], completed=count, figures=f"{count:,}")
            elif now - last_line > LINE_SECONDS:
                last_line = now
                rest = "" if not total else f", {format_duration((now - start) * (total / count - 1))} left"
                note(f"{label}: {count:,}{rest}")
    finally:
        if bar is not None:
            bar.stop()
