"""Attention, alignment, entropy, activations and the logit lens: beside transformers, by hand, and drawn."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import seriatim
from seriatim import SeriatimError
from seriatim.cli import run as cli
from seriatim.data.tokenizers import Tokenizer
from seriatim.exchange import import_model
from seriatim.inspect import Inspector
from seriatim.inspect import activations as activations_view
from seriatim.inspect.attention import Weights, folded
from seriatim.inspect.entropy import distance, entropy, possible
from seriatim.inspect.lens import through
from seriatim.inspect.subject import subjects
from seriatim.inspect.trace import traced
from seriatim.report.views import drawn
from test_hub import CASES, Case, asked, random_peer, saved, tokens

__all__ = ["tokens"]

transformers: Any = pytest.importorskip("transformers")
CLOSE = {"rtol": 0, "atol": 1e-5}


def theirs(architecture: str, folder: Path, tokens: dict[str, Tokenizer]) -> tuple[Case, Any, Any]:
    """A random model of theirs that tells its weights, and the run that it became."""
    case = next(one for one in CASES if one.architecture == architecture)
    tokenizer = tokens[case.tokenizer]
    peer = random_peer(case, 0, tokenizer)
    run = import_model(saved(peer, folder / "theirs", tokenizer), folder / "run")
    peer.set_attn_implementation("eager")
    return case, peer, run


def told(peer: Any, given: dict[str, Any]) -> Any:
    with torch.no_grad():
        return peer(**given, output_attentions=True, output_hidden_states=True)


def left(block: Tensor, real: Tensor, fill: int) -> Tensor:
    """Rows that are padded on the right, padded on the left."""
    moved = torch.full_like(block, fill)
    for row, length in enumerate(real.sum(dim=1).tolist()):
        moved[row, block.shape[1] - length :] = block[row, :length]
    return moved


@pytest.mark.parametrize("side", ["right", "left"])
@pytest.mark.parametrize("architecture", ["BertForSequenceClassification", "BertForMaskedLM", "GPT2LMHeadModel"])
def test_weights_and_streams_are_those_of_transformers(
    architecture: str, side: str, tokens: dict[str, Tokenizer], tmp_path: Path
) -> None:
    case, peer, run = theirs(architecture, tmp_path, tokens)
    torch.manual_seed(3)
    batch = case.batch(tokens[case.tokenizer])
    real = batch["real"]
    given: dict[str, Any] = asked(batch)
    if side == "left":
        places = torch.arange(real.shape[1]).expand_as(real)
        given = {name: left(value, real, 0) for name, value in given.items()}
        given["position_ids"] = left(places, real, 0)
    found = told(peer, given)
    _, trace = traced(run.predictor.model, batch["ids"], real)
    layers = run.config.model.layers
    assert len(found.attentions) == layers
    for row, length in enumerate(real.sum(dim=1).tolist()):
        here = slice(0, length) if side == "right" else slice(real.shape[1] - length, None)
        for index, weights in enumerate(found.attentions):
            ours = trace[f"layer{index}.attention"][row]
            torch.testing.assert_close(ours[:, :length, :length], weights[row][:, here, here], **CLOSE)
            assert not ours[:, length:].any()
            assert not ours[:, :, length:].any()
        streams = [trace["embedded"], *(trace[f"layer{index}.hidden"] for index in range(layers))]
        count = layers + 1 if "Bert" in architecture else layers  # GPT-2 tells its last one behind the norm
        for ours, stream in zip(streams[:count], found.hidden_states[:count], strict=True):
            torch.testing.assert_close(ours[row, :length], stream[row, here], **CLOSE)


def test_cross_attention_is_that_of_marian(tokens: dict[str, Tokenizer], tmp_path: Path) -> None:
    case, peer, run = theirs("MarianMTModel", tmp_path, tokens)
    torch.manual_seed(3)
    batch = case.batch(tokens[case.tokenizer])
    real = batch["real"]
    found = told(peer, asked(batch))
    _, trace = traced(run.predictor.model, batch["ids"], batch["target"], real)
    for name, layers in (
        ("decoder.{}.cross_attention", found.cross_attentions),
        ("decoder.{}.attention", found.decoder_attentions),
    ):
        assert len(layers) == run.config.model.decoder_layers
        for index, weights in enumerate(layers):
            torch.testing.assert_close(trace[name.format(f"layer{index}")], weights, **CLOSE)
    for index, weights in enumerate(found.encoder_attentions):
        ours = trace[f"encoder.layer{index}.attention"]
        for row, length in enumerate(real.sum(dim=1).tolist()):
            torch.testing.assert_close(ours[row, :, :length, :length], weights[row, :, :length, :length], **CLOSE)
    mean = torch.stack(found.cross_attentions).mean(dim=(0, 2))
    torch.testing.assert_close(trace["alignment"], mean, **CLOSE)


@pytest.mark.parametrize(
    "architecture", ["GPT2LMHeadModel", "OpenAIGPTLMHeadModel", "BertForMaskedLM", "MarianMTModel"]
)
def test_the_last_layer_of_the_lens_is_what_the_model_says(
    architecture: str, tokens: dict[str, Tokenizer], tmp_path: Path
) -> None:
    """Bit for bit; and the layers below are those of transformers, read by their head."""
    _, peer, run = theirs(architecture, tmp_path, tokens)
    subject = subjects([run])[0]
    reading = subject.read("The old cat", target="a dog" if architecture == "MarianMTModel" else None)
    layers, scores = through(subject, reading)
    answer, _ = subject.answer(reading)
    if architecture == "MarianMTModel":
        said = answer[0]
        given = {"input_ids": reading.inputs, "decoder_input_ids": reading.target.inputs}
        streams = told(peer, given).decoder_hidden_states
        read = lambda x: peer.lm_head(x) + peer.final_logits_bias  # noqa: E731
    else:
        said = answer[0][0][0] if architecture == "BertForMaskedLM" else answer[0][0]
        streams = told(peer, {"input_ids": reading.inputs}).hidden_states
        if architecture == "BertForMaskedLM":
            read = peer.cls
        else:
            norm = peer.transformer.ln_f if architecture == "GPT2LMHeadModel" else torch.nn.Identity()
            read = lambda x: peer.lm_head(norm(x))  # noqa: E731
    assert torch.equal(scores[-1], said)
    assert layers == ["input", *(f"layer {index}" for index in range(len(scores) - 1))]
    with torch.no_grad():
        for ours, stream in list(zip(scores, streams, strict=True))[:-1]:
            torch.testing.assert_close(ours, read(stream)[0], rtol=0, atol=3e-5)


def test_what_the_lens_tells(tokens: dict[str, Tokenizer], tmp_path: Path) -> None:
    _, _, run = theirs("GPT2LMHeadModel", tmp_path, tokens)
    subject = subjects([run])[0]
    reading = subject.read("The old cat")
    _, scores = through(subject, reading)
    seen = Inspector(run).lens("The old cat")
    chances = torch.stack(scores).softmax(dim=-1).numpy()
    row = reading.inputs[0].tolist()
    true = seen.arrays["true"].values
    for layer in range(len(chances)):
        for place in range(len(row) - 1):
            wanted = chances[layer, place]
            assert true[layer, place] == pytest.approx(wanted[row[place + 1]])
            assert seen.arrays["likeliest"].values[layer, place] == pytest.approx(wanted.max())
            assert seen.arrays["token"].values[layer, place] == run.predictor.tokenizer.token(int(wanted.argmax()))
            rank = int((wanted > wanted[row[place + 1]]).sum()) + 1
            assert seen.arrays["rank of the true"].values[layer, place] == rank
    assert np.isnan(true[:, -1]).all(), "nobody knows what comes after the end"
    assert seen.record()["arrays"]["true"]["values"][0][-1] is None
    at = Inspector(run).lens("The old cat", position=1)
    assert [line.split()[0:2] for line in at.text[:2]] == [["layer", "1"], ["layer", "0"]]
    with pytest.raises(SeriatimError, match="no position 99"):
        Inspector(run).lens("The old cat", position=99)


def test_bert_is_asked_for_what_stands_there(tokens: dict[str, Tokenizer], tmp_path: Path) -> None:
    _, _, run = theirs("BertForMaskedLM", tmp_path, tokens)
    seen = Inspector(run).lens("a [MASK] cat")
    place = list(seen.arrays["true"].axes[1][1]).index("[MASK]")
    true = seen.arrays["true"].values
    assert np.isnan(true[:, place]).all()
    assert np.isfinite(np.delete(true, place, axis=1)).all()
    _, scores = through(subjects([run])[0], subjects([run])[0].read("a [MASK] cat"))
    first = run.predictor.coder.tokenizer.cls
    assert true[-1, 0] == pytest.approx(float(scores[-1].softmax(dim=-1)[0, first]))


# Entropy


def test_entropy_by_hand() -> None:
    values = np.array([[[[1.0, 0, 0, 0], [0.5, 0.5, 0, 0], [0.25, 0.25, 0.5, 0], [0.25, 0.25, 0.25, 0.25]]]])
    np.testing.assert_allclose(entropy(values)[0, 0], [0, 1, 1.5, 2])
    np.testing.assert_allclose(distance(values)[0, 0], [0, 0.5, 0.75, 1.5])
    names = list("abcd")
    back = Weights("", values, names, names)
    np.testing.assert_allclose(possible(back), np.log2([1, 2, 3, 4]))
    assert back.backwards
    both = Weights("", np.full((1, 1, 4, 4), 0.25), names, names)
    np.testing.assert_allclose(possible(both), [2] * 4)
    across = Weights("cross", np.full((1, 1, 2, 4), 0.25), names[:2], names)
    np.testing.assert_allclose(possible(across), [2, 2])


def test_folded_weights_still_sum_to_one() -> None:
    draw = np.random.default_rng(0).random((2, 3, 11, 7))
    values = draw / draw.sum(axis=-1, keepdims=True)
    rows, columns, small = folded([str(n) for n in range(11)], [str(n) for n in range(7)], values, most=4)
    assert (rows, columns) == (["0", "3", "6", "9"], ["0", "2", "4", "6"])
    np.testing.assert_allclose(small.sum(axis=-1), 1)
    np.testing.assert_allclose(small[1, 2, 3, 0], values[1, 2, 9:, :2].sum(axis=-1).mean())
    same = folded(list("ab"), list("xyz"), values[..., :2, :3])
    np.testing.assert_array_equal(same[2], values[..., :2, :3])


# Views


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs")
    book = folder / "book.txt"
    book.write_text("the old cat saw the new hat and sat . " * 60, encoding="utf-8")
    small = {"train": {"steps": 2, "batch": 4}}
    model = {"width": 8, "heads": 2, "layers": 2}
    language = {"model": {"name": "gpt", **model}, "task": {"length": 40}}
    seriatim.train("language", str(book), settings=small | language, out=folder / "gpt")
    words = ["one", "two", "three", "four", "five", "six"]
    lines = [" ".join(words[n % 3 : n % 3 + 1 + n % 4]) for n in range(50)]
    (folder / "pairs.tsv").write_text("\n".join(f"{line}\t{line.upper()}" for line in lines), encoding="utf-8")
    for name in ("transformer", "seq2seq", "bahdanau"):
        own = {"name": name, "width": 8, **(model if name == "transformer" else {})}
        settings = small | {"model": own, "data": {"held_out": 5}}
        seriatim.train("translate", str(folder / "pairs.tsv"), settings=settings, out=folder / name)
    return folder


def test_attention_of_all_of_one_layer_and_of_one_head(runs: Path) -> None:
    inspector = Inspector(runs / "gpt")
    every = inspector.attention("the old cat").arrays["attention"]
    names = ["layer 0", "layer 1"], ["head 0", "head 1"]
    assert [list(labels) for _, labels in every.axes[:2]] == list(names)
    reading = inspector.subjects[0].read("the old cat")
    trace = inspector.subjects[0].trace(reading)
    for index in range(2):
        np.testing.assert_array_equal(every.values[index], trace[f"layer{index}.attention"][0].numpy())
    layer = inspector.attention("the old cat", layer=1).arrays["attention"]
    np.testing.assert_array_equal(layer.values, every.values[1:])
    assert list(layer.axes[0][1]) == ["layer 1"]
    head = inspector.attention("the old cat", layer=1, head=0)
    np.testing.assert_array_equal(head.arrays["attention"].values, every.values[1:, :1])
    assert [view["kind"] for view in head.views] == ["heat"]
    column = inspector.attention("the old cat", head=1).arrays["attention"]
    np.testing.assert_array_equal(column.values, every.values[:, 1:])


def test_attention_over_generation(runs: Path) -> None:
    seen = Inspector(runs / "gpt").attention("the ", generate=6)
    values = seen.arrays["attention"].values
    assert values.shape[2] == values.shape[3] == len(seen.arrays["attention"].axes[2][1])
    np.testing.assert_allclose(values.sum(axis=-1), 1, atol=1e-6)
    assert not np.triu(values, 1).any()
    assert "6 of" in seen.notes[0]


@pytest.mark.parametrize("part", [None, "cross", "encoder", "decoder"])
def test_attention_of_the_parts_of_a_translator(part: str | None, runs: Path) -> None:
    seen = Inspector(runs / "transformer").attention("one two", part=part, target="ONE")
    values, axes = seen.arrays["attention"].values, seen.arrays["attention"].axes
    np.testing.assert_allclose(values.sum(axis=-1), 1, atol=1e-6)
    source, target = (
        len(Inspector(runs / "transformer").attention("one two", part=p, target="ONE").arrays["attention"].axes[2][1])
        for p in ("encoder", "decoder")
    )
    assert (
        values.shape[2:]
        == {None: (target, source), "cross": (target, source), "encoder": (source,) * 2, "decoder": (target,) * 2}[part]
    )
    assert values.shape[2:] == tuple(len(names) for _, names in axes[2:])
    assert np.triu(values, 1).any() == (part != "decoder")


@pytest.mark.parametrize("name", ["transformer", "bahdanau"])
def test_alignment_is_that_of_the_run(name: str, runs: Path) -> None:
    run = seriatim.load(runs / name)
    looked = run.alignment("one two three", "ONE TWO")
    by_words = Inspector(run).alignment("one two three", target="ONE TWO").arrays["alignment"]
    np.testing.assert_array_equal(by_words.values, looked.words().weights)
    assert list(by_words.axes[1][1]) == looked.words().source
    by_tokens = Inspector(run).alignment("one two three", target="ONE TWO", tokens=True).arrays["alignment"]
    np.testing.assert_array_equal(by_tokens.values, looked.weights)


def test_entropy_of_a_run(runs: Path) -> None:
    seen = Inspector(runs / "gpt").entropy("the old cat")
    weights = Inspector(runs / "gpt").attention("the old cat").arrays["attention"].values.astype(np.float64)
    bits = -(weights * np.log2(np.where(weights > 0, weights, 1))).sum(axis=-1)
    np.testing.assert_allclose(seen.arrays["entropy by element"].values, bits, atol=1e-5)
    np.testing.assert_allclose(seen.arrays["entropy"].values, bits.mean(axis=-1), atol=1e-5)
    count = weights.shape[-1]
    assert seen.arrays["possible"].values[-1] == pytest.approx(math.log2(count))
    assert (bits <= seen.arrays["possible"].values + 1e-6).all()


def test_activations_of_a_run(runs: Path) -> None:
    inspector = Inspector(runs / "gpt")
    seen = inspector.activations("the old cat")
    subject = inspector.subjects[0]
    trace = subject.trace(subject.read("the old cat"))
    np.testing.assert_array_equal(seen.arrays["layer 1"].values, trace["layer1.hidden"][0].numpy())
    stream = seen.arrays["layer0.attention_residual"].values
    assert stream.shape == (len(seen.arrays["layer 1"].values),)
    end = np.linalg.norm(seen.arrays["layer 1"].values, axis=1)
    np.testing.assert_allclose(seen.arrays["layer1.feedforward_residual"].values, end, rtol=1e-5)
    sizes = activations_view.outputs(trace, subject.read("the old cat"))[2].sizes
    np.testing.assert_allclose(sizes * math.sqrt(8), end, rtol=1e-5)
    both = Inspector(runs / "transformer").activations("one two")
    assert {"encoder, layer 0", "decoder, layer 1", "encoder, input"} <= both.arrays.keys()


@pytest.mark.parametrize(
    ("name", "view", "options", "code"),
    [
        ("gpt", "attention", {"layer": 9}, "inspect.layer"),
        ("gpt", "attention", {"head": -1}, "inspect.head"),
        ("gpt", "attention", {"part": "encoder"}, "inspect.part"),
        ("transformer", "attention", {"part": "enc"}, "inspect.part"),
        ("transformer", "attention", {"layer": 2, "part": "cross"}, "inspect.layer"),
        ("gpt", "activations", {"layer": 2}, "inspect.layer"),
        ("seq2seq", "alignment", {}, "inspect.offer"),
        ("seq2seq", "attention", {}, "inspect.offer"),
        ("bahdanau", "lens", {}, "inspect.offer"),
        ("gpt", "alignment", {}, "inspect.offer"),
    ],
)
def test_what_cannot_be_shown(name: str, view: str, options: dict[str, Any], code: str, runs: Path) -> None:
    with pytest.raises(SeriatimError) as caught:
        Inspector(runs / name).look(view, "one two", **options)
    assert caught.value.code == code
    assert caught.value.remedy


@pytest.mark.parametrize("text", ["", "the old cat " * 3, "猫 看 帽子", "הקט ראה"])
def test_every_view_is_drawn_and_told(text: str, runs: Path) -> None:
    inspector = Inspector(runs / "gpt")
    for view in ("attention", "entropy", "activations", "lens"):
        seen = inspector.look(view, text)
        for one in seen.views:
            chart, sentence = drawn(one)
            assert json.loads(chart.to_json(validate=False))["$schema"]
            assert len(sentence) > 20
        assert len(seen.lines()) > 1
        json.dumps(seen.record(), allow_nan=False)


def test_from_the_command_line(runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli(["inspect", str(runs / "gpt"), "--attention", "the old", "--layer", "0", "--head", "1"]) == 0
    assert "→" in capsys.readouterr().out
    out = tmp_path / "x.json"
    assert cli(["inspect", str(runs / "transformer"), "--alignment", "one two", "--tokens", "--out", str(out)]) == 0
    record = json.loads(out.read_text(encoding="utf-8"))
    assert [axis["name"] for axis in record["arrays"]["alignment"]["axes"]] == ["translation", "source"]
    assert cli(["inspect", str(runs / "gpt"), "--attention", "the", "--generate", "4", "--quiet"]) == 0
    assert cli(["inspect", str(runs / "gpt"), "--activations", "--example", "1"]) == 0
    assert cli(["inspect", str(runs / "seq2seq"), "--attention", "one"]) == 2
    assert "it offers" in capsys.readouterr().err
    assert cli(["inspect", str(runs / "gpt"), "the old", "--out", str(out)]) == 2
    assert "no view is named" in capsys.readouterr().err
    assert cli(["inspect", str(runs / "gpt"), "--json"]) == 0
    assert {"attention", "lens"} <= json.loads(capsys.readouterr().out).keys()
    assert cli(["inspect", "gtp"]) == 2
    assert 'did you mean "gpt"?' in capsys.readouterr().err
