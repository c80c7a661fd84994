"""The task music: network, loss, evaluation and what a report shows.

    p_t = σ(W h_t + b)    loss = −Σ_keys [y log p + (1 − y) log(1 − p)], averaged over the frames (nats per frame)

Silence comes before the first frame, so that a model can also begin a piece; as in the published tables, the first
frame of each piece is not evaluated. Composed pieces are sampled key by key from p and written as MIDI.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self, cast

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ...core.config import Settings
from ...core.device import numpy_stream, torch_stream
from ...core.errors import Diagnostics, SeriatimError
from ...core.state import State
from ...data.dataset import Column, Dataset
from ...data.formats.midi import KEYS, LOWEST, Midi, find_notes, round_half_up, sample_roll, write_midi
from ...data.music import ROLE, ROLL
from ...data.schema import Schema
from ...data.sequences import Sequences
from ...data.source import Source
from ...data.split import Fractions, SplitPolicy
from ...nn.backbone import BackboneSettings
from ...nn.layers import NumberInput
from ...nn.network import Network, StepHead, as_float32, assemble
from ...report.charts import PianoRoll, View
from ..base import (
    Batch,
    Encoded,
    Evaluation,
    Metrics,
    Output,
    Processor,
    Progress,
    Split,
    Splits,
    Task,
    TaskConfig,
)
from ..capability import Call, Record, capability
from ..predictor import Predictions, Predictor, Usage
from ..processor import Tokenizers
from .spec import COMPOSE, SCORE, SPEC, ComposeSettings, MusicSettings

SHOWN_FRAMES = 160  # of a piece in the report
SAMPLED_FRAMES = 64  # composed during training
SPLIT_SEED = 1
NOTE_NAMES = ("C", "C♯", "D", "E♭", "E", "F", "F♯", "G", "A♭", "A", "B♭", "B")


# Data


class ByPiece(SplitPolicy):
    """Random pieces, at least one in each split; if there are fewer pieces than splits, each is cut in time."""

    reports_overlap: ClassVar[bool] = False
    unit: ClassVar[str] = "pieces"

    def divide(self, dataset: Dataset, fractions: Fractions) -> list[Dataset]:
        count = len(dataset)
        if count < sum(share > 0 for share in fractions):
            return self._cut(dataset, fractions)
        order = np.argsort(np.random.PCG64(SPLIT_SEED).random_raw(count), kind="stable")
        sizes = [max(1, round_half_up(share * count)) if share else 0 for share in fractions[1:]]
        while sum(sizes) >= count:  # one piece at least is for training
            sizes[sizes.index(max(sizes))] -= 1
        return [dataset.take(np.sort(rows)) for rows in np.split(order, [count - sum(sizes), count - sizes[1]])]

    @staticmethod
    def _cut(dataset: Dataset, fractions: Fractions) -> list[Dataset]:
        splits = []
        for first, last in itertools.pairwise([0.0, *np.cumsum(fractions)[:2].tolist(), 1.0]):
            parts = [r[round_half_up(first * len(r)) : round_half_up(last * len(r))] for r in dataset[ROLE]]
            column = replace(dataset.columns[ROLE][0], values=ROLL.store(parts))
            rows = np.array([row for row, part in enumerate(parts) if len(part) > 1], dtype=np.int64)
            splits.append(replace(dataset, columns={ROLE: (column,)}).take(rows))
        return splits

    def describe(self) -> str:
        return "by piece, or each piece in time if there are few"


def to_rolls(pieces: Dataset, step: float, diagnostics: Diagnostics) -> Dataset:
    """Returns pieces as piano rolls (frames,88) of float32; those with fewer than two frames are left out.

    Args:
        pieces: MIDI files, or rolls of 88 keys or 128 pitches.
        step: Beats per frame of MIDI files.
        diagnostics: Receives notes on what is left out.
    """
    files = [piece for piece in pieces[ROLE] if isinstance(piece, Midi)]
    if files:
        diagnostics.note(f"MIDI is sampled in frames of {step:g} beats")
    rolls, outside = [], 0
    for piece, location in zip(pieces[ROLE], pieces.locations, strict=True):
        if isinstance(piece, Midi):
            roll, others = sample_roll(piece, step, str(location))
            outside += others
        else:
            roll = piece
            if roll.size and roll.shape[1] > KEYS:  # all pitches of MIDI
                outside += int(roll[:, :LOWEST].sum() + roll[:, LOWEST + KEYS :].sum())
                roll = roll[:, LOWEST : LOWEST + KEYS]
        rolls.append(np.ascontiguousarray(roll, np.float32).reshape(-1, KEYS))
    if drums := sum(piece.drums for piece in files):
        diagnostics.note(f"{drums:,} notes of drums (channel 10) are left out")
    if outside:
        diagnostics.note(f"{outside:,} notes outside of the piano's {KEYS} keys are left out")
    if unreleased := sum(piece.unreleased for piece in files):
        diagnostics.note(f"{unreleased:,} notes have no end: they sound to the end of their track")
    long_enough = np.array([len(roll) > 1 for roll in rolls], dtype=bool)
    if len(short := np.flatnonzero(~long_enough)):
        names = ", ".join(str(pieces.locations[row]) for row in short[:3]) + ", …" * (len(short) > 3)
        diagnostics.note(f"{len(short):,} pieces of fewer than two frames are left out: {names}")
    if not long_enough.any():
        raise SeriatimError("data.empty", f"{pieces.name}: holds no piece of two frames", "pass more music")
    column = Column(pieces.columns[ROLE][0].name, ROLL, ROLL.store(rolls))
    return replace(pieces, columns={**pieces.columns, ROLE: (column,)}).take(np.flatnonzero(long_enough))


@dataclass(frozen=True, eq=False)
class Pieces(Encoded):
    """Piano rolls.

    Args:
        inputs: The frames of each piece (frames,88).
        composed: The number of frames that the model composes with an evaluation.
    """

    composed: int = SHOWN_FRAMES


@dataclass(frozen=True)
class MusicProcessor(Processor[Pieces]):
    """Knows the longest training sequence, for models with a limited context."""

    longest: int

    @classmethod
    def fit(cls, train: Dataset, config: TaskConfig[Any], pretrained: Tokenizers, diagnostics: Diagnostics) -> Self:
        longest, limit = max(map(len, train[ROLE])), config.task.context_length
        return cls(longest if limit is None else min(longest, limit))

    def encode(self, dataset: Dataset, diagnostics: Diagnostics) -> Pieces:
        return Pieces(Sequences.of(dataset[ROLE], width=KEYS))


# Prediction


class MusicPredictor(Predictor["MusicTask"]):
    """Scores pieces, and composes new ones."""

    file_extensions = (".mid",)

    @capability(SCORE)
    def score(self, call: Call[Settings]) -> Iterator[Record]:
        pieces = self.task.encode(call.rows, call.diagnostics).inputs
        for number, location in enumerate(call.rows.locations):
            metrics = frame_metrics(*read_totals(self.network, pieces[number]).tolist())
            yield {"nll": metrics["nll"], "frames": int(metrics["frames"]), "piece": str(location)}

    @capability(COMPOSE)
    def compose(self, call: Call[ComposeSettings]) -> Iterator[Record]:
        options = call.options
        for opening in list(call.rows[ROLE]) or [np.zeros((0, KEYS), np.float32)]:
            composed = compose(self.network, 1, options.frames, options.temperature, options.seed, opening)[0]
            roll = np.concatenate([opening, composed])
            yield {"notes": [list(note) for note in find_notes(roll)], "frames": len(roll)}

    def format_file(self, extension: str, predictions: Predictions) -> bytes:
        """Returns a composed piece as a MIDI file."""
        record = predictions[0] if len(predictions) == 1 else {}
        if "notes" not in record:
            cause = f"a MIDI file holds one composed piece, not {len(predictions)} predictions"
            raise SeriatimError("output.format", cause, "use `seriatim compose` with at most one opening")
        roll = np.zeros((record["frames"], KEYS), np.float32)
        for first, after, pitch in record["notes"]:
            roll[first:after, pitch - LOWEST] = 1
        return write_midi(roll, self.task.settings.step)

    def charts(self, name: str, dataset: Dataset, options: Settings, predictions: Sequence[Record]) -> list[View]:
        if name != "compose":
            return []
        pieces = [(tuple(map(tuple, record["notes"])), record["frames"]) for record in predictions]
        return [PianoRoll(title="A composed piece", notes=notes, frames=frames) for notes, frames in pieces]

    def usage(self, run: str, rows: Dataset | None = None) -> list[Usage]:
        write = 'open("piece.mid", "wb").write(run.predictor.format_file(".mid", run.compose(frames=200)))'
        return [Usage(f"seriatim compose {run} --frames 200 --out piece.mid", write)]


@torch.inference_mode()
def compose(
    network: nn.Module,
    pieces: int,
    frames: int,
    temperature: float = 1.0,
    seed: int = 0,
    opening: np.ndarray | None = None,
) -> np.ndarray:
    """Returns composed pieces (pieces,frames,88), each frame sampled from the network and fed back.

    Args:
        network: In any mode; it is set to evaluation.
        pieces: The number of pieces.
        frames: The frames of each, after the opening.
        temperature: Divides the scores.
        seed: Of the random numbers.
        opening: Frames (T,88) that come before.
    """
    network.eval()
    device, context = next(network.parameters()).device, context_of(network)
    generator = torch_stream(seed, "sample")
    silence = torch.zeros(1, KEYS)
    start = silence if opening is None else torch.cat([silence, torch.from_numpy(opening)])
    roll = start.expand(pieces, -1, -1)
    scores, state = network(roll[:, -context:].to(device) if context else roll.to(device))
    used = min(roll.shape[1], context) if context else 0
    sampled: list[Tensor] = []
    for _ in range(frames):
        probabilities = (as_float32(scores[:, -1]).cpu() / max(temperature, 1e-6)).sigmoid()
        frame = (torch.rand(probabilities.shape, generator=generator) < probabilities).float()
        sampled.append(frame)
        used += 1
        if context and used > context:  # the window is full: go on from its later half
            recent = torch.cat([roll, torch.stack(sampled, dim=1)], dim=1)[:, -(context // 2 + 1) :]
            scores, state = network(recent.to(device))
            used = recent.shape[1]
        else:
            scores, state = network(frame[:, None].to(device), None, state)
    return torch.stack(sampled, dim=1).numpy() if sampled else np.zeros((pieces, 0, KEYS), np.float32)


def context_of(network: nn.Module) -> int | None:
    """Returns the largest number of frames that the network reads; None for any."""
    length: int | None = network.get_submodule("backbone").context_length  # type: ignore[assignment]
    return length


# The task


class MusicTask(Task[MusicSettings, MusicProcessor, Pieces, np.ndarray]):
    spec = SPEC
    split_policy = ByPiece()
    processor_type = MusicProcessor
    predictor_type = MusicPredictor
    unit = "frames"

    # Data

    @classmethod
    def schema_for(cls, schema: Schema, config: TaskConfig[MusicSettings], training: bool) -> Schema:
        """Returns the pieces alone of further data."""
        return schema if training else schema.inputs()

    @classmethod
    def clean(
        cls,
        rows: Dataset,
        source: Source,
        config: TaskConfig[MusicSettings],
        diagnostics: Diagnostics,
        predicting: bool,
        train: Dataset | None = None,
    ) -> Dataset:
        rows = super().clean(rows, source, config, diagnostics, predicting)
        return to_rolls(rows, config.task.step, Diagnostics() if predicting else diagnostics)

    def read_own_data(self, diagnostics: Diagnostics, data_dir: str | None = None) -> Dataset:
        """Returns no pieces: a composition without an opening begins in silence."""
        return Dataset("no opening", {ROLE: (Column(ROLE, ROLL, ROLL.store([])),)}, np.empty(0, dtype=object))

    # Network

    def network(self, model: BackboneSettings) -> Network:
        if not model.traits.causal:
            cause = f"a bidirectional {model.name} reads the frame that it is to predict"
            raise SeriatimError("task.not-causal", cause, "omit model.bidirectional, or choose gpt or lstm")
        inputs = NumberInput(KEYS, model.embedding)
        return assemble(
            model, inputs, inputs.width, self.processor.longest, lambda backbone: StepHead(backbone.width, KEYS)
        )

    def initialize(self, network: nn.Module, train: Split[Pieces]) -> None:
        """Sets the output biases so that each key is predicted as often as it sounds in training."""
        shares = key_shares(all_frames(train.items).values)
        with torch.no_grad():
            bias = network.get_submodule("head").get_parameter("bias")
            bias.copy_(torch.from_numpy(np.log(shares / (1 - shares))))

    # Training

    def training_batch(self, train: Pieces, chosen: np.ndarray, share: slice, step: int) -> Batch:
        """Returns whole pieces, or `context_length` frames from anywhere in each."""
        length = self.settings.context_length
        if length is None:
            return self.collate(train, chosen[share])
        draws = numpy_stream(self.config.seed, "crop", step).random(len(chosen))
        pieces = [train.inputs[row] for row in chosen.tolist()]
        starts = [int(draw * (max(len(roll) - length, 0) + 1)) for draw, roll in zip(draws, pieces, strict=True)]
        cropped = [roll[start : start + length] for start, roll in zip(starts, pieces, strict=True)][share]
        return shift_frames(*Sequences.of(cropped, width=KEYS).padded(np.arange(len(cropped))))

    def collate(self, items: Pieces, chosen: np.ndarray) -> Batch:
        return shift_frames(*items.inputs.padded(chosen))

    def forward(self, network: Network, batch: Batch, state: State = None) -> Output[Tensor]:
        """Returns scores (B,T,88) of each key."""
        scores, _ = network(batch.inputs, batch.mask)
        return Output(as_float32(scores))

    def loss(self, output: Output[Tensor], batch: Batch, smoothing: float = 0.0) -> Tensor:
        losses = F.binary_cross_entropy_with_logits(output.scores, batch.targets, reduction="none").sum(dim=-1)
        return losses.sum() if batch.mask is None else torch.where(batch.mask, losses, 0.0).sum()

    # Evaluation

    def row_sizes(self, rows: Dataset) -> np.ndarray:
        """Returns the number of frames of each piece."""
        return np.fromiter(map(len, rows[ROLE]), np.int64, len(rows))

    def sample_split(self, split: Split[Pieces], limit: int | None = None) -> Split[Pieces]:
        """Returns evenly spaced pieces, with which a shorter one is composed."""
        sampled = super().sample_split(split, limit)
        return replace(sampled, items=replace(sampled.items, composed=SAMPLED_FRAMES))

    def evaluate(
        self, network: nn.Module, split: Split[Pieces], progress: Progress | None = None
    ) -> Evaluation[Pieces, np.ndarray]:
        """Returns the metrics of a split, and a composed piece (frames,88)."""
        pieces = split.items.inputs
        totals = sum((read_totals(network, pieces[piece]) for piece in range(len(pieces))), np.zeros(4))
        composed = compose(network, 1, split.items.composed, seed=self.config.seed)[0]
        return Evaluation(split, frame_metrics(*totals.tolist()), composed)

    def baselines(self, splits: Splits[Pieces], names: Sequence[str]) -> dict[str, dict[str, Metrics]]:
        """Predicts each key by how often it sounds, and by how often it goes on or begins after the frame before."""
        train = all_frames(splits.train.items)
        before, after = consecutive_frames(train)
        stays = ((before * after).sum(axis=0) + 0.5) / (before.sum(axis=0) + 1)
        begins = (((1 - before) * after).sum(axis=0) + 0.5) / ((1 - before).sum(axis=0) + 1)
        metrics: dict[str, dict[str, Metrics]] = {}
        for split in names:
            previous, targets = consecutive_frames(all_frames(splits[split].items))
            probabilities = {
                "key frequencies": np.broadcast_to(key_shares(train.values), targets.shape),
                "frame before": np.where(previous > 0, stays, begins),
            }
            metrics[split] = {}
            for name, p in probabilities.items():
                nll = -float(np.where(targets > 0, np.log(p), np.log1p(-p)).sum(dtype=np.float64))
                correct, sounding = ((p > 0.5) & (targets > 0)).sum(), ((p > 0.5) | (targets > 0)).sum()
                metrics[split][name] = frame_metrics(nll, float(len(targets)), float(correct), float(sounding))
        return metrics

    def views(self, evaluation: Evaluation[Pieces, np.ndarray]) -> list[View]:
        rolls = {
            "A piece of the data": evaluation.split.items.inputs[0][:SHOWN_FRAMES],
            "A piece that the model composed": evaluation.outputs,
        }
        return [
            PianoRoll(title=title, notes=tuple(find_notes(roll)), frames=len(roll)) for title, roll in rolls.items()
        ]

    def sample(self, evaluation: Evaluation[Pieces, np.ndarray]) -> str:
        """Returns the chords of the composed piece by the names of their notes."""
        chords = (" ".join(map(note_name, np.flatnonzero(frame).tolist())) for frame in evaluation.outputs)
        return " | ".join(chord or "–" for chord in itertools.islice(chords, SAMPLED_FRAMES))


def shift_frames(rolls: np.ndarray, mask: np.ndarray | None = None) -> Batch:
    """Returns a batch whose inputs are silence and all frames (B,T,88) but the last, and whose targets are all."""
    targets = torch.from_numpy(rolls)
    inputs = torch.cat([torch.zeros_like(targets[:, :1]), targets[:, :-1]], dim=1)
    complete = mask is None or bool(mask.all())
    frames = rolls.shape[0] * rolls.shape[1] if mask is None else int(mask.sum())
    return Batch(inputs, targets, frames, None if complete else torch.from_numpy(mask))


def read_piece(network: nn.Module, inputs: Tensor) -> Tensor:
    """Returns the scores of a whole piece; a network with a limited context reads it in parts."""
    network.eval()
    context, device = context_of(network), next(network.parameters()).device
    parts = [inputs] if context is None or inputs.shape[1] <= context else inputs.split(context, dim=1)
    return torch.cat([network(part.to(device))[0] for part in parts], dim=1)


@torch.inference_mode()
def read_totals(network: nn.Module, roll: np.ndarray) -> np.ndarray:
    """Returns sums over a piece: nats, frames, keys that sound as predicted, keys that sound or are predicted."""
    batch = shift_frames(roll[None])
    scores = as_float32(read_piece(network, batch.inputs))[:, 1:].cpu()  # the first frame is not evaluated
    targets = batch.targets[:, 1:]
    nll = float(F.binary_cross_entropy_with_logits(scores, targets, reduction="none").sum(dim=-1).sum())
    correct = float(((scores > 0) & (targets > 0)).sum())
    sounding = float(((scores > 0) | (targets > 0)).sum())
    return np.array([nll, targets.shape[1], correct, sounding])


def frame_metrics(nll: float, frames: float, correct: float, sounding: float) -> Metrics:
    """Returns the metrics; accuracy is the share of keys that sound or are predicted for which both hold (Bay 2009)."""
    mean = nll / max(frames, 1.0)
    return {"loss": mean, "nll": mean, "accuracy": correct / max(sounding, 1.0), "frames": frames}


def key_shares(frames: np.ndarray) -> np.ndarray:
    """Returns how often each key sounds (88,), never quite 0 or 1."""
    return ((frames.sum(axis=0, dtype=np.float64) + 0.5) / (len(frames) + 1)).astype(np.float32)


def all_frames(pieces: Pieces) -> Sequences:
    """Returns the frames of a whole split, which lie one behind the other."""
    return cast(Sequences, pieces.inputs)


def consecutive_frames(rolls: Sequences) -> tuple[np.ndarray, np.ndarray]:
    """Returns all frames (n,88) that have one before them in their piece, after those before them."""
    first = np.zeros(len(rolls.values), dtype=bool)
    first[rolls.starts] = True
    after = np.flatnonzero(~first)
    return rolls.values[after - 1], rolls.values[after]


def note_name(key: int) -> str:
    octave, step = divmod(key + LOWEST, 12)
    return f"{NOTE_NAMES[step]}{octave - 1}"
