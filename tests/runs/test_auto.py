"""`--model auto`: rounds, the choice, the folder of the winner with its comparison, and interruptions."""

from __future__ import annotations

import json
import os
import signal
import weakref
from pathlib import Path
from typing import Any

import pytest
import torch

import seriatim
from seriatim import cli
from seriatim.core.errors import SeriatimError
from seriatim.runs.auto import RESULT, describe_ties, plan_rounds, rank_key
from seriatim.runs.configure import configure
from seriatim.runs.session import Session
from seriatim.tasks import load as load_task
from seriatim.tasks.reading import prepare, same_data
from seriatim.training.events import Event, Started, Stepped
from seriatim.training.objective import TaskObjective

SMALL: dict[str, Any] = {"params": "4k", "batch_size": 2, "context_length": 12, "minutes": 0.01}


@pytest.fixture(autouse=True)
def _few_models(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reports of runs take most of the time, and are tested elsewhere."""
    monkeypatch.setattr("seriatim.report.write_run_report", lambda run: None)
    monkeypatch.setattr("seriatim.runs.session.MIN_INSPECTED_STEPS", 10**9)
    monkeypatch.setattr(load_task("language"), "compared_models", ("ngram", "mlp", "gru", "rnn"))


@pytest.mark.parametrize("models", range(1, 8))
def test_rounds_take_the_whole_time_and_halve_the_models(models: int) -> None:
    winner, rounds = plan_rounds(models, 600.0)
    counts, ends = [count for count, _ in rounds], [end for _, end in rounds]
    spent, before = 0.0, 0.0
    for count, end in rounds:
        spent, before = spent + count * (end - before), end
    assert spent + winner - before == pytest.approx(600.0)
    assert ends == sorted(ends)
    assert counts == {1: [], 2: [2], 3: [3, 2], 4: [4, 2], 5: [5, 3, 2], 6: [6, 3, 2], 7: [7, 4, 2]}[models]
    if rounds:
        assert ends[-1] == pytest.approx(winner / 2)
        assert ends[0] == pytest.approx(winner / (2 if len(ends) == 1 else 4))
        assert winner > 600.0 / models, "more than an equal share"


def test_the_better_value_is_first_and_no_number_last() -> None:
    rows = {"a": (0.5, 1.0), "b": (0.5, 0.9), "c": (0.4, 2.0), "d": (float("nan"), 0.1)}
    lower = {name: {"val_error": value, "val_loss": loss} for name, (value, loss) in rows.items()}
    assert sorted(lower, key=lambda name: rank_key(lower[name], "error", "val_")) == ["c", "b", "a", "d"]
    higher = {name: {"accuracy": value, "loss": loss} for name, (value, loss) in rows.items()}
    assert sorted(higher, key=lambda name: rank_key(higher[name], "accuracy")) == ["b", "a", "c", "d"]


def test_models_with_the_same_processor_share_their_data(book: Path) -> None:
    data = {}
    for name, tokenizer in (("gru", "char"), ("lstm", "char"), ("rnn", "word")):
        config = configure("language", str(book), name, {"task": {"tokenizer": {"kind": tokenizer}}}, context_length=9)
        data[name] = prepare(load_task("language"), config.task_config())
    assert same_data(*data["lstm"], *data["gru"])
    own, shared = (TaskObjective.of(data["lstm"][0], data[name][1]).batch(3, 0, 2, 2) for name in ("lstm", "gru"))
    assert torch.equal(own.inputs, shared.inputs)
    assert not same_data(*data["rnn"], *data["gru"])


def test_the_data_of_models_that_left_is_not_kept(book: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    prepare_session, tasks, kept = Session.prepare, {}, []

    def prepare_and_watch(session: Session, *arguments: Any, **options: Any) -> Any:
        task = prepare_session(session, *arguments, **options)
        tasks[session.config.model.name] = weakref.ref(task)
        return task

    def watch(event: Event) -> None:
        if isinstance(event, Started):
            kept.append({name for name, task in tasks.items() if task() is not None})

    monkeypatch.setattr(Session, "prepare", prepare_and_watch)
    seriatim.train("language", book, "auto", out=tmp_path, callbacks=[watch], report=False, **SMALL)
    rounds = json.loads((tmp_path / "candidates" / RESULT).read_text(encoding="utf-8"))["rounds"]
    assert tasks.keys() == {"lstm", "ngram", "mlp", "gru", "rnn"}
    assert kept[-1] == {"lstm", *rounds[-1]["kept"]}, "that of the default model chose the others"


def test_a_tie_is_called_one(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [{"label": "gru", "p": None}, {"label": "lstm", "p": 0.4}, {"label": "rnn", "p": 0.01}]
    monkeypatch.setattr("seriatim.report.comparison_rows", lambda runs: rows)
    assert describe_ties("gru", []) == "a tie: the difference to lstm (p = 0.40) may be chance; "
    rows[1]["p"] = 0.02
    assert describe_ties("gru", []) == ""
    rows[1]["p"] = rows[2]["p"] = None
    assert "one seed cannot tell" in describe_ties("gru", [])


def test_the_best_model_is_an_ordinary_run_with_its_comparison(book: Path, tmp_path: Path) -> None:
    notes: list[str] = []
    run = seriatim.train("language", book, "auto", out=tmp_path / "run", notify=notes.append, **SMALL)
    assert run.path == tmp_path / "run"
    assert notes[-2].startswith(f"model: {run.summary['model']}, the best of 4 after 2 rounds: validation loss ")
    assert notes[-2] in run.notes
    assert notes[-1] == f"comparison: {tmp_path / 'run/candidates/report.html'}"
    assert len(notes) == len(set(notes)), "what is true of all models is said once"
    result = json.loads((tmp_path / "run/candidates" / RESULT).read_text(encoding="utf-8"))
    assert [(len(part["order"]), len(part["kept"])) for part in result["rounds"]] == [(3, 2), (2, 1)]
    others = [seriatim.load(tmp_path / "run/candidates" / name) for name in result["runs"] if name != result["winner"]]
    runs = [run, *others]
    assert {one.summary["model"] for one in runs} == {"ngram", "mlp", "gru", "rnn"}
    losses = [one.summary["metrics"]["validation"]["loss"] for one in runs]
    assert losses[0] == min(losses)
    longest_step = 0.5  # seconds: a round ends with the step that uses it up
    assert sum(one.summary["seconds"] for one in runs) < 60 * SMALL["minutes"] + 5 * longest_step
    reasons = {one.summary["model"]: one.summary["reason"] for one in runs}
    assert reasons["ngram"] == "finished"
    assert sorted(reason for model, reason in reasons.items() if model != "ngram") == ["eliminated"] * 2 + ["minutes"]
    page = (tmp_path / "run/candidates/report.html").read_text(encoding="utf-8")
    assert "left the search" in page
    table = json.loads((tmp_path / "run/candidates/comparison.json").read_text(encoding="utf-8"))["table"]
    assert {row["model"] for row in table} == {"ngram", "mlp", "gru", "rnn"}
    # every command opens it
    assert run.generate("the ", max_tokens=3)
    assert seriatim.evaluate(run.path)["loss"] == pytest.approx(run.summary["metrics"]["test"]["loss"])
    assert all("candidates" not in text for line in run.summary["usage"] for text in line.values())
    assert "candidates" not in (run.path / "README.md").read_text(encoding="utf-8")
    # and the same command again trains nothing
    again = seriatim.train("language", book, "auto", out=run.path, **SMALL)
    assert again.summary == run.summary
    for other in ({"minutes": 1.0}, {"seed": 3}):
        with pytest.raises(SeriatimError) as caught:
            seriatim.train("language", book, "auto", out=run.path, **(SMALL | other))
        assert caught.value.code == "compare.differs"


def test_a_search_that_is_interrupted_continues(
    book: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    steps = 0

    def interrupt(event: Event) -> None:
        nonlocal steps
        steps += isinstance(event, Stepped)
        if steps == 5:
            os.kill(os.getpid(), signal.SIGINT)
            steps += 1

    common: dict[str, Any] = {"settings": {"model": "auto"}, "out": tmp_path / "run", "report": False, **SMALL}
    stopped = seriatim.train("language", book, callbacks=[interrupt], **common)
    assert stopped.summary["reason"] == "SIGINT"
    assert stopped.path.parent == tmp_path / "run/candidates"
    with monkeypatch.context() as patch:
        patch.setattr("seriatim.runs.auto.train_best", lambda *arguments, **options: stopped)
        assert cli.run(["train", "language", "--data", str(book), "--model", "auto", "--minutes", "1"]) == 130
    assert f"repeat the command with --out {tmp_path / 'run'} to continue" in " ".join(capsys.readouterr().err.split())
    done = len(stopped.history("stepped"))
    assert not (tmp_path / "run/config.yaml").exists()
    with pytest.raises(SeriatimError, match="other settings"):
        seriatim.train("language", book, **(common | {"minutes": 1.0}))
    run = seriatim.train("language", book, **common)
    assert run.path == tmp_path / "run"
    continued = next(
        folder for folder in (run.path, stopped.path) if (folder / "config.yaml").exists()
        and seriatim.load(folder).config.model.name == stopped.config.model.name
    )  # fmt: skip
    lines = [line["step"] for line in seriatim.load(continued).history("stepped")]
    assert lines == sorted(set(lines))
    assert len(lines) > done > 0
    # killed while the winner was moved
    result = json.loads((run.path / "candidates" / RESULT).read_text(encoding="utf-8"))
    moved = run.path / "candidates" / result["winner"]
    moved.mkdir()
    for name in ("config.yaml", "metrics.jsonl"):
        (run.path / name).rename(moved / name)
    again = seriatim.train("language", book, **common)
    assert again.summary["metrics"] == run.summary["metrics"]
    assert not moved.exists()


def test_a_model_that_fails_leaves_the_search(book: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(load_task("language"), "compared_models", ("mlp", "seq2seq", "gru"))
    notes: list[str] = []
    run = seriatim.train("language", book, "auto", out=tmp_path / "run", notify=notes.append, report=False, **SMALL)
    assert any(note.startswith("seq2seq failed: ") for note in notes)
    result = json.loads((run.path / "candidates" / RESULT).read_text(encoding="utf-8"))
    assert list(result["failed"]) == ["seq2seq"]
    assert "seq2seq" not in result["runs"]


def test_one_model_is_trained_without_a_search(book: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(load_task("language"), "compared_models", ("gru",))
    notes: list[str] = []
    run = seriatim.train("language", book, "auto", out=tmp_path / "run", notify=notes.append, report=False, **SMALL)
    assert "model: gru, the only one for this task and data" in notes
    assert run.summary["model"] == "gru"
    assert not (run.path / "candidates").exists()


def test_what_auto_cannot_do_is_said(book: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["train", "language", "--data", str(book), "--model", "auto", "--print-config"]) == 2
    assert "auto.option" in capsys.readouterr().err
    for options in ({}, {"steps": 10}, {"steps": 10, "minutes": 1}, {"epochs": 1}):
        with pytest.raises(SeriatimError, match="--minutes 10") as caught:
            seriatim.train("language", book, "auto", out=tmp_path / "run", **options)
        assert caught.value.code == "auto.minutes"
    with pytest.raises(SeriatimError, match="--teacher"):
        seriatim.train("language", book, "auto", out=tmp_path / "run", minutes=1, teacher=str(tmp_path))
    assert not (tmp_path / "run").exists()
    other = seriatim.train("language", book, "ngram", out=tmp_path / "other", report=False)
    with pytest.raises(SeriatimError, match="holds a run already"):
        seriatim.train("language", book, "auto", out=other.path, **SMALL)
