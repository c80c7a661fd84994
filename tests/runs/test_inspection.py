"""Runs in the inspector: folders, comparisons, their own data and gradients, and the command line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import seriatim
from seriatim.cli import run as cli
from seriatim.core.errors import SeriatimError
from seriatim.runs.inspection import open_inspector


@pytest.fixture(scope="module")
def runs(book: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs")
    for name, more in {"gpt": {"heads": 2, "layers": 2}, "rnn": {}}.items():
        settings = {"model": {"name": name, "width": 8, **more}, "task": {"context_length": 16}}
        settings |= {"train": {"steps": 4, "batch_size": 2}}
        seriatim.train("language", str(book), settings=settings, out=folder / name, report=False)
    return folder


def test_runs_folders_of_runs_and_models(runs: Path) -> None:
    assert [subject.label for subject in open_inspector(runs / "gpt").subjects] == ["gpt"]
    assert {subject.label for subject in open_inspector(runs).subjects} == {"gpt", "rnn"}
    mixed = open_inspector(str(runs / "gpt"), "lstm", seriatim.load(runs / "rnn"))
    assert [subject.trained for subject in mixed.subjects] == [True, False, True]
    for name, code in (("lsmt", "inspect.subject"), (str(runs / "none"), "run.missing")):
        with pytest.raises(SeriatimError) as caught:
            open_inspector(name)
        assert caught.value.code == code


def test_a_run_has_views_of_texts_and_of_its_own_data(runs: Path) -> None:
    run = seriatim.load(runs / "gpt")
    weights = run.inspect.attention("the old cat").arrays["attention"].values
    np.testing.assert_allclose(weights.sum(axis=-1), 1, atol=1e-6)
    own = run.inspect.attention(example=1)
    assert list(own.notes) == ["sequence 1 of the validation split"]
    surprise = run.inspect.surprise("the old cat").arrays["surprise"].values.sum()
    assert surprise * np.log(2) == pytest.approx(-run.score("the old cat")["log_probability"])


def test_gradients_of_all_runs_with_their_clipping(runs: Path) -> None:
    result = open_inspector(runs).gradients(context_length=8)
    names = list(result.arrays["gradient"].axes["network"])
    assert sorted(names) == ["gpt", "gpt, before training", "rnn", "rnn, before training"]
    events = seriatim.load(runs / "rnn").history("stepped")
    assert result.arrays["norm, rnn"].values.tolist() == [event["grad_norm"] for event in events]
    assert [chart.title for chart in result.charts][-1] == "Clipping during training"


def test_on_the_command_line(runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def command(*arguments: Any) -> tuple[int, str, str]:
        code = cli(["inspect", *map(str, arguments)])
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    code, out, _ = command(runs / "gpt")
    assert code == 0
    assert {line.split()[0] for line in out.splitlines()} >= {"--attention", "--surprise", "--lens"}
    assert "--gates" not in out
    code, out, _ = command(runs / "gpt", "--attention", "the old cat", "--layer", 1, "--json")
    assert json.loads(out)["arrays"]["attention"]["axes"]["layer"] == ["layer 1"]
    code, out, _ = command(runs / "gpt", "--attention", "the old cat", "--out", tmp_path / "attention.svg", "--quiet")
    assert (code, out) == (0, "")
    assert "Attention: gpt" in (tmp_path / "attention.svg").read_text(encoding="utf-8")
    code, out, _ = command("rnn, mlp,", "--gradients", "--context-length", 4)
    assert [line.split()[0] for line in out.splitlines()[4:6]] == ["rnn", "mlp"]
    for arguments, error in (
        ((",", "--gradients"), "inspect.subject"),
        ((runs / "gpt", "--gates", "a"), "inspect.unavailable"),
        ((runs / "gpt", "--attention", "--surprise"), "inspect.view"),
        ((runs / "gpt", "some text"), "inspect.view"),
        ((runs / "gpt", "--attention", "a", "--unit", 3), "inspect.option"),
    ):
        code, _, err = command(*arguments)
        assert code == 2
        assert error in err


def test_a_note_says_why_a_report_does_not_show_the_inside(
    book: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    small = ["--model", "gru", "--set", "model.width=8", "--batch-size", "2", "--context-length", "8", "--steps", "4"]
    for options, noted in (([], True), (["--no-report"], False)):
        assert cli(["train", "language", "--data", str(book), *small, "-o", str(tmp_path / f"{noted}"), *options]) == 0
        assert ("the inside of models trained for 100 steps or more" in capsys.readouterr().err) == noted


def test_reports_show_the_inside_and_a_fault_in_it_costs_nothing(
    book: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def train(name: str, steps: int) -> Path:
        settings = {"model": {"name": "gru", "width": 8}, "task": {"context_length": 8}}
        settings |= {"train": {"steps": steps, "batch_size": 2}}
        return seriatim.train("language", str(book), settings=settings, out=tmp_path / name).path

    kinds = {view["kind"] for view in json.loads((train("long", 100) / "inspection.json").read_text(encoding="utf-8"))}
    assert {"token_strip", "lines"} <= kinds
    assert not (train("short", 4) / "inspection.json").exists()
    monkeypatch.setattr("seriatim.runs.inspection.overview", lambda predictor, task: 1 / 0)
    assert (train("broken", 100) / "report.html").exists()
