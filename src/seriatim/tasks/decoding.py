"""Decoding: the step of encoder–decoders, alone or as an ensemble, the random streams of samples, and records."""

from __future__ import annotations

import math
import zlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from ..core.device import numpy_stream
from ..core.state import State, select
from ..data.kinds import NUMBER, NUMBERS
from ..data.tokenizers import Tokenizer
from ..decode.sampling import Hypothesis
from ..nn.backbone import NamedTrace, Trace
from ..nn.encoder_decoder import EncoderDecoder
from ..nn.native import make_encoder_decoder_stepper
from ..nn.network import as_float32
from .metrics import perplexity
from .predictor import Record

ALIGNMENT = "alignment"  # in a trace: the attention weights over the source


@dataclass(frozen=True)
class Generated(Hypothesis):
    """A generated target."""

    text: str = ""


@dataclass(frozen=True)
class Forced:
    """The true tokens of a target, as the model rates them."""

    log_probs: np.ndarray  # (T,)
    correct: np.ndarray  # (T,) whether each was the most likely; by the first network of an ensemble
    weights: np.ndarray | None = None  # (T,S) over the source, if requested and recorded


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
        self._selected = memories  # those of the current rows: selected again only if the rows change

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


def own_streams(keys: Sequence[str], seed: int) -> list[np.random.Generator]:
    """Returns a random stream per key that depends on nothing but the key, and on how often it came before."""
    before: Counter[str] = Counter()
    streams = []
    for key in keys:
        streams.append(numpy_stream(seed, "sample", zlib.crc32(key.encode()), before[key]))
        before[key] += 1
    return streams


def nbest_record(rows: Sequence[Record], nbest: int) -> Record:
    """Returns the record of an input: that of its best hypothesis or, for `nbest` > 1, lists of the values of all."""
    return rows[0] if nbest == 1 else {column: [row[column] for row in rows] for column in rows[0]}


SCORE_OUTPUTS = {"log_probability": NUMBER, "tokens": NUMBER, "perplexity": NUMBER, "token_log_probabilities": NUMBERS}


def score_record(tokenizer: Tokenizer, ids: Sequence[int], log_probs: np.ndarray) -> Record:
    """Returns the record of the capability `score`: log-probability, tokens and perplexity of a text."""
    total, names = float(log_probs.sum()), [tokenizer.token(token) for token in ids]
    return {
        "log_probability": total,
        "tokens": len(names),
        "perplexity": math.inf if math.isinf(total) else perplexity(-total / max(len(names), 1)),
        "token_log_probabilities": list(zip(names, log_probs.tolist(), strict=True)),
    }
