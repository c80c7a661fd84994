"""List the runs in a folder with their size and quality."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

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
        rows.append(
            (
                str(run.path),
                run.settings["task"]["name"],
                run.settings["model"]["name"],
                summary.get("reason", "not finished"),
                amount(summary.get("parameters")),
                f"{valid['loss']:.4f}" if "loss" in valid else "–",
                duration(summary["seconds"]) if "seconds" in summary else "–",
                summary.get("created", "–")[:16].replace("T", " "),
            )
        )
    print_table(["run", "task", "model", "state", "parameters", "valid loss", "time", "when"], rows, left=4)
