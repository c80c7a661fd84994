"""Tell how likely a text is, or a translation of it, or a caption of a picture, altogether and token by token."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Annotated

import typer

from ..core.errors import SeriatimError
from . import _options as o
from ._output import bar, print_json, print_table, visible
from .generate import read_lines

MOST_BITS = 20  # a full bar


def command(
    run: o.RunPath,
    text: Annotated[str | None, typer.Argument(help="The text; caption: a picture.", show_default=False)] = None,
    target: Annotated[str | None, typer.Argument(help="Its translation, or its caption.", show_default=False)] = None,
    file: Annotated[
        Path | None,
        typer.Option("--file", help="Score every line (where two are needed, a tab between them; - for stdin)."),
    ] = None,
    tokens: Annotated[bool, typer.Option("--tokens", help="Show every token.")] = False,
    plugin: o.Plugin = None,
    json: o.Json = False,
) -> None:
    if (text is None) == (file is None):
        raise SeriatimError("score.input", "one text or one --file is needed", "score RUN TEXT, or score RUN --file F")
    o.add_plugins(plugin)
    from ..runs import Run

    opened = Run(run)
    if text is not None:
        scores = [opened.score(text, target)]
    elif {"translate", "caption"} & set(opened.predictor.questions):
        pairs = [_pair(line, f"{file}, line {number}") for number, line in enumerate(read_lines(file), 1)]
        scores = [opened.score(*pair) for pair in pairs]
    else:
        scores = [opened.score(line) for line in read_lines(file)]
    if json:
        print_json(
            [
                {
                    "text": one.text,
                    "log_probability": one.log_probability,
                    "tokens": one.tokens,
                    "perplexity": one.perplexity,
                }
                | ({"pieces": one.pieces} if tokens else {})
                for one in scores
            ]
        )
        return
    if tokens:
        for one in scores:
            width = max((len(visible(piece)) for piece, _ in one.pieces), default=0)
            for piece, value in one.pieces:
                bits = -value / math.log(2)
                print(f"{visible(piece):<{width}}  {bits:6.2f} bits  {bar(bits / MOST_BITS)}")
    rows = [(f"{one.log_probability:.4f}", f"{one.tokens}", f"{one.perplexity:.3f}") for one in scores]
    print_table(["log-probability (nats)", "tokens", "perplexity"], rows, left=0)


def _pair(line: str, place: str) -> list[str]:
    pair = line.split("\t")[:2]  # what stands behind, as an attribution, says nothing of the two
    if len(pair) < 2:
        raise SeriatimError("score.input", f"{place}: there is no tab", "write what is read, a tab, and what is scored")
    return pair
