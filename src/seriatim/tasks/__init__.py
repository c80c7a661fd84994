"""Tasks, one folder each. `load` returns a task by its name; `add_file` registers one from a user's file.

Importing this package imports no torch: `seriatim.tasks.NAME.spec` declares a task without it.
"""

from __future__ import annotations

import importlib
from importlib.metadata import entry_points
from pathlib import Path
from typing import TYPE_CHECKING

from ..core.errors import SeriatimError, did_you_mean
from ..core.registry import import_file

if TYPE_CHECKING:
    from .base import AnyTask
    from .spec import TaskSpec

NAMES = tuple(sorted(file.parent.name for file in Path(__file__).parent.glob("*/spec.py")))  # those built in
ENTRY_POINTS = "seriatim.tasks"  # the group under which installed packages name their tasks


def load(name: str) -> type[AnyTask]:
    """Returns the class of a task, and imports its module or its package's entry point if needed."""
    from .base import Task

    if name in NAMES:
        importlib.import_module(f"{__name__}.{name}.task")
    elif name not in Task.registry:
        for point in entry_points(group=ENTRY_POINTS, name=name):
            point.load()
    if name not in Task.registry:
        raise SeriatimError("task.unknown", f'there is no task "{name}"', did_you_mean(name, names()))
    return Task.registry[name]


def names() -> list[str]:
    """Returns the names of all tasks: built in, registered from files, and of installed packages."""
    from .base import Task

    return sorted({*NAMES, *Task.registry, *(point.name for point in entry_points(group=ENTRY_POINTS))})


def load_spec(name: str) -> TaskSpec:
    """Returns the declaration of a task; that of a built-in one without importing torch."""
    if name not in NAMES:
        return load(name).spec
    declared: TaskSpec = importlib.import_module(f"{__name__}.{name}.spec").SPEC
    return declared


def load_all() -> dict[str, type[AnyTask]]:
    """Returns all tasks by name."""
    return {name: load(name) for name in names()}


def add_file(path: str | Path) -> None:
    """Imports a file that defines a task or a codec: subclasses of `Task` and `InputCodec` register themselves."""
    from .base import Task
    from .codecs import InputCodec

    path = Path(path).resolve()
    module = import_file(path, f"plugin_{path.stem}")
    own = [value for value in vars(module).values() if getattr(value, "__module__", "") == module.__name__]
    if not any(isinstance(value, type) and issubclass(value, (Task, InputCodec)) for value in own):
        remedy = "define a subclass of Task with a name, of InputCodec with a modality, or a model's class Settings"
        raise SeriatimError("plugin.incomplete", f"{path} defines neither a task nor a model nor a codec", remedy)
