"""Sequences as the network of a run reads them, with names for their elements.

A text; two texts, for a network that reads two, or a question and its passage; a source with its target, for a
translator; words, for a tagger; a picture (sights.py). Without a text a sequence of the run's own validation data,
whatever its kind.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from ..core.errors import SeriatimError
from ..core.random import torch_stream
from ..decode.options import TranslateSettings
from ..nn.pair import PairSettings
from ..tasks._answerer import Answerer, questions_of
from ..tasks._forecast_measures import origins
from ..tasks._pairs import end_of
from ..tasks._tagger import Tagger, spells
from ..tasks._translator import Interpreter
from ..tasks.forecast import ForecastTask
from ..tasks.language import LanguageTask
from ..tasks.pretrain import PretrainTask

if TYPE_CHECKING:
    from .subject import Subject

NOISE = 32  # elements of a sequence that means nothing, for a network that knows no tokens
WHOLE = "[whole]"  # the element of a Vision Transformer that is no place
SPLITS = ("valid", "test", "train")  # where examples are taken from, the first that there is


@dataclass(frozen=True)
class Target:
    """What a decoder reads: a token to begin with, then what it said; at each place it is to say the next."""

    inputs: Tensor  # (1,T)
    names: list[str]
    said: list[str]  # what comes out at each place …
    tokens: Tensor  # … (T,)


@dataclass(frozen=True)
class Reading:
    """A sequence as the network reads it."""

    inputs: Any  # (1,T) tokens, or whatever the network takes
    names: list[str]  # of its elements, fit to be shown
    mask: Tensor | None = None
    target: Target | None = None  # of an encoder–decoder, which reads it besides
    written: int | None = None  # the first element that the model wrote itself
    note: str = ""  # where it comes from, if it was not given; what of it the vocabulary lacks

    @property
    def notes(self) -> list[str]:
        if self.written is None:
            return [self.note] if self.note else []
        count = len(self.names) - self.written
        return [f"the last {count} of {len(self.names)} elements were written by the model, one at a time"]


def of_texts(subject: Subject, texts: Sequence[str], target: str | None = None) -> Reading:
    """One that is too long for the network is refused, and one that has nothing to read."""
    reading = _read(subject, texts, target)
    if not reading.names:
        raise SeriatimError("inspect.text", "there is nothing in the text to read", "give one that has something")
    return reading


def reads_two(subject: Subject) -> bool:
    """Whether two texts are read as one sequence, and never one alone."""
    predictor = _predictor(subject)
    return isinstance(predictor, Answerer) or bool(getattr(predictor, "pairs", False))


def _read(subject: Subject, texts: Sequence[str], target: str | None) -> Reading:
    if subject.run is None:
        raise subject.lacks("was never trained and knows no tokens", "leave the text away, or name a run")
    from . import sights

    predictor = _predictor(subject)
    if sights.reads_pictures(subject):
        return sights.of_files(subject, texts, target)
    if not hasattr(predictor, "tokenizer") and not hasattr(predictor, "coder"):
        raise subject.lacks("does not read text", "leave the text away, and choose a sequence of its data: --example 0")
    count = 2 if reads_two(subject) else 1
    both = getattr(predictor, "pairs", False) is None  # one text or two
    if len(texts) != count and not (both and len(texts) == 2):
        what = {1: "one text", 2: "two texts"}[count]
        given = f"{len(texts)} were given" if len(texts) > 1 else "one was given"
        raise SeriatimError("inspect.text", f"{subject.label} reads {what}, and {given}", f"give {what}")
    if isinstance(predictor, Interpreter):
        return _pair(subject, predictor, texts[0], target)
    if target is not None:
        raise SeriatimError("inspect.target", f"{subject.label} does not translate", "leave --target away")
    if isinstance(predictor, Tagger):
        return _words(subject, predictor, texts[0])
    if getattr(getattr(predictor, "coder", None), "kind", "") == "numbers":
        return _numbers(subject, predictor.coder, texts[0])
    if isinstance(predictor, Answerer):
        part = predictor.coder.encode(questions_of([(texts[0], texts[1])]))
        if part.cut or len(part) > 1:
            raise too_long(subject, predictor.coder.window)
        return _tokens(subject, part.inputs.padded([0])[0][0])
    reading = _tokens(subject, _one_or_two(subject, predictor, texts))
    return _as_written(subject, reading, texts[0]) if len(texts) == 1 else reading


def _predictor(subject: Subject) -> Any:
    if subject.run is None:
        raise subject.lacks("was never trained and knows no tokens", "name a run")
    return subject.run.predictor


def _one_or_two(subject: Subject, predictor: Any, texts: Sequence[str]) -> np.ndarray:
    reader = subject.reader
    if len(texts) == 1:
        encoded = reader.encode(texts)
        if encoded.cut:
            raise too_long(subject, reader.limit)
        return encoded.rows[0]
    row: np.ndarray = replace(predictor.coder, limit=None).encode([tuple(texts)])[0]
    if reader.limit is not None and len(row) > reader.limit:
        raise too_long(subject, reader.limit)
    return row


def _tokens(subject: Subject, row: np.ndarray) -> Reading:
    reader = subject.reader
    names = [reader.tokenizer.token(index) for index in row.tolist()]
    return Reading(torch.from_numpy(row.astype(np.int64))[None].to(reader.device), names)


def _as_written(subject: Subject, reading: Reading, text: str) -> Reading:
    """What the vocabulary lacks is shown as it stands in the text, and told: to the model all of it is the same."""
    reader = subject.reader
    unknown = reader.tokenizer.unk
    row = reading.inputs[0].tolist()
    if unknown is None or unknown not in row:
        return reading
    share, name = f"{row.count(unknown):,} of {len(row):,} elements", reader.tokenizer.token(unknown)
    reading = replace(reading, note=f"{share} are not in the vocabulary: all read as {name}")
    text = reader.read(text)
    _, spans = reader.spans(text)
    written = [text[first:end] for first, end in spans.tolist()]
    if len(written) != len(row):
        return reading
    names = [
        own if index == unknown and own else name for index, own, name in zip(row, written, reading.names, strict=True)
    ]
    return replace(reading, names=names)


def _numbers(subject: Subject, coder: Any, text: str) -> Reading:
    """Numbers that are written down, as "0.1 0.2 0.3"."""
    row = replace(coder, limit=None).encode([text])[0]  # (T,F)
    limit = subject.backbone.context
    if limit is not None and len(row) > limit:
        raise too_long(subject, limit)
    device = next(subject.network.parameters()).device
    return Reading(torch.from_numpy(row)[None].to(device), _named(coder, row))


def _words(subject: Subject, tagger: Tagger, text: str) -> Reading:
    words = tagger.words(text)
    if not words:
        raise SeriatimError("inspect.text", "the text has no words", "give one that has some")
    part = tagger.coder.encode([words])
    if len(part) > 1:
        raise too_long(subject, tagger.coder.window)
    batch = part.collate(np.array([0]), spells(tagger.model)).to(next(tagger.model.parameters()).device)
    return Reading(batch.inputs, _named(tagger.coder, part.inputs[0]), batch.mask)


def _pair(subject: Subject, interpreter: Interpreter, source: str, target: str | None) -> Reading:
    """A source, and the target that is given or what it is translated into."""
    reader = subject.reader
    encoded = reader.encode([source])
    if encoded.cut:
        raise too_long(subject, reader.limit)
    coder = interpreter.coder
    if target is None:
        said = interpreter.translate([source], TranslateSettings())[0][0].tokens or [end_of(coder.target)]
    else:
        said = coder.targets([reader.read(target)])[0].tolist()
    if interpreter.context is not None and len(said) > interpreter.context:
        raise too_long(subject, interpreter.context)
    return pair(subject, encoded.rows[0], said)


def pair(subject: Subject, source: np.ndarray, said: Sequence[int]) -> Reading:
    """Tokens of a source, and those that a translator says."""
    interpreter: Interpreter = _predictor(subject)
    coder, device = interpreter.coder, interpreter.device
    names = [coder.source.token(index) for index in source.tolist()]
    inputs = torch.from_numpy(source.astype(np.int64))[None].to(device)
    return Reading(inputs, names, target=said_by(coder, said, device))


def said_by(coder: Any, said: Sequence[int], device: torch.device) -> Target:
    """What a decoder reads while it says some tokens."""
    given = [coder.begin, *said[:-1]]
    read, out = ([coder.target.token(index) for index in some] for some in (given, said))
    return Target(torch.tensor([given], device=device), read, out, torch.tensor(said, device=device))


def of_example(subject: Subject, number: int) -> Reading:
    """The sequence of that number of the run's own validation data (of the test part, where there is none)."""
    split = next((name for name in SPLITS if subject.data.has(name)), SPLITS[-1])
    found = _example(subject, split, number)
    return found if found.note else replace(found, note=f"sequence {number} of the {split} part")


def _example(subject: Subject, split: str, number: int) -> Reading:
    from . import sights

    task, predictor = subject.data, _predictor(subject)
    if sights.reads_pictures(subject):
        return sights.of_example(subject, split, number)
    if isinstance(task, PretrainTask):
        raise subject.lacks("is shown a text, not one of its examples", "give a text")
    if isinstance(task, LanguageTask):
        tokens, length = getattr(task.corpus, split), task.settings.length
        number = within(number, -(-len(tokens) // length), split)
        return _tokens(subject, np.asarray(tokens[number * length : (number + 1) * length]))
    if isinstance(task, ForecastTask):
        return _window(subject, task, split, number)
    rows = np.array([within(number, len(task.parts[split]), split)])
    batch = task.collate(split, rows)
    if isinstance(predictor, Interpreter):
        limit = predictor.context
        return pair(subject, batch.inputs[0][0].numpy()[:limit], batch.targets[0].tolist()[:limit])
    return _fitted(subject, task.coder, batch)


def _fitted(subject: Subject, coder: Any, batch: Any) -> Reading:
    """As far as the network reads."""
    spelled = isinstance(batch.inputs, tuple)
    block = batch.inputs[0] if spelled else batch.inputs  # (1,T) or (1,T,F)
    device = next(subject.network.parameters()).device
    limit = None if spelled else subject.backbone.context
    names = _named(coder, block[0].numpy())[:limit]
    return Reading(batch.to(device).inputs if spelled else block[:, :limit].to(device), names)


def _window(subject: Subject, task: ForecastTask, split: str, number: int) -> Reading:
    """What is read before a forecast; elements are named by how long before it they stand."""
    at = origins(task.arrays, split, task.settings.stride)
    row, place = (int(some[within(number, len(at), split)]) for some in (at.rows, at.places))
    context = min(place, task.layout.length)
    places = task.arrays.starts[row] + place - context + np.arange(context)
    inputs = task.arrays.window(np.array([row]), places[None], task.settings.outputs)
    device = next(subject.network.parameters()).device
    return Reading(torch.from_numpy(inputs).to(device), [str(step - context) for step in range(context)])


def _named(coder: Any, row: np.ndarray) -> list[str]:
    """Tokens and symbols by their names, steps of numbers by their places."""
    tokenizer, symbols = getattr(coder, "tokenizer", None), getattr(coder, "symbols", ())
    if row.ndim == 1 and (tokenizer is not None or symbols):
        return [symbols[index] if tokenizer is None else tokenizer.token(index) for index in row.tolist()]
    return [str(step) for step in range(len(row))]


def within(number: int, count: int, split: str) -> int:
    if not 0 <= number < count:
        cause = f"there is no example {number} in the {split} part"
        raise SeriatimError(
            "inspect.example", cause, f"choose from 0 to {count - 1}" if count > 1 else "leave --example away"
        )
    return number


def of_noise(subject: Subject) -> Reading:
    """Vectors that mean nothing, for a network that was never trained; elements are named by their places."""
    size, draw = subject.settings.input_width(tied=True), torch_stream(0, "noise")
    names = with_whole(subject, [str(place) for place in range(NOISE)])
    note = f"a fresh network over {NOISE} random vectors"
    if not isinstance(subject.settings, PairSettings):
        return Reading(torch.randn(1, NOISE, size, generator=draw), names, note=note)
    widths = (subject.settings.source_width(size), size)
    inputs, other = (torch.randn(1, NOISE, width, generator=draw) for width in widths)
    target = Target(other, names, names, torch.zeros(NOISE, dtype=torch.long))
    return Reading(inputs, names, target=target, note=note)


def with_whole(subject: Subject, names: list[str]) -> list[str]:
    """The names of places, behind that of the element for the whole where there is one."""
    return [WHOLE, *names] if hasattr(subject.backbone, "whole") else names


def too_long(subject: Subject, limit: int | None) -> SeriatimError:
    cause = f"the text is longer than the {limit} elements that {subject.label} takes"
    return SeriatimError("inspect.length", cause, "give a shorter one")
