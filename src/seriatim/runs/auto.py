"""`--model auto`: the best model for a task and its data, found by successive halving within the minutes of a training.

All models that fit train for a while, the better half goes on, and so forth until one is left, which trains to the end.
The schedule of the learning rate of each is that of the winner's time from the start: a round only pauses a training.
So the time of the winner in the rounds is not lost, and the winning run is exactly what `--model NAME` gives with its
minutes. With six models, where w are the minutes of the winner, 0.38 of all:

    6 models train to w/4, 3 to 3w/8, 2 to w/2, 1 to w

The folder of the training is that of the winning run; `candidates/` inside is a comparison with the runs of the others.
Everything follows from the files of the runs: the same command continues a search that was interrupted.
"""

from __future__ import annotations

import gc
import json
import math
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any
from weakref import WeakSet

import numpy as np

from .. import report
from ..core.config import merge
from ..core.device import join_ranks
from ..core.errors import SeriatimError
from ..core.files import Json, WriteError, write_json
from ..core.metrics import describe_metric, format_metric, get_metric, label_in_sentence, main_metric
from ..core.run_folder import damaged
from ..core.text import format_duration, plural
from ..report.significance import ALPHA, format_p
from ..training.config import ENDS, Config
from ..training.events import Callback
from .compare import Comparison, check_same_settings
from .configure import configure, expand_names
from .evaluate import Data, Notify
from .run import Run
from .session import Session, has_started, locked_by_first_rank, make_folder, train_or_resume

CANDIDATES = "candidates"  # the folder of the comparison
RESULT = "search.json"
FIRST_END, LAST_END = 0.25, 0.5  # of the first and the last round, as shares of the winner's time


def is_auto(model: str | None, settings: Mapping[str, object] | None) -> bool:
    """Returns whether the model that is named, as an argument or in nested settings, is `auto`."""
    named = expand_names(settings or {}).get("model")
    return (named.get("name") if model is None and isinstance(named, Mapping) else model) == "auto"


def train_best(
    task: str | None,
    data: Data,
    settings: Mapping[str, object] | None,
    out: str | Path | None,
    *,
    data_dir: str | None = None,
    callbacks: Callable[[str], Iterable[Callback]],
    notify: Notify,
    report: bool,
    **short: Any,
) -> Run:
    """Trains the models that fit, keeps the best and returns its run, or the one that a signal interrupted.

    Args:
        task: The name of the task.
        data: The sources of the data.
        settings: Nested settings of all models.
        out: The run folder; a search that it holds in part is continued.
        data_dir: The folder of catalogue data sets.
        callbacks: Returns the callbacks of a training, by the name of its model.
        notify: Called with each note, once if several models have the same.
        report: Whether to write report.html and the model card of each run.
        short: Options by their short names; `minutes` is the training time of all models together.
    """
    values = merge(expand_names(settings or {}), {"data": data.settings()})
    model = {key: value for key, value in (values.pop("model", None) or {}).items() if key != "name"}
    noted: set[str] = set()

    def note_once(text: str) -> None:
        if text not in noted:
            noted.add(text)
            notify(text)

    def make_session(name: str | None, folder: Path, minutes: float | None = None) -> Session:
        own = {"model": model | ({} if name is None else {"name": name})}
        budget = {} if minutes is None else {"minutes": minutes}
        config = configure(task, None, None, merge(values, own), **(short | budget))
        return Session(config, folder, data, data_dir, notify=note_once, report=report, shared=shared)

    shared: WeakSet[Session] = WeakSet()  # the data of a model that left the search is not kept
    first = make_session(None, Path())
    seconds = check_budget(first.config)
    prepared = first.prepare(join_ranks())
    names = prepared.task.candidates(prepared.splits.train)
    folder = make_folder(f"{first.config.task.name}-auto") if out is None else Path(out)
    if len(names) == 1:
        notify(f"model: {names[0]}, the only one for this task and data")
        session = make_session(names[0], folder)
        session.callbacks = callbacks(names[0])
        run = session.start()
        run.memory = data
        return run
    search = Search(folder, seconds, callbacks, notify)
    if has_started(folder) and not search.path.is_dir():
        raise SeriatimError("run.exists", f"{folder} holds a run already", "choose another --out")
    with locked_by_first_rank(search.path, join_ranks()):
        if (search.path / RESULT).is_file():
            if (folder / "config.yaml").is_file():  # the winner is in its place
                stored = Run(folder).config
                check_same_settings(folder, make_session(stored.model.name, folder, stored.train.minutes).config)
            run = search.conclude()
        else:
            run = search.run(names, lambda name, minutes: make_session(name, search.path / name, minutes))
    run.memory = data
    return run


def check_budget(config: Config) -> float:
    """Returns the training time in seconds; raises SeriatimError if there is none, or nothing to choose from."""
    train = config.train
    if train.minutes is None or any(getattr(train, end) is not None for end in ENDS if end != "minutes"):
        cause = "--model auto shares a time among the models, and compares them at equal time"
        raise SeriatimError("auto.minutes", cause, "name it, as --minutes 10, and no other end")
    if config.start is not None or config.distill is not None:
        option = "--from" if config.start is not None else "--teacher"
        raise SeriatimError(
            "auto.option", f"--model auto starts every model afresh, without {option}", "name a --model"
        )
    return train.minutes * 60


def plan_rounds(models: int, seconds: float) -> tuple[float, list[tuple[int, float]]]:
    """Returns the training time of the winner, and of each round its models and the time that they have at its end.

    Each round has the better half of the models of the round before. The first ends after a quarter of the winner's
    time, because in the warm-up, which takes up to a fifth, the order of models is not yet that of the end.
    """
    counts = [models]
    while counts[-1] > 1:
        counts.append(math.ceil(counts[-1] / 2))
    rounds = len(counts) - 1
    shares = np.linspace(FIRST_END if rounds > 1 else LAST_END, LAST_END, rounds).tolist()
    spans = [share - before for before, share in pairwise([0.0, *shares, 1.0])]
    winner = seconds / sum(count * span for count, span in zip(counts, spans, strict=True))
    return winner, [(count, share * winner) for count, share in zip(counts[:-1], shares, strict=True)]


def describe_plan(names: list[str], ends: list[float], winner: float) -> str:
    """Returns which models are tried, and for how long."""
    times = ", ".join(map(format_duration, ends))
    rounds = f" in {plural(len(ends), 'round')}, to {times}," if ends else ","
    return f"model auto: trying {', '.join(names)}{rounds} and the best to {format_duration(winner)}"


def rank_key(metrics: Json, monitor: str, prefix: str = "") -> tuple[float, float]:
    """Returns a sort key of metrics, lowest for the best: the monitored metric, then the loss."""
    value, loss = (float(metrics.get(f"{prefix}{name}", math.nan)) for name in (monitor, "loss"))
    value = -value if get_metric(monitor).direction == "higher" else value
    return (math.inf if math.isnan(value) else value), (math.inf if math.isnan(loss) else loss)


@dataclass
class Search:
    """A search for the best model.

    Args:
        folder: The folder of the winning run.
        seconds: The training time of all models together.
        callbacks: Returns the callbacks of a training.
        notify: Called with a note on each round.
    """

    folder: Path
    seconds: float
    callbacks: Callable[[str], Iterable[Callback]]
    notify: Notify
    runs: dict[str, Run] = field(default_factory=dict)  # of all models that were trained, also in part
    failed: dict[str, SeriatimError] = field(default_factory=dict)
    rounds: list[Json] = field(default_factory=list)

    @property
    def path(self) -> Path:
        """The folder of the comparison."""
        return self.folder / CANDIDATES

    def run(self, names: Iterable[str], make_session: Callable[[str, float], Session]) -> Run:
        """Returns the run of the best model, moved to its folder, or the run that a signal interrupted."""
        sessions = {name: make_session(name, self.seconds / 60) for name in names}
        fitted = [name for name, session in sessions.items() if session.config.model.gradient_free]
        for name in fitted:
            if self._train(name, sessions.pop(name)):
                return self.runs[name]
        left = self.seconds - sum(run.results.seconds or 0.0 for run in self.runs.values())
        winner_seconds, plan = plan_rounds(len(sessions), max(left, 0.1 * self.seconds))
        sessions = {name: make_session(name, winner_seconds / 60) for name in sessions}
        for session in sessions.values():
            check_same_settings(session.folder, session.config)
        self.notify(describe_plan([*fitted, *sessions], [end for _, end in plan], winner_seconds))
        for number, (_, end) in enumerate(plan, 1):
            for name, session in sessions.items():
                if self._seconds(name, session.folder) < end and self._train(name, session, (end, "paused")):
                    return self.runs[name]
            sessions = {name: session for name, session in sessions.items() if name not in self.failed}
            kept = self._end_round(number, len(plan), end, list(sessions)) if sessions else []
            for name, session in sessions.items():
                if name not in kept and self._train(name, session, (0.0, "eliminated")):
                    return self.runs[name]
            sessions = {name: sessions[name] for name in kept}
        for name, session in sessions.items():
            if self._train(name, session):
                return self.runs[name]
        if not self.runs:
            raise next(iter(self.failed.values()))
        return self._finish()

    def _seconds(self, name: str, folder: Path) -> float:
        """Returns how long a model has been trained; a search that continues finds its folder."""
        if name not in self.runs and has_started(folder):
            self.runs[name] = Run(folder)
        history = self.runs[name].history("evaluated") if name in self.runs else []
        return float(history[-1]["seconds"]) if history else -1.0

    def _train(self, name: str, session: Session, pause: tuple[float, str] | None = None) -> bool:
        """Trains a model, to the end or until the pause; returns whether a signal ended it."""
        leaves = pause is not None and pause[1] == "eliminated"  # without a step
        session.pause, session.callbacks = pause, () if leaves else self.callbacks(name)
        gc.collect()  # session, loop and task refer to each other: the data of models that left would stay in memory
        try:
            self.runs[name] = run = train_or_resume(session)
        except WriteError:  # the next model would not fare better
            raise
        except SeriatimError as error:
            self.failed[name] = error
            self.runs.pop(name, None)
            self.notify(f"{name} failed: {error}")
            return False
        return bool(run.results.signal)

    def _end_round(self, number: int, rounds: int, end: float, names: list[str]) -> list[str]:
        """Returns the better half of the models, by the best of their evaluations so far; notes the order."""
        best: dict[str, Json] = {}
        monitor = "loss"
        for name in names:
            monitor = self.runs[name].results.monitor
            history = self.runs[name].history("evaluated")
            last = next((index for index, event in enumerate(history) if event["seconds"] >= end), len(history) - 1)
            best[name] = min(history[: last + 1], key=lambda event: rank_key(event, monitor, "val_"))
        ordered = sorted(best, key=lambda name: rank_key(best[name], monitor, "val_"))
        kept = ordered[: math.ceil(len(ordered) / 2)]
        metrics = {key.removeprefix("val_"): value for key, value in best[ordered[0]].items() if key[:4] == "val_"}
        shown = "loss" if monitor == "loss" else main_metric(metrics, monitor)  # it decides, not BLEU
        texts = [f"{name} {format_metric(shown, best[name].get(f'val_{shown}'), 1)}" for name in ordered]
        self.notify(
            f"round {number} of {rounds}, {format_duration(end)} each, validation {label_in_sentence(shown)}: "
            f"{', '.join(texts)}; {', '.join(kept)} {'goes' if len(kept) == 1 else 'go'} on"
        )
        self.rounds.append({"seconds": end, "metric": shown, "order": ordered, "kept": kept, "values": texts})
        return [name for name in names if name in kept]

    def _finish(self) -> Run:
        """Chooses the best run by its metrics on the whole validation split, records why, and returns it."""
        finished = {name: results for name, run in self.runs.items() if (results := run.results).finished}
        monitor = next(iter(finished.values())).monitor
        ordered = sorted(finished, key=lambda name: rank_key(finished[name].metrics["validation"], monitor))
        best = ordered[0]
        metrics = finished[best].metrics["validation"]
        shown = "loss" if monitor == "loss" else main_metric(metrics, monitor)
        others = [
            f"{name} {format_metric(shown, finished[name].metrics['validation'].get(shown), 1)}" for name in ordered[1:]
        ]
        left = f"the others when they were left: {', '.join(others)}; " if others else ""
        seconds = {name: results.seconds or 0.0 for name, results in finished.items()}
        rounds = f" after {plural(len(self.rounds), 'round')}" if self.rounds else ""
        reason = (
            f"model: {best}, the best of {len(finished)}{rounds}: validation {describe_metric(shown, metrics[shown])}; "
            f"{left}{describe_ties(best, [self.runs[name] for name in ordered])}"
            f"it has {format_duration(seconds[best])} of the {format_duration(sum(seconds.values()))} of all "
            "trainings"
        )
        if join_ranks().is_first:
            result = {
                "winner": best,
                "reason": reason,
                "seconds": self.seconds,
                "rounds": self.rounds,
                "runs": ordered,
                "failed": {name: str(error) for name, error in self.failed.items()},
            }
            write_json(self.path / RESULT, result)
        return self.conclude()

    def conclude(self) -> Run:
        """Moves the best run to the folder, writes the comparison and returns the run; may be called again."""
        ranks = join_ranks()
        if ranks.is_first:
            try:
                result = json.loads((self.path / RESULT).read_bytes())
                best, reason, names, failed = (result[key] for key in ("winner", "reason", "runs", "failed"))
            except (ValueError, TypeError, KeyError) as error:
                raise damaged(self.path / RESULT, f"{type(error).__name__}: {error}", "remove it") from None
            if result.get("seconds") != self.seconds:
                cause = f"{self.folder} holds the result of a search with another time"
                raise SeriatimError("compare.differs", cause, "repeat the command as it was, or choose another --out")
            place_run(self.path / best, self.folder, reason)
            runs = [Run(self.folder if name == best else self.path / name) for name in names]
            Comparison(self.path, runs, failed).write()
            self.notify(reason)
            self.notify(f"comparison: {self.path / 'report.html'}")
        ranks.barrier()
        return Run(self.folder)


def describe_ties(best: str, runs: Sequence[Run]) -> str:
    """Returns which models do not differ significantly from the best; "" if all others differ."""
    others = {str(row["label"]): row["p"] for row in report.comparison_rows(runs) if row["label"] != best}
    tied = [f"{name} ({format_p(p)})" for name, p in others.items() if p is not None and p >= ALPHA]
    if tied:
        return f"a tie: the difference to {', '.join(tied)} may be chance; "
    if others and all(p is None for p in others.values()):
        return "one seed cannot tell whether the differences are chance; "
    return ""


def place_run(source: Path, target: Path, reason: str) -> None:
    """Moves the files of a run into another folder, and adds a note; its settings come last, as in a new run."""
    if source.is_dir():
        for path in sorted(source.iterdir(), key=lambda path: path.name == "config.yaml"):
            os.replace(path, target / path.name)
        source.rmdir()
    run = Run(target)
    results = run.results
    if reason in results.notes:
        return
    lines = [line.to_json().items() for line in results.usage]
    usage = [{key: text.replace(str(source), str(target)) for key, text in line} for line in lines]
    run.write_results(results.replace(usage=usage, notes=[*results.notes, reason]))
    if (target / "README.md").is_file():
        report.write_card(run)
        report.write_run_report(run)
