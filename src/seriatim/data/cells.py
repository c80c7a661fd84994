"""Cells of tables as what a model is given and what it is to answer: texts, sequences of numbers, labels, numbers."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from seriatim.core.errors import SeriatimError

from .decoding import Facts, normalise
from .sequences import Sequences
from .tables import text_of

YES = {"1", "1.0", "true", "yes"}
NO = {"0", "0.0", "false", "no", ""}
LARGEST = float(np.finfo(np.float32).max)  # the largest that a network can be given


# ── what goes in ──────────────────────────────────────────────────────────────────────────────────────────────────


def early(value: Any, place: str, column: str) -> Any:
    """A list of numbers as an array at once, because Python's numbers take much room; a list of words as a text."""
    if not isinstance(value, list):
        return value
    if not value:  # neither of numbers nor of words
        return None
    if all(isinstance(word, str) for word in value):
        return " ".join(value)
    return _array(value, place, column)


def inputs(
    values: list[Any], places: Sequence[str], column: str, kind: str, named: bool, facts: Facts
) -> list[str] | Sequences:
    """One column as texts or as sequences of numbers.

    Lists are numbers. Texts such as "0.1 0.2 0.3" are numbers too where the user asks for it, or names the column
    and every cell is like that: a column of text that was only guessed at is text.
    """
    lists = any(isinstance(value, np.ndarray) for value in values)
    if kind == "numbers" or lists or (kind == "auto" and named and _all_numbers(values)):
        if kind == "text":
            at = next(index for index, value in enumerate(values) if isinstance(value, np.ndarray))
            raise _wrong(places[at], column, "a list of numbers, not text", "name a column of text with --column")
        arrays = [_numbers(value, place, column) for value, place in zip(values, places, strict=True)]
        return _sequences(arrays, places, column)
    found = (text_of(value, place, column, facts) for value, place in zip(values, places, strict=True))
    return [normalise(text or "", facts) for text in found]


def columns_as_sequences(rows: list[list[Any]], places: Sequence[str], columns: list[str]) -> Sequences:
    """Several columns as one sequence of numbers for each row, a number a step."""
    block = np.zeros((len(rows), len(columns), 1), np.float32)
    for at, (row, place) in enumerate(zip(rows, places, strict=True)):
        try:
            with np.errstate(over="ignore"):
                block[at, :, 0] = row
            fine = bool(np.isfinite(block[at]).all())
        except (ValueError, TypeError, OverflowError):
            fine = False
        if not fine:
            several = "several columns are a sequence of numbers; for a text name one column, for two texts two"
            for value, column in zip(row, columns, strict=True):  # says which of them it is
                number(value, place, column, several)
    return Sequences.equal(block)


def _all_numbers(values: list[Any]) -> bool:
    found = False
    for value in values:
        if value is None or (isinstance(value, str) and not value.strip()):
            continue
        if isinstance(value, str) and parsed(value) is None:
            return False
        found = True
    return found


def parsed(text: str) -> list[Any] | None:
    """The numbers of "1 2 3", "1, 2, 3" or "[[1, 2], [3, 4]]"; None for other texts."""
    text = text.strip()
    if text.startswith("["):
        try:
            found = json.loads(text)
        except (json.JSONDecodeError, RecursionError):
            found = None
        if isinstance(found, list) and not _words(found):
            return found
        text = text.strip("[]")  # as NumPy prints: [1. 2. 3.]
    try:
        return [_float(one) for one in text.replace(",", " ").replace(";", " ").split()]
    except ValueError:
        return None


def _words(found: list[Any]) -> bool:
    return any(isinstance(one, str) or (isinstance(one, list) and _words(one)) for one in found)


def _numbers(value: Any, place: str, column: str) -> np.ndarray:
    if isinstance(value, np.ndarray):
        return value
    if value is None:
        return np.zeros((0, 1), np.float32)
    if isinstance(value, str):
        found = parsed(value)
        if found is None:
            raise _wrong(place, column, f"{shown(value)}, not a list of numbers", "write them as 0.1 0.2 0.3")
        return _array(found, place, column)
    return _array([value], place, column)


def _array(value: list[Any], place: str, column: str) -> np.ndarray:
    try:
        block = np.asarray(value, dtype=np.float64)
    except (ValueError, TypeError, OverflowError):
        block = np.zeros(())
    if not value:
        block = np.zeros((0, 1))
    if block.ndim not in (1, 2) or (block.ndim == 2 and block.shape[1] == 0 and value):
        cause = "a list that is neither of numbers nor of equally long lists of numbers"
        raise _wrong(place, column, cause, "write [0.1, 0.2] or [[0.1, 0.2], [0.3, 0.4]]")
    with np.errstate(over="ignore"):
        block = (block if block.ndim == 2 else block[:, None]).astype(np.float32)
    bad = ~np.isfinite(block)
    if bad.any():
        step = int(np.argwhere(bad)[0, 0]) + 1
        raise SeriatimError(
            "data.number",
            f'{place}: column "{column}", step {step}: a number is missing or not finite',
            "fill it in, or remove the row",
        )
    return block


def _sequences(arrays: list[np.ndarray], places: Sequence[str], column: str) -> Sequences:
    width = next((array.shape[1] for array in arrays if len(array)), 1)
    for array, place in zip(arrays, places, strict=True):
        if len(array) and array.shape[1] != width:
            cause = f"steps of {array.shape[1]} numbers, where the first row has {width}"
            raise _wrong(place, column, cause, "give every step the same number of numbers")
    return Sequences.of([array if len(array) else np.zeros((0, width), np.float32) for array in arrays], width=width)


# ── what is to come out ───────────────────────────────────────────────────────────────────────────────────────────


def label(value: Any, place: str, column: str, separator: str | None) -> str | tuple[str, ...]:
    """A label, or several of them from a list or a text with separators."""
    if isinstance(value, list):
        return tuple(dict.fromkeys(_one_label(one, place, column) for one in value))
    if separator is not None:
        parts = [] if value is None else [part for part in str(value).split(separator) if part.strip()]
        return tuple(dict.fromkeys(_one_label(part, place, column) for part in parts))
    return _one_label(value, place, column)


def indicated(values: list[Any], place: str, columns: list[str]) -> tuple[str, ...]:
    """The names of the columns that say yes."""
    found = []
    for value, column in zip(values, columns, strict=True):
        text = str("" if value is None else value).strip().lower()
        if text not in YES | NO:
            hint = "several columns of labels hold 1 where a label applies and 0 where not; name one --target"
            raise _wrong(place, column, f"{shown(value)}, neither 1 nor 0", hint)
        if text in YES:
            found.append(column)
    return tuple(found)


def target_numbers(value: Any, place: str, column: str, separator: str | None) -> float | tuple[float, ...]:
    """A number to predict, or several from a list or a text with separators."""
    hint = "regress predicts numbers: name another --target, or use the task classify for labels"
    if separator is not None and isinstance(value, str):
        value = value.split(separator) if separator.strip() else value.split()
    if isinstance(value, list):
        return tuple(number(one, place, column, hint) for one in value)
    return number(value, place, column, hint)


def number(value: Any, place: str, column: str, remedy: str) -> float:
    """A finite number, or an error that names the place."""
    if value is None or (isinstance(value, str) and not value.strip()):
        raise SeriatimError(
            "data.number", f'{place}: column "{column}": the number is missing', "fill it in, or remove the row"
        )
    try:
        found = _float(value)
    except (ValueError, TypeError, OverflowError):
        cause = f'{place}: column "{column}" holds {shown(value)}, not a number'
        raise SeriatimError("data.number", cause, remedy) from None
    if not math.isfinite(found):
        cause = f'{place}: column "{column}" holds {shown(value)}, which is no finite number'
        raise SeriatimError("data.number", cause, "correct it, or remove the row")
    if abs(found) > LARGEST:
        raise _wrong(place, column, f"a number too large: {shown(value)}", "scale the numbers")
    return found


def _one_label(value: Any, place: str, column: str) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float) and value.is_integer():
        value = int(value)  # a column of whole numbers in which one was missing
    text = "" if value is None else str(value).strip()
    if not text or text.lower() == "nan":
        cause = f'{place}: column "{column}": the label is missing'
        raise SeriatimError("data.label", cause, "fill it in, or remove the row")
    if isinstance(value, dict | list):
        raise _wrong(place, column, f"{shown(value)}, not a label", "name another --target")
    return text_of(text, place, column, Facts()) or ""


def _float(value: Any) -> float:
    if isinstance(value, str) and "_" in value:  # Python reads 1_000 as a number, nobody else does
        raise ValueError(value)
    return float(value)


def shown(value: Any) -> str:
    """A cell as an error may print it."""
    text = json.dumps(value, ensure_ascii=False, default=str).encode("utf-8", "backslashreplace").decode()
    return text if len(text) <= 40 else text[:40] + "…"


def _wrong(place: str, column: str, holds: str, remedy: str) -> SeriatimError:
    return SeriatimError("data.column", f'{place}: column "{column}" holds {holds}', remedy)
