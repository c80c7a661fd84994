"""Text as documents, sentences and tokens, and pairs of passages from it: [CLS] a [SEP] b [SEP].

Documents are divided into spans of as many sentences as fit. An epoch visits each span once; each time it is drawn
where the span begins (up to a span earlier, so that the borders move), where a ends, and whether b is what follows or,
half of the time, begins at a random sentence of another document.

Only the meaning distinguishes the two cases: both are filled in the same way, no sentence is cut at the end of a pair
(one that is too long counts as several from the start), and b never begins with the first sentence of a document.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Self, cast

import numpy as np

from ...core.errors import Diagnostics, SeriatimError
from ...core.files import cache_folder
from ...data.cache import make_once
from ...data.dataset import Dataset
from ...data.disk import TextValues, cache_key
from ...data.documents import UNKNOWN, TextLayout, document_ends
from ...data.sequences import Sequences
from ...data.tokenizers import Tokenizer, TokenizerSettings
from ...embedding.reader import EmbeddingDefaults
from ..codecs import TRAINING_CHARACTERS, train_tokenizer
from ..processor import Processor, Stored, Tokenizers, Values
from ..spec import TaskConfig
from ..values import Encoded
from .spec import BERT_TOKENIZER, PretrainSettings

DOCUMENT_SENTENCES = 32  # of a document, if a data set is a single one
ENCODED_CHARACTERS = 1 << 18  # at a time
VERSION = 2  # of the files


# Passages


@dataclass(frozen=True)
class EncodedDocuments:
    """The tokens of all sentences of a data set, in memory or mapped from disk."""

    tokens: np.ndarray  # (T,) the sentences one after another
    sentences: np.ndarray  # (S,) the end of each, in tokens
    documents: np.ndarray  # (N,) the end of each, in sentences

    @classmethod
    def encode(cls, dataset: Dataset, layout: TextLayout, tokenizer: Tokenizer) -> EncodedDocuments:
        """Encodes the documents of a data set; those of one on disk are written to the cache once."""
        texts, ends = dataset["text"], document_ends(dataset)
        documents = layout.documents(texts, ends.tolist())
        dtype = "<u2" if tokenizer.vocab_size <= 1 << 16 else "<u4"
        if not isinstance(texts, TextValues):
            groups = list(encode_groups(documents, tokenizer))
            empty = np.zeros(0, np.int64)
            tokens, lengths, counts = (np.concatenate([empty, *(group[part] for group in groups)]) for part in range(3))
            return cls(tokens.astype(dtype), np.cumsum(lengths), np.cumsum(counts))
        content = hashlib.sha256(texts.hashes().tobytes() + ends.tobytes() + tokenizer.to_json().encode()).hexdigest()
        key = cache_key(VERSION, "documents", content, [layout.separate, layout.titled, layout.wrapped])

        def write(folder: Path) -> None:
            with (
                (folder / "tokens").open("wb") as tokens,
                (folder / "lengths").open("wb") as lengths,
                (folder / "counts").open("wb") as counts,
            ):
                for ids, sentence_lengths, sentence_counts in encode_groups(documents, tokenizer):
                    ids.astype(dtype).tofile(tokens)
                    sentence_lengths.astype("<i4").tofile(lengths)
                    sentence_counts.astype("<i4").tofile(counts)

        folder = make_once(cache_folder("documents") / key, write)
        lengths, counts = (np.fromfile(folder / name, "<i4") for name in ("lengths", "counts"))
        tokens = np.memmap(folder / "tokens", dtype, "r") if len(lengths) else np.zeros(0, dtype)
        return cls(tokens, np.cumsum(lengths, dtype=np.int64), np.cumsum(counts, dtype=np.int64))


def encode_groups(
    documents: Iterator[list[str]], tokenizer: Tokenizer
) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Yields tokens, the length of each sentence in tokens and of each document in sentences, some documents at a time.

    Sentences and documents without a token are left out.
    """
    unknown = UNKNOWN if tokenizer.unk is None else tokenizer.names[tokenizer.unk]
    blank = (
        " " if tokenizer.kind == "byte-bpe" else ""
    )  # which belongs to the first word of all sentences but the first

    def encode(group: Sequence[list[str]]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        texts = [
            (blank if number else "") + sentence.replace(UNKNOWN, unknown)
            for sentences in group
            for number, sentence in enumerate(sentences)
        ]
        ids = tokenizer.encode_many(texts, strict=False)
        lengths = np.array([len(row) for row in ids], dtype=np.int64)
        starts = np.cumsum([0, *(len(sentences) for sentences in group[:-1])])
        counts = np.add.reduceat(lengths > 0, starts, dtype=np.int64)
        return np.concatenate(ids), lengths[lengths > 0], counts[counts > 0]

    group: list[list[str]] = []
    size = 0
    for sentences in documents:
        group.append(sentences)
        size += sum(len(sentence) for sentence in sentences)
        if size >= ENCODED_CHARACTERS:
            yield encode(group)
            group, size = [], 0
    if group:
        yield encode(group)


@dataclass(frozen=True)
class PassageBatch:
    """Passages or pairs of passages, padded."""

    tokens: np.ndarray  # (B,T)
    lengths: np.ndarray  # (B,)
    text: np.ndarray  # (B,T) True for tokens of a text, False for its frame and padding
    unrelated: np.ndarray  # (B,) 0 if b follows a, 1 if it is from another document


class Passages:
    """The spans of a split, from which passages are drawn.

    Args:
        documents: The encoded documents.
        tokenizer: With [CLS] and [SEP].
        length: The length of a sequence, special tokens included.
        paired: Whether passages are drawn in pairs.
        name: Of the split, for errors.
    """

    def __init__(
        self, documents: EncodedDocuments, tokenizer: Tokenizer, length: int, paired: bool, name: str = "training"
    ) -> None:
        self.tokens, self.paired = documents.tokens, paired
        self.frame = tokenizer.cls or 0, tokenizer.sep or 0, tokenizer.pad or 0
        self.separators = tokenizer.separators  # between the texts of a pair
        self.capacity = length - (2 + self.separators if paired else 2)  # tokens of texts in a sequence
        if len(documents.sentences) < 2:
            raise too_short(f"the {name} split has {len(documents.sentences)} sentences")
        self.ends, ends = divide_sentences(documents, self.capacity // 2 if paired else self.capacity)
        self.starts = np.concatenate([[0], self.ends[:-1]])
        if paired and len(ends) == 1:
            ends = divide_document(len(self.ends))
        sizes = np.diff(ends, prepend=0)
        used = np.flatnonzero(sizes >= (2 if paired else 1))
        self.left_out = len(ends) - len(used)  # documents of a single sentence, which nothing follows
        if len(used) < (2 if paired else 1):
            raise too_short(f"the {name} split has {len(used)} documents of two sentences or more; pairs need several")
        self.document_ends = ends
        self.document = np.repeat(np.arange(len(ends), dtype=np.int32), sizes)  # (S,)
        fits = np.minimum(np.searchsorted(self.ends, self.starts + self.capacity, "right"), ends[self.document])
        self.fits = fits.astype(np.int32)  # (S,) the first sentence that does not fit after this one
        self.first = span_starts(ends[used] - sizes[used], self.fits, ends[used])  # (spans,) sentences
        count = self.fits[self.first] - self.first
        begins_document = np.concatenate([[True], np.diff(self.document[self.first]) > 0])
        self.max_shift = np.where(begins_document, 0, np.concatenate([[1], count[:-1]]) - 1)
        self.min_shift = (count == 1).astype(np.int64) if paired else np.zeros_like(count)
        lengths = self.ends[self.first + count - 1] - self.starts[self.first] + length - self.capacity
        self.inputs = Sequences(np.zeros(0, np.int64), np.cumsum(lengths))  # lengths only: the tokens are drawn
        # Sentences that follow another one, document by document: b may begin with them.
        begins = np.concatenate([[True], np.diff(self.document) > 0])
        self.followers = np.flatnonzero(~begins).astype(np.int32)
        self.followers_from = np.searchsorted(self.followers, ends - sizes)
        self.followers_until = np.searchsorted(self.followers, ends)

    def __len__(self) -> int:
        return len(self.first)

    def draw(self, spans: np.ndarray, random: np.random.Generator) -> PassageBatch:
        """Returns a passage, or a pair of them, of each span."""
        first = self.first[spans] - random.integers(self.min_shift[spans], self.max_shift[spans] + 1)
        start = self.starts[first]
        if not self.paired:
            size = self.ends[self.fits[first] - 1] - start
            return self._framed(start, size, start, np.zeros_like(size), np.zeros_like(size))
        cut = random.integers(first + 1, self.fits[first])
        unrelated = random.integers(0, 2, len(spans))
        second = np.where(unrelated, self.draw_followers(self.document[first], random), cut)
        # At least the first sentence of b must fit, so a may have to end earlier.
        opening = self.ends[second] - self.starts[second]
        latest = np.searchsorted(self.ends, start + self.capacity - opening, "right")
        cut = np.where(unrelated, np.minimum(cut, latest), cut)
        size = self.ends[cut - 1] - start
        second_start = self.starts[second]
        last = np.searchsorted(self.ends, second_start + self.capacity - size, "right")
        last = np.minimum(last, self.document_ends[self.document[second]])
        return self._framed(start, size, second_start, self.ends[last - 1] - second_start, unrelated)

    def draw_followers(self, document: np.ndarray, random: np.random.Generator) -> np.ndarray:
        """Returns a sentence of another document than each of `document` (B,), all equally likely."""
        begin, end = self.followers_from[document], self.followers_until[document]
        position = random.integers(0, len(self.followers) - (end - begin))
        return self.followers[position + np.where(position >= begin, end - begin, 0)]

    def _framed(
        self, start: np.ndarray, size: np.ndarray, second: np.ndarray, second_size: np.ndarray, unrelated: np.ndarray
    ) -> PassageBatch:
        """Returns [CLS], `size` tokens from `start` on and [SEP]; of pairs also those from `second` on and [SEP]."""
        cls, sep, pad = self.frame
        second_at = size + 1 + self.separators if self.paired else size  # position of b
        lengths = second_at + second_size + (1 if self.paired else 2)
        steps = np.arange(int(lengths.max()))
        in_first = (steps >= 1) & (steps <= size[:, None])
        in_second = (steps >= second_at[:, None]) & (steps < (second_at + second_size)[:, None])
        text = in_first | in_second if self.paired else in_first
        positions = np.where(in_first, start[:, None] - 1, (second - second_at)[:, None]) + steps
        tokens = self.tokens[np.where(text, positions, 0)].astype(np.int64)
        tokens[~text] = pad
        tokens[:, 0] = cls
        rows = np.arange(len(size))
        for position in range(self.separators if self.paired else 1):
            tokens[rows, size + 1 + position] = sep
        tokens[rows, lengths - 1] = sep
        return PassageBatch(tokens, lengths, text, unrelated)


def too_short(cause: str) -> SeriatimError:
    return SeriatimError("data.too-short", cause, "add text, or set task.next=false, which needs no pairs")


def divide_sentences(documents: EncodedDocuments, limit: int) -> tuple[np.ndarray, np.ndarray]:
    """Returns the ends of sentences and documents; a sentence of more tokens counts as several of similar length."""
    ends = np.asarray(documents.sentences, dtype=np.int64)
    lengths = np.diff(ends, prepend=0)
    pieces = -(-lengths // limit)
    until = np.cumsum(pieces)
    number = np.arange(1, int(until[-1]) + 1) - np.repeat(until - pieces, pieces)  # 1, 2, … within a sentence
    cuts = np.repeat(ends - lengths, pieces) + number * np.repeat(lengths, pieces) // np.repeat(pieces, pieces)
    return cuts, until[np.asarray(documents.documents, dtype=np.int64) - 1]


def divide_document(sentences: int) -> np.ndarray:
    """Returns the ends of parts of a single document, each of several sentences."""
    size = max(min(DOCUMENT_SENTENCES, sentences // 2), 1)
    ends = np.arange(size, sentences + 1, size)
    ends[-1] = sentences
    return ends


def span_starts(starts: np.ndarray, fits: np.ndarray, ends: np.ndarray) -> np.ndarray:
    """Returns the first sentence of each span, of all documents at the same time."""
    parts = [starts]
    while len(starts):
        continued = fits[starts] < ends
        starts, ends = fits[starts][continued].astype(np.int64), ends[continued]
        parts.append(starts)
    return np.sort(np.concatenate(parts))


# Processor


@dataclass(frozen=True, eq=False, kw_only=True)
class EncodedPassages(Encoded):
    """The spans of a split, or some of them: `inputs` has their lengths only, since passages are drawn from them."""

    passages: Passages
    spans: np.ndarray | None = None  # (items,) of `passages`; None: all of them
    token_counts: np.ndarray | None = None  # (V,) in the training split, 0 for special tokens; see `PretrainTask.link`

    def take(self, items: np.ndarray) -> Self:
        return replace(super().take(items), spans=self.numbers[items])

    @property
    def numbers(self) -> np.ndarray:
        """The spans (items,), by their numbers in `passages`."""
        return np.arange(len(self.passages)) if self.spans is None else self.spans


@dataclass(frozen=True)
class EmbeddingSettings(EmbeddingDefaults, Stored):
    """How a sentence encoder embeds texts, stored with its processor."""


@dataclass(frozen=True)
class PretrainProcessor(Processor[EncodedPassages]):
    """Divides text into documents, sentences and tokens."""

    version = 2

    tokenizer: Tokenizer
    max_length: int
    paired: bool = True
    titled: bool = False  # see `TextLayout`
    wrapped: bool = False
    embedding: EmbeddingSettings = field(default_factory=EmbeddingSettings)

    @classmethod
    def fit(cls, train: Dataset, config: TaskConfig[Any], pretrained: Tokenizers, diagnostics: Diagnostics) -> Self:
        settings: PretrainSettings = config.task
        if not (settings.masked or settings.next):
            cause = "with neither task.masked nor task.next there is nothing to train or evaluate"
            raise SeriatimError("task.heads", cause, "set one of them; for another task start from this run: --from")
        layout = TextLayout.detect(train)
        diagnostics.note(layout.describe())
        tokenizer = pretrained.get("tokenizer")
        if tokenizer is None:
            characters = int(train.columns["text"][0].lengths.sum(dtype=np.int64))
            every = -(-characters // TRAINING_CHARACTERS)
            documents = layout.documents(train["text"], document_ends(train).tolist())
            sampled = (sentences for number, sentences in enumerate(documents) if number % every == 0)
            texts = (" ".join(sentences).replace(UNKNOWN, " ") + "\n" for sentences in sampled)
            chosen = settings.tokenizer or TokenizerSettings(**cast(Any, BERT_TOKENIZER))
            tokenizer = train_tokenizer(chosen, texts, diagnostics)
        needed = {"cls": "[CLS]", "sep": "[SEP]"} | ({"mask": "[MASK]"} if settings.masked else {})
        missing = [name for use, name in needed.items() if getattr(tokenizer, use) is None]
        if missing:
            cause = f"the {tokenizer.kind} tokenizer has no {', no '.join(missing)}"
            raise SeriatimError("tokenizer.special", cause, "omit --tokenizer, or name bert")
        return cls(tokenizer, settings.context_length, settings.next, layout.titled, layout.wrapped)

    @classmethod
    def from_pretrained(
        cls, tokenizers: Tokenizers, max_length: int, labels: tuple[str, ...] = (), config: Values | None = None
    ) -> Self:
        embedding = EmbeddingSettings(**(config or {}).get("sentence_embedding", {}))
        return cls(tokenizers["tokenizer"], max_length, embedding=embedding)

    def encode(self, dataset: Dataset, diagnostics: Diagnostics, split: str = "training") -> EncodedPassages:
        """Returns the spans of a data set, from which passages are drawn; `split` is its name in messages."""
        separate = bool(document_ends(dataset).any())
        layout = TextLayout(separate, self.titled, self.wrapped)
        documents = EncodedDocuments.encode(dataset, layout, self.tokenizer)
        tokens = documents.tokens
        unknown = 0 if self.tokenizer.unk is None else int(np.count_nonzero(tokens == self.tokenizer.unk))
        share = f", {100 * unknown / len(tokens):.2g} % of them unknown" if unknown else ""
        counts = f"{len(documents.documents):,} documents, {len(documents.sentences):,} sentences"
        diagnostics.note(f"{split}: {counts}, {len(tokens):,} tokens{share}")
        passages = Passages(documents, self.tokenizer, self.max_length, self.paired, split)
        if passages.left_out:
            count = f"{passages.left_out:,} documents of a single sentence"
            diagnostics.note(f"{split}: {count} are left out, since nothing follows it")
        return EncodedPassages(passages.inputs, passages=passages)
