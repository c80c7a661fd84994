"""Prefetching: batches of images made in a thread change nothing, stop cleanly and report their errors."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from seriatim.core.errors import SeriatimError
from seriatim.nn.network import weights
from seriatim.training.checkpoint import Checkpoints
from seriatim.training.config import TrainSettings
from seriatim.training.loop import Loop, Prefetcher
from seriatim.training.objective import TaskObjective
from task_helpers import prepare_splits


@pytest.fixture(name="images", scope="module")
def _images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("images") / "images.npz"
    pixels = np.random.default_rng(0).integers(0, 256, (40, 12, 12, 3), dtype=np.uint8)
    np.savez(path, x=pixels, y=np.arange(40) % 2)
    return path


def make_loop(images: Path, folder: Path, prefetch: bool) -> Loop:
    task, splits = prepare_splits("classify", images, {"name": "resnet", "width": 4})
    assert task.prefetch
    settings = TrainSettings(steps=6, batch_size=8, evaluate_steps=3)
    loop = Loop(TaskObjective.of(task, splits), task.build(splits.train), settings, 1e-2, 0, Checkpoints(folder))
    loop.prefetcher.enabled = prefetch
    return loop


def test_prefetching_changes_nothing(images: Path, tmp_path: Path) -> None:
    threads, results = threading.active_count(), []
    for prefetch in (False, True):
        loop = make_loop(images, tmp_path / str(prefetch), prefetch)
        list(loop.run())
        results.append(weights(loop.network))
    assert all(torch.equal(results[0][name], results[1][name]) for name in results[0])
    assert threading.active_count() == threads


def test_interrupted_training_leaves_no_thread_and_continues(images: Path, tmp_path: Path) -> None:
    whole = make_loop(images, tmp_path / "whole", prefetch=True)
    list(whole.run())
    threads = threading.active_count()
    interrupted = make_loop(images, tmp_path / "cut", prefetch=True)
    events = interrupted.run()
    while interrupted.progress.step < 5:
        next(events)
    events.close()
    assert threading.active_count() == threads
    resumed = make_loop(images, tmp_path / "cut", prefetch=True)
    resumed.resume()
    assert resumed.progress.step == 3
    list(resumed.run())
    expected, result = weights(whole.network), weights(resumed.network)
    assert all(torch.equal(expected[name], result[name]) for name in expected)


def test_errors_of_the_thread_are_raised_at_their_step(
    images: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loop = make_loop(images, tmp_path, prefetch=True)
    batch = loop.objective.batch

    def fail(step: int, *arguments: int) -> Any:
        if step == 4:
            raise SeriatimError("data.gone", "the disk is gone")
        return batch(step, *arguments)

    monkeypatch.setattr(loop.objective, "batch", fail)
    threads = threading.active_count()
    with pytest.raises(SeriatimError, match="the disk is gone"):
        list(loop.run())
    assert loop.progress.step == 4
    assert threading.active_count() == threads


def test_the_next_batch_is_made_meanwhile() -> None:
    started, may_finish = threading.Event(), threading.Event()

    def make(step: int) -> tuple[int, str]:
        if step == 1:
            started.set()
            may_finish.wait(10)
        return step, threading.current_thread().name

    prefetcher = Prefetcher(make, enabled=True)
    assert prefetcher.take(0)[0] == 0
    assert started.wait(10)  # while the first step is trained on
    may_finish.set()
    step, thread = prefetcher.take(1, last=1)
    assert step == 1
    assert thread.startswith("batches")
    assert prefetcher.take(7)[0] == 7  # another step than the prefetched one is made at once
    prefetcher.close()
    plain = Prefetcher(make, enabled=False)
    assert plain.take(5)[1] == threading.current_thread().name
    assert plain.waited >= 0
