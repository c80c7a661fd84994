"""Every backbone over lengths from 64 to 8,192: seconds, megabytes, and their exponents beside the theory.

    python -m benchmarks.growth [--models rnn,gpt] [--lengths 64,128,256] [--budget 60]

The view `seriatim inspect MODELS --growth` of all models that are trained by gradients; written to
results/growth/growth.json, with the chart beside it. It has no peer, and is not part of `make bench`.
"""

from __future__ import annotations

import argparse

from benchmarks.timing import RESULTS, write_result
from seriatim.core import registry
from seriatim.inspect import Inspector


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="two models and short sequences; nothing is recorded")
    models = [name for name in registry.models.names() if not registry.models.load(name).Settings.gradient_free]
    parser.add_argument("--models", default=",".join(models))
    parser.add_argument("--lengths", help="comma-separated; by default powers of 2 from 64 to 8,192")
    parser.add_argument("--budget", type=float, default=60.0, help="seconds for each curve")
    arguments = parser.parse_args()
    if arguments.quick:
        arguments.models, arguments.lengths, arguments.budget = "rnn,gpt", "64,128,256", 1.0
    options = {} if arguments.lengths is None else {"lengths": arguments.lengths}
    view = Inspector(*arguments.models.split(",")).show("growth", notify=print, budget=arguments.budget, **options)
    print(view)
    if not arguments.quick:
        write_result(RESULTS / "growth", "growth", "Time and memory over length", {"threads": 1, **view.to_json()})
        view.save(RESULTS / "growth" / "growth.png")
        print(RESULTS / "growth" / "growth.json")


if __name__ == "__main__":
    main()
