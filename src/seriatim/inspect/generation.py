"""Step by step: what happens inside while a model writes, one element at a time.

What is written comes from the run's own decoding, and is then fed again with the state carried on, as it was while it
was written. The traces of the steps, joined, are the trace of the whole.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..core.errors import SeriatimError
from ..decode.options import DecodeSettings, TranslateSettings
from ..tasks._pairs import end_of
from ..tasks._speak import Speaker
from ..tasks._translator import Interpreter
from .reading import Reading, pair, too_long
from .subject import Subject
from .trace import MOST, Trace, joined


def generated(
    subject: Subject, prompt: str, tokens: int, wanted: Iterable[str] = (), seed: int = 0
) -> tuple[Reading, dict[str, Tensor]]:
    """A prompt with up to so many tokens written behind it, drawn from the model, or a source with its translation of
    up to so many tokens; and what happened at each step."""
    predictor = None if subject.run is None else subject.run.predictor
    if tokens < 1:
        raise SeriatimError("inspect.generate", f"{tokens} tokens are none", "ask for 1 or more")
    if isinstance(predictor, Interpreter):
        reading = _translated(subject, predictor, prompt, tokens)
        return reading, stepwise(subject, reading, wanted=wanted)
    if not isinstance(predictor, Speaker) or subject.counts:
        raise subject.lacks("writes nothing", "give a text alone")
    reading = _written(subject, predictor, prompt, DecodeSettings(max_tokens=tokens, seed=seed))
    return reading, stepwise(subject, reading, wanted=wanted)


def _translated(subject: Subject, interpreter: Interpreter, source: str, tokens: int) -> Reading:
    encoded = subject.reader.encode([source])
    if encoded.cut:
        raise too_long(subject, subject.reader.limit)
    found = interpreter.translate([source], TranslateSettings(max_tokens=tokens))[0][0].tokens
    return pair(subject, encoded.rows[0], found or [end_of(interpreter.coder.target)])


def _written(subject: Subject, speaker: Speaker, prompt: str, options: DecodeSettings) -> Reading:
    before, said = speaker.continued(prompt, options)
    reader = subject.reader
    if reader.limit is not None and len(before) + len(said) > reader.limit:
        raise SeriatimError(
            "inspect.length",
            f"{len(before)} elements and {len(said)} more are beyond the {reader.limit} that {subject.label} takes",
            "give a shorter prompt, or ask for fewer tokens",
        )
    row = np.concatenate([before, said]).astype(np.int64)
    names = [speaker.tokenizer.token(index) for index in row.tolist()]
    return Reading(torch.from_numpy(row)[None].to(reader.device), names, written=len(before))


@torch.inference_mode()
def stepwise(subject: Subject, reading: Reading, wanted: Iterable[str] = (), most: int = MOST) -> dict[str, Tensor]:
    """The trace of a reading whose elements are fed one at a time: all of a target, or those that were written."""
    network: Any = subject.network
    traces: list[Trace] = []
    state: Any = None
    if reading.target is not None:
        traces.append(Trace(most, wanted))
        memory = network.encode(reading.inputs, reading.mask, traces[0])
        for token in reading.target.inputs.split(1, dim=1):
            traces.append(_next(traces, most, wanted))
            _, state = network.decode(token, memory, state, traces[-1])
        return joined(traces)
    written = reading.inputs.shape[1] - 1 if reading.written is None else reading.written
    sizes = [written, *[1] * (reading.inputs.shape[1] - written)]
    for part in reading.inputs.split([size for size in sizes if size], dim=1):
        traces.append(_next(traces, most, wanted))
        _, state = network(part, None, state, traces[-1])
    return joined(traces)


def _next(before: Sequence[Trace], most: int, wanted: Iterable[str]) -> Trace:
    """All steps together are bounded as one trace is."""
    trace = Trace(most, wanted)
    trace.bytes = before[-1].bytes if before else 0
    return trace
