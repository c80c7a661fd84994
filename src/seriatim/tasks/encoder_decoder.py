"""Encoder–decoders: what the tasks `translate` and `caption` share.

    p(target | source) = Π_t p(y_t | y_1 … y_{t−1}, source)        loss = Σ_t −log p(y_t | …)

An encoder reads the source, a decoder writes the target token by token. Training is by teacher forcing: the decoder
reads the true tokens before each. Evaluation and prediction are those of `decode/seq2seq.py`.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Generic, Self, TypeVar

import numpy as np
import torch
from torch import Tensor

from ..core.errors import SeriatimError
from ..core.state import State
from ..data.sequences import Sequences
from ..data.source import DataInput
from ..data.tokenizers import Tokenizer
from ..decode.sampling import Hypothesis
from ..decode.seq2seq import Seq2Seq, TargetScores, TargetTokens, encode_sources
from ..decode.settings import BeamSettings
from ..nn.encoder_decoder import EncoderDecoder
from ..nn.loss import TokenScores, distillation_loss, token_loss
from .base import IGNORED, Task
from .batching import Batch
from .inspection import ScoredTokens, TokenReadout, TokenScorer
from .predictor import ModelInput, Predictor
from .processor import Processor
from .spec import S
from .values import Encoded, Items, Output, R

SHOWN_SAMPLES = 4
SAMPLED_SOURCES = 100  # for which an evaluation on the way generates targets


# Tokens


def eos_of(tokenizer: Tokenizer) -> int:
    """Returns `<eos>`, the last token of every target."""
    if tokenizer.eos is None:
        raise SeriatimError("tokenizer.eos", "the tokenizer has no end-of-sequence token", "use another tokenizer")
    return tokenizer.eos


def encode_with_eos(tokenizer: Tokenizer, texts: Sequence[str]) -> Sequences:
    """Returns the token ids of each text, `<eos>` appended."""
    end = np.array([eos_of(tokenizer)])
    return Sequences.of([np.concatenate([ids, end]) for ids in tokenizer.encode_many(list(texts), strict=False)])


@dataclass(frozen=True, eq=False)
class Paired(Encoded):
    """Sources with targets as tokens; subclasses add what they know of the data."""

    targets: Items | None = None  # each with its last token; None in prediction


I = TypeVar("I", bound=Paired)  # noqa: E741  (items)


class TargetProcessor(Processor[I]):
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

    def decode_text(self, tokens: list[int]) -> str:
        """Returns the text of a target, which may have its first and last token, or not."""
        special = self.tokens
        tokens = tokens[1:] if tokens[:1] == [special.bos] else tokens
        return self.target.decode(tokens[:-1] if tokens[-1:] == [special.eos] else tokens)

    def encode_prefix(self, options: BeamSettings, limit: int | None, task: str) -> list[int]:
        """Returns the tokens that every target begins with.

        Args:
            options: With the text of the prefix.
            limit: The longest target that the model accepts; None for any.
            task: The name of the task, for the code of an error.
        """
        tokens: list[int] = self.target.encode(options.prefix).tolist() if options.prefix else []
        bos = self.tokens.bos
        tokens = tokens if bos is None else [bos, *tokens]
        limit = min(options.max_tokens, limit or options.max_tokens)
        if len(tokens) >= limit:
            cause = f"the prefix has {len(tokens)} tokens, and a target at most {limit}"
            raise SeriatimError(f"{task}.prefix", cause, "shorten it")
        return tokens

    def forbidden_tokens(self, unknown: bool = False) -> list[int]:
        """Returns the tokens that are never generated, with `<unk>` among them unless it is replaced (`unknown`)."""
        tokens = (None if unknown else self.target.unk, self.target.pad)
        return [token for token in tokens if token is not None and token != self.tokens.eos]

    @abstractmethod
    def compatible(self, other: object) -> bool:
        """Returns whether both encode alike, so that their networks can be an ensemble."""


P = TypeVar("P", bound=TargetProcessor[Any])


def shift_targets(
    targets: Items, chosen: np.ndarray, start: int, max_length: int | None = None
) -> tuple[Tensor, Tensor, int]:
    """Returns decoder inputs (B,T), targets (B,T) with `IGNORED` for padding, and the number of targets.

    Args:
        targets: All targets, each with its last token.
        chosen: Those of the batch.
        start: The token that the decoder reads first.
        max_length: Truncates targets, for models with a limited context.
    """
    tokens = targets.padded(chosen, fill=IGNORED)[0][:, :max_length]
    shifted = np.empty_like(tokens)
    shifted[:, 0] = start
    shifted[:, 1:] = np.maximum(tokens[:, :-1], 0)
    return torch.from_numpy(shifted), torch.from_numpy(tokens), int((tokens != IGNORED).sum())


# Training


class EncoderDecoderTask(Task[S, P, I, R]):
    """The loss of encoder–decoders. A subclass adds data, network and metrics."""

    unit = "tokens"
    teacher_tokenizer = True

    def forward(self, network: EncoderDecoder, batch: Batch, state: State = None) -> Output[TokenScores]:
        hidden = network.decoder_outputs(batch.inputs[1], encode_sources(network, batch))  # (B,T,D)
        vectors = hidden[batch.targets != IGNORED]  # (N,D)
        return Output(TokenScores(vectors, network.head.weight, network.head.bias), vectors)

    def loss(self, output: Output[TokenScores], batch: Batch, smoothing: float = 0.0) -> Tensor:
        hidden, weight, bias = output.scores
        return token_loss(hidden, weight, bias, batch.targets[batch.targets != IGNORED], smoothing)

    def distillation_loss(
        self, output: Output[TokenScores], teacher: Output[TokenScores], temperature: float
    ) -> Tensor:
        return distillation_loss(output.scores, teacher.scores, temperature)

    def hidden_states(self, network: EncoderDecoder, batch: Batch) -> Tensor:
        return network.encoder_outputs(batch.inputs[0], batch.mask)


# Prediction

T = TypeVar("T", bound=EncoderDecoderTask[Any, Any, Any, Any])


class EncoderDecoderPredictor(Predictor[T], Generic[T, I]):
    """A network or an ensemble, with what `inspect` asks of it.

    Args:
        task: The task.
        network: The network.
        others: Further networks with the same vocabularies, whose probabilities are averaged with its own.
    """

    def __init__(self, task: T, network: EncoderDecoder, others: Sequence[EncoderDecoder] = ()) -> None:
        super().__init__(task, network)
        self.decoder = Seq2Seq((network, *others), task.processor.tokens)

    def ensemble(self, others: Sequence[Predictor[T]]) -> Self:
        """Returns a predictor that averages the probabilities of this network and others with the same vocabularies."""
        networks = list(self.decoder.networks[1:])
        for other in others:
            if not isinstance(other, type(self)) or not self.task.processor.compatible(other.task.processor):
                cause = "the runs have different vocabularies"
                raise SeriatimError("run.vocabulary", cause, "train both on the same data with the same tokenizer")
            networks += other.decoder.networks
        return type(self)(self.task, self.network, networks)

    @abstractmethod
    def search(self, items: I, options: BeamSettings) -> list[list[Hypothesis]]:
        """Returns the hypotheses of each item, best first."""

    @abstractmethod
    def score_targets(self, items: I) -> list[TargetScores]:
        """Returns the scores of the true tokens of each item."""

    @abstractmethod
    def complete(self, inputs: DataInput) -> I:
        """Returns sources with their targets; a target that is missing is generated."""

    # Inspection

    def model_input(self, inputs: DataInput) -> ModelInput:
        items = self.complete(inputs)
        batch = self.task.collate(items, np.arange(len(items)))
        return ModelInput(batch, [self.sequences(items, item) for item in range(len(items))])

    def sequences(self, encoded: I, item: int) -> dict[str, list[str]]:
        axes = {"source": self.element_names(encoded, item)}
        if encoded.targets is not None:
            axes["target"] = [self.processor.target.token(int(token)) for token in encoded.targets[item]]
        return axes

    def with_target(self, encoded: I, target: str | None = None, max_tokens: int | None = None) -> I:
        if target is not None:
            return replace(encoded, targets=self.processor.encode_texts(self.processor.target, [target]))
        options = BeamSettings() if max_tokens is None else BeamSettings(max_tokens=max_tokens)
        tokens = self.search(encoded, options)[0][0].tokens or [self.decoder.tokens.eos]
        return replace(encoded, targets=Sequences.of([np.array(tokens)]))

    def generate_input(self, text: str, tokens: int, seed: int) -> tuple[I, int]:
        return self.with_target(self.encode_inputs([text]), None, tokens), 0

    def token_scorer(self) -> TokenScorer:
        """Returns a function that rates a target, by default a generated one, given its source."""

        def rate(text: str, target: str | None) -> ScoredTokens:
            items = self.with_target(self.encode_inputs([text]), target)
            assert items.targets is not None
            ids = np.asarray(items.targets[0])
            distributions = self.decoder.distributions(self.task.collate(items, np.arange(1)).to(self.decoder.device))
            characters = len(self.processor.decode_text(ids.tolist()))
            log_probs = self.score_targets(items)[0].log_probs
            return ScoredTokens(self.processor.target, ids, log_probs, [distributions], characters)

        return rate

    def token_readout(self) -> TokenReadout:
        return TokenReadout(self.processor.target, self.network.head, lambda batch: batch.targets[0], True)
