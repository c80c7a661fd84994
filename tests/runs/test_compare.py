"""A comparison that was interrupted continues; one with other settings is not mistaken for it."""

from __future__ import annotations

import gc
import json
import math
import os
import signal
import statistics
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import seriatim
from seriatim.core.config import dump_yaml
from seriatim.core.errors import SeriatimError
from seriatim.core.files import WriteError
from seriatim.core.metrics import metric_label
from seriatim.core.run_folder import RunFolder
from seriatim.core.run_summary import RunSummary
from seriatim.report.run_data import read_runs
from seriatim.runs.compare import cross_options, parse_seeds
from seriatim.runs.configure import configure
from seriatim.runs.halving import Trial
from seriatim.runs.jobs import EVENTS, Workers, WorkerWriteError
from seriatim.runs.tuning import Tuning, tune
from seriatim.tasks import NAMES
from seriatim.tasks import load as load_task
from seriatim.tasks.base import Task
from seriatim.training.config import learning_rates, make_config
from seriatim.training.events import Event, Stepped
from seriatim.training.loop import Loop

GOLDEN = Path(__file__).parents[1] / "golden"
several_processors = pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="--jobs 2 needs two processors")
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


def test_what_seeds_have_in_common_is_made_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Baselines follow from the data, and the page of a comparison shows the views of the first seed."""
    reported: list[str] = []
    monkeypatch.setattr("seriatim.report.write_run_report", lambda run: reported.append(run.path.name))
    task, evaluated = load_task("classify"), []
    baselines = task.baselines
    monkeypatch.setattr(
        task, "baselines", lambda self, splits, names: evaluated.extend(names) or baselines(self, splits, names)
    )
    rows = [(f"{word} {n % 7} words", label) for n in range(60) for word, label in (("good", "a"), ("bad", "b"))]
    comparison = seriatim.compare("classify", rows, ["mlp", "gru"], seeds=2, steps=2, batch_size=2, out=tmp_path)
    assert reported == ["mlp", "gru"]
    assert evaluated == ["validation", "test"]
    assert len({str(run.summary["baselines"]) for run in comparison.runs}) == 1
    assert comparison.runs[0].summary["baselines"]["test"].keys() >= {"most frequent"}


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


def test_seeds_whose_pace_decided_differently_are_one_model(book: Path, tmp_path: Path) -> None:
    """One seed had so few updates that its learning rate was raised, the other kept the default."""
    seriatim.compare("language", book, ["gru"], out=tmp_path, seeds=2, **SMALL)
    for name, lr in (("gru", None), ("gru-seed1", 0.0043)):
        folder = tmp_path / name
        settings, summary = RunFolder(folder).settings, json.loads((folder / "summary.json").read_text())
        settings["train"]["optimizer"]["lr"] = lr
        (folder / "config.yaml").write_text(dump_yaml({"format": 1, **settings}))
        decided = ["train.optimizer.lr"] if lr else []
        (folder / "summary.json").write_text(json.dumps(summary | {"decided": decided}))
    (run,) = read_runs([RunFolder(tmp_path / name) for name in ("gru", "gru-seed1")])
    assert len(run.runs) == 2


def test_what_a_run_decided_is_compared_if_it_is_named(book: Path, tmp_path: Path) -> None:
    """A batch size that was left open continues with another open one, and is not mistaken for one that is named."""
    short = {"params": "4k", "minutes": 0.002, "context_length": 12}
    run = seriatim.compare("language", book, ["gru"], out=tmp_path, **short).runs[0]
    decided = run.config.train.batch_size
    assert "train.batch_size" in run.summary["decided"]
    seriatim.compare("language", book, ["gru"], out=tmp_path, **short)
    seriatim.compare("language", book, ["gru"], out=tmp_path, batch_size=decided, **short)
    for other in ({"batch_size": decided + 1}, {"settings": {"model": {"dropout": 0.7}}}):
        with pytest.raises(SeriatimError) as caught:
            seriatim.compare("language", book, ["gru"], out=tmp_path, **short, **other)
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


# Sizes and tokenizers


def test_options_with_several_values_are_crossed() -> None:
    models: dict[str, dict[str, Any]] = {"gru": {"model": {"name": "gru"}}, "gpt": {"model": {"name": "gpt"}}}
    variants, short = cross_options(models, {"params": "1k, 2k", "tokenizer": ["char", "bpe"], "steps": 3})
    assert list(variants) == [
        f"{model}-{size}-{tokenizer}" for tokenizer in ("char", "bpe") for size in ("1k", "2k") for model in models
    ]
    assert variants["gpt-2k-bpe"] == {
        "model": {"name": "gpt"}, "params": "2k", "task": {"tokenizer": {"kind": "bpe"}}
    }  # fmt: skip
    assert short == {"steps": 3}
    assert cross_options(models, {"params": "1k", "steps": 3}) == (models, {"params": "1k", "steps": 3})
    for wrong in ("1k,1k", "1k,", [5, 5]):
        with pytest.raises(SeriatimError, match="different values"):
            cross_options(models, {"params": wrong})


def test_every_model_is_trained_at_every_size(book: Path, tmp_path: Path) -> None:
    common = SMALL | {"params": "2k,4k,8k", "steps": 2, "seeds": 2}
    comparison = seriatim.compare("language", book, ["ngram", "gru"], out=tmp_path, **common)
    assert [run.path.name for run in comparison.runs][:6] == [
        "ngram-2k", "gru-2k", "ngram-4k", "gru-4k", "ngram-8k", "gru-8k"
    ]  # fmt: skip
    assert [row["label"] for row in comparison.table()] == [
        "ngram-2k", "gru-2k", "ngram-4k", "gru-4k", "ngram-8k", "gru-8k"
    ]  # fmt: skip
    sizes = [row["parameters"] for row in comparison.table() if row["model"] == "gru"]
    (curve,) = (c for c in comparison.scaling() if (c["model"], c["over"]) == ("gru", "parameters"))
    assert curve["x"] == sizes
    losses = [row["val_loss"] for row in comparison.table() if row["model"] == "gru"]
    assert curve["y"] == pytest.approx(losses)  # means over the seeds
    assert {c["over"] for c in comparison.scaling() if c["model"] == "gru"} >= {"parameters", "flops"}
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert "Power laws" in page
    assert "--params 2000,4000,8000" in page
    stored = json.loads((tmp_path / "comparison.json").read_text(encoding="utf-8"))
    assert stored["scaling"] == comparison.scaling()


def test_models_with_other_tokenizers_are_ranked_by_bits_per_byte(book: Path, tmp_path: Path) -> None:
    """A loss per token of longer tokens is higher, and says nothing."""
    short = {"tokenizer": "char,bpe", "vocab_size": 80, "steps": 4, "batch_size": 2, "context_length": 12}
    comparison = seriatim.compare("language", book, ["ngram"], out=tmp_path, **short)
    table = {row["label"]: row for row in comparison.table()}
    assert set(table) == {"ngram-char", "ngram-bpe"}
    best = min(table.values(), key=lambda row: row["val_bits_per_byte"])
    assert best["p"] is None
    assert "bits per byte" in comparison.verdict()
    assert comparison.verdict().startswith(f"The n-gram {best['label'].partition('-')[2]} reached ")


# Tuning


def test_the_learning_rate_is_tuned_within_the_time(
    book: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Five learning rates, then the best two for longer; what is there is not trained again."""
    monkeypatch.setattr("seriatim.training.loop.CLOCKS", {"wall": Ticks()})
    common: dict[str, Any] = SMALL | {"models": ["ngram", "gru"], "tune_minutes": 1.0, "notify": (notes := []).append}
    first = seriatim.compare("language", book, out=tmp_path, **common)
    tuning = first.tunings["gru"].record()
    assert list(first.tunings) == ["gru"]  # nothing to tune in counts
    rounds = [trial["round"] for trial in tuning["trials"]]
    assert rounds == [2, 2, 1, 1, 1, 1, 1]
    assert [trial["minutes"] for trial in tuning["trials"]] == [0.25] * 2 + [0.1] * 5
    assert sorted(trial["factor"] for trial in tuning["trials"][2:]) == [0.25, 0.5, 1, 2, 4]
    assert {trial["factor"] for trial in tuning["trials"][:2]} == {t["factor"] for t in tuning["trials"][2:4]}
    scores = [trial["score"] for trial in tuning["trials"]]
    assert scores[0] <= scores[1]
    assert scores[2:] == sorted(scores[2:])
    trained = seriatim.load(tmp_path / "gru").config  # for a number of steps: the rate itself
    assert learning_rates(trained)[0] == tuning["trials"][0]["lr"]
    for trial in tuning["trials"]:
        name = f"gru-round{trial['round']}-lr-x{trial['factor']:g}"
        assert learning_rates(seriatim.load(tmp_path / "tuning" / name).config)[0] == trial["lr"]
    steps = [json.loads((tmp_path / "tuning" / name / "summary.json").read_text())["step"] for name in (
        "gru-round1-lr-x1", f"gru-round2-lr-x{tuning['factor']:g}"
    )]  # fmt: skip
    assert steps == [6, 15]  # a step takes a second of this clock
    assert any(note.startswith(f"gru: learning rate {tuning['trials'][0]['lr']:.3g}") for note in notes)
    monkeypatch.setattr(Loop, "_update", lambda loop: pytest.fail("it was trained again"))
    again = seriatim.compare("language", book, out=tmp_path, **common)
    assert again.tunings["gru"].record() == tuning
    with pytest.raises(SeriatimError, match="was tuned with --tune-minutes 1"):
        seriatim.compare("language", book, out=tmp_path, **common | {"models": ["gru"], "tune_minutes": 2.0})
    assert "Learning rates tried" in (tmp_path / "report.html").read_text(encoding="utf-8")


class Ticks:
    """A clock on which every step takes a second."""

    def __init__(self) -> None:
        self.time = 0.0

    def __call__(self) -> float:
        self.time += 1.0
        return self.time


def test_a_learning_rate_that_fails_is_not_taken(book: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both learning rates scale together, and an interrupted search continues."""
    update, seen = Loop._update, set()

    def diverge(loop: Loop) -> Any:
        seen.add((loop.lr, loop.muon_lr))
        if loop.lr > 0.005:
            raise loop._divergence(math.nan)
        return update(loop)

    monkeypatch.setattr(Loop, "_update", diverge)
    monkeypatch.setattr("seriatim.training.loop.CLOCKS", {"wall": Ticks()})
    common: dict[str, Any] = SMALL | {"models": ["gru"], "tune_minutes": 0.5, "seeds": 2, "lr": 0.004}
    cut = lambda name: [interrupt_at(2)] if name == "tuning/gru-round1-lr-x0.5" else []  # noqa: E731
    with pytest.raises(PowerCutError):
        seriatim.compare("language", book, out=tmp_path, callbacks=cut, **common)
    tuning = seriatim.compare("language", book, out=tmp_path, **common).tunings["gru"].record()
    failed = {trial["factor"] for trial in tuning["trials"] if trial["score"] is None}
    assert failed == {2, 4}
    assert tuning["factor"] <= 1
    assert len({round(muon / lr, 6) for lr, muon in seen}) == 1
    rates = [learning_rates(seriatim.load(tmp_path / name).config)[0] for name in ("gru", "gru-seed1")]
    assert rates == [tuning["factor"] * 0.004] * 2


def test_a_metric_of_which_more_is_better_is_maximized(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = configure("classify", "data.csv", "gru", {})
    monkeypatch.setattr("seriatim.runs.tuning.Run", lambda path: SimpleNamespace(config=config))

    def train(name: str, settings: Any, trial: bool) -> Any:
        (tmp_path / name).mkdir(parents=True)
        (tmp_path / name / "config.yaml").touch()
        metrics = {"validation": {"accuracy": learning_rates(settings)[0]}}
        return SimpleNamespace(path=tmp_path / name, results=RunSummary(monitor="accuracy", metrics=metrics))

    tuning = tune("gru", config, 1.0, train, tmp_path)
    assert tuning.factor == 4
    timed = configure("classify", "data.csv", "gru", {"train": {"minutes": 1}})
    assert learning_rates(tuning.apply(timed)) == pytest.approx([4 * rate for rate in learning_rates(timed)])
    assert tuning.apply(timed).train.optimizer.lr is None, "the budget decides what it is a factor of"
    both = configure("classify", "data.csv", "gru", {"train": {"optimizer": {"lr": 4e-3, "muon_lr": 0.03}}})
    best = Tuning([Trial(1, 4.0, 1.0, 0.1)], [4 * 4e-3], 1.0)
    assert learning_rates(best.apply(both)) == pytest.approx((4 * 4e-3, 4 * 0.03))
    failed = Tuning([Trial(0, 4.0, 1.0, math.inf)], [4 * 4e-3], 1.0)
    assert learning_rates(failed.apply(both)) == pytest.approx((4e-3, 0.03))
    assert [trial["score"] for trial in tuning.record()["trials"]][:2] == [4 * 4e-3, 2 * 4e-3]
    longer = config.model_copy(update={"train": config.train.model_copy(update={"minutes": 1.0})})
    short = tune("short", longer, 1.0, train, tmp_path)
    assert (short.factor, short.at_edge) == (2, True), "trials of a tenth of the training do not try the extremes"
    assert tune("long", longer, 2.5, train, tmp_path).factor == 4


def test_the_data_of_one_training_is_in_memory(book: Path, tmp_path: Path) -> None:
    alive: list[int] = []

    def count(name: str) -> tuple[()]:
        alive.append(sum(Task in type(thing).__mro__ for thing in gc.get_objects()))
        return ()

    gc.collect()
    seriatim.compare("language", book, ["gru"], seeds=4, out=tmp_path, callbacks=count, **SMALL)
    assert max(alive[1:]) <= alive[0]


def test_no_time_to_tune_is_refused(book: Path, tmp_path: Path) -> None:
    with pytest.raises(SeriatimError) as caught:
        seriatim.compare("language", book, ["gru"], tune_minutes=0, out=tmp_path / "c", **SMALL)
    assert caught.value.code == "compare.tuning"


# Several at a time


@several_processors
def test_two_trainings_at_a_time_give_the_same_models(book: Path, tmp_path: Path) -> None:
    """In processes of their own, with events, notes and errors passed on."""
    events: dict[str, list[Event]] = {}

    def callbacks(name: str) -> list[Any]:
        return [events.setdefault(name, []).append]

    notes: list[str] = []
    common: dict[str, Any] = SMALL | {"models": ["gru", "transformer", "ngram"], "report": False}
    both = seriatim.compare(
        "language", book, out=tmp_path / "both", jobs=2, callbacks=callbacks, notify=notes.append, **common
    )
    one = seriatim.compare("language", book, out=tmp_path / "one", **common)
    assert [run.path.name for run in both.runs] == [run.path.name for run in one.runs] == ["gru", "ngram"]
    for a, b in zip(both.runs, one.runs, strict=True):
        assert (a.path / "config.yaml").read_text() == (b.path / "config.yaml").read_text()
        loss = b.summary["metrics"]["validation"]["loss"]
        assert a.summary["metrics"]["validation"]["loss"] == pytest.approx(loss, rel=1e-4)
        assert a.summary["threads"] == 1
    assert "task.model" in both.failed["transformer"]
    assert both.failed == one.failed
    assert type(events["gru"][-1]).__name__ == "Stopped"
    assert any("train: " in note for note in notes)


@several_processors
def test_a_signal_stops_all_trainings_and_the_command_continues(book: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "seriatim", "compare", "language", "--data", str(book), "--models", "gru,lstm"]
    command += ["--params", "4k", "--batch-size", "2", "--context-length", "12", "--no-report", "--jobs", "2"]
    command += ["--out", str(tmp_path / "c"), "--set", "train.evaluate_steps=5"]
    process = subprocess.Popen([*command, "--steps", "100000"], stderr=subprocess.PIPE, text=True)
    folders = [tmp_path / "c" / name / "checkpoints" for name in ("gru", "lstm")]
    while not all(folder.is_dir() and any(folder.iterdir()) for folder in folders):
        assert process.poll() is None, process.stderr
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    _, text = process.communicate()
    assert process.returncode == 130, text
    assert "repeat the command" in text
    reasons = [json.loads((folder.parent / "summary.json").read_text())["reason"] for folder in folders]
    assert reasons == ["SIGINT", "SIGINT"]
    for folder in folders:  # a shorter end, so that the test is
        config = folder.parent / "config.yaml"
        config.write_text(config.read_text().replace("steps: 100000", "steps: 1"))
    again = subprocess.run([*command, "--steps", "1"], capture_output=True, text=True, check=False)
    assert again.returncode == 0, again.stderr
    reasons = [json.loads((folder.parent / "summary.json").read_text())["reason"] for folder in folders]
    assert reasons == ["finished", "finished"]


def test_workers_pass_on_every_kind_of_event() -> None:
    assert {kind.__name__ for kind in Event.__subclasses__()} == set(EVENTS)


def test_a_worker_has_the_settings_of_the_first_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The minutes of a trial do not decide again what those of the training did."""
    settings = {"task": {"tokenizer": {"kind": "word"}}, "train": {"minutes": 60}}
    config = configure("language", "book.txt", "gru", settings)
    trial = config.model_copy(update={"train": config.train.model_copy(update={"minutes": 1.0})})
    passed: list[Any] = []
    monkeypatch.setattr("seriatim.runs.jobs.subprocess.Popen", FinishedProcess)
    monkeypatch.setattr("seriatim.runs.jobs.Run", Path)
    monkeypatch.setattr(Workers, "_follow", lambda self, process, job, callbacks: passed.append(json.dumps(job)))
    Workers(tmp_path, 2, None, [], lambda name: [], None).train("gru", trial, True)
    made = make_config(json.loads(passed[0])["settings"])
    assert made == trial
    assert made.task.context_length == 128


class FinishedProcess:
    """A process that has ended."""

    def __init__(self, *arguments: Any, **options: Any) -> None: ...

    def kill(self) -> None: ...

    def wait(self) -> int:
        return 0


def test_a_disk_that_is_full_in_a_worker_ends_a_search(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = configure("classify", "data.csv", "gru", {})
    monkeypatch.setattr("seriatim.runs.tuning.Run", lambda path: SimpleNamespace(config=config))

    def train(name: str, settings: Any, trial: bool) -> Any:
        (tmp_path / name).mkdir(parents=True)
        (tmp_path / name / "config.yaml").touch()
        raise WorkerWriteError("disk.full", "no space", "free some", exit_code=1)

    with pytest.raises(WriteError, match="no space"):
        tune("gru", config, 1.0, train, tmp_path)


@pytest.mark.parametrize("jobs", [0, -1, 1_000])
def test_a_number_of_jobs_that_is_not_fair_is_refused(jobs: int, book: Path, tmp_path: Path) -> None:
    with pytest.raises(SeriatimError) as caught:
        seriatim.compare("language", book, ["gru"], jobs=jobs, out=tmp_path / "c", **SMALL)
    assert caught.value.code == "compare.jobs"
    assert not (tmp_path / "c").exists()


# Every task

TASKS: dict[str, tuple[str, list[str], str]] = {  # task → data, models, main metric
    "answer": ("squad.json", ["gru", "bert"], "f1"),
    "caption": ("photos", ["show_tell", "show_attend_tell"], "cider"),
    "choose": ("copa.jsonl", ["gru", "bert"], "accuracy"),
    "classify": ("reviews.csv", ["mlp", "gru"], "accuracy"),
    "forecast": ("passengers.csv", ["mlp", "gru"], "mase"),
    "language": ("book.txt", ["ngram", "gpt"], "loss"),
    "music": ("chorales", ["gru", "tcn"], "loss"),
    "pretrain": ("more.txt", ["bert", "gru"], "loss"),
    "regress": ("proteins.csv", ["tcn", "gru"], "loss"),
    "tag": ("words.conll", ["lstm", "rnn"], "f1"),
    "translate": ("pairs.tsv", ["seq2seq", "transformer"], "bleu"),
}


@pytest.mark.parametrize("task", sorted(TASKS))
def test_every_task_can_be_compared(task: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a search for the learning rate, an end in operations, and a page."""
    assert set(TASKS) == set(NAMES)
    monkeypatch.setattr("seriatim.training.loop.CLOCKS", {"wall": Ticks()})
    data, models, metric = TASKS[task]
    settings = (
        {"model": {"width": 8}, "train": {"batch_size": 2}} if task != "language" else {"train": {"batch_size": 2}}
    )
    comparison = seriatim.compare(
        task, GOLDEN / "data" / data, models, settings=settings, out=tmp_path, report=False, tune_minutes=0.1, flops=1e5
    )
    assert [row["model"] for row in comparison.table()] == models
    networks = [row for row in comparison.table() if row["model"] != "ngram"]
    assert set(comparison.tunings) == {row["model"] for row in networks}
    assert all(row[f"val_{metric}"] is not None for row in comparison.table())
    assert all(row["cpu_seconds"] > 0 for row in networks)
    assert metric_label(metric).lower() in comparison.verdict().lower()
    assert "Learning rates tried" in (tmp_path / "report.html").read_text(encoding="utf-8")
