"""Commands about other programs, the machine and the configuration: import, export, card, doctor and schema."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import json as json_module
import os
import platform
import sys
from pathlib import Path
from typing import Annotated

import typer

from ..core.text import format_amount
from . import options as o
from .output import note, print_json, print_table

REQUIRED = ("torch", "numpy", "safetensors", "tokenizers", "pydantic", "typer", "pyarrow", "pandas", "altair")
OPTIONAL = {
    "transformers": "compare with Hugging Face models",
    "mido": "read and write MIDI files",
    "polib": "read gettext files",
    "openpyxl": "read Excel files",
    "datasets": "read data sets of the Hugging Face hub",
    "kenlm": "compare with KenLM",
}


def doctor(json: o.Json = False) -> None:
    """Show what this machine offers and what is missing."""
    values = examine()
    if json:
        print_json(values)
        return
    rows = [(key, str(value)) for key, value in values.items() if not isinstance(value, dict)]
    sections = {key: value for key, value in values.items() if isinstance(value, dict)}
    rows += [(f"{section} {key}", str(value)) for section, part in sections.items() for key, value in part.items()]
    print_table(["", "value"], rows, left=2)


def examine() -> dict[str, object]:
    """Returns versions, folders, packages, limits, devices and the state of the native kernels."""
    from .._version import __version__
    from ..core.files import WriteError, cache_folder
    from ..core.limits import LIMITS

    try:
        cache = str(cache_folder())
    except WriteError as error:
        cache = f"{error.cause}; {error.remedy}"
    required = {name: package_version(name) or "MISSING: install seriatim again" for name in REQUIRED}
    optional = {name: package_version(name) or f"not installed (to {use})" for name, use in OPTIONAL.items()}
    values: dict[str, object] = {
        "seriatim": __version__,
        "python": f"{platform.python_version()} ({sys.executable})",
        "system": platform.platform(),
        "cores": os.cpu_count(),
        "cache": cache,
        "local data (SERIATIM_DATA)": os.environ.get("SERIATIM_DATA", "not set"),
        "package": required,
        "optional": optional,
        "limit": {limit.variable: f"{limit.value:,} {limit.unit}" for limit in LIMITS},
    }
    if os.environ.get("PYTHONDONTWRITEBYTECODE"):
        values["warning"] = "PYTHONDONTWRITEBYTECODE is set: every start of torch takes twice as long"
    if importlib.util.find_spec("torch") is not None:
        import torch

        from .. import kernels

        devices = {"cpu": f"{torch.get_num_threads()} threads, {torch.backends.cpu.get_cpu_capability()}"}
        for index in range(torch.cuda.device_count()):
            properties = torch.cuda.get_device_properties(index)
            devices[f"cuda:{index}"] = f"{properties.name}, {format_amount(properties.total_memory, 'B')}"
        if torch.backends.mps.is_available():
            devices["mps"] = "available"
        values["device"] = devices
        values["kernels"] = kernels.status()
    return values


def package_version(name: str) -> str:
    """Returns the version of an installed package, or an empty string."""
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return ""


def schema(
    task: Annotated[str | None, typer.Argument(help="Only of this task. (default: all)", show_default=False)] = None,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="Write it to a file.")] = None,
    plugin: o.Plugin = None,
) -> None:
    """Print the JSON Schema of the configuration, for completion and checks in an editor."""
    from ..core.files import write_text
    from ..runs.configure import add_plugins, config_schema

    add_plugins(plugin)
    text = json_module.dumps(config_schema(task), indent=2, ensure_ascii=False) + "\n"
    if out is None:
        print(text, end="")
    else:
        write_text(out, text)
        print(out)


def import_model(
    source: Annotated[str, typer.Argument(help="A folder, a name on the hub, or an ARPA file.", show_default=False)],
    out: o.Out = None,
) -> None:
    """Make a run folder from a model of another program.

    A folder of transformers, a name on its hub, or the ARPA file of an n-gram model.
    """
    from ..runs import exchange

    print(exchange.import_model(source, out, note).path)


def export_model(
    run: o.RunPath,
    format: Annotated[
        str | None,
        typer.Option(
            "--format", help="transformers, sentence-transformers, or arpa for n-gram models. (default: by the model)"
        ),
    ] = None,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="The folder or file to write.")] = None,
    plugin: o.Plugin = None,
) -> None:
    """Write a model for another program: a folder of transformers, or an ARPA file."""
    from ..runs import exchange
    from ..runs.configure import add_plugins

    add_plugins(plugin)
    print(exchange.export_model(run, out, format))


def card(run: o.RunPath) -> None:
    """Write the model card of a run, README.md, again."""
    from ..core.run_folder import RunFolder
    from ..report import write_card

    print(write_card(RunFolder(run)))


COMMANDS = {
    name: o.single_command(name, function, panel)
    for name, function, panel in (
        ("import", import_model, o.EXCHANGE),
        ("export", export_model, o.EXCHANGE),
        ("card", card, o.EXCHANGE),
        ("doctor", doctor, o.MACHINE),
        ("schema", schema, o.MACHINE),
    )
}
