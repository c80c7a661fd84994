"""How surprising each token was."""

from __future__ import annotations

from .seen import Seen
from .subject import Subject


def suits(subject: Subject) -> str:
    return "says nothing of how likely a text is"


def look(subject: Subject, text: str) -> Seen:
    raise subject.lacks(suits(subject), "name a run")
