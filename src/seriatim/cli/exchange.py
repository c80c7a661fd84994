"""Commands that exchange models with other programs: import, export and card."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from . import options as o
from .output import note


def register(app: typer.Typer) -> None:
    """Adds the commands of this module."""
    app.command("import", rich_help_panel=o.EXCHANGE)(import_model)
    app.command("export", rich_help_panel=o.EXCHANGE)(export_model)
    app.command("card", rich_help_panel=o.EXCHANGE)(card)


def import_model(
    source: Annotated[str, typer.Argument(help="A folder, a name on the hub, or an ARPA file.", show_default=False)],
    out: o.Out = None,
) -> None:
    """Make a run folder from a model of another program.

    A folder of transformers, a name on its hub, or the ARPA file of an n-gram model.
    """
    from ..runs import exchange

    print(exchange.import_model(source, out, note).path)


def export_model(
    run: o.RunPath,
    format: Annotated[
        str | None, typer.Option("--format", help="transformers, or arpa for n-gram models. [default: by the model]")
    ] = None,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="The folder or file to write.")] = None,
    plugin: o.Plugin = None,
) -> None:
    """Write a model for another program: a folder of transformers, or an ARPA file."""
    from ..runs import exchange
    from ..runs.configure import add_plugins

    add_plugins(plugin)
    print(exchange.export_model(run, out, format))


def card(run: o.RunPath) -> None:
    """Write the model card of a run, README.md, anew."""
    from ..core.run_folder import RunFolder
    from ..report import write_card

    print(write_card(RunFolder(run)))
