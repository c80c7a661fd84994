"""The table of a comparison: a row a model, best first, and below them the baselines."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from ..core.measures import NONE, better, finite, measure, phrase, shown, title
from .figures import Figures, baselines_of, shared
from .looks import colours
from .numbers import percent, scaled, seconds, whole
from .page import dot, escape, number, table
from .words import ENDINGS

PARTS = (("Validation", "valid"), ("Test", "test"))
WIDE = 11  # columns that have room without being squeezed


@dataclass(frozen=True)
class Column:
    """A measure on a part of the data."""

    head: str
    name: str
    split: str

    def value(self, measures: dict[str, Any]) -> Any:
        return measures.get(self.name)


def columns(ordered: Sequence[Figures]) -> list[Column]:
    """The main measure on both parts, the others on the validation part."""
    first, *others = shared(ordered) or ["loss"]
    both = [Column(f"{part} {phrase(first)}", first, split) for part, split in PARTS]
    return both + [Column(title(name), name, "valid") for name in others]


def results(ordered: Sequence[Figures]) -> str:
    """Columns that no model has a figure for are left out."""
    measured = [column for column in columns(ordered) if any(_value(one, column) is not None for one in ordered)]
    tops = {column: _best(ordered, column) for column in measured}
    spent = [(head, cell) for head, cell in _spent(ordered[0]) if any(cell(one) != NONE for one in ordered)]
    pairs = colours(ordered)
    lines = []
    for index, one in enumerate(ordered):
        best = index == 0 and one.score is not None
        badge = '<span class="badge">best</span>' if best else ""
        name = f'<th scope="row">{dot(pairs[one.label])}{escape(one.label)}{badge}</th>'
        cells = [_measured(_value(one, column), column, tops[column]) for column in measured]
        cells += [f"<td>{cell(one)}</td>" for _, cell in spent]
        opening = '<tr class="best">' if best else "<tr>"
        lines.append(f"{opening}{name}{''.join(cells)}</tr>")
    baselines = {split: baselines_of(ordered, split) for _, split in PARTS}
    names = list(dict.fromkeys(who for found in baselines.values() for who in found))
    for who in names:
        cells = [_measured(column.value(baselines[column.split].get(who, {})), column) for column in measured]
        cells += ["<td></td>"] * len(spent)
        lines.append(f'<tr class="baseline"><th scope="row">{escape(who)}</th>{"".join(cells)}</tr>')
    heads = ["Model", *(column.head for column in measured), *(head for head, _ in spent)]
    return table(_caption(ordered, measured, bool(names)), heads, lines, "tight" if len(heads) > WIDE else "")


def _caption(ordered: Sequence[Figures], measured: Sequence[Column], baselines: bool) -> str:
    one = ordered[0]
    parts = [f"Best validation {phrase(one.main)} first."]
    if one.unit:
        parts.append(f"Losses in {one.unit} per token.")
    others = [phrase(column.name) for column in measured if column.name != one.main]
    if others:
        listed = others[0] if len(others) == 1 else f"{', '.join(others[:-1])} and {others[-1]}"
        parts.append(f"{listed[0].upper()}{listed[1:]} {'is' if len(others) == 1 else 'are'} on the validation data.")
    wanted = {each.budget for each in ordered if each.budget is not None}
    if len(wanted) == 1:
        parts.append(f"Below the parameters: how far they are from the {scaled(wanted.pop())} wanted.")
    if baselines:
        parts.append("The last rows are baselines, simple methods to measure models by.")
    return " ".join(parts)


def _value(one: Figures, column: Column) -> Any:
    return column.value(one.measures(column.split))


def _best(ordered: Sequence[Figures], column: Column) -> float | int | None:
    if measure(column.name).better == "neither":
        return None
    found = [value for one in ordered if (value := finite(_value(one, column))) is not None]
    top = None
    for value in found:
        top = value if top is None or better(column.name, value, top) else top
    return top if len(found) > 1 else None


def _measured(value: Any, column: Column, top: float | int | None = None) -> str:
    mark = ' class="top"' if top is not None and value == top else ""
    return f"<td{mark}>{number(value, shown(column.name, value))}</td>"


def _spent(one: Figures) -> list[tuple[str, Callable[[Figures], str]]]:
    return [
        ("Parameters", _size),
        ("Training compute", lambda one: _figure(one, "flops", "FLOP")),
        (f"{one.element.capitalize()} per second", lambda one: _figure(one, "tokens_per_second")),
        ("Peak memory", lambda one: _figure(one, "memory", "B")),
        ("Time", lambda one: number(one.summary.get("seconds"), seconds(one.summary.get("seconds")))),
        ("Steps", _steps),
    ]


def _figure(one: Figures, name: str, unit: str = "") -> str:
    value = one.summary.get(name)
    return number(value, scaled(value, unit))


def _size(one: Figures) -> str:
    value = one.summary.get("parameters")
    what = ["entries"] if one.counts else []
    off = [percent(one.off_budget)] if one.off_budget is not None else []
    remark = ", ".join(what + off)
    return number(value, scaled(value)) + (f"<small>{escape(remark)}</small>" if remark else "")


def _steps(one: Figures) -> str:
    value = one.summary.get("step")
    ending = ENDINGS.get(one.reason, one.reason)
    shown_steps = "one pass" if one.counts else whole(value)
    return f"{number(value, shown_steps)}<small>{escape(ending)}</small>"
