"""`Finding`: something that a reader should notice in a run, as a value that is stored with the run.

Reports find what holds for any task in the numbers of a run (`report.findings`). What only a task can know, it returns
itself (`Task.findings`): the words come from the task, and nobody reads them again.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Self

from .files import Json


@dataclass(frozen=True)
class Finding:
    """A sentence about a run whose subject, the model, is missing, so that several runs can share it.

    Args:
        claim: The predicate: "gave intervals that are too narrow".
        detail: The numbers behind it.
        advice: What follows from it, as a sentence.
        part: The part of the model that metrics and charts are about, with its article: "the anchor"; "" if all of it.
    """

    claim: str
    detail: str
    advice: str = ""
    part: str = ""

    def to_json(self) -> Json:
        """Returns the fields that are not empty."""
        return {field.name: value for field in fields(self) if (value := getattr(self, field.name))}

    @classmethod
    def from_json(cls, values: object) -> Self:
        """Returns the finding; raises ValueError if it lacks a claim or has a value that is no text."""
        if not isinstance(values, dict) or not all(isinstance(value, str) for value in values.values()):
            raise ValueError("a finding is no object of texts")
        known = {field.name: values[field.name] for field in fields(cls) if field.name in values}
        if not known.keys() >= {"claim", "detail"}:
            raise ValueError("a finding has no claim or no detail")
        return cls(**known)
