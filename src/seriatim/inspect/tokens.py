"""The vectors of tokens as they go in, before anything is known of their neighbours, with their names."""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np
import torch

from ..core.errors import SeriatimError
from ..data.tokenizers import Tokenizer
from ..nn.pair import Translator
from ..tasks._neighbours import Nearest
from ..tasks._readers import SourceReader
from .subject import Subject

SPECIAL = re.compile(r"<.+>|\[.+\]")  # <eos>, [CLS], [unused7], <0x0A>


@dataclass(frozen=True)
class Table:
    """`of` says of which side of a translator, "" where there is only one."""

    of: str
    tokenizer: Tokenizer
    vectors: np.ndarray  # (V,E)

    def __len__(self) -> int:
        return len(self.vectors)

    def name(self, index: int) -> str:
        return self.tokenizer.token(index)

    def ids(self, text: str) -> list[int]:
        """The tokens of a text, each once, in the order they come in."""
        found = self.tokenizer.encode_many([text], strict=False)[0]
        return list(dict.fromkeys(found.tolist()))

    def first(self, count: int) -> list[int]:
        """So many tokens: whole words of letters, in the order of the vocabulary, which mostly goes from frequent to
        rare; where it has hardly any, all that stand for something."""
        known = [index for index in range(len(self)) if not SPECIAL.fullmatch(self.name(index))]
        words = [index for index in known if len(word := self._word(index)) > 1 and word.isalpha()]
        return (words if 10 * len(words) > len(known) else known)[:count]

    def _word(self, index: int) -> str:
        """What a token that begins a word stands for; "" for one that goes on with it."""
        return "" if self.tokenizer.continues[index] else self.name(index).strip("·␣▁Ġ ")


def lacking(subject: Subject) -> str:
    """Why there are no vectors of tokens, as the end of a sentence; "" where there are some."""
    if subject.counts:
        return "counts, and has no vectors"
    if subject.run is None:
        return "was never trained and knows no tokens"
    try:
        subject.reader.table.weight  # noqa: B018
    except (SeriatimError, AttributeError):
        return "has no vectors of tokens"
    return ""


def tables(subject: Subject) -> list[Table]:
    """The table of a network; of a translator both, unless they are one."""
    reader = subject.reader
    if not isinstance(reader, SourceReader):
        return [Table("", reader.tokenizer, _vectors(reader.table.weight))]
    model: Translator = reader.interpreter.model
    coder = reader.interpreter.coder
    sides = [Table("source", coder.source, _vectors(model.source.weight))]
    if model.target.weight is not model.source.weight:
        sides.append(Table("target", coder.target, _vectors(model.target.weight)))
    return sides


def chosen(table: Table, text: str) -> list[int]:
    """The tokens of a text; one without any is an error."""
    ids = table.ids(text)
    if not ids:
        raise SeriatimError("inspect.text", "the text has no tokens", "give one that has some")
    return ids


def nearest(table: Table, ids: list[int], top: int) -> Nearest:
    """The `top` nearest to each of some tokens by cosine; none is its own neighbour."""
    search = Nearest(table.vectors[ids], min(top, len(table) - 1))
    search.show(table.vectors, 0, without=np.array(ids))
    return search


def _vectors(weight: torch.Tensor) -> np.ndarray:
    values: np.ndarray = weight.detach().float().cpu().numpy()
    return values
