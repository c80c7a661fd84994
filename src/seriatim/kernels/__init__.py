"""Native kernels for `nn/`, built on first use by the machine's own compiler.

The library is in the user's cache, under a hash of everything that affects it: the sources, the version of torch, the
compiler, its options and the processor. Without a compiler, after a failed build or with `SERIATIM_KERNELS=off`
everything runs in plain PyTorch, and `status()` gives the reason.
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

from ..core.files import Json, atomic_file, cache_folder, write_text

HERE = Path(__file__).parent
NAMES = ("recurrent", "attention", "tiles", "additive", "dropout", "linear", "convolution", "generation")
SOURCES = tuple(HERE / f"{name}.cpp" for name in NAMES)
HEADERS = tuple(sorted(HERE.glob("*.h")))
COMPILERS = ("g++", "clang++", "c++")
OPTIONS = ("-std=c++20", "-O3", "-fPIC")
# The first set that the compiler accepts: not every compiler supports -march=native or OpenMP.
TUNINGS = (("-march=native", "-fopenmp"), ("-mcpu=native", "-fopenmp"), ("-march=native",), ())

Context = Any  # of torch.autograd.Function: torch has no type with the attributes that are set on it

_load_result: dict[str, str] = {}  # status or reason, of loading in this process


@dataclass(frozen=True)
class Build:
    """A library that exists or can be built on this machine."""

    compiler: str
    version: str
    key: str

    @property
    def library(self) -> Path:
        return cache_folder("kernels") / f"seriatim-{self.key}.so"

    @property
    def failure(self) -> Path:
        """The file with the compiler's message after a failed build, so that the next process does not try again."""
        return self.library.with_suffix(".failed")


class CompilerError(Exception):
    """No set of options led to a library; the message is that of the first set."""


def supports(x: torch.Tensor) -> bool:
    """Returns whether kernels support a tensor: float32 or float64 on the CPU, without autocast."""
    supported = x.device.type == "cpu" and x.dtype in (torch.float32, torch.float64)
    return supported and not torch.is_autocast_enabled("cpu")


@functools.cache
def load() -> bool:
    """Loads the native kernels, builds them if needed, and returns whether they are available."""
    if os.environ.get("SERIATIM_KERNELS", "").lower() == "off":
        return False
    build = _build()
    if build is None:
        return False
    try:
        library = _build_library(build)
        if library is None:
            return False
        torch.ops.load_library(str(library))
    except OSError as error:  # a cache that cannot be written, a library that cannot be linked
        _load_result["reason"] = str(error)
        return False
    _load_result["status"] = "loaded"
    return True


def status() -> Json:
    """Returns status, reason, library and compiler of the kernels, for `seriatim doctor`; builds nothing."""
    build = _build()
    values: Json = {
        "status": "to be built on first use",
        "reason": "",
        "library": str(build.library) if build else None,
        "compiler": build.version if build else None,
    }
    if os.environ.get("SERIATIM_KERNELS", "").lower() == "off":
        return values | {"status": "off", "reason": "SERIATIM_KERNELS=off"}
    if build is None:
        return values | {"status": "unavailable", "reason": f"no C++ compiler found ({', '.join(COMPILERS)} or CXX)"}
    if build.library.exists():
        values["status"] = "built"
    elif build.failure.exists():
        values |= {"status": "unavailable", "reason": build.failure.read_text(encoding="utf-8")}
    if "reason" in _load_result:
        values |= {"status": "unavailable", "reason": _load_result["reason"]}
    return values | {key: value for key, value in _load_result.items() if key == "status"}


def clear_failure() -> None:
    """Lets a failed build be tried again."""
    build = _build()
    if build is not None:
        build.failure.unlink(missing_ok=True)
    load.cache_clear()
    _load_result.clear()


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
    """Returns the processor's name and features, for which `-march=native` builds."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").partition("\n\n")[0].splitlines()
    except OSError:
        return f"{platform.machine()} {platform.processor()}"
    keys = ("vendor_id", "model name", "flags", "CPU implementer", "CPU part", "Features")
    return platform.machine() + "".join(line for line in lines if line.startswith(keys))


def _build_library(build: Build) -> Path | None:
    """Returns the library, built if needed; if several processes start at once, one builds and the others wait."""
    if build.library.exists():
        return build.library
    with _locked(build.library.with_suffix(".lock")):
        if not build.library.exists() and not build.failure.exists():
            print("building the native kernels (once, a minute or two)…", file=sys.stderr, flush=True)
            try:
                with atomic_file(build.library) as temporary:
                    _compile(build.compiler, temporary)
            except CompilerError as error:
                write_text(build.failure, str(error))
    return build.library if build.library.exists() else None


def _compile(compiler: str, to: Path) -> None:
    """Compiles all sources in parallel and links them."""
    home = Path(torch.__file__).parent
    abi = f"-D_GLIBCXX_USE_CXX11_ABI={int(torch.compiled_with_cxx11_abi())}"
    headers = ["-isystem", str(home / "include"), "-isystem", str(home / "include/torch/csrc/api/include")]
    libraries = [f"-L{home / 'lib'}", "-lc10", "-ltorch_cpu"]
    messages: list[str] = []
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(os.cpu_count()) as pool:
        objects = [str(Path(folder, f"{source.stem}.o")) for source in SOURCES]
        for tuning in TUNINGS:
            prefix = [compiler, *OPTIONS, *tuning, abi, *headers, "-c"]
            commands = [[*prefix, str(source), "-o", out] for source, out in zip(SOURCES, objects, strict=True)]
            problem = next(filter(None, pool.map(_run_compiler, commands)), None)
            problem = problem or _run_compiler([compiler, *tuning, "-shared", *objects, *libraries, "-o", str(to)])
            if problem is None:
                return
            messages.append(problem)
    raise CompilerError(messages[0])


def _run_compiler(command: list[str]) -> str | None:
    """Runs a compiler and returns command and message if it failed."""
    process = subprocess.run(command, capture_output=True, text=True, check=False)
    return None if process.returncode == 0 else f"{' '.join(command)}\n{process.stderr[-2000:]}"


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    import fcntl  # not on Windows, where none of `COMPILERS` is expected

    with open(path, "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
