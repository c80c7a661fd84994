"""Compare seven generations of models on built-in data.

Trains n-gram, window MLP, RNN, LSTM, GRU, TCN and GPT at equal size on the text of Python's own help pages, in
under four minutes on two cores, and writes a page of pictures.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from . import _options as o
from ._output import note, silent

MODELS = ("ngram", "mlp", "rnn", "lstm", "gru", "tcn", "gpt")
PARAMETERS = "200k"
LENGTH = 64


def command(
    minutes: Annotated[float, typer.Option("--minutes", help="Training time of each model.")] = 0.35,
    out: Annotated[Path | None, typer.Option("--out", help="The folder to make. [default: a new one in runs/]")] = None,
    json: o.Json = False,
    quiet: o.Quiet = False,
) -> None:
    from .. import api, report
    from ..runs import fresh_folder
    from ..training.settings import TrainSettings
    from ._progress import Progress
    from .compare import show

    tell = silent if quiet else note
    tell(f"the text of Python's own help pages; each model has {PARAMETERS} parameters and {minutes * 60:.0f} s")
    comparison = api.compare(
        "language",
        "pydoc",
        MODELS,
        out=fresh_folder("runs", "demo") if out is None else out,
        listeners=lambda name: [] if quiet else [Progress(name, TrainSettings(minutes=minutes))],
        notify=silent,
        params=PARAMETERS,
        minutes=minutes,
        length=LENGTH,
    )
    if json:
        show(comparison, json=True)
        return
    print("\nWhat to notice")
    for lesson in report.lessons(comparison.runs):
        print(f"  • {lesson}")
    print()
    show(comparison, json=False)
    best = min(comparison.runs, key=lambda run: run.summary["measures"]["valid"]["loss"])
    print(f'try: seriatim generate {best.path} --prompt "The "')
