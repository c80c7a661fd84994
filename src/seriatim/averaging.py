"""A model whose weights are the mean of several: of the last checkpoints of a run, or of runs of one shape.

The last steps of a training circle around a good place; their mean is nearer to it than any of them.
Izmailov et al., "Averaging weights leads to wider optima and better generalization" (2018).
"""

from __future__ import annotations

import datetime
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from torch import Tensor

from . import report
from .core import registry
from .core.errors import SeriatimError
from .core.files import write_json
from .core.tensors import load_tensors, save_tensors
from .nn.network import load_weights
from .runs import Run, fresh_folder
from .session import Notify, Session, has_begun, unchanged
from .training.checkpoint import Checkpoints
from .training.events import Started, Stopped
from .training.listeners import Outcome

WEIGHTS = "model.safetensors"
# What belongs to the weights of one training. All other files say how the data is read, and are the same for the mean.
OWN = {WEIGHTS, "config.yaml", "summary.json", "evaluation.json", "report.html", "README.md"}
STORY = {"metrics.jsonl", "samples.jsonl"}


def average(
    runs: str | Path | Sequence[str | Path],
    *,
    last: int | None = None,
    out: str | Path | None = None,
    evaluate: bool = True,
    data_dir: str | None = None,
    notify: Notify | None = None,
) -> Run:
    """A new run folder with the mean of the `last` checkpoints of one run (by default all that it keeps), or of the
    weights of several runs. It is measured on the data of the (first) run unless `evaluate` is false."""
    paths = [runs] if isinstance(runs, str | Path) else list(runs)
    opened = [Run(path) for path in paths]
    first = opened[0]
    if first.config.model.counts:
        raise SeriatimError("run.counts", f"{first.path}: a model that counts has no checkpoints", "name another run")
    folder = fresh_folder("runs", f"{first.path.name}-average") if out is None else Path(out)
    if folder.is_file():
        raise SeriatimError("run.exists", f"{folder} is a file", "choose another --out")
    if has_begun(folder):
        raise SeriatimError("run.exists", f"{folder} holds a run already", "choose another --out")
    if len(opened) == 1:
        steps = _steps(first, last)
        weights = mean(_checkpoints(first, steps))
        origin: dict[str, Any] = {"run": str(first.path), "steps": steps}
    elif last is None:
        weights = mean(_alike(opened))
        origin = {"runs": [str(run.path) for run in opened]}
    else:
        raise SeriatimError("average.last", "--last is for the checkpoints of one run", "name one run")
    _lay_out(first.path, folder)
    save_tensors(folder / WEIGHTS, weights)
    _tell(Run(folder), first.summary, origin, evaluate, data_dir, notify)
    return Run(folder)


def mean(groups: Iterator[tuple[str, dict[str, Tensor]]]) -> dict[str, Tensor]:
    """Of named tensors, summed in double precision; whole numbers (which do not learn) are those of the last."""
    count, place = 0, ""
    total: dict[str, Tensor] = {}
    kept: dict[str, Tensor] = {}
    for name, group in groups:
        if kept and _shapes(group) != _shapes(kept):
            cause = f"{place} and {name} are not of one shape"
            raise SeriatimError("average.shape", cause, "average runs of one model with the same settings")
        for key, tensor in group.items():
            total[key] = tensor.double() + (total[key] if count else 0)
        count, kept, place = count + 1, group, name
    return {
        key: (total[key] / count).to(tensor.dtype) if tensor.is_floating_point() else tensor
        for key, tensor in kept.items()
    }


def _shapes(group: dict[str, Tensor]) -> dict[str, Any]:
    return {name: tensor.shape for name, tensor in group.items()}


def _steps(run: Run, last: int | None) -> list[int]:
    steps = Checkpoints(run.path / "checkpoints").steps()
    if last is not None and last < 1:
        raise SeriatimError("average.last", f"--last {last} is not a number of checkpoints", "give 2 or more")
    if not steps or (last is not None and last > len(steps)):
        wanted = "" if last is None else f", not {last}"
        more = max(last or 0, 5)
        raise SeriatimError(
            "average.few", f"{run.path} has {len(steps)} checkpoints{wanted}", f"train with --set train.keep={more}"
        )
    return steps if last is None else steps[-last:]


def _checkpoints(run: Run, steps: Sequence[int]) -> Iterator[tuple[str, dict[str, Tensor]]]:
    """What would be evaluated of each: the moving average, where the training kept one."""
    for step in steps:
        tensors = Checkpoints(run.path / "checkpoints").load(step).tensors
        yield f"step {step}", tensors.get("average") or tensors["weights"]


def _alike(runs: Sequence[Run]) -> Iterator[tuple[str, dict[str, Tensor]]]:
    """The weights of runs that read their data in the same way."""
    for run in runs:
        for name in _shared(runs[0].path):
            theirs, ours = run.path / name, runs[0].path / name
            if not theirs.is_file() or theirs.read_bytes() != ours.read_bytes():
                cause = f"{run.path} and {runs[0].path} do not have the same {name}"
                raise SeriatimError("average.differs", cause, "average runs on the same data, with the same tokenizer")
        yield str(run.path), load_tensors(run.path / WEIGHTS)


def _shared(folder: Path) -> list[str]:
    return sorted(one.name for one in folder.iterdir() if one.is_file() and one.name not in OWN | STORY)


def _lay_out(source: Path, folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name in [*_shared(source), *sorted(STORY), "config.yaml"]:
        if (source / name).is_file():
            shutil.copyfile(source / name, folder / name)


def _tell(
    run: Run, old: dict[str, Any], origin: dict[str, Any], evaluate: bool, data_dir: str | None, notify: Notify | None
) -> None:
    """summary.json, the card and, with data, the measures and the report."""
    if evaluate:
        task = registry.tasks.load(run.config.task.name).reopen(run.path, run.config, data_dir, notify)
        write_json(run.path / "summary.json", {"data": old.get("data", {})})
        unchanged(run, task)
        network = task.build(run.config.model)
        load_weights(network, load_tensors(run.path / WEIGHTS))
        outcome = _outcome(run, old, sum(one.numel() for one in network.parameters()))
        session = Session(run.config, run.path, data_dir, (), notify, old.get("teacher"))
        outcome.sample = task.sample(network.eval(), outcome.stopped.step if outcome.stopped else 0)
        session.summarise(task, outcome, network)
        about = run.summary
    else:
        gone = ("measures", "baselines", "signatures", "sample", "best_step")
        about = {name: value for name, value in old.items() if name not in gone}
        about |= {"created": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"), "reason": "averaged"}
    write_json(run.path / "summary.json", about | {"averaged": origin})
    if not evaluate:
        report.write_card(run)


def _outcome(run: Run, old: dict[str, Any], parameters: int) -> Outcome:
    """How the training went from which the weights come."""
    outcome = Outcome()
    step, seconds, tokens = (old.get(name) or 0 for name in ("step", "seconds", "tokens"))
    flops = old["flops"] / step if old.get("flops") and step else None
    outcome.started = Started(0, 0.0, step, parameters, flops, 1, "")
    outcome.stopped = Stopped(step, seconds, "averaged", step, tokens)
    return outcome
