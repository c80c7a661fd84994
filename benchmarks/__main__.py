"""`make bench`: every benchmark in a process of its own, in less than 40 minutes, and one table of all at the end.

    python -m benchmarks [--quick] [--minutes 38] [--fresh] [--out FOLDER] [NAME …]

A run that was interrupted is continued by the same command. What fails, and what the time did not suffice for, has a
row of the table, which says so. `python -m benchmarks.summary` prints the table again.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks import summary
from benchmarks.timing import RESULTS, write_result

SECONDS = {  # for each benchmark, set-up included; what one does not need the next ones may use
    "recurrent": 370,
    "tcn": 30,
    "gpt": 300,
    "bert": 300,
    "finetune": 100,
    "translate": 90,
    "classify": 20,
    "captions": 25,
    "images": 30,
    "loss": 70,
    "ngram": 140,
    "generate": 400,
    "beam": 130,
    "loading": 60,
    "data": 200,
}
TURNS_SHARE = 0.5  # of the time of a benchmark is for the turns of its cases, the other half for making competitors
QUICK_SECONDS = 300.0


def digest_sources() -> str:
    """Returns a digest of what is measured: the sources of the package and of the benchmarks."""
    top = Path(__file__).parents[1]
    paths = [path for folder in ("src", "benchmarks") for path in sorted((top / folder).rglob("*.*"))]
    digest = hashlib.sha256()
    for path in paths:
        if path.suffix in (".py", ".cpp", ".h"):
            digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


def open_run(out: Path, plan: Mapping[str, Any], fresh: bool) -> dict[str, Any]:
    """Returns what is known of the run in a folder: one of the same plan that has not ended, or a new one."""
    path = out / summary.RUN
    if path.exists() and not fresh:
        run: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        if not run["finished"] and all(run[key] == value for key, value in plan.items()):
            print(f"continues the run of {run['started']}; --fresh begins again")
            return run
    out.mkdir(parents=True, exist_ok=True)
    for old in out.glob("*.json"):
        old.unlink()
    started = time.strftime("%Y-%m-%d %H:%M")
    return {**plan, "started": started, "load": measure_load(), "seconds": 0.0, "finished": False}


def measure_load() -> float:
    """Returns how many cores other processes use, over a second; 0 where that cannot be read.

    The load average of the last minute would be that of installing the peers.
    """
    path = Path("/proc/stat")
    if not path.exists():
        return 0.0

    def idle_ticks() -> int:
        return sum(map(int, path.read_text().splitlines()[0].split()[4:6]))  # idle, and waiting for a disk

    before, began = idle_ticks(), time.perf_counter()
    time.sleep(1.0)
    idle = (idle_ticks() - before) / os.sysconf("SC_CLK_TCK") / (time.perf_counter() - began)
    return max((os.cpu_count() or 1) - idle, 0.0)


def measure_module(name: str, planned: float, seconds: float, out: Path, options: list[str]) -> None:
    """Measures the cases of a benchmark that have no result yet; one that fails does not keep the others from it.

    Args:
        name: Of the module.
        planned: The seconds from which those for the turns of a case follow.
        seconds: After which it is stopped.
        out: The folder of the results.
        options: Further ones of its command line.
    """
    deadline = time.monotonic() + seconds
    try:
        cases: dict[str, str] = importlib.import_module(f"benchmarks.{name}").CASES
    except Exception as error:
        write_result(out, name, f"benchmarks.{name}", {"failure": f"{type(error).__name__}: {error}"})
        return
    if "--quick" not in options:
        options = [*options, f"--seconds={TURNS_SHARE * planned / len(cases):.1f}"]
    pending = [case for case in cases if not (out / f"{case}.json").exists()]
    while pending:
        print(f"\n{name}: {len(pending)} of {len(cases)} cases, at most {seconds:.0f} s", flush=True)
        log = out / f"{name}.log"
        command = [sys.executable, "-m", f"benchmarks.{name}", f"--out={out}", *options]
        command += pending if len(pending) < len(cases) else []
        with log.open("wb") as errors:
            process = subprocess.Popen(command, stderr=errors, start_new_session=True)
            try:
                code = process.wait(max(deadline - time.monotonic(), 0))
            except subprocess.TimeoutExpired:
                code = None
            finally:
                stop(process)
        left = [case for case in pending if not (out / f"{case}.json").exists()]
        if code == 0 and "--quick" in options:
            return
        lines = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
        if code is None:
            for case in left:
                write_result(out, case, cases[case], {"failure": f"left out: {name} has {seconds:.0f} s"})
            return
        if left:
            reason = f"failed with code {code}: {lines[-1] if lines else ''}" if code else "not measured"
            write_result(out, left[0], cases[left[0]], {"failure": reason})
            print(f"{left[0]}: {reason}; see {log}")
        pending = left[1:]


def stop(process: subprocess.Popen[bytes]) -> None:
    """Ends a process and those that it has started, if they still run."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        if process.poll() is None:
            os.killpg(process.pid, number)
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                continue


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"by default all: {', '.join(SECONDS)}")
    parser.add_argument("--quick", action="store_true", help="one turn at the smallest sizes, to see that they run")
    parser.add_argument(
        "--minutes",
        type=float,
        default=sum(SECONDS.values()) / 60,
        help=f"for all (default: {sum(SECONDS.values()) / 60:.0f})",
    )
    parser.add_argument("--fresh", action="store_true", help="do not continue a run that was interrupted")
    parser.add_argument("--out", type=Path, help="folder of the results (default: benchmarks/results)")
    arguments = parser.parse_args()
    if unknown := [name for name in arguments.names if name not in SECONDS]:
        parser.error(f"no benchmark is named {', '.join(unknown)}: there are {', '.join(SECONDS)}")
    names = arguments.names or list(SECONDS)
    out = (arguments.out or (RESULTS / "quick" if arguments.quick else RESULTS)).absolute()
    plan = {"sources": digest_sources(), "benchmarks": names, "minutes": arguments.minutes, "quick": arguments.quick}
    run = open_run(out, plan, arguments.fresh)
    began, before = time.monotonic(), run["seconds"]
    scale = 60 * arguments.minutes / sum(SECONDS.values())
    interrupted = False
    for number, name in enumerate(names):
        summary.write_run(out, run)
        planned = QUICK_SECONDS if arguments.quick else scale * SECONDS[name]
        remaining = scale * sum(SECONDS[each] for each in names) - run["seconds"]
        share = SECONDS[name] / max(sum(SECONDS[each] for each in names[number:]), 1)
        try:
            options = ["--quick"] if arguments.quick else []
            measure_module(name, planned, max(planned, share * remaining), out, options)
        except KeyboardInterrupt:
            interrupted = True
            break
        finally:
            run["seconds"] = before + time.monotonic() - began
    run["finished"] = not interrupted
    summary.write_run(out, run)
    summary.write(out)
    if interrupted:
        raise SystemExit("\ninterrupted: the same command continues it")


if __name__ == "__main__":
    main()
