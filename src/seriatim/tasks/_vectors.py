"""Vectors of texts, and of words in them: what a network makes of each element, put together.

    text   pool_t h_t                  mean, max, last, or cls: that of [CLS], which stands for the whole
    word   mean of h_t over its pieces: what it means in this sentence
           mean of its rows of the input table: what it means anywhere, the same in every sentence

The elements are all that the network reads, so [CLS] and [SEP] have their part in the mean; only the line end that a
language model is given before a text has none. A text has the same vector alone and among others.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
import torch
from torch.nn import functional as F

from ..core.errors import SeriatimError, did_you_mean
from ..data import cells
from ..nn.heads import Pool
from ._alignment import UNSPACED
from ._readers import Reader

Pooling = Literal["mean", "cls", "max", "last"]
ELEMENTS = 2_048  # that go through a network at once: more leave the caches of a CPU
SHOWN = 3  # sentences that an error names
EACH_SIDE = 28  # characters of a sentence beside a word, where it is shown


class Embedder:
    """From texts to vectors, as often as there are some; remembers how many of them were too long."""

    def __init__(self, reader: Reader, pooling: str = "mean", normalise: bool = True) -> None:
        kinds = get_args(Pooling)
        if pooling not in kinds:
            raise SeriatimError("embed.pooling", f'there is no pooling "{pooling}"', did_you_mean(pooling, kinds))
        if pooling == "cls" and not reader.framed:
            cause = "this model sets no [CLS] before a text, whose vector could stand for the whole"
            raise SeriatimError("embed.pooling", cause, "choose mean, max or last")
        self.reader = reader
        self.normalise = normalise
        self.cut = 0
        self._pool = Pool("first" if pooling == "cls" else pooling, 1, reader.directions)  # type: ignore[arg-type]

    @property
    def width(self) -> int:
        """Numbers of a vector."""
        return int(self._vectors([""]).shape[1])

    @property
    def told(self) -> str:
        """What was lost, if anything."""
        if not self.cut:
            return ""
        which = "1 text is" if self.cut == 1 else f"{self.cut:,} texts are"
        return f"{which} longer than the {self.reader.limit:,} tokens that the model was made for: the rest is cut"

    def __call__(self, texts: Sequence[str]) -> np.ndarray:
        """The vectors of texts (n,D)."""
        for index, text in enumerate(texts):
            if not isinstance(text, str):
                cause = f"input {index + 1} is {cells.shown(text)}, no text"
                raise SeriatimError("embed.input", cause, 'give "a text"')
        return self._vectors(texts) if len(texts) else np.zeros((0, self.width), np.float32)

    def answer(self, texts: str | Sequence[str], notify: Callable[[str], None] | None = None) -> np.ndarray:
        """The same, and for a single text its vector (D,); what was lost is told."""
        found = self([texts] if isinstance(texts, str) else list(texts))
        if notify is not None and self.told:
            notify(self.told)
        vectors: np.ndarray = found[0] if isinstance(texts, str) else found
        return vectors

    @torch.inference_mode()
    def _vectors(self, texts: Sequence[str]) -> np.ndarray:
        encoded = self.reader.encode(texts)
        self.cut += encoded.cut
        lengths = encoded.rows.lengths
        behind = len(self.reader.lead)
        vectors: list[np.ndarray] = [np.zeros(0)] * len(texts)
        order = np.argsort(-lengths, kind="stable")  # like lengths together: little padding
        while len(order):
            some = order[: max(ELEMENTS // int(lengths[order[0]]), 1)]
            order = order[len(some) :]
            hidden, mask = self.reader.hidden(encoded, some)
            pooled = self._pool(hidden[:, behind:], None if mask is None else mask[:, behind:])
            for row, vector in zip(some.tolist(), _unit(pooled, self.normalise), strict=True):
                vectors[row] = vector
        return np.stack(vectors)


def _unit(vectors: torch.Tensor, normalise: bool) -> np.ndarray:
    single = vectors.float()
    return (F.normalize(single, dim=-1, eps=1e-12) if normalise else single).cpu().numpy()


# ── words ─────────────────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class WordVectors:
    """A word where it stands, a row for each place: in its sentence (n,D), and by itself (n,E)."""

    word: str
    sentences: list[str]
    spans: list[tuple[int, int]]
    pieces: list[list[str]]
    contextual: np.ndarray
    plain: np.ndarray
    lost: int = 0  # places behind what the network can take in

    def fragments(self, side: int = EACH_SIDE) -> list[str]:
        """The word with what stands around it: "… the river bank was …"; in brackets where a sentence has it twice."""
        often = Counter(self.sentences)
        return [
            _around(text, *span, side, often[text] > 1) for text, span in zip(self.sentences, self.spans, strict=True)
        ]


@torch.inference_mode()
def words(reader: Reader, word: str, texts: Sequence[str], normalise: bool = True, strict: bool = True) -> WordVectors:
    """The vectors of a word in texts; in a text that has it several times, each time. Texts without it are an error, or
    left out where not strict; some must have it."""
    read = [reader.read(text) for text in texts]
    places = _places(word, read, strict)
    sentences, spans, pieces, contextual, plain = [], [], [], [], []
    lost = 0
    for text, found in zip(read, places, strict=True):
        encoded, offsets = reader.spans(text)
        row = encoded.rows[0]
        hidden = reader.hidden(encoded, np.array([0]))[0][0]
        for first, last in found:
            inside = np.flatnonzero((offsets[:, 0] < last) & (offsets[:, 1] > first))
            if not len(inside):
                lost += 1
                continue
            ids = torch.from_numpy(row[inside]).to(reader.device)
            sentences.append(text)
            spans.append((first, last))
            pieces.append([reader.tokenizer.token(index) for index in ids.tolist()])
            contextual.append(hidden[torch.from_numpy(inside)].mean(dim=0))
            plain.append(F.embedding(ids, reader.table.weight).mean(dim=0))
    if not contextual:
        cause = f'"{word}" stands only behind what the model can take in: {reader.limit:,} tokens'
        raise SeriatimError("embed.word", cause, "shorten the texts")
    here, anywhere = (_unit(torch.stack(some), normalise) for some in (contextual, plain))
    return WordVectors(word, sentences, spans, pieces, here, anywhere, lost)


def _places(word: str, texts: Sequence[str], strict: bool) -> list[list[tuple[int, int]]]:
    """Where a word stands in each text, whole and in any case; all texts without it are told at once."""
    if not word.strip():
        raise SeriatimError("embed.word", "the word is empty", "name one: --word bank")
    edges = ["" if UNSPACED.match(letter) or not letter.isalnum() else edge
             for letter, edge in ((word[0], r"(?<!\w)"), (word[-1], r"(?!\w)"))]  # fmt: skip
    pattern = re.compile(edges[0] + re.escape(word) + edges[1], re.IGNORECASE)
    found = [[match.span() for match in pattern.finditer(text)] for text in texts]
    without = [text for text, places in zip(texts, found, strict=True) if not places]
    if not texts:
        raise SeriatimError("embed.word", f'no text has "{word}"', "give texts that have the word")
    if without and (strict or len(without) == len(texts)):
        names = "; ".join(cells.shown(text) for text in without[:SHOWN])
        more = f" and in {len(without) - SHOWN:,} more" if len(without) > SHOWN else ""
        raise SeriatimError("embed.word", f'"{word}" does not occur in {names}{more}', "give texts that have the word")
    return found


def _around(text: str, first: int, last: int, side: int, marked: bool) -> str:
    """A few whole words before and behind a place."""
    before, word, behind = text[:first], text[first:last], text[last:]
    if len(before) > side:
        before = "… " + before[-side:].partition(" ")[2]
    if len(behind) > side:
        behind = behind[:side].rpartition(" ")[0] + " …"
    return " ".join(f"{before}{f'[{word}]' if marked else word}{behind}".split())
