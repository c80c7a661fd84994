"""Regress: one and several targets, from a table to predictions and charts, by networks and by Nadaraya–Watson."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from PIL import Image

from seriatim.core.errors import Diagnostics, SeriatimError
from seriatim.models.nadaraya_watson import NadarayaWatson
from seriatim.nn.network import load_weights, weights
from seriatim.report.charts import Heatmap, Lines, Scatter, Table
from seriatim.tasks.base import Output
from seriatim.tasks.reading import read_split
from seriatim.tasks.regress.task import RegressTask
from seriatim.training.objective import TaskObjective
from task_helpers import fit_splits, prepare_splits, refused

NO_SPLIT = {"fractions": (1.0, 0.0, 0.0)}


def write(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    return path


def write_rows(path: Path, records: list[dict[str, Any]]) -> Path:
    return write(path, "".join(json.dumps(record) + "\n" for record in records))


# Targets


def test_targets_of_every_form(tmp_path: Path) -> None:
    columns = write(tmp_path / "a.csv", "text,p,q\nx,1,2\ny,3,-4e1\n")
    lists = write_rows(tmp_path / "b.jsonl", [{"text": "x", "y": [1, 2]}, {"text": "y", "y": [3, -40]}])
    cells = write(tmp_path / "c.csv", "text,y\nx,1 2\ny,3 -40\n")
    named = {"columns": {"input": "text", "target": "p,q"}}
    for path, options, names in (
        (columns, named, ("p", "q")),
        (lists, {}, ("value 1", "value 2")),
        (cells, {"label_separator": " "}, ("value 1", "value 2")),
    ):
        task, splits = prepare_splits("regress", path, **NO_SPLIT, **options)
        assert splits["train"].items.targets.tolist() == [[1, 2], [3, -40]]
        assert task.processor.targets == names
    ragged = write_rows(tmp_path / "d.jsonl", [{"text": "x", "y": [1, 2]}, {"text": "y", "y": [3]}])
    refused("data.target", "d.jsonl, line 2", "1 numbers to predict", name="regress", data=ragged, **NO_SPLIT)


def test_proteins_as_tape_stores_them(tmp_path: Path) -> None:
    """A JSON file per split, the sequence in "primary" and a list of one number: no option is needed."""
    for split, count in (("train", 8), ("valid", 3), ("test", 2)):
        rows = [
            {"primary": "MKV" * (1 + n), "protein_length": 3, "stability_score": [n / 2], "id": str(n)}
            for n in range(count)
        ]
        write(tmp_path / f"stability_{split}.json", json.dumps(rows))
    task, splits = prepare_splits("regress", tmp_path)
    assert {name: len(split.rows) for name, split in splits.parts.items()} == {"train": 8, "validation": 3, "test": 2}
    assert splits["test"].items.targets.tolist() == [[0.0], [0.5]]
    assert task.processor.input.tokenizer.decode(splits["test"].items.inputs[1]) == "MKVMKV"
    table = "sequence,stability_score,split\nMKV,1,train\nMKVV,2,train\nMK,3,valid\nM,4,test\n"
    _, splits = prepare_splits("regress", write(tmp_path / "stability.csv", table))
    assert {name: split.rows["target"].tolist() for name, split in splits.parts.items()} == {
        "train": [1.0, 2.0], "validation": [3.0], "test": [4.0],
    }  # fmt: skip


def test_numbers_that_are_missing_or_wrong(tmp_path: Path) -> None:
    for cell, code in (("", "number"), ("nan", "number"), ("inf", "number"), ("1_0", "cell")):
        path = write(tmp_path / "a.csv", f"text,y\nx,1\ny,{cell}\nz,2\n")
        refused(f"data.{code}", "a.csv, line 3", name="regress", data=path, columns={"target": "y"}, **NO_SPLIT)
    words = write(tmp_path / "b.csv", "text,y\nx,good\nz,bad\n")
    with pytest.raises(SeriatimError, match=r"b\.csv") as caught:
        prepare_splits("regress", words, columns={"target": "y"}, **NO_SPLIT)
    assert caught.value.code in ("data.number", "data.column")
    two, _ = prepare_splits("regress", pd.DataFrame({"text": ["a", "b"] * 10, "p": range(20), "q": range(20)}),
                  columns={"input": "text", "target": "p,q"})  # fmt: skip
    with pytest.raises(SeriatimError, match="1 numbers to predict, the model has 2") as caught:
        read_split(two, pd.DataFrame({"text": ["a"], "p": [1.0]}), {"target": "p"})
    assert caught.value.code == "data.target"


# Networks


@pytest.fixture(name="trained", scope="module")
def _trained() -> Any:
    x = np.random.default_rng(0).normal(size=(200, 6)).astype(np.float32)
    model, settings = {"name": "gru", "width": 16}, {"pooling": "last"}
    task, splits = prepare_splits("regress", (x, x.sum(axis=1)), model, settings=settings)
    return fit_splits(task, splits, 150, lr=0.01), splits


def test_predictions_are_in_the_units_of_the_data(trained: Any) -> None:
    trained, splits = trained
    task = trained.task
    metrics = task.evaluate(trained.network, splits["test"]).metrics
    assert set(metrics) == {"loss", "mse", "mae", "r2", "spearman", "pearson", "examples"}
    assert metrics["r2"] > 0.5
    inputs = list(splits["test"].rows["input"])
    predictions = trained.call("regress", inputs)
    assert predictions[0].keys() == {"prediction"}
    assert np.corrcoef([row["prediction"] for row in predictions], splits["test"].items.targets[:, 0])[0, 1] > 0.7
    (alone,) = trained.call("regress", inputs[:1])
    assert alone["prediction"] == pytest.approx(predictions[0]["prediction"], rel=1e-5)
    with pytest.raises(SeriatimError) as caught:
        trained.call("regress", [np.zeros((4, 2), np.float32)])
    assert caught.value.code == "data.features"
    assert trained.usage("run")[0].shell.startswith('seriatim regress run "0.1')


@pytest.mark.parametrize("cell", ["abc", 1.0, ["a"], [[1, 2], [3]], [[1, float("nan")]], [[1, 2, 3]], "1 2"])
def test_inputs_that_are_no_sequences_of_two_numbers(cell: Any) -> None:
    task, splits = prepare_splits("regress", pd.DataFrame({"x": [[[n, n + 1]] for n in range(20)], "y": range(20)}))
    predictor = task.predictor(task.build(splits.train))
    assert len(predictor.call("regress", [[[1, 2]], "[[3, 4], [5, 6]]", ""])) == 3
    with pytest.raises(SeriatimError):
        predictor.call("regress", [[[1, 2]], cell])


def test_loss_is_relative_to_the_scale_of_each_target() -> None:
    frame = pd.DataFrame({"text": ["a b", "c"] * 10, "p": np.arange(20.0), "q": 1000 * np.arange(20.0)})
    task, splits = prepare_splits("regress", frame, columns={"input": "text", "target": "p,q"})
    network, batch = task.build(splits.train), TaskObjective.of(task, splits).batch(0, 0, 4, 4)
    std = torch.tensor(task.processor.std)
    assert torch.equal(network.head.scale, std)
    output = task.forward(network, batch)
    expected = (((output.scores - batch.targets) / std) ** 2).mean(dim=-1).sum()
    assert torch.equal(task.loss(output, batch), expected)
    teacher = Output(batch.targets)
    assert torch.equal(task.distillation_loss(output, teacher, 3.0), expected)
    baseline = task.baselines(splits, ["test"])["test"]["mean"]
    assert baseline["r2"] <= 0
    predictor = task.predictor(network)
    assert predictor.call("regress", ["a"])[0].keys() == {"p", "q"}
    views = task.views(task.evaluate(predictor.network, splits["test"]))
    assert [type(view) for view in views] == [Table, Scatter, Scatter, Table]
    assert [row[0] for row in views[0].rows] == ["p", "q"]
    assert views[3].title == "Largest errors"
    assert "(is " in task.sample(task.evaluate(network, splits["validation"]))


def test_teachers_predict_the_same_values() -> None:
    frame = pd.DataFrame({"text": ["a b", "c"] * 10, "p": np.arange(20.0), "q": np.arange(20.0)})
    single, other, both = (
        prepare_splits("regress", frame, columns={"input": "text", "target": target}) for target in ("p", "q", "p,q")
    )
    teacher = other[0].predictor(other[0].build(other[1].train))
    assert single[0].teacher_mismatches(teacher) == []  # one value, whatever its name
    teacher = both[0].predictor(both[0].build(both[1].train))
    assert single[0].teacher_mismatches(teacher) == ['only the teacher has the value: "q"']


def test_images_in_a_table(tmp_path: Path) -> None:
    rows = []
    for number in range(20):
        pixels = np.full((12, 12, 3), 10 * number, np.uint8)
        Image.fromarray(pixels).save(tmp_path / f"{number}.png")
        rows.append(f"{number}.png,{number}")
    table = write(tmp_path / "bright.csv", "\n".join(["path,bright", *rows]) + "\n")
    task, splits = prepare_splits("regress", table, {"name": "resnet", "width": 4})
    predictor = task.predictor(task.build(splits.train))
    assert set(predictor.call("regress", [str(tmp_path / "3.png")])[0]) == {"prediction", "image"}
    refused("task.images", "nadaraya_watson", name="regress", data=table, model="nadaraya_watson")


# Nadaraya–Watson

KERNELS: dict[str, Any] = {
    "gaussian": lambda u: math.exp(-0.5 * u * u),
    "boxcar": lambda u: 1.0 if u <= 1 else 0.0,
    "epanechnikov": lambda u: max(0.0, 1 - u),
}


def weighted_mean(kernel: str, bandwidth: float, points: np.ndarray, values: np.ndarray, x: float) -> float:
    weights = [KERNELS[kernel](abs(x - point) / bandwidth) for point in points]
    if sum(weights) == 0:
        distances = np.abs(points - x)
        weights = (distances == distances.min()).astype(float).tolist()
    return float(sum(w * v for w, v in zip(weights, values, strict=True)) / sum(weights))


@pytest.fixture(name="curve", scope="module")
def _curve() -> Any:
    diagnostics = Diagnostics()
    task, splits = prepare_splits("regress", "curve:120", "nadaraya_watson", diagnostics=diagnostics)
    predictor = task.predictor(task.fit(task.config.model, splits.train, diagnostics))
    assert any("leave-one-out error" in note for note in diagnostics.notes)
    return predictor, splits


def test_nadaraya_watson_from_data_to_predictions(curve: Any, tmp_path: Path) -> None:
    curve, splits = curve
    task, model = curve.task, curve.network
    assert isinstance(model, NadarayaWatson)
    metrics = task.evaluate(model, splits["test"]).metrics
    assert 0.2 < metrics["mse"] < 0.4  # the noise alone has 0.25
    assert metrics["examples"] == 200
    assert curve.call("regress", [[1.5]])[0]["prediction"] == pytest.approx(model.predict(np.array([[1.5]]))[0, 0])
    table = write(tmp_path / "new.csv", "name,x\na,0.5\nb,4.25\n")
    predictions = [row["prediction"] for row in curve.call("regress", Path(table))]
    np.testing.assert_allclose(predictions, model.predict(np.array([[0.5], [4.25]]))[:, 0], rtol=1e-5)
    restored = task.network(task.config.model)
    load_weights(restored, weights(model))
    np.testing.assert_array_equal(restored.predict(np.array([[1.5]])), model.predict(np.array([[1.5]])))


def test_nadaraya_watson_views(curve: Any) -> None:
    curve, splits = curve
    line, heatmap, scatter, table = curve.task.views(curve.task.evaluate(curve.network, splits["test"]))
    assert (type(line), type(heatmap), type(scatter), type(table)) == (Lines, Heatmap, Scatter, Table)
    assert len(line.points) == 120
    series = line.series[0]
    assert series.y[77] == pytest.approx(curve.network.predict(np.array([[series.x[77]]]))[0, 0], rel=1e-5)
    assert (len(heatmap.rows), len(heatmap.columns)) == (100, 100)
    np.testing.assert_allclose(np.array(heatmap.values).sum(axis=1), 1.0, atol=1e-2)
    assert [float(row) for row in heatmap.rows] == sorted(map(float, heatmap.rows))


@pytest.mark.parametrize("kernel", ["boxcar", "epanechnikov"])
def test_bandwidth_in_the_units_of_the_data(kernel: str) -> None:
    model = {"name": "nadaraya_watson", "kernel": kernel, "bandwidth": 0.4}
    task, splits = prepare_splits("regress", "curve:50", model, settings={"scaling": "none"})
    predictor = task.predictor(task.fit(task.config.model, splits.train, Diagnostics()))
    train = splits["train"].items
    expected = weighted_mean(kernel, 0.4, train.inputs.values[:, 0], train.targets[:, 0], 2.5)
    assert predictor.call("regress", [[2.5]])[0]["prediction"] == pytest.approx(expected, rel=1e-5)


def test_columns_budget_and_several_targets() -> None:
    block = np.random.default_rng(0).normal(size=(60, 2))
    frame = pd.DataFrame({"a": block[:, 0], "b": block[:, 1], "product": block.prod(axis=1), "sum": block.sum(axis=1)})
    columns = {"input": "a,b", "target": "product,sum"}
    task, splits = prepare_splits("regress", frame, "nadaraya_watson", columns=columns)
    train = splits.train
    model = task.fit(task.resize(task.config.model, train, 60), train, Diagnostics())
    assert model.entries == 60
    predictor = task.predictor(model)
    assert predictor.call("regress", ["0.1 0.2"])[0].keys() == {"product", "sum"}
    views = task.views(task.evaluate(model, splits["test"]))
    assert "Weights of the training rows" in [view.title for view in views]


def test_what_nadaraya_watson_cannot_read(tmp_path: Path, curve: Any) -> None:
    texts = pd.DataFrame({"text": [f"so many words {n}" for n in range(40)], "y": range(40)})
    task, splits = prepare_splits("regress", texts, "nadaraya_watson")
    with pytest.raises(SeriatimError, match="text") as caught:
        task.fit(task.config.model, splits.train, Diagnostics())
    assert caught.value.code == "nadaraya-watson.text"
    rows = [f"0.{n} 0.5,{n}" for n in range(1, 40)]
    rows[17] = "0.1 0.2 0.3,5"
    path = write(tmp_path / "t.csv", "\n".join(["values,y", *rows]) + "\n")
    with pytest.raises(SeriatimError, match=r"t\.csv, line 19: 3 steps") as caught:
        prepare_splits("regress", path, "nadaraya_watson", settings={"input_kind": "numbers"})
    assert caught.value.code == "nadaraya-watson.length"
    with pytest.raises(SeriatimError, match="row 2: 2 steps"):
        curve[0].call("regress", [[0.5], [0.5, 0.25]])
    task, splits = prepare_splits("regress", "curve:20", "ngram")
    with pytest.raises(SeriatimError) as caught:
        task.fit(task.config.model, splits.train, Diagnostics())
    assert caught.value.code == "task.model"


def test_defaults_of_the_task() -> None:
    assert RegressTask.monitor == "loss"
    assert RegressTask.default_model == "gru"
