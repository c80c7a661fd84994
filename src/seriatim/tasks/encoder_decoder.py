"""Encoder–decoders: what the tasks `translate` and `caption` share.

    p(target | source) = Π_t p(y_t | y_1 … y_{t−1}, source)        loss = Σ_t −log p(y_t | …)

An encoder reads the source, a decoder writes the target token by token. Training is by teacher forcing: the decoder
reads the true tokens before each. Prediction searches (`decode/`). Several networks with the same vocabularies work as
an ensemble: at every step their probabilities are averaged.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cached_property
from typing import ClassVar, Generic, Self

import numpy as np
import torch
from torch import Tensor, nn

from ..core.errors import SeriatimError
from ..core.metrics import MetricValues
from ..core.state import State
from ..data.dataset import Dataset
from ..data.schema import Schema
from ..data.sequences import Sequences
from ..data.source import DataInput
from ..data.tokenizers import Tokenizer
from ..decode.sampling import Hypothesis
from ..decode.seq2seq import Seq2Seq, TargetScores, TargetTokens, encode_sources
from ..decode.settings import BeamSettings
from ..nn.backbone import Trace
from ..nn.encoder_decoder import EncoderDecoder
from ..nn.loss import TokenScores, distillation_loss, token_loss
from .batching import MAX_ELEMENTS, Batch, evenly_spaced, run_batches
from .capability import Record
from .decoding import own_streams, score_record
from .inspection import ScoredTokens, TokenReadout, TokenScorer
from .metrics import perplexity
from .old import IGNORED, E, Metrics, Output, weights_digest
from .old import OldTask as Task
from .predictor import ModelInput, Predictor
from .processor import Processor

MAX_ROWS = 64  # inputs that are decoded together
SAMPLED_GROUPS = 200  # inputs for which targets are generated in an evaluation during training, at most
TOKENS_OF_GENERATION = 100  # whose scores cost as much as one generated target
SHOWN_SAMPLES = 4


def eos_of(tokenizer: Tokenizer) -> int:
    """Returns `<eos>`, the last token of every target."""
    if tokenizer.eos is None:
        raise SeriatimError("tokenizer.eos", "the tokenizer has no end-of-sequence token", "use another tokenizer")
    return tokenizer.eos


class EncoderDecoderProcessor(Processor[E]):
    """The base of processors with a tokenizer of targets."""

    target: Tokenizer
    context_length: int  # longest training sequence; learned positions are made for it
    framed: bool = False  # whether texts stand between [CLS] and [SEP] (BART's <s> and </s>), or end with `<eos>` only
    forced_eos: bool = False  # whether a target that reaches the limit ends with `<eos>`

    @property
    def tokens(self) -> TargetTokens:
        """The special tokens of targets."""
        eos = self.target.sep if self.framed and self.target.sep is not None else eos_of(self.target)
        return TargetTokens(eos, eos, self.target.cls if self.framed else None, self.forced_eos)

    def encode_texts(self, tokenizer: Tokenizer, texts: Sequence[str]) -> Sequences:
        """Returns the token ids of each text with the special tokens around it."""
        if not self.framed:
            return encode_with_eos(tokenizer, texts)
        return Sequences.of([tokenizer.frame(ids) for ids in tokenizer.encode_many(list(texts), strict=False)])

    @abstractmethod
    def compatible(self, other: object) -> bool:
        """Returns whether both encode alike, so that their networks can be an ensemble."""


class EncoderDecoderTask(Task[E]):
    """Losses, evaluation and samples of encoder–decoders. A subclass adds data, network and metrics."""

    unit = "tokens"
    encoder_decoder = True
    teacher_tokenizer = True
    max_train_groups: ClassVar[int] = 2_000  # inputs of the training split for which targets are generated
    processor: EncoderDecoderProcessor[E]

    # Batches

    def batch(self, step: int, first: int, last: int, batch_size: int) -> Batch:
        items = self.sampler.items(step, batch_size)
        share = items[first * len(items) // batch_size : last * len(items) // batch_size]
        if len(share):
            return self.collate(self.encoded["train"], share)
        empty = self.collate(self.encoded["train"], items[:1])  # fewer items than processes
        return replace(empty, targets=torch.full_like(empty.targets, IGNORED), count=0)

    def shift_targets(
        self, targets: Sequences, items: np.ndarray, max_length: int | None = None
    ) -> tuple[Tensor, Tensor, int]:
        """Returns decoder inputs (B,T), targets (B,T) with `IGNORED` for padding, and the number of targets.

        Args:
            targets: All targets, each with `<eos>`.
            items: Those of the batch.
            max_length: Truncates targets, for models with a limited context.
        """
        tokens = targets.padded(items, fill=IGNORED)[0][:, :max_length]
        shifted = np.empty_like(tokens)
        shifted[:, 0] = self.processor.tokens.start
        shifted[:, 1:] = np.maximum(tokens[:, :-1], 0)
        return torch.from_numpy(shifted), torch.from_numpy(tokens), int((tokens != IGNORED).sum())

    @abstractmethod
    def collate(self, encoded: E, items: np.ndarray, max_length: int | None = None) -> Batch:
        """Returns a batch with inputs (source, decoder inputs, …) and targets (B,T); decoder inputs and targets are
        None if the items have no targets. `max_length` truncates both sides."""

    @abstractmethod
    def item_lengths(self, encoded: E) -> np.ndarray:
        """Returns the number of elements of each item, source or target, by which batches are made."""

    # Training

    def forward(self, network: EncoderDecoder, batch: Batch, state: State = None, trace: Trace | None = None) -> Output:
        memory = encode_sources(network, batch)
        if trace is None:
            hidden = network.decoder_outputs(batch.inputs[1], memory)  # (B,T,D)
        else:
            hidden, _ = network.decode(batch.inputs[1], memory, None, trace)
        vectors = hidden[batch.targets != IGNORED]  # (N,D)
        return Output(TokenScores(vectors, network.head.weight, network.head.bias), vectors)

    def loss(self, output: Output, batch: Batch, smoothing: float = 0.0) -> Tensor:
        hidden, weight, bias = output.scores
        return token_loss(hidden, weight, bias, batch.targets[batch.targets != IGNORED], smoothing)

    def distillation_loss(self, output: Output, teacher: Output, temperature: float) -> Tensor:
        return distillation_loss(output.scores, teacher.scores, temperature)

    def hidden_states(self, network: EncoderDecoder, batch: Batch) -> Tensor:
        return network.encoder_outputs(batch.inputs[0], batch.mask)

    # Evaluation

    @abstractmethod
    def groups(self, split: str) -> list[np.ndarray]:
        """Returns the rows of each distinct input, in order: its references."""

    @abstractmethod
    def references(self, split: str, groups: Sequence[np.ndarray]) -> list[list[str]]:
        """Returns the references of each group."""

    @abstractmethod
    def quality(self, hypotheses: Sequence[str], references: Sequence[Sequence[str]]) -> MetricValues:
        """Returns the metrics of generated targets."""

    @abstractmethod
    def describe_input(self, split: str, row: int) -> str:
        """Returns the input of a row as samples show it."""

    def evaluated_groups(self, split: str, limit: int | None = None) -> list[np.ndarray]:
        """Returns the groups for which targets are generated: all, or evenly spaced ones."""
        self.require_split(split)
        groups = self.groups(split)
        most = self.max_train_groups if split == "train" else len(groups)
        if limit is not None:
            most = min(max(limit // TOKENS_OF_GENERATION, 1), SAMPLED_GROUPS)
        return [groups[n] for n in evenly_spaced(len(groups), most).tolist()]

    def evaluated_items(self, split: str, groups: Sequence[np.ndarray], limit: int | None) -> np.ndarray:
        """Returns the items whose loss is evaluated: all, or evenly spaced ones with about `limit` elements."""
        encoded = self.encoded[split]
        elements = int(encoded.lengths.sum())
        if limit is None or elements <= limit:
            return np.arange(len(encoded))
        return evenly_spaced(len(encoded), max(int(limit / elements * len(encoded)), 1))

    def generate_split(self, network: nn.Module, split: str, limit: int | None = None) -> list[str]:
        """Returns a target for each evaluated group: by beam search, or greedily if there is a limit.

        The last result of a split is kept as long as the weights stay: metrics and views need the same.
        """
        key = (weights_digest(network), limit is None)
        if split not in self._generated or self._generated[split][0] != key:
            rows = np.array([group[0] for group in self.evaluated_groups(split, limit)])
            options = BeamSettings(beams=self.settings.beams if limit is None else 1)
            self._generated[split] = key, self.generate_rows(network, split, rows, options)
        return self._generated[split][1]

    @cached_property
    def _generated(self) -> dict[str, tuple[tuple[str, bool], list[str]]]:
        return {}

    def generate_rows(self, network: nn.Module, split: str, rows: np.ndarray, options: BeamSettings) -> list[str]:
        """Returns the best target for each of these rows of a split."""
        predictor = self.predictor(network)
        return predictor.generate_targets(self.datasets[split], self.encoded[split], options, rows)

    def evaluate(self, network: nn.Module, split: str = "validation", limit: int | None = None) -> Metrics:
        """Returns the metrics of generated targets, and loss, perplexity and accuracy of the true tokens.

        A model with a limited context is evaluated on the beginning of what is longer.
        """
        groups = self.evaluated_groups(split, limit)
        quality = self.quality(self.generate_split(network, split, limit), self.references(split, groups))
        predictor = self.predictor(network)
        items = self.evaluated_items(split, groups, limit)
        alignment = self.needs_alignment(predictor, split)
        forced = predictor.force(self.encoded[split], items, alignment, max_length=predictor.decoder.context_length)
        log_probs = np.concatenate([one.log_probs for one in forced])
        correct = np.concatenate([one.correct for one in forced])
        loss = -float(log_probs.mean(dtype=np.float64))
        values = {"accuracy": float(correct.mean()), "loss": loss, "perplexity": perplexity(loss)}
        values |= {"tokens": float(len(log_probs))}
        return quality | self.forced_metrics(predictor, split, items, forced) | values

    def needs_alignment(self, predictor: EncoderDecoderPredictor[E], split: str) -> bool:
        """Returns whether `forced_metrics` needs the weights over the source."""
        return False

    def forced_metrics(
        self, predictor: EncoderDecoderPredictor[E], split: str, items: np.ndarray, forced: Sequence[TargetScores]
    ) -> Metrics:
        """Returns further metrics of the true tokens, such as of the attention."""
        return {}

    def sample(self, network: nn.Module) -> str:
        """Returns a few inputs of the validation split with what is generated for them, and a reference of each."""
        groups = self.groups("validation")
        spaced = evenly_spaced(len(groups), SHOWN_SAMPLES + 2)[1:-1].tolist()
        rows = np.array([groups[n][0] for n in spaced], dtype=np.int64)
        hypotheses = self.generate_rows(network, "validation", rows, BeamSettings(beams=1)) if len(rows) else []
        references = self.references("validation", [groups[n] for n in spaced])
        lines = zip(rows.tolist(), hypotheses, references, strict=True)
        return "\n".join(
            f"{self.describe_input('validation', row)}\n  → {text}\n  = {group[0]}" for row, text, group in lines
        )

    def predictor(self, network: nn.Module) -> EncoderDecoderPredictor[E]:
        predictor = super().predictor(network)
        assert isinstance(predictor, EncoderDecoderPredictor)
        return predictor


# Prediction


class EncoderDecoderPredictor(Predictor, Generic[E]):
    """Decoding, teacher-forced scores and alignments of one network or an ensemble."""

    processor: EncoderDecoderProcessor[E]
    task: EncoderDecoderTask[E]

    aligned: ClassVar[Schema]  # a source, and a target if it is known

    def __init__(self, task: EncoderDecoderTask[E], network: EncoderDecoder) -> None:
        super().__init__(task, network)
        self.decoder = Seq2Seq((network,), self.processor.tokens)

    def ensemble(self, others: Sequence[Predictor]) -> Self:
        """Returns a predictor that averages the probabilities of this network and others with the same vocabularies."""
        combined = type(self)(self.task, self.network)
        for other in others:
            if not isinstance(other, type(self)) or not self.processor.compatible(other.processor):
                cause = "the runs have different vocabularies"
                raise SeriatimError("run.vocabulary", cause, "train both on the same data with the same tokenizer")
            combined.decoder = replace(combined.decoder, networks=combined.decoder.networks + other.decoder.networks)
        return combined

    # Hooks of the subclasses

    @abstractmethod
    def length_limits(self, encoded: E, items: np.ndarray, options: BeamSettings, prefix_length: int) -> list[int]:
        """Returns the largest number of tokens of each target."""

    @abstractmethod
    def encode_rows(self, dataset: Dataset) -> E:
        """Returns the sources of a data set, or raises an error that names one the model cannot read."""

    @abstractmethod
    def generate_targets(self, dataset: Dataset, encoded: E, options: BeamSettings, items: np.ndarray) -> list[str]:
        """Returns the best target for each of these items; "" if the model cannot read the source."""

    def forbidden_tokens(self, options: BeamSettings) -> list[int]:
        """Returns the tokens that are never generated."""
        tokens = (self.processor.target.unk, self.processor.target.pad)
        return [token for token in tokens if token is not None and token != self.decoder.tokens.eos]

    # Decoding

    def search(
        self, encoded: E, options: BeamSettings, key: Callable[[int], str], items: np.ndarray | None = None
    ) -> list[list[Hypothesis]]:
        """Returns the `nbest` best hypotheses of each item, best first: by beam search, or sampled.

        Args:
            encoded: The items; targets are ignored.
            options: Beam size, length limits, temperature and so on.
            key: Returns a text that identifies the input of an item: samples depend on it and the seed alone.
            items: Those to decode; by default all.
        """
        items = np.arange(len(encoded)) if items is None else items
        encoded = replace(encoded, targets=None)
        prefix = self.encode_prefix(options)
        copies = 1 if options.beams > 1 else options.nbest
        jobs = np.repeat(items, copies)  # one for each beam search or sample
        streams = own_streams([key(item) for item in jobs.tolist()], options.seed) if options.beams == 1 else []
        elements = np.maximum(self.task.item_lengths(encoded)[jobs] * options.beams, MAX_ELEMENTS // MAX_ROWS)

        done = 0

        def run(numbers: np.ndarray) -> list[list[Hypothesis]]:
            nonlocal done
            if self.task.on_progress is not None:
                self.task.on_progress(done, len(jobs))
            done += len(numbers)
            batch = self.task.collate(encoded, jobs[numbers]).to(self.decoder.device)
            limits = self.length_limits(encoded, jobs[numbers], options, len(prefix))
            own = [streams[number] for number in numbers.tolist()] if streams else []
            return self.decoder.search(batch, options, limits, prefix, self.forbidden_tokens(options), own)

        results = run_batches(elements, run)
        merged = [
            [hypothesis for result in results[start : start + copies] for hypothesis in result]
            for start in range(0, len(results), copies)
        ]
        return [sorted(group, key=lambda hypothesis: -hypothesis.normalized_score) for group in merged]

    def encode_prefix(self, options: BeamSettings) -> list[int]:
        """Returns the tokens with which every target begins."""
        tokens: list[int] = self.processor.target.encode(options.prefix).tolist() if options.prefix else []
        bos = self.decoder.tokens.bos
        tokens = tokens if bos is None else [bos, *tokens]
        limit = min(options.max_tokens, self.decoder.context_length or options.max_tokens)
        if len(tokens) >= limit:
            cause = f"the prefix has {len(tokens)} tokens, and a target at most {limit}"
            raise SeriatimError(f"{self.task.name}.prefix", cause, "shorten it")
        return tokens

    def decode_text(self, tokens: list[int]) -> str:
        """Returns the text of a target, which may have its first and last token, or not."""
        special = self.decoder.tokens
        tokens = tokens[1:] if tokens[:1] == [special.bos] else tokens
        return self.processor.target.decode(tokens[:-1] if tokens[-1:] == [special.eos] else tokens)

    def complete_targets(self, dataset: Dataset, options: BeamSettings) -> tuple[E, list[str]]:
        """Returns the encoded sources, and the target of each row: its own, else a generated one."""
        encoded, role = self.encode_rows(dataset), self.aligned.fields[1].role
        targets = list(dataset[role]) if role in dataset else [""] * len(encoded)
        missing = np.flatnonzero([not text.strip() for text in targets])
        generated = self.generate_targets(dataset, encoded, options, missing) if len(missing) else []
        for row, text in zip(missing.tolist(), generated, strict=True):
            targets[row] = text
        return encoded, targets

    # Known targets

    def force(
        self, encoded: E, items: np.ndarray | None = None, alignment: bool = False, max_length: int | None = None
    ) -> list[TargetScores]:
        """Returns the log-probability of every true token of each target.

        Args:
            encoded: Items with targets.
            items: Those to score; by default all.
            alignment: Whether to return the weights over the source.
            max_length: Truncates both sides, for models with a limited context.
        """
        items = np.arange(len(encoded)) if items is None else items
        lengths = np.maximum(self.task.item_lengths(encoded)[items], MAX_ELEMENTS // (8 * MAX_ROWS))

        def run(numbers: np.ndarray) -> list[TargetScores]:
            batch = self.task.collate(encoded, items[numbers], max_length).to(self.decoder.device)
            return self.decoder.score(batch, alignment)

        return run_batches(lengths, run)

    def token_distributions(self, encoded: E, item: int) -> tuple[np.ndarray, Tensor]:
        """Returns the tokens of a target (T,), and the log-probabilities (T,V) of all tokens at each position."""
        batch = self.task.collate(encoded, np.array([item])).to(self.decoder.device)
        return np.asarray(encoded.targets[item]), self.decoder.distributions(batch)

    # Inspection

    def model_input(self, inputs: DataInput) -> ModelInput:
        """Returns sources with their targets as the network reads them; a missing target is generated."""
        encoded, targets = self.complete_targets(self.task.read(inputs, self.aligned), BeamSettings())
        encoded = replace(encoded, targets=self.processor.encode_texts(self.processor.target, targets))
        batch = self.task.collate(encoded, np.arange(len(encoded)))
        return ModelInput(batch, [self.sequences(encoded, item) for item in range(len(encoded))])

    def sequences(self, encoded: E, item: int) -> dict[str, list[str]]:
        axes = {"source": self.element_names(encoded, item)}
        if encoded.targets is not None:
            axes["target"] = [self.processor.target.token(int(token)) for token in encoded.targets[item]]
        return axes

    def with_target(self, encoded: E, target: str | None = None, max_tokens: int | None = None) -> E:
        if target is not None:
            return replace(encoded, targets=self.processor.encode_texts(self.processor.target, [target]))
        options = BeamSettings() if max_tokens is None else BeamSettings(max_tokens=max_tokens)
        tokens = self.search(encoded, options, lambda item: "")[0][0].tokens or [self.decoder.tokens.eos]
        return replace(encoded, targets=Sequences.of([np.array(tokens)]))

    def generate_input(self, text: str, tokens: int, seed: int) -> tuple[E, int]:
        return self.with_target(self.encode_inputs([text]), None, tokens), 0

    def token_scorer(self) -> TokenScorer:
        return self.score_target

    def score_target(self, text: str, target: str | None) -> ScoredTokens:
        """Returns the tokens of a target, by default a generated one, as the model rates them given the source."""
        encoded = self.with_target(self.encode_inputs([text]), target)
        ids, log_probs = self.token_distributions(encoded, 0)
        characters = len(self.decode_text(ids.tolist()))
        return ScoredTokens(self.processor.target, ids, self.force(encoded)[0].log_probs, [log_probs], characters)

    def token_readout(self) -> TokenReadout:
        return TokenReadout(self.processor.target, self.network.head, lambda batch: batch.targets[0], True)

    def score_records(self, encoded: E) -> list[Record]:
        """Returns the records of the capability `score`."""
        return [
            score_record(self.processor.target, encoded.targets[item].tolist(), forced.log_probs)
            for item, forced in enumerate(self.force(encoded))
        ]


def encode_with_eos(tokenizer: Tokenizer, texts: Sequence[str]) -> Sequences:
    """Returns the token ids of each text, `<eos>` appended."""
    end = np.array([eos_of(tokenizer)])
    return Sequences.of([np.concatenate([ids, end]) for ids in tokenizer.encode_many(list(texts), strict=False)])
