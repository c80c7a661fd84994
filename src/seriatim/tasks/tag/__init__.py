"""Tag every word of a sentence: parts of speech, named entities, any symbol for each step."""

from .task import TagTask

__all__ = ["TagTask"]
