"""Write a model for other programs: in the format of transformers, or n-grams as ARPA."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from ..core.errors import SeriatimError
from . import _options as o


def command(
    run: o.RunPath,
    to: Annotated[Literal["transformers", "arpa"], typer.Option("--to", help="The format.")],
    out: Annotated[
        Path | None, typer.Option("--out", help="The folder or file. [default: transformers or model.arpa in the run]")
    ] = None,
) -> None:
    from ..runs import Run

    opened = Run(run)
    if to == "transformers":
        from ..exchange import export_model

        print(export_model(run, out))
        return
    if opened.config.model.name != "ngram":
        raise SeriatimError(
            "export.format", f"{run}: a {opened.config.model.name} cannot be written as ARPA", "ARPA holds n-grams only"
        )
    path = out or opened.path / "model.arpa"
    opened.model.write_arpa(path, opened.predictor.tokenizer.names)
    print(path)
