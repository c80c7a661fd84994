"""Splits: files, columns, and draws that are the same for everybody."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from data_schemas import LABELED, SCORED, STREAM, read, values, write
from seriatim.core.errors import Diagnostics, SeriatimError
from seriatim.data.dataset import Dataset
from seriatim.data.disk import mix
from seriatim.data.schema import Schema
from seriatim.data.split import (
    GOLDEN,
    Contiguous,
    SplitPolicy,
    Stratified,
    assign_rows,
    check_fractions,
    split,
)

FRACTIONS = (0.8, 0.1, 0.1)
ROWS = {"text": [f"film {n}" for n in range(20)], "label": ["ab"[n % 2] for n in range(20)]}


def divide(
    dataset: Dataset,
    policy: SplitPolicy | None = None,
    fractions: tuple[float, float, float] = FRACTIONS,
    schema: Schema = LABELED,
    **predefined: Dataset,
) -> tuple[dict[str, Dataset], list[str]]:
    diagnostics = Diagnostics()
    policy = Stratified("target") if policy is None else policy
    return split(dataset, policy, fractions, diagnostics, predefined, schema), diagnostics.notes


def sizes(splits: dict[str, Dataset]) -> dict[str, int]:
    return {name: len(rows) for name, rows in splits.items()}


# Draws


def test_the_draw_is_the_same_for_everybody() -> None:
    """The first rows drawn, written down once: another draw would make published numbers wrong."""
    assert assign_rows(None, 20, FRACTIONS).tolist() == [1, 0, 0, 2, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1]
    # The published first outputs of splitmix64 from the state 0.
    known = [0xE220A8397B1DCDAF, 0x6E789E6AA1B965F4, 0x06C45D188009454F]
    assert mix(np.arange(3, dtype=np.uint64) * GOLDEN).tolist() == known
    labeled = assign_rows(np.array([0, 1] * 10), 20, FRACTIONS)
    assert Counter(labeled[::2].tolist()) == Counter(labeled[1::2].tolist()) == {0: 8, 1: 1, 2: 1}


@given(st.lists(st.integers(0, 5), min_size=1, max_size=200), st.integers(1, 9), st.integers(0, 9))
def test_a_draw_keeps_the_fractions_of_every_label(labels: list[int], train: int, validation: int) -> None:
    groups = np.unique(labels, return_inverse=True)[1]
    total = train + validation + 3
    fractions = (train / total, validation / total, 3 / total)
    assignment = assign_rows(groups, len(groups), fractions)
    for label, count in Counter(groups.tolist()).items():
        counts = np.bincount(assignment[groups == label], minlength=3)
        assert counts[0] > 0  # no label is tested that was not trained
        assert abs(counts[0] - count * fractions[0]) <= 1
        assert abs(counts[1] - count * fractions[1]) <= 2
        assert abs(counts[2] - count * fractions[2]) <= 2


def test_many_small_labels_add_up_to_the_fractions() -> None:
    groups = np.arange(1200) // 4
    for fractions, expected in (
        (FRACTIONS, [960, 120, 120]),
        ((0.75, 0.25, 0.0), [900, 300]),
        ((0.75, 0.0, 0.25), [900, 0, 300]),
    ):
        assert np.bincount(assign_rows(groups, 1200, fractions)).tolist() == expected


def test_stratified_rows() -> None:
    splits, notes = divide(read(ROWS, LABELED))
    assert sizes(splits) == {"train": 16, "validation": 2, "test": 2}
    assert all(
        Counter(values(rows, "target")) == {"a": len(rows) // 2, "b": len(rows) // 2} for rows in splits.values()
    )
    assert any(note.startswith("split 80 / 10 / 10 %") for note in notes)
    assert "rows: 16 train, 2 validation, 2 test" in notes
    assert sizes(divide(read(ROWS, LABELED), fractions=(0.8, 0.2, 0))[0]) == {"train": 16, "validation": 4}


def test_contiguous_rows() -> None:
    splits, _ = divide(read(ROWS, LABELED), Contiguous())
    assert values(splits["validation"], "input") == ["film 16", "film 17"]


def test_a_stream_is_cut_at_lines(tmp_path: Path) -> None:
    text = "".join(f"line number {n} ä\n" for n in range(1000))
    dataset = read(write(tmp_path / "a.txt", text), STREAM)
    splits, notes = divide(dataset, Contiguous("text"), (0.9, 0.05, 0.05), STREAM)
    assert "blocks of the stream: 4 train, 2 validation, 1 test" in notes
    parts = ["".join(values(part, "text")) for part in splits.values()]
    assert "".join(parts) == text
    assert all(part.endswith("\n") for part in parts)
    size = len(text.encode())
    assert [
        abs(len(part.encode()) - size * share) < 25 for part, share in zip(parts, (0.9, 0.05, 0.05), strict=True)
    ] == [True] * 3
    with pytest.raises(SeriatimError, match="too short to split"):
        divide(read(write(tmp_path / "b.txt", "ab\n"), STREAM), Contiguous("text"), schema=STREAM)


# Splits that the data tells


def test_a_column_tells_the_splits(tmp_path: Path) -> None:
    names = ["train", "Training", "valid", "validation", "dev", "VAL ", "test", "train"]
    lines = "".join(f"t{n},{'ab'[n % 2]},{name}\n" for n, name in enumerate(names))
    for head, columns in (("text,label,split", {}), ("text,label,fold", {"split": "fold"})):
        splits, notes = divide(read(write(tmp_path / "a.csv", f"{head}\n{lines}"), LABELED, **columns))
        assert {name: values(rows, "input") for name, rows in splits.items()} == {
            "train": ["t0", "t1", "t7"],
            "validation": ["t2", "t3", "t4", "t5"],
            "test": ["t6"],
        }
        assert f'splits by the column "{head.split(",")[2]}"' in notes
        assert "split" not in splits["train"]
    odd = write(tmp_path / "b.csv", f"text,label,set\n{lines}t9,a,holdout\n")
    with pytest.raises(SeriatimError, match=r'b.csv, line 10: column "set" holds "holdout"') as caught:
        read(odd, LABELED, split="set")
    assert caught.value.code == "data.split"
    assert "split" not in read(odd, LABELED, split="")


def test_flip_has_a_second_column() -> None:
    table: dict[str, list[Any]] = {
        "sequence": ["AC", "CA", "AA", "CC", "GG"],
        "target": [1.5, 2, 3, 4, 5],
        "set": ["train", "train", "test", "train", "test"],
        "validation": ["", "True", "", "False", "True"],
    }
    splits, notes = divide(read(table, SCORED), Stratified(), schema=SCORED)
    assert {name: values(rows, "input") for name, rows in splits.items()} == {
        "train": ["AC", "CC"],
        "validation": ["CA"],
        "test": ["AA", "GG"],
    }
    assert any('training rows where "validation" is true' in note for note in notes)


def test_files_take_precedence_and_a_missing_validation_split_is_drawn() -> None:
    whole = read(ROWS | {"split": ["train"] * 20}, LABELED)
    other = read({"text": ["film 1", "new"], "label": ["a", "b"]}, LABELED)
    splits, notes = divide(whole, test=other)
    assert sizes(splits) == {"train": 18, "validation": 2, "test": 2}
    assert "no validation split: 11.1 % of the training rows are used" in notes
    assert any('column "split" is ignored' in note for note in notes)
    splits, notes = divide(whole, fractions=(1, 0, 0), validation=other)
    assert sizes(splits) == {"train": 20, "validation": 2}
    assert "there is no test split" in notes


def test_inputs_in_two_splits_are_noted() -> None:
    train = read({"text1": ["a", "c"], "text2": ["b", "d"], "y": ["p", "q"]}, LABELED)
    test = read({"text1": ["a", "a", "b"], "text2": ["b", "d", "a"], "y": ["p", "p", "q"]}, LABELED)
    _, notes = divide(train, validation=test, test=test)
    assert "1 of 3 test rows have an input that is in the training split, too" in notes
    lists = read({"x": [[1, 2], [3]], "y": ["p", "q"]}, LABELED)
    _, notes = divide(lists, validation=lists, test=lists)
    assert "2 of 2 validation rows have an input that is in the training split, too" in notes


def test_too_few_rows_and_wrong_fractions() -> None:
    with pytest.raises(SeriatimError, match="2 rows are too few to split 80 / 10 / 10 %") as caught:
        divide(read({"text": ["x", "y"], "label": ["a", "b"]}, LABELED))
    assert caught.value.code == "data.too-short"
    only_test = {"text": ["x"], "label": ["a"], "split": ["test"]}
    with pytest.raises(SeriatimError, match="no training rows"):
        divide(read(only_test, LABELED))
    for fractions in ((0.9, 0.2, 0.0), (0.0, 0.5, 0.5), (1.2, -0.1, -0.1)):
        with pytest.raises(SeriatimError, match="add up to 1"):
            check_fractions(fractions)


def test_policies_may_separate_predefined_splits() -> None:
    class Disjoint(Stratified):
        def separate(self, splits: dict[str, Dataset], diagnostics: Diagnostics) -> dict[str, Dataset]:
            held = set(values(splits["test"], "input"))
            kept = [row for row, text in enumerate(values(splits["train"], "input")) if text not in held]
            diagnostics.note("separated")
            return splits | {"train": splits["train"].take(np.array(kept))}

    test = read({"text": ["film 1", "film 2"], "label": ["a", "b"]}, LABELED)
    splits, notes = divide(read(ROWS, LABELED), Disjoint(), validation=test, test=test)
    assert len(splits["train"]) == 18
    assert "separated" in notes
