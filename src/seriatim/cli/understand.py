"""Commands that show what a model does: evaluate, inspect, report, runs and list."""

from __future__ import annotations

import inspect as python_inspect
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from ..core import registry
from ..core.errors import SeriatimError
from ..core.metrics import describe_metric, main_metric, metric_label
from ..core.run_folder import RunFolder, list_runs
from ..core.text import format_amount, format_duration
from ..tasks import NAMES, load_spec, names
from . import options as o
from .output import (
    format_exact,
    note,
    print_error,
    print_json,
    print_table,
    silent,
)


def evaluate(
    run: o.RunPath,
    data: Annotated[str | None, typer.Option("--data", help="Another file to evaluate on, all of it.")] = None,
    split: Annotated[
        Literal["train", "validation", "test"], typer.Option(help="The split of the run's own data.")
    ] = "test",
    column: o.Column = None,
    target: o.Target = None,
    int8: Annotated[bool, typer.Option("--int8", help="Also with weights of 8 bits, and the change.")] = False,
    plugin: o.Plugin = None,
    data_dir: o.DataDir = None,
    json: o.Json = False,
    quiet: o.Quiet = False,
) -> None:
    """Compute the metrics of a run on a split of its data, or on another file."""
    from .. import api
    from ..runs.evaluate import evaluate_run

    opened = api.load(run, plugin)
    columns = api.named_columns(opened, column, target)
    options: dict[str, Any] = {"split": split, "columns": columns, "data_dir": data_dir}
    evaluation = evaluate_run(opened, data, **options, notify=silent if quiet else note)
    metrics, signatures = evaluation.metrics, evaluation.signatures
    quantized = opened.evaluate(data, **options, int8=True) if int8 else {}
    if json:
        more: dict[str, object] = {"signatures": dict(signatures)} if signatures else {}
        more |= {"int8": quantized} if int8 else {}
        print_json({"run": str(run), "data": data, "split": None if data else split, **metrics, **more})
    elif int8:
        rows = []
        for name, value in metrics.items():
            change = f"{100 * (quantized[name] / value - 1):+.2f} %" if value else "–"
            rows.append((metric_label(name), format_exact(name, value), format_exact(name, quantized[name]), change))
        print_table(["metric", "float32", "int8", "change"], rows)
    else:
        print_table(["metric", "value"], [(metric_label(name), format_exact(name, v)) for name, v in metrics.items()])
        for name, text in signatures.items():
            print(f"{metric_label(name)}: {text if text.startswith('coco') else f'sacreBLEU {text}'}")


def view_options() -> dict[str, tuple[type, str]]:
    """Returns the type and the help of every option that a view has; views that explain it differently are named."""
    from ..inspect import VIEWS

    types: dict[str, type] = {}
    texts: dict[str, dict[str, list[str]]] = {}
    for view in VIEWS.values():
        for option in view.options.values():
            if option.type is not None:
                types[option.name] = option.type
                texts.setdefault(option.name, {}).setdefault(option.help.rstrip("."), []).append(view.name)
    helps = {
        name: next(iter(explained))
        if len(explained) == 1
        else "; ".join(f"{', '.join(views)}: {text[0].lower()}{text[1:]}" for text, views in explained.items())
        for name, explained in texts.items()
    }
    return {name: (kind, f"{helps[name]}.") for name, kind in types.items()}


def add_views(*tasks: str) -> None:
    """Gives the command `inspect` an option for every view, and for every option that views have."""
    from ..inspect import VIEWS

    flags = {name: (bool, view.summary, False) for name, view in VIEWS.items()}
    values = {name: (kind | None, text, None) for name, (kind, text) in view_options().items()}
    added = [
        python_inspect.Parameter(
            name,
            python_inspect.Parameter.KEYWORD_ONLY,
            default=default,
            annotation=Annotated[
                kind,
                typer.Option(
                    f"--{name.replace('_', '-')}",
                    help=text,
                    show_default=False,
                    rich_help_panel="Views" if name in flags else "Options of views",
                ),
            ],
        )
        for name, (kind, text, default) in (flags | values).items()
    ]
    fixed = [p for p in INSPECT.parameters.values() if p.kind != p.VAR_KEYWORD]
    inspect.__signature__ = INSPECT.replace(parameters=[*fixed, *added])  # type: ignore[attr-defined]


def inspect(
    subjects: Annotated[
        str,
        typer.Argument(
            metavar="RUN", help="A run, a folder of runs, or names of models as rnn,gpt.", show_default=False
        ),
    ],
    texts: Annotated[
        list[str] | None, typer.Argument(metavar="[TEXT]", help="What the model reads.", show_default=False)
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="A chart: .html, .png or .svg; the values: .json.")
    ] = None,
    plugin: o.Plugin = None,
    json: Annotated[bool, typer.Option("--json", help="Print the values as JSON.")] = False,
    quiet: o.Quiet = False,
    **chosen: object,
) -> None:
    """Look inside a model: attention, gates, gradients, surprise and more.

    seriatim inspect runs/x --attention "They are watching ."        seriatim inspect runs/x    (lists its views)
    """
    from ..inspect import VIEWS

    names = [name for name in VIEWS if chosen.pop(name)]
    options = {name: value for name, value in chosen.items() if value is not None}
    if out is not None:
        from ..report.render import check_extension

        check_extension(out)
    if len(names) > 1:
        raise SeriatimError("inspect.view", f"one view at a time: {', '.join(names)}", "choose one")
    from ..runs.configure import add_plugins
    from ..runs.inspection import open_inspector

    add_plugins(plugin)
    parts = [part.strip() for part in subjects.split(",") if part.strip()]
    inspector = open_inspector(*([subjects] if Path(subjects).exists() else parts))
    if not names:
        available = inspector.available()
        if texts or out is not None or options:
            raise SeriatimError("inspect.view", "no view is named", f"available: {', '.join(available)}")
        if json:
            print_json({name: VIEWS[name].summary for name in available})
            return
        width = max(len(name) for name in VIEWS) + 2
        for name in available:
            print(f"--{name:{width}}{VIEWS[name].summary}")
        return
    result = inspector.show(names[0], *(texts or ()), notify=None if quiet else note, **options)
    if out is not None:
        result.save(out)
        (silent if quiet else note)(f"wrote {out}")
    if json:
        print_json(result.to_json())
    elif out is None:
        print(result.text)


def report(run: o.RunPath) -> None:
    """Write the report and the model card of a run again, from the files in its folder."""
    from ..report import write_card, write_run_report

    folder = RunFolder(run)
    write_card(folder)
    print(write_run_report(folder))


def runs(
    folder: Annotated[Path, typer.Argument(help="Where the runs are.")] = Path("runs"),
    json: o.Json = False,
) -> None:
    """List the runs in a folder with their size and quality."""
    opened = list_runs(folder)
    rows, records, damaged = [], [], False
    for run in opened:
        try:
            settings, results = run.settings, run.results
        except SeriatimError as error:  # of one run: the others are listed
            print_error(error)
            damaged = True
            continue
        records.append({"run": str(run.path), **results.to_json()})
        metrics = results.metrics.get("validation", {})
        name = main_metric(metrics, results.monitor)
        rows.append(
            (
                str(run.path),
                settings["task"]["name"],
                settings["model"]["name"],
                results.reason or "not finished",
                format_amount(results.parameters),
                describe_metric(name, metrics[name]) if name in metrics else "–",
                format_duration(results.seconds),
                (results.created or "–")[:16].replace("T", " "),
            )
        )
    if json:
        print_json(records)
    elif rows:
        print_table(["run", "task", "model", "state", "parameters", "validation", "time", "created"], rows, left=4)
    elif not damaged:
        print(f"no runs in {folder}")
    if damaged:
        raise typer.Exit(2)


def list_entries(
    what: Annotated[Literal["all", "models", "tasks"], typer.Argument(help="Which list.")] = "all",
    plugin: o.Plugin = None,
    json: o.Json = False,
) -> None:
    """List the models and tasks, with a line on each."""
    tasks: Sequence[str] = NAMES
    if plugin:
        from ..runs.configure import add_plugins

        add_plugins(plugin)
        tasks = names()
    models = {name: registry.models.summary(name) for name in registry.models.names()}
    lists = {"models": models, "tasks": {name: load_spec(name).summary for name in tasks}}
    entries = {kind: summaries for kind, summaries in lists.items() if what in ("all", kind)}
    if json:
        print_json(entries)
        return
    for kind, summaries in entries.items():
        print_table([kind, ""], sorted(summaries.items()), left=2)


INSPECT = python_inspect.signature(inspect, eval_str=True)  # without the options of views
inspect.add_options = add_views  # type: ignore[attr-defined]
FUNCTIONS: dict[str, Callable[..., None]] = {
    "evaluate": evaluate,
    "inspect": inspect,
    "report": report,
    "runs": runs,
    "list": list_entries,
}
COMMANDS = {name: o.single_command(name, function, o.UNDERSTAND) for name, function in FUNCTIONS.items()}
