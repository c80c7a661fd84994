"""Multiple choice: the layouts of COPA, SWAG and lists, labels of every style, ragged questions, and wrong input."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import seriatim
from seriatim.cli import run as cli
from seriatim.core.errors import Diagnostics, SeriatimError
from seriatim.tasks.choices import continuations, text_pairs
from seriatim.training.objective import TaskObjective
from task_helpers import fit_splits, prepare_splits, refused

COPA = {"premise": "The man broke his toe.", "question": "cause", "choice1": "He slept.", "choice2": "It fell on it."}
SWAG = {"video-id": "v", "sent1": "She sits.", "sent2": "The dog", "startphrase": "She sits. The dog"} | {
    f"ending{n}": f"does {n}." for n in range(4)
}
LAYOUTS: dict[str, tuple[list[dict[str, Any]], list[int], tuple[str, str]]] = {
    "COPA": (
        [COPA | {"label": 1}, COPA | {"label": 0, "question": "effect"}],
        [1, 0],
        ("The man broke his toe. What was the cause of this?", "He slept."),
    ),
    "SWAG": ([SWAG | {"label": 3}, SWAG | {"label": 0}], [3, 0], ("She sits.", "The dog does 0.")),
    "from one": (
        [{"sentence": "x _", "option1": "a", "option2": "b", "answer": label} for label in ("2", "1")],
        [1, 0],
        ("x _", "a"),
    ),
    "letters": (
        [{"article": "t", "question": "q?", "options": ["a", "b", "c"], "answer": label} for label in "CA"],
        [2, 0],
        ("t q?", "a"),
    ),
    "CommonsenseQA": (
        [{"question": "q?", "choices": {"label": ["A", "B"], "text": ["a", "b"]}, "answerKey": "B"}],
        [1],
        ("q?", "a"),
    ),
    "texts": (
        [{"question": "q?", "choices": json.dumps(["yes", "no"]), "label": label} for label in ("no", "yes")],
        [1, 0],
        ("q?", "yes"),
    ),
}


@pytest.mark.parametrize("name", LAYOUTS)
def test_layouts(name: str) -> None:
    rows, targets, (first, second) = LAYOUTS[name]
    task, _ = prepare_splits("choose", rows * 10)
    encoded = task.processor.encode(task.read(rows, Diagnostics()), Diagnostics())
    assert encoded.targets.tolist() == targets
    texts = text_pairs(task.read(rows, Diagnostics()))
    assert (texts[0][0], texts[1][0]) == (first, second)
    assert task.processor.text.element_names(encoded.inputs[0]).count("<eos>") == 1  # between question and choice


def test_what_a_language_model_continues() -> None:
    task, _ = prepare_splits("choose", [COPA | {"label": 1}, COPA | {"label": 0}] * 10)
    rows = continuations(task.read([COPA, COPA | {"question": "effect"}], Diagnostics(), task.schema.inputs()))
    assert rows[0] == ("The man broke his toe because", [" he slept.", " it fell on it."])
    assert rows[1][0] == "The man broke his toe so"


def test_a_label_is_named_as_in_the_data() -> None:
    for name, expected in (("from one", {1, 2}), ("letters", {"A", "B", "C"}), ("texts", {0, 1})):
        rows = LAYOUTS[name][0]
        predictor = fit_splits(*prepare_splits("choose", rows * 10), steps=0)
        assert {record["choice"] for record in predictor.call("answer", rows)} <= expected


def ragged(count: int) -> list[dict[str, Any]]:
    """Questions with two to four choices; the right one says "yes"."""
    draw = np.random.default_rng(0)
    rows = []
    for number in range(count):
        choices = [f"no {draw.integers(9)} {'x ' * int(draw.integers(5))}" for _ in range(2 + number % 3)]
        choices[label := int(draw.integers(len(choices)))] = "yes 1"
        rows.append({"question": f"which {number}?", "choices": choices, "label": label})
    return rows


def test_questions_with_any_number_of_choices() -> None:
    """It learns, alone and together are the same, and chance is the mean of 1/C."""
    task, splits = prepare_splits("choose", ragged(90))
    predictor = fit_splits(task, splits, steps=40)
    evaluation = task.evaluate(predictor.network, splits["test"])
    assert evaluation.metrics["accuracy"] == 1
    assert evaluation.examples["accuracy"].values.tolist() == [[1]] * len(splits["test"].items)
    rows = ragged(6)
    together = predictor.call("answer", rows, probabilities=True)
    for row, record in zip(rows, together, strict=True):
        (alone,) = predictor.call("answer", [row], probabilities=True)
        assert record["answer"] == "yes 1"
        assert len(record["probabilities"]) == len(row["choices"])
        assert alone["probabilities"] == pytest.approx(record["probabilities"], abs=1e-6)
        assert sum(alone["probabilities"]) == pytest.approx(1)
    baselines = task.baselines(splits, ["test"])["test"]
    counts = splits["test"].items.counts
    assert baselines["chance"]["accuracy"] == pytest.approx(np.mean(1 / counts))
    assert {view.title for view in task.views(evaluation)} >= {"Accuracy by position of the right choice"}


def test_smoothing_is_that_of_cross_entropy() -> None:
    task, splits = prepare_splits("choose", LAYOUTS["SWAG"][0] * 10)
    batch = TaskObjective.of(task, splits).batch(0, 0, 4, 4)
    output = task.forward(task.build(splits.train).eval(), batch)
    expected = torch.nn.functional.cross_entropy(output.scores, batch.targets[0], reduction="sum", label_smoothing=0.1)
    torch.testing.assert_close(task.loss(output, batch, 0.1), expected)


def test_wrong_data() -> None:
    rows = LAYOUTS["COPA"][0] * 10
    refused("data.label", '"7" names none of the 2 choices', name="choose", data=[*rows, COPA | {"label": 7}])
    letters = LAYOUTS["letters"][0]
    refused("data.choices", "1 choice, at least 2", name="choose", data=[*letters, letters[0] | {"options": ["a"]}])
    refused("data.choices", "an empty choice", name="choose", data=[*rows, COPA | {"choice1": "", "label": 1}])
    refused("data.column", "which column is the choices", name="choose", data=[{"premise": "a", "label": 0}] * 9)


def test_published_test_splits_have_no_labels(tmp_path: Path) -> None:
    """A folder as it is downloaded: test.jsonl without the column, or with -1 in it."""
    folder = tmp_path / "COPA"
    folder.mkdir()
    for name, label in (("train", {"label": 1}), ("val", {"label": 0}), ("test", {})):
        (folder / f"{name}.jsonl").write_text((json.dumps(COPA | label) + "\n") * 8, encoding="utf-8")
    for line in (None, COPA | {"label": -1}):
        if line is not None:
            (folder / "test.jsonl").write_text(json.dumps(line) + "\n", encoding="utf-8")
        diagnostics = Diagnostics()
        _, splits = prepare_splits("choose", folder, diagnostics=diagnostics)
        assert set(splits) == {"train", "validation"}
        assert any("left out" in note for note in diagnostics.notes)


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    lines = [json.dumps(row) for row in ragged(60)]
    Path("rows.jsonl").write_text("\n".join(lines), encoding="utf-8")
    small = ["--steps", "2", "--batch-size", "4", "--set", "model.width=8", "--quiet", "--no-report"]
    assert cli(["train", "choose", "--data", "rows.jsonl", "--out", "run", *small]) == 0
    capsys.readouterr()
    assert cli(["answer", "run", "which?", "--choices", "no 1", "--choices", "yes 1", "--json"]) == 0
    record = json.loads(capsys.readouterr().out)
    assert record["answer"] in ("no 1", "yes 1")
    assert record == seriatim.load("run").answer("which?", choices=["no 1", "yes 1"])
    assert cli(["answer", "run", "--data", "rows.jsonl", "--out", "answers.csv", "--quiet"]) == 0
    assert Path("answers.csv").read_text(encoding="utf-8").count("\n") == 61
    assert cli(["answer", "run", "which?"]) == 2
    assert "predict.choices" in capsys.readouterr().err
    assert cli(["answer", "run", "which?", "--choices", "yes"]) == 2
    assert "data.choices" in capsys.readouterr().err
    with pytest.raises(SeriatimError, match=r"task\.pooling"):
        seriatim.train("choose", "rows.jsonl", "gpt", settings={"task": {"pooling": "first"}}, steps=1, out="other")
    assert seriatim.load("run").settings["task"]["pooling"] == "last"
