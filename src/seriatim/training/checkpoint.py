"""Checkpoints: safetensors and JSON, written atomically, with a checksum of every file.

    checkpoints/<step>/      weights, optimizer, ema, carried (states), progress.json, checksums.json
    checkpoints/times.jsonl  the training time after each step, where time decides the learning rate or evaluations

The best and the last (or the last few: `train.keep_checkpoints`) are kept. Random streams are not stored: they are
addressed by the step.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from pathlib import Path

from torch import Tensor

from ..core.errors import SeriatimError
from ..core.files import (
    OLD,
    Json,
    append_json,
    atomic_file,
    atomic_folder,
    json_line,
    load_tensors,
    read_json_lines,
    remove_folder,
    remove_partial,
    save_tensors,
    sha256,
    write_json,
)


@dataclass(frozen=True)
class Checkpoint:
    """Groups of named tensors ("weights", "optimizer", …) and the progress as plain JSON values."""

    tensors: dict[str, dict[str, Tensor]]
    progress: Json


class Checkpoints:
    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)

    def steps(self) -> list[int]:
        """Returns the steps of the checkpoints, in order."""
        if not self.folder.is_dir():
            return []
        names = {path.name.removesuffix(OLD) for path in self.folder.iterdir()}
        return sorted(int(name) for name in names if name.isdecimal())

    def save(self, step: int, checkpoint: Checkpoint, keep: set[int]) -> Path:
        """Writes the checkpoint of a step, then removes all others that are not in `keep`."""
        path = self.folder / str(step)
        remove_partial(self.folder)
        with atomic_folder(path) as temporary:
            for name, group in checkpoint.tensors.items():
                save_tensors(temporary / f"{name}.safetensors", group)
            write_json(temporary / "progress.json", checkpoint.progress)
            sums = {file.name: sha256(file) for file in sorted(temporary.iterdir())}
            write_json(temporary / "checksums.json", sums)
        for other in set(self.steps()) - keep - {step}:
            remove_folder(self._path(other))
        return path

    def load(self, step: int | None = None) -> Checkpoint:
        """Returns the checkpoint of a step, by default the last one."""
        steps = self.steps()
        if not steps:
            cause = f"{self.folder.parent} has no checkpoint"
            raise SeriatimError("checkpoint.missing", cause, f"train a new run: --from {self.folder.parent}")
        path = self._path(steps[-1] if step is None else step)
        bad, sums = ["checksums.json"], {}
        try:
            sums = json.loads((path / "checksums.json").read_bytes())
            bad = [name for name, value in sums.items() if sha256(path / name) != value]
            bad += sorted({"weights.safetensors", "progress.json"} - sums.keys())
        except (OSError, ValueError, AttributeError) as error:
            bad = [Path(str(getattr(error, "filename", None) or "checksums.json")).name]
        if bad:
            others = ", ".join(str(other) for other in steps if str(other) != path.name.removesuffix(OLD)) or "none"
            raise SeriatimError(
                "checkpoint.damaged",
                f"{path}: {', '.join(bad)} is damaged: its checksum differs",
                f"restore the folder, or remove it to continue from another checkpoint (there are: {others})",
            )
        tensors = {Path(name).stem: load_tensors(path / name) for name in sums if name.endswith(".safetensors")}
        return Checkpoint(tensors, json.loads((path / "progress.json").read_bytes()))

    def load_evaluated(self, step: int) -> dict[str, Tensor] | None:
        """Returns the weights that were evaluated at a step, averaged if the training averages; None if it is gone."""
        if step not in self.steps():
            return None
        tensors = self.load(step).tensors
        return tensors.get("ema") or tensors["weights"]

    def _path(self, step: int) -> Path:
        """Returns the folder of a step; a process may have been killed while it replaced that folder."""
        path = self.folder / str(step)
        return path if path.is_dir() else path.with_name(path.name + OLD)


class StepTimes:
    """The training time after each step, as a file of JSON lines that grows with every step.

    A process may be killed after its last checkpoint. With these times the steps that are repeated have the learning
    rates and evaluations that they had.
    """

    def __init__(self, folder: str | Path) -> None:
        self.file = Path(folder) / "times.jsonl"

    def load(self) -> dict[int, float]:
        """Returns step → seconds, without damaged lines."""
        lines, _ = read_json_lines(self.file)
        pairs = [(line.get("step"), line.get("seconds")) for line in lines]
        return {
            step: time
            for step, time in pairs
            if isinstance(step, int) and isinstance(time, float) and math.isfinite(time)
        }

    def truncate(self, last: int) -> None:
        """Removes the times after a step."""
        lines = [{"step": step, "seconds": seconds} for step, seconds in self.load().items() if step <= last]
        with atomic_file(self.file) as temporary:
            temporary.write_bytes(b"".join(map(json_line, lines)))

    def append(self, step: int, seconds: float) -> None:
        append_json(self.file, {"step": step, "seconds": seconds})
