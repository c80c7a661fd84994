"""Decoding by encoder–decoders: one network, or several with the same vocabularies as an ensemble.

    decoder = Seq2Seq((network,), TargetTokens(start, eos))
    decoder.search(batch, options, limits)      hypotheses of each source of a batch, best first
    decoder.score(batch)                        log-probabilities of the true tokens of a batch

Both are pure functions of a batch: texts, images, data sets and the size of batches belong to the callers. At every
step of an ensemble the probabilities of its networks are averaged.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from ..core import registry
from ..core.errors import SeriatimError
from ..core.state import State, select
from ..nn.backbone import NamedTrace, Trace
from ..nn.encoder_decoder import EncoderDecoder
from ..nn.images import ImageEncoderDecoder
from ..nn.loss import token_predictions
from ..nn.native import make_encoder_decoder_stepper
from ..nn.network import as_float32
from .beam import Coverage, beam_search
from .sampling import Hypothesis, sample
from .settings import BeamSettings

ALIGNMENT = "alignment"  # in a trace: the attention weights over the source


class PairBatch(Protocol):
    """A batch of sources, with targets unless they are searched for."""

    @property
    def inputs(self) -> tuple[Tensor, Tensor | None, Tensor | None]:
        """Sources: tokens (B,S) or images (B,C,H,W); what the decoder reads (N,T); the source of each target (N,),
        None if each source has one."""

    @property
    def targets(self) -> Tensor | None:
        """The tokens of the targets (N,T), negative for padding."""

    @property
    def mask(self) -> Tensor | None:
        """(B,S): True for tokens of the source, False for padding; None if nothing is padded."""


@dataclass(frozen=True)
class TargetTokens:
    """The special tokens of targets."""

    start: int  # that the decoder reads first
    eos: int  # the last of every target
    bos: int | None = None  # that every target begins with, if there is one
    forced_eos: bool = False  # whether a target that reaches the limit ends with `eos`


@dataclass(frozen=True)
class TargetScores:
    """The true tokens of a target, as a model rates them."""

    log_probs: np.ndarray  # (T,)
    correct: np.ndarray  # (T,) whether each was the most likely; by the first network of an ensemble
    weights: np.ndarray | None = None  # (T,S) over the source, if requested and recorded


@dataclass(frozen=True)
class Seq2Seq:
    """Networks that write a target token by token.

    Args:
        networks: One or more, with the same vocabularies.
        tokens: The special tokens of targets.
    """

    networks: tuple[EncoderDecoder, ...]
    tokens: TargetTokens

    @property
    def device(self) -> torch.device:
        return self.networks[0].head.weight.device

    @cached_property
    def context_length(self) -> int | None:
        """The longest source and target that all networks accept; None for any length."""
        lengths = [network.backbone.context_length for network in self.networks]
        return min((length for length in lengths if length is not None), default=None)

    @cached_property
    def has_alignment(self) -> bool:
        """Whether a network records attention weights over the source, which only a trial shows."""
        with torch.inference_mode():
            for network in self.networks:
                source, trace = network.empty_source(), NamedTrace(ALIGNMENT)
                start = torch.zeros(1, 1, dtype=torch.long, device=source.device)
                network.decode(start, network.encode(source), None, trace)
                if ALIGNMENT in trace:
                    return True
        return False

    def require_alignment(self, reason: str) -> None:
        """Raises an error that names models with attention over the source, if no network has it."""
        if self.has_alignment:
            return
        images = isinstance(self.networks[0], ImageEncoderDecoder)
        models = {name: registry.models.load(name).Settings for name in registry.models.names()}
        names = [name for name, model in models.items() if model.attends and (images or model.modality is None)]
        cause = f"{reason}: this model has no attention over the source"
        raise SeriatimError("model.no-attention", cause, f"train one that has: {', '.join(names)}")

    @torch.inference_mode()
    def search(
        self,
        batch: PairBatch,
        options: BeamSettings,
        limits: Sequence[int],
        prefix: Sequence[int] = (),
        forbidden: Sequence[int] = (),
        streams: Sequence[np.random.Generator] = (),
    ) -> list[list[Hypothesis]]:
        """Returns the `nbest` best hypotheses of each source, best first: by beam search, or one that is sampled.

        Args:
            batch: The sources; targets are ignored.
            options: Beam size, temperature and so on.
            limits: The largest number of tokens of each target.
            prefix: Tokens that every target begins with, `tokens.bos` among them.
            forbidden: Tokens that are never generated.
            streams: The random numbers of each row; needed without beams.
        """
        tokens, rows = self.tokens, len(limits)
        coverage = options.beams > 1 and options.coverage_penalty > 0
        if coverage:
            self.require_alignment("coverage_penalty needs attention")
        memories = [encode_sources(network, batch) for network in self.networks]
        step = DecodingStep(self.networks, memories, rows, coverage)
        log_probs, state = step.start(tokens.start)
        first = torch.zeros(rows)
        if tokens.bos is not None:  # it is certain, whatever its probability
            first = log_probs[:, tokens.bos].cpu()
            log_probs = torch.full_like(log_probs, -torch.inf).index_fill(1, torch.tensor(tokens.bos), 0.0)
        constraints: dict[str, Any] = {
            "eos": tokens.eos,
            "forbidden": list(forbidden),
            "prefix": [list(prefix)] * rows,
            "limits": list(limits),
        }
        if options.beams > 1:
            penalty = Coverage(options.coverage_penalty, step.last_weights, batch.mask) if coverage else None
            constraints |= {"coverage": penalty, "forced_eos": tokens.forced_eos}
            groups = beam_search(step.step, log_probs, state, options, **constraints)
        else:
            sampled = sample(step.step, log_probs, state, options, list(streams), **constraints)
            groups = [[self._force_end(hypothesis)] for hypothesis in sampled]
        pairs = zip(groups, first.tolist(), strict=True)
        return [[replace(one, score=one.score + value) for one in group] for group, value in pairs]

    def _force_end(self, hypothesis: Hypothesis) -> Hypothesis:
        """Returns a hypothesis; of one that reached the limit the last token is `eos`, if that is forced."""
        if hypothesis.finished or not self.tokens.forced_eos:
            return hypothesis
        return replace(hypothesis, tokens=[*hypothesis.tokens[:-1], self.tokens.eos])

    @torch.inference_mode()
    def score(self, batch: PairBatch, alignment: bool = False) -> list[TargetScores]:
        """Returns the log-probability of every true token of each target.

        Args:
            batch: Sources and targets.
            alignment: Whether to return the weights over the source.
        """
        _, decoder_inputs, _ = batch.inputs
        assert decoder_inputs is not None
        assert batch.targets is not None
        mask = batch.targets >= 0
        targets = batch.targets[mask]
        log_probs, correct, traces = [], [], []
        for network in self.networks:
            trace: Trace | None = NamedTrace(ALIGNMENT) if alignment else None
            hidden, _ = network.decode(decoder_inputs, encode_sources(network, batch), None, trace)
            values, best = token_predictions(hidden[mask], network.head.weight, network.head.bias, targets)
            log_probs.append(values)
            correct.append(best == targets)
            traces.append(trace)
        counts = mask.sum(dim=1).tolist()
        ends = np.cumsum(counts)[:-1]
        values_of = np.split(mean_probability(log_probs).double().cpu().numpy(), ends)
        correct_of = np.split(correct[0].cpu().numpy(), ends)
        attention = mean_alignment(traces)
        if attention is None:
            return [TargetScores(*values) for values in zip(values_of, correct_of, strict=True)]
        widths = [attention.shape[2]] * len(counts) if batch.mask is None else batch.mask.sum(dim=1).tolist()
        matrices = [
            attention[row, :count, :width].double().cpu().numpy()
            for row, (count, width) in enumerate(zip(counts, widths, strict=True))
        ]
        return [TargetScores(*values) for values in zip(values_of, correct_of, matrices, strict=True)]

    @torch.inference_mode()
    def distributions(self, batch: PairBatch) -> Tensor:
        """Returns the log-probabilities (T,V) of all tokens at each position of the target of the first row."""
        _, decoder_inputs, _ = batch.inputs
        assert decoder_inputs is not None
        log_probs = []
        for network in self.networks:
            hidden, _ = network.decode(decoder_inputs, encode_sources(network, batch))
            log_probs.append(as_float32(network.head(hidden[0])).log_softmax(dim=-1))
        return mean_probability(log_probs)


def encode_sources(network: EncoderDecoder, batch: PairBatch) -> State:
    """Returns the memory of the sources of a batch, a row for each target."""
    sources, _, owners = batch.inputs
    memory = network.encode(sources, batch.mask)
    return memory if owners is None else select(memory, owners)


class DecodingStep:
    """One step of decoding by an ensemble. A row of its state is a hypothesis: the row of its source, the state of each
    decoder and, with `alignment`, the weights (N,S) over the source at the last step.

    Args:
        networks: The networks of the ensemble.
        memories: What each of them encoded of the sources.
        count: The number of sources.
        alignment: Whether weights over the source are needed; then the native step is not used.
    """

    def __init__(
        self, networks: Sequence[EncoderDecoder], memories: Sequence[State], count: int, alignment: bool = False
    ) -> None:
        self.networks, self.memories, self.alignment = networks, memories, alignment
        pairs = zip(networks, memories, strict=True)
        self.steppers = [None if alignment else make_encoder_decoder_stepper(*pair) for pair in pairs]
        self._rows = torch.arange(count, device=networks[0].head.weight.device)
        self._selected = memories  # of the current rows; selected again only if the rows change

    def start(self, token: int) -> tuple[Tensor, State]:
        """Returns the log-probabilities (N,V) of the first token, and the state."""
        return self.step(torch.full_like(self._rows, token), (self._rows, [None] * len(self.networks), None))

    def step(self, tokens: Tensor, state: State) -> tuple[Tensor, State]:
        rows, decoder_states, _ = state
        if not all(self.steppers) and not torch.equal(rows, self._rows):
            self._rows, self._selected = rows, select(self.memories, rows)
        log_probs, next_states, traces = [], [], []
        parts = zip(self.networks, self._selected, self.steppers, decoder_states, strict=True)
        for network, memory, stepper, decoder_state in parts:
            if stepper is not None:
                scores, next_state = stepper.step(tokens, decoder_state)
                log_probs.append(scores)
            else:
                trace: Trace | None = NamedTrace(ALIGNMENT) if self.alignment else None
                hidden, next_state = network.decode(tokens[:, None], memory, decoder_state, trace)
                log_probs.append(as_float32(network.head(hidden[:, 0])).log_softmax(dim=-1))
                traces.append(trace)
            next_states.append(next_state)
        attention = mean_alignment(traces)
        return mean_probability(log_probs), (rows, next_states, None if attention is None else attention[:, 0])

    @staticmethod
    def last_weights(state: State) -> Tensor:
        """Returns the weights (N,S) over the source in a state."""
        attention: Tensor = state[2]
        return attention


def mean_probability(log_probs: Sequence[Tensor]) -> Tensor:
    """Returns the logarithm of the mean of probabilities."""
    if len(log_probs) == 1:
        return log_probs[0]
    return torch.stack(list(log_probs)).logsumexp(dim=0) - math.log(len(log_probs))


def mean_alignment(traces: Sequence[Trace | None]) -> Tensor | None:
    """Returns the weights over the source (B,T,S), averaged over the networks that have them."""
    recorded = [as_float32(trace[ALIGNMENT]) for trace in traces if trace is not None and ALIGNMENT in trace]
    return torch.stack(recorded).mean(dim=0) if recorded else None
