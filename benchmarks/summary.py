"""All results on one page: results/table.md, and results/ratios.svg and .png.

    python -m benchmarks.summary

A dot is a peer; its position says how many times longer it takes than Seriatim. Left of the line at 1 it is faster.
"""

from __future__ import annotations

import json
from typing import Any

import altair as alt

from benchmarks.timing import RESULTS


def read_results() -> list[dict[str, Any]]:
    """Returns one row for each competitor of each benchmark that compares times."""
    rows = []
    for path in sorted(RESULTS.glob("*.json")):
        result = json.loads(path.read_text(encoding="utf-8"))
        for name, row in result["rows"].items() if "own" in result else ():
            rows.append({"benchmark": result["name"], "competitor": name, "own": name == result["own"], **row})
    return rows


def format_table(rows: list[dict[str, Any]]) -> str:
    lines = ["| benchmark | competitor | median | best | times ours | of the limit |", "|---|---|---|---|---|---|"]
    for row in rows:
        share = f"{row['share_of_limit']:.0%}" if "share_of_limit" in row else ""
        times = f"{row['median'] * 1e3:,.2f} ms | {row['best'] * 1e3:,.2f} ms | {row['ratio']:.2f}×"
        lines.append(f"| {row['benchmark']} | {row['competitor']} | {times} | {share} |")
    return "\n".join(lines) + "\n"


def make_chart(rows: list[dict[str, Any]]) -> alt.LayerChart:
    peers = [row for row in rows if not row["own"] and not row["competitor"].startswith("seriatim")]
    base = alt.Chart(alt.Data(values=peers))
    dots = base.mark_point(filled=True, size=60, opacity=0.8).encode(
        x=alt.X("ratio:Q", title="times as long as Seriatim", scale=alt.Scale(type="log")),
        y=alt.Y("benchmark:N", title=None, sort=None, axis=alt.Axis(labelLimit=260)),
        color=alt.Color("competitor:N", title=None, scale=alt.Scale(scheme="tableau20")),
        shape=alt.Shape("competitor:N", title=None),  # there are more competitors than colors
        tooltip=["benchmark:N", "competitor:N", alt.Tooltip("ratio:Q", format=".2f")],
    )
    level = alt.Chart(alt.Data(values=[{"ratio": 1}])).mark_rule(strokeDash=[4, 3]).encode(x="ratio:Q")
    return alt.layer(level, dots).properties(width=560, height=alt.Step(16))


def main() -> None:
    rows = read_results()
    if not rows:
        raise SystemExit(f"{RESULTS} has no results: run a benchmark first")
    text = format_table(rows)
    (RESULTS / "table.md").write_text(text, encoding="utf-8")
    for extension in ("svg", "png"):
        make_chart(rows).save(str(RESULTS / f"ratios.{extension}"))
    print(text, end="")
    print(RESULTS / "table.md")
    print(RESULTS / "ratios.svg")


if __name__ == "__main__":
    main()
