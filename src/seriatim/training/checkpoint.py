"""Checkpoints: safetensors and JSON, written atomically, with a checksum of every file.

    checkpoints/<step>/  weights, optimizer, ema, carried (states), progress.json, checksums.json

The best and the last (or the last few: `train.keep_checkpoints`) are kept. Random streams are not stored: they are
addressed by the step.
"""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass
from pathlib import Path

from torch import Tensor

from ..core.errors import SeriatimError
from ..core.files import Json, atomic_folder, load_tensors, save_tensors, sha256, write_json


@dataclass(frozen=True)
class Checkpoint:
    """Groups of named tensors ("weights", "optimizer", …) and the progress as plain JSON values."""

    tensors: dict[str, dict[str, Tensor]]
    progress: Json


class Checkpoints:
    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)

    def steps(self) -> list[int]:
        if not self.folder.is_dir():
            return []
        return sorted(int(path.name) for path in self.folder.iterdir() if path.name.isdigit())

    def save(self, step: int, checkpoint: Checkpoint, keep: set[int]) -> Path:
        """Writes the checkpoint of a step, then removes all others that are not in `keep`."""
        path = self.folder / str(step)
        for partial in self.folder.glob(".*"):  # of a process that was killed while writing
            shutil.rmtree(partial, ignore_errors=True)
        with atomic_folder(path) as temporary:
            for name, group in checkpoint.tensors.items():
                save_tensors(temporary / f"{name}.safetensors", group)
            write_json(temporary / "progress.json", checkpoint.progress)
            sums = {file.name: sha256(file) for file in sorted(temporary.iterdir())}
            write_json(temporary / "checksums.json", sums)
        for other in set(self.steps()) - keep - {step}:
            shutil.rmtree(self.folder / str(other), ignore_errors=True)
        return path

    def load(self, step: int | None = None) -> Checkpoint:
        """Returns the checkpoint of a step, by default the last one."""
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
                f"{path}: {', '.join(bad)} is damaged: its checksum differs",
                f"restore the folder, or remove it to continue from another checkpoint (there are: {others})",
            )
        tensors = {Path(name).stem: load_tensors(path / name) for name in sums if name.endswith(".safetensors")}
        return Checkpoint(tensors, json.loads((path / "progress.json").read_text(encoding="utf-8")))
