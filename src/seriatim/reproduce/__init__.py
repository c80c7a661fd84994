"""Published tables, reproduced: what was reported beside what is reached here, row by row.

A row is a comparison of some models at the row's size, in a folder of its own; finished models are not trained again
and interrupted ones go on, so that a table can be made in several sittings.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .. import api
from ..core.config import merge
from ..core.errors import SeriatimError, did_you_mean
from ..core.files import write_json, write_text
from ..runs import Run
from . import page
from .tables import TABLES, Row, Table

__all__ = ["TABLES", "Outcome", "Reached", "reproduce"]

Notify = Callable[[str], None]
Listeners = Callable[[str, float | None], Iterable[Any]]  # of a label and its minutes


@dataclass(frozen=True)
class Reached:
    """One model of one row."""

    row: Row
    label: str
    run: Run

    @property
    def value(self) -> float:
        return float(self.run.summary["measures"][self.row.split][self.row.measure])

    @property
    def learnt(self) -> float:
        """The mean loss on the training part over the last tenth of the steps."""
        last = self.run.summary["step"]
        losses = [one["loss"] for one in self.run.history("stepped") if one["step"] > 0.9 * last]
        return sum(losses) / len(losses)

    def record(self) -> dict[str, Any]:
        summary = self.run.summary
        return {
            "row": self.row.name,
            "model": self.label,
            "published": self.row.models[self.label].published,
            "reached": self.value,
            "measure": self.row.measure,
            "split": self.row.split,
            "parameters": summary["parameters"],
            "seconds": summary["seconds"],
            "steps": summary["step"],
            "seed": summary["seed"],
            "settings": self.run.settings,
        }


@dataclass(frozen=True)
class Outcome:
    path: Path
    table: Table
    reached: list[Reached]
    missing: dict[str, str]  # row → why it was not run
    stopped: str = ""  # the signal that ended it before its end

    def records(self) -> list[dict[str, Any]]:
        return [one.record() for one in self.reached]


def reproduce(
    name: str,
    rows: Sequence[str] = (),
    models: Sequence[str] = (),
    *,
    minutes: float | None = None,
    seed: int = 0,
    out: str | Path | None = None,
    data_dir: str | None = None,
    listeners: Listeners = lambda label, minutes: (),
    notify: Notify = lambda text: None,
) -> Outcome:
    """Trains the models of a table's rows, all of them or those named, and writes the table anew after each row.

    `minutes` is the time of each model, instead of what the row says.
    """
    if name not in TABLES:
        raise SeriatimError("reproduce.unknown", f'there is no table "{name}"', did_you_mean(name, TABLES))
    table = TABLES[name]
    for wanted in rows:
        if wanted not in table.rows:
            raise SeriatimError("reproduce.row", f'{name} has no row "{wanted}"', did_you_mean(wanted, table.rows))
    path = Path(out) if out is not None else Path("runs", f"reproduce-{name}")
    missing: dict[str, str] = {}
    outcome = Outcome(path, table, list(_finished(table, path)), missing)
    for row in (table.rows[wanted] for wanted in rows or table.rows):
        if not row.models or row.data is None:
            missing[row.name] = row.remark or "it has no data here"
            notify(f"{row.name}: left out ({missing[row.name]})")
            continue
        try:
            comparison = _run(row, path, models, minutes, seed, data_dir, listeners, notify)
        except SeriatimError as error:
            if error.code in ("data.local-only", "data.fetch", "data.offline"):
                missing[row.name] = str(error)
                notify(f"{row.name}: left out ({error})")
                continue
            raise
        reason = comparison.runs[-1].summary["reason"]
        stopped = reason if reason.startswith("SIG") else ""
        outcome = Outcome(path, table, list(_finished(table, path)), missing, stopped)
        _write(outcome)
        if stopped:
            break
    _write(outcome)
    return outcome


def _run(
    row: Row,
    path: Path,
    models: Sequence[str],
    minutes: float | None,
    seed: int,
    data_dir: str | None,
    listeners: Listeners,
    notify: Notify,
) -> api.Comparison:
    chosen = {label: dict(one.settings) for label, one in row.models.items() if not models or label in models}
    if minutes is not None:  # as many steps as fit, instead of those of the row
        chosen = {label: merge(settings, {"train": {"steps": None}}) for label, settings in chosen.items()}
    if not chosen:
        names = ", ".join(row.models)
        raise SeriatimError("reproduce.model", f"{row.name} has none of the models named", f"it has: {names}")
    notify(f"{row.name}: {row.title}")
    return api.compare(
        row.task,
        row.data,
        chosen,
        settings=row.settings,
        out=path / row.name,
        data_dir=data_dir,
        listeners=lambda label: listeners(f"{row.name} {label}", minutes),
        notify=notify,
        params=row.params,
        minutes=minutes,
        seed=seed,
    )


def _runs(row: Row, path: Path) -> list[Run]:
    folders = [path / row.name / label for label in row.models]
    return [Run(folder) for folder in folders if (folder / "config.yaml").is_file()]


def _finished(table: Table, path: Path) -> Iterable[Reached]:
    """What the folder holds by now, from this sitting or an earlier one."""
    for row in table.rows.values():
        for run in _runs(row, path):
            if run.summary.get("measures", {}).get(row.split):
                yield Reached(row, run.path.name, run)


def _write(outcome: Outcome) -> None:
    outcome.path.mkdir(parents=True, exist_ok=True)
    write_json(outcome.path / "table.json", outcome.records())
    write_text(outcome.path / "table.md", page.markdown(outcome))
    write_text(outcome.path / "report.html", page.html(outcome))
