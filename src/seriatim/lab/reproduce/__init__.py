"""Published tables, reproduced: the reported figures beside those reached here, row by row.

`tables.toml` holds the tables and the settings of each row. A row is a comparison of models at the row's size, in a
folder of its own; finished models are not trained again and interrupted ones are resumed, so that a table can be made
in several sessions. Texts that may not be distributed are read from a folder of the user's, in the layouts in which
people have them.
"""

from __future__ import annotations

import math
import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatch
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from ... import report
from ...core.config import dump_yaml, merge
from ...core.errors import SeriatimError, did_you_mean
from ...core.files import write_json, write_text
from ...core.metrics import format_metric, get_metric, is_better, metric_label
from ...core.run_folder import RunFolder
from ...core.text import MISSING
from ...data.catalogue import local_folders
from ...report.charts import Bars, BinnedMetric, Lines, Series, Table, View, row, views_from_json
from ...runs.compare import compare
from ...training.events import Callback

Notify = Callable[[str], None]
Callbacks = Callable[[str], Iterable[Callback]]  # of a label
CURVE_POINTS = 60
NO_SETTINGS = ("published", "note")  # keys of a model of tables.toml that are not settings


@dataclass(frozen=True)
class PublishedRow:
    """A row of a published table, and how it is trained here.

    Args:
        name: Of its folder.
        title: Data set and metric.
        task: The task.
        metric: The metric that was published.
        data: A source of the catalogue; None if there are only `files`.
        params: The number of parameters of every model; None if sizes are in the settings.
        models: Label → settings that override the row, the `published` figure, and a `note` on why it may be missed.
        settings: Of all models.
        split: The split that is evaluated.
        files: Layouts of the user's own files, tried in order: the path of the training split below the data folder,
            in which `*` stands for any name and a `/` at the end for a folder, then the names of the files for
            validation and test beside it.
        on_request: Whether it is fetched and trained only if it is named.
        remark: What is to be known of the row.
        length_unit: What the length of a source is counted in, if not words.
        training_curves: Whether the loss on the training split is the point.
    """

    name: str
    title: str
    task: str
    metric: str
    data: str | None = None
    params: str | None = None
    models: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    settings: Mapping[str, object] = field(default_factory=dict)
    split: str = "test"
    files: Sequence[Sequence[str]] = ()
    on_request: bool = False
    remark: str = ""
    length_unit: str = ""
    training_curves: bool = False

    def sources(self, folders: Sequence[Path], requested: bool) -> list[str]:
        """Returns the source of the training split, and of validation and test if they have their own files.

        Args:
            folders: Where the user's files may be.
            requested: Whether the row is named.

        Raises:
            SeriatimError: The files are in none of the folders, and the catalogue does not have them, or may not yet
                fetch them.
        """
        for folder in folders:
            for pattern, *names in self.files:
                for train in find_paths(folder, pattern):
                    others = [train.parent / name for name in names]
                    if all(path.is_file() for path in others):
                        return [str(path) for path in (train, *others)]
        if self.data is not None and (requested or not self.on_request):
            return [self.data]
        wanted = list(dict.fromkeys(Path(pattern).name for pattern, *_ in self.files))
        beside = f" with {' and '.join(self.files[0][1:])} beside it" if len(self.files[0]) > 1 else ""
        where = f"is in {' or '.join(map(str, folders))}" if folders else "can be looked for: no folder is named"
        cause = f"no {' or '.join(wanted)}{beside} {where}"
        fetch = f", or fetch it: --rows {self.name}" if self.data is not None else ""
        raise SeriatimError("data.local-only", cause, f"name a folder that has it: --data-dir FOLDER{fetch}")


def find_paths(folder: Path, pattern: str) -> list[Path]:
    """Returns the files below a folder that fit a pattern, or the folders if the pattern ends in `/`.

    The folder itself may be the first part of the pattern.
    """
    first, _, rest = pattern.partition("/")
    paths = sorted(folder.glob(rest)) if rest and fnmatch(folder.resolve().name, first) else []
    paths += sorted(folder.glob(pattern))
    return [path for path in paths if path.is_dir() == pattern.endswith("/")]


@dataclass(frozen=True)
class PublishedTable:
    """A published table."""

    title: str
    source: str
    rows: Mapping[str, PublishedRow]
    remarks: tuple[str, ...] = ()

    @property
    def has_figures(self) -> bool:
        """Whether there are figures to compare with, not only a chart."""
        return any("published" in model for row in self.rows.values() for model in row.models.values())


@cache
def tables() -> dict[str, PublishedTable]:
    """Returns the tables of tables.toml, by name."""
    values = tomllib.loads(Path(__file__).with_name("tables.toml").read_text(encoding="utf-8"))
    return {
        name: PublishedTable(
            table["title"],
            table["source"],
            {key: PublishedRow(name=key, **value) for key, value in table["rows"].items()},
            tuple(table["remarks"]),
        )
        for name, table in values.items()
    }


@dataclass(frozen=True)
class Reproduced:
    """One model of one row."""

    row: PublishedRow
    label: str
    run: RunFolder

    @property
    def published(self) -> float | None:
        return self.row.models[self.label].get("published")

    @property
    def value(self) -> float:
        """The metric reached here."""
        value = self.run.results.metrics[self.row.split][self.row.metric]
        return math.nan if value is None else value

    @property
    def at_or_better(self) -> bool | None:
        """Whether the published figure is reached; None if there is none."""
        if self.published is None:
            return None
        return self.value == self.published or is_better(self.row.metric, self.value, self.published)

    def shortfall(self) -> str:
        """Returns what is known of why the published figure was not reached; "" if it was."""
        if self.at_or_better is not False:
            return ""
        steps = int(self.run.results.step or 0)
        best = max((event["step"] for event in self.run.history("evaluated") if event["best"]), default=steps)
        course = f"best after {best:,} of {steps:,} steps" if best < steps else f"still improving after {steps:,} steps"
        note = self.row.models[self.label].get("note", "")
        return f"{course}; {note}" if note else course

    def record(self) -> dict[str, object]:
        """Returns what table.json says of it."""
        results = self.run.results
        return {
            "row": self.row.name,
            "model": self.label,
            "published": self.published,
            "reached": self.value,
            "at_or_better": self.at_or_better,
            "why_not": self.shortfall(),
            "metric": self.row.metric,
            "split": self.row.split,
            "parameters": results.parameters,
            "seconds": results.seconds,
            "cpu_seconds": results.cpu_seconds,
            "steps": results.step,
            "seed": results.seed,
            "settings": self.run.settings,
        }

    def cells(self, published: bool) -> dict[str, str]:
        """Returns column → text of its row in the table, without what is about published figures if there are none."""
        results, metric = self.run.results, self.row.metric
        cells = {"row": self.row.name, "model": self.label}
        if published:
            cells["published"] = MISSING if self.published is None else format_metric(metric, self.published)
        cells["reached"] = format_metric(metric, self.value)
        if published:
            cells["at or better"] = {True: "yes", False: "no", None: MISSING}[self.at_or_better]
        if self.row.training_curves:
            losses = [e["loss"] for e in self.run.history("stepped") if e["step"] > 0.9 * (results.step or 0)]
            cells["training loss"] = format_metric("loss", float(np.mean(losses)))
        cells |= {
            "parameters": f"{results.parameters or 0:,}",
            "steps": f"{results.step or 0:,}",
            "seconds": f"{results.seconds or 0:,.0f}",
            "seed": str(results.seed),
        }
        return cells | ({"why not": self.shortfall()} if published else {})


@dataclass(frozen=True)
class Reproduction:
    """The reproduced part of a table, in a folder."""

    path: Path
    published: PublishedTable
    results: list[Reproduced]
    missing: dict[str, str]  # row, or row and model as "copy/lstm" → why it was not trained
    signal: str = ""  # that interrupted it

    def records(self) -> list[dict[str, object]]:
        """Returns a record per model."""
        return [result.record() for result in self.results]

    def table(self) -> tuple[list[str], list[list[str]]]:
        """Returns the headings and the rows of the table, with what was published of models that were not trained."""
        published = self.published.has_figures
        trained = {(result.row.name, result.label): result.cells(published) for result in self.results}
        cells = list(trained.values())
        if published:
            models = [(row, label) for row in self.published.rows.values() for label in row.models]
            cells = [trained.get((row.name, label)) or self._untrained(row, label) for row, label in models]
        headings = list(next(iter(trained.values()), cells[0] if cells else {"row": ""}))
        for result in {result.row.name: result for result in self.results}.values():  # one of each row
            for name, metrics in result.run.results.baselines.get(result.row.split, {}).items():
                if (value := metrics.get(result.row.metric)) is not None:
                    reached = format_metric(result.row.metric, value)
                    cells.append({"row": result.row.name, "model": f"baseline: {name}", "reached": reached})
                    cells[-1] |= {"why not": ""} if published else {}
        return headings, [[line.get(heading, MISSING) for heading in headings] for line in cells]

    def _untrained(self, row: PublishedRow, label: str) -> dict[str, str]:
        figure = row.models[label].get("published")
        reason = self.missing.get(f"{row.name}/{label}") or self.missing.get(row.name)
        return {
            "row": row.name,
            "model": label,
            "published": MISSING if figure is None else format_metric(row.metric, figure),
            "reached": MISSING,
            "at or better": MISSING,
            "why not": f"not trained: {reason}" if reason else "not trained",
        }

    def write(self) -> None:
        """Writes table.json, table.md and report.html."""
        self.path.mkdir(parents=True, exist_ok=True)
        write_json(self.path / "table.json", self.records())
        headings, rows = self.table()
        lines = [f"# {self.published.title}", "", f"{self.published.source}.", "", *self.published.remarks, ""]
        lines += ["| " + " | ".join(headings) + " |", "|" + "---|" * len(headings)]
        lines += ["| " + " | ".join(cells) + " |" for cells in rows]
        lines += ["", *(f"- {row.name}: {row.remark}" for row in self.published.rows.values() if row.remark)]
        write_text(self.path / "table.md", "\n".join(lines).rstrip() + "\n")
        report.write_page(
            self.path / "report.html",
            self.published.title,
            self.published.source,
            self.sections(),
            {f"{r.row.name}, {r.label}": dump_yaml(r.run.settings) for r in self.results},
        )

    def sections(self) -> list[tuple[str, list[View | str]]]:
        """Returns the sections of the page: the table, and charts of each row."""
        headings, cells = self.table()
        title = "Published and reached" if self.published.has_figures else "Reached"
        table = Table(title=title, columns=headings, rows=cells)
        by_row: dict[str, list[Reproduced]] = {}
        for result in self.results:
            by_row.setdefault(result.row.name, []).append(result)
        charts: dict[str, list[View | str]] = {
            "Row by row": [published_chart(group) for group in by_row.values() if group[0].published is not None],
            "While training": [training_chart(group) for group in by_row.values() if group[0].row.training_curves],
            "By length": [chart for group in by_row.values() for chart in length_charts(group)],
            "Gradients over time": [chart for group in by_row.values() for chart in gradient_charts(group)],
            "Not trained": [f"{name}: {reason}" for name, reason in self.missing.items()],
            "Remarks": [
                *self.published.remarks,
                *(f"{row.name}: {row.remark}" for row in self.published.rows.values() if row.remark),
            ],
        }
        charts = {title: [table], **charts}
        return [(heading, views) for heading, views in charts.items() if views]


def reproduce(
    name: str,
    rows: Sequence[str] | None = None,
    models: Sequence[str] | None = None,
    *,
    minutes: float | None = None,
    seed: int = 0,
    jobs: int = 1,
    out: str | Path | None = None,
    data_dir: str | None = None,
    callbacks: Callbacks = lambda label: (),
    notify: Notify = lambda text: None,
) -> Reproduction:
    """Trains the models of a table's rows and rewrites the table after each row.

    Args:
        name: The table.
        rows: The rows; by default all.
        models: The models of the rows; by default all.
        minutes: The training time of each model, in place of the steps of the row.
        seed: Of every training.
        jobs: How many models of a row are trained at a time, on one thread each.
        out: The folder; by default runs/reproduce-NAME.
        data_dir: The folder of catalogue data sets, and of texts that the catalogue does not have.
        callbacks: Returns the callbacks of a training, from its label.
        notify: Called with each note.
    """
    if name not in tables():
        raise SeriatimError("reproduce.unknown", f'there is no table "{name}"', did_you_mean(name, tables()))
    table = tables()[name]
    for key in rows or ():
        if key not in table.rows:
            raise SeriatimError("reproduce.row", f'{name} has no row "{key}"', did_you_mean(key, table.rows))
    chosen_rows = [table.rows[key] for key in rows or table.rows]
    for label in models or ():
        if not any(label in row.models for row in chosen_rows):
            labels = ", ".join(dict.fromkeys(label for row in chosen_rows for label in row.models))
            raise SeriatimError("reproduce.model", f'no row has the model "{label}"', f"choose from: {labels}")
    folders = local_folders(data_dir)
    path = Path(out) if out is not None else Path("runs", f"reproduce-{name}")
    missing: dict[str, str] = {}
    result = Reproduction(path, table, list(finished_runs(table, path)), missing)
    for published in chosen_rows:
        if not (variants := variants_of(published, models, minutes)):
            continue
        try:
            train, validation, test, *_ = (*published.sources(folders, rows is not None), None, None)
            notify(f"{published.name}: {published.title}")
            comparison = compare(
                published.task,
                train,
                variants,
                validation=validation,
                test=test,
                settings=published.settings,
                out=path / published.name,
                data_dir=data_dir,
                callbacks=lambda label, row=published.name: callbacks(f"{row} {label}"),  # type: ignore[misc]
                notify=notify,
                jobs=jobs,
                params=published.params,
                minutes=minutes,
                seed=seed,
            )
        except SeriatimError as error:
            if not error.code.startswith("data."):
                raise
            missing[published.name] = error.cause.replace("\n", " ")
            notify(f"{published.name} is left out: {error}")
            continue
        missing |= {f"{published.name}/{label}": reason for label, reason in comparison.failed.items()}
        result = Reproduction(path, table, list(finished_runs(table, path)), missing, comparison.signal)
        result.write()
        if comparison.signal:
            break
    result.write()
    return result


def variants_of(
    published: PublishedRow, models: Sequence[str] | None, minutes: float | None
) -> dict[str, dict[str, Any]]:
    """Returns label → settings of the models of a row, all or those named."""
    variants = {
        label: {key: value for key, value in settings.items() if key not in NO_SETTINGS}
        for label, settings in published.models.items()
        if not models or label in models
    }
    if minutes is None:
        return variants
    # as many steps as fit, instead of the steps of the row
    return {label: merge(own, {"train": {"steps": None, "epochs": None}}) for label, own in variants.items()}


def finished_runs(table: PublishedTable, path: Path) -> Iterable[Reproduced]:
    """Yields what a folder holds by now, from this session or an earlier one."""
    for published in table.rows.values():
        for label in published.models:
            folder = path / published.name / label
            if (folder / "config.yaml").is_file():
                run = RunFolder(folder)
                if run.results.metrics.get(published.split):
                    yield Reproduced(published, label, run)


# Charts of a row


def published_chart(results: Sequence[Reproduced]) -> View:
    """Returns bars of the published figure and of the one reached here, for each model of a row."""
    published = results[0].row
    pairs = [
        (r.label, figure, group)
        for r in results
        for figure, group in ((r.published, "published"), (r.value, "reached"))
    ]
    pairs = [pair for pair in pairs if pair[1] is not None]
    size = f"{published.params} parameters; " if published.params else ""
    direction = get_metric(published.metric).direction
    return Bars(
        title=published.title,
        note=f"{size}{direction} is better",
        labels=[label for label, _, _ in pairs],
        values=row([float(value) for _, value, _ in pairs if value is not None]),
        groups=[group for _, _, group in pairs],
        x=metric_label(published.metric),
        metric=published.metric,
    )


def training_chart(results: Sequence[Reproduced]) -> View:
    """Returns the loss on the training split over the steps, a line per model, in means of consecutive steps."""
    series = []
    for result in results:
        steps = result.run.history("stepped")
        parts = np.array_split(np.arange(len(steps)), min(CURVE_POINTS, len(steps)))
        x = tuple(float(steps[part[-1]]["step"]) for part in parts)
        series.append(Series(result.label, x, row([np.mean([steps[i]["loss"] for i in part]) for part in parts])))
    title = f"{results[0].row.name}: loss on the training split"
    return Lines(title=title, series=series, x="steps", y="cross-entropy", log_y=True)


def length_charts(results: Sequence[Reproduced]) -> list[View]:
    """Returns the row's metric by the length of the source, a line per model, if their reports have it."""
    published = results[0].row
    charts: dict[str, BinnedMetric] = {}
    for result in results:
        for view in views_from_json(result.run.evaluation().get(published.split, [])):
            if isinstance(view, BinnedMetric) and view.metric == published.metric:
                charts[result.label] = view
    if not charts:
        return []
    first = next(iter(charts.values()))  # all models of a row have the same test split, and so the same bins
    size = f"{published.params} parameters, " if published.params else ""
    return [
        BinnedMetric(
            title=published.title,
            note=f"{size}on the {published.split} split",
            metric=first.metric,
            x=f"{published.length_unit} of the source" if published.length_unit else first.x,
            unit="pairs" if published.length_unit else first.unit,
            bins=first.bins,
            counts=first.counts,
            series={label: next(iter(view.series.values())) for label, view in charts.items()},
        )
    ]


def gradient_charts(results: Sequence[Reproduced]) -> list[View]:
    """Returns the gradient over time of all models of a row, before and after training, if their reports have it."""
    published = results[0].row
    series: dict[str, list[Series]] = {}
    for result in results:
        for view in views_from_json(result.run.evaluation().get(published.split, [])):
            for line in view.series if isinstance(view, Lines) else ():
                series.setdefault(line.name, []).append(Series(result.label, line.x, line.y))
    return [
        Lines(
            title=f"{published.name}, {name}",
            series=lines,
            x="steps before the last",
            y="gradient of the loss by the input",
            log_y=True,
        )
        for name, lines in series.items()
        if any(value for line in lines for value in line.y)
    ]
