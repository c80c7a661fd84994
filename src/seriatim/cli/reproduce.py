"""Reproduce a published table: what was reported beside what is reached here.

seriatim reproduce forecasting    seriatim reproduce bai2018 --rows adding,jsb --minutes 5
seriatim reproduce length: quality over the length of the source, without attention and with it
seriatim reproduce skips: 20 and 56 layers learning, with skips and without

Rows are trained one after the other; the same command goes on where it was stopped.
"""

from __future__ import annotations

from typing import Annotated

import typer

from . import _options as o
from ._output import first_process, note, print_json, print_table, silent

Table = Annotated[str, typer.Argument(help="forecasting, bai2018, length or skips.", show_default=False)]
Rows = Annotated[str | None, typer.Option("--rows", help="Rows with commas between. [default: all]")]
Models = Annotated[str | None, typer.Option("--models", help="Models of the rows with commas between. [default: all]")]


def command(
    table: Table,
    rows: Rows = None,
    models: Models = None,
    minutes: Annotated[
        float | None, typer.Option("--minutes", help="Training time of each model. [default: as the row says]")
    ] = None,
    seed: o.Seed = None,
    out: o.Out = None,
    data_dir: o.DataDir = None,
    json: o.Json = False,
    quiet: o.Quiet = False,
) -> None:
    from ..reproduce import reproduce
    from ..reproduce.page import cells
    from ..training.settings import TrainSettings
    from ..training.signals import EXIT_CODES
    from ._progress import Progress

    outcome = reproduce(
        table,
        _names(rows),
        _names(models),
        minutes=minutes,
        seed=0 if seed is None else seed,
        out=out,
        data_dir=data_dir,
        listeners=lambda label, time: [] if quiet else [Progress(label, TrainSettings(minutes=time))],
        notify=silent if quiet else note,
    )
    if first_process() and json:
        print_json({"path": str(outcome.path), "table": outcome.records(), "missing": outcome.missing})
    elif first_process():
        found = [cells(one, outcome.table.published) for one in outcome.reached]
        heads = [head for head in (found[0] if found else ()) if head not in ("steps", "seed")]
        if found:
            print_table(heads, [[line[head] for head in heads] for line in found], left=2)
        print(f"table: {outcome.path / 'table.md'}   report: {outcome.path / 'report.html'}")
    if outcome.stopped in EXIT_CODES:
        raise typer.Exit(EXIT_CODES[outcome.stopped])


def _names(text: str | None) -> list[str]:
    return [name.strip() for name in (text or "").split(",") if name.strip()]
