"""The command line. Nothing here imports torch until something is computed.

Exit codes: 0; 1 a failure; 2 the user's mistake; 130 Ctrl-C; 143 SIGTERM.
"""

from __future__ import annotations

import errno
import gc
import importlib
import inspect
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import typer
import typer.core
import typer.main

from ..core.errors import SeriatimError, did_you_mean
from .output import print_error

UsageError: type[Exception] = typer.BadParameter.__bases__[0]  # typer brings a private copy of click

# command → the module that defines it: only that of the command that runs is imported
COMMANDS = {
    **dict.fromkeys(("demo", "train", "resume", "compare", "distill", "average", "reproduce"), "train"),
    "VERBS": "verbs",
    **dict.fromkeys(("evaluate", "inspect", "report", "runs", "list"), "understand"),
    **dict.fromkeys(("import", "export", "card", "doctor", "schema"), "machine"),
    "data": "data",
}


TRAINING = ("train", "compare")  # the first argument of these is a task, whose settings are options


class CommandGroup(typer.core.TyperGroup):
    """The commands in the order of --help. Verbs of runs, plug-ins included, come from their capabilities."""

    tasks: Sequence[str] = ()  # besides the built-in ones, whose settings may be options of a training

    def list_commands(self, ctx: Any) -> list[str]:
        from .verbs import built_in_verbs

        names = [[*built_in_verbs()] if name == "VERBS" else [name] for name in COMMANDS]
        return [name for group in names for name in group]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if cmd_name in COMMANDS and cmd_name != "VERBS":
            module = importlib.import_module(f".{COMMANDS[cmd_name]}", __name__)
            for info in module.COMMANDS[cmd_name].registered_commands:
                if hasattr(info.callback, "add_options"):
                    info.callback.add_options(*self.tasks)
            command = typer.main.get_command(module.COMMANDS[cmd_name])
            command.name = cmd_name
            return command
        from .verbs import verb_command

        return verb_command(cmd_name, [])

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Writes the help, which lists the commands without their options: making those would take most of the time."""
        listing = CommandList(name=self.name, help=self.help, params=self.params, rich_help_panel=self.rich_help_panel)
        super(CommandGroup, listing).format_help(ctx, formatter)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Finds the command of the first argument; the second one may be a run whose plug-in brings the verb."""
        name, *rest = args
        if name in COMMANDS:
            if name in TRAINING:
                self.tasks = other_tasks(rest)
            found = super().resolve_command(ctx, args)
            gc.enable()
            return found
        from .verbs import verb_command

        command = verb_command(name, rest)
        gc.enable()
        if command is None:
            raise SeriatimError("usage", f'there is no command "{name}"', did_you_mean(name, self.list_commands(ctx)))
        return name, command, rest


def other_tasks(arguments: list[str]) -> list[str]:
    """Returns the task of a training if it is not built in, and its settings may be options: of a plug-in or package.

    Args:
        arguments: Of the command; one of them may be a task.
    """
    from ..tasks import NAMES, names

    pairs = zip(arguments, [*arguments[1:], ""], strict=True)
    options = [(*argument.partition("=")[::2], after) for argument, after in pairs]
    plugins = [value or after for option, value, after in options if option == "--plugin"]
    first = next(iter(arguments), "-")
    if not plugins and (first[:1] == "-" or first in NAMES):
        return []
    from ..runs.configure import add_plugins

    add_plugins(plugins)
    task = next((argument for argument in arguments if argument in names()), "")
    return [task] if task and task not in NAMES else []


class CommandList(CommandGroup):
    """The commands with their summary and panel only."""

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if cmd_name not in COMMANDS:
            from .options import USE
            from .verbs import built_in_verbs

            summary = built_in_verbs()[cmd_name].summary
            return typer.core.TyperCommand(cmd_name, callback=None, help=summary, rich_help_panel=USE)
        command = importlib.import_module(f".{COMMANDS[cmd_name]}", __name__).COMMANDS[cmd_name]
        if len(command.registered_commands) > 1:
            return super().get_command(ctx, cmd_name)
        (info,) = command.registered_commands
        text = info.help or inspect.getdoc(info.callback)
        return typer.core.TyperCommand(cmd_name, callback=None, help=text, rich_help_panel=info.rich_help_panel)


app = typer.Typer(
    cls=CommandGroup,
    name="seriatim",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def print_version(requested: bool) -> None:
    """Prints the version and stops, if requested."""
    if requested:
        from .._version import __version__

        print(f"seriatim {__version__}")
        raise typer.Exit


@app.callback()
def root(
    version: bool = typer.Option(False, "--version", callback=print_version, is_eager=True, help="Print the version."),
) -> None:
    """Sequence models from n-grams to GPT: train, compare at equal size, use, look inside."""


def main() -> None:
    """Runs the command of the process and exits."""
    gc.disable()  # until the command is known: of what is loaded for it, nothing is garbage
    sys.exit(run())


def run(arguments: list[str] | None = None) -> int:
    """Runs a command and returns its exit code.

    Args:
        arguments: Without the name of the program; by default those of the process.
    """
    try:
        code = app(arguments, prog_name="seriatim", standalone_mode=False)
        return code if isinstance(code, int) else 0
    except SeriatimError as error:
        print_error(error)
        return error.exit_code
    except UsageError as error:
        return print_usage_error(error)
    except (KeyboardInterrupt, typer.Abort):
        print("interrupted", file=sys.stderr)
        return 130
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # the reader of the pipe has closed it
        return 0
    except Exception as error:
        if os.environ.get("SERIATIM_DEBUG"):
            raise
        print_error(explain_failure(error))
        return 1


def print_usage_error(error: Any) -> int:
    """Prints what is wrong with the arguments, or the help if there are none, and returns the exit code."""
    if type(error).__name__ == "NoArgsIsHelpError":
        print(error.format_message())
        return 2
    command = error.ctx.command_path if error.ctx else "seriatim"
    message, remedy = error.format_message(), f"`{command} --help` shows how it is called"
    if type(error).__name__ == "NoSuchOption":
        from ..runs.configure import short_settings

        if error.option_name.lstrip("-").replace("-", "_") in short_settings():
            message = f"No such option: {error.option_name}"  # those that look alike would mislead
            remedy = f"{error.option_name} belongs to `train`, and a run keeps its value: train again for another one"
    print_error(SeriatimError("usage", message, remedy))
    return 2


def explain_failure(error: Exception) -> SeriatimError:
    """Returns an unexpected exception as an error with a remedy."""
    if isinstance(error, OSError) and error.strerror:
        from ..core.files import WRITE_ERRORS, WriteError

        if error.errno in WRITE_ERRORS.keys() - {
            errno.ENOENT,
            errno.EACCES,
            errno.EPERM,
        }:  # others occur in reading too
            return WriteError(error, Path(error.filename or "a file"))
        file = f" ({error.filename})" if error.filename else ""
        return SeriatimError("system", f"{error.strerror}{file}", "check the path, its permissions and the disk")
    if isinstance(error, MemoryError) or "can't allocate memory" in str(error):
        remedy = "lower --batch-size, --context-length or --params"
        return SeriatimError("system.memory", "there is not enough memory", remedy)
    return SeriatimError(
        "internal",
        f"{type(error).__name__}: {error}",
        "this is a bug in seriatim: SERIATIM_DEBUG=1 shows the traceback; please report it",
    )
