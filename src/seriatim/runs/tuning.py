"""The learning rate of a model, chosen by short trainings within a budget of time that is the same for every model.

Five learning rates around the default, each half of the next, share half of the budget; the best two share the other
half, and are trained anew, since a schedule belongs to its length. Short trainings favor high learning rates, which
diverge in long ones: if a trial of the first round had less than a quarter of the training's time, only the middle
three are tried. AdamW's and Muon's learning rate scale together. The trainings are ordinary runs in the folder `tuning`
of the comparison, so that an interrupted search continues.
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
        default_lr: The learning rate that a factor of 1 is.
        budget: The minutes that the trials had at most.
        sign: Of the monitored metric in scores: -1 if higher values are better.
    """

    trials: Sequence[Trial[float]]
    default_lr: float
    budget: float
    sign: int = 1

    @property
    def factor(self) -> float:
        """The best factor; 1 if every trial failed."""
        return self.trials[0].candidate if math.isfinite(self.trials[0].score) else 1.0

    @property
    def lr(self) -> float:
        return scaled(self.default_lr, self.factor)

    @property
    def at_edge(self) -> bool:
        """Whether the best is the lowest or the highest that was tried, so that a better one may lie beyond."""
        factors = [trial.candidate for trial in self.trials]
        return self.factor in (min(factors), max(factors))

    def record(self) -> Json:
        """Returns what comparison.json stores."""
        trials = [
            {
                "round": trial.round + 1,
                "factor": trial.candidate,
                "lr": scaled(self.default_lr, trial.candidate),
                "minutes": round(trial.minutes, 6),
                "score": self.sign * trial.score if math.isfinite(trial.score) else None,
            }
            for trial in self.trials
        ]
        return {
            "lr": self.lr,
            "default_lr": self.default_lr,
            "factor": self.factor,
            "at_edge": self.at_edge,
            "budget": self.budget,
            "minutes": round(math.fsum(trial.minutes for trial in self.trials), 6),
            "trials": trials,
        }

    def apply(self, config: Config) -> Config:
        """Returns the settings with the best learning rate; those with the default one stay as they are."""
        return config if self.factor == 1 else with_learning_rate(config, self.default_lr, self.factor)


def tune(label: str, config: Config, minutes: float, train: Trainer, folder: Path) -> Tuning:
    """Trains a model with each learning rate for a share of the minutes, and returns what came out.

    Args:
        label: The name of the model's folder.
        config: Its settings, whose learning rate is the one with the factor 1.
        minutes: The time of all trials together.
        train: Trains settings in a folder, or continues what it holds.
        folder: The folder of the comparison.
    """
    defaults: list[float] = []
    sign = 1
    longest = math.inf if config.train.minutes is None else config.train.minutes

    def train_trial(number: int, factor: float, share: float) -> float:
        nonlocal sign
        ends = {**dict.fromkeys(ENDS), "minutes": share}
        settings = config.model_copy(update={"train": config.train.model_copy(update=ends)})
        if defaults:
            settings = with_learning_rate(settings, defaults[0], factor)
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
            if not defaults and (folder / name / "config.yaml").is_file():  # the default may follow from the size
                defaults.append(learning_rates(Run(folder / name).config)[0])
        if (reason := run.summary.get("reason", "")).startswith("SIG"):
            raise InterruptedTuningError(reason)
        shutil.rmtree(run.path / "checkpoints", ignore_errors=True)
        monitor = run.summary["monitor"]
        sign = -1 if get_metric(monitor).direction == "higher" else 1
        return sign * float(run.summary["metrics"]["validation"][monitor])

    first_share = minutes / 2 / len(FACTORS)
    factors = FACTORS if math.isinf(longest) or first_share >= MIN_SHARE * longest else FACTORS[:3]
    trials = successive_halving(factors, minutes, train_trial, (len(factors), 2), longest)
    return Tuning(trials, defaults[0], minutes, sign)


def with_learning_rate(config: Config, default: float, factor: float) -> Config:
    """Returns settings whose learning rates are those with the factor 1, times the factor."""
    optimizer = config.train.optimizer
    muon = None if optimizer.muon_lr is None else scaled(optimizer.muon_lr, factor)
    optimizer = optimizer.model_copy(update={"lr": scaled(default, factor), "muon_lr": muon})
    return config.model_copy(update={"train": config.train.model_copy(update={"optimizer": optimizer})})


def scaled(lr: float, factor: float) -> float:
    return float(f"{lr * factor:.6g}")
