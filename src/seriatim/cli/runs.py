"""List the runs in a folder with their size and quality."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ..core.measures import main, told
from . import _options as o
from ._output import amount, duration, print_json, print_table


def command(
    folder: Annotated[Path, typer.Argument(help="Where the runs are.")] = Path("runs"),
    json: o.Json = False,
) -> None:
    from ..runs import list_runs

    runs = list_runs(folder)
    if json:
        print_json([{"run": str(run.path), **run.summary} for run in runs])
        return
    if not runs:
        print(f"no runs in {folder}")
        return
    rows = []
    for run in runs:
        summary = run.summary
        valid = summary.get("measures", {}).get("valid", {})
        name = main(valid, summary.get("objective", "loss"))
        rows.append(
            (
                str(run.path),
                run.settings["task"]["name"],
                run.settings["model"]["name"],
                summary.get("reason", "not finished"),
                amount(summary.get("parameters")),
                told(name, valid[name]) if name in valid else "–",
                duration(summary["seconds"]) if "seconds" in summary else "–",
                summary.get("created", "–")[:16].replace("T", " "),
            )
        )
    print_table(["run", "task", "model", "state", "parameters", "validation", "time", "when"], rows, left=4)
