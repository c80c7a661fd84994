"""Train several architectures at equal terms.

Same data, same split, same budget; a table, pictures and samples side by side in one report. A comparison that was
interrupted goes on where it stopped when it is started again with the same --out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..core.measures import shown
from . import _options as o
from ._output import amount, duration, first_process, heading, once, print_json, print_table, silent

if TYPE_CHECKING:
    from ..api import Comparison

MEASURES = 3  # columns besides the main one: the page has all of them


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

    settings = o.gather(config, sets)
    asked = api.sections(settings).get("task", {}).get("name") if task is None else task
    default = ALL if asked == "language" else ALL.removeprefix("ngram,")
    names = [name.strip() for name in (default if models is None else models).split(",") if name.strip()]

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
        notify=silent if quiet else once(),
        **short,
    )
    show(comparison, json)


def show(comparison: Comparison, json: bool) -> None:
    from ..report.figures import baselines_of, read
    from ..training.signals import EXIT_CODES

    if not first_process():
        pass
    elif json:
        figures = read(comparison.runs)
        baselines = {split: found for split in ("valid", "test") if (found := baselines_of(figures, split))}
        about = {"path": str(comparison.path), "table": comparison.table(), "failed": comparison.failed}
        print_json(about | ({"baselines": baselines} if baselines else {}))
    else:
        _print(comparison)
        for name, why in comparison.failed.items():
            print(f"{name} failed: {why}")
        if comparison.runs:
            print(f"report: {comparison.path / 'report.html'}")
    stopped = [run.summary.get("reason", "") for run in comparison.runs]
    code = next((EXIT_CODES[reason] for reason in stopped if reason in EXIT_CODES), 0)
    if code or (comparison.failed and not comparison.runs):
        raise typer.Exit(code or 1)


def _print(comparison: Comparison) -> None:
    """A row a model, and below them the baselines: measures of the validation part, the main one of the test part
    too."""
    from ..report.figures import baselines_of, ranked, read, shared

    figures = read(comparison.runs)
    first = ranked(figures)[0]
    main, *others = shared([first]) or [first.main]
    columns = [(name, "valid") for name in (main, *others[:MEASURES])]
    found = {split: baselines_of(figures, split) for split in ("valid", "test")}
    if any(one.measures("test") for one in figures):  # by the first measure that the baselines have as well
        trivial = {name for values in found["test"].values() for name in values}
        columns.append((next((name for name in (main, *others) if name in trivial), main), "test"))
    rows = [
        (
            one.label,
            *(shown(name, one.measures(split).get(name), 1) for name, split in columns),
            amount(one.number("parameters")),
            amount(one.number("flops"), "FLOP"),
            amount(one.number("tokens_per_second")),
            amount(one.number("memory"), "B"),
            duration(one.number("seconds")),
        )
        for one in figures
    ]
    spent = ["parameters", "training", f"{first.element}/s", "memory", "time"]
    for who in dict.fromkeys([*found["valid"], *found["test"]]):
        values = [shown(name, found[split].get(who, {}).get(name), 1) for name, split in columns]
        rows.append((who, *values, *[""] * len(spent)))
    heads = [f"test {heading(name)}" if split == "test" else heading(name) for name, split in columns]
    print_table(["model", *heads, *spent], rows)
