"""Two texts at once: a premise and a hypothesis, two questions, two sentences to be compared.

Such an input is a tuple of two texts. In a table they stand in two columns, in a line on both sides of a tab.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from seriatim.core.errors import SeriatimError

from . import cells
from .decoding import Facts, normalise
from .tables import text_of

Pair = tuple[str, str]
SHOWN = 5  # lines in an error
SET = "data.kind=text reads both as texts, whatever they hold"


def are_texts(rows: Sequence[Sequence[Any]], names: Sequence[str], places: Sequence[str], kind: str) -> bool:
    """Whether two columns are two texts, or a sequence of two numbers: by what most of their cells hold.

    So a text that is a number stays a text, and a number mistyped is found as such.
    """
    if kind != "auto":
        return kind == "text"
    firsts = [_first_text([row[side] for row in rows]) for side in (0, 1)]
    if (firsts[0] is None) != (firsts[1] is None):
        side = 0 if firsts[0] is not None else 1
        at = firsts[side] or 0
        cause = f'column "{names[side]}" holds {cells.shown(rows[at][side])} and the like, column "{names[1 - side]}"'
        raise SeriatimError(
            "data.column",
            f"{places[at]}: {cause} numbers; an input is either two texts or a sequence of numbers",
            f"name two columns of the same kind, or one, with --column; {SET}",
        )
    return firsts[0] is not None


def _first_text(column: list[Any]) -> int | None:
    """Where the first text stands in a column of texts; None for one of numbers."""
    there = [at for at, value in enumerate(column) if value not in (None, []) and str(value).strip()]
    texts = [at for at in there if _is_text(column[at])]
    return texts[0] if 2 * len(texts) > len(there) else None


def _is_text(value: Any) -> bool:
    if isinstance(value, list):
        return all(isinstance(word, str) for word in value)
    return isinstance(value, str) and cells.parsed(value) is None


def of_cells(rows: Sequence[Sequence[Any]], places: Sequence[str], names: Sequence[str], facts: Facts) -> list[Pair]:
    """The pairs of two columns of a table; a list of words is a text, too, and a cell without anything an empty one."""

    def text(value: Any, place: str, name: str) -> str:
        if isinstance(value, list) and _is_text(value):
            value = " ".join(value)
        if value is not None and not isinstance(value, str):
            cause = f'{place}: column "{name}" holds {cells.shown(value)}, not a text'
            facts.trouble(SeriatimError("data.column", cause, "name two columns of text with --column"))
            value = ""
        return normalise(text_of(value, place, name, facts) or "", facts)

    return [
        (text(first, place, names[0]), text(second, place, names[1]))
        for (first, second), place in zip(rows, places, strict=True)
    ]


def of_lines(lines: Sequence[str], pairs: bool | None, place: Callable[[int], str]) -> list[Any]:
    """Lines as a model knows its inputs: two texts with a tab between them (`pairs`), or one; None: as they look.

    All lines that should be pairs and are none are told at once.
    """
    wrong = [index for index, line in enumerate(lines) if line.count("\t") != 1]
    if pairs is False or (wrong and pairs is None):
        return list(lines)
    if wrong:
        several = f" (and {len(wrong) - SHOWN:,} more)" if len(wrong) > SHOWN else ""
        where = "; ".join(f"{place(at)}: {cells.shown(lines[at])}" for at in wrong[:SHOWN])
        raise SeriatimError(
            "data.pair",
            f"the model was trained on two texts at once, and not every line holds two: {where}{several}",
            "write both with one tab between them (in bash $'one text\\tanother'), or give a table: --data",
        )
    return [(first, second) for first, _, second in (line.partition("\t") for line in lines)]


def as_known(gathered: Any, source: str, pairs: bool | None) -> Any:
    """What was gathered for a model that knows two texts at once (`pairs`) or single inputs; None: either."""
    inputs = gathered.inputs
    columns = gathered.columns.inputs if gathered.columns is not None else []
    if not columns and isinstance(inputs, list):
        return of_lines(inputs, pairs, gathered.places.__getitem__)
    found = isinstance(inputs, list) and bool(inputs) and isinstance(inputs[0], tuple)
    if pairs is None or found == pairs or not len(inputs):
        return inputs
    names = " and ".join(f'"{name}"' for name in columns)
    if pairs:
        cause = f"{source}: gives one input ({names}), and the model was trained on two texts at once"
        raise SeriatimError("data.pair", cause, "name the columns of both: --column first,second")
    cause = f"{source}: gives two texts at once ({names}), and the model was trained on single inputs"
    raise SeriatimError("data.pair", cause, f"name one column: --column {columns[0]}")
