"""`make bench`: every benchmark in a process of its own; figures as JSON in results/, then a table and a plot.

python -m benchmarks [--quick] [NAME …]
"""

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
    "images",
    "loading",
    "captions",
    "generate",
    "beam",
    "growth",
    "data",
)

if __name__ == "__main__":
    options = [argument for argument in sys.argv[1:] if argument.startswith("-")]
    for name in [argument for argument in sys.argv[1:] if argument not in options] or BENCHMARKS:
        subprocess.run([sys.executable, "-m", f"benchmarks.{name}", *options], check=True)
    if "--quick" not in options:
        summary.main()
