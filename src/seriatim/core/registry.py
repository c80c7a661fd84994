"""Registry of models: each public module of a package is an entry of that name.

Names, titles and summaries are read from the source without importing it, so that listing models is cheap; a module is
imported when it is loaded. `add_file` registers a user's own file.
"""

from __future__ import annotations

import ast
import contextlib
import importlib
import importlib.util
import sys
import traceback
from collections.abc import Iterable
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

from .errors import SeriatimError, did_you_mean

if TYPE_CHECKING:
    from .model_info import ModelInfo


class Registry:
    def __init__(self, kind: str, package: str) -> None:
        self.kind = kind
        self.package = package
        self._files: dict[str, Path] = {}
        self._infos: dict[Path, ModelInfo] = {}

    def names(self) -> list[str]:
        return sorted(self._sources())

    def summary(self, name: str) -> str:
        """Returns the first line of the module's docstring."""
        return (ast.get_docstring(self._parse(name)) or "").partition("\n")[0].rstrip(".")

    def infos(self, names: Iterable[str]) -> dict[str, ModelInfo]:
        """Returns what the classes Settings of modules declare for reports, of the names that are entries."""
        sources = self._sources()
        return {name: self._info(name, sources[name]) for name in names if name in sources}

    def _info(self, name: str, path: Path) -> ModelInfo:
        """Returns the literals that `ModelInfo` knows among the class variables of a module's class Settings."""
        from .model_info import ModelInfo  # imports pydantic, which --help does not need

        if path not in self._infos:
            declared = {}
            for node in self._parse(name).body:
                for line in node.body if isinstance(node, ast.ClassDef) and node.name == "Settings" else []:
                    if isinstance(line, ast.AnnAssign) and ast.unparse(line.target) in ModelInfo.model_fields:
                        with contextlib.suppress(ValueError):  # no literal
                            declared[ast.unparse(line.target)] = ast.literal_eval(line.value or ast.Constant(None))
            try:
                self._infos[path] = ModelInfo.model_validate(declared)
            except ValueError:  # of a user's file; loading it raises the error
                return ModelInfo()
        return self._infos[path]

    def _parse(self, name: str) -> ast.Module:
        """Returns the syntax tree of a module, which is not imported."""
        path = self._find(name)
        try:
            return ast.parse(path.read_text(encoding="utf-8"))
        except SyntaxError as error:
            raise _broken(path, error) from error

    def load(self, name: str) -> ModuleType:
        """Imports the module of an entry: built in, a user's file, or of an installed package."""
        path = self._find(name)
        if name not in self._files:
            if (point := self._entry_points().get(name)) is not None:
                module: ModuleType = point.load()
                return module
            return importlib.import_module(f"{self.package}.{name}")
        module = import_file(path, f"{self.package}.{name}")
        if not hasattr(module, "Settings"):
            del sys.modules[module.__name__]
            raise SeriatimError(
                "plugin.incomplete",
                f"{path} defines no class Settings",
                f"define the settings of the {self.kind} and how to build it: see the files of {self.package}",
            )
        return module

    def add_file(self, path: str | Path) -> str:
        """Registers a user's own file under its name without the suffix, and returns that name."""
        path = Path(path)
        with contextlib.suppress(OSError, ValueError):  # no name of a file
            path = path.resolve()
        if path.suffix != ".py" or not path.is_file():
            raise SeriatimError(
                "plugin.missing", f"there is no Python file {path}", f"name a file that defines a {self.kind}"
            )
        if path.stem in self._builtin():
            raise SeriatimError(
                "plugin.name-taken",
                f'{self.kind} "{path.stem}" is built in',
                f"rename {path.name}: its name is the entry's",
            )
        if self._files.get(path.stem) not in (None, path):
            sys.modules.pop(f"{self.package}.{path.stem}", None)
        self._files[path.stem] = path
        self._infos.pop(path, None)  # it may have been edited
        return path.stem

    def _builtin(self) -> dict[str, Path]:
        spec = importlib.util.find_spec(self.package)
        folders = spec.submodule_search_locations if spec is not None else None
        files = (file for folder in folders or [] for file in Path(folder).glob("*.py"))
        return {file.stem: file for file in files if not file.stem.startswith("_")}

    def _entry_points(self) -> dict[str, EntryPoint]:
        """Returns the entries of installed packages, which name a module under the entry points of the package."""
        return {point.name: point for point in entry_points(group=self.package)}

    def _sources(self) -> dict[str, Path]:
        installed = {}
        for name, point in self._entry_points().items():
            spec = importlib.util.find_spec(point.module)
            if spec is not None and spec.origin is not None:
                installed[name] = Path(spec.origin)
        return installed | self._builtin() | self._files

    def _find(self, name: str) -> Path:
        sources = self._sources()
        if name not in sources:
            raise SeriatimError(
                f"{self.kind}.unknown", f'there is no {self.kind} "{name}"', did_you_mean(name, sources)
            )
        return sources[name]


def import_file(path: Path, module_name: str) -> ModuleType:
    """Imports a user's own file under a name, once; an error in it becomes one with file and line."""
    if module_name in sys.modules:
        return sys.modules[module_name]
    spec = importlib.util.spec_from_file_location(module_name, path)
    if not path.is_file() or spec is None or spec.loader is None:
        raise SeriatimError("plugin.missing", f"there is no Python file {path}", "name a file that ends in .py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[module_name] = module  # dataclasses look up their module
    try:
        spec.loader.exec_module(module)
    except BaseException as error:
        del sys.modules[module_name]
        if isinstance(error, SeriatimError) or not isinstance(error, Exception):
            raise
        raise _broken(path, error) from error
    return module


def _broken(path: Path, error: Exception) -> SeriatimError:
    """Returns the error of a user's file that does not run, with the line in it."""
    frames = traceback.extract_tb(error.__traceback__)
    lines = [frame.lineno for frame in frames if frame.filename == str(path)]
    line = error.lineno if isinstance(error, SyntaxError) else lines[-1] if lines else None
    reason = error.msg if isinstance(error, SyntaxError) else error
    return SeriatimError(
        "plugin.broken",
        f"{path}" + (f", line {line}" if line else "") + f": {type(error).__name__}: {reason}",
        "correct the file; running it with `python` shows the same error",
    )


models = Registry("model", "seriatim.models")
