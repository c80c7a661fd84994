"""Teach a small model by a large one, and measure what it gains.

The student is trained alone and distilled, with the data, the budget and the seed of its teacher unless others are
named; a table and a report say how good, how small and how fast teacher and students are. A distillation that was
interrupted goes on where it stopped when it is started again with the same --out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import typer

from ..core.errors import SeriatimError
from ..core.measures import main, shown, telling
from . import _options as o
from ._output import amount, duration, first_process, heading, note, once, print_json, print_table, silent

if TYPE_CHECKING:
    from ..distilling import Distillation

MEASURES = 3  # columns besides the main one: the page has all of them


@o.with_short
def command(
    data: o.Data = None,
    model: o.Model = None,
    start: o.From = None,
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
    from .. import distilling
    from ..runs import Run
    from ._progress import Progress

    teacher, short["start"] = short.pop("teacher"), start
    if teacher is None:
        raise SeriatimError("distil.teacher", "no teacher is named", "name a trained run: --teacher runs/large")
    settings = o.gather(config, sets)
    students = distilling.students(Run(teacher), model, data, settings, **short)
    found = distilling.distil(
        teacher,
        model,
        data=data,
        settings=settings,
        out=out,
        data_dir=data_dir,
        listeners=lambda label: [] if quiet else [Progress(label, students[label].train)],
        notify=silent if quiet else once(),
        **short,
    )
    show(found, json)


def show(found: Distillation, json: bool) -> None:
    from ..training.signals import EXIT_CODES

    if not first_process():
        pass
    elif json:
        print_json({"path": str(found.path), "table": found.table()})
    elif found.rows:
        _print(found)
        print(f"report: {found.path / 'report.html'}")
    else:
        note(f"the same command with --out {found.path} goes on from here")
    reasons = [run.summary.get("reason", "") for run in found.runs.values()]
    code = next((EXIT_CODES[reason] for reason in reasons if reason in EXIT_CODES), 0)
    if code and not found.rows:
        raise typer.Exit(code)


def _print(found: Distillation) -> None:
    first = found.rows[0]
    names = telling(first["measures"], first["objective"])[: 1 + MEASURES] or [main(first["measures"])]
    rows = [
        (
            row["label"],
            row["model"],
            *(shown(name, row["measures"].get(name), 1) for name in names),
            amount(row["parameters"]),
            amount(row["bytes"], "B"),
            *(amount(row["speed"][size]) for size in ("32", "1")),
            duration(row["seconds"]),
        )
        for row in found.rows
    ]
    heads = [f"{first['split']} {heading(name)}" if name == names[0] else heading(name) for name in names]
    print_table(["", "model", *heads, "parameters", "size", "32 at a time", "one by one", "training"], rows, 2)
    print("speed: answers a second on the CPU")
