"""Averages: a model whose weights are the mean of several checkpoints of a run, or of runs of one shape.

Izmailov et al., "Averaging weights leads to wider optima and better generalization" (2018). Gradient-free models have
no weights to average: of these the probabilities are, with a weight for each that suits the validation split.
"""

from __future__ import annotations

import datetime
import json
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path

from torch import Tensor

from .. import report
from ..core.errors import Diagnostics, SeriatimError
from ..core.files import atomic_file, load_tensors, save_tensors
from ..core.run_folder import FORMAT, fresh_folder, locked_folder
from ..core.run_summary import AverageSummary, RunSummary
from ..nn.network import count_parameters, weights
from ..tasks.processor import Stored
from ..training.checkpoint import Checkpoints
from ..training.events import Outcome, Started, Stopped
from .evaluate import Data, Notify, reopen_task
from .run import WEIGHTS, Run
from .session import Prepared, Session, check_unused

DATA_FILES = ("data.json", "capabilities.json", "tokenizer*.json")  # how data is read: the same for the average
HISTORY_FILES = ("metrics.jsonl", "samples.jsonl")
RESULTS = ("metrics", "baselines", "signatures", "sample", "best_step")  # keys of summary.json that need an evaluation


def average(
    runs: str | Path | Sequence[str | Path],
    *,
    last: int | None = None,
    out: str | Path | None = None,
    evaluate: bool = True,
    data_dir: str | None = None,
    notify: Notify | None = None,
) -> Run:
    """Writes a run folder with averaged weights and returns the run.

    Args:
        runs: One run, whose checkpoints are averaged; several runs of the same model on the same data; or several
            gradient-free ones with the same tokenizer, which are interpolated.
        last: How many of the last checkpoints of one run; by default all that it keeps.
        out: The run folder.
        evaluate: Whether to evaluate it on the data of the (first) run.
        data_dir: The folder of catalogue data sets.
        notify: Called with each note.
    """
    opened = [Run(path) for path in ([runs] if isinstance(runs, str | Path) else runs)]
    if not opened:
        raise SeriatimError("average.few", "no run is named", "name one run, or several of the same model")
    first = opened[0]
    gradient_free = first.config.model.gradient_free
    if gradient_free and len(opened) == 1:
        cause = f"{first.path}: {first.config.model.name} has no checkpoints"
        raise SeriatimError("run.gradient-free", cause, "name several runs of it: their probabilities are averaged")
    if evaluate or gradient_free:
        try:
            Data().check_memory(first)  # before the folder is made
        except SeriatimError as error:
            remedy = "train on a file" if gradient_free else "omit the evaluation: evaluate=False, --no-evaluate"
            raise SeriatimError(error.code, error.cause, remedy) from None
    folder = fresh_folder("runs", f"{first.path.name}-average") if out is None else Path(out)
    weights: dict[str, Tensor]
    origin: AverageSummary
    with locked_folder(folder):
        check_unused(folder)
        history: tuple[str, ...] = HISTORY_FILES
        if gradient_free and last is None:
            history, (weights, origin) = (), interpolate(opened, data_dir, notify)
        elif len(opened) == 1:
            steps = checkpoint_steps(first, last)
            weights = mean_weights(checkpoint_weights(first, steps))
            origin = AverageSummary(run=str(first.path), steps=steps)
        elif last is None:
            weights = mean_weights(run_weights(opened))
            origin = AverageSummary(runs=[str(run.path) for run in opened])
        else:
            raise SeriatimError("average.last", "--last is for the checkpoints of one run", "name one run")
        copy_files(first.path, folder, shared_files(first.path))
        save_tensors(folder / WEIGHTS, weights)
        copy_files(first.path, folder, ["config.yaml"])
        run = Run(folder)
        if evaluate:
            summarize_average(run, first, origin, data_dir, notify)
            copy_files(first.path, folder, history)
        else:
            created = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
            known = {key: value for key, value in first.results.to_json().items() if key not in RESULTS}
            results = RunSummary.model_validate(known).replace(
                created=created, reason="averaged", averaged=origin, parameters=count_parameters(run.network)
            )
            copy_files(first.path, folder, history)
            run.write_results(results)
            report.write_card(run)
    return run


def copy_files(source: Path, target: Path, names: Sequence[str]) -> None:
    """Copies the files of these names that exist from one folder to another, each atomically."""
    for name in names:
        if (source / name).is_file():
            with atomic_file(target / name) as temporary:
                shutil.copyfile(source / name, temporary)


def mean_weights(groups: Iterator[tuple[str, dict[str, Tensor]]]) -> dict[str, Tensor]:
    """Returns the mean of named tensors, summed in double precision; integers are those of the last group.

    Args:
        groups: A name for messages and the tensors of each model.
    """
    count, last_name = 0, ""
    total: dict[str, Tensor] = {}
    last: dict[str, Tensor] = {}
    for name, group in groups:
        if last and {key: value.shape for key, value in group.items()} != {
            key: value.shape for key, value in last.items()
        }:
            cause = f"{last_name} and {name} are not of one shape"
            raise SeriatimError("average.shape", cause, "average runs of one model with the same settings")
        for key, tensor in group.items():
            total[key] = tensor.double() + (total[key] if count else 0)
        count, last, last_name = count + 1, group, name
    return {
        key: (total[key] / count).to(tensor.dtype) if tensor.is_floating_point() else tensor
        for key, tensor in last.items()
    }


def interpolate(
    runs: Sequence[Run], data_dir: str | None, notify: Notify | None
) -> tuple[dict[str, Tensor], AverageSummary]:
    """Returns the tensors of gradient-free models with weights that suit the validation split, and where they are from.

    The models may be trained on different data, with one tokenizer; the validation split is that of the first run.
    """
    first = runs[0]
    tokenizers = [name for name in shared_files(first.path) if name.startswith("tokenizer")]
    for run in runs[1:]:
        if run.config.task.name != first.config.task.name or run.config.model.name != first.config.model.name:
            cause = f"{run.path} and {first.path} are not of the same task and model"
            raise SeriatimError("average.differs", cause, "interpolate runs of one model")
        check_same_files(run, first, tokenizers)
    task, splits = reopen_task(first, data_dir=data_dir, diagnostics=Diagnostics(notify))
    mixture = task.interpolate([run.network for run in runs], splits["validation"])
    shares = [round(float(weight), 6) for weight in mixture.weights]
    names: list[str] = []
    for run in runs:  # each model of a run that is itself interpolated has a weight of its own
        before = run.results.averaged
        count, parts = (1, []) if before is None else (len(before.weights) or 1, before.runs)
        names += parts if len(parts) == count else [str(run.path)] * count
    if notify is not None:
        notify("weights: " + ", ".join(f"{name} {share:.4f}" for name, share in zip(names, shares, strict=False)))
    return weights(mixture), AverageSummary(runs=names, weights=shares)


def checkpoint_steps(run: Run, last: int | None) -> list[int]:
    """Returns the steps of the checkpoints to average, or raises SeriatimError if there are too few."""
    steps = Checkpoints(run.path / "checkpoints").steps()
    if last is not None and last < 1:
        raise SeriatimError("average.last", f"--last {last} is not a number of checkpoints", "give 2 or more")
    if not steps or (last is not None and last > len(steps)):
        cause = f"{run.path} has {len(steps)} checkpoints" + ("" if last is None else f", not {last}")
        raise SeriatimError("average.few", cause, f"train with --set train.keep_checkpoints={max(last or 0, 5)}")
    return steps if last is None else steps[-last:]


def checkpoint_weights(run: Run, steps: Sequence[int]) -> Iterator[tuple[str, dict[str, Tensor]]]:
    """Yields the weights that would be evaluated at each step: the moving average if the training has one."""
    for step in steps:
        tensors = Checkpoints(run.path / "checkpoints").load_evaluated(step)
        if tensors is None:
            cause = f"{run.path} has lost the checkpoint of step {step}"
            raise SeriatimError("average.few", cause, "it is in training: repeat the command, or wait until it ends")
        yield f"step {step}", tensors


def run_weights(runs: Sequence[Run]) -> Iterator[tuple[str, dict[str, Tensor]]]:
    """Yields the weights of runs that read their data in the same way."""
    for run in runs:
        check_same_files(run, runs[0], shared_files(runs[0].path))
        yield str(run.path), load_tensors(run.path / WEIGHTS, finite=True)


def check_same_files(run: Run, first: Run, names: Sequence[str]) -> None:
    """Raises SeriatimError unless the files of these names have the same content in both runs."""
    for name in names:
        file = run.path / name
        if not file.is_file() or content(file) != content(first.path / name):
            cause = f"{run.path} and {first.path} do not have the same {name}"
            raise SeriatimError("average.differs", cause, "average runs on the same data, with the same tokenizer")


def content(file: Path) -> object:
    """Returns what must be equal: the values of a JSON file, without digests of settings and what follows from weights.

    Notes are ignored: they may mention either.
    """
    values = json.loads(file.read_bytes())
    processor = values.get("processor")
    if isinstance(processor, dict):
        from_weights = Stored.classes[processor["type"]].from_weights
        values["processor"] = {key: value for key, value in processor.items() if key not in from_weights}
    return {key: value for key, value in values.items() if key not in ("settings", "sha256", "notes")}


def shared_files(folder: Path) -> list[str]:
    """Returns the names of the files that do not depend on the weights."""
    return sorted(file.name for pattern in DATA_FILES for file in folder.glob(pattern))


def summarize_average(
    run: Run, first: Run, origin: AverageSummary, data_dir: str | None, notify: Notify | None
) -> None:
    """Evaluates the averaged weights on the data of the first run and writes the records of the new run.

    Args:
        run: The new run.
        first: The first of those that are averaged.
        origin: Which runs or checkpoints are averaged, for the summary.
        data_dir: The folder of catalogue data sets.
        notify: Called with each note.
    """
    before = first.results
    run.write_results(RunSummary(format=FORMAT, data=before.data))
    session = Session(run.config, run.path, data_dir=data_dir, notify=notify)
    session.diagnostics = Diagnostics(notify)
    prepared = Prepared(*reopen_task(run, data_dir=data_dir, diagnostics=session.diagnostics))
    task, validation = prepared.task, prepared.splits["validation"]
    step, seconds, tokens = int(before.step or 0), before.seconds or 0, int(before.tokens or 0)
    flops = before.flops / step if before.flops and step else None
    network = run.network
    outcome = Outcome()
    outcome.started = Started(0, 0.0, step, count_parameters(network), flops, 1, task.unit)
    outcome.stopped = Stopped(step, seconds, "averaged", step, tokens)
    outcome.sample = task.sample(task.evaluate(network, task.sample_split(validation)))
    session.teacher_summary, session.averaged = before.teacher, origin
    session.summarize(prepared, outcome, network)
