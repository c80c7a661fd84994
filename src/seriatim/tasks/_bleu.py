"""How good translations are: BLEU and chrF by sacreBLEU, and how many are right to the letter.

Papineni et al., "BLEU" (2002): n-grams of words in common with the reference. Popović, "chrF" (2015): n-grams of
characters. Post, "A call for clarity in reporting BLEU scores" (2018): a figure depends on how words are split and on
much else, so it never goes without the signature that says all of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..core.measures import Measured
from ._alignment import UNSPACED

LOOKED_AT = 2_000  # targets from which it follows how they are judged
BLANKS = 0.05  # fewer among the characters: writing that sets no blanks between words
CLOSED = 20  # so often, on average, comes a word of a language of few words


@dataclass(frozen=True)
class Wanted:
    """Distinct sources, each with all the different targets that stand with it, in the order of the data."""

    sources: list[str]
    references: list[list[str]]

    @classmethod
    def of(cls, sources: Iterable[str], targets: Iterable[str]) -> Wanted:
        found: dict[str, dict[str, None]] = {}
        for source, target in zip(sources, targets, strict=True):
            found.setdefault(source, {})[target] = None
        return cls(list(found), [list(some) for some in found.values()])

    def __len__(self) -> int:
        return len(self.sources)

    @property
    def several(self) -> bool:
        return any(len(some) > 1 for some in self.references)

    def take(self, rows: Iterable[int]) -> Wanted:
        rows = list(rows)
        return Wanted([self.sources[row] for row in rows], [self.references[row] for row in rows])

    def spread(self, count: int) -> Wanted:
        """So many at most, at even distances."""
        if count >= len(self):
            return self
        return self.take(np.linspace(0, len(self) - 1, count).astype(np.int64).tolist())


@dataclass(frozen=True)
class Manner:
    """How targets are judged. `split` is sacreBLEU's way to words: 13a, or char where no blanks part them. Of a closed
    set of words, as letters, phonemes or dates are, an answer is right or wrong: that is the first measure."""

    split: str = "13a"
    closed: bool = False

    @classmethod
    def of(cls, targets: Sequence[str], letters: bool = False) -> Manner:
        """`letters`: the model writes letter by letter."""
        some = [target.strip() for target in targets[:LOOKED_AT]]
        together = unspaced(some)
        words = [word for target in some for word in target.split()]
        few = 0 < len(set(words)) * CLOSED <= len(words)
        alone = together and not any(UNSPACED.search(target) for target in some)  # single words
        return cls("char" if together else "13a", letters or few or alone)


def unspaced(texts: Sequence[str]) -> bool:
    """Whether texts of more than a symbol have next to no blanks: Chinese, Japanese, Thai, or single words."""
    blanks = sum(text.count(" ") for text in texts)
    characters = sum(map(len, texts))
    return characters > len(texts) and blanks < BLANKS * characters


def judged(said: Sequence[str], wanted: Wanted, manner: Manner) -> Measured:
    """The measures of translations, the one that matters most first, with their signatures."""
    found = {"bleu": bleu(said, [some[:1] for some in wanted.references], manner.split)}
    if wanted.several:
        found["bleu_all"] = bleu(said, wanted.references, manner.split)
    found["chrf"] = chrf(said, [some[:1] for some in wanted.references])
    values = {name: value for name, (value, _) in found.items()}
    exact = {"exact_match": float(np.mean(right(said, wanted.references)))}
    ordered = exact | values if manner.closed else values | exact
    return Measured(ordered | {"sentences": float(len(said))}, {name: text for name, (_, text) in found.items()})


def bleu(said: Sequence[str], references: Sequence[Sequence[str]], split: str = "13a") -> tuple[float, str]:
    """Of all sentences together, from 0 to 100, and its signature."""
    from sacrebleu.metrics import BLEU

    measure = BLEU(tokenize=split, force=True)
    value = measure.corpus_score(list(said), _streams(references)).score
    return float(value), str(measure.get_signature())


def chrf(said: Sequence[str], references: Sequence[Sequence[str]]) -> tuple[float, str]:
    from sacrebleu.metrics import CHRF

    measure = CHRF()
    value = measure.corpus_score(list(said), _streams(references)).score
    return float(value), str(measure.get_signature())


def each_chrf(said: Sequence[str], references: Sequence[Sequence[str]]) -> list[float]:
    """Of each sentence by itself, against the reference that is nearest."""
    from sacrebleu.metrics import CHRF

    measure = CHRF()
    return [float(measure.sentence_score(one, list(some)).score) for one, some in zip(said, references, strict=True)]


def right(said: Sequence[str], references: Sequence[Sequence[str]]) -> list[bool]:
    """Which translations equal a reference."""
    return [one in some for one, some in zip(said, references, strict=True)]


def _streams(references: Sequence[Sequence[str]]) -> list[list[Any]]:
    """As sacreBLEU wants them: the first reference of every sentence, the second of each or None, and so on."""
    most = max(map(len, references))
    return [[some[place] if place < len(some) else None for some in references] for place in range(most)]
