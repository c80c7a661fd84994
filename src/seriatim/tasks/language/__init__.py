"""Language models: next-token prediction over characters, words or sub-words, by networks and n-grams."""

from .predictor import LanguageModelPredictor
from .processor import LanguageProcessor, LanguageSettings, read_arpa
from .task import LanguageTask

__all__ = ["LanguageModelPredictor", "LanguageProcessor", "LanguageSettings", "LanguageTask", "read_arpa"]
