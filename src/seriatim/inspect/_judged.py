"""How likely a model found each token of a text, and what it would have said instead.

A language model is asked for what follows all before it; a translator for what follows what it has said of a source;
an encoder that was trained to guess hidden tokens for each of them, hidden in its turn, from both sides.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..core.errors import SeriatimError
from ..data.tokenizers import Tokenizer
from ..decode.options import TranslateSettings
from ..nn.network import full
from ..tasks._examples import ELEMENTS
from ..tasks._pretrain_predict import Filler
from ..tasks._speak import Speaker
from ..tasks._translator import Interpreter
from . import own
from .subject import Subject

OWN = 100  # tokens of a run's own text, where none is given
PLACES = 1 << 12  # hidden tokens at a time, whatever their vocabulary


@dataclass(frozen=True)
class Judged:
    """T tokens in their order."""

    tokenizer: Tokenizer
    ids: np.ndarray  # (T,)
    log_probs: np.ndarray  # (T,) natural
    entropy: np.ndarray  # (T,) of what was expected, in nats
    best: np.ndarray  # (T,K) the likeliest tokens …
    likely: np.ndarray  # … and their probabilities
    characters: int  # of the text that was judged

    @property
    def names(self) -> list[str]:
        return [self.tokenizer.token(index) for index in self.ids.tolist()]

    @property
    def written(self) -> list[str]:
        """Tokens with the blanks and line ends that they are made of."""
        return [written(self.tokenizer, index) for index in self.ids.tolist()]


def unable(subject: Subject) -> str:
    """Why a model does not say how likely a text is, as the end of a sentence; "" where it does."""
    if subject.run is None:
        return "was never trained"
    predictor = subject.run.predictor
    if isinstance(predictor, Filler):
        return "" if predictor.model.get_submodule("head").masked is not None else "guesses no tokens"
    return "" if isinstance(predictor, Speaker | Interpreter) else "does not say how likely a text is"


def judged(subject: Subject, text: str | None, target: str | None, top: int) -> Judged:
    if subject.run is None:
        raise subject.lacks("was never trained", "name a run")
    predictor = subject.run.predictor
    if target is not None and not isinstance(predictor, Interpreter):
        raise SeriatimError("inspect.target", f"{subject.label} does not translate", "leave --target away")
    if isinstance(predictor, Speaker):
        found = _followed(*spoken(subject, text), top)
    elif text is None:
        raise SeriatimError("inspect.text", "there is no text to judge", "give one")
    elif isinstance(predictor, Interpreter):
        found = _translated(predictor, text, target, top)
    else:
        found = _hidden(subject, predictor, text, top)
    if not len(found.ids):
        raise _empty()
    return found


def spoken(subject: Subject, text: str | None) -> tuple[Speaker, np.ndarray]:
    """A language model, and the ids of a text that it judges, with one before them (see `Speaker.row`); without a text
    those of its own validation part."""
    if subject.run is None or not isinstance(subject.run.predictor, Speaker):
        raise subject.lacks("is no language model", "name a run of one")
    speaker = subject.run.predictor
    row = speaker.row(speaker.tokenizer.decode(own.tokens(subject, OWN)) if text is None else text)
    if len(row) < 2:
        raise _empty()
    return speaker, row


def _empty() -> SeriatimError:
    return SeriatimError("inspect.text", "the text has no token to judge", "give one that has some")


def written(tokenizer: Tokenizer, index: int) -> str:
    """A token as it stands in a text; what stands for the end of a line, or for no text, by its name."""
    name, text = tokenizer.token(index), tokenizer.decode([index])
    plain = tokenizer.by_words or tokenizer.kind == "other" or not text or "\ufffd" in text
    return f"{name}\n" if plain and text == "\n" else name if plain else text


def _followed(speaker: Speaker, row: np.ndarray, top: int) -> Judged:
    found = _summed(speaker.engine.along(row), top)
    # Without an opening the first token is not judged, and blanks between words are not kept
    characters = len(speaker.tokenizer.decode(row[1:]))
    return Judged(speaker.tokenizer, row[1:], speaker.engine.score(row), *found, characters)


def _translated(interpreter: Interpreter, source: str, target: str | None, top: int) -> Judged:
    if target is None:
        target = interpreter.translate([source], TranslateSettings())[0][0].text
    ids, log_probs = interpreter.along(source, target)
    scores = np.array([value for _, value in interpreter.score(source, target).pieces])
    return Judged(interpreter.coder.target, ids, scores, *_summed([log_probs], top), len(target))


def _hidden(subject: Subject, filler: Filler, text: str, top: int) -> Judged:
    tokenizer: Tokenizer = filler.coder.tokenizer  # type: ignore[assignment]
    if tokenizer.mask is None:
        raise subject.lacks("has no token that hides another", "name another run")
    tokens = subject.read(text).inputs[0]
    around = [index for index in (tokenizer.cls, tokenizer.sep, tokenizer.mask, tokenizer.pad) if index is not None]
    places = torch.nonzero(~torch.isin(tokens, torch.tensor(around, device=tokens.device)))[:, 0]
    wanted = tokens[places]
    parts: list[np.ndarray] = [np.zeros(0)]

    def along() -> Iterator[Tensor]:
        for some, log_probs in _guessed(subject.network, tokens, places, tokenizer.mask):
            parts.append(log_probs.gather(1, tokens[some][:, None])[:, 0].double().cpu().numpy())
            yield log_probs

    found = _summed(along(), top)
    return Judged(tokenizer, wanted.cpu().numpy(), np.concatenate(parts), *found, len(text))


@torch.inference_mode()
def _guessed(network: Any, tokens: Tensor, places: Tensor, mask: Any) -> Iterator[tuple[Tensor, Tensor]]:
    """Some places at a time, and log-probabilities (n,V) of what stands there, each hidden in a copy of its own."""
    for some in places.split(max(min(ELEMENTS // len(tokens), PLACES), 1)):
        rows = torch.arange(len(some), device=tokens.device)
        block = tokens.repeat(len(some), 1)  # (n,T)
        block[rows, some] = mask
        hidden, _ = network.hidden(block)
        yield some, full(network.head.masked.scores(hidden[rows, some])).log_softmax(dim=-1)


def _summed(parts: Iterable[Tensor], top: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Of log-probabilities (n,V), part by part: their entropy, the likeliest tokens, and how likely these are."""
    found = []
    for log_probs in parts:
        likely, best = log_probs.topk(min(top, log_probs.shape[1]))
        entropy = torch.special.entr(log_probs.double().exp()).sum(dim=1)
        found.append((entropy, best, likely.double().exp()))
    if not found:
        return np.zeros(0), np.zeros((0, 0), np.int64), np.zeros((0, 0))
    joined = [torch.cat(some).cpu().numpy() for some in zip(*found, strict=True)]
    return joined[0], joined[1], joined[2]
