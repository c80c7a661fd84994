"""The task language: network, loss, evaluation and what a report shows.

    loss = −mean log p(token | all earlier tokens)    perplexity = e^loss    bits per character = Σ −log₂ p / characters

Bits per byte are the same for the bytes of the text in UTF-8, by which models with different tokenizers are compared.
What `<unk>` stands for would have to be spelled out: it costs 8 more bits for each byte of a token of mean length.

The data set is a stream in consecutive blocks, which the processor joins. Training sequences start anywhere in it. Of
models that carry a state, those of consecutive steps follow each other for a while, the state detached from the graph
(truncated backpropagation through time); then others start, since a model must also know how a text begins.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Self, cast

import numpy as np
import torch
from torch import Tensor, nn

from ...core.config import Settings
from ...core.device import numpy_stream
from ...core.errors import Diagnostics, SeriatimError
from ...core.state import State
from ...data.dataset import Dataset
from ...data.disk import TextValues
from ...data.documents import document_ends
from ...data.sequences import Sequences
from ...data.shards import END_MARK, encode_column, frame_stream, shift_whitespace
from ...data.split import Contiguous
from ...data.tokenizers import Tokenizer, TokenizerSettings
from ...decode.settings import GenerationSettings
from ...models.ngram import NGram
from ...models.ngram import Settings as NGramSettings
from ...nn.backbone import BackboneSettings
from ...nn.loss import TokenScores, distillation_loss, token_log_probs, token_loss
from ...nn.network import Network, TokenHead, token_network
from ..batching import Batch, Sampler, device_of
from ..codecs import train_tokenizer, training_texts
from ..metrics import perplexity
from ..old import Metrics, Output
from ..old import OldTask as Task
from ..predictor import Predictor
from ..processor import Encoded, Processor, TaskConfig, Tokenizers, Values, length_mismatches, tokenizer_mismatches
from .predictor import LanguageModelPredictor
from .spec import SPEC, LanguageSettings

__all__ = ["LanguageModelPredictor", "LanguageProcessor", "LanguageSettings", "LanguageTask", "read_arpa"]
ENCODED_ROWS = 128  # at a time: half a megabyte of plain text
CARRIED_SEQUENCES = 16  # consecutive training sequences over which a state is carried
SHORT_MINUTES, SHORT_CONTEXT = 10, 64  # below so many minutes, sequences have so many words or sub-words
EVALUATION_ROWS = 16  # parts of a split that are evaluated side by side
MIN_CHUNK = 128  # tokens at a time in evaluation, of models that carry a state
MAX_INTERPOLATED = 1 << 20  # tokens of the validation split that weights of n-gram models are fitted to
BASELINE_ORDER, BASELINE_TOKENS = 5, 1 << 21  # of the n-gram model beside a network
SAMPLE = {"max_tokens": 160, "temperature": 0.8}
LINE_START_KEY = "seriatim_line_start"  # in config.json of an exported model


# Text as tokens


@dataclass(frozen=True)
class LanguageProcessor(Processor[Encoded]):
    """Encodes a stream of text as one sequence of tokens."""

    tokenizer: Tokenizer

    @classmethod
    def fit(cls, train: Dataset, config: TaskConfig, pretrained: Tokenizers, diagnostics: Diagnostics) -> Self:
        tokenizer = pretrained.get("tokenizer")
        if tokenizer is None:
            tokenizer = train_tokenizer(config.task.tokenizer, training_texts(train["text"]), diagnostics)
        return cls(tokenizer)

    @classmethod
    def from_pretrained(
        cls, tokenizers: Tokenizers, max_length: int, labels: tuple[str, ...] = (), config: Values | None = None
    ) -> Self:
        return cls(tokenizers["tokenizer"])

    def encode(self, dataset: Dataset, diagnostics: Diagnostics) -> Encoded:
        """Returns the tokens of all rows in order, `<eos>` after each document if there are several."""
        texts, ends = dataset["text"], np.flatnonzero(document_ends(dataset))
        if self.tokenizer.kind in ("word", "wordpiece"):  # whose line ends are <eos>: one is enough
            ends = ends[[not texts[row].rstrip(" \t").endswith("\n") for row in ends.tolist()]]
        if isinstance(texts, TextValues):
            marked = texts.insert(ends + 1, END_MARK) if len(ends) else texts
            return Encoded(cast(Sequences, encode_column(self.tokenizer, [marked], "stream")))
        rows = np.insert(texts, ends + 1, END_MARK).tolist()
        dtype = np.uint16 if self.tokenizer.vocab_size <= 1 << 16 else np.uint32
        parts = [np.zeros(0, dtype)]
        for start in range(0, len(rows), ENCODED_ROWS):
            block = shift_whitespace(rows, start, min(start + ENCODED_ROWS, len(rows)))
            parts.append(np.concatenate(frame_stream(self.tokenizer, [block], None)).astype(dtype))
        tokens = np.concatenate(parts)
        return Encoded(Sequences(tokens, np.array([len(tokens)])))


def read_arpa(path: str | Path) -> tuple[NGram, LanguageProcessor]:
    """Returns an n-gram model that another program estimated, and the processor with its vocabulary."""
    first, names = NGram.read_arpa(path)
    words = [name for name in names if name not in ("<unk>", "<s>", "</s>", "<eos>")]
    kind = "char" if all(len(word) == 1 for word in words) else "word"
    settings = TokenizerSettings(kind=kind, vocab_size=max(len(words) + 2, 3), split_punctuation=False)
    tokenizer = Tokenizer.train(settings, ["".join(words) if kind == "char" else "\n".join(words)])
    boundary = None if first.scorer.tables[0].boundary is None else tokenizer.eos
    model, _ = NGram.read_arpa(path, tokenizer.names, boundary)
    return model, LanguageProcessor(tokenizer)


# Batches


class StreamSampler(Sampler):
    """Sequences that start anywhere in a stream; an item is the position of a sequence's first token.

    Args:
        tokens: The length of the stream.
        length: The length of a sequence.
        carry_state: Whether consecutive steps continue the same sequences, for truncated backpropagation through time.
        seed: The seed of the run.
    """

    def __init__(self, tokens: int, length: int, carry_state: bool, seed: int) -> None:
        self.tokens, self.length, self.seed = tokens, length, seed
        self.sequences = min(CARRIED_SEQUENCES, (tokens - 1) // length) if carry_state else 1

    def items(self, step: int, batch_size: int) -> np.ndarray:
        draw, position = divmod(step, self.sequences)
        generator = numpy_stream(self.seed, "shuffle", draw)
        starts = generator.integers(0, self.tokens - self.sequences * self.length, batch_size)
        return starts + position * self.length

    def steps_per_epoch(self, batch_size: int) -> int:
        return max(self.tokens // (batch_size * self.length), 1)

    def continues(self, step: int) -> bool:
        return step % self.sequences != 0


def stack_spans(tokens: np.ndarray, starts: np.ndarray, length: int) -> np.ndarray:
    """Returns the tokens from each start on (n,length) as int64, from memory or disk; zeros after the end."""
    spans = np.zeros((len(starts), length), dtype=np.int64)
    for span, start in zip(spans, starts.tolist(), strict=True):
        part = tokens[start : start + length]
        span[: len(part)] = part
    return spans


# Task


class LanguageTask(Task[Encoded]):
    spec = SPEC
    split_policy = Contiguous("text")
    processor_type = LanguageProcessor
    predictor_type = LanguageModelPredictor
    unit = "tokens"
    muon = True
    teacher_tokenizer = True
    default_fractions = (0.9, 0.05, 0.05)
    hub_head = "causal-lm"
    processor: LanguageProcessor

    @classmethod
    def resolve_settings(cls, settings: Settings, values: Values) -> Settings:
        """Shortens sequences in a short time: more of them are read, and a word says as much as five characters."""
        train, task = values.get("train") or {}, cast(LanguageSettings, settings)
        other_end = any(train.get(end) is not None for end in ("steps", "epochs", "tokens", "flops"))
        minutes = None if other_end else train.get("minutes")
        is_open = "context_length" not in task.model_fields_set and values.get("start") is None
        if not is_open or minutes is None or minutes >= SHORT_MINUTES or task.tokenizer.kind in ("char", "byte"):
            return task
        return task.model_copy(update={"context_length": SHORT_CONTEXT})

    @classmethod
    def hub_settings(cls, config: Values) -> Values:
        return {"context_length": config["n_positions"], "line_start": bool(config.get(LINE_START_KEY))}

    def hub_config(self) -> Values:
        return {LINE_START_KEY: self.settings.line_start}

    def encode(self, dataset: Dataset) -> Encoded:
        split = next((name for name, rows in self.datasets.items() if rows is dataset), "test")
        encoded = super().encode(dataset)
        count, unk = int(encoded.lengths.sum()), self.processor.tokenizer.unk
        if count < 2:
            remedy = "add text, name files for validation and test, or choose other fractions, such as 0.8, 0.2, 0"
            self.diagnostics.report("data.too-short", f"the {split} split has {count} tokens", remedy)
        unknown = 0 if unk is None else int(token_counts(encoded.inputs.values, unk + 1)[unk])
        share = f", {unknown:,} of them ({100 * unknown / count:.2g} %) <unk>" if unknown else ""
        self.diagnostics.note(f"{split}: {count:,} tokens{share}")
        return encoded

    # Network

    def network(self, model: BackboneSettings) -> nn.Module:
        if isinstance(model, NGramSettings):
            return NGram(model, self.processor.tokenizer.vocab_size)
        if not model.traits.causal:
            option = "omit model.bidirectional, or " if "bidirectional" in type(model).model_fields else ""
            cause = f"a bidirectional {model.name} reads the token that it has to predict"
            raise SeriatimError("task.not-causal", cause, f"{option}choose a causal model, such as gpt or lstm")
        return token_network(model, self.processor.tokenizer.vocab_size, self.settings.context_length)

    def fit(self, model: BackboneSettings, limit: int | None = None) -> NGram:
        if not isinstance(model, NGramSettings):
            raise self.unsupported_model(model)
        tokens = self.encoded["train"].inputs.values[:limit]
        progress = self.diagnostics.on_note or (lambda text: None)
        return NGram.fit(tokens, self.processor.tokenizer.vocab_size, model, self._boundary(tokens), progress)

    def resize(self, model: BackboneSettings, parameters: int, limit: int | None = None) -> BackboneSettings:
        if not isinstance(model, NGramSettings):
            return model
        tokens = self.encoded["train"].inputs.values[:limit]
        return model.within_budget(parameters, tokens, self.processor.tokenizer.vocab_size, self._boundary(tokens))

    def interpolate(self, models: Sequence[NGram]) -> NGram:
        tokens = np.asarray(self.require_split("validation").inputs.values[:MAX_INTERPOLATED], np.int64)
        return NGram.mix(models, tokens[1:], tokens[:1])

    def _boundary(self, tokens: np.ndarray) -> int | None:
        """Returns the token between documents or lines, None if there is none in the training split."""
        eos = self.processor.tokenizer.eos
        return eos if eos is not None and bool((tokens == eos).any()) else None

    # Training

    def make_sampler(self, train: Encoded) -> Sampler:
        tokens, length = len(train.inputs.values), self.settings.context_length
        gradient_free = self.config.model.gradient_free
        if tokens <= length and not gradient_free:
            cause = f"the training split has {tokens:,} tokens, sequences of {length} need {length + 1:,}"
            raise SeriatimError("data.too-short", cause, "add text, or lower --context-length")
        return StreamSampler(tokens, length, self.config.model.traits.carries_state, self.config.seed)

    def batch(self, step: int, first: int, last: int, batch_size: int) -> Batch:
        batch = self.stream_batch(self.encoded["train"], self.sampler.items(step, batch_size)[first:last])
        return replace(batch, fresh=not self.sampler.continues(step))

    def stream_batch(self, encoded: Encoded, starts: np.ndarray) -> Batch:
        """Returns tokens (B,T) from each start on as inputs, and the tokens after each of them (B,T) as targets."""
        sequences = torch.from_numpy(stack_spans(encoded.inputs.values, starts, self.settings.context_length + 1))
        inputs, targets = sequences[:, :-1], sequences[:, 1:]
        return Batch(inputs, targets, targets.numel())

    def consecutive_batch(self, encoded: Encoded, first: int, count: int) -> Batch:
        length = self.settings.context_length
        last = max(len(encoded.inputs.values) - length, 1)
        return self.stream_batch(encoded, np.arange(first, first + count) * length % last)

    def forward(self, network: Network, batch: Batch, state: State = None) -> Output:
        head = cast(TokenHead, network.head)
        if network.backbone.carries_state:
            hidden, state = network.hidden(batch.inputs, batch.mask, state)  # (B,T,D)
        else:
            hidden, state = network.outputs(batch.inputs, batch.mask), None
        vectors = hidden.flatten(0, 1)  # (N,D)
        return Output(TokenScores(vectors, head.weight, head.bias), vectors, state)

    def loss(self, output: Output, batch: Batch, smoothing: float = 0.0) -> Tensor:
        vectors, weight, bias = output.scores
        return token_loss(vectors, weight, bias, batch.targets.flatten(), smoothing)

    def distillation_loss(self, output: Output, teacher: Output, temperature: float) -> Tensor:
        return distillation_loss(output.scores, teacher.scores, temperature)

    def teacher_mismatches(self, teacher: Predictor) -> list[str]:
        other = cast(LanguageProcessor, teacher.processor)
        sentences = tokenizer_mismatches(self.processor.tokenizer, other.tokenizer)
        limit = teacher.network.backbone.context_length
        return sentences + length_mismatches("sequences", self.settings.context_length, limit)

    def stream(self, split: str) -> np.ndarray:
        return self.encoded[split].inputs.values

    def examples(self, split: str) -> Encoded:
        """Returns the stream in sequences of the training length."""
        tokens, length = self.encoded[split].inputs.values, self.settings.context_length
        ends = np.minimum(np.arange(length, len(tokens) + length, length), len(tokens))
        return Encoded(Sequences(tokens, ends))

    def collate(self, encoded: Encoded, items: np.ndarray) -> Batch:
        batch = super().collate(encoded, items)
        return replace(batch, inputs=batch.inputs.long())  # streams have the smallest integer type

    # Evaluation

    def evaluate(self, network: nn.Module, split: str = "validation", limit: int | None = None) -> Metrics:
        """Returns loss, perplexity and bits per character on a split, or on its first `limit` tokens, as one stream."""
        limit = None if limit is None else max(limit, 2)  # a token, and the one that it is predicted from
        evaluated = self.require_split(split).inputs.values[:limit]
        if isinstance(network, NGram):
            loss = float(
                -network.scorer.log_probs(np.asarray(evaluated[1:]), np.asarray(evaluated[:1], np.int64)).mean()
            )
        else:
            loss = stream_loss(cast(Network, network), evaluated, self.settings.context_length)
        metrics = self._metrics(loss, split) | {"tokens": float(len(evaluated) - 1)}
        if self.settings.last_word:
            eos, tokens = cast(int, self.processor.tokenizer.eos), np.asarray(evaluated)
            if limit is not None and limit <= len(tokens):  # the rest of the last line is missing
                tokens = tokens[: np.flatnonzero(tokens == eos).max(initial=-1) + 1]
            loss = last_word_loss(network, tokens, eos)
            metrics["last_word_perplexity"] = perplexity(loss)
        return metrics

    def baselines(self, split: str) -> dict[str, Metrics]:
        """Returns the metrics of token frequencies in the training split, and beside a network of an n-gram model."""
        if "train" not in self.encoded:
            return {}
        counts = token_counts(self.encoded["train"].inputs.values, self.processor.tokenizer.vocab_size) + 0.5
        occurrences = token_counts(self.encoded[split].inputs.values[1:], len(counts))
        loss = float(-(occurrences * np.log(counts / counts.sum())).sum() / occurrences.sum())
        baselines = {"token frequencies": self._metrics(loss, split)}
        if not self.config.model.gradient_free:
            name, model = self._baseline_model
            baselines[name] = self._metrics(self.evaluate(model, split)["loss"], split)
        return baselines

    @cached_property
    def _baseline_model(self) -> tuple[str, NGram]:
        """The n-gram model that networks are compared with, of the first tokens of the training split, and its name."""
        model = NGramSettings(name="ngram", order=BASELINE_ORDER)
        tokens = self.encoded["train"].inputs.values[:BASELINE_TOKENS]
        part = "" if len(tokens) == len(self.encoded["train"].inputs.values) else f" of {len(tokens):,} tokens"
        fitted = NGram.fit(tokens, self.processor.tokenizer.vocab_size, model, self._boundary(tokens))
        return f"{BASELINE_ORDER}-gram{part}", fitted

    def _metrics(self, loss: float, split: str) -> Metrics:
        metrics = {"loss": loss, "perplexity": perplexity(loss)}
        if characters := int(self.datasets[split].columns["text"][0].lengths.sum()):
            tokens = len(self.encoded[split].inputs.values)
            metrics["bits_per_character"] = loss / math.log(2) * tokens / characters
            size = int(self.datasets[split].columns["text"][0].byte_sizes.sum())
            metrics["bits_per_byte"] = loss / math.log(2) * tokens / size + 8 * self._unknown_share(split)
        return metrics

    def _unknown_share(self, split: str) -> float:
        """Returns which share of the tokens of a split is `<unk>`."""
        tokens, unk = self.encoded[split].inputs.values, self.processor.tokenizer.unk
        return 0.0 if unk is None else float(token_counts(tokens, unk + 1)[unk]) / len(tokens)

    def sample(self, network: nn.Module) -> str:
        """Returns a generated text."""
        options = GenerationSettings(**SAMPLE, seed=self.config.seed)
        predictor = cast(LanguageModelPredictor, self.predictor(network))
        return str(predictor.generation("", predictor.decode([""], options)[0][0], options)["text"])


def token_counts(tokens: np.ndarray, vocab_size: int, size: int = 1 << 22) -> np.ndarray:
    """Returns how often each token (V,) occurs in a stream in memory or on disk."""
    counts = np.zeros(vocab_size, dtype=np.int64)
    for start in range(0, len(tokens), size):
        counts += np.bincount(tokens[start : start + size], minlength=vocab_size)[:vocab_size]
    return counts


@torch.inference_mode()
def stream_loss(network: Network, tokens: np.ndarray, length: int) -> float:
    """Returns the mean loss of all tokens of a stream but the first.

    A backbone that reads streams carries its state from chunk to chunk; another one starts anew at every chunk of its
    training length. The stream is divided into rows that are evaluated side by side.
    """
    network.eval()
    head, device = cast(TokenHead, network.head), device_of(network)
    unlimited = network.backbone.stream_window(length) is None
    chunk = max(length, MIN_CHUNK) if unlimited else length
    targets = len(tokens) - 1
    rows = min(EVALUATION_ROWS, max(targets // chunk, 1))
    per_row = -(-targets // (rows * chunk)) * chunk  # rounded up to whole chunks; the last rows may be padded
    total, state = 0.0, None
    for offset in range(0, per_row, chunk):
        starts = np.arange(rows) * per_row + offset
        mask = torch.from_numpy(starts[:, None] + np.arange(chunk) < targets).to(device)
        spans = torch.from_numpy(stack_spans(tokens, starts, chunk + 1)).to(device)
        padding = None if bool(mask.all()) else mask
        hidden, state = network.hidden(spans[:, :-1], padding, state if unlimited else None)
        log_probs = token_log_probs(hidden.flatten(0, 1), head.weight, head.bias, spans[:, 1:].flatten())
        total -= float((log_probs.cpu().double() * mask.cpu().flatten()).sum())
    return total / targets


@torch.inference_mode()
def last_word_loss(network: nn.Module, tokens: np.ndarray, eos: int) -> float:
    """Returns the mean loss of the last word of each line, given the words before it in the line and nothing else."""
    lines = [line[line != eos] for line in np.split(tokens, np.flatnonzero(tokens == eos) + 1)]
    lines = sorted((line.astype(np.int64) for line in lines if len(line)), key=len)
    if isinstance(network, NGram):
        start = np.array([eos], np.int64)
        return float(-np.mean([network.scorer.log_probs(line, start)[-1] for line in lines])) if lines else math.nan
    network = cast(Network, network).eval()
    head, device, limit = cast(TokenHead, network.head), device_of(network), network.backbone.context_length
    total = 0.0
    for first in range(0, len(lines), EVALUATION_ROWS):
        batch = lines[first : first + EVALUATION_ROWS]  # of similar lengths
        contexts = Sequences.of([np.concatenate([[eos], line[:-1]])[-limit if limit else None :] for line in batch])
        inputs, mask = (torch.from_numpy(part).to(device) for part in contexts.padded(range(len(batch))))  # (B,T)
        hidden, _ = network.hidden(inputs, mask, None)  # (B,T,D)
        last = hidden[torch.arange(len(batch), device=device), mask.sum(dim=1) - 1]
        targets = torch.tensor([int(line[-1]) for line in batch], device=device)
        total -= float(token_log_probs(last, head.weight, head.bias, targets).double().sum())
    return total / len(lines) if lines else math.nan
