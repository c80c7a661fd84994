"""Words in context: the vectors of a word wherever it occurs in texts, and without context."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch.nn import functional as F

from ..core.errors import SeriatimError
from ..core.text import UNSPACED, listed
from .reader import TextReader, unit_vectors

MAX_LISTED = 3  # sentences in an error
CONTEXT = 28  # characters of a sentence on each side of a word, where it is shown


@dataclass(frozen=True)
class WordVectors:
    """The occurrences of a word: its vectors in context (n,D), and its static vectors (n,E)."""

    word: str
    sentences: list[str]
    spans: list[tuple[int, int]]
    tokens: list[list[str]]
    contextual: np.ndarray
    static: np.ndarray
    truncated: int = 0  # occurrences beyond what the network accepts

    def fragments(self, side: int = CONTEXT) -> list[str]:
        """Returns each occurrence with some words around it: "… the river bank was …"."""
        counts = Counter(self.sentences)
        return [
            fragment(text, *span, side, marked=counts[text] > 1)
            for text, span in zip(self.sentences, self.spans, strict=True)
        ]


@torch.inference_mode()
def word_vectors(
    reader: TextReader, word: str, texts: Sequence[str], normalize: bool = True, strict: bool = True
) -> WordVectors:
    """Returns the vectors of every occurrence of a word in texts.

    Args:
        reader: Encodes the texts.
        word: The word, or several; upper and lower case are equal.
        texts: The sentences.
        normalize: Whether vectors have length 1.
        strict: Whether a text without the word is an error; else it is left out. One text must have it.
    """
    prepared = [reader.prepare(text) for text in texts]
    sentences, spans, tokens, contextual, static = [], [], [], [], []
    truncated = 0
    for text, occurrences in zip(prepared, find_word(word, prepared, strict), strict=True):
        encoded, offsets = reader.spans(text)
        row = encoded.encoded.inputs[0]
        hidden = reader.model.text_states(encoded.encoded, np.array([0]))[0][0]
        for first, last in occurrences:
            inside = np.flatnonzero((offsets[:, 0] < last) & (offsets[:, 1] > first))
            if not len(inside):
                truncated += 1
                continue
            ids = torch.from_numpy(row[inside]).to(hidden.device)
            sentences.append(text)
            spans.append((first, last))
            tokens.append([reader.tokenizer.token(token) for token in ids.tolist()])
            contextual.append(hidden[torch.from_numpy(inside)].mean(dim=0))
            static.append(F.embedding(ids, reader.embedding_table.weight).mean(dim=0))
    if not contextual:
        cause = f'"{word}" occurs only beyond the {reader.max_length:,} tokens that the model accepts'
        raise SeriatimError("embed.word", cause, "shorten the texts")
    in_context, alone = (unit_vectors(torch.stack(vectors), normalize) for vectors in (contextual, static))
    return WordVectors(word, sentences, spans, tokens, in_context, alone, truncated)


def find_word(word: str, texts: Sequence[str], strict: bool) -> list[list[tuple[int, int]]]:
    """Returns the spans of a word in each text, as a whole word; see `word_vectors`."""
    if not word.strip():
        raise SeriatimError("embed.word", "the word is empty", "name a word: --word bank")
    edges = [
        "" if UNSPACED.match(letter) or not letter.isalnum() else edge
        for letter, edge in ((word[0], r"(?<!\w)"), (word[-1], r"(?!\w)"))
    ]
    pattern = re.compile(edges[0] + re.escape(word) + edges[1], re.IGNORECASE)
    spans = [[match.span() for match in pattern.finditer(text)] for text in texts]
    missing = [text for text, occurrences in zip(texts, spans, strict=True) if not occurrences]
    if not texts:
        raise SeriatimError("embed.word", f'no text has "{word}"', "pass texts that have the word")
    if missing and (strict or len(missing) == len(texts)):
        shown = listed([f'"{text[:60]}"' for text in missing], MAX_LISTED, "; ")
        raise SeriatimError("embed.word", f'"{word}" does not occur in {shown}', "pass texts that have the word")
    return spans


def fragment(text: str, first: int, last: int, side: int, marked: bool) -> str:
    """Returns a span of a text with whole words on both sides; in brackets if marked."""
    before, word, after = text[:first], text[first:last], text[last:]
    if len(before) > side:
        before = "… " + before[-side:].partition(" ")[2]
    if len(after) > side:
        after = after[:side].rpartition(" ")[0] + " …"
    return " ".join(f"{before}{f'[{word}]' if marked else word}{after}".split())
