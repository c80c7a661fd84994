"""Take in a model of another program: a folder of transformers, a name on its hub, or an n-gram's ARPA file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from . import _options as o
from ._output import note


def command(
    source: Annotated[str, typer.Argument(help="A folder, a name on the hub, or an ARPA file.", show_default=False)],
    out: o.Out = None,
) -> None:
    if Path(source).is_file():
        from .. import api

        print(api.import_arpa(source, out).path)
        return
    from ..exchange import import_model

    print(import_model(source, out, note).path)
