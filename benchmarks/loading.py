"""Whether training waits for its pictures: 2,000 JPEG files of 500 × 375, decoded once into the cache, then learnt from
with the batch of the next step made in the background, and, to compare, each batch made when it is asked for.

The share is that of a step's time in which it had no batch to learn from. A network for small pictures is the hard
case: it is done with a batch soonest."""

from __future__ import annotations

import json
import os
import platform
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image

from benchmarks.timing import RESULTS
from seriatim import api
from seriatim.core import registry
from seriatim.core.device import flush_denormals, keep_memory
from seriatim.training.checkpoint import Checkpoints
from seriatim.training.loop import Loop

COUNT, SIZE, CLASSES = 2_000, (500, 375), 4
FORMS: dict[str, dict[str, Any]] = {
    "64 pixels, 8 layers": {"steps": 20, "side": 64, "batch": 64, "model": {"name": "resnet", "width": 16}},
    "224 pixels, 18 layers": {"steps": 4, "side": 224, "batch": 16, "model": {"name": "resnet", "preset": "18"}},
}


def draw(folder: Path) -> None:
    """Clouds of colour: as large as photographs, and as hard to decode."""
    stream = np.random.default_rng(0)
    for number in range(COUNT):
        cloud = Image.fromarray(stream.integers(0, 256, (24, 32, 3), dtype=np.uint8)).resize(
            SIZE, Image.Resampling.BICUBIC
        )
        grain = stream.integers(0, 24, (SIZE[1], SIZE[0], 1), dtype=np.uint8)
        path = folder / f"class{number % CLASSES}" / f"{number:04}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(np.asarray(cloud) // 2 + grain + np.uint8(20 * (number % CLASSES))).save(path, quality=90)


def measured(images: Path, form: dict[str, Any], folder: Path) -> dict[str, float]:
    settings = {
        "model": form["model"],
        "data": {"pictures": {"side": form["side"]}},
        "train": {"steps": form["steps"], "batch": form["batch"], "evaluate_steps": 10_000},
    }
    config = api.configure("classify", str(images), None, settings)
    began = time.perf_counter()
    task = registry.tasks.load("classify").prepare(config)
    found = {"prepared a second": COUNT / (time.perf_counter() - began)}
    began = time.perf_counter()
    registry.tasks.load("classify").prepare(config)
    found["prepared again, s"] = time.perf_counter() - began
    for name, ahead in (("ahead", True), ("when asked for", False)):
        network = task.build(config.model)
        loop = Loop(task, network, config.train, 1e-3, 0, Checkpoints(folder / name))
        loop.ahead.wanted = ahead
        times, waits = [], []
        for _ in range(form["steps"]):
            began, waited = time.perf_counter(), loop.ahead.waited
            loop._update()
            times.append(time.perf_counter() - began)
            waits.append(loop.ahead.waited - waited)
        loop.ahead.close()
        found[f"{name}: step, ms"] = 1e3 * statistics.median(times[2:])
        found[f"{name}: waited, ms"] = 1e3 * statistics.median(waits[2:])
        found[f"{name}: share waited"] = sum(waits[2:]) / sum(times[2:])
    return found


def main() -> None:
    flush_denormals()
    keep_memory()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        os.environ["SERIATIM_CACHE"] = str(folder / "cache")
        draw(folder / "images")
        rows = {title: measured(folder / "images", form, folder / title) for title, form in FORMS.items()}
    print(f"loading  ({torch.get_num_threads()} threads)")
    for title, row in rows.items():
        print(f"  {title}: " + ", ".join(f"{key} {value:.4g}" for key, value in row.items()))
    found = {
        "name": "loading",
        "machine": platform.processor(),
        "torch": torch.__version__.partition("+")[0],
        "rows": rows,
    }
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / "loading.json").write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
