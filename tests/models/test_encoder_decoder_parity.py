"""Encoder–decoders against trusted implementations with copied weights: torch.nn, Marian of transformers, formulas."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from helpers import copy_recurrent
from seriatim.core.state import select
from seriatim.decode.beam import beam_search
from seriatim.decode.settings import GenerationSettings
from seriatim.models.bahdanau import Bahdanau
from seriatim.models.seq2seq import Seq2Seq
from seriatim.models.t5 import RelativePositions
from seriatim.models.transformer import Transformer
from seriatim.nn.attention import SCORES
from seriatim.nn.encoder_decoder import EncoderDecoder
from seriatim.nn.layers import SinusoidalPositions, sinusoids
from seriatim.nn.network import TokenHead, TokenInput

FLOAT = {torch.float32: 1e-5, torch.float64: 1e-9}


def mask_of(lengths: list[int]) -> Tensor:
    return torch.arange(max(lengths)) < torch.tensor(lengths)[:, None]


def close(ours: Tensor, theirs: Tensor, tolerance: float) -> None:
    torch.testing.assert_close(ours, theirs, rtol=tolerance, atol=tolerance)


def shaken(module: nn.Module) -> None:
    """Nothing at its initial zero or one."""
    with torch.no_grad():
        for parameter in module.parameters():
            parameter += 0.1 * torch.randn_like(parameter)


# The Transformer against torch.nn.Transformer


def peer_of(ours: Transformer, heads: int, hidden: int, activation: str, first: bool) -> nn.Transformer:
    """torch's own, without its last norms where they would be norms of norms."""
    shape: dict[str, Any] = {"dropout": 0.0, "activation": activation, "batch_first": True, "norm_first": first}
    encoder = nn.TransformerEncoderLayer(ours.width, heads, hidden, **shape)
    decoder = nn.TransformerDecoderLayer(ours.width, heads, hidden, **shape)
    norms = [nn.LayerNorm(ours.width) if first else None for _ in range(2)]
    return nn.Transformer(
        ours.width,
        heads,
        custom_encoder=nn.TransformerEncoder(encoder, len(ours.encoder), norms[0], enable_nested_tensor=False),
        custom_decoder=nn.TransformerDecoder(decoder, len(ours.decoder), norms[1]),
        batch_first=True,
    )


def torch_names(ours: Transformer) -> dict[str, tuple[str, slice]]:
    """Our parameters → torch's, and which rows of them."""
    width, result = ours.width, {}
    everything, queries, memories = slice(None), slice(0, width), slice(width, None)
    parts = {
        "attention.inputs.": ("self_attn.in_proj_", everything),
        "attention.output.": ("self_attn.out_proj.", everything),
        "cross.query.": ("multihead_attn.in_proj_", queries),
        "cross.memory.": ("multihead_attn.in_proj_", memories),
        "cross.output.": ("multihead_attn.out_proj.", everything),
        "feedforward.hidden.": ("linear1.", everything),
        "feedforward.output.": ("linear2.", everything),
        "attention_norm.": ("norm1.", everything),
        "cross_norm.": ("norm2.", everything),
    }
    for name, _ in ours.named_parameters():
        side, _, rest = name.partition(".")
        if side.endswith("_norm"):
            result[name] = f"{side.removesuffix('_norm')}.norm.{rest}", everything
            continue
        layer, _, part = rest.partition(".")
        stem, _, kind = part.rpartition(".")
        last = "norm2." if side == "encoder" else "norm3."
        theirs, rows = {**parts, "feedforward_norm.": (last, everything)}[f"{stem}."]
        result[name] = f"{side}.layers.{layer}.{theirs}{kind}", rows
    return result


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("activation", ["relu", "gelu"])
@pytest.mark.parametrize("norm", ["before", "after"])
def test_transformer_equals_torch(norm: Any, activation: Any, dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    ours = Transformer(16, 16, 2, 3, heads=4, feedforward=24, norm=norm, activation=activation).to(dtype)
    peer = peer_of(ours, 4, 24, activation, norm == "before").to(dtype)
    shaken(peer)
    names, theirs = torch_names(ours), dict(peer.named_parameters())
    assert {name for name, _ in names.values()} == set(theirs)
    with torch.no_grad():
        for name, parameter in ours.named_parameters():
            other, rows = names[name]
            parameter.copy_(theirs[other][rows])
    real = mask_of([7, 4, 1])
    x, y = (torch.randn(3, steps, 16, dtype=dtype, requires_grad=True) for steps in (7, 6))
    result, _ = ours.decode(y, ours.encode(x, real))
    places = sinusoids(0, 7, 16).to(dtype)
    expected = peer(
        x + places,
        y + places[:6],
        tgt_mask=nn.Transformer.generate_square_subsequent_mask(6, dtype=dtype),
        src_key_padding_mask=torch.zeros(3, 7, dtype=dtype).masked_fill(~real, -math.inf),
        memory_key_padding_mask=torch.zeros(3, 7, dtype=dtype).masked_fill(~real, -math.inf),
    )
    tolerance = FLOAT[dtype]
    close(result, expected, tolerance)
    weight = torch.randn_like(result)
    mine = torch.autograd.grad((result * weight).sum(), [x, y, *ours.parameters()])
    other = torch.autograd.grad((expected * weight).sum(), [x, y, *theirs.values()])
    close(mine[0], other[0], 10 * tolerance)
    close(mine[1], other[1], 10 * tolerance)
    gradients = dict(zip(theirs, other[2:], strict=True))
    for (name, _), gradient in zip(ours.named_parameters(), mine[2:], strict=True):
        place, rows = names[name]
        close(gradient, gradients[place][rows], 10 * tolerance)


# The Transformer against Marian


def from_marian(peer: Any) -> EncoderDecoder:
    """Our network with the weights of a MarianMTModel: norms after each part, positions as a table."""
    shape = peer.config
    positions = peer.model.encoder.embed_positions.weight
    backbone = Transformer(
        shape.d_model,
        shape.d_model,
        shape.encoder_layers,
        shape.decoder_layers,
        shape.encoder_attention_heads,
        shape.encoder_ffn_dim,
        norm="after",
        activation={"swish": "silu", "relu": "relu", "gelu": "gelu"}[shape.activation_function],  # type: ignore[arg-type]
        context_length=shape.max_position_embeddings,
        positions="learned",
    )
    target = TokenInput(shape.decoder_vocab_size, shape.d_model)
    shared = shape.share_encoder_decoder_embeddings
    source = target if shared else TokenInput(shape.vocab_size, shape.d_model)
    scale = math.sqrt(shape.d_model) if shape.scale_embedding else 1.0
    ours = EncoderDecoder(source, target, backbone, TokenHead(shape.d_model, shape.decoder_vocab_size, target), scale)
    ours = ours.to(positions.dtype).eval()
    with torch.no_grad():
        source.weight.copy_(peer.model.encoder.embed_tokens.weight)
        target.weight.copy_(peer.model.decoder.embed_tokens.weight)
        ours.head.bias.copy_(peer.final_logits_bias[0])
        backbone.positions.get_parameter("weight").copy_(positions)
        for blocks, layers in (
            (backbone.encoder, peer.model.encoder.layers),
            (backbone.decoder, peer.model.decoder.layers),
        ):
            for block, layer in zip(blocks, layers, strict=True):
                _copy_block(block, layer)
    return ours


def _copy_block(block: Any, layer: Any) -> None:
    one = {
        "attention.output": "self_attn.out_proj",
        "attention_norm": "self_attn_layer_norm",
        "feedforward.hidden": "fc1",
        "feedforward.output": "fc2",
        "feedforward_norm": "final_layer_norm",
    }
    if hasattr(block, "cross"):
        one |= {"cross.query": "encoder_attn.q_proj", "cross.output": "encoder_attn.out_proj"}
        one |= {"cross_norm": "encoder_attn_layer_norm"}
    several = {"attention.inputs": [f"self_attn.{part}_proj" for part in "qkv"]}
    if hasattr(block, "cross"):
        several["cross.memory"] = [f"encoder_attn.{part}_proj" for part in "kv"]
    for mine, theirs in (several | {mine: [other] for mine, other in one.items()}).items():
        for kind in ("weight", "bias"):
            joined = torch.cat([getattr(layer.get_submodule(other), kind) for other in theirs])
            getattr(block.get_submodule(mine), kind).copy_(joined)


def marian(**shape: Any) -> Any:
    from transformers import MarianConfig, MarianMTModel

    torch.manual_seed(0)
    heads, hidden = shape.pop("heads", 2), shape.pop("hidden", 20)
    common = {"vocab_size": 23, "d_model": 12, "encoder_layers": 2, "decoder_layers": 2, "activation_function": "swish"}
    common |= {"encoder_attention_heads": heads, "decoder_attention_heads": heads, "scale_embedding": True}
    common |= {"encoder_ffn_dim": hidden, "decoder_ffn_dim": hidden, "max_position_embeddings": 40}
    common |= {"pad_token_id": 22, "decoder_start_token_id": 22, "eos_token_id": 0, "forced_eos_token_id": None}
    peer = MarianMTModel(MarianConfig(**(common | shape))).double().eval()
    with torch.no_grad():
        for name, parameter in peer.named_parameters():
            if "embed_positions" not in name:
                parameter += 0.2 * torch.randn_like(parameter)
        peer.final_logits_bias.normal_()
    return peer


SHAPES: dict[str, dict[str, Any]] = {
    "as opus-mt": {},
    "deep and narrow": {
        "encoder_layers": 3,
        "decoder_layers": 1,
        "d_model": 8,
        "heads": 4,
        "activation_function": "relu",
    },
    "two vocabularies": {"decoder_vocab_size": 23, "vocab_size": 31, "share_encoder_decoder_embeddings": False},
    "not scaled": {"scale_embedding": False, "activation_function": "gelu", "heads": 3, "hidden": 7},
}


@pytest.mark.parametrize("name", SHAPES)
def test_marian_logits_are_equal(name: str) -> None:
    peer = marian(**SHAPES[name])
    real = mask_of([9, 5, 1])
    source = torch.randint(1, 22, (3, 9)).masked_fill(~real, 22)
    target = torch.randint(1, 22, (3, 11))
    target[:, 0] = 22
    expected = peer(input_ids=source, attention_mask=real.long(), decoder_input_ids=target).logits
    ours = from_marian(peer)
    close(ours(source, target, real), expected, 1e-9)
    close(ours.float()(source, target, real), expected.float(), 1e-5)


@pytest.mark.parametrize("early", [False, "never"])
@pytest.mark.parametrize("penalty", [0.0, 1.0, 2.0])
@pytest.mark.parametrize("likely_end", [0.5, 2.0, 4.0])
def test_marian_beam_search_is_equal(likely_end: float, penalty: float, early: Any) -> None:
    """Four hypotheses of each of ragged sources, finished or cut at the limit: the same tokens, the same scores."""
    peer = marian()
    peer.final_logits_bias.zero_()[0, 0] = likely_end
    real = mask_of([8, 8, 5, 2, 1])
    source = torch.randint(1, 22, real.shape).masked_fill(~real, 22)
    expected = peer.generate(
        input_ids=source,
        attention_mask=real.long(),
        num_beams=4,
        num_return_sequences=4,
        length_penalty=penalty,
        early_stopping=early,
        max_length=13,  # with the pad that it begins with
        bad_words_ids=[[22]],
        do_sample=False,
        return_dict_in_generate=True,
        output_scores=True,
    )
    options = GenerationSettings(
        beams=4, nbest=4, length_penalty=penalty, length_norm="power", early_stop=early is False, max_tokens=12
    )
    with torch.inference_mode():
        network = from_marian(peer)
        memory = network.encode(source, real)

        def step(tokens: Tensor, state: Any) -> tuple[Tensor, Any]:
            rows, inner = state
            hidden, inner = network.decode(tokens[:, None], select(memory, rows), inner)
            return network.head(hidden[:, 0]).log_softmax(dim=-1), (rows, inner)

        log_probs, state = step(torch.full((len(source),), 22), (torch.arange(len(source)), None))
        hypotheses = beam_search(step, log_probs, state, options, 0, forbidden=[22])
        result = [one for row in hypotheses for one in row]
    assert likely_end != 4.0 or all(one.finished for one in result)
    assert likely_end != 0.5 or not all(one.finished for one in result)
    theirs = [[token for token in row[1:].tolist() if token != 22] for row in expected.sequences]
    assert [one.tokens for one in result] == theirs
    np.testing.assert_allclose(
        [one.normalized_score for one in result], expected.sequences_scores.tolist(), rtol=1e-5, atol=1e-5
    )


# Seq2seq against torch.nn


@pytest.mark.parametrize("layers", [1, 2])
@pytest.mark.parametrize(("cell", "theirs"), [("lstm", nn.LSTM), ("gru", nn.GRU), ("rnn", nn.RNN)])
def test_seq2seq_equals_torch(cell: Any, theirs: Any, layers: int) -> None:
    torch.manual_seed(0)
    ours = Seq2Seq(5, 6, cell, layers, reset="after").double()
    encoder, decoder = (theirs(5, 6, layers, batch_first=True).double() for _ in range(2))
    copy_recurrent(ours.encoder, encoder)
    copy_recurrent(ours.decoder, decoder)
    lengths = [7, 4, 1]
    x, y = torch.randn(3, 7, 5, dtype=torch.float64), torch.randn(3, 5, 5, dtype=torch.float64)
    _, last = encoder(nn.utils.rnn.pack_padded_sequence(x, lengths, batch_first=True))
    expected, _ = decoder(y, last)
    close(ours.decode(y, ours.encode(x, mask_of(lengths)))[0], expected, 1e-9)


# Bahdanau against the equations of the paper, one pair at a time, place by place

Array = np.ndarray
sigmoid = lambda x: 1 / (1 + np.exp(-x))  # noqa: E731


def step(kind: str, reset: str, w_x: Array, b: Array, w_h: Array, inside: Array, x: Array, s: tuple[Array, ...]) -> Any:
    """f(x, s) of a cell, gate by gate."""
    size, h = len(s[0]), s[0]
    block = lambda k: slice(k * size, (k + 1) * size)  # noqa: E731
    gate = lambda k, v=h: w_x[block(k)] @ x + b[block(k)] + w_h[block(k)] @ v  # noqa: E731
    if kind == "rnn":
        return (np.tanh(gate(0)),)
    if kind == "lstm":
        c = sigmoid(gate(1)) * s[1] + sigmoid(gate(0)) * np.tanh(gate(2))
        return sigmoid(gate(3)) * np.tanh(c), c
    r, z = sigmoid(gate(0)), sigmoid(gate(1))
    if reset == "before":
        candidate = np.tanh(gate(2, r * h))
    else:
        candidate = np.tanh(w_x[block(2)] @ x + b[block(2)] + r * (w_h[block(2)] @ h + inside))
    return (z * h + (1 - z) * candidate,)


def score_of(name: str, weights: dict[str, Array], q: Array, k: Array) -> float:
    if name in ("dot", "scaled_dot"):
        return float(q @ k / (np.sqrt(len(k)) if name == "scaled_dot" else 1.0))
    if name in ("distance", "gaussian", "boxcar", "epanechnikov"):
        u = np.sqrt(np.square(q - k).sum() / (1.0 if name == "distance" else len(k)))  # a bandwidth of √d
        kernel = {"boxcar": float(u <= 1), "epanechnikov": max(0.0, 1 - u)}.get(name, np.exp(-0.5 * u**2))
        return float(np.log(kernel)) if kernel > 0 else -np.inf
    if name == "general":
        return float(q @ weights["score.key.weight"] @ k)
    if name == "additive":
        return float(
            weights["score.weight"] @ np.tanh(weights["score.query.weight"] @ q + weights["score.key.weight"] @ k)
        )
    return float(weights["score.weight"] @ np.tanh(weights["score.both.weight"] @ np.concatenate([q, k])))


CELLS = [("gru", "before"), ("gru", "after"), ("lstm", "before"), ("rnn", "before")]


@pytest.mark.parametrize(("kind", "reset"), CELLS)
@pytest.mark.parametrize("number", [0, 1, 2])
def test_bahdanau_equals_the_paper(number: int, kind: Any, reset: Any) -> None:
    """Every cell with three scores, every score with a cell; those with the last scores pool learned values."""
    score: Any = SCORES[(CELLS.index((kind, reset)) + 4 * number) % len(SCORES)]
    torch.manual_seed(0)
    ours = Bahdanau(3, 6, kind, score, reset=reset, learned_values=number == 2).double()
    shaken(ours)
    lengths = [5, 2, 1]
    x, y = torch.randn(3, 5, 3, dtype=torch.float64), torch.randn(3, 4, 3, dtype=torch.float64)
    trace: dict[str, Tensor] = {}
    result, _ = ours.decode(y, ours.encode(x, mask_of(lengths)), None, trace)
    w = {name: parameter.detach().numpy() for name, parameter in ours.named_parameters()}

    def f(place: str, v: Array, s: tuple[Array, ...], extra: Array | None = None) -> Any:
        w_x = w[f"{place}.input.weight"] if extra is None else np.hstack([w[f"{place}.input.weight"], extra])
        inside = w.get(f"{place}.bias", np.zeros(len(s[0])))
        return step(kind, reset, w_x, w[f"{place}.input.bias"], w[f"{place}.recurrent"], inside, v, s)

    parts = 2 if kind == "lstm" else 1
    size = w["encoder.cells.0.recurrent"].shape[1]
    assert size == (6 if score in ("general", "additive", "concat") else 3)
    for row, length in enumerate(lengths):
        words = x[row, :length].numpy()
        both = []
        for place, order in (("encoder.cells.0", range(length)), ("encoder.cells.1", reversed(range(length)))):
            s: tuple[Array, ...] = (np.zeros(size),) * parts
            outputs = np.zeros((length, size))
            for i in order:
                s = f(place, words[i], s)
                outputs[i] = s[0]
            both.append(outputs)
        h = np.hstack(both)
        v = h @ w["values.weight"].T if number == 2 else h
        last = np.concatenate([both[0][-1], both[1][0]])
        s = tuple(np.split(np.tanh(w["bridge.weight"] @ last + w["bridge.bias"]), parts))
        for t in range(4):
            raw = np.exp([score_of(score, w, s[0], one) for one in h])
            alpha = raw / raw.sum() if raw.any() else raw  # no key is in reach of a kernel
            c, before = alpha @ v, y[row, t].numpy()
            s = f("cell", np.concatenate([before, c]), s, w["context.weight"])
            out = np.tanh(w["readout.weight"] @ np.concatenate([s[0], c, before]) + w["readout.bias"])
            np.testing.assert_allclose(result[row, t].detach().numpy(), out, atol=1e-10)
            np.testing.assert_allclose(trace["alignment"][row, t, :length].detach().numpy(), alpha, atol=1e-10)
            assert not trace["alignment"][row, t, length:].any()


# Positions


@pytest.mark.parametrize("width", [1, 2, 7, 64])
def test_sinusoids_are_those_of_the_formula(width: int) -> None:
    """p[i,2j] = sin(i/10000^{2j/d}), p[i,2j+1] = cos(the same), at the beginning and far out."""
    for first in (0, 3, 4_000):
        table = sinusoids(first, 5, width)
        for row in range(5):
            for column in range(width):
                angle = (first + row) / 10_000 ** ((column - column % 2) / width)
                expected = math.cos(angle) if column % 2 else math.sin(angle)
                assert table[row, column].item() == pytest.approx(expected, abs=1e-12)
        module = SinusoidalPositions(width)
        assert not list(module.state_dict())
        for dtype in (torch.float32, torch.float64):
            like = torch.empty(2, 5, width, dtype=dtype)
            assert torch.equal(module(first, like), table.to(dtype))


# T5: distances


@pytest.mark.parametrize(("buckets", "max_distance"), [(32, 128), (9, 13), (4, 3), (64, 33)])
@pytest.mark.parametrize("causal", [False, True])
def test_buckets_of_distances(buckets: int, max_distance: int, causal: bool) -> None:
    """Those of transformers, for every distance; also at the powers where a rounding error decides."""
    attention = pytest.importorskip("transformers.models.t5.modeling_t5").T5Attention
    positions = RelativePositions(2, buckets, max_distance, causal)
    distances = torch.arange(-1500, 1 if causal else 1501)
    expected = attention._relative_position_bucket(distances, not causal, buckets, max_distance)
    assert torch.equal(positions.bucket(distances), expected)
    assert expected.unique().numel() > buckets // 2
    bias = positions(3, 700)
    rows, keys = torch.arange(697, 700)[:, None], torch.arange(700)
    theirs = positions.weight[attention._relative_position_bucket(keys - rows, not causal, buckets, max_distance)]
    masked = theirs.permute(2, 0, 1).masked_fill((keys > rows) & causal, -math.inf)
    assert torch.equal(bias, masked)
