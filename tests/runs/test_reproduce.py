"""A published table in several sessions: finished models stay, the table grows, other minutes are another training."""

from __future__ import annotations

import dataclasses
import itertools
import json
from pathlib import Path
from typing import Any

import pytest

import seriatim
from seriatim.cli import run as cli
from seriatim.core.config import merge
from seriatim.core.errors import SeriatimError
from seriatim.report.charts import BinnedMetric, Lines
from seriatim.reproduce import PublishedRow, PublishedTable, length_charts, reproduce, tables, training_chart
from seriatim.runs.compare import Comparison
from seriatim.runs.configure import configure, expand_names


@pytest.fixture(autouse=True)
def _without_reports_of_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("seriatim.report.write_run_report", lambda run: None)
    monkeypatch.setattr("seriatim.report.write_comparison_report", lambda *rest: None)


def add_table(monkeypatch: pytest.MonkeyPatch, name: str, *rows: PublishedRow) -> PublishedTable:
    table = PublishedTable("A small table", "nobody, 2026", {row.name: row for row in rows}, ("A remark.",))
    monkeypatch.setitem(tables(), name, table)
    return table


def model(name: str, lr: float | None = None, **settings: Any) -> dict[str, Any]:
    train = {"steps": 4} | ({} if lr is None else {"optimizer": {"lr": lr}})
    return {"model": {"name": name, **settings}, "train": train}


ADDING = PublishedRow(
    "adding",
    "adding problem, T=10",
    "regress",
    "mse",
    "adding:10",
    "2k",
    {"gru": model("gru", 1e-2) | {"published": 5.3e-5}, "a tcn": model("tcn", 4e-3, levels=2)},
    {"task": {"pooling": "last"}, "train": {"batch_size": 4}},
)
ABSENT = PublishedRow("words", "a text that is not here", "language", "perplexity", remark="it may not be copied")


def test_row_by_row(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    add_table(monkeypatch, "small", ADDING, ABSENT)
    first = reproduce("small", ["adding"], ["gru"], out=tmp_path)
    assert [result.label for result in first.results] == ["gru"]
    weights = (tmp_path / "adding" / "gru" / "model.safetensors").read_bytes()
    second = reproduce("small", out=tmp_path)
    assert [result.label for result in second.results] == ["gru", "a tcn"]
    assert (tmp_path / "adding" / "gru" / "model.safetensors").read_bytes() == weights
    assert second.missing == {"words": "it may not be copied"}
    by_model = {record["model"]: record for record in json.loads((tmp_path / "table.json").read_text("utf-8"))}
    assert by_model["gru"]["published"] == 5.3e-5
    assert by_model["gru"]["reached"] == second.results[0].run.summary["metrics"]["test"]["mse"]
    assert by_model["gru"]["parameters"] <= 2_000
    assert by_model["a tcn"]["settings"]["model"]["levels"] == 2
    text = (tmp_path / "table.md").read_text(encoding="utf-8")
    assert "| adding | gru | 5.3" in text
    assert "words: not trained; it may not be copied" in text
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert "data:image/svg+xml" in page
    assert "A remark." in page


def test_minutes_replace_steps(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    add_table(monkeypatch, "small", ADDING)
    result = reproduce("small", ["adding"], ["gru"], minutes=0.003, out=tmp_path)
    train = result.results[0].run.settings["train"]
    assert (train["steps"], train["minutes"]) == (None, 0.003)


def test_names_that_are_not_there(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    add_table(monkeypatch, "small", ADDING)
    for arguments, code in (
        (["bai2019"], "reproduce.unknown"),
        (["small", "--rows", "adding,ading"], "reproduce.row"),
        (["small", "--rows", "adding", "--models", "gpt"], "reproduce.model"),
    ):
        assert cli(["reproduce", *arguments, "--out", str(tmp_path)]) == 2
        assert code in capsys.readouterr().err


def test_quality_by_length(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Without published figures there is no column for them; with a length there is a line for each model."""
    short = list(itertools.product("abc", repeat=4))
    words = [*short, *(("a", *word) for word in short)]
    pairs = [f"{' '.join(word)}\t{' '.join(reversed(word))}\n" for word in words]
    for name, lines in {"train": pairs[0::3], "validation": pairs[1::3], "test": pairs[2::3]}.items():
        (tmp_path / f"{name}.tsv").write_text("".join(lines), encoding="utf-8")
    files = {name: str(tmp_path / f"{name}.tsv") for name in ("validation", "test")}
    published = tables()["length"].rows["reverse"]
    row = dataclasses.replace(
        published,
        data=str(tmp_path / "train.tsv"),
        params="8k",
        models={name: model(name, layers=1) for name in ("seq2seq", "bahdanau")},
        settings=merge(published.settings, {"data": files}),
    )
    add_table(monkeypatch, "letters", row)
    assert cli(["reproduce", "letters", "--out", str(tmp_path), "-q"]) == 0
    lines = (tmp_path / "table.md").read_text(encoding="utf-8").splitlines()
    assert "| row | model | reached | parameters | steps | seconds | seed |" in lines
    result = reproduce("letters", out=tmp_path)
    (chart,) = length_charts(result.results)
    assert isinstance(chart, BinnedMetric)
    assert list(chart.bins) == ["4", "5"]
    for reproduced in result.results:
        shares = chart.series[reproduced.label]
        together = sum(s * n for s, n in zip(shares, chart.counts, strict=True)) / sum(chart.counts)
        assert together == pytest.approx(reproduced.value, abs=1e-4), "the line is of the predictions in the table"
    assert "By length" in (tmp_path / "report.html").read_text(encoding="utf-8")


def test_the_loss_while_training(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A row about how models learn has the loss on the training split, and a chart of it for all of them."""
    add_table(monkeypatch, "learning", dataclasses.replace(ADDING, training_curves=True))
    monkeypatch.setattr("seriatim.reproduce.CURVE_POINTS", 2)
    result = reproduce("learning", out=tmp_path)
    chart = training_chart(result.results)
    assert isinstance(chart, Lines)
    for reproduced, line in zip(result.results, chart.series, strict=True):
        losses = [event["loss"] for event in reproduced.run.history("stepped")]
        assert len(losses) == 4
        assert reproduced.cells(True)["training loss"] == f"{losses[-1]:.3f}", "the last tenth of four steps"
        assert list(line.y) == pytest.approx([sum(losses[:2]) / 2, sum(losses[2:]) / 2], rel=1e-3)
    assert "While training" in (tmp_path / "report.html").read_text(encoding="utf-8")
    assert "| reached | training loss |" in (tmp_path / "table.md").read_text(encoding="utf-8")


def test_a_signal_ends_a_table_and_is_the_exit_code(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Later rows are not started; an interrupted run has no metrics."""

    class StoppedRun:
        summary: dict[str, Any] = {"reason": "SIGINT", "metrics": {}}

    started: list[str] = []

    def compare(task: str, data: str, *rest: Any, **options: Any) -> Comparison:
        started.append(data)
        return Comparison(tmp_path, [StoppedRun()], {})  # type: ignore[list-item]

    monkeypatch.setattr("seriatim.reproduce.compare", compare)
    assert reproduce("bai2018", ["adding", "copy"], out=tmp_path).signal == "SIGINT"
    assert started == ["adding:600"]
    assert cli(["reproduce", "bai2018", "--rows", "adding", "--out", str(tmp_path), "-q"]) == 130


def test_a_row_whose_data_cannot_be_fetched_is_left_out(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def compare(*rest: Any, **options: Any) -> Comparison:
        raise SeriatimError("data.offline", "no network", "try again", exit_code=1)

    monkeypatch.setattr("seriatim.reproduce.compare", compare)
    assert set(reproduce("bai2018", ["smnist", "jsb"], out=tmp_path).missing) == {"smnist", "jsb"}


@pytest.mark.slow
def test_letters_are_reversed_within_seconds(tmp_path: Path) -> None:
    """What takes minutes for 30 letters, for five."""
    settings = merge(expand_names(tables()["length"].rows["reverse"].settings), {"model": {"width": 64}})
    run = seriatim.train(
        "translate", "reverse-pairs:5", "bahdanau", settings=settings, out=tmp_path / "run", steps=250, lr=5e-3
    )
    assert run.summary["metrics"]["test"]["exact_match"] >= 0.95
    assert run.translate("w o r d s") == "s d r o w"


def test_every_row_is_a_configuration() -> None:
    """The settings of all tables are settings that exist."""
    for table in tables().values():
        for row in table.rows.values():
            for settings in row.models.values():
                own = {key: value for key, value in settings.items() if key != "published"}
                configure(row.task, row.data, None, merge(expand_names(row.settings), expand_names(own)))
