"""Readings and traces of runs: what is looked into is what the run itself reads and says, whatever its task."""

from __future__ import annotations

import csv
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import seriatim
from helpers import asked, tagged
from seriatim import SeriatimError
from seriatim.core import registry
from seriatim.decode.options import DecodeSettings
from seriatim.inspect import Inspector
from seriatim.inspect.generation import generated, stepwise
from seriatim.inspect.subject import Subject, subjects
from seriatim.inspect.trace import NAMES, Trace, traced
from seriatim.nn.network import token_network

TEXT = "a fine film full of light and warm humour that dull people will not see twice"
WORDS = TEXT.split()
TINY = {"width": 8, "layers": 2}
HEADED = TINY | {"heads": 2}


def _table(path: Path, rows: list[list[Any]]) -> str:
    with open(path, "w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows(rows)
    return str(path)


def _texts(folder: Path) -> str:
    rows = [[" ".join(WORDS[n % 5 : n % 5 + 2 + n % 6]), "good" if n % 5 < 2 else "bad"] for n in range(60)]
    return _table(folder / "texts.csv", [["text", "label"], *rows])


def _two_texts(folder: Path) -> str:
    rows = [[" ".join(WORDS[n % 5 : n % 5 + 3]), WORDS[n % 7], "ab"[n % 2]] for n in range(60)]
    return _table(folder / "two.csv", [["text1", "text2", "label"], *rows])


def _numbers(folder: Path) -> str:
    draw = np.random.default_rng(2)
    lines = []
    for number in range(60):
        values = draw.normal(size=(2 + number % 6, 2)).round(3)
        lines.append(json.dumps({"x": values.tolist(), "label": "up" if values.sum() > 0 else "down"}))
    (folder / "numbers.jsonl").write_text("\n".join(lines), encoding="utf-8")
    return str(folder / "numbers.jsonl")


def _series(folder: Path) -> str:
    rows = [[n, f"{math.sin(n / 4):.4f}"] for n in range(200)]
    return _table(folder / "series.csv", [["time", "value"], *rows])


def _rolls(folder: Path) -> str:
    np.save(folder / "rolls.npy", (np.random.default_rng(5).random((12, 9, 88)) < 0.05).astype(np.float32))
    return str(folder / "rolls.npy")


def _documents(folder: Path) -> str:
    texts = ["\n".join(" ".join(WORDS[n % 4 : n % 4 + 5]) + "." for _ in range(3)) for n in range(40)]
    (folder / "documents.txt").write_text("\n\n".join(texts), encoding="utf-8")
    return str(folder / "documents.txt")


def _pairs(folder: Path) -> str:
    other = {word: word[::-1] for word in WORDS}
    rows = [WORDS[n % 6 : n % 6 + 2 + n % 5] for n in range(60)]
    lines = ["\t".join([" ".join(row), " ".join(other[word] for word in row)]) for row in rows]
    (folder / "pairs.tsv").write_text("\n".join(lines), encoding="utf-8")
    return str(folder / "pairs.tsv")


def _text(folder: Path) -> str:
    (folder / "book.txt").write_text(" ".join(WORDS) * 60, encoding="utf-8")
    return str(folder / "book.txt")


# name → task, data, model, settings on top
RUNS: dict[str, tuple[str, Any, dict[str, Any], dict[str, Any]]] = {
    "classify": ("classify", _texts, {"name": "bert", **HEADED}, {}),
    "two": ("classify", _two_texts, {"name": "bert", **HEADED}, {"data": {"column": "text1,text2"}}),
    "numbers": ("classify", _numbers, {"name": "gpt", **HEADED}, {"data": {"column": "x"}}),
    "tag": ("tag", tagged, {"name": "lstm", "bidirectional": True, **TINY}, {"task": {"characters": 4}}),
    "answer": ("answer", asked, {"name": "bert", **HEADED}, {}),
    "forecast": ("forecast", _series, {"name": "gpt", **HEADED}, {"task": {"length": 12, "horizon": 2}}),
    "music": ("music", _rolls, {"name": "gru", **TINY}, {}),
    "pretrain": ("pretrain", _documents, {"name": "bert", **HEADED}, {"task": {"length": 24}}),
    "gpt": ("language", _text, {"name": "gpt", **HEADED}, {"task": {"length": 24}}),
    "lstm": ("language", _text, {"name": "lstm", **TINY}, {"task": {"length": 24}}),
    "transformer": ("translate", _pairs, {"name": "transformer", **HEADED}, {"data": {"held_out": 6}}),
    "bahdanau": ("translate", _pairs, {"name": "bahdanau", **TINY}, {"data": {"held_out": 6}}),
    "attended": ("translate", _pairs, {"name": "gru", **TINY}, {"data": {"held_out": 6}}),
}


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The run of a name, trained for a step when it is asked for."""
    folder = tmp_path_factory.mktemp("runs")

    def make(name: str) -> Any:
        if not (folder / name).exists():
            task, data, model, settings = RUNS[name]
            settings = settings | {"model": model, "train": {"steps": 2, "batch": 4}}
            seriatim.train(task, data(folder), settings=settings, out=folder / name)
        return seriatim.load(folder / name)

    return make


def subject_of(run: Any) -> Subject:
    return subjects([run])[0]


def close(a: Any, b: Any) -> None:
    np.testing.assert_allclose(np.asarray(a, dtype=np.float64), np.asarray(b, dtype=np.float64), rtol=2e-5, atol=1e-6)


# What is read is what the run reads


@pytest.mark.parametrize(("name", "given"), [("classify", "a fine film"), ("two", ("a fine film", "dull"))])
def test_texts_of_a_classifier(name: str, given: Any, trained: Any) -> None:
    run = trained(name)
    subject = subject_of(run)
    texts = (given,) if isinstance(given, str) else given
    reading = subject.read(*texts)
    (scores, _), trace = subject.answer(reading)
    close(scores[0].softmax(dim=-1), list(run.predict(given)["probabilities"].values()))
    assert reading.names[0] == "[CLS]"
    assert "".join(reading.names).count("[SEP]") == len(texts)
    assert len(reading.names) == trace["layer0.attention"].shape[-1] == reading.inputs.shape[1]


def test_numbers_as_they_are_written_and_of_the_data(trained: Any) -> None:
    run = trained("numbers")
    subject = subject_of(run)
    reading = subject.read("[[0.5, 1], [2, -1]]")
    (scores, _), _ = subject.answer(reading)
    close(scores[0].softmax(dim=-1), list(run.predict(["[[0.5, 1], [2, -1]]"])[0]["probabilities"].values()))
    assert reading.names == ["0", "1"]
    second = subject.read(example=1)
    wanted = subject.data.parts["valid"].inputs[1]
    close(second.inputs[0], wanted)
    close(subject.read().inputs[0], subject.data.parts["valid"].inputs[0])


def test_words_of_a_tagger(trained: Any) -> None:
    run = trained("tag")
    subject = subject_of(run)
    reading = subject.read("a fine film")
    (scores, _), trace = subject.answer(reading)
    said = run.predict("a fine film")
    assert [run.predictor.coder.labels[index] for index in scores[0].argmax(dim=-1).tolist()] == said["prediction"]
    close(scores[0].softmax(dim=-1).amax(dim=-1), said["confidence"])
    assert reading.names == ["a", "fine", "film"]
    assert trace["layer1.backward.forget_gate"].shape == (1, 3, 8)
    assert subject.read(example=1).names == subject.data.parts["valid"].words()[1]


def test_a_question_and_its_passage(trained: Any) -> None:
    run = trained("answer")
    subject = subject_of(run)
    reading = subject.read("what follows fine?", "a fine film full of light")
    assert reading.names[:1] == ["[CLS]"]
    assert reading.names.count("[SEP]") == 2
    (scores, _), _ = subject.answer(reading)
    best = run.answer("a fine film full of light", "what follows fine?")
    places = [reading.names.index(word, reading.names.index("[SEP]")) for word in best.text.split()]
    close(scores[0, places[0], 0] + scores[0, places[-1], 1], best.score)


@pytest.mark.parametrize("name", ["forecast", "music"])
def test_runs_without_text_show_their_own_data(name: str, trained: Any) -> None:
    run = trained(name)
    subject = subject_of(run)
    reading = subject.read()
    assert len(reading.names) == reading.inputs.shape[1]
    if name == "music":
        batch = subject.data.collate("valid", np.array([0]))
        assert torch.equal(reading.inputs, batch.inputs)
    else:
        assert reading.names == [str(step) for step in range(-12, 0)]
        (said, _), _ = subject.answer(reading)
        at = subject.data._origins("valid")
        from seriatim.tasks._forecast_predict import forecasts

        found = forecasts(run.predictor.model, subject.data.arrays, run.config.task, at.rows[:1], at.places[:1])
        places = (subject.data.arrays.starts[at.rows[:1]] + at.places[:1] - 1)[:, None]
        anchors = subject.data.arrays.anchors(at.rows[:1], places, run.config.task.outputs)
        close(said[0, -1].numpy() + anchors.reshape(-1), found.reshape(-1))
    with pytest.raises(SeriatimError, match="does not read text"):
        subject.read("a text")


def test_hidden_tokens_of_a_pretrained_model(trained: Any) -> None:
    run = trained("pretrain")
    subject = subject_of(run)
    for texts in (("a fine [MASK] full",), ("a fine [MASK]", "of light")):
        reading = subject.read(*texts)
        ((masked, _), _), _ = subject.answer(reading)
        place = reading.names.index("[MASK]")
        answer = run.predict([texts[0] if len(texts) == 1 else texts])[0]["gaps"][0]
        likely, best = masked[0, place].softmax(dim=-1).topk(len(answer))
        close(likely, [one["probability"] for one in answer])
        assert [run.predictor.coder.tokenizer.names[int(i)] for i in best] == [one["token"] for one in answer]


@pytest.mark.parametrize("name", ["gpt", "lstm"])
def test_a_text_of_a_language_model(name: str, trained: Any) -> None:
    run = trained(name)
    subject = subject_of(run)
    reading = subject.read("a fine film")
    (scores, _), _ = subject.answer(reading)
    likely = scores[0, :-1].log_softmax(dim=-1).gather(1, reading.inputs[0, 1:, None])[:, 0]
    close(likely, [value for _, value in run.score("a fine film").pieces])
    assert reading.names[1:] == [piece for piece, _ in run.score("a fine film").pieces]


@pytest.mark.parametrize("name", ["transformer", "bahdanau", "attended"])
def test_a_pair_of_a_translator(name: str, trained: Any) -> None:
    run = trained(name)
    subject = subject_of(run)
    for target in ("a enif mlif", None):
        reading = subject.read("a fine film", target=target)
        scores, trace = subject.answer(reading)
        likely = scores[0].log_softmax(dim=-1).gather(1, reading.target.tokens[:, None])[:, 0]
        if target is None:
            assert reading.target.tokens.tolist() == run.translations(["a fine film"])[0][0].tokens
        else:
            close(likely, [value for _, value in run.score("a fine film", target).pieces])
            close(trace["alignment"][0], run.alignment("a fine film", target).weights)
        assert reading.target.said[:-1] == reading.target.names[1:]
        assert trace["alignment"].shape[1:] == (len(reading.target.said), len(reading.names))
    third = subject.read(example=2)
    assert "".join(third.names).replace("␣", "").startswith(subject.data.parts["valid"].examples.inputs[2].split()[0])


def test_what_the_vocabulary_lacks_is_shown_as_written(trained: Any) -> None:
    subject = subject_of(trained("classify"))
    reading = subject.read("a 映画 film")
    assert reading.names == ["[CLS]", "a", "映", "画", "film", "[SEP]"]
    assert reading.notes == ["2 of 6 elements are not in the vocabulary: all read as [UNK]"]
    assert not subject.read("a film").notes


@pytest.mark.parametrize(
    ("name", "texts", "options", "code"),
    [
        ("classify", ("a", "b"), {}, "inspect.text"),
        ("two", ("a",), {}, "inspect.text"),
        ("answer", ("a",), {}, "inspect.text"),
        ("gpt", ("a", "b"), {}, "inspect.text"),
        ("gpt", ("a",), {"target": "b"}, "inspect.target"),
        ("gpt", ("a fine film " * 20,), {}, "inspect.length"),
        ("classify", ("a " * 600,), {}, "inspect.length"),
        ("gpt", ("a",), {"example": 1}, "inspect.example"),
        ("numbers", (" ",), {}, "inspect.text"),
        ("music", ("a", "b"), {}, "inspect.offer"),
        ("numbers", (), {"example": 999}, "inspect.example"),
        ("numbers", (), {"example": -1}, "inspect.example"),
        ("pretrain", (), {}, "inspect.offer"),
    ],
)
def test_what_cannot_be_read(name: str, texts: Any, options: Any, code: str, trained: Any) -> None:
    with pytest.raises(SeriatimError) as caught:
        subject_of(trained(name)).read(*texts, **options)
    assert caught.value.code == code
    assert caught.value.remedy


def test_units_of_a_tagger_that_reads_spelling(trained: Any) -> None:
    """Vectors of words and of their spelling go in together, so fresh networks are made for both."""
    run = trained("tag")
    seen = run.inspect.cells("a fine (film) full of light. " * 12)
    assert seen.arrays["correlation"].values.shape[1] == 2 * run.config.model.layers * run.config.model.width
    with pytest.raises(SeriatimError, match="has no tokens"):
        run.inspect.cells("   ")


def test_units_are_not_shown_of_what_reads_two_texts(trained: Any) -> None:
    for name in ("two", "answer"):
        assert "cells" not in trained(name).inspect.offered()


# Step by step


@pytest.mark.parametrize("name", ["gpt", "lstm"])
def test_what_happens_while_it_writes(name: str, trained: Any) -> None:
    """The text is what `generate` gives, and its steps joined are as the whole text read at once."""
    run = trained(name)
    subject = subject_of(run)
    reading, steps = generated(subject, "a fine", tokens=9, seed=3)
    wrote = run.generations(["a fine"], DecodeSettings(max_tokens=9, seed=3))[0][0]
    assert len(reading.names) - reading.written == wrote.tokens
    assert run.predictor.tokenizer.decode(reading.inputs[0, reading.written :].tolist()) in (
        wrote.text,
        wrote.text.strip(),
    )
    whole = subject.trace(reading)
    assert steps.keys() == whole.keys()
    for key, value in whole.items():
        torch.testing.assert_close(steps[key], value, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", ["transformer", "bahdanau", "attended"])
def test_what_happens_while_it_translates(name: str, trained: Any) -> None:
    run = trained(name)
    subject = subject_of(run)
    reading, steps = generated(subject, "a fine film", tokens=7)
    assert len(reading.target.said) <= 7
    whole = subject.trace(reading)
    assert steps.keys() == whole.keys()
    for key, value in whole.items():
        torch.testing.assert_close(steps[key], value, rtol=1e-4, atol=1e-5)


def test_what_does_not_write_says_so(trained: Any) -> None:
    with pytest.raises(SeriatimError, match="writes nothing"):
        generated(subject_of(trained("classify")), "a", 3)
    with pytest.raises(SeriatimError, match="are none"):
        generated(subject_of(trained("gpt")), "a", 0)
    with pytest.raises(SeriatimError, match="ask for fewer tokens"):
        generated(subject_of(trained("gpt")), "a fine film", 100)


# Memory


def _gpt(**more: Any) -> Any:
    settings = registry.models.load("gpt").Settings(name="gpt", width=8, heads=2, layers=2, context=256, **more)
    return token_network(settings, 11, 256).eval()


def test_a_trace_is_bounded_and_says_what_to_do() -> None:
    network, tokens = _gpt(), torch.zeros(1, 200, dtype=torch.long)
    layer = 2 * 200 * 200 * 4  # bytes of the weights of a layer
    assert traced(network, tokens, wanted=["attention"], most=2 * layer)[1].bytes == 2 * layer
    with pytest.raises(SeriatimError) as caught:
        traced(network, tokens, wanted=["attention"], most=2 * layer - 1)
    assert caught.value.code == "inspect.memory"
    assert "shorter text" in caught.value.remedy
    assert traced(network, tokens, wanted=["layer1.attention"], most=layer)[1].keys() == {"layer1.attention"}


def test_it_refuses_before_it_takes_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    from seriatim.nn import transformer

    def never(*_: Any) -> None:
        raise AssertionError("worked out what has no room")

    monkeypatch.setattr(transformer, "attention_weights", never)
    with pytest.raises(SeriatimError, match="takes more than"):
        traced(_gpt(), torch.zeros(1, 200, dtype=torch.long), wanted=["attention"], most=1000)


def test_steps_are_bounded_together(trained: Any) -> None:
    subject = subject_of(trained("gpt"))
    reading, steps = generated(subject, "a fine", tokens=9, wanted=["hidden"])
    size = sum(value.nbytes for value in steps.values())
    stepwise(subject, reading, ["hidden"], most=size)
    with pytest.raises(SeriatimError, match="takes more than"):
        stepwise(subject, reading, ["hidden"], most=size - 1)


def test_traces_keep_no_graph() -> None:
    trace = Trace()
    with torch.enable_grad():
        _gpt()(torch.zeros(1, 5, dtype=torch.long), None, None, trace)
    assert trace
    assert not any(value.requires_grad for value in trace.values())


def test_a_network_that_learns_goes_on_learning() -> None:
    network = _gpt().train()
    network.backbone.blocks[0].eval()
    before = [part.training for part in network.modules()]
    traced(network, torch.zeros(1, 5, dtype=torch.long))
    assert [part.training for part in network.modules()] == before
    with pytest.raises(SeriatimError):
        traced(network, torch.zeros(1, 5, dtype=torch.long), most=1)
    assert [part.training for part in network.modules()] == before


# Fresh networks


@pytest.mark.parametrize("name", sorted(registry.models.names()))
def test_every_model_of_the_registry(name: str) -> None:
    """A fresh network of every model that learns has something to show, all of it documented."""
    subject = Inspector(name).subjects[0]
    if subject.counts:
        with pytest.raises(SeriatimError, match="counts"):
            Inspector(name).activations()
        return
    trace = subject.trace(subject.read())
    assert trace
    assert {key.rpartition(".")[2] for key in trace} <= NAMES.keys()
    seen = Inspector(name).activations()
    assert seen.notes == ["a fresh network over 32 random vectors"]
    assert all(np.isfinite(array.values).all() for array in seen.arrays.values())


def test_reports_show_the_inside_after_a_hundred_steps_and_a_fault_in_it_costs_nothing(
    book: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def trained(name: str, steps: int) -> Path:
        run = seriatim.train(
            "language", data=str(book), model="gru", steps=steps, out=tmp_path / name, batch=2, length=8,
            settings={"model": {"width": 8}},
        )  # fmt: skip
        return run.path

    views = json.loads((trained("long", 100) / "inspection.json").read_text(encoding="utf-8"))
    assert {"strip", "lines"} <= {view["kind"] for view in views}
    assert "Inside the model" in (tmp_path / "long" / "report.html").read_text(encoding="utf-8")
    assert not (trained("short", 4) / "inspection.json").exists()
    monkeypatch.setattr("seriatim.inspect.overview.overview", lambda run, task: 1 / 0)
    assert (trained("broken", 100) / "report.html").exists()
