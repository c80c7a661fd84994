"""Reproduce a published table: what was reported beside what is reached here.

seriatim reproduce forecasting    seriatim reproduce bai2018 --rows adding,jsb --minutes 5

Rows are trained one after the other; the same command goes on where it was stopped.
"""

from __future__ import annotations

from typing import Annotated

import typer

from . import _options as o
from ._output import amount, duration, first_process, note, print_json, print_table, silent

Table = Annotated[str, typer.Argument(help="forecasting or bai2018.", show_default=False)]
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
    from ..core.measures import shown
    from ..reproduce import reproduce
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
        lines = []
        for one in outcome.reached:
            published = one.row.models[one.label].published
            lines.append(
                (
                    one.row.name,
                    one.label,
                    "–" if published is None else shown(one.row.measure, published),
                    shown(one.row.measure, one.value),
                    amount(one.run.summary["parameters"]),
                    duration(one.run.summary["seconds"]),
                )
            )
        print_table(["row", "model", "published", "reached", "parameters", "time"], lines, left=2)
        print(f"table: {outcome.path / 'table.md'}   report: {outcome.path / 'report.html'}")
    if outcome.stopped in EXIT_CODES:
        raise typer.Exit(EXIT_CODES[outcome.stopped])


def _names(text: str | None) -> list[str]:
    return [name.strip() for name in (text or "").split(",") if name.strip()]
