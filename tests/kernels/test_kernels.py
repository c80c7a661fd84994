"""The loader of the native kernels: what is damaged or unfinished is built again, and what cannot be built is told.

A script stands for the compiler and another for the Python of the self-test, so that a build takes milliseconds.
"""

from __future__ import annotations

import os
import platform
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch

from seriatim import kernels
from seriatim.cli.machine import examine
from seriatim.kernels import self_test

PYTHON = sys.executable
GOOD = b"a library" * 1000
COMPILER = """#!/bin/sh
echo "$*" >> "$0.log"
for out; do :; done
case "$*" in
*--version*) echo "fake 1.0" ;;
*-shared*) {link} ;;
*) {compile} ;;
esac
"""
COMPILE, LINK = 'echo object > "$out"', 'cat "$0.good" > "$out"'
needs_kernels = pytest.mark.skipif(not kernels.load(), reason=f"no native kernels: {kernels.status()['reason']}")


class Machine:
    """A machine with a compiler, a self-test and a cache of its own."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.compiler, self.python, self.cache = folder / "compiler", folder / "python", folder / "cache/kernels"
        self.loaded: list[bytes] = []
        self.log = Path(f"{self.compiler}.log")
        Path(f"{self.compiler}.good").write_bytes(GOOD)
        self.write(self.python, "#!/bin/sh\nexit 0\n")
        self.set_compiler()
        monkeypatch.setenv("SERIATIM_CACHE", str(folder / "cache"))
        monkeypatch.setenv("CXX", str(self.compiler))
        monkeypatch.delenv("SERIATIM_KERNELS", raising=False)
        monkeypatch.delenv("SERIATIM_KERNELS_FLAGS", raising=False)
        monkeypatch.setattr(sys, "executable", str(self.python))
        monkeypatch.setattr(kernels, "_load_result", {})
        monkeypatch.setattr(torch.ops, "load_library", lambda path: self.loaded.append(Path(path).read_bytes()))

    @staticmethod
    def write(path: Path, text: str) -> None:
        path.write_text(text)
        path.chmod(0o755)

    def set_compiler(self, compile: str = COMPILE, link: str = LINK) -> None:
        self.write(self.compiler, COMPILER.format(compile=compile, link=link))

    def load(self) -> bool:
        """Loads the kernels as a new process would."""
        kernels._find_build.cache_clear()
        kernels.load.cache_clear()
        kernels._load_result.clear()
        return kernels.load()

    @property
    def links(self) -> int:
        return self.log.read_text().count("-shared") if self.log.exists() else 0

    @property
    def library(self) -> Path:
        return Path(kernels.status()["library"])

    def files(self) -> list[str]:
        return sorted(path.suffix or path.name for path in self.cache.iterdir() if path.suffix != ".lock")


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Machine]:
    kernels._find_build.cache_clear()
    kernels.load.cache_clear()
    yield Machine(tmp_path, monkeypatch)
    kernels._find_build.cache_clear()
    kernels.load.cache_clear()


def test_a_library_is_built_once(machine: Machine, capfd: pytest.CaptureFixture[str]) -> None:
    assert kernels.status()["status"] == "to be built on first use"
    assert machine.load()
    assert "building the native kernels" in capfd.readouterr().err
    assert machine.files() == [".json", ".so"]
    assert kernels.status()["status"] == "loaded"
    kernels._load_result.clear()
    assert kernels.status()["status"] == "built, self-test passed"
    assert machine.load()
    assert machine.loaded == [GOOD, GOOD]
    assert machine.links == 1
    assert capfd.readouterr().err == ""


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


@pytest.mark.parametrize(
    "damage",
    [
        flip,
        lambda path: path.write_bytes(path.read_bytes()[:-1]),
        lambda path: path.write_bytes(b""),
        lambda path: path.unlink(),
        lambda path: path.with_suffix(".json").unlink(),
        lambda path: path.with_suffix(".json").write_text('{"sha256": "'),
        lambda path: path.with_suffix(".json").write_text("[]"),
    ],
    ids=["flipped bit", "truncated", "empty", "missing", "no record", "torn record", "foreign record"],
)
def test_a_damaged_library_is_built_again(machine: Machine, damage: Callable[[Path], None]) -> None:
    machine.load()
    damage(machine.library)
    kernels._load_result.clear()
    assert kernels.status()["status"] in ("to be built on first use", "to be built again on first use")
    assert machine.load()
    assert machine.loaded == [GOOD, GOOD]
    assert machine.links == 2
    assert machine.files() == [".json", ".so"]


@needs_kernels
def test_damaged_machine_code_is_never_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the real library, loader, self-test and operators, in a process of its own."""
    real = Path(kernels.status()["library"])
    machine = Machine(tmp_path, monkeypatch)
    Path(f"{machine.compiler}.good").write_bytes(real.read_bytes())
    assert machine.load()
    code = machine.library.read_bytes()
    machine.library.write_bytes(code[:4096] + bytes(len(code) - 4096))  # it starts as a library and holds nothing
    out, err = started(tmp_path / "cache").communicate()
    assert out.startswith("True | loaded |"), err
    assert "building the native kernels" in err
    assert machine.library.read_bytes() == code


@pytest.mark.parametrize(
    ("python", "words"),
    [
        ("echo rnn differs >&2; exit 1", "rnn differs"),
        ("kill -SEGV $$", "SIGSEGV"),
        ("kill -ILL $$", "SIGILL"),
    ],
)
def test_a_failed_self_test_is_told_and_not_repeated(
    machine: Machine, python: str, words: str, capfd: pytest.CaptureFixture[str]
) -> None:
    machine.write(machine.python, f"#!/bin/sh\n{python}\n")
    assert not machine.load()
    assert "PyTorch is used instead (see `seriatim doctor`)" in capfd.readouterr().err
    assert machine.loaded == []
    assert machine.files() == [".json"]
    kernels._load_result.clear()
    values = examine()["kernels"]  # `seriatim doctor`
    assert values["status"] == "unavailable"
    assert values["to try again"] == "python -m seriatim.kernels"
    assert "the self-test of the kernels failed" in values["reason"]
    assert words in values["reason"]
    machine.write(machine.python, "#!/bin/sh\nexit 0\n")
    assert not machine.load()
    assert machine.links == 1
    assert capfd.readouterr().err == ""
    kernels.clear_failure()  # `python -m seriatim.kernels`
    assert machine.load()
    assert machine.loaded == [GOOD]


def test_the_self_test_notices_a_wrong_result() -> None:
    self_test.compare("cube", lambda x: x**3, lambda x: x * x * x, [(3, 4)])
    with pytest.raises(SystemExit, match=r"cube in torch\.float32 differs from its equations by"):
        self_test.compare("cube", lambda x: x**3, lambda x: x * x * x * 1.001, [(3, 4)])
    with pytest.raises(SystemExit, match="differs"):  # the value is right, the gradient is not
        self_test.compare("cube", lambda x: x**3, lambda x: x.detach() ** 3 + 0 * x, [(3, 4)])
    with pytest.raises(SystemExit, match="by nan"):
        self_test.compare("cube", lambda x: x**3 * float("nan"), lambda x: x**3, [(3, 4)])


PROBLEMS = {  # of the machine, and what the compiler then does
    "disk full while linking": {"link": 'echo half > "$out"; echo "ld: No space left on device" >&2; exit 1'},
    "disk full while compiling": {"compile": 'echo "fatal error: error writing: No space left on device" >&2; exit 1'},
    "linker out of memory": {"link": 'echo "collect2: fatal error: ld terminated with signal 9 [Killed]" >&2; exit 1'},
    "compiler killed": {"compile": "kill -9 $$"},
    "part of it killed": {"compile": 'echo "fatal error: Killed signal terminated program cc1plus" >&2; exit 1'},
    "a header is not installed": {"compile": 'echo "fatal error: omp.h: No such file or directory" >&2; exit 1'},
}


@pytest.mark.parametrize("problem", PROBLEMS)
def test_a_problem_of_the_machine_is_tried_again(
    machine: Machine, problem: str, capfd: pytest.CaptureFixture[str]
) -> None:
    machine.set_compiler(**PROBLEMS[problem])
    for _ in range(2):
        assert not machine.load()
        assert "PyTorch is used instead" in capfd.readouterr().err
        assert kernels.status()["status"] == "unavailable"
        assert kernels.status()["reason"]
        assert machine.files() == []
    machine.set_compiler()
    assert machine.load()
    assert machine.files() == [".json", ".so"]


def test_a_self_test_that_is_killed_is_tried_again(machine: Machine) -> None:
    machine.write(machine.python, "#!/bin/sh\nkill -9 $$\n")
    assert not machine.load()
    assert machine.files() == []
    machine.write(machine.python, "#!/bin/sh\nexit 0\n")
    assert machine.load()


def test_nothing_is_compiled_without_disk_space(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernels, "DISK_SPACE", 1 << 62)
    assert not machine.load()
    assert "no space left" in kernels.status()["reason"]
    assert machine.links == 0
    monkeypatch.undo()


def test_a_compiler_that_fails_is_asked_once(machine: Machine, capfd: pytest.CaptureFixture[str]) -> None:
    machine.set_compiler(compile="echo error: sorry >&2; exit 1")
    for attempt in range(2):
        assert not machine.load()
        assert "sorry" in kernels.status()["reason"]
        assert ("building the native kernels" in capfd.readouterr().err) == (attempt == 0)
    assert machine.log.read_text().count("recurrent.cpp") == len(kernels.TUNINGS)
    assert machine.files() == [".json"]


def test_the_first_options_that_work_are_used(machine: Machine) -> None:
    machine.set_compiler(compile=f'case "$*" in *native*) echo no >&2; exit 1;; esac; {COMPILE}')
    assert machine.load()
    assert "native" not in machine.log.read_text().splitlines()[-1]


WEAKER = {  # options that are refused → what is lost, and the options taken instead
    "*native*": ("threads and the vector instructions of this processor", "none"),
    "*openmp*": ("threads", "-march=native"),
}
X86 = platform.machine() in ("x86_64", "AMD64")


@pytest.mark.parametrize("refused", WEAKER)
def test_weaker_options_are_told(refused: str, machine: Machine, capfd: pytest.CaptureFixture[str]) -> None:
    lost, flags = WEAKER[refused]
    machine.set_compiler(compile=f'case "$*" in {refused}) echo error: no such thing >&2; exit 1;; esac; {COMPILE}')
    assert machine.load()
    assert f"built without {lost}" in capfd.readouterr().err
    assert f"built without {lost}: " in kernels.status()["warning"]
    assert "error: no such thing" in kernels.status()["warning"]
    assert kernels.status()["flags"] == flags
    kernels.load.cache_clear()  # the next process does not build, and still knows
    assert machine.load()
    assert "warning" in kernels.status()
    assert capfd.readouterr().err == ""


def test_other_options_that_are_as_good_are_shown_without_a_warning(machine: Machine) -> None:
    """Processors of ARM know -mcpu=native; for x86 it only tunes, and the vector instructions are lost."""
    assert machine.load()
    assert not {"flags", "warning"} & kernels.status().keys()
    machine.library.unlink()
    machine.set_compiler(compile=f'case "$*" in *march*) exit 1;; esac; {COMPILE}')
    assert machine.load()
    assert kernels.status()["flags"] == "-mcpu=native -fopenmp"
    assert ("without the vector instructions" in kernels.status().get("warning", "")) == X86


def test_a_library_that_cannot_be_loaded_is_built_again_once(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    """As when torch was replaced by another build of the same version."""
    machine.load()
    Path(f"{machine.compiler}.good").write_bytes(GOOD + b" for this torch")

    def refuse(path: str) -> None:
        if Path(path).read_bytes() == GOOD:
            raise OSError("undefined symbol")

    monkeypatch.setattr(torch.ops, "load_library", refuse)
    assert machine.load()
    assert machine.links == 2

    def refuse_all(path: str) -> None:
        raise OSError("undefined symbol")

    monkeypatch.setattr(torch.ops, "load_library", refuse_all)
    assert not machine.load()
    assert kernels.status()["reason"] == "undefined symbol"
    assert machine.links == 3


def test_leftovers_of_killed_builds_are_removed(machine: Machine) -> None:
    machine.cache.mkdir(parents=True)
    build = kernels._find_build()
    assert build is not None
    own = machine.cache / f"{build.prefix}so.x1y2z3"
    objects, old, other = (machine.cache / f".seriatim-{name}" for name in (f"{build.key}.o", "old.so.x", "other.so.x"))
    objects.mkdir()
    for path in (own, objects / "linear.o", old, other):
        path.write_text("half")
    os.utime(old, (time.time() - 2 * kernels.LEFTOVER_SECONDS,) * 2)
    assert machine.load()
    assert sorted(path.name for path in machine.cache.glob(".*")) == [other.name]  # another build may be at work there


REPORT = """
import torch
from seriatim import kernels
from seriatim.kernels import recurrent
y, h = recurrent.rnn(torch.zeros(2, 3, 4), torch.eye(4), torch.ones(2, 4))
assert torch.allclose(y[0, 0], torch.tanh(torch.ones(4)))
print(kernels.load(), "|", kernels.status()["status"], "|", kernels.status()["reason"])
"""


def started(cache: Path, **environment: str) -> subprocess.Popen[str]:
    own = {name: value for name, value in os.environ.items() if name != "SERIATIM_KERNELS"}
    own |= {"SERIATIM_CACHE": str(cache), **environment}
    return subprocess.Popen(
        [PYTHON, "-c", REPORT],
        env=own,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def test_a_killed_build_leaves_nothing_in_the_way(machine: Machine) -> None:
    machine.set_compiler(compile="sleep 600")
    process = started(machine.cache.parent)
    while not machine.log.exists() or " -c " not in machine.log.read_text():
        assert process.poll() is None, process.communicate()
        time.sleep(0.02)
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()
    assert [path for path in machine.cache.iterdir() if path.is_dir()]
    machine.set_compiler()
    assert machine.load()
    assert machine.files() == [".json", ".so"]


def test_of_several_processes_one_builds(machine: Machine, capfd: pytest.CaptureFixture[str]) -> None:
    machine.set_compiler(compile=f"sleep 0.1; {COMPILE}")
    build = kernels._find_build()
    assert build is not None
    with ThreadPoolExecutor(4) as pool:
        digests = set(pool.map(lambda _: kernels._intact_library(build), range(4)))
    assert len(digests) == 1
    assert machine.links == 1
    assert capfd.readouterr().err.count("building the native kernels") == 1


@pytest.mark.parametrize("form", ["env FLAVOR=1 {}", "{} -pipe", "'{}' -DNAME='two words'"])
def test_a_compiler_with_arguments(machine: Machine, form: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXX", form.format(machine.compiler))
    assert machine.load()
    assert machine.loaded == [GOOD]
    assert kernels.status()["compiler"] == "fake 1.0"
    if "-pipe" in form:
        assert machine.log.read_text().count("-pipe") == 1 + len(kernels.SOURCES) + 1


def test_flags_of_the_environment_make_another_library(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    machine.load()
    first = machine.library
    monkeypatch.setenv("SERIATIM_KERNELS_FLAGS", "-fsanitize=address -g")
    assert machine.load()
    assert machine.library != first
    assert machine.log.read_text().count("-fsanitize=address -g") == len(kernels.SOURCES) + 1


@pytest.mark.parametrize("name", ["/nowhere/compiler", "'", " ", "{tmp}/data"])
def test_what_is_no_compiler_is_passed_over(
    machine: Machine, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine.write(tmp_path / "data", "no program")
    monkeypatch.setenv("CXX", name.format(tmp=tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    (tmp_path / "bin").mkdir()
    assert not machine.load()
    values = kernels.status()
    assert (values["status"], values["library"]) == ("unavailable", None)
    assert values["reason"].startswith("no C++ compiler found")


def test_turned_off(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SERIATIM_KERNELS", "off")
    assert not machine.load()
    assert kernels.status()["status"] == "off"
    assert kernels.status()["reason"] == "SERIATIM_KERNELS=off"
    assert machine.links == 0


def test_a_cache_that_cannot_be_written(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    machine.cache.parent.mkdir()
    machine.cache.write_text("a file in the place of the folder")
    assert not machine.load()
    assert "kernels" in kernels._load_result["reason"]


@needs_kernels
@pytest.mark.slow
def test_two_processes_build_at_once(tmp_path: Path) -> None:
    both = [started(tmp_path) for _ in range(2)]
    ends = [process.communicate() for process in both]
    assert all(out.startswith("True | loaded |") for out, _ in ends), ends
    assert sum("building the native kernels" in err for _, err in ends) == 1
    assert len(list(tmp_path.rglob("*.so"))) == 1


@needs_kernels
def test_the_library_uses_all_threads() -> None:
    """A source that does not compile with OpenMP would leave the others to build a library of one thread."""
    flags = ["-fopenmp", "-x", "c++", "-fsyntax-only", os.devnull]
    if subprocess.run([*kernels.status()["compiler"].split()[:1], *flags], capture_output=True).returncode == 0:
        assert b"GOMP_parallel" in Path(kernels.status()["library"]).read_bytes()
