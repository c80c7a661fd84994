"""Checkpoints: safetensors and JSON, written aside and renamed, with a checksum of every file.

    checkpoints/<step>/  weights, optimiser, average (EMA), carried states, progress.json, checksums.json

Only the best and the last (or the last few: `train.keep`) are kept. Random streams need no place here: they are
addressed by the step.
"""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from ..core.errors import SeriatimError
from ..core.files import atomic_folder, sha256, write_json
from ..core.tensors import load_tensors, save_tensors


@dataclass(frozen=True)
class Checkpoint:
    """Groups of named tensors ("weights", "optimiser", …) and the progress, plain JSON values."""

    tensors: dict[str, dict[str, Tensor]]
    progress: dict[str, Any]


class Checkpoints:
    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)

    def steps(self) -> list[int]:
        if not self.folder.is_dir():
            return []
        return sorted(int(path.name) for path in self.folder.iterdir() if path.name.isdigit())

    def save(self, step: int, checkpoint: Checkpoint, keep: set[int]) -> Path:
        """Writes the checkpoint of a step, then removes those that are neither it nor in `keep`."""
        path = self.folder / str(step)
        for left in self.folder.glob(".*"):  # by a process that was killed while it wrote
            shutil.rmtree(left, ignore_errors=True)
        with atomic_folder(path) as aside:
            for name, group in checkpoint.tensors.items():
                save_tensors(aside / f"{name}.safetensors", group)
            write_json(aside / "progress.json", checkpoint.progress)
            sums = {file.name: sha256(file) for file in sorted(aside.iterdir())}
            write_json(aside / "checksums.json", sums)
        for other in set(self.steps()) - keep - {step}:
            shutil.rmtree(self.folder / str(other), ignore_errors=True)
        return path

    def load(self, step: int | None = None) -> Checkpoint:
        """The checkpoint of a step, by default the last one."""
        steps = self.steps()
        if not steps:
            raise SeriatimError(
                "checkpoint.missing", f"{self.folder.parent} has no checkpoint", "train it first: `seriatim train`"
            )
        path = self.folder / str(steps[-1] if step is None else step)
        try:
            sums = json.loads((path / "checksums.json").read_text(encoding="utf-8"))
            bad = [name for name, value in sums.items() if sha256(path / name) != value]
        except (OSError, ValueError):
            bad = ["checksums.json"]
            sums = {}
        if bad:
            others = ", ".join(str(other) for other in steps if str(other) != path.name) or "none"
            raise SeriatimError(
                "checkpoint.damaged",
                f"{path}: {', '.join(bad)} is not what was written",
                f"restore the folder, or remove it to go on from another checkpoint (there are: {others})",
            )
        tensors = {Path(name).stem: load_tensors(path / name) for name in sums if name.endswith(".safetensors")}
        return Checkpoint(tensors, json.loads((path / "progress.json").read_text(encoding="utf-8")))
