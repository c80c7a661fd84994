"""Commands that train: demo, train, resume, compare, distill, average and reproduce."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..core.errors import SeriatimError
from ..core.metrics import displayed_metrics, format_metric, get_metric, merge_metrics
from ..core.run_folder import RunFolder
from ..core.text import MISSING, format_amount, format_duration
from . import options as o
from .output import (
    column_label,
    is_first_process,
    note,
    note_once,
    print_json,
    print_metrics,
    print_table,
    silent,
)

if TYPE_CHECKING:
    from ..runs.compare import Comparison

COMPARED_METRICS = 3  # columns of the table besides the main metric


@o.with_training_options()
def train(
    task: o.Task = None,
    data: o.Data = None,
    model: o.ModelOrAuto = None,
    start: o.From = None,
    config: o.ConfigFile = None,
    sets: o.Sets = None,
    plugin: o.Plugin = None,
    out: o.Out = None,
    data_dir: o.DataDir = None,
    report: Annotated[bool, typer.Option(help="Write report.html and the views of the inside.")] = True,
    print_config: o.PrintConfig = False,
    json: o.Json = False,
    quiet: o.Quiet = False,
    **short: Any,
) -> None:
    """Train a model on your data.

    seriatim train language --data book.txt --model lstm
    """
    from .. import api
    from ..core.config import dump_yaml
    from ..runs.auto import CANDIDATES, is_auto, train_best
    from ..runs.configure import MODELINE, add_plugins, configure
    from ..runs.evaluate import Data
    from .progress import TrainingProgress

    add_plugins(plugin)
    settings = o.read_settings(config, sets)
    if is_auto(model, settings):
        if print_config:
            raise SeriatimError("auto.option", "--model auto has no settings of one model", "name a --model")
        run = train_best(
            task,
            Data(data),
            settings,
            out,
            data_dir=data_dir,
            callbacks=lambda label: [] if quiet else [TrainingProgress(label)],
            notify=silent if quiet else note,
            report=report,
            start=start,
            **short,
        )
        among = run.path.parent.name == CANDIDATES  # of the models that are tried: a signal ended the search
        print_outcome(run, json, f"repeat the command with --out {run.path.parent.parent} to continue" if among else "")
        return
    checked = configure(task, data, model, settings, start=start, **short)
    if print_config:
        print(f"{MODELINE}\n{dump_yaml(checked)}", end="")
        return
    run = api.train(
        task,
        data,
        model,
        settings=settings,
        out=out,
        data_dir=data_dir,
        callbacks=[] if quiet else [TrainingProgress(checked.model.name)],
        notify=silent if quiet else note,
        report=report,
        start=start,
        **short,
    )
    print_outcome(run, json)


def print_outcome(run: RunFolder, json: bool, how_to_continue: str = "") -> None:
    """Prints the metrics of a training, on rank 0; a signal that ended it becomes the exit code."""
    from ..training.loop import EXIT_CODES

    results = run.results
    if is_first_process():
        if json:
            print_json({"run": str(run.path), **results.to_json()})
        elif results.signal:
            note(how_to_continue or f"`seriatim resume {run.path}` continues it")
        else:
            print_summary(run)
    if results.reason in EXIT_CODES:
        raise typer.Exit(EXIT_CODES[results.reason])


def print_summary(run: RunFolder) -> None:
    """Prints metrics by split, baselines, size and speed of a finished run."""
    results = run.results
    rows = list(results.metrics.items())
    last = rows[-1][0] if rows else ""
    rows += [(f"{last}, {name}", values) for name, values in results.baselines.get(last, {}).items()]
    print_metrics(rows, results.monitor)
    speed = f"{format_amount(results.tokens_per_second)} {results.unit}/s"
    budget = results.time_budget
    time = format_duration(results.seconds) + ("" if budget is None else f" of {format_duration(budget)}")
    print(f"{results.parameters or 0:,} parameters, {time}, {speed}")
    if results.times:
        stages = [f"{stage.replace('_', ' ')} {format_duration(seconds)}" for stage, seconds in results.times.items()]
        print(f"time: {', '.join(stages)}")
    page = run.path / "report.html"
    print(f"run: {run.path}" + (f"   report: {page}" if page.is_file() else ""))


def resume(
    run: o.RunPath,
    steps: Annotated[int | None, typer.Option("--steps", min=1, help="Move the end to this step.")] = None,
    epochs: Annotated[
        float | None, typer.Option("--epochs", min=0, help="New total number of passes over the data.")
    ] = None,
    tokens: Annotated[
        str | None, typer.Option("--tokens", help="New total number of tokens (or examples), as 10M.")
    ] = None,
    flops: Annotated[
        float | None, typer.Option("--flops", min=0, help="New total number of floating-point operations, as 1e13.")
    ] = None,
    minutes: Annotated[
        float | None, typer.Option("--minutes", min=0, help="New total number of minutes of training.")
    ] = None,
    plugin: o.Plugin = None,
    data_dir: o.DataDir = None,
    json: o.Json = False,
    quiet: o.Quiet = False,
) -> None:
    """Continue a training where it stopped.

    On a CPU the result is, bit for bit, that of a training without interruption.
    """
    from .. import api
    from .progress import TrainingProgress

    config = api.load(run, plugin).config
    resumed = api.resume(
        run,
        steps=steps,
        epochs=epochs,
        tokens=tokens,
        flops=flops,
        minutes=minutes,
        data_dir=data_dir,
        callbacks=[] if quiet else [TrainingProgress(config.model.name)],
        notify=silent if quiet else note,
    )
    print_outcome(resumed, json)


@o.with_training_options(
    params="Number of parameters, as 1M; several, as 100k,300k,1M, train every model at each size.",
    tokenizer="char, word, bpe, byte-bpe, wordpiece, unigram or bert; several compare by bits per byte.",
)
def compare(
    task: o.Task = None,
    data: o.Data = None,
    models: Annotated[
        str | None,
        typer.Option("--models", help="The architectures, separated by commas. (default: all that suit the task)"),
    ] = None,
    seeds: Annotated[
        str | None,
        typer.Option(
            "--seeds",
            metavar="N|A,B,…",
            help="Train every model with N seeds, from --seed on, or with those listed, and test the differences.",
        ),
    ] = None,
    tune_minutes: Annotated[
        float | None,
        typer.Option("--tune-minutes", help="First search so long for the learning rate of each model and size."),
    ] = None,
    jobs: o.Jobs = 1,
    report: Annotated[bool, typer.Option(help="Write a report.html for each run, too.")] = True,
    config: o.ConfigFile = None,
    sets: o.Sets = None,
    plugin: o.Plugin = None,
    out: o.Out = None,
    data_dir: o.DataDir = None,
    json: o.Json = False,
    quiet: o.Quiet = False,
    **short: Any,
) -> None:
    """Train several architectures on the same data, split and budget.

    Writes one report with a table, charts and samples side by side. One seed cannot tell a small difference from
    chance: with --seeds 3 every model is trained three times, and the report says which differences a test supports. A
    comparison that was interrupted continues when it is started again with the same --out.
    """
    from ..runs.compare import compare as run_comparison
    from ..runs.configure import add_plugins, expand_names
    from ..tasks import load as load_task
    from .progress import TrainingProgress

    add_plugins(plugin)
    settings = o.read_settings(config, sets)
    name = expand_names(settings).get("task", {}).get("name") if task is None else task
    if models is not None or name is None:
        names = [part.strip() for part in (models or "").split(",") if part.strip()]
    else:
        names = list(load_task(name).compared_models)

    comparison = run_comparison(
        task,
        data,
        names,
        seeds=seeds,
        tune_minutes=tune_minutes,
        jobs=jobs,
        report=report,
        settings=settings,
        out=out,
        data_dir=data_dir,
        callbacks=lambda label: [] if quiet else [TrainingProgress(label, with_bar=jobs == 1)],
        notify=silent if quiet else note_once(),
        plugin=plugin,
        **short,
    )
    print_comparison(comparison, json)


def print_comparison(comparison: Comparison, json: bool) -> None:
    """Prints the table of a comparison, on rank 0; a signal that ended it becomes the exit code."""
    from ..training.loop import EXIT_CODES

    if is_first_process():
        if json:
            values = {"verdict": comparison.verdict(), "table": comparison.table(), "failed": comparison.failed}
            values |= {"tuning": {name: tuning.record() for name, tuning in comparison.tunings.items()}}
            print_json({"path": str(comparison.path), **values, "scaling": comparison.scaling()})
        elif comparison.runs:
            print_comparison_table(comparison)
            print_scaling(comparison)
            if sentence := comparison.verdict():
                print(sentence)
            print_load(comparison)
            print(f"report: {comparison.path / 'report.html'}")
    if comparison.signal in EXIT_CODES:
        if is_first_process():
            note(f"repeat the command with --out {comparison.path} to continue")
        raise typer.Exit(EXIT_CODES[comparison.signal])


def print_scaling(comparison: Comparison) -> None:
    """Prints the exponent of each model that was trained at several sizes."""
    rows = []
    for curve in comparison.scaling():
        if curve["exponent"] is not None:
            error = "" if curve["exponent_error"] is None else f" ± {curve['exponent_error']:.3f}"
            rows.append((curve["model"], curve["over"], f"{curve['exponent']:.3f}{error}", f"{curve['r2']:.2f}"))
    if rows:
        print_table(["power law", "over", "exponent", "R²"], rows)


def print_load(comparison: Comparison) -> None:
    """Says so if a machine was busy while models were trained for a time."""
    load, cores = max(comparison.loads.values(), default=0.0), os.cpu_count() or 1
    timed = any(row["time_budget"] for row in comparison.table())
    if timed and load > cores + 1 and comparison.runs[0].config.train.clock == "wall":
        print(
            f"Other programs kept the machine busy (load {load:.1f} on {cores} cores): with the same time, all "
            "models made fewer steps than on an idle one, and not all of them equally so."
        )


def print_comparison_table(comparison: Comparison) -> None:
    """Prints a row per model and per baseline: metrics on the validation and test split, size and cost."""
    table = comparison.table()
    results = [run.results for run in comparison.runs]
    first = results[0]
    merged = merge_metrics(values for own in results for values in own.metrics.values())
    names = displayed_metrics(merged, first.monitor)[: 1 + COMPARED_METRICS]
    splits = [split for split in ("validation", "test") if any(split in own.metrics for own in results)]
    columns = [(name, split) for split in splits for name in (names if split == "validation" else names[:1])]
    limited = any(row["time_budget"] for row in table)

    def cell(row: dict[str, Any], name: str, split: str) -> str:
        key = f"{'val' if split == 'validation' else split}_{name}"
        text, spread = format_metric(name, row.get(key), 1), row.get(f"{key}_std")
        if spread is None:
            return text
        return f"{text} ± {100 * spread:.2g}" if get_metric(name).percent else f"{text} ± {spread:.2g}"

    rows = [
        (
            row["label"],
            *(cell(row, name, split) for name, split in columns),
            format_amount(row["parameters"]),
            format_amount(row["flops"], "FLOP"),
            format_amount(row["tokens_per_second"]),
            format_amount(row["memory"], "B"),
            "one pass" if row["steps"] == 1 and row["flops"] is None else f"{row['steps'] or 0:,}",
            format_duration(row["seconds"]),
            *([MISSING if row["time_used"] is None else f"{100 * row['time_used']:.0f} %"] if limited else []),
        )
        for row in table
    ]
    baselines: dict[str, dict[str, Any]] = {}
    for split in splits:
        own = [by_name for summary in results if (by_name := summary.baselines.get(split))]
        for name, values in own[0].items() if own else ():
            if all(name in by_name for by_name in own):  # a model that is a baseline of the others is a row of its own
                baselines.setdefault(name, {})[split] = values
    rows += [
        (
            name,
            *(format_metric(metric, metrics.get(split, {}).get(metric), 1) for metric, split in columns),
            *[""] * (6 + limited),
        )
        for name, metrics in baselines.items()
    ]
    labels = [f"test {column_label(name)}" if split == "test" else column_label(name) for name, split in columns]
    costs = ["parameters", "training", f"{first.unit}/s", "memory", "steps", "time"]
    limits = {row["time_budget"] for row in table if row["time_budget"]}
    costs += [f"of {format_duration(max(limits))}"] if limited else []
    print_table(["model", *labels, *costs], rows)
    for label, reason in comparison.failed.items():
        note(f"{label} failed: {reason}")


def demo(
    minutes: Annotated[
        float | None, typer.Option("--minutes", min=0.001, help="Training time of all models together. (default: 2.3)")
    ] = None,
    out: o.Out = None,
    json: o.Json = False,
    quiet: o.Quiet = False,
) -> None:
    """Show in three minutes what models of every generation can do, on one page.

    Seven language models, from an n-gram to a GPT, at equal size and time on the text of Python's own help pages; a
    problem that needs memory; a translation with its alignment. All data is built in. On a busy machine the models make
    fewer steps in the same time, and the tables say how many. An interrupted demo continues with the same --out.
    """
    from ..lab.demo import MINUTES, PROBLEMS
    from ..lab.demo import demo as run_demo
    from ..training.loop import EXIT_CODES
    from .progress import TrainingProgress

    result = run_demo(
        MINUTES if minutes is None else minutes,
        out=out,
        callbacks=lambda label: [] if quiet else [TrainingProgress(label)],
        notify=silent if quiet else note,
    )
    if json:
        parts = {
            name: {"verdict": part.verdict(), "table": part.table(), "failed": part.failed}
            for name, part in result.comparisons.items()
        }
        print_json({"path": str(result.path), "parts": parts, "try": list(result.commands().values())})
    else:
        for name, part in result.comparisons.items():
            print(f"\n{PROBLEMS[name].title}")
            print_comparison_table(part)
            print_load(part)
        print(f"\nreport: {result.path / 'report.html'}\n\nTry next:")
        for command in result.commands().values():
            print(f"  {command}")
    if result.signal in EXIT_CODES:
        if not json:
            note(f"`seriatim demo --out {result.path}` continues it")
        raise typer.Exit(EXIT_CODES[result.signal])


@o.with_training_options(
    *("params", "epochs", "temperature", "distillation_weight", "unlabeled_data", "seed"),
    steps="Updates to make. (default: those of the teacher)",
    minutes="Minutes of training of each student.",
)
def distill(
    teacher: Annotated[Path, typer.Argument(help="The run folder of the teacher.", metavar="TEACHER")],
    model: o.Model = None,
    data: o.Data = None,
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
    """Train a small student with a teacher and without, and compare quality, size and speed."""
    from ..runs.configure import add_plugins
    from ..runs.distill import distill as distill_model
    from ..training.loop import EXIT_CODES
    from .progress import TrainingProgress

    add_plugins(plugin)
    result = distill_model(
        teacher,
        model,
        data=data,
        settings=o.read_settings(config, sets),
        out=out,
        data_dir=data_dir,
        callbacks=lambda label: [] if quiet else [TrainingProgress(label)],
        notify=silent if quiet else note_once(),
        start=start,
        **short,
    )
    for run in result.runs.values():
        if (reason := run.results.reason) in EXIT_CODES and not result.rows:
            raise typer.Exit(EXIT_CODES[reason])
    if not is_first_process():
        return
    if json:
        print_json({"path": str(result.path), "table": result.rows})
        return
    names = displayed_metrics(result.rows[-1]["metrics"], result.rows[-1]["monitor"])[:COMPARED_METRICS]
    rows = [
        (
            row["label"],
            row["model"],
            *(format_metric(name, row["metrics"].get(name), 1) for name in names),
            format_amount(row["parameters"]),
            format_amount(row["bytes"], "B"),
            *(f"{speed:,.0f}" for speed in row["speed"].values()),
        )
        for row in result.rows
    ]
    speeds = [f"examples/s, batches of {size}" for size in result.rows[0]["speed"]]
    print_table(["", "model", *map(column_label, names), "parameters", "file", *speeds], rows, left=2)
    print(f"report: {result.path / 'report.html'}")


def average(
    runs: Annotated[list[Path], typer.Argument(help="One run, or several of the same model.", metavar="RUN…")],
    last: Annotated[int | None, typer.Option("--last", help="How many of the last checkpoints of one run.")] = None,
    out: o.Out = None,
    evaluate: Annotated[bool, typer.Option(help="Evaluate the average on the data of the run.")] = True,
    plugin: o.Plugin = None,
    data_dir: o.DataDir = None,
    json: o.Json = False,
    quiet: o.Quiet = False,
) -> None:
    """Average the weights of the last checkpoints of a run, or of several runs.

    Of n-gram models the probabilities are averaged, with weights that suit the validation split of the first run.
    """
    from ..runs.average import average as average_weights
    from ..runs.configure import add_plugins

    add_plugins(plugin)
    notify = silent if quiet else note
    run = average_weights(runs, last=last, out=out, evaluate=evaluate, data_dir=data_dir, notify=notify)
    if json:
        print_json({"run": str(run.path), **run.summary})
    elif evaluate:
        print_summary(run)
    else:
        print(run.path)


def reproduce(
    table: Annotated[str, typer.Argument(help="forecasting, bai2018, length or skips.", show_default=False)],
    rows: Annotated[str | None, typer.Option("--rows", help="Rows, separated by commas. (default: all)")] = None,
    models: Annotated[str | None, typer.Option("--models", help="Models of the rows. (default: all)")] = None,
    minutes: Annotated[
        float | None, typer.Option("--minutes", help="Training time of each model. (default: as the row says)")
    ] = None,
    seed: o.Seed = None,
    jobs: o.Jobs = 1,
    out: o.Out = None,
    data_dir: o.DataDir = None,
    json: o.Json = False,
    quiet: o.Quiet = False,
) -> None:
    """Reproduce a published table: the reported figures beside those reached here.

    Rows are trained one after another; the same command continues where it was stopped. Texts that the catalogue does
    not have (Penn Treebank, LAMBADA) are looked for in --data-dir.
    """
    from ..lab.reproduce import reproduce as reproduce_table
    from ..training.loop import EXIT_CODES
    from .progress import TrainingProgress

    split = lambda text: None if text is None else [part.strip() for part in text.split(",") if part.strip()]  # noqa: E731
    outcome = reproduce_table(
        table,
        split(rows),
        split(models),
        minutes=minutes,
        seed=0 if seed is None else seed,
        jobs=jobs,
        out=out,
        data_dir=data_dir,
        callbacks=lambda label: [] if quiet else [TrainingProgress(label, with_bar=jobs == 1)],
        notify=silent if quiet else note,
    )
    if is_first_process() and json:
        print_json({"path": str(outcome.path), "table": outcome.records(), "missing": outcome.missing})
    elif is_first_process():
        print_table(*outcome.table(), left=2, text_last=outcome.published.has_figures)
        print(f"report: {outcome.path / 'report.html'}")
    if outcome.signal in EXIT_CODES:
        raise typer.Exit(EXIT_CODES[outcome.signal])


COMMANDS = {
    function.__name__: o.single_command(function.__name__, function, o.TRAIN)
    for function in (demo, train, resume, compare, distill, average, reproduce)
}
