"""Words in context: the two text files, the JSON lines of SuperGLUE, and what is wrong in them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from data_schemas import write, write_jsonl
from seriatim.core.errors import Diagnostics, SeriatimError
from seriatim.tasks.values import Splits
from task_helpers import prepare_splits

FIRST, SECOND = "She sat on the bank .", "The bank lent money ."
MARKED = ["She sat on the *bank* .", "The *bank* lent money ."]
LINE = f"bank\tN\t4-1\t{FIRST}\t{SECOND}\n"
ROW = {"word": "bank", "sentence1": FIRST, "sentence2": SECOND, "start1": 15, "end1": 19, "start2": 4, "end2": 8}


def pairs(splits: Splits[Any]) -> list[str]:
    columns = splits.train.rows.columns["input"]
    assert [column.name for column in columns] == ["sentence1", "sentence2"]
    return [column.values[0] for column in columns]


def test_text_files(tmp_path: Path) -> None:
    for split, count in (("train", 6), ("dev", 2), ("test", 4)):
        write(tmp_path / f"WiC/{split}/{split}.data.txt", LINE * count)
        write(tmp_path / f"WiC/{split}/{split}.gold.txt", "T\nF\n" * (count // 2))
    task, splits = prepare_splits("classify", tmp_path / "WiC")
    assert {name: len(split.rows) for name, split in splits.parts.items()} == {"train": 6, "validation": 2, "test": 4}
    assert pairs(splits) == MARKED
    assert list(splits["test"].rows["target"]) == ["true", "false"] * 2
    assert str(splits["test"].rows.locations[1]) == "WiC/test/test.data.txt, line 2"
    _, splits = prepare_splits("classify", tmp_path / "WiC/train/train.data.txt", fractions=(1.0, 0.0, 0.0))
    assert list(splits["train"].rows["target"]) == ["true", "false"] * 3  # the labels are in the file beside it
    assert "target" not in task.read(tmp_path / "WiC/test/test.data.txt", Diagnostics(), task.schema.inputs())


def test_json_lines(tmp_path: Path) -> None:
    for split, label in (("train", [True, False]), ("val", [False]), ("test", [None])):
        rows = [ROW | ({} if value is None else {"label": value}) for value in label]
        write_jsonl(tmp_path / "WiC" / f"{split}.jsonl", rows * 3)
    diagnostics = Diagnostics()
    task, splits = prepare_splits("classify", tmp_path / "WiC", diagnostics=diagnostics)
    assert set(splits) == {"train", "validation"}
    assert any("has no targets" in note for note in diagnostics.notes)
    assert pairs(splits) == MARKED
    assert task.processor.labels == ("false", "true")
    assert len(task.read(tmp_path / "WiC/test.jsonl", Diagnostics(), task.schema.inputs())) == 3


def test_other_json_lines_stay_as_they_are(tmp_path: Path) -> None:
    row = {"sentence1": FIRST, "sentence2": SECOND, "word": "bank", "label": 1}
    path = write_jsonl(tmp_path / "pairs.jsonl", [row, row | {"label": 0}] * 5)
    assert pairs(prepare_splits("classify", path)[1]) == [FIRST, SECOND]


@pytest.mark.parametrize(
    ("data", "gold", "code", "words"),
    [
        (LINE + "bank\tN\t4-1\tonly one\n", "T\nF\n", "data.wic", "line 2"),
        (LINE.replace("4-1", "4-9"), "T\n", "data.wic", "not a word in two sentences"),
        (LINE * 2, "T\nX\n", "data.label", "line 2: its label is not T or F"),
        (LINE * 2, "T\n", "data.label", "line 2: its label is not T or F"),
        (LINE, "T\nF\n", "data.label", "line 2: there is no such line"),
    ],
)
def test_wrong_lines(tmp_path: Path, data: str, gold: str, code: str, words: str) -> None:
    write(tmp_path / "a.data.txt", data)
    write(tmp_path / "a.gold.txt", gold)
    with pytest.raises(SeriatimError) as caught:
        prepare_splits("classify", tmp_path / "a.data.txt")
    assert caught.value.code == code
    assert words in str(caught.value)


def test_wrong_characters(tmp_path: Path) -> None:
    path = write(tmp_path / "a.jsonl", json.dumps(ROW | {"end2": 99, "label": True}) + "\n")
    with pytest.raises(SeriatimError) as caught:
        prepare_splits("classify", path)
    assert caught.value.code == "data.span"
    assert "a.jsonl, line 1" in str(caught.value)
