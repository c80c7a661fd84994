"""Predict the next frame of a piece: which of the 88 keys sound, given all frames before.

    p_t = σ(W h_t + b)    loss = −Σ_keys [y log p + (1 − y) log(1 − p)], averaged over the frames (nats per frame)

Before the first frame stands silence, so that a model can also begin a piece; as in the published tables, the first
frame of each piece is not measured. Written pieces are drawn key by key from p and come out as MIDI.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from pydantic import Field
from torch import Tensor, nn
from torch.nn import functional as F

from ..core import config
from ..core.errors import SeriatimError
from ..core.random import numpy_stream, torch_stream
from ..data import pianoroll
from ..data.midi import KEYS, LOWEST, write_midi
from ..data.notes import Notes
from ..data.sequences import Examples, Parts, Sequences
from ..data.writing import Table
from ..nn.backbone import BackboneSettings
from ..nn.heads import StepHead
from ..nn.network import Network, assemble, full
from ._coder import Coder
from ._examples import ExampleTask, Part, mismatch, restore
from ._task import Batch

__all__ = ["DataSettings", "Settings", "mismatch", "open_run", "prepare", "reopen", "reopen_on"]

SHOWN = 160  # frames of a piece that a report shows
SAMPLE = 64  # frames written along the way


class DataSettings(config.Settings):
    source: str = Field(description="a .mat file of rolls, a MIDI file or a folder of them, .npy, or a catalogue name")
    step: float = Field(0.25, gt=0, description="beats of a frame, where the source is MIDI")
    fractions: tuple[float, float, float] = Field(
        (0.8, 0.1, 0.1), description="the shares of training, validation and test where the source has no parts"
    )


class Settings(config.Settings):
    name: str = Field("music", description="the task: see `seriatim list tasks`")
    length: int | None = Field(
        None, ge=2, le=1_000_000, description="frames of a training sequence, cut from a piece anywhere (default: all)"
    )


class MusicTask(ExampleTask):
    unit = "frames"

    def shape(self, model: BackboneSettings) -> Network:
        return network(model, self.coder)

    def build(self, model: BackboneSettings) -> Network:
        network = super().build(model)
        if not network.backbone.causal:
            off = "leave model.bidirectional off, or " if hasattr(model, "bidirectional") else ""
            raise SeriatimError(
                "task.not-causal",
                f"a bidirectional {model.name} sees the frame that it is to predict",
                f"{off}choose a model that looks back, such as gpt or lstm",
            )
        with torch.no_grad():  # each key begins at how often it sounds
            shares = _shares(self.parts["train"].inputs.values)
            network.head.get_parameter("bias").copy_(torch.from_numpy(np.log(shares / (1 - shares))))
        return network

    def batch(self, step: int, first: int, last: int, rows: int) -> Batch:
        """Whole pieces, or a stretch of `length` frames from anywhere in each."""
        length = self.settings.length
        chosen = self.rows(step, rows)
        if length is None:
            return self.collate("train", chosen[first:last])
        draw = numpy_stream(self.seed, "crop", step).random(rows)
        pieces = [self.parts["train"].inputs[row] for row in chosen.tolist()]
        starts = [int(share * (max(len(p) - length, 0) + 1)) for share, p in zip(draw, pieces, strict=True)]
        cut = [piece[start : start + length] for piece, start in zip(pieces, starts, strict=True)][first:last]
        block, real = Sequences.of(cut, width=KEYS).padded(np.arange(len(cut)))
        return _batch(torch.from_numpy(block), torch.from_numpy(real))

    def collate(self, split: str, rows: np.ndarray) -> Batch:
        block, real = self.parts[split].inputs.padded(rows)
        return _batch(torch.from_numpy(block), torch.from_numpy(real))

    def loss(self, network: nn.Module, batch: Batch, state: Any, smoothing: float) -> tuple[Tensor, Any]:
        scores, _ = network(batch.inputs, batch.mask)
        return _losses(full(scores), batch).sum(), None

    @torch.inference_mode()
    def evaluate(self, model: nn.Module, split: str, limit: int | None = None) -> dict[str, float]:
        nll = frames = hits = sounding = 0.0
        for piece in self.chosen(split, limit).tolist():
            batch = _batch(torch.from_numpy(self.parts[split].inputs[piece])[None])
            scores = full(read(model, batch.inputs))[:, 1:].cpu()  # the first frame is not measured
            wanted = batch.targets[:, 1:]
            nll += float(_losses(scores, Batch(scores, wanted, 0)).sum())
            frames += wanted.shape[1]
            hits += float(((scores > 0) & (wanted > 0)).sum())
            sounding += float(((scores > 0) | (wanted > 0)).sum())
        return _measures(nll, frames, hits, sounding)

    def baselines(self, split: str) -> dict[str, dict[str, float]]:
        """Each key by how often it sounds, and by how often it goes on or begins after the frame before."""
        train, part = self.parts["train"].inputs, self.parts[split].inputs
        before, after = _pairs(train)
        on = (before * after).sum(axis=0) + 0.5
        begun = ((1 - before) * after).sum(axis=0) + 0.5
        stays, begins = on / (before.sum(axis=0) + 1), begun / ((1 - before).sum(axis=0) + 1)
        last, wanted = _pairs(part)
        chances = {
            "key frequencies": np.broadcast_to(_shares(train.values), wanted.shape),
            "frame before": np.where(last > 0, stays, begins),
        }
        found = {}
        for name, p in chances.items():
            nll = -float(np.where(wanted > 0, np.log(p), np.log1p(-p)).sum(dtype=np.float64))
            hits, sounding = float(((p > 0.5) & (wanted > 0)).sum()), float(((p > 0.5) | (wanted > 0)).sum())
            found[name] = _measures(nll, float(len(wanted)), hits, sounding)
        return found

    def details(self, model: nn.Module, split: str) -> list[dict[str, Any]]:
        real = self.parts[split].inputs[0][:SHOWN]
        written = compose(model, 1, SHOWN, seed=self.seed)[0]
        titles = {"A piece of the data": real, "A piece that the model wrote": written}
        return [
            {"kind": "roll", "title": title, "frames": len(roll), "notes": _bars(roll)}
            for title, roll in titles.items()
        ]

    def sample(self, model: nn.Module, step: int) -> str:
        """The chords of a few frames, by the names of their notes."""
        roll = compose(model, 1, SAMPLE, seed=self.seed)[0]
        return " | ".join(" ".join(_note(key) for key in np.flatnonzero(frame).tolist()) or "–" for frame in roll)


def _bars(roll: np.ndarray) -> list[list[int]]:
    """Notes as [first frame, frame behind the last, MIDI pitch]."""
    edges = np.diff(np.pad(roll > 0.5, ((1, 1), (0, 0))).astype(np.int8), axis=0).T  # (88,frames+1)
    starts, ends = np.argwhere(edges == 1), np.argwhere(edges == -1)  # key by key, in order of time
    return [[int(a), int(b), int(key) + LOWEST] for (key, a), (_, b) in zip(starts, ends, strict=True)]


NAMES = ("C", "C♯", "D", "E♭", "E", "F", "F♯", "G", "A♭", "A", "B♭", "B")


def _note(key: int) -> str:
    octave, step = divmod(key + LOWEST, 12)
    return f"{NAMES[step]}{octave - 1}"


def _measures(nll: float, frames: float, hits: float, sounding: float) -> dict[str, float]:
    """`accuracy`: of the keys that sound or were said to, the share where both agree (Bay et al. 2009)."""
    mean = nll / max(frames, 1.0)
    return {"loss": mean, "nll": mean, "accuracy": hits / max(sounding, 1.0), "frames": frames}


def _shares(frames: np.ndarray) -> np.ndarray:
    """How often each key sounds, never quite 0 or 1."""
    return ((frames.sum(axis=0, dtype=np.float64) + 0.5) / (len(frames) + 1)).astype(np.float32)


def _pairs(rolls: Sequences) -> tuple[np.ndarray, np.ndarray]:
    """All frames that have one before them, with it."""
    first = np.zeros(len(rolls.values), dtype=bool)
    first[rolls.starts] = True
    after = np.flatnonzero(~first)
    return rolls.values[after - 1], rolls.values[after]


def _batch(block: Tensor, real: Tensor | None = None) -> Batch:
    """Silence and all frames but the last go in, all frames are wanted."""
    inputs = torch.cat([torch.zeros_like(block[:, :1]), block[:, :-1]], dim=1)
    whole = real is None or bool(real.all())
    frames = block.shape[0] * block.shape[1] if real is None else int(real.sum())
    return Batch(inputs, block, count=frames, mask=None if whole else real)


def _losses(scores: Tensor, batch: Batch) -> Tensor:
    """Of every real frame, summed over the keys."""
    each = F.binary_cross_entropy_with_logits(scores, batch.targets, reduction="none").sum(dim=-1)  # (B,T)
    return each if batch.mask is None else torch.where(batch.mask, each, 0.0)


def read(network: nn.Module, inputs: Tensor) -> Tensor:
    """Scores for a whole piece; a model with a limited context begins anew at each stretch of it."""
    network.eval()
    context: int | None = network.get_submodule("backbone").context  # type: ignore[assignment]
    device = next(network.parameters()).device
    if context is None or inputs.shape[1] <= context:
        scores: Tensor = network(inputs.to(device))[0]
        return scores
    return torch.cat([network(part.to(device))[0] for part in inputs.split(context, dim=1)], dim=1)


@torch.inference_mode()
def compose(
    network: nn.Module,
    pieces: int,
    frames: int,
    temperature: float = 1.0,
    seed: int = 0,
    opening: np.ndarray | None = None,
) -> np.ndarray:
    """Pieces (pieces,frames,88), each frame drawn from the model and fed back; `opening` (T,88) comes first."""
    network.eval()
    device = next(network.parameters()).device
    context: int | None = network.get_submodule("backbone").context  # type: ignore[assignment]
    draw = torch_stream(seed, "sample")
    begun = torch.zeros(1, KEYS) if opening is None else torch.cat([torch.zeros(1, KEYS), torch.from_numpy(opening)])
    roll = begun.expand(pieces, -1, -1)
    scores, state = network(roll[:, -context:].to(device) if context else roll.to(device))
    used = min(roll.shape[1], context) if context else 0
    written: list[Tensor] = []
    for _ in range(frames):
        p = (full(scores[:, -1]).cpu() / max(temperature, 1e-6)).sigmoid()
        frame = (torch.rand(p.shape, generator=draw) < p).float()
        written.append(frame)
        used += 1
        if context and used > context:  # the window is full: go on from its later half
            recent = torch.cat([roll, torch.stack(written, dim=1)], dim=1)[:, -(context // 2 + 1) :]
            scores, state = network(recent.to(device))
            used = recent.shape[1]
        else:
            scores, state = network(frame[:, None].to(device), None, state)
    return torch.stack(written, dim=1).numpy() if written else np.zeros((pieces, 0, KEYS), np.float32)


def network(model: BackboneSettings, coder: Coder) -> Network:
    inputs, width = coder.network_input(model)
    return assemble(model, inputs, width, coder.longest, lambda backbone: StepHead(backbone.width, KEYS))


class MusicPredictor:
    """Measures pieces, and writes new ones."""

    questions = ("predict", "compose")

    def __init__(self, network: nn.Module, settings: Any) -> None:
        self.model = network
        self.settings = settings

    def predict(self, items: Any) -> list[dict[str, Any]]:
        """How well each piece (frames,88) is foreseen, in nats per frame."""
        coder = Coder("numbers", 1, features=("",) * KEYS)
        found = []
        for index, item in enumerate(items):
            if np.ndim(item) != 2 or np.shape(item)[1] != KEYS:
                cause = f"input {index + 1} is no piece of frames of {KEYS} keys"
                raise SeriatimError("predict.input", cause, "give a roll, or files of music with --data")
            part = Part(Sequences.of([item], width=KEYS), None, Examples([], None))
            measures = MusicTask(Settings(), coder, {"test": part}, 0).evaluate(self.model, "test")
            found.append({"nll": measures["nll"], "frames": int(measures["frames"])})
        return found

    def predict_file(self, source: str, data_dir: str | None = None) -> Table:
        found = _whole(source, self.settings.step, data_dir)
        rolls = [found.inputs[index] for index in range(len(found))]
        answers = self.predict(rolls)
        rows = [[found.place(index), one["nll"], one["frames"]] for index, one in enumerate(answers)]
        return Table(["piece", "nll", "frames"], rows)

    def compose(
        self, out: Path, frames: int = 200, temperature: float = 1.0, seed: int = 0, opening: Path | None = None
    ) -> None:
        """Writes a piece as a MIDI file; it goes on from another where that is named."""
        if out.suffix.lower() not in (".mid", ".midi"):
            raise SeriatimError("output.kind", f"{out}: music is written as MIDI", "end it in .mid")
        begun = None
        if opening is not None:
            begun = _whole(str(opening), self.settings.step).inputs[0]
        roll = compose(self.model, 1, frames, temperature, seed, begun)[0]
        write_midi(out, roll if begun is None else np.concatenate([begun, roll]), self.settings.step)


def prepare(
    config: Any, data_dir: str | None = None, notify: Callable[[str], None] | None = None, coder: Coder | None = None
) -> MusicTask:
    notes = Notes(notify)
    parts = pianoroll.read_rolls(config.data.source, data_dir, step=config.data.step, fractions=config.data.fractions)
    for note in parts.notes:
        notes(note)
    if coder is None:
        longest = max(int(_rolls(part).lengths.max(initial=1)) for part in (parts.train, parts.valid, parts.test))
        limit = config.task.length
        longest = longest if limit is None else min(longest, limit)
        coder = Coder("numbers", longest, features=tuple(_note(key) for key in range(KEYS)), limit=limit)
    return _task(config, coder, parts, list(notes))


def reopen(
    path: Path, config: Any, data_dir: str | None = None, notify: Callable[[str], None] | None = None
) -> MusicTask:
    return prepare(config, data_dir, notify, Coder.load(path))


def reopen_on(
    path: Path, config: Any, source: str, data_dir: str | None = None, notify: Callable[[str], None] | None = None
) -> MusicTask:
    found = _whole(source, config.data.step, data_dir)
    nothing = Examples(Sequences.of([], width=KEYS), None)
    return _task(config, Coder.load(path), Parts(train=nothing, valid=nothing, test=found), [])


def open_run(path: Path, config: Any) -> MusicPredictor:
    return MusicPredictor(restore(network(config.model, Coder.load(path)), path), config.data)


def _whole(source: str, step: float, data_dir: str | None = None) -> Examples:
    """All pieces of a source, whatever parts it has."""
    parts = pianoroll.read_rolls(source, data_dir, step=step, fractions=(1.0, 0.0, 0.0))
    pieces = [
        (part.place(i), part.inputs[i]) for part in (parts.train, parts.valid, parts.test) for i in range(len(part))
    ]
    return Examples(Sequences.of((roll for _, roll in pieces), KEYS), None, [place for place, _ in pieces])


def _rolls(part: Examples) -> Sequences:
    return part.inputs if isinstance(part.inputs, Sequences) else Sequences.of([], width=KEYS)


def _task(config: Any, coder: Coder, parts: Parts, notes: list[str]) -> MusicTask:
    pieces = {name: parts.part(name) for name in ("train", "valid", "test")}
    encoded = {name: Part(_rolls(part), None, part) for name, part in pieces.items()}
    return MusicTask(config.task, coder, encoded, config.seed, notes, parts.fingerprint, standardise=False)
