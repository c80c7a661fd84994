"""Schedules and warm-up as pure functions of the step; learning rates that fall with depth, as by hand."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import torch

from seriatim import tasks
from seriatim.runs.configure import configure
from seriatim.tasks import reading
from seriatim.training.checkpoint import Checkpoints
from seriatim.training.config import ScheduleSettings
from seriatim.training.loop import Loop
from seriatim.training.objective import TaskObjective
from seriatim.training.optimizer import SCHEDULES, layer_depths, lr_factor, timed_lr_factor

ROWS = [
    (f"a {word} film number {number}", ("good", "bad")[word == "dull"])
    for number in range(30)
    for word in ("fine", "dull")
]


@pytest.mark.parametrize("name", sorted(SCHEDULES))
def test_schedules_are_bounded(name: str) -> None:
    settings = ScheduleSettings(name=name, warmup=10)
    values = [lr_factor(step, 200, settings) for step in range(300)]
    assert all(0 < value <= 1 for value in values)
    if name != "one-cycle":  # it rises by itself
        assert values[:10] == pytest.approx([(step + 1) / 10 for step in range(10)])
    peak = values.index(max(values))
    assert values[: peak + 1] == sorted(values[: peak + 1]), "it rises once"
    assert values[peak:] == sorted(values[peak:], reverse=True), "and falls once"


def test_schedules_by_hand() -> None:
    def at(name: str, step: int, **changes: Any) -> float:
        return lr_factor(step, 110, ScheduleSettings(**{"name": name, "warmup": 10, "floor": 0.1} | changes))

    assert at("cosine", 10) == 1
    assert at("cosine", 60) == pytest.approx(0.55)
    assert at("cosine", 110) == pytest.approx(0.1)
    assert at("linear", 60) == pytest.approx(0.55)
    assert [at("wsd", step) for step in (10, 80, 95, 110)] == pytest.approx([1.0, 1.0, 0.55, 0.1])
    assert at("wsd", 60, decay=1.0) == at("linear", 60)
    assert at("step", 59, step_size=25, gamma=0.5) == 0.5
    assert at("step", 60, step_size=25, gamma=0.5) == 0.25
    assert at("one-cycle", 0) == pytest.approx(1 / 25)
    assert at("one-cycle", 33) == pytest.approx(1.0)
    assert at("constant", 109) == 1
    # Vaswani et al.: lr = d^−½ · min(s^−½, s · w^−1.5), steps counted from 1; its peak is at s = w
    peak = 10**-0.5
    for step in (0, 4, 9, 10, 40, 100):
        s = step + 1
        assert at("inverse-sqrt", step) == pytest.approx(min(s**-0.5, s * 10**-1.5) / peak)


def test_warm_up_as_a_share_of_all_steps() -> None:
    def at(step: int, total: int, **changes: Any) -> float:
        return lr_factor(step, total, ScheduleSettings(name="linear", floor=0.0, **changes))

    assert [at(step, 100, warmup=0.1) for step in (0, 4, 9, 10, 55)] == pytest.approx([0.1, 0.5, 1.0, 1.0, 0.5])
    assert at(20, 100, warmup=0.4) == pytest.approx(21 / 40), "a share may exceed a fifth"
    assert at(19, 100, warmup=40) == 1.0, "a number of steps is limited to a fifth"
    assert lr_factor(19, 40, ScheduleSettings(name="inverse-sqrt", warmup=0.25)) == pytest.approx((10 / 20) ** 0.5)
    dumped = ScheduleSettings(warmup=100).model_dump(), ScheduleSettings(warmup=2.0).model_dump()
    assert [repr(values["warmup"]) for values in dumped] == ["100", "2"]


@pytest.mark.parametrize("warmup", [0, 10, 100, 0.1])
@pytest.mark.parametrize("name", sorted(SCHEDULES))
def test_a_time_budget_at_an_even_pace_is_a_number_of_steps(name: str, warmup: float) -> None:
    settings = ScheduleSettings(name=name, warmup=warmup, step_size=30)
    for step in range(200):
        expected = lr_factor(step, 200, settings)
        if warmup == 0.1 and step < 20 and name != "one-cycle":
            expected = max(step / 20, 0.01)  # the share of the time at the start of the step
        if warmup == 100 and step < 40 and name != "one-cycle":
            expected = max(step / 40, (step + 1) / 100)  # a fifth of the time
        assert timed_lr_factor(step, step / 200, settings) == pytest.approx(expected, rel=1e-9), step


@pytest.mark.parametrize("warmup", [0, 10, 10_000, 0.1])
@pytest.mark.parametrize("slow", [range(20), range(20, 40), range(150, 1000)], ids=["start", "middle", "end"])
@pytest.mark.parametrize("name", sorted(SCHEDULES))
def test_a_time_budget_at_an_uneven_pace(name: str, slow: range, warmup: float) -> None:
    """However the pace changes, the learning rate rises once, falls once, and ends where the schedule ends."""
    settings = ScheduleSettings(name=name, warmup=warmup, step_size=30)
    times = [0.0]
    while times[-1] < 1:
        times.append(times[-1] + (0.01 if len(times) - 1 in slow else 0.001))
    values = [timed_lr_factor(step, progress, settings) for step, progress in enumerate(times[:-1])]
    assert all(0 < value <= 1 for value in values)
    peak = values.index(max(values))
    assert values[: peak + 1] == sorted(values[: peak + 1]), "it rises once"
    assert values[peak:] == pytest.approx(sorted(values[peak:], reverse=True), abs=1e-12), "and falls once"
    assert values[peak] > 0.99 or name == "inverse-sqrt"
    ends = {"linear": 0.1, "cosine": 0.1, "wsd": 0.1, "one-cycle": 1e-4, "constant": 1.0}
    if name in ends:
        assert values[-1] == pytest.approx(ends[name], abs=0.045)


@pytest.mark.parametrize("warmup", [-1, 1.5, "many", float("nan"), True])
def test_a_warm_up_that_is_none(warmup: Any) -> None:
    with pytest.raises(ValueError, match="a share of them below 1"):
        ScheduleSettings(warmup=warmup)


@pytest.mark.parametrize(("model", "name"), [("lstm", "adamw"), ("gpt", "sgd")])
def test_learning_rates_fall_with_depth_as_by_hand(tmp_path: Path, model: str, name: str) -> None:
    """Three updates equal those of an optimizer whose groups are written down here."""
    optimizer = {"name": name, "layer_decay": 0.5, "weight_decay": 0.3}
    train = {"steps": 6, "batch_size": 8, "schedule": {"name": "constant", "warmup": 0}, "clip": None}
    sizes = {"width": 8, "layers": 2, "dropout": 0.0} | ({"heads": 2} if model == "gpt" else {})
    config = configure("classify", "data", model, {"model": sizes, "train": train | {"optimizer": optimizer}})
    task, splits = reading.prepare(tasks.load("classify"), config.task_config(), ROWS)
    objective = TaskObjective.of(task, splits)
    loop = Loop(objective, task.build(splits.train), config.train, 1e-2, 0, Checkpoints(tmp_path))
    twin: Any = copy.deepcopy(loop.network)
    depths = layer_depths(twin)
    groups = [
        {
            "params": [parameter],
            "lr": 1e-2 * 0.5 ** depths[key].from_output,
            "weight_decay": 0.3 if parameter.dim() > 1 else 0.0,
        }
        for key, parameter in twin.named_parameters()
    ]
    by_hand: torch.optim.Optimizer = torch.optim.AdamW(groups, betas=(0.9, 0.99))
    if name == "sgd":
        by_hand = torch.optim.SGD(groups, momentum=0.9)
    for step in range(3):
        loop._update()
        batch = objective.batch(step, 0, 8, 8)
        by_hand.zero_grad()
        (task.loss(task.forward(twin, batch), batch) / batch.count).backward()
        by_hand.step()
    assert len(loop.optimizer.param_groups) <= 8
    for (key, parameter), other in zip(loop.network.named_parameters(), twin.parameters(), strict=True):
        assert torch.allclose(parameter, other, rtol=1e-5, atol=1e-7), key
