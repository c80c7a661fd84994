"""Reading questions from files, with all that is wrong in them told at once.

    SQuAD    {"data": [{"title": "…", "paragraphs": [{"context": "…", "qas": [{"id": "…", "question": "…",
             "answers": [{"text": "…", "answer_start": 34}]}]}]}]}                version 2.0 adds is_impossible
    JSONL    {"question": "…", "context": "…", "answers": ["…"]}                  a line a question

In JSONL an answer is a text, which is looked for in the passage, or {"text": "…", "answer_start": 34}. A question
without answers cannot be answered from its passage. Passages are kept to the letter: places are counted in them.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import Any

from seriatim.core.errors import SeriatimError

from .cells import shown
from .decoding import Facts, Raw, check_encoding, decode
from .sources import Found, blocks

SHOWN = 20  # problems of a source
PASSAGE = ("context", "passage", "text")  # the names of the passage in a line, the likeliest first
ANSWERS = ("answers", "answer")
FORM = 'a line is {"question": "…", "context": "…", "answers": ["…"]}'
SQUAD = 'SQuAD is {"data": [{"paragraphs": [{"context": "…", "qas": […]}]}]}'


@dataclass(frozen=True, slots=True)
class Question:
    key: str  # its id, or its number where it has none
    text: str
    passage: int
    answers: tuple[tuple[str, int], ...]  # texts and where each begins in the passage; none: it cannot be answered
    place: str
    article: str = ""  # that the passage is from; "": not known


@dataclass(frozen=True)
class Questions:
    """Questions and the passages they are about, each distinct one once."""

    name: str
    passages: list[str] = field(default_factory=list)
    asked: list[Question] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.asked)

    @property
    def used(self) -> list[str]:
        """The passages that a question is about, in order."""
        return [self.passages[index] for index in sorted({one.passage for one in self.asked})]


class _Reader:
    """Takes in records one after the other; what is wrong is noted, and the rest is read."""

    def __init__(self, answers: bool) -> None:
        self.answers = answers  # whether they are wanted
        self.passages: dict[str, int] = {}
        self.asked: list[Question] = []
        self.problems: list[str] = []
        self.ambiguous: list[str] = []  # places
        self.trimmed = 0

    def problem(self, place: str, what: str) -> None:
        self.problems.append(f"{place}: {what}")

    def member(self, record: Any, name: str, kind: type, place: str) -> Any:
        """What stands under a name, or None where that is not as it should be, which is noted."""
        if not isinstance(record, dict):
            self.problem(place, f"{shown(record)}, not an object")
        elif name not in record:
            self.problem(place, f'has no "{name}"; it has: {", ".join(map(str, record)) or "nothing"}')
        elif not isinstance(record[name], kind):
            self.problem(place, f'"{name}" is {shown(record[name])}, not {"a list" if kind is list else "a text"}')
        elif kind is str and (bad := unreadable(record[name])):
            self.problem(place, f'"{name}" {bad}')
        else:
            return record[name]
        return None

    def question(self, record: Any, passage: str, article: str, place: str, names: tuple[str, ...]) -> None:
        before = len(self.problems)
        text = self.member(record, "question", str, place)
        answers: list[tuple[str, int]] = []
        if isinstance(record, dict) and self.answers:
            name = next((name for name in names if name in record), names[0])
            given = self.spread(record, name, place)
            for index, one in enumerate(given):
                found = self.answer(one, passage, _within(place, name, index))
                answers += [found] if found is not None else []
            if record.get("is_impossible") is True and given:
                self.problem(place, "is_impossible is true, and yet there are answers")
        if len(self.problems) == before:
            key = str(record.get("id", len(self.asked) + 1))
            number = self.passages.setdefault(passage, len(self.passages))
            self.asked.append(Question(key, text, number, tuple(answers), place, article))

    def spread(self, record: dict[str, Any], name: str, place: str) -> list[Any]:
        """The answers of a question as a list, in whichever form they are given."""
        given = record.get(name)
        if isinstance(given, str):
            return [given]
        if isinstance(given, dict) and isinstance(given.get("text"), list):  # columns, as the hub's data sets have them
            starts = given.get("answer_start")
            if not isinstance(starts, list) or len(starts) != len(given["text"]):
                starts = [None] * len(given["text"])
            pairs = zip(given["text"], starts, strict=True)
            return [{"text": text, "answer_start": start} for text, start in pairs]
        if given is None and name in record:
            return []
        return self.member(record, name, list, place) or []

    def answer(self, given: Any, passage: str, place: str) -> tuple[str, int] | None:
        """The text and where it begins, without white space at its ends."""
        record = {"text": given} if isinstance(given, str) else given
        whole = self.member(record, "text", str, place)
        if whole is None:
            return None
        text, start = whole.strip(), record.get("answer_start")
        self.trimmed += text != whole
        if start is None:
            places = _occurrences(text, passage)
            if not places:
                self.problem(place, f"{shown(text)} is nowhere in the passage")
                return None
            if len(places) > 1:
                self.ambiguous.append(place)
            return text, places[0]
        if not isinstance(start, int) or isinstance(start, bool) or start < 0:
            self.problem(place, f"answer_start is {shown(start)}, no place in the passage")
        elif passage[start : start + len(whole)] != whole:
            there = shown(passage[start : start + len(whole)])
            near = min(_occurrences(text, passage), key=lambda at: abs(at - start), default=None)
            where = "nowhere in the passage" if near is None else f"at {near}"
            self.problem(place, f"{shown(whole)} is not at {start}, where {there} stands, but {where}")
        else:
            return text, start + len(whole) - len(whole.lstrip())
        return None


def gather(found: Found, encoding: str, answers: bool = True) -> Questions:
    """All questions of a source; without `answers` only what is asked."""
    check_encoding(encoding)
    facts, reader = Facts(), _Reader(answers)
    kinds = dict.fromkeys(_read(raw, encoding, facts, reader) for raw in found.raws)
    if reader.problems:
        raise _told(found.title, reader.problems)
    if not reader.asked:
        raise SeriatimError("data.empty", f"{found.title}: holds no questions", f"{FORM}; {SQUAD}")
    articles = {one.article for one in reader.asked}
    of = f" of {_count(len(articles), 'article')}" if all(articles) else ""
    notes = [
        f"read {_count(len(reader.asked), 'question')} about {_count(len(reader.passages), 'passage')}{of} from "
        f"{found.title} ({', '.join(kinds)})"
    ]
    if answers and (none := sum(not one.answers for one in reader.asked)):
        notes.append(f"{_count(none, 'question')} without an answer")
    if reader.ambiguous:
        places = _count(len(reader.ambiguous), "answer")
        notes.append(f"{places} without a start at several places of the passage (first {reader.ambiguous[0]}): "
                     "the first place is taken")  # fmt: skip
    if reader.trimmed:
        notes.append(f"took off white space at the ends of {_count(reader.trimmed, 'answer')}")
    return Questions(found.title, list(reader.passages), reader.asked, notes)


def _read(raw: Raw, encoding: str, facts: Facts, reader: _Reader) -> str:
    """Reads a file, and says what kind it is; its content decides, whatever it is called."""
    if raw.kind not in ("text", "jsonl"):
        cause = f"{raw.name}: questions are not read from {raw.kind.upper()} files"
        raise SeriatimError("data.kind", cause, f"write a line of JSON for each; {FORM}")
    text = "".join(decode(raw, blocks(raw), encoding, facts))
    if raw.kind != "jsonl":
        try:
            whole = json.loads(text)
        except RecursionError:
            raise SeriatimError("data.json", f"{raw.name}: nested too deeply", "give a SQuAD file") from None
        except json.JSONDecodeError as error:
            if not _begins_with_record(text):
                where = f"{raw.name}, line {error.lineno}, column {error.colno}"
                cause = f"{where}: not JSON ({error.msg})"
                raise SeriatimError("data.json", cause, f"mend the file; {FORM}; {SQUAD}") from None
        else:
            if not isinstance(whole, dict) or "question" not in whole:
                _squad(raw, whole, reader)
                return "SQuAD"
    for number, line in enumerate(text.split("\n"), 1):
        if line.strip():
            _line(line, f"{raw.name}, line {number}", reader)
    return "JSONL"


def _begins_with_record(text: str) -> bool:
    """Whether the first line is an object by itself, so that each line will be one."""
    try:
        return isinstance(json.loads(text.lstrip().partition("\n")[0]), dict)
    except (json.JSONDecodeError, RecursionError):
        return False


def _squad(raw: Raw, whole: Any, reader: _Reader) -> None:
    for number, article in enumerate(reader.member(whole, "data", list, raw.name) or []):
        place = _within(raw.name, "data", number)
        title = article.get("title") if isinstance(article, dict) else None
        name = title if isinstance(title, str) and title else place
        for index, paragraph in enumerate(reader.member(article, "paragraphs", list, place) or []):
            inner = _within(place, "paragraphs", index)
            passage = reader.member(paragraph, "context", str, inner)
            asked = reader.member(paragraph, "qas", list, inner) if isinstance(paragraph, dict) else None
            if passage is not None:
                for at, record in enumerate(asked or []):
                    reader.question(record, passage, name, _within(inner, "qas", at), ANSWERS[:1])


def _line(line: str, place: str, reader: _Reader) -> None:
    try:
        record = json.loads(line)
    except (json.JSONDecodeError, RecursionError) as error:
        reader.problem(place, f"not JSON ({error})")
        return
    names = [name for name in PASSAGE if isinstance(record, dict) and name in record]
    passage = reader.member(record, names[0] if names else PASSAGE[0], str, place)
    if passage is not None:
        title = record.get("title")
        reader.question(record, passage, title if isinstance(title, str) else "", place, ANSWERS)


def _within(place: str, name: str, index: int) -> str:
    """The place of a member of a list: data[3].paragraphs[2], behind the file or the line it is in."""
    return f"{place}{'.' if place.endswith(']') else ', '}{name}[{index}]"


def _occurrences(text: str, passage: str) -> list[int]:
    """Where a text stands in a passage: not within words, where it also stands by itself."""
    places = [match.start() for match in re.finditer(re.escape(text), passage)]
    edges = [(at - 1, at + len(text)) for at in places]
    within = [_word(passage, before, text[0]) or _word(passage, after, text[-1]) for before, after in edges]
    alone = [at for at, inside in zip(places, within, strict=True) if not inside]
    return alone or places


def _word(passage: str, at: int, edge: str) -> bool:
    """Whether a word goes on from the edge of an answer to a neighbour."""
    return edge.isalnum() and 0 <= at < len(passage) and passage[at].isalnum()


def unreadable(text: str) -> str:
    """What is wrong with a text, or nothing."""
    if not text.strip():
        return "is empty"
    if "\0" in text:
        return "holds a NUL character"
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        return f"character {error.start + 1} is half a surrogate pair, which is no character"
    return ""


def _told(title: str, problems: list[str]) -> SeriatimError:
    lines = problems[:SHOWN] + ([f"and {len(problems) - SHOWN:,} more"] if len(problems) > SHOWN else [])
    count = "a problem" if len(problems) == 1 else f"{len(problems):,} problems"
    cause = f"{title}: {count}\n" + "\n".join(f"    {line}" for line in lines)
    return SeriatimError("data.questions", cause, f"mend the file; {FORM}; {SQUAD}")


def _count(number: int, what: str) -> str:
    return f"{number:,} {what}" + ("" if number == 1 else "s")
