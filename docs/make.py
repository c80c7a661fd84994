"""Writes what the documentation takes from the code: what a setting is and does is said in one place, its field.

python docs/make.py            writes docs/reference.md, and the parts of all other pages that are marked so:

    <!-- made: idea lstm -->   what stands here is made anew   <!-- made -->

python docs/make.py --check    tells whether all is current
"""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any, get_args

from pydantic import BaseModel
from pydantic_core import PydanticUndefined

from seriatim.core import registry
from seriatim.data.catalogue import ENTRIES
from seriatim.decode.options import DecodeSettings, TranslateSettings
from seriatim.inspect import VIEWS
from seriatim.training.settings import DistilSettings, TrainSettings

DOCS = Path(__file__).parent
REFERENCE = DOCS / "reference.md"
MADE = re.compile(r"(<!-- made: (\w+) ?(\S*) -->\n).*?(<!-- made -->)", flags=re.S)


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
        found.append(f"| `{prefix}{name}` | {shown} | {_cell(field.description or '')} |")
    return found


def _value(default: Any) -> str:
    return "null" if default is None else str(default).lower() if isinstance(default, bool) else str(default)


def _cell(text: str) -> str:
    return _plain(text).replace("|", "\\|")


def _plain(text: str) -> str:
    """Signs that Markdown would take for a tag, as <eos>, written so that they are shown."""
    return re.sub(r"`[^`]*`|<", lambda found: "&lt;" if found[0] == "<" else found[0], text)


def table(settings: type[BaseModel], prefix: str) -> str:
    return "\n".join(["| setting | default | what it does |", "|---|---|---|", *rows(settings, prefix)])


def prose(module: ModuleType) -> str:
    """A docstring as Markdown: its formulas are indented, which Markdown shows as they stand."""
    lines = inspect.cleandoc(module.__doc__ or "").splitlines()
    paragraphs = "\n".join(line if line.startswith("    ") else _plain(line) for line in lines)
    # A line of a formula may follow its paragraph at once, which Markdown would take for more of the paragraph.
    paragraphs = re.sub(r"(?m)^(?!    )(.+)\n(?=    )", r"\1\n\n", paragraphs)
    return re.sub(r"(?m)^(    .+)\n(?=\S)", r"\1\n\n", paragraphs)


# ── the parts of pages ────────────────────────────────────────────────────────────────────────────────────────────


def idea(model: str) -> str:
    return prose(registry.models.load(model))


def settings(model: str) -> str:
    return table(registry.models.load(model).Settings, "model.")


def task(name: str) -> str:
    """What is learned, without the first sentence, which says what the page has said."""
    text = prose(registry.tasks.load(name))
    return f"{text.partition(chr(10))[2].strip()}\n\nIts settings: [reference](reference.md#task-{name})."


def models(_: str) -> str:
    lines = [f"| [`{name}`](models/{name}.md) | {registry.models.summary(name)} |" for name in registry.models.names()]
    return "\n".join(["| model | what it is |", "|---|---|", *lines])


def views(_: str) -> str:
    lines = [f"| `--{name}` | {_cell(view.help)} |" for name, view in VIEWS.items()]
    return "\n".join(["| view | what it shows |", "|---|---|", *lines])


def catalogue(_: str) -> str:
    lines = [f"| `{one.name}` | {one.task} | {_cell(one.summary)} | {one.licence} |" for one in ENTRIES.values()]
    return "\n".join(["| name | task | what it is | licence |", "|---|---|---|---|", *lines])


PARTS: dict[str, Callable[[str], str]] = {
    "idea": idea, "settings": settings, "task": task, "models": models, "views": views, "catalogue": catalogue,
}  # fmt: skip


def renewed(text: str) -> str:
    """A page with its marked parts made anew."""
    return MADE.sub(lambda found: f"{found[1]}\n{PARTS[found[2]](found[3])}\n\n{found[4]}", text)


# ── the reference ─────────────────────────────────────────────────────────────────────────────────────────────────


def task_pages() -> dict[str, str]:
    """The page that explains each task: the one with the part that is made from it."""
    pages = {path: path.read_text(encoding="utf-8") for path in sorted(DOCS.glob("*.md"))}
    return {found[3]: path.name for path, text in pages.items() for found in MADE.finditer(text) if found[2] == "task"}


def reference() -> str:
    parts = ["# Reference", "Made by `make docs` from the code. Set any of these with `--set` or in a `--config` file."]
    pages = task_pages()
    for name in registry.tasks.names():
        module = registry.tasks.load(name)
        parts += [f"## Task `{name}`", f"{registry.tasks.summary(name)}: [more]({pages[name]})."]
        parts += [table(module.Settings, "task."), table(module.DataSettings, "data.")]
    parts += ["## Training", table(TrainSettings, "train."), "## Distilling", table(DistilSettings, "distil.")]
    parts += ["## Generating", table(DecodeSettings, "")]
    parts += ["## Translating", table(TranslateSettings, "")]
    parts += ["## Models", "The settings of a model stand on its page:", models("")]
    return "\n\n".join(parts) + "\n"


def pages() -> dict[Path, str]:
    """All that is made, by file."""
    others = [path for path in sorted(DOCS.rglob("*.md")) if path != REFERENCE]
    return {path: renewed(path.read_text(encoding="utf-8")) for path in others} | {REFERENCE: reference()}


if __name__ == "__main__":
    old = {path: text for path, text in pages().items() if path.read_text(encoding="utf-8") != text}
    if "--check" in sys.argv:
        names = ", ".join(str(path.relative_to(DOCS.parent)) for path in old)
        sys.exit(f"{names}: old, `python docs/make.py` makes them anew" if old else 0)
    for path, text in old.items():
        path.write_text(text, encoding="utf-8")
        print(path)
