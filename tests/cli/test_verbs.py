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
import yaml
from rich.text import Text
from typer.main import get_command

from seriatim import cli
from seriatim._version import __version__
from seriatim.cli import verbs
from seriatim.cli.options import training_options
from seriatim.core.errors import SeriatimError
from seriatim.runs.capabilities import capability_to_json
from seriatim.runs.configure import COLUMN_NAMES, configure, short_settings
from seriatim.tasks import NAMES, load_spec
from seriatim.tasks.base import Task

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


def test_a_run_says_how_its_capabilities_are_shown(trained: Path) -> None:
    declared = json.loads((trained / "runs/lstm/capabilities.json").read_text(encoding="utf-8"))
    generate, nearest = declared["generate"], declared["nearest"]
    assert generate["streams"]
    assert (generate["presentation"], generate["common"]) == ("text", ["max_tokens", "temperature", "top_k"])
    assert (nearest["presentation"], nearest["sources"]) == ("neighbors", ["among"])
    book = (trained / "book.txt").read_text(encoding="utf-8")
    assert all(example["text"] in book for example in generate["examples"])
    assert generate["examples"]


def test_every_capability_is_a_command() -> None:
    commands = {path[0] for path, _ in walk(get_command(cli.app)) if len(path) == 1}
    assert {one.name for name in NAMES for one in load_spec(name).capabilities} <= commands
    assert {"predict", "train", "resume", "compare", "evaluate", "inspect", "doctor"} <= commands


def test_settings_with_a_short_name_are_options() -> None:
    """Their help names the tasks that have them, unless most have."""
    known = training_options()
    assert known.keys() == {*short_settings(), *COLUMN_NAMES} - {"start"}
    kinds = {name: kind for name, (kind, _) in known.items()}
    assert [kinds[name] for name in ("steps", "lr", "horizon", "crf", "pooling")] == [str, float, int, bool, str]
    assert known["horizon"][1].startswith("forecast: ")
    assert known["pooling"][1].startswith("choose, classify, regress: ")
    assert ": " not in known["context_length"][1]
    (train,) = (command for path, command in walk(get_command(cli.app)) if path == ("train",))
    flags = {flag for parameter in train.params for flag in parameter.opts}
    assert {f"--{name.replace('_', '-')}" for name in known} <= flags


STAMP = """
from typing import Annotated

from pydantic import Field

from seriatim.core.config import Short
from seriatim.tasks.classify.task import ClassifyTask
from seriatim.tasks.inputs import PooledSettings


class StampSettings(PooledSettings):
    name: str = "stamp"
    margin: Annotated[float, Short()] = Field(0.5, ge=0, description="the least distance")
    tokenizer_size: Annotated[int, Short(name="stamps")] = Field(3, description="of the vocabulary")


class StampTask(ClassifyTask):
    name = "stamp"
    settings_type = StampSettings
"""


def test_a_plug_in_has_short_options(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plugin = tmp_path / "stamp.py"
    plugin.write_text(STAMP)
    train = ["train", "stamp", "--plugin", str(plugin)]
    try:
        settings = ["--margin", "2.5", "--stamps", "7", "--steps", "3", "--print-config"]
        assert cli.run([*train, "--data", "x.csv", *settings]) == 0
        printed = yaml.safe_load(capsys.readouterr().out)
        assert (printed["task"]["margin"], printed["task"]["tokenizer_size"]) == (2.5, 7)
        assert cli.run([*train, "--help"]) == 0
        help_text = " ".join(capsys.readouterr().out.replace("│", " ").split())
        assert "--margin" in help_text
        assert "stamp: the least distance (default: 0.5)" in help_text
        assert configure("stamp", "x.csv", margin=1.5).task.margin == 1.5
        assert cli.run(["train", "classify", "--data", "x.csv", "--margin", "1", "--print-config"]) == 2
        assert "--margin" in capsys.readouterr().err
        with pytest.raises(SeriatimError, match="margin") as caught:
            configure("classify", "x.csv", margin=1.5)
        assert caught.value.code == "config.unknown"
    finally:
        Task.registry.pop("stamp", None)
        sys.modules.pop("plugin_stamp", None)


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
