"""Attention, alignment, entropy and activations: beside transformers, by hand, and of models."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from helpers import shaken
from seriatim.core.errors import SeriatimError
from seriatim.data.tokenizers import Tokenizer, TokenizerSettings
from seriatim.inspect import Inspector
from seriatim.inspect.subject import Subject
from seriatim.inspect.trace import run_traced
from seriatim.inspect.views.attention import Weights, distance, entropy, fold_weights, max_entropy
from seriatim.inspect.views.layers import layer_scores
from seriatim.report.charts import Heatmap, HeatmapGrid
from seriatim.runs.exchange import import_model

transformers: Any = pytest.importorskip("transformers")
CLOSE = {"rtol": 0, "atol": 1e-5}
SENTENCES = ["The old cat saw a new hat, and the man sat.\n", "A dog bit the man; he wasn't amused!\n"] * 5
BERT = {"hidden_size": 12, "num_hidden_layers": 2, "num_attention_heads": 3, "intermediate_size": 20}
BERT |= {"max_position_embeddings": 32, "attention_probs_dropout_prob": 0.0, "hidden_dropout_prob": 0.0}
GPT = {"n_embd": 12, "n_layer": 2, "n_head": 3, "n_positions": 32}
MARIAN = {"d_model": 8, "encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 2}
MARIAN |= {"decoder_attention_heads": 2, "encoder_ffn_dim": 10, "decoder_ffn_dim": 10, "max_position_embeddings": 32}
MARIAN |= {"pad_token_id": 0, "eos_token_id": 1, "decoder_start_token_id": 0, "forced_eos_token_id": None}
ARCHITECTURES = {
    "BertForSequenceClassification": ("bert", BERT),
    "BertForMaskedLM": ("bert", BERT),
    "GPT2LMHeadModel": ("bpe", GPT),
    "OpenAIGPTLMHeadModel": ("bpe", GPT),
    "MarianMTModel": ("bpe", MARIAN),
}


def import_random(architecture: str, folder: Path) -> tuple[Any, Subject, Any]:
    """Returns a random model of transformers, the subject of the run it became, and its tokenizer."""
    kind, shape = ARCHITECTURES[architecture]
    lowercase = {"lowercase": True} if kind == "bert" else {}
    tokenizer = Tokenizer.train(TokenizerSettings(kind=kind, vocab_size=90, **lowercase), SENTENCES)
    torch.manual_seed(0)
    model = getattr(transformers, architecture)
    peer: Any = shaken(model(model.config_class(vocab_size=tokenizer.vocab_size, **shape)))
    peer.save_pretrained(folder / "peer")
    tokenizer.save(folder / "peer" / "tokenizer.json")
    run = import_model(str(folder / "peer"), folder / "run")
    peer.set_attn_implementation("eager")
    return peer, Subject("run", run.config.model, lambda: run.predictor), tokenizer


def outputs_of(peer: Any, **inputs: Any) -> Any:
    with torch.no_grad():
        return peer(**inputs, output_attentions=True, output_hidden_states=True)


@pytest.mark.parametrize("side", ["right", "left"])
@pytest.mark.parametrize("architecture", ["BertForSequenceClassification", "BertForMaskedLM", "GPT2LMHeadModel"])
def test_weights_and_streams_equal_transformers(architecture: str, side: str, tmp_path: Path) -> None:
    peer, subject, tokenizer = import_random(architecture, tmp_path)
    lengths = [11, 4, 1]
    mask = torch.arange(11)[None] < torch.tensor(lengths)[:, None]
    ids = torch.randint(5, tokenizer.vocab_size, mask.shape) * mask
    inputs = {"input_ids": ids, "attention_mask": mask.long()}
    if side == "left":
        positions = torch.arange(11).expand_as(mask)
        inputs = {name: pad_left(value, lengths) for name, value in inputs.items()}
        inputs["position_ids"] = pad_left(positions, lengths)
    theirs = outputs_of(peer, **inputs)
    _, trace = run_traced(subject.network, ids, mask)
    for row, length in enumerate(lengths):
        here = slice(0, length) if side == "right" else slice(11 - length, None)
        for index, weights in enumerate(theirs.attentions):
            ours = trace[f"layer{index}.attention"][row]
            torch.testing.assert_close(ours[:, :length, :length], weights[row][:, here, here], **CLOSE)
            assert not ours[:, length:].any()
            assert not ours[:, :, length:].any()
        streams = [trace["embedded"], *(trace[f"layer{index}.hidden"] for index in range(2))]
        count = 3 if "Bert" in architecture else 2  # GPT-2 returns the last one behind its norm
        for ours, stream in zip(streams[:count], theirs.hidden_states[:count], strict=True):
            torch.testing.assert_close(ours[row, :length], stream[row, here], **CLOSE)


def pad_left(block: Tensor, lengths: list[int]) -> Tensor:
    moved = torch.zeros_like(block)
    for row, length in enumerate(lengths):
        moved[row, block.shape[1] - length :] = block[row, :length]
    return moved


def test_cross_attention_equals_marian(tmp_path: Path) -> None:
    peer, subject, tokenizer = import_random("MarianMTModel", tmp_path)
    lengths = [9, 5, 1]
    mask = torch.arange(9)[None] < torch.tensor(lengths)[:, None]
    ids, target = (torch.randint(2, tokenizer.vocab_size, shape) for shape in ((3, 9), (3, 7)))
    ids = ids * mask
    theirs = outputs_of(peer, input_ids=ids, attention_mask=mask.long(), decoder_input_ids=target)
    _, trace = run_traced(subject.network, ids, target, mask)
    for index in range(2):
        for name, layers in (("cross_attention", theirs.cross_attentions), ("attention", theirs.decoder_attentions)):
            torch.testing.assert_close(trace[f"decoder.layer{index}.{name}"], layers[index], **CLOSE)
        ours = trace[f"encoder.layer{index}.attention"]
        for row, length in enumerate(lengths):
            expected = theirs.encoder_attentions[index][row, :, :length, :length]
            torch.testing.assert_close(ours[row, :, :length, :length], expected, **CLOSE)
    torch.testing.assert_close(trace["alignment"], torch.stack(theirs.cross_attentions).mean(dim=(0, 2)), **CLOSE)


@pytest.mark.parametrize(
    "architecture", ["GPT2LMHeadModel", "OpenAIGPTLMHeadModel", "BertForMaskedLM", "MarianMTModel"]
)
def test_the_last_layer_of_the_lens_is_the_output(architecture: str, tmp_path: Path) -> None:
    """Bit for bit; and the layers below are those of transformers, read by their head."""
    peer, subject, _ = import_random(architecture, tmp_path)
    reading = subject.read("The old cat", target="a dog" if architecture == "MarianMTModel" else None)
    readout = subject.predictor.token_readout()
    assert readout is not None
    layers, scores = layer_scores(subject, reading, readout)
    output, _ = subject.run(reading)
    read: Any
    if architecture == "MarianMTModel":
        expected = output[0]
        inputs = {"input_ids": reading.inputs[0], "decoder_input_ids": reading.inputs[1]}
        streams = outputs_of(peer, **inputs).decoder_hidden_states
        read = lambda x: peer.lm_head(x) + peer.final_logits_bias  # noqa: E731
    else:
        streams = outputs_of(peer, input_ids=reading.inputs).hidden_states
        expected = output[0][0][0] if architecture == "BertForMaskedLM" else output[0][0]
        norm = peer.transformer.ln_f if architecture == "GPT2LMHeadModel" else torch.nn.Identity()
        read = peer.cls if architecture == "BertForMaskedLM" else lambda x: peer.lm_head(norm(x))
    assert torch.equal(scores[-1], expected)
    assert layers == ["input", "layer 0", "layer 1"]
    with torch.no_grad():
        for ours, stream in list(zip(scores, streams, strict=True))[:-1]:
            torch.testing.assert_close(ours, read(stream)[0], rtol=0, atol=3e-5)


# By hand


def test_entropy_by_hand() -> None:
    values = np.array([[[[1.0, 0, 0, 0], [0.5, 0.5, 0, 0], [0.25, 0.25, 0.5, 0], [0.25, 0.25, 0.25, 0.25]]]])
    np.testing.assert_allclose(entropy(values)[0, 0], [0, 1, 1.5, 2])
    np.testing.assert_allclose(distance(values)[0, 0], [0, 0.5, 0.75, 1.5])
    names = list("abcd")
    causal = Weights("", values, names, names)
    assert causal.causal
    np.testing.assert_allclose(max_entropy(causal), np.log2([1, 2, 3, 4]))
    np.testing.assert_allclose(max_entropy(Weights("", np.full((1, 1, 4, 4), 0.25), names, names)), [2] * 4)
    np.testing.assert_allclose(max_entropy(Weights("cross", np.full((1, 1, 2, 4), 0.25), names[:2], names)), [2, 2])


def test_folded_weights_still_sum_to_one() -> None:
    values = np.random.default_rng(0).random((2, 3, 11, 7))
    values /= values.sum(axis=-1, keepdims=True)
    rows, columns, small = fold_weights([str(n) for n in range(11)], [str(n) for n in range(7)], values, limit=4)
    assert (rows, columns) == (["0", "3", "6", "9"], ["0", "2", "4", "6"])
    np.testing.assert_allclose(small.sum(axis=-1), 1)
    np.testing.assert_allclose(small[1, 2, 3, 0], values[1, 2, 9:, :2].sum(axis=-1).mean())
    np.testing.assert_array_equal(fold_weights(list("ab"), list("xyz"), values[..., :2, :3])[2], values[..., :2, :3])


# Of models


def test_attention_of_all_layers_of_one_and_of_one_head(make_subject: Any) -> None:
    subject = make_subject("gpt")
    inspector = Inspector(subject)
    result = inspector.attention("a fine film")
    array = result.arrays["attention"]
    assert list(array.axes["layer"]) == ["layer 0", "layer 1"]
    assert list(array.axes["head"]) == ["head 0", "head 1"]
    trace = subject.run(subject.read("a fine film"))[1]
    for index in range(2):
        np.testing.assert_array_equal(array.values[index], trace[f"layer{index}.attention"][0].numpy())
    assert isinstance(result.charts[0], HeatmapGrid)
    layer = inspector.attention("a fine film", layer=1).arrays["attention"]
    np.testing.assert_array_equal(layer.values, array.values[1:])
    assert list(layer.axes["layer"]) == ["layer 1"]
    head = inspector.attention("a fine film", layer=1, head=0)
    np.testing.assert_array_equal(head.arrays["attention"].values, array.values[1:, :1])
    assert isinstance(head.charts[0], Heatmap)
    column = inspector.attention("a fine film", head=1).arrays["attention"]
    np.testing.assert_array_equal(column.values, array.values[:, 1:])


def test_attention_over_a_generation(make_subject: Any) -> None:
    result = Inspector(make_subject("gpt")).attention("a fi", generate=6)
    values = result.arrays["attention"].values
    np.testing.assert_allclose(values.sum(axis=-1), 1, atol=1e-6)
    assert not np.triu(values, 1).any()
    assert "the last 6 of" in result.notes[0]
    with pytest.raises(SeriatimError, match="continues one text"):
        Inspector(make_subject("gpt")).attention(generate=6)


@pytest.mark.parametrize("part", [None, "cross", "encoder", "decoder"])
def test_attention_of_the_parts_of_an_encoder_decoder(part: str | None, make_subject: Any) -> None:
    inspector = Inspector(make_subject("transformer"))
    array = inspector.attention("a fine film", part=part, target="enif").arrays["attention"]
    np.testing.assert_allclose(array.values.sum(axis=-1), 1, atol=1e-6)
    reading = inspector.subjects[0].read("a fine film", target="enif")
    source, target = len(reading.names), len(reading.predicted)
    shapes = {"encoder": (source, source), "decoder": (target, target)}
    assert array.values.shape[2:] == shapes.get(part or "cross", (target, source))
    assert np.triu(array.values, 1).any() == (part != "decoder")
    expected = reading.predicted if part in (None, "cross") else reading.sequences["target"]
    if part != "encoder":
        assert list(array.axes["query"]) == expected


@pytest.mark.parametrize("name", ["transformer", "bahdanau"])
def test_alignment_is_that_of_the_predictor(name: str, make_subject: Any) -> None:
    subject = make_subject(name)
    for tokens in (False, True):
        array = Inspector(subject).alignment("a fine film", target="enif a", tokens=tokens).arrays["alignment"]
        expected = subject.predictor.translator.align(["a fine film"], ["enif a"], by_words=not tokens)[0]
        np.testing.assert_array_equal(array.values, expected.weights)
        assert list(array.axes["source"]) == expected.source


def test_entropy_of_a_model(make_subject: Any) -> None:
    inspector = Inspector(make_subject("gpt"))
    result = inspector.entropy("a fine film")
    weights = inspector.attention("a fine film").arrays["attention"].values.astype(np.float64)
    bits = -(weights * np.log2(np.where(weights > 0, weights, 1))).sum(axis=-1)
    np.testing.assert_allclose(result.arrays["entropy by element"].values, bits, atol=1e-5)
    np.testing.assert_allclose(result.arrays["entropy"].values, bits.mean(axis=-1), atol=1e-5)
    possible = result.arrays["possible"].values
    assert possible[-1] == pytest.approx(math.log2(weights.shape[-1]))
    assert (bits <= possible + 1e-6).all()
    assert "distance" not in Inspector(make_subject("transformer")).entropy("a fine").arrays


def test_activations_of_a_model(make_subject: Any) -> None:
    subject = make_subject("gpt")
    inspector = Inspector(subject)
    result = inspector.activations("a fine film")
    trace = subject.run(subject.read("a fine film"))[1]
    np.testing.assert_array_equal(result.arrays["layer 1"].values, trace["layer1.hidden"][0].numpy())
    np.testing.assert_array_equal(result.arrays["input"].values, trace["embedded"][0].numpy())
    norms = result.arrays["layer0.attention_residual"].values
    assert norms == pytest.approx(trace["layer0.attention_residual"][0].numpy())
    sizes = np.sqrt(np.square(trace["layer1.hidden"][0].numpy()).mean(axis=1))
    chart = result.charts[0]
    assert isinstance(chart, Heatmap)
    assert chart.values[2] == pytest.approx(sizes, rel=1e-3)
    layer = inspector.activations("a fine film", layer=1)
    assert layer.arrays.keys() == {"layer 1"}
    with pytest.raises(SeriatimError, match="no layer 9"):
        inspector.activations("a fine film", layer=9)
    sides = Inspector(make_subject("transformer")).activations("a fine", target="enif")
    assert [chart.title.rpartition(", ")[2] for chart in sides.charts[:2]] == ["encoder", "decoder"]


# Lens


def test_what_the_lens_shows(make_subject: Any) -> None:
    subject = make_subject("gpt")
    reading = subject.read("a fine film")
    scores = layer_scores(subject, reading, subject.predictor.token_readout())[1]
    result = Inspector(subject).lens("a fine film")
    probabilities = torch.stack(scores).softmax(dim=-1).numpy()
    row = reading.inputs[0].tolist()
    true = result.arrays["true"].values
    for layer, by_position in enumerate(probabilities):
        for position, expected in enumerate(by_position[:-1]):
            following = row[position + 1]
            assert true[layer, position] == pytest.approx(expected[following])
            assert result.arrays["likeliest"].values[layer, position] == pytest.approx(expected.max())
            token = subject.predictor.tokenizer.token(int(expected.argmax()))
            assert result.arrays["token"].values[layer, position] == token
            rank = int((expected > expected[following]).sum()) + 1
            assert result.arrays["rank of the true"].values[layer, position] == rank
    assert np.isnan(true[:, -1]).all(), "what follows the end is not known"
    at = Inspector(subject).lens("a fine film", position=1)
    assert [row[0] for row in at.charts[0].rows] == ["layer 1", "layer 0", "input"]
    with pytest.raises(SeriatimError, match="no position 99"):
        Inspector(subject).lens("a fine film", position=99)


def test_an_encoder_is_read_for_the_token_itself(make_subject: Any) -> None:
    subject = make_subject("pretrain")
    true = Inspector(subject).lens("a [MASK] film").arrays["true"]
    position = list(true.axes["element"]).index("[MASK]")
    assert np.isnan(true.values[:, position]).all()
    assert np.isfinite(np.delete(true.values, position, axis=1)).all()
    assert not {"lens"} & set(Inspector(make_subject("luong")).available())
