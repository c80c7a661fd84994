"""Validation loss at equal processor time: each model trained by AdamW and by Muon, everything else the same.

The clock of the training is the processor time of one thread, so that other work on the machine does not decide.

python -m benchmarks.optimizers --data input.txt [--models lstm,gpt] [--seconds 30] [--seeds 3] [--params 200000]
python -m benchmarks.optimizers --task translate --data fra.tsv --models transformer,bahdanau --params 1000000
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from pathlib import Path

import torch

from seriatim import tasks
from seriatim.core.device import flush_denormals, retain_freed_memory
from seriatim.nn.network import load_weights
from seriatim.runs.configure import configure
from seriatim.training.checkpoint import Checkpoints
from seriatim.training.config import learning_rates
from seriatim.training.cost import solve_width
from seriatim.training.loop import Loop

OPTIMIZERS = ("adamw", "muon")


def train(arguments: argparse.Namespace, model: str, optimizer: str, seed: int) -> tuple[float, int]:
    """Returns the metric that the task monitors on the validation split, and the number of updates."""
    settings = {
        "seed": seed,
        "params": arguments.params,
        "train": {
            "minutes": arguments.seconds / 60,
            "batch_size": arguments.batch_size,
            "optimizer": {"name": optimizer},
            "evaluate_minutes": 1e6,  # only at the end
        },
    }
    config = configure(arguments.task, arguments.data, model, settings)
    task = tasks.load(arguments.task).prepare(config.task_config())
    solved = solve_width(config.model, arguments.params, task.network)
    config = config.model_copy(update={"model": solved})
    task.config = config.task_config()
    network = task.build()
    lr, muon_lr = learning_rates(config)
    with tempfile.TemporaryDirectory() as folder:
        checkpoints = Checkpoints(Path(folder))
        loop = Loop(task, network, config.train, lr, seed, checkpoints, clock=time.process_time, muon_lr=muon_lr)
        for _ in loop.run():
            pass
        load_weights(network, checkpoints.load().tensors["weights"])
    return task.evaluate(network.eval(), "validation")[arguments.metric or task.monitor], loop.progress.step


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--task", default="language")
    parser.add_argument("--data", required=True)
    parser.add_argument("--models", default="mlp,rnn,lstm,gru,tcn,gpt")
    parser.add_argument("--params", type=int, default=200_000)
    parser.add_argument("--seconds", type=float, default=30.0)
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--metric", help="of the validation split (default: what the task monitors)")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    flush_denormals()
    retain_freed_memory()
    for model in arguments.models.split(","):
        results = {name: [] for name in OPTIMIZERS}
        for seed in range(arguments.seeds):
            for name in OPTIMIZERS:  # taking turns
                results[name].append(train(arguments, model, name, seed))
        for name, values in results.items():
            metrics = [metric for metric, _ in values]
            spread = f" ± {statistics.stdev(metrics):.4f}" if len(metrics) > 1 else ""
            updates = statistics.mean(steps for _, steps in values)
            print(f"{model:16} {name:8} {statistics.mean(metrics):8.4f}{spread}   {updates:,.0f} updates", flush=True)


if __name__ == "__main__":
    main()
