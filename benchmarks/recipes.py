"""Which recipe learns most in the same processor time: optimizers, schedules, rates, batch sizes, initializations.

A *problem* is a task, data and a model of some size, with seconds of training; a *variant* changes settings of the
defaults. All variants of a problem are trained in turns, step by step, in one thread, and the clock of each is the
processor time of its own steps: other work on the machine slows all of them alike. Results are appended to a file, and
what it has is not trained again, so that a study can be stopped, continued and extended. A result belongs to the
settings that were used: if a default changes, `default` is trained anew.

python -m benchmarks.recipes --results recipes.jsonl --problems shakespeare,fra-eng/bahdanau --seeds 0,1,2
python -m benchmarks.recipes --results recipes.jsonl --problems shakespeare/gpt --variants "default;lr*=2;batch_size=8"
python -m benchmarks.recipes --results recipes.jsonl --tables
"""

from __future__ import annotations

import argparse
import ast
import json
import math
import statistics
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import nn

from seriatim import tasks
from seriatim.core.config import set_path
from seriatim.core.device import flush_denormals, retain_freed_memory
from seriatim.core.errors import SeriatimError
from seriatim.runs.configure import configure
from seriatim.tasks.base import AnyTask, Splits
from seriatim.tasks.reading import prepare
from seriatim.training.checkpoint import Checkpoints
from seriatim.training.config import Config, learning_rates
from seriatim.training.cost import solve_width
from seriatim.training.events import Evaluated
from seriatim.training.loop import Loop
from seriatim.training.muon import hidden_matrices
from seriatim.training.objective import TaskObjective

TOGETHER = 4  # variants that are trained in turns
Prepared = tuple[AnyTask, Splits[Any]]


class Problem(NamedTuple):
    task: str
    data: str
    models: str
    params: int | None  # None: the size by default
    seconds: float
    settings: str = ""  # as those of a variant
    metric: str = "loss"
    evaluations: int = 1  # the best counts, as in a run


PROBLEMS = {
    "shakespeare": Problem(
        "language", "tiny-shakespeare", "gpt lstm gru tcn rnn mlp", 200_000, 20, "batch_size=16 task.context_length=128"
    ),
    "shakespeare-1M": Problem(
        "language",
        "tiny-shakespeare",
        "gpt lstm gru tcn rnn mlp",
        1_000_000,
        60,
        "batch_size=16 task.context_length=128",
    ),
    "wikitext": Problem(
        "language",
        "wikitext2",
        "gpt lstm gru tcn rnn mlp",
        1_000_000,
        30,
        "batch_size=16 task.context_length=64 task.tokenizer.kind=bpe task.tokenizer.vocab_size=2000",
    ),
    # head -c 150000 and head -c 50000 of tiny-shakespeare: many passes over little data
    "small-text": Problem(
        "language", "small.txt", "gpt lstm tcn", 300_000, 25, "batch_size=16 task.context_length=128", "loss", 5
    ),
    "tiny-text": Problem(
        "language", "tiny.txt", "gpt lstm", 300_000, 25, "batch_size=16 task.context_length=128", "loss", 8
    ),
    "names": Problem("language", "names", "gpt lstm gru tcn rnn mlp", 50_000, 10),
    "fra-eng": Problem("translate", "fra-eng", "bahdanau transformer seq2seq", None, 90),
    "rt-polarity": Problem("classify", "rt-polarity", "gru lstm tcn bert mlp", 500_000, 15, "", "error", 5),
    "ud-ewt": Problem("tag", "ud-ewt", "lstm gru tcn bert", 500_000, 20, "", "error", 4),
    "wnut17": Problem("tag", "wnut17", "lstm gru", 500_000, 15, "", "error", 4),
    "etth1": Problem("forecast", "etth1", "gru lstm tcn mlp", 50_000, 15, "task.horizon=24", "loss", 5),
    "sunspots": Problem("forecast", "sunspots", "gru lstm tcn mlp", 20_000, 10, "task.horizon=12", "loss", 5),
    "gb1": Problem("regress", "gb1", "gru tcn mlp", 100_000, 15, "", "loss", 5),
    "jsb": Problem("music", "jsb-chorales", "lstm gru tcn", 200_000, 15, "", "loss", 5),
    "nottingham": Problem("music", "nottingham", "lstm gru tcn", 200_000, 15, "", "loss", 5),
}


def initialize(network: nn.Module, name: str) -> None:
    """Changes the weights of a new network: init=zero-output, fan-in or orthogonal of a variant."""
    for key in hidden_matrices(network):
        weight = network.get_parameter(key).data
        if name == "zero-output":  # what writes into the residual stream
            if key.endswith("output.weight"):
                weight.zero_()
        elif name == "fan-in":
            scale = weight[0].numel() ** -0.5 / weight.std()
            weight.mul_(scale)
        elif name == "orthogonal":
            torch.nn.init.orthogonal_(weight, float(weight.std()) * max(weight.flatten(1).shape) ** 0.5)
        else:
            raise ValueError(f"no initialization {name}")


class Unit(NamedTuple):
    """One training: a variant of a problem with one model and seed."""

    problem: str
    model: str
    variant: str
    seed: int
    seconds: float
    config: Config
    lr: float
    muon_lr: float
    init: str = ""

    def key(self) -> str:
        """Returns what a result depends on, except the seed."""
        dumped = self.config.model_dump(mode="json", exclude={"data", "seed"})
        return json.dumps(
            [self.problem, self.model, self.seconds, self.lr, self.muon_lr, self.init, dumped], sort_keys=True
        )


def make_unit(problem: str, model: str, variant: str, seed: int, seconds: float | None) -> Unit:
    """Returns a training by names.

    Settings are `key=value`, those of the loop without `train.`; `lr*=2` doubles all rates, `muon_lr*=2` that of Muon.
    """
    chosen = PROBLEMS[problem]
    seconds = chosen.seconds if seconds is None else seconds
    end = {"minutes": seconds / 60, "evaluate_minutes": seconds / 60 / chosen.evaluations, "evaluate_limit": 10**9}
    settings: dict[str, Any] = {"seed": seed, "train": end} | ({"params": chosen.params} if chosen.params else {})
    factors: dict[str, float] = {}
    init = ""
    for item in [*chosen.settings.split(), *([] if variant == "default" else variant.split())]:
        name, _, text = item.partition("=")
        try:
            value = ast.literal_eval(text)
        except (ValueError, SyntaxError):
            value = text
        if name == "init":
            init = text
        elif name.endswith("*"):
            factors[name[:-1]] = float(value)
        else:
            is_other = name.partition(".")[0] in ("task", "model", "data")
            set_path(settings, name if is_other else f"train.{name}", value)
    config = configure(chosen.task, chosen.data, model, settings)
    lr, muon_lr = learning_rates(config)
    lr, muon_lr = lr * factors.get("lr", 1.0), muon_lr * factors.get("lr", 1.0) * factors.get("muon_lr", 1.0)
    return Unit(problem, model, variant, seed, seconds, config, lr, muon_lr, init)


def train(units: list[Unit], prepared: dict[str, Prepared]) -> Iterator[dict[str, object]]:
    """Trains all of them in turns, and yields their results.

    Args:
        units: The trainings.
        prepared: Tasks and their splits by the settings they depend on; those that are not in it are added.
    """
    with tempfile.TemporaryDirectory() as folder:
        runs = []
        for index, unit in enumerate(units):
            config = unit.config
            key = config.task_config().model_dump_json()
            if key not in prepared:
                prepared[key] = prepare(tasks.load(config.task.name), config.task_config())
            task, splits = prepared[key]
            if config.params is not None:
                config = config.model_copy(update={"model": solve_width(config.model, config.params, task.network)})
                task = task.with_model(config.model)
            before, after = learning_rates(unit.config), learning_rates(config)  # they may depend on the width
            lr, muon_lr = unit.lr * after[0] / before[0], unit.muon_lr * after[1] / before[1]
            network = task.build(splits.train)
            if unit.init:
                initialize(network, unit.init)
            objective = TaskObjective.of(task, splits, config.train.evaluate_limit)
            checkpoints = Checkpoints(Path(folder) / str(index))
            loop = Loop(
                objective, network, config.train, lr, unit.seed, checkpoints, clock=time.process_time, muon_lr=muon_lr
            )
            runs.append((unit, loop, loop.run(), []))
        while runs:
            for run in list(runs):
                unit, loop, events, evaluations = run
                metric = PROBLEMS[unit.problem].metric
                try:
                    event = next(events, None)
                except SeriatimError:  # it diverged
                    event = None
                    evaluations.append({metric: math.inf})
                if isinstance(event, Evaluated):
                    evaluations.append(event.metrics)
                if event is None:
                    runs.remove(run)
                    best = min(evaluations, key=lambda metrics: metrics[metric])
                    yield {
                        **{name: getattr(unit, name) for name in ("problem", "model", "variant", "seed", "seconds")},
                        "value": best[metric],
                        "metrics": best,
                        "updates": loop.progress.step,
                        "optimizer": loop.settings.optimizer.name,
                        "lr": [loop.lr, loop.muon_lr],
                        "key": unit.key(),
                    }


def load(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def tables(rows: list[dict[str, Any]]) -> str:
    """Returns a table for each problem and time: a row a variant, a column a model, mean ± deviation (updates).

    If a variant was trained with different defaults, the last ones count.
    """
    parts = []
    for problem, seconds in sorted({(row["problem"], row["seconds"]) for row in rows}):
        here = [row for row in rows if (row["problem"], row["seconds"]) == (problem, seconds)]
        models, variants = ({row[name]: None for row in here} for name in ("model", "variant"))
        lines = [f"| {problem}, {seconds:g} s, {PROBLEMS[problem].metric} | {' | '.join(models)} |"]
        lines.append("|---" * (len(models) + 1) + "|")
        for variant in variants:
            cells = []
            for model in models:
                own = [row for row in here if (row["model"], row["variant"]) == (model, variant)]
                values = [row["value"] for row in own if row["key"] == own[-1]["key"]]
                spread = f" ± {statistics.stdev(values):.3f}" if len(values) > 1 else ""
                cells.append(f"{statistics.mean(values):.4f}{spread} ({own[-1]['updates']:,})" if own else "")
            lines.append(f"| {variant} | {' | '.join(cells)} |")
        parts.append("\n".join(lines))
    return "\n\n".join(parts)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--results", type=Path, required=True, help="a file of JSON lines, which is continued")
    parser.add_argument("--problems", default="", help="such as shakespeare/gpt,names (all models of it)")
    parser.add_argument("--variants", default="default", help="separated by semicolons")
    parser.add_argument("--seeds", default="0")
    parser.add_argument("--seconds", type=float, help="instead of the problem's")
    parser.add_argument("--tables", action="store_true", help="print the tables")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    flush_denormals()
    retain_freed_memory()
    for chosen in filter(None, arguments.problems.split(",")):
        problem, _, model = chosen.partition("/")
        for name in [model] if model else PROBLEMS[problem].models.split():
            prepared: dict[str, Prepared] = {}
            for seed in map(int, arguments.seeds.split(",")):
                done = {(row["key"], row["seed"]) for row in load(arguments.results)}
                variants = arguments.variants.split(";")
                units = [make_unit(problem, name, variant, seed, arguments.seconds) for variant in variants]
                units = [unit for unit in units if (unit.key(), seed) not in done]
                for first in range(0, len(units), TOGETHER):
                    for result in train(units[first : first + TOGETHER], prepared):
                        with arguments.results.open("a") as file:
                            file.write(json.dumps(result) + "\n")
                        shown = {name: result[name] for name in ("problem", "model", "variant", "seed", "updates")}
                        print(*shown.values(), f"{result['value']:.4f}", flush=True)
    if arguments.tables:
        print(tables(load(arguments.results)))


if __name__ == "__main__":
    main()
