"""The files of a run, read and written without torch: what reports, lists and command lines need.

config.yaml        every setting, with `format: 1`
data.json          the processor, columns and kinds
metrics.jsonl      the events of training, one per line; metrics of evaluations are keys val_<metric>
samples.jsonl      step, tokens and text of what the model produced during training
summary.json       metrics by split, baselines, size, time, notes on the data
evaluation.json    split → charts and tables of the predictions, as JSON values of `report.charts`; under "findings"
                   what the task wants its reader to notice
examples.json      metric → what each example of the validation split contributes to it
inspection.json    charts of the inside of the model
capabilities.json  name → declaration of what the run's predictor offers
"""

from __future__ import annotations

import base64
import contextlib
import datetime
import itertools
import json
import os
import platform
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self, TypeVar

from .errors import SeriatimError, did_you_mean
from .files import Json, locked, read_json_lines, write_errors, write_text
from .findings import Finding
from .metrics import ExampleScores

if TYPE_CHECKING:
    from .run_summary import RunSummary

J = TypeVar("J", Json, list[Any])
FINDINGS = "findings"  # key of evaluation.json beside the splits
FORMAT = 1  # of the run folder; folders of this format open in every later version


RunState = Literal["training", "evaluating", "finished", "stopped"]


@dataclass(frozen=True)
class Writer:
    """The process that writes to a folder.

    Args:
        process: Its number.
        host: The name of its machine.
        since: When it began, as a date and a time in UTC.
    """

    process: int
    host: str
    since: str

    @property
    def ended(self) -> bool:
        """Whether the process is known to have ended; of another machine, or another system than POSIX, it is not."""
        if os.name != "posix" or self.host != platform.node():
            return False
        try:
            os.kill(self.process, 0)
        except ProcessLookupError:
            return True
        except OSError:  # it exists, and is another user's
            pass
        return False


class RunFolder:
    """The folder of a run. Files that are not there yet read as empty.

    Args:
        path: The folder; it has a config.yaml.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        if not (self.path / "config.yaml").is_file():
            siblings = [run.path.name for run in list_runs(self.path.parent)]
            remedy = did_you_mean(self.path.name, siblings) or "`seriatim runs` lists them"
            if (self.path / "comparison.json").is_file():
                remedy = "it is a comparison: name a run in it, or repeat its command"
            raise SeriatimError("run.missing", f"{self.path} is not the folder of a run", remedy)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({str(self.path)!r})"

    @classmethod
    def create(cls, path: str | Path, config: Mapping[str, object]) -> Self:
        """Writes config.yaml into a folder, which is made if needed, and returns the run."""
        from .config import dump_yaml  # imports pydantic, which --help does not need

        write_text(Path(path) / "config.yaml", dump_yaml({"format": FORMAT, **config}))
        return cls(path)

    # Reading

    @cached_property
    def settings(self) -> Json:
        """All settings as a tree of plain values, without the key `format`."""
        from .config import load_yaml

        file = self.path / "config.yaml"
        values = load_yaml(file)
        version = values.pop("format", None)
        if version != FORMAT:
            if isinstance(version, int) and version > FORMAT:
                cause, remedy = f"{file} has format {version}, written by a newer seriatim", "update seriatim"
            else:
                cause, remedy = f"{file} is of a run before format {FORMAT}, which is not read", "train it again"
            raise SeriatimError("run.format", cause, remedy)
        for section in ("task", "model"):
            if not isinstance(values.get(section), dict) or not isinstance(values[section].get("name"), str):
                raise damaged(file, f"it has no {section}.name")
        return values

    @property
    def results(self) -> RunSummary:
        """What is known when training starts and, after it ended, metrics by split, baselines, size and time."""
        from .run_summary import RunSummary

        return RunSummary.parse(self.read_json("summary.json", {}), self.path / "summary.json")

    @property
    def summary(self) -> Json:
        """The results as JSON values, under the keys of summary.json."""
        return self.results.to_json()

    @property
    def notes(self) -> list[str]:
        """What was noted on the data, and on lines of the folder that cannot be read."""
        problems = [read_json_lines(self.path / name)[1] for name in ("metrics.jsonl", "samples.jsonl")]
        return [*self.results.notes, *filter(None, problems)]

    @property
    def capabilities(self) -> Json:
        """The declaration of each capability of the run's predictor, by name."""
        return self.read_json("capabilities.json", {})

    @property
    def writer(self) -> Writer | None:
        """The process that trains or evaluates the run now; None if there is none."""
        writer = read_writer(lock_path(self.path))
        return None if writer is None or writer.ended else writer

    @property
    def state(self) -> RunState:
        """What happens to the run: a process trains or evaluates it; or it is finished, or stopped before its end."""
        if self.writer is None:
            return "finished" if self.results.finished else "stopped"
        events = [record.get("event") for record in self.history()]
        ended = events and events[-1] in ("stopped", "evaluating")
        return "evaluating" if ended else "training"

    def history(self, event: str = "") -> list[Json]:
        """Returns the events of training in order: all, or the events of one name such as "stepped" or "evaluated"."""
        records, _ = read_json_lines(self.path / "metrics.jsonl")
        return [record for record in records if not event or record.get("event") == event]

    def samples(self) -> list[Json]:
        """Returns step, tokens and text of the samples made during training."""
        return read_json_lines(self.path / "samples.jsonl")[0]

    def evaluation(self) -> dict[str, list[Json]]:
        """Returns the views of the predictions by split, as JSON values of `report.charts`."""
        return {key: views for key, views in self.read_json("evaluation.json", {}).items() if key != FINDINGS}

    def findings(self) -> list[Finding]:
        """Returns what the task wants a reader of its report to notice."""
        try:
            return [Finding.from_json(values) for values in self.read_json("evaluation.json", {}).get(FINDINGS, [])]
        except (TypeError, ValueError) as error:
            raise damaged(self.path / "evaluation.json", str(error)) from None

    def examples(self) -> dict[str, ExampleScores]:
        """Returns what each example of the validation split contributes to metrics, by their name."""
        import numpy as np

        scores = {}
        for name, stored in self.read_json("examples.json", {}).items():
            try:
                values = np.frombuffer(base64.b64decode(stored["values"]), np.float32).reshape(-1, stored["width"])
                scores[name] = ExampleScores(stored["kind"], values)
            except (KeyError, TypeError, ValueError) as error:
                raise damaged(self.path / "examples.json", f"{name}: {error}") from None
        return scores

    def inspection(self) -> list[Json]:
        """Returns the charts of the inside of the model, as JSON values of `report.charts`."""
        return self.read_json("inspection.json", [])

    def read_json(self, name: str, default: J) -> J:
        """Returns the content of a file, which has the type of the default; the default if there is no such file."""
        file = self.path / name
        if not file.is_file():
            return default
        try:
            value = json.loads(file.read_text(encoding="utf-8"))
        except (ValueError, RecursionError) as error:
            raise damaged(file, str(error)) from None
        if not isinstance(value, type(default)):
            raise damaged(file, f"it holds a {type(value).__name__} instead of a {type(default).__name__}")
        return value

    # Writing

    def write_results(self, results: RunSummary) -> None:
        self._write("summary.json", results.to_json(), indent=2)

    def write_evaluation(
        self, views: Mapping[str, Sequence[Mapping[str, object]]], findings: Sequence[Finding] = ()
    ) -> None:
        """Writes views by split, which come from `report.charts.views_to_json`, and what the task has found."""
        stored = {FINDINGS: [finding.to_json() for finding in findings]} if findings else {}
        self._write("evaluation.json", {**views, **stored})

    def write_examples(self, scores: Mapping[str, ExampleScores]) -> None:
        """Writes what each example of the validation split contributes to metrics; float32 in base64."""
        packed = {
            name: {
                "kind": score.kind,
                "width": score.values.shape[1],
                "values": base64.b64encode(score.values.astype("<f4").tobytes()).decode(),
            }
            for name, score in scores.items()
        }
        self._write("examples.json", packed)

    def write_inspection(self, views: Sequence[Mapping[str, object]]) -> None:
        """Writes the charts of an inspection; they come from `report.charts.views_to_json`."""
        self._write("inspection.json", list(views))

    def _write(self, name: str, value: object, indent: int | None = None) -> None:
        """Writes JSON; charts are long lists of numbers and have no indentation. Lone surrogates become "?"."""
        text = json.dumps(value, ensure_ascii=False, allow_nan=indent is not None, indent=indent) + "\n"
        write_text(self.path / name, text.encode("utf-8", "replace").decode("utf-8"))


def damaged(file: Path, problem: str, remedy: str = "restore the file, or remove it") -> SeriatimError:
    """Returns the error of a file that cannot be read."""
    return SeriatimError("run.damaged", f"{file} is damaged: {problem}", remedy)


def list_runs(folder: str | Path = "runs") -> list[RunFolder]:
    """Returns the runs in a folder and in the comparisons inside it, newest first."""
    folder = Path(folder)
    runs = []
    for file in [*folder.glob("*/config.yaml"), *folder.glob("*/*/config.yaml")] if folder.is_dir() else []:
        with contextlib.suppress(OSError, SeriatimError):  # removed meanwhile
            runs.append((-file.stat().st_mtime, str(file), RunFolder(file.parent)))
    return [run for *_, run in sorted(runs, key=lambda entry: entry[:2])]


def fresh_folder(base: str | Path, stem: str) -> Path:
    """Makes and returns base/stem, or base/stem-2, … if that exists: two processes never get the same folder."""
    base = Path(base)
    with write_errors(base / stem):
        base.mkdir(parents=True, exist_ok=True)
        for number in itertools.count(1):
            path = base / (stem if number == 1 else f"{stem}-{number}")
            try:
                path.mkdir()
            except FileExistsError:
                continue
            return path
    raise AssertionError("itertools.count never ends")


@contextlib.contextmanager
def locked_folder(folder: Path) -> Iterator[None]:
    """Locks a folder against other processes that write to it.

    The lock is a file beside the folder that says who holds it; it ends with the process, however that ends. On a file
    system without locks nothing is locked. A folder that is empty in the end is removed.
    """
    from filelock import Timeout

    path = lock_path(folder)
    made_parent = not path.parent.exists()
    writer = read_writer(path)  # before the attempt, which may empty the file
    lock = contextlib.ExitStack()
    try:
        with write_errors(folder):
            lock.enter_context(locked(path, timeout=0))
    except Timeout:
        raise locked_error(folder, path, writer) from None
    try:
        since = datetime.datetime.now(datetime.UTC).isoformat(" ", "seconds")
        with contextlib.suppress(OSError):  # of a full disk the caller learns when it writes
            path.write_text(json.dumps(asdict(Writer(os.getpid(), platform.node(), since))) + "\n")
        yield
    finally:
        with contextlib.suppress(OSError):  # the folder was removed, or the disk became read-only
            path.unlink(missing_ok=True)
        lock.close()
        with contextlib.suppress(OSError):  # unless it is empty
            folder.rmdir()
        if made_parent and not folder.exists():  # nothing was written
            with contextlib.suppress(OSError):
                path.parent.rmdir()


def lock_path(folder: Path) -> Path:
    """Returns the file beside a folder by which a process locks it."""
    return folder.absolute().with_name(f".{folder.absolute().name}.lock")


def read_writer(lock: Path) -> Writer | None:
    """Returns the process that a lock names; None if it is not known."""
    try:
        values = json.loads(lock.read_bytes())
        return Writer(int(values["process"]), str(values["host"]), str(values["since"]))
    except (OSError, ValueError, KeyError, TypeError):
        return None


def locked_error(folder: Path, lock: Path, writer: Writer | None) -> SeriatimError:
    """Returns the error of a folder that another process has locked."""
    who = f": process {writer.process} on {writer.host}, since {writer.since}" if writer is not None else ""
    remedy = "wait until it ends, or choose another --out"
    if writer is not None and writer.ended:  # where a file system has no locks, or a child of that process lives on
        remedy = f"that process has ended: remove {lock}"
    return SeriatimError("run.locked", f"another process writes to {folder}{who}", remedy)
