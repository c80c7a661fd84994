"""Commands and their options: those of the capabilities, light to load, explained, and frozen.

`python tests/cli/test_verbs.py` writes tests/golden/cli_options.json anew, for when options are changed on purpose.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from rich.text import Text
from typer.main import get_command

from seriatim import cli
from seriatim._version import __version__
from seriatim.cli import verbs
from seriatim.cli.options import TRAINING
from seriatim.runs.capabilities import capability_to_json
from seriatim.runs.configure import COLUMN_NAMES, SHORT_NAMES
from seriatim.tasks import NAMES, load_spec

GOLDEN = Path(__file__).parents[1] / "golden" / "cli_options.json"


def walk(command: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Yields every command and sub-command with the words that call it."""
    yield path, command
    if hasattr(command, "list_commands"):
        for name in command.list_commands(None):
            yield from walk(command.get_command(None, name), (*path, name))


def options() -> dict[str, dict[str, list[str]]]:
    """Returns the arguments in their order and the options of each command."""
    commands = {}
    for path, command in walk(get_command(cli.app)):
        arguments = [p.name for p in command.params if p.param_type_name == "argument"]
        flags = [flag for p in command.params for flag in (*p.opts, *p.secondary_opts) if flag.startswith("-")]
        own = sorted(flag for flag in flags if "completion" not in flag)  # those are the library's
        commands[" ".join(("seriatim", *path))] = {"arguments": arguments, "options": own}
    return commands


def test_a_run_says_of_its_capabilities_what_the_task_declares() -> None:
    """The command of a plug-in is made from the JSON in the run folder, others from the declaration."""
    for capability in (one for name in NAMES for one in load_spec(name).capabilities):
        values = json.loads(json.dumps(capability_to_json(capability)))
        assert verbs.Verb.from_json(capability.name, values) == verbs.Verb.declared(capability)


def test_every_capability_is_a_command() -> None:
    commands = {path[0] for path, _ in walk(get_command(cli.app)) if len(path) == 1}
    assert {one.name for name in NAMES for one in load_spec(name).capabilities} <= commands
    assert {"predict", "train", "resume", "compare", "evaluate", "inspect", "doctor"} <= commands


def test_names_of_short_options_agree() -> None:
    """The command line names them itself, because it must not import torch."""
    assert set(TRAINING) == {*SHORT_NAMES, *COLUMN_NAMES} - {"start"}


def test_options_are_frozen() -> None:
    known = json.loads(GOLDEN.read_text(encoding="utf-8"))
    assert options() == known, "scripts name these: if the change is meant, run `python tests/cli/test_verbs.py`"


def test_every_option_is_explained() -> None:
    silent = [
        f"{' '.join(path)} {p.opts[0]}"
        for path, command in walk(get_command(cli.app))
        for p in command.params
        if not p.help and p.name != "help"
    ]
    assert silent == []


def test_explanations_are_shown_whole() -> None:
    """Rich takes a word in square brackets for a style, and does not print it."""
    texts = {p.help for _, command in walk(get_command(cli.app)) for p in command.params if p.help}
    assert [text for text in texts if Text.from_markup(text).plain != text] == []


LIGHT = """
import contextlib, io, json, sys
from typer.main import get_command
from seriatim import cli

def walk(command, path=()):
    yield path
    if hasattr(command, "list_commands"):
        for name in command.list_commands(None):
            yield from walk(command.get_command(None, name), (*path, name))

def run(*arguments):
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        status = cli.run(list(arguments))
    return [" ".join(arguments), status, out.getvalue()]

helps = [run(*path, "--help") for path in walk(get_command(cli.app))]
others = [run(*line.split()) for line in ("list", "list --json", "runs", "runs --json", "data list", "--version")]
heavy = ("torch", "transformers", "altair", "tokenizers", "pandas", "scipy")
print(json.dumps({"helps": helps, "others": others, "heavy": [name for name in heavy if name in sys.modules]}))
"""


def test_help_and_lists_are_light(trained: Path) -> None:
    result = subprocess.run([sys.executable, "-c", LIGHT], cwd=trained, capture_output=True, encoding="utf-8")
    assert result.returncode == 0, result.stderr
    printed = json.loads(result.stdout)
    assert printed["heavy"] == []
    helps = {command: text for command, status, text in printed["helps"] if status == 0}
    assert helps.keys() == {" ".join([*path, "--help"]) for path, _ in walk(get_command(cli.app))}
    for command, text in helps.items():
        assert f"Usage: seriatim {command.removesuffix('--help')}".rstrip() in text, command
    answers = {command: text for command, status, text in printed["others"] if status == 0}
    assert {"lstm", "ngram", "gpt"} <= json.loads(answers["list --json"])["models"].keys()
    assert "language" in answers["list"]
    assert "runs/lstm" in answers["runs"]
    assert json.loads(answers["runs --json"])[0]["model"] == "lstm"
    assert "tiny-shakespeare" in answers["data list"]
    assert answers["--version"] == f"seriatim {__version__}\n"


@pytest.mark.parametrize("verb", ["generate", "classify", "predict"])
def test_help_names_inputs_and_columns(verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run([verb, "--help"]) == 0
    printed = " ".join(capsys.readouterr().out.split())
    assert "Inputs:" in printed
    assert "Columns of the result:" in printed


if __name__ == "__main__":
    GOLDEN.write_text(json.dumps(options(), indent=1) + "\n", encoding="utf-8")
    print(f"wrote {GOLDEN}")
