"""Standard MIDI files: the notes of one, with times in beats; and a piano roll written as one.

A file is a header and tracks. A track is a row of events, each with the time since the one before it, in ticks; how
many ticks make a beat stands in the header. A note is a key struck (note on) and let go (note off, or note on with
no force).
"""

from __future__ import annotations

import struct
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path
from typing import NamedTuple, NoReturn

import numpy as np

from seriatim.core.errors import SeriatimError
from seriatim.core.files import atomic_file

from .sources import reading

LOWEST, KEYS = 21, 88  # the piano's lowest key as a MIDI pitch, and how many keys it has
DRUMS = 9  # the channel that musicians call the tenth
NOTE_OFF, NOTE_ON, SYSEX, SYSEX_END, META = 0x80, 0x90, 0xF0, 0xF7, 0xFF
END, TEMPO = 0x2F, 0x51
SIZES = {0x80: 2, 0x90: 2, 0xA0: 2, 0xB0: 2, 0xC0: 1, 0xD0: 1, 0xE0: 2}  # bytes that follow a status
MOST_TICKS = 32_767  # of a beat, what the header can say
FORCE = 80


class Note(NamedTuple):
    start: float  # in beats
    end: float
    pitch: int  # 60 is the middle C
    force: int


@dataclass(frozen=True)
class Midi:
    notes: list[Note]  # by start, then by pitch
    length: float  # in beats, to the end of the longest track
    tempo: float = 120.0  # beats a minute, as at the beginning
    drums: int = 0  # notes of the drums' channel, left out
    open: int = 0  # notes that were never let go; they sound to the end of their track


class Event(NamedTuple):
    time: int  # in ticks from the beginning
    status: int
    data: bytes


def read_midi(path: str | Path) -> Midi:
    """The notes of a file of format 0 or 1, all tracks together, the drums left out."""
    path = Path(path)
    try:
        with reading(str(path)):
            data = path.read_bytes()
    except (FileNotFoundError, IsADirectoryError):
        raise SeriatimError("data.missing", f"there is no file {path}", "check the path") from None
    ticks, tracks = _tracks(path.name, data)
    found = _Found()
    for start, end in tracks:
        found.track(_events(path.name, data, start, end))
    notes = sorted(Note(start / ticks, end / ticks, pitch, force) for start, end, pitch, force in found.notes)
    tempo = found.tempos[min(found.tempos)] if found.tempos else 120.0
    return Midi(notes, found.length / ticks, tempo, found.drums, found.open)


def write_midi(path: str | Path, roll: np.ndarray, step: float = 0.25, tempo: float = 120.0) -> None:
    """A piano roll (frames,88) of 0 and 1 as a file: frames of `step` beats at `tempo` beats a minute.

    A key that is on in frames that follow one another is one long note.
    """
    microseconds = round(60_000_000 / tempo) if tempo > 0 else 0
    if not 0 < microseconds < 1 << 24:
        raise SeriatimError("midi.tempo", f"a tempo of {tempo:g} beats a minute cannot be written", "choose 4 to 1000")
    # The step as a fraction gives a number of ticks that divides without rest, so that no frame drifts.
    exact = Fraction(step).limit_denominator(MOST_TICKS) if step > 0 else Fraction(0)
    ticks = exact.denominator * max(1, 480 // exact.denominator)
    frame = exact * ticks
    if not frame or frame * len(roll) >= 1 << 28:
        cause = f"{len(roll):,} frames of {step:g} beats cannot be written"
        raise SeriatimError("midi.step", cause, "choose for example frames of 0.25 beats")
    events = [(0, bytes([META, TEMPO, 3]) + microseconds.to_bytes(3, "big"))]
    for start, end, pitch in held(roll):
        events.append((start, bytes([NOTE_ON, pitch, FORCE])))
        events.append((end, bytes([NOTE_OFF, pitch, 0])))
    events.sort(key=lambda event: (event[0], event[1][0] == NOTE_ON))  # what ends goes before what begins
    events.append((len(roll), bytes([META, END, 0])))
    times = [0] + [time for time, _ in events]
    track = b"".join(
        _written((time - before) * int(frame)) + event for before, (time, event) in zip(times, events, strict=False)
    )
    header = b"MThd" + struct.pack(">IHHH", 6, 0, 1, ticks)
    with atomic_file(path) as aside:
        aside.write_bytes(header + b"MTrk" + struct.pack(">I", len(track)) + track)


def held(roll: np.ndarray) -> list[tuple[int, int, int]]:
    """The notes of a piano roll (frames,88): first frame, the frame after the last, pitch."""
    on = np.zeros((len(roll) + 2, KEYS), np.int8)
    on[1:-1] = np.asarray(roll) > 0.5
    change = np.diff(on, axis=0).T  # by key, so that beginnings and ends are found in the same order
    keys, starts = np.nonzero(change == 1)
    _, ends = np.nonzero(change == -1)
    return sorted(zip(starts.tolist(), ends.tolist(), (keys + LOWEST).tolist(), strict=True))


@dataclass
class _Found:
    notes: list[tuple[int, int, int, int]] = field(default_factory=list)
    tempos: dict[int, float] = field(default_factory=dict)
    length: int = 0
    drums: int = 0
    open: int = 0

    def track(self, events: Iterator[Event]) -> None:
        """Of a key struck twice before it is let go, the first stroke ends first."""
        sounding: dict[tuple[int, int], list[tuple[int, int]]] = defaultdict(list)
        now = 0
        for now, status, data in events:
            kind, channel = status & 0xF0, status & 0x0F
            if status == META:
                if data[0] == TEMPO and len(data) == 4 and any(data[1:]):
                    self.tempos.setdefault(now, 60_000_000 / int.from_bytes(data[1:], "big"))
            elif channel == DRUMS:
                self.drums += kind == NOTE_ON and data[1] > 0
            elif kind == NOTE_ON and data[1] > 0:
                sounding[channel, data[0]].append((now, data[1]))
            elif kind in (NOTE_ON, NOTE_OFF) and sounding[channel, data[0]]:
                start, force = sounding[channel, data[0]].pop(0)
                self.notes.append((start, now, data[0], force))
        for (_, pitch), strokes in sounding.items():
            self.open += len(strokes)
            self.notes.extend((start, now, pitch, force) for start, force in strokes)
        self.length = max(self.length, now)


def _tracks(name: str, data: bytes) -> tuple[int, list[tuple[int, int]]]:
    """The ticks of a beat, and where the events of each track begin and end."""
    if data[:4] != b"MThd":
        raise SeriatimError("data.midi", f"{name}: not a standard MIDI file", "give a .mid file of format 0 or 1")
    if len(data) < 14:
        _damaged(name, len(data), "ends within its header")
    size, form, count, ticks = struct.unpack_from(">IHHH", data, 4)
    if form > 1:
        cause = f"{name}: of MIDI format {form}: pieces that do not belong together"
        raise SeriatimError("data.midi", cause, "save it in format 0 or 1")
    if not 0 < ticks <= MOST_TICKS:
        cause = f"{name}: counts in seconds (SMPTE), not in beats" if ticks else f"{name}: has no ticks in a beat"
        raise SeriatimError("data.midi", cause, "save it with times in ticks of a beat")
    tracks: list[tuple[int, int]] = []
    place = 8 + size
    while place < len(data) and len(tracks) < count:
        if len(data) - place < 8:
            _damaged(name, place, "ends within the head of a track")
        (size,) = struct.unpack_from(">I", data, place + 4)
        if place + 8 + size > len(data):
            _damaged(name, place, f"{len(data) - place - 8:,} bytes of a track of {size:,}")
        if data[place : place + 4] == b"MTrk":  # what else there may be is to be skipped
            tracks.append((place + 8, place + 8 + size))
        place += 8 + size
    if len(tracks) < count:
        _damaged(name, len(data), f"ends after {len(tracks)} of {count} tracks")
    return ticks, tracks


def _events(name: str, data: bytes, place: int, end: int) -> Iterator[Event]:
    """Notes, tempos and the end of a track. A channel's event may leave its status away if the last had the same."""
    now = status = 0

    def number() -> int:
        """Seven bits of each byte; the eighth says that another follows."""
        nonlocal place
        value = 0
        for _ in range(4):
            if place >= end:
                _damaged(name, place, "a track ends within an event")
            place += 1
            value = value << 7 | data[place - 1] & 0x7F
            if data[place - 1] < 0x80:
                return value
        _damaged(name, place, "a number of more than four bytes")

    def take(size: int) -> bytes:
        nonlocal place
        if place + size > end:
            _damaged(name, place, "a track ends within an event")
        place += size
        return data[place - size : place]

    while place < end:
        now += number()
        begin = place
        first = take(1)[0]
        if first == META:
            kind = take(1)
            yield Event(now, META, kind + take(number()))
            if kind[0] == END:
                return
        elif first in (SYSEX, SYSEX_END):
            take(number())
        elif first > SYSEX:
            _damaged(name, begin, f"an event of kind {first:02X}, which no file may hold")
        else:
            if first >= 0x80:
                status = first
            elif not status:
                _damaged(name, begin, "an event without a kind")
            else:
                place = begin
            values = take(SIZES[status & 0xF0])
            if max(values) > 0x7F:
                _damaged(name, begin, "an event breaks off")
            yield Event(now, status, values)


def _written(number: int) -> bytes:
    parts = [number & 0x7F]
    while number := number >> 7:
        parts.append(number & 0x7F | 0x80)
    return bytes(reversed(parts))


def _damaged(name: str, place: int, why: str) -> NoReturn:
    raise SeriatimError("data.midi", f"{name}, byte {place}: the file is damaged: {why}", "fetch or save it again")
