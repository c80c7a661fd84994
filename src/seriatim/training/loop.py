"""The one training loop: a generator of events.

    for event in Loop(task, network, settings, …).run(): …

An update is a pure function of the weights, the optimiser's averages and the step's number, because batches and
dropout come from streams addressed by the step. That is what makes resuming exact, and the number of earlier
interruptions, of processes and of accumulated batches irrelevant to the mathematics (the two last but for the masks
of dropout, which each batch draws for itself): losses travel as sums, and are divided once by the number of targets
of the whole global batch.
"""

from __future__ import annotations

import contextlib
import math
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from ..core import state as states
from ..core.device import Ranks
from ..core.errors import SeriatimError
from ..core.random import derive
from ..nn.network import load_weights, weights
from ..tasks._task import Batch, Task
from .ahead import Ahead
from .checkpoint import Checkpoint, Checkpoints
from .cost import count_flops
from .depth import freeze
from .events import Evaluated, Event, Planned, Saved, Started, Stepped, Stopped
from .optimiser import load_optimiser, make_optimiser, optimiser_tensors
from .schedules import share_of_peak
from .settings import TrainSettings

STEPS = 2_000  # where neither steps nor minutes are given
EVALUATIONS = 10  # along the way, where nothing else is said
PLANS = (0.03, 0.1, 0.25, 0.5, 0.75, 0.9)  # shares of a time budget at which its number of steps is estimated anew
TIMED = 50  # last steps that an estimate looks at


@dataclass
class Progress:
    """What a checkpoint knows besides tensors."""

    step: int = 0  # updates made
    tokens: int = 0
    seconds: float = 0.0
    steps: int | None = None  # updates to make, once known
    plans: int = 0  # how often that was estimated from a budget of time
    rows: int = 0  # of the global batch: kept when the number of processes changes
    best: float | None = None
    best_loss: float | None = None  # of the best: decides where the objective is equal
    best_step: int = 0
    worse: int = 0  # evaluations since the best
    evaluated: int = -1  # step of the last evaluation
    carried: Any = None  # the form of the carried states


@dataclass
class Loop:
    task: Task
    network: nn.Module
    settings: TrainSettings
    rate: float
    seed: int
    checkpoints: Checkpoints
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))
    ranks: Ranks = field(default_factory=Ranks)
    keep_best: Callable[[dict[str, Tensor]], None] = lambda weights: None
    halt: Callable[[], str] = lambda: ""  # the name of a signal to stop at, or nothing

    def __post_init__(self) -> None:
        self.network.to(self.device)
        self.frozen = freeze(self.network, self.settings.freeze)
        self.optimiser = make_optimiser(self.network, self.settings.optimiser, self.rate)
        self.average: dict[str, Tensor] = {}
        if self.settings.ema:
            self.average = {name: tensor.detach().clone() for name, tensor in weights(self.network).items()}
        rows = self.settings.batch * self.settings.accumulate * self.ranks.world
        self.progress = Progress(steps=self._wanted(rows), rows=rows)
        self.carried: list[Any] = []
        self.times: list[float] = []
        self.ahead = Ahead(self._batches, getattr(self.task, "ahead", False))

    def _wanted(self, rows: int) -> int | None:
        """The updates to make with `rows` rows each, as the settings say; None: as many as fit into the minutes."""
        wanted = self.settings
        if wanted.epochs is not None:
            return math.ceil(wanted.epochs * self.task.steps_per_epoch(rows))
        return STEPS if wanted.steps is None and wanted.minutes is None else wanted.steps

    # The run as a whole

    def resume(self, moved: bool = False) -> None:
        """Takes up the last checkpoint; where the end was `moved`, that of the settings counts, not the old one."""
        checkpoint = self.checkpoints.load()
        self.progress = Progress(**checkpoint.progress)
        if self.progress.rows % self.ranks.world:
            raise SeriatimError(
                "train.ranks",
                f"a batch of {self.progress.rows} rows cannot be shared by {self.ranks.world} processes",
                "start a number of processes that divides it",
            )
        if moved:
            self.progress.steps, self.progress.plans, self.progress.worse = self._wanted(self.progress.rows), 0, 0
        load_weights(self.network, checkpoint.tensors["weights"])
        load_optimiser(self.optimiser, self.network, checkpoint.tensors.get("optimiser", {}))
        self.average = {name: t.to(self.device) for name, t in checkpoint.tensors.get("average", {}).items()}
        if self.progress.carried is not None:
            stored = checkpoint.tensors["carried"]
            share = self.progress.rows // self.ranks.world
            mine = slice(self.ranks.rank * share, (self.ranks.rank + 1) * share)
            tensors = [stored[str(i)][mine].to(self.device) for i in range(len(stored))]
            self.carried = states.split(states.rebuild(self.progress.carried, tensors), self.settings.batch)

    def run(self) -> Iterator[Event]:
        try:
            yield from self._run()
        finally:
            self.ahead.close()

    def _run(self) -> Iterator[Event]:
        now = self.progress
        flops = count_flops(self.task, self.network, now.rows, self.device)
        parameters = sum(parameter.numel() for parameter in self.network.parameters())
        unit = getattr(self.task, "unit", "elements")
        yield Started(now.step, now.seconds, now.steps, parameters, flops, self.ranks.world, unit)
        last_evaluation = now.seconds
        reason = self._finished()
        while not reason:
            began = time.perf_counter()
            loss, rate, norm = self._update()
            took = time.perf_counter() - began
            now.seconds = self.ranks.share([now.seconds + took])[0]
            self.times = [*self.times[1 - TIMED :], took]
            yield Stepped(now.step, now.seconds, loss, rate, norm, now.tokens)

            if (steps := self._plan()) is not None:
                now.steps = steps
                yield Planned(now.step, now.seconds, steps)
            reason = self._finished()
            if not reason and self._evaluation_due(now.seconds - last_evaluation):
                last_evaluation = now.seconds
                yield from self._evaluate()
                reason = self._finished()
        if now.evaluated != now.step and not reason.startswith("SIG"):
            yield from self._evaluate()
            reason = self._signal() or reason
        elif now.evaluated != now.step:
            yield self._save()
        yield Stopped(now.step, now.seconds, reason, now.best_step, now.tokens)

    def _finished(self) -> str:
        """Why to stop now, or nothing."""
        now, minutes = self.progress, self.settings.minutes
        if signal := self._signal():
            return signal
        if now.steps is not None and now.step >= now.steps:
            return "finished"
        if minutes is not None and now.seconds >= minutes * 60:
            return "minutes"
        if self.settings.patience is not None and now.worse >= self.settings.patience:
            return "patience"
        return ""

    def _signal(self) -> str:
        """The name of the signal that any of the processes was sent."""
        own = self.halt()
        if self.ranks.world == 1:
            return own
        names = ("SIGINT", "SIGTERM")
        flags = self.ranks.sum(torch.tensor([float(own == name) for name in names], device=self.device)).tolist()
        return next((name for name, flag in zip(names, flags, strict=True) if flag), "")

    def _plan(self) -> int | None:
        """With a budget of time: estimates how many steps fit into it, so that the learning rate can fall over
        them, and does so again a few times, as the pace may change. Rank 0 decides."""
        now, settings = self.progress, self.settings
        known = settings.steps is not None or settings.epochs is not None
        if known or settings.minutes is None or now.plans == len(PLANS):
            return None
        budget = settings.minutes * 60
        if len(self.times) < 10 or now.seconds < PLANS[now.plans] * budget:
            return None
        now.plans = sum(now.seconds >= share * budget for share in PLANS)
        left = (budget - now.seconds) / statistics.median(self.times[-TIMED:])
        return int(self.ranks.share([now.step + max(left, 1.0)])[0])

    def _evaluation_due(self, since: float) -> bool:
        now, settings = self.progress, self.settings
        if settings.evaluate_minutes is not None:
            return since >= settings.evaluate_minutes * 60
        if settings.evaluate_steps is not None:
            return now.step % settings.evaluate_steps == 0
        if now.steps is None:
            return False
        return now.step % max(now.steps // EVALUATIONS, 1) == 0

    # One update

    def _update(self) -> tuple[float, float, float]:
        now, settings = self.progress, self.settings
        self.network.train()
        self.optimiser.zero_grad(set_to_none=True)
        last = None if now.steps is None else now.steps - 1
        batches = [batch.to(self.device) for batch in self.ahead.take(now.step, last)]
        count = self._global(sum(batch.count for batch in batches))
        total = 0.0
        carried: list[Any] = []
        for index, (batch, (first, _)) in enumerate(zip(batches, self._shares(), strict=True)):
            torch.manual_seed(derive(self.seed, "dropout", now.step, first))
            before = None if batch.fresh or not self.carried else self.carried[index]
            with self._precision():
                loss, after = self.task.loss(self.network, batch, before, settings.label_smoothing)
            (loss / count).backward()
            total += loss.item()
            if getattr(getattr(self.network, "backbone", None), "carries", False):
                carried.append(states.detach(after))
        self.carried = carried
        mean = self._global(total) / count
        norm = self._reduce_gradients()
        if not (math.isfinite(mean) and math.isfinite(norm)):
            raise self._diverged(mean)
        self._clip(norm)
        share = share_of_peak(now.step, now.steps, settings.schedule)
        for group in self.optimiser.param_groups:
            group["lr"] = self.rate * share * group["share"]
        self.optimiser.step()
        if self.average:
            with torch.no_grad():
                for name, tensor in weights(self.network).items():
                    self.average[name].lerp_(tensor.to(self.average[name].dtype), 1 - settings.ema)
        now.step += 1
        now.tokens += int(count)
        return mean, self.rate * share, norm

    def _batches(self, step: int) -> list[Batch]:
        """What this process learns from in a step."""
        return [self.task.batch(step, first, last, self.progress.rows) for first, last in self._shares()]

    def _shares(self) -> list[tuple[int, int]]:
        """Where its batches begin and end among the rows of a step."""
        own = self.progress.rows // self.ranks.world
        start, end = self.ranks.rank * own, (self.ranks.rank + 1) * own
        return [(first, min(first + self.settings.batch, end)) for first in range(start, end, self.settings.batch)]

    def _global(self, value: float) -> float:
        if self.ranks.world == 1:
            return value
        return float(self.ranks.sum(torch.tensor([value], dtype=torch.float64, device=self.device)))

    def _reduce_gradients(self) -> float:
        """Adds up the gradients of all ranks, and gives the norm of the whole."""
        parameters = [p for p in self.network.parameters() if p.grad is not None]
        gradients = [p.grad for p in parameters if p.grad is not None]
        if self.ranks.world > 1:
            flat = self.ranks.sum(torch.cat([gradient.flatten() for gradient in gradients]))
            for gradient, part in zip(gradients, flat.split([g.numel() for g in gradients]), strict=True):
                gradient.copy_(part.view_as(gradient))
        return float(nn.utils.get_total_norm(gradients))

    def _clip(self, norm: float) -> None:
        """g ← min(1, θ/‖g‖) g."""
        if self.settings.clip is not None and norm > self.settings.clip:
            nn.utils.clip_grads_with_norm_(self.network.parameters(), self.settings.clip, torch.tensor(norm))

    def _precision(self) -> contextlib.AbstractContextManager[Any]:
        wanted = self.settings.precision
        if wanted == "auto":
            wanted = "bfloat16" if self.device.type == "cuda" and torch.cuda.is_bf16_supported() else "float32"
        return torch.autocast(self.device.type, torch.bfloat16, enabled=wanted == "bfloat16")

    def _diverged(self, loss: float) -> SeriatimError:
        named = list(self.network.named_parameters())
        values = [name for name, p in named if not p.isfinite().all()]
        gradients = [name for name, p in named if p.grad is not None and not p.grad.isfinite().all()]
        where = f"the weights of {values[0]}" if values else f"the gradient of {gradients[0]}" if gradients else "none"
        return SeriatimError(
            "train.non-finite",
            f"the loss became {loss} at step {self.progress.step + 1}; first not finite: {where}",
            "lower train.optimiser.rate, or clip harder (train.clip); checkpoints before this step are intact",
            exit_code=1,
        )

    # Evaluating and saving

    def _evaluate(self) -> Iterator[Event]:
        now = self.progress
        with self._averaged():
            measures: dict[str, float] = {}
            sample = ""
            if self.ranks.first:
                self.network.eval()
                measures = self.task.evaluate(self.network, "valid", self.settings.evaluate_limit)
                sample = self.task.sample(self.network, now.step)
            value, loss = self.ranks.share([measures.get(name, 0.0) for name in (self.task.objective, "loss")])
            known = None if now.best is None or now.best_loss is None else (now.best, now.best_loss)
            improved = known is None or (value, loss) < known
            if improved:
                now.best, now.best_loss, now.best_step, now.worse = value, loss, now.step, 0
                if self.ranks.first:
                    self.keep_best(weights(self.network))
            else:
                now.worse += 1
        now.evaluated = now.step
        yield Evaluated(now.step, now.seconds, measures, improved, now.tokens, sample)
        yield self._save()

    @contextlib.contextmanager
    def _averaged(self) -> Iterator[None]:
        """Within the block the network has the averaged weights, where there are any."""
        if not self.average:
            yield
            return
        own = {name: tensor.detach().clone() for name, tensor in weights(self.network).items()}
        load_weights(self.network, self.average)
        try:
            yield
        finally:
            load_weights(self.network, own)

    def _save(self) -> Event:
        now = self.progress
        tensors = {"weights": weights(self.network), "optimiser": optimiser_tensors(self.optimiser, self.network)}
        if self.average:
            tensors["average"] = self.average
        now.carried = None
        if self.carried:
            parts, now.carried = states.flatten(states.concat(self.carried))
            tensors["carried"] = {str(index): self.ranks.gather(part) for index, part in enumerate(parts)}
        if self.ranks.first:
            before = self.checkpoints.steps()
            last = before[max(len(before) + 1 - self.settings.keep, 0) :]
            self.checkpoints.save(now.step, Checkpoint(tensors, dict(vars(now))), keep={now.best_step, *last})
        self.ranks.wait()
        return Saved(now.step, now.seconds, f"checkpoints/{now.step}")
