"""Classify on pictures from end to end, and the loop that has the next batch made while it learns."""

from __future__ import annotations

import json
import struct
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

import seriatim
from seriatim import api
from seriatim.core import registry
from seriatim.data.pictures import Pictures
from seriatim.data.sequences import Sequences
from seriatim.nn.network import weights
from seriatim.training.ahead import Ahead
from seriatim.training.checkpoint import Checkpoints
from seriatim.training.loop import Loop

TINY: dict[str, Any] = {"model": {"name": "resnet", "width": 4}, "train": {"steps": 8, "batch": 8}}


def painted(kind: str, number: int, side: int = 20) -> Image.Image:
    """A disc or bars, somewhere, in some colour."""
    draw = np.random.default_rng(number)
    picture = draw.integers(0, 50, (side, side, 3), dtype=np.uint8)
    y, x = np.mgrid[:side, :side]
    place = draw.integers(side // 3, 2 * side // 3, 2)
    disc = (y - place[0]) ** 2 + (x - place[1]) ** 2 < (side // 4) ** 2
    picture[disc if kind == "disc" else x % 5 == number % 5] = draw.integers(120, 256, 3)
    return Image.fromarray(picture)


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("pictures") / "images"
    for number in range(60):
        kind = "disc" if number % 2 else "bars"
        path = root / kind / f"{number:02}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        painted(kind, number).save(path)
    return root


@pytest.fixture(scope="module")
def run(images: Path, tmp_path_factory: pytest.TempPathFactory) -> seriatim.Run:
    settings = {**TINY, "train": {"steps": 60, "batch": 16, "evaluate_steps": 20}}
    return seriatim.train("classify", str(images), settings=settings, out=tmp_path_factory.mktemp("runs") / "run")


def test_a_folder_is_learnt(run: seriatim.Run) -> None:
    assert run.summary["measures"]["test"]["accuracy"] >= 0.8
    assert run.predictor.coder.labels == ("bars", "disc")
    notes = run.summary["data"]["notes"] if "notes" in run.summary.get("data", {}) else json.dumps(run.summary)
    assert "20 × 20 pixels, in colour" in str(notes)
    mean = run.model.input.mean
    assert mean.shape == (3,)
    assert 0.05 < float(mean[0]) < 0.6


def test_a_picture_alone_and_among_others_has_one_answer(run: seriatim.Run, images: Path) -> None:
    paths = [str(path) for path in sorted(images.rglob("*.png"))[::7]]
    together = run.predict(paths)
    for path, among in zip(paths, together, strict=True):
        (alone,) = run.predict([path])
        assert alone["prediction"] == among["prediction"]
        assert alone["confidence"] == pytest.approx(among["confidence"], abs=1e-5)
    arrays = run.predict([np.asarray(Image.open(path)) for path in paths])
    assert [one["confidence"] for one in arrays] == [one["confidence"] for one in together]


def test_files_folders_and_tables_are_answered_by_name(run: seriatim.Run, images: Path, tmp_path: Path) -> None:
    table = run.predict_file(str(images / "disc"))
    assert list(table.columns) == ["picture", "prediction", "confidence"]
    assert table.rows[0][0] == "disc/01.png"
    (tmp_path / "new.csv").write_text(f"file\n{images / 'bars' / '00.png'}\n", encoding="utf-8")
    assert len(run.predict_file(str(tmp_path / "new.csv")).rows) == 1
    single = run.predict_file(str(images / "bars" / "00.png"))
    assert single.rows[0][1:] == run.predict_file(str(tmp_path / "new.csv")).rows[0][1:]
    assert seriatim.evaluate(run.path, data=str(images))["examples"] == 60


def test_pictures_of_any_size_and_kind_are_answered_for(run: seriatim.Run, tmp_path: Path) -> None:
    painted("disc", 7, 200).save(tmp_path / "large.jpg")
    Image.new("LA", (1, 1)).save(tmp_path / "dot.png")
    assert len(run.predict([str(tmp_path / "large.jpg"), tmp_path / "dot.png", np.zeros((5, 9), np.uint8)])) == 3
    (tmp_path / "bad.png").write_bytes(b"bad")
    with pytest.raises(seriatim.SeriatimError, match=r"2 of 3 pictures cannot be read[\s\S]*bad\.png[\s\S]*none\.png"):
        run.predict([str(tmp_path / "bad.png"), str(tmp_path / "none.png"), str(tmp_path / "dot.png")])
    with pytest.raises(seriatim.SeriatimError, match="no file of a picture"):
        run.predict(["a fine film"])
    with pytest.raises(seriatim.SeriatimError, match="float64"):
        run.predict([np.zeros((4, 4))])


def test_a_report_shows_the_mistakes(images: Path, tmp_path: Path) -> None:
    settings = {**TINY, "train": {"steps": 1, "batch": 4}}  # it has learnt nothing: there are mistakes
    seriatim.train("classify", str(images), settings=settings, out=tmp_path / "run")
    views = json.loads((tmp_path / "run" / "evaluation.json").read_text(encoding="utf-8"))["test"]
    mistakes = next(view for view in views if "mistakes" in view["title"])
    assert set(mistakes["rows"][0][1]) == {"png"}
    page = (tmp_path / "run" / "report.html").read_text(encoding="utf-8")
    assert page.count("data:image/png;base64,") >= len(mistakes["rows"])


def test_a_table_of_paths_gives_numbers(images: Path, tmp_path: Path) -> None:
    rows = [f"{path},{np.asarray(Image.open(path)).mean():.3f}" for path in sorted(images.rglob("*.png"))]
    (tmp_path / "bright.csv").write_text("\n".join(["path,bright", *rows]) + "\n", encoding="utf-8")
    with pytest.raises(seriatim.SeriatimError) as error:
        seriatim.train("regress", str(tmp_path / "bright.csv"), "kernel", out=tmp_path / "kernel")
    assert error.value.code == "task.pictures"
    run = seriatim.train("regress", str(tmp_path / "bright.csv"), settings=TINY, out=tmp_path / "run")
    assert set(run.predict([str(images / "disc" / "01.png")])[0]) == {"bright"}


def idx(folder: Path, count: int) -> None:
    draw = np.random.default_rng(0)
    for name in ("train", "t10k"):
        pixels = draw.integers(0, 256, (count, 9, 7), dtype=np.uint8)
        labels = draw.integers(0, 2, count, dtype=np.uint8)
        labels[:2] = 0, 1
        (folder / f"{name}-images-idx3-ubyte").write_bytes(struct.pack(">IIII", 0x803, count, 9, 7) + pixels.tobytes())
        (folder / f"{name}-labels-idx1-ubyte").write_bytes(struct.pack(">II", 0x801, count) + labels.tobytes())


def test_images_of_idx_files_are_pictures_or_sequences_of_pixels(tmp_path: Path) -> None:
    idx(tmp_path, 48)
    task = registry.tasks.load("classify")

    def inputs(**settings: Any) -> Any:
        return task.prepare(api.configure("classify", str(tmp_path), None, settings)).parts["train"].inputs

    pixels = inputs(model={"name": "gru"})
    assert isinstance(pixels, Sequences)
    pictures = inputs(model=TINY["model"])
    assert isinstance(pictures, Pictures)
    assert pictures.shape == (1, 9, 7)
    assert np.allclose(pictures[3].ravel() / np.float32(255), pixels[3].ravel())
    assert isinstance(inputs(model={"name": "gru"}, data={"kind": "pictures"}), Pictures)
    seriatim.train("classify", str(tmp_path), settings=TINY, out=tmp_path / "run")
    assert seriatim.evaluate(tmp_path / "run", data=str(tmp_path))["examples"] == 48


def test_models_and_tasks_that_do_not_fit_are_refused(images: Path, book: Path, tmp_path: Path) -> None:
    texts = tmp_path / "texts.csv"
    texts.write_text("\n".join(["text,label", *(f"word {n},{'ab'[n % 2]}" for n in range(40))]), encoding="utf-8")
    for task, data, model in (("classify", texts, "resnet"), ("regress", images, "lstm"), ("language", book, "vit")):
        with pytest.raises(seriatim.SeriatimError) as error:
            seriatim.train(task, str(data), model, out=tmp_path / "run")
        assert error.value.code == ("data.column" if task == "regress" else "task.pictures")
        assert not (tmp_path / "run").exists()


# ── one step ahead ────────────────────────────────────────────────────────────────────────────────────────────────


def looped(images: Path, folder: Path, ahead: bool, **train: Any) -> Loop:
    settings = {**TINY, "train": {"steps": 6, "batch": 8, "evaluate_steps": 3, **train}}
    config = api.configure("classify", str(images), None, settings)
    task = registry.tasks.load("classify").prepare(config)
    assert task.ahead
    loop = Loop(task, task.build(config.model), config.train, 1e-2, 0, Checkpoints(folder))
    loop.ahead.wanted = ahead
    return loop


def test_a_step_ahead_changes_nothing(images: Path, tmp_path: Path) -> None:
    before = threading.active_count()
    found = []
    for ahead in (False, True):
        loop = looped(images, tmp_path / str(ahead), ahead)
        list(loop.run())
        found.append(weights(loop.network))
    assert all(torch.equal(found[0][name], found[1][name]) for name in found[0])
    assert threading.active_count() == before


def test_a_training_cut_short_leaves_no_thread_and_goes_on(images: Path, tmp_path: Path) -> None:
    whole = looped(images, tmp_path / "whole", ahead=True)
    list(whole.run())
    before = threading.active_count()
    cut = looped(images, tmp_path / "cut", ahead=True)
    events = cut.run()
    while cut.progress.step < 5:
        next(events)
    events.close()
    assert threading.active_count() == before
    resumed = looped(images, tmp_path / "cut", ahead=True)
    resumed.resume()
    assert resumed.progress.step == 3
    list(resumed.run())
    left, right = weights(whole.network), weights(resumed.network)
    assert all(torch.equal(left[name], right[name]) for name in left)


def test_what_goes_wrong_ahead_arrives_at_its_step(images: Path, tmp_path: Path, monkeypatch: Any) -> None:
    loop = looped(images, tmp_path, ahead=True)
    plain = loop.task.batch

    def failing(step: int, *rest: int) -> Any:
        if step == 4:
            raise seriatim.SeriatimError("data.gone", "the disk is gone")
        return plain(step, *rest)

    monkeypatch.setattr(loop.task, "batch", failing)
    before = threading.active_count()
    with pytest.raises(seriatim.SeriatimError, match="the disk is gone"):
        list(loop.run())
    assert loop.progress.step == 4
    assert threading.active_count() == before


def test_the_next_batch_is_made_meanwhile() -> None:
    began, may = threading.Event(), threading.Event()

    def make(step: int) -> tuple[int, str]:
        if step == 1:
            began.set()
            may.wait(10)
        return step, threading.current_thread().name

    ahead = Ahead(make, wanted=True)
    assert ahead.take(0)[0] == 0
    assert began.wait(10)  # while the step is learnt from
    may.set()
    step, thread = ahead.take(1, last=1)
    assert step == 1
    assert thread.startswith("batches")
    assert ahead.take(7)[0] == 7  # asked for something else than was made: made at once
    ahead.close()
    plain = Ahead(make, wanted=False)
    assert plain.take(5)[1] == threading.current_thread().name
    assert plain.waited >= 0
