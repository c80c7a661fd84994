"""Charts as values, and what is written about runs: pages that need nothing but a browser, cards, rows of tables.

Everything is a function of the files of runs. Importing this package imports neither torch nor Altair nor Jinja.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal

from .._version import __version__
from ..core.files import Json, write_text
from ..core.metrics import finite, get_metric
from ..core.run_folder import RunFolder
from .charts import Lines, View


def write_run_report(folder: RunFolder) -> Path:
    """Writes report.html into the folder of a run and returns its path."""
    from .pages import run_page
    from .run_data import read_runs

    path = folder.path / "report.html"
    write_text(path, run_page(read_runs([folder])[0]).html())
    return path


def write_card(folder: RunFolder) -> Path:
    """Writes README.md, the model card, into the folder of a run and returns its path."""
    from .pages import card
    from .run_data import read_runs

    path = folder.path / "README.md"
    write_text(path, card(read_runs([folder])[0]))
    return path


def write_comparison_report(
    path: str | Path,
    folders: Sequence[RunFolder],
    failed: Mapping[str, str] | None = None,
    tuning: Mapping[str, Json] | None = None,
) -> Path:
    """Writes report.html into the folder of a comparison and returns its path.

    Args:
        path: The folder of the comparison.
        folders: Its runs.
        failed: Model → why it was not trained.
        tuning: Model → the search for its learning rate, as in comparison.json.
    """
    from .comparison import comparison_page
    from .run_data import read_runs

    file = Path(path) / "report.html"
    write_text(file, comparison_page(read_runs(folders), failed or {}, tuning or {}).html())
    return file


def write_distillation_report(path: str | Path, folders: Mapping[str, RunFolder], rows: Sequence[Json]) -> Path:
    """Writes report.html into the folder of a distillation and returns its path.

    Args:
        path: The folder of the distillation.
        folders: Label → run, of teacher, student alone and distilled student, in this order.
        rows: Of each: model, monitor, split, metrics, parameters, bytes, seconds, and speed {"32": …, "1": …}.
    """
    from .comparison import distillation_page
    from .run_data import RunData

    runs = [RunData(folder, label) for label, folder in folders.items()]
    file = Path(path) / "report.html"
    write_text(file, distillation_page(runs, rows).html())
    return file


def write_page(
    path: str | Path,
    title: str,
    subtitle: str,
    sections: Sequence[tuple[str, Sequence[View | str]]],
    settings: Mapping[str, str] | None = None,
    kind: str = "reproduction",
) -> Path:
    """Writes a page of charts, tables and paragraphs and returns its path.

    Args:
        path: The HTML file.
        title: The heading of the page.
        subtitle: A sentence below it.
        sections: Headings, each with charts, tables and texts; texts stand above the charts.
        settings: Summary → YAML or other text that is folded at the end.
        kind: What stands above the title.
    """
    from .pages import Page, Section

    parts = []
    for heading, content in sections:
        texts = [part for part in content if isinstance(part, str)]
        parts.append(Section(heading, paragraphs=texts, views=[part for part in content if not isinstance(part, str)]))
    parts.append(Section("Settings", details=list((settings or {}).items())))
    write_text(path, Page(kind, title, subtitle, (), parts, version=__version__).html())
    return Path(path)


def comparison_rows(folders: Sequence[RunFolder]) -> list[Json]:
    """Returns a row per model that JSON can hold: a number that is missing or not finite is None.

    Metrics are under `val_<name>` and `test_<name>`. Of a model with several seeds they are means, with the standard
    deviation under `<name>_std`. `off_budget` is the relative distance of the number of parameters from the budget,
    `time_used` the share of the time limit that was used, `p` the corrected probability that chance explains the
    difference from the best model, None for that model and if there is no test, and `reached_share` the share of the
    model's time in which the best one, if it is better, reaches its result.
    """
    from .run_data import read_runs
    from .verdict import Verdict

    runs = read_runs(folders)
    names = list(dict.fromkeys(["loss", *(name for run in runs for name in run.all_metrics)]))
    names = [name for name in names if not get_metric(name).is_count]
    verdict, several = Verdict.of(runs), any(len(run.runs) > 1 for run in runs)
    rows: list[Json] = []
    for run in runs:
        metrics: Json = {}
        for prefix, split in (("val", "validation"), ("test", "test")):
            for name in names:
                metrics[f"{prefix}_{name}"] = finite(run.metrics(split).get(name))
                if several:
                    metrics[f"{prefix}_{name}_std"] = run.spread(split, name)
        compared = run in verdict.ordered[1:]
        rows.append(
            {
                "model": run.model,
                "label": run.label,
                "seeds": [one.setting("seed") for one in run.runs],
                "parameters": run.results.parameters,
                "budget": run.budget,
                "off_budget": run.off_budget,
                **metrics,
                "p": verdict.difference(verdict.ordered[0], run).p if compared else None,
                "reached_share": verdict.reached_share(run) if compared else None,
                "flops": run.results.flops,
                "tokens_per_second": run.results.tokens_per_second,
                "memory": run.results.memory,
                "seconds": run.results.seconds,
                "cpu_seconds": run.results.cpu_seconds,
                "threads": run.results.threads,
                "time_budget": run.time_budget,
                "time_used": run.time_used,
                "steps": run.results.step,
                "reason": run.reason,
            }
        )
    return rows


def scaling_rows(folders: Sequence[RunFolder]) -> list[Json]:
    """Returns the power law of each model that was trained at several sizes, over each cost; see `scaling.py`."""
    from .run_data import read_runs
    from .scaling import scaling_records

    return scaling_records(read_runs(folders))


def comparison_verdict(folders: Sequence[RunFolder]) -> str:
    """Returns which of several models is best, by how much and how sure that is, in a sentence; "" if none can be."""
    from .run_data import read_runs
    from .verdict import Verdict

    return Verdict.of(read_runs(folders)).sentence()


def curves(folders: Sequence[RunFolder], over: Literal["seconds", "tokens"] = "seconds", metric: str = "loss") -> Lines:
    """Returns the training and validation curves of runs as one chart; see `run_charts.training_curves`."""
    from .run_charts import training_curves
    from .run_data import read_runs

    return training_curves(read_runs(folders), over, metric)


def lessons(folders: Sequence[RunFolder]) -> list[str]:
    """Returns what to notice in a run, or in a comparison of several, in short sentences."""
    from . import verdict
    from .run_data import read_runs

    return verdict.lessons(read_runs(folders))
