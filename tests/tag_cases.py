"""A small language of tagged sentences, and taggers of it with random weights."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import torch

from seriatim.core import registry
from seriatim.core.config import validate
from seriatim.core.errors import Diagnostics
from seriatim.data.tokenizers import Tokenizer
from seriatim.tasks import reading
from seriatim.tasks.base import DataSettings, Splits, TaskConfig
from seriatim.tasks.tag.processor import TagEncoded
from seriatim.tasks.tag.task import TagPredictor, TagTask

SIZES: dict[str, dict[str, Any]] = {
    "bert": {"width": 8, "heads": 2, "layers": 1},
    "gpt": {"width": 8, "heads": 2, "layers": 1},
    "tcn": {"width": 6, "levels": 2, "kernel": 2},
    "mlp": {"width": 6, "window": 3, "layers": 2},
}
MODELS = ["lstm", "gru", "rnn", "tcn", "mlp", "gpt"]


def make_conll(count: int, seed: int) -> str:
    """Returns sentences of a small language: names are entities of one or two words, the rest is known by its form."""
    draw = random.Random(seed)
    sentences = []
    for _ in range(count):
        words: list[tuple[str, str]] = []
        for _ in range(draw.randint(1, 6)):
            kind = draw.choice(["name", "verb", "number", "the"])
            if kind == "name":
                words.append((draw.choice(["Mary", "John", "Oslo"]), "B-name"))
                if draw.random() < 0.5:
                    words.append((draw.choice(["Smith", "Bay"]), "I-name"))
            else:
                verb = draw.choice(["go", "see", "run"]) + "ing"
                words.append(({"verb": verb, "number": str(draw.randint(0, 99)), "the": "the"}[kind], "O"))
        sentences.append("".join(f"{word}\t{tag}\n" for word, tag in words))
    return "\n".join(sentences)


def write_conll(folder: Path) -> Path:
    """Writes a file for each split; returns the folder."""
    for name, count, seed in (("train", 120, 1), ("validation", 30, 2), ("test", 30, 3)):
        (folder / f"{name}.conll").write_text(make_conll(count, seed), encoding="utf-8")
    return folder


def configure(source: str | Path, architecture: str = "lstm", **sections: Any) -> TaskConfig:
    """Returns the configuration of a tiny model; a folder has a file per split."""
    folder = Path(source)
    files: dict[str, Any] = {"source": str(source)}
    if folder.is_dir():
        files = {"source": str(folder / "train.conll")}
        files |= {name: str(folder / f"{name}.conll") for name in ("validation", "test")}
    settings_type = registry.models.load(architecture).Settings
    values = {
        "data": {**files, **sections.get("data", {})},
        "model": {"name": architecture, **sections.get("model", {})},
    }
    defaults = TagTask.model_defaults(values) | {"width": 8} | SIZES.get(architecture, {})
    fields = settings_type.model_fields
    return TaskConfig(
        task=validate(TagTask.settings_type, {"name": "tag", **sections.get("task", {})}),
        data=validate(DataSettings, values["data"]),
        model=validate(settings_type, {k: v for k, v in defaults.items() if k in fields} | values["model"]),
    )


def prepare(
    source: str | Path,
    architecture: str = "lstm",
    notes: list[str] | None = None,
    tokenizer: Tokenizer | None = None,
    **sections: Any,
) -> tuple[TagTask, Splits[TagEncoded], TagPredictor]:
    """Returns the task, its data and the predictor of a network with random weights in double precision."""
    diagnostics = Diagnostics(None if notes is None else notes.append)
    pretrained = {} if tokenizer is None else {"tokenizer": tokenizer}
    config = configure(source, architecture, **sections)
    task, splits = reading.prepare(TagTask, config, pretrained=pretrained, diagnostics=diagnostics)
    network = task.build(splits.train).double()
    for parameter in network.parameters():
        parameter.data += 0.1 * torch.randn_like(parameter)
    predictor = task.predictor(network)
    assert isinstance(predictor, TagPredictor)
    return task, splits, predictor
