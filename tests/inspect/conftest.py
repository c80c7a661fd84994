"""Models of every task for the tests of inspection: not trained, but with noise on their weights."""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from helpers import SENTENCE, questions_file, tagged_file
from seriatim.core.errors import Diagnostics
from seriatim.inspect.subject import Subject
from task_helpers import prepare_splits

HEADS = {"width": 8, "layers": 2, "heads": 2}
TWO = {"width": 8, "layers": 2}


def write_table(path: Path, rows: list[list[Any]]) -> str:
    with open(path, "w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows(rows)
    return str(path)


def texts(folder: Path) -> str:
    rows = [[" ".join(SENTENCE[n % 5 : n % 5 + 2 + n % 6]), "good" if n % 5 < 2 else "bad"] for n in range(60)]
    return write_table(folder / "texts.csv", [["text", "label"], *rows])


def several(folder: Path) -> str:
    rows = [[" ".join(SENTENCE[n % 5 : n % 5 + 4]), ("x", "y", "x|y")[n % 3]] for n in range(60)]
    return write_table(folder / "several.csv", [["text", "label"], *rows])


def two_texts(folder: Path) -> str:
    rows = [[" ".join(SENTENCE[n % 5 : n % 5 + 3]), SENTENCE[n % 7], "abc"[n % 3]] for n in range(60)]
    return write_table(folder / "two.csv", [["text1", "text2", "label"], *rows])


def valued(folder: Path) -> str:
    rows = [[" ".join(SENTENCE[n % 5 : n % 5 + 3]), n % 5] for n in range(60)]
    return write_table(folder / "valued.csv", [["text", "value"], *rows])


def numbers(folder: Path) -> str:
    random = np.random.default_rng(2)
    values = [random.normal(size=(2 + n % 6, 2)).round(3) for n in range(60)]
    lines = [json.dumps({"sequence": x.tolist(), "label": "up" if x.sum() > 0 else "down"}) for x in values]
    (folder / "numbers.jsonl").write_text("\n".join(lines), encoding="utf-8")
    return str(folder / "numbers.jsonl")


def series(folder: Path) -> str:
    rows = [[n, f"{math.sin(n / 4):.4f}"] for n in range(200)]
    return write_table(folder / "series.csv", [["time", "value"], *rows])


def book(folder: Path) -> str:
    lines = [" ".join(SENTENCE[n % 7 : n % 7 + 2 + n % 9]) for n in range(300)]
    (folder / "book.txt").write_text("\n".join(lines), encoding="utf-8")
    return str(folder / "book.txt")


def documents(folder: Path) -> str:
    parts = ["\n".join(" ".join(SENTENCE[n % 4 : n % 4 + 5]) + "." for _ in range(3)) for n in range(40)]
    (folder / "documents.txt").write_text("\n\n".join(parts), encoding="utf-8")
    return str(folder / "documents.txt")


def pairs(folder: Path) -> str:
    rows = [SENTENCE[n % 6 : n % 6 + 2 + n % 5] for n in range(60)]
    lines = ["\t".join([" ".join(row), " ".join(word[::-1] for word in row)]) for row in rows]
    (folder / "pairs.tsv").write_text("\n".join(lines), encoding="utf-8")
    return str(folder / "pairs.tsv")


def image_classes(folder: Path) -> str:
    random = np.random.default_rng(0)
    for number in range(40):
        path = folder / "classes" / ("bright" if number % 2 else "dark") / f"{number}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        noise = random.integers(0, 100, (12, 12), dtype=np.uint8)
        Image.fromarray(noise + np.uint8(100 * (number % 2))).save(path)
    return str(folder / "classes")


def captions(folder: Path) -> str:
    colors = {"red": (220, 30, 30), "green": (20, 160, 40), "blue": (30, 60, 220)}
    target = folder / "captions"
    target.mkdir(exist_ok=True)
    rows = []
    for number in range(30):
        color = list(colors)[number % 3]
        image = np.full((16, 16, 3), 230, np.uint8)
        image[5:11, number % 9 : number % 9 + 6] = colors[color]
        Image.fromarray(image).save(target / f"{number}.png")
        rows.append([f"{number}.png", f"a {color} square"])
    return write_table(target / "captions.csv", [["image", "caption"], *rows])


Model = tuple[str, Callable[[Path], str], dict[str, Any], dict[str, Any], dict[str, Any]]
WORDS = {"tokenizer": {"kind": "word"}}
SHORT = {"context_length": 24}
# name → task, data, model, settings of the task, settings of the data
MODELS: dict[str, Model] = {
    "classify": ("classify", texts, {"name": "bert", **HEADS}, {}, {}),
    "several": ("classify", several, {"name": "gru", **TWO}, {}, {"label_separator": "|"}),
    "two": ("classify", two_texts, {"name": "bert", **HEADS}, {}, {"columns": {"input": "text1,text2"}}),
    "two-gru": ("classify", two_texts, {"name": "gru", **TWO}, {}, {"columns": {"input": "text1,text2"}}),
    "numbers": ("classify", numbers, {"name": "gpt", **HEADS}, {}, {}),
    "regress": ("regress", valued, {"name": "lstm", **TWO}, {}, {}),
    "tag": ("tag", tagged_file, {"name": "lstm", "bidirectional": True, **TWO}, {"character_features": 4}, {}),
    "answer": ("answer", questions_file, {"name": "bert", **HEADS}, {}, {}),
    "forecast": ("forecast", series, {"name": "gpt", **HEADS}, {"context_length": 12, "horizon": 2}, {}),
    "pretrain": ("pretrain", documents, {"name": "bert", **HEADS}, SHORT, {}),
    "gpt": ("language", book, {"name": "gpt", **HEADS}, SHORT, {}),
    "plain": ("language", book, {"name": "gpt", **HEADS}, SHORT | {"line_start": False}, {}),
    "words": ("language", book, {"name": "gpt", **HEADS}, SHORT | WORDS, {}),
    "lstm": ("language", book, {"name": "lstm", "width": 12, "layers": 2}, SHORT, {}),
    "gru": ("language", book, {"name": "gru", "width": 12}, SHORT, {}),
    "rnn": ("language", book, {"name": "rnn", "width": 12}, SHORT, {}),
    "tcn": ("language", book, {"name": "tcn", "width": 12, "levels": 2}, SHORT, {}),
    "ngram": ("language", book, {"name": "ngram", "order": 3}, WORDS, {}),
    "letters": ("language", book, {"name": "ngram", "order": 2, "smoothing": "kneser-ney"}, {}, {}),
    "unsmoothed": ("language", book, {"name": "ngram", "order": 3, "smoothing": "none"}, WORDS, {}),
    "add-k": ("language", book, {"name": "ngram", "order": 3, "smoothing": "add-k"}, WORDS, {}),
    "transformer": ("translate", pairs, {"name": "transformer", **HEADS}, {}, {}),
    "bahdanau": ("translate", pairs, {"name": "bahdanau", **TWO}, {}, {}),
    "luong": ("translate", pairs, {"name": "gru", **TWO}, {}, {}),
    "seq2seq": ("translate", pairs, {"name": "seq2seq", **TWO}, {}, {}),
    "resnet": ("classify", image_classes, {"name": "resnet", "width": 2}, {}, {}),
    "vit": ("classify", image_classes, {"name": "vit", **HEADS}, {"pooling": "first"}, {}),
    "show_attend_tell": ("caption", captions, {"name": "show_attend_tell", "width": 8}, {}, {}),
    "show_tell": ("caption", captions, {"name": "show_tell", "width": 8}, {}, {}),
    "caption-transformer": ("caption", captions, {"name": "transformer", **HEADS}, {}, {}),
} | {
    f"classify-{name}": ("classify", texts, {"name": name, **more}, {}, {})
    for name, more in {
        "gpt": HEADS,
        "rnn": TWO,
        "lstm": TWO | {"bidirectional": True},
        "gru": TWO,
        "tcn": {"width": 8, "levels": 2},
        "mlp": TWO | {"window": 3},
    }.items()
}

MakeSubject = Callable[..., Subject]


@pytest.fixture(scope="session")
def model_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("inspected")


@pytest.fixture(scope="session")
def make_subject(model_folder: Path) -> MakeSubject:
    """Returns the subject of a model by its name in `MODELS`; its task has its data."""
    tasks: dict[str, Any] = {}

    def make(name: str, noise: float = 0.3) -> Subject:
        if name not in tasks:
            task_name, data, model, settings, data_settings = MODELS[name]
            tasks[name] = prepare_splits(task_name, data(model_folder), model, settings, **data_settings)
        task, splits = tasks[name]
        if task.config.model.gradient_free:
            predictor = task.predictor(task.fit(task.config.model, splits.train, Diagnostics()))
        else:
            network = task.build(splits.train)
            torch.manual_seed(3)
            with torch.no_grad():
                for parameter in network.parameters():
                    parameter += noise * torch.randn_like(parameter)
            predictor = task.predictor(network)
        return Subject(name, task.config.model, lambda: predictor, lambda: (task, splits))

    return make
