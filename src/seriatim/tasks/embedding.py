"""Embeddings: vectors of texts and of words in context, and nearest neighbors, for every predictor that reads text.

    text   pool_t h_t               mean, max, last, or cls: the output of [CLS], which stands for the whole text
    word   mean of h_t over its tokens: its meaning in this sentence
           mean of its rows of the embedding table: the same in every sentence

All elements that the network reads are pooled, [CLS] and [SEP] included, except a prefix such as the line end before
the text of a language model. A text has the same vector alone and in a batch. A text that is longer than the network
accepts is truncated.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, Literal, NamedTuple, cast, get_args

import numpy as np
import torch
from pydantic import Field as Setting
from torch import Tensor, nn
from torch.nn import functional as F

from ..core.config import Settings
from ..core.errors import SeriatimError, did_you_mean
from ..data.dataset import Dataset
from ..data.kinds import NUMBER, NUMBERS, TEXT, TOKENS
from ..data.schema import Field, Schema
from ..data.sequences import Sequences
from ..data.source import open_source
from ..data.tokenizers import Tokenizer
from ..data.vectors import (
    EXTENSIONS,
    TextBlocks,
    VectorWriter,
    nearest,
    nearest_to_each,
    open_vectors,
)
from ..nn.layers import WordInput
from ..nn.network import Pool, as_float32
from ..report.charts import Scatter, View, embedding_charts
from .base import weights_digest
from .batching import Batch, device_of, padding_mask, run_batches
from .metrics import UNSPACED
from .predictor import Predictor, Record, capability
from .processor import Encoded, Stored

Pooling = Literal["mean", "cls", "max", "last"]
MAX_ELEMENTS = 2_048  # of a batch: more do not fit the caches of a CPU
MAX_LABEL = 40  # characters of a text beside a point
BLOCK_TEXTS = 2_048  # that are embedded together: enough to batch similar lengths
MAX_LISTED = 3  # sentences in an error
CONTEXT = 28  # characters of a sentence on each side of a word, where it is shown
TEXTS = Schema((Field("text", (TEXT,), ("sentence", "content", "prompt", "source")),), positions=("text",))


def no_vectors(predictor: Predictor, reason: str) -> SeriatimError:
    """Returns the error of a predictor without embeddings; `reason` completes "a model of the task …"."""
    cause = f"a model of the task {predictor.task.name} {reason}"
    return SeriatimError("predict.capability", cause, "embed with a network that was trained on text")


# From texts to hidden states


class EncodedTexts(NamedTuple):
    """Texts as items of a network."""

    encoded: Encoded
    truncated: int  # number of texts that were longer than the network accepts


@dataclass(frozen=True)
class EmbeddingSettings(Stored):
    """How a model embeds texts, unless the options say otherwise; a sentence encoder was trained with one way.

    Args:
        pooling: How the vectors of all elements become one.
        normalize: Whether vectors have length 1.
        prompt: What is put before every text.
    """

    pooling: str = "mean"
    normalize: bool = True
    prompt: str = ""


class TextReader:
    """Encodes texts as a network reads them: prefix, [CLS], tokens, [SEP], suffix.

    Args:
        predictor: Whose network reads them.
        tokenizer: The tokenizer of its texts.
        max_length: The longest sequence the network accepts; None for any.
        prefix: Tokens before every text, which are not pooled.
        suffix: Tokens after every text.
        cls_sep: Whether [CLS] and [SEP] enclose a text; by default if the tokenizer has them.
        prepare: Normalizes a text as those of the training were.
        table: The embedding table; by default that of the network's input.
        embedding: How texts are embedded by default.
    """

    def __init__(
        self,
        predictor: Predictor,
        tokenizer: Tokenizer,
        max_length: int | None = None,
        prefix: Sequence[int] = (),
        suffix: Sequence[int] = (),
        cls_sep: bool | None = None,
        prepare: Callable[[str], str] | None = None,
        table: nn.Embedding | None = None,
        embedding: EmbeddingSettings | None = None,
    ) -> None:
        self.predictor, self.tokenizer, self.max_length = predictor, tokenizer, max_length
        self.network = cast(nn.Module, predictor.network)
        self.prefix, self.suffix = np.asarray(prefix, np.int64), np.asarray(suffix, np.int64)
        self.cls_sep = tokenizer.has_cls_sep if cls_sep is None else cls_sep
        self.embedding = EmbeddingSettings() if embedding is None else embedding
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
        return EncodedTexts(Encoded(Sequences.of([self._frame(row) for row in ids])), truncated)

    def spans(self, text: str) -> tuple[EncodedTexts, np.ndarray]:
        """Returns the item of a prepared text, and the characters of each element (T,2); (0, 0) for special tokens."""
        ids, spans = self.tokenizer.encode_spans(text)
        row = self._frame(ids)
        offsets = np.zeros((len(row), 2), np.int64)
        before, count = len(self.prefix) + int(self.cls_sep), len(ids[: self.max_tokens])
        offsets[before : before + count] = spans[:count]
        return EncodedTexts(Encoded(Sequences.of([row])), int(count < len(ids))), offsets

    def _frame(self, ids: np.ndarray) -> np.ndarray:
        ids = ids[: self.max_tokens]
        if self.cls_sep:
            ids = self.tokenizer.frame(ids)
        elif not len(ids) and not len(self.suffix):  # a sequence has at least one element
            ids = np.array([self.tokenizer.eos or 0])
        return np.concatenate([self.prefix, ids, self.suffix]).astype(np.int64)

    def batch(self, encoded: Encoded, items: np.ndarray) -> Batch:
        """Returns a batch of items."""
        inputs, mask = encoded.inputs.padded(items)
        return Batch(torch.from_numpy(inputs), None, len(items), padding_mask(mask))

    def hidden_states(self, encoded: Encoded, items: np.ndarray) -> tuple[Tensor, Tensor | None]:
        """Returns the network's output for every element (n,T,D) of some items, and the mask (n,T)."""
        batch = self.batch(encoded, items).to(device_of(self.network))
        return as_float32(self.predictor.task.hidden_states(self.network, batch)), batch.mask


class Embedder:
    """Returns the vectors of texts, and counts those that were truncated.

    Args:
        reader: Encodes the texts.
        pooling: mean, max, last, or cls if the network reads [CLS] before a text.
        normalize: Whether vectors have length 1.
    """

    def __init__(self, reader: TextReader, pooling: str = "mean", normalize: bool = True) -> None:
        names = get_args(Pooling)
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
        texts = "1 text is" if self.truncated == 1 else f"{self.truncated:,} texts are"
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
            hidden, mask = self.reader.hidden_states(encoded, items)
            pooled = self._pool(hidden[:, skipped:], None if mask is None else mask[:, skipped:])
            return list(unit_vectors(pooled, self.normalize))

        return np.stack(run_batches(encoded.lengths, run, MAX_ELEMENTS))


def unit_vectors(vectors: Tensor, normalize: bool) -> np.ndarray:
    """Returns vectors (n,D) as float32, of length 1 if `normalize`."""
    single = vectors.float()
    return (F.normalize(single, dim=-1, eps=1e-12) if normalize else single).cpu().numpy()


# Words in context


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
        hidden = reader.hidden_states(encoded.encoded, np.array([0]))[0][0]
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
        listed = "; ".join(f'"{text[:60]}"' for text in missing[:MAX_LISTED])
        more = f" and in {len(missing) - MAX_LISTED:,} more" if len(missing) > MAX_LISTED else ""
        raise SeriatimError("embed.word", f'"{word}" does not occur in {listed}{more}', "pass texts that have the word")
    return spans


def fragment(text: str, first: int, last: int, side: int, marked: bool) -> str:
    """Returns a span of a text with whole words on both sides; in brackets if marked."""
    before, word, after = text[:first], text[first:last], text[last:]
    if len(before) > side:
        before = "… " + before[-side:].partition(" ")[2]
    if len(after) > side:
        after = after[:side].rpartition(" ")[0] + " …"
    return " ".join(f"{before}{f'[{word}]' if marked else word}{after}".split())


# Capabilities


class EmbedOptions(Settings):
    pooling: Pooling | None = Setting(
        None, description="how the vectors of all elements become one (default: that of a sentence encoder, or mean)"
    )
    normalize: bool | None = Setting(
        None, description="scale vectors to length 1 (default: as a sentence encoder does, or yes)"
    )


class NearestOptions(Settings):
    among: str | list[str] | None = Setting(
        None, description="texts, or a file of texts or vectors, to search (default: the other inputs)"
    )
    top: int = Setting(5, ge=1, le=1_000_000, description="number of neighbors")
    pooling: Pooling | None = Setting(
        None, description="how the vectors of all elements become one (default: that of a sentence encoder, or mean)"
    )


class WordOptions(Settings):
    word: str = Setting(description="the word to look for, in any case")
    normalize: bool = Setting(True, description="scale vectors to length 1")
    strict: bool = Setting(True, description="whether a text without the word is an error")


class EmbeddingPredictor(Predictor):
    """A predictor with embeddings. A subclass implements `text_reader`."""

    def text_reader(self) -> TextReader:
        """Returns the encoder of single texts, or raises `no_vectors`."""
        raise no_vectors(self, "does not read text")

    def element_names(self, encoded: Any, item: int) -> list[str]:
        """Returns the tokens of an item; the first tokenizer of a processor is that of the input."""
        tokenizer = next(iter(self.processor.tokenizers.values()))
        return [tokenizer.token(int(token)) for token in encoded.inputs[item]]

    def embedder(self, pooling: str | None = None, normalize: bool | None = None) -> Embedder:
        """Returns a function from texts to vectors (n,D), for more texts than fit into memory."""
        if not isinstance(self.network, nn.Module):
            raise no_vectors(self, "is not a network and has no vectors")
        reader = self.text_reader()
        pooling = reader.embedding.pooling if pooling is None else pooling
        return Embedder(reader, pooling, reader.embedding.normalize if normalize is None else normalize)

    def word_vectors(self, word: str, texts: Sequence[str], normalize: bool = True, strict: bool = True) -> WordVectors:
        """Returns the vectors of a word in context; see the function `word_vectors`."""
        return word_vectors(self.text_reader(), word, texts, normalize, strict)

    def open_writer(
        self, name: str, options: Settings, path: Path, run: str
    ) -> AbstractContextManager[Callable[[Sequence[Record]], None]] | None:
        if not isinstance(options, EmbedOptions) or path.suffix.lower() not in EXTENSIONS:
            return super().open_writer(name, options, path, run)

        return self.vector_writer(path, options, run)

    @contextmanager
    def vector_writer(
        self, path: Path, options: EmbedOptions, run: str
    ) -> Iterator[Callable[[Sequence[Record]], None]]:
        """Opens a file of vectors whose description names the model, for the records of `embed`."""
        embedder = self.embedder(options.pooling, options.normalize)
        description: dict[str, object] = {"run": run, "model": weights_digest(self.network)}
        description |= {"pooling": embedder.pooling, "normalize": embedder.normalize}
        with VectorWriter(path, embedder.width, description) as writer:
            yield lambda records: writer.write(
                [record["text"] for record in records], np.stack([record["vector"] for record in records])
            )

    @capability(outputs={"vector": NUMBERS, "text": TEXT}, options=EmbedOptions, inputs=TEXTS, scalar=True)
    def embed(self, dataset: Dataset, options: EmbedOptions) -> list[Record]:
        """Compute a vector for each text."""
        embedder = self.embedder(options.pooling, options.normalize)
        records = [
            {"vector": vector, "text": text}
            for block in text_blocks(dataset["text"])
            for vector, text in zip(embedder(block), block, strict=True)
        ]
        if embedder.note:
            self.task.diagnostics.note(embedder.note)
        return records

    @capability(
        outputs={"query": TEXT, "row": NUMBER, "similarity": NUMBER, "text": TEXT},
        options=NearestOptions,
        inputs=TEXTS,
        per_row=False,
    )
    def nearest(self, dataset: Dataset, options: NearestOptions) -> list[Record]:
        """Find the texts most similar to each input, in a file or among the other inputs."""
        queries, among = dataset["text"], options.among
        vectors = open_vectors(among) if isinstance(among, str) else None
        if vectors is not None:
            blocks: TextBlocks = vectors
            embedder = self.embedder(vectors.check_model(weights_digest(self.network), options.pooling))
        else:
            texts = queries if among is None else self.task.read(open_source(among), TEXTS)["text"]
            embedder = self.embedder(options.pooling)
            blocks = ((block, embedder(block)) for block in text_blocks(texts))
        if among is None:
            results = nearest_to_each(blocks, options.top)
        else:
            results = list(zip(queries, nearest(embedder(list(queries)), blocks, options.top), strict=True))
        return [
            {"query": query, "row": neighbor.row, "similarity": neighbor.similarity, "text": neighbor.text}
            for query, neighbors in results
            for neighbor in neighbors
        ]

    @capability(
        outputs={
            "text": TEXT,
            "start": NUMBER,
            "end": NUMBER,
            "tokens": TOKENS,
            "vector": NUMBERS,
            "static_vector": NUMBERS,
        },
        options=WordOptions,
        inputs=TEXTS,
        per_row=False,
    )
    def words(self, dataset: Dataset, options: WordOptions) -> list[Record]:
        """Compute the vectors of a word wherever it occurs: in its context, and without it."""
        result = self.word_vectors(options.word, list(dataset["text"]), options.normalize, options.strict)
        rows = zip(result.sentences, result.spans, result.tokens, result.contextual, result.static, strict=True)
        return [
            {"text": text, "start": first, "end": last, "tokens": tokens, "vector": vector, "static_vector": static}
            for text, (first, last), tokens, vector, static in rows
        ]

    def charts(self, name: str, dataset: Dataset, options: Settings, predictions: Sequence[Record]) -> list[View]:
        if isinstance(options, WordOptions):
            labels = [str(record["text"])[:MAX_LABEL] for record in predictions]
            vectors = {"in context": "vector", "without context": "static_vector"}
            return [
                Scatter.of_vectors(
                    np.stack([record[key] for record in predictions]), labels, title=f"{options.word}, {title}"
                )
                for title, key in vectors.items()
            ]
        if isinstance(options, EmbedOptions):
            return embedding_charts(
                [str(record["text"]) for record in predictions], np.stack([record["vector"] for record in predictions])
            )
        return super().charts(name, dataset, options, predictions)


def text_blocks(texts: Iterable[str]) -> Iterator[list[str]]:
    """Yields texts, `BLOCK_TEXTS` at a time."""
    remaining = iter(texts)
    while block := list(islice(remaining, BLOCK_TEXTS)):
        yield block
