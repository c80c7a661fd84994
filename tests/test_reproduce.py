"""A table in several sittings: finished models stay, the table grows, other minutes are another training."""

from __future__ import annotations

import dataclasses
import itertools
import json
from pathlib import Path

import pytest

import seriatim
from seriatim.api import configure, sections
from seriatim.cli import run as cli
from seriatim.core.config import merge
from seriatim.report.lines import lines
from seriatim.reproduce import TABLES, page, reproduce, tables
from seriatim.reproduce.tables import Row, Table


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> Table:
    """Two rows that train in a moment."""
    settings = {"task": {"pooling": "last"}, "train": {"batch": 4}}
    models = {
        "gru": tables._model("gru", 1e-2, 4, 5.3e-5),
        "a tcn": tables._model("tcn", 4e-3, 4, None, levels=2),
    }
    row = Row("adding", "adding problem, T=10", "regress", "adding:10", "mse", "2k", models, settings)
    absent = tables._absent("words", "a text that is not here", "perplexity", "1M", 78.9, 88.7)
    table = Table("A small table", "nobody, 2026", {"adding": row, "words": absent}, ("A remark.",))
    monkeypatch.setitem(TABLES, "small", table)
    return table


def test_row_by_row(small: Table, tmp_path: Path) -> None:
    first = reproduce("small", ["adding"], ["gru"], out=tmp_path)
    assert [one.label for one in first.reached] == ["gru"]
    weights = (tmp_path / "adding" / "gru" / "model.safetensors").read_bytes()
    second = reproduce("small", out=tmp_path)
    assert [one.label for one in second.reached] == ["gru", "a tcn"]
    assert (tmp_path / "adding" / "gru" / "model.safetensors").read_bytes() == weights
    assert set(second.missing) == {"words"}
    records = json.loads((tmp_path / "table.json").read_text(encoding="utf-8"))
    by_model = {record["model"]: record for record in records}
    assert by_model["gru"]["published"] == 5.3e-5
    assert by_model["gru"]["reached"] == second.reached[0].run.summary["measures"]["test"]["mse"]
    assert by_model["gru"]["parameters"] <= 2_000
    assert by_model["a tcn"]["settings"]["model"]["levels"] == 2
    text = (tmp_path / "table.md").read_text(encoding="utf-8")
    assert "| adding | gru | 5.30·10^−5 |" in text
    assert "words: not run" in text
    report = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert "<svg" in report
    assert "A remark." in report


def test_minutes_take_the_place_of_steps(small: Table, tmp_path: Path) -> None:
    outcome = reproduce("small", ["adding"], ["gru"], minutes=0.01, out=tmp_path)
    settings = outcome.reached[0].run.settings["train"]
    assert settings["steps"] is None
    assert settings["minutes"] == 0.01


def test_names_that_are_not_there(small: Table, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for arguments, code in (
        (["bai2019"], "reproduce.unknown"),
        (["small", "--rows", "adding,ading"], "reproduce.row"),
        (["small", "--rows", "adding", "--models", "gpt"], "reproduce.model"),
    ):
        assert cli(["reproduce", *arguments, "--out", str(tmp_path)]) == 2
        assert code in capsys.readouterr().err


def test_quality_over_length(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Without published figures there is no column for them; with a length there is a line for each model."""
    short = list(itertools.product("abc", repeat=4))
    words = [*short, *(("a", *word) for word in short)]
    pairs = [f"{' '.join(word)}\t{' '.join(reversed(word))}\n" for word in words]
    files = {"train": pairs[0::3], "valid": pairs[1::3], "test": pairs[2::3]}
    for name, some in files.items():
        (tmp_path / f"{name}.tsv").write_text("".join(some), encoding="utf-8")
    row = TABLES["length"].rows["reverse"]
    given = {name: str(tmp_path / f"{name}.tsv") for name in ("valid", "test")}
    row = dataclasses.replace(
        row,
        data=str(tmp_path / "train.tsv"),
        params="8k",
        models={name: tables._model(name, None, 3, layers=1) for name in ("seq2seq", "bahdanau")},
        settings=merge(row.settings, {"data": given}),
    )
    table = Table("A small table", "nobody, 2026", {"reverse": row})
    monkeypatch.setitem(TABLES, "letters", table)
    assert cli(["reproduce", "letters", "--out", str(tmp_path), "-q"]) == 0
    lines = (tmp_path / "table.md").read_text(encoding="utf-8").splitlines()
    assert "| row | model | reached | parameters | steps | time | seed |" in lines
    outcome = reproduce("letters", out=tmp_path)
    drawn = page.over_length(row, outcome)
    assert drawn is not None
    ends = []
    for one in outcome.reached:
        (view,) = [v for v in one.run.evaluation()["test"] if v.get("measure") == "exact_match"]
        shares, counts = view["series"][0][1], view["counts"]
        together = sum(share * count for share, count in zip(shares, counts, strict=True)) / sum(counts)
        assert together == pytest.approx(one.value, abs=1e-4)  # the line is of the same answers as the table
        assert view["bins"] == ["4", "5"]
        ends.append(f"{one.label}: 4 {100 * shares[0]:.1f} %, 5 {100 * shares[1]:.1f} %")
    assert drawn[1] == f"{row.title}: {'; '.join(ends)}."
    assert "Over the length" in (tmp_path / "report.html").read_text(encoding="utf-8")


def test_the_loss_while_training(small: Table, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A row about how models learn tells the loss on the training part, and draws it for all of them."""
    row = dataclasses.replace(small.rows["adding"], learning=True)
    monkeypatch.setitem(TABLES, "learning", Table("A small table", "nobody, 2026", {"adding": row}))
    monkeypatch.setattr(page, "POINTS", 2)
    outcome = reproduce("learning", out=tmp_path)
    view = page.learning(row, outcome)
    assert view is not None
    told = []
    for one in outcome.reached:
        losses = [event["loss"] for event in one.run.history("stepped")]
        assert len(losses) == 4
        assert one.learnt == losses[-1]  # the last tenth of four steps
        assert page.cells(one)["training loss"] == f"{losses[-1]:.3f}"
        told.append(f"{one.label} from {sum(losses[:2]) / 2:.3f} to {sum(losses[2:]) / 2:.3f}")
    assert lines(view)[1] == f"adding: the loss on the training part: {'; '.join(told)}."
    assert "While training" in (tmp_path / "report.html").read_text(encoding="utf-8")
    assert "| reached | training loss |" in (tmp_path / "table.md").read_text(encoding="utf-8")
    assert page.learning(small.rows["adding"], outcome) is None  # and no other row does


def test_letters_are_reversed_within_seconds(tmp_path: Path) -> None:
    """What takes minutes for 30 letters, for five."""
    settings = merge(sections(TABLES["length"].rows["reverse"].settings), {"model": {"width": 64}})
    run = seriatim.train(
        "translate", "reverse-pairs:5", "bahdanau", settings=settings, out=tmp_path / "run", steps=250, rate=5e-3
    )
    assert run.summary["measures"]["test"]["exact_match"] >= 0.95
    assert run.predict("w o r d s")["translation"] == "s d r o w"


def test_every_row_is_a_configuration(tmp_path: Path) -> None:
    """The settings of all tables are settings that exist."""
    for table in TABLES.values():
        for row in table.rows.values():
            for model in row.models.values():
                configure(row.task, row.data, None, merge(sections(row.settings), sections(model.settings)))
    with pytest.raises(seriatim.SeriatimError):
        reproduce("none")
