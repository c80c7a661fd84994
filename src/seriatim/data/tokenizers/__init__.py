"""Tokenizers: from text to token ids and back."""

from .tokenizer import Tokenizer, TokenizerSettings

__all__ = ["Tokenizer", "TokenizerSettings"]
