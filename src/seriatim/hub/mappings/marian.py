"""The Transformer as Marian, BART or Blenderbot.

Marian has the norm after each part and sinusoidal positions, BART the norm after each part and after the learned
positions, Blenderbot the norm before each part and learned positions (sinusoids are written as such). Marian's vectors
begin with all sines, then come the cosines, where ours alternate: so all matrices that write into these vectors or read
from them are reordered. Source and target of Marian may have separate vocabularies, and its output weights of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from torch import Tensor, nn

from ...core.files import Json
from ...models.transformer import Settings
from ...nn.encoder_decoder import encoder_decoder_network
from ...nn.layers import sinusoids
from ..mapping import (
    ACTIVATIONS,
    Config,
    HubHead,
    InterleavedMap,
    ModelMapping,
    OffsetMap,
    TensorMap,
    TiedMap,
    UnsqueezedMap,
    inverse,
    layer_maps,
    map_value,
    read_sizes,
    require_values,
)

SIZES = {
    "d_model": "width",
    "encoder_layers": "layers",
    "decoder_layers": "decoder_layers",
    "encoder_attention_heads": "heads",
    "encoder_ffn_dim": "feedforward",
}
EQUAL = {"encoder_attention_heads": "decoder_attention_heads", "encoder_ffn_dim": "decoder_ffn_dim"}
POSITIONS = 512  # of a table or a limit, if ours are unbounded
SIDES = ("encoder", "decoder")


# Settings


def _common_settings(config: Config, problems: list[str], required: dict[str, bool]) -> Json:
    require_values(problems, config, required)
    if _has_one_vocabulary(config):
        require_values(problems, config, {"tie_word_embeddings": True})
    sizes = read_sizes(problems, config, SIZES)
    for encoder, decoder in EQUAL.items():
        map_value(problems, decoder, config.get(decoder), {sizes[encoder]: 0})
    activation = config.get("activation_function", "gelu")
    return {SIZES[key]: value for key, value in sizes.items()} | {
        "name": "transformer",
        "dropout": config.get("dropout", 0.1),
        "activation": map_value(problems, "activation_function", activation, ACTIVATIONS),
        "scale": bool(config.get("scale_embedding", False)),
        "tie": _is_tied(config),
    }


def _has_one_vocabulary(config: Config) -> bool:
    return config.get("share_encoder_decoder_embeddings", True) is not False


def _is_tied(config: Config) -> bool:
    return config.get("tie_word_embeddings", True) is not False


def _marian_settings(config: Config, problems: list[str]) -> Json:
    required = {"normalize_before": False, "normalize_embedding": False, "add_final_layer_norm": False}
    settings = _common_settings(config, problems, required | {"static_position_embeddings": True})
    if config.get("decoder_vocab_size") is not None:
        read_sizes(problems, config, ("decoder_vocab_size",))
    return settings | {"norm": "after", "positions": "sinusoidal"}


def _blenderbot_settings(config: Config, problems: list[str]) -> Json:
    required = {"normalize_before": True, "normalize_embedding": False, "add_final_layer_norm": True}
    settings = _common_settings(config, problems, required | {"static_position_embeddings": False})
    return settings | {"norm": "before"} | _learned_positions(config, problems)


def _bart_settings(config: Config, problems: list[str]) -> Json:
    required = {"normalize_before": False, "normalize_embedding": True, "add_final_layer_norm": False}
    settings = _common_settings(config, problems, required | {"static_position_embeddings": False})
    return settings | {"norm": "after", "embedding_norm": True} | _learned_positions(config, problems)


def _learned_positions(config: Config, problems: list[str]) -> Json:
    length = read_sizes(problems, config, ("max_position_embeddings",))["max_position_embeddings"]
    return {"positions": "learned", "shared_positions": False, "context_length": length}


def _common_config(settings: Settings, tensors: Mapping[str, Tensor], problems: list[str]) -> Json:
    source = tensors["source.weight"]
    if source.shape[1] != settings.width:
        problems.append(f"token vectors of {source.shape[1]} for a width of {settings.width}: model.embedding")
    sizes = {key: getattr(settings, name) for key, name in SIZES.items()}
    sizes["encoder_ffn_dim"] = settings.budget_size()
    sizes["decoder_layers"] = settings.layers if settings.decoder_layers is None else settings.decoder_layers
    return (
        sizes
        | {decoder: sizes[encoder] for encoder, decoder in EQUAL.items()}
        | {
            "vocab_size": len(source),
            "max_position_embeddings": POSITIONS,
            "activation_function": inverse(ACTIVATIONS)[settings.activation],
            "dropout": settings.dropout,
            "attention_dropout": 0.0,
            "activation_dropout": 0.0,
            "scale_embedding": settings.input_scale(settings.width, tied="head.weight" not in tensors) != 1.0,
            "is_encoder_decoder": True,
        }
    )


def _marian_config(settings: Settings, tensors: Mapping[str, Tensor], problems: list[str]) -> Json:
    if settings.positions != "sinusoidal":
        kind = "learned" if settings.positions == "learned" else "missing"
        problems.append(f"positions are {kind} and the norm is after each part: model.positions, model.norm")
    one_vocabulary = "target.weight" not in tensors
    if one_vocabulary:
        _require_tied(tensors, problems)
    vocabularies = {
        "decoder_vocab_size": len(tensors["source.weight" if one_vocabulary else "target.weight"]),
        "share_encoder_decoder_embeddings": one_vocabulary,
        "tie_word_embeddings": "head.weight" not in tensors,
    }
    return _common_config(settings, tensors, problems) | vocabularies


def _require_tied(tensors: Mapping[str, Tensor], problems: list[str]) -> None:
    if "head.weight" in tensors:
        problems.append("input and output tokens have separate weights: model.tie")


def _learned_config(settings: Settings, tensors: Mapping[str, Tensor], problems: list[str]) -> Json:
    if "target.weight" in tensors:
        marian = "Marian has them: model.norm=after, model.positions=sinusoidal, model.embedding_norm=false"
        problems.append(f"source and target have separate vocabularies: task.joint ({marian})")
    if settings.norm == "before" and settings.embedding_norm:
        problems.append("a norm after the positions and before each part: model.embedding_norm, model.norm")
    _require_tied(tensors, problems)
    length = len(tensors["backbone.positions.weight"])
    more = {"max_position_embeddings": length, "encoder_no_repeat_ngram_size": 0}
    return _common_config(settings, tensors, problems) | more


# Tensors


def _block(block: str, hub_block: str, interleaved: bool, cross: bool) -> list[TensorMap]:
    entries = []
    parts = [("attention", "self_attn"), ("cross", "encoder_attn")] if cross else [("attention", "self_attn")]
    for part, hub_part in parts:
        matrices = {"inputs": "qkv"} if part == "attention" else {"query": "q", "memory": "kv"}
        for matrix, letters in matrices.items():
            names = (f"{hub_block}.{hub_part}.{letter}_proj" for letter in letters)
            entries += layer_maps(f"{block}.{part}.{matrix}", *names)
        entries += layer_maps(f"{block}.{part}.output", f"{hub_block}.{hub_part}.out_proj")
        entries += layer_maps(f"{block}.{part}_norm", f"{hub_block}.{hub_part}_layer_norm")
    entries += layer_maps(f"{block}.feedforward.hidden", f"{hub_block}.fc1")
    entries += layer_maps(f"{block}.feedforward.output", f"{hub_block}.fc2")
    entries += layer_maps(f"{block}.feedforward_norm", f"{hub_block}.final_layer_norm")
    return [_interleave(entry) for entry in entries] if interleaved else entries


def _interleave(entry: TensorMap) -> TensorMap:
    """Returns the map with reordered rows, if the tensor writes into the vectors, or columns, if it reads them."""
    part, kind = entry.name.split(".")[-2:]
    writes = part == "output" or part.endswith("norm")
    if not writes and kind == "bias":
        return entry
    return InterleavedMap(entry.name, entry.hub_names, axis=0 if writes else 1)


def _body(interleaved: bool) -> Callable[[Settings], list[TensorMap]]:
    def maps(settings: Settings) -> list[TensorMap]:
        layers = {"encoder": settings.layers, "decoder": settings.decoder_layers or settings.layers}
        return [
            entry
            for side, count in layers.items()
            for index in range(count)
            for entry in _block(f"backbone.{side}.{index}", f"{side}.layers.{index}", interleaved, side == "decoder")
        ]

    return maps


def _blenderbot_body(settings: Settings) -> list[TensorMap]:
    """Returns the tensors: as Marian's, with a norm after the last block, and positions."""
    norms = [entry for side in SIDES for entry in layer_maps(f"backbone.{side}_norm", f"{side}.layer_norm")]
    return [*_position_maps(settings, TiedMap), *norms, *_body(False)(settings)]


def _bart_body(settings: Settings) -> list[TensorMap]:
    """Returns the tensors: as Marian's, with positions and a norm after them."""
    names = ((f"backbone.{side}_embedding_norm", f"{side}.layernorm_embedding") for side in SIDES)
    norms = [entry for pair in names for entry in layer_maps(*pair)]
    return [*_position_maps(settings, OffsetMap), *norms, *_body(False)(settings)]


def _position_maps(settings: Settings, kind: type[TiedMap]) -> list[TensorMap]:
    """Returns the tables of positions: ours is one for both sides, or one for each."""
    tables = tuple(f"{side}.embed_positions.weight" for side in SIDES)
    if settings.shared_positions or settings.positions != "learned":
        return [kind("backbone.positions.weight", tables)]
    names = ("backbone.positions.weight", "backbone.decoder_positions.weight")
    return [kind(name, (table,)) for name, table in zip(names, tables, strict=True)]


def _position_table(settings: Settings) -> dict[str, Tensor]:
    table = settings.fixed_positions(POSITIONS)
    return {} if table is None else {"backbone.positions.weight": table}


def _modules(settings: Settings, config: Config, vocab_size: int) -> dict[str, nn.Module]:
    joint = _has_one_vocabulary(config)
    target_size = vocab_size if joint else config.get("decoder_vocab_size") or vocab_size
    return dict(encoder_decoder_network(settings, vocab_size, target_size, joint, 1).named_children())


def _check_positions(tensors: Mapping[str, Tensor]) -> list[str]:
    """Returns problems of stored positions, which older files contain, and which must be sinusoids."""
    problems = []
    for name in (f"model.{side}.embed_positions.weight" for side in SIDES):
        if name in tensors:
            stored = tensors[name].float()
            if stored.dim() != 2 or stored.shape[1] % 2:
                problems.append(f"the tensor {name} has the shape {tuple(stored.shape)}, not that of positions")
                continue
            expected = InterleavedMap("", (name,), axis=1).write(sinusoids(0, *stored.shape).float())[name]
            if not torch.allclose(stored, expected, rtol=0, atol=1e-3):  # they may be in half precision
                problems.append(f"the tensor {name} has other positions than sinusoids")
    return problems


_BIAS = UnsqueezedMap("head.bias", ("final_logits_bias",))
_SHARED = "model.shared.weight"
_SEPARATE = tuple(f"model.{side}.embed_tokens.weight" for side in SIDES)
_COPIES = tuple((_SHARED, name) for name in ("lm_head.weight", *_SEPARATE))
_TWO_VOCABULARIES = (
    InterleavedMap("source.weight", _SEPARATE[:1], axis=1),
    InterleavedMap("target.weight", _SEPARATE[1:], axis=1),
)
_TOKEN_TABLES = ("source.weight", "target.weight", "head.weight", "head.bias")
_TIED = (r"lm_head\.weight", r"model\.(en|de)coder\.embed_tokens\.weight")
MAPPINGS = (
    ModelMapping(
        "marian",
        "transformer",
        "model.",
        _marian_settings,
        _marian_config,
        _body(True),
        (
            HubHead(
                "MarianMTModel",
                "seq2seq-lm",
                (InterleavedMap("source.weight", (_SHARED,), axis=1), _BIAS),
                matches=_has_one_vocabulary,
                copies=_COPIES,
            ),
            HubHead(
                "MarianMTModel",
                "seq2seq-lm",
                (*_TWO_VOCABULARIES, _BIAS),
                matches=_is_tied,
                copies=((_SEPARATE[1], "lm_head.weight"),),
            ),
            HubHead(
                "MarianMTModel",
                "seq2seq-lm",
                (*_TWO_VOCABULARIES, InterleavedMap("head.weight", ("lm_head.weight",), axis=1), _BIAS),
            ),
        ),
        (*_TIED, r"model\.(en|de)coder\.embed_positions\.weight"),
        supports=lambda settings: settings.norm == "after" and not settings.embedding_norm,
        token_tables=_TOKEN_TABLES,
        modules=_modules,
        check=_check_positions,
    ),
    ModelMapping(
        "bart",
        "transformer",
        "model.",
        _bart_settings,
        _learned_config,
        _bart_body,
        tuple(
            HubHead(architecture, "seq2seq-lm", (TensorMap("source.weight", (_SHARED,)),), (_BIAS,), copies=_COPIES)
            for architecture in ("BartForConditionalGeneration", "BartModel")
        ),
        _TIED,
        supports=lambda settings: settings.norm == "after" and settings.embedding_norm,
        token_tables=_TOKEN_TABLES,
        constants=_position_table,
        modules=_modules,
    ),
    ModelMapping(
        "blenderbot",
        "transformer",
        "model.",
        _blenderbot_settings,
        _learned_config,
        _blenderbot_body,
        (
            HubHead(
                "BlenderbotForConditionalGeneration",
                "seq2seq-lm",
                (TensorMap("source.weight", (_SHARED,)), _BIAS),
                copies=_COPIES,
            ),
        ),
        _TIED,
        supports=lambda settings: settings.norm == "before",
        token_tables=_TOKEN_TABLES,
        constants=_position_table,
        modules=_modules,
    ),
)
