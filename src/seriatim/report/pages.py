"""Pages: values of sections, laid out by Jinja templates as one HTML file that needs no network and no script.

Every page is a list of `Section`; what is special to a run comes from its files. `run_page` is the page of one run,
`card` its model card, and `comparison.py` has the pages of several.
"""

from __future__ import annotations

import base64
import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import jinja2
from markupsafe import Markup

from ..core.config import dump_yaml
from ..core.files import Json
from ..core.metrics import describe_metric, finite, format_metric, get_metric, label_in_sentence, metric_label
from ..core.run_summary import AverageSummary
from ..core.text import MISSING, clean_text, evenly_spaced, format_amount, format_change, format_duration, format_number
from .charts import Chart, ImageGrid, Table, View
from .findings import run_lessons
from .run_charts import clipping_note, schedule_charts, training_curves
from .run_data import BrokenView, RunData, mapping, shared_metrics
from .values import Image, SpanText, format_column, is_numeric

MAX_SAMPLES, MAX_SAMPLE = 8, 1_500  # samples of a training, and characters of each
MAX_NOTES, MAX_ROWS, MAX_CHARTS = 40, 200, 24
MAX_SECTION = 4_000_000  # bytes of the charts of a section, in both themes: a page is to open at once
REASONS = {
    "finished": "It made all its steps",
    "minutes": "It used up its time",
    "patience": "It stopped early, because it no longer improved",
    "eliminated": "It left the search for the best model, because others were better after the same time",
    "SIGINT": "It was interrupted by Ctrl-C; `seriatim resume` continues it",
    "SIGTERM": "It was interrupted by the system; `seriatim resume` continues it",
    "averaged": "Its weights are the mean of several, computed after training",
    "not finished": "It has not finished",
}


# Values of a page


@dataclass(frozen=True)
class Figure:
    """A number at the head of a page."""

    label: str
    value: str
    remark: str = ""


@dataclass(frozen=True)
class Sample:
    """A text that a model produced; `colors` are the colors of its dot, light and dark."""

    title: str
    remark: str
    text: str
    colors: tuple[str, str] | None = None


@dataclass(frozen=True)
class ResultCell:
    """A number of a table of results: its value for programs, its text for people, and a remark below it."""

    value: float | int | None
    text: str
    remark: str = ""
    best: bool = False


@dataclass(frozen=True)
class ResultRow:
    """A row of a table of results; `style` is "best", "baseline" or empty."""

    label: str
    cells: tuple[ResultCell | str | None, ...]
    style: str = ""
    colors: tuple[str, str] | None = None


@dataclass(frozen=True)
class ResultTable:
    """A table of results, with the numbers of `ResultRow`."""

    caption: str
    columns: tuple[str, ...]
    rows: tuple[ResultRow, ...]


@dataclass(frozen=True)
class Section:
    """A section of a page; parts that are empty are left out, and so is a section that has nothing but notes."""

    title: str
    notes: Sequence[str] = ()
    results: ResultTable | None = None
    views: Sequence[View | BrokenView] = ()
    lessons: Sequence[str] = ()
    samples: Sequence[Sample] = ()
    items: Sequence[str] = ()
    terms: Sequence[tuple[str, str]] = ()
    failures: Sequence[tuple[str, str]] = ()
    details: Sequence[tuple[str, str]] = ()  # summary and text that is folded
    code: Sequence[tuple[str, str]] = ()  # a sentence, and a command below it
    source: str = "evaluation.json"  # the file that has the views for which there is no room
    paragraphs: Sequence[str] = ()

    @property
    def has_content(self) -> bool:
        """Whether there is something to show besides notes."""
        contents = (self.paragraphs, self.views, self.lessons, self.samples, self.items, self.terms, self.failures)
        return self.results is not None or any(contents) or bool(self.details or self.code)


@dataclass(frozen=True)
class Page:
    """A page: what stands above the title, the title, a lead, figures, sections and a foot."""

    kind: str
    title: str
    lead: str
    figures: Sequence[Figure] = ()
    sections: Sequence[Section] = field(default_factory=tuple)
    foot: str = ""
    version: str = ""

    def html(self) -> str:
        """Returns the page as one HTML file."""
        return environment().get_template("page.html").render(page=self)


# Templates


@cache
def environment() -> jinja2.Environment:
    """Returns the environment of the templates: HTML is escaped, undefined names are errors."""
    templates = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).with_name("templates")),
        autoescape=lambda name: name is None or not name.endswith(".md"),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=lambda value: value if isinstance(value, Markup) else clean_text(value, 80_000),
    )
    templates.filters |= {"figures": picture_parts, "table": table_cells, "emphasized": emphasized}
    return templates


def picture(chart: Chart) -> Markup:
    """Returns a chart as an HTML picture that holds its SVG for light and for dark screens, with its alt text."""
    from .render import DARK, LIGHT, to_svg

    light, dark = (
        "data:image/svg+xml;base64," + base64.b64encode(to_svg(chart, theme).encode("utf-8", "replace")).decode()
        for theme in (LIGHT, DARK)
    )
    source = Markup('<source media="screen and (prefers-color-scheme: dark)" srcset="{}">').format(dark)
    return Markup('<picture>{}<img src="{}" alt="{}"></picture>').format(source, light, clean_text(chart.alt_text))


def picture_parts(section: Section) -> list[Json]:
    """Returns the views of a section in their order, charts drawn, as far as the page has room for them."""
    parts: list[Json] = []
    room, count, left_out = MAX_SECTION, 0, 0
    for view in section.views:
        if isinstance(view, BrokenView):
            parts.append({"kind": "broken", "view": view})
        elif isinstance(view, Table | ImageGrid):
            parts.append({"kind": view.kind, "view": view})
        else:
            try:
                markup = picture(view) if count < MAX_CHARTS else None
            except (ValueError, ZeroDivisionError, OverflowError) as error:
                parts.append({"kind": "broken", "view": BrokenView(view.title, view.kind, str(error))})
                continue
            if markup is None or len(markup) > room:
                left_out += 1
                continue
            room, count = room - len(markup), count + 1
            parts.append({"kind": "chart", "markup": markup})
    if left_out:
        parts.append({"kind": "more", "count": left_out, "file": section.source})
    return parts


def table_cells(table: Table) -> Json:
    """Returns the heads and the first rows of a table as (kind, text or value, number) for the template."""
    rows = table.rows[:MAX_ROWS]
    columns = [[line[n] for line in rows] for n in range(len(table.columns))]
    texts = [format_column(name, [line[n] for line in table.rows])[:MAX_ROWS] for n, name in enumerate(table.columns)]
    numeric = [is_numeric(cells) for cells in columns]
    heads = []
    for name in table.columns:
        metric = get_metric(name) if name == name.lower() and " " not in name else None
        known = metric is not None and bool(metric.description)
        heads.append(metric.label if known and metric else (name[:1].upper() + name[1:]).replace("_", " "))

    def cell(n: int, line: int) -> tuple[str, Any, Any]:
        value = columns[n][line]
        if isinstance(value, Image | SpanText):
            return ("image" if isinstance(value, Image) else "spans"), value, None
        return "number" if numeric[n] else "text", clean_text(texts[n][line], 600), finite(value)

    lines = [[cell(n, line) for n in range(len(columns))] for line in range(len(rows))]
    more = f"The first {MAX_ROWS} of {len(table.rows):,} rows." if len(table.rows) > MAX_ROWS else ""
    return {"heads": list(zip(heads, numeric, strict=True)), "rows": lines, "more": more}


def emphasized(text: str) -> tuple[str, str]:
    """Returns a sentence in two parts; the first, up to a bracket, colon or semicolon, can be read alone."""
    ends = [end for mark in (" (", ": ", "; ") if (end := text.find(mark)) > 0]
    return (text[: min(ends)], text[min(ends) :]) if ends else ("", text)


# Parts that several pages have


def data_section(run: RunData) -> Section:
    data = run.results.data
    fingerprint = data.fingerprint or MISSING
    source = f"Source: {data.source or MISSING}. Fingerprint of the training split: {fingerprint}."
    return Section("Data", [source], items=first_notes(run) or ["no notes"])


def first_notes(run: RunData) -> list[str]:
    """Returns what was noted on the data, as far as a page has room."""
    notes = run.folder.notes
    return notes[:MAX_NOTES] + ([f"… and {len(notes) - MAX_NOTES} more"] if len(notes) > MAX_NOTES else [])


def glossary(runs: Sequence[RunData]) -> Section:
    """Returns what the names on a page mean: models, metrics, splits."""
    terms = [(run.model, run.model_summary) for run in runs if run.model_summary != run.model]
    better = {"lower": "; lower is better", "higher": "; higher is better", "neither": ""}
    for name in shared_metrics(runs):
        metric = get_metric(name)
        if metric.description:
            unit = f", in {runs[0].loss_unit} per token" if name == "loss" and runs[0].loss_unit else ""
            terms.append((metric_label(name), f"{metric.description}{unit}{better[metric.direction]}"))
    if "validation" in runs[0].splits:
        terms.append(("Validation", "a split that was not trained on and that selected the weights"))
    if "test" in runs[0].splits:
        terms.append(("Test", "a split that was neither trained on nor used for selection: what to expect on new data"))
    if any(run.baselines(split) for run in runs for split in ("validation", "test")):
        terms.append(
            ("Baselines", "simple methods, quickly fitted or without anything to learn, to compare models with")
        )
    if any(run.results.flops for run in runs):
        terms.append(("FLOP", "a multiplication or an addition, counted over the whole training"))
    return Section("What the names mean", terms=list(dict.fromkeys(terms)))


def metric_notes(run: RunData) -> list[str]:
    """Returns sentences on how metrics were computed."""
    signatures = "; ".join(f"{metric_label(name)} {text}" for name, text in run.results.signatures.items())
    return [*([f"Signatures: {signatures}."] if signatures else []), *run.results.evaluation_notes]


def ending(run: RunData) -> str:
    """Returns how a run ended, without a period."""
    if run.gradient_free and run.reason == "finished":
        return "It was fitted in one pass, without gradient descent"
    averaged = run.results.averaged
    return (averaged and describe_average(averaged)) or REASONS.get(run.reason, run.reason)


def describe_average(origin: AverageSummary) -> str:
    """Returns what an average is made of, as `average` recorded it in the summary; "" if there is nothing on it."""
    runs, weights, steps = origin.runs, origin.weights, origin.steps
    if weights:
        parts = ", ".join(f"{format_number(weight)} × {run}" for weight, run in zip(weights, runs, strict=False))
        return f"Its probabilities are the weighted mean over {len(weights)} models: {parts}"
    if runs:
        return f"Its weights are the mean over {', '.join(runs)}"
    if steps:
        return f"Its weights are the mean over the steps {', '.join(map(str, steps))} of {origin.run}"
    return ""


def created(run: RunData) -> str:
    return (run.results.created or "at an unknown time").replace("T", " ").replace("+00:00", " UTC")


def made_by(run: RunData) -> str:
    return f"Made by Seriatim {run.results.version}, {created(run)}; seed {seed_text(run)}."


def seed_text(run: RunData) -> str:
    return MISSING if run.results.seed is None else str(run.results.seed)


# The page of a run


def run_page(run: RunData) -> Page:
    """Returns the page of one run, a function of its files."""
    split, views = run.evaluation
    budget = ""
    if run.budget is not None and run.off_budget is not None:
        size = f"{format_amount(run.results.parameters)} {'entries' if run.gradient_free else 'parameters'}"
        budget = f" It has {size}; the budget is {format_amount(run.budget)} ({format_change(run.off_budget)})."
    values = {point.step: point.value for point in run.evaluations(run.main)}
    generated = run.samples()
    samples = [
        Sample(
            "As fitted" if run.gradient_free else f"Step {format_number(sample.get('step'))}",
            describe_metric(run.main, values[sample["step"]]) if sample.get("step") in values else "",
            clean_text(sample.get("text", ""), MAX_SAMPLE),
        )
        for sample in (generated[index] for index in evenly_spaced(len(generated), MAX_SAMPLES).tolist())
    ]
    curves: list[View] = []
    if not run.gradient_free and (run.training or run.evaluations("loss")):
        curves.append(training_curves([run]))
        second = training_curves([run], "tokens") if run.main == "loss" else training_curves([run], "seconds", run.main)
        curves.append(second)
    inspect_hint = f"More, and for any input: seriatim inspect {run.folder.path}"
    sections = [
        Section("What to notice", lessons=run_lessons(run)),
        Section(f"Predictions on the {split} split", views=views),
        Section("Learning", views=curves),
        Section("Schedule", [note] if (note := clipping_note(run)) else [], views=schedule_charts(run)),
        Section("Inside the model", [inspect_hint], views=run.inspection, source="inspection.json"),
        Section("Samples" if run.gradient_free else "Samples during training", samples=samples),
        data_section(run),
        glossary([run]),
        Section("Settings", details=[("config.yaml: every setting of this run", dump_yaml(run.settings))]),
    ]
    return Page(
        "run",
        f"{run.model} on {run.data_name}",
        f"{run.task_summary}. {ending(run)}.{budget}",
        run_figures(run),
        [Section("", paragraphs=metric_notes(run)), *sections],
        f"{made_by(run)} Folder: {run.folder.path}",
        run.results.version,
    )


def run_figures(run: RunData) -> list[Figure]:
    """Returns the numbers at the head: the main metric by split, others, size, time, compute and memory."""
    figures = []
    for split in run.splits or ["validation"]:
        value = format_metric(run.main, run.metrics(split).get(run.main))
        if run.loss_unit and run.main == "loss":
            remark = f"{run.loss_unit} per token"
        else:
            pairs = [(who, finite(values.get(run.main))) for who, values in run.baselines(split).items()]
            remark = ", ".join(f"{who} {format_metric(run.main, v)}" for who, v in pairs[:3] if v is not None)
        figures.append(Figure(f"{split.capitalize()} {label_in_sentence(run.main)}", value, remark))
    validation = run.metrics("validation")
    others = [name for name in run.columns if name != run.main and name in validation]
    if others:
        remark = ", ".join(describe_metric(name, validation[name]) for name in others[1:4])
        text = format_metric(others[0], validation[others[0]])
        figures.append(Figure(f"Validation {label_in_sentence(others[0])}", text, remark))
    step = run.results.step
    work = "one pass" if run.gradient_free else f"{step:,} steps" if step is not None else ""
    off = f"{format_change(run.off_budget)} from the budget" if run.off_budget is not None else ""
    no_flops = "no matrix is multiplied" if run.gradient_free else ""
    if (time_budget := run.results.time_budget) is not None:
        work = f"of {format_duration(time_budget)}, {work}"
    stages = list_stages(run)
    total = "Total processor time" if run.setting("train", "clock") == "cpu" else "Total time"
    return [
        *figures,
        Figure("Entries" if run.gradient_free else "Parameters", format_amount(run.results.parameters), off),
        Figure("Training time", format_duration(run.results.seconds), work),
        *([Figure(total, format_duration(sum(run.times.values())), stages)] if stages else []),
        Figure(
            f"{run.unit.capitalize()} read",
            format_amount(run.results.tokens),
            f"{format_amount(run.results.tokens_per_second)} per second",
        ),
        Figure("Training compute", format_amount(run.results.flops, "FLOP"), no_flops),
        Figure("Peak memory", format_amount(run.results.memory, "B")),
    ]


def list_stages(run: RunData) -> str:
    """Returns where the time went: "reading 2 s, training 60 s, …"."""
    return ", ".join(f"{stage} {format_duration(seconds)}" for stage, seconds in run.times.items())


# The model card: a README.md that says what a model is, how it was made and how to use it


def card(run: RunData) -> str:
    """Returns the model card in Markdown, with front matter; texts of the data cannot become markup."""
    size = run.results.parameters
    what = "stored entries" if run.gradient_free else "parameters"
    budget = (
        f"; {format_change(run.off_budget)} from the budget of {run.budget:,}" if run.off_budget is not None else ""
    )
    sample = clean_text(run.results.sample, MAX_SAMPLE)
    tags = [re.sub(r"[^A-Za-z0-9_.-]+", "-", tag) for tag in ("seriatim", run.task, run.model)]
    return environment().get_template("card.md").render(
        run=run,
        front_matter=["library_name: seriatim", "tags:", *(f"- {tag}" for tag in tags)],  # what model hubs read
        title=f"{markdown(run.model)} on {markdown(run.data_name)}",
        model=markdown(run.model_summary),
        task=markdown(run.task_summary),
        size="" if size is None else f"Size: {format_amount(size)} {what} ({size:,.0f}{budget}).",
        metrics=metric_lines(run),
        metric_notes=[markdown(note) for note in metric_notes(run)],
        ending=markdown(ending(run)),
        facts=facts(run),
        notes=[markdown(note) for note in first_notes(run)],
        usage=usage(run),
        sample=fence(sample, "text") if sample.strip() else "",
    )  # fmt: skip


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
    data, step, best = run.results.data, run.results.step, run.results.best_step
    steps = "one pass" if run.gradient_free else f"{step or 0:,} (best weights: step {best or 0:,})"
    pairs = [("data", code(data.source or MISSING)), ("data fingerprint", code(data.fingerprint or MISSING))]
    if (teacher := run.results.teacher) is not None:
        settings = mapping(run.settings.get("distill"))
        size = f", {format_amount(teacher.parameters)} parameters" if teacher.parameters else ""
        weight = f"weight {settings.get('weight', MISSING)}, temperature {settings.get('temperature', MISSING)}"
        about = f"{code(teacher.path or MISSING)} ({markdown(teacher.model or MISSING)}{size}); {markdown(weight)}"
        pairs.append(("distilled from", about))
    return [
        *pairs,
        ("made with", f"Seriatim {markdown(run.results.version or MISSING)}, {markdown(created(run))}"),
        ("seed", markdown(seed_text(run))),
        ("steps", steps),
        (f"{markdown(run.unit)} read", format_amount(run.results.tokens)),
        ("training time", format_duration(run.results.seconds)),
        *([("time", list_stages(run))] if run.times else []),
        ("training compute", format_amount(run.results.flops, "FLOP")),
        ("peak memory", format_amount(run.results.memory, "B")),
        ("ended", markdown(ending(run)[0].lower() + ending(run)[1:])),
    ]


def usage(run: RunData) -> list[str]:
    """Returns blocks of shell and Python that use the run: written by its task."""
    path = str(run.folder.path)
    shell = [line.shell for line in run.results.usage if line.shell]
    python = [line.python for line in run.results.usage if line.python]
    again = f"seriatim train --config {shlex.quote(path)}/config.yaml  # trains it again"
    imports = ["from pathlib import Path", ""] if any("Path(" in line for line in python) else []
    program = [*imports, "import seriatim", "", f"run = seriatim.load({path!r})", *python]
    return [fence("\n".join([*shell, again]), "sh"), fence("\n".join(program), "python")]


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
