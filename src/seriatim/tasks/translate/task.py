"""The task translate: network, loss, evaluation and what a report shows.

Every encoder–decoder fits (seq2seq, bahdanau, transformer, t5); of any other causal model an encoder and a decoder are
made, with Luong attention after the decoder. All targets of a source are its references, and a source, whatever its
case and spacing, is in one split only.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from ...core.errors import Diagnostics, SeriatimError
from ...core.text import evenly_spaced
from ...data.dataset import Dataset
from ...data.schema import Schema
from ...data.source import Source
from ...decode.seq2seq import Seq2Seq
from ...decode.settings import BeamSettings
from ...nn.backbone import BackboneSettings
from ...nn.encoder_decoder import EncoderDecoder, encoder_decoder_network
from ...report.charts import View
from ..base import IGNORED, SAMPLED_SIZE, Progress
from ..batching import LARGE_COUNT, Batch, PoolSampler, Sampler, TokenSampler
from ..encoder_decoder import SAMPLED_SOURCES, SHOWN_SAMPLES, EncoderDecoderTask
from ..inspection import Alignment
from ..metrics import Scoring, token_metrics, translation_metrics
from ..predictor import Predictor
from ..processor import Values, length_mismatches, tokenizer_mismatches
from ..spec import TaskConfig
from ..values import Evaluation, Metrics, Split, Splits, Subset
from .pairs import BY_SOURCE, TranslationMemory, drop_empty, normalize_columns
from .predictor import TranslationPredictor
from .processor import Pairs, TranslationProcessor, collate_pairs, find_decoder_start, source_groups
from .spec import SIDES, SPEC, PairSchema, TranslateSettings
from .translator import Translator
from .views import metrics_by_length, sentence_tables

__all__ = ["TranslateSettings", "TranslateTask", "TranslationPredictor", "TranslationProcessor"]

MAX_TRAIN_SOURCES = 2_000  # of the training split, that an evaluation translates


@dataclass(frozen=True, eq=False)
class Translations:
    """What an evaluation has translated: distinct sources, the best translation and the references of each."""

    sources: list[str]
    hypotheses: list[str]
    references: list[list[str]]
    scoring: Scoring
    alignments: list[Alignment]  # of two of the translations


class TranslateTask(EncoderDecoderTask[TranslateSettings, TranslationProcessor, Pairs, Translations]):
    spec = SPEC
    split_policy = BY_SOURCE
    processor_type = TranslationProcessor
    predictor_type = TranslationPredictor
    batch_size = 96  # sequences are short
    muon = True
    hub_head = "seq2seq-lm"

    @classmethod
    def train_defaults(cls, values: Values) -> Values:
        """Another target might do as well, so label smoothing."""
        return {"label_smoothing": 0.1}

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

    # Reading

    @classmethod
    def schema_for(cls, schema: Schema, config: TaskConfig[TranslateSettings], training: bool) -> Schema:
        if not isinstance(schema, PairSchema):
            return schema
        columns = config.data.columns
        named = (columns["source"], columns["target"]) if set(SIDES) <= columns.keys() else None
        return replace(schema, reverse=config.task.reverse, named=named)

    @classmethod
    def clean(
        cls,
        rows: Dataset,
        source: Source,
        config: TaskConfig[TranslateSettings],
        diagnostics: Diagnostics,
        predicting: bool,
        train: Dataset | None = None,
    ) -> Dataset:
        if config.task.normalize:
            rows = normalize_columns(rows, Diagnostics() if predicting else diagnostics)
        if predicting:
            return rows
        rows = drop_empty(rows, diagnostics)
        if not len(rows):
            cause = f"{source.name} has no pair with text on both sides"
            raise SeriatimError("data.empty", cause, "pass a file with pairs")
        return rows

    def link(self, splits: Splits[Pairs], diagnostics: Diagnostics) -> Splits[Pairs]:
        limit, parts = self.processor.context_length, {}
        judged = next(splits[name] for name in ("validation", "test", "train") if name in splits)
        scoring = Scoring.of(list(judged.rows["target"][:2_000]), self.processor.target.kind == "char")
        for name, split in splits.parts.items():
            lengths = split.items.pair_lengths
            long, count = int((lengths > limit).sum()), len(lengths)
            if long and name == "train":
                diagnostics.note(
                    f"{long:,} of {count:,} pairs have more than {limit} tokens (up to {lengths.max():,}) and are not "
                    "trained on: task.context_length"
                )
            elif long:
                diagnostics.note(
                    f"{long:,} of {count:,} {name} pairs have more than {limit} tokens; a model with a limited context "
                    "is evaluated on their beginnings"
                )
            parts[name] = replace(split, items=replace(split.items, scoring=scoring))
        return Splits(parts)

    # Network and training

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

    def sampler(self, train: Pairs, diagnostics: Diagnostics) -> Sampler:
        limit, lengths = self.processor.context_length, train.pair_lengths
        items = np.flatnonzero(lengths <= limit)
        if not len(items):
            cause = f"all pairs have more than {limit} tokens"
            raise SeriatimError("data.long", cause, "raise task.context_length")
        if len(items) >= LARGE_COUNT:
            return PoolSampler(items, lengths, self.config.seed, by_tokens=True)
        assert train.targets is not None
        return TokenSampler(items, train.inputs.lengths, train.targets.lengths, self.config.seed)

    def collate(self, items: Pairs, chosen: np.ndarray) -> Batch:
        """Returns sources (B,S) with their mask, decoder inputs (B,T) and targets (B,T)."""
        return collate_pairs(items, chosen, self.processor.tokens.start)

    def training_batch(self, train: Pairs, chosen: np.ndarray, share: slice, step: int) -> Batch:
        if len(chosen[share]):
            return self.collate(train, chosen[share])
        empty = self.collate(train, chosen[:1])  # fewer items than processes
        return replace(empty, targets=torch.full_like(empty.targets, IGNORED), count=0)

    def teacher_mismatches(self, teacher: Predictor[Any]) -> list[str]:
        assert isinstance(teacher, TranslationPredictor)
        ours, theirs = self.processor, teacher.task.processor
        mismatches = tokenizer_mismatches(ours.source, theirs.source, "source")
        mismatches += tokenizer_mismatches(ours.target, theirs.target, "target")
        return mismatches + length_mismatches("pairs", ours.context_length, teacher.decoder.context_length)

    # Evaluation

    def sample_split(self, split: Split[Pairs], limit: int | None = None) -> Split[Pairs]:
        """Returns evenly spaced sources with all their references, of which some are translated."""
        groups, sizes = source_groups(split.rows), self.row_sizes(split.rows)
        share = min((SAMPLED_SIZE if limit is None else limit) / max(int(sizes.sum()), 1), 1.0)
        if share < 1:
            chosen = np.unique(evenly_spaced(len(groups), max(int(len(groups) * share), 1)))
            split = split.take(np.sort(np.concatenate([groups[number] for number in chosen])))
            groups = [groups[number] for number in chosen]
        translated = np.unique(evenly_spaced(len(groups), SAMPLED_SOURCES))
        return replace(split, items=replace(split.items, translated=translated))

    def evaluate(
        self, network: EncoderDecoder, split: Split[Pairs], progress: Progress | None = None
    ) -> Evaluation[Pairs, Translations]:
        """Returns the metrics of translations, and loss, perplexity and accuracy of the true tokens.

        A model with a limited context is evaluated on the beginning of what is longer.
        """
        decoder, pairs, groups = (
            Seq2Seq((network.eval(),), self.processor.tokens),
            split.items,
            source_groups(split.rows),
        )
        translator = Translator(self.processor, decoder, self.settings.normalize)
        if pairs.translated is not None:
            groups = [groups[number] for number in pairs.translated.tolist()]
        elif split.name == "train":
            groups = [groups[number] for number in evenly_spaced(len(groups), MAX_TRAIN_SOURCES).tolist()]
        first = np.array([group[0] for group in groups])
        sources, targets = [str(split.rows["source"][int(row)]) for row in first], split.rows["target"]
        references = [list(dict.fromkeys(targets[int(row)] for row in group)) for group in groups]
        options = BeamSettings(beams=self.settings.beams)
        translations = translator.translate(sources, Subset(pairs.inputs, first), options, progress)
        hypotheses = [group[0].text for group in translations]
        assert pairs.scoring is not None
        quality = translation_metrics(hypotheses, references, pairs.scoring)
        known = token_metrics(translator.score(pairs, max_length=decoder.context_length))
        alignments = translator.align_some(sources, hypotheses)
        outputs = Translations(sources, hypotheses, references, pairs.scoring, alignments)
        return Evaluation(split, {**quality, **known}, outputs, quality.examples, quality.signatures)

    def baselines(self, splits: Splits[Pairs], names: Sequence[str]) -> dict[str, dict[str, Metrics]]:
        """Returns the metrics of copying the source, and of the target of the most similar training source."""
        train, metrics = splits.train.rows, {}
        memory = TranslationMemory(train["source"], train["target"])
        for name in names:
            rows, scoring = splits[name].rows, splits[name].items.scoring
            assert scoring is not None
            groups = source_groups(rows)
            sources = [rows["source"][int(group[0])] for group in groups]
            references = [list(dict.fromkeys(rows["target"][int(row)] for row in group)) for group in groups]
            outputs = {"copy of the source": sources, "most similar source": list(map(memory.nearest_target, sources))}
            metrics[name] = {
                method: dict(translation_metrics(texts, references, scoring)) for method, texts in outputs.items()
            }
        return metrics

    def sample(self, evaluation: Evaluation[Pairs, Translations]) -> str:
        """Returns a few sources with their translations, and a reference of each."""
        outputs = evaluation.outputs
        spaced = evenly_spaced(len(outputs.sources), SHOWN_SAMPLES + 2)[1:-1].tolist()
        return "\n".join(
            f"{outputs.sources[n]}\n  → {outputs.hypotheses[n]}\n  = {outputs.references[n][0]}" for n in spaced
        )

    def views(self, evaluation: Evaluation[Pairs, Translations]) -> list[View]:
        outputs = evaluation.outputs
        texts = outputs.sources, outputs.hypotheses, outputs.references
        return [
            *metrics_by_length(*texts, outputs.scoring),
            *(alignment.chart("Attention while translating") for alignment in outputs.alignments),
            *sentence_tables(*texts),
        ]
