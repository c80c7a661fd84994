"""Defaults that follow from the budget: what the settings leave open is decided once, when a training starts.

    batch size       the task's, halved until an update has at most 3 · √(all targets that are read) targets
    width            the model's, halved while fewer than `MIN_UPDATES` fit (unless width or --params is set)
    dropout          0.15 · log10(parameters · passes / targets of the training split / the model's `dropout_onset`), if
                     time is the budget; the onset is later for models that apply it in every block
    learning rate    the model's · (its `lr_updates` / updates)^0.32, from one to two times, if time is the budget
    evaluations      ten, or one for each pass if there are more, up to `MAX_EVALUATIONS`

Small batches make many updates, large ones precise updates. The best size grows with the number of targets that a
training reads rather than with the model (Zhang et al. 2024, arXiv:2410.21676), here with its square root. The best
learning rate falls with the length of a training, with this exponent (Bjorck et al. 2024, arXiv:2409.19913).

The pace is measured with a few updates of a network that is thrown away, with the smallest batches first. A budget of
steps or epochs needs no pace, so that everything follows from the settings and the data. What is decided is stored in
config.yaml: resuming and training again with that file decide nothing.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import nn

from ..core.device import Ranks, derive, memory_size
from ..core.errors import SeriatimError
from .config import DEFAULT_STEPS, Config, learning_rates
from .cost import count_flops, count_targets, parameter_count
from .objective import Objective
from .optimizer import make_optimizer, update

TARGETS_PER_ROOT = 3.0  # targets of an update, as a multiple of the root of all that are read
MIN_UPDATES = 300  # of the smallest batches; a narrower network makes more
MIN_BATCH_SIZE, MIN_WIDTH = 8, 64
PROBES = 3  # updates that are timed, after one that is not
MIN_EVALUATIONS, MAX_EVALUATIONS = 10, 40
DROPOUT_PER_DECADE, MAX_DROPOUT = 0.15, 0.5
LR_EXPONENT, MAX_LR_FACTOR = 0.32, 2.0

Build = Callable[[Any], nn.Module]  # the network of the settings of a model


@dataclass(frozen=True)
class Plan:
    """What a training will do, and the settings that follow.

    Args:
        config: The settings, with numbers for all that was left open.
        updates: The number of updates, about.
        passes: The number of passes over the training split, about.
        decided: The settings that were open, by their path.
        note: What was chosen and why; "" if nothing was open.
    """

    config: Config
    updates: int
    passes: float
    decided: list[str]
    note: str


class Pace(NamedTuple):
    """Throughput measured at one batch size; larger batches amortize the fixed cost of an update."""

    rows: float  # read by each process within the minutes, `accumulate` batches counted as one
    targets: float  # per row


def make_plan(config: Config, objective: Objective[Any, Any], build: Build, device: torch.device, ranks: Ranks) -> Plan:
    """Returns the settings of a training with numbers for all that they leave open.

    Args:
        config: The settings.
        objective: What is trained.
        build: Returns the network of the settings of a model.
        device: The device to compute on.
        ranks: This process among its peers.
    """
    train, model, choices = config.train, config.model, []
    batch_size = objective.batch_size if train.batch_size is None else train.batch_size

    def global_size(rows: int) -> int:
        return rows * train.accumulate * ranks.world_size

    if train.timed:
        largest = batch_size
        if train.batch_size is None:
            while batch_size >= 2 * MIN_BATCH_SIZE:
                batch_size //= 2
        pace = measure_pace(config, objective, build, device, ranks, batch_size)
        while is_open(config, "width") and pace.rows < MIN_UPDATES * batch_size and model.width >= 2 * MIN_WIDTH:
            model = model.with_width(model.width // 2)
            pace = measure_pace(config.model_copy(update={"model": model}), objective, build, device, ranks, batch_size)
        if train.batch_size is None:
            while 2 * batch_size <= min(largest, largest_batch(pace, train.accumulate * ranks.world_size)):
                batch_size *= 2
                pace = measure_pace(
                    config.model_copy(update={"model": model}), objective, build, device, ranks, batch_size
                )
            choices.append(f"batch size {batch_size}")
        updates = math.ceil(pace.rows / batch_size)
        if model.width != config.model.width:
            choices.append(f"width {model.width}")
    else:
        updates = DEFAULT_STEPS if train.steps is None else train.steps
        if train.epochs is not None:
            updates = math.ceil(train.epochs * objective.steps_per_epoch(global_size(batch_size)))
        elif train.tokens is not None:
            updates = math.ceil(train.tokens / max(count_targets(objective, global_size(batch_size)), 1))
        elif train.flops is not None:
            network = build(model).to(device)
            updates = math.ceil(
                train.flops / max(count_flops(objective, network, global_size(batch_size), device), 1.0)
            )
    passes = updates / objective.steps_per_epoch(global_size(batch_size))
    changes: dict[str, object] = {"batch_size": batch_size}
    if train.timed and is_open(config, "dropout"):
        targets = pace.targets * pace.rows * train.accumulate * ranks.world_size / passes  # of the training split
        ratio = parameter_count(model, build) * passes / targets / model.dropout_onset
        dropout = round(min(max(DROPOUT_PER_DECADE * math.log10(ratio), 0.0), MAX_DROPOUT), 1)
        if dropout > model.dropout:
            model = model.model_copy(update={"dropout": dropout})
            choices.append(f"dropout {dropout:g}")
    if train.timed and train.optimizer.lr is None and config.start is None:
        factor = min((model.lr_updates / updates) ** LR_EXPONENT, MAX_LR_FACTOR)
        lr = float(f"{model.default_lr() * factor:.3g}")
        if lr > model.default_lr():
            changes["optimizer"] = train.optimizer.model_copy(update={"lr": lr})
            choices.append(f"learning rate {lr * train.optimizer.lr_scale:g}")
    if train.evaluations is None:
        changes["evaluations"] = min(max(MIN_EVALUATIONS, int(passes)), MAX_EVALUATIONS)
    note = ""
    if choices:
        budget = f" in {train.minutes:g} minutes" if train.timed else ""
        times = f"{passes:.2g}" if passes < 10 else f"{rounded(passes):,}"
        note = f"{', '.join(choices)}: about {rounded(updates):,} updates{budget}, {times} passes over the data"
    sections = (("train", config.train, changes), ("model", config.model, model.model_dump()))
    paths = {"optimizer": "optimizer.lr"}
    decided = [
        f"{section}.{paths.get(name, name)}"
        for section, settings, values in sections
        for name, value in values.items()
        if getattr(settings, name) != value
    ]
    planned = config.model_copy(update={"train": train.model_copy(update=changes), "model": model})
    return Plan(planned, updates, passes, decided, note)


def largest_batch(pace: Pace, batches: int) -> float:
    """Returns the largest batch size that leaves enough updates; `batches` is the number of batches per update."""
    targets = pace.targets * batches
    return TARGETS_PER_ROOT * math.sqrt(pace.rows * targets) / targets


def is_open(config: Config, name: str) -> bool:
    """Returns whether a setting of the model was left out, by the user and by the task."""
    fixed = config.start is not None or (name == "width" and config.params is not None)
    return not fixed and name in type(config.model).model_fields and name not in config.model.model_fields_set


def rounded(number: float) -> int:
    """Returns a number with two significant digits."""
    return round(int(number), -max(math.floor(math.log10(max(number, 1))) - 1, 0))


def measure_pace(
    config: Config, objective: Objective[Any, Any], build: Build, device: torch.device, ranks: Ranks, rows: int
) -> Pace:
    """Returns the pace of a training, measured by the mean time of a few updates at one batch size.

    On a CPU it is the processor time if that is less: on a busy machine the wall time depends on other programs.
    """
    with torch.random.fork_rng([device] if device.type == "cuda" else []):
        torch.manual_seed(derive(config.seed, "init"))
        network = build(config.model).to(device).train()
        optimizer = make_optimizer(network, config.train.optimizer, *learning_rates(config))
        seconds, targets = 0.0, 0
        for probe in range(1 + PROBES):
            batch = objective.batch(probe, 0, rows, rows).to(device)
            wall, processor = time.perf_counter(), time.process_time()
            loss = objective.loss(objective.forward(network, batch), batch, config.train.label_smoothing)
            (loss / max(batch.count, 1)).backward()
            update(optimizer, 1e-9)
            optimizer.zero_grad(set_to_none=True)
            if device.type == "cuda":
                torch.cuda.synchronize(device)
            wall, processor = time.perf_counter() - wall, time.process_time() - processor
            if probe:
                if config.train.clock == "cpu":
                    seconds += processor
                else:
                    seconds += min(wall, processor) if device.type == "cpu" else wall
                targets += batch.count
    seconds = ranks.broadcast([max(seconds / PROBES, 1e-6)])[0]
    time_budget = 60 * float(config.train.minutes or 0)
    return Pace(time_budget * rows / seconds / config.train.accumulate, max(targets / PROBES / rows, 1e-6))


def check_batch_memory(objective: Objective[Any, Any], network: nn.Module, batch_size: int) -> None:
    """Raises SeriatimError if what a batch keeps for its gradients does not fit into memory, measured on two rows."""
    if batch_size <= 2:
        return
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # with fewer rows than threads, other operators may be used, which keep something else
    try:
        one, two = (kept_bytes(objective, network, rows) for rows in (1, 2))
    finally:
        torch.set_num_threads(threads)
    needed, present = one + max(two - one, 0) * (batch_size - 1), memory_size()
    if needed > present:
        cause = (
            f"a batch of {batch_size:,} needs about {needed / 1e9:,.1f} GB for its activations; "
            f"there are {present / 1e9:,.1f} GB"
        )
        most = max((present - one) // max(two - one, 1), 1)
        remedy = f"lower --batch-size (below {rounded(int(most)):,}); train.accumulate adds up the gradients of several"
        raise SeriatimError("train.memory", cause, remedy)


def kept_bytes(objective: Objective[Any, Any], network: nn.Module, rows: int) -> int:
    """Returns the size of the tensors that a forward pass over some rows keeps for the backward pass."""
    own = {parameter.untyped_storage().data_ptr() for parameter in network.parameters()}
    sizes: dict[int, int] = {}

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in own:
            sizes[storage.data_ptr()] = storage.nbytes()
        return tensor

    batch = objective.batch(0, 0, rows, 2)
    with torch.random.fork_rng([]), torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        loss = objective.loss(objective.forward(network.train(), batch), batch)
        del loss
    return sum(sizes.values())
