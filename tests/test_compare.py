"""A comparison that was interrupted goes on; one that was begun with other settings is not mistaken for it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import seriatim
from seriatim.cli import run as cli
from seriatim.training.events import Event, Stepped

SMALL: dict[str, Any] = {"params": "4k", "steps": 6, "batch": 2, "length": 12}


class PowerCutError(Exception):
    pass


def interrupt_at(step: int) -> Any:
    def listen(event: Event) -> None:
        if isinstance(event, Stepped) and event.step == step:
            raise PowerCutError

    return listen


def test_goes_on_where_it_was_interrupted(book: Path, tmp_path: Path) -> None:
    common: dict[str, Any] = {"models": ["gru", "lstm"], "settings": {"train": {"evaluate_steps": 2}}, **SMALL}
    whole = seriatim.compare("language", str(book), out=tmp_path / "whole", **common)
    listeners = lambda name: [interrupt_at(5)] if name == "lstm" else []  # noqa: E731
    with pytest.raises(PowerCutError):
        seriatim.compare("language", str(book), out=tmp_path / "cut", listeners=listeners, **common)
    resumed = seriatim.compare("language", str(book), out=tmp_path / "cut", **common)
    for one, other in zip(whole.runs, resumed.runs, strict=True):
        assert one.summary["measures"] == other.summary["measures"]
        steps = [line["step"] for line in other.history("stepped")]
        assert steps == sorted(set(steps))


def test_other_settings_are_refused(book: Path, tmp_path: Path) -> None:
    seriatim.compare("language", str(book), models=["gru"], out=tmp_path / "x", **SMALL)
    with pytest.raises(seriatim.SeriatimError) as caught:
        seriatim.compare("language", str(book), models=["gru"], out=tmp_path / "x", **(SMALL | {"steps": 9}))
    assert caught.value.code == "compare.differs"
    assert "train" in caught.value.cause


def test_a_moved_end_stays_moved(book: Path, tmp_path: Path) -> None:
    """The settings in the folder are those in force, also for the next resume."""
    run = seriatim.train("language", str(book), "gru", out=tmp_path / "r", minutes=0.005, batch=2, length=12)
    step = run.summary["step"]
    more = seriatim.resume(run.path, steps=step + 5)
    assert more.summary["step"] == step + 5
    assert more.summary["reason"] == "finished"
    assert more.settings["train"]["steps"] == step + 5
    assert more.settings["train"]["minutes"] is None
    assert seriatim.resume(run.path).summary["step"] == step + 5


@pytest.mark.parametrize("kind", ["char", "word"])
def test_an_arpa_file_goes_out_and_comes_in(
    book: Path, tmp_path: Path, kind: str, capsys: pytest.CaptureFixture[str]
) -> None:
    run = seriatim.train("language", str(book), "ngram", out=tmp_path / "own", tokenizer=kind)
    assert cli(["export", str(run.path), "--to", "arpa"]) == 0
    assert cli(["import", str(run.path / "model.arpa"), "--out", str(tmp_path / "other")]) == 0
    other = seriatim.load(tmp_path / "other")
    for text in ("the old cat saw the hat", "the new dog"):
        assert other.score(text).log_probability == pytest.approx(run.score(text).log_probability, rel=1e-4)
    assert {one.token for one in run.next("the ", 3)} == {one.token for one in other.next("the ", 3)}
    assert cli(["runs", str(tmp_path)]) == 0
    assert cli(["import", str(book)]) == 2
    assert "arpa.malformed" in capsys.readouterr().err


def test_an_ngram_fills_its_budget_with_the_lowest_order_that_can(tmp_path: Path) -> None:
    run = seriatim.train("language", "pydoc", "ngram", out=tmp_path / "a", params="100k")
    assert 98_000 <= run.summary["parameters"] <= 100_000
    assert run.settings["model"]["order"] == 5
    fixed = seriatim.train(
        "language", "pydoc", "ngram", out=tmp_path / "b", params="100k", settings={"model": {"order": 3}}
    )
    assert fixed.settings["model"]["order"] == 3
