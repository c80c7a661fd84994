"""A table in several sittings: finished models stay, the table grows, other minutes are another training."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import seriatim
from seriatim.cli import run as cli
from seriatim.reproduce import TABLES, reproduce, tables
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
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert "<svg" in page
    assert "A remark." in page


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


def test_every_row_is_a_configuration(tmp_path: Path) -> None:
    """The settings of all tables are settings that exist."""
    from seriatim.api import configure, sections
    from seriatim.core.config import merge

    for table in TABLES.values():
        for row in table.rows.values():
            for model in row.models.values():
                configure(row.task, row.data, None, merge(sections(row.settings), sections(model.settings)))
    with pytest.raises(seriatim.SeriatimError):
        reproduce("none")
