"""Measure a trained model on data kept apart, or on another file."""

from __future__ import annotations

from typing import Annotated, Any, Literal

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
    int8: Annotated[bool, typer.Option("--int8", help="Also with weights of 8 bits, and what that changes.")] = False,
    plugin: o.Plugin = None,
    data_dir: o.DataDir = None,
    json: o.Json = False,
    quiet: o.Quiet = False,
) -> None:
    o.add_plugins(plugin)
    from .. import api

    notify = silent if quiet else note
    on: dict[str, Any] = {"data": data, "split": split, "column": column, "target": target, "data_dir": data_dir}
    measures = api.evaluate(run, **on, notify=notify)
    rounded = api.evaluate(run, **on, int8=True) if int8 else {}
    if json:
        taken: dict[str, Any] = {"signatures": signatures(measures)} if signatures(measures) else {}
        taken |= {"int8": rounded} if int8 else {}
        print_json({"run": str(run), "data": data, "split": None if data else split, **measures, **taken})
    elif int8:
        both = [(name, value, rounded[name]) for name, value in measures.items()]
        changes = [(title(name), exactly(name, a), exactly(name, b), changed(a, b)) for name, a, b in both]
        print_table(["measure", "float32", "int8", "change"], changes)
    else:
        rows = [(title(name), exactly(name, value)) for name, value in measures.items()]
        print_table(["measure", "value"], rows)
        for name, text in signatures(measures).items():
            print(f"{title(name)}: {text if text.startswith('coco') else f'sacreBLEU {text}'}")


def changed(before: float, after: float) -> str:
    """By which share a measure has changed."""
    return f"{100 * (after / before - 1):+.2f} %" if before else "–"
