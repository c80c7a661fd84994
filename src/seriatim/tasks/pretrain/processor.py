"""The settings of pretraining, and its processor: text as documents, sentences and tokens."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self, cast

import numpy as np
from pydantic import Field as Setting
from pydantic import field_validator

from ...core.config import Settings
from ...core.diagnostics import Diagnostics
from ...core.errors import SeriatimError
from ...data.dataset import Dataset
from ...data.documents import UNKNOWN, TextLayout, document_ends
from ...data.tokenizers import Tokenizer, TokenizerSettings, with_default_kind
from ..base import Encoded, Processor, TaskConfig
from .passages import EncodedDocuments, Passages

TRAINING_CHARACTERS = 1 << 26  # that a tokenizer is trained on; of more text, evenly spaced documents
BERT_TOKENIZER = {"kind": "bert", "lowercase": True}


class PretrainSettings(Settings):
    """Settings of the task pretrain."""

    name: str = Setting("pretrain", description="the task: see `seriatim list tasks`")
    context_length: int = Setting(
        128, ge=8, le=1_000_000, description="tokens of a pair of passages, special tokens included"
    )
    masked: bool = Setting(True, description="predict masked tokens")
    next: bool = Setting(True, description="predict whether the second passage follows the first; false: no pairs")
    pairs_first: int = Setting(
        0,
        ge=0,
        description="steps with pairs only, at most a fifth of all, before masked tokens are added (none with --from)",
    )
    mask_rate: float = Setting(0.15, gt=0, lt=1, description="share of the tokens that are masked")
    whole_word: bool = Setting(False, description="mask all tokens of a word together")
    tokenizer: TokenizerSettings | None = Setting(
        None, description="how text is tokenized (default: as BERT does, in lower case)"
    )

    @field_validator("tokenizer", mode="before")
    @classmethod
    def _default_kind(cls, values: Any) -> Any:
        return with_default_kind(values, **BERT_TOKENIZER)


@dataclass(frozen=True, kw_only=True)
class EncodedPassages(Encoded):
    """The spans of a split: `inputs` has their lengths only, since passages are drawn from them."""

    passages: Passages


@dataclass(frozen=True)
class PretrainProcessor(Processor[EncodedPassages]):
    """Divides text into documents, sentences and tokens."""

    tokenizer: Tokenizer
    max_length: int
    paired: bool = True
    titled: bool = False  # see `TextLayout`
    wrapped: bool = False

    @classmethod
    def fit(
        cls, train: Dataset, config: TaskConfig, pretrained: Mapping[str, Tokenizer], diagnostics: Diagnostics
    ) -> Self:
        settings: PretrainSettings = config.task
        layout = TextLayout.detect(train)
        diagnostics.note(layout.describe())
        tokenizer = pretrained.get("tokenizer")
        if tokenizer is None:
            characters = int(train.columns["text"][0].lengths.sum(dtype=np.int64))
            every = -(-characters // TRAINING_CHARACTERS)
            documents = layout.documents(train["text"], document_ends(train).tolist())
            sampled = (sentences for number, sentences in enumerate(documents) if number % every == 0)
            texts = (" ".join(sentences).replace(UNKNOWN, " ") + "\n" for sentences in sampled)
            tokenizer = Tokenizer.train(settings.tokenizer or TokenizerSettings(**cast(Any, BERT_TOKENIZER)), texts)
            size = f"{tokenizer.kind} tokenizer with {tokenizer.vocab_size:,} tokens"
            diagnostics.note(f"{size}, trained on the training split")
        needed = {"cls": "[CLS]", "sep": "[SEP]"} | ({"mask": "[MASK]"} if settings.masked else {})
        missing = [name for use, name in needed.items() if getattr(tokenizer, use) is None]
        if missing:
            cause = f"the {tokenizer.kind} tokenizer has no {', no '.join(missing)}"
            raise SeriatimError("tokenizer.special", cause, "omit --tokenizer, or name bert")
        return cls(tokenizer, settings.context_length, settings.next, layout.titled, layout.wrapped)

    @classmethod
    def from_pretrained(
        cls,
        tokenizers: Mapping[str, Tokenizer],
        max_length: int,
        labels: tuple[str, ...] = (),
        config: Mapping[str, Any] | None = None,
    ) -> Self:
        return cls(tokenizers["tokenizer"], max_length)

    def encode(self, dataset: Dataset, diagnostics: Diagnostics, split: str = "training") -> EncodedPassages:
        """Returns the spans of a data set, from which passages are drawn; `split` is its name in messages."""
        separate = bool(document_ends(dataset).any())
        layout = TextLayout(separate, self.titled, self.wrapped)
        documents = EncodedDocuments.encode(dataset, layout, self.tokenizer)
        tokens = documents.tokens
        unknown = 0 if self.tokenizer.unk is None else int(np.count_nonzero(tokens == self.tokenizer.unk))
        share = f", {100 * unknown / len(tokens):.2g} % of them unknown" if unknown else ""
        counts = f"{len(documents.documents):,} documents, {len(documents.sentences):,} sentences"
        diagnostics.note(f"{split}: {counts}, {len(tokens):,} tokens{share}")
        passages = Passages(documents, self.tokenizer, self.max_length, self.paired, split)
        if passages.left_out:
            count = f"{passages.left_out:,} documents of a single sentence"
            diagnostics.note(f"{split}: {count} are left out, since nothing follows it")
        return EncodedPassages(passages.inputs, passages=passages)
