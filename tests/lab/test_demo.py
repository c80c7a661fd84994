"""The demo: three comparisons on built-in data and one page of them, whole or interrupted."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from seriatim import cli
from seriatim.cli import progress
from seriatim.core.run_folder import RunFolder
from seriatim.data.catalogue.generated import SETS
from seriatim.lab import demo
from seriatim.training.events import Event, Stepped

HEADINGS = [f"{number}. {problem.title}" for number, problem in enumerate(demo.PROBLEMS.values(), 1)]


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, book: Path) -> None:
    """Less data and fewer models; the settings of the demo stay."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("seriatim.report.write_run_report", lambda run: None)  # tested elsewhere
    monkeypatch.setattr("seriatim.report.write_comparison_report", lambda *arguments: None)
    np.savez("sums.npz", sequence=np.random.default_rng(0).random((40, 6, 2), np.float32), target=np.arange(40.0))
    Path("text.txt").write_text(book.read_text(encoding="utf-8").replace("the old", "The old"), encoding="utf-8")
    numbers = ("one\tun", "two\tdeux", "three\ttrois", "four\tquatre", "five\tcinq")
    Path("pairs.tsv").write_text("".join(f"{line} {n}\n" for n in range(8) for line in numbers), encoding="utf-8")
    chosen = {"language": ("text.txt", ("ngram", "gru")), "memory": ("sums.npz", ("mlp", "gru"))}
    chosen["translation"] = ("pairs.tsv", ("bahdanau",))
    problems = {
        name: replace(problem, data=chosen[name][0], models={model: problem.models[model] for model in chosen[name][1]})
        for name, problem in demo.PROBLEMS.items()
    }
    monkeypatch.setattr(demo, "PROBLEMS", problems)


def headings(page: Path) -> list[str]:
    return [text.replace("&#39;", "'") for text in re.findall(r"<h2>(.*?)</h2>", page.read_text(encoding="utf-8"))]


def test_three_parts_stand_on_one_page(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["demo", "--minutes", "0.005", "--out", "shown", "--quiet", "--json"]) == 0
    printed: dict[str, Any] = json.loads(capsys.readouterr().out)
    assert {name: [row["label"] for row in part["table"]] for name, part in printed["parts"].items()} == {
        "language": ["ngram", "gru"],
        "memory": ["mlp", "gru"],
        "translation": ["bahdanau"],
    }
    text = Path("shown/report.html").read_text(encoding="utf-8")
    shown = headings(Path("shown/report.html"))
    assert [title for title in shown if title in HEADINGS] == HEADINGS
    assert {"Try next", "What to notice"} <= set(shown)
    assert text.count("<figure>") >= 3  # curves, bars, R² over time
    assert len(printed["try"]) == 3
    for command in printed["try"]:
        assert command.split('"')[0] in text
    for command in printed["try"][:2]:
        assert cli.run([*shlex.split(command)[1:], "--max-tokens", "4"]) == 0


def test_minutes_are_shared_in_proportion() -> None:
    demo.demo(0.005, out="shared")
    budgets = {
        name: RunFolder(f"shared/{name}/{model}").summary["time_budget"]
        for name, model in (("language", "gru"), ("memory", "mlp"), ("translation", "bahdanau"))
    }
    planned = {name: problem.seconds for name, problem in demo.PROBLEMS.items()}
    assert {name: budget / (60 * 0.005) for name, budget in budgets.items()} == pytest.approx(
        {name: seconds / (60 * demo.MINUTES) for name, seconds in planned.items()}
    )


def test_ctrl_c_ends_it_in_good_order(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def interrupt(self: progress.TrainingProgress, event: Event) -> None:
        if isinstance(event, Stepped) and self.label == "mlp":
            os.kill(os.getpid(), signal.SIGINT)

    monkeypatch.setattr(progress.TrainingProgress, "__call__", interrupt)
    assert cli.run(["demo", "--minutes", "0.005", "--out", "cut"]) == 130
    assert "seriatim demo --out cut" in capsys.readouterr().err
    shown = headings(Path("cut/report.html"))
    assert [title for title in shown if title in HEADINGS] == HEADINGS[:2]
    assert "before a model was trained" in Path("cut/report.html").read_text(encoding="utf-8")


def test_the_data_is_built_in(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    for problem in demo.PROBLEMS.values():
        assert SETS[problem.data.partition(":")[0]].task == problem.task


def test_the_page_says_that_the_machine_was_busy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "getloadavg", lambda: (0.5, 0.5, 0.5))
    demo.demo(0.002, out="idle")
    monkeypatch.setattr(os, "getloadavg", lambda: (99.0, 0.5, 0.5))
    demo.demo(0.002, out="busy")
    busy, idle = (Path(f"{name}/report.html").read_text(encoding="utf-8") for name in ("busy", "idle"))
    assert "Other programs kept the machine busy (load 99.0 on" in busy
    assert "Other programs" not in idle
