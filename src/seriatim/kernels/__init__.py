"""Native code that makes the parts of `nn/` fast, built on first use by the machine's own compiler.

The library lies in the user's cache under a name made from everything that could change it: the sources, the
version of torch, the compiler, its options and the processor. Where there is no compiler, the build fails or
`SERIATIM_KERNELS=off` is set, everything works all the same in plain PyTorch, and `state()` says why.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from ..core.files import atomic_file, cache_folder, write_text

HERE = Path(__file__).parent
NAMES = ("recurrent", "attention", "tiles", "additive", "dropout", "linear", "convolution", "generation")
SOURCES = tuple(HERE / f"{name}.cpp" for name in NAMES)
HEADERS = tuple(sorted(HERE.glob("*.h")))
COMPILERS = ("g++", "clang++", "c++")
OPTIONS = ("-std=c++20", "-O3", "-fPIC")
# The first that the compiler accepts is taken: not every one knows this processor by itself, or OpenMP.
TUNINGS = (("-march=native", "-fopenmp"), ("-mcpu=native", "-fopenmp"), ("-march=native",), ())

_outcome: dict[str, str] = {}  # what became of loading in this process


@dataclass(frozen=True)
class Build:
    """A library that exists or could be made here."""

    compiler: str
    version: str
    key: str

    @property
    def library(self) -> Path:
        return cache_folder("kernels") / f"seriatim-{self.key}.so"

    @property
    def failure(self) -> Path:
        """What the compiler said when it failed: the next process need not try again."""
        return self.library.with_suffix(".failed")


class CompilerError(Exception):
    """No set of options led to a library; the text is what the compiler said to the first."""


def takes(x: torch.Tensor) -> bool:
    """Whether kernels compute with such numbers: single or double precision on the processor, no other asked for."""
    known = x.device.type == "cpu" and x.dtype in (torch.float32, torch.float64)
    return known and not torch.is_autocast_enabled("cpu")


@functools.cache
def load() -> bool:
    """Whether the native kernels can be used here; builds them if they were never built."""
    if os.environ.get("SERIATIM_KERNELS", "").lower() == "off":
        return False
    build = _build()
    if build is None:
        return False
    try:
        library = _made(build)
        if library is None:
            return False
        torch.ops.load_library(str(library))
    except OSError as error:  # a cache that cannot be written, a library that cannot be linked
        _outcome["why"] = str(error)
        return False
    _outcome["status"] = "loaded"
    return True


def available() -> bool:
    """The same as `load`, for asking."""
    return load()


def state() -> dict[str, Any]:
    """What `seriatim doctor` tells about the kernels; builds nothing."""
    build = _build()
    found: dict[str, Any] = {
        "status": "to be built on first use",
        "why": "",
        "library": str(build.library) if build else None,
        "compiler": build.version if build else None,
    }
    if os.environ.get("SERIATIM_KERNELS", "").lower() == "off":
        return found | {"status": "off", "why": "SERIATIM_KERNELS=off"}
    if build is None:
        return found | {"status": "unavailable", "why": f"no C++ compiler found ({', '.join(COMPILERS)} or CXX)"}
    if build.library.exists():
        found["status"] = "built"
    elif build.failure.exists():
        found |= {"status": "unavailable", "why": build.failure.read_text(encoding="utf-8")}
    if "why" in _outcome:
        found |= {"status": "unavailable", "why": _outcome["why"]}
    return found | {key: value for key, value in _outcome.items() if key == "status"}


def forget_failure() -> None:
    """Lets a build that failed be tried once more."""
    build = _build()
    if build is not None:
        build.failure.unlink(missing_ok=True)
    load.cache_clear()
    _outcome.clear()


@functools.cache
def _build() -> Build | None:
    for name in filter(None, (os.environ.get("CXX"), *COMPILERS)):
        compiler = shutil.which(name)
        if compiler is not None:
            break
    else:
        return None
    version = subprocess.run([compiler, "--version"], capture_output=True, text=True, check=False).stdout
    version = version.partition("\n")[0]
    parts = [torch.__version__, compiler, version, repr(OPTIONS), repr(TUNINGS), _processor()]
    parts += [path.read_text(encoding="utf-8") for path in (*SOURCES, *HEADERS)]
    return Build(compiler, version, hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16])


def _processor() -> str:
    """The processor's name and abilities, for which `-march=native` builds."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").partition("\n\n")[0].splitlines()
    except OSError:
        return f"{platform.machine()} {platform.processor()}"
    kept = ("vendor_id", "model name", "flags", "CPU implementer", "CPU part", "Features")
    return platform.machine() + "".join(line for line in lines if line.startswith(kept))


def _made(build: Build) -> Path | None:
    """The library, made now if need be. Of several processes that start at once, one builds and the others wait."""
    if build.library.exists():
        return build.library
    with _locked(build.library.with_suffix(".lock")):
        if not build.library.exists() and not build.failure.exists():
            print("building the native kernels (once, a minute or two)…", file=sys.stderr, flush=True)
            try:
                with atomic_file(build.library) as aside:
                    _compile(build.compiler, aside)
            except CompilerError as error:
                write_text(build.failure, str(error))
    return build.library if build.library.exists() else None


def _compile(compiler: str, to: Path) -> None:
    """All sources at once, as many as there are cores, then one library of them."""
    home = Path(torch.__file__).parent
    abi = f"-D_GLIBCXX_USE_CXX11_ABI={int(torch.compiled_with_cxx11_abi())}"
    headers = ["-isystem", str(home / "include"), "-isystem", str(home / "include/torch/csrc/api/include")]
    libraries = [f"-L{home / 'lib'}", "-lc10", "-ltorch_cpu"]
    said: list[str] = []
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(os.cpu_count()) as pool:
        objects = [str(Path(folder, f"{source.stem}.o")) for source in SOURCES]
        for tuning in TUNINGS:
            compile_one = [compiler, *OPTIONS, *tuning, abi, *headers, "-c"]
            commands = [[*compile_one, str(source), "-o", out] for source, out in zip(SOURCES, objects, strict=True)]
            problem = next(filter(None, pool.map(_problem, commands)), None)
            problem = problem or _problem([compiler, *tuning, "-shared", *objects, *libraries, "-o", str(to)])
            if problem is None:
                return
            said.append(problem)
    raise CompilerError(said[0])


def _problem(command: list[str]) -> str | None:
    """What a compiler that failed was asked, and said."""
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return None if done.returncode == 0 else f"{' '.join(command)}\n{done.stderr[-2000:]}"


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    import fcntl  # there is none on Windows, where no compiler of `COMPILERS` is to be expected either

    with open(path, "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
