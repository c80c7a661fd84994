"""The demo: three problems on built-in data, solved by models of every generation in three minutes, on one page.

Each problem is an ordinary comparison in a folder of its own, which `seriatim compare` would make as well.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ...core.files import write_text
from ...report.run_data import read_runs
from ...runs.compare import Comparison, compare
from ...runs.evaluate import Notify
from ...runs.session import make_folder
from ...training.events import Callback
from .page import demo_page

MODELS: dict[str, dict[str, Any]] = {
    name: {"model": name} for name in ("ngram", "mlp", "rnn", "lstm", "gru", "tcn", "gpt")
}


@dataclass(frozen=True)
class Problem:
    """A comparison of the demo.

    Args:
        title: The heading of its part of the page.
        text: What the problem is.
        task: The name of the task.
        data: A built-in source.
        models: Name → settings over the common ones, in the order of their history.
        seconds: Training time of each network.
        settings: Nested settings of all models.
        short: Options by their short names.
        command: What to try with the best model, the `{run}`, and before it a sentence.
    """

    title: str
    text: str
    task: str
    data: str
    models: Mapping[str, Mapping[str, Any]]
    seconds: float
    settings: Mapping[str, Any] = field(default_factory=dict)
    short: Mapping[str, Any] = field(default_factory=dict)
    command: tuple[str, ...] = ()


PROBLEMS = {
    "language": Problem(
        "Seven generations of language models",
        "The text is that of Python's own help pages. Every model predicts the next character from those before it; "
        "all have the same number of parameters, the same time and the same batches. The n-gram takes less than a "
        "second: it counts, and keeps as many numbers as a network has parameters. Without that limit it would keep "
        "nearly three times as many, and be hard to beat in so short a time.",
        "language",
        "pydoc",
        MODELS,
        13,
        short={"params": "60k", "context_length": 64, "batch_size": 16},
        command=("Let the best language model write:", 'seriatim generate {run} "The "'),
    ),
    "memory": Problem(
        "A problem that needs memory",
        "A sequence has 100 random numbers, of which two are marked, one in each half. The model reads it once, and at "
        "the end it has to say the sum of the two (the adding problem of Hochreiter and Schmidhuber, 1997). A constant "
        "answer has an R² of 0, a perfect one of 1.",
        "regress",
        "adding:100",
        # five levels of the TCN see 125 numbers, the four of its default 61
        {name: own for name, own in MODELS.items() if name != "ngram"}
        | {"tcn": {"model": {"name": "tcn", "levels": 5}}},
        5,
        settings={"task": {"pooling": "last"}},
        short={"params": "20k", "batch_size": 16, "lr": 0.003},
    ),
    "translation": Problem(
        "A translation, and where it looks",
        "Dates, numbers, times and short sentences, from English to French. Before each word that it writes, the "
        "network attends to words of the source; it was not trained with alignments.",
        "translate",
        "dates",
        {"bahdanau": {"model": "bahdanau"}},
        28,
        short={"params": "200k"},
        command=(
            "Translate a sentence of your own:",
            'seriatim translate {run} "We saw Paul\'s three black cats on Monday."',
        ),
    ),
}
# The time that all networks have together; an n-gram takes none.
MINUTES = sum((len(p.models) - ("ngram" in p.models)) * p.seconds for p in PROBLEMS.values()) / 60


@dataclass(frozen=True)
class Demo:
    """The comparisons of the demo that were made."""

    path: Path
    comparisons: dict[str, Comparison]  # by the name of the problem

    @property
    def signal(self) -> str:
        """The signal that interrupted it; "" if none did."""
        runs = [run for comparison in self.comparisons.values() for run in comparison.runs]
        return next((signal for run in runs if (signal := run.results.signal)), "")

    def commands(self) -> dict[str, str]:
        """Returns commands to try next, by a sentence about each."""
        commands = {}
        for name, comparison in self.comparisons.items():
            losses = {run.path: run.results.metrics.get("validation", {}).get("loss") for run in comparison.runs}
            finished = {path: loss for path, loss in losses.items() if loss is not None}
            if PROBLEMS[name].command and finished:
                best = min(finished, key=lambda path: finished[path])
                sentence, command = PROBLEMS[name].command
                commands[sentence] = command.format(run=shlex.quote(str(best)))
        own = "seriatim train language --data book.txt --model gpt --minutes 5"
        return commands | {"Train a model on a text of your own:": own}

    def write(self) -> None:
        """Writes report.html, the page of all comparisons."""
        parts = [
            (PROBLEMS[name].title, PROBLEMS[name].text, read_runs(comparison.runs))
            for name, comparison in self.comparisons.items()
        ]
        loads = [load for comparison in self.comparisons.values() for load in comparison.loads.values()]
        write_text(self.path / "report.html", demo_page(parts, self.commands(), max(loads, default=0.0)).html())


def demo(
    minutes: float = MINUTES,
    *,
    out: str | Path | None = None,
    callbacks: Callable[[str], Iterable[Callback]] = lambda label: (),
    notify: Notify = lambda text: None,
) -> Demo:
    """Makes the comparisons one after the other and writes their page, also if a signal ends it early.

    Args:
        minutes: The training time of all networks together.
        out: The folder. A demo that it holds in part is completed.
        callbacks: Returns the callbacks of a training, by the name of its model.
        notify: Called with a note on each problem.
    """
    result = Demo(make_folder("demo") if out is None else Path(out), {})
    for name, problem in PROBLEMS.items():
        seconds = problem.seconds * minutes / MINUTES
        notify(f"{problem.title}: {problem.data}, {', '.join(problem.models)}, {seconds:.3g} s each")
        result.comparisons[name] = compare(
            problem.task,
            problem.data,
            problem.models,
            settings=problem.settings,
            out=result.path / name,
            callbacks=callbacks,
            minutes=seconds / 60,
            **problem.short,
        )
        if result.signal:
            break
    result.write()
    return result
