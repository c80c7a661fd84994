"""What the benchmarks share: their options, competitors that take turns, the machine's limits, and results as JSON.

A benchmark is a module with `CASES`, name → what is measured, and a `main` that measures those requested:

    python -m benchmarks.gpt [--list] [--quick] [--repeats 30] [--seconds 20] [CASE …]
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch.utils.flop_counter import FlopCounterMode

from seriatim.kernels import layers
from seriatim.nn.layers import readable_equations

RESULTS = Path(__file__).parent / "results"
TURNS = 7  # at least, however long they take
REST = 0.3  # seconds after which waiting threads have gone to sleep (Intel's OpenMP: after 0.2)
LONG = 0.5  # seconds from which a run needs no other before it
TURN = 0.05  # seconds of a turn, at least: the mean of several runs if one is shorter
MATMUL_SIZE, READ_BYTES, LIMIT_RUNS = 1024, 128_000_000, 5
Run = Callable[[], Any]


@dataclass(frozen=True)
class Options:
    """What the command line of a benchmark asks for.

    Args:
        cases: The names of those to measure.
        what: What is measured, by the name of a case.
        quick: Whether it is only to be seen that it runs: smallest sizes, one turn.
        repeats: The number of turns, at most.
        seconds: After which no further turn begins, if there were `TURNS` of them.
        out: The folder of the results.
        own: The options that only this benchmark has.
    """

    cases: list[str]
    what: Mapping[str, str]
    quick: bool
    repeats: int
    seconds: float
    out: Path
    own: argparse.Namespace


def parse_options(
    description: str | None,
    cases: Mapping[str, str],
    quick: Sequence[str] | None = None,
    repeats: int = 15,
    own: Sequence[argparse.ArgumentParser] = (),
) -> Options:
    """Returns the options of the command line.

    Args:
        description: For `--help`.
        cases: What is measured, by the name of a case.
        quick: The cases that `--quick` measures if none is named; by default all.
        repeats: The number of turns, at most.
        own: Options that only this benchmark has.
    """
    kind = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=description, formatter_class=kind, parents=own)
    parser.add_argument("cases", nargs="*", metavar="CASE", help="what to measure; by default all")
    parser.add_argument("--list", action="store_true", help="print the names of the cases")
    parser.add_argument("--quick", action="store_true", help="one turn at the smallest size, to see that it runs")
    parser.add_argument("--repeats", type=int, default=repeats, help=f"turns, at most (default: {repeats})")
    parser.add_argument("--seconds", type=float, default=20.0, help="for the turns of a case (default: 20)")
    parser.add_argument("--out", type=Path, help="folder of the results (default: benchmarks/results)")
    arguments = parser.parse_args()
    if arguments.list:
        print("\n".join(f"{name:<32} {what}" for name, what in cases.items()))
        raise SystemExit
    if unknown := [name for name in arguments.cases if name not in cases]:
        parser.error(f"no case is named {', '.join(unknown)}: see --list")
    names = arguments.cases or list(quick if arguments.quick and quick else cases)
    out = arguments.out or (RESULTS / "quick" if arguments.quick else RESULTS)
    repeats = 1 if arguments.quick else arguments.repeats
    return Options(names, cases, arguments.quick, repeats, arguments.seconds, out, arguments)


class Competitors(dict[str, Run]):
    """What is measured, by name. Ours begin with "seriatim". Peers that are missing have a reason."""

    def __init__(self, runs: Mapping[str, Run]) -> None:
        super().__init__(runs)
        self.missing: dict[str, str] = {}

    def add(self, name: str, make: Callable[[], Run]) -> None:
        """Adds a peer, whose package may not be installed."""
        try:
            self[name] = make()
        except ImportError as error:
            self.missing[name] = str(error)


@dataclass(frozen=True)
class Measurement:
    """The turns of competitors.

    Args:
        seconds: Of each turn, by competitor.
        missing: Why competitors were not measured.
        flops: Operations per second of a large float32 matmul, torch's or our kernel's, whichever is faster: the best
            of several runs before and after the turns.
        bandwidth: Bytes per second that are read from memory, measured in the same way.
    """

    seconds: dict[str, list[float]]
    missing: dict[str, str] = field(default_factory=dict)
    flops: float | None = None
    bandwidth: float | None = None

    def with_weights(self, kind: str) -> tuple[Measurement, str]:
        """Returns the competitors with weights of a kind, "float32" or "int8", and which of them is ours."""
        seconds = {name: values for name, values in self.seconds.items() if ("int8" in name) == (kind == "int8")}
        missing = {name: reason for name, reason in self.missing.items() if ("int8" in name) == (kind == "int8")}
        own = next(name for name in seconds if name.startswith("seriatim"))
        return Measurement(seconds, missing, self.flops, self.bandwidth), own


def interleaved(competitors: Mapping[str, Run], options: Options, rest: bool = False) -> Measurement:
    """Returns the seconds of each run. All warm up with two runs, then they take turns.

    A turn of a short run is the mean of several, so that it does not depend on a single wake-up of a thread. A peer
    that fails when it warms up is left out, and the measurement says why.

    Args:
        competitors: What is measured, by name.
        options: The number of turns and the seconds they may take.
        rest: Whether to pause before each turn, and to begin a short one with runs that do not count: for
            competitors with threads of their own, which would spin while the next one is measured.
    """
    missing = dict(competitors.missing) if isinstance(competitors, Competitors) else {}
    large, memory = torch.randn(MATMUL_SIZE, MATMUL_SIZE), torch.ones(READ_BYTES // 4)
    matmuls: list[Run] = [lambda: large @ large]
    if layers.is_available(large):
        packed = layers.pack(large)
        matmuls.append(lambda: layers.packed_linear(large, packed, MATMUL_SIZE, None))

    def measure_limits() -> tuple[float, float]:
        return min(min(timed(matmul)) for matmul in matmuls), min(timed(memory.sum))

    limits = [measure_limits()]
    began = time.perf_counter()
    times: dict[str, list[float]] = {}
    for name, run in competitors.items():
        try:
            run()
            run()
            times[name] = []
        except Exception as error:  # of whatever kind: the peer is somebody else's code
            if name.startswith("seriatim"):
                raise
            missing[name] = f"{type(error).__name__}: {str(error).partition(chr(10))[0]}"
    for turn in range(options.repeats):
        if turn >= TURNS and time.perf_counter() - began > options.seconds:
            break
        for name in times:
            run = competitors[name]
            if rest:
                time.sleep(REST)
                if not times[name] or times[name][-1] < LONG:
                    mean_seconds(run)
            times[name].append(mean_seconds(run))
    if rest:
        time.sleep(REST)
    limits.append(measure_limits())
    matmul, reading = (min(values) for values in zip(*limits, strict=True))
    return Measurement(times, missing, 2 * MATMUL_SIZE**3 / matmul, READ_BYTES / reading)


def mean_seconds(run: Run) -> float:
    """Returns the mean time of as many runs as fill a turn, one at least."""
    began, runs = time.perf_counter(), 0
    while not runs or time.perf_counter() - began < TURN:
        run()
        runs += 1
    return (time.perf_counter() - began) / runs


def timed(run: Run) -> Iterator[float]:
    """Yields the seconds of several runs after one that warms up."""
    run()
    for _ in range(LIMIT_RUNS):
        began = time.perf_counter()
        run()
        yield time.perf_counter() - began


def count_flops(run: Run) -> float:
    """Returns the operations of the matmuls and convolutions of a run, in which ours is computed by the equations.

    Causal attention counts as if every position attended to all.
    """
    with readable_equations(), FlopCounterMode(display=False) as counter:
        run()
    return float(counter.get_total_flops())


def report(
    name: str,
    measurement: Measurement,
    options: Options,
    own: str = "seriatim",
    *,
    flops: float | None = None,
    read: float | None = None,
    memory: Mapping[str, int] | None = None,
    note: str = "",
) -> None:
    """Prints the median and the best time of each competitor, and its ratio to ours; writes <name>.json.

    Args:
        name: Of the case.
        measurement: The turns of the competitors.
        options: Those of the command line.
        own: The competitor that is ours; the best of those whose name does not begin with "seriatim" is its peer.
        flops: The operations of a run, if its limit is that of the processor.
        read: The bytes that a run has to read, if its limit is that of the memory.
        memory: The bytes that each competitor allocated, if measured.
        note: What else is to be said, as how far results agree.
    """
    medians = {key: statistics.median(values) for key, values in measurement.seconds.items()}
    share = 0.0
    if flops is not None and measurement.flops is not None:
        share = flops / measurement.flops
    elif read is not None and measurement.bandwidth is not None:
        share = read / measurement.bandwidth
    rows: dict[str, dict[str, float]] = {}
    print(f"{name}  ({torch.get_num_threads()} threads)")
    for key, values in measurement.seconds.items():
        rows[key] = {"median": medians[key], "best": min(values), "ratio": medians[key] / medians[own]}
        line = f"{medians[key] * 1e3:9.2f} ms  best {min(values) * 1e3:9.2f} ms  {rows[key]['ratio']:5.2f}×"
        if memory and key in memory:
            rows[key]["bytes"] = memory[key]
            line += f"  {memory[key] / 1e6:9.1f} MB"
        if share:
            rows[key]["share_of_limit"] = share / medians[key]
            line += f"  {share / medians[key]:4.0%} of the limit"
        print(f"  {key:<24} {line}")
    for key, reason in measurement.missing.items():
        print(f"  {key:<24} not measured: {reason}")
    print(f"  {note}" if note else "", end="\n" if note else "", flush=True)
    values = {
        "own": own,
        "turns": len(measurement.seconds[own]),
        "rows": rows,
        "missing": measurement.missing,
        "limit": "processor" if flops is not None else "memory" if read is not None else None,
        "flops_per_second": measurement.flops,
        "bytes_per_second": measurement.bandwidth,
        "note": note,
    }
    write_result(options.out, name, options.what[name], values)


def write_result(out: Path, name: str, what: str, values: Mapping[str, Any]) -> None:
    """Writes <name>.json."""
    out.mkdir(parents=True, exist_ok=True)
    result = {"name": name, "what": what, "threads": torch.get_num_threads(), **values}
    (out / f"{name}.json").write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")
