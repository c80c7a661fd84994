"""The model card: a README.md that says what a model is, how it was made and how to use it."""

from __future__ import annotations

import re
import shlex

from ..core.metrics import MISSING, format_metric, label_in_sentence
from .formatting import clean_text, format_change, format_duration, with_prefix
from .pages import MAX_NOTES, MAX_SAMPLE, created, ending, environment, metric_notes
from .run_data import RunData, mapping


def card(run: RunData) -> str:
    """Returns the model card in Markdown, with front matter; texts of the data cannot become markup."""
    size = run.number("parameters")
    what = "stored entries" if run.gradient_free else "parameters"
    budget = (
        f"; {format_change(run.off_budget)} from the budget of {run.budget:,}" if run.off_budget is not None else ""
    )
    notes = run.data_notes
    more = [f"… and {len(notes) - MAX_NOTES} more"] if len(notes) > MAX_NOTES else []
    sample = clean_text(run.summary.get("sample", ""), MAX_SAMPLE)
    return (
        environment()
        .get_template("card.md")
        .render(
            run=run,
            front_matter=front_matter(run),
            title=f"{markdown(run.model)} on {markdown(run.data_name)}",
            model=markdown(run.model_summary),
            task=markdown(run.task_summary),
            size="" if size is None else f"Size: {with_prefix(size)} {what} ({size:,.0f}{budget}).",
            metrics=metric_lines(run),
            metric_notes=[markdown(note) for note in metric_notes(run)],
            ending=markdown(ending(run)),
            facts=facts(run),
            notes=[markdown(note) for note in [*notes[:MAX_NOTES], *more]],
            usage=usage(run),
            sample=fence(sample, "text") if sample.strip() else "",
        )
    )


def front_matter(run: RunData) -> list[str]:
    """Returns the YAML lines that model hubs read."""
    tags = ["seriatim", run.task, run.model]
    return ["library_name: seriatim", "tags:", *(f"- {re.sub(r'[^A-Za-z0-9_.-]+', '-', tag)}" for tag in tags)]


def metric_lines(run: RunData) -> list[str]:
    """Returns a Markdown table: a line per metric, a column per split, and after them the baselines."""
    if not run.splits:
        return []
    last = run.splits[-1]
    columns = {split: run.metrics(split) for split in run.splits}
    columns |= {f"{name} ({last})": values for name, values in run.baselines(last).items()}
    lines = [["metric", *map(markdown, columns)], ["---"] * (1 + len(columns))]
    for name in dict.fromkeys(name for split in run.splits for name in run.metrics(split)):
        unit = f" ({run.loss_unit} per token)" if name == "loss" and run.loss_unit else ""
        values = [format_metric(name, values.get(name), 1) for values in columns.values()]
        lines.append([markdown(label_in_sentence(name)) + unit, *values])
    return [f"| {' | '.join(cells)} |" for cells in lines]


def facts(run: RunData) -> list[tuple[str, str]]:
    """Returns how the model was made, as names and values in Markdown."""
    data, step, best = mapping(run.summary.get("data")), run.number("step"), run.number("best_step")
    steps = "one pass" if run.gradient_free else f"{step or 0:,} (best weights: step {best or 0:,})"
    pairs = [("data", code(data.get("source", MISSING))), ("data fingerprint", code(data.get("fingerprint", MISSING)))]
    if teacher := mapping(run.summary.get("teacher")):
        settings = mapping(run.settings.get("distill"))
        size = f", {with_prefix(teacher['parameters'])} parameters" if teacher.get("parameters") else ""
        weight = f"weight {settings.get('weight', MISSING)}, temperature {settings.get('temperature', MISSING)}"
        about = f"{code(teacher.get('path', MISSING))} ({markdown(teacher.get('model', MISSING))}{size}); {weight}"
        pairs.append(("distilled from", about))
    return [
        *pairs,
        ("made with", f"Seriatim {markdown(run.summary.get('version', MISSING))}, {markdown(created(run))}"),
        ("seed", markdown(run.summary.get("seed", MISSING))),
        ("steps", steps),
        (f"{run.unit} read", with_prefix(run.number("tokens"))),
        ("training time", format_duration(run.number("seconds"))),
        ("training compute", with_prefix(run.number("flops"), "FLOP")),
        ("peak memory", with_prefix(run.number("memory"), "B")),
        ("ended", markdown(ending(run)[0].lower() + ending(run)[1:])),
    ]


def usage(run: RunData) -> list[str]:
    """Returns blocks of shell and Python that use the run: lines of summary["usage"], written by its task."""
    path = str(run.folder.path)
    stored = run.summary.get("usage")
    lines = [mapping(line) for line in stored] if isinstance(stored, list) else []
    shell = [str(line["shell"]) for line in lines if line.get("shell")]
    python = [str(line["python"]) for line in lines if line.get("python")]
    again = f"seriatim train --config {shlex.quote(path)}/config.yaml  # trains it again"
    imports = ["from pathlib import Path", ""] if any("Path(" in line for line in python) else []
    program = [*imports, "import seriatim", "", f"run = seriatim.load({path!r})", *python]
    return [fence("\n".join([*shell, again]), "sh"), fence("\n".join(program), "python")]


# Markdown that holds whatever a text contains


def markdown(value: object) -> str:
    """Returns one line of prose in which nothing is markup."""
    return re.sub(r"([\\`*_\[\]<>|#])", r"\\\1", " ".join(clean_text(value).split()))


def code(value: object) -> str:
    """Returns code between more backticks than it holds; a bar would end the cell of a table even there."""
    line = " ".join(clean_text(value).split()).replace("|", "\\|")
    ticks = "`" * (1 + max(map(len, re.findall("`+", line)), default=0))
    pad = " " if len(ticks) > 1 else ""
    return f"{ticks}{pad}{line}{pad}{ticks}"


def fence(text: str, language: str) -> str:
    """Returns a block of code between more backticks than it holds."""
    ticks = "`" * max(3, 1 + max(map(len, re.findall("`+", text)), default=0))
    return f"{ticks}{language}\n{clean_text(text)}\n{ticks}"
