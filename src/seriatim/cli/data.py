"""seriatim data: the catalogue of data sets, fetching one, and the data doctor."""

from __future__ import annotations

import itertools
import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ._output import print_table

if TYPE_CHECKING:
    from seriatim.data.caption_doctor import CaptionReport
    from seriatim.data.doctor import Report
    from seriatim.data.pair_doctor import PairReport, Side
    from seriatim.data.picture_doctor import PictureReport
    from seriatim.data.two_texts_doctor import TwoTextsReport

app = typer.Typer(help="Data sets: list the catalogue, fetch one, examine a file.", no_args_is_help=True)

Json = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]
DataDir = Annotated[str | None, typer.Option("--data-dir", help="A folder with local copies (or SERIATIM_DATA).")]
Quiet = Annotated[bool, typer.Option("--quiet", help="No progress, no remarks: only the answer.")]
Encoding = Annotated[str, typer.Option("--encoding", help="The encoding of the file.")]
Column = Annotated[
    str | None, typer.Option("--column", help="The column with the text (JSONL, CSV, TSV, Parquet), or two as a,b.")
]
Target = Annotated[str | None, typer.Option("--target", help="The column of the targets: examine pairs of texts.")]

BAR = 40


@app.command("list")
def list_entries(as_json: Json = False) -> None:
    """The data sets that can be named instead of a file."""
    from seriatim.data.catalogue import ENTRIES

    if as_json:
        keys = ("name", "task", "summary", "licence", "size", "origin", "remark")
        _print(json.dumps([{key: getattr(entry, key) for key in keys} for entry in ENTRIES.values()], indent=2))
        return
    rows = [(entry.name, entry.task, _size(entry.size), entry.licence, entry.summary) for entry in ENTRIES.values()]
    print_table(("name", "task", "size", "licence", "what it is"), rows, left=5)


@app.command("get")
def get(
    name: Annotated[str, typer.Argument(help="A name of the catalogue.")],
    data_dir: DataDir = None,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Fetch a data set (or find its local copy), verify it, and say where it lies."""
    from seriatim.data.catalogue import entry, get

    located = get(name, data_dir, None if quiet else _progress())
    paths = {"train": located.train, "valid": located.valid, "test": located.test, **located.others}
    given = {part: str(path) for part, path in paths.items() if path is not None}
    if as_json:
        _print(json.dumps({"name": name, "source": located.source, "files": given}, indent=2, ensure_ascii=False))
        return
    if not quiet:
        remark = entry(name).remark
        typer.echo(f"{name}: {located.source}" + (f" ({remark})" if remark else ""), err=True)
    for part, path in given.items():
        _print(f"{part}  {path}" if len(given) > 1 else path)


@app.command("write")
def write(
    name: Annotated[str, typer.Argument(help="A set of pictures of the catalogue: scenes or digits.")],
    folder: Annotated[Path, typer.Argument(help="The folder to write; it must not be there yet.")],
    count: Annotated[int | None, typer.Option(min=1, help="Pictures of each part. [default: all]")] = None,
    data_dir: DataDir = None,
    quiet: Quiet = False,
) -> None:
    """Write a built-in set of pictures and captions as files, to look through or to train on."""
    from seriatim.core.errors import SeriatimError
    from seriatim.data.caption_writing import write as write_files
    from seriatim.data.captions import MADE, CaptionSettings, read

    if name not in MADE:
        cause = f'"{name}" is no built-in set of pictures'
        raise SeriatimError("data.write", cause, f"name one of: {', '.join(MADE)}")
    written = write_files(read(CaptionSettings(source=name), data_dir), folder, count)
    if not quiet:
        typer.echo(f"{written:,} pictures with their captions; to train on them: --data {folder}", err=True)
    _print(folder / "captions.jsonl")


@app.command("check")
def check(
    file: Annotated[str, typer.Argument(help="A file, a folder, two aligned files as a.en,a.fr, or a name.")],
    encoding: Encoding = "utf-8",
    column: Column = None,
    target: Target = None,
    data_dir: DataDir = None,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Examine texts, pairs or captions before training: all troubles at once. Exit code 2 if not usable as it is."""
    from seriatim.data.caption_doctor import check_captions, holds_captions
    from seriatim.data.doctor import check as examine
    from seriatim.data.pair_doctor import check_pairs, holds_pairs
    from seriatim.data.picture_doctor import check_pictures, holds_labelled_pictures
    from seriatim.data.two_texts_doctor import check_two_texts, holds_two_texts

    report: Report | PairReport | TwoTextsReport | CaptionReport | PictureReport
    if holds_captions(file, column, target, encoding):
        report = check_captions(file, column, target, encoding, data_dir)
    elif holds_labelled_pictures(file, column, encoding):
        report = check_pictures(file, column, target, encoding)
    elif holds_two_texts(file, column, target, encoding):
        report = check_two_texts(file, column, target, encoding, data_dir)
    elif target is not None or (column is None and holds_pairs(file)):
        report = check_pairs(file, column, target, encoding, data_dir)
    else:
        report = examine(file, column, encoding, data_dir=data_dir)
    if as_json:
        _print(json.dumps(report.as_dict(), indent=2, ensure_ascii=False))
    elif quiet:
        _print(report.verdict)
    else:
        _show(report)
    if not report.usable:
        raise typer.Exit(2)


def _show(report: Any) -> None:
    _print(f"{report.source}: {report.verdict}")
    for problem in report.problems:
        _print(f"\n[{problem.code}] {'once' if problem.count == 1 else f'{problem.count:,} times'}")
        for example in problem.examples:
            _print(f"    {example}")
        _print(f"  remedy: {problem.remedy}")
    if report.remarks:
        _print("\nremarks")
        for remark in report.remarks:
            _print(f"  {remark}")
    _print("")
    print_table(("what", "found"), list(_found(report)), left=2)
    if not hasattr(report, "sides"):
        _histogram("line lengths (characters)", report.histogram)
    else:
        for name, side in report.sides.items():
            _histogram(f"lengths of the {name} (words)", side.histogram)


def _found(report: Any) -> Iterator[tuple[str, str]]:
    if hasattr(report, "classes"):
        return _picture_findings(report)
    if hasattr(report, "pictures"):
        return _caption_findings(report)
    if hasattr(report, "pairs"):
        return _pair_findings(report)
    return _two_findings(report) if hasattr(report, "sides") else _findings(report)


def _histogram(title: str, rows: list[tuple[int, int, int]]) -> None:
    if rows:
        _print(f"\n{title}")
        for line in _bars([(f"{low:,}–{high:,}" if high > low else f"{low:,}", n) for low, high, n in rows]):
            _print(line)


def _pair_findings(report: PairReport) -> Iterator[tuple[str, str]]:
    yield "size", _size(report.bytes)
    yield "encoding", report.encoding
    yield "pairs", f"{report.pairs:,}; {report.empty:,} more have an empty side and are left out"
    most = f", up to {report.most_targets:,} targets for one: {_quoted(report.most_targets_of)}"
    yield "distinct sources", f"{report.distinct_sources:,}" + (most if report.most_targets > 1 else "")
    yield "pairs that repeat an earlier one", f"{report.duplicates:,}"
    yield from _sides(report.sides)
    yield "split", ", ".join(f"{number:,} {part}" for part, number in report.split.items())


def _two_findings(report: TwoTextsReport) -> Iterator[tuple[str, str]]:
    yield "size", _size(report.bytes)
    yield "encoding", report.encoding
    yield "examples", f"{report.examples:,} of two texts; {report.empty:,} more have neither and are left out"
    yield "examples that repeat an earlier one", f"{report.duplicates:,}"
    if report.targets:
        most = ", ".join(f"{_quoted(one)} {number:,}" for one, number in report.targets[:10])
        yield "targets", f"{report.distinct_targets:,} distinct; the most frequent: {most}"
    yield from _sides(report.sides)
    yield "split", ", ".join(f"{number:,} {part}" for part, number in report.split.items())


def _picture_findings(report: PictureReport) -> Iterator[tuple[str, str]]:
    yield "size", _size(report.bytes)
    yield "pictures", f"{report.pictures:,}, {report.grey:,} of them grey"
    if report.sizes:
        smallest, middle, largest = (report.sizes[name] for name in ("smallest", "middle", "largest"))
        yield "pixels", f"{middle} in the middle, from {smallest} to {largest}"
        yield "would be read as", report.form
    most = ", ".join(f"{_quoted(name)} {number:,}" for name, number in report.classes[:10])
    yield "classes", f"{len(report.classes):,}; the most frequent: {most}"
    yield "pictures that repeat an earlier one", f"{report.repeated:,}"
    yield "split", ", ".join(f"{number:,} {part}" for part, number in report.split.items())


def _caption_findings(report: CaptionReport) -> Iterator[tuple[str, str]]:
    yield "size", _size(report.bytes)
    yield "encoding", report.encoding
    yield "pictures", f"{report.pictures:,}, {report.grey:,} of them grey"
    if report.sizes:
        smallest, middle, largest = (report.sizes[name] for name in ("smallest", "middle", "largest"))
        yield "pixels", f"{middle} in the middle, from {smallest} to {largest}"
    yield "captions", f"{report.captions:,}; {report.empty:,} more are empty and are left out"
    yield "captions a picture", f"{report.fewest:,} to {report.most:,}"
    yield "captions said of several pictures", f"{report.repeated:,}"
    yield "captions that tell left from right", f"{report.sided:,}; their pictures are not mirrored"
    yield from _sides(report.sides)
    yield "split", ", ".join(f"{number:,} {part}" for part, number in report.split.items()) + " (pictures)"


def _sides(sides: dict[str, Side]) -> Iterator[tuple[str, str]]:
    for name, side in sides.items():
        yield f"{name}: words", f"{side.words:,}, {side.distinct_words:,} distinct, {side.once:.0%} of them once"
        place = f"at most {side.longest:,} ({side.longest_place})"
        yield f"{name}: words a text", f"{side.mean_words:.1f} on average, {place}"
        rare = ", ".join(f"{_quoted(one)} {number:,}" for one, number in side.rarest_characters)
        yield f"{name}: distinct characters", f"{side.distinct_characters:,}; the rarest: {rare}"
        yield f"{name}: words unseen in training", f"{side.unseen_words:,}"


def _findings(report: Report) -> Iterator[tuple[str, str]]:
    yield "size", _size(report.bytes)
    other = f" ({report.other_encoding} would decode it too)" if report.other_encoding and report.usable else ""
    yield "encoding", report.encoding + other
    yield "documents", f"{report.documents:,}"
    yield "characters", f"{report.characters:,}"
    yield "lines", f"{report.lines:,}, of which {report.empty_lines:,} are empty"
    yield "longest line", f"{report.longest_line:,} characters (line {report.longest_line_number:,})"
    about = "about " if report.duplicates_estimated else ""
    yield "lines that repeat an earlier one", f"{about}{report.duplicates:,}"
    for text, number in report.duplicate_examples[:3]:
        yield "", f"{number:,} × {_quoted(text)}"
    yield "distinct characters", f"{report.distinct_characters:,}"
    yield "rarest characters", ", ".join(f"{_quoted(one)} {number:,}" for one, number in report.rarest_characters)
    least = "" if report.distinct_words_complete else "at least "
    yield "words", f"{report.words:,}, {least}{report.distinct_words:,} distinct, {report.hapax_share:.0%} of them once"
    yield "split", ", ".join(f"about {number:,} {part}" for part, number in report.split.items())
    unseen = ", ".join(f"{_quoted(one)} {number:,}" for one, number in report.unseen_characters[:10])
    yield "characters unseen in training", unseen or "none"
    yield "words unseen in training", f"{report.unseen_words:,}"
    yield "cut off", "nothing: a language model reads the text as one stream"


def _bars(rows: list[tuple[str, int]]) -> Iterator[str]:
    most = max((number for _, number in rows), default=0)
    label = max(len(name) for name, _ in rows)
    for name, number in itertools.dropwhile(lambda row: row[1] == 0, rows):
        # Something that is there is always seen, however small its share.
        length = max(1, round(BAR * number / most)) if number else 0
        yield f"  {name:>{label}}  {'█' * length} {number:,}"


def _progress() -> Callable[[int, int | None], None] | None:
    """A line on the error stream that counts up; nothing where that is no terminal."""
    if not sys.stderr.isatty():
        return None

    def show(done: int, total: int | None) -> None:
        whole = f" of {_size(total)}" if total else ""
        typer.echo(f"\rfetching: {_size(done)}{whole} " + ("\n" if done == total else ""), err=True, nl=False)

    return show


def _print(text: str | Path) -> None:
    typer.echo(text)


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=not text.isprintable())


def _size(number: int) -> str:
    for unit, size in (("GB", 10**9), ("MB", 10**6), ("kB", 10**3)):
        if number >= size:
            return f"{number / size:.1f} {unit}"
    return f"{number} bytes"
