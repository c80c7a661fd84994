"""T5 and FLAN-T5.

The first T5 shares the vectors of input and output tokens and scales its outputs; T5 1.1 and FLAN-T5 do neither.
config.json says it by `tie_word_embeddings` or, since `transformers` 5, which always writes that as true, by
`scale_decoder_outputs`. So outputs that are not scaled have weights of their own, even if the file stores them once.
"""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor, nn

from ...core.files import Json
from ...models.t5 import Settings
from ...nn.encoder_decoder import encoder_decoder_network
from ..mapping import Config, HubHead, ModelMapping, TensorMap, inverse, map_value, read_sizes, require_values

SIZES = {
    "d_model": "width",
    "num_layers": "layers",
    "num_heads": "heads",
    "d_kv": "head_size",
    "d_ff": "feedforward",
}
OPTIONAL_SIZES = {
    "num_decoder_layers": "decoder_layers",
    "relative_attention_num_buckets": "buckets",
    "relative_attention_max_distance": "max_distance",
}
FEED_FORWARDS = {  # of T5 → activation, and whether it is gated
    "relu": ("relu", False), "gated-gelu": ("gelu-tanh", True), "gelu": ("gelu", False),
    "gelu_new": ("gelu-tanh", False), "silu": ("silu", False), "gated-relu": ("relu", True),
    "gated-silu": ("silu", True), "gated-gelu_python": ("gelu", True), "gated-gelu_new": ("gelu-tanh", True),
}  # fmt: skip
POSITIONS = 512  # the longest text that its tokenizer suggests; the model has no limit


def _scales(config: Config) -> bool:
    return config.get("scale_decoder_outputs", config.get("tie_word_embeddings")) is not False


def _settings(config: Config, problems: list[str]) -> Json:
    require_values(problems, config, {"is_encoder_decoder": True})
    sizes = {SIZES[key]: value for key, value in read_sizes(problems, config, SIZES).items()}
    optional = [key for key in OPTIONAL_SIZES if config.get(key) is not None]
    sizes |= {OPTIONAL_SIZES[key]: value for key, value in read_sizes(problems, config, optional).items()}
    kind = config.get("feed_forward_proj", "relu")
    activation, gated = map_value(problems, "feed_forward_proj", kind, FEED_FORWARDS)
    return sizes | {
        "name": "t5",
        "dropout": config.get("dropout_rate", 0.1),
        "activation": activation,
        "gated": gated,
        "eps": config.get("layer_norm_epsilon", 1e-6),
        "tie": _scales(config),
    }


def _config(settings: Settings, tensors: Mapping[str, Tensor], problems: list[str]) -> Json:
    source = tensors["source.weight"]
    if source.shape[1] != settings.width:
        problems.append(f"token vectors of {source.shape[1]} for a width of {settings.width}: model.embedding")
    if "target.weight" in tensors:
        problems.append("source and target have separate vocabularies: task.joint")
    sizes = {key: getattr(settings, name) for key, name in (SIZES | OPTIONAL_SIZES).items()}
    sizes["d_ff"] = settings.budget_size()
    sizes["d_kv"] = settings.width // settings.heads if settings.head_size is None else settings.head_size
    sizes["num_decoder_layers"] = settings.layers if settings.decoder_layers is None else settings.decoder_layers
    return sizes | {
        "vocab_size": len(source),
        "n_positions": POSITIONS,
        "feed_forward_proj": inverse(FEED_FORWARDS)[settings.activation, settings.gated],
        "layer_norm_epsilon": settings.eps,
        "dropout_rate": settings.dropout,
        "tie_word_embeddings": settings.tied,
        "scale_decoder_outputs": settings.tied,
        "is_encoder_decoder": True,
    }


def _body(settings: Settings) -> list[TensorMap]:
    entries = []
    layers = {"encoder": settings.layers, "decoder": settings.decoder_layers or settings.layers}
    for side, count in layers.items():
        first = f"{side}.block.0.layer.0.SelfAttention.relative_attention_bias.weight"
        entries += [
            TensorMap(f"backbone.{side}_positions.weight", (first,)),
            TensorMap(f"backbone.{side}_norm.weight", (f"{side}.final_layer_norm.weight",)),
        ]
        for index in range(count):
            names = f"backbone.{side}.{index}", f"{side}.block.{index}.layer"
            entries += _block(*names, settings.gated, cross=side == "decoder")
    return entries


def _block(block: str, hub_block: str, gated: bool, cross: bool) -> list[TensorMap]:
    matrices = {"attention.inputs": "0.SelfAttention.q k v", "attention.output": "0.SelfAttention.o"}
    matrices["attention_norm"] = "0.layer_norm"
    if cross:
        matrices |= {"cross.query": "1.EncDecAttention.q", "cross.memory": "1.EncDecAttention.k v"}
        matrices |= {"cross.output": "1.EncDecAttention.o", "cross_norm": "1.layer_norm"}
    last = 2 if cross else 1
    matrices["feedforward_norm"] = f"{last}.layer_norm"
    inner = {"gate": "wi_0", "hidden": "wi_1"} if gated else {"hidden": "wi"}
    for name, hub_name in (inner | {"output": "wo"}).items():
        matrices[f"feedforward.{name}"] = f"{last}.DenseReluDense.{hub_name}"
    entries = []
    for name, hub_names in matrices.items():
        first, *others = hub_names.split()
        siblings = (first, *(f"{first.rpartition('.')[0]}.{other}" for other in others))
        entries.append(TensorMap(f"{block}.{name}.weight", tuple(f"{hub_block}.{one}.weight" for one in siblings)))
    return entries


def _modules(settings: Settings, config: Config, vocab_size: int) -> dict[str, nn.Module]:
    return dict(encoder_decoder_network(settings, vocab_size, vocab_size, True, 1).named_children())


_TOKENS = TensorMap("source.weight", ("shared.weight",))
_OUTPUT = TensorMap("head.weight", ("lm_head.weight",))
MAPPINGS = (
    ModelMapping(
        "t5",
        "t5",
        "",
        _settings,
        _config,
        _body,
        tuple(
            head
            for name in ("T5ForConditionalGeneration", "T5WithLMHeadModel")  # the latter is an older name
            for head in (
                HubHead(name, "seq2seq-lm", (_TOKENS,), matches=_scales, copies=(("shared.weight", "lm_head.weight"),)),
                HubHead(name, "seq2seq-lm", (_TOKENS, _OUTPUT)),
            )
        ),
        (
            r"lm_head\.weight",
            r"(en|de)coder\.embed_tokens\.weight",
            r"decoder\.block\.0\.layer\.1\.EncDecAttention\.relative_attention_bias\.weight",
        ),
        token_tables=("source.weight", "head.weight"),
        modules=_modules,
        aliases={"lm_head.weight": "shared.weight"},
    ),
)
