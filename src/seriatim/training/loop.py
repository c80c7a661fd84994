"""The training loop: a generator of events.

    for event in Loop(objective, network, settings, …).run(): …

An update is a pure function of the weights, the optimizer's state and the step, because batches and dropout come from
streams addressed by the step. So resuming is exact, and the number of interruptions, of processes and of accumulated
batches does not change the mathematics (the last two except for dropout masks, which each batch draws for itself):
losses are sums, and are divided once by the number of targets of the whole global batch.

What the learning rate, the evaluations and the end follow is the share of the training that has passed: of its steps,
or of its time if the budget is a number of minutes. The time after each step is recorded, so that steps that are
repeated after a crash are repeated exactly. Under a budget of minutes, an evaluation that would raise the share of
evaluations above `EVALUATION_SHARE` of the wall time is omitted, by the time that those before it took.
"""

from __future__ import annotations

import contextlib
import copy
import math
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, fields
from types import FrameType
from typing import Any, Generic, TypeVar

import torch
from torch import Tensor, nn

from ..core import state as states
from ..core.device import Ranks, derive
from ..core.errors import SeriatimError, did_you_mean
from ..core.metrics import get_metric
from ..kernels import load as load_kernels
from ..nn.network import load_weights, weights
from ..tasks.batching import Batch
from .checkpoint import Checkpoint, Checkpoints, StepTimes
from .config import DEFAULT_STEPS, MUON_LR, TrainSettings
from .cost import count_flops, count_targets
from .events import Evaluated, Event, Saved, Started, Stepped, Stopped
from .objective import Objective
from .optimizer import (
    freeze,
    load_optimizer,
    lr_factor,
    make_optimizer,
    optimizer_tensors,
    timed_lr_factor,
    update,
)

T = TypeVar("T")
DEFAULT_EVALUATIONS = 10  # during training
EVALUATION_SHARE = 0.15  # of the wall time of a training with a budget of minutes, at most
WARM_UP_PASSES = 2  # before the clock starts
CLOCKS: dict[str, Callable[[], float]] = {"wall": time.perf_counter, "cpu": time.process_time}
EXIT_CODES = {"SIGINT": 130, "SIGTERM": 143}


@dataclass
class Progress:
    """What a checkpoint stores besides tensors."""

    step: int = 0  # updates made
    tokens: int = 0
    seconds: float = 0.0
    cpu_seconds: float = 0.0  # of all processes
    batch_size: int = 0  # of the global batch: kept if the number of processes changes
    best: float | None = None
    best_loss: float | None = None  # of the best: decides between equal values of the monitored metric
    best_step: int = 0
    worse: int = 0  # evaluations since the best
    evaluated: int = -1  # step of the last evaluation
    evaluated_seconds: float = 0.0  # and the time of training then
    evaluation_seconds: float = 0.0  # of all evaluations so far
    last_evaluation: float = 0.0  # seconds of the last one
    carried: states.Structure = None  # the structure of the carried states


@dataclass
class Loop:
    """A training.

    Args:
        objective: What is minimized and monitored: the loss of a task, or a distillation.
        network: The network; it is trained in place.
        settings: The settings of the loop.
        lr: The peak learning rate.
        muon_lr: The peak learning rate of the matrices that Muon updates.
        seed: The seed of dropout.
        checkpoints: Where checkpoints are stored.
        device: The device to compute on.
        ranks: This process among its peers.
        save_best: Called with the weights of each evaluation that is the best so far.
        stop_signal: Returns the name of a signal to stop at, or "".
        clock: Returns the time in seconds, from any start; rank 0's decides. By default that of the settings.
        pause: After how many seconds of training to evaluate and stop before the end, and the reason to give.
    """

    objective: Objective[Any, Any]
    network: nn.Module
    settings: TrainSettings
    lr: float
    seed: int
    checkpoints: Checkpoints
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))
    ranks: Ranks = field(default_factory=Ranks)
    save_best: Callable[[dict[str, Tensor]], None] = lambda weights: None
    stop_signal: Callable[[], str] = lambda: ""
    clock: Callable[[], float] | None = None
    muon_lr: float = MUON_LR
    pause: tuple[float, str] | None = None

    def __post_init__(self) -> None:
        self.network.to(self.device)
        self.monitor = self.objective.monitor if self.settings.monitor is None else self.settings.monitor
        evaluations = self.settings.evaluations
        self.evaluations = DEFAULT_EVALUATIONS if evaluations is None else evaluations
        self.carries_state = bool(getattr(getattr(self.network, "backbone", None), "carries_state", False))
        self.frozen = freeze(self.network, self.settings.freeze)
        self.optimizer = make_optimizer(self.network, self.settings.optimizer, self.lr, self.muon_lr)
        self.ema: dict[str, Tensor] = {}
        if self.settings.ema:
            self.ema = {name: tensor.detach().clone() for name, tensor in weights(self.network).items()}
        rows = self.settings.batch_size
        self.batch_size: int = self.objective.batch_size if rows is None else rows
        self.progress = Progress(batch_size=self.batch_size * self.settings.accumulate * self.ranks.world_size)
        self.step_flops: float | None = None  # of one update, counted once
        self.steps = self._count_steps()
        minutes = self.settings.minutes
        self.budget = minutes * 60 if minutes is not None and self.steps is None else None
        self.carried_states: list[states.State] = []
        self.prefetcher = Prefetcher(self._batches, self.objective.prefetch)
        self.times = StepTimes(self.checkpoints.folder)
        self.recorded: dict[int, float] = {}  # times of steps that were made before, after the checkpoint
        self.interrupted = -1  # step of a checkpoint without an evaluation, which is not kept

    def _count_steps(self) -> int | None:
        """Returns the number of updates to make; None: as many as fit into the minutes."""
        settings = self.settings
        if settings.epochs is not None:
            return math.ceil(settings.epochs * self.objective.steps_per_epoch(self.progress.batch_size))
        if settings.tokens is not None:  # batches are the same for all models, whatever their lengths
            return max(round(settings.tokens / max(count_targets(self.objective, self.progress.batch_size), 1)), 1)
        if settings.flops is not None:
            return max(round(settings.flops / max(self._count_flops(), 1.0)), 1)
        return DEFAULT_STEPS if settings.steps is None and settings.minutes is None else settings.steps

    def _count_flops(self) -> float:
        """Returns the floating-point operations of an update."""
        if self.step_flops is None:
            self.step_flops = count_flops(self.objective, self.network, self.progress.batch_size, self.device)
        return self.step_flops

    def resume(self, new_end: bool = False) -> None:
        """Continues from the last checkpoint; with `new_end`, the settings have another end than that training."""
        checkpoint = self.checkpoints.load()
        known = {item.name for item in fields(Progress)}  # other versions have others
        stored = {name: value for name, value in checkpoint.progress.items() if name in known}
        self.progress = now = Progress(**{"evaluated_seconds": stored["seconds"]} | stored)
        if self.progress.batch_size % self.ranks.world_size:
            raise SeriatimError(
                "train.ranks",
                f"a batch of {self.progress.batch_size} rows cannot be divided among {self.ranks.world_size} processes",
                "start a number of processes that divides it",
            )
        self.step_flops = None  # the batch may be another, if the number of processes is
        self.steps = self._count_steps()
        if now.evaluated != now.step:
            self.interrupted = now.step
        if new_end:
            now.worse = 0
        elif self.ranks.is_first:
            self.recorded = {step: seconds for step, seconds in self.times.load().items() if step > now.step}
        if self.ranks.is_first and now.best is not None:  # a process may have been killed before it wrote them
            best = self.checkpoints.load_evaluated(now.best_step)
            if best is not None:
                self.save_best(best)
        load_weights(self.network, checkpoint.tensors["weights"])
        load_optimizer(self.optimizer, self.network, checkpoint.tensors.get("optimizer", {}))
        self.ema = {name: tensor.to(self.device) for name, tensor in checkpoint.tensors.get("ema", {}).items()}
        if now.carried is not None:
            parts = checkpoint.tensors["carried"]
            share = now.batch_size // self.ranks.world_size
            own = slice(self.ranks.rank * share, (self.ranks.rank + 1) * share)
            tensors = [parts[str(index)][own].to(self.device) for index in range(len(parts))]
            state = states.rebuild(now.carried, tensors)
            self.carried_states = states.split(state, self.batch_size)

    # The run as a whole

    def run(self) -> Iterator[Event]:
        try:
            yield from self._run()
        finally:
            self.prefetcher.close()

    def _run(self) -> Iterator[Event]:
        now = self.progress
        if self.device.type == "cpu":
            load_kernels()
        flops = self._count_flops()
        parameters = sum(parameter.numel() for parameter in self.network.parameters())
        if self.settings.minutes is not None:
            self._warm_up()
        if self._is_timed and self.ranks.is_first:
            self.times.truncate(max(self.recorded, default=now.step))
        ranks, unit = self.ranks.world_size, self.objective.unit
        yield Started(now.step, now.seconds, self.steps, parameters, flops, ranks, unit, self.budget)
        while not (reason := self._signal()):
            reason = self._end()
            if 0 < now.step != now.evaluated and (reason or self._evaluation_due()):
                yield from self._evaluate()
            elif reason:
                break
            else:
                yield self._step()
        if now.evaluated != now.step:  # an evaluation that is due is made up for after resuming
            yield self._save()
        yield Stopped(now.step, now.seconds, reason, now.best_step, now.tokens, cpu_seconds=now.cpu_seconds)

    @property
    def _is_timed(self) -> bool:
        """Whether anything depends on the time that training takes."""
        return self.settings.minutes is not None or self.settings.evaluate_minutes is not None

    def _now(self) -> float:
        return (CLOCKS[self.settings.clock] if self.clock is None else self.clock)()

    def _warm_up(self) -> None:
        """Computes gradients of a copy of the network: what is done only once is not to count as training time.

        Memory is mapped, threads start and code is loaded on first use. The network and all random streams stay as they
        are.
        """
        first, last = self._shares()[0]
        batch = self.objective.batch(self.progress.step, first, last, self.progress.batch_size).to(self.device)
        twin = copy.deepcopy(self.network).train()
        with torch.random.fork_rng([self.device] if self.device.type == "cuda" else []):
            for _ in range(WARM_UP_PASSES):
                with self._precision():
                    output = self.objective.forward(twin, batch)
                    loss = self.objective.loss(output, batch, self.settings.label_smoothing)
                loss.backward()

    def _end(self) -> str:
        """Returns why the training is at its end, or ""."""
        now, minutes = self.progress, self.settings.minutes
        if self.steps is not None and now.step >= self.steps:
            return "finished"
        if minutes is not None and now.seconds >= minutes * 60:  # all of it is used, and at most one step more
            return "minutes"
        if self.settings.patience is not None and now.worse >= self.settings.patience:
            return "patience"
        if self.pause is not None and now.seconds >= self.pause[0]:
            return self.pause[1]
        return ""

    def _signal(self) -> str:
        """Returns the name of the signal that any of the processes received, or ""."""
        own = self.stop_signal()
        if self.ranks.world_size == 1:
            return own
        names = tuple(EXIT_CODES)
        flags = self.ranks.sum(torch.tensor([float(own == name) for name in names], device=self.device)).tolist()
        return next((name for name, flag in zip(names, flags, strict=True) if flag), "")

    def _evaluation_due(self) -> bool:
        now, settings = self.progress, self.settings
        if settings.evaluate_minutes is not None:
            return now.seconds - now.evaluated_seconds >= settings.evaluate_minutes * 60
        if settings.evaluate_steps is not None:
            return now.step % settings.evaluate_steps == 0
        if self.steps is not None:
            return now.step % max(self.steps // self.evaluations, 1) == 0
        assert self.budget is not None
        number, made = (int(self.evaluations * s / self.budget) for s in (now.seconds, now.evaluated_seconds))
        evaluating = now.evaluation_seconds + now.last_evaluation  # if the next one takes as long as the last
        return number > made and evaluating <= EVALUATION_SHARE * (now.seconds + evaluating)

    # One update

    def _step(self) -> Event:
        """Makes one update, and counts the time that it took."""
        now = self.progress
        began, cpu_began = self._now(), time.process_time()
        loss, lr, grad_norm = self._update()
        elapsed = self._now() - began
        now.cpu_seconds += self._global_sum(time.process_time() - cpu_began)
        recorded = self.recorded.pop(now.step, None)
        now.seconds = self.ranks.broadcast([now.seconds + elapsed if recorded is None else recorded])[0]
        if self._is_timed and self.ranks.is_first and recorded is None:
            self.times.append(now.step, now.seconds)
        return Stepped(now.step, now.seconds, loss, lr, grad_norm, now.tokens)

    def _update(self) -> tuple[float, float, float]:
        """Makes one update, and returns the mean loss, the learning rate and the norm of the gradient."""
        now, settings = self.progress, self.settings
        self.network.train()
        self.optimizer.zero_grad(set_to_none=True)
        last = None if self.steps is None else self.steps - 1
        batches = [batch.to(self.device) for batch in self.prefetcher.take(now.step, last)]
        count = self._global_sum(sum(batch.count for batch in batches))
        total = 0.0
        carried: list[states.State] = []
        for index, (batch, (first, _)) in enumerate(zip(batches, self._shares(), strict=True)):
            torch.manual_seed(derive(self.seed, "dropout", now.step, first))
            before = None if batch.fresh or not self.carried_states else self.carried_states[index]
            with self._precision():
                output = self.objective.forward(self.network, batch, before)
                loss = self.objective.loss(output, batch, settings.label_smoothing)
            (loss / count).backward()
            total += loss.item()
            if self.carries_state and output.state is not None:
                carried.append(states.detach(output.state))
        self.carried_states = carried
        mean = self._global_sum(total) / count
        grad_norm = self._reduce_gradients()
        if not (math.isfinite(mean) and math.isfinite(grad_norm)):
            raise self._divergence(mean)
        if settings.clip is not None and grad_norm > settings.clip:  # g ← min(1, θ/‖g‖) g
            nn.utils.clip_grads_with_norm_(self.network.parameters(), settings.clip, torch.tensor(grad_norm))
        if self.budget is not None:
            lr = self.lr * timed_lr_factor(now.step, now.seconds / self.budget, settings.schedule)
        else:
            assert self.steps is not None
            lr = self.lr * lr_factor(now.step, self.steps, settings.schedule)
        update(self.optimizer, lr)
        if self.ema:
            with torch.no_grad():
                for name, tensor in weights(self.network).items():
                    if tensor.is_floating_point():
                        self.ema[name].lerp_(tensor.to(self.ema[name].dtype), 1 - settings.ema)
                    else:  # a count, such as that of the batches of nn.BatchNorm1d
                        self.ema[name].copy_(tensor)
        now.step += 1
        now.tokens += int(count)
        return mean, lr, grad_norm

    def _batches(self, step: int) -> list[Batch]:
        """Returns the batches of this process in a step."""
        return [self.objective.batch(step, first, last, self.progress.batch_size) for first, last in self._shares()]

    def _shares(self) -> list[tuple[int, int]]:
        """Returns the first row and the end of each batch of this process, within the global batch."""
        own, size = self.progress.batch_size // self.ranks.world_size, self.batch_size
        start, end = self.ranks.rank * own, (self.ranks.rank + 1) * own
        return [(first, min(first + size, end)) for first in range(start, end, size)]

    def _global_sum(self, value: float) -> float:
        if self.ranks.world_size == 1:
            return value
        return float(self.ranks.sum(torch.tensor([value], dtype=torch.float64, device=self.device)))

    def _reduce_gradients(self) -> float:
        """Sums the gradients of all ranks, and returns the norm of the whole."""
        gradients = [p.grad for p in self.network.parameters() if p.grad is not None]
        if self.ranks.world_size > 1:
            flat = self.ranks.sum(torch.cat([gradient.flatten() for gradient in gradients]))
            for gradient, part in zip(gradients, flat.split([g.numel() for g in gradients]), strict=True):
                gradient.copy_(part.view_as(gradient))
        return float(nn.utils.get_total_norm(gradients))

    def _precision(self) -> contextlib.AbstractContextManager[object]:
        precision = self.settings.precision
        if precision == "auto":
            precision = "bfloat16" if self.device.type == "cuda" and torch.cuda.is_bf16_supported() else "float32"
        return torch.autocast(self.device.type, torch.bfloat16, enabled=precision == "bfloat16")

    def _divergence(self, loss: float) -> SeriatimError:
        named = list(self.network.named_parameters())
        values = [name for name, p in named if not p.isfinite().all()]
        gradients = [name for name, p in named if p.grad is not None and not p.grad.isfinite().all()]
        first = f"the weights of {values[0]}" if values else f"the gradient of {gradients[0]}" if gradients else "none"
        return SeriatimError(
            "train.non-finite",
            f"the loss became {loss} at step {self.progress.step + 1}; first not finite: {first}",
            "lower train.optimizer.lr (--lr) or train.clip; checkpoints before this step are intact",
            exit_code=1,
        )

    # Evaluation and checkpoints

    def _evaluate(self) -> Iterator[Event]:
        now, began = self.progress, self._now()
        with self._averaged_weights():
            metrics: dict[str, float] = {}
            sample = ""
            if self.ranks.is_first:
                self.network.eval()
                evaluation = self.objective.evaluate(self.network)
                metrics = dict(evaluation.metrics)
                check_monitor(self.monitor, metrics)
                sample = self.objective.sample(evaluation)
            values = [metrics.get(name, 0.0) for name in (self.monitor, "loss")]
            value, loss, elapsed = self.ranks.broadcast([*values, self._now() - began])
            sign = -1 if get_metric(self.monitor).direction == "higher" else 1
            best = None if now.best is None or now.best_loss is None else (sign * now.best, now.best_loss)
            improved = best is None or math.isnan(best[0]) or (sign * value, loss) < best
            if improved:
                now.best, now.best_loss, now.best_step, now.worse = value, loss, now.step, 0
            else:
                now.worse += 1
        now.evaluated, now.evaluated_seconds = now.step, now.seconds
        now.evaluation_seconds, now.last_evaluation = now.evaluation_seconds + elapsed, elapsed
        yield Evaluated(now.step, now.seconds, metrics, improved, now.tokens, sample)
        saved = self._save()
        if improved and self.ranks.is_first:  # after the checkpoint: weights without one could not be resumed
            self.save_best(self.ema or weights(self.network))
        yield saved

    @contextlib.contextmanager
    def _averaged_weights(self) -> Iterator[None]:
        """Within the block the network has the averaged weights, if there are any."""
        if not self.ema:
            yield
            return
        own = {name: tensor.detach().clone() for name, tensor in weights(self.network).items()}
        load_weights(self.network, self.ema)
        try:
            yield
        finally:
            load_weights(self.network, own)

    def _save(self) -> Event:
        now = self.progress
        tensors = {"weights": weights(self.network), "optimizer": optimizer_tensors(self.optimizer, self.network)}
        if self.ema:
            tensors["ema"] = self.ema
        now.carried = None
        if self.carried_states:
            parts, now.carried = states.flatten(states.concat(self.carried_states))
            tensors["carried"] = {str(index): self.ranks.gather(part) for index, part in enumerate(parts)}
        if self.ranks.is_first:
            before = [step for step in self.checkpoints.steps() if step not in (now.step, self.interrupted)]
            last = before[max(len(before) + 1 - self.settings.keep_checkpoints, 0) :]
            self.checkpoints.save(now.step, Checkpoint(tensors, dict(vars(now))), keep={now.best_step, *last})
            self.interrupted = -1  # it is removed, or has been replaced by that of an evaluation
        self.ranks.barrier()
        return Saved(now.step, now.seconds, f"checkpoints/{now.step}")


def check_monitor(name: str, metrics: Mapping[str, float]) -> None:
    """Raises SeriatimError if weights cannot be selected by a metric of this name."""
    candidates = [own for own in metrics if get_metric(own).direction != "neither"]
    if name not in candidates:
        problem = "of no value is better than another" if name in metrics else "is not evaluated by this task"
        cause = f'train.monitor: the metric "{name}" {problem}'
        raise SeriatimError("train.monitor", cause, did_you_mean(name, candidates))


def fit_events(
    objective: Objective[Any, Any], fit: Callable[[], nn.Module], save: Callable[[nn.Module], None], elements: int
) -> Iterator[Event]:
    """Fits a gradient-free model, and yields the events of a training of one step.

    Args:
        objective: Evaluates it.
        fit: Returns the model.
        save: Stores it.
        elements: The size of the training split, in the unit of the objective.
    """
    yield Started(0, 0.0, 1, 0, None, 1, objective.unit)
    began, cpu_began = time.perf_counter(), time.process_time()
    network = fit()
    seconds, cpu_seconds = time.perf_counter() - began, time.process_time() - cpu_began
    save(network)
    evaluation = objective.evaluate(network)
    yield Evaluated(1, seconds, dict(evaluation.metrics), True, elements, objective.sample(evaluation))
    yield Stopped(1, seconds, "finished", 1, elements, cpu_seconds=cpu_seconds)


@contextlib.contextmanager
def stop_signals() -> Iterator[Callable[[], str]]:
    """Yields a function that returns the name of the signal received, or "".

    The first Ctrl-C or SIGTERM lets the loop save and stop; a second one interrupts at once.
    """
    received: list[str] = []
    if threading.current_thread() is not threading.main_thread():
        yield lambda: ""
        return

    def receive(number: int, frame: FrameType | None) -> None:
        if received:
            raise KeyboardInterrupt
        received.append(signal.Signals(number).name)

    before = {number: signal.signal(number, receive) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield lambda: received[0] if received else ""
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


class Prefetcher(Generic[T]):
    """Makes the batches of a step, one step ahead in a thread if `enabled`.

    Args:
        make: Returns the batches of a step.
        enabled: Whether to use a thread; otherwise batches are made when they are taken.
    """

    def __init__(self, make: Callable[[int], T], enabled: bool) -> None:
        self.make = make
        self.enabled = enabled
        self.waited = 0.0  # seconds that steps waited for their batches
        self._pool: ThreadPoolExecutor | None = None
        self._next: tuple[int, Future[T]] | None = None

    def take(self, step: int, last: int | None = None) -> T:
        """Returns the batches of a step, and prefetches the next step's unless this is the `last`.

        Errors of the thread are raised here.
        """
        began = time.perf_counter()
        prefetched, self._next = self._next, None
        batches = prefetched[1].result() if prefetched is not None and prefetched[0] == step else self.make(step)
        self.waited += time.perf_counter() - began
        if self.enabled and step != last:
            if self._pool is None:
                self._pool = ThreadPoolExecutor(1, "batches")
            self._next = step + 1, self._pool.submit(self.make, step + 1)
        return batches

    def close(self) -> None:
        """Ends the thread, after the batch that it is making."""
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)
        self._pool, self._next = None, None
