"""Translate texts, the lines of a file, or what is typed.

seriatim translate runs/x "They are watching ."    seriatim translate runs/x --file in.txt --out out.txt
"""

from __future__ import annotations

import json as json_module
import sys
import unicodedata
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..core.config import validate
from ..core.errors import SeriatimError
from . import _options as o
from ._lines import chunks, decoded, open_lines
from ._output import complain, note, one_line, silent

if TYPE_CHECKING:
    from ..decode.options import TranslateSettings
    from ..runs import Run

LINES = 2_048  # of a file that are held at once: enough to put like lengths together
STRANGE = 10  # unknown characters or words that are told
PICTURES = (".svg", ".png", ".html", ".json")


def command(
    run: o.RunPath,
    texts: Annotated[
        list[str] | None,
        typer.Argument(help="What to translate; - reads one a line, nothing asks for it.", show_default=False),
    ] = None,
    file: Annotated[
        Path | None, typer.Option("--file", help="A file of texts (- for stdin): line N in, line N out.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", help="Write to this file; with --alignment a .svg, .png, .html or .json.")
    ] = None,
    beams: Annotated[
        int | None, typer.Option(help="Beam search with so many hypotheses; 1: greedy. [default: 5]")
    ] = None,
    nbest: Annotated[int | None, typer.Option(help="Translations of each text: (number,) rank, score, text.")] = None,
    length_penalty: Annotated[
        float | None, typer.Option(help="Beam: above 1 favours long translations, 0 short ones. [default: 1]")
    ] = None,
    coverage_penalty: Annotated[
        float | None, typer.Option(help="Beam: what it costs to leave parts of the source unread; try 0.2.")
    ] = None,
    max_tokens: Annotated[
        int | None, typer.Option(help="Tokens of a translation at most. [default: 512, and 50 + 2 × the source's]")
    ] = None,
    min_tokens: Annotated[int | None, typer.Option(help="Tokens before the end may come.")] = None,
    temperature: Annotated[
        float | None, typer.Option(help="Draw instead of search: below 1 safer, above bolder.")
    ] = None,
    top_k: Annotated[int | None, typer.Option(help="Draw from the k likeliest tokens.")] = None,
    top_p: Annotated[float | None, typer.Option(help="Draw from the likeliest that make up this share.")] = None,
    no_repeat_ngram: Annotated[int | None, typer.Option(help="Never the same so many tokens in a row twice.")] = None,
    prefix: Annotated[str | None, typer.Option(help="What every translation begins with.")] = None,
    replace_unknown: Annotated[
        bool | None,
        typer.Option(help="Words: where one is missing, copy the source word looked at. [default: if it can]"),
    ] = None,
    seed: Annotated[int | None, typer.Option(help="Of the draws: the same seed gives the same text.")] = None,
    others: Annotated[
        list[Path] | None,
        typer.Option("--with", metavar="RUN", help="Another run that decides too, by the mean; may be repeated."),
    ] = None,
    alignment: Annotated[
        bool, typer.Option("--alignment", help="Show where each word looked; with --out x.svg draw it.")
    ] = False,
    tokens: Annotated[bool, typer.Option("--tokens", help="The alignment token by token, not word by word.")] = False,
    plugin: o.Plugin = None,
    json: Annotated[bool, typer.Option("--json", help="A JSON object a line, with scores.")] = False,
    quiet: o.Quiet = False,
) -> None:
    from ..decode.options import TranslateSettings

    if texts and file is not None:
        raise SeriatimError("translate.input", "texts and --file exclude each other", "give one of them")
    given: dict[str, Any] = {
        "beams": beams,
        "nbest": nbest,
        "length_penalty": length_penalty,
        "coverage_penalty": coverage_penalty,
        "max_tokens": max_tokens,
        "min_tokens": min_tokens,
        "temperature": temperature,
        "top_k": top_k,
        "top_p": top_p,
        "no_repeat_ngram": no_repeat_ngram,
        "prefix": prefix,
        "replace_unknown": replace_unknown,
        "seed": seed,
    }
    options = validate(TranslateSettings, {k: v for k, v in given.items() if v is not None}, "the options of translate")
    draws = alignment and out is not None and out.suffix.lower() in PICTURES
    if draws and (file is not None or len(texts or []) != 1 or texts == ["-"]):
        raise SeriatimError("translate.picture", f"{out} shows one text", 'name it: `seriatim translate RUN "a text"`')
    if alignment and out is not None and out.suffix.lower() not in (*PICTURES, ".txt", ""):
        remedy = f"end it in {', '.join(PICTURES)}, or .txt for a table of words"
        raise SeriatimError("output.kind", f"{out}: cannot draw a {out.suffix} file", remedy)
    o.add_plugins(plugin)
    from ..runs import Run

    opened = Run(run)
    if others:
        opened = opened.together(*(Run(path) for path in others))
    speaker = Speaker(opened, options, json, alignment, tokens, silent if quiet else note)
    if draws and texts and out is not None:
        speaker.draw(texts[0], out)
    elif texts and texts != ["-"]:
        speaker.several = len(texts) > 1
        speaker.file(iter(texts), "text", None, out)
    elif file is None and not texts and sys.stdin.isatty():
        speaker.converse()
    else:
        stream, name, size = open_lines(file or Path("-"))
        with stream if size is not None else ExitStack():
            speaker.file(decoded(stream, name), f"{name}, line", size and (size, stream.tell), out)


@dataclass
class Speaker:
    """Asks the run and says what it answers."""

    run: Run
    options: TranslateSettings
    json: bool
    aligned: bool
    tokens: bool
    tell: Callable[[str], None]
    several: bool = True  # texts: their numbers stand before the ranks of their translations
    strange: dict[str, None] = field(default_factory=dict)

    def file(self, lines: Iterator[str], place: str, bytes_: Any, out: Path | None) -> None:
        """Line N in, line N out, a chunk after the other."""
        done = 0
        with ExitStack() as opened:
            write: Callable[[str], Any] = sys.stdout.write
            bar: _Bar | None = None
            if out is not None:
                from ..core.files import atomic_file

                aside = opened.enter_context(atomic_file(out))
                write = opened.enter_context(open(aside, "w", encoding="utf-8")).write
                bar = opened.enter_context(_Bar(out, bytes_)) if self.tell is not silent else None
            for some in chunks(lines, LINES):
                places = [f"{place} {done + number}" for number in range(1, len(some) + 1)]
                for number, text in self._answers(some, places):
                    write(self._said(text, some[number], done + number + 1))
                done += len(some)
                sys.stdout.flush()
                if bar is not None:
                    bar.advance(done)
        self._tell_strange()
        if out is not None:
            self.tell(f"{done:,} {'lines' if done != 1 else 'line'}: {out}")

    def _answers(self, texts: list[str], places: list[str]) -> Iterator[tuple[int, list[Any]]]:
        if self.tell is not silent and len(self.strange) < 1_000:
            self.strange |= dict.fromkeys(self.run.predictor.unknown(texts)) if self._translates() else {}
        ask = self.run._ask("translate")
        yield from enumerate(ask(texts, self.options, places))

    def _translates(self) -> bool:
        return "translate" in self.run.predictor.questions

    def _said(self, answers: list[Any], source: str, number: int) -> str:
        if self.json:
            return self._record(answers, source)
        if self.options.nbest > 1:
            rows = enumerate(answers, 1)
            which = f"{number}\t" if self.several else ""
            said = "".join(f"{which}{rank}\t{one.score:.4f}\t{one_line(one.text)}\n" for rank, one in rows)
        else:
            said = one_line(answers[0].text) + "\n"
        return said + (self._table(answers[0]) if self.aligned and answers[0].tokens else "")

    def _record(self, answers: list[Any], source: str) -> str:
        value: dict[str, Any] = {"source": source, "translations": [one.record() for one in answers]}
        if self.aligned and answers[0].tokens:
            value["alignment"] = self._alignment(answers[0]).record()
        return json_module.dumps(value, ensure_ascii=False) + "\n"

    def _alignment(self, answer: Any) -> Any:
        return answer.alignment if self.tokens else answer.alignment.words()

    def _table(self, answer: Any) -> str:
        """A line a word: what it looked at most, with the weights."""
        best = self._alignment(answer).best()
        width = max(_wide(word) for word, _ in best)
        lines = [
            f"  {word}{' ' * (width - _wide(word))}  " + "   ".join(f"{name} {weight:.2f}" for name, weight in looked)
            for word, looked in best
        ]
        return "\n".join(lines) + "\n"

    def draw(self, text: str, out: Path) -> None:
        from ..report.heat import heat
        from ..report.looks import save

        self.several = False
        ((_, answers),) = self._answers([text], ["the text"])
        sys.stdout.write(self._said(answers, text, 1))
        answer = answers[0]
        save(heat(self._alignment(answer).view(one_line(answer.text)))[0], out)
        self._tell_strange()
        self.tell(f"wrote {out}")

    def converse(self) -> None:
        """Asks and answers until the input ends."""
        _ = self.run.predictor  # what is wrong with the run shows before one has typed
        self.run._ask("translate")
        with suppress(ImportError):
            import readline  # noqa: F401  lets the line be edited, and remembers those before
        self.several = False
        self.tell("a text and Enter; ctrl-D ends")
        while True:
            try:
                line = input("> ")
            except EOFError:
                print()
                return
            if not line.strip():
                continue
            try:
                self.file(iter([line]), "text", None, None)
            except SeriatimError as error:
                complain(error)

    def _tell_strange(self) -> None:
        if self.strange:
            names = list(self.strange)
            more = f" and {len(names) - STRANGE:,} more" if len(names) > STRANGE else ""
            shown = ", ".join(json_module.dumps(name, ensure_ascii=False) for name in names[:STRANGE])
            self.tell(f"not in the vocabulary, read as <unk>: {shown}{more}")
        self.strange = {}


class _Bar:
    """How far a file is, on a terminal."""

    def __init__(self, out: Path, source: Any) -> None:
        from ._progress import make_bar

        self.bar = make_bar() if sys.stderr.isatty() else None
        self.out, self.source = out, source

    def __enter__(self) -> _Bar:
        if self.bar is not None:
            self.bar.start()
            self.job = self.bar.add_task(self.out.name, total=self.source[0] if self.source else None, figures="")
        return self

    def advance(self, lines: int) -> None:
        if self.bar is not None:
            done = self.source[1]() if self.source else 0
            self.bar.update(self.job, completed=done, figures=f"{lines:,} lines")

    def __exit__(self, *error: Any) -> None:
        if self.bar is not None:
            self.bar.stop()


def _wide(text: str) -> int:
    """Columns of a terminal: letters of Chinese, Japanese and Korean take two, marks none."""
    return sum(
        0 if unicodedata.combining(sign) else 2 if unicodedata.east_asian_width(sign) in "WF" else 1 for sign in text
    )
