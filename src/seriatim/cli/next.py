"""Show the likeliest continuations of a prompt."""

from __future__ import annotations

from typing import Annotated

import typer

from . import _options as o
from ._output import bar, print_json, visible


def command(
    run: o.RunPath,
    prompt: Annotated[str, typer.Argument(help='What stands before, as "the students opened their".')],
    top: Annotated[int, typer.Option("--top", min=1, help="How many continuations.")] = 10,
    plugin: o.Plugin = None,
    json: o.Json = False,
) -> None:
    o.add_plugins(plugin)
    from ..runs import Run

    found = Run(run).next(prompt, top)
    if json:
        print_json([{"token": one.token, "probability": one.probability} for one in found])
        return
    width = max(len(visible(one.token)) for one in found)
    for one in found:
        print(f"{visible(one.token):<{width}}  {one.probability:7.2%}  {bar(one.probability)}")
