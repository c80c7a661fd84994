"""Train a model on your data.

seriatim train language --data book.txt --model lstm
"""

from __future__ import annotations

from typing import Any

import typer

from ..runs import Run
from . import _options as o
from ._output import amount, duration, first_process, note, print_json, print_measures, silent


@o.with_short
def command(
    task: o.Task = None,
    data: o.Data = None,
    model: o.Model = None,
    start: o.From = None,
    config: o.ConfigFile = None,
    sets: o.Sets = None,
    plugin: o.Plugin = None,
    out: o.Out = None,
    data_dir: o.DataDir = None,
    print_config: o.PrintConfig = False,
    json: o.Json = False,
    quiet: o.Quiet = False,
    **short: Any,
) -> None:
    o.add_plugins(plugin)
    from .. import api
    from ..core.config import dump_yaml
    from ._progress import Progress

    settings = o.gather(config, sets)
    checked = api.configure(task, data, model, settings, start=start, **short)
    if print_config:
        print(dump_yaml(checked), end="")
        return
    run = api.train(
        settings=checked.model_dump(mode="json", exclude_unset=True),
        out=out,
        data_dir=data_dir,
        listeners=[] if quiet else [Progress(checked.model.name, checked.train)],
        notify=silent if quiet else note,
    )
    finish(run, json)


def finish(run: Run, json: bool) -> None:
    """Prints how a training went, once for all processes; a signal that ended it becomes the exit code."""
    from ..report.figures import Figures
    from ..training.signals import EXIT_CODES

    summary = run.summary
    reason = summary.get("reason", "")
    if not first_process():
        pass
    elif json:
        print_json({"run": str(run.path), **summary})
    elif reason.startswith("SIG"):
        note(f"`seriatim resume {run.path}` goes on from here")
    else:
        one = Figures(run, run.path.name)
        parts = [(split, one.measures(split)) for split in one.splits]
        last = one.splits[-1]
        parts += [(f"{last}, {who}", values) for who, values in one.baselines(last).items()]
        print_measures(parts, one.objective)
        speed = f"{amount(summary['tokens_per_second'])} {one.element}/s"
        print(f"{summary['parameters']:,} parameters, {duration(summary['seconds'])}, {speed}")
        print(f"run: {run.path}   report: {run.path / 'report.html'}")
    if reason in EXIT_CODES:
        raise typer.Exit(EXIT_CODES[reason])
