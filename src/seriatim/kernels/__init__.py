"""Native kernels for `nn/`, built on first use by the machine's own compiler.

The library is in the user's cache, under a hash of everything that affects it: the sources, the version of torch, the
compiler, its options and the processor. Beside it is a record:

    {"sha256": …}     of the library, whose operators passed `self_test` in a process of their own. If the compiler
                      refused the first options, "flags" are those it took, and a "warning" says what is lost by them
    {"failure": …}    the message of the compiler or of the self-test, so that the next process does not try again

A library that does not match its record is never loaded, but built again. A failure that is not the compiler's (a full
disk, a compiler that was killed) is not recorded: the next process tries again. Without a compiler, after a failure or
with `SERIATIM_KERNELS=off` everything runs in plain PyTorch, and `status()` gives the reason.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
import os
import platform
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from ..core.files import Json, WriteError, atomic_file, cache_folder, locked, sha256, write_json

HERE = Path(__file__).parent
NAMES = ("recurrent", "attention", "tiles", "additive", "dropout", "linear", "convolution", "generation", "stack")
SOURCES = tuple(HERE / f"{name}.cpp" for name in NAMES)
HEADERS = tuple(sorted(HERE.glob("*.h")))
COMPILERS = ("g++", "clang++", "c++")
OPTIONS = ("-std=c++20", "-O3", "-fPIC")
# The first set that the compiler accepts: not every compiler supports -march=native or OpenMP.
TUNINGS = (("-march=native", "-fopenmp"), ("-mcpu=native", "-fopenmp"), ("-march=native",), ())
# Part of an option → what it gains. For x86, GCC takes -mcpu=native as a tuning that adds no instructions.
NATIVE = "march=native" if platform.machine() in ("x86_64", "AMD64") else "native"
STRENGTHS = {"openmp": "threads", NATIVE: "the vector instructions of this processor"}
# Problems of the machine, in messages and signals; the same build may succeed later.
TRANSIENT = re.compile(
    "no space left|quota exceeded|read-only file system|input/output error|permission denied|too many open files"
    r"|temporarily unavailable|allocate memory|out of memory|memory exhausted|\bkilled\b|with signal (7|9|15)\b",
    re.IGNORECASE,
)
TRANSIENT_SIGNALS = (signal.SIGBUS, signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
MISSING_HEADER = re.compile("fatal error: .*(no such file|file not found)", re.IGNORECASE)
DISK_SPACE = 64 << 20  # bytes for objects and library
LEFTOVER_SECONDS = 3600  # age of a temporary file from a killed build
SELF_TEST_SECONDS = 600

Context = Any  # of torch.autograd.Function: torch has no type with the attributes that are set on it

_load_result: dict[str, str] = {}  # status or reason, of loading in this process


@dataclass(frozen=True)
class Build:
    """A library that exists or can be built on this machine."""

    compiler: tuple[str, ...]
    version: str
    flags: tuple[str, ...]
    key: str

    @property
    def library(self) -> Path:
        return cache_folder("kernels") / f"seriatim-{self.key}.so"

    @property
    def record(self) -> Path:
        return self.library.with_suffix(".json")

    def read_record(self) -> Json:
        """Returns the record, empty if there is none or it cannot be read."""
        try:
            value = json.loads(self.record.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return {}
        return value if isinstance(value, dict) else {}

    @property
    def prefix(self) -> str:
        """The first part of the names of its temporary files and folders."""
        return f".{self.library.stem}."

    def is_intact(self, record: Json) -> bool:
        """Returns whether the library is the one that passed the self-test."""
        try:
            return "sha256" in record and record["sha256"] == sha256(self.library)
        except OSError:
            return False


class BuildError(Exception):
    """The message of the compiler or of the self-test, which another try would not change."""


def supports(x: torch.Tensor) -> bool:
    """Returns whether kernels support a tensor: float32 or float64 on the CPU, without autocast."""
    supported = x.device.type == "cpu" and x.dtype in (torch.float32, torch.float64)
    return supported and not torch.is_autocast_enabled("cpu")


@functools.cache
def load() -> bool:
    """Loads the native kernels and returns whether they are available.

    Builds them if needed, which takes a minute or two, and says so on stderr.
    """
    if _load_result.get("status") == "loaded":
        return True
    build = None if _turned_off() else _find_build()
    if build is None:
        return False
    try:
        digest = _intact_library(build)
        try:
            load_library(build.library)
        except OSError:  # it was built for another torch of the same version
            _intact_library(build, unusable=digest)
            load_library(build.library)
    except (BuildError, OSError) as error:
        _load_result["reason"] = str(error)
        return False
    return True


def load_library(path: Path) -> None:
    """Loads a library into this process, as it is; `load` then returns True."""
    torch.ops.load_library(str(path))
    _load_result["status"] = "loaded"


def status() -> Json:
    """Returns status, reason, library and compiler of the kernels, for `seriatim doctor`; builds nothing."""
    build = _find_build()
    try:
        library = str(build.library) if build else None
    except WriteError as error:
        return {"status": "unavailable", "reason": error.cause}
    values: Json = {
        "status": "to be built on first use",
        "reason": "",
        "library": library,
        "compiler": build.version if build else None,
    }
    if _turned_off():
        return values | {"status": "off", "reason": "SERIATIM_KERNELS=off"}
    if build is None:
        return values | {"status": "unavailable", "reason": f"no C++ compiler found ({', '.join(COMPILERS)} or CXX)"}
    record = build.read_record()
    if "status" in _load_result:
        values |= _load_result
    elif "failure" in record or "reason" in _load_result:
        reason = _load_result.get("reason") or record["failure"]
        values |= {"status": "unavailable", "reason": reason, "to try again": "python -m seriatim.kernels"}
    elif build.is_intact(record):
        values["status"] = "built, self-test passed"
    elif build.library.exists():
        values |= {"status": "to be built again on first use", "reason": "the library does not match its record"}
    return values | {name: record[name] for name in ("flags", "warning") if name in record}


def clear_failure() -> None:
    """Lets a failed build be tried again."""
    build = _find_build()
    if build is not None and "failure" in build.read_record():
        build.record.unlink(missing_ok=True)
    load.cache_clear()
    _load_result.clear()


def _turned_off() -> bool:
    return os.environ.get("SERIATIM_KERNELS", "").lower() == "off"


@functools.cache
def _find_build() -> Build | None:
    flags = tuple(shlex.split(os.environ.get("SERIATIM_KERNELS_FLAGS", "")))
    for name in filter(None, (os.environ.get("CXX"), *COMPILERS)):
        try:
            program, *arguments = shlex.split(name)  # CXX may be "ccache g++"
            compiler = (shutil.which(program) or program, *arguments)
            version = subprocess.run([*compiler, "--version"], capture_output=True, text=True, check=False).stdout
        except (OSError, ValueError):  # there is no such program
            continue
        break
    else:
        return None
    version = version.partition("\n")[0]
    parts = [torch.__version__, repr(compiler), version, repr(OPTIONS), repr(TUNINGS), repr(flags), _processor()]
    parts += [path.read_text(encoding="utf-8") for path in (*SOURCES, *HEADERS)]
    return Build(compiler, version, flags, hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16])


def _processor() -> str:
    """Returns the processor's name and features, for which `-march=native` builds."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").partition("\n\n")[0].splitlines()
    except OSError:
        return f"{platform.machine()} {platform.processor()}"
    keys = ("vendor_id", "model name", "flags", "CPU implementer", "CPU part", "Features")
    return platform.machine() + "".join(line for line in lines if line.startswith(keys))


def _intact_library(build: Build, unusable: str = "") -> str:
    """Returns the digest of the library, built if there is no intact one, or only the `unusable` one of this digest.

    If several processes start at once, one builds and the others wait.
    """

    def is_ready(record: Json) -> bool:
        return "failure" in record or (build.is_intact(record) and record["sha256"] != unusable)

    record = build.read_record()
    if not is_ready(record):
        with locked(build.library.with_suffix(".lock")):
            record = build.read_record()
            if not is_ready(record):
                record = _build_library(build)
    if "failure" in record:
        raise BuildError(record["failure"])
    digest: str = record["sha256"]
    return digest


def _build_library(build: Build) -> Json:
    """Compiles and tests the library and returns the new record."""
    print("building the native kernels (once, a minute or two)…", file=sys.stderr, flush=True)
    try:
        _remove_leftovers(build)
        if shutil.disk_usage(build.library.parent).free < DISK_SPACE:
            raise OSError(f"no space left for {DISK_SPACE >> 20} MB in {build.library.parent}")
        with atomic_file(build.library) as temporary:
            fallback = _compile(build, temporary)
            _self_test(temporary)
            record = {"sha256": sha256(temporary)} | fallback
        write_json(build.record, record)
        if "warning" in record:
            print(f"{record['warning'].partition(':')[0]} (see `seriatim doctor`)", file=sys.stderr)
    except (BuildError, OSError) as error:
        print("the native kernels cannot be built; PyTorch is used instead (see `seriatim doctor`)", file=sys.stderr)
        if isinstance(error, OSError):
            raise
        record = {"failure": str(error)}
        write_json(build.record, record)
        build.library.unlink(missing_ok=True)
    return record


def _remove_leftovers(build: Build) -> None:
    """Removes temporary files of builds that were killed."""
    for path in build.library.parent.glob(".seriatim-*"):
        with contextlib.suppress(FileNotFoundError):
            if path.name.startswith(build.prefix) or time.time() - path.stat().st_mtime > LEFTOVER_SECONDS:
                shutil.rmtree(path) if path.is_dir() else path.unlink()


def _compile(build: Build, to: Path) -> Json:
    """Compiles all sources in parallel and links them.

    Returns what a record says of options that are not the first choice: flags, and a warning if they are weaker.
    """
    home = Path(torch.__file__).parent
    abi = f"-D_GLIBCXX_USE_CXX11_ABI={int(torch.compiled_with_cxx11_abi())}"
    headers = ["-isystem", str(home / "include"), "-isystem", str(home / "include/torch/csrc/api/include")]
    libraries = [f"-L{home / 'lib'}", "-lc10", "-ltorch_cpu"]
    messages: list[str] = []
    with (
        tempfile.TemporaryDirectory(dir=to.parent, prefix=build.prefix) as folder,
        ThreadPoolExecutor(os.cpu_count()) as pool,
    ):
        run = functools.partial(_run_compiler, folder=folder)
        objects = [str(Path(folder, f"{source.stem}.o")) for source in SOURCES]
        for tuning in TUNINGS:
            options = [*tuning, *build.flags]
            prefix = [*build.compiler, *OPTIONS, *options, abi, *headers, "-c"]
            commands = [[*prefix, str(source), "-o", out] for source, out in zip(SOURCES, objects, strict=True)]
            problem = next(filter(None, pool.map(run, commands)), None)
            problem = problem or run([*build.compiler, *options, "-shared", *objects, *libraries, "-o", str(to)])
            if problem is None:
                if not messages:
                    return {}
                lost = [name for option, name in STRENGTHS.items() if not any(option in own for own in tuning)]
                warning = f"the native kernels were built without {' and '.join(lost)}: {messages[0]}"
                return {"flags": shlex.join(tuning) or "none"} | ({"warning": warning} if lost else {})
            messages.append(problem)
    if MISSING_HEADER.search(messages[-1]):  # a package that can be installed
        raise OSError(messages[-1])
    raise BuildError(messages[0])


def _run_compiler(command: list[str], folder: str) -> str | None:
    """Runs a compiler, with its temporary files in `folder`, and returns command and message if it failed."""
    environment = {name: value for name, value in os.environ.items() if name != "LD_PRELOAD"}  # see `make sanitize`
    environment |= {"LC_ALL": "C", "TMPDIR": folder}
    process = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False, env=environment)
    return None if process.returncode == 0 else _message(shlex.join(command), process)


def _self_test(library: Path) -> None:
    """Runs all operators in a process of their own, which may crash."""
    command = [sys.executable, "-P", "-m", f"{__name__}.self_test", str(library)]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    try:
        process = subprocess.run(
            command,
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
            env=environment,
            timeout=SELF_TEST_SECONDS,
        )
    except subprocess.TimeoutExpired as error:
        raise OSError(f"the self-test of the kernels takes more than {error.timeout} seconds") from None
    if process.returncode != 0:
        raise BuildError(_message("the self-test of the kernels failed", process))


def _message(cause: str, process: subprocess.CompletedProcess[str]) -> str:
    """Returns why a process failed; raises OSError if the reason is the machine's."""
    message = f"{cause}\n{process.stderr[-2000:]}"
    if process.returncode < 0:
        message += f"ended by {signal.Signals(-process.returncode).name}"
    if -process.returncode in TRANSIENT_SIGNALS or TRANSIENT.search(process.stderr):
        raise OSError(message)
    return message
