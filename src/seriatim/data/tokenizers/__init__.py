"""Tokenizers: from text to token ids and back.

from seriatim.data.tokenizers import Tokenizer, TokenizerSettings

tokenizer = Tokenizer.train(TokenizerSettings(kind="bpe", vocab_size=8000), texts)
ids = tokenizer.encode("some text")          # int64 (n,)
tokenizer.save("tokenizer.json")             # of the `tokenizers` package; `Tokenizer.load` also reads others'
"""

from .special_tokens import BERT_SPECIAL_TOKENS, EOS, UNK
from .tokenizer import WORD_KINDS, Tokenizer
from .training import WORD_PATTERN, TokenizerSettings, with_default_kind

__all__ = [
    "BERT_SPECIAL_TOKENS",
    "EOS",
    "UNK",
    "WORD_KINDS",
    "WORD_PATTERN",
    "Tokenizer",
    "TokenizerSettings",
    "with_default_kind",
]
