"""Tagged sentences: a word a line and a blank line between sentences, or a sentence a line as JSON.

    CoNLL     columns apart by tabs or blanks; the word in the first, its tag in the last
    CoNLL-U   ten columns with names; comments, the ranges of multiword tokens (1-2) and empty nodes (1.1) are no words
    JSONL     {"tokens": ["They", "are", "watching", "."], "tags": ["PRON", "AUX", "VERB", "PUNCT"]}

Which of them a file is, its content says: the endings of such files are of all kinds.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

from seriatim.core.errors import SeriatimError, did_you_mean

from .decoding import Facts, Raw, check_encoding, decode
from .sources import Found, blocks, find
from .tables import lines

FIELDS = ("id", "form", "lemma", "upos", "xpos", "feats", "head", "deprel", "deps", "misc")  # of CoNLL-U
NUMBER = re.compile(r"[1-9]\d*")
BETWEEN = re.compile(r"\d+[-.]\d+")  # the number of a range or of an empty node
DOCUMENT = "-DOCSTART-"  # the line that parts the documents of the CoNLL-2003 files
NAMES = {"tokens": ("tokens", "words"), "tags": ("tags", "labels", "upos", "ner_tags")}  # of JSONL, the likeliest first
UNSAID = "_"
BLANKS = " \t\r"


@dataclass(frozen=True)
class Line:
    """A line of a file: its cells, and whether they are a word's; a blank line has none, a comment has one."""

    number: int
    cells: list[str]
    word: bool = False


@dataclass
class Sentences:
    """Words and their tags, sentence by sentence. `lines` are the lines of the words (JSONL: one line for all)."""

    name: str
    words: list[list[str]] = field(default_factory=list)
    tags: list[list[str]] = field(default_factory=list)  # none where the tags are not asked for
    lines: list[list[int]] = field(default_factory=list)
    files: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    fingerprint: str = ""

    def __len__(self) -> int:
        return len(self.words)

    def place(self, sentence: int, word: int = 0) -> str:
        return f"{self.files[sentence]}, line {self.lines[sentence][word]}"

    def between(self, first: int, last: int) -> Sentences:
        """Some of them; the fingerprint stays that of the whole."""
        part = Sentences(self.name, self.words[first:last], self.tags[first:last], self.lines[first:last])
        part.files, part.fingerprint = self.files[first:last], self.fingerprint
        return part


def read(
    source: str,
    column: str | None = None,
    target: str | None = None,
    encoding: str = "utf-8",
    data_dir: str | None = None,
    tagged: bool = True,
) -> Sentences:
    """The sentences of a source; without `tagged` only the words."""
    return read_found(find(source, data_dir), column, target, encoding, tagged)


def read_found(found: Found, column: str | None, target: str | None, encoding: str, tagged: bool = True) -> Sentences:
    check_encoding(encoding)
    facts = Facts()
    result = Sentences(found.title, notes=list(found.notes))
    same: dict[str, str] = {}  # one string a word, however often it occurs
    digest = hashlib.sha256()
    kinds: dict[str, None] = {}
    empty = 0
    for raw in found.raws:
        rows, kind = parse(raw, encoding, facts)
        kinds[kind] = None
        take = _jsonl if kind == "JSONL" else _columns
        for words, tags, numbers in take(raw, rows, kind, column, target, tagged):
            if not words:
                empty += 1
                continue
            result.words.append([same.setdefault(word, word) for word in words])
            result.lines.append(numbers)
            result.files.append(raw.name)
            if tagged:
                result.tags.append([same.setdefault(tag, tag) for tag in tags])
            digest.update(json.dumps([words, tags]).encode())
    if not result.words:
        raise SeriatimError("data.empty", f"{found.title}: holds no sentences", "give a file with a word a line")
    if tagged and all(tag == UNSAID for tags in result.tags for tag in tags):
        name = target or ("upos" if "CoNLL-U" in kinds else "tags")
        raise SeriatimError(
            "data.no-tags", f"{found.title}: {name} holds no tags, only _", "name another column with data.target"
        )
    count = sum(map(len, result.words))
    result.notes.append(f"read {len(result):,} sentences, {count:,} words, from {found.title} ({', '.join(kinds)})")
    if facts.crlf:
        result.notes.append(f"turned {facts.crlf:,} Windows line ends (CRLF) into \\n")
    if empty:
        result.notes.append(f"left out {empty:,} sentences without a word")
    result.fingerprint = digest.hexdigest()
    return result


def parse(raw: Raw, encoding: str, facts: Facts) -> tuple[Iterator[Line], str]:
    """Every line of a file, and what kind of file it is: CoNLL, CoNLL-U or JSONL."""
    texts = enumerate(lines(decode(raw, blocks(raw), encoding, facts)), 1)
    early: list[tuple[int, str]] = []
    first = ""
    for number, text in texts:  # up to the first line that must be a word's, if comments are comments
        early.append((number, text))
        if text.strip(BLANKS + "\n") and not text.startswith("#"):
            first = text.rstrip("\n")
            break
    all_lines = ((number, text.rstrip("\n")) for number, text in chain(early, texts))
    cells = first.split("\t")
    if raw.kind == "jsonl" or (first.lstrip().startswith("{") and first.rstrip().endswith("}")):
        return _json_lines(all_lines), "JSONL"
    if len(cells) == len(FIELDS) and (NUMBER.fullmatch(cells[0]) or BETWEEN.fullmatch(cells[0])):
        return _conllu_lines(raw, all_lines), "CoNLL-U"
    return _plain_lines(raw, all_lines, len(_split(first))), "CoNLL"


def _json_lines(texts: Iterable[tuple[int, str]]) -> Iterator[Line]:
    for number, text in texts:
        yield Line(number, [text], True) if text.strip(BLANKS) else Line(number, [])


def _conllu_lines(raw: Raw, texts: Iterable[tuple[int, str]]) -> Iterator[Line]:
    for number, text in texts:
        if not text.strip(BLANKS):
            yield Line(number, [])
        elif text.startswith("#"):
            yield Line(number, [text])
        else:
            cells = text.split("\t")
            if len(cells) != len(FIELDS):
                raise _width(raw, number, len(cells), f"CoNLL-U has {len(FIELDS)}, apart by tabs")
            if not NUMBER.fullmatch(cells[0]) and not BETWEEN.fullmatch(cells[0]):
                cause = f'{raw.name}, line {number}: "{cells[0]}" is not the number of a word'
                raise SeriatimError("data.conll", cause, "mend the line: 1, 2, 3 …, 1-2 or 1.1")
            yield Line(number, cells, word=bool(NUMBER.fullmatch(cells[0])))


def _plain_lines(raw: Raw, texts: Iterable[tuple[int, str]], width: int) -> Iterator[Line]:
    """A "#" is a word like others, as in tweets, but where it heads a sentence in a line of another form."""
    begins = True
    for number, text in texts:
        cells = _split(text)
        if begins and text.startswith("#") and len(cells) != (width or 2):
            yield Line(number, [text])
            continue
        if cells and cells[0] == DOCUMENT:
            yield Line(number, cells)
            continue
        if cells and len(cells) != width:
            raise _width(raw, number, len(cells), f"the first line of a word has {width}")
        begins = not cells
        yield Line(number, cells, word=bool(cells))


def _split(text: str) -> list[str]:
    """By tabs where there are some, so that a cell may hold blanks; else by blanks. A no-break space parts nothing."""
    text = text.rstrip(BLANKS)
    return [cell.strip(BLANKS) for cell in text.split("\t")] if "\t" in text else [c for c in text.split(" ") if c]


def _width(raw: Raw, number: int, count: int, wanted: str) -> SeriatimError:
    columns = "1 column" if count == 1 else f"{count} columns"
    cause = f"{raw.name}, line {number}: {columns} where {wanted}"
    return SeriatimError("data.columns", cause, "mend the line; between sentences stands a blank line")


Sentence = tuple[list[str], list[str], list[int]]


def _columns(
    raw: Raw, rows: Iterable[Line], kind: str, column: str | None, target: str | None, tagged: bool
) -> Iterator[Sentence]:
    words: list[str] = []
    tags: list[str] = []
    numbers: list[int] = []
    at = goal = -1
    for row in chain(rows, [Line(0, [])]):
        if row.word:
            if at < 0:
                at = column_index(raw, column, kind, len(row.cells), "form", 1)
                goal = column_index(raw, target, kind, len(row.cells), "upos", len(row.cells)) if tagged else at
                if tagged and goal == at:
                    cause = f"{raw.name}, line {row.number}: column {at + 1} is that of the words and of the tags"
                    remedy = "give a file with a column of tags, or name the columns with data.column and data.target"
                    raise SeriatimError("data.no-tags", cause, remedy)
            word, tag = row.cells[at], row.cells[goal]
            if not word or not tag:
                what = "word" if not word else "tag"
                cause = f"{raw.name}, line {row.number}: the {what} is empty"
                raise SeriatimError("data.columns", cause, "mend the line")
            words.append(word)
            tags.append(tag)
            numbers.append(row.number)
        elif not row.cells and words:
            yield words, tags if tagged else [], numbers
            words, tags, numbers = [], [], []


def column_index(raw: Raw, named: str | None, kind: str, width: int, name: str, number: int) -> int:
    """The place of a column, from 0: what the user named, by name or by a number from 1, else the usual one."""
    if named is None:
        return FIELDS.index(name) if kind == "CoNLL-U" else number - 1
    if named.isdecimal() and 1 <= int(named) <= width:
        return int(named) - 1
    if kind == "CoNLL-U" and named.lower() in FIELDS:
        return FIELDS.index(named.lower())
    hint = did_you_mean(named.lower(), FIELDS) if kind == "CoNLL-U" else f"give a number from 1 to {width}"
    raise SeriatimError("data.column", f'{raw.name}: has {width} columns, and none is "{named}"', hint)


def _jsonl(
    raw: Raw, rows: Iterable[Line], kind: str, column: str | None, target: str | None, tagged: bool
) -> Iterator[Sentence]:
    for row in rows:
        if row.word:
            record = json_object(raw, row)
            where = f"{raw.name}, line {row.number}"
            words = json_list(record, column, "tokens", where)
            tags = json_list(record, target, "tags", where) if tagged else []
            if tagged and len(words) != len(tags):
                cause = f"{where}: {len(words)} words and {len(tags)} tags"
                raise SeriatimError("data.tags", cause, "give a tag for each word")
            yield words, tags, [row.number] * len(words)


def json_object(raw: Raw, row: Line) -> dict[str, Any]:
    where = f"{raw.name}, line {row.number}"
    try:
        record = json.loads(row.cells[0])
    except (json.JSONDecodeError, RecursionError) as error:
        raise SeriatimError("data.jsonl", f"{where}: not JSON ({error})", "mend or remove the line") from None
    if not isinstance(record, dict):
        remedy = 'write {"tokens": ["…"], "tags": ["…"]}'
        raise SeriatimError("data.jsonl", f"{where}: a {type(record).__name__}, not an object", remedy)
    return record


def json_list(record: dict[str, Any], named: str | None, what: str, where: str) -> list[str]:
    name = named if named is not None else next((name for name in NAMES[what] if name in record), None)
    if name is None or name not in record:
        setting = "data.column" if what == "tokens" else "data.target"
        cause = f'{where}: has no "{name or what}"; it has: {", ".join(record) or "nothing"}'
        raise SeriatimError("data.column", cause, f"name the list of {what} with {setting}")
    values = record[name]
    usual = isinstance(values, list) and all(isinstance(v, str | int) and not isinstance(v, bool) for v in values)
    if not usual or not all(str(value) for value in values):
        cause = f'{where}: "{name}" is not a list of texts, none of them empty'
        raise SeriatimError("data.jsonl", cause, f'write "{name}": ["…", "…"]')
    words = [str(value) for value in values]
    if any("\0" in word or word.encode("utf-8", "replace").decode() != word for word in words):
        cause = f'{where}: "{name}" holds a NUL character or half a surrogate pair, which is no character'
        raise SeriatimError("data.binary", cause, "mend the line")
    return words
