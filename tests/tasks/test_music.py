"""Music: the published loss by hand, silence before the first frame, and composed pieces that are written as MIDI."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import mido
import numpy as np
import pytest
import torch

from seriatim import api
from seriatim.core.device import torch_stream
from seriatim.core.errors import Diagnostics, SeriatimError
from seriatim.data.formats.midi import KEYS, write_midi
from seriatim.runs.configure import configure
from seriatim.tasks.music.task import MusicTask, Pieces, compose
from seriatim.tasks.predictor import Request
from seriatim.tasks.reading import prepare
from seriatim.tasks.values import Splits
from seriatim.training.objective import TaskObjective


@pytest.fixture(scope="module")
def rolls(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("midi")
    generator = np.random.default_rng(0)
    for number in range(12):
        roll = (generator.random((10 + number, KEYS)) < 0.06).astype(np.float32)
        (folder / f"{number:02}.mid").write_bytes(write_midi(roll))
    return folder


def make_task(rolls: Path, model: str = "gru", width: int = 5, **task: Any) -> tuple[MusicTask, Splits[Pieces]]:
    settings = {"model": {"name": model, "width": width}, "task": task}
    return prepare(MusicTask, configure("music", str(rolls), None, settings).task_config())


def test_the_loss_is_the_published_one(rolls: Path) -> None:
    """Summed over the 88 keys, averaged over all frames of the split but the first of each piece."""
    task, splits = make_task(rolls)
    network = task.build(splits.train).double().eval()
    pieces = splits["test"].items.inputs
    total, frames = 0.0, 0
    for index in range(len(pieces)):
        roll = torch.from_numpy(pieces[index]).double()
        before = torch.cat([torch.zeros(1, KEYS, dtype=torch.double), roll])  # silence, then the piece
        p = network(before[None, :-1])[0][0].sigmoid().detach()
        losses = -(roll * p.log() + (1 - roll) * (1 - p).log()).sum(dim=1)
        total += float(losses[1:].sum())
        frames += len(roll) - 1
    metrics = task.evaluate(network.float(), splits["test"]).metrics
    assert metrics["nll"] == pytest.approx(total / frames, rel=1e-5)
    assert metrics["frames"] == frames


def test_training_counts_every_frame_and_no_padding(rolls: Path) -> None:
    task, splits = make_task(rolls)
    batch = TaskObjective.of(task, splits).batch(0, 0, 4, 4)
    assert batch.mask is not None
    assert batch.count == int(batch.mask.sum())
    assert not batch.inputs[:, 0].any()
    torch.testing.assert_close(batch.inputs[:, 1:], batch.targets[:, :-1])
    network = task.build(splits.train)
    shifted = task.forward(network, batch)
    spoiled = torch.where(batch.mask[:, :, None], batch.targets, 1 - batch.targets)
    losses = [
        task.loss(shifted, type(batch)(batch.inputs, t, batch.count, batch.mask)) for t in (batch.targets, spoiled)
    ]
    assert torch.equal(*losses)


def test_sequences_are_cut_from_anywhere_in_a_piece(rolls: Path) -> None:
    task, splits = make_task(rolls, context_length=4)
    objective = TaskObjective.of(task, splits)
    batches = [objective.batch(step, 0, 4, 4) for step in range(8)]
    assert {batch.targets.shape[1] for batch in batches} == {4}
    again = [objective.batch(step, 0, 4, 4) for step in range(8)]
    parts = [objective.batch(3, first, first + 2, 4).targets for first in (0, 2)]
    assert torch.equal(torch.cat(parts), batches[3].targets)
    assert all(torch.equal(a.targets, b.targets) for a, b in zip(batches, again, strict=True))
    assert task.processor.longest == 4


def test_output_biases_and_a_baseline_by_hand(rolls: Path) -> None:
    task, splits = make_task(rolls)
    train, test = splits.train.items.inputs, splits["test"].items.inputs
    shares = (train.values.sum(axis=0) + 0.5) / (len(train.values) + 1)
    targets = np.concatenate([test[index][1:] for index in range(len(test))])
    nll = -(targets * np.log(shares) + (1 - targets) * np.log(1 - shares)).sum() / len(targets)
    assert task.baselines(splits, ["test"])["test"]["key frequencies"]["nll"] == pytest.approx(nll, rel=1e-5)
    assert np.allclose(task.build(splits.train).head.bias.detach().sigmoid().numpy(), shares, atol=1e-6)


@pytest.mark.parametrize("model", ["gru", "tcn", "gpt"])
def test_pieces_are_sampled_frame_by_frame_from_the_model(rolls: Path, model: str) -> None:
    """With the sampled frames as inputs, the model gives them the probabilities that they were sampled with."""
    task, splits = make_task(rolls, model, width=8)
    network = task.build(splits.train)
    roll = compose(network, 2, 12, seed=3)
    assert roll.shape == (2, 12, KEYS)
    assert np.array_equal(roll, compose(network, 2, 12, seed=3))
    generator = torch.Generator().manual_seed(torch_stream(3, "sample").initial_seed())
    with torch.inference_mode():
        block = torch.cat([torch.zeros(2, 1, KEYS), torch.from_numpy(roll)[:, :-1]], dim=1)
        p = network(block)[0].sigmoid()
        for step in range(12):
            assert np.array_equal(roll[:, step], (torch.rand(2, KEYS, generator=generator) < p[:, step]).numpy())


def test_a_model_with_a_limited_context_reads_and_composes_beyond_it(rolls: Path) -> None:
    task, splits = make_task(rolls, "gpt", width=8, context_length=6)
    network = task.build(splits.train)
    assert np.isfinite(task.evaluate(network, splits["test"]).metrics["nll"])
    assert compose(network, 1, 20).shape == (1, 20, KEYS)


def test_a_sample_has_evenly_spaced_pieces_and_a_shorter_composition(rolls: Path) -> None:
    task, splits = make_task(rolls)
    network, train = task.build(splits.train), splits.train
    frames = [len(train.items.inputs[index]) for index in range(len(train.items))]
    sampled = task.sample_split(train, sum(frames) // 2)
    assert len(sampled.items) == len(frames) // 2
    assert str(sampled.rows.locations[0]) == str(train.rows.locations[0])
    part, whole = task.evaluate(network, sampled), task.evaluate(network, train)
    assert part.metrics["frames"] == sum(len(sampled.items.inputs[n]) - 1 for n in range(len(sampled.items)))
    assert (len(part.outputs), len(whole.outputs)) == (64, 160)
    np.testing.assert_array_equal(part.outputs, whole.outputs[:64])
    assert task.sample(part) == task.sample(whole)


def test_bidirectional_models_are_refused(rolls: Path) -> None:
    with pytest.raises(SeriatimError) as caught:
        api.train("music", str(rolls), settings={"model": {"name": "gru", "bidirectional": True}}, out=rolls / "run")
    assert caught.value.code == "task.not-causal"


@pytest.fixture(scope="module")
def run(rolls: Path, tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = tmp_path_factory.mktemp("music")
    options = {"steps": 4, "batch_size": 2, "report": False}
    return api.train("music", str(rolls), "gru", settings={"model": {"width": 8}}, out=folder / "run", **options)


def test_a_run_composes_midi(run: Any, rolls: Path) -> None:
    composed = run.compose(frames=32)
    assert composed[0]["frames"] == 32
    assert run.compose(frames=32, seed=1) != composed
    assert run.predictor.file_extensions == (".mid",)
    file = mido.MidiFile(file=io.BytesIO(run.predictor.format_file(".mid", composed)))
    assert sum(message.type == "note_on" for message in file.tracks[0]) == len(composed[0]["notes"]) > 0
    assert file.length == pytest.approx(32 * 0.25 * 0.5)
    with pytest.raises(SeriatimError, match="one composed piece"):
        run.predictor.format_file(".mid", run.score(str(rolls / "00.mid")))


def test_a_composition_continues_an_opening(run: Any, rolls: Path) -> None:
    opening = run.task.read(str(rolls / "03.mid"), Diagnostics())["roll"][0]
    [piece] = run.compose(str(rolls / "03.mid"), frames=8)
    assert piece["frames"] == len(opening) + 8
    assert run.predictor.charts("compose", None, None, [piece])[0].frames == piece["frames"]


def test_pieces_are_scored(run: Any, rolls: Path) -> None:
    scores = run.score([np.zeros((5, KEYS), np.float32), np.ones((6, KEYS), np.float32)])
    assert [row["frames"] for row in scores] == [4, 5]
    assert scores[0]["nll"] < scores[1]["nll"]
    with pytest.raises(SeriatimError, match="a roll of the shape"):
        run.score([np.zeros((5, 3))])
    for name in ("score", "compose"):
        with pytest.raises(SeriatimError) as caught:
            run.predictor.execute(Request(name, [str(rolls / "00.mid")], paths=False))
        assert caught.value.code == "input.path"
    sent = run.predictor.execute(Request("score", [np.zeros((5, KEYS), np.float32)], paths=False)).predictions()
    assert sent[0]["nll"] == scores[0]["nll"]
    assert api.evaluate(run.path, data=str(rolls / "00.mid"))["frames"] == 9


def test_the_report_has_piano_rolls(run: Any) -> None:
    import json

    views = json.loads((run.path / "evaluation.json").read_text())["test"]
    assert [view["kind"] for view in views] == ["piano_roll", "piano_roll"]
    assert run.summary["baselines"]["test"].keys() == {"key frequencies", "frame before"}
    assert "|" in run.summary["sample"]
