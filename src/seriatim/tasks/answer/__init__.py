"""Answer questions by a span of a passage."""

from .task import AnswerTask

__all__ = ["AnswerTask"]
