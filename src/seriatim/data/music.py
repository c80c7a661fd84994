"""The kind of pieces of music, declared without NumPy: MIDI files, or piano rolls (frames, keys) of 0 and 1."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .kinds import KINDS, Cell, Kind

if TYPE_CHECKING:
    import numpy as np

    from .formats.midi import Midi

ROLE = "roll"  # identifies the schema of music


def _parse(cell: Cell) -> Midi | np.ndarray:
    from .formats.midi import parse_roll

    return parse_roll(cell)


def _key(piece: Midi | np.ndarray) -> bytes:
    from .formats.midi import Midi

    return repr(piece.notes).encode() if isinstance(piece, Midi) else piece.tobytes()


ROLL = Kind("piano roll", _parse, key=_key, is_path=True)
KINDS[ROLL.name] = ROLL
