"""The tables: what was published, and the settings with which it is tried here.

To add a row is to add an entry below. The number of parameters is the published one; the settings are ours, found by
short trials on one computer with two cores, and each run keeps them in its config.yaml.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Model:
    """Settings on top of the row's, and the figure that was published for it, where one was."""

    settings: Mapping[str, Any]
    published: float | None = None


@dataclass(frozen=True)
class Row:
    name: str
    title: str
    task: str
    data: str | None
    measure: str
    params: str | None = None
    models: Mapping[str, Model] = field(default_factory=dict)
    settings: Mapping[str, Any] = field(default_factory=dict)
    split: str = "test"
    best: tuple[float | None, float | None] = (None, None)  # published: the best recurrent network, the TCN
    remark: str = ""
    counted: str = ""  # what the length of a source is counted in, where it is no words
    learning: bool = False  # what is to be seen is the loss on the training part; for all rows of a table alike


@dataclass(frozen=True)
class Table:
    title: str
    source: str
    rows: Mapping[str, Row]
    remarks: tuple[str, ...] = ()

    @property
    def published(self) -> bool:
        """Whether there are figures to compare with, not only a picture."""
        return any(model.published is not None for row in self.rows.values() for model in row.models.values())


def _model(
    name: str, rate: float | None, steps: int, published: float | None = None, batch: int | None = None, **settings: Any
) -> Model:
    """`rate` is None where the model's own is taken."""
    train = {"optimiser": {"rate": rate}, "steps": steps, **({} if batch is None else {"batch": batch})}
    return Model({"model": {"name": name, **settings}, "train": train}, published)


def _rows(*rows: Row) -> dict[str, Row]:
    return {row.name: row for row in rows}


_FORECASTING = Table(
    "Forecasting the next value of a series",
    "Géron, Hands-on machine learning (2019), chapter 15: 10,000 series of two sine waves and noise, 50 steps each",
    _rows(
        Row(
            "sine",
            "the value behind 50 steps, mean squared error",
            "forecast",
            "sine",
            "mse",
            models={
                "dense": _model("mlp", 4e-3, 3000, 0.0040, window=50, width=64),
                "one unit": _model("rnn", 3e-2, 3000, 0.0110, width=1),
                "deep rnn": _model("rnn", 1e-2, 3000, 0.0028, width=20, layers=2),
                "lstm": _model("lstm", 1e-2, 3000, width=32, layers=2),
                "gru": _model("gru", 1e-2, 3000, width=32, layers=2),
                "tcn": _model("tcn", 4e-3, 3000, width=32, levels=4),
            },
            settings={
                "task": {"length": 50, "horizon": 1, "anchor": "none"},
                "train": {"batch": 64, "optimiser": {"weight_decay": 0.0}},
            },
        ),
    ),
    (
        "The published runs stopped after 20 epochs, before they had learnt all they could; the noise alone has a "
        "variance of 0.00083, which no model can get below.",
    ),
)


def _absent(name: str, title: str, measure: str, params: str, recurrent: float, tcn: float) -> Row:
    remark = "its text is not in the catalogue; `seriatim compare language` runs it on a copy of your own"
    return Row(name, title, "language", None, measure, params, best=(recurrent, tcn), remark=remark)


_PLAIN = {"train": {"optimiser": {"weight_decay": 0.0}, "schedule": {"floor": 0.0}}}


def _pixels(name: str, title: str, data: str, published: tuple[float, float, float, float]) -> Row:
    """Pictures of 784 pixels, read one by one."""
    rnn, lstm, gru, tcn = published
    models = {
        "rnn": _model("rnn", 1e-3, 600, rnn),
        "lstm": _model("lstm", 4e-3, 800, lstm, memory=784),
        "gru": _model("gru", 4e-3, 800, gru, memory=784),
        "tcn": _model("tcn", 4e-3, 8600, tcn, levels=7, kernel=5),
    }
    settings = {"task": {"pooling": "last"}, "train": {"batch": 64, **_PLAIN["train"]}}
    return Row(name, title, "classify", data, "accuracy", "70k", models, settings, best=(gru, tcn))


_BAI = Table(
    "Generic convolutional and recurrent networks for sequence modelling",
    "Bai, Kolter and Koltun, An empirical evaluation (2018), tables 1 and 2",
    _rows(
        Row(
            "adding",
            "adding problem, T=600, mean squared error",
            "regress",
            "adding:600",
            "mse",
            "70k",
            models={
                "rnn": _model("rnn", 1e-3, 600, 0.177),
                "lstm": _model("lstm", 4e-3, 1500, 0.164, memory=600),
                "gru": _model("gru", 4e-3, 4000, 5.3e-5, memory=600),
                "tcn": _model("tcn", 4e-3, 10_000, 5.8e-5, levels=7, kernel=5),
            },
            settings={
                "task": {"pooling": "last"},
                "data": {"scale": "none"},
                "train": {"batch": 32, **_PLAIN["train"]},
            },
            best=(5.3e-5, 5.8e-5),
        ),
        Row(
            "copy",
            "copy memory, T=1000, cross-entropy",
            "tag",
            "copy:1000",
            "loss",
            "16k",
            models={
                "rnn": _model("rnn", 1e-3, 500, 0.0202),
                "lstm": _model("lstm", 4e-3, 500, 0.0204),
                "gru": _model("gru", 4e-3, 500, 0.0197),
                "tcn": _model("tcn", 2e-3, 1500, 3.5e-5, levels=7, kernel=8),
            },
            settings={"train": {"batch": 32, **_PLAIN["train"]}},
            best=(0.0197, 3.5e-5),
        ),
        _pixels("smnist", "sequential MNIST, accuracy", "mnist", (0.215, 0.872, 0.962, 0.990)),
        _pixels("pmnist", "permuted MNIST, accuracy", "pmnist", (0.253, 0.857, 0.873, 0.972)),
        Row(
            "jsb",
            "JSB chorales, NLL per frame",
            "music",
            "jsb-chorales",
            "nll",
            "300k",
            models={
                "rnn": _model("rnn", 1e-3, 2300, 8.91, batch=2, dropout=0.5),
                "lstm": _model("lstm", 6e-3, 2300, 8.45, batch=2, dropout=0.3),
                "gru": _model("gru", 4e-3, 1400, 8.43, batch=2, dropout=0.5),
                "tcn": _model("tcn", 4e-3, 2300, 8.10, levels=2, kernel=2, dropout=0.5),
            },
            settings={"train": {"batch": 4, "evaluate_steps": 100}},
            best=(8.43, 8.10),
        ),
        Row(
            "nottingham",
            "Nottingham, NLL per frame",
            "music",
            "nottingham",
            "nll",
            "1M",
            models={
                "rnn": _model("rnn", 1e-3, 1500, 4.05, dropout=0.3),
                "lstm": _model("lstm", 4e-3, 2100, 3.29, dropout=0.3),
                "gru": _model("gru", 4e-3, 1500, 3.46, dropout=0.3),
                "tcn": _model("tcn", 2e-3, 2400, 3.07, levels=4, kernel=5, dropout=0.2),
            },
            settings={"train": {"batch": 4, "evaluate_steps": 150}},
            best=(3.29, 3.07),
        ),
        _absent("ptb-words", "Penn Treebank, words, perplexity", "perplexity", "13M", 78.93, 88.68),
        _absent("ptb-characters", "Penn Treebank, characters, bits", "bits_per_character", "3M", 1.36, 1.31),
        _absent("text8", "text8, bits per character", "bits_per_character", "5M", 1.50, 1.45),
        _absent("wikitext-103", "WikiText-103, perplexity", "perplexity", "30M", 48.4, 45.19),
        _absent("lambada", "LAMBADA, perplexity", "perplexity", "10M", 4186.0, 1279.0),
    ),
    (
        "Equal size for every model of a row, as published: Seriatim solves for the width.",
        "One seed, and minutes of two processor cores instead of hours of a graphics card.",
    ),
)


def _letters(name: str, title: str) -> Row:
    """Letters in, letters out: every model with the same settings and its own learning rate."""
    return Row(
        name,
        title,
        "translate",
        f"{name}-pairs:{LETTERS}",
        "exact_match",
        "100k",
        models={model: _model(model, None, 1500) for model in ("seq2seq", "bahdanau", "transformer")},
        settings={
            "task": {"beams": 1},
            "data": {"tokenizer": {"kind": "word"}, "joint": True},
            "model": {"dropout": 0.0},
            "train": {"batch": 64, "label_smoothing": 0.0, "evaluate_steps": 300},
        },
        counted="letters",
    )


LETTERS = 20  # at most in a row of the table below
_LENGTH = Table(
    "Quality over length: why attention was invented",
    "The picture of Bahdanau, Cho and Bengio (2015), figure 2, on letters instead of sentences",
    _rows(
        _letters("copy", "letters copied: share of answers without a mistake"),
        _letters("reverse", "letters reversed: share of answers without a mistake"),
        _letters("sort", "letters sorted: share of answers without a mistake"),
    ),
    (
        f"1 to {LETTERS} letters, all lengths equally often; an answer counts if every letter is right. Nothing was "
        "published for these: what is to be seen is where quality ends as the source grows.",
        "seq2seq keeps the whole source in one state; bahdanau and transformer look back at it.",
        "On sentences: `seriatim compare translate --data fra-eng --models seq2seq,bahdanau,transformer --params 5M` "
        "draws BLEU over length in its report.",
    ),
)


def _stack(layers: int, skips: bool) -> Model:
    return _model("resnet", 3e-3, 1000, layers=layers, skips=skips, width=8)


_SKIPS = Table(
    "Deep networks with skips and without",
    "The experiment of He, Zhang, Ren and Sun, Deep residual learning (2016), figures 1 and 6, on handwritten digits",
    _rows(
        Row(
            "digits",
            "MNIST at 14 × 14 pixels, accuracy",
            "classify",
            "mnist",
            "accuracy",
            models={
                f"{'residual' if skips else 'plain'} {layers}": _stack(layers, skips)
                for skips in (False, True)
                for layers in (20, 56)
            },
            settings={
                "data": {"pictures": {"side": 14, "crops": 0}},
                "train": {"batch": 64, "evaluate_steps": 250, **_PLAIN["train"]},
            },
            learning=True,
        ),
    ),
    (
        "The same data, seed and steps: nothing differs but the depth and the skips. What is to be seen is the loss on "
        "the training part. A deeper plain network could do what a shallower one does, and learns worse all the same.",
        "Published for CIFAR-10: residual networks of 20 and 56 layers have 8.75 % and 6.97 % of errors on the test "
        "part; of plain ones the curves are shown, and 56 layers end above 20 on the training part, too. For these "
        "digits nothing was published.",
        "Why: `seriatim inspect resnet --depth`.",
    ),
)

TABLES: dict[str, Table] = {"forecasting": _FORECASTING, "bai2018": _BAI, "length": _LENGTH, "skips": _SKIPS}
