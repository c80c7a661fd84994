"""Say what is to be seen in pictures, and where each word of it looked.

seriatim caption runs/x photo.jpg --attention look.html    seriatim caption runs/x photos/ --out captions.tsv
"""

from __future__ import annotations

import json as json_module
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..core.config import validate
from ..core.errors import SeriatimError
from . import _options as o
from ._lines import chunks
from ._output import note, one_line, silent

if TYPE_CHECKING:
    from ..decode.options import TranslateSettings
    from ..runs import Run

PICTURES = 128  # that are held at once
PAGE = 100  # pictures of a page of attention
TABLES = (".tsv", ".csv", ".jsonl")
SHOWN = 10  # files that are named in an error


def command(
    run: o.RunPath,
    pictures: Annotated[
        list[Path], typer.Argument(help="Files, or folders of them with all below.", show_default=False)
    ],
    out: Annotated[
        Path | None, typer.Option("--out", help="Write a .tsv, .csv or .jsonl file: picture, (rank,) caption, score.")
    ] = None,
    attention: Annotated[
        Path | None,
        typer.Option("--attention", help="Draw where each word looked: .html, .png or .svg; the figures: .json."),
    ] = None,
    beams: Annotated[
        int | None, typer.Option(help="Beam search with so many hypotheses; 1: greedy. [default: 5]")
    ] = None,
    nbest: Annotated[int | None, typer.Option(help="Captions of each picture: (file,) rank, score, text.")] = None,
    length_penalty: Annotated[
        float | None, typer.Option(help="Beam: above 1 favours long captions, 0 short ones. [default: 1]")
    ] = None,
    max_tokens: Annotated[
        int | None, typer.Option(help="Tokens of a caption at most. [default: 100, or twice the longest trained on]")
    ] = None,
    min_tokens: Annotated[int | None, typer.Option(help="Tokens before the end may come.")] = None,
    temperature: Annotated[
        float | None, typer.Option(help="Draw instead of search: below 1 safer, above bolder.")
    ] = None,
    top_k: Annotated[int | None, typer.Option(help="Draw from the k likeliest tokens.")] = None,
    top_p: Annotated[float | None, typer.Option(help="Draw from the likeliest that make up this share.")] = None,
    no_repeat_ngram: Annotated[int | None, typer.Option(help="Never the same so many tokens in a row twice.")] = None,
    prefix: Annotated[str | None, typer.Option(help="What every caption begins with.")] = None,
    seed: Annotated[int | None, typer.Option(help="Of the draws: the same seed gives the same text.")] = None,
    skip_broken: Annotated[
        bool, typer.Option("--skip-broken", help="Leave out what cannot be read, and name it, instead of stopping.")
    ] = False,
    plugin: o.Plugin = None,
    json: Annotated[bool, typer.Option("--json", help="A JSON object a line, with scores.")] = False,
    quiet: o.Quiet = False,
) -> None:
    from ..decode.options import TranslateSettings

    given: dict[str, Any] = {
        "beams": beams,
        "nbest": nbest,
        "length_penalty": length_penalty,
        "max_tokens": max_tokens,
        "min_tokens": min_tokens,
        "temperature": temperature,
        "top_k": top_k,
        "top_p": top_p,
        "no_repeat_ngram": no_repeat_ngram,
        "prefix": prefix,
        "seed": seed,
    }
    options = validate(TranslateSettings, {k: v for k, v in given.items() if v is not None}, "the options of caption")
    paths = files(pictures)
    _check(paths, out, attention)
    o.add_plugins(plugin)
    from ..runs import Run

    opened = Run(run)
    opened._ask("caption")
    if attention is not None:
        opened.predictor.must_attend()
    Teller(opened, options, skip_broken, silent if quiet else note).tell_all(paths, out, attention, json)


def files(given: Sequence[Path]) -> list[Path]:
    """The pictures that are meant, those of folders in the order of their names; all that is wrong is told at once."""
    from ..data.picture_files import is_picture
    from ..data.picture_sources import visible

    found: list[Path] = []
    missing: list[str] = []
    for path in given:
        if path.is_dir():
            inside = [one for one in visible(path) if is_picture(one)]
            missing += [] if inside else [f"the folder {path} holds no pictures"]
            found += inside
        else:
            missing += [] if path.exists() else [f"there is no file {path}"]
            found.append(path)
    if missing:
        raise SeriatimError("file.missing", listed(missing), "check the path" + "s" * (len(missing) > 1))
    return list(dict.fromkeys(found))


def listed(causes: Sequence[str]) -> str:
    more = [f"… and {len(causes) - SHOWN:,} more"] if len(causes) > SHOWN else []
    return "\n    ".join([*causes[:SHOWN], *more])


def _check(paths: Sequence[Path], out: Path | None, attention: Path | None) -> None:
    """What takes long asks first whether its files can be written."""
    if out is not None and out.suffix.lower() not in TABLES:
        remedy = f"end it in {', '.join(TABLES)}"
        raise SeriatimError("output.kind", f"{out}: cannot write captions as a {out.suffix or 'nameless'} file", remedy)
    if attention is None:
        return
    from ..report.looks import check_ending

    check_ending(attention)
    page = attention.suffix.lower() == ".html"
    if len(paths) > (PAGE if page else 1):
        cause = (
            f"{attention} shows {f'{PAGE} pictures at most' if page else 'one picture'}, and there are {len(paths):,}"
        )
        raise SeriatimError("caption.picture", cause, "name fewer" if page else "name one, or write a .html page")


@dataclass
class Teller:
    """Asks the run and says what it answers."""

    run: Run
    options: TranslateSettings
    skips: bool
    tell: Callable[[str], None]
    broken: dict[str, SeriatimError] = field(default_factory=dict)  # by name

    def tell_all(self, paths: Sequence[Path], out: Path | None, attention: Path | None, json: bool) -> None:
        rows: list[list[Any]] = []
        views: list[dict[str, Any]] = []
        done = 0
        for some in self._watched(paths):
            for path, answers in self._answers(some, len(paths)):
                done += 1
                if out is not None:
                    rows += self._rows(path, answers)
                if out is None or json:
                    sys.stdout.write(self._record(path, answers) if json else self._said(path, answers, len(paths) > 1))
                if attention is not None:
                    views.append(self._view(path, answers))
            sys.stdout.flush()
        if self.broken:
            self.tell(f"left out, for they cannot be read:\n    {listed([one.cause for one in self.broken.values()])}")
        if out is not None:
            self._write(rows, out, done)
        if attention is not None and views:
            _draw(views, attention)
            self.tell(f"wrote {attention}")

    def _watched(self, paths: Sequence[Path]) -> Iterator[list[Path]]:
        """Some at a time; of many, a terminal shows how far it is."""
        from ._progress import make_bar

        with ExitStack() as opened:
            many = len(paths) > PICTURES and self.tell is not silent and sys.stderr.isatty()
            bar = opened.enter_context(make_bar()) if many else None
            job = bar.add_task("captions", total=len(paths), figures="") if bar is not None else None
            for some in chunks(paths, PICTURES):
                yield some
                if bar is not None:
                    bar.advance(job, len(some))

    def _answers(self, paths: list[Path], total: int) -> Iterator[tuple[Path, list[Any]]]:
        predictor, broken = self.run.predictor, dict[str, SeriatimError]()
        seen = predictor.readable(paths, broken)
        if broken and not (self.skips and len(broken) < total):
            skip = ", or go on without: --skip-broken" if len(broken) < total else ""
            raise self._refused(list(broken.values()), skip)
        self.broken |= broken
        kept = [path for path in paths if str(path) not in broken]
        yield from zip(kept, predictor.caption(seen, self.options), strict=True)

    @staticmethod
    def _refused(wrong: list[SeriatimError], skip: str) -> SeriatimError:
        if len(wrong) == 1:
            return SeriatimError(wrong[0].code, wrong[0].cause, wrong[0].remedy + skip)
        return SeriatimError(
            "picture.broken", listed([one.cause for one in wrong]), f"mend or remove these files{skip}"
        )

    def _said(self, path: Path, answers: list[Any], several: bool) -> str:
        which = f"{one_line(str(path))}\t" if several else ""
        if self.options.nbest > 1:
            ranked = enumerate(answers, 1)
            return "".join(f"{which}{rank}\t{one.score:.4f}\t{one_line(one.text)}\n" for rank, one in ranked)
        return f"{which}{one_line(answers[0].text)}\n"

    def _record(self, path: Path, answers: list[Any]) -> str:
        value = {"picture": str(path), "captions": [one.record() for one in answers]}
        return json_module.dumps(value, ensure_ascii=False) + "\n"

    def _rows(self, path: Path, answers: list[Any]) -> list[list[Any]]:
        if self.options.nbest == 1:
            return [[str(path), answers[0].text, round(answers[0].score, 6)]]
        return [[str(path), rank, one.text, round(one.score, 6)] for rank, one in enumerate(answers, 1)]

    def _write(self, rows: list[list[Any]], out: Path, done: int) -> None:
        from ..data.writing import Table

        rank = ["rank"] if self.options.nbest > 1 else []
        Table(["picture", *rank, "caption", "score"], rows).write(out)
        self.tell(f"{done:,} {'pictures' if done != 1 else 'picture'}: {out}")

    def _view(self, path: Path, answers: list[Any]) -> dict[str, Any]:
        view: dict[str, Any] = answers[0].attention.view(path.name)
        return view | {"captions": [[one.text, one.score] for one in answers]}


def _draw(views: Sequence[dict[str, Any]], path: Path) -> None:
    from ..report.overlay import save, save_page

    if path.suffix.lower() == ".html":
        save_page(views, path)
    else:
        save(views[0], path)
