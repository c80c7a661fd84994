"""Whether training waits for its images: 2,000 JPEG files of 500 × 375, decoded once into the cache, then trained on
with the batch of the next step made in the background, and, for comparison, with each batch made when it is needed.

The share is that of the time of a step in which it had no batch. A network for small images is the hard case: it needs
the next batch soonest.
"""

from __future__ import annotations

import os
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image

from benchmarks.timing import make_parser, parse_arguments, save_results
from seriatim.core.device import flush_denormals, retain_freed_memory
from seriatim.runs.configure import configure
from seriatim.tasks import load
from seriatim.training.checkpoint import Checkpoints
from seriatim.training.loop import Loop

COUNT, SIZE, CLASSES = 2_000, (500, 375), 4
CASES: dict[str, dict[str, Any]] = {
    "64 pixels, 8 layers": {"steps": 20, "size": 64, "batch_size": 64, "model": {"name": "resnet", "width": 16}},
    "224 pixels, 18 layers": {"steps": 4, "size": 224, "batch_size": 16, "model": {"name": "resnet", "preset": "18"}},
}
QUICK_CASES = {"32 pixels": {"steps": 4, "size": 32, "batch_size": 8, "model": {"name": "resnet", "width": 8}}}
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


def measure(images: Path, count: int, case: dict[str, Any], folder: Path) -> dict[str, float]:
    settings = {
        "model": case["model"],
        "task": {"images": {"size": case["size"]}},
        "train": {"steps": case["steps"], "batch_size": case["batch_size"], "evaluate_steps": 10_000},
    }
    config = configure("classify", str(images), settings=settings)
    task_class = load("classify")
    began = time.perf_counter()
    task = task_class.prepare(config.task_config())
    result = {"images prepared per second": count / (time.perf_counter() - began)}
    began = time.perf_counter()
    task_class.prepare(config.task_config())
    result["prepared again, s"] = time.perf_counter() - began
    for name, enabled in (("prefetch", True), ("no prefetch", False)):
        loop = Loop(task, task.build(), config.train, 1e-3, 0, Checkpoints(folder / name))
        loop.prefetcher.enabled = enabled
        times, waits = [], []
        for _ in range(case["steps"]):
            began, waited = time.perf_counter(), loop.prefetcher.waited
            loop._update()
            times.append(time.perf_counter() - began)
            waits.append(loop.prefetcher.waited - waited)
        loop.prefetcher.close()
        result[f"{name}: step, ms"] = 1e3 * statistics.median(times[2:])
        result[f"{name}: waited, ms"] = 1e3 * statistics.median(waits[2:])
        result[f"{name}: share waited"] = sum(waits[2:]) / sum(times[2:])
    return result


def main() -> None:
    arguments = parse_arguments(make_parser(__doc__))
    cases, count = (QUICK_CASES, QUICK_COUNT) if arguments.quick else (CASES, COUNT)
    flush_denormals()
    retain_freed_memory()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        os.environ["SERIATIM_CACHE"] = str(folder / "cache")
        write_images(folder / "images", count)
        rows = {title: measure(folder / "images", count, case, folder / title) for title, case in cases.items()}
    print(f"loading  ({torch.get_num_threads()} threads)")
    for title, row in rows.items():
        print(f"  {title}: " + ", ".join(f"{key} {value:.4g}" for key, value in row.items()))
    if not arguments.quick:
        save_results("loading", {"rows": rows})


if __name__ == "__main__":
    main()
