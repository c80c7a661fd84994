"""Pairs of sources and targets as tokens: the items of a split, their batches, and the processor that encodes them."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, Self

import numpy as np
import torch

from ...core.errors import Diagnostics
from ...data.dataset import Dataset
from ...data.disk import TextValues
from ...data.shards import encode_column
from ...data.tokenizers import Tokenizer, TokenizerSettings
from ...decode.seq2seq import TargetTokens
from ..batching import Batch, padding_mask
from ..codecs import training_texts
from ..encoder_decoder import Paired, TargetProcessor, shift_targets
from ..metrics import Scoring
from ..processor import Tokenizers, Values
from ..spec import TaskConfig
from ..values import Items, Subset
from .spec import SIDES, SUBWORDS


@dataclass(frozen=True, eq=False)
class Pairs(Paired):
    """Sources and targets as tokens.

    Args:
        translated: The distinct sources, by number, that an evaluation translates; None: all.
        scoring: How translations are scored, the same for all splits; None in prediction.
    """

    translated: np.ndarray | None = field(default=None, kw_only=True)
    scoring: Scoring | None = field(default=None, kw_only=True)

    def take(self, items: np.ndarray) -> Self:
        return replace(super().take(items), targets=None if self.targets is None else Subset(self.targets, items))

    @property
    def pair_lengths(self) -> np.ndarray:
        """The length of the longer side of each pair (items,)."""
        return self.lengths if self.targets is None else np.maximum(self.lengths, self.targets.lengths)


def collate_pairs(pairs: Pairs, chosen: np.ndarray, start: int, max_length: int | None = None) -> Batch:
    """Returns sources (B,S) with their mask, decoder inputs (B,T) and targets (B,T) with `IGNORED` for padding.

    Args:
        pairs: All pairs; without targets there are no decoder inputs.
        chosen: Those of the batch.
        start: The token that the decoder reads first.
        max_length: Truncates both sides, for models with a limited context.
    """
    source, mask = (block[:, :max_length] for block in pairs.inputs.padded(chosen))
    if pairs.targets is None:
        return Batch((torch.from_numpy(source), None, None), None, len(chosen), padding_mask(mask))
    decoder_inputs, targets, count = shift_targets(pairs.targets, chosen, start, max_length)
    return Batch((torch.from_numpy(source), decoder_inputs, None), targets, count, padding_mask(mask))


def source_groups(rows: Dataset) -> list[np.ndarray]:
    """Returns the rows of each distinct source, in order: its references."""
    return list(rows.groups("source").values())


@dataclass(frozen=True)
class TranslationProcessor(TargetProcessor[Pairs]):
    source: Tokenizer
    target: Tokenizer  # the same object if the vocabulary is shared
    context_length: int
    decoder_start: int | None = None  # if it is another token than <eos>
    framed: bool = False
    forced_eos: bool = False

    @property
    def tokens(self) -> TargetTokens:
        tokens = super().tokens
        return tokens if self.decoder_start is None else replace(tokens, start=self.decoder_start)

    @classmethod
    def fit(cls, train: Dataset, config: TaskConfig[Any], pretrained: Tokenizers, diagnostics: Diagnostics) -> Self:
        settings = config.task
        length, limit = settings.context_length, config.model.traits.context_length
        if limit is not None and "context_length" not in settings.model_fields_set:
            length = min(length, limit)  # the default is no more than what the model reads
        if pretrained:
            return replace(cls.from_pretrained(pretrained, length), decoder_start=settings.decoder_start)
        chosen = settings.tokenizer or TokenizerSettings(kind="bpe", vocab_size=SUBWORDS)
        joint = chosen.kind not in ("word", "char") if settings.joint is None else settings.joint
        columns = [train[role] for role in SIDES]
        corpora = [columns] if joint else [[column] for column in columns]
        texts = [(f"{text}\n" for column in corpus for text in training_texts(column)) for corpus in corpora]
        tokenizers = [Tokenizer.train(chosen, lines) for lines in texts]
        sizes = " and ".join(f"{tokenizer.vocab_size:,}" for tokenizer in tokenizers)
        sides = "for both sides, " if joint else ""
        plural = "" if joint else "s"
        diagnostics.note(f"{chosen.kind} tokenizer{plural} with {sizes} tokens {sides}trained on the training split")
        return cls(tokenizers[0], tokenizers[-1], length, settings.decoder_start)

    @classmethod
    def from_pretrained(
        cls, tokenizers: Tokenizers, max_length: int, labels: tuple[str, ...] = (), config: Values | None = None
    ) -> Self:
        target, config = tokenizers["tokenizer"], config or {}
        start = find_decoder_start(config)
        if not isinstance(start, int) or not 0 <= start < target.vocab_size or start == target.eos:
            start = None
        source = tokenizers.get("source_tokenizer", target)
        separate = config.get("share_encoder_decoder_embeddings", True) is False  # vectors, even of equal vocabularies
        equal = source.to_json() == target.to_json()
        forced_eos = config.get("forced_eos_token_id") is not None
        source = target if equal and not separate else source
        return cls(source, target, max_length, start, target.frames_texts, forced_eos)

    def encode(self, dataset: Dataset, diagnostics: Diagnostics) -> Pairs:
        targets = self.encode_column(self.target, dataset["target"]) if "target" in dataset else None
        return Pairs(self.encode_column(self.source, dataset["source"]), targets)

    def encode_column(self, tokenizer: Tokenizer, texts: np.ndarray | TextValues) -> Items:
        """Returns the token ids of each text; those of a column on disk are on disk, too."""
        if isinstance(texts, TextValues):
            return encode_column(tokenizer, [texts], "texts" if self.framed else "eos")
        return self.encode_texts(tokenizer, list(texts))

    def compatible(self, other: object) -> bool:
        return isinstance(other, TranslationProcessor) and all(
            ours.to_json() == theirs.to_json()
            for ours, theirs in ((self.source, other.source), (self.target, other.target))
        )


def find_decoder_start(config: Values) -> object:
    """Returns the token that a config.json says the decoder reads first: by default the padding."""
    tokens = [config.get(name) for name in ("decoder_start_token_id", "pad_token_id")]
    return next((token for token in tokens if token is not None), None)
