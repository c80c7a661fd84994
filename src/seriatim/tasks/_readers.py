"""Texts as the network of a run reads them, whatever its task: elements, where each stands, and what is made of it.

A text longer than a network can take loses what stands behind; an end that belongs to every text stays.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from ..core.errors import SeriatimError
from ..data.sequences import Sequences
from ..data.tokenizers import Tokenizer
from ..data.vocabulary import WORDS
from ..nn.characters import WordInput
from ..nn.network import Network, full
from ..nn.pair import PairBackbone, Translator
from ._pairs import end_of
from ._speak import Speaker
from ._tagger import Tagger, spells
from ._translator import Interpreter
from ._words import WordPart

NO_TOKENS = np.zeros(0, np.int64)
NO_WORD = "\ufffd"  # what a text without a word is read as


@dataclass(frozen=True)
class Encoded:
    """Texts as rows of elements."""

    rows: Sequences
    cut: int  # how many of them lost something
    words: tuple[WordPart, np.ndarray] | None = None  # of words that are apart already, and which of its rows these are


class Reader:
    """A network over the tokens of a text, with [CLS] and [SEP] around them where its tokenizer has these."""

    def __init__(
        self,
        network: nn.Module,
        tokenizer: Tokenizer,
        limit: int | None,
        lead: np.ndarray = NO_TOKENS,
        close: np.ndarray = NO_TOKENS,
        framed: bool | None = None,
    ) -> None:
        self.network = network.eval()
        self.tokenizer = tokenizer
        self.lead, self.close = lead, close  # what every text begins and ends with, beside [CLS] and [SEP]
        self.framed = tokenizer.framed if framed is None else framed
        around = len(lead) + len(close) + 2 * self.framed
        self.limit = limit  # elements that the network takes
        self.room = None if limit is None else max(limit - around, 1)
        self.device = next(network.parameters()).device

    @property
    def directions(self) -> int:
        """2 where each half of a vector comes from one direction of reading."""
        return int(getattr(self.network.get_submodule("backbone"), "directions", 1))

    @property
    def table(self) -> nn.Embedding:
        """The vectors of tokens as they go in, before anything is known of their neighbours."""
        found = self.network.get_submodule("input")
        return found.words if isinstance(found, WordInput) else found  # type: ignore[return-value]

    def read(self, text: str) -> str:
        """A text as those of the training were."""
        return text

    def encode(self, texts: Sequence[str]) -> Encoded:
        found = self.tokenizer.encode_many([self.read(text) for text in texts], strict=False)
        cut = 0 if self.room is None else sum(len(ids) > self.room for ids in found)
        return Encoded(Sequences.of([self._framed(ids) for ids in found]), cut)

    def spans(self, text: str) -> tuple[Encoded, np.ndarray]:
        """A text that was read, and for each element from where to where it stands there (n,2); 0, 0: nowhere."""
        ids, spans = self.tokenizer.encode_spans(text)
        row = self._framed(ids)
        found = np.zeros((len(row), 2), np.int64)
        before, kept = len(self.lead) + int(self.framed), len(ids[: self.room])
        found[before : before + kept] = spans[:kept]
        return Encoded(Sequences.of([row]), int(kept < len(ids))), found

    def _framed(self, ids: np.ndarray) -> np.ndarray:
        ids = ids[: self.room]
        if self.framed:
            ids = self.tokenizer.frame(ids)
        elif not len(ids) and not len(self.close):  # a text without a word still has an end
            ids = np.array([self.tokenizer.eos or 0])
        return np.concatenate([self.lead, ids, self.close]).astype(np.int64)

    def hidden(self, encoded: Encoded, rows: np.ndarray) -> tuple[Tensor, Tensor | None]:
        """What the network makes of each element of some rows (n,T,D), and where elements stand (n,T)."""
        block, real = encoded.rows.padded(rows)
        mask = None if real.all() else torch.from_numpy(real).to(self.device)
        return full(self.through(torch.from_numpy(block).to(self.device), mask)), mask

    def through(self, inputs: Any, mask: Tensor | None) -> Tensor:
        network: Network = self.network  # type: ignore[assignment]
        return network.hidden(inputs, mask)[0]


class SourceReader(Reader):
    """The encoder of a translator."""

    def __init__(self, interpreter: Interpreter) -> None:
        coder = interpreter.coder
        end = np.array([end_of(coder.source)])
        super().__init__(interpreter.model, coder.source, interpreter.context, close=end, framed=False)
        self.interpreter = interpreter

    @property
    def table(self) -> nn.Embedding:
        return self.interpreter.model.source

    def read(self, text: str) -> str:
        return self.interpreter._read(text)

    def through(self, inputs: Any, mask: Tensor | None) -> Tensor:
        model: Translator = self.interpreter.model
        return model.read(inputs, mask)


class WordReader(Reader):
    """A tagger, which reads words that are apart already, each as its pieces and perhaps its spelling."""

    def __init__(self, tagger: Tagger, tokenizer: Tokenizer) -> None:
        super().__init__(tagger.model, tokenizer, tagger.coder.window)
        self.coder = tagger.coder

    def encode(self, texts: Sequence[str]) -> Encoded:
        part = self.coder.encode([re.findall(WORDS, text) or [NO_WORD] for text in texts])
        _, first, windows = np.unique(part.sentence, return_index=True, return_counts=True)
        return Encoded(part.inputs.take(first), int((windows > 1).sum()), (part, first))

    def spans(self, text: str) -> tuple[Encoded, np.ndarray]:
        encoded = self.encode([text])
        whole = replace(self.coder, window=None).encode([re.findall(WORDS, text) or [NO_WORD]])
        row = encoded.rows[0]
        owner = np.maximum.accumulate(whole.where)[: len(row)]  # a piece belongs to the word that began last
        frame = [index for index in (self.tokenizer.cls, self.tokenizer.sep) if index is not None]
        owner[np.isin(row, frame)] = -1
        words = [[match.start(), match.end()] for match in re.finditer(WORDS, text)] or [[0, 0]]  # NO_WORD is nowhere
        return encoded, np.array([[0, 0], *words])[owner + 1]

    def hidden(self, encoded: Encoded, rows: np.ndarray) -> tuple[Tensor, Tensor | None]:
        if encoded.words is None:
            raise TypeError("a tagger reads words")
        part, places = encoded.words
        batch = part.collate(places[rows], spells(self.network)).to(self.device)
        return full(self.through(batch.inputs, batch.mask)), batch.mask


def reader(predictor: Any, who: str) -> Reader:
    """What reads texts in a run; `who` it is stands in errors."""
    model, coder = predictor.model, getattr(predictor, "coder", None)
    tokenizer: Tokenizer | None = getattr(predictor, "tokenizer", getattr(coder, "tokenizer", None))
    if not isinstance(model, nn.Module):
        raise _none(who, "counts, and has no vectors")
    if isinstance(predictor, Interpreter):
        backbone = predictor.model.backbone
        if type(backbone).read is PairBackbone.read and not hasattr(backbone, "encoder"):
            raise _none(who, "has no encoder that gives a vector for each element")
        return SourceReader(predictor)
    if tokenizer is None:
        raise _none(who, "does not read text")
    if isinstance(predictor, Tagger):
        return WordReader(predictor, tokenizer)
    if isinstance(predictor, Speaker):
        context = getattr(predictor.engine, "context", None)
        return Reader(model, tokenizer, context, lead=predictor.start, framed=False)
    limits = [getattr(coder, "limit", None), getattr(model.get_submodule("backbone"), "context", None)]
    return Reader(model, tokenizer, min((limit for limit in limits if limit is not None), default=None))


def _none(who: str, why: str) -> SeriatimError:
    return SeriatimError("run.question", f"{who} {why}", "embed with a network that was trained on text")
