"""From texts to vectors: a reader encodes texts as a network reads them, an embedder pools the network's outputs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, NamedTuple, Protocol, cast, get_args

import numpy as np
from torch import Tensor, nn
from torch.nn import functional as F

from ..core.errors import SeriatimError, did_you_mean
from ..core.text import plural
from ..data.sequences import Sequences
from ..data.tokenizers import Tokenizer
from ..nn.inference import run_batches
from ..nn.layers import WordInput
from ..nn.names import TextPooling
from ..nn.network import Pool

MAX_ELEMENTS = 2_048  # of a batch: larger ones do not fit the caches of a CPU
BLOCK_TEXTS = 2_048  # embedded together: enough to batch similar lengths


class TextItems(Protocol):
    """Texts as items of a network."""

    @property
    def inputs(self) -> Sequences: ...

    @property
    def lengths(self) -> np.ndarray: ...


class TextModel(Protocol):
    """A trained network that reads text, such as a predictor."""

    @property
    def network(self) -> Any: ...

    def text_items(self, ids: Sequences) -> Any:
        """Returns token ids as items of the network."""

    def text_states(self, items: Any, rows: np.ndarray) -> tuple[Tensor, Tensor | None]:
        """Returns the network's output for every element (n,T,D) of some items, and the mask (n,T)."""


class EncodedTexts(NamedTuple):
    """Texts as items of a network."""

    encoded: Any  # `TextItems`, of the type of the task
    truncated: int  # number of texts that were longer than the network accepts


@dataclass(frozen=True)
class EmbeddingDefaults:
    """How a model embeds texts, unless the options say otherwise; a sentence encoder was trained with one way.

    Args:
        pooling: How the vectors of all elements become one.
        normalize: Whether vectors have length 1.
        prompt: Text that is put before every text.
    """

    pooling: str = "mean"
    normalize: bool = True
    prompt: str = ""


class TextReader:
    """Encodes texts as a network reads them: prefix, [CLS], tokens, [SEP], suffix.

    Args:
        model: The network that reads them.
        tokenizer: The tokenizer of its texts.
        max_length: The longest sequence the network accepts; None for any.
        prefix: Tokens before every text, which are not pooled.
        suffix: Tokens after every text.
        cls_sep: Whether [CLS] and [SEP] enclose a text; by default if the tokenizer has them.
        prepare: Normalizes a text like the training texts.
        table: The embedding table; by default that of the network's input.
        embedding: How texts are embedded by default.
    """

    def __init__(
        self,
        model: TextModel,
        tokenizer: Tokenizer,
        max_length: int | None = None,
        prefix: Sequence[int] = (),
        suffix: Sequence[int] = (),
        cls_sep: bool | None = None,
        prepare: Callable[[str], str] | None = None,
        table: nn.Embedding | None = None,
        embedding: EmbeddingDefaults | None = None,
    ) -> None:
        self.model, self.tokenizer, self.max_length = model, tokenizer, max_length
        self.network = cast(nn.Module, model.network)
        self.prefix, self.suffix = np.asarray(prefix, np.int64), np.asarray(suffix, np.int64)
        self.cls_sep = tokenizer.has_cls_sep if cls_sep is None else cls_sep
        self.embedding = EmbeddingDefaults() if embedding is None else embedding
        self.prepare = prepare or (lambda text: self.embedding.prompt + text)
        self._table = table
        around = len(prefix) + len(suffix) + 2 * self.cls_sep
        self.max_tokens = None if max_length is None else max(max_length - around, 1)

    @property
    def embedding_table(self) -> nn.Embedding:
        """The vectors of tokens at the input, without context."""
        if self._table is not None:
            return self._table
        module = self.network.get_submodule("input")
        return module.words if isinstance(module, WordInput) else cast(nn.Embedding, module)

    def encode(self, texts: Sequence[str]) -> EncodedTexts:
        """Returns one item per text."""
        ids = self.tokenizer.encode_many([self.prepare(text) for text in texts], strict=False)
        truncated = 0 if self.max_tokens is None else sum(len(row) > self.max_tokens for row in ids)
        return EncodedTexts(self.model.text_items(Sequences.of([self._frame(row) for row in ids])), truncated)

    def spans(self, text: str) -> tuple[EncodedTexts, np.ndarray]:
        """Returns the item of a prepared text, and the characters of each element (T,2); (0, 0) for special tokens."""
        ids, spans = self.tokenizer.encode_spans(text)
        row = self._frame(ids)
        offsets = np.zeros((len(row), 2), np.int64)
        before, count = len(self.prefix) + int(self.cls_sep), len(ids[: self.max_tokens])
        offsets[before : before + count] = spans[:count]
        return EncodedTexts(self.model.text_items(Sequences.of([row])), int(count < len(ids))), offsets

    def _frame(self, ids: np.ndarray) -> np.ndarray:
        ids = ids[: self.max_tokens]
        if self.cls_sep:
            ids = self.tokenizer.frame(ids)
        elif not len(ids) and not len(self.suffix):  # a sequence has at least one element
            ids = np.array([self.tokenizer.eos or 0])
        return np.concatenate([self.prefix, ids, self.suffix]).astype(np.int64)


class Embedder:
    """Returns the vectors of texts, and counts the truncated texts.

    Args:
        reader: Encodes the texts.
        pooling: mean, max, last, or cls if the network reads [CLS] before a text.
        normalize: Whether vectors have length 1.
    """

    def __init__(self, reader: TextReader, pooling: str = "mean", normalize: bool = True) -> None:
        names = get_args(TextPooling)
        if pooling not in names:
            raise SeriatimError("embed.pooling", f'there is no pooling "{pooling}"', did_you_mean(pooling, names))
        if pooling == "cls" and not reader.cls_sep:
            cause = "this model reads no [CLS] before a text, whose vector could stand for the whole"
            raise SeriatimError("embed.pooling", cause, "choose mean, max or last")
        self.reader, self.pooling, self.normalize, self.truncated = reader, pooling, normalize, 0
        directions = int(getattr(reader.network.get_submodule("backbone"), "directions", 1))  # of reading
        self._pool = Pool("first" if pooling == "cls" else cast(Any, pooling), 1, directions)

    @property
    def width(self) -> int:
        """The size of a vector."""
        return int(self._embed([""]).shape[1])

    @property
    def note(self) -> str:
        """A note on truncated texts; empty if there are none."""
        if not self.truncated:
            return ""
        texts = plural(self.truncated, "text is", "texts are")
        return f"{texts} truncated: longer than the {self.reader.max_length:,} tokens that the model accepts"

    def __call__(self, texts: Sequence[str]) -> np.ndarray:
        """Returns the vectors of texts (n,D) float32."""
        for number, text in enumerate(texts, 1):
            if not isinstance(text, str):
                raise SeriatimError("embed.input", f"input {number} is {text!r}, not a text", 'pass "a text"')
        return self._embed(texts) if len(texts) else np.zeros((0, self.width), np.float32)

    def _embed(self, texts: Sequence[str]) -> np.ndarray:
        encoded, truncated = self.reader.encode(texts)
        self.truncated += truncated
        skipped = len(self.reader.prefix)

        def run(items: np.ndarray) -> list[np.ndarray]:
            hidden, mask = self.reader.model.text_states(encoded, items)
            pooled = self._pool(hidden[:, skipped:], None if mask is None else mask[:, skipped:])
            return list(unit_vectors(pooled, self.normalize))

        return np.stack(run_batches(encoded.lengths, run, MAX_ELEMENTS))


def unit_vectors(vectors: Tensor, normalize: bool) -> np.ndarray:
    """Returns vectors (n,D) as float32, of length 1 if `normalize`."""
    single = vectors.float()
    return (F.normalize(single, dim=-1, eps=1e-12) if normalize else single).cpu().numpy()


def text_blocks(texts: Iterable[str]) -> Iterator[list[str]]:
    """Yields texts, `BLOCK_TEXTS` at a time."""
    remaining = iter(texts)
    while block := list(islice(remaining, BLOCK_TEXTS)):
        yield block
