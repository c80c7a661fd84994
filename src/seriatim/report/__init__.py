"""What is written about runs: the row of a comparison, the model card, and pages that need nothing but a browser."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ..core.files import write_text
from ..runs import Run
from . import charts
from .card import card
from .comparison import comparison_page
from .figures import Figures, finite, read
from .lessons import lessons
from .single import run_page

__all__ = ["charts", "lessons", "row", "write_card", "write_comparison_report", "write_run_report"]


def row(run: Run) -> dict[str, Any]:
    """A run as a row of a table. Perplexity and other measures are those of the validation data; a figure that is
    missing or not finite is None, so that the row is JSON. `off_budget` is the distance of the parameters from the
    wanted number, as a share of it."""
    one = Figures(run, run.path.name)
    valid, test = one.measures("valid"), one.measures("test")
    others = {name: finite(value) for name, value in valid.items() if name not in ("loss", "tokens")}
    return {
        "model": one.model,
        "parameters": one.number("parameters"),
        "budget": one.budget,
        "off_budget": one.off_budget,
        "valid_loss": one.loss,
        "test_loss": finite(test.get("loss")),
        "perplexity": None,
        "bits_per_character": None,
        **others,
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
