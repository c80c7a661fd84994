"""Pairs of passages out of documents: [CLS] a [SEP] b [SEP], filled up with whole sentences.

Documents are laid out in stretches of as many sentences as there is room for. An epoch visits each stretch once; what
comes of it is drawn each time: where it begins (up to a stretch earlier, so that the borders move), where a ends, and
whether b is what follows there or, half of the time, what stands at a random place of another document.

Nothing but the sense tells the two apart: both are filled up in the same way, no sentence is ever cut at the end of a
pair (one that is too long counts as several from the start), and neither begins with the first sentence of a document.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..core.errors import SeriatimError
from ..data.encoded import EncodedPart
from ..data.sequences import Sequences
from ..data.tokenizers import Tokenizer

STRETCH = 32  # sentences that count as a document where all is one


@dataclass(frozen=True)
class Pairs:
    """Rows side by side."""

    tokens: np.ndarray  # (B,T)
    lengths: np.ndarray  # (B,)
    text: np.ndarray  # (B,T) where tokens of a text stand, not what is put around it
    elsewhere: np.ndarray  # (B,) 0 where b follows a, 1 where it is taken from elsewhere


class Passages:
    """The stretches of a part, and what is drawn from them. `split` is the part's name."""

    def __init__(
        self, part: EncodedPart, tokenizer: Tokenizer, length: int, paired: bool, split: str = "training"
    ) -> None:
        self.tokens = part.tokens
        self.around = tokenizer.cls or 0, tokenizer.sep or 0, tokenizer.pad or 0
        self.paired = paired
        self.room = length - (3 if paired else 2)
        self.ends, documents = _short_enough(part, self.room // 2 if paired else self.room)
        self.starts = np.concatenate([[0], self.ends[:-1]])
        if paired and len(documents) == 1:
            documents = _apart(len(self.ends))
        sizes = np.diff(documents, prepend=0)
        used = np.flatnonzero(sizes >= (2 if paired else 1))
        self.left_out = len(documents) - len(used)  # documents of a single sentence, which nothing follows
        if len(used) < (2 if paired else 1):
            raise SeriatimError(
                "data.too-short",
                f"documents of two sentences or more in the {split} part: {len(used)}, and pairs need several",
                "give more text, or set task.next=false, which asks for no pairs",
            )
        self.documents = documents
        self.document = np.repeat(np.arange(len(documents), dtype=np.int32), sizes)  # (S,)
        fits = np.minimum(np.searchsorted(self.ends, self.starts + self.room, "right"), documents[self.document])
        self.fits = fits.astype(np.int32)  # (S,) the first sentence that has no room behind this one
        self.first = _stretches(documents[used] - sizes[used], self.fits, documents[used])
        count = self.fits[self.first] - self.first
        opens = np.concatenate([[True], np.diff(self.document[self.first]) > 0])
        self.most = np.where(opens, 0, np.concatenate([[1], count[:-1]]) - 1)
        self.least = (count == 1).astype(np.int64) if paired else np.zeros_like(count)
        lengths = self.ends[self.first + count - 1] - self.starts[self.first] + length - self.room
        self.inputs = Sequences(np.zeros(0, np.int64), np.cumsum(lengths))  # how long each is; the tokens stay on disk
        # Sentences that follow another one, document by document: what b may begin with.
        begins = np.concatenate([[True], np.diff(self.document) > 0])
        self.followers = np.flatnonzero(~begins).astype(np.int32)
        self.follows_from = np.searchsorted(self.followers, documents - sizes)
        self.follows_until = np.searchsorted(self.followers, documents)

    def __len__(self) -> int:
        return len(self.first)

    def draw(self, rows: np.ndarray, draw: np.random.Generator) -> Pairs:
        first = self.first[rows] - draw.integers(self.least[rows], self.most[rows] + 1)
        here = self.starts[first]
        if not self.paired:
            size = self.ends[self.fits[first] - 1] - here
            return self._framed(here, size, here, np.zeros_like(size), np.zeros_like(size))
        cut = draw.integers(first + 1, self.fits[first])
        elsewhere = draw.integers(0, 2, len(rows))
        second = np.where(elsewhere, self._another(self.document[first], draw), cut)
        # At least the first sentence of b has room, so a may have to end earlier.
        opening = self.ends[second] - self.starts[second]
        roomy = np.searchsorted(self.ends, here + self.room - opening, "right")
        cut = np.where(elsewhere, np.minimum(cut, roomy), cut)
        size = self.ends[cut - 1] - here
        there = self.starts[second]
        last = np.searchsorted(self.ends, there + self.room - size, "right")
        last = np.minimum(last, self.documents[self.document[second]])
        return self._framed(here, size, there, self.ends[last - 1] - there, elsewhere)

    def _another(self, document: np.ndarray, draw: np.random.Generator) -> np.ndarray:
        """A sentence of another document, each as likely as any other."""
        begin, end = self.follows_from[document], self.follows_until[document]
        place = draw.integers(0, len(self.followers) - (end - begin))
        return self.followers[place + np.where(place >= begin, end - begin, 0)]

    def _framed(
        self, here: np.ndarray, size: np.ndarray, there: np.ndarray, other: np.ndarray, elsewhere: np.ndarray
    ) -> Pairs:
        """[CLS] and `size` tokens from `here` on, [SEP], and where there are pairs `other` ones from `there`, [SEP]."""
        cls, sep, pad = self.around
        behind = size + 2 if self.paired else size  # where b begins
        lengths = behind + other + (1 if self.paired else 2)
        steps = np.arange(int(lengths.max()))
        in_first = (steps >= 1) & (steps <= size[:, None])
        in_second = (steps >= behind[:, None]) & (steps < (behind + other)[:, None])
        text = in_first | in_second if self.paired else in_first
        places = np.where(in_first, here[:, None] - 1, (there - behind)[:, None]) + steps
        tokens = self.tokens[np.where(text, places, 0)].astype(np.int64)
        tokens[~text] = pad
        tokens[:, 0] = cls
        rows = np.arange(len(size))
        tokens[rows, size + 1] = sep
        tokens[rows, lengths - 1] = sep
        return Pairs(tokens, lengths, text, elsewhere)


def _short_enough(part: EncodedPart, most: int) -> tuple[np.ndarray, np.ndarray]:
    """The ends of sentences and of documents, where a sentence of more tokens counts as several of like length."""
    ends = np.asarray(part.sentences, dtype=np.int64)
    lengths = np.diff(ends, prepend=0)
    pieces = -(-lengths // most)
    until = np.cumsum(pieces)
    number = np.arange(1, int(until[-1]) + 1) - np.repeat(until - pieces, pieces)  # 1, 2, … within a sentence
    cut = np.repeat(ends - lengths, pieces) + number * np.repeat(lengths, pieces) // np.repeat(pieces, pieces)
    return cut, until[np.asarray(part.documents, dtype=np.int64) - 1]


def _apart(sentences: int) -> np.ndarray:
    """Stretches of a single document as documents of their own; none of a single sentence."""
    size = max(min(STRETCH, sentences // 2), 1)
    ends = np.arange(size, sentences + 1, size)
    ends[-1] = sentences
    return ends


def _stretches(begins: np.ndarray, fits: np.ndarray, until: np.ndarray) -> np.ndarray:
    """The first sentence of each stretch: all documents go on at the same time, each by what fits."""
    found = [begins]
    while len(begins):
        further = fits[begins] < until
        begins, until = fits[begins][further].astype(np.int64), until[further]
        found.append(begins)
    return np.sort(np.concatenate(found))
