"""Every backbone over lengths from 64 to 8,192: seconds, megabytes, and their exponents beside the theory.

    python -m benchmarks.growth [--models rnn,gpt] [--lengths 64,128,256] [--budget 60]

The view `seriatim inspect MODELS --growth` of all models that are trained by gradients; written to results/growth.json,
with the chart beside it.
"""

from __future__ import annotations

from benchmarks.timing import RESULTS, make_parser, parse_arguments, save_results
from seriatim.core import registry
from seriatim.inspect import Inspector


def main() -> None:
    parser = make_parser(__doc__)
    models = [name for name in registry.models.names() if not registry.models.load(name).Settings.gradient_free]
    parser.add_argument("--models", default=",".join(models))
    parser.add_argument("--lengths", help="comma-separated; by default powers of 2 from 64 to 8,192")
    parser.add_argument("--budget", type=float, default=60.0, help="seconds for each curve")
    arguments = parse_arguments(parser)
    if arguments.quick:
        arguments.models, arguments.lengths, arguments.budget = "rnn,gpt", "64,128,256", 1.0
    options = {} if arguments.lengths is None else {"lengths": arguments.lengths}
    view = Inspector(*arguments.models.split(",")).show("growth", notify=print, budget=arguments.budget, **options)
    print(view)
    if not arguments.quick:
        save_results("growth", {"threads": 1, **view.to_json()})
        view.save(RESULTS / "growth.png")
        print(RESULTS / "growth.json")


if __name__ == "__main__":
    main()
