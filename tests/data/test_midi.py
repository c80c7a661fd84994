"""MIDI files against mido, piano rolls there and back, and pieces of every source."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import mido
import numpy as np
import pytest
import scipy.io
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from seriatim.core import registry
from seriatim.core.errors import Diagnostics, SeriatimError
from seriatim.data.dataset import Dataset
from seriatim.data.formats.midi import Midi, Note, find_notes, parse_midi, sample_roll, write_midi
from seriatim.data.source import open_source
from seriatim.data.split import split
from seriatim.tasks.base import DataSettings, TaskConfig
from seriatim.tasks.music.spec import MusicSettings
from seriatim.tasks.music.task import MusicTask
from seriatim.tasks.reading import read_rows

FEW = settings(max_examples=40, deadline=None)
ROLLS = hnp.arrays(np.float32, st.tuples(st.integers(0, 40), st.just(88)), elements=st.sampled_from([0.0, 1.0]))
END = b"\x00\xff\x2f\x00"


def draw_roll(frames: int, seed: int = 0) -> np.ndarray:
    return (np.random.default_rng(seed).random((frames, 88)) < 0.1).astype(np.float32)


def midi_file(*tracks: bytes, form: int = 0, ticks: int = 480, count: int | None = None) -> bytes:
    head = b"MThd" + struct.pack(">IHHH", 6, form, len(tracks) if count is None else count, ticks)
    return head + b"".join(b"MTrk" + struct.pack(">I", len(track)) + track for track in tracks)


def parse(data: bytes) -> Midi:
    return parse_midi("x.mid", data)


# MIDI


@FEW
@given(roll=ROLLS, step=st.sampled_from([0.25, 0.5, 1.0, 2.0, 1 / 3, 1 / 6, 0.1, 0.07, 0.0625, 4.0]))
def test_roll_to_midi_and_back_is_the_identity(roll: np.ndarray, step: float) -> None:
    midi = parse(write_midi(roll, step, 97.0))
    restored, outside = sample_roll(midi, step)
    assert np.array_equal(restored, roll)
    assert outside == 0
    assert midi.tempo == pytest.approx(97, rel=1e-5)
    assert midi.length == pytest.approx(len(roll) * step)


def test_mido_reads_what_is_written(tmp_path: Path) -> None:
    roll = draw_roll(50)
    (tmp_path / "x.mid").write_bytes(write_midi(roll, 0.5, 90))
    file = mido.MidiFile(tmp_path / "x.mid")
    assert (file.ticks_per_beat, file.type) == (480, 0)
    assert file.length == pytest.approx(50 * 0.5 * 60 / 90, rel=1e-5)
    time, sounding, notes = 0, {}, []
    for message in file.tracks[0]:
        time += message.time
        if message.type == "note_on":
            sounding[message.note] = time
        elif message.type == "note_off":
            notes.append((sounding.pop(message.note) // 240, time // 240, message.note))
    assert sorted(notes) == find_notes(roll)


def test_notes_of_a_roll() -> None:
    roll = np.zeros((5, 88))
    roll[0:3, 0] = roll[4, 0] = roll[2:5, 87] = 1
    assert find_notes(roll) == [(0, 3, 21), (2, 5, 108), (4, 5, 21)]
    assert find_notes(np.zeros((0, 88))) == []


def test_running_status_and_silent_strokes() -> None:
    track = b"\x00\x90\x3c\x40" + b"\x83\x60\x3c\x00" + b"\x00\x3e\x41" + b"\x83\x60\x3e\x00" + END
    assert parse(midi_file(track)).notes == [Note(0, 1, 60, 64), Note(1, 2, 62, 65)]
    track = b"\x00\xf0\x02\x01\x02" + b"\x00\xf7\x02\x03\xf7" + b"\x00\x90\x3c\x40" + b"\x83\x60\x3c\x00" + END
    assert parse(midi_file(track)).notes == [Note(0, 1, 60, 64)]
    # A text between two events does not end the running status, a header may be longer, other chunks are skipped.
    track = b"\x00\x90\x3c\x40" + b"\x00\xff\x01\x01x" + b"\x83\x60\x3c\x00" + END
    data = b"MThd" + struct.pack(">IHHHH", 8, 0, 1, 480, 7) + b"XXXX\0\0\0\x01?" + midi_file(track)[14:]
    assert parse(data).notes == [Note(0, 1, 60, 64)]


def test_notes_struck_twice_or_without_an_end() -> None:
    twice = b"\x00\x90\x3c\x40" + b"\x60\x3c\x41" + b"\x60\x3c\x00" + b"\x60\x3c\x00" + END
    assert [note[:3] for note in parse(midi_file(twice, ticks=96)).notes] == [(0, 2, 60), (1, 3, 60)]
    unreleased = parse(midi_file(b"\x00\x90\x3c\x40" + b"\x60\xff\x2f\x00", ticks=96))
    assert (unreleased.notes, unreleased.unreleased) == ([Note(0, 1, 60, 64)], 1)
    assert parse(midi_file(b"\x00\x80\x3c\x40" + END)).notes == []  # an end without a stroke


def test_notes_go_to_the_nearest_frames_and_none_is_lost() -> None:
    notes = [Note(0.1, 0.4, 60, 64), Note(0.4, 0.45, 62, 64), Note(0.9, 1.62, 64, 64), Note(1.99, 1.99, 65, 64)]
    roll, _ = sample_roll(Midi(notes, 2.0), 0.5)
    assert find_notes(roll) == [(0, 1, 60), (1, 2, 62), (2, 3, 64), (4, 5, 65)]
    assert len(roll) == 5


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "x.mid: not a standard MIDI file"),
        (b"RIFF....RMID", "not a standard MIDI file"),
        (b"MThd\0\0", "byte 6: the file is damaged: ends within its header"),
        (midi_file(END, form=2), "format 2"),
        (midi_file(END, ticks=0xE728), "counts in seconds"),
        (midi_file(END, ticks=0), "no ticks in a beat"),
        (midi_file(END, count=2), "ends after 1 of 2 tracks"),
        (midi_file(b"\x00\x90\x3c\x40" + END)[:-3], "byte 14: the file is damaged: 5 bytes of a track of 8"),
        (midi_file(END, count=2) + b"MTr", "byte 26: .* ends within the header of a track"),
        (midi_file(b"\x00\x90\x3c"), "damaged: a track ends within an event"),
        (midi_file(b"\x00\x3c\x40" + END), "damaged: running status"),
        (midi_file(b"\x00\x90\x3c\x80" + END), "damaged: data byte must be in range"),
    ],
)
def test_damaged_files(data: bytes, message: str) -> None:
    with pytest.raises(SeriatimError, match=message) as caught:
        parse(data)
    assert caught.value.code == "data.midi"
    assert caught.value.cause.startswith("x.mid")


@FEW
@given(changes=st.dictionaries(st.integers(0, 9_999), st.integers(0, 255), max_size=6), cut=st.integers(0, 300))
def test_damage_never_ends_in_a_traceback(changes: dict[int, int], cut: int) -> None:
    data = bytearray(write_midi(draw_roll(6)))
    for position, value in changes.items():
        data[position % len(data)] = value
    try:
        roll, _ = sample_roll(parse(bytes(data[: len(data) - cut])))
    except SeriatimError as error:
        assert error.remedy  # noqa: PT017
    else:
        assert roll.shape[1] == 88


@pytest.mark.parametrize(
    ("step", "tempo", "word"),
    [(0.0, 120, "frames"), (-1, 120, "frames"), (1e9, 120, "frames"), (0.25, 0, "tempo"), (0.25, 1, "tempo")],
)
def test_what_cannot_be_written(step: float, tempo: float, word: str) -> None:
    with pytest.raises(SeriatimError, match=word):
        write_midi(draw_roll(3), step, tempo)


# Pieces of every source


MODEL = registry.models.load("gru").Settings(name="gru")


def read(source: Any, notes: list[str] | None = None, **task: Any) -> Dataset:
    diagnostics = Diagnostics(notes=[] if notes is None else notes)
    config = TaskConfig(task=MusicSettings(**task), data=DataSettings(source=str(source)), model=MODEL)
    return read_rows(MusicTask, config, open_source(source), diagnostics)


def read_splits(source: Any, notes: list[str] | None = None, fractions: Any = None, **task: Any) -> dict[str, Dataset]:
    data = DataSettings(source=str(source), fractions=fractions)
    config = TaskConfig(task=MusicSettings(**task), data=data, model=MODEL)
    diagnostics = Diagnostics(notes=[] if notes is None else notes)
    opened = open_source(source)
    parts = {
        name: read_rows(MusicTask, config, part, diagnostics)
        for name, part in (opened.splits or {"train": opened}).items()
    }
    train = parts.pop("train")
    return split(train, *MusicTask.choose_split(config, train), diagnostics, parts, MusicTask.schema)


def cells(*arrays: np.ndarray) -> np.ndarray:
    made = np.empty((1, len(arrays)), object)
    for number, array in enumerate(arrays):
        made[0, number] = array
    return made


def test_a_mat_file_has_its_splits(tmp_path: Path) -> None:
    pieces = [draw_roll(5 + number, number) for number in range(4)]
    variables = {
        "traindata": cells(*pieces[:2]),
        "validdata": cells(pieces[2]),
        "testdata": cells(pieces[3], np.zeros((1, 88))),
    }
    scipy.io.savemat(tmp_path / "x.mat", variables, do_compression=True)
    notes: list[str] = []
    splits = read_splits(tmp_path / "x.mat", notes)
    for name, expected in (("train", pieces[:2]), ("validation", pieces[2:3]), ("test", pieces[3:])):
        for roll, piece in zip(splits[name]["roll"], expected, strict=True):
            assert roll.dtype == np.float32
            assert np.array_equal(roll, piece)
    assert str(splits["test"].locations[0]) == "x.mat/testdata, piece 1"
    assert "1 pieces of fewer than two frames are left out: x.mat/testdata, piece 2" in notes


def test_a_folder_of_midi_files_is_split_by_file(tmp_path: Path) -> None:
    expected = {}
    for number in range(20):
        folder = tmp_path / "songs" / ("a" if number % 2 else "b")
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / (f"{number}.mid" if number % 3 else f"{number}.MIDI")
        expected[str(path.relative_to(tmp_path))] = roll = draw_roll(8 + number, number)
        path.write_bytes(write_midi(roll, 0.5))
    (tmp_path / "songs/readme.txt").write_text("not music")
    notes: list[str] = []
    splits = read_splits(tmp_path / "songs", notes, step=0.5)
    assert [len(rows) for rows in splits.values()] == [16, 2, 2]
    rolls = {
        str(place): roll for rows in splits.values() for place, roll in zip(rows.locations, rows["roll"], strict=True)
    }
    assert rolls.keys() == expected.keys()
    assert all(np.array_equal(rolls[name], expected[name]) for name in expected)
    assert any(note.startswith("split 80 / 10 / 10 % (by piece") for note in notes)
    again, other = read_splits(tmp_path / "songs", step=0.5), read_splits(tmp_path / "songs", step=0.25)
    assert again["train"].fingerprint() == splits["train"].fingerprint() != other["train"].fingerprint()
    assert len(read_splits(tmp_path / "songs", fractions=(0.01, 0.5, 0.49))["train"]) == 1


def test_folders_named_like_splits_are_the_splits(tmp_path: Path) -> None:
    for name, count in (("train", 3), ("valid", 1), ("test", 2)):
        (tmp_path / name).mkdir()
        for number in range(count):
            np.save(tmp_path / name / f"{number}.npy", draw_roll(4, number))
    assert [len(rows) for rows in read_splits(tmp_path).values()] == [3, 1, 2]


def test_one_piece_is_cut_in_time(tmp_path: Path) -> None:
    roll = draw_roll(100)
    np.save(tmp_path / "x.npy", roll.astype(bool))
    notes: list[str] = []
    splits = read_splits(tmp_path / "x.npy", notes)
    assert np.array_equal(np.concatenate([rows["roll"][0] for rows in splits.values()]), roll)
    assert [len(rows["roll"][0]) for rows in splits.values()] == [80, 10, 10]
    assert "pieces: 1 train, 1 validation, 1 test" in notes


def test_all_pitches_are_cut_to_the_keys(tmp_path: Path) -> None:
    wide = np.zeros((3, 10, 128), np.int8)
    wide[:, :, 21] = wide[:, :, 108] = wide[0, 0, 20] = wide[0, 0, 109] = 1
    np.save(tmp_path / "x.npy", wide)
    notes: list[str] = []
    pieces = read(tmp_path / "x.npy", notes)
    assert all((roll[:, [0, 87]] == 1).all() and roll.sum() == 20 for roll in pieces["roll"])
    assert "2 notes outside of the piano's 88 keys are left out" in notes


def test_drums_and_other_keys_are_left_out_with_a_note(tmp_path: Path) -> None:
    drums = b"\x00\x99\x3c\x40" + b"\x60\x3c\x00"
    low = b"\x00\x90\x14\x40" + b"\x60\x14\x00" + b"\x00\x6d\x40" + b"\x60\x6d\x00"
    inside = b"\x00\x15\x40" + b"\x60\x15\x00" + b"\x00\x6c\x40" + b"\x60\x6c\x00"
    (tmp_path / "x.mid").write_bytes(midi_file(drums + low + inside + END, ticks=96))
    notes: list[str] = []
    [roll] = read(tmp_path / "x.mid", notes, step=1.0)["roll"]
    assert find_notes(roll) == [(3, 4, 21), (4, 5, 108)]
    assert "1 notes of drums (channel 10) are left out" in notes
    assert "2 notes outside of the piano's 88 keys are left out" in notes


def test_wrong_rolls(tmp_path: Path) -> None:
    loud = draw_roll(3)
    loud[1, 2] = 0.5
    for array, message in (
        (np.zeros((3, 87)), r"a roll of the shape \(3, 87\), where \(frames,88\) is expected"),
        (np.zeros(88), "a roll of the shape"),
        (loud, "x.npy: .* holds 0.5 in frame 2, key 3, where a roll holds only 0 and 1"),
        (np.full((3, 88), np.nan), "nan in frame 1, key 1"),
        (np.full((3, 88), "a"), "a roll holds only 0 and 1"),
        (np.zeros((1, 88)), "no piece of two frames"),
    ):
        np.save(tmp_path / "x.npy", array)
        with pytest.raises(SeriatimError, match=message):
            read(tmp_path / "x.npy")
    scipy.io.savemat(tmp_path / "x.mat", {"other": np.ones((2, 2))})
    (tmp_path / "x.txt").write_text("do re mi")
    for source, message in (
        (tmp_path / "x.mat", "has no cell traindata, only other"),
        (tmp_path / "nothing.mid", "there is no file or data set"),
        (tmp_path / "x.txt", "holds no music"),
    ):
        with pytest.raises(SeriatimError, match=message):
            read(source)


def test_steps_that_are_too_short(tmp_path: Path) -> None:
    (tmp_path / "x.mid").write_bytes(write_midi(draw_roll(8)))
    with pytest.raises(SeriatimError, match="more than 1,000,000"):
        read(tmp_path / "x.mid", step=1e-9)
    for step in (0.0, -1.0, float("nan"), float("inf")):
        with pytest.raises(ValueError, match="step"):
            MusicSettings(step=step)
