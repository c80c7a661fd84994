"""Parameter budgets, floating-point operations and memory."""

from __future__ import annotations

import mmap
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from helpers import settings_class, settings_of
from seriatim.core.errors import SeriatimError
from seriatim.nn.layers import readable_equations
from seriatim.nn.network import count_parameters, token_network
from seriatim.tasks import load, reading
from seriatim.tasks.base import DataSettings, TaskConfig
from seriatim.tasks.language.spec import LanguageSettings
from seriatim.tasks.language.task import LanguageTask
from seriatim.training.cost import count_flops, parameter_count, peak_memory, reset_peak_memory, solve_width
from seriatim.training.objective import TaskObjective
from task_helpers import make_config

BACKBONES = ["mlp", "rnn", "lstm", "gru", "tcn", "gpt"]


@pytest.mark.parametrize("budget", [50_000, 1_000_000, 5_000_000])
@pytest.mark.parametrize("vocab_size", [67, 8_192])
@pytest.mark.parametrize("name", BACKBONES)
def test_a_budget_is_met_within_two_percent(name: str, vocab_size: int, budget: int) -> None:
    def build(candidate: Any) -> Any:
        return token_network(candidate, vocab_size, 128)

    solved = solve_width(settings_class(name)(name=name), budget, build)
    size = parameter_count(solved, build)
    assert size <= budget
    if vocab_size == 67 or budget > 50_000:
        assert size >= 0.98 * budget, f"{size:,} of {budget:,}"
    if budget == 50_000:
        assert count_parameters(build(solved)) == size


def test_a_budget_that_cannot_be_met() -> None:
    with pytest.raises(SeriatimError) as caught:
        solve_width(settings_of(("gpt", {})), 10_000, lambda candidate: token_network(candidate, 50_000, 12))
    assert caught.value.code == "budget.too-small"


@pytest.mark.parametrize("name", BACKBONES)
def test_operations_are_about_six_for_each_parameter_and_token(name: str) -> None:
    """Forward 2, backward 4, for every weight that is multiplied; attention comes on top."""
    config = TaskConfig(
        task=LanguageSettings(context_length=12, tokenizer={"kind": "char"}),
        data=DataSettings(source="data"),
        model=settings_class(name)(name=name, tie=False),
    )
    task, splits = reading.prepare(LanguageTask, config, ["the old cat saw the new dog. " * 30])
    network = task.build(splits.train)
    multiplied = [
        p for n, p in network.named_parameters() if p.dim() > 1 and n != "input.weight" and "positions" not in n
    ]
    least = 6 * sum(p.numel() for p in multiplied) * 3 * task.settings.context_length
    assert 0.98 * least <= count_flops(TaskObjective.of(task, splits), network, 3, torch.device("cpu")) <= 1.15 * least


@pytest.mark.parametrize("case", [("classify", "gru"), ("classify", "gpt"), ("translate", "transformer")])
def test_operations_of_ragged_sequences_are_those_of_a_mean_batch(case: tuple[str, str]) -> None:
    """Whatever lengths the first batch of a seed has: the number of steps must not depend on them."""
    name, model = case
    sized = {"name": model, "width": 64}
    draw = np.random.default_rng(0)
    texts = [" ".join(draw.choice(["old", "cat", "saw", "the", "dog"], size)) for size in draw.geometric(0.08, 300)]
    other = {"label": ["a", "b"] * 150} if name == "classify" else {"target": [text.upper() for text in texts]}
    frame = pd.DataFrame({"text" if name == "classify" else "source": texts, **other})
    config, batch_size, estimates = make_config(name, frame, sized), 8, []
    for seed in range(5):
        seeded = config.model_copy(update={"seed": seed})
        task, splits = reading.prepare(load(name), seeded, frame)
        network, objective = task.build(splits.train), TaskObjective.of(task, splits)
        estimates.append(count_flops(objective, network, batch_size, torch.device("cpu")))
    counts = []
    for step in range(objective.steps_per_epoch(batch_size)):
        batch = objective.batch(step, 0, batch_size, batch_size)
        with readable_equations(), FlopCounterMode(display=False) as counter:
            task.loss(task.forward(network.train(), batch), batch).backward()
        counts.append(counter.get_total_flops())
    assert max(counts) > 2 * min(counts) or name == "translate", "its batches have equal numbers of tokens"
    assert estimates == pytest.approx([np.mean(counts)] * 5, rel=0.05)


def test_peak_memory_is_measured() -> None:
    reset_peak_memory()
    before = peak_memory()
    block = np.frombuffer(mmap.mmap(-1, 64 << 20), dtype=np.uint8)  # pages that the process did not have before
    block[:] = 1
    assert peak_memory() >= before + block.size // 2
