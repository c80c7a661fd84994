"""`@fuzz`: a property test of damaged or hostile input, which must work or raise a `SeriatimError`.

Each case is bounded in processor time and in additional memory. `make test` runs a few hundred cases, always the same;
`make fuzz` runs 100,000 others (`FUZZ_CASES`), spread over the fuzzers by their weights.
"""

from __future__ import annotations

import contextlib
import faulthandler
import functools
import io
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


def fuzz(weight: float = 1.0, **strategies: Any) -> Callable[[Test], Test]:
    """Returns the decorator of a fuzzer; `weight` is its share of the cases, less than 1 if a case takes long."""

    def decorate(test: Test) -> Test:
        @functools.wraps(test)
        def case(*args: Any, **values: Any) -> None:
            Tally.cases += 1
            try:
                with bounded():
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
def bounded() -> Iterator[None]:
    """Limits processor time and memory of what runs inside."""

    def stop(number: int, frame: FrameType | None) -> None:
        raise Hang(f"a case takes more than {CASE_SECONDS} s of processor time")

    limits = resource.getrlimit(resource.RLIMIT_AS)
    handler = signal.signal(signal.SIGPROF, stop)
    signal.setitimer(signal.ITIMER_PROF, CASE_SECONDS)
    faulthandler.dump_traceback_later(HANG_SECONDS, exit=True)
    if sys.platform == "linux":
        present = int(Path("/proc/self/statm").read_bytes().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (present + CASE_BYTES, limits[1]))
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
