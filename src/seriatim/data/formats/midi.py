"""Music: standard MIDI files and piano rolls, which are frames of the 88 keys of a piano, each 0 or 1.

A piece is a MIDI file, an array (frames, 88) in a `.npy` file, one of several in (pieces, frames, 88), or a cell of a
`.mat` file with the cells `traindata`, `validdata` and `testdata`, which are its splits.
"""

from __future__ import annotations

import io
import struct
from collections import defaultdict, deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import NamedTuple

import numpy as np

from ...core import limits
from ...core.errors import Diagnostics, SeriatimError
from ..kinds import SPLIT_ALIASES, CellError
from ..music import ROLE
from ..source import Source, open_source
from ..stream import Location, Stream, shorten_error
from .base import Format, ReadOptions, Record

LOWEST, KEYS, PITCHES = 21, 88, 128  # the MIDI pitch of a piano's lowest key, its keys, and all pitches of MIDI
DRUMS = 9  # the channel that musicians call the tenth
DEFAULT_TEMPO = 120.0  # beats per minute
MAX_TICKS, MAX_DELTA, MAX_TEMPO = 32_767, 1 << 28, 1 << 24  # what a file can hold: ticks per beat, ticks, μs per beat
TICKS, VELOCITY = 480, 80  # of files that are written
EVENT_BYTES = 3  # of a note without a status byte; other events are mostly longer


class Note(NamedTuple):
    start: float  # in beats
    end: float
    pitch: int  # 60 is the middle C
    velocity: int


@dataclass(frozen=True)
class Midi:
    """The notes of a MIDI file, without drums."""

    notes: list[Note]  # by start, then by pitch
    length: float  # in beats, to the end of the longest track
    tempo: float = DEFAULT_TEMPO  # in beats per minute, at the beginning
    drums: int = 0  # notes of the drum channel
    unreleased: int = 0  # notes without an end, which sound to the end of their track


def parse_midi(name: str, data: bytes) -> Midi:
    """Returns the notes of a MIDI file of format 0 or 1, all tracks together; the first stroke of a key ends first."""
    try:
        import mido
    except ImportError:
        cause = f"{name}: reading MIDI files needs mido"
        raise SeriatimError("dependency.missing", cause, "pip install 'seriatim[music]'") from None
    limits.MIDI_EVENTS.check(len(data) // EVENT_BYTES, name)
    checked = check_chunks(name, data)
    try:
        file = mido.MidiFile(file=io.BytesIO(checked))
    except Exception as error:  # damaged bytes raise many types
        reason = shorten_error(error) if str(error) else "a track ends within an event"
        raise SeriatimError(
            "data.midi", f"{name}: the file is damaged: {reason}", "download or save it again"
        ) from None
    notes: list[tuple[int, int, int, int]] = []
    tempos: dict[int, float] = {}
    length = drums = unreleased = 0
    for track in file.tracks:
        sounding: dict[tuple[int, int], deque[tuple[int, int]]] = defaultdict(deque)
        time = 0
        for message in track:
            time += message.time
            if message.type == "set_tempo" and message.tempo:
                tempos.setdefault(time, 60_000_000 / message.tempo)
            if message.type not in ("note_on", "note_off"):
                continue
            struck = message.type == "note_on" and message.velocity > 0
            if message.channel == DRUMS:
                drums += struck
            elif struck:
                sounding[message.channel, message.note].append((time, message.velocity))
            elif strokes := sounding[message.channel, message.note]:
                start, velocity = strokes.popleft()
                notes.append((start, time, message.note, velocity))
        for (_, pitch), strokes in sounding.items():
            unreleased += len(strokes)
            notes += [(start, time, pitch, velocity) for start, velocity in strokes]
        length = max(length, time)
    ticks = file.ticks_per_beat
    in_beats = sorted(Note(start / ticks, end / ticks, pitch, velocity) for start, end, pitch, velocity in notes)
    tempo = tempos[min(tempos)] if tempos else DEFAULT_TEMPO
    return Midi(in_beats, length / ticks, tempo, drums, unreleased)


def check_chunks(name: str, data: bytes) -> bytes:
    """Returns the header and the tracks of a MIDI file without chunks of other types; raises an error by byte."""

    def damaged(position: int, reason: str) -> SeriatimError:
        cause = f"{name}, byte {position}: the file is damaged: {reason}"
        return SeriatimError("data.midi", cause, "download or save it again")

    if data[:4] != b"MThd":
        raise SeriatimError("data.midi", f"{name}: not a standard MIDI file", "pass a .mid file of format 0 or 1")
    if len(data) < 14:
        raise damaged(len(data), "ends within its header")
    size, form, count, ticks = struct.unpack_from(">IHHH", data, 4)
    if form > 1:
        cause = f"{name}: a MIDI file of format {form}, whose tracks are pieces of their own"
        raise SeriatimError("data.midi", cause, "pass a .mid file of format 0 or 1")
    if ticks > MAX_TICKS or not ticks:
        reason = "counts in seconds, not in beats" if ticks else "has no ticks in a beat"
        raise SeriatimError("data.midi", f"{name}: {reason}", "save it with ticks per beat")
    chunks, tracks, position = [data[: 8 + size]], 0, 8 + size
    while position < len(data) and tracks < count:
        if len(data) - position < 8:
            raise damaged(position, "ends within the header of a track")
        (size,) = struct.unpack_from(">I", data, position + 4)
        end = position + 8 + size
        if end > len(data):
            raise damaged(position, f"{len(data) - position - 8:,} bytes of a track of {size:,}")
        if data[position : position + 4] == b"MTrk":
            chunks.append(data[position:end])
            tracks += 1
        position = end
    if tracks < count:
        raise damaged(len(data), f"ends after {tracks} of {count} tracks")
    return b"".join(chunks)


def write_midi(roll: np.ndarray, step: float = 0.25, tempo: float = DEFAULT_TEMPO) -> bytes:
    """Returns a piano roll (frames,88) as a MIDI file; a key that is down in consecutive frames is one note.

    Args:
        roll: Of 0 and 1.
        step: Beats per frame.
        tempo: Beats per minute.
    """
    import mido

    microseconds = round(60_000_000 / tempo) if tempo > 0 else 0
    if not 0 < microseconds < MAX_TEMPO:
        raise SeriatimError("midi.tempo", f"a tempo of {tempo:g} beats per minute cannot be written", "use 4 to 1000")
    # A step that is a fraction of whole ticks: no frame drifts.
    exact = Fraction(step).limit_denominator(MAX_TICKS) if step > 0 else Fraction(0)
    ticks = exact.denominator * max(1, TICKS // exact.denominator)
    frame = exact * ticks
    if not frame or frame * len(roll) >= MAX_DELTA:
        cause = f"{len(roll):,} frames of {step:g} beats cannot be written"
        raise SeriatimError("midi.step", cause, "use for example frames of 0.25 beats")
    events: list[tuple[int, bool, int]] = []  # frame, whether the note begins, pitch
    for start, end, pitch in find_notes(roll):
        events += [(start, True, pitch), (end, False, pitch)]
    events.sort(key=lambda event: event[:2])  # notes end before others begin
    track, time = mido.MidiTrack([mido.MetaMessage("set_tempo", tempo=microseconds)]), 0
    for position, begins, pitch in events:
        kind, velocity = ("note_on", VELOCITY) if begins else ("note_off", 0)
        track.append(mido.Message(kind, note=pitch, velocity=velocity, time=(position - time) * int(frame)))
        time = position
    track.append(mido.MetaMessage("end_of_track", time=(len(roll) - time) * int(frame)))
    contents = io.BytesIO()
    mido.MidiFile(type=0, ticks_per_beat=ticks, tracks=[track]).save(file=contents)
    return contents.getvalue()


def find_notes(roll: np.ndarray) -> list[tuple[int, int, int]]:
    """Returns the notes of a piano roll (frames,88): first frame, frame after the last, pitch; in order of time."""
    down = np.zeros((len(roll) + 2, KEYS), np.int8)
    down[1:-1] = np.asarray(roll) > 0.5
    changes = np.diff(down, axis=0).T  # by key, so that starts and ends are in the same order
    keys, starts = np.nonzero(changes == 1)
    _, ends = np.nonzero(changes == -1)
    return sorted(zip(starts.tolist(), ends.tolist(), (keys + LOWEST).tolist(), strict=True))


def sample_roll(midi: Midi, step: float = 0.25, name: str = "the piece") -> tuple[np.ndarray, int]:
    """Returns the piano roll (frames,88) of notes and how many are outside of the keys.

    Each note is at the nearest frames, and at least one long.
    """
    frames = round_half_up(max([midi.length, *(note.end for note in midi.notes)]) / step)
    if frames > limits.FRAMES.value:  # a wrong step or a damaged file
        cause = f"{name}: {frames:,} frames of {step:g} beats, more than {limits.FRAMES.value:,}"
        remedy = f"choose longer frames, such as task.step=1, remove the file, or set {limits.FRAMES.variable}"
        raise SeriatimError("data.step", cause, remedy)
    roll = np.zeros((frames + 1, KEYS), np.float32)  # a short note at the very end may need one more
    outside = used = 0
    for start, end, pitch, _ in midi.notes:
        if not LOWEST <= pitch < LOWEST + KEYS:
            outside += 1
            continue
        first = round_half_up(start / step)
        after = max(first + 1, round_half_up(end / step))
        roll[first:after, pitch - LOWEST] = 1
        used = max(used, after)
    return roll[: max(frames, used)], outside


def round_half_up(number: float) -> int:
    return int(number + 0.5)


def parse_roll(cell: object) -> Midi | np.ndarray:
    """Returns a piece: a MIDI file as its notes, an array of frames with 88 or 128 keys as it is."""
    if isinstance(cell, Midi):
        return cell
    if isinstance(cell, Path):
        if not cell.is_file():
            raise CellError("data.missing", f'names "{cell}", which is not a file', "pass a MIDI file")
        (stream,) = open_source(cell).streams
        return parse_midi(cell.name, stream.read_bytes())
    roll = np.asarray(cell)
    if roll.ndim != 2 or (roll.size and roll.shape[1] not in (KEYS, PITCHES)):
        reason = f"is a roll of the shape {roll.shape}, where (frames,{KEYS}) is expected"
        raise CellError("data.roll", reason, f"pass {KEYS} keys, or all {PITCHES} pitches of MIDI")
    wrong = np.argwhere(~np.isin(roll, (0, 1)))
    if len(wrong):
        frame, key = wrong[0]
        reason = f"holds {roll[frame, key]} in frame {frame + 1}, key {key + 1}, where a roll holds only 0 and 1"
        raise CellError("data.roll", reason, "write 1 where the key is down, however hard it was struck")
    return roll


class Music(Format):
    """Pieces of music, for tasks whose schema has a piano roll."""

    def usable(self, options: ReadOptions) -> bool:
        return ROLE in options.header_names

    def sniff(self, source: Source) -> bool:
        return bool(source.streams)

    def records(self, source: Source, options: ReadOptions, diagnostics: Diagnostics) -> Iterator[Record]:
        from .arrays import load_arrays  # for files of arrays only

        streams = [stream for stream in source.streams if stream.extension in ("mid", "midi", "npy", "mat")]
        if not streams:
            cause = f"{source.name}: holds no music"
            raise SeriatimError("data.roll", cause, "pass .mid, .npy or .mat files, or a folder of them")
        for stream in streams:
            if stream.extension in ("mid", "midi"):
                piece = parse_midi(stream.name, stream.read_bytes())
                yield Record({ROLE: piece}, Location(stream.name, 1, unit=""))
            elif stream.extension == "mat":
                yield from self._read_cells(stream, load_arrays(stream))
            else:
                array = load_arrays(stream)[""]
                if isinstance(array, np.ndarray) and array.ndim != 3:
                    yield Record({ROLE: array}, Location(stream.name, 1, unit=""))
                    continue
                for number, roll in enumerate(array, 1):
                    yield Record({ROLE: roll}, Location(stream.name, number, "piece"))

    @staticmethod
    def _read_cells(stream: Stream, arrays: Mapping[str, np.ndarray | list[np.ndarray]]) -> Iterator[Record]:
        """Yields the pieces of a MATLAB file with the split of each."""
        cells = {name: arrays[name] for name in ("traindata", "validdata", "testdata") if name in arrays}
        if not isinstance(cells.get("traindata"), list):
            cause = f"{stream.name}: has no cell traindata, only {', '.join(arrays)}"
            raise SeriatimError("data.roll", cause, "save the pieces as the cells traindata, validdata and testdata")
        for name, rolls in cells.items():
            for number, roll in enumerate(rolls, 1):
                values = {ROLE: roll, "split": SPLIT_ALIASES[name.removesuffix("data")]}
                yield Record(values, Location(f"{stream.name}/{name}", number, "piece"))
