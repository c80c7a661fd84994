"""The shape of the package: who may import whom, small folders, who may name models and tasks, no pickle."""

from __future__ import annotations

import ast
import importlib.util
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

import seriatim
from seriatim import tasks
from seriatim.core import registry

ROOT = Path(seriatim.__file__).parent
FILES = sorted(ROOT.rglob("*.py"))
# Where models and tasks may be named: their own folders, tables of data and of weights, and lectures.
NAMING = {"models", "tasks", "lab", "hub/mappings", "data/catalogue"}
ALLOWED = {  # file → names that stand in it, and why
    "data/formats/coco.py": ({"caption"}, "the column of a format"),
    "data/images/store.py": ({"caption"}, "the column of a format"),
    "data/settings.py": ({"bert"}, "a kind of tokenizer"),
    "data/tokenizers/external.py": ({"bert"}, "a kind of tokenizer"),
    "data/tokenizers/tokenizer.py": ({"bert"}, "a kind of tokenizer"),
    "data/tokenizers/training.py": ({"bert"}, "a kind of tokenizer"),
    "hub/writing.py": ({"bert"}, "a kind of tokenizer"),
    "inspect/views/transitions.py": ({"tag"}, "the axis of a chart"),
    "kernels/__init__.py": ({"linear"}, "a file of C++"),
    "kernels/recurrent.py": ({"rnn", "lstm", "gru"}, "functions of the kernels"),
    "kernels/self_test.py": ({"rnn", "lstm", "gru", "transformer"}, "functions of the kernels"),
    "nn/native.py": ({"lstm", "gru", "transformer"}, "functions of the kernels"),
    "report/cells.py": ({"caption"}, "a style of text"),
    "report/plots.py": ({"forecast", "linear"}, "the name of a line, and a kind of axis"),
    "runs/configure.py": ({"linear"}, "a schedule"),
    "runs/exchange.py": ({"ngram"}, "ARPA files hold this model"),
    "training/config.py": ({"linear"}, "a schedule"),
    "training/optimizer.py": ({"linear"}, "a schedule"),
}
READING = ("startswith", "endswith", "removeprefix", "removesuffix", "partition", "split", "find", "index")

BELOW_TASKS = {"core", "kernels", "nn", "models", "data", "decode", "embedding", "report"}
MAY_IMPORT = {
    "core": set(),
    "kernels": {"core"},
    "report": {"core"},
    "decode": {"core", "nn"},
    "data": {"core"},
    "nn": {"core", "kernels"},
    "models": {"core", "kernels", "nn"},
    "embedding": {"core", "data", "nn"},
    "hub": {"core", "data", "nn", "models"},
    "tasks": BELOW_TASKS,
    "training": BELOW_TASKS | {"tasks"},
    "inspect": BELOW_TASKS | {"tasks", "training"},
    "runs": BELOW_TASKS | {"tasks", "training", "inspect", "hub"},
    "api": BELOW_TASKS | {"tasks", "training", "inspect", "hub", "runs"},
    # the lab may use everything but the command line, and only that imports it: tables name its views and generators
    "lab": BELOW_TASKS | {"tasks", "training", "inspect", "hub", "runs", "api"},
    "cli": BELOW_TASKS | {"tasks", "training", "inspect", "hub", "runs", "api", "lab"},
}
MAX_FILES = 20  # of a folder
DIALECT = re.compile(
    r"^_?(told|said|found|wanted|asked|given|some|made|seen|taught|kept|begun|judged|chosen|drawn|placed|named|remarks)$"
)


def package_of(path: Path) -> str:
    return path.relative_to(ROOT).parts[0].removesuffix(".py")


def imported_packages(path: Path) -> set[str]:
    """Returns the packages of seriatim that a file imports: at the top, in functions and for type checking."""
    package = ["seriatim", *path.relative_to(ROOT).with_suffix("").parts][:-1]
    packages: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            full = ".".join([*base, *([node.module] if node.module else [])])
            names = [f"{full}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        else:
            continue
        packages |= {name.split(".")[1] for name in names if name.startswith("seriatim.")}
    return packages - {"_version", "__version__"}


def test_packages_import_only_those_below_them() -> None:
    wrong = []
    for path in FILES:
        package = package_of(path)
        if package in ("__init__", "__main__", "_version"):
            continue
        for other in sorted(imported_packages(path) - MAY_IMPORT[package] - {package}):
            wrong.append(f"{path.relative_to(ROOT)} imports {other}")
    assert not wrong, "\n".join(wrong)


def test_folders_are_small() -> None:
    counts = Counter(path.parent for path in FILES)
    assert not {str(folder): count for folder, count in counts.items() if count > MAX_FILES}


def literals(tree: ast.Module) -> list[ast.Constant]:
    """Returns the string constants of a file that are no docstrings."""
    blocks = [node for node in ast.walk(tree) if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef)]
    docstrings = {id(node.body[0].value) for node in blocks if node.body and isinstance(node.body[0], ast.Expr)}
    constants = [node for node in ast.walk(tree) if isinstance(node, ast.Constant) and isinstance(node.value, str)]
    return [node for node in constants if id(node) not in docstrings]


def test_models_and_tasks_are_named_where_they_are_declared() -> None:
    """What others need to know of a model or a task, it declares; each exception is another thing of the same name."""
    names = {*tasks.NAMES, *registry.models.names()}
    assert len(names) > 25
    wrong, met = [], set()
    for path in FILES:
        file = path.relative_to(ROOT).as_posix()
        if any(file.startswith(f"{folder}/") for folder in NAMING):
            continue
        allowed, _ = ALLOWED.get(file, (set(), ""))
        for node in literals(ast.parse(path.read_text(encoding="utf-8"))):
            if node.value in names and node.value not in allowed:
                wrong.append(f"{file}:{node.lineno}: {node.value!r}")
            elif node.value in names:
                met.add((file, node.value))
    assert not wrong, "\n".join(wrong)
    listed = {(file, name) for file, (allowed, _) in ALLOWED.items() for name in allowed}
    assert listed == met, "an exception has no use any more"


def test_only_tasks_know_their_classes() -> None:
    """There is no isinstance of a concrete task or predictor elsewhere."""
    wrong = []
    for path in FILES:
        if package_of(path) in ("tasks", "cli") or "catalogue" in path.parts:
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and ast.unparse(node.func) == "isinstance" and len(node.args) > 1:
                classes = re.findall(r"\w+(?:Task|Predictor)\b", ast.unparse(node.args[1]))
                if classes:
                    wrong.append(f"{path.relative_to(ROOT)}:{node.lineno}: {ast.unparse(node)}")
    assert not wrong, "\n".join(wrong)


def test_notes_are_for_people() -> None:
    """No code reads the words of a note: who needs a fact gets it as a value, such as a `Finding`."""
    wrong = [
        f"{path.relative_to(ROOT)}:{node.lineno}: {ast.unparse(node)}"
        for path in FILES
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr in READING
        and re.search(r"\bnotes?\b", ast.unparse(node.func.value))
    ]
    assert not wrong, "\n".join(wrong)


def test_functions_have_names_of_the_field() -> None:
    wrong = [
        f"{path.relative_to(ROOT)}:{node.lineno}: {node.name}"
        for path in FILES
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.FunctionDef) and DIALECT.match(node.name)
    ]
    assert not wrong, "\n".join(wrong)


def test_functions_are_not_hidden_by_folders() -> None:
    """`seriatim.train` is a function, whatever was imported before."""
    import seriatim.training.loop

    assert all(callable(getattr(seriatim, name)) for name in seriatim.__all__ if not name.startswith("_"))


def test_import_and_help_do_not_import_torch() -> None:
    code = (
        "import sys, seriatim; from seriatim.cli import run\n"
        "assert run(['--help']) == 0 and run(['train', '--help']) == 0 and run(['list']) == 0 and run(['runs']) == 0\n"
        "print('torch' in sys.modules, 'pandas' in sys.modules, 'altair' in sys.modules)"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.splitlines()[-1] == "False False False"


def test_no_pickle() -> None:
    for path in FILES:
        text = path.read_text(encoding="utf-8")
        for node in ast.walk(ast.parse(text)):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import | ast.ImportFrom) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            assert not {"pickle", "cloudpickle", "dill", "joblib", "marshal", "shelve"} & set(names), path
        if "torch.load(" in text:  # older weights of the hub, read as tensors only
            assert path.parent.name == "hub", path
            assert text.count("torch.load(") == text.count("weights_only=True") == 1, path
        assert "torch.save(" not in text, path
        assert "allow_pickle=True" not in text, path


@pytest.mark.parametrize(
    "file", sorted((Path(__file__).parents[1] / "benchmarks").glob("*.py")), ids=lambda file: file.stem
)
def test_benchmarks_import_what_is_there(file: Path) -> None:
    """Benchmarks need packages that the tests do not have; what they take from this package exists."""
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == "seriatim":
            module = importlib.import_module(str(node.module))
            for alias in node.names:
                there = hasattr(module, alias.name) or importlib.util.find_spec(f"{node.module}.{alias.name}")
                assert there, f"{node.module}.{alias.name}"
