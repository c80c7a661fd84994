"""Distillation compared: a teacher, a student alone and a student distilled."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import seriatim
from helpers import tagged_file
from seriatim.cli import run as cli
from seriatim.core.errors import SeriatimError
from seriatim.data.tokenizers import Tokenizer
from seriatim.runs import distill as module
from seriatim.runs.configure import configure
from seriatim.runs.distill import ALONE, DISTILLED, inherited_settings, measure_speed, student_configs
from seriatim.training.config import DistillSettings
from seriatim.training.events import Event, Stepped

TRAIN: dict[str, Any] = {"steps": 6, "batch_size": 8, "evaluate_steps": 100}
TASKS: dict[str, tuple[str, dict[str, Any]]] = {
    "classify": ("gru", {"data": {"columns": {"input": "text", "target": "label"}}}),
    "regress": ("gru", {"data": {"columns": {"input": "text", "target": "value"}}}),
    "tag": ("gru", {}),
    "language": ("lstm", {"task": {"context_length": 12}}),
    "translate": ("bahdanau", {"task": {"beams": 1}}),
}


@pytest.fixture(autouse=True)
def _fast(monkeypatch: pytest.MonkeyPatch) -> None:
    """Speed is measured in one short round, and reports of runs are left out."""
    for name, value in (("MAX_ROUNDS", 1), ("TURN_SECONDS", 0.0)):
        monkeypatch.setattr(module, name, value)
    monkeypatch.setattr("seriatim.report.write_run_report", lambda run: None)


@pytest.fixture(scope="module")
def data(book: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    folder = tmp_path_factory.mktemp("distill")
    rows = [
        f"a {word} film {number},{label},{number / 10}"
        for number in range(30)
        for word, label in (("fine", "good"), ("dull", "bad"))
    ]
    (folder / "films.csv").write_text("\n".join(["text,label,value", *rows]) + "\n", encoding="utf-8")
    pairs = [f"{a} {b}\t{b} {a}" for a in "abcdefgh" for b in "abcdefgh"]
    (folder / "pairs.tsv").write_text("\n".join(pairs) + "\n", encoding="utf-8")
    films, tagged = str(folder / "films.csv"), tagged_file(folder)
    return {
        "classify": films,
        "regress": films,
        "tag": tagged,
        "language": str(book),
        "translate": str(folder / "pairs.tsv"),
    }


@pytest.fixture(scope="module")
def teachers(data: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp("teachers")
    runs = {}
    for task, (model, settings) in TASKS.items():
        values = {"model": {"width": 8}, "train": TRAIN, "seed": 5} | settings
        runs[task] = seriatim.train(task, data[task], model, settings=values, out=folder / task, report=False)
    return runs


def test_students_inherit_task_data_and_budget(data: dict[str, str], teachers: dict[str, Any], tmp_path: Path) -> None:
    teacher = teachers["classify"]
    configs = student_configs(teacher, "lstm", None, {"model": {"width": 4}}, distillation_weight=0.3)
    distilled, alone = configs[DISTILLED], configs[ALONE]
    train = distilled.train
    assert (distilled.seed, train.steps, train.batch_size, train.evaluate_steps) == (5, 6, 8, 100)
    assert distilled.data.columns["input"] == "text"
    assert distilled.distill == DistillSettings(teacher=str(teacher.path), weight=0.3)
    assert alone.model_dump() == distilled.model_dump() | {"distill": None}
    other = student_configs(teacher, "lstm", data["regress"], {}, epochs=2.0, target="label")[DISTILLED]
    assert (other.train.steps, other.train.epochs) == (None, 2.0)
    assert "input" not in other.data.columns, "other data is read afresh"
    with pytest.raises(SeriatimError, match="no student is named"):
        student_configs(teacher, None, None, {})
    language = student_configs(teachers["language"], "gru", None, {})
    assert language[ALONE].distill == DistillSettings(teacher=str(teachers["language"].path), weight=0.0)


def test_students_of_a_fine_tuned_teacher_train_longer(data: dict[str, str], tmp_path: Path) -> None:
    """From nothing, with dropout; what the user sets, and students with pretrained weights, stay as they are."""
    values = {"model": {"name": "bert", "width": 8, "heads": 2}, "train": {"epochs": 3.0}}
    config = configure("classify", data["classify"], None, values)
    run = seriatim.api.Run.create(tmp_path / "bert", config.model_dump(mode="json") | {"start": "minilm"})
    for student in student_configs(run, "gru", None, {}).values():
        assert (student.train.epochs, student.model.dropout, student.start) == (6.0, 0.3, None)
    own = student_configs(run, "gru", None, {"model": {"dropout": 0.1}}, epochs=2.0)[DISTILLED]
    assert (own.train.epochs, own.model.dropout) == (2.0, 0.1)
    pretrained = inherited_settings(run, other_data=False, other_end=False, pretrained=True)
    assert pretrained["train"]["epochs"] == 3.0
    assert "model" not in pretrained


def test_what_only_suits_the_teachers_model_is_not_inherited(data: dict[str, str], tmp_path: Path) -> None:
    values = {"task": {"pooling": "first"}, "model": {"name": "bert", "width": 8, "heads": 2}}
    config = configure("classify", data["classify"], None, values)
    run = seriatim.api.Run.create(tmp_path / "bert", config.model_dump(mode="json"))
    assert student_configs(run, "lstm", None, {})[DISTILLED].task.pooling == "mean"


def test_teacher_and_both_students_are_measured(
    data: dict[str, str], teachers: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["distill", str(teachers["classify"].path), "--model", "gru", "--set", "model.width=4"]
    command += ["--out", str(tmp_path / "d"), "--quiet"]
    assert cli([*command, "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)["table"]
    assert [row["label"] for row in rows] == ["teacher", "student alone", "student distilled"]
    teacher, alone, distilled = rows
    assert teacher["metrics"] == pytest.approx(teachers["classify"].summary["metrics"]["test"])
    assert alone["parameters"] == distilled["parameters"] < teacher["parameters"]
    weights = tmp_path / "d/distilled/model.safetensors"
    assert distilled["bytes"] == weights.stat().st_size
    assert all(row["speed"][size] > 0 for row in rows for size in ("32", "1"))
    values = {"model": {"width": 4}, "train": TRAIN, "seed": 5} | TASKS["classify"][1]
    by_hand = seriatim.train("classify", data["classify"], "gru", settings=values, out=tmp_path / "alone", report=False)
    assert alone["metrics"] == by_hand.summary["metrics"]["test"], "trained as ever"
    before = weights.stat().st_mtime_ns
    assert cli(command) == 0
    assert weights.stat().st_mtime_ns == before, "nothing is trained twice"
    printed = capsys.readouterr().out
    assert "student distilled" in printed
    assert "batches of 1" in printed
    assert "student distilled" in (tmp_path / "d/report.html").read_text(encoding="utf-8")
    assert cli([*command, "--distillation-weight", "0.9"]) == 2, "another distillation is not mistaken for this one"
    assert "compare.differs" in capsys.readouterr().err


def test_a_distillation_that_was_interrupted_continues(teachers: dict[str, Any], tmp_path: Path) -> None:
    common: dict[str, Any] = {"model": "gru", "settings": {"model": {"width": 4}, "train": {"evaluate_steps": 2}}}
    whole = seriatim.distill(teachers["tag"].path, out=tmp_path / "whole", **common)

    def interrupt(event: Event) -> None:
        if isinstance(event, Stepped) and event.step == 5:
            raise KeyboardInterrupt

    callbacks = lambda label: [interrupt] if label == ALONE else []  # noqa: E731
    with pytest.raises(KeyboardInterrupt):
        seriatim.distill(teachers["tag"].path, out=tmp_path / "cut", callbacks=callbacks, **common)
    resumed = seriatim.distill(teachers["tag"].path, out=tmp_path / "cut", **common)
    assert [row["metrics"] for row in resumed.table()] == [row["metrics"] for row in whole.table()]


@pytest.mark.parametrize("task", ["regress", "language", "translate"])
def test_every_task_can_be_measured(task: str, teachers: dict[str, Any], tmp_path: Path) -> None:
    settings = {"model": {"width": 4}}
    result = seriatim.distill(teachers[task].path, TASKS[task][0], out=tmp_path / "d", settings=settings, steps=2)
    assert [row["metrics"].keys() for row in result.table()] == [result.table()[0]["metrics"].keys()] * 3
    if task == "language":
        expected = Tokenizer.load(teachers[task].path).to_json()
        assert [Tokenizer.load(run.path).to_json() for run in result.runs.values()] == [expected] * 3


def test_a_gradient_free_student_or_teacher(data: dict[str, str], teachers: dict[str, Any], tmp_path: Path) -> None:
    short = {"out": tmp_path / "s", "report": False}
    with pytest.raises(SeriatimError) as caught:
        seriatim.train("language", data["language"], "ngram", teacher=str(teachers["language"].path), **short)
    assert caught.value.code == "distill.student"
    ngram = seriatim.train("language", data["language"], "ngram", out=tmp_path / "ngram", report=False)
    with pytest.raises(SeriatimError) as caught:
        seriatim.train("language", data["language"], "gru", steps=1, teacher=str(ngram.path), **short)
    assert caught.value.code == "distill.teacher"
    assert not (tmp_path / "s").exists()


def test_models_take_turns_and_have_the_median_of_their_rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, calls = [0.0], []
    pace = {"slow": [9.0, 2.0, 8.0, 2.0, 1.0], "quick": [9.0, 0.5, 0.5, 7.0, 0.0625]}  # the last for all that follow

    def function_of(label: str) -> Any:
        def predict(first: int, count: int) -> None:
            calls.append((label, first, count))
            clock[0] += pace[label][0] if len(pace[label]) == 1 else pace[label].pop(0)

        return predict

    monkeypatch.setattr(module, "MAX_ROUNDS", 3)
    monkeypatch.setattr(module, "TURN_SECONDS", 0.25)
    monkeypatch.setattr(module.time, "perf_counter", lambda: clock[0])
    speed = measure_speed({label: function_of(label) for label in pace})
    assert calls[:4] == [("slow", 0, 32), ("quick", 0, 32)] * 2
    assert calls[8:13] == [("slow", 0, 1), *(("quick", first, 1) for first in range(4))], "a turn lasts a while"
    assert speed == {"slow": {32: 16.0, 1: 1.0}, "quick": {32: 64.0, 1: 16.0}}, "without the first round"
