"""The data doctor for pairs: all that is wrong or odd with them, found before training."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path

from seriatim.core.errors import SeriatimError

from . import _pair_texts as texts
from . import catalogue, gettext
from ._pair_columns import NESTED, well_known
from ._pair_rows import Rows, streams
from .decoding import Facts, check_encoding, decode
from .doctor import CONTROL, SHOWN, WIDTH, Problems, Trouble, Verdict
from .notes import Notes
from .pairs import PairSettings, aligned_files, rows_of
from .sources import blocks, find_path, locate
from .tables import Heading, lines, rows

LOOKED_AT = 100  # lines, to tell pairs from a text
FAR = 3.0  # times the usual ratio of lengths: one side is likely not the translation of the other
SHORT = 3  # words: of shorter texts the ratio says nothing


@dataclass
class Side:
    words: int = 0
    mean_words: float = 0.0
    longest: int = 0  # words
    longest_place: str = ""
    distinct_words: int = 0
    once: float = 0.0  # the share of words that occur a single time
    distinct_characters: int = 0
    rarest_characters: list[tuple[str, int]] = field(default_factory=list)
    unseen_words: int = 0  # distinct, in the held-out parts only
    histogram: list[tuple[int, int, int]] = field(default_factory=list)  # words from, to, texts


@dataclass
class PairReport(Verdict):
    source: str
    bytes: int = 0
    encoding: str = ""
    pairs: int = 0
    empty: int = 0
    distinct_sources: int = 0
    most_targets: int = 0
    most_targets_of: str = ""
    duplicates: int = 0
    identical: int = 0
    far: int = 0
    sides: dict[str, Side] = field(default_factory=dict)
    split: dict[str, int] = field(default_factory=dict)
    problems: list[Trouble] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def holds_pairs(source: str) -> bool:
    """Whether it is pairs that a source holds, as far as its form tells."""
    path = Path(source).expanduser()
    if not path.exists() and "," in source:
        return True
    if not path.exists() and source in catalogue.ENTRIES:
        return catalogue.ENTRIES[source].task == "translate"
    if path.is_dir():
        return any(gettext.kind(file.name) for file in path.rglob("*"))
    if gettext.kind(path.name):
        return True
    if not path.is_file() or path.suffix.lower() == ".zip":
        return False
    try:
        return _two_columns(path)
    except SeriatimError:  # the doctor of texts says what is wrong
        return False


def _two_columns(path: Path) -> bool:
    """A text of which each line has a tab, or a table with well-known names."""
    raw, found = find_path(path).raws[0], False
    facts = Facts(trouble=lambda _: None)
    if raw.kind in ("text", "tsv"):
        some = list(islice(lines(decode(raw, blocks(raw), "utf-8", facts)), LOOKED_AT))
        return bool(some) and all("\t" in line for line in some if line.strip())

    def look(heading: Heading) -> list[str]:
        nonlocal found
        nested = NESTED in heading.columns and heading.kinds[NESTED] == "other"
        found = nested or well_known(heading.columns) is not None
        return []

    next(rows(raw, "utf-8", facts, look), None)
    return found


def check_pairs(
    source: str,
    column: str | None = None,
    target: str | None = None,
    encoding: str = "utf-8",
    data_dir: str | None = None,
) -> PairReport:
    """Examines a source. Only what keeps it from being read at all is raised."""
    settings = PairSettings(source=source, column=column, target=target, encoding=encoding)
    report = PairReport(source, encoding=check_encoding(encoding))
    both = aligned_files(source)
    located = locate(source, data_dir) if both is None else None
    paths = both or (Path(source).expanduser() if located is None else located.train,)
    report.bytes = sum(file.stat().st_size for path in paths for file in streams(path).files)
    problems, notes = Problems(), Notes(None)
    facts = Facts(trouble=problems.count)
    found = Rows()
    try:
        found, _ = rows_of(source, settings, data_dir, notes, facts)
    except SeriatimError as error:
        problems.count(error)
    _count(report, found)
    if report.pairs == 0 and not problems:
        problems.count(SeriatimError("data.empty", f"{source}: holds no pair with text on both sides", "give pairs"))
    report.problems, report.notes = list(problems.values()), list(notes)
    report.remarks += _remarks(found)
    return report


def _count(report: PairReport, found: Rows) -> None:
    whole, _ = texts.complete(found)
    report.pairs, report.empty = len(whole), len(found) - len(whole)
    if not report.pairs:
        return
    sources, _, _ = texts.normalise(whole.sources)
    targets, _, _ = texts.normalise(whole.targets)
    whole = Rows(sources, targets, whole.places)
    keys = texts.keys_of(sources)
    several = Counter(key for key, _ in set(zip(keys, targets, strict=True)))
    key, report.most_targets = several.most_common(1)[0]
    report.most_targets_of = sources[keys.index(key)][:WIDTH]
    report.distinct_sources = len(several)
    report.duplicates = len(whole) - len(set(zip(sources, targets, strict=True)))
    report.identical = sum(a == b for a, b in zip(sources, targets, strict=True))
    try:
        parts, _ = texts.divide(whole, keys, ["test", "valid"], None)
    except SeriatimError as error:
        parts = {"train": whole}
        report.remarks.append(error.cause)
    report.split = {name: len(parts[name]) for name in ("train", "valid", "test") if name in parts}
    for name, column in (("source", "sources"), ("target", "targets")):
        held = [text for part in ("valid", "test") if part in parts for text in getattr(parts[part], column)]
        report.sides[name] = side_of(getattr(whole, column), getattr(parts["train"], column), held, whole.places)
    if report.identical:
        report.remarks.append(f"the same text on both sides: {texts.pairs_of(report.identical)}")
    report.remarks += _far(report, whole)


def side_of(all_texts: list[str], train: list[str], held: list[str], places: list[str]) -> Side:
    lengths = [len(text.split()) for text in all_texts]
    words = Counter(word for text in all_texts for word in text.split())
    characters = Counter("".join(all_texts))
    known = {word for text in train for word in text.split()}
    longest = max(lengths)
    tops = Counter(length.bit_length() for length in lengths)
    return Side(
        words=sum(lengths),
        mean_words=sum(lengths) / len(lengths),
        longest=longest,
        longest_place=places[lengths.index(longest)],
        distinct_words=len(words),
        once=sum(number == 1 for number in words.values()) / max(1, len(words)),
        distinct_characters=len(characters),
        rarest_characters=sorted(characters.items(), key=lambda item: (item[1], item[0]))[:10],
        unseen_words=len({word for text in held for word in text.split()} - known),
        histogram=[(1 << n - 1, (1 << n) - 1, tops[n]) for n in range(1, max(tops) + 1)],
    )


def _far(report: PairReport, whole: Rows) -> Iterator[str]:
    """Pairs of which one side is much longer than the other: lines that slipped, or sentences run together."""
    sizes = [(len(a), len(b)) for a, b in zip(whole.sources, whole.targets, strict=True)]
    usual = sum(b for _, b in sizes) / max(1, sum(a for a, _ in sizes))
    far = [
        row
        for row, (a, b) in enumerate(sizes)
        if max(len(whole.sources[row].split()), len(whole.targets[row].split())) > SHORT
        and not 1 / FAR <= b / (a * usual) <= FAR
    ]
    report.far = len(far)
    if far:
        some = "; ".join(whole.places[row] for row in far[:SHOWN])
        yield f"one side is much longer than the other: {texts.pairs_of(len(far))} ({some})"


def _remarks(found: Rows) -> Iterator[str]:
    sides = [*found.sources, *found.targets]
    _, forms, spaces = texts.normalise(sides)
    yield from texts.changes(forms, spaces)
    whole = "\n".join(sides)
    if marks := whole.count("\ufffd"):
        yield f"{marks:,} replacement characters (U+FFFD): text was lost before it came here"
    if controls := len(CONTROL.findall(whole)):
        yield f"{controls:,} control characters"
