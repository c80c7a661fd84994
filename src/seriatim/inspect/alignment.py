"""Which words of a source each word of its translation was read from: the weights of attention between the two.

Of a Transformer they are the mean over the heads and blocks of its decoder, so that a row still sums to one.
"""

from __future__ import annotations

from ..tasks._translator import Interpreter
from .attention import looks_at
from .seen import Array, Seen
from .subject import Subject


def suits(subject: Subject) -> str:
    if subject.run is None:
        return "was never trained"
    predictor = subject.run.predictor
    if not isinstance(predictor, Interpreter):
        return "does not translate"
    return "" if predictor.attends else "does not show where it looks"


def look(subject: Subject, text: str, *, target: str | None = None, tokens: bool = False) -> Seen:
    """Of a target, or of the model's own translation; word by word, or token by token."""
    if subject.run is None:
        raise subject.lacks("was never trained", "name a run")
    found = subject.run.alignment(text, target)
    shown = found if tokens else found.words()
    title = f"Which words were looked at: {subject.label}"
    axes = (("translation", shown.target), ("source", shown.source))
    view = shown.view(title) | {"high": 1.0}
    lines = [f"{'what is read from' if tokens else 'what each word is read from'}:"]
    lines += looks_at(shown.target, shown.source, shown.weights)
    return Seen(title, {"alignment": Array(shown.weights, axes)}, [view], lines)
