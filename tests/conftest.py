"""Every test session has a cache of its own, but for the compiled kernels: those take a minute to build."""

from __future__ import annotations

import atexit
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
os.environ.pop("SERIATIM_DATA", None)
os.environ.setdefault("OMP_NUM_THREADS", "1")  # xdist runs a process for each core
sys.path.insert(0, str(Path(__file__).parent))


def _own_cache() -> str:
    from seriatim.core.files import cache_folder

    kernels = cache_folder("kernels")
    folder = tempfile.mkdtemp(prefix="seriatim-tests-")
    Path(folder, "kernels").symlink_to(kernels)
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


os.environ["SERIATIM_CACHE"] = _own_cache()


@pytest.fixture(autouse=True)
def _small_numbers() -> Iterator[None]:
    """A training makes the process flush denormals; Hypothesis refuses to draw numbers in such a process."""
    yield
    if "torch" in sys.modules:
        sys.modules["torch"].set_flush_denormal(False)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Prints how many cases the fuzzers ran, in all processes, and what failed."""
    reports = [report for group in terminalreporter.stats.values() for report in group]
    called = [report for report in reports if getattr(report, "when", "") == "call"]
    tallies = [value for report in called for key, value in report.user_properties if key == "fuzz"]
    if tallies:
        cases, failures = sum(cases for cases, _ in tallies), [line for _, lines in tallies for line in lines]
        terminalreporter.write_line(f"fuzz: {cases:,} cases by {len(tallies)} fuzzers, {len(failures)} failures")
        for line in failures:
            terminalreporter.write_line(f"  {line}")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--rewrite-prose", action="store_true", help="write tests/golden/prose instead of comparing")


@pytest.fixture
def prose(request: pytest.FixtureRequest) -> Callable[..., None]:
    """Compares sentences with those of the test in tests/golden/prose; `name` tells several texts of one test apart."""
    from prose import check_prose

    def check(texts: Sequence[str] | str, name: str = "") -> None:
        module = Path(str(request.path)).stem.removeprefix("test_")
        heading = f"{request.node.name} {name}".rstrip()
        check_prose(module, heading, [texts] if isinstance(texts, str) else texts, rewriting)

    rewriting = bool(request.config.getoption("--rewrite-prose"))
    return check


@pytest.fixture(scope="session")
def book(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A little text with structure to learn."""
    lines = [f"the {a} {b} the {c}." for a in ("old", "new") for b in ("cat saw", "dog bit") for c in ("hat", "man")]
    path = tmp_path_factory.mktemp("book") / "book.txt"
    path.write_text("\n".join(lines * 40) + "\n", encoding="utf-8")
    return path


@pytest.fixture
def desk(tmp_path: Path, book: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A working folder with the small files that the documentation names."""
    from desk import write_files
    from pages import DOCS, blocks
    from seriatim.core import registry
    from seriatim.tasks.base import Task

    write_files(tmp_path, book.read_text(encoding="utf-8"))
    model = blocks((DOCS / "adding.md").read_text(encoding="utf-8"), "python")[0]
    (tmp_path / "mymodel.py").write_text(model.text, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    yield tmp_path
    registry.models._files.clear()
    Task.registry.pop("rank", None)
    sys.modules.pop("plugin_rank", None)
