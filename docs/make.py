"""Writes the parts of the documentation that are generated from the code.

python docs/make.py            rewrites docs/reference/*.md, and in all other pages
                               the sections between `<!-- generated: KIND NAME -->` and `<!-- end -->`,
                               and the line numbers of links to the code: [`Class.method`](../src/seriatim/x.py#L12)
python docs/make.py --check    fails if a page is not up to date
"""

from __future__ import annotations

import ast
import inspect
import re
import sys
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any, get_args

import typer
from pydantic import BaseModel
from pydantic_core import PydanticUndefined
from typer.main import get_command

import seriatim
from seriatim import cli, tasks
from seriatim.cli import understand
from seriatim.core import registry
from seriatim.core.limits import LIMITS
from seriatim.data.catalogue import entries
from seriatim.data.schema import Field
from seriatim.data.settings import DataSettings
from seriatim.decode.settings import BeamSettings, GenerationSettings
from seriatim.inspect import VIEWS
from seriatim.runs.run import Run
from seriatim.tasks.base import AnyTask
from seriatim.training.config import DistillSettings, TrainSettings

DOCS = Path(__file__).parent
ROOT = DOCS.parent
SECTION = re.compile(r"(<!-- generated: (\w+) ?(\S*) -->\n).*?(<!-- end -->)", flags=re.S)
CODE_LINK = re.compile(r"\[`([\w.]+)(\(\))?`\]\(((?:\.\./)*)(src/[\w/]+\.py|tests/[\w/]+\.py)(?:#L\d+)?\)")
EMBEDDING = "seriatim.tasks.text_predictor"  # its capabilities are those of every model of text, and have a page
SHARED = ("json", "quiet", "plugin", "data_dir", "config", "sets", "print_config", "help")  # in every table of options


# Markdown


def escape(text: str) -> str:
    """Returns a text with `<` written so that Markdown does not take "<eos>" for a tag; code spans stay."""
    return re.sub(r"`[^`]*`|<", lambda match: "&lt;" if match[0] == "<" else match[0], text)


def cell(text: str) -> str:
    """Returns a text for a cell of a table."""
    return escape(" ".join(text.split())).replace("|", "\\|")


def table(headings: list[str], rows: list[list[str]]) -> str:
    """Returns a Markdown table."""
    lines = ["| " + " | ".join(headings) + " |", "|" + "---|" * len(headings)]
    return "\n".join(lines + ["| " + " | ".join(row) + " |" for row in rows])


def prose(docstring: str) -> str:
    """Returns a docstring as Markdown, in which indented formulas are blocks of their own."""
    lines = inspect.cleandoc(docstring).splitlines()
    text = "\n".join(line if line.startswith("    ") else escape(line) for line in lines)
    text = re.sub(r"(?m)^(?!    )(.+)\n(?=    )", r"\1\n\n", text)
    return re.sub(r"(?m)^(    .+)\n(?=\S)", r"\1\n\n", text)


# Settings


def setting_rows(settings: type[BaseModel], prefix: str) -> list[list[str]]:
    """Returns path, default and description of every setting, nested ones included."""
    rows = []
    for name, field in settings.model_fields.items():
        types = [t for t in (field.annotation, *get_args(field.annotation)) if inspect.isclass(t)]
        nested = next((t for t in types if issubclass(t, BaseModel)), None)
        if nested is not None:
            rows += setting_rows(nested, f"{prefix}{name}.")
        elif name != "name" or prefix == "train.optimizer." or prefix == "train.schedule.":
            default = field.get_default(call_default_factory=True)
            shown = "required" if default is PydanticUndefined else f"`{format_default(default)}`"
            rows.append([f"`{prefix}{name}`", shown, cell(field.description or "")])
    return rows


def format_default(value: Any) -> str:
    """Returns a default as YAML writes it."""
    if isinstance(value, bool) or value is None:
        return {True: "true", False: "false", None: "null"}[value]
    if isinstance(value, tuple):
        return f"[{', '.join(map(format_default, value))}]"
    return str(value)


def settings_table(settings: type[BaseModel], prefix: str) -> str:
    """Returns the table of all settings of a class."""
    return table(["setting", "default", "description"], setting_rows(settings, prefix))


# Sections of pages


def model_docstring(name: str) -> str:
    """Paper, idea and formulas of a model: the docstring of its module."""
    return prose(registry.models.load(name).__doc__ or "")


def model_settings(name: str) -> str:
    """The settings of a model."""
    return settings_table(registry.models.load(name).Settings, "model.")


def task_module(task: type[AnyTask]) -> ModuleType:
    """Returns the module that defines a task."""
    return sys.modules[task.__module__]


def task_header(name: str) -> str:
    """What a task declares: its idea, commands, columns, models and metric."""
    task = tasks.load(name)
    idea = prose((task_module(task).__doc__ or "").partition("\n")[2])
    commands = [[f"`{verb}`", cell(text), inputs, outputs] for verb, text, inputs, outputs in capabilities(task)]
    embedding = [
        name for name in task.predictor_type.methods if name not in dict(row[:2] for row in capabilities(task))
    ]
    facts = [
        ["default model", f"`{task.default_model}`: {cell(task.default_model_reason)}"],
        ["`compare` without `--models`", ", ".join(f"`{model}`" for model in task.compared_models)],
        ["default split", " / ".join(f"{100 * share:g}" for share in task.default_fractions) + " %, " + policy(task)],
    ]
    if isinstance(task.unit, str):  # not a property that depends on the data
        facts.append(["unit of the loss", task.unit])
    parts = [
        idea,
        table(["command, Python method", "what it does", "input", "result columns"], commands),
        f"Models of text also have {', '.join(f'`{n}`' for n in embedding)}: [embeddings](../embeddings.md)."
        if embedding
        else "",
        table(["column", "usual names", "holds"], [column_row(field) for field in task.schema.fields]),
        table(["", ""], facts),
        f"Settings: [reference](../reference/settings.md#task-{name}).",
    ]
    return "\n\n".join(part for part in parts if part)


def policy(task: type[AnyTask]) -> str:
    """Returns how a task divides rows, in words."""
    return cell(task.split_policy.describe())


def capabilities(task: type[AnyTask]) -> Iterator[tuple[str, str, str, str]]:
    """Yields name, summary, inputs and outputs of each capability of a task itself, not those of embeddings."""
    for name, method in task.predictor_type.methods.items():
        if method.method.__module__ == EMBEDDING:
            continue
        capability = method.resolve(task.schema.inputs())
        inputs = ", ".join(f.role if f.required else f"[{f.role}]" for f in capability.inputs.fields)
        yield name, capability.summary, inputs, ", ".join(f"`{column}`" for column in capability.outputs)


def column_row(field: Field) -> list[str]:
    """Returns the row of a field: its role, usual column names and kinds."""
    role = f"`{field.role}`" + (", predicted" if field.target else "") + ("" if field.required else ", optional")
    names = [*map(str, field.aliases), *(" + ".join(group) for group in field.alias_groups)]
    return [role, ", ".join(f"`{alias}`" for alias in names), ", ".join(kind.name for kind in field.kinds)]


def model_table(prefix: str) -> str:
    """All models with a line on each; the argument is the path from the page to docs/models/."""
    rows = [
        [f"[`{name}`]({prefix or 'models/'}{name}.md)", cell(registry.models.summary(name))]
        for name in registry.models.names()
    ]
    return table(["model", "what it is"], rows)


def task_table(prefix: str) -> str:
    """All tasks with their commands; the argument is the path from the page to docs/tasks/."""
    rows = []
    for name in tasks.NAMES:
        task = tasks.load(name)
        first = cell(task.spec.summary)
        verbs = ", ".join(f"`{verb}`" for verb, *_ in capabilities(task))
        rows.append([f"[`{name}`]({prefix or 'tasks/'}{name}.md)", first, f"`{task.default_model}`", verbs])
    return table(["task", "what it does", "default model", "commands"], rows)


def view_table(_: str) -> str:
    """All views of `seriatim inspect`."""
    return table(["view", "what it shows"], [[f"`--{name}`", cell(view.summary)] for name, view in VIEWS.items()])


def view_options(_: str) -> str:
    """The options of views."""
    rows = [[f"`--{name.replace('_', '-')}`", cell(text)] for name, (_, text) in understand.view_options().items()]
    return table(["option", "what it does"], rows)


def catalogue_table(_: str) -> str:
    """The data sets that can be named."""
    rows = [[f"`{e.name}`", e.task, cell(e.summary), e.license] for _, e in sorted(all_data_sets().items())]
    return table(["name", "task", "what it is", "license"], rows)


def limit_table(_: str) -> str:
    """The limits with their environment variables."""
    rows = [[f"`{limit.variable}`", f"{limit.default:,} {limit.unit}", cell(limit.description)] for limit in LIMITS]
    return table(["variable", "default", "limits"], rows)


def all_data_sets() -> dict[str, Any]:
    """Returns the entries of the catalogue and the synthetic data sets by name."""
    from seriatim.data.catalogue.generated import SETS

    return {**entries(), **SETS}


def capability_table(_: str) -> str:
    """Commands that use a run, and the tasks that have them."""
    owners: dict[str, list[str]] = {}
    for name in tasks.NAMES:
        for verb in tasks.load(name).predictor_type.methods:
            owners.setdefault(verb, []).append(name)
    return table(["command", "tasks"], [[f"`{verb}`", ", ".join(names)] for verb, names in owners.items()])


def config_sections(_: str) -> str:
    """The sections of a configuration file."""
    from seriatim.training.config import Config

    rows = [[f"`{name}`", cell(field.description or "")] for name, field in Config.model_fields.items()]
    return table(["key", "what it holds"], rows)


def source_file(path: str) -> str:
    """The text of a Python file of the repository."""
    text = (ROOT / path).read_text(encoding="utf-8").strip()
    return f"<!-- not run: a file -->\n```python\n{text}\n```"


SECTIONS: dict[str, Callable[[str], str]] = {
    "model": model_docstring,
    "settings": model_settings,
    "task": task_header,
    "models": model_table,
    "tasks": task_table,
    "views": view_table,
    "view_options": view_options,
    "catalogue": catalogue_table,
    "limits": limit_table,
    "capabilities": capability_table,
    "config": config_sections,
    "file": source_file,
}


# Links to lines of code


@cache
def definitions(path: Path) -> dict[str, int]:
    """Returns the line of every class, function, method (`Class.method`) and constant of a Python file."""
    lines: dict[str, int] = {}

    def visit(body: list[ast.stmt], prefix: str) -> None:
        for node in body:
            if isinstance(node, ast.ClassDef | ast.FunctionDef):
                lines[prefix + node.name] = node.lineno
                if isinstance(node, ast.ClassDef):
                    visit(node.body, f"{prefix}{node.name}.")
            elif isinstance(node, ast.Assign | ast.AnnAssign):
                for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
                    if isinstance(target, ast.Name):
                        lines.setdefault(prefix + target.id, node.lineno)

    visit(ast.parse(path.read_text(encoding="utf-8")).body, "")
    return lines


def renumber(match: re.Match[str]) -> str:
    """Returns a link to code with the file and line at which the named object is defined.

    An object that has moved is searched for in all files; it must be defined in one of them only.
    """
    name, call, up, file = match.groups()
    path = ROOT / file
    if not path.is_file() or name not in definitions(path):
        files = [path for path in sorted((ROOT / "src").rglob("*.py")) if name in definitions(path)]
        if len(files) != 1:
            raise SystemExit(f"{file} does not define {name}, and {len(files)} other files do")
        path = files[0]
    return f"[`{name}{call or ''}`]({up}{path.relative_to(ROOT)}#L{definitions(path)[name]})"


def update(text: str) -> str:
    """Returns a page with its generated sections and line numbers up to date."""
    text = SECTION.sub(lambda match: f"{match[1]}\n{SECTIONS[match[2]](match[3])}\n\n{match[4]}", text)
    return CODE_LINK.sub(renumber, text)


# Reference pages

GENERATED = "Generated from the code by `make docs`."


def settings_reference() -> str:
    """Every setting: of tasks, data, training, distillation and generation."""
    parts = [
        "# Settings",
        f"{GENERATED} Set any of them with `--set PATH=VALUE`, or in a [`--config`](../config.md) file.",
    ]
    for name in tasks.NAMES:
        task = tasks.load(name)
        parts += [f"## Task `{name}`", f"{cell(task.spec.summary)}: [page](../tasks/{name}.md)."]
        parts += [settings_table(task.settings_type, "task.")]
    parts += ["## Data", "The same for every task.", settings_table(DataSettings, "data.")]
    parts += ["## Training", settings_table(TrainSettings, "train.")]
    parts += ["## Distillation", settings_table(DistillSettings, "distill.")]
    parts += ["## Generation", "Options of `generate`.", settings_table(GenerationSettings, "")]
    parts += ["## Beam search", "Options of `translate` and `caption`.", settings_table(BeamSettings, "")]
    parts += ["## Models", "The settings of a model are on its page.", model_table("../models/")]
    return "\n\n".join(parts) + "\n"


def subcommands(command: Any) -> dict[str, Any]:
    """Returns the commands of a group in the order of --help; none of a command."""
    if not hasattr(command, "list_commands"):
        return {}
    context = typer.Context(command)
    return {name: command.get_command(context, name) for name in command.list_commands(context)}


def commands(command: Any, path: str = "seriatim") -> Iterator[tuple[str, Any]]:
    """Yields the path of each command that does something, in the order of --help."""
    inner = subcommands(command)
    if not inner:
        yield path, command
    for name, child in inner.items():
        yield from commands(child, f"{path} {name}")


def command_section(path: str, command: Any) -> str:
    """Returns usage, summary and options of a command."""
    arguments = [p for p in command.params if p.param_type_name == "argument"]
    options = [p for p in command.params if p.param_type_name == "option" and p.name not in SHARED]
    usage = " ".join([path, *(argument_usage(p) for p in arguments), "[OPTIONS]" if options else ""]).strip()
    summary = escape(" ".join(inspect.cleandoc(command.help or "").split("\n\n")[0].split()))
    parts = [f"### {path.removeprefix('seriatim ')}", f"    {usage}", summary]
    if options:
        rows = [[", ".join(f"`{name}`" for name in p.opts), cell(p.help or "")] for p in options]
        parts.append(table(["option", "what it does"], rows))
    return "\n\n".join(parts)


def argument_usage(argument: Any) -> str:
    """Returns an argument as usage lines show it."""
    name = (argument.metavar or argument.name.upper()).strip("[]")
    name += "…" if argument.nargs == -1 and not name.endswith("…") else ""
    return name if argument.required else f"[{name}]"


def command_reference() -> str:
    """Every command with its options."""
    root = get_command(cli.app)
    groups = subcommands(root)
    panels: dict[str, list[tuple[str, Any]]] = {}
    for path, command in commands(root):
        top = groups[path.split()[1]]
        panels.setdefault(getattr(top, "rich_help_panel", None) or "Machine", []).append((path, command))
    shared = [
        ["`--json`", "Print the result as JSON."],
        ["`--quiet`, `-q`", "No progress, no notes."],
        ["`--plugin FILE`", "A Python file that defines a [task or model](../adding.md)."],
        ["`--data-dir FOLDER`", "A local copy of the catalogue data sets; also the variable `SERIATIM_DATA`."],
        ["`--config FILE`, `--set A.B=C`, `--print-config`", "[Settings](../config.md) of a training."],
    ]
    parts = ["# Commands", f"{GENERATED} `seriatim COMMAND --help` shows the same."]
    parts += ["Options that many commands share:", table(["option", "what it does"], shared)]
    parts += ["Exit codes: 0; 1 a failure; 2 a mistake in the input; 130 Ctrl-C; 143 SIGTERM."]
    for panel, members in panels.items():
        parts += [f"## {panel}", *(command_section(path, command) for path, command in members)]
    return "\n\n".join(parts) + "\n"


def function_section(function: Any, name: str) -> str:
    """Returns signature and docstring of a function as Markdown."""
    target = function.fget if isinstance(function, property) else getattr(function, "func", function)
    signature = str(inspect.signature(function)).replace("'", "") if inspect.isfunction(function) else ""
    signature = re.sub(r"<function .*? at 0x[0-9a-f]+>", "…", signature)
    signature = re.sub(r"\bself, |\(self\)", lambda m: "()" if m[0] == "(self)" else "", signature)
    text = inspect.cleandoc(target.__doc__ or "")
    summary, _, arguments = text.partition("\n\nArgs:\n")
    arguments, _, returns = arguments.partition("\n\nReturns:\n")
    pairs = re.findall(r"(?m)^    (\w+): ((?:.+\n?(?:        .+\n?)*))", arguments + "\n")
    parts = [f"### {name}", f"    {name}{signature}", escape(summary)]
    if pairs:
        parts.append(table(["argument", ""], [[f"`{argument}`", cell(body)] for argument, body in pairs]))
    if returns:
        parts.append(f"Returns: {escape(' '.join(returns.split()))}")
    return "\n\n".join(parts)


def python_reference() -> str:
    """The functions of the package and the methods of a run."""
    parts = ["# Python API", GENERATED, "## seriatim"]
    functions = [name for name in seriatim.__all__ if callable(getattr(seriatim, name)) and name[0].islower()]
    order = ["train", "resume", "load", "predict", "evaluate", "compare", "distill", "average"]
    for name in sorted(functions, key=lambda n: order.index(n) if n in order else len(order)):
        parts.append(function_section(getattr(seriatim, name), f"seriatim.{name}"))
    parts += [
        "## Run",
        "What `seriatim.train` and `seriatim.load` return. Reading files of the folder imports no torch.",
    ]
    own = [
        "predict",
        "call",
        "metrics",
        "evaluate",
        "inspect",
        "plot",
        "ensemble",
        "int8",
        "config",
        "network",
        "predictor",
    ]
    files = ["settings", "summary", "notes", "capabilities", "history", "samples", "evaluation", "inspection"]
    for name in own + files:
        member = next(vars(base)[name] for base in Run.__mro__ if name in vars(base))
        parts.append(function_section(member, f"run.{name}"))
    parts += [
        "## Capabilities",
        "A run has a method for each capability of its task, `run.translate(inputs, **options)`:",
    ]
    parts += [capability_table(""), "The options are those of the [commands](commands.md), with `_` for `-`."]
    return "\n\n".join(parts) + "\n"


def pages() -> dict[Path, str]:
    """Returns the up-to-date text of every page."""
    reference = DOCS / "reference"
    made = {
        reference / "settings.md": settings_reference(),
        reference / "commands.md": command_reference(),
        reference / "python.md": python_reference(),
    }
    others = [path for path in [*sorted(DOCS.rglob("*.md")), ROOT / "README.md"] if path not in made]
    return {path: update(path.read_text(encoding="utf-8")) for path in others} | made


if __name__ == "__main__":
    stale = {
        path: text for path, text in pages().items() if not path.is_file() or path.read_text(encoding="utf-8") != text
    }
    if "--check" in sys.argv:
        names = ", ".join(str(path.relative_to(ROOT)) for path in stale)
        sys.exit(f"{names}: not up to date; run `python docs/make.py`" if stale else 0)
    for path, text in stale.items():
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")
        print(path.relative_to(ROOT))
