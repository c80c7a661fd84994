"""Pairs of texts: the columns of source and target, normalization, splits by the source, and a translation memory."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from ...core.errors import Diagnostics, SeriatimError
from ...core.text import UNSPACED, plural
from ...data.dataset import Dataset
from ...data.disk import TextValues
from ...data.kinds import TEXT, Cell
from ...data.schema import Field, Header, Roles, Schema
from ...data.split import Grouped
from ..codecs import normalize_text, text_key

SIDES = ("source", "target")
NAME_PAIRS = (  # usual names of the columns of source and target
    ("source", "target"),
    ("src", "tgt"),
    ("src", "trg"),
    ("input", "output"),
    ("question", "answer"),
    ("original", "translation"),
    ("sentence", "translation"),
    ("text", "translation"),
)
_CODES = (
    "af am ar az be bg bn bs ca cs cy da de el en eo es et eu fa fi fr ga gl gu he hi hr hu hy id is it ja ka kk km kn "
    "ko ky la lb lo lt lv mk ml mn mr ms mt my nb ne nl nn no pa pl ps pt ro ru si sk sl so sq sr sv sw ta te tg th tk "
    "tl tr uk ur uz vi yi zh zu"
)
_NAMES = (
    "arabic bulgarian catalan chinese croatian czech danish dutch english esperanto estonian finnish french german "
    "greek hebrew hindi hungarian icelandic indonesian irish italian japanese korean latin latvian lithuanian "
    "norwegian persian polish portuguese romanian russian serbian slovak slovenian spanish swedish thai turkish "
    "ukrainian vietnamese welsh"
)
LANGUAGE_CODES = frozenset(_CODES.split())
LANGUAGES = frozenset(_NAMES.split())


WORDS = re.compile(r"\w+|[^\w\s]")
COMMON = 0.1  # a word in more than this fraction of the sources is skipped, unless there is no other

# Columns


def is_language(name: str) -> bool:
    """Returns whether a name is a language: `en`, `pt_BR` or `English`, but not `No`, which may be a sentence."""
    name = name.strip().rpartition(".")[2]  # of an object in a cell: translation.en
    match = re.fullmatch(r"([a-z]{2})(?:[-_][A-Za-z]{2,4})?", name)
    return (match is not None and match[1] in LANGUAGE_CODES) or name.lower() in LANGUAGES


def find_sides(names: Sequence[str]) -> tuple[str, str] | None:
    """Returns the columns of source and target by usual names, or None: two languages are taken in their order."""
    lowered = [name.strip().lower() for name in names]
    for source, target in NAME_PAIRS:
        if source in lowered and target in lowered:
            return names[lowered.index(source)], names[lowered.index(target)]
    languages = [name for name in names if "." in name and is_language(name)] or list(names[:2])
    if len(languages) > 1 and languages[0].lower() != languages[1].lower() and all(map(is_language, languages[:2])):
        return languages[0], languages[1]
    return None


def holds_text(cells: Sequence[Cell]) -> bool:
    """Returns whether most cells of a column are texts or empty: the others are reported by line."""
    return 2 * sum(cell is None or isinstance(cell, str) for cell in cells) >= len(cells)


@dataclass(frozen=True)
class PairSchema(Schema):
    """Source and target: by usual names, by languages, or the only two columns of text, in this order.

    Args:
        reverse: Whether the columns are taken in the other order.
    """

    reverse: bool = False

    def is_header(self, cells: Sequence[str]) -> bool | None:
        """Returns whether the first row of a table names its columns; None if only the user's names can tell."""
        return True if find_sides(cells) is not None else None

    @property
    def header_names(self) -> frozenset[str]:
        """None: a single usual name, such as "translation", may be a sentence."""
        return frozenset()

    def has_usual_name(self, role: str, header: Header) -> bool:
        return find_sides(header.columns) is not None or super().has_usual_name(role, header)

    def resolve(self, header: Header, overrides: Mapping[str, str], diagnostics: Diagnostics) -> Roles:
        overrides = dict(overrides)
        open_roles = [role for role in SIDES if role in self.roles and role not in overrides]
        if len(header.columns) > 1 and open_roles:
            taken = {column for names in overrides.values() if names for column in self._parse_override(header, names)}
            texts = [name for name in header.columns if name not in taken and holds_text(header.samples[name])]
            sides = find_sides(header.columns) or ((texts[0], texts[1]) if header.unnamed and len(texts) > 1 else None)
            if sides is None and len(texts) == 2:
                sides = texts[0], texts[1]
            if len(set(SIDES) - overrides.keys()) == 1:  # one is named: the other one is the only other text
                sides = (texts[0], texts[0]) if len(texts) == 1 else None
            if sides is not None:
                by_role = dict(zip(SIDES, reversed(sides) if self.reverse else sides, strict=True))
                overrides |= {role: by_role[role] for role in open_roles}
                if not header.unnamed:
                    diagnostics.note(f"{header.name}: {' → '.join(overrides[r] for r in SIDES if r in overrides)}")
            elif "target" in self.roles and self["target"].required:
                cause = f"{header.name}: which columns are the source and the target? It has: "
                remedy = "name them: data.columns.source=NAME data.columns.target=NAME"
                raise SeriatimError("data.column", cause + ", ".join(header.columns), remedy)
        return super().resolve(header, overrides, diagnostics)


SCHEMA = PairSchema(
    (
        Field("source", (TEXT,), ("src", "input", "question", "original", "sentence")),
        Field("target", (TEXT,), ("tgt", "trg", "output", "answer", "translation"), target=True),
    ),
    positions=SIDES,
)
SCORED = replace(SCHEMA, fields=(SCHEMA["source"], replace(SCHEMA["target"], target=False)))  # both sides are inputs
ALIGNED = replace(
    SCORED, fields=(SCHEMA["source"], replace(SCHEMA["target"], target=False, required=False)), positions=()
)


# Texts


def normalize_columns(rows: Dataset, diagnostics: Diagnostics) -> Dataset:
    """Returns the data set with normalized texts, and notes what was changed. Columns on disk stay as they are."""
    forms = spaces = 0
    for role in SIDES:
        if role not in rows or isinstance(rows[role], TextValues):
            continue
        values = rows[role].copy()
        for row, text in enumerate(values):
            changed = normalize_text(text)
            if changed != text:
                composed = unicodedata.normalize("NFC", text)
                forms, spaces = forms + (composed != text), spaces + (composed != changed)
                values[row] = changed
        column = replace(rows.columns[role][0], values=values)
        rows = replace(rows, columns={**rows.columns, role: (column,)})
    if forms:
        diagnostics.note(f"{plural(forms, 'text')} normalized to Unicode NFC (task.normalize=false keeps them)")
    if spaces:
        diagnostics.note(
            f"{plural(spaces, 'text')}: spaces at the ends, tabs, line ends and runs of spaces became one space"
        )
    return rows


def drop_empty(rows: Dataset, diagnostics: Diagnostics) -> Dataset:
    """Returns the pairs with text on both sides, and notes how many others there were."""
    empty = np.zeros(len(rows), dtype=bool)
    for role in SIDES:
        empty |= rows.columns[role][0].sizes == 0
    if not empty.any():
        return rows
    first = rows.locations[int(empty.argmax())]
    diagnostics.note(f"left out {plural(int(empty.sum()), 'pair')} with an empty side (the first: {first})")
    return rows.take(np.flatnonzero(~empty))


# Splits


def group_sources(dataset: Dataset) -> np.ndarray:
    """Returns a group number per row (rows,): pairs with the same source are in one split."""
    return dataset.group_ids(["source"], text_key)


def hashed_sources(dataset: Dataset, rows: np.ndarray) -> Iterator[tuple[bytes, str]]:
    """Returns what the sources of some rows are hashed by."""
    return ((text_key(source).encode("utf-8", "replace"), "") for source in dataset["source"][rows])


BY_SOURCE = Grouped(
    group_sources,
    "distinct values of source",
    "of the distinct values of source, chosen by a hash",
    hashed_sources,
    at_most=2_000,
)


# The baseline


class TranslationMemory:
    """The baseline of translation: the target of the most similar training source.

    Texts are similar by the words they share, weighted by idf = log(sources / sources with the word): the cosine.
    """

    def __init__(self, sources: Iterable[str], targets: Iterable[str]) -> None:
        first: dict[str, str] = {}
        for source, target in zip(sources, targets, strict=True):
            first.setdefault(source, target)
        self.targets = list(first.values())
        self._numbers: dict[str, int] = {}
        rows, words = [], []
        for row, source in enumerate(first):
            for word in dict.fromkeys(split_words(source)):
                rows.append(row)
                words.append(self._numbers.setdefault(word, len(self._numbers)))
        order = np.argsort(words, kind="stable")
        counts = np.bincount(words, minlength=len(self._numbers))
        self._rows, self._ends = np.asarray(rows, dtype=np.int64)[order], np.cumsum(counts)
        self._idf = np.log((1 + len(first)) / counts) if len(counts) else np.zeros(0)
        squares = (
            np.bincount(rows, weights=self._idf[words] ** 2, minlength=len(first)) if rows else np.ones(len(first))
        )
        self._norms = np.sqrt(np.maximum(squares, 1e-12))

    def nearest_target(self, text: str) -> str:
        """Returns the target of the most similar source; the text itself if no source shares a word with it."""
        known = [self._numbers[word] for word in dict.fromkeys(split_words(text)) if word in self._numbers]
        rows = {number: self._rows[self._ends[number - 1] if number else 0 : self._ends[number]] for number in known}
        rare = [number for number in known if len(rows[number]) <= COMMON * len(self.targets)] or known
        if not rare:
            return text
        scores = np.zeros(len(self.targets))
        for number in rare:
            scores[rows[number]] += self._idf[number] ** 2
        candidates = np.flatnonzero(scores)
        return self.targets[int(candidates[np.argmax(scores[candidates] / self._norms[candidates])])]


def split_words(text: str) -> list[str]:
    """Returns words and punctuation in lower case; in scripts without spaces, each character by itself."""
    words: list[str] = []
    for word in WORDS.findall(text.lower()):
        words += list(word) if UNSPACED.search(word) else [word]
    return words
