"""The task translate: network, loss, evaluation and what a report shows.

Every encoder–decoder fits (seq2seq, bahdanau, transformer, t5); of any other causal model an encoder and a decoder are
made, with Luong attention after the decoder. All targets of a source are its references, and a source, whatever its
case and spacing, is in one split only.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Self, cast

import numpy as np
import torch

from ...core.errors import Diagnostics, SeriatimError
from ...core.metrics import MetricValues
from ...data.dataset import Dataset
from ...data.disk import TextValues
from ...data.schema import Schema
from ...data.sequences import Sequences
from ...data.shards import encode_column
from ...data.source import DataInput, Source
from ...data.tokenizers import Tokenizer, TokenizerSettings
from ...decode.seq2seq import TargetTokens
from ...nn.backbone import BackboneSettings
from ...nn.encoder_decoder import EncoderDecoder, encoder_decoder_network
from ...report.charts import View
from ..batching import LARGE_COUNT, Batch, PoolSampler, Sampler, TokenSampler, padding_mask
from ..codecs import training_texts
from ..encoder_decoder import EncoderDecoderProcessor, EncoderDecoderTask
from ..metrics import Scoring, translation_metrics
from ..old import Metrics
from ..predictor import Predictor
from ..processor import Encoded, TaskConfig, Tokenizers, Values, length_mismatches, tokenizer_mismatches
from .pairs import BY_SOURCE, TranslationMemory, drop_empty, normalize_columns
from .predictor import TranslationPredictor, translation_views
from .spec import SCHEMA, SIDES, SPEC, SUBWORDS, PairSchema, TranslateSettings

__all__ = ["TranslateSettings", "TranslateTask", "TranslationPredictor", "TranslationProcessor"]


@dataclass(frozen=True)
class TranslationProcessor(EncoderDecoderProcessor[Encoded]):
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
    def fit(cls, train: Dataset, config: TaskConfig, pretrained: Tokenizers, diagnostics: Diagnostics) -> Self:
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

    def encode(self, dataset: Dataset, diagnostics: Diagnostics) -> Encoded:
        targets = self.encode_column(self.target, dataset["target"]) if "target" in dataset else None
        return Encoded(self.encode_column(self.source, dataset["source"]), targets)

    def encode_column(self, tokenizer: Tokenizer, texts: np.ndarray | TextValues) -> Sequences:
        """Returns the token ids of each text; those of a column on disk are on disk, too."""
        if isinstance(texts, TextValues):
            return cast(Sequences, encode_column(tokenizer, [texts], "texts" if self.framed else "eos"))
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


class TranslateTask(EncoderDecoderTask[Encoded]):
    spec = SPEC
    split_policy = BY_SOURCE
    processor_type = TranslationProcessor
    predictor_type = TranslationPredictor
    batch_size = 96  # sequences are short
    muon = True
    hub_head = "seq2seq-lm"
    processor: TranslationProcessor

    @classmethod
    def hub_settings(cls, config: Values) -> Values:
        return {"decoder_start": find_decoder_start(config)}

    def hub_config(self) -> Values:
        tokens = self.processor.tokens
        return {
            "decoder_start_token_id": tokens.start,
            "bos_token_id": tokens.eos if tokens.bos is None else tokens.bos,
            "eos_token_id": tokens.eos,
            "forced_bos_token_id": tokens.bos,
            "forced_eos_token_id": tokens.eos if tokens.forced_eos else None,
        }

    @classmethod
    def train_defaults(cls, values: Values) -> Values:
        """Another target might do as well, so label smoothing."""
        return {"label_smoothing": 0.1}

    def note_encoded(self, split: str, encoded: Encoded) -> None:
        limit = self.processor.context_length
        long = int((self.item_lengths(encoded) > limit).sum())
        if long and split != "train":
            self.diagnostics.note(
                f"{long:,} of {len(encoded):,} {split} pairs have more than {limit} tokens; a model with a limited "
                "context is evaluated on their beginnings"
            )

    # Data

    @classmethod
    def read_training_data(
        cls, source: Source, config: TaskConfig, diagnostics: Diagnostics, like: Dataset | None = None
    ) -> Dataset:
        columns = dict(config.data.columns)
        if config.task.reverse and set(SIDES) <= columns.keys():
            columns["source"], columns["target"] = columns["target"], columns["source"]
        schema = replace(SCHEMA, reverse=config.task.reverse)
        rows = cls.read_rows(source, config, diagnostics, like, schema, columns)
        if config.task.normalize:
            rows = normalize_columns(rows, diagnostics)
        rows = cls.without_empty(rows, diagnostics)
        if not len(rows):
            cause = f"{source.name} has no pair with text on both sides"
            raise SeriatimError("data.empty", cause, "pass a file with pairs")
        return rows

    @classmethod
    def without_empty(cls, rows: Dataset, diagnostics: Diagnostics) -> Dataset:
        return drop_empty(rows, diagnostics)

    def read(
        self, source: DataInput, schema: Schema | None = None, columns: Mapping[str, str] | None = None
    ) -> Dataset:
        if isinstance(schema, PairSchema) or schema is None:
            schema = replace(SCHEMA if schema is None else schema, reverse=self.settings.reverse)
        rows = super().read(source, schema, columns)
        return normalize_columns(rows, Diagnostics()) if self.settings.normalize else rows

    def make_sampler(self, train: Encoded) -> Sampler:
        limit, lengths = self.processor.context_length, self.item_lengths(train)
        items = np.flatnonzero(lengths <= limit)
        if not len(items):
            cause = f"all pairs have more than {limit} tokens"
            raise SeriatimError("data.long", cause, "raise task.context_length")
        if len(items) < len(train):
            self.diagnostics.note(
                f"{len(train) - len(items):,} of {len(train):,} pairs have more than {limit} tokens (up to "
                f"{lengths.max():,}) and are not trained on: task.context_length"
            )
        if len(items) >= LARGE_COUNT:
            return PoolSampler(items, lengths, self.config.seed, by_tokens=True)
        return TokenSampler(items, train.inputs.lengths, train.targets.lengths, self.config.seed)

    def item_lengths(self, encoded: Encoded) -> np.ndarray:
        if encoded.targets is None:
            return encoded.inputs.lengths
        return np.maximum(encoded.inputs.lengths, encoded.targets.lengths)

    def collate(self, encoded: Encoded, items: np.ndarray, max_length: int | None = None) -> Batch:
        """Returns sources (B,S) with their mask, decoder inputs (B,T) and targets (B,T)."""
        source, mask = (block[:, :max_length] for block in encoded.inputs.padded(items))
        if encoded.targets is None:
            return Batch((torch.from_numpy(source), None, None), None, len(items), padding_mask(mask))
        decoder_inputs, targets, count = self.shift_targets(encoded.targets, items, max_length)
        return Batch((torch.from_numpy(source), decoder_inputs, None), targets, count, padding_mask(mask))

    # Network

    def network(self, model: BackboneSettings) -> EncoderDecoder:
        source, target = self.processor.source, self.processor.target
        return encoder_decoder_network(
            model,
            source.vocab_size,
            target.vocab_size,
            source is target,
            self.processor.context_length,
            self.settings.score,
            self.settings.learned_values,
        )

    def teacher_mismatches(self, teacher: Predictor) -> list[str]:
        assert isinstance(teacher, TranslationPredictor)
        ours, theirs = self.processor, teacher.processor
        mismatches = tokenizer_mismatches(ours.source, theirs.source, "source")
        mismatches += tokenizer_mismatches(ours.target, theirs.target, "target")
        return mismatches + length_mismatches("pairs", ours.context_length, teacher.decoder.context_length)

    # Evaluation

    def groups(self, split: str) -> list[np.ndarray]:
        return list(self.datasets[split].groups("source").values())

    def references(self, split: str, groups: Sequence[np.ndarray]) -> list[list[str]]:
        targets = self.datasets[split]["target"]
        return [list(dict.fromkeys(targets[int(row)] for row in group)) for group in groups]

    def sources(self, split: str, groups: Sequence[np.ndarray]) -> list[str]:
        """Returns the source of each group."""
        values = self.datasets[split]["source"]
        return [values[int(group[0])] for group in groups]

    @cached_property
    def scoring(self) -> Scoring:
        """How translations are scored: the same for all splits."""
        split = next(name for name in ("validation", "test", "train") if name in self.datasets)
        return Scoring.of(list(self.datasets[split]["target"][:2_000]), self.processor.target.kind == "char")

    def quality(self, hypotheses: Sequence[str], references: Sequence[Sequence[str]]) -> MetricValues:
        return translation_metrics(hypotheses, references, self.scoring)

    def describe_input(self, split: str, row: int) -> str:
        return str(self.datasets[split]["source"][row])

    def baselines(self, split: str) -> dict[str, Metrics]:
        """Returns the metrics of copying the source, and of the target of the most similar training source."""
        if "train" not in self.datasets:
            return {}
        groups, train = self.groups(split), self.datasets["train"]
        references, sources = self.references(split, groups), self.sources(split, groups)
        memory = TranslationMemory(train["source"], train["target"])
        outputs = {"copy of the source": sources, "most similar source": list(map(memory.nearest_target, sources))}
        return {name: dict(self.quality(texts, references)) for name, texts in outputs.items()}

    def views(self, predictor: Predictor, split: str) -> list[View]:
        assert isinstance(predictor, TranslationPredictor)
        groups = self.evaluated_groups(split)
        hypotheses = self.generate_split(predictor.network, split)
        sources, references = self.sources(split, groups), self.references(split, groups)
        return translation_views(sources, hypotheses, references, self.scoring, predictor)
