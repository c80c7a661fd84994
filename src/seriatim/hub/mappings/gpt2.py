"""GPT-2 and the first GPT (`openai-gpt`), which store their matrices transposed."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from torch import Tensor

from ...core.files import Json
from ...models.gpt import INIT_STD, Settings
from ...nn.network import VectorHead
from ..mapping import (
    ACTIVATIONS,
    Config,
    HubHead,
    ModelMapping,
    TensorMap,
    inverse,
    layer_maps,
    map_value,
    read_sizes,
    require_values,
)

POSITIONS = 1024  # of a table, if ours are unbounded
SIZES = {"n_embd": "width", "n_layer": "layers", "n_head": "heads", "n_positions": "context_length"}
FIRST_ACTIVATIONS = {"gelu": "gelu-tanh", "relu": "relu", "silu": "silu", "swish": "silu"}  # its gelu is GPT-2's
REQUIRED = {
    "scale_attn_weights": True,
    "scale_attn_by_inverse_layer_idx": False,
    "reorder_and_upcast_attn": False,
    "add_cross_attention": False,
    "tie_word_embeddings": True,
}
PARTS = {
    "attention.inputs": "attn.c_attn",
    "attention.output": "attn.c_proj",
    "feedforward.hidden": "mlp.c_fc",
    "feedforward.output": "mlp.c_proj",
}


def _common_settings(config: Config, problems: list[str]) -> Json:
    require_values(problems, config, REQUIRED)
    sizes = read_sizes(problems, config, SIZES)
    return {SIZES[key]: value for key, value in sizes.items()} | {
        "name": "gpt",
        "tie": True,
        "dropout": config.get("resid_pdrop", 0.1),
        "eps": config.get("layer_norm_epsilon", 1e-5),
    }


def _gpt2_settings(config: Config, problems: list[str]) -> Json:
    activation = config.get("activation_function", "gelu_new")
    inner = config.get("n_inner")
    return _common_settings(config, problems) | {
        "norm": "before",
        "activation": map_value(problems, "activation_function", activation, ACTIVATIONS),
        "feedforward": None if inner is None else read_sizes(problems, config, ("n_inner",))["n_inner"],
    }


def _first_settings(config: Config, problems: list[str]) -> Json:
    activation = map_value(problems, "afn", config.get("afn", "gelu"), FIRST_ACTIVATIONS)
    return _common_settings(config, problems) | {"norm": "after", "activation": activation}


def _common_config(settings: Settings, tensors: Mapping[str, Tensor], problems: list[str]) -> Json:
    embeddings, positions = tensors["input.weight"], tensors["backbone.positions.weight"]
    if embeddings.shape[1] != settings.width:
        problems.append(f"token vectors of {embeddings.shape[1]} for a width of {settings.width}: model.embedding")
    if "head.weight" in tensors:
        problems.append("input and output tokens have separate weights: model.tie")
    return {key: getattr(settings, name) for key, name in SIZES.items()} | {
        "vocab_size": len(embeddings),
        "n_positions": len(positions),
        "resid_pdrop": settings.dropout,
        "embd_pdrop": settings.dropout,
        "attn_pdrop": 0.0,
        "layer_norm_epsilon": settings.eps,
        "initializer_range": INIT_STD,
    }


def _gpt2_config(settings: Settings, tensors: Mapping[str, Tensor], problems: list[str]) -> Json:
    name = inverse(ACTIVATIONS)[settings.activation]
    return _common_config(settings, tensors, problems) | {"activation_function": name, "n_inner": settings.feedforward}


def _first_config(settings: Settings, tensors: Mapping[str, Tensor], problems: list[str]) -> Json:
    if settings.feedforward not in (None, 4 * settings.width):
        problems.append(f"a feed-forward network of {settings.feedforward}, not 4·width: model.feedforward")
    name = map_value(problems, "model.activation", settings.activation, inverse(FIRST_ACTIVATIONS))
    return _common_config(settings, tensors, problems) | {"afn": name}


def _body(tokens: str, positions: str, last_norm: str | None) -> Callable[[Settings], list[TensorMap]]:
    def maps(settings: Settings) -> list[TensorMap]:
        entries = [
            TensorMap("input.weight", (f"{tokens}.weight",)),
            TensorMap("backbone.positions.weight", (f"{positions}.weight",)),
            *(layer_maps("backbone.norm", last_norm) if last_norm else []),
        ]
        for index in range(settings.layers):
            block, hub_block = f"backbone.blocks.{index}", f"h.{index}"
            for part, hub_part in PARTS.items():
                entries += layer_maps(f"{block}.{part}", f"{hub_block}.{hub_part}", transposed=True)
            entries += layer_maps(f"{block}.attention_norm", f"{hub_block}.ln_1")
            entries += layer_maps(f"{block}.feedforward_norm", f"{hub_block}.ln_2")
        return entries

    return maps


def _position_table(settings: Settings) -> dict[str, Tensor]:
    """Returns the table of positions that are not learned; what is read again has it as learned ones."""
    table = settings.fixed_positions(POSITIONS if settings.context_length is None else settings.context_length)
    return {} if table is None else {"backbone.positions.weight": table}


_CONSTANTS = (r".*\.attn\.(bias|masked_bias)", r"(transformer\.)?position_ids", r"lm_head\.weight")
MAPPINGS = (
    ModelMapping(
        "gpt2",
        "gpt",
        "transformer.",
        _gpt2_settings,
        _gpt2_config,
        _body("wte", "wpe", "ln_f"),
        (
            HubHead("GPT2LMHeadModel", "causal-lm"),
            HubHead("GPT2Model", "causal-lm", prefixed=False),
            HubHead(
                "GPT2DoubleHeadsModel",
                "multiple-choice",
                tuple(layer_maps("head.output", "multiple_choice_head.summary")),
                task_settings={"pooling": "last"},
                make=lambda settings, inputs, outputs: VectorHead(settings.width, 1, "last"),
            ),
        ),
        _CONSTANTS,
        supports=lambda settings: settings.norm == "before",
        constants=_position_table,
    ),
    ModelMapping(
        "openai-gpt",
        "gpt",
        "transformer.",
        _first_settings,
        _first_config,
        _body("tokens_embed", "positions_embed", None),
        (HubHead("OpenAIGPTLMHeadModel", "causal-lm"), HubHead("OpenAIGPTModel", "causal-lm", prefixed=False)),
        _CONSTANTS,
        supports=lambda settings: settings.norm == "after",
        constants=_position_table,
    ),
)
