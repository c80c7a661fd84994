"""Options that several commands share. Those of a training are made from one table."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from ..core import registry
from ..tasks import NAMES

TRAIN, USE, UNDERSTAND, EXCHANGE, MACHINE = (
    "Train",
    "Use a run",
    "Understand",
    "Exchange",
    "Machine",
)  # panels of --help


def model_names() -> list[str]:
    """Returns the names of the architectures, without importing them."""
    return registry.models.names()


MODELS = ", ".join(model_names())


Task = Annotated[
    str | None,
    typer.Argument(
        help=f"The task: {', '.join(NAMES)}.", autocompletion=lambda: list(NAMES), show_default=False, metavar="TASK"
    ),
]
Data = Annotated[
    str | None, typer.Option("--data", help="A file, a folder, an archive, or a data set of `seriatim data list`.")
]
Model = Annotated[
    str | None,
    typer.Option(
        "--model",
        help=f"The architecture: {MODELS}. (default: depends on the task)",
        autocompletion=model_names,
    ),
]
ModelOrAuto = Annotated[
    str | None,
    typer.Option(
        "--model",
        help=f"The architecture: {MODELS}. auto: tries those that fit, within --minutes, and keeps "
        "the best. (default: depends on the task)",
        autocompletion=lambda: [*model_names(), "auto"],
    ),
]
From = Annotated[
    str | None,
    typer.Option("--from", help="Start from the weights of a run, a folder of transformers, or a hub name."),
]
RunPath = Annotated[Path, typer.Argument(help="The run folder.", metavar="RUN", show_default=False)]
ConfigFile = Annotated[Path | None, typer.Option("--config", help="Settings from a YAML file.")]
Sets = Annotated[
    list[str] | None, typer.Option("--set", metavar="A.B=C", help="Any setting by its path; see --print-config.")
]
Out = Annotated[Path | None, typer.Option("--out", "-o", help="The folder to make. (default: a new one in runs/)")]
DataDir = Annotated[
    str | None, typer.Option("--data-dir", envvar="SERIATIM_DATA", help="A local copy of the catalogue data sets.")
]
Jobs = Annotated[int, typer.Option("--jobs", help="Trainings at a time, each in a process of its own on one thread.")]
Plugin = Annotated[
    list[Path] | None,
    typer.Option("--plugin", metavar="FILE", help="A Python file of your own that defines a task or a model."),
]
PrintConfig = Annotated[bool, typer.Option("--print-config", help="Print every setting and stop.")]
Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No progress, no notes.")]

COLUMN_HELP = "The input column of a table; several as a,b or a..z."
TARGET_HELP = "The target column of a table; several as a,b."
Column = Annotated[str | None, typer.Option("--column", help=COLUMN_HELP)]
Target = Annotated[str | None, typer.Option("--target", help=TARGET_HELP)]
Seed = Annotated[int | None, typer.Option("--seed", help="The same seed gives the same model. (default: 0)")]


def training_options(*tasks: str) -> dict[str, tuple[type, str]]:
    """Returns the options of a training by name, with type and help text: settings with a short name, and columns.

    Args:
        tasks: Tasks besides the built-in ones, whose settings may have short names, too.
    """
    from ..runs.configure import short_settings

    settings = {name: (option.type, option.help) for name, option in short_settings(*tasks).items()}
    del settings["start"]  # which is --from
    return settings | {"column": (str, COLUMN_HELP), "target": (str, TARGET_HELP)}


def with_training_options(*names: str, **texts: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Returns a decorator by which a command has options of `training_options` in place of its `**short`.

    The attribute `add_options` of the command adds them before it is used, since a list of commands needs none; its
    arguments are tasks that are not built in.

    Args:
        names: Of the options; by default all.
        texts: Help texts in place of those of the settings.
    """

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        signature = inspect.signature(command, eval_str=True)
        own = [p for p in signature.parameters.values() if p.kind is not inspect.Parameter.VAR_KEYWORD]

        def add_options(*tasks: str) -> None:
            chosen = {
                name: (kind, texts.get(name, text))
                for name, (kind, text) in training_options(*tasks).items()
                if (not names or name in (*names, *texts)) and name not in signature.parameters
            }
            short = [
                inspect.Parameter(
                    name,
                    inspect.Parameter.KEYWORD_ONLY,
                    default=None,
                    annotation=Annotated[kind | None, typer.Option(f"--{name.replace('_', '-')}", help=text)],
                )
                for name, (kind, text) in chosen.items()
            ]
            parameters = own[:3] + short + [p.replace(kind=inspect.Parameter.KEYWORD_ONLY) for p in own[3:]]
            command.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
            command.__annotations__ = {p.name: p.annotation for p in parameters} | {"return": None}

        command.add_options = add_options  # type: ignore[attr-defined]
        return command

    return decorate


def single_command(name: str, function: Callable[..., None], panel: str, text: str | None = None) -> typer.Typer:
    """Returns a command by itself, with its panel of --help."""
    names = {"help_option_names": ["-h", "--help"]}
    app = typer.Typer(add_completion=False, pretty_exceptions_enable=False, context_settings=names)
    app.command(name, help=text, rich_help_panel=panel, no_args_is_help=False)(function)
    return app


def read_settings(config: Path | None, sets: list[str] | None) -> dict[str, Any]:
    """Returns the settings of a YAML file with the assignments of --set over them."""
    from ..core.config import load_yaml, override
    from ..runs.configure import expand_names

    values = {} if config is None else expand_names(load_yaml(config))
    values.pop("format", None)  # of the config.yaml of a run
    return override(values, sets or [])
