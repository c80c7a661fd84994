"""Which tokens of a text moved an answer, and which way: integrated gradients (see _integrated.py).

What is explained is one figure of the answer, in the space where parts can be added: of a label its log-odds,
log p / (1 − p), which is its score less what all others have together (where there may be several, its score); of a
value the value itself, of a tag the log-odds of the tag of one word, of an answer those of where it begins.

The baseline is a text that says nothing: as many tokens whose vectors are the mean of all, between the same [CLS] and
[SEP]. (Networks are less undecided about unknown words, or about vectors of zero, than about these.) A token above 0
spoke for the label, one below against it, and all together make the difference between the text and the baseline. The
parts of the pieces of a word are added.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from ..core.errors import SeriatimError, did_you_mean
from ..core.measures import plain
from ..data.tokenizers import Tokenizer
from ..nn.characters import WordInput
from ..nn.heads import Scaled
from ..nn.network import Network, full
from ..tasks._alignment import Side
from ..tasks._answerer import Answerer
from ..tasks._predict import Predictor
from ..tasks._tagger import Tagger
from ._integrated import STEPS, Integrated, asked, integrated
from .rows import aligned
from .seen import Array, Seen
from .subject import Reading, Subject

SHOWN = 10  # words that are told for having moved most


@dataclass(frozen=True)
class Question:
    """The figure of an answer that is explained."""

    what: str  # "the log-odds of pos"
    figure: Callable[[Tensor], Tensor]  # from what the network gives for n inputs to (n,)
    said: str = ""  # what the model said, in a few words


def suits(subject: Subject) -> str:
    if subject.run is None:
        return "was never trained"
    if subject.counts:
        return "counts, and has no gradients"
    predictor = subject.run.predictor
    if not isinstance(predictor, Predictor | Tagger | Answerer):
        return "gives no label to a text"
    return "does not read text" if getattr(predictor.coder, "kind", "") in ("numbers", "pictures") else ""


def look(
    subject: Subject,
    *texts: str,
    target: str | None = None,
    position: int | None = None,
    steps: int = STEPS,
    example: int | None = None,
) -> Seen:
    """With respect to the label or value `target`, by default what the model says; of a tagger, at the word `position`.
    `steps` points to begin with. Instead of a text, an `example` of the run's own data."""
    if not texts and (example is None or (subject.run is not None and isinstance(subject.run.predictor, Tagger))):
        raise SeriatimError("inspect.text", "there is no text to explain", "give one")
    if steps < 1:
        raise SeriatimError("inspect.steps", f"{steps} points are none", "ask for 1 or more")
    if subject.run is None:
        raise subject.lacks("was never trained", "name a run")
    network: Network = subject.run.model
    with asked(network):
        reading = subject.read(*texts, example=example)
        behind = Network(nn.Identity(), network.backbone, network.head)
        vectors = network.input(reading.inputs).detach()  # (1,T,D)
        with torch.no_grad():
            scores = full(behind(vectors, reading.mask)[0])
        question = _question(subject, reading, scores, texts, target, position)
        frame = _frame(subject, reading)
        if frame.all():
            raise SeriatimError("inspect.text", "the text has no tokens", "give one that has some")
        baseline = _baseline(network.input, _ids(reading), vectors[0], frame)
        found = integrated(lambda some: question.figure(full(behind(some)[0])), vectors[0], baseline, steps)
    words, groups = _words(subject, reading, texts, frame)
    names = list(reading.names)
    for word, some in zip(words, groups, strict=True):  # an unknown word by what it is
        names[some[0]] = word if len(some) == 1 else names[some[0]]
    return _seen(subject, names, words, groups, question, found, reading.notes)


def _question(
    subject: Subject, reading: Reading, scores: Tensor, texts: Sequence[str], target: str | None, position: int | None
) -> Question:
    predictor: Any = subject.run.predictor  # type: ignore[union-attr]
    if position is not None and not isinstance(predictor, Tagger):
        raise SeriatimError("inspect.position", f"{subject.label} answers for a whole text", "leave --position away")
    if isinstance(predictor, Tagger):
        words = predictor.words(texts[0])
        place = 0 if position is None else position
        if not 0 <= place < len(words):
            raise SeriatimError("inspect.position", f"there is no word {place}", f"choose from 0 to {len(words) - 1}")
        step = int(np.flatnonzero(predictor.coder.encode([words]).where == place)[0])
        label, said = _label(predictor.coder.labels, scores[0, step].softmax(dim=-1), target)
        return Question(f'the log-odds of {predictor.coder.labels[label]} for word {place}, "{words[place]}"',
                        lambda one: _odds(one[:, step], label), said)  # fmt: skip
    if isinstance(predictor, Answerer):
        end = _among(("begin", "end"), "begin" if target is None else target, "the answer has no")
        place = int(scores[0, :, end].argmax())
        what = f"the log-odds that the answer {('begins', 'ends')[end]} at {reading.names[place]}"
        return Question(what, lambda one: _odds(one[..., end], place))
    labels, several = predictor.coder.labels, predictor.coder.several
    if isinstance(predictor.model.head, Scaled):  # values, in the units of the data
        place = 0 if target is None else _among(labels, target, "there is no value")
        said = f"{labels[place]}: {plain(float(scores[0, place]), 3, 3)}"
        return Question(f"the value {labels[place]}", lambda one: one[:, place], said)
    shares = scores[0].sigmoid() if several else scores[0].softmax(dim=-1)
    place, said = _label(labels, shares, target)
    alone = several or len(labels) == 1
    return Question(f"the log-odds of {labels[place]}", lambda one: one[:, place] if alone else _odds(one, place), said)


def _label(labels: Sequence[str], shares: Tensor, target: str | None) -> tuple[int, str]:
    """The label that is asked for, by default the likeliest, and what the model said."""
    best = int(shares.argmax())
    place = best if target is None else _among(labels, target, "there is no label")
    told = [f"{labels[one]} {plain(100 * float(shares[one]), 1, 2)} %" for one in dict.fromkeys((best, place))]
    return place, f"the model says {', '.join(told)}"


def _among(names: Sequence[str], wanted: str, missing: str) -> int:
    if wanted not in names:
        few = ", ".join(names[:20]) + (" …" if len(names) > 20 else "")
        raise SeriatimError("inspect.target", f'{missing} "{wanted}"', did_you_mean(wanted, names) or f"choose: {few}")
    return list(names).index(wanted)


def _odds(scores: Tensor, place: int) -> Tensor:
    """log p / (1 − p) of one of the outputs (n,K) of a softmax."""
    others = torch.arange(scores.shape[1], device=scores.device) != place
    return scores[:, place] - scores[:, others].logsumexp(dim=-1)


def _ids(reading: Reading) -> np.ndarray:
    tokens: Tensor = reading.inputs[0] if isinstance(reading.inputs, tuple) else reading.inputs
    ids: np.ndarray = tokens[0].cpu().numpy()
    return ids


def _tokenizer(subject: Subject) -> Tokenizer | None:
    found: Tokenizer | None = subject.run.predictor.coder.tokenizer  # type: ignore[union-attr]
    return found


def _frame(subject: Subject, reading: Reading) -> np.ndarray:
    """(T,) where [CLS] and [SEP] stand."""
    tokenizer, ids = _tokenizer(subject), _ids(reading)
    around = [] if tokenizer is None else [one for one in (tokenizer.cls, tokenizer.sep) if one is not None]
    return np.isin(ids, around)


def _baseline(inputs: nn.Module, tokens: np.ndarray, vectors: Tensor, frame: np.ndarray) -> Tensor:
    """The vectors (T,D) of a text that says nothing. Which of two texts an element belongs to stays."""
    table = inputs.words if isinstance(inputs, WordInput) else inputs
    if not isinstance(table, nn.Embedding):
        return torch.zeros_like(vectors)
    average = table.weight.detach().mean(dim=0)
    if isinstance(inputs, WordInput):  # with features of the spelling behind the vector: none
        nothing = nn.functional.pad(average, (0, vectors.shape[1] - len(average))).expand_as(vectors)
    else:
        ids = torch.from_numpy(tokens).to(vectors.device)
        nothing = vectors - nn.functional.embedding(ids, table.weight.detach()) + average
    return torch.where(torch.from_numpy(frame).to(vectors.device)[:, None], vectors, nothing)


def _words(
    subject: Subject, reading: Reading, texts: Sequence[str], frame: np.ndarray
) -> tuple[list[str], list[list[int]]]:
    """The words of the texts, and for each its places among the elements; what frames a text stands for itself."""
    tokenizer, ids = _tokenizer(subject), _ids(reading)
    words: list[str] = []
    groups: list[list[int]] = []
    if tokenizer is None:
        return reading.names, [[place] for place in range(len(ids))]
    bounds = [-1, *np.flatnonzero(frame).tolist(), len(ids)]
    parts = iter(texts if frame.any() else ["\n".join(texts)])  # an end of a line stands between two
    for before, last in pairwise(bounds):
        if last - before > 1:
            side = Side.of(tokenizer, ids[before + 1 : last].tolist(), next(parts, ""))
            places = [[before + 1 + one for one in some] for some in side.groups]
            names = [reading.names[some[0]] for some in places]
            unknown = "" if tokenizer.unk is None else tokenizer.token(tokenizer.unk)
            words += [n if w == unknown or not w.strip() else w for w, n in zip(side.words, names, strict=True)]
            groups += places
        if last < len(ids):
            words.append(reading.names[last])
            groups.append([last])
    return words, groups


def _seen(
    subject: Subject,
    names: list[str],
    words: list[str],
    groups: list[list[int]],
    question: Question,
    found: Integrated,
    notes: list[str],
) -> Seen:
    values = np.array([found.values[some].sum() for some in groups])
    title = f"What moved {question.what}: {subject.label}"
    arrays = {"attribution": Array(found.values, (("token", names),))}
    if len(groups) < len(names):
        arrays["words"] = Array(values, (("word", words),))
    whole = f"{plain(found.there, 2)} for the text, {plain(found.baseline, 2)} for one of average tokens"
    pieces = [", ".join(f"{names[one]} {_signed(found.values[one])}" for one in some) for some in groups]
    strip = {"kind": "strip", "title": title, "note": whole, "tokens": words, "values": values.tolist(),
             "diverging": True, "of": "moved by"}  # fmt: skip
    if len(groups) < len(names):
        strip |= {"hint": "pieces", "hints": pieces}
    views: list[dict[str, Any]] = [strip]
    moved = _by_word(words, values)[:SHOWN]
    if len(moved) > 1:
        rows = [[f"{word} ({times}×)" if times > 1 else word, value] for word, times, value in moved]
        views.append({"kind": "bars", "title": "What moved it most", "measure": "moved_by", "rows": rows})
    table = aligned([["the strongest", "times", "moved by"], *([w, times, _signed(v)] for w, times, v in moved)])
    return Seen(title, arrays, views, [*filter(None, [question.said]), whole, "", *table], [*notes, _told(found)])


def _by_word(words: list[str], values: np.ndarray) -> list[tuple[str, int, float]]:
    """Distinct words with how often each stands there and what it did altogether, the strongest first."""
    every: dict[str, list[float]] = {}
    for word, value in zip(words, values.tolist(), strict=True):
        every.setdefault(word, []).append(value)
    found = [(word, len(some), sum(some)) for word, some in every.items() if any(some)]
    return sorted(found, key=lambda one: -abs(one[2]))


def _told(found: Integrated) -> str:
    """How well the parts sum to the whole."""
    share = found.gap / abs(found.difference) if found.difference else float(found.gap > 0)
    summed = f"the parts sum to {_signed(found.values.sum())}, the whole is {_signed(found.difference)}"
    kept = "" if found.complete else "; take them with care"
    return f"{summed}: {100 * share:.2f} % apart, with {found.steps} points on the way{kept}"


def _signed(value: float) -> str:
    return f"{'+' if value > 0 else ''}{plain(float(value), 2, 2)}"
