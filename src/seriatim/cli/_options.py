"""Options that several commands share, each said once."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from ..core import registry
from ..core.config import load_yaml, override


def _tasks() -> list[str]:
    return registry.tasks.names()


def _models() -> list[str]:
    return registry.models.names()


Task = Annotated[
    str | None, typer.Argument(help=f"What is asked: {', '.join(_tasks())}.", autocompletion=_tasks, show_default=False)
]
Data = Annotated[str | None, typer.Option("--data", help="A file, a folder, or a data set of `seriatim data list`.")]
Model = Annotated[
    str | None,
    typer.Option("--model", help=f"The architecture: {', '.join(_models())}.", autocompletion=_models),
]
From = Annotated[
    str | None,
    typer.Option("--from", help="Begin with the weights of a run, of a folder of transformers, or of a hub name."),
]
RunPath = Annotated[Path, typer.Argument(help="The folder of a run.", show_default=False)]
ConfigFile = Annotated[Path | None, typer.Option("--config", help="Settings from a YAML file.")]
Sets = Annotated[
    list[str] | None, typer.Option("--set", metavar="A.B=C", help="Any setting by its path; see --print-config.")
]
Params = Annotated[
    str | None, typer.Option("--params", help="Parameters to have, as 1M or 70k: solves for the model's width.")
]
Minutes = Annotated[float | None, typer.Option("--minutes", help="Train for so many minutes (evaluation not counted).")]
Steps = Annotated[str | None, typer.Option("--steps", help="Updates to make. [default: 2,000, or what fits --minutes]")]
Epochs = Annotated[float | None, typer.Option("--epochs", help="Passes over the training part, instead of --steps.")]
Batch = Annotated[int | None, typer.Option("--batch", help="Sequences in a batch.")]
Length = Annotated[int | None, typer.Option("--length", help="Elements in a training sequence.")]
Rate = Annotated[float | None, typer.Option("--rate", help="Peak learning rate. [default: what suits the model]")]
Tokenizer = Annotated[
    str | None,
    typer.Option(
        "--tokenizer", help="char, word, bpe, byte-bpe, wordpiece, unigram or bert. [default: as the task says]"
    ),
]
Vocabulary = Annotated[str | None, typer.Option("--vocabulary", help="Tokens at most, but for char.")]
Column = Annotated[
    str | None, typer.Option("--column", help="The input column of CSV, TSV, JSONL or Parquet; two texts as a,b.")
]
Target = Annotated[
    str | None, typer.Option("--target", help="What is to be predicted: a column, several, or a file of labels.")
]
Pooling = Annotated[
    str | None,
    typer.Option(
        "--pooling", help="classify, regress: last, mean, max, attention; bert: first. [default: mean; first]"
    ),
]
Horizon = Annotated[int | None, typer.Option("--horizon", help="forecast: steps to look ahead. [default: 1]")]
Encoding = Annotated[str | None, typer.Option("--encoding", help="Of the text. [default: utf-8]")]
Valid = Annotated[str | None, typer.Option("--valid", help="A validation file. [default: a part of the data]")]
Test = Annotated[str | None, typer.Option("--test", help="A test file. [default: a part of the data]")]
Teacher = Annotated[
    str | None, typer.Option("--teacher", metavar="RUN", help="Learn from this run's answers as well: distillation.")
]
Temperature = Annotated[
    float | None, typer.Option("--temperature", help="Distillation: how soft the teacher's answers are. [default: 2]")
]
Alpha = Annotated[
    float | None, typer.Option("--alpha", help="Distillation: the teacher's part in the loss. [default: 0.5]")
]
Unlabelled = Annotated[
    str | None, typer.Option("--unlabelled", metavar="FILE", help="Distillation: more examples, without targets.")
]
Seed = Annotated[int | None, typer.Option("--seed", help="The same seed gives the same model. [default: 0]")]
Device = Annotated[str | None, typer.Option("--device", help="auto, cpu, cuda, mps. [default: auto]")]
Out = Annotated[Path | None, typer.Option("--out", help="The folder to make. [default: a new one in runs/]")]
DataDir = Annotated[
    str | None,
    typer.Option("--data-dir", envvar="SERIATIM_DATA", help="A local copy of the public data sets."),
]
Plugin = Annotated[
    list[Path] | None, typer.Option("--plugin", metavar="FILE", help="A Python file of your own that defines a model.")
]
PrintConfig = Annotated[bool, typer.Option("--print-config", help="Print every setting and stop.")]
Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No progress, no notes.")]


# The options of a training that are settings with a short name (`api.SHORT`): train and compare take all of them.
SHORT = {
    "params": Params,
    "minutes": Minutes,
    "steps": Steps,
    "epochs": Epochs,
    "batch": Batch,
    "length": Length,
    "rate": Rate,
    "horizon": Horizon,
    "pooling": Pooling,
    "tokenizer": Tokenizer,
    "vocabulary": Vocabulary,
    "column": Column,
    "target": Target,
    "encoding": Encoding,
    "valid": Valid,
    "test": Test,
    "teacher": Teacher,
    "temperature": Temperature,
    "alpha": Alpha,
    "unlabelled": Unlabelled,
    "seed": Seed,
    "device": Device,
}


def with_short(command: Callable[..., None]) -> Callable[..., None]:
    """The command with an option for each of `SHORT` in the place of its `**short`."""
    signature = inspect.signature(command, eval_str=True)
    own = [one for one in signature.parameters.values() if one.kind is not inspect.Parameter.VAR_KEYWORD]
    short = [inspect.Parameter(n, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=a) for n, a in SHORT.items()]
    parameters = own[:3] + short + [one.replace(kind=inspect.Parameter.KEYWORD_ONLY) for one in own[3:]]
    setattr(command, "__signature__", signature.replace(parameters=parameters))  # noqa: B010
    command.__annotations__ = {one.name: one.annotation for one in parameters} | {"return": None}
    return command


def add_plugins(files: list[Path] | None) -> None:
    for file in files or []:
        registry.models.add_file(file)


def gather(config: Path | None, sets: list[str] | None) -> dict[str, Any]:
    """The settings of a YAML file with the assignments on top."""
    from ..api import sections

    return override(sections(load_yaml(config)) if config is not None else {}, sets or [])
