"""Language models: next-token prediction over characters, words or sub-words, by networks and n-grams."""

from .predictor import LanguageModelPredictor
from .task import LanguageProcessor, LanguageSettings, LanguageTask, read_arpa

__all__ = ["LanguageModelPredictor", "LanguageProcessor", "LanguageSettings", "LanguageTask", "read_arpa"]
