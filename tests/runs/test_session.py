"""Training into a run folder: what it holds, that it opens again, and that resuming is exact."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch
from torch import nn

import seriatim
from seriatim.core.errors import SeriatimError
from seriatim.core.files import load_tensors, sha256
from seriatim.data.catalogue import Entry, File, entries
from seriatim.nn.network import check_memory
from seriatim.training.events import Event, Stepped

SETTINGS: dict[str, Any] = {"model": {"width": 8}, "train": {"evaluate_steps": 4, "batch_size": 4}}
ROWS = [
    {"text": f"{adjective} {noun} number {number}", "label": "good" if adjective in ("fine", "warm") else "bad"}
    for number in range(12)
    for adjective in ("fine", "dull", "warm", "cold")
    for noun in ("film", "book")
]


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("data") / "reviews.csv"
    pd.DataFrame(ROWS).to_csv(path, index=False)
    return path


def train(data: Any, out: Path, **options: Any) -> Any:
    options = {"steps": 12, "seed": 3, "report": False, "settings": SETTINGS} | options
    return seriatim.train("classify", data, "gru", out=out, **options)


def stop_at(step: int) -> Any:
    """Returns a callback that sends the process SIGINT at a step."""

    def callback(event: Event) -> None:
        if isinstance(event, Stepped) and event.step == step:
            os.kill(os.getpid(), signal.SIGINT)

    return callback


@pytest.fixture(scope="module")
def run(table: Path, tmp_path_factory: pytest.TempPathFactory) -> Any:
    return train(table, tmp_path_factory.mktemp("runs") / "run", report=True)


def test_files_of_a_run(run: Any) -> None:
    names = {path.name for path in run.path.iterdir()}
    expected = "config.yaml data.json tokenizer.json model.safetensors checkpoints metrics.jsonl samples.jsonl"
    expected += " summary.json evaluation.json capabilities.json report.html README.md"
    assert set(expected.split()) <= names
    assert (run.path / "config.yaml").read_text().startswith("format: 1")
    assert json.loads((run.path / "data.json").read_text())["format"] == 1
    assert set(run.summary["metrics"]) == {"validation", "test"}
    evaluated = run.history("evaluated")
    assert [event["step"] for event in evaluated] == [4, 8, 12]
    assert {"val_loss", "val_accuracy"} <= evaluated[0].keys()


def test_a_run_opens_with_equal_predictions_and_metrics(run: Any) -> None:
    opened = seriatim.load(run.path)
    texts = [row["text"] for row in ROWS[:5]]
    assert opened.classify(texts) == run.classify(texts)
    assert opened.evaluate() == pytest.approx(run.summary["metrics"]["test"])
    assert opened.classify(texts[0])["prediction"] == opened.classify(texts)[0]["prediction"]
    with pytest.raises(AttributeError, match="has no translate"):
        opened.translate("x")


def test_the_final_evaluation_reports_its_progress(run: Any) -> None:
    events = run.history("evaluating")
    assert [event["split"] for event in events][:1] == ["validation"]
    assert all(0 <= event["done"] <= event["total"] for event in events)
    names = [event["event"] for event in run.history()]
    assert names.index("stopped") < names.index("evaluating"), "the training has ended"
    assert run.state == "finished"


@pytest.mark.parametrize("stop", [1, 3, 5, 8, 11])
def test_resumed_equals_uninterrupted(run: Any, table: Path, tmp_path: Path, stop: int) -> None:
    interrupted = train(table, tmp_path / "cut", callbacks=[stop_at(stop)])
    assert interrupted.summary["reason"] == "SIGINT"
    resumed = seriatim.resume(tmp_path / "cut", report=False)
    whole, again = (load_tensors(r.path / "checkpoints" / "12" / "weights.safetensors") for r in (run, resumed))
    assert all(torch.equal(whole[name], again[name]) for name in whole)
    losses = [[event["loss"] for event in r.history("stepped")] for r in (run, resumed)]
    assert losses[0] == losses[1]


def test_an_existing_run_is_not_overwritten(run: Any, table: Path) -> None:
    with pytest.raises(SeriatimError, match="holds a run already") as caught:
        train(table, run.path)
    assert caught.value.code == "run.exists"


@pytest.mark.parametrize("name", ["README.md", "report.html", "config.yaml"])
def test_files_of_the_user_are_not_overwritten(table: Path, tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text("mine: 1\n")
    with pytest.raises(SeriatimError, match=name) as caught:
        seriatim.train("classify", table, "gru", out=tmp_path, steps=1)
    assert caught.value.code == "run.exists"
    assert [path.name for path in tmp_path.iterdir() if path.is_file() and not path.name.startswith(".")] == [name]
    assert (tmp_path / name).read_text() == "mine: 1\n"


def test_a_new_end(table: Path, tmp_path: Path) -> None:
    train(table, tmp_path / "short", steps=4)
    longer = seriatim.resume(tmp_path / "short", steps=8, report=False)
    assert longer.summary["step"] == 8
    assert seriatim.load(longer.path).config.train.steps == 8


def test_changed_data_is_refused(table: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy.csv"
    copy.write_text(table.read_text())
    run = train(copy, tmp_path / "run", steps=4)
    copy.write_text(table.read_text().replace("film", "song"))
    with pytest.raises(SeriatimError) as caught:
        run.evaluate()
    assert caught.value.code == "data.changed"


def test_default_model_is_named_with_a_reason(table: Path, tmp_path: Path) -> None:
    notes: list[str] = []
    run = seriatim.train("classify", table, steps=1, out=tmp_path / "r", report=False, notify=notes.append)
    assert notes[0].startswith(f"model: {run.config.model.name}, ")
    assert len(notes[0]) > 30
    notes.clear()
    settings = {"model": {"width": 8}}
    seriatim.train("classify", table, steps=1, out=tmp_path / "s", settings=settings, report=False, notify=notes.append)
    assert notes[0].startswith(f"model: {run.config.model.name}, "), "a width does not name a model"


def test_capabilities_are_completed(run: Any) -> None:
    assert {"classify", "predict", "path"} <= set(dir(run))


def test_parameter_budget(table: Path, tmp_path: Path) -> None:
    run = train(table, tmp_path / "r", steps=1, params=5000, settings={})
    assert 0.9 * 5000 < run.summary["parameters"] <= 5000
    assert seriatim.load(run.path).network is not None


def test_unknown_options_get_a_suggestion(table: Path) -> None:
    with pytest.raises(SeriatimError, match='no setting "stepz"') as caught:
        seriatim.train("classify", table, "gru", stepz=3)
    assert "steps" in caught.value.remedy
    for task, model, expected in (("clasify", "gru", "classify"), ("classify", "lstn", "lstm")):
        with pytest.raises(SeriatimError) as caught:
            seriatim.train(task, table, model)
        assert expected in caught.value.remedy


def test_two_trainings_do_not_share_a_folder(table: Path, tmp_path: Path) -> None:
    codes: list[str] = []

    def second(event: Event) -> None:
        if isinstance(event, Stepped) and event.step == 1:
            with pytest.raises(SeriatimError) as caught:
                train(table, tmp_path / "run", steps=1)
            codes.append(caught.value.code)

    run = train(table, tmp_path / "run", steps=2, callbacks=[second])
    assert codes == ["run.locked"]
    assert run.summary["step"] == 2
    assert [path.name for path in tmp_path.iterdir()] == ["run"]


def test_a_network_larger_than_memory_is_refused_before_it_is_built() -> None:
    with pytest.raises(SeriatimError) as raised:
        check_memory(lambda: nn.Linear(10**6, 10**6, bias=False), copies=4)
    assert raised.value.code == "model.memory"
    assert "needs 16,000.0 GB for its weights alone" in raised.value.cause
    check_memory(lambda: nn.Linear(10, 10), copies=4)
    check_memory(lambda: nn.Linear(int(torch.ones(1).sum().item()), 1), copies=4)  # needs values, as a plug-in may


def test_a_run_finds_its_data_folder_again(table: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without SERIATIM_DATA; if the folder has moved, the error says where it was and what to do."""
    file = tmp_path / "copies" / "toy" / "reviews.csv"
    file.parent.mkdir(parents=True)
    file.write_bytes(table.read_bytes())
    entry = Entry("toy", "classify", "a toy", "CC0", 10, (File("toy/reviews.csv", sha256(file)),))
    monkeypatch.setitem(entries(), "toy", entry)
    monkeypatch.chdir(tmp_path)
    run = train("toy", tmp_path / "run", data_dir="copies")
    assert run.stored_data["data_dir"] == str(tmp_path / "copies")
    again = seriatim.load(tmp_path / "run")
    monkeypatch.chdir("/")
    assert again.evaluate() == pytest.approx(run.summary["metrics"]["test"])
    assert set(again.inspect.subjects[0].data[1]) == {"train", "validation", "test"}
    assert seriatim.resume(run.path, steps=13).summary["step"] == 13
    (tmp_path / "copies").rename(tmp_path / "moved")
    for call in (lambda: seriatim.load(run.path).evaluate(), lambda: seriatim.resume(run.path, steps=14)):
        with pytest.raises(SeriatimError, match="does not exist any more") as caught:
            call()
        assert str(tmp_path / "copies") in caught.value.cause
        assert "--data-dir" in caught.value.remedy
    assert seriatim.load(run.path).evaluate(data_dir=str(tmp_path / "moved"))["accuracy"] >= 0
    assert seriatim.resume(run.path, steps=14, data_dir=str(tmp_path / "moved")).summary["step"] == 14
    assert "data_dir" not in train(table, tmp_path / "file").stored_data


def test_tokens_bound_what_an_ngram_model_counts(book: Path, tmp_path: Path) -> None:
    """As they bound what a network reads, with a budget of entries, too."""
    notes: list[str] = []
    options: dict[str, Any] = {"report": False, "notify": notes.append}
    run = seriatim.train("language", book, "ngram", tokens=60, out=tmp_path / "run", **options)
    assert run.summary["tokens"] == 60
    assert any("ngram: the first 60 of" in note for note in notes)
    whole = seriatim.train("language", book, "ngram", out=tmp_path / "whole", **options)
    assert run.summary["parameters"] < whole.summary["parameters"]
    small = seriatim.train("language", book, "ngram", tokens=60, params=120, out=tmp_path / "small", **options)
    assert small.summary["parameters"] <= 120
    more = seriatim.train("language", book, "ngram", tokens="10M", out=tmp_path / "more", **options)
    assert more.summary["metrics"] == whole.summary["metrics"]
