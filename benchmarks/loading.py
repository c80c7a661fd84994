"""Whether training waits for its images: 2,000 JPEG files of 500 × 375, decoded once into the cache, then trained on
with the batch of the next step made in the background, and, for comparison, with each batch made when it is needed.

The share is that of the time of a step in which it had no batch. A network for small images is the hard case: it needs
the next batch soonest.
"""

from __future__ import annotations

import os
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from benchmarks.timing import Measurement, Options, parse_options, report
from seriatim.core.device import flush_denormals, retain_freed_memory
from seriatim.runs.configure import configure
from seriatim.tasks import load
from seriatim.tasks.reading import prepare
from seriatim.training.checkpoint import Checkpoints
from seriatim.training.loop import Loop
from seriatim.training.objective import TaskObjective

COUNT, SIZE, CLASSES = 2_000, (500, 375), 4
SETTINGS: dict[str, dict[str, Any]] = {
    "loading-64": {"steps": 20, "size": 64, "batch_size": 64, "model": {"name": "resnet", "width": 16}},
    "loading-224": {"steps": 7, "size": 224, "batch_size": 16, "model": {"name": "resnet", "preset": "18"}},
}
CASES = {
    "loading-64": "ResNet of 8 layers on JPEG files at 64 × 64: training step with its data",
    "loading-224": "ResNet of 18 layers on JPEG files at 224 × 224: training step with its data",
}
QUICK_CASE = {"steps": 4, "size": 32, "batch_size": 8, "model": {"name": "resnet", "width": 8}}
QUICK_COUNT = 80


def write_images(folder: Path, count: int) -> None:
    """Writes clouds of color, as large as photographs and as hard to decode."""
    generator = np.random.default_rng(0)
    for number in range(count):
        noise = Image.fromarray(generator.integers(0, 256, (24, 32, 3), dtype=np.uint8))
        cloud = np.asarray(noise.resize(SIZE, Image.Resampling.BICUBIC))
        grain = generator.integers(0, 24, (SIZE[1], SIZE[0], 1), dtype=np.uint8)
        path = folder / f"class{number % CLASSES}" / f"{number:04}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(cloud // 2 + grain + np.uint8(20 * (number % CLASSES))).save(path, quality=90)


def measure(name: str, images: Path, folder: Path, options: Options) -> None:
    case = QUICK_CASE if options.quick else SETTINGS[name]
    settings = {
        "model": case["model"],
        "task": {"images": {"size": case["size"]}},
        "train": {"steps": case["steps"], "batch_size": case["batch_size"], "evaluate_steps": 10_000},
    }
    config = configure("classify", str(images), settings=settings)
    task_class = load("classify")
    began = time.perf_counter()
    task, splits = prepare(task_class, config.task_config())
    prepared = time.perf_counter() - began
    began = time.perf_counter()
    prepare(task_class, config.task_config())
    notes = [f"{prepared:.1f} s to prepare the images, {time.perf_counter() - began:.1f} s from the cache"]
    objective = TaskObjective.of(task, splits)
    seconds: dict[str, list[float]] = {}
    for key, enabled in (("seriatim", True), ("seriatim, no prefetch", False)):
        loop = Loop(objective, task.build(splits.train), config.train, 1e-3, 0, Checkpoints(folder / key))
        loop.prefetcher.enabled = enabled
        times, waits = [], []
        for _ in range(case["steps"]):
            began, waited = time.perf_counter(), loop.prefetcher.waited
            loop._update()
            times.append(time.perf_counter() - began)
            waits.append(loop.prefetcher.waited - waited)
        loop.prefetcher.close()
        seconds[key] = times[2:]
        notes.append(f"{key} waits for {sum(waits[2:]) / sum(times[2:]):.1%} of the time")
    report(name, Measurement(seconds), options, note="; ".join(notes))


def main() -> None:
    options = parse_options(__doc__, CASES, quick=list(CASES)[:1])
    flush_denormals()
    retain_freed_memory()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        os.environ["SERIATIM_CACHE"] = str(folder / "cache")
        write_images(folder / "images", QUICK_COUNT if options.quick else COUNT)
        for name in options.cases:
            measure(name, folder / "images", folder / name, options)


if __name__ == "__main__":
    main()
