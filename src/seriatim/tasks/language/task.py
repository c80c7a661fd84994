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
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor, nn

from ...core.device import numpy_stream
from ...core.errors import Diagnostics, SeriatimError
from ...core.state import State
from ...data.sequences import Sequences
from ...data.split import Contiguous
from ...data.tokenizers import Tokenizer, TokenizerSettings
from ...decode.settings import GenerationSettings
from ...models.ngram import NGram
from ...models.ngram import Settings as NGramSettings
from ...nn.backbone import BackboneSettings
from ...nn.loss import TokenScores, distillation_loss, token_loss
from ...nn.network import Network, TokenHead, token_network
from ...nn.settings import ModelSettings
from ..base import (
    SAMPLED_SIZE,
    Batch,
    Encoded,
    Evaluation,
    Metrics,
    Output,
    Progress,
    Split,
    Splits,
    Task,
    padding_mask,
)
from ..batching import Sampler
from ..metrics import perplexity
from ..predictor import Predictor
from ..processor import Values, length_mismatches, tokenizer_mismatches
from .engine import Engine, NGramEngine
from .predictor import LanguageModelPredictor
from .spec import SPEC, LanguageSettings
from .stream import LanguageProcessor, Stream, sample_stream, stack_spans, token_counts

__all__ = ["LanguageModelPredictor", "LanguageProcessor", "LanguageSettings", "LanguageTask", "read_arpa"]
CARRIED_SEQUENCES = 16  # consecutive training sequences over which a state is carried
SHORT_MINUTES, SHORT_CONTEXT = 10, 64  # below 10 minutes, context_length defaults to 64 words or sub-words
MAX_INTERPOLATED = 1 << 20  # tokens of the validation split that weights of n-gram models are fitted to
BASELINE_ORDER, BASELINE_TOKENS = 5, 1 << 21  # of the n-gram model beside a network
SAMPLE = {"max_tokens": 160, "temperature": 0.8}
LINE_START_KEY = "seriatim_line_start"  # in config.json of an exported model


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


# Task


class LanguageTask(Task[LanguageSettings, LanguageProcessor, Stream, str]):
    spec = SPEC
    split_policy = Contiguous("text")
    processor_type = LanguageProcessor
    predictor_type = LanguageModelPredictor
    unit = "tokens"
    muon = True
    teacher_tokenizer = True
    default_fractions = (0.9, 0.05, 0.05)
    hub_head = "causal-lm"

    @classmethod
    def resolve_settings(cls, settings: LanguageSettings, values: Values) -> LanguageSettings:
        """Shortens sequences in a short time: more of them are read, and a word says as much as five characters."""
        train = values.get("train") or {}
        other_end = any(train.get(end) is not None for end in ("steps", "epochs", "tokens", "flops"))
        minutes = None if other_end else train.get("minutes")
        is_open = "context_length" not in settings.model_fields_set and values.get("start") is None
        if not is_open or minutes is None or minutes >= SHORT_MINUTES or settings.tokenizer.kind in ("char", "byte"):
            return settings
        return settings.model_copy(update={"context_length": SHORT_CONTEXT})

    @classmethod
    def hub_settings(cls, config: Values) -> Values:
        return {"context_length": config["n_positions"], "line_start": bool(config.get(LINE_START_KEY))}

    def hub_config(self) -> Values:
        return {LINE_START_KEY: self.settings.line_start}

    def link(self, splits: Splits[Stream], diagnostics: Diagnostics) -> Splits[Stream]:
        """Notes the size of each split, which must have a token and one that it is predicted from."""
        for name in splits:
            count, unknown = len(splits[name].items.tokens), splits[name].items.unknown
            if count < 2:
                remedy = "add text, name files for validation and test, or choose other fractions, such as 0.8, 0.2, 0"
                diagnostics.report("data.too-short", f"the {name} split has {count} tokens", remedy)
            share = f", {unknown:,} of them ({100 * unknown / count:.2g} %) <unk>" if unknown else ""
            diagnostics.note(f"{name}: {count:,} tokens{share}")
        diagnostics.raise_problems()
        return splits

    # Models

    def network(self, model: ModelSettings) -> nn.Module:
        if isinstance(model, NGramSettings):
            return NGram(model, self.processor.tokenizer.vocab_size)
        if not model.traits.causal:
            option = "omit model.bidirectional, or " if "bidirectional" in type(model).model_fields else ""
            cause = f"a bidirectional {model.name} reads the token that it has to predict"
            raise SeriatimError("task.not-causal", cause, f"{option}choose a causal model, such as gpt or lstm")
        settings = cast(BackboneSettings, model)
        return token_network(settings, self.processor.tokenizer.vocab_size, self.settings.context_length)

    def fit(
        self, model: ModelSettings, train: Split[Stream], diagnostics: Diagnostics, limit: int | None = None
    ) -> NGram:
        if not isinstance(model, NGramSettings):
            raise self.unsupported_model(model)
        return self._count(model, train.items.tokens[:limit], diagnostics.on_note)

    def resize(
        self, model: ModelSettings, train: Split[Stream], parameters: int, limit: int | None = None
    ) -> ModelSettings:
        if not isinstance(model, NGramSettings):
            return model
        tokens, vocab_size = train.items.tokens[:limit], self.processor.tokenizer.vocab_size
        return model.within_budget(parameters, tokens, vocab_size, self._boundary(tokens))

    def interpolate(self, models: Sequence[NGram], validation: Split[Stream]) -> NGram:
        tokens = np.asarray(validation.items.tokens[:MAX_INTERPOLATED], np.int64)
        return NGram.mix(models, tokens[1:], tokens[:1])

    def _count(self, model: NGramSettings, tokens: np.ndarray, progress: Callable[[str], None] | None = None) -> NGram:
        return NGram.fit(tokens, self.processor.tokenizer.vocab_size, model, self._boundary(tokens), progress)

    def _boundary(self, tokens: np.ndarray) -> int | None:
        """Returns the token between documents or lines, None if there is none in the training split."""
        eos = self.processor.tokenizer.eos
        return eos if eos is not None and bool((tokens == eos).any()) else None

    # Training

    def sampler(self, train: Stream, diagnostics: Diagnostics) -> Sampler:
        tokens, length, model = len(train.tokens), self.settings.context_length, self.config.model
        if tokens <= length and not model.gradient_free:
            cause = f"the training split has {tokens:,} tokens, sequences of {length} need {length + 1:,}"
            raise SeriatimError("data.too-short", cause, "add text, or lower --context-length")
        return StreamSampler(tokens, length, model.traits.carries_state, self.config.seed)

    def training_batch(self, train: Stream, chosen: np.ndarray, share: slice, step: int) -> Batch:
        """Returns tokens (B,T) from each start on as inputs, and the tokens after each of them (B,T) as targets."""
        spans = torch.from_numpy(stack_spans(train.tokens, chosen[share], self.settings.context_length + 1))
        inputs, targets = spans[:, :-1], spans[:, 1:]
        return Batch(inputs, targets, targets.numel())

    def collate(self, items: Encoded, chosen: np.ndarray) -> Batch:
        inputs, mask = items.inputs.padded(chosen)
        return Batch(torch.from_numpy(inputs).long(), None, len(chosen), padding_mask(mask))

    def forward(self, network: Network, batch: Batch, state: State = None) -> Output[TokenScores]:
        head = cast(TokenHead, network.head)
        if network.backbone.carries_state:
            hidden, state = network.hidden(batch.inputs, batch.mask, state)  # (B,T,D)
        else:
            hidden, state = network.outputs(batch.inputs, batch.mask), None
        vectors = hidden.flatten(0, 1)  # (N,D)
        return Output(TokenScores(vectors, head.weight, head.bias), vectors, state)

    def loss(self, output: Output[TokenScores], batch: Batch, smoothing: float = 0.0) -> Tensor:
        vectors, weight, bias = output.scores
        return token_loss(vectors, weight, bias, batch.targets.flatten(), smoothing)

    def distillation_loss(self, output: Output[Any], teacher: Output[Any], temperature: float) -> Tensor:
        return distillation_loss(output.scores, teacher.scores, temperature)

    def teacher_mismatches(self, teacher: Predictor[Any]) -> list[str]:
        other = cast(LanguageProcessor, teacher.processor)
        sentences = tokenizer_mismatches(self.processor.tokenizer, other.tokenizer)
        limit = teacher.network.backbone.context_length
        return sentences + length_mismatches("sequences", self.settings.context_length, limit)

    # Inspection

    def stream(self, items: Stream) -> np.ndarray:
        tokens: np.ndarray = items.tokens
        return tokens

    def shown_items(self, items: Stream) -> Stream:
        """Returns the stream in sequences of the training length."""
        tokens, length = items.tokens, self.settings.context_length
        ends = np.minimum(np.arange(length, len(tokens) + length, length), len(tokens))
        return Stream(Sequences(tokens, ends))

    # Evaluation

    def sample_split(self, split: Split[Stream], limit: int | None = None) -> Split[Stream]:
        return sample_stream(split, self.processor, SAMPLED_SIZE if limit is None else limit)

    def evaluate(
        self, network: nn.Module, split: Split[Stream], progress: Progress | None = None
    ) -> Evaluation[Stream, str]:
        """Returns loss, perplexity and bits per character on a stream, or on parts of it; and a generated text.

        The text is generated with the validation split only: it does not depend on the split.
        """
        predictor, stream = LanguageModelPredictor(self, network.eval()), split.items
        metrics = measure(predictor.engine.stream_loss(stream), stream) | {"tokens": float(stream.targets)}
        if self.settings.last_word:
            eos = cast(int, self.processor.tokenizer.eos)
            metrics["last_word_perplexity"] = perplexity(last_word_loss(predictor.engine, stream.lines(eos), eos))
        options = GenerationSettings(**SAMPLE, seed=self.config.seed)
        text = predictor.continuation("", options) if split.name == "validation" else ""
        return Evaluation(split, metrics, text)

    def sample(self, evaluation: Evaluation[Stream, str]) -> str:
        """Returns a generated text."""
        return evaluation.outputs

    def baselines(self, splits: Splits[Stream], names: Sequence[str]) -> dict[str, dict[str, Metrics]]:
        """Returns the metrics of token frequencies in the training split, and beside a network of an n-gram model."""
        train = splits.train.items.tokens
        counts = token_counts(train, self.processor.tokenizer.vocab_size) + 0.5
        frequencies = np.log(counts / counts.sum())
        baselines: dict[str, dict[str, Metrics]] = {}
        for name in names:
            occurrences = token_counts(splits[name].items.tokens[1:], len(counts))
            loss = float(-(occurrences * frequencies).sum() / occurrences.sum())
            baselines[name] = {"token frequencies": measure(loss, splits[name].items)}
        if not self.config.model.gradient_free:
            part = "" if len(train) <= BASELINE_TOKENS else f" of {BASELINE_TOKENS:,} tokens"
            engine = NGramEngine(
                self._count(NGramSettings(name="ngram", order=BASELINE_ORDER), train[:BASELINE_TOKENS])
            )
            for name in names:
                stream = splits[name].items
                baselines[name][f"{BASELINE_ORDER}-gram{part}"] = measure(engine.stream_loss(stream), stream)
        return baselines


def measure(loss: float, stream: Stream) -> Metrics:
    """Returns the metrics that follow from the mean loss of a token."""
    metrics = {"loss": loss, "perplexity": perplexity(loss)}
    if stream.characters:
        bits, tokens = loss / math.log(2), len(stream.tokens)
        metrics["bits_per_character"] = bits * tokens / stream.characters
        metrics["bits_per_byte"] = bits * tokens / stream.size + 8 * stream.unknown / tokens
    return metrics


def last_word_loss(engine: Engine, tokens: np.ndarray, eos: int) -> float:
    """Returns the mean loss of the last word of each line, given the words before it in the line and nothing else."""
    lines = [line[line != eos] for line in np.split(tokens, np.flatnonzero(tokens == eos) + 1)]
    lines = sorted((line.astype(np.int64) for line in lines if len(line)), key=len)
    return engine.last_word_loss(lines, eos) if lines else math.nan
