"""Music: the published loss by hand, silence before the first frame, and pieces that are written as MIDI."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import mido
import numpy as np
import pytest
import torch

import seriatim
from seriatim import api
from seriatim.cli import run as cli
from seriatim.data.midi import KEYS, write_midi
from seriatim.tasks import music


@pytest.fixture
def rolls(tmp_path: Path) -> Path:
    folder = tmp_path / "midi"
    folder.mkdir()
    draw = np.random.default_rng(0)
    for number in range(12):
        write_midi(folder / f"{number:02}.mid", (draw.random((10 + number, KEYS)) < 0.06).astype(np.float32))
    return folder


def task_of(rolls: Path, **settings: Any) -> tuple[Any, Any]:
    config = api.configure("music", str(rolls), "gru", {"model": {"width": 5}, **settings})
    return music.prepare(config), config


def test_the_loss_is_the_published_one(rolls: Path) -> None:
    """Summed over the 88 keys, averaged over all frames of the part but the first of each piece."""
    task, config = task_of(rolls)
    network = task.build(config.model).double().eval()
    pieces = task.parts["test"].inputs
    total, frames = 0.0, 0
    for index in range(len(pieces)):
        roll = torch.from_numpy(pieces[index]).double()
        before = torch.cat([torch.zeros(1, KEYS, dtype=torch.double), roll])  # silence, then the piece
        p = network(before[None, :-1])[0][0].sigmoid().detach()
        each = -(roll * p.log() + (1 - roll) * (1 - p).log()).sum(dim=1)
        total += float(each[1:].sum())
        frames += len(roll) - 1
    found = task.evaluate(network.float(), "test")
    assert found["nll"] == pytest.approx(total / frames, rel=1e-5)
    assert found["frames"] == frames


def test_training_counts_every_frame_and_no_padding(rolls: Path) -> None:
    task, _ = task_of(rolls)
    batch = task.batch(0, 0, 4, 4)
    assert batch.mask is not None
    assert batch.count == int(batch.mask.sum())
    assert not batch.inputs[:, 0].any()
    torch.testing.assert_close(batch.inputs[:, 1:], batch.targets[:, :-1])


def test_stretches_come_from_anywhere_in_a_piece(rolls: Path) -> None:
    task, _ = task_of(rolls, task={"length": 4})
    batches = [task.batch(step, 0, 4, 4) for step in range(8)]
    assert {batch.targets.shape[1] for batch in batches} == {4}
    again = [task.batch(step, 0, 4, 4) for step in range(8)]
    assert all(torch.equal(a.targets, b.targets) for a, b in zip(batches, again, strict=True))


def test_a_baseline_by_hand(rolls: Path) -> None:
    task, _ = task_of(rolls)
    train, test = task.parts["train"].inputs, task.parts["test"].inputs
    shares = (train.values.sum(axis=0) + 0.5) / (len(train.values) + 1)
    wanted = np.concatenate([test[index][1:] for index in range(len(test))])
    nll = -(wanted * np.log(shares) + (1 - wanted) * np.log(1 - shares)).sum() / len(wanted)
    assert task.baselines("test")["key frequencies"]["nll"] == pytest.approx(nll, rel=1e-5)


@pytest.mark.parametrize("model", ["gru", "tcn", "gpt"])
def test_pieces_are_drawn_frame_by_frame_from_the_model(rolls: Path, model: str) -> None:
    """With the drawn frames fed in whole, the model gives them the chances that they were drawn with."""
    config = api.configure("music", str(rolls), model, {"model": {"width": 8}})
    task = music.prepare(config)
    network = task.build(config.model)
    context = network.backbone.context
    frames = 12 if context is None else min(12, context)
    roll = music.compose(network, 2, frames, seed=3)
    assert roll.shape == (2, frames, KEYS)
    assert np.array_equal(roll, music.compose(network, 2, frames, seed=3))
    draw = torch.Generator().manual_seed(music.torch_stream(3, "sample").initial_seed())
    with torch.inference_mode():
        block = torch.cat([torch.zeros(2, 1, KEYS), torch.from_numpy(roll)[:, :-1]], dim=1)
        p = network(block)[0].sigmoid()
        for step in range(frames):
            assert np.array_equal(roll[:, step], (torch.rand(2, KEYS, generator=draw) < p[:, step]).numpy())


def test_from_midi_to_midi_on_the_command_line(rolls: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out, piece = tmp_path / "run", tmp_path / "piece.mid"
    small = ["--set", "model.width=8", "--steps", "5", "--batch", "2"]
    assert cli(["train", "music", "--data", str(rolls), "--model", "gru", *small, "--out", str(out), "--quiet"]) == 0
    assert cli(["generate", str(out), "--out", str(piece), "--max-tokens", "32"]) == 0
    notes = [event for track in mido.MidiFile(piece).tracks for event in track if event.type == "note_on"]
    assert notes
    assert mido.MidiFile(piece).length == pytest.approx(32 * 0.25 * 0.5, abs=1.0)
    opening = str(rolls / "03.mid")
    assert cli(["generate", str(out), "--prompt", opening, "--out", str(piece), "--max-tokens", "8"]) == 0
    capsys.readouterr()
    assert cli(["predict", str(out), "--data", str(piece)]) == 0
    assert capsys.readouterr().out.splitlines()[0] == "piece\tnll\tframes"
    assert cli(["generate", str(out)]) == 2
    assert "--out piece.mid" in capsys.readouterr().err


def test_two_directions_are_refused(rolls: Path) -> None:
    with pytest.raises(seriatim.SeriatimError) as caught:
        seriatim.train("music", str(rolls), settings={"model": {"name": "gru", "bidirectional": True}})
    assert caught.value.code == "task.not-causal"
