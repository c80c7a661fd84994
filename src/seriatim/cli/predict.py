"""Answer for new data: a label, a value, tags or a forecast for each input.

seriatim predict runs/films "a fine film" "dull"    seriatim predict runs/films --data new.csv --out answers.csv

A model of two texts at once takes them with a tab between them, or from two columns of a file.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from ..core.errors import SeriatimError
from . import _options as o
from ._output import note, print_json


def command(
    run: o.RunPath,
    texts: Annotated[
        list[str] | None,
        typer.Argument(help="Inputs (two texts: a tab between); - reads one a line.", show_default=False),
    ] = None,
    data: Annotated[str | None, typer.Option("--data", help="A file of inputs: row N in, row N out.")] = None,
    column: o.Column = None,
    out: Annotated[
        Path | None, typer.Option("--out", help="Write a .csv, .tsv, .jsonl, .parquet or .conll file.")
    ] = None,
    plugin: o.Plugin = None,
    data_dir: o.DataDir = None,
    json: o.Json = False,
) -> None:
    o.add_plugins(plugin)
    from ..data import two_texts
    from ..data.writing import Table
    from ..runs import Run
    from .generate import read_lines

    if (data is None) == (not texts) and not _forecasts(run):
        raise SeriatimError(
            "predict.input", "either texts or --data says what to answer for", f'`seriatim predict {run} "a text"`'
        )
    opened = Run(run)
    if texts:
        given, each = (read_lines(None), "stdin, line") if texts == ["-"] else (texts, "text")
        pairs = getattr(opened.predictor, "pairs", False)
        answers: list[dict[str, Any]] = opened.predict(two_texts.of_lines(given, pairs, lambda at: f"{each} {at + 1}"))
        if json:
            print_json(answers)
            return
        table: Table = opened.predictor.table(answers)
    else:
        table = opened.predict_file(data if data is not None else "", data_dir, column)
    if out is not None:
        table.write(out)
        note(f"{len(table.full):,} rows: {out}")
    elif json:
        sys.stdout.write(table.text(".jsonl"))
    else:
        sys.stdout.write(table.text(table.usual))


def _forecasts(run: Path) -> bool:
    """A forecast goes on with the data of the run where no other is named."""
    from ..runs import Run

    return bool(Run(run).settings.get("task", {}).get("name") == "forecast")
