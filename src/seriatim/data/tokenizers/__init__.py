"""Tokenizers: from text to token ids and back.

from seriatim.data.tokenizers import Tokenizer, TokenizerSettings

tokenizer = Tokenizer.train(TokenizerSettings(kind="bpe", vocab_size=8000), texts)
ids = tokenizer.encode("some text")          # int64 (n,)
tokenizer.save("tokenizer.json")             # of the `tokenizers` package; `Tokenizer.load` also reads others'
"""

from ..settings import TokenizerSettings, default_kind
from .tokenizer import WORD_KINDS, Tokenizer
from .training import BERT_SPECIAL_TOKENS, EOS, UNK, WORD_PATTERN

__all__ = [
    "BERT_SPECIAL_TOKENS",
    "EOS",
    "UNK",
    "WORD_KINDS",
    "WORD_PATTERN",
    "Tokenizer",
    "TokenizerSettings",
    "default_kind",
]
