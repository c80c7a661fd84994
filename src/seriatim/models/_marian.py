"""The Transformer in the format of `transformers`: Marian's, or Blenderbot's.

Marian has its norms after each part and sinusoids for positions, Blenderbot its norms before each part and a table that
is learned (sinusoids are written into it). Marian's vectors begin with all sines, then come the cosines, where ours
alternate: so all that is written into these vectors or read from them is put in that order.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from ..core.exchange import ACTIVATIONS, Copies, Entry, Form, Halves, Head, Row, choose, inverse, layer, whole
from ..nn.pair import pair_network
from ..nn.positions import sinusoids

if TYPE_CHECKING:
    from .transformer import Settings

SIZES = {
    "d_model": "width",
    "encoder_layers": "layers",
    "decoder_layers": "decoder_layers",
    "encoder_attention_heads": "heads",
    "encoder_ffn_dim": "feedforward",
}
BOTH = {"encoder_attention_heads": "decoder_attention_heads", "encoder_ffn_dim": "decoder_ffn_dim"}
PLACES = 512  # of a table or a limit, where ours go on without end


def _from_hub(config: Mapping[str, Any], problems: list[str], plain: dict[str, bool]) -> dict[str, Any]:
    for name, value in ({"tie_word_embeddings": True} | plain).items():
        choose(problems, name, config.get(name, value), {value: 0})
    sizes = whole(problems, config, SIZES)
    for encoder, decoder in BOTH.items():
        choose(problems, decoder, config.get(decoder), {config.get(encoder): 0})
    named = config.get("activation_function", "gelu")
    return {SIZES[name]: value for name, value in sizes.items()} | {
        "name": "transformer",
        "dropout": config.get("dropout", 0.1),
        "activation": choose(problems, "activation_function", named, ACTIVATIONS),
        "scale": bool(config.get("scale_embedding", False)),
    }


def _from_marian(config: Mapping[str, Any], problems: list[str]) -> dict[str, Any]:
    plain = {"normalize_before": False, "normalize_embedding": False, "add_final_layer_norm": False}
    found = _from_hub(config, problems, plain | {"static_position_embeddings": True})
    if config.get("decoder_vocab_size") is not None:
        whole(problems, config, ("decoder_vocab_size",))
    return found | {"norm": "after", "positions": "sinusoidal"}


def _from_blenderbot(config: Mapping[str, Any], problems: list[str]) -> dict[str, Any]:
    plain = {"normalize_before": True, "normalize_embedding": False, "add_final_layer_norm": True}
    found = _from_hub(config, problems, plain | {"static_position_embeddings": False})
    context = whole(problems, config, ("max_position_embeddings",))["max_position_embeddings"]
    return found | {"norm": "before", "positions": "learned", "context": context}


def _to_hub(settings: Settings, tensors: Mapping[str, Tensor], problems: list[str]) -> dict[str, Any]:
    source = tensors["source.weight"]
    if source.shape[1] != settings.width:
        problems.append(f"token vectors of {source.shape[1]} for a width of {settings.width}: model.embedding")
    if "head.weight" in tensors:
        problems.append("input and output tokens have weights of their own: model.tie")
    sizes = {name: getattr(settings, ours) for name, ours in SIZES.items()}
    sizes["encoder_ffn_dim"] = settings.fine_size()
    sizes["decoder_layers"] = settings.layers if settings.decoder_layers is None else settings.decoder_layers
    return sizes | {decoder: sizes[encoder] for encoder, decoder in BOTH.items()} | {
        "vocab_size": len(source),
        "max_position_embeddings": PLACES,
        "activation_function": inverse(ACTIVATIONS)[settings.activation],
        "dropout": settings.dropout,
        "attention_dropout": 0.0,
        "activation_dropout": 0.0,
        "scale_embedding": settings.input_scale(settings.width, tied=True) != 1.0,
        "is_encoder_decoder": True,
        "forced_eos_token_id": None,
    }  # fmt: skip


def _to_marian(settings: Settings, tensors: Mapping[str, Tensor], problems: list[str]) -> dict[str, Any]:
    if settings.positions == "learned":
        problems.append("positions are learned, the norm comes after each part: model.positions, model.norm")
    targets = len(tensors.get("target.weight", tensors["source.weight"]))
    more = {"decoder_vocab_size": targets, "share_encoder_decoder_embeddings": "target.weight" not in tensors}
    return _to_hub(settings, tensors, problems) | more


def _to_blenderbot(settings: Settings, tensors: Mapping[str, Tensor], problems: list[str]) -> dict[str, Any]:
    if "target.weight" in tensors:
        problems.append("source and target have vocabularies of their own, the norm comes before each part: data.joint")
    context = len(tensors["backbone.positions.weight"])
    more = {"max_position_embeddings": context, "encoder_no_repeat_ngram_size": 0}
    return _to_hub(settings, tensors, problems) | more


def _block(ours: str, theirs: str, halves: bool, cross: bool) -> list[Entry]:
    found = []
    looks = [("attention", "self_attn"), ("cross", "encoder_attn")] if cross else [("attention", "self_attn")]
    for mine, other in looks:
        first = {"inputs": "qkv"} if mine == "attention" else {"query": "q", "memory": "kv"}
        for part, letters in first.items():
            found += layer(f"{ours}.{mine}.{part}", *(f"{theirs}.{other}.{letter}_proj" for letter in letters))
        found += layer(f"{ours}.{mine}.output", f"{theirs}.{other}.out_proj")
        found += layer(f"{ours}.{mine}_norm", f"{theirs}.{other}_layer_norm")
    found += layer(f"{ours}.feedforward.hidden", f"{theirs}.fc1")
    found += layer(f"{ours}.feedforward.output", f"{theirs}.fc2")
    found += layer(f"{ours}.feedforward_norm", f"{theirs}.final_layer_norm")
    return [_in_halves(one) for one in found] if halves else found


def _in_halves(one: Entry) -> Entry:
    """What writes into the vectors has its rows in that order, what reads from them its columns."""
    part, kind = one.ours.split(".")[-2:]
    writes = part == "output" or part.endswith("norm")
    if not writes and kind == "bias":
        return one
    return Halves(one.ours, one.theirs, axis=0 if writes else 1)


def _body(halves: bool) -> Callable[[Settings], list[Entry]]:
    def entries(settings: Settings) -> list[Entry]:
        layers = {"encoder": settings.layers, "decoder": settings.decoder_layers or settings.layers}
        return [
            entry
            for side, count in layers.items()
            for index in range(count)
            for entry in _block(f"backbone.{side}.{index}", f"{side}.layers.{index}", halves, side == "decoder")
        ]

    return entries


def _last(settings: Settings) -> list[Entry]:
    """Blenderbot's: as Marian's, with a norm behind the last block, and the table of positions."""
    places = Copies("backbone.positions.weight", ("encoder.embed_positions.weight", "decoder.embed_positions.weight"))
    norms = [entry for side in ("encoder", "decoder") for entry in layer(f"backbone.{side}_norm", f"{side}.layer_norm")]
    return [places, *norms, *_body(False)(settings)]


def _table(settings: Settings) -> dict[str, Tensor]:
    if settings.positions == "learned":
        return {}
    return {"backbone.positions.weight": sinusoids(0, PLACES, settings.width).float()}


def _modules(settings: Settings, config: Mapping[str, Any], vocabulary: int) -> dict[str, nn.Module]:
    joint = bool(config.get("share_encoder_decoder_embeddings", True))
    targets = vocabulary if joint else config.get("decoder_vocab_size") or vocabulary
    return dict(pair_network(settings, vocabulary, targets, joint, 1).named_children())


def _check_places(stored: Mapping[str, Tensor]) -> list[str]:
    """Older files hold the sinusoids, too."""
    problems = []
    for name in (f"model.{side}.embed_positions.weight" for side in ("encoder", "decoder")):
        if name in stored:
            sines = Halves("", (name,), axis=1).write(sinusoids(0, *stored[name].shape).float())[name]
            if not torch.allclose(stored[name], sines, rtol=0, atol=1e-3):  # they may have been kept in half precision
                problems.append(f"the tensor {name} holds other positions than sinusoids")
    return problems


_BIAS = Row("head.bias", ("final_logits_bias",))
_SHARED = "model.shared.weight"
_APART = ("model.encoder.embed_tokens.weight", "model.decoder.embed_tokens.weight")
_TABLES = ("source.weight", "target.weight", "head.bias")
_TIED = (r"lm_head\.weight", r"model\.(en|de)coder\.embed_tokens\.weight")
HUB = (
    Form(
        "marian",
        "model.",
        _from_marian,
        _to_marian,
        _body(True),
        (
            Head(
                "MarianMTModel",
                "translate",
                (Halves("source.weight", (_SHARED,), axis=1), _BIAS),
                fits=lambda config: config.get("share_encoder_decoder_embeddings", True) is not False,
            ),
            Head(
                "MarianMTModel",
                "translate",
                (
                    Halves("source.weight", _APART[:1], axis=1),
                    Halves("target.weight", _APART[1:], axis=1),
                    _BIAS,
                ),
            ),
        ),
        (*_TIED, r"model\.(en|de)coder\.embed_positions\.weight"),
        suits=lambda settings: settings.norm == "after",
        tables=_TABLES,
        modules=_modules,
        check=_check_places,
    ),
    Form(
        "blenderbot",
        "model.",
        _from_blenderbot,
        _to_blenderbot,
        _last,
        (Head("BlenderbotForConditionalGeneration", "translate", (Entry("source.weight", (_SHARED,)), _BIAS)),),
        _TIED,
        suits=lambda settings: settings.norm == "before",
        tables=_TABLES,
        made=_table,
        modules=_modules,
    ),
)
