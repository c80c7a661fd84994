"""Writes docs/reference.md from the code: what a setting is and does is said in one place, its field.

python docs/make.py            writes the page
python docs/make.py --check    tells whether it is current
"""

from __future__ import annotations

import inspect
import sys
from pathlib import Path
from typing import Any, get_args

from pydantic import BaseModel
from pydantic_core import PydanticUndefined

from seriatim.core import registry
from seriatim.decode.options import DecodeSettings, TranslateSettings
from seriatim.training.settings import DistilSettings, TrainSettings

PAGE = Path(__file__).parent / "reference.md"


def rows(settings: type[BaseModel], prefix: str) -> list[str]:
    found = []
    for name, field in settings.model_fields.items():
        inner = [t for t in (field.annotation, *get_args(field.annotation)) if inspect.isclass(t)]
        nested = next((t for t in inner if issubclass(t, BaseModel)), None)
        if nested is not None:
            found += rows(nested, f"{prefix}{name}.")
            continue
        default = field.get_default(call_default_factory=True)
        shown = "required" if default is PydanticUndefined else f"`{_value(default)}`"
        text = (field.description or "").replace("|", "\\|")
        found.append(f"| `{prefix}{name}` | {shown} | {text} |")
    return found


def _value(default: Any) -> str:
    return "null" if default is None else str(default).lower() if isinstance(default, bool) else str(default)


def table(settings: type[BaseModel], prefix: str) -> str:
    return "\n".join(["| setting | default | what it does |", "|---|---|---|", *rows(settings, prefix)])


def page() -> str:
    parts = ["# Reference", "Made by `make docs` from the code. Set any of these with `--set` or in a `--config` file."]
    for name in registry.tasks.names():
        module = registry.tasks.load(name)
        parts += [f"## Task `{name}`", inspect.cleandoc(module.__doc__ or "")]
        parts += [table(module.Settings, "task."), table(module.DataSettings, "data.")]
    parts += ["## Training", table(TrainSettings, "train."), "## Distilling", table(DistilSettings, "distil.")]
    parts += ["## Generating", table(DecodeSettings, "")]
    parts += ["## Translating", table(TranslateSettings, "")]
    parts += ["# Models"]
    for name in registry.models.names():
        module = registry.models.load(name)
        parts += [f"## `{name}`", f"```text\n{inspect.cleandoc(module.__doc__ or '')}\n```"]
        parts += [table(module.Settings, "model.")]
    return "\n\n".join(parts) + "\n"


if __name__ == "__main__":
    if "--check" in sys.argv:
        sys.exit(0 if PAGE.read_text(encoding="utf-8") == page() else "docs/reference.md is old: `make docs`")
    PAGE.write_text(page(), encoding="utf-8")
    print(PAGE)
