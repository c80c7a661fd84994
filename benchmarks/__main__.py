"""`make bench`: every benchmark in a process of its own; figures as a table here and as JSON in results/."""

from __future__ import annotations

import subprocess
import sys

BENCHMARKS = (
    "recurrent",
    "tcn",
    "gpt",
    "bert",
    "classify",
    "loss",
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
