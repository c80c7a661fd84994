"""Piano rolls: pieces of music as frames of 88 keys, each 0 or 1.

From `.mat` files with the cells `traindata`, `validdata` and `testdata`, from MIDI files (a piece each), and from
`.npy` rolls (frames,88) or (pieces,frames,88). Pieces without given parts are split by piece.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from seriatim.core.errors import SeriatimError
from seriatim.core.files import sha256

from . import cache
from .array_files import load_arrays
from .midi import KEYS, LOWEST, Midi, read_midi
from .sequences import Examples, Parts, Sequences
from .sources import locate

PARTS = ("train", "valid", "test")
PITCHES = 128  # of MIDI; a roll so wide is cut to the piano's keys
MOST_FRAMES = 1_000_000  # of a piece; more is a wrong step or a damaged file
SEED = 1
MIDI = (".mid", ".midi")


@dataclass
class _Facts:
    """What was met while reading, to be told."""

    outside: int = 0
    drums: int = 0
    open: int = 0
    short: list[str] = field(default_factory=list)

    def told(self) -> Iterator[str]:
        if self.drums:
            yield f"left out {self.drums:,} notes of drums (channel 10)"
        if self.outside:
            yield f"left out {self.outside:,} notes outside of the piano's {KEYS} keys"
        if self.open:
            yield f"{self.open:,} notes are never let go: they sound to the end of their track"
        if self.short:
            more = ", …" if len(self.short) > 3 else ""
            yield f"left out {len(self.short):,} pieces of fewer than two frames: {', '.join(self.short[:3])}{more}"


Piece = tuple[str, np.ndarray]  # its place, and its roll


def read_rolls(
    source: str | Path,
    data_dir: str | None = None,
    *,
    step: float = 0.25,
    fractions: tuple[float, float, float] = (0.8, 0.1, 0.1),
) -> Parts:
    """The pieces of a source; `step` is the length of a frame in beats where the source is MIDI."""
    if not 0 < step < float("inf"):
        raise SeriatimError("data.step", f"a step of {step:g} beats is no length", "choose for example 0.25")
    located = locate(source, data_dir)
    path = located.train if located else Path(source).expanduser()
    notes = [f"{source}: {located.source}"] if located else []
    files = _files(path)
    facts = _Facts()
    if any(file.suffix.lower() in MIDI for file in files):
        notes.append(f"MIDI sampled in frames of {step:g} beats")
    given = _given(path, files, step, facts)
    if given is None:
        pieces = [piece for file in files for piece in _pieces(file, _name(path, file), step, facts)]
        given = _split(pieces, fractions, notes)
    if not given["train"]:
        raise SeriatimError("data.empty", f"{source}: no piece of two frames to train on", "give more music")
    made = {part: _examples(given.get(part, [])) for part in PARTS}
    counted = " / ".join(f"{len(made[part]):,} pieces of {_frames(made[part]):,} frames" for part in PARTS)
    notes += [f"training, validation and test: {counted}", *facts.told()]
    fingerprint = cache.key([sha256(file) for file in files], step, fractions)
    names = tuple(str(pitch) for pitch in range(LOWEST, LOWEST + KEYS))
    return Parts(made["train"], made["valid"], made["test"], notes, fingerprint, features=names)


def roll_of(midi: Midi, step: float = 0.25, name: str = "the piece") -> tuple[np.ndarray, int]:
    """The roll (frames,88) of notes, each at the nearest frames and at least one long; and how many had no key."""
    frames = _nearest(max([midi.length, *(note.end for note in midi.notes)]) / step)
    if frames > MOST_FRAMES:
        cause = f"{name}: {frames:,} frames of {step:g} beats, more than {MOST_FRAMES:,}"
        raise SeriatimError("data.step", cause, "choose longer frames, such as data.step=1, or leave the file out")
    # The shortest note at the very end may need a frame more.
    roll = np.zeros((frames + 1, KEYS), np.float32)
    outside = last = 0
    for start, end, pitch, _ in midi.notes:
        if not LOWEST <= pitch < LOWEST + KEYS:
            outside += 1
            continue
        first = _nearest(start / step)
        after = max(first + 1, _nearest(end / step))
        roll[first:after, pitch - LOWEST] = 1
        last = max(last, after)
    return roll[: max(frames, last)], outside


def _nearest(number: float) -> int:
    return int(number + 0.5)


def _files(path: Path) -> list[Path]:
    if not path.is_dir():
        return [path]
    wanted = (*MIDI, ".npy")
    files = [file for file in path.rglob("*") if file.suffix.lower() in wanted and not file.name.startswith(".")]
    if not files:
        raise SeriatimError("data.empty", f"the folder {path} holds no .mid or .npy files", "give a folder with music")
    return sorted(files, key=lambda file: file.relative_to(path).as_posix())


def _name(path: Path, file: Path) -> str:
    return file.name if file == path else str(Path(path.name, file.relative_to(path)))


def _given(path: Path, files: list[Path], step: float, facts: _Facts) -> dict[str, list[Piece]] | None:
    """The parts where the source has them: the cells of a `.mat` file, or folders of these names."""
    if path.name.lower().removesuffix(".gz").endswith(".mat"):
        arrays = load_arrays(path)
        cells = {part: arrays.get(f"{part}data") for part in PARTS}
        if not isinstance(cells["train"], list):
            cause = f"{path.name}: has no cell traindata, only {', '.join(arrays)}"
            raise SeriatimError("data.roll", cause, "save the pieces as the cells traindata, validdata and testdata")
        return {
            part: [
                piece
                for number, roll in enumerate(rolls, 1)
                for piece in _kept(f"{path.name}/{part}data, piece {number}", roll, facts)
            ]
            for part, rolls in cells.items()
            if isinstance(rolls, list)
        }
    if path.is_dir() and (path / "train").is_dir():
        given: dict[str, list[Piece]] = {part: [] for part in PARTS}
        for file in files:
            part = file.relative_to(path).parts[0]
            if part in given:
                given[part] += _pieces(file, _name(path, file), step, facts)
        return given
    return None


def _pieces(file: Path, name: str, step: float, facts: _Facts) -> list[Piece]:
    if file.suffix.lower() in MIDI:
        midi = read_midi(file)
        roll, outside = roll_of(midi, step, name)
        facts.outside += outside
        facts.drums += midi.drums
        facts.open += midi.open
        return _kept(name, roll, facts)
    if not file.name.lower().removesuffix(".gz").endswith(".npy"):
        raise SeriatimError("data.roll", f"{name}: not music that is read here", "give .mid, .npy or .mat files")
    array = load_arrays(file)[""]
    assert isinstance(array, np.ndarray)
    if array.ndim != 3:
        return _kept(name, array, facts)
    return [piece for number, roll in enumerate(array, 1) for piece in _kept(f"{name}, piece {number}", roll, facts)]


def _kept(name: str, roll: np.ndarray, facts: _Facts) -> list[Piece]:
    """A roll as float32, checked; none where there is nothing to foretell."""
    if roll.ndim != 2 or (roll.size and roll.shape[1] not in (KEYS, PITCHES)):
        cause = f"{name}: a roll of the shape {roll.shape}, where (frames,{KEYS}) is wanted"
        raise SeriatimError("data.roll", cause, f"give {KEYS} keys, or all {PITCHES} pitches of MIDI")
    if roll.dtype.kind not in "biuf" or not np.isin(roll, (0, 1)).all():
        cause = f"{name}: a roll holds only 0 and 1"
        if roll.dtype.kind in "biuf":
            frame, key = np.argwhere(~np.isin(roll, (0, 1)))[0]
            cause = f"{name}, frame {frame + 1}, key {key + 1}: {roll[frame, key]:g}, where a roll holds only 0 and 1"
        raise SeriatimError("data.roll", cause, "write 1 where the key is down, however hard it was struck")
    if len(roll) < 2 or not roll.size:
        facts.short.append(name)
        return []
    if roll.shape[1] == PITCHES:
        facts.outside += int(roll[:, :LOWEST].sum() + roll[:, LOWEST + KEYS :].sum())
        roll = roll[:, LOWEST : LOWEST + KEYS]
    return [(name, np.ascontiguousarray(roll, np.float32))]


def _split(pieces: list[Piece], fractions: tuple[float, float, float], notes: list[str]) -> dict[str, list[Piece]]:
    """By piece, in an order drawn from a seed; where there are fewer pieces than parts, each is cut in time."""
    shares = np.cumsum(fractions)[:2]
    wanted = sum(share > 0 for share in fractions)
    given: dict[str, list[Piece]] = {part: [] for part in PARTS}
    shown = " / ".join(f"{100 * share:g}" for share in fractions)
    if len(pieces) < wanted:
        notes.append(f"{len(pieces)} piece{'s' if len(pieces) > 1 else ''}: cut in time, {shown} %")
        for name, roll in pieces:
            first, second = (_nearest(share * len(roll)) for share in shares)
            for part, some in zip(PARTS, (roll[:first], roll[first:second], roll[second:]), strict=True):
                if len(some) > 1:
                    given[part].append((name, some))
        return given
    order = np.argsort(np.random.PCG64(SEED).random_raw(len(pieces)), kind="stable")
    sizes = [max(1, _nearest(share * len(pieces))) if share else 0 for share in fractions[1:]]
    while sum(sizes) >= len(pieces):  # one at least is to train on
        sizes[sizes.index(max(sizes))] -= 1
    cuts = [len(pieces) - sum(sizes), len(pieces) - sizes[1]]
    for part, rows in zip(PARTS, np.split(order, cuts), strict=True):
        given[part] = [pieces[row] for row in sorted(rows)]
    notes.append(f"{len(pieces):,} pieces split {shown} % by piece, in an order drawn from a seed")
    return given


def _examples(pieces: list[Piece]) -> Examples:
    return Examples(Sequences.of((roll for _, roll in pieces), KEYS), None, [name for name, _ in pieces])


def _frames(examples: Examples) -> int:
    assert isinstance(examples.inputs, Sequences)
    return len(examples.inputs.values)
