"""Encoder–decoders over some sources: step by step for decoding, or all at once for targets that are known.

Several networks over the same vocabularies work as one: at every step their probabilities are averaged.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..core.state import select
from ..decode.beam import beam
from ..decode.coverage import Coverage
from ..decode.options import TranslateSettings
from ..decode.sampling import Hypothesis, sample
from ..nn.loss import token_log_probs
from ..nn.native import pair_stepper
from ..nn.network import full
from ..nn.pair import Translator
from ..nn.trace import Only, Trace
from ._pairs import NO_TOKEN, PairPart

ALIGNMENT = "alignment"  # in a trace: the weights over the source
ROWS = 64  # sentences that go through together
ELEMENTS = 32_768  # places of sources that are held at once, those of every hypothesis counted


class Engine:
    """The step of decoding. A row of its state is a hypothesis: the number of its source, what each network keeps of
    the target so far and, if `watched`, the weights (N,S) with which it read the source last. What is kept of the
    sources themselves is selected only when the rows change."""

    def __init__(
        self, networks: Sequence[Translator], source: Tensor, mask: Tensor | None, watched: bool = False
    ) -> None:
        self.networks = networks
        self.watched = watched
        self.memories = [network.encode(source, mask) for network in networks]
        pairs = zip(networks, self.memories, strict=True)
        self.steppers = [None if watched else pair_stepper(*pair) for pair in pairs]
        self._rows = torch.arange(len(source), device=source.device)
        self._current = self.memories

    def start(self, begin: int) -> tuple[Tensor, Any]:
        return self.step(torch.full_like(self._rows, begin), (self._rows, [None] * len(self.networks), None))

    def step(self, tokens: Tensor, state: Any) -> tuple[Tensor, Any]:
        rows, inner, _ = state
        if not all(self.steppers) and not torch.equal(rows, self._rows):
            self._rows, self._current = rows, select(self.memories, rows)
        found, after, traces = [], [], []
        for network, memory, stepper, before in zip(self.networks, self._current, self.steppers, inner, strict=True):
            if stepper is not None:
                log_probs, kept = stepper.step(tokens, before)
                found.append(log_probs)
                after.append(kept)
                continue
            trace: Trace | None = Only(ALIGNMENT) if self.watched else None
            hidden, kept = network.decode(tokens[:, None], memory, before, trace)
            found.append(full(network.head(hidden[:, 0])).log_softmax(dim=-1))
            after.append(kept)
            traces.append(trace)
        looked = looking(traces)
        return mean_of(found), (rows, after, None if looked is None else looked[:, 0])

    @staticmethod
    def weights(state: Any) -> Tensor:
        weights: Tensor = state[2]
        return weights


@dataclass(frozen=True)
class Search:
    """How targets are searched for: where they begin and end, what is never said, and what all begin with."""

    begin: int
    end: int
    forbidden: tuple[int, ...] = ()
    prefix: Sequence[int] = ()

    def find(
        self,
        networks: Sequence[Translator],
        source: Tensor,
        mask: Tensor | None,
        options: TranslateSettings,
        limits: Sequence[int],
        draws: Sequence[np.random.Generator],
    ) -> list[list[Hypothesis]]:
        """For each source its targets, of at most so many tokens: several by beam search, or one by drawing."""
        covers = options.beams > 1 and options.coverage_penalty > 0
        engine = Engine(networks, source, mask, covers)
        log_probs, state = engine.start(self.begin)
        given: dict[str, Any] = {
            "eos": self.end,
            "forbidden": self.forbidden,
            "prefix": [list(self.prefix)] * len(source),
            "limits": list(limits),
        }
        if options.beams > 1:
            coverage = Coverage(options.coverage_penalty, engine.weights, mask) if covers else None
            return beam(engine.step, log_probs, state, options, **given, coverage=coverage)
        return [[one] for one in sample(engine.step, log_probs, state, options, list(draws), **given)]


def mean_of(log_probs: Sequence[Tensor]) -> Tensor:
    """The logarithm of the mean of probabilities."""
    if len(log_probs) == 1:
        return log_probs[0]
    return torch.stack(list(log_probs)).logsumexp(dim=0) - math.log(len(log_probs))


def looking(traces: Sequence[Trace | None]) -> Tensor | None:
    """The weights over the source (B,T,S), averaged over the networks that have any."""
    found = [full(trace[ALIGNMENT]) for trace in traces if trace is not None and ALIGNMENT in trace]
    return torch.stack(found).mean(dim=0) if found else None


def attends(network: Translator) -> bool:
    """Whether it shows where it looks, which only a try can tell."""
    trace = Only(ALIGNMENT)
    source = network.blank()
    network.decode(torch.zeros(1, 1, dtype=torch.long, device=source.device), network.encode(source), None, trace)
    return ALIGNMENT in trace


def batches(lengths: Sequence[int], order: Sequence[int], copies: int = 1) -> Iterator[list[int]]:
    """Neighbours of an `order` by rising length, as many as may go through together, each in some copies."""
    some: list[int] = []
    for one in order:
        if some and (len(some) == ROWS or (len(some) + 1) * copies * lengths[one] > ELEMENTS):
            yield some
            some = []
        some.append(one)
    if some:
        yield some


def forced(
    networks: Sequence[Translator], part: PairPart, begin: int, watched: bool = False
) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """For each pair the log-probability of every token of its target (T,) and, if `watched`, where it looked (T,S)."""
    device = next(networks[0].parameters()).device
    lengths = np.maximum(part.inputs.lengths, part.targets.lengths)
    likely: list[np.ndarray] = [np.zeros(0)] * len(part)
    looked: list[np.ndarray] = [np.zeros((0, 0))] * len(part)
    for rows in batches(lengths.tolist(), np.argsort(lengths, kind="stable").tolist()):
        batch = part.collate(np.array(rows), begin).to(device)
        source, given = batch.inputs
        real = batch.targets != NO_TOKEN
        found, traces = [], []
        for network in networks:
            trace: Trace | None = Only(ALIGNMENT) if watched else None
            hidden, _ = network.decode(given, network.encode(source, batch.mask), None, trace)
            head = network.head
            found.append(token_log_probs(hidden[real], head.weight, head.bias, batch.targets[real]))
            traces.append(trace)
        counts = part.targets.lengths[rows]
        values = np.split(mean_of(found).double().cpu().numpy(), np.cumsum(counts)[:-1])
        weights = looking(traces)
        for place, (row, value) in enumerate(zip(rows, values, strict=True)):
            likely[row] = value
            if weights is not None:
                looked[row] = weights[place, : counts[place], : part.inputs.lengths[row]].double().cpu().numpy()
    return likely, looked
