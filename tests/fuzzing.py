"""`@fuzz`: a property test of damaged or hostile input, which must work or raise a `SeriatimError`.

Each case is bounded in processor time and in additional memory. `make test` runs a few hundred cases, always the same;
`make fuzz` runs 100,000 others (`FUZZ_CASES`), spread over the fuzzers by their weights.
"""

from __future__ import annotations

import contextlib
import copy
import faulthandler
import functools
import io
import json
import math
import os
import resource
import signal
import sys
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.errors import HypothesisException, StopTest

from seriatim.core.errors import SeriatimError

CASES = int(os.environ.get("FUZZ_CASES", "0"))  # of `make fuzz`
SMALL_CASES = 400  # of `make test`, over all fuzzers
MIN_CASES = 4  # of a fuzzer
CASE_SECONDS = 30  # of processor time
CASE_BYTES = 4 << 30
HANG_SECONDS = 600  # for native code, which no signal interrupts

Test = Callable[..., None]


class Hang(BaseException):
    """A case that does not end."""


class Tally:
    """The cases that ran in this process, and the distinct failures: by type and place."""

    cases = 0
    failures: set[str] = set()


def fuzz(weight: float = 1.0, memory: int | None = CASE_BYTES, **strategies: Any) -> Callable[[Test], Test]:
    """Returns the decorator of a fuzzer.

    Args:
        weight: Its share of the cases, less than 1 if a case takes long.
        memory: Bytes that a case may take; None for what draws charts as images, whose browser engine reserves more.
        strategies: Of the arguments of the test.
    """

    def decorate(test: Test) -> Test:
        @functools.wraps(test)
        def case(*args: Any, **values: Any) -> None:
            Tally.cases += 1
            try:
                with bounded(memory):
                    test(*args, **values)
            except SeriatimError as error:
                if error.exit_code != 2 or not error.cause:
                    raise
            except (HypothesisException, StopTest, KeyboardInterrupt, pytest.skip.Exception):
                raise
            except BaseException as error:
                last = traceback.extract_tb(error.__traceback__)[-1]
                place = f"{Path(last.filename).name}:{last.lineno}"
                Tally.failures.add(f"{test.__name__}: {type(error).__name__} at {place}")
                if isinstance(error, Exception):
                    raise
                raise AssertionError(f"{type(error).__name__}: {error}") from error  # a panic of native code, an exit

        return pytest.mark.fuzz(weight)(given(**strategies)(case))

    return decorate


@contextlib.contextmanager
def bounded(memory: int | None) -> Iterator[None]:
    """Limits processor time and memory of what runs inside."""

    def stop(number: int, frame: FrameType | None) -> None:
        raise Hang(f"a case takes more than {CASE_SECONDS} s of processor time")

    limits = resource.getrlimit(resource.RLIMIT_AS)
    handler = signal.signal(signal.SIGPROF, stop)
    signal.setitimer(signal.ITIMER_PROF, CASE_SECONDS)
    faulthandler.dump_traceback_later(HANG_SECONDS, exit=True)
    if sys.platform == "linux" and memory is not None:
        present = int(Path("/proc/self/statm").read_bytes().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (present + memory, limits[1]))
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, handler)
        faulthandler.cancel_dump_traceback_later()
        resource.setrlimit(resource.RLIMIT_AS, limits)


def run_command(*arguments: str) -> str:
    """Runs a command of the CLI in this process: it must work or end with exit code 2 and a message."""
    from seriatim.cli import run

    out, err = io.StringIO(), io.StringIO()
    with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        patch.setenv("SERIATIM_DEBUG", "1")  # unforeseen exceptions come through
        code = run(list(arguments))
    assert code in (0, 2), f"exit code {code}: {err.getvalue()}"
    assert code == 0 or err.getvalue().strip()
    return out.getvalue()


HOSTILE: list[Any] = [
    None, True, False, -1, 0, 1, 2, 3, 255, 2**31, 2**32 - 1, 2**32, 10**8, 2**64, 10**30, 10**400, 0.5, 1e308,
    math.nan, math.inf, "", "a", "<unk>", "\ud800", "\x00", "é" * 9, "x" * 10_000, "(a+)+b", "[",
    "../../etc/passwd", "/dev/zero", [], {}, [[]], [None], [1, 2], ["a", "a"], {"a": 0}, {"type": "x"}, {"name": "x"},
]  # fmt: skip


FLOATS = st.floats(allow_subnormal=False)  # a training makes the process round them to 0


@st.composite
def mutated(draw: Callable[..., Any], value: Any, most: int = 3) -> Any:
    """Draws a tree of JSON values with a few changes: values replaced, removed, doubled, moved, nested."""
    value = {"": copy.deepcopy(value)}
    for _ in range(draw(st.integers(1, most))):
        parent, key = value, ""
        while isinstance(parent[key], dict | list) and parent[key] and draw(st.integers(0, 5)):
            parent = parent[key]
            key = draw(st.sampled_from(list(parent) if isinstance(parent, dict) else range(len(parent))))
        change = draw(st.sampled_from(["replace", "replace", "remove", "double", "nest", "scale"]))
        if change == "replace":
            other = draw(st.sampled_from(HOSTILE) | st.text(max_size=5) | st.integers() | FLOATS)
            parent[key] = copy.deepcopy(other)
        elif change == "remove" and parent is not value:
            del parent[key]
        elif change == "double" and isinstance(parent, list):
            parent.append(parent[key])  # not a copy: a value that is nested deeply has none
        elif change == "double":
            parent[draw(st.sampled_from(["a", "type", "id", "name", "<eos>", "\ud800"]))] = parent[key]
        elif change == "nest":
            for _ in range(draw(st.sampled_from([1, 2, 50, 500]))):
                parent[key] = [parent[key]] if draw(st.booleans()) else {"a": parent[key]}
        elif change == "scale" and isinstance(parent[key], int | float):
            parent[key] = parent[key] * draw(st.sampled_from([-1, 2, 0.5, 1000, 10**9]))
    return value[""]


@st.composite
def mutated_bytes(draw: Callable[..., Any], data: bytes) -> bytes:
    """Draws the contents of a file with a few changes: cut off, bytes replaced, pieces doubled, removed."""
    for _ in range(draw(st.integers(1, 3))):
        first = draw(st.integers(0, len(data)))
        last = min(first + draw(st.sampled_from([0, 1, 2, 8, 100])), len(data))
        piece = draw(
            st.sampled_from([b"", b"\x00", b"\xff", b"\n", b'"', b"{", b"9" * 30, b"\xed\xa0\x80", data[first:last]])
        )
        end = draw(st.sampled_from([last, first, len(data)]))
        data = data[:first] + piece + data[end:]
    return data


def dump_json(value: Any) -> bytes:
    """Returns a mutated tree as a JSON file; a lone surrogate is written as such."""
    try:
        return json.dumps(value, ensure_ascii=False).encode("utf-8", "surrogatepass")
    except RecursionError:
        return b"[" * 5_000


def spread_cases(items: list[pytest.Item]) -> None:
    """Gives each fuzzer its share of the cases."""
    fuzzers = [(item, marker.args[0]) for item in items if (marker := item.get_closest_marker("fuzz"))]
    total = sum(weight for _, weight in fuzzers)
    shares: dict[Any, float] = {}
    for item, weight in fuzzers:  # the cases of a parametrized fuzzer are of one function
        shares[item.function] = max((CASES or SMALL_CASES) * weight / total, MIN_CASES)  # type: ignore[attr-defined]
    for function, cases in shares.items():
        settings(
            max_examples=round(cases),
            derandomize=not CASES,
            database=None,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        )(function)
