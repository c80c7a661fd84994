"""Take in an n-gram model of another program, from its ARPA file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from . import _options as o


def command(
    file: Annotated[Path, typer.Argument(help="The ARPA file.", show_default=False)],
    out: o.Out = None,
) -> None:
    from .. import api

    print(api.import_arpa(file, out).path)
