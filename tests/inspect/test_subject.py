"""What is inspected is what the model itself reads and predicts, for every task."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from seriatim.core.errors import SeriatimError
from seriatim.core.registry import models
from seriatim.decode.settings import BeamSettings, GenerationSettings
from seriatim.inspect import Inspector
from seriatim.inspect.subject import Subject
from seriatim.inspect.trace import NAMES


def close(a: Any, b: Any) -> None:
    np.testing.assert_allclose(np.asarray(a, dtype=np.float64), np.asarray(b, dtype=np.float64), rtol=2e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("name", "inputs"),
    [("classify", ("a fine film",)), ("two", ("a fine film", "dull")), ("numbers", ("[[0.5, 1], [2, -1]]",))],
)
def test_inputs_of_a_classifier(name: str, inputs: tuple[str, ...], make_subject: Any) -> None:
    subject = make_subject(name)
    reading = subject.read(*inputs)
    (scores, _), trace = subject.run(reading)
    row = inputs[0] if len(inputs) == 1 else inputs
    probabilities = subject.predictor.call("classify", [row], probabilities=True)[0]["probabilities"]
    close(scores[0].softmax(dim=-1), list(probabilities.values()))
    assert len(reading.names) == trace["layer0.attention"].shape[-1] == reading.inputs.shape[1]
    if name != "numbers":
        assert reading.names[0] == "[CLS]"
        assert reading.names.count("[SEP]") == len(inputs)


def test_words_of_a_tagger(make_subject: Any) -> None:
    subject = make_subject("tag")
    reading = subject.read("a fine film")
    (scores, _), trace = subject.run(reading)
    predicted = subject.predictor.call("tag", ["a fine film"])[0]
    assert [subject.predictor.processor.tags[n] for n in scores[0].argmax(dim=-1).tolist()] == predicted["tags"]
    close(scores[0].softmax(dim=-1).amax(dim=-1), predicted["confidence"])
    assert reading.names == ["a", "fine", "film"]
    assert trace["layer1.backward.forget_gate"].shape == (1, 3, 8)
    assert (
        subject.read(example=1).names == subject.predictor.sequences(subject.data[1]["validation"].items, 1)["element"]
    )


def test_a_passage_and_its_question(make_subject: Any) -> None:
    subject = make_subject("answer")
    reading = subject.read("a fine film full of light", "what follows fine?")
    assert reading.names[0] == "[CLS]"
    assert reading.names.count("[SEP]") == 2
    (scores, _), _ = subject.run(reading)
    best = subject.predictor.call("answer", [("a fine film full of light", "what follows fine?")])[0]
    words = best["answer"].split()
    positions = [reading.names.index(word, reading.names.index("[SEP]")) for word in words]
    close(scores[0, positions[0], 0] + scores[0, positions[-1], 1], best["score"])


def test_models_without_text_show_their_own_data(make_subject: Any) -> None:
    subject = make_subject("forecast")
    reading = subject.read()
    assert reading.names == [str(step) for step in range(-12, 0)]
    batch = subject.task.collate(subject.data[1]["validation"].items, np.array([0]))
    assert torch.equal(reading.inputs, batch.inputs)
    assert reading.notes == ("sequence 0 of the validation split",)
    with pytest.raises(SeriatimError, match="does not read text"):
        subject.read("a text")


def test_masked_tokens_of_a_pretrained_encoder(make_subject: Any) -> None:
    subject = make_subject("pretrain")
    for texts in (("a fine [MASK] full",), ("a fine [MASK]", "of light")):
        reading = subject.read(*texts)
        ((masked, _), _), _ = subject.run(reading)
        position = reading.names.index("[MASK]")
        row = texts[0] if len(texts) == 1 else texts
        filled = subject.predictor.call("fill", [row])[0]["masks"][0]
        close(masked[0, position].softmax(dim=-1).topk(len(filled)).values, [one["probability"] for one in filled])


@pytest.mark.parametrize("name", ["gpt", "lstm"])
def test_a_text_of_a_language_model(name: str, make_subject: Any) -> None:
    subject = make_subject(name)
    reading = subject.read("a fine film")
    (scores, _), _ = subject.run(reading)
    log_probs = scores[0, :-1].log_softmax(dim=-1).gather(1, reading.inputs[0, 1:, None])[:, 0]
    scored = subject.predictor.call("score", ["a fine film"])[0]["token_log_probabilities"]
    close(log_probs, [value for _, value in scored])
    assert reading.names[1:] == [token for token, _ in scored]
    second = subject.read(example=1).inputs[0].numpy()
    np.testing.assert_array_equal(second, subject.stream[24:48])


@pytest.mark.parametrize("name", ["transformer", "bahdanau", "luong"])
def test_a_pair_of_a_translator(name: str, make_subject: Any) -> None:
    subject = make_subject(name)
    reading = subject.read("a fine film", target="a enif mlif")
    scores, trace = subject.run(reading)
    log_probs = scores[0].log_softmax(dim=-1).gather(1, reading.batch.targets[0][:, None])[:, 0]
    scored = subject.predictor.call("score", [("a fine film", "a enif mlif")])[0]["token_log_probabilities"]
    close(log_probs, [value for _, value in scored])
    assert reading.predicted == [token for token, _ in scored]
    assert reading.predicted[:-1] == reading.sequences["target"][1:]
    assert trace["alignment"].shape[1:] == (len(reading.predicted), len(reading.names))
    own = subject.read("a fine film")
    tokens = subject.predictor.search(own.encoded, BeamSettings())[0][0].tokens
    assert own.batch.targets[0].tolist() == (tokens or [subject.predictor.eos])
    assert subject.read(example=2).names[-1] == "<eos>"


def test_unknown_tokens_are_named_as_written(make_subject: Any) -> None:
    subject = make_subject("classify")
    reading = subject.read("a 映画 film")
    assert reading.names == ["[CLS]", "a", "映", "画", "film", "[SEP]"]
    assert reading.notes == ("2 of 6 elements are not in the vocabulary: read as [UNK]",)
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
        ("forecast", ("a", "b"), {}, "inspect.unavailable"),
        ("numbers", (), {"example": 999}, "inspect.example"),
        ("numbers", (), {"example": -1}, "inspect.example"),
        ("pretrain", (), {}, "inspect.example"),
    ],
)
def test_what_cannot_be_read(name: str, texts: Any, options: Any, code: str, make_subject: Any) -> None:
    with pytest.raises(SeriatimError) as caught:
        make_subject(name).read(*texts, **options)
    assert caught.value.code == code
    assert caught.value.remedy


# Generation


@pytest.mark.parametrize("name", ["gpt", "lstm", "transformer", "bahdanau", "luong"])
def test_steps_of_a_generation_are_as_the_whole(name: str, make_subject: Any) -> None:
    subject = make_subject(name)
    reading, steps = subject.generate("a fine", tokens=7, seed=3)
    whole = subject.run(reading)[1]
    assert steps.keys() == whole.keys()
    for key, value in whole.items():
        torch.testing.assert_close(steps[key], value, rtol=1e-4, atol=1e-5)
    if name in ("gpt", "lstm"):
        options = GenerationSettings(max_tokens=7, seed=3)
        generated = subject.predictor.decode(["a fine"], options)[0][0].tokens
        assert reading.inputs[0, reading.prompt_length :].tolist() == generated
    else:
        assert len(reading.predicted) <= 7


def test_generations_that_are_refused(make_subject: Any) -> None:
    with pytest.raises(SeriatimError, match="generates no text"):
        make_subject("classify").generate("a", 3)
    with pytest.raises(SeriatimError, match="cannot be generated"):
        make_subject("gpt").generate("a", 0)
    with pytest.raises(SeriatimError) as caught:
        make_subject("gpt").generate("a fine film", 100)
    assert "fewer tokens" in caught.value.remedy


def test_steps_are_bounded_together(make_subject: Any) -> None:
    subject = make_subject("gpt")
    reading, steps = subject.generate("a fine", tokens=9, names=["hidden"])
    size = sum(value.nbytes for value in steps.values())
    subject.trace_steps(reading, ["hidden"], max_bytes=size)
    with pytest.raises(SeriatimError, match="needs more than"):
        subject.trace_steps(reading, ["hidden"], max_bytes=size - 1)


# Networks


@pytest.mark.parametrize("name", sorted(models.names()))
def test_a_fresh_network_of_every_model(name: str) -> None:
    """Every network records something, all of it documented."""
    inspector = Inspector(name)
    subject = inspector.subjects[0]
    if subject.gradient_free:
        with pytest.raises(SeriatimError, match="not a network"):
            inspector.activations()
        return
    assert subject.trace_names
    assert {key.rpartition(".")[2] for key in subject.trace_names} <= NAMES.keys()
    result = inspector.activations()
    assert list(result.notes) == ["a fresh network over 32 random vectors"]
    assert all(np.isfinite(array.values).all() for array in result.arrays.values())


def test_an_untrained_network_is_what_training_starts_with(make_subject: Any) -> None:
    for name in ("lstm", "gpt", "bahdanau"):
        subject = make_subject(name)
        start, fresh = subject.task.build(subject.data[1].train).state_dict(), subject.untrained_network().state_dict()
        assert start.keys() == fresh.keys()
        assert all(torch.equal(value, fresh[key]) for key, value in start.items())
        assert any(not torch.equal(value, start[key]) for key, value in subject.network.state_dict().items())


def test_inspecting_changes_no_weight_and_no_output(make_subject: Any) -> None:
    subject = make_subject("gpt")
    before = {name: value.clone() for name, value in subject.network.state_dict().items()}
    scored = subject.predictor.call("score", ["a fine film"])[0]["log_probability"]
    inspector = Inspector(subject)
    for view in ("attention", "activations", "gradients", "lens", "surprise"):
        inspector.show(view, "a fine film")
    assert all(torch.equal(value, before[name]) for name, value in subject.network.state_dict().items())
    assert subject.predictor.call("score", ["a fine film"])[0]["log_probability"] == scored
    assert not any(parameter.grad is not None for parameter in subject.network.parameters())


@pytest.mark.parametrize("name", ["gpt", "words", "classify"])
def test_spans_of_elements(name: str, make_subject: Any) -> None:
    subject = make_subject(name)
    reading = subject.read("a fine  film")
    text, spans = subject.spans(reading)
    assert spans.shape == (len(reading.names), 2)
    inside = spans[spans[:, 1] > spans[:, 0]]
    assert (inside[1:, 0] >= inside[:-1, 1]).all(), "in order, without overlap"
    covered = "".join(text[start:end] for start, end in inside.tolist())
    assert covered.replace(" ", "") == "afinefilm"
    assert subject.spans(subject.read(example=0)) is None


# Threads


@pytest.mark.parametrize(
    ("name", "training", "views"),
    [
        ("letters", False, {"surprise": ("a fine film",), "backoff": ("of light",)}),
        ("plain", False, {"surprise": ("a fine film",), "gradients": ("full of light and",), "neighbors": ("a",)}),
        ("gpt", True, {"attention": ("a fine film",), "activations": ("a fine film",), "entropy": ("of light",)}),
        ("lstm", True, {"gates": ("a fine film",), "activations": ("of light",)}),
        ("classify", True, {"saliency": ("a fine film",), "attention_steps": ("a film",), "gradients": ("of light",)}),
    ],
)
def test_threads_that_share_a_subject_get_the_same_arrays(
    name: str, training: bool, views: Any, make_subject: Any
) -> None:
    """Also if every cache is empty when the threads begin, and if the network is in training mode, with dropout."""
    subject = make_subject(name)
    expected = {view: Inspector(subject).arrays(view, *texts) for view, texts in views.items()}
    fresh = subject if training else make_subject(name)  # what predictors open sets the evaluation mode, once
    if training:
        drop = nn.Dropout(0.5)
        fresh.network.add_module("drop", drop)
        fresh.network.train()
        fresh.network.input.register_forward_hook(lambda module, inputs, output: drop(output))
    inspector = Inspector(fresh)
    jobs = list(views.items()) * 8
    with ThreadPoolExecutor(6) as pool:
        results = list(pool.map(lambda job: (job[0], inspector.arrays(job[0], *job[1])), jobs))
    if training:
        assert all(module.training for module in fresh.network.modules()), "the mode is restored"
    for view, arrays in results:
        for array, value in arrays.items():
            if not value.is_text:
                np.testing.assert_array_equal(value.values, expected[view][array].values, err_msg=f"{view} {array}")


def test_what_a_subject_computes_once_is_computed_by_one_thread(make_subject: Any) -> None:
    predictor, opened = make_subject("gpt").predictor, []

    def open_slowly() -> Any:
        opened.append(1)
        time.sleep(0.05)
        return predictor

    subject = Subject("gpt", predictor.task.config.model, open_slowly)
    with ThreadPoolExecutor(4) as pool:
        networks = list(pool.map(lambda n: subject.network, range(4)))
    assert len(opened) == 1
    assert all(network is networks[0] for network in networks)
