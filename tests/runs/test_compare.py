"""A comparison that was interrupted continues; one with other settings is not mistaken for it."""

from __future__ import annotations

import json
import statistics
from pathlib import Path
from typing import Any

import pytest

import seriatim
from seriatim.core.errors import SeriatimError
from seriatim.runs.compare import parse_seeds
from seriatim.training.events import Event, Stepped
from seriatim.training.loop import Loop

SMALL: dict[str, Any] = {"params": "4k", "steps": 6, "batch_size": 2, "context_length": 12}


@pytest.fixture(autouse=True)
def _without_reports_of_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """They take most of the time, and are tested elsewhere."""
    monkeypatch.setattr("seriatim.report.write_run_report", lambda run: None)


class PowerCutError(Exception):
    pass


def interrupt_at(step: int) -> Any:
    def callback(event: Event) -> None:
        if isinstance(event, Stepped) and event.step == step:
            raise PowerCutError

    return callback


def test_a_comparison_continues_where_it_was_interrupted(book: Path, tmp_path: Path) -> None:
    common: dict[str, Any] = {"models": ["gru", "lstm"], "settings": {"train": {"evaluate_steps": 2}}, **SMALL}
    whole = seriatim.compare("language", book, out=tmp_path / "whole", **common)
    callbacks = lambda name: [interrupt_at(5)] if name == "lstm" else []  # noqa: E731
    with pytest.raises(PowerCutError):
        seriatim.compare("language", book, out=tmp_path / "cut", callbacks=callbacks, **common)
    resumed = seriatim.compare("language", book, out=tmp_path / "cut", **common)
    for first, second in zip(whole.runs, resumed.runs, strict=True):
        assert first.summary["metrics"] == second.summary["metrics"]
        steps = [line["step"] for line in second.history("stepped")]
        assert steps == sorted(set(steps))
    stored = json.loads((tmp_path / "cut/comparison.json").read_text(encoding="utf-8"))
    assert [row["model"] for row in stored["table"]] == ["gru", "lstm"]
    assert "<html" in (tmp_path / "cut/report.html").read_text(encoding="utf-8")
    assert {series.name for series in resumed.plot().series} >= {"gru", "lstm"}


def test_every_model_is_trained_with_every_seed(book: Path, tmp_path: Path) -> None:
    """All models with the first seed, then with the next; a model without gradients once."""
    common: dict[str, Any] = {"models": ["ngram", "gru", "lstm"], "settings": {"train": {"evaluate_steps": 2}}, **SMALL}
    one = seriatim.compare("language", book, out=tmp_path / "whole", **common)
    whole = seriatim.compare("language", book, out=tmp_path / "whole", seeds=2, **common)
    folders = ["ngram", "gru", "lstm", "gru-seed1", "lstm-seed1"]
    assert [run.path.name for run in whole.runs] == folders
    assert [run.config.seed for run in whole.runs] == [0, 0, 0, 1, 1]
    assert [run.summary for run in whole.runs[:3]] == [run.summary for run in one.runs]  # not trained again
    assert len({run.summary["data"]["fingerprint"] for run in whole.runs}) == 1
    assert len({run.summary["metrics"]["validation"]["loss"] for run in whole.runs}) == 5
    callbacks = lambda name: [interrupt_at(5)] if name == "gru-seed1" else []  # noqa: E731
    with pytest.raises(PowerCutError):
        seriatim.compare("language", book, out=tmp_path / "cut", seeds="0,1", callbacks=callbacks, **common)
    resumed = seriatim.compare("language", book, out=tmp_path / "cut", seeds=[0, 1], **common)
    assert [run.summary["metrics"] for run in resumed.runs] == [run.summary["metrics"] for run in whole.runs]
    stored = json.loads((tmp_path / "cut/comparison.json").read_text(encoding="utf-8"))
    assert [(row["model"], row["seeds"]) for row in stored["table"]] == [
        ("ngram", [0]), ("gru", [0, 1]), ("lstm", [0, 1])
    ]  # fmt: skip
    assert [row["folder"] for row in stored["runs"]] == folders
    losses = [row["val_loss"] for row in stored["runs"] if row["model"] == "gru"]
    assert losses == [run.summary["metrics"]["validation"]["loss"] for run in whole.runs if "gru" in run.path.name]
    table = {row["model"]: row for row in resumed.table()}
    assert table["gru"]["val_loss"] == pytest.approx(statistics.fmean(losses))
    assert table["gru"]["val_loss_std"] == pytest.approx(statistics.stdev(losses))
    assert table["ngram"]["val_loss_std"] is None
    assert stored["verdict"] == resumed.verdict() != ""


@pytest.mark.parametrize("failing_step", [0, 3])  # before the first checkpoint and after it
def test_a_seed_that_fails_is_named_and_the_others_are_trained(
    failing_step: int, book: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    update = Loop._update

    def diverge(loop: Loop) -> Any:
        if loop.seed == 0 and loop.progress.step == failing_step:
            raise loop._divergence(float("nan"))
        return update(loop)

    monkeypatch.setattr(Loop, "_update", diverge)
    common = SMALL | {"settings": {"train": {"evaluate_steps": 2}}, "seeds": 2}
    comparison = seriatim.compare("language", book, ["gru", "transformer"], out=tmp_path, **common)
    assert [run.path.name for run in comparison.runs] == ["gru-seed1"]
    assert list(comparison.failed) == ["gru", "transformer"]  # it does not suit the task, with any seed
    assert "train.non-finite" in comparison.failed["gru"]


@pytest.mark.parametrize(
    ("seeds", "expected"),
    [(3, [7, 8, 9]), ("2", [7, 8]), ("0,5", [0, 5]), ([4, 2], [4, 2]), ((1,), [1])],
)
def test_seeds_are_counted_or_listed(seeds: Any, expected: list[int]) -> None:
    assert parse_seeds(seeds, 7) == expected


@pytest.mark.parametrize("seeds", [0, -1, "no", "1,", "1,x", [], [-1], [2, 2], "3,3", 1.5, [None], 10**9, f"1,{2**63}"])
def test_wrong_seeds_are_refused(seeds: Any, book: Path, tmp_path: Path) -> None:
    with pytest.raises(SeriatimError) as caught:
        seriatim.compare("language", book, ["gru"], seeds=seeds, out=tmp_path / "c", **SMALL)
    assert caught.value.code == "compare.seeds"
    assert not (tmp_path / "c").exists()


def test_every_model_has_the_same_time(book: Path, tmp_path: Path) -> None:
    short = {"batch_size": 2, "context_length": 12, "params": "4k", "minutes": 0.002}
    table = seriatim.compare("language", book, ["ngram", "gru", "mlp"], out=tmp_path, **short).table()
    assert [row["time_budget"] for row in table] == [None, pytest.approx(0.12), pytest.approx(0.12)]
    for row in table[1:]:
        assert row["time_used"] == pytest.approx(row["seconds"] / 0.12)


def test_other_settings_are_refused(book: Path, tmp_path: Path) -> None:
    for models in (["gru"], ["ngram"]):
        short = SMALL | {"steps": 2}
        seriatim.compare("language", book, models=models, out=tmp_path / models[0], **short)
        seriatim.compare("language", book, models=models, out=tmp_path / models[0], **short)  # nothing is trained
        with pytest.raises(SeriatimError, match="train") as caught:
            seriatim.compare("language", book, models=models, out=tmp_path / models[0], **(short | {"steps": 9}))
        assert caught.value.code == "compare.differs"


def test_models_with_settings_of_their_own(book: Path, tmp_path: Path) -> None:
    models = {"narrow": {"model": {"name": "gru", "width": 4}}, "wide": {"model": {"name": "gru", "width": 8}}}
    short = {"steps": 1, "batch_size": 2, "context_length": 12}
    comparison = seriatim.compare("language", book, models, out=tmp_path / "c", **short)
    assert [run.config.model.width for run in comparison.runs] == [4, 8]
    assert [run.path.name for run in comparison.runs] == ["narrow", "wide"]


def test_a_comparison_continues_without_a_model_that_does_not_fit(book: Path, tmp_path: Path) -> None:
    notes: list[str] = []
    short = {"steps": 2, "context_length": 8, "batch_size": 2, "notify": notes.append}
    both = seriatim.compare("language", book, ["transformer", "gru"], out=tmp_path / "both", **short)
    assert [run.config.model.name for run in both.runs] == ["gru"]
    assert "task.model" in both.failed["transformer"]
    assert any(note.startswith("transformer failed: ") for note in notes)


def test_nothing_to_compare(book: Path, tmp_path: Path) -> None:
    with pytest.raises(SeriatimError) as caught:
        seriatim.compare("language", book, [], out=tmp_path / "c")
    assert caught.value.code == "compare.empty"


def test_a_new_end_stays(book: Path, tmp_path: Path) -> None:
    """The settings in the folder are those in force, also for the next resume."""
    short = {"batch_size": 2, "context_length": 12, "report": False, "settings": {"model": {"width": 8}}}
    run = seriatim.train("language", book, "gru", out=tmp_path / "r", minutes=0.003, **short)
    step = run.summary["step"]
    more = seriatim.resume(run.path, steps=step + 5, report=False)
    assert (more.summary["step"], more.summary["reason"]) == (step + 5, "finished")
    train = seriatim.load(run.path).config.train
    assert (train.steps, train.minutes) == (step + 5, None)
    assert seriatim.resume(run.path, report=False).summary["step"] == step + 5


def test_an_ngram_fills_its_budget_with_the_lowest_order_that_can(book: Path, tmp_path: Path) -> None:
    def fit(name: str, **model: int) -> Any:
        short = {"params": 200, "settings": {"model": model}, "report": False}
        return seriatim.train("language", book, "ngram", out=tmp_path / name, **short)

    run = fit("free")
    assert run.summary["parameters"] <= 200
    assert fit("fixed", order=3).config.model.order == 3
    smaller = fit("smaller", order=run.config.model.order - 1)
    assert smaller.summary["parameters"] < run.summary["parameters"]


def test_a_model_without_checkpoints_is_fitted_again(book: Path, tmp_path: Path) -> None:
    first = seriatim.compare("language", book, ["ngram"], out=tmp_path).runs[0]
    expected = first.summary["metrics"]
    (first.path / "summary.json").unlink()  # a power cut
    assert seriatim.compare("language", book, ["ngram"], out=tmp_path).runs[0].summary["metrics"] == expected


def test_settings_are_compared_before_anything_is_trained(book: Path, tmp_path: Path) -> None:
    seriatim.compare("language", book, ["lstm"], out=tmp_path, **SMALL)
    with pytest.raises(SeriatimError) as caught:
        seriatim.compare("language", book, ["gru", "lstm"], out=tmp_path, **(SMALL | {"steps": 5}))
    assert caught.value.code == "compare.differs"
    assert not (tmp_path / "gru").exists()
