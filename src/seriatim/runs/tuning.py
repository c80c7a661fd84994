"""The learning rate of a model, chosen by short trainings within a budget of time that is the same for every model.

Five learning rates around the default, each half of the next, share half of the budget; the best two share the other
half, and start again, since a schedule belongs to its length. Short trainings favor high learning rates, which
diverge in long ones: if a trial of the first round had less than a quarter of the training's time, only the middle
three are tried. What is searched for is `train.optimizer.lr_scale`, a factor of both AdamW's and Muon's learning rate:
that of a trial is already higher by default if it makes fewer updates than the training (training/budget.py). If the
training ends otherwise than by time, its default knows no updates, and it takes the learning rate itself. The trainings
are ordinary runs in the folder `tuning` of the comparison, so that an interrupted search continues.
"""

from __future__ import annotations

import math
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from ..core.errors import SeriatimError
from ..core.files import Json, WriteError
from ..core.metrics import get_metric
from ..training.config import ENDS, Config, learning_rates
from .halving import Trial, successive_halving
from .run import Run

FACTORS = (1.0, 0.5, 2.0, 0.25, 4.0)  # of the default; the first of equals wins
MIN_SHARE = 0.25  # of the training's time for a trial of all factors, without which only the first three are tried
FOLDER = "tuning"
Trainer = Callable[[str, Config, bool], Run]  # folder, settings, whether it is a trial → the run


class InterruptedTuningError(Exception):
    """A signal ended a trial, which can be resumed; `reason` is the signal."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


@dataclass(frozen=True)
class Tuning:
    """The search for a learning rate.

    Args:
        trials: All of them, the winner first.
        lrs: The learning rate of each trial.
        budget: The minutes that the trials had at most.
        sign: Of the monitored metric in scores: -1 if higher values are better.
    """

    trials: Sequence[Trial[float]]
    lrs: Sequence[float]
    budget: float
    sign: int = 1

    @property
    def factor(self) -> float:
        """The best factor; 1 if every trial failed."""
        return self.trials[0].candidate if math.isfinite(self.trials[0].score) else 1.0

    @property
    def at_edge(self) -> bool:
        """Whether the best is the lowest or the highest that was tried, so that a better one may lie beyond."""
        factors = [trial.candidate for trial in self.trials]
        return self.factor in (min(factors), max(factors))

    def describe(self, timed: bool) -> str:
        """Returns the result in words, for a training whose end is a time or another."""
        edge = ", at the edge of what was tried" if self.at_edge else ""
        rate = f"{self.factor:g} times the default learning rate" if timed else f"learning rate {self.lrs[0]:.3g}"
        return f"{rate}{edge}"

    def record(self) -> Json:
        """Returns what comparison.json stores."""
        trials = [
            {
                "round": trial.round + 1,
                "factor": trial.candidate,
                "lr": lr,
                "minutes": round(trial.minutes, 6),
                "score": self.sign * trial.score if math.isfinite(trial.score) else None,
            }
            for trial, lr in zip(self.trials, self.lrs, strict=True)
        ]
        return {
            "factor": self.factor,
            "at_edge": self.at_edge,
            "budget": self.budget,
            "minutes": round(math.fsum(trial.minutes for trial in self.trials), 6),
            "trials": trials,
        }

    def apply(self, config: Config) -> Config:
        """Returns the settings with the best factor of their learning rate, or with that rate."""
        scale = config.train.optimizer.lr_scale
        if config.train.timed:
            return with_optimizer(config, lr_scale=scale * self.factor)
        default = self.lrs[0] / self.trials[0].candidate / scale  # of the trial
        return with_optimizer(config, lr=default, lr_scale=scale * self.factor)


def tune(label: str, config: Config, minutes: float, train: Trainer, folder: Path) -> Tuning:
    """Trains a model with each learning rate for a share of the minutes, and returns what came out.

    Args:
        label: The name of the model's folder.
        config: Its settings, whose learning rate, set or by default, is the one with the factor 1.
        minutes: The time of all trials together.
        train: Trains settings in a folder, or continues what it holds.
        folder: The folder of the comparison.
    """
    lrs: dict[tuple[int, float], float] = {}  # round, factor → learning rate
    sign = 1
    longest = math.inf if config.train.minutes is None else config.train.minutes

    def train_trial(number: int, factor: float, share: float) -> float:
        nonlocal sign
        ends = {**dict.fromkeys(ENDS), "minutes": share}
        settings = config.model_copy(update={"train": config.train.model_copy(update=ends)})
        settings = with_optimizer(settings, lr_scale=settings.train.optimizer.lr_scale * factor)
        name = f"{FOLDER}/{label}-round{number + 1}-lr-x{factor:g}"
        try:
            run = train(name, settings, True)
        except WriteError:
            raise
        except SeriatimError:
            if not (folder / name / "config.yaml").is_file():  # the model does not fit, with any learning rate
                raise
            return math.inf
        finally:
            if (folder / name / "config.yaml").is_file():  # the default may follow from size and budget
                lrs[number, factor] = learning_rates(Run(folder / name).config)[0]
        results = run.results
        if results.signal:
            raise InterruptedTuningError(results.signal)
        shutil.rmtree(run.path / "checkpoints", ignore_errors=True)
        sign = -1 if get_metric(results.monitor).direction == "higher" else 1
        value = results.metrics["validation"][results.monitor]
        return math.nan if value is None else sign * value

    first_share = minutes / 2 / len(FACTORS)
    factors = FACTORS if math.isinf(longest) or first_share >= MIN_SHARE * longest else FACTORS[:3]
    trials = successive_halving(factors, minutes, train_trial, (len(factors), 2), longest)
    return Tuning(trials, [lrs[trial.round, trial.candidate] for trial in trials], minutes, sign)


def with_optimizer(config: Config, **values: float) -> Config:
    """Returns settings with other values of the optimizer."""
    optimizer = config.train.optimizer.model_copy(update=values)
    return config.model_copy(update={"train": config.train.model_copy(update={"optimizer": optimizer})})
