"""Which order of n-gram answered."""

from __future__ import annotations

from .seen import Seen
from .subject import Subject


def suits(subject: Subject) -> str:
    return "keeps no n-grams"


def look(subject: Subject, text: str) -> Seen:
    raise subject.lacks(suits(subject), "name a run")
