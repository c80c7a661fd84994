"""The declaration of the task pretrain."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field as Setting

from ...core.config import Settings
from ...data.kinds import NUMBER, TEXT, TOKENS
from ...data.schema import Field, Schema
from ...data.settings import TokenizerSettings, default_kind
from ..capability import Capability
from ..language.spec import TEXT_SCHEMA
from ..shared_spec import EMBEDDINGS
from ..spec import CONTEXT_LENGTH, TaskSpec

BERT_TOKENIZER = {"kind": "bert", "lowercase": True}
INPUTS = Schema(
    (
        Field("text", (TEXT,), ("sentence", "content", "first", "block")),
        Field("second", (TEXT,), ("second_text", "text2", "sentence2"), required=False),
    ),
    positions=("text", "second"),
)


class PretrainSettings(Settings):
    """Settings of the task pretrain."""

    name: str = Setting("pretrain", description="the task: see `seriatim list tasks`")
    context_length: Annotated[int, CONTEXT_LENGTH] = Setting(
        128, ge=8, le=1_000_000, description="tokens of a pair of passages, special tokens included"
    )
    masked: bool = Setting(True, description="predict masked tokens")
    next: bool = Setting(True, description="predict whether the second passage follows the first; false: no pairs")
    pairs_first: int = Setting(
        0,
        ge=0,
        le=10**12,
        description="steps with pairs only, at most a fifth of all, before masked tokens are added (none with --from)",
    )
    mask_rate: float = Setting(0.15, gt=0, lt=1, description="share of the tokens that are masked")
    whole_word: bool = Setting(False, description="mask all tokens of a word together")
    tokenizer: Annotated[TokenizerSettings | None, default_kind(**BERT_TOKENIZER)] = Setting(
        None, description="how text is tokenized (default: as BERT does, in lower case)"
    )


class FillOptions(Settings):
    top: int = Setting(5, ge=1, le=1_000_000, description="tokens listed for each [MASK]")


FILL = Capability(
    "fill",
    "Predict the token at each [MASK] of a text, and whether a second text follows the first.",
    INPUTS,
    {"text": TEXT, "masks": TOKENS, "follows": NUMBER},
    FillOptions,
    presentation="masks",
    common=("top",),
)
SPEC = TaskSpec(
    "pretrain",
    "Pretraining of encoders: masked language modeling and next-sentence prediction",
    TEXT_SCHEMA,
    PretrainSettings,
    (FILL, *EMBEDDINGS),
    default_model="bert",
    default_model_reason="masked tokens are predicted from both sides, for which BERT was made",
    compared_models=("bert", "lstm", "gru"),
)
