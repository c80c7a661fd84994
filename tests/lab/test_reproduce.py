"""A published table in several sessions: finished models stay, the table grows, other minutes are another training."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import json
import math
import shutil
from pathlib import Path
from typing import Any

import pytest

import seriatim
from seriatim.cli import run as cli
from seriatim.core.config import merge
from seriatim.core.errors import SeriatimError
from seriatim.core.run_summary import RunSummary
from seriatim.lab.reproduce import (
    NO_SETTINGS,
    PublishedRow,
    PublishedTable,
    Reproduced,
    length_charts,
    reproduce,
    tables,
    training_chart,
)
from seriatim.report.charts import BinnedMetric, Lines
from seriatim.runs.compare import Comparison
from seriatim.runs.configure import configure, expand_names
from seriatim.training.events import Event, Stepped


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
ABSENT = PublishedRow(
    "words",
    "a text that may not be copied",
    "language",
    "perplexity",
    files=[["*/a.train.txt", "a.valid.txt"]],
    models={"gru": model("gru") | {"published": 78.93}},
)


def test_row_by_row(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    add_table(monkeypatch, "small", ADDING, ABSENT)
    first = reproduce("small", ["adding"], ["gru"], out=tmp_path)
    assert [result.label for result in first.results] == ["gru"]
    weights = (tmp_path / "adding" / "gru" / "model.safetensors").read_bytes()
    (tmp_path / "data").mkdir()
    second = reproduce("small", out=tmp_path, data_dir=str(tmp_path / "data"))
    assert [result.label for result in second.results] == ["gru", "a tcn"]
    assert (tmp_path / "adding" / "gru" / "model.safetensors").read_bytes() == weights
    assert second.missing == {"words": f"no a.train.txt with a.valid.txt beside it is in {tmp_path / 'data'}"}
    by_model = {record["model"]: record for record in json.loads((tmp_path / "table.json").read_text("utf-8"))}
    assert by_model["gru"]["published"] == 5.3e-5
    assert by_model["gru"]["reached"] == second.results[0].run.summary["metrics"]["test"]["mse"]
    assert by_model["gru"]["parameters"] <= 2_000
    assert by_model["a tcn"]["settings"]["model"]["levels"] == 2
    text = (tmp_path / "table.md").read_text(encoding="utf-8")
    assert "| adding | gru | 5.3" in text
    assert "| words | gru | 78.93 | – | – | – | – | – | – | not trained: no a.train.txt with a.valid.txt" in text
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
        (["small", "--data-dir", str(tmp_path / "nowhere")], "data.missing"),
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
    monkeypatch.setattr("seriatim.lab.reproduce.CURVE_POINTS", 2)
    result = reproduce("learning", out=tmp_path)
    chart = training_chart(result.results)
    assert isinstance(chart, Lines)
    for reproduced, line in zip(result.results, chart.series, strict=True):
        losses = [event["loss"] for event in reproduced.run.history("stepped")]
        assert len(losses) == 4
        assert reproduced.cells(True)["training loss"] == f"{losses[-1]:.3f}", "the last tenth of four steps"
        assert list(line.y) == pytest.approx([sum(losses[:2]) / 2, sum(losses[2:]) / 2], rel=1e-3)
    assert "While training" in (tmp_path / "report.html").read_text(encoding="utf-8")
    assert "| at or better | training loss |" in (tmp_path / "table.md").read_text(encoding="utf-8")


def test_a_signal_ends_a_table_and_is_the_exit_code(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Later rows are not started."""
    started: list[str] = []

    def compare(task: str, data: str, *rest: Any, **options: Any) -> Comparison:
        started.append(data)
        return Comparison(tmp_path, [], {}, signal="SIGINT")

    monkeypatch.setattr("seriatim.lab.reproduce.compare", compare)
    assert reproduce("bai2018", ["adding", "copy"], out=tmp_path).signal == "SIGINT"
    assert started == ["adding:600"]
    assert cli(["reproduce", "bai2018", "--rows", "adding", "--out", str(tmp_path), "-q"]) == 130


def test_a_row_whose_data_cannot_be_fetched_is_left_out(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def compare(*rest: Any, **options: Any) -> Comparison:
        raise SeriatimError("data.offline", "no network", "try again", exit_code=1)

    monkeypatch.setattr("seriatim.lab.reproduce.compare", compare)
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
                own = {key: value for key, value in settings.items() if key not in NO_SETTINGS}
                configure(row.task, row.data or "a.txt", None, merge(expand_names(row.settings), expand_names(own)))


def test_all_that_bai_et_al_published_is_printed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Eleven rows, with the figure of each model, whether it is trained or not."""
    (tmp_path / "data").mkdir()
    arguments = ["--rows", "ptb-words,lambada", "--data-dir", str(tmp_path / "data"), "--out", str(tmp_path / "out")]
    assert cli(["reproduce", "bai2018", *arguments, "-q"]) == 0
    lines = [line.split(maxsplit=3) for line in capsys.readouterr().out.splitlines()]
    published = {(line[0], line[1]): line[2] for line in lines[1:] if len(line) == 4}
    expected = {  # LSTM, GRU, RNN and TCN in tables 1 and 2
        "smnist": ("87.2", "96.2", "21.5", "99.0"),
        "pmnist": ("85.7", "87.3", "25.3", "97.2"),
        "adding": ("0.164", "5.30·10^−5", "0.177", "5.80·10^−5"),
        "copy": ("0.0204", "0.0197", "0.0202", "3.50·10^−5"),
        "jsb": ("8.450", "8.430", "8.910", "8.100"),
        "nottingham": ("3.290", "3.460", "4.050", "3.070"),
        "ptb-words": ("78.93", "92.48", "114.5", "88.68"),
        "wikitext-103": ("48.40", None, None, "45.19"),
        "lambada": ("4,186", None, "14,725", "1,279"),
        "ptb-characters": ("1.360", "1.370", "1.480", "1.310"),
        "text8": ("1.500", "1.530", "1.690", "1.450"),
    }
    figures = {
        (row, model): figure
        for row, values in expected.items()
        for model, figure in zip(("lstm", "gru", "rnn", "tcn"), values, strict=True)
        if figure is not None
    }
    assert published == figures
    text = (tmp_path / "out" / "table.md").read_text(encoding="utf-8")
    assert "no ptb.train.txt or train.txt with ptb.valid.txt and ptb.test.txt beside it is in" in text
    assert "no train-novels with lambada_development_plain_text.txt" in text


PTB = ("ptb.train.txt", "ptb.valid.txt", "ptb.test.txt")
WIKITEXT = ("wiki.train.tokens", "wiki.valid.tokens", "wiki.test.tokens")
LAMBADA = ("train-novels/Romance/a.txt", "lambada_development_plain_text.txt", "lambada_test_plain_text.txt")


@pytest.mark.parametrize(
    ("row", "folder", "files", "data_dir"),
    [
        ("ptb-words", "ptb", PTB, ""),
        ("ptb-characters", "simple-examples/data", PTB, ""),
        ("ptb-words", "ptb", PTB, "ptb"),
        ("ptb-words", "penn", ("train.txt", "valid.txt", "test.txt"), ""),
        ("wikitext-103", "wikitext-103", WIKITEXT, ""),
        ("wikitext-103", "wikitext-103", WIKITEXT, "wikitext-103"),
        ("wikitext-103", "wikitext103/wikitext-103", WIKITEXT, ""),
        ("text8", "text8", ("text8",), ""),
        ("text8", "corpora", ("text8",), "corpora"),
        ("lambada", "lambada-dataset", LAMBADA, ""),
        ("lambada", "lambada", LAMBADA, "lambada"),
    ],
)
def test_texts_in_the_layouts_people_have(
    tmp_path: Path, row: str, folder: str, files: tuple[str, ...], data_dir: str
) -> None:
    for other in ("wikitext2", folder):
        for name in files:
            path = tmp_path / other / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.touch()
    train = files[0].partition("/")[0]
    expected = [str(tmp_path / folder / name) for name in (train, *files[1:])]
    if row != "wikitext-103":  # whose files have the names of those of WikiText-2
        shutil.rmtree(tmp_path / "wikitext2")
    assert tables()["bai2018"].rows[row].sources([tmp_path / data_dir], requested=False) == expected


def test_large_texts_are_fetched_only_if_they_are_named(tmp_path: Path) -> None:
    row = tables()["bai2018"].rows["text8"]
    assert row.sources([tmp_path], requested=True) == ["text8"]
    with pytest.raises(SeriatimError, match=r"no text8 or text8\.txt or text8\.zip is in") as caught:
        row.sources([tmp_path], requested=False)
    assert "--rows text8" in caught.value.remedy


def test_rows_on_texts_are_trained(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """With their own settings but for size and steps, on small files in the layouts of the real ones."""
    words = ["the", "cat", "sat", "on", "a", "mat", "and", "<unk>", "saw", "N", "dogs"]
    lines = [" " + " ".join(words[k % 11 : k % 11 + 5] + words[: k % 5 + 1]) + " \n" for k in range(150)]
    contents = dict.fromkeys((*(f"ptb/{n}" for n in PTB), *(f"wikitext-103/{n}" for n in WIKITEXT)), "".join(lines))
    contents |= dict.fromkeys((f"lambada/{name}" for name in LAMBADA), "".join(lines))
    contents["text8"] = " ".join(words[:7] * 400)
    for name, content in contents.items():
        path = tmp_path / "data" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content, encoding="utf-8")
    published = tables()["bai2018"].rows
    small = {"model": {"name": "gru", "width": 8}, "train": {"steps": 2, "batch_size": 2}}
    names = ("ptb-words", "ptb-characters", "text8", "wikitext-103", "lambada")
    add_table(
        monkeypatch,
        "texts",
        *(
            dataclasses.replace(published[name], params=None, models={"gru": small | {"published": 1.0}})
            for name in names
        ),
    )
    result = reproduce("texts", out=tmp_path / "out", data_dir=str(tmp_path / "data"))
    assert not result.missing
    values = {reproduced.row.name: reproduced.value for reproduced in result.results}
    assert list(values) == list(names)
    run = seriatim.load(tmp_path / "out" / "lambada" / "gru")
    last = [scores["token_log_probabilities"][-1][1] for scores in run.score([line.strip() for line in lines])]
    assert values["lambada"] == pytest.approx(math.exp(-sum(last) / len(last)), rel=1e-4)


def test_killed_and_started_again(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The table is the same as without the interruption, wherever it happened."""

    class KilledError(BaseException):
        """As sudden as a lost process: nothing catches it."""

    killed_at: set[str] = set()

    def kill(event: Event, label: str) -> None:
        if isinstance(event, Stepped) and event.step == 3 and label not in killed_at:
            killed_at.add(label)
            raise KilledError

    settings = merge(ADDING.settings, {"train": {"evaluate_steps": 2}})
    add_table(monkeypatch, "small", dataclasses.replace(ADDING, settings=settings))
    whole = reproduce("small", out=tmp_path / "whole")
    for _ in range(2):
        with pytest.raises(KilledError):
            reproduce("small", out=tmp_path / "out", callbacks=lambda label: [functools.partial(kill, label=label)])
    result = reproduce("small", out=tmp_path / "out")
    assert killed_at == {"adding gru", "adding a tcn"}
    assert [r.value for r in result.results] == [r.value for r in whole.results]
    assert [r.run.summary["step"] for r in result.results] == [4, 4]


def test_at_or_better_and_why_not() -> None:
    class Run:
        results = RunSummary(step=500, metrics={"test": {"mse": 1e-3, "accuracy": 0.96}})

        def history(self, event: str) -> list[dict[str, Any]]:
            return [{"step": step, "best": step <= 400} for step in (200, 400, 500)]

    def result(metric: str, published: float | None, **more: str) -> Reproduced:
        row = dataclasses.replace(ADDING, metric=metric, models={"gru": {"published": published, **more}})
        return Reproduced(row, "gru", Run())  # type: ignore[arg-type]

    assert result("mse", None).at_or_better is None
    assert [result("mse", value).at_or_better for value in (2e-3, 1e-3, 9e-4)] == [True, True, False]
    assert [result("accuracy", value).at_or_better for value in (0.95, 0.96, 0.97)] == [True, True, False]
    assert result("mse", 2e-3).shortfall() == ""
    assert result("mse", 9e-4, note="a reason").shortfall() == "best after 400 of 500 steps; a reason"
