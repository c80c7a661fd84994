"""The command line: one file per verb. Nothing here imports torch until something is computed."""

from __future__ import annotations

import os
import sys
from typing import Any

import typer

from ..core.errors import SeriatimError
from . import (
    answer,
    average,
    caption,
    compare,
    data,
    demo,
    distil,
    doctor,
    embed,
    evaluate,
    export,
    generate,
    import_,
    inspect,
    next,
    predict,
    reproduce,
    resume,
    runs,
    score,
    train,
    translate,
)
from . import list as list_command
from ._output import complain

UsageError: type[Exception] = typer.BadParameter.__bases__[0]  # typer brings its own click, or takes the one installed

app = typer.Typer(
    name="seriatim",
    help="Sequence models from counting n-grams to GPT: train, compare at equal size, use.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    rich_markup_mode=None,
)


def _version(wanted: bool) -> None:
    if wanted:
        from .._version import __version__

        print(f"seriatim {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: bool = typer.Option(False, "--version", callback=_version, is_eager=True, help="Print the version."),
) -> None:
    pass


_answers = (
    demo,
    train,
    resume,
    compare,
    distil,
    reproduce,
    evaluate,
    predict,
    answer,
    embed,
    translate,
    caption,
    generate,
    next,
    score,
    inspect,
)
_household = (average, export, import_, runs, list_command, doctor)
for module in _answers + _household:
    name = module.__name__.rpartition(".")[2].rstrip("_")
    app.command(name, help=module.__doc__)(getattr(module, "command"))  # noqa: B009
app.add_typer(data.app, name="data")


def main() -> None:
    """Runs a command. Exit codes: 0, 1 failure, 2 the user's mistake, 130 Ctrl-C, 143 SIGTERM."""
    sys.exit(run())


def run(arguments: list[str] | None = None) -> int:
    try:
        code = app(arguments, prog_name="seriatim", standalone_mode=False)
        return code if isinstance(code, int) else 0
    except SeriatimError as error:
        complain(error)
        return error.exit_code
    except UsageError as error:
        return _misused(error)
    except (KeyboardInterrupt, typer.Abort):
        print("interrupted", file=sys.stderr)
        return 130
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # what reads us has had enough
        return 0
    except Exception as error:
        if os.environ.get("SERIATIM_DEBUG"):
            raise
        complain(_unforeseen(error))
        return 1


def _misused(error: Any) -> int:
    if type(error).__name__ == "NoArgsIsHelpError":  # a command that was only named: its help is the answer
        print(error.format_message())
        return 2
    command = error.ctx.command_path if error.ctx else "seriatim"
    complain(SeriatimError("usage", error.format_message(), f"`{command} --help` shows how it is called"))
    return 2


def _unforeseen(error: Exception) -> SeriatimError:
    if isinstance(error, OSError) and error.strerror:
        where = f" ({error.filename})" if error.filename else ""
        return SeriatimError("system", f"{error.strerror}{where}", "check the path, its permissions and the disk")
    if isinstance(error, MemoryError) or "can't allocate memory" in str(error):
        return SeriatimError("system.memory", "the memory is used up", "lower --batch, --length or --params")
    return SeriatimError(
        "internal",
        f"{type(error).__name__}: {error}",
        "this is a fault of seriatim: SERIATIM_DEBUG=1 shows where; please report it",
    )
