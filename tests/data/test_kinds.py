"""Kinds: what a cell becomes, and which cells are not of a kind."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from seriatim.data.kinds import (
    FLAG,
    LABEL,
    LABELS,
    NUMBER,
    NUMBERS,
    SPLIT,
    TEXT,
    TIME,
    TOKENS,
    CellError,
    Kind,
    is_blank,
)


@pytest.mark.parametrize(
    ("kind", "cell", "value"),
    [
        (TEXT, " a\r\nb ", " a\nb "),
        (TEXT, ["two", "words"], "two words"),
        (TEXT, None, ""),
        (NUMBER, "-4e1", -40.0),
        (NUMBER, 3, 3.0),
        (NUMBERS, "1 2.5", [[1.0], [2.5]]),
        (NUMBERS, "1, 2; 3", [[1.0], [2.0], [3.0]]),
        (NUMBERS, "[[1, 2], [3, 4]]", [[1.0, 2.0], [3.0, 4.0]]),
        (NUMBERS, "[1. 2.]", [[1.0], [2.0]]),
        (NUMBERS, [], []),
        (NUMBERS, "", []),
        (TOKENS, ["a", "b"], ("a", "b")),
        (LABEL, " spaced ", "spaced"),
        (LABEL, True, "true"),
        (LABEL, 4.0, "4"),
        (LABEL, 4.5, "4.5"),
        (LABEL, "nan d'or", "nan d'or"),
        (LABEL, "NaN", ""),
        (LABEL, math.nan, ""),
        (LABELS, ["a", "b", "a"], ("a", "b")),
        (LABELS, [1, True], ("1", "true")),
        (SPLIT, " Dev", "validation"),
        (FLAG, "True", "true"),
        (FLAG, 0, ""),
        (TIME, "2020-01-02", np.datetime64("2020-01-02", "s")),
    ],
)
def test_values(kind: Kind, cell: Any, value: Any) -> None:
    parsed = kind.parse(cell)
    assert (parsed.tolist() if isinstance(parsed, np.ndarray) else parsed) == value


@pytest.mark.parametrize(
    ("kind", "cell"),
    [
        (TEXT, 5),
        (TEXT, [1, 2]),
        (NUMBER, "1_0"),
        (NUMBER, "two"),
        (NUMBERS, "1 two"),
        (NUMBERS, [[1, "x"]]),
        (NUMBERS, [{"a": 1}]),
        (NUMBERS, [[[1]]]),
        (NUMBERS, np.float32(7)),
        (NUMBERS, 7),
        (TOKENS, "text"),
        (TOKENS, [1]),
        (LABEL, {"a": 1}),
        (LABELS, "a"),
        (FLAG, "maybe"),
        (TIME, "soon"),
        (TIME, 7),
    ],
)
def test_cells_of_other_kinds(kind: Kind, cell: Any) -> None:
    with pytest.raises((ValueError, TypeError)):
        kind.parse(cell)
    assert not kind.accepts([cell])


@pytest.mark.parametrize(
    ("kind", "cell", "code", "reason"),
    [
        (TEXT, "a\0", "data.binary", "NUL"),
        (TEXT, "a\ud800", "data.binary", "surrogate"),
        (LABEL, "\ud800", "data.binary", "surrogate"),
        (NUMBER, "inf", "data.number", "not a finite number"),
        (NUMBER, 1e99, "data.number", "too large"),
        (NUMBERS, [1, None], "data.number", "step 2"),
        (NUMBERS, [[1, 2], [3]], "data.cell", "equally long lists"),
        (NUMBERS, "1 nan", "data.number", "step 2"),
        (NUMBERS, [1, 1e99], "data.number", "step 2"),
        (SPLIT, "holdout", "data.split", "none of the splits"),
    ],
)
def test_errors_with_a_reason(kind: Kind, cell: Any, code: str, reason: str) -> None:
    with pytest.raises(CellError, match=reason) as caught:
        kind.parse(cell)
    assert caught.value.code == code


def test_texts_that_look_like_numbers_are_text_unless_named() -> None:
    assert NUMBERS.accepts(["1 2", "3"])
    assert not NUMBERS.guess(["1 2", "3"])
    assert NUMBERS.guess([[1, 2], None, "[3]"])
    assert not NUMBER.accepts([None, ""])


def test_blank_cells() -> None:
    assert [is_blank(cell) for cell in (None, "", " ", math.nan, 0, "0", [])] == [
        True,
        True,
        True,
        True,
        False,
        False,
        False,
    ]


def test_columns_are_parsed_at_once_or_one_by_one() -> None:
    assert TEXT.parse_all is not None
    assert NUMBER.parse_all is not None
    assert TEXT.parse_all(["a", "b"]) == ["a", "b"]
    assert NUMBER.parse_all(["1", 2]) == [1.0, 2.0]
    for kind, cells in (
        (TEXT, ["a\r\nb"]),
        (TEXT, ["a", 1]),
        (NUMBER, ["1", ""]),
        (NUMBER, ["1_0"]),
        (NUMBER, ["inf"]),
    ):
        with pytest.raises((ValueError, TypeError)):
            kind.parse_all(cells)  # type: ignore[misc]


def test_storage() -> None:
    assert NUMBER.store([1.0, 2.0]).dtype == np.float64
    column = NUMBERS.store([np.zeros((2, 1)), np.zeros((2, 1))])
    assert (column.shape, column[0].shape) == ((2,), (2, 1))
    assert [NUMBER.size(math.nan), TEXT.size(" a "), LABEL.size(""), NUMBERS.size(column[0])] == [0, 1, 0, 2]
