"""Go on with a training where it stopped.

On the CPU the result is, bit for bit, that of a training that never stopped.
"""

from __future__ import annotations

from typing import Annotated

import typer

from . import _options as o
from ._output import note, silent
from .train import finish


def command(
    run: o.RunPath,
    steps: Annotated[int | None, typer.Option("--steps", min=1, help="Move the end to this step.")] = None,
    epochs: Annotated[
        float | None, typer.Option("--epochs", min=0, help="Move the end to so many passes over the data in all.")
    ] = None,
    minutes: Annotated[
        float | None, typer.Option("--minutes", min=0, help="Move the end to so many minutes in all.")
    ] = None,
    plugin: o.Plugin = None,
    data_dir: o.DataDir = None,
    json: o.Json = False,
    quiet: o.Quiet = False,
) -> None:
    o.add_plugins(plugin)
    from .. import api
    from ..runs import Run
    from ._progress import Progress

    config = Run(run).config
    result = api.resume(
        run,
        steps=steps,
        epochs=epochs,
        minutes=minutes,
        data_dir=data_dir,
        listeners=[] if quiet else [Progress(config.model.name, config.train)],
        notify=silent if quiet else note,
    )
    finish(result, json)
