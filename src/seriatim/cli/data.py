"""seriatim data: the catalogue of data sets, fetching one, writing a built-in one, and the data check."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

from ..core.text import format_amount
from . import options as o
from .output import note, print_json, print_table

app = typer.Typer(no_args_is_help=True, add_completion=False)

BAR_WIDTH = 40  # characters of the longest bar of a histogram


@app.command("list")
def list_entries(json: o.Json = False) -> None:
    """List the data sets that can be named instead of a file."""
    from ..data.catalogue import entries
    from ..data.catalogue.generated import SETS

    rows = [
        {"name": e.name, "task": e.task, "size": e.size, "license": e.license, "summary": e.summary, "origin": e.origin}
        for e in entries().values()
    ]
    rows += [
        {
            "name": s.name,
            "task": s.task,
            "size": s.size,
            "license": s.license,
            "summary": s.summary,
            "origin": "generated",
        }
        for s in SETS.values()
    ]
    rows.sort(key=lambda row: str(row["name"]))
    if json:
        print_json(rows)
        return
    cells = []
    for row in rows:
        size = format_amount(int(str(row["size"])), "B") if row["size"] else str(row["origin"])
        cells.append((str(row["name"]), str(row["task"]), size, str(row["license"]), str(row["summary"])))
    print_table(("name", "task", "size", "license", "summary"), cells, left=5)


@app.command("get")
def get(
    name: Annotated[str, typer.Argument(help="A name of the catalogue.")],
    data_dir: o.DataDir = None,
    json: o.Json = False,
    quiet: o.Quiet = False,
) -> None:
    """Fetch a data set (or find its local copy), verify it, and print its files."""
    from ..data.catalogue import locate

    located = locate(name, data_dir, None if quiet else fetch_progress())
    files = [(split, str(file.path), file.member) for split, files in located.files.items() for file in files]
    if json:
        rows = [{"split": split, "path": path, "member": member} for split, path, member in files]
        print_json({"name": name, "origin": located.origin, "files": rows})
        return
    if not quiet:
        note(f"{name}: {located.origin}")
    for split, path, member in files:
        file = f"{path}#{member}" if member else path
        print(f"{split}  {file}" if len(files) > 1 else file)


@app.command("write")
def write(
    name: Annotated[str, typer.Argument(help="A built-in data set of images, such as scenes.")],
    folder: Annotated[Path, typer.Argument(help="The folder to make.")],
    count: Annotated[int | None, typer.Option(min=1, help="Images of each split. (default: all)")] = None,
    data_dir: o.DataDir = None,
    quiet: o.Quiet = False,
) -> None:
    """Write a built-in data set of images with captions as files, to look through or to train on."""
    from ..data.images.store import write_image_set

    written = write_image_set(name, folder, count, data_dir)
    if not quiet:
        note(f"{written:,} images with their captions; to train on them: --data {folder}")
    print(folder / "captions.jsonl")


@app.command("check")
def check(
    file: Annotated[str, typer.Argument(help="A file, a folder, two aligned files as a.en,a.fr, or a name.")],
    task: Annotated[
        str | None, typer.Option("--task", help="Check for this task. (default: the one that it fits best)")
    ] = None,
    column: o.Column = None,
    target: o.Target = None,
    encoding: Annotated[str, typer.Option("--encoding", help="Encoding of text files.")] = "utf-8",
    data_dir: o.DataDir = None,
    plugin: o.Plugin = None,
    json: o.Json = False,
    quiet: o.Quiet = False,
) -> None:
    """Check data before training: which tasks it fits, why not the others, and all its problems at once.

    Exit code 2 if it cannot be used as it is.
    """
    from ..data.check import check_data
    from ..runs.configure import add_plugins
    from ..tasks import load, load_all

    add_plugins(plugin)
    tasks = load_all() if task is None else {task: load(task)}
    schemas = {name: task_class.schema for name, task_class in tasks.items()}
    report = check_data(
        file,
        schemas,
        task,
        column=column,
        target=target,
        encoding=encoding,
        data_dir=data_dir,
        policies={name: task_class.split_policy for name, task_class in tasks.items()},
        fractions={name: task_class.default_fractions for name, task_class in tasks.items()},
    )
    if json:
        print_json(report.to_json())
    elif quiet:
        print(report.verdict)
    else:
        print(report)
        for title, rows in report.histograms.items():
            print(f"\n{title}")
            print_bars(rows)
    if not report.usable:
        raise typer.Exit(2)


@app.command("cache")
def cache(
    clear: Annotated[bool, typer.Option("--clear", help="Remove everything.")] = False,
    max_size: Annotated[
        str | None, typer.Option("--max-size", help="Remove what was not used longest, down to a size as 2G.")
    ] = None,
    json: o.Json = False,
) -> None:
    """Show the cache of read and tokenized data, or remove old entries."""
    from ..core.config import parse_count
    from ..core.errors import SeriatimError
    from ..data.cache import cache_entries, remove_entries

    limit = 0 if clear else None if max_size is None else parse_count(max_size)
    if limit is not None and (not isinstance(limit, int) or limit < 0):
        raise SeriatimError("usage", f"--max-size {max_size}: not a number of bytes", "write it as 500M or 2G")
    removed = [] if limit is None else remove_entries(limit)
    rows = cache_entries()
    if json:
        print_json({"entries": [row.name for row in rows], "removed": [row.name for row in removed]})
        return
    print_table(
        ("entry", "size", "last used"),
        [(row.name, format_amount(row.size, "B"), f"{row.age:.1f} days ago") for row in rows],
    )
    print(f"{len(rows):,} entries, {format_amount(sum(row.size for row in rows), 'B')}")
    if removed:
        print(f"removed {len(removed):,} entries, {format_amount(sum(row.size for row in removed), 'B')}")


def print_bars(rows: list[tuple[str, int]]) -> None:
    """Prints a histogram: a label, a bar and a count per row."""
    most = max((count for _, count in rows), default=0)
    width = max((len(label) for label, _ in rows), default=0)
    for label, count in rows:
        bar = "█" * max(1, round(BAR_WIDTH * count / most)) if count else ""  # any count is visible
        print(f"  {label:>{width}}  {bar} {count:,}")


def fetch_progress() -> Callable[[int, int | None], None] | None:
    """Returns a function that shows how much of a file is fetched, on a terminal."""
    if not sys.stderr.isatty():
        return None

    def show(fetched: int, total: int | None) -> None:
        whole = f" of {format_amount(total, 'B')}" if total else ""
        typer.echo(
            f"\rfetching: {format_amount(fetched, 'B')}{whole} " + ("\n" if fetched == total else ""),
            err=True,
            nl=False,
        )

    return show


@app.callback(rich_help_panel=o.MACHINE)
def data() -> None:
    """Data sets: list the catalogue, fetch one, check a file."""


COMMANDS = {"data": app}
