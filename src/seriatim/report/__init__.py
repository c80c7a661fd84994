"""What is written about runs: the row of a comparison, the model card, and pages that need nothing but a browser."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ..core.files import write_text
from ..core.measures import finite, measure
from ..runs import Run
from . import charts
from .card import card
from .comparison import comparison_page
from .distillation import distillation_page
from .figures import Figures, read
from .lessons import lessons
from .single import run_page

__all__ = [
    "charts",
    "lessons",
    "row",
    "write_card",
    "write_comparison_report",
    "write_distillation_report",
    "write_run_report",
]


SPOKEN = ("perplexity", "bits_per_character")  # columns of language models, measured or not


def row(run: Run) -> dict[str, Any]:
    """A run as a row of a table: its measures on the validation data under their names (the loss as `valid_loss`),
    those on the test data with `test_` before them. A figure that is missing or not finite is None, so that the row is
    JSON. `off_budget` is the distance of the parameters from the wanted number, as a share of it."""
    one = Figures(run, run.path.name)
    valid, test = one.measures("valid"), one.measures("test")
    names = dict.fromkeys([*(SPOKEN if one.speaks else ()), *valid, *test])
    others = [name for name in names if name != "loss" and not measure(name).counts]
    return {
        "model": one.model,
        "parameters": one.number("parameters"),
        "budget": one.budget,
        "off_budget": one.off_budget,
        "valid_loss": finite(valid.get("loss")),
        "test_loss": finite(test.get("loss")),
        **{name: finite(valid.get(name)) for name in others},
        **{f"test_{name}": finite(test.get(name)) for name in others},
        "flops": one.number("flops"),
        "tokens_per_second": one.number("tokens_per_second"),
        "memory": one.number("memory"),
        "seconds": one.number("seconds"),
        "steps": one.number("step"),
        "reason": one.reason,
    }


def write_card(run: Run) -> None:
    """README.md in the run folder."""
    write_text(run.path / "README.md", card(read([run])[0]))


def write_run_report(run: Run) -> None:
    """report.html in the run folder."""
    write_text(run.path / "report.html", run_page(read([run])[0]))


def write_comparison_report(path: str | Path, runs: Sequence[Run], failed: Mapping[str, str] | None = None) -> None:
    """report.html in the folder of a comparison."""
    write_text(Path(path) / "report.html", comparison_page(read(runs), failed or {}))


def write_distillation_report(path: str | Path, runs: Mapping[str, Run], rows: Sequence[Mapping[str, Any]]) -> None:
    """report.html in the folder of a distillation; runs by what they are, with their rows."""
    figures = [Figures(run, label) for label, run in runs.items()]
    write_text(Path(path) / "report.html", distillation_page(figures, rows))
