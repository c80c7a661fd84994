"""Tell what this machine offers and what is missing."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import platform
import sys
from typing import Any

from . import _options as o
from ._output import amount, print_json, print_table

NEEDED = ("torch", "numpy", "safetensors", "tokenizers", "pydantic", "typer", "pyarrow", "altair", "vl-convert-python")
OPTIONAL = {"transformers": "compare with Hugging Face models", "kenlm": "compare with KenLM"}


def command(json: o.Json = False) -> None:
    found = examine()
    if json:
        print_json(found)
        return
    rows = [(key, str(value)) for key, value in found.items() if not isinstance(value, dict)]
    for section in (key for key, value in found.items() if isinstance(value, dict)):
        rows += [(f"{section} {key}", str(value)) for key, value in found[section].items()]
    print_table(["what", "found"], rows, left=2)


def examine() -> dict[str, Any]:
    from .._version import __version__
    from ..core.files import cache_folder

    found: dict[str, Any] = {
        "seriatim": __version__,
        "python": f"{platform.python_version()} ({sys.executable})",
        "system": platform.platform(),
        "cores": os.cpu_count(),
        "cache": str(cache_folder()),
        "local data (SERIATIM_DATA)": os.environ.get("SERIATIM_DATA", "not set"),
        "package": {name: _version(name) or "MISSING: install seriatim again" for name in NEEDED},
        "optional": {name: _version(name) or f"not installed (to {use})" for name, use in OPTIONAL.items()},
    }
    if os.environ.get("PYTHONDONTWRITEBYTECODE"):
        found["warning"] = "PYTHONDONTWRITEBYTECODE is set: every start of torch takes twice as long"
    if importlib.util.find_spec("torch") is not None:
        found["device"] = _devices()
        from .. import kernels

        found["kernels"] = kernels.state()
    return found


def _version(name: str) -> str:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return ""


def _devices() -> dict[str, str]:
    import torch

    found = {"cpu": f"{torch.get_num_threads()} threads, {torch.backends.cpu.get_cpu_capability()}"}
    for index in range(torch.cuda.device_count()):
        properties = torch.cuda.get_device_properties(index)
        found[f"cuda:{index}"] = f"{properties.name}, {amount(properties.total_memory, 'B')}"
    if torch.backends.mps.is_available():
        found["mps"] = "available"
    return found
