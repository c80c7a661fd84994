"""The data doctor: all that is wrong or odd with a text, found before training and without stopping at the first.

It reads with the same readers as training does, only that trouble is counted instead of raised. Memory stays
bounded: lines are remembered by a hash, and where there are too many, by a sample of the hashes.
"""

from __future__ import annotations

import dataclasses
import hashlib
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import accumulate
from pathlib import Path
from typing import Any

from seriatim.core.errors import SeriatimError

from .decoding import Facts, Raw, check_encoding, suggest
from .pieces import Piece
from .sources import Found, find
from .tables import lines
from .text import read_found

MOST_HASHES = 1 << 19
MOST_WORDS = 1 << 19
SHOWN = 5
WIDTH = 60  # characters of an example

# C0 and C1 controls but tab, line feed and carriage return; U+0085 and the separators 0x1C to 0x1F are among them.
CONTROL = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]")


@dataclass
class Trouble:
    """One kind of trouble: how often, and the first places."""

    code: str
    count: int = 0
    examples: list[str] = field(default_factory=list)
    remedy: str = ""


class Verdict:
    """What a report comes to."""

    problems: list[Trouble]
    remarks: list[str]

    @property
    def usable(self) -> bool:
        return not self.problems

    @property
    def verdict(self) -> str:
        if self.problems:
            total = sum(problem.count for problem in self.problems)
            return f"not usable as it is: {total:,} problem{'s' if total > 1 else ''}"
        return "usable, with remarks" if self.remarks else "ready"

    def as_dict(self) -> dict[str, Any]:
        return {"verdict": self.verdict, "usable": self.usable} | dataclasses.asdict(self)  # type: ignore[call-overload]


class Problems(dict[str, Trouble]):
    """Trouble by its code: what is wrong is counted, and the first places of each kind are kept."""

    def count(self, error: SeriatimError) -> None:
        one = self.setdefault(error.code, Trouble(error.code, remedy=error.remedy))
        one.count += 1
        if len(one.examples) < SHOWN:
            one.examples.append(error.cause)


@dataclass
class Report(Verdict):
    source: str
    bytes: int = 0
    encoding: str = ""
    other_encoding: str | None = None
    documents: int = 0
    characters: int = 0
    lines: int = 0
    empty_lines: int = 0
    crlf: int = 0
    lone_cr: int = 0
    controls: int = 0
    control_lines: list[int] = field(default_factory=list)
    replacements: int = 0
    duplicates: int = 0
    duplicates_estimated: bool = False
    duplicate_examples: list[tuple[str, int]] = field(default_factory=list)
    histogram: list[tuple[int, int, int]] = field(default_factory=list)  # from, to, lines
    longest_line: int = 0
    longest_line_number: int = 0
    distinct_characters: int = 0
    rarest_characters: list[tuple[str, int]] = field(default_factory=list)
    words: int = 0
    distinct_words: int = 0
    distinct_words_complete: bool = True
    hapax_share: float = 0.0
    split: dict[str, int] = field(default_factory=dict)  # characters in each part, about
    unseen_characters: list[tuple[str, int]] = field(default_factory=list)
    unseen_words: int = 0
    problems: list[Trouble] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def check(
    source: str | Path,
    column: str | None = None,
    encoding: str = "utf-8",
    fractions: tuple[float, float, float] = (0.9, 0.05, 0.05),
    data_dir: str | None = None,
) -> Report:
    """Examines a source. Only what keeps it from being read at all is raised."""
    found = find(source, data_dir)
    report = Report(found.title, sum(path.stat().st_size for path in found.files), check_encoding(encoding))
    problems = Problems()
    facts = Facts(trouble=problems.count)
    counts = _Counts(report)
    try:
        for line in _counted(read_found(found, column, encoding, facts), report):
            counts.add(line)
    except SeriatimError as error:  # an empty source, or a packed file that breaks off: what was read still counts
        problems.count(error)
    if facts.broken:
        problems["data.encoding"].count = facts.broken
        report.replacements = max(0, report.replacements - facts.broken)
    report.problems = list(problems.values())
    report.notes = found.notes + facts.notes
    report.crlf = facts.crlf
    counts.finish(fractions)
    report.other_encoding = _other(found, encoding, "".join(counts.characters).isascii())
    report.remarks = list(_remarks(report, facts))
    return report


def _counted(pieces: Iterator[Piece], report: Report) -> Iterator[str]:
    """The lines of all documents; a document always begins a line."""
    ended = False

    def document() -> Iterator[str]:
        nonlocal ended
        for text, last in pieces:
            report.documents += last
            yield text
            if last:
                return
        ended = True

    while not ended:
        yield from lines(document())


class _Counts:
    """What is counted line by line."""

    def __init__(self, report: Report) -> None:
        self.report = report
        self.characters: Counter[str] = Counter()
        self.words: Counter[str] = Counter()
        self.first_character: dict[str, int] = {}  # where it first occurs, in characters from the beginning
        self.first_word: dict[str, int] = {}
        self.lengths: Counter[int] = Counter()
        self.hashes: set[int] = set()
        self.every = 1  # one hash in so many is remembered
        self.repeated: Counter[str] = Counter()

    def add(self, line: str) -> None:
        report = self.report
        report.lines += 1
        body = line.removesuffix("\n")
        self._odd(body)
        for character, number in Counter(line).items():
            if character not in self.characters:
                self.first_character[character] = report.characters + line.index(character)
            self.characters[character] += number
        self._words(body)
        report.characters += len(line)
        self.lengths[len(body).bit_length()] += 1
        if len(body) > report.longest_line:
            report.longest_line, report.longest_line_number = len(body), report.lines
        if body.strip():
            self._repeats(body)
        else:
            report.empty_lines += 1

    def finish(self, fractions: tuple[float, float, float]) -> None:
        report = self.report
        report.distinct_characters = len(self.characters)
        report.rarest_characters = sorted(self.characters.items(), key=lambda item: (item[1], item[0]))[:10]
        report.distinct_words = len(self.words)
        once = sum(number == 1 for number in self.words.values())
        report.hapax_share = once / len(self.words) if self.words else 0.0
        report.duplicates *= self.every
        report.duplicates_estimated = self.every > 1
        report.duplicate_examples = [(text, number + 1) for text, number in self.repeated.most_common(SHOWN)]
        top = max(self.lengths, default=-1)
        edges = [(0, 0), *((1 << n, (2 << n) - 1) for n in range(top))]
        report.histogram = [(low, high, self.lengths[n]) for n, (low, high) in enumerate(edges) if top >= 0]
        self._split(fractions)

    def _split(self, fractions: tuple[float, float, float]) -> None:
        """What the later parts have and the training part has not: its first place lies behind the cut."""
        report = self.report
        ends = [round(report.characters * share) for share in accumulate(fractions)]
        report.split = {"train": ends[0], "valid": ends[1] - ends[0], "test": ends[2] - ends[1]}
        late = [one for one, place in self.first_character.items() if place >= ends[0]]
        report.unseen_characters = sorted(((one, self.characters[one]) for one in late), key=lambda item: -item[1])
        report.unseen_words = sum(place >= ends[0] for place in self.first_word.values())

    def _odd(self, body: str) -> None:
        report = self.report
        report.lone_cr += body.count("\r")
        report.replacements += body.count("\ufffd")
        if not body.isprintable() and (found := CONTROL.findall(body)):
            report.controls += len(found)
            if len(report.control_lines) < SHOWN:
                report.control_lines.append(report.lines)

    def _words(self, body: str) -> None:
        report = self.report
        for word in body.split():
            report.words += 1
            if word in self.words:
                self.words[word] += 1
            elif len(self.words) < MOST_WORDS:
                self.words[word] = 1
                self.first_word[word] = report.characters
            else:
                report.distinct_words_complete = False

    def _repeats(self, body: str) -> None:
        mark = int.from_bytes(hashlib.blake2b(body.encode("utf-8", "replace"), digest_size=8).digest(), "little")
        if mark % self.every:
            return
        if mark in self.hashes:
            self.report.duplicates += 1
            short = body if len(body) <= WIDTH else body[:WIDTH] + "…"
            if short in self.repeated or len(self.repeated) < 1000:
                self.repeated[short] += 1
            return
        self.hashes.add(mark)
        if len(self.hashes) > MOST_HASHES:
            self.every *= 2
            self.hashes = {one for one in self.hashes if one % self.every == 0}
            self.report.duplicates //= 2


def _other(found: Found, encoding: str, ascii_only: bool) -> str | None:
    """Another encoding that would decode, where the text is not plain ASCII for all to agree on."""
    texts: list[Raw] = [raw for raw in found.raws if raw.kind != "parquet"]
    if len(texts) != 1 or ascii_only or check_encoding(encoding) != "utf-8":
        return None
    return suggest(texts[0])


def _remarks(report: Report, facts: Facts) -> Iterator[str]:
    if report.crlf or report.lone_cr:
        yield f"line ends: {report.crlf:,} CRLF are read as \\n; {report.lone_cr:,} lone CR stay as they are"
    if facts.boms:
        yield "a UTF-8 byte-order mark is taken off"
    if report.controls:
        where = ", ".join(map(str, report.control_lines))
        yield f"{report.controls:,} control characters (first in lines {where})"
    if report.replacements and not report.problems:
        yield f"{report.replacements:,} replacement characters (U+FFFD): text was lost before it came here"
    if report.duplicates * 20 > report.lines:
        yield f"{100 * report.duplicates / report.lines:.0f} % of the lines repeat an earlier line"
    if report.longest_line > 100_000:
        yield f"line {report.longest_line_number:,} has {report.longest_line:,} characters"
    if report.unseen_characters:
        number = len(report.unseen_characters)
        yield f"{number} characters occur only after the training part; tokenizer.fallback=true keeps them"
    if 0 < report.characters < 1000:
        yield "very short: a model will learn it by heart"
