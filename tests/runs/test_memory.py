"""Data from memory goes the same way as files: the same weights, and DataFrames come back as DataFrames."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import torch

import seriatim
from seriatim.core.errors import SeriatimError
from seriatim.core.files import load_tensors

WORDS = ("fine", "dull", "warm", "cold")
FRAME = pd.DataFrame(
    {
        "text": [f"{word} film number {number}" for number in range(15) for word in WORDS],
        "label": [("good", "bad")[WORDS.index(word) % 2] for _ in range(15) for word in WORDS],
    }
)
SETTINGS: dict[str, Any] = {"model": {"width": 8}, "train": {"evaluate_steps": 3, "batch_size": 4}}


def train(data: Any, out: Path, **options: Any) -> Any:
    return seriatim.train("classify", data, "gru", steps=3, out=out, report=False, settings=SETTINGS, **options)


def weights(run: Any) -> dict[str, torch.Tensor]:
    return load_tensors(run.path / "model.safetensors")


@pytest.fixture(scope="module")
def from_file(tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = tmp_path_factory.mktemp("memory")
    FRAME.to_csv(folder / "data.csv", index=False)
    return train(folder / "data.csv", folder / "run")


def hub_dataset() -> Any:
    import datasets

    return datasets.Dataset.from_pandas(FRAME)


SOURCES = {
    "pandas": lambda: FRAME,
    "polars": lambda: pl.from_pandas(FRAME),
    "arrow": lambda: pa.Table.from_pandas(FRAME),
    "records": lambda: FRAME.to_dict("records"),
    "tuples": lambda: list(FRAME.itertuples(index=False, name=None)),
    "columns": lambda: FRAME.to_dict("list"),
    "arrays": lambda: (FRAME["text"].tolist(), FRAME["label"].to_numpy()),
    "datasets": hub_dataset,
}


@pytest.mark.parametrize("name", SOURCES)
def test_same_weights_as_from_a_file(from_file: Any, name: str, tmp_path: Path) -> None:
    run = train(SOURCES[name](), tmp_path / "run")
    expected, actual = weights(from_file), weights(run)
    assert all(torch.equal(expected[key], actual[key]) for key in expected)


def test_splits_of_their_own(tmp_path: Path) -> None:
    import datasets

    parts = {"train": FRAME[:40], "validation": FRAME[40:50], "test": FRAME[50:]}
    named = train(parts["train"], tmp_path / "a", validation=parts["validation"], test=parts["test"])
    splits = datasets.DatasetDict({name: datasets.Dataset.from_pandas(rows) for name, rows in parts.items()})
    from_hub = train(splits, tmp_path / "b")
    first, second = weights(named), weights(from_hub)
    assert all(torch.equal(first[key], second[key]) for key in first)
    assert named.summary["metrics"]["test"]["examples"] == 10


def test_a_frame_comes_back_with_index_and_columns(from_file: Any) -> None:
    frame = pd.DataFrame({"text": ["a fine film", "dull"], "id": np.array([7, 8], np.int8)}, index=["x", "y"])
    result = from_file.predict(frame, probabilities=True)
    assert list(result.index) == ["x", "y"]
    pd.testing.assert_frame_equal(result[list(frame.columns)], frame)
    assert set(result["prediction"]) <= {"good", "bad"}
    np.testing.assert_allclose(result["probabilities.good"] + result["probabilities.bad"], 1, rtol=1e-6)
    polars = from_file.predict(pl.from_pandas(frame))
    assert polars["id"].to_list() == [7, 8]
    assert polars["prediction"].to_list() == result["prediction"].tolist()


def test_evaluate_on_memory(from_file: Any, tmp_path: Path) -> None:
    FRAME[:20].to_csv(tmp_path / "some.csv", index=False)
    expected = seriatim.evaluate(from_file.path, data=tmp_path / "some.csv")
    assert seriatim.evaluate(from_file.path, data=FRAME[:20]) == expected


def test_resume_needs_the_data_again(tmp_path: Path) -> None:
    train(FRAME, tmp_path / "run")
    with pytest.raises(SeriatimError) as caught:
        seriatim.resume(tmp_path / "run", steps=5)
    assert caught.value.code == "data.memory"
    assert seriatim.resume(tmp_path / "run", data=FRAME, steps=5, report=False).summary["step"] == 5


def test_other_objects_are_refused() -> None:
    with pytest.raises(SeriatimError) as caught:
        seriatim.train("classify", 42, "gru")
    assert caught.value.code == "data.source"


def test_compare_on_memory(tmp_path: Path) -> None:
    comparison = seriatim.compare("classify", FRAME, ["gru", "mlp"], steps=2, out=tmp_path / "c", settings=SETTINGS)
    assert [run.path.name for run in comparison.runs] == ["gru", "mlp"]
    assert {row["model"] for row in comparison.table()} == {"gru", "mlp"}


def test_a_run_knows_its_data_in_the_process_that_trained_it(tmp_path: Path) -> None:
    run = train(FRAME, tmp_path / "run")
    assert run.evaluate() == pytest.approx(run.metrics["test"])
    with pytest.raises(SeriatimError) as caught:
        seriatim.load(run.path).evaluate()
    assert caught.value.code == "data.memory"


def test_resume_needs_each_split_that_was_in_memory(from_file: Any, tmp_path: Path) -> None:
    path = from_file.path.parent / "data.csv"
    train(path, tmp_path / "run", validation=FRAME[:12])
    for options, code, name in (
        ({}, "data.memory", "validation=…"),
        ({"validation": "other.csv"}, "data.memory", "validation=…"),
        ({"validation": FRAME[:12], "data": "other.csv"}, "data.changed", "omit data="),
    ):
        with pytest.raises(SeriatimError) as caught:
            seriatim.resume(tmp_path / "run", steps=5, **options)
        assert caught.value.code == code
        assert name in caught.value.remedy
    resumed = seriatim.resume(tmp_path / "run", data=path, validation=FRAME[:12], steps=5, report=False)
    assert resumed.summary["step"] == 5


def test_an_average_that_cannot_be_evaluated_makes_no_folder(tmp_path: Path) -> None:
    train(FRAME, tmp_path / "run")
    with pytest.raises(SeriatimError) as caught:
        seriatim.average(tmp_path / "run", out=tmp_path / "average")
    assert caught.value.code == "data.memory"
    assert not (tmp_path / "average").exists()
    assert seriatim.average(tmp_path / "run", out=tmp_path / "average", evaluate=False).classify("a fine film")


def test_nothing_in_gives_nothing_back(from_file: Any) -> None:
    for nothing in ((), {}, []):
        assert from_file.classify(nothing) == []


def test_columns_are_those_of_other_data(from_file: Any) -> None:
    with pytest.raises(SeriatimError) as caught:
        seriatim.evaluate(from_file.path, column="text")
    assert caught.value.code == "data.column"


def test_an_error_inside_is_not_a_missing_capability(from_file: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def network(self: Any, model: Any) -> Any:
        return self.no_such_thing

    run = seriatim.load(from_file.path)
    monkeypatch.setattr(type(run.task), "network", network)
    with pytest.raises(AttributeError, match="no_such_thing"):
        run.classify("a fine film")


def test_a_teacher_whose_data_was_in_memory(tmp_path: Path) -> None:
    train(FRAME, tmp_path / "run")
    with pytest.raises(SeriatimError) as caught:
        seriatim.distill(tmp_path / "run", "gru", out=tmp_path / "students", steps=2)
    assert caught.value.code == "data.memory"
