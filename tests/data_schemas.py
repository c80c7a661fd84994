"""Schemas as tasks declare them, and helpers for the tests of the data path."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from seriatim.core.errors import Diagnostics, SeriatimError
from seriatim.data.dataset import Dataset
from seriatim.data.formats import ReadOptions
from seriatim.data.kinds import LABEL, LABELS, NUMBER, NUMBERS, TEXT
from seriatim.data.reader import read_dataset
from seriatim.data.schema import Field, Schema
from seriatim.data.source import open_source

TEXT_PAIRS = (("premise", "hypothesis"), ("sentence1", "sentence2"), ("text1", "text2"), ("query", "passage"))
INPUT = Field("input", (NUMBERS, TEXT, NUMBER), ("text", "sentence", "sequence"), TEXT_PAIRS, max_columns=None)
TARGETS = ("label", "labels", "class", "sentiment", "y")
LABELED = Schema((INPUT, Field("target", (LABELS, LABEL), TARGETS, max_columns=None, target=True, one_alias=True)))
SCORED = Schema((INPUT, Field("target", (NUMBER, NUMBERS), TARGETS, max_columns=None, target=True)))
PAIRS = Schema(
    (Field("source", (TEXT,), ("src", "en")), Field("target", (TEXT,), ("tgt", "fr"), target=True)),
    positions=("source", "target"),
)
STREAM = Schema((Field("text", (TEXT,), ("content",)),), text_unit="block")
DOCUMENTS = Schema((Field("text", (TEXT,), ("content",)),), text_unit="document")
LINES = Schema((Field("text", (TEXT,), ("content",)),))


def write(path: Path, data: str | bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data if isinstance(data, bytes) else data.encode())
    return path


def write_jsonl(path: Path, records: list[dict[str, Any]]) -> Path:
    return write(path, "".join(json.dumps(record) + "\n" for record in records))


def read(
    spec: Any,
    schema: Schema,
    diagnostics: Diagnostics | None = None,
    options: ReadOptions | None = None,
    trained: Dataset | None = None,
    **columns: str,
) -> Dataset:
    """Returns the rows of data; problems are raised."""
    diagnostics = Diagnostics() if diagnostics is None else diagnostics
    names = None if trained is None else trained.column_names
    kinds = None if trained is None else {role: trained.kind(role) for role in trained.columns}
    dataset = read_dataset(open_source(spec), schema, columns, options, diagnostics, names, kinds)
    diagnostics.raise_problems()
    return dataset


def values(dataset: Dataset, role: str) -> list[Any]:
    """Returns the values of a role: those of its column, or tuples of several."""
    columns = [[getattr(v, "tolist", lambda v=v: v)() for v in column.values] for column in dataset.columns[role]]
    return columns[0] if len(columns) == 1 else list(zip(*columns, strict=True))


def refuse(spec: Any, schema: Schema, code: str, *words: str, **options: Any) -> SeriatimError:
    """Asserts that reading fails with this code and these words, and returns the error."""
    with pytest.raises(SeriatimError) as caught:
        read(spec, schema, **options)
    assert caught.value.code == code, str(caught.value)
    assert caught.value.exit_code == 2
    for word in words:
        assert word in str(caught.value), str(caught.value)
    return caught.value
