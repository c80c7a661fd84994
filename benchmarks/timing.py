"""Timing of competitors that take turns in one process; medians and ratios as a table and as JSON in results/.

Every benchmark takes `--quick`: one repeat at the smallest size, to see that it runs; nothing is recorded then.
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

RESULTS = Path(__file__).parent / "results"
REST = 0.3  # seconds after which waiting threads have gone to sleep (Intel's OpenMP: after 0.2)


def make_parser(description: str | None, repeats: int | None = None) -> argparse.ArgumentParser:
    """Returns a parser with `--quick` and, if there is a default for it, `--repeats`."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="one repeat at the smallest size; nothing is recorded")
    if repeats is not None:
        parser.add_argument("--repeats", type=int, default=repeats)
    return parser


def parse_arguments(parser: argparse.ArgumentParser) -> argparse.Namespace:
    """Returns the arguments of the command line, with one repeat if it has `--quick`."""
    arguments = parser.parse_args()
    if arguments.quick and "repeats" in arguments:
        arguments.repeats = 1
    return arguments


def interleaved(competitors: dict[str, Callable[[], Any]], repeats: int, rest: bool = False) -> dict[str, list[float]]:
    """Returns the seconds of each run, by competitor. All warm up with two runs, then they take turns.

    Args:
        competitors: What is measured, by name.
        repeats: The number of turns.
        rest: Whether to pause before each turn, and to begin it with a run that does not count: for competitors with
            threads of their own, which would spin while the next one is measured.
    """
    for run in competitors.values():
        run()
        run()
    times: dict[str, list[float]] = {name: [] for name in competitors}
    for _ in range(repeats):
        for name, run in competitors.items():
            if rest:
                time.sleep(REST)
                run()
            began = time.perf_counter()
            run()
            times[name].append(time.perf_counter() - began)
    return times


def report(
    name: str,
    times: dict[str, list[float]],
    own: str = "seriatim",
    memory: dict[str, int] | None = None,
    shares: dict[str, float] | None = None,
    save: bool = True,
) -> None:
    """Prints the median and the best time of each competitor, and its ratio to ours; saves them as JSON.

    Args:
        name: Of the benchmark.
        times: The seconds of each run, by competitor.
        own: The competitor that is ours.
        memory: The bytes each one needed, if measured.
        shares: The share of the machine's limit each one reached, if measured.
        save: Whether to write results/<name>.json.
    """
    medians = {key: statistics.median(values) for key, values in times.items()}
    rows = {
        key: {"median": medians[key], "best": min(values), "ratio": medians[key] / medians[own]}
        for key, values in times.items()
    }
    for key, size in (memory or {}).items():
        rows[key]["bytes"] = size
    for key, share in (shares or {}).items():
        rows[key]["share_of_limit"] = share
    print(f"{name}  ({torch.get_num_threads()} threads)")
    for key, row in rows.items():
        size_text = f"  {row['bytes'] / 1e6:9.1f} MB" if "bytes" in row else ""
        share_text = f"  {row['share_of_limit']:4.0%} of the limit" if "share_of_limit" in row else ""
        seconds = f"{row['median'] * 1e3:9.2f} ms  best {row['best'] * 1e3:9.2f} ms"
        print(f"  {key:<24} {seconds}  {row['ratio']:5.2f}×{size_text}{share_text}", flush=True)
    if save:
        save_results(name, {"own": own, "rows": rows})


def save_results(name: str, values: dict[str, Any]) -> None:
    """Writes results/<name>.json, with the machine and the versions."""
    result = {
        "name": name,
        "machine": platform.processor(),
        "threads": torch.get_num_threads(),
        "torch": torch.__version__.partition("+")[0],
        **values,
    }
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / f"{name}.json").write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")
