"""List the models and tasks there are, with a line on each."""

from __future__ import annotations

from typing import Annotated, Literal

import typer

from ..core import registry
from . import _options as o
from ._output import print_json, print_table


def command(
    what: Annotated[Literal["all", "models", "tasks"], typer.Argument(help="Which list.")] = "all",
    plugin: o.Plugin = None,
    json: o.Json = False,
) -> None:
    o.add_plugins(plugin)
    kinds = {"models": registry.models, "tasks": registry.tasks}
    wanted = {name: kind for name, kind in kinds.items() if what in ("all", name)}
    found = {name: {entry: kind.summary(entry) for entry in kind.names()} for name, kind in wanted.items()}
    if json:
        print_json(found)
        return
    for name, entries in found.items():
        print_table([name, ""], sorted(entries.items()), left=2)
