"""What one asks of a translator: what is this in the other language, and how likely is that translation.

Several networks over the same vocabularies answer together: their probabilities are averaged at every step.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ..core.errors import SeriatimError
from ..core.random import numpy_stream
from ..core.state import select
from ..data.sequences import Sequences
from ..decode.beam import beam
from ..decode.options import TranslateSettings
from ..decode.sampling import Hypothesis, sample
from ..nn.network import full
from ..nn.pair import Translator
from ._pairs import PairCoder, end_of

ROWS = 64  # sentences that are translated together


@dataclass(frozen=True)
class Translation:
    """`score` is the log-probability of the whole of it, its end included."""

    text: str
    score: float
    tokens: list[int]
    finished: bool


class Engine:
    """The step of decoding over some sources. A row of its state is a hypothesis: the number of its source, and what
    each network keeps of the target so far. What is kept of the sources themselves is selected only when that changes.
    """

    def __init__(self, networks: Sequence[Translator], source: Tensor, mask: Tensor | None) -> None:
        self.networks = networks
        self.memories = [network.encode(source, mask) for network in networks]
        self._rows = torch.arange(len(source), device=source.device)
        self._current = self.memories

    def start(self, end: int) -> tuple[Tensor, Any]:
        return self.step(torch.full_like(self._rows, end), (self._rows, [None] * len(self.networks)))

    def step(self, tokens: Tensor, state: Any) -> tuple[Tensor, Any]:
        rows, inner = state
        if not torch.equal(rows, self._rows):
            self._rows, self._current = rows, select(self.memories, rows)
        found, after = [], []
        for network, memory, before in zip(self.networks, self._current, inner, strict=True):
            hidden, kept = network.decode(tokens[:, None], memory, before)
            found.append(full(network.head(hidden[:, 0])).log_softmax(dim=-1))
            after.append(kept)
        together = found[0] if len(found) == 1 else torch.stack(found).logsumexp(dim=0) - math.log(len(found))
        return together, (rows, after)


class Interpreter:
    questions = ("translate", "score", "predict")

    def __init__(self, networks: Sequence[Translator], coder: PairCoder) -> None:
        self.networks = [network.eval() for network in networks]
        self.model = self.networks[0]
        self.coder = coder
        self.device = next(self.model.parameters()).device

    @torch.inference_mode()
    def translate(self, texts: Sequence[str], options: TranslateSettings) -> list[list[Translation]]:
        """For each text its `nbest` translations, best first. An empty text is an empty translation."""
        found = [[Translation("", 0.0, [], True)] for _ in texts]
        sources = self.coder.sources(texts)
        wanted = [index for index, text in enumerate(texts) if text.strip()]
        order = sorted(wanted, key=lambda index: int(sources.lengths[index]))  # like lengths together: little padding
        for first in range(0, len(order), ROWS):
            some = order[first : first + ROWS]
            for index, hypotheses in zip(some, self._decode(sources, some, options), strict=True):
                found[index] = [self._translation(one) for one in hypotheses]
        return found

    def _decode(self, sources: Sequences, rows: list[int], options: TranslateSettings) -> list[list[Hypothesis]]:
        block, real = sources.padded(rows)
        self._fits(sources, rows)
        mask = None if real.all() else torch.from_numpy(real).to(self.device)
        engine = Engine(self.networks, torch.from_numpy(block).to(self.device), mask)
        end = end_of(self.coder.target)
        log_probs, state = engine.start(end)
        limits = options.limits(sources.lengths[rows].tolist())
        never = () if self.coder.target.unk is None else (self.coder.target.unk,)
        if options.beams > 1:
            return beam(engine.step, log_probs, state, options, end, forbidden=never, limits=limits)
        streams = [numpy_stream(options.seed, "sample", row) for row in rows]
        told = sample(engine.step, log_probs, state, options, streams, end, forbidden=never, limits=limits)
        return [[one] for one in told]

    def _fits(self, sources: Sequences, rows: list[int]) -> None:
        context = self.model.backbone.context
        for row in rows:
            if context is not None and sources.lengths[row] > context:
                cause = f"input {row + 1} has {sources.lengths[row]} tokens, the model takes {context}"
                raise SeriatimError("predict.long", cause, "shorten it, or train with model.positions=sinusoidal")

    def _translation(self, found: Hypothesis) -> Translation:
        end = end_of(self.coder.target)
        visible = found.tokens[:-1] if found.tokens[-1:] == [end] else found.tokens
        return Translation(self.coder.target.decode(visible), found.score, found.tokens, found.finished)

    @torch.inference_mode()
    def score(self, source: str, target: str) -> float:
        """log p(target | source), the end included."""
        given, wanted = self.coder.sources([source])[0], self.coder.targets([target])[0]
        engine = Engine(self.networks, torch.from_numpy(given)[None].to(self.device), None)
        log_probs, state = engine.start(end_of(self.coder.target))
        total = 0.0
        for place, token in enumerate(wanted.tolist()):
            total += float(log_probs[0, token])
            if place + 1 < len(wanted):
                log_probs, state = engine.step(torch.tensor([token], device=self.device), state)
        return total

    def predict(self, inputs: Sequence[str]) -> list[dict[str, Any]]:
        found = self.translate(inputs, TranslateSettings())
        return [{"translation": one[0].text, "score": one[0].score} for one in found]
