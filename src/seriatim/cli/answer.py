"""Answer questions about a passage by a part of it.

seriatim answer runs/x --passage article.txt "Who won?" "When?"    seriatim answer runs/x --data dev.json --out a.json
"""

from __future__ import annotations

import codecs
import re
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from ..core.errors import SeriatimError
from . import _options as o
from ._output import note, one_line, print_json, print_table

NAME = re.compile(r"\S*[/\\]\S*|[\w.~-]+\.\w{1,5}")  # what can only be meant as the name of a file


def command(
    run: o.RunPath,
    questions: Annotated[
        list[str] | None, typer.Argument(help="Questions; - reads one a line.", show_default=False)
    ] = None,
    passage: Annotated[
        str | None, typer.Option("--passage", metavar="FILE|TEXT", help="What they are about: a file, or the text.")
    ] = None,
    data: Annotated[
        str | None, typer.Option("--data", help="Instead: a SQuAD or JSONL file of questions and passages.")
    ] = None,
    nbest: Annotated[int, typer.Option("--nbest", min=1, help="So many answers to each question, best first.")] = 1,
    threshold: Annotated[
        float | None,
        typer.Option("--threshold", help="Say nothing where no answer is better by more. [default: as the run says]"),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", help="With --data: write .json ({id: answer}, as SQuAD wants it), .jsonl, .csv or .tsv."),
    ] = None,
    plugin: o.Plugin = None,
    data_dir: o.DataDir = None,
    json: o.Json = False,
) -> None:
    if (data is None) == (passage is None) or (passage is None) != (not questions):
        raise SeriatimError(
            "answer.input",
            "either a passage and questions, or --data says what to answer",
            f'`seriatim answer {run} --passage FILE "Who …?"`',
        )
    if data is None and out is not None:
        raise SeriatimError("answer.input", "--out is for the answers to a file", "give --data, or use --json and >")
    if data is not None and (nbest > 1 or threshold is not None):
        cause = "--nbest and --threshold are for questions about one passage"
        raise SeriatimError("answer.input", cause, "leave them away, or give --passage")
    o.add_plugins(plugin)
    from ..runs import Run
    from .generate import read_lines

    opened = Run(run)
    opened.answer("", [])  # a run of another task says now what it can be asked
    if data is not None:
        table = opened.predict_file(data, data_dir)
        if out is not None:
            table.write(out)
            note(f"{len(table.full):,} answers: {out}")
        else:
            sys.stdout.write(table.text(".jsonl" if json else ".tsv"))
        return
    asked = read_lines(None) if questions == ["-"] else questions or []
    found = opened.answer(_text(passage or ""), asked, nbest, threshold)
    ranked = [answers if nbest > 1 else [answers] for answers in found]
    if json:
        pairs = zip(asked, ranked, strict=True)
        print_json([{"question": question, "answers": [vars(one) for one in some]} for question, some in pairs])
        return
    rows = [row for question, some in zip(asked, ranked, strict=True) for row in _rows(question, some)]
    print_table(("question", "answer", "characters", "probability"), rows, left=2)


def _rows(question: str, answers: list[Any]) -> list[tuple[str, ...]]:
    return [
        (
            one_line(question) if rank == 0 else "",
            one_line(one.text) or "(none)",
            f"{one.start}–{one.end}" if one.text else "",
            f"{100 * one.probability:.1f} %",
        )
        for rank, one in enumerate(answers)
    ]


def _text(passage: str) -> str:
    """A file to the letter, its line ends too, since places are counted in it; or the text itself."""
    try:
        data = Path(passage).read_bytes()
    except (OSError, ValueError):  # no file: a text may be too long for a name, or hold what none can
        if NAME.fullmatch(passage):
            raise SeriatimError("file.missing", f"there is no file {passage}", "check the path") from None
        return passage
    try:
        return data.removeprefix(codecs.BOM_UTF8).decode("utf-8")
    except UnicodeDecodeError:
        raise SeriatimError("file.encoding", f"{passage}: not UTF-8", "convert the file") from None
