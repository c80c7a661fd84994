"""Texts that grow while someone types: a causal network reads the new tokens only, from the last state it shares.

    y, state = network(tokens, mask, state, trace)          `TextState.advance` is this step, with the trace so far

    live = run.inspect.live()
    live.arrays("gates", "They are wat")                    reads the whole text
    live.arrays("gates", "They are watc")                   reads what is new; any view of `Subject.run` alike
    live.subjects[0].next_log_probs("They are watc")        the log-probability of every next token (V,)

Read in parts a sequence gives the same numbers as read at once, up to the rounding of single precision.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..core.state import State
from ..nn.network import as_float32
from .subject import InspectedInput, Subject
from .trace import MAX_BYTES, BoundedTrace, evaluation_mode, join_traces


@dataclass(frozen=True, eq=False)
class TextState:
    """What a causal network over tokens knows after it has read some of them. It never changes.

    Args:
        tokens: The ids of the tokens that were read.
        state: The state of the network after them; opaque (`core.state`).
        outputs: The outputs (1,n,V) for the tokens of each part.
        traces: What happened inside, by part.
    """

    tokens: tuple[int, ...] = ()
    state: State = None
    outputs: tuple[Tensor, ...] = ()
    traces: tuple[BoundedTrace, ...] = ()

    @torch.inference_mode()
    def advance(self, network: Any, tokens: Sequence[int], max_bytes: int = MAX_BYTES) -> TextState:
        """Returns the state after more tokens.

        Args:
            network: The network, called as `network(tokens, mask, state, trace)`.
            tokens: The ids of the tokens, one or more.
            max_bytes: The largest size of the trace of all tokens.
        """
        device = next(network.parameters()).device
        trace = BoundedTrace((), max_bytes, self.traces[-1].bytes if self.traces else 0)
        with evaluation_mode(network):
            output, state = network(torch.tensor([list(tokens)], device=device), None, self.state, trace)
        return TextState((*self.tokens, *tokens), state, (*self.outputs, output), (*self.traces, trace))

    @property
    def output(self) -> Tensor:
        """The outputs (1,T,V) for all tokens."""
        return torch.cat(self.outputs, dim=1)

    def trace(self, names: Iterable[str] = (), max_bytes: int = MAX_BYTES) -> BoundedTrace:
        """Returns the trace of all tokens: of these names, or last parts of names; by default of all."""
        trace = BoundedTrace(names, max_bytes)
        parts = [{name: value for name, value in part.items() if trace.accepts(name)} for part in self.traces]
        for name, value in join_traces(parts).items():
            trace[name] = value
        return trace


class LiveSubject(Subject):
    """A subject that keeps the states of the last text, and reads of the next one only what is new.

    Other models than causal networks that predict the next token of a text read every text at once, as before.

    Args:
        subject: A trained model.
    """

    def __init__(self, subject: Subject) -> None:
        super().__init__(
            subject.label, subject.settings, subject.open_predictor, subject.load_data, subject.load_history
        )
        self._states: tuple[TextState, ...] = ()  # after ever more tokens of the last text

    @property
    def reads_on(self) -> bool:
        """Whether the model can continue from a state."""
        if not self.trained or self.gradient_free or self.encoder_decoder or not self.backbone.causal:
            return False
        readout = self.predictor.token_readout()
        return readout is not None and readout.predicts_next

    def text_state(self, tokens: Sequence[int], max_bytes: int = MAX_BYTES) -> TextState:
        """Returns the state after tokens, from the longest beginning of them that the last text had, too."""
        states = [state for state in self._states if state.tokens == tuple(tokens[: len(state.tokens)])]
        state = states[-1] if states else TextState()
        *most, last = tokens[len(state.tokens) :] or (None,)
        for part in (most, [] if last is None else [last]):  # the last token alone: the next key may replace it
            if part:
                state = state.advance(self.network, part, max_bytes)
                states.append(state)
        self._states = tuple(states)
        return state

    def run(
        self, reading: InspectedInput, names: Iterable[str] = (), max_bytes: int = MAX_BYTES
    ) -> tuple[Any, BoundedTrace]:
        tokens = reading.tokens
        if tokens is None or not reading.texts or not self.reads_on:
            return super().run(reading, names, max_bytes)
        state = self.text_state(tokens.tolist(), max_bytes)
        return (state.output, state.state), state.trace(names, max_bytes)

    def next_log_probs(self, text: str) -> np.ndarray:
        """Returns the log-probability of every token (V,) as the next one of a text."""
        if not self.reads_on:
            raise self.unavailable("does not predict the next token of a text", "name a language model")
        tokens = self.read(text).tokens
        assert tokens is not None
        scores = as_float32(self.text_state(tokens.tolist()).outputs[-1][0, -1])
        log_probs: np.ndarray = scores.log_softmax(dim=-1).cpu().numpy()
        return log_probs
