"""How good captions are, beside all the captions that people gave: BLEU-1 to BLEU-4, CIDEr, and exact matches.

Papineni et al., "BLEU" (2002), over all captions of a part together, with the length of the closest reference; Vedantam
et al., "CIDEr" (2015): n-grams count the more the fewer pictures they are said of. Both give what COCO's evaluation
(pycocoevalcap) gives for the same words: what it calls CIDEr is the variant CIDEr-D, which clips counts and punishes a
length of its own, and takes how rare n-grams are from the references of the part.

The words are our own, since COCO's splitter is a Java program: lower case, and without punctuation as there, but what
that program parts within words (man's, can't) stays one. Papers' figures differ by that; so ours go with a signature.
sacreBLEU over the same words gives the same BLEU-4, so there is one and not two.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from ..core.measures import Measured
from ._alignment import UNSPACED
from ._bleu import right

LONGEST = 4  # words of an n-gram
SIGMA = 6.0  # of the lengths that CIDEr forgives
SMALL, TINY = 1e-9, 1e-15  # what COCO adds below and above each fraction, so that none is 0/0
WORDS = "case:lc|punctuation:off|words:seriatim"

# A hyphen or an apostrophe belongs to a word that it stands within, a point, comma or colon to a number.
LOOSE = re.compile(r"(?<!\w)[-']|[-'](?!\w)|(?<!\d)[.,:]|[.,:](?!\d)")
KEPT = "-'.,:"


class _Signs(dict[int, int | str]):
    """What `translate` puts for each character: a blank for punctuation and symbols. It learns as it goes."""

    def __missing__(self, code: int) -> int | str:
        sign = chr(code)
        self[code] = " " if sign not in KEPT and unicodedata.category(sign)[0] in "PS" else code
        return self[code]


SIGNS = _Signs()


def words(text: str) -> list[str]:
    """The words that are compared. Where writing sets no blanks, each character is one."""
    text = unicodedata.normalize("NFC", text).lower().replace("’", "'")
    return UNSPACED.sub(r" \g<0> ", LOOSE.sub(" ", text).translate(SIGNS)).split()


def judged(said: Sequence[str], references: Sequence[Sequence[str]], closed: bool = False) -> Measured:
    """The measures of captions, one for each picture, against all references of it, the one that matters most first:
    of a `closed` language (see `_bleu.Manner`) a caption is right or wrong. BLEU goes up to 100 as everywhere here,
    CIDEr up to 10 as COCO's does (papers often say a hundredfold)."""
    table = Grams.of([words(one) for one in said], [[words(one) for one in some] for some in references])
    scores = bleus(table)
    several = f"refs:{'all' if any(len(some) > 1 for some in references) else 1}"
    exact = {"exact_match": float(np.mean(right(said, references)))}
    values = {"cider": float(ciders(table).mean())}
    values |= {f"bleu{order}": 100 * scores[order - 1] for order in range(LONGEST, 0, -1)}
    values = exact | values if closed else values | exact
    told = {"cider": f"coco CIDEr-D|{several}|{WORDS}|df:refs"} | {
        f"bleu{order}": f"coco|{several}|{WORDS}|len:closest" for order in range(LONGEST, 0, -1)
    }
    return Measured(values | {"captions": float(len(said))}, told)


@dataclass(frozen=True)
class Counts:
    """The n-grams of one length: an entry says how often a sentence has one, ordered by sentence and n-gram."""

    sentences: np.ndarray  # (E,)
    grams: np.ndarray  # (E,) by numbers from 0
    counts: np.ndarray  # (E,)
    size: int  # different n-grams of all sentences

    def where(self, chosen: np.ndarray) -> Counts:
        return Counts(self.sentences[chosen], self.grams[chosen], self.counts[chosen], self.size)


@dataclass(frozen=True)
class Grams:
    """What is counted once for all measures. A sentence of `said` bears the number of its picture; references are
    numbered by themselves, and `owners` says to which picture each belongs."""

    said_lengths: np.ndarray  # (P,) words
    lengths: np.ndarray  # (R,) of references
    owners: np.ndarray  # (R,)
    orders: list[tuple[Counts, Counts]]  # said and references, of one word, of two, …

    @classmethod
    def of(cls, said: Sequence[Sequence[str]], references: Sequence[Sequence[Sequence[str]]]) -> Grams:
        """From words; each picture has a caption and one reference or more."""
        if len(said) != len(references) or not len(said) or not all(len(some) for some in references):
            raise ValueError("each picture has a caption and at least one reference")
        every = [*said, *(one for some in references for one in some)]
        lengths = np.array([len(one) for one in every])
        owners = np.repeat(np.arange(len(said)), [len(some) for some in references])
        numbers: dict[str, int] = {}
        flat = [numbers.setdefault(word, len(numbers)) for one in every for word in one]
        pairs = []
        for found in _counted(np.array(flat, dtype=np.int64), lengths):
            own = found.sentences < len(said)
            rest = found.where(~own)
            pairs.append((found.where(own), Counts(rest.sentences - len(said), rest.grams, rest.counts, rest.size)))
        return cls(lengths[: len(said)], lengths[len(said) :], owners, pairs)


def _counted(flat: np.ndarray, lengths: np.ndarray) -> Iterator[Counts]:
    """Of all words in a row: an n-gram is the one a word shorter and the word behind it, as a number of its own."""
    sentences = np.repeat(np.arange(len(lengths)), lengths)
    left = np.repeat(np.cumsum(lengths), lengths) - np.arange(len(flat))  # words to the end of the sentence, itself too
    size = int(flat.max(initial=-1)) + 1
    starts, grams, vocabulary = np.arange(len(flat)), flat, max(size, 1)
    for order in range(1, LONGEST + 1):
        if order > 1:
            fits = left[starts] >= order
            starts = starts[fits]
            made, grams = np.unique(grams[fits] * vocabulary + flat[starts + order - 1], return_inverse=True)
            size = len(made)
        keys, counts = np.unique(sentences[starts] * max(size, 1) + grams, return_counts=True)
        yield Counts(keys // max(size, 1), keys % max(size, 1), counts, size)


def bleus(table: Grams) -> list[float]:
    """BLEU-1 to BLEU-4, from 0 to 1: n-grams of all captions that a reference has as often, over all that were said,
    less where captions are shorter than their closest references (of two equally close ones the shorter)."""
    lengths, product, found = table.said_lengths, 1.0, []
    for order, (said, references) in enumerate(table.orders, 1):
        size = max(said.size, 1)
        theirs = table.owners[references.sentences] * size + references.grams
        keys, places = np.unique(theirs, return_inverse=True)
        most = np.zeros(len(keys), dtype=np.int64)  # how often the reference that has it most often has it
        np.maximum.at(most, places, references.counts)
        own, held = _held(keys, said.sentences * size + said.grams)
        correct = int(np.minimum(said.counts[own], most[held]).sum())
        product *= (correct + TINY) / (int(np.maximum(lengths - order + 1, 0).sum()) + SMALL)
        found.append(product ** (1 / order))
    nearest = np.lexsort((table.lengths, np.abs(table.lengths - lengths[table.owners]), table.owners))
    first = np.unique(table.owners, return_index=True)[1]  # owners stand in order, so do those sorted by them
    ratio = (int(lengths.sum()) + TINY) / (int(table.lengths[nearest][first].sum()) + SMALL)
    return [score * float(np.exp(1 - 1 / ratio)) for score in found] if ratio < 1 else found


def ciders(table: Grams) -> np.ndarray:
    """CIDEr of each picture (P,): the mean over its references and over n of ten times the cosine between the n-grams
    of caption and reference, each weighed by the logarithm of pictures over pictures that have it."""
    pictures = len(table.said_lengths)
    total = np.zeros(len(table.lengths))
    for said, references in table.orders:
        size = max(said.size, 1)
        theirs = table.owners[references.sentences] * size + references.grams
        often = np.bincount(np.unique(theirs) % size, minlength=size)
        weights = np.log(pictures) - np.log(np.maximum(often, 1))
        ours, wanted = said.counts * weights[said.grams], references.counts * weights[references.grams]
        where, held = _held(said.sentences * size + said.grams, theirs)
        common = np.minimum(ours[held], wanted[where]) * wanted[where]
        product = np.bincount(references.sentences[where], common, len(total))
        norms = np.sqrt(np.bincount(said.sentences, ours**2, pictures))[table.owners]
        norms *= np.sqrt(np.bincount(references.sentences, wanted**2, len(total)))
        total += np.divide(product, norms, out=np.zeros_like(total), where=norms > 0)
    # COCO takes the number of pairs of words for the length, so that none and one are equally long
    pairs, own = np.maximum(table.lengths - 1, 0), np.maximum(table.said_lengths - 1, 0)
    total *= np.exp(-((own[table.owners] - pairs) ** 2) / (2 * SIGMA**2))
    means = np.bincount(table.owners, total, pictures) / np.bincount(table.owners, minlength=pictures)
    return np.asarray(10 * means / LONGEST)


def _held(ordered: np.ndarray, keys: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Which of some keys are among the ordered ones, and where there."""
    places = np.searchsorted(ordered, keys)
    which = np.flatnonzero(places < len(ordered))
    which = which[ordered[places[which]] == keys[which]]
    return which, places[which]
