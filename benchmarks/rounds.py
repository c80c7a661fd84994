"""Validation loss of the winner of `--model auto`, by what a round does with its training: three ways at equal time.

pause    the schedule is that of the whole time; a round only pauses it (what `runs.auto` does)
rounds   every round has a schedule of its own, and the next one continues with a longer one
again    the rounds are lost: the winner starts again, with the half of the time that is left

The clock is the processor time of one thread, so that other work on the machine does not decide.

python -m benchmarks.rounds --data tiny-shakespeare [--models gru,lstm] [--seconds 16] [--params 200000]
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path

import torch

from seriatim import tasks
from seriatim.core.device import flush_denormals, retain_freed_memory
from seriatim.runs.configure import configure
from seriatim.tasks.reading import prepare
from seriatim.training.checkpoint import Checkpoints
from seriatim.training.config import learning_rates
from seriatim.training.cost import solve_width
from seriatim.training.events import Evaluated
from seriatim.training.loop import Loop
from seriatim.training.objective import TaskObjective

ENDS = {"pause": (1.0,), "rounds": (1 / 8, 1 / 4, 1 / 2, 1.0), "again": (1 / 2,)}  # shares of the winner's time


def losses(arguments: argparse.Namespace, model: str, ends: tuple[float, ...]) -> list[float]:
    """Returns the validation loss after each eighth of the winner's time, or after each of the ends if several."""
    settings = {
        "params": arguments.params,
        "train": {"minutes": arguments.seconds / 60, "evaluate_minutes": arguments.seconds / 8 / 60},
    }
    config = configure(arguments.task, arguments.data, model, settings)
    task, splits = prepare(tasks.load(arguments.task), config.task_config())
    config = config.model_copy(update={"model": solve_width(config.model, arguments.params, task.network)})
    task = task.with_model(config.model)
    objective = TaskObjective.of(task, splits, config.train.evaluate_limit)
    lr, muon_lr = learning_rates(config)
    values: list[float] = []
    with tempfile.TemporaryDirectory() as folder:
        for number, end in enumerate(ends):
            train = config.train.model_copy(update={"minutes": end * arguments.seconds / 60})
            checkpoints = Checkpoints(Path(folder))
            network = task.build(splits.train)
            loop = Loop(objective, network, train, lr, 0, checkpoints, clock=time.process_time, muon_lr=muon_lr)
            if number:
                loop.resume(new_end=True)
            evaluated = [event.metrics["loss"] for event in loop.run() if isinstance(event, Evaluated)]
            values += evaluated if len(ends) == 1 else evaluated[-1:]
    return values


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--task", default="language")
    parser.add_argument("--data", required=True)
    parser.add_argument("--models", default="mlp,rnn,lstm,gru,tcn,gpt")
    parser.add_argument("--params", type=int, default=200_000)
    parser.add_argument("--seconds", type=float, default=16.0)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    flush_denormals()
    retain_freed_memory()
    for model in arguments.models.split(","):
        for name, ends in ENDS.items():
            values = " ".join(f"{loss:.3f}" for loss in losses(arguments, model, ends))
            print(f"{model:8} {name:8} {values}", flush=True)


if __name__ == "__main__":
    main()
