"""Competitors take turns in one process; medians and ratios are reported, as a table and as JSON."""

from __future__ import annotations

import json
import platform
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

RESULTS = Path(__file__).parent / "results"


REST = 0.3  # seconds after which threads that wait for more work have gone to sleep (Intel's OpenMP: after 0.2)


def interleaved(competitors: dict[str, Callable[[], Any]], repeats: int, rest: bool = False) -> dict[str, list[float]]:
    """Seconds of each run; everybody warms up first, then they take turns. Where they bring threads of their own, which
    would spin on while the next is measured, let them `rest` before each turn; it begins with a run that does not count
    then."""
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
) -> dict[str, Any]:
    """Prints medians, best times and how many times slower than ours each is, and, where they were measured, the bytes
    that each needed and its share of what the machine can do at most; writes them to results/."""
    medians = {key: statistics.median(values) for key, values in times.items()}
    rows = {
        key: {"median": medians[key], "best": min(values), "ratio": medians[key] / medians[own]}
        for key, values in times.items()
    }
    for key, bytes_needed in (memory or {}).items():
        rows[key]["bytes"] = bytes_needed
    for key, share in (shares or {}).items():
        rows[key]["share_of_limit"] = share
    print(f"{name}  ({torch.get_num_threads()} threads)")
    for key, row in rows.items():
        needed = f"  {row['bytes'] / 1e6:9.1f} MB" if "bytes" in row else ""
        share_text = f"  {row['share_of_limit']:4.0%} of the limit" if "share_of_limit" in row else ""
        took = f"{row['median'] * 1e3:9.2f} ms  best {row['best'] * 1e3:9.2f} ms"
        print(f"  {key:<24} {took}  {row['ratio']:5.2f}×{needed}{share_text}", flush=True)
    found = {
        "name": name,
        "machine": platform.processor(),
        "threads": torch.get_num_threads(),
        "torch": torch.__version__.partition("+")[0],
        "own": own,
        "rows": rows,
    }
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / f"{name}.json").write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")
    return found
