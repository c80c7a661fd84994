"""Who may import whom, and that a model is one file: what keeps the project simple."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import seriatim

ROOT = Path(seriatim.__file__).parent

# A ← B of DESIGN.md, each with all that stands below it.
MAY_IMPORT = {
    "core": set(),
    "kernels": {"core"},
    "nn": {"core", "kernels"},
    "models": {"core", "kernels", "nn"},
    "data": {"core"},
    "hub": {"core", "models", "data"},
    "decode": {"core"},
    "tasks": {"core", "nn", "models", "data", "decode"},
    "training": {"core", "nn", "models", "tasks"},
    "inspect": {"core", "nn", "models", "data", "decode", "tasks", "runs", "report"},
    "runs": {"core", "nn", "models", "data", "decode", "tasks", "training", "report", "inspect"},
    "report": {"core", "runs"},
    "session": {"core", "nn", "models", "tasks", "training", "runs", "report", "origin", "inspect"},
    "api": {"core", "nn", "models", "data", "tasks", "training", "runs", "report", "origin", "session"},
    "origin": {"core", "nn", "data", "hub"},
    "exchange": {"core", "nn", "hub", "training", "runs", "report", "session"},
    "distilling": {"core", "decode", "training", "runs", "report", "api", "session"},
    "averaging": {"core", "training", "runs", "report", "session", "nn"},
    "reproduce": {"core", "runs", "report", "api"},
    "cli": {
        "core",
        "data",
        "decode",
        "training",
        "runs",
        "report",
        "api",
        "averaging",
        "distilling",
        "inspect",
        "kernels",
        "reproduce",
        "exchange",
    },
}
FREE = {"_version", "__init__", "__main__"}


def part_of(path: Path) -> str:
    first = path.relative_to(ROOT).parts[0]
    return first.removesuffix(".py")


def imported(path: Path) -> set[str]:
    """The parts of the package that a file imports, anywhere in it, type checking aside."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    package = ["seriatim", *path.relative_to(ROOT).with_suffix("").parts][:-1]
    hidden = {
        id(inner)
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
        for inner in ast.walk(node)
    }
    found: set[str] = set()
    for node in ast.walk(tree):
        if id(node) in hidden:
            continue
        if isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            full = ".".join([*base, *([node.module] if node.module else [])])
            names = [f"{full}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        else:
            continue
        found |= {name.split(".")[1] for name in names if name.startswith("seriatim.")}
    return found


FILES = sorted(path for path in ROOT.rglob("*.py") if part_of(path) not in FREE)


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_import_direction(path: Path) -> None:
    part = part_of(path)
    wrong = imported(path) - MAY_IMPORT[part] - {part, "_version", "__version__"}
    assert not wrong, f"{part} may not import {', '.join(sorted(wrong))}"


def test_functions_are_not_hidden_by_folders() -> None:
    """`seriatim.train` is a function, whatever was imported before."""
    import seriatim.training.loop

    assert all(callable(getattr(seriatim, name)) for name in seriatim.__all__ if not name.startswith("_"))


def test_the_package_itself_is_light() -> None:
    """`import seriatim` is free; torch comes with the first use."""
    import subprocess
    import sys

    code = "import seriatim, sys; print('torch' in sys.modules, seriatim.__version__)"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert out.split() == ["False", seriatim.__version__]


def test_no_pickle_anywhere() -> None:
    for path in ROOT.rglob("*.py"):
        text = path.read_text(encoding="utf-8")
        for node in ast.walk(ast.parse(text)):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import | ast.ImportFrom) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            assert not {"pickle", "cloudpickle", "dill", "joblib", "marshal", "shelve"} & set(names), path
        if "torch.load(" in text:  # the older weights of the hub, by the reader that knows tensors only
            assert path.parent.name == "hub", path
            assert text.count("torch.load(") == text.count("weights_only=True") == 1, path
        assert "torch.save(" not in text, path
