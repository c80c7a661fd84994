"""One table of all results: table.md and table.json, and a plot of the ratios, ratios.svg and .png.

    python -m benchmarks.summary [FOLDER]

A ratio is the time of the best peer over ours: above 1 ours is faster. Differences below a tenth are ties.
"""

from __future__ import annotations

import importlib.metadata
import json
import os
import platform
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import altair as alt
from rich.console import Console
from rich.table import Table

from benchmarks.timing import RESULTS

RUN = "run.json"
TIE = 1.1  # the ratio up to which a difference is none
COLUMNS = ("what", "ours", "best peer", "", "ratio", "of the limit", "notes")
PACKAGES = (
    "torch",
    "transformers",
    "jax",
    "keras",
    "onnxruntime",
    "ctranslate2",
    "joeynmt",
    "kenlm",
    "nltk",
    "datasets",
)
NOT_HERE = (
    "Not in this table, since they compare no times with a peer: growth over length (`python -m benchmarks.growth`), "
    "and loss by optimizer (`python -m benchmarks.recipes`)."
)


def write_run(out: Path, run: Mapping[str, Any]) -> None:
    """Writes what is known of the whole run."""
    (out / RUN).write_text(json.dumps(run, indent=2) + "\n", encoding="utf-8")


def read_results(out: Path) -> list[dict[str, Any]]:
    """Returns the results of a folder, in the order in which they were measured."""
    paths = sorted((path for path in out.glob("*.json") if path.name not in (RUN, "table.json")), key=measured_at)
    return [json.loads(path.read_text(encoding="utf-8")) for path in paths]


def measured_at(path: Path) -> float:
    return path.stat().st_mtime


def best_peer(result: Mapping[str, Any]) -> str | None:
    """Returns the name of the fastest competitor that is not ours."""
    peers = {name: row["median"] for name, row in result.get("rows", {}).items() if not name.startswith("seriatim")}
    return min(peers, key=lambda name: peers[name]) if peers else None


def verdict(result: Mapping[str, Any]) -> str:
    """Returns "faster", "tie" or "slower" than the best peer; "no peer" or "not measured" where there is none."""
    if "rows" not in result:
        return "not measured"
    peer = best_peer(result)
    if peer is None:
        return "no peer"
    ratio = result["rows"][peer]["ratio"]
    return "faster" if ratio > TIE else "slower" if ratio < 1 / TIE else "tie"


def format_time(seconds: float) -> str:
    for unit, factor in (("s", 1.0), ("ms", 1e3)):
        if seconds * factor >= 10 or unit == "ms":
            value = seconds * factor
            return f"{value:,.0f} {unit}" if value >= 100 else f"{value:.3g} {unit}"
    raise AssertionError


def table_row(result: Mapping[str, Any]) -> tuple[str, ...]:
    """Returns the cells of a case."""
    if "rows" not in result:
        return (result["what"], "", "", "", "not measured", "", result["failure"])
    own, peer = result["rows"][result["own"]], best_peer(result)
    notes = [result["note"]] if result["note"] else []
    notes += [f"without {name}: {reason}" for name, reason in result["missing"].items()]
    share = f"{own['share_of_limit']:.0%} ({result['limit']})" if "share_of_limit" in own else ""
    cells = ("", "none", "")
    if peer is not None:
        row = result["rows"][peer]
        outcome = verdict(result)
        cells = (format_time(row["median"]), peer, f"{row['ratio']:.2f}×{'' if outcome == 'faster' else f' {outcome}'}")
        if "bytes" in own and "bytes" in row:
            notes.append(f"{own['bytes'] / 1e6:.0f} MB against {row['bytes'] / 1e6:.0f} MB")
    return (result["what"], format_time(own["median"]), *cells, share, "; ".join(notes))


def describe_run(out: Path, results: Sequence[Mapping[str, Any]]) -> list[str]:
    """Returns what is to be said below the table."""
    verdicts = [verdict(result) for result in results]
    kinds = [kind for kind in ("faster", "tie", "slower", "no peer", "not measured") if kind in verdicts]
    lines = [f"{len(results)} cases: " + ", ".join(f"{verdicts.count(kind)} {kind}" for kind in kinds) + "."]
    limits = [result for result in results if result.get("flops_per_second")]
    if limits:
        flops = max(result["flops_per_second"] for result in limits) / 1e9
        read = max(result["bytes_per_second"] for result in limits) / 1e9
        lines.append(f"Limits, measured with each case: float32 matmul {flops:.0f} GFLOP/s, memory {read:.0f} GB/s.")
    versions = []
    for package in PACKAGES:
        try:
            versions.append(f"{package} {importlib.metadata.version(package).partition('+')[0]}")
        except importlib.metadata.PackageNotFoundError:
            versions.append(f"{package} not installed")
    lines.append(f"{processor_name()}, {os.cpu_count()} cores; {', '.join(versions)}.")
    if (out / RUN).exists():
        run = json.loads((out / RUN).read_text(encoding="utf-8"))
        state = "" if run["finished"] else " so far (it was interrupted)"
        lines.append(f"Begun {run['started']}, {run['seconds'] / 60:.0f} minutes{state}.")
        if run["load"] > 0.5:
            lines.append(f"Others used {run['load']:.1f} cores when it began: the times are not to be trusted.")
    return [*lines, NOT_HERE]


def processor_name() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        return next(line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()


def format_markdown(results: Sequence[Mapping[str, Any]], lines: Sequence[str]) -> str:
    rows = [COLUMNS, ("---",) * len(COLUMNS), *(table_row(result) for result in results)]
    table = "\n".join(f"| {' | '.join(cell.replace('|', '/') for cell in row)} |" for row in rows)
    return f"{table}\n\n" + "\n\n".join(lines) + "\n"


def print_table(results: Sequence[Mapping[str, Any]], lines: Sequence[str]) -> None:
    table = Table(*COLUMNS, title="Seriatim beside the best peer")
    styles = {"faster": "", "tie": "yellow", "slower": "red", "no peer": "", "not measured": "magenta"}
    for result in results:
        table.add_row(*table_row(result), style=styles[verdict(result)])
    console = Console(width=None if sys.stdout.isatty() else 200, markup=False, highlight=False)
    console.print(table)
    for line in lines:
        console.print(line)


def make_chart(results: Sequence[Mapping[str, Any]]) -> alt.LayerChart:
    """Returns a plot with a dot for each peer, at the right of 1 if ours is faster."""
    peers = [
        {"case": result["what"], "peer": name, "ratio": row["ratio"]}
        for result in results
        for name, row in result.get("rows", {}).items()
        if not name.startswith("seriatim")
    ]
    dots = (
        alt.Chart(alt.Data(values=peers))
        .mark_point(filled=True, size=60, opacity=0.8)
        .encode(
            x=alt.X("ratio:Q", title="times as long as Seriatim", scale=alt.Scale(type="log")),
            y=alt.Y("case:N", title=None, sort=None, axis=alt.Axis(labelLimit=420)),
            color=alt.Color("peer:N", title=None, scale=alt.Scale(scheme="tableau20")),
            shape=alt.Shape("peer:N", title=None),  # there are more peers than colors
            tooltip=["case:N", "peer:N", alt.Tooltip("ratio:Q", format=".2f")],
        )
    )
    level = alt.Chart(alt.Data(values=[{"ratio": 1}])).mark_rule(strokeDash=[4, 3]).encode(x="ratio:Q")
    return alt.layer(level, dots).properties(width=560, height=alt.Step(16))


def write(out: Path) -> None:
    """Prints the table of a folder of results and writes it there."""
    results = read_results(out)
    if not results:
        raise SystemExit(f"{out} has no results: run a benchmark first")
    lines = describe_run(out, results)
    (out / "table.md").write_text(format_markdown(results, lines), encoding="utf-8")
    table = {"lines": lines, "cases": [{**result, "verdict": verdict(result)} for result in results]}
    (out / "table.json").write_text(json.dumps(table, indent=2) + "\n", encoding="utf-8")
    print_table(results, lines)
    print(out / "table.md")
    if any(best_peer(result) for result in results):
        for extension in ("svg", "png"):
            make_chart(results).save(str(out / f"ratios.{extension}"))
        print(out / "ratios.svg")


if __name__ == "__main__":
    write(Path(sys.argv[1]) if len(sys.argv) > 1 else RESULTS)
