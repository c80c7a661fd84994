"""`make bench`: every benchmark in a process of its own; figures as JSON in results/, then a table and a plot."""

from __future__ import annotations

import subprocess
import sys

from benchmarks import summary

BENCHMARKS = (
    "recurrent",
    "tcn",
    "gpt",
    "bert",
    "classify",
    "loss",
    "ngram",
    "translate",
    "pictures",
    "loading",
    "captions",
    "generate",
    "beam",
    "growth",
)

if __name__ == "__main__":
    for name in sys.argv[1:] or BENCHMARKS:
        subprocess.run([sys.executable, "-m", f"benchmarks.{name}"], check=True)
    summary.main()
