"""Translate one sequence into another, for any pairs of texts."""

from .predictor import TranslationPredictor
from .task import TranslateSettings, TranslateTask, TranslationProcessor

__all__ = ["TranslateSettings", "TranslateTask", "TranslationPredictor", "TranslationProcessor"]
