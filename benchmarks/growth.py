"""Every backbone over lengths from 64 to 8,192: seconds, megabytes, and their exponents beside the theory.

    python -m benchmarks.growth [--models rnn,gpt] [--lengths 64,128,256] [--budget 60]

What `seriatim inspect MODELS --growth` shows, for all models that read vectors; written to results/growth.json, with
the picture beside it.
"""

from __future__ import annotations

import argparse
import json
import platform

import torch

from benchmarks.timing import RESULTS
from seriatim.core import registry
from seriatim.inspect import Inspector
from seriatim.inspect.growth import LENGTHS


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    learners = [name for name in registry.models.names() if not registry.models.load(name).Settings.counts]
    parser.add_argument("--models", default=",".join(learners))
    parser.add_argument("--lengths", default=",".join(map(str, LENGTHS)))
    parser.add_argument("--budget", type=float, default=60.0, help="seconds for each curve")
    chosen = parser.parse_args()
    seen = Inspector(*chosen.models.split(",")).growth(lengths=chosen.lengths, budget=chosen.budget, notify=print)
    print("\n".join(seen.lines()))
    RESULTS.mkdir(exist_ok=True)
    found = {"machine": platform.processor(), "torch": torch.__version__, "threads": 1, **seen.record()}
    (RESULTS / "growth.json").write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")
    seen.save(RESULTS / "growth.png")
    print(RESULTS / "growth.json")


if __name__ == "__main__":
    main()
