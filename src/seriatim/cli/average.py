"""Make a model whose weights are the mean of the last checkpoints of a run, or of several runs.

seriatim average runs/x --last 5 --out runs/y
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from . import _options as o
from ._output import note, print_json, silent
from .train import finish


def command(
    runs: Annotated[
        list[Path], typer.Argument(help="The folder of a run, or several of one shape.", show_default=False)
    ],
    last: Annotated[
        int | None,
        typer.Option("--last", help="Checkpoints to average (train with --set train.keep=5). [default: all]"),
    ] = None,
    out: o.Out = None,
    evaluate: Annotated[bool, typer.Option(help="Measure it on the data of the run.")] = True,
    plugin: o.Plugin = None,
    data_dir: o.DataDir = None,
    json: o.Json = False,
    quiet: o.Quiet = False,
) -> None:
    o.add_plugins(plugin)
    from ..averaging import average

    notify = silent if quiet else note
    made = average(list(runs), last=last, out=out, evaluate=evaluate, data_dir=data_dir, notify=notify)
    if evaluate:
        finish(made, json)
    elif json:
        print_json({"run": str(made.path), **made.summary})
    else:
        print(f"run: {made.path}")
