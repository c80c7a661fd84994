"""The data of tagging: sentences with a tag per word, and their encoding as sub-words and characters.

A word is read as one token or several. Its tag is predicted at the first of them, so that words and tags stay aligned
with every tokenizer. A sequence longer than the model reads is cut into windows that overlap by half; each word is
tagged once, in the window where it is nearest to the middle. With a tokenizer that has [CLS] and [SEP], every window
stands between them.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, Self

import numpy as np

from ...core import limits
from ...core.errors import Diagnostics, SeriatimError
from ...core.text import listed, plural
from ...data.dataset import Dataset
from ...data.entities import is_valid, parse_tag, recognize_scheme, repair_tags
from ...data.sequences import Sequences
from ...data.tokenizers import WORD_KINDS, WORD_PATTERN, Tokenizer, TokenizerSettings
from ...nn.layers import BEGIN, END, PADDING, UNKNOWN
from ..codecs import model_tokenizer, train_tokenizer
from ..processor import Processor, Tokenizers, Values
from ..spec import TaskConfig
from ..values import Encoded
from .spec import (
    WORD_TOKENIZER,
    TagSettings,
)

CHARACTER_FEATURES = 64  # the default for words
MANY_SENTENCES = 1_000  # from which on words that occur once are read as unknown
MAX_CHARACTERS = 32  # of a word; of a longer one the first and the last are read
FIRST_CHARACTER = 1 + max(PADDING, UNKNOWN, BEGIN, END)  # the id of the first character of the alphabet
MAX_LISTED = 20  # tags in a note
UNSEEN = -2  # the target of a word whose tag is not known, or does not occur in the training split
GENERATED = ("copy",)  # built-in sets of symbols
SCHEME_TITLES = {"bio": "BIO", "iob1": "IOB1", "iobes": "IOBES", "bilou": "BILOU"}


# Tags that mark entities


def choose_scheme(setting: str, train: Dataset, diagnostics: Diagnostics) -> str:
    """Returns how the tags of the training split mark entities, as the setting says or as recognized."""
    if setting != "auto":
        return setting
    scheme = recognize_scheme(train["tags"])
    if scheme != "none":
        diagnostics.note(f"the tags mark entities, as {SCHEME_TITLES[scheme]}")
    elif any(tag.startswith(("B-", "I-")) for tags in train["tags"] for tag in tags):
        row, word = next(
            (row, word)
            for row, tags in enumerate(train["tags"])
            for word, tag in enumerate(tags)
            if parse_tag(tag) is None
        )
        diagnostics.note(
            f'{train.locations[row].element(word)}: "{train["tags"][row][word]}" marks no entity, though there are B- '
            "and I- tags: they are read as tags of single words (task.scheme)"
        )
    return scheme


def repair_dataset(dataset: Dataset, scheme: str, diagnostics: Diagnostics) -> list[list[str]]:
    """Returns the tags of each sentence in well-formed BIO, IOBES or BILOU; each kind of change is noted once.

    Args:
        dataset: The sentences.
        scheme: Of the model; "none" changes nothing.
        diagnostics: Receives the notes, and each tag that cannot occur in the scheme as a problem.
    """
    if scheme == "none":
        return [list(tags) for tags in dataset["tags"]]
    title = SCHEME_TITLES[scheme]
    repaired: list[list[str]] = []
    changes: dict[tuple[str, str], list[tuple[int, int]]] = {}
    for row, tags in enumerate(dataset["tags"]):
        for word, tag in enumerate(tags):
            if not is_valid(tag, scheme):
                cause = f'{dataset.locations[row].element(word)}: "{tag}" is not a tag of {title}'
                diagnostics.report("data.scheme", cause, "correct it, or set task.scheme=none: tags of single words")
        repaired.append(repair_tags(tags, scheme))
        for word, (old, new) in enumerate(zip(tags, repaired[-1], strict=True)):
            if old != new:
                changes.setdefault((old, new), []).append((row, word))
    if changes and recognize_scheme(dataset["tags"]) == "iob1":
        count = sum(map(len, changes.values()))
        diagnostics.note(f"{dataset.name}: {count:,} tags of IOB1 are written as BIO: I- that begins an entity as B-")
        return repaired
    for (old, new), positions in sorted(changes.items(), key=lambda change: -len(change[1])):
        reason = "without a B- before" if old[:1] == "I" and new[:1] == "B" else f"against the rules of {title}"
        subject = f"tag {old}" if len(positions) == 1 else f"{len(positions):,} tags {old}"
        row, word = positions[0]
        location = f"{dataset.locations[row].element(word)}{' and others' * (len(positions) > 1)}"
        diagnostics.note(f"{subject} {reason}: read as {new} ({location})")
    return repaired


# Encoding


@dataclass(frozen=True, eq=False, kw_only=True)
class TagEncoded(Encoded):
    """Windows of sentences, mostly whole ones; an element is a token."""

    inputs: Sequences
    targets: np.ndarray | None = None  # (words,) the tag of every word; None at prediction
    tagged_words: np.ndarray  # (elements,) the word that is tagged at an element, −1 at the others
    word_forms: np.ndarray  # (words,) the index of each word among the distinct ones
    element_forms: np.ndarray  # (elements,) the distinct word an element belongs to
    forms: list[str]  # (distinct,)
    characters: np.ndarray  # (distinct,L) the character ids of distinct words
    ends: np.ndarray  # (sentences,) the end of each sentence among the words
    references: list[list[str]] | None = None  # tags of each sentence, well-formed; None at prediction
    known: frozenset[str] | None = None  # the words of the training split; None if it is not there

    @property
    def bounds(self) -> list[tuple[int, int]]:
        """The first word and the end of each sentence."""
        return list(pairwise([0, *self.ends.tolist()]))

    def item_words(self, items: np.ndarray) -> np.ndarray:
        """Returns the words that are tagged in these items, in the order of `unbatch`."""
        words = Sequences(self.tagged_words, self.inputs.ends).take(items).values
        return words[words >= 0]

    def cut_sides(self, words: np.ndarray) -> np.ndarray:
        """Returns whether items begin, and whether they end, inside of their sentence (n,2).

        Args:
            words: The words that are tagged in each item (n,T), −1 where there is none.
        """
        first = np.where(words >= 0, words, len(self.word_forms)).min(axis=1, initial=len(self.word_forms))
        last = words.max(axis=1, initial=-1)
        starts = np.concatenate([[0], self.ends])
        return np.stack([~np.isin(first, starts), ~np.isin(last + 1, starts)], axis=1)

    @property
    def labels(self) -> np.ndarray:
        """The tag of every word, which must be there."""
        if self.targets is None:
            raise SeriatimError("data.target", "there are no tags to compare with", "pass data with tags")
        return self.targets

    def target_numbers(self, items: np.ndarray) -> np.ndarray:
        """Returns the number of each target of these items: of each word."""
        return self.item_words(items)

    def locate(self, word: int) -> tuple[int, int]:
        """Returns the sentence of a word and its position there."""
        sentence = int(np.searchsorted(self.ends, word, side="right"))
        return sentence, word - (int(self.ends[sentence - 1]) if sentence else 0)


@dataclass(frozen=True)
class TagProcessor(Processor[TagEncoded]):
    tags: tuple[str, ...]
    scheme: str = "none"  # how tags mark entities; IOB1 is rewritten as BIO
    tokenizer: Tokenizer | None = None  # None: elements are `symbols`
    symbols: tuple[str, ...] = ()
    alphabet: str = ""
    character_features: int = 0
    longest: int = 1  # elements of the longest training window
    max_length: int | None = None  # elements of a window at most
    split_punctuation: bool = True  # of text; False if the training data has text split at blanks

    @property
    def outputs(self) -> tuple[str, ...]:
        return self.tags

    @classmethod
    def fit(cls, train: Dataset, config: TaskConfig[Any], pretrained: Tokenizers, diagnostics: Diagnostics) -> Self:
        settings: TagSettings = config.task
        if config.model.traits.directions == 2:
            diagnostics.note(f"{config.model.name} reads in both directions (model.bidirectional)")
        scheme = choose_scheme(settings.scheme, train, diagnostics)
        repaired = repair_dataset(train, scheme, Diagnostics())  # encoding notes and reports
        counts = Counter(tag for tags in repaired for tag in tags)
        if len(counts) < 2:
            cause = f'every word of the training split has the tag "{next(iter(counts), "")}"'
            raise SeriatimError("data.one-tag", cause, "check the column of the tags: data.columns.tags=NAME")
        limits.LABELS.check(len(counts), train.name)
        is_text = any(isinstance(cell, str) for cell in train["tokens"])
        processor = cls(tuple(sorted(counts)), "bio" if scheme == "iob1" else scheme, split_punctuation=not is_text)
        sentences = [processor.split_words(cell)[0] for cell in train["tokens"]]
        if config.data.source.partition(":")[0] in GENERATED:
            symbols = tuple(sorted({word for words in sentences for word in words}))
            tags = tuple(sorted({*processor.tags, *symbols}))  # any symbol may be asked for
            processor = replace(processor, tags=tags, symbols=symbols)
        else:
            tokenizer = pretrained.get("tokenizer")
            if tokenizer is None:
                tokenizer = fit_word_tokenizer(sentences, config, diagnostics)
            features = settings.character_features
            if tokenizer.has_cls_sep and features:
                cause = "BERT's tokenizer gives sub-words, which have no character features"
                raise SeriatimError("task.characters", cause, "omit task.character_features, or the tokenizer")
            if features is None:
                features = CHARACTER_FEATURES if tokenizer.kind == "word" else 0
            processor = replace(
                processor, tokenizer=tokenizer, alphabet=find_alphabet(sentences), character_features=features
            )
        diagnostics.note(
            f"{plural(len(counts), 'tag')}: {listed([tag for tag, _ in counts.most_common()], MAX_LISTED)}"
        )
        longest = int(processor.encode_words(sentences).inputs.lengths.max(initial=1)) + 2 * processor.framed
        max_length = config.model.traits.max_length(settings.context_length, longest)
        if max_length is not None and max_length <= 2 * processor.framed:
            cause = f"a window of {max_length} has no room for a word between [CLS] and [SEP]"
            raise SeriatimError("task.length", cause, "raise --context-length")
        return replace(processor, longest=min(longest, max_length or longest), max_length=max_length)

    @classmethod
    def from_pretrained(
        cls, tokenizers: Tokenizers, max_length: int, labels: tuple[str, ...] = (), config: Values | None = None
    ) -> Self:
        scheme = recognize_scheme([labels])
        return cls(labels, scheme, tokenizers["tokenizer"], longest=max_length, max_length=max_length)

    @property
    def framed(self) -> bool:
        """Whether every window stands between [CLS] and [SEP]."""
        return self.tokenizer is not None and self.tokenizer.has_cls_sep

    @property
    def character_count(self) -> int:
        """The number of character ids, special ones included."""
        return FIRST_CHARACTER + len(self.alphabet)

    def split_words(self, cell: str | Sequence[str]) -> tuple[list[str], list[tuple[int, int]]]:
        """Returns the words of a sentence, and the characters of each if it is a text: start and end."""
        if not isinstance(cell, str):
            return list(cell), []
        pattern = WORD_PATTERN if self.split_punctuation and self.tokenizer is not None else r"\S+"
        matches = list(re.finditer(pattern, cell))
        return [match.group() for match in matches], [match.span() for match in matches]

    def encode(self, dataset: Dataset, diagnostics: Diagnostics) -> TagEncoded:
        sentences = [self.split_words(cell)[0] for cell in dataset["tokens"]]
        symbols = (word for words in sentences for word in words) if self.tokenizer is None else ()
        unknown = next((symbol for symbol in symbols if symbol not in self.symbols), None)
        if unknown is not None:
            cause = f'the model does not know the symbol "{unknown}"'
            raise SeriatimError("data.symbol", cause, f"use {listed(self.symbols, MAX_LISTED)}")
        encoded = self.cut_windows(self.encode_words(sentences))
        if "tags" not in dataset:
            return encoded
        references = repair_dataset(dataset, self.scheme, diagnostics)
        ids = {tag: index for index, tag in enumerate(self.tags)}
        targets = np.array([ids.get(tag, UNSEEN) for tags in references for tag in tags], dtype=np.int64)
        return replace(encoded, targets=targets, references=references)

    def encode_words(self, sentences: Sequence[Sequence[str]]) -> TagEncoded:
        """Returns whole sentences, an item each, without [CLS] and [SEP]."""
        indices: dict[str, int] = {}
        word_forms = np.array(
            [indices.setdefault(word, len(indices)) for words in sentences for word in words], dtype=np.int64
        )
        forms = list(indices)
        tokens = self._encode_forms(forms)
        counts = tokens.lengths[word_forms]
        last = np.cumsum(counts, dtype=np.int64)
        tagged_words = np.full(int(counts.sum()), -1, dtype=np.int64)
        tagged_words[last - counts] = np.arange(len(word_forms))
        ends = np.cumsum([len(words) for words in sentences], dtype=np.int64)
        return TagEncoded(
            inputs=Sequences(tokens.take(word_forms).values, np.concatenate([[0], last])[ends].astype(np.int64)),
            rows=np.arange(len(sentences)),
            tagged_words=tagged_words,
            word_forms=word_forms,
            element_forms=np.repeat(word_forms, counts),
            forms=forms,
            characters=self._encode_characters(forms if self.character_features else []),
            ends=ends,
        )

    def _encode_forms(self, forms: list[str]) -> Sequences:
        """Returns the tokens of distinct words as they have them in running text, at least one each."""
        if self.tokenizer is None:
            return Sequences.of([[self.symbols.index(form)] for form in forms])
        unknown = np.array([0 if self.tokenizer.unk is None else self.tokenizer.unk])
        texts = [as_in_text(form, self.tokenizer.kind) for form in forms]
        encoded = self.tokenizer.encode_many(texts, strict=False)
        return Sequences.of([ids if len(ids) else unknown for ids in encoded])

    def _encode_characters(self, forms: list[str]) -> np.ndarray:
        """Returns the character ids of distinct words (distinct,L) between the marks of beginning and end."""
        ids = {character: index for index, character in enumerate(self.alphabet, FIRST_CHARACTER)}
        half = MAX_CHARACTERS // 2
        cut = [form if len(form) <= MAX_CHARACTERS else form[:half] + form[-half:] for form in forms]
        characters = np.full((len(cut), 2 + max(map(len, cut), default=1)), PADDING, dtype=np.int64)
        for row, form in zip(characters, cut, strict=True):
            row[: len(form) + 2] = [BEGIN, *(ids.get(character, UNKNOWN) for character in form), END]
        return characters

    def cut_windows(self, encoded: TagEncoded) -> TagEncoded:
        """Returns sentences as the model reads them: in windows if they are too long, between [CLS] and [SEP] if it has
        them. Windows in which no word is tagged are left out."""
        size = None if self.max_length is None else self.max_length - 2 * self.framed
        sequences = encoded.inputs
        windows = np.array(
            [
                (row, start + first, length, *owned)
                for row, (first, total) in enumerate(zip(sequences.starts, sequences.lengths, strict=True))
                for start, length, *owned in overlapping_windows(int(total), size or int(total))
            ],
            dtype=np.int64,
        ).reshape(-1, 5)
        rows, starts, lengths, owned_start, owned_end = windows.T
        offsets = np.cumsum(lengths) - lengths
        inside = np.arange(int(lengths.sum())) - np.repeat(offsets, lengths)  # the position in the window
        positions = inside + np.repeat(starts, lengths)
        owned = (inside >= np.repeat(owned_start, lengths)) & (inside < np.repeat(owned_end, lengths))
        tagged_words = np.where(owned, encoded.tagged_words[positions], -1)
        item = np.repeat(np.arange(len(rows)), lengths)
        used = np.bincount(item[tagged_words >= 0], minlength=len(rows)) > 0
        selected = used[item]
        cut = replace(
            encoded,
            inputs=Sequences(sequences.values[positions[selected]], np.cumsum(lengths[used])),
            rows=encoded.rows[rows[used]] if encoded.rows is not None else rows[used],
            tagged_words=tagged_words[selected],
            element_forms=encoded.element_forms[positions[selected]],
        )
        return self._frame(cut, self.tokenizer) if self.tokenizer is not None and self.framed else cut

    @staticmethod
    def _frame(encoded: TagEncoded, tokenizer: Tokenizer) -> TagEncoded:
        """Returns every item between [CLS] and [SEP]."""
        sequences = encoded.inputs
        positions = np.stack([sequences.starts, sequences.ends], axis=1).ravel()
        values = np.insert(sequences.values, positions, np.tile(tokenizer.frame([]), len(sequences)))
        return replace(
            encoded,
            inputs=Sequences(values, sequences.ends + 2 * np.arange(1, len(sequences) + 1)),
            tagged_words=np.insert(encoded.tagged_words, positions, -1),
            element_forms=np.insert(encoded.element_forms, positions, 0),
        )


def as_in_text(word: str, kind: str) -> str:
    """Returns a word as tokenizers that keep blanks meet it in running text."""
    return word if kind in (*WORD_KINDS, "other") else f" {word}"


def fit_word_tokenizer(
    sentences: Sequence[Sequence[str]], config: TaskConfig[Any], diagnostics: Diagnostics
) -> Tokenizer:
    """Returns the tokenizer of the settings, the one the model declares, or one of words in lower case."""
    texts = [" ".join(words) for words in sentences]
    settings: TokenizerSettings | None = config.task.tokenizer
    if settings is None and not config.task.character_features:  # character features need words
        settings = model_tokenizer(config.model, texts)
    if settings is None:
        min_count = 2 if len(sentences) >= MANY_SENTENCES else 1
        settings = TokenizerSettings.model_validate(WORD_TOKENIZER | {"min_count": min_count})
    if settings.kind in ("word", "wordpiece"):  # the words are split already
        settings = settings.model_copy(update={"split_punctuation": False})
    end = "" if settings.kind == "char" else "\n"  # separates the last word of a sentence from the next sentence
    return train_tokenizer(settings, (as_in_text(text, settings.kind) + end for text in texts), diagnostics)


def find_alphabet(sentences: Iterable[Sequence[str]], min_count: int = 2) -> str:
    """Returns the characters of the words; rare ones are left out, so that the unknown character is trained, too."""
    counts = Counter[str]()
    for word, count in Counter(word for words in sentences for word in words).items():
        for character in word:
            counts[character] += count
    return "".join(sorted(character for character, count in counts.items() if count >= min_count))


def overlapping_windows(length: int, size: int) -> list[tuple[int, int, int, int]]:
    """Returns windows over `length` elements: start, length, and the part (start, end) in which words are tagged.

    They overlap by half, and the last one ends with the sequence; each element belongs to the window in which it is
    nearer to the middle.
    """
    if length <= size:
        return [(0, length, 0, length)]
    starts = [*range(0, length - size, max(size // 2, 1)), length - size]
    middles = [(after + before + size) // 2 for before, after in pairwise(starts)]
    bounds = [0, *middles, length]
    return [(start, size, bounds[i] - start, bounds[i + 1] - start) for i, start in enumerate(starts)]
