"""Train several architectures at equal terms.

Same data, same split, same budget; a table, pictures and samples side by side in one report. A comparison that was
interrupted goes on where it stopped when it is started again with the same --out.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any

import typer

from . import _options as o
from ._output import amount, duration, first_process, note, print_json, print_table, silent

if TYPE_CHECKING:
    from ..api import Comparison


ALL = "ngram,mlp,rnn,lstm,gru,tcn,gpt"


@o.with_short
def command(
    task: o.Task = None,
    data: o.Data = None,
    models: Annotated[
        str | None,
        typer.Option("--models", help="The architectures, with commas between. [default: all that fit]"),
    ] = None,
    config: o.ConfigFile = None,
    sets: o.Sets = None,
    plugin: o.Plugin = None,
    out: o.Out = None,
    data_dir: o.DataDir = None,
    json: o.Json = False,
    quiet: o.Quiet = False,
    **short: Any,
) -> None:
    o.add_plugins(plugin)
    from .. import api
    from ._progress import Progress

    default = ALL if task == "language" else ALL.removeprefix("ngram,")
    names = [name.strip() for name in (default if models is None else models).split(",") if name.strip()]
    settings = o.gather(config, sets)

    def listeners(name: str) -> list[Progress]:
        train = api.configure(task, data, name, settings, **short).train
        return [] if quiet else [Progress(name, train)]

    comparison = api.compare(
        task,
        data,
        names,
        settings=settings,
        out=out,
        data_dir=data_dir,
        listeners=listeners,
        notify=silent if quiet else _once(),
        **short,
    )
    show(comparison, json)


def _once() -> Callable[[str], None]:
    """Notes about the data are the same for every model: each is told once."""
    told: set[str] = set()

    def tell(text: str) -> None:
        if text not in told:
            told.add(text)
            note(text)

    return tell


def show(comparison: Comparison, json: bool) -> None:
    from ..training.signals import EXIT_CODES

    table = comparison.table()
    if not first_process():
        pass
    elif json:
        print_json({"path": str(comparison.path), "table": table, "failed": comparison.failed})
    else:
        rows = [
            (
                row["model"],
                _figure(row.get("valid_loss")),
                _figure(row.get("perplexity"), 3),
                _figure(row.get("bits_per_character")),
                amount(row.get("parameters")),
                amount(row.get("flops"), "FLOP"),
                amount(row.get("tokens_per_second")),
                amount(row.get("memory"), "B"),
                duration(row.get("seconds", 0.0)),
            )
            for row in table
        ]
        headings = ["model", "loss", "perplexity", "bits/char", "parameters", "training", "tokens/s", "memory", "time"]
        print_table(headings, rows)
        for name, why in comparison.failed.items():
            print(f"{name} failed: {why}")
        if comparison.runs:
            print(f"report: {comparison.path / 'report.html'}")
    stopped = [run.summary.get("reason", "") for run in comparison.runs]
    code = next((EXIT_CODES[reason] for reason in stopped if reason in EXIT_CODES), 0)
    if code or (comparison.failed and not comparison.runs):
        raise typer.Exit(code or 1)


def _figure(value: float | None, digits: int = 4) -> str:
    return "–" if value is None else f"{value:.{digits}f}"
