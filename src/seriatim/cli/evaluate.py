"""Measure a trained model on data kept apart, or on another file."""

from __future__ import annotations

from typing import Annotated, Literal

import typer

from ..core.measures import signatures, title
from . import _options as o
from ._output import exactly, note, print_json, print_table, silent


def command(
    run: o.RunPath,
    data: Annotated[str | None, typer.Option("--data", help="Another file to measure on, the whole of it.")] = None,
    split: Annotated[Literal["train", "valid", "test"], typer.Option(help="The part of the run's own data.")] = "test",
    column: o.Column = None,
    target: o.Target = None,
    plugin: o.Plugin = None,
    data_dir: o.DataDir = None,
    json: o.Json = False,
    quiet: o.Quiet = False,
) -> None:
    o.add_plugins(plugin)
    from .. import api

    notify = silent if quiet else note
    measures = api.evaluate(run, data=data, split=split, column=column, target=target, data_dir=data_dir, notify=notify)
    if json:
        taken = {"signatures": signatures(measures)} if signatures(measures) else {}
        print_json({"run": str(run), "data": data, "split": None if data else split, **measures, **taken})
    else:
        rows = [(title(name), exactly(name, value)) for name, value in measures.items()]
        print_table(["measure", "value"], rows)
        for name, text in signatures(measures).items():
            print(f"{title(name)}: sacreBLEU {text}")
