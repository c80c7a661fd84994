"""MIDI files against mido, piano rolls there and back, and rolls from every source."""

import os
import struct
from pathlib import Path
from typing import Any

import mido
import numpy as np
import pytest
import scipy.io
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from seriatim.core.errors import SeriatimError
from seriatim.data.midi import Midi, Note, held, read_midi, write_midi
from seriatim.data.pianoroll import read_rolls, roll_of
from seriatim.data.sequences import Examples, Sequences

IN_PLACE = settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
ROLLS = hnp.arrays(np.float32, st.tuples(st.integers(0, 40), st.just(88)), elements=st.sampled_from([0.0, 1.0]))


def draw_roll(frames: int, seed: int = 0) -> np.ndarray:
    return (np.random.default_rng(seed).random((frames, 88)) < 0.1).astype(np.float32)


@IN_PLACE
@given(roll=ROLLS, step=st.sampled_from([0.25, 0.5, 1.0, 2.0, 1 / 3, 1 / 6, 0.1, 0.07, 0.0625, 4.0]))
def test_roll_to_midi_and_back_is_the_identity(roll: np.ndarray, step: float, tmp_path: Path) -> None:
    write_midi(tmp_path / "x.mid", roll, step, 97.0)
    midi = read_midi(tmp_path / "x.mid")
    back, outside = roll_of(midi, step)
    assert np.array_equal(back, roll)
    assert outside == 0
    assert midi.tempo == pytest.approx(97, rel=1e-5)
    assert midi.length == pytest.approx(len(roll) * step)


def theirs(path: Path) -> tuple[list[tuple[float, float, int, int]], float]:
    """The notes of a file as mido reads them: start, end (in beats), pitch, force; and the tempo."""
    file = mido.MidiFile(path)
    notes, tempo = [], 120.0
    for track in file.tracks:
        now, sounding = 0, {}
        for message in track:
            now += message.time
            if message.type == "set_tempo":
                tempo = mido.tempo2bpm(message.tempo)
            if message.type == "note_on" and message.velocity:
                sounding[message.channel, message.note] = (now, message.velocity)
            elif message.type in ("note_on", "note_off") and (message.channel, message.note) in sounding:
                start, force = sounding.pop((message.channel, message.note))
                notes.append((start / file.ticks_per_beat, now / file.ticks_per_beat, message.note, force))
    return sorted(notes), tempo


def test_mido_reads_what_is_written(tmp_path: Path) -> None:
    roll = draw_roll(50)
    write_midi(tmp_path / "x.mid", roll, 0.5, 90)
    notes, tempo = theirs(tmp_path / "x.mid")
    assert [(start / 0.5, end / 0.5, pitch) for start, end, pitch, _ in notes] == held(roll)
    assert tempo == pytest.approx(90, rel=1e-5)
    assert mido.MidiFile(tmp_path / "x.mid").ticks_per_beat == 480
    assert mido.MidiFile(tmp_path / "x.mid").length == pytest.approx(50 * 0.5 * 60 / 90, rel=1e-5)


def test_held_notes() -> None:
    roll = np.zeros((5, 88))
    roll[0:3, 0] = roll[4, 0] = roll[2:5, 87] = 1
    assert held(roll) == [(0, 3, 21), (2, 5, 108), (4, 5, 21)]
    assert held(np.zeros((0, 88))) == []


MESSAGES = st.lists(
    st.tuples(
        st.sampled_from(["on", "on", "off", "off-by-force", "control", "program", "bend", "sysex", "text"]),
        st.integers(0, 300),
        st.integers(0, 127),
        st.integers(1, 127),
        st.sampled_from([0, 3, 15]),
    ),
    max_size=40,
)


def message(kind: str, time: int, pitch: int, force: int, channel: int) -> Any:
    if kind == "sysex":
        return mido.Message("sysex", data=(1, 2, force), time=time)
    if kind == "text":
        return mido.MetaMessage("text", text="x" * force, time=time)
    if kind == "control":
        return mido.Message("control_change", control=7, value=force, channel=channel, time=time)
    if kind == "program":
        return mido.Message("program_change", program=pitch, channel=channel, time=time)
    if kind == "bend":
        return mido.Message("pitchwheel", pitch=force, channel=channel, time=time)
    force = 0 if kind == "off-by-force" else force
    return mido.Message(
        "note_off" if kind == "off" else "note_on", note=pitch, velocity=force, channel=channel, time=time
    )


@IN_PLACE
@given(
    tracks=st.lists(MESSAGES, min_size=1, max_size=3),
    ticks=st.sampled_from([24, 96, 480, 32767]),
    tempo=st.integers(1, (1 << 24) - 1),
)
def test_reads_what_mido_writes(tracks: list[list[Any]], ticks: int, tempo: int, tmp_path: Path) -> None:
    file = mido.MidiFile(type=int(len(tracks) > 1), ticks_per_beat=ticks)
    for number, rows in enumerate(tracks):
        track = mido.MidiTrack()
        if not number:
            track.append(mido.MetaMessage("set_tempo", tempo=tempo))
        sounding: set[tuple[int, int]] = set()
        for row in rows:
            made = message(*row)
            key = (row[4], row[2])
            if row[0] == "on":
                if key in sounding:  # what one key struck twice means, no two readers agree on
                    continue
                sounding.add(key)
            elif row[0].startswith("off"):
                sounding.discard(key)
            track.append(made)
        for channel, pitch in sorted(sounding):
            track.append(mido.Message("note_off", note=pitch, channel=channel, time=3))
        file.tracks.append(track)
    file.save(tmp_path / "x.mid")
    found = read_midi(tmp_path / "x.mid")
    notes, told = theirs(tmp_path / "x.mid")
    assert sorted(tuple(note) for note in found.notes) == notes
    assert found.tempo == pytest.approx(told)
    assert found.open == found.drums == 0


def smf(*tracks: bytes, form: int = 0, ticks: int = 480, count: int | None = None) -> bytes:
    head = b"MThd" + struct.pack(">IHHH", 6, form, len(tracks) if count is None else count, ticks)
    return head + b"".join(b"MTrk" + struct.pack(">I", len(track)) + track for track in tracks)


def read(tmp_path: Path, data: bytes) -> Midi:
    (tmp_path / "x.mid").write_bytes(data)
    return read_midi(tmp_path / "x.mid")


END = b"\x00\xff\x2f\x00"


def test_running_status_and_silent_strokes(tmp_path: Path) -> None:
    track = b"\x00\x90\x3c\x40" + b"\x83\x60\x3c\x00" + b"\x00\x3e\x41" + b"\x83\x60\x3e\x00" + END
    assert read(tmp_path, smf(track)).notes == [Note(0, 1, 60, 64), Note(1, 2, 62, 65)]
    # What a system message leaves for later is one of its own kind, also with a length.
    track = b"\x00\xf0\x02\x01\x02" + b"\x00\xf7\x02\x03\xf7" + b"\x00\x90\x3c\x40" + b"\x83\x60\x3c\x00" + END
    assert read(tmp_path, smf(track)).notes == [Note(0, 1, 60, 64)]
    # A remark between two events does not end the running status, a header may be longer, other chunks are skipped.
    track = b"\x00\x90\x3c\x40" + b"\x00\xff\x01\x01x" + b"\x83\x60\x3c\x00" + END
    data = b"MThd" + struct.pack(">IHHHH", 8, 0, 1, 480, 7) + b"XXXX\0\0\0\x01?" + smf(track)[14:]
    assert read(tmp_path, data).notes == [Note(0, 1, 60, 64)]


def test_notes_struck_twice_and_never_let_go(tmp_path: Path) -> None:
    twice = b"\x00\x90\x3c\x40" + b"\x60\x3c\x41" + b"\x60\x3c\x00" + b"\x60\x3c\x00" + END
    assert [note[:3] for note in read(tmp_path, smf(twice, ticks=96)).notes] == [(0, 2, 60), (1, 3, 60)]
    opened = read(tmp_path, smf(b"\x00\x90\x3c\x40" + b"\x60\xff\x2f\x00", ticks=96))
    assert opened.notes == [Note(0, 1, 60, 64)]
    assert opened.open == 1
    assert read(tmp_path, smf(b"\x00\x80\x3c\x40" + END)).notes == []  # let go without a stroke


def test_drums_and_other_keys_are_left_out_and_told(tmp_path: Path) -> None:
    drums = b"\x00\x99\x3c\x40" + b"\x60\x3c\x00"
    low = b"\x00\x90\x14\x40" + b"\x60\x14\x00" + b"\x00\x6d\x40" + b"\x60\x6d\x00"
    kept = b"\x00\x15\x40" + b"\x60\x15\x00" + b"\x00\x6c\x40" + b"\x60\x6c\x00"
    (tmp_path / "x.mid").write_bytes(smf(drums + low + kept + END, ticks=96))
    midi = read_midi(tmp_path / "x.mid")
    assert midi.drums == 1
    roll, outside = roll_of(midi, 1.0)
    assert outside == 2
    assert held(roll) == [(3, 4, 21), (4, 5, 108)]
    told = read_rolls(tmp_path / "x.mid", step=0.25).notes
    assert "left out 1 notes of drums (channel 10)" in told
    assert "left out 2 notes outside of the piano's 88 keys" in told


def test_notes_go_to_the_nearest_frames_and_none_is_lost() -> None:
    notes = [Note(0.1, 0.4, 60, 64), Note(0.4, 0.45, 62, 64), Note(0.9, 1.62, 64, 64), Note(1.99, 1.99, 65, 64)]
    roll, _ = roll_of(Midi(notes, 2.0), 0.5)
    assert held(roll) == [(0, 1, 60), (1, 2, 62), (2, 3, 64), (4, 5, 65)]
    assert len(roll) == 5


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "x.mid: not a standard MIDI file"),
        (b"RIFF....RMID", "not a standard MIDI file"),
        (b"MThd\0\0", "byte 6: the file is damaged: ends within its header"),
        (smf(END, form=2), "format 2"),
        (smf(END, ticks=0xE728), "counts in seconds"),
        (smf(END, ticks=0), "no ticks in a beat"),
        (smf(END, count=2), "ends after 1 of 2 tracks"),
        (smf(b"\x00\x90\x3c\x40" + END)[:-3], "byte 14: the file is damaged: 5 bytes of a track of 8"),
        (smf(END) + b"MTr", ""),
        (smf(END, count=2) + b"MTr", "byte 26: .* ends within the head of a track"),
        (smf(b"\x00\x90\x3c"), "byte 24: .* a track ends within an event"),
        (smf(b"\x81"), "a track ends within an event"),
        (smf(b"\xff\xff\xff\xff\x01"), "a number of more than four bytes"),
        (smf(b"\x00\x3c\x40" + END), "byte 23: .* an event without a kind"),
        (smf(b"\x00\x90\x3c\x80" + END), "an event breaks off"),
        (smf(b"\x00\xf4" + END), "an event of kind F4"),
        (smf(b"\x00\xff\x01\x09x" + END), "a track ends within an event"),
    ],
)
def test_damaged_files(data: bytes, message: str, tmp_path: Path) -> None:
    if not message:
        assert read(tmp_path, data).notes == []
        return
    with pytest.raises(SeriatimError, match=message) as caught:
        read(tmp_path, data)
    assert caught.value.code == "data.midi"
    assert caught.value.cause.startswith("x.mid")


@IN_PLACE
@given(changes=st.dictionaries(st.integers(0, 9_999), st.integers(0, 255), max_size=6), cut=st.integers(0, 300))
def test_damage_never_ends_in_a_traceback(changes: dict[int, int], cut: int, tmp_path: Path) -> None:
    write_midi(tmp_path / "good.mid", draw_roll(6))
    data = bytearray((tmp_path / "good.mid").read_bytes())
    for place, value in changes.items():
        data[place % len(data)] = value
    (tmp_path / "x.mid").write_bytes(data[: len(data) - cut])
    try:
        read_rolls(tmp_path / "x.mid")
    except SeriatimError as error:
        assert error.remedy  # noqa: PT017


def test_what_cannot_be_written(tmp_path: Path) -> None:
    for step, tempo, word in (
        (0.0, 120, "frames"),
        (-1, 120, "frames"),
        (1e9, 120, "frames"),
        (0.25, 0, "tempo"),
        (0.25, 1, "tempo"),
    ):
        with pytest.raises(SeriatimError, match=word):
            write_midi(tmp_path / "x.mid", draw_roll(3), step, tempo)
    assert list(tmp_path.iterdir()) == []


# --------------------------------------------------------------------------------------------------------------- rolls


def rolls(examples: Examples) -> list[np.ndarray]:
    assert isinstance(examples.inputs, Sequences)
    assert examples.targets is None
    return [examples.inputs[row] for row in range(len(examples))]


def cell(*arrays: np.ndarray) -> np.ndarray:
    made = np.empty((1, len(arrays)), object)
    for number, array in enumerate(arrays):
        made[0, number] = array
    return made


def test_rolls_of_a_mat_file_keep_its_parts(tmp_path: Path) -> None:
    pieces = [draw_roll(5 + number, number) for number in range(4)]
    written = {
        "traindata": cell(*pieces[:2]),
        "validdata": cell(pieces[2]),
        "testdata": cell(pieces[3], np.zeros((1, 88))),
    }
    scipy.io.savemat(tmp_path / "x.mat", written, do_compression=True)
    made = read_rolls(tmp_path / "x.mat")
    for part, wanted in (("train", pieces[:2]), ("valid", pieces[2:3]), ("test", pieces[3:])):
        for mine, one in zip(rolls(made.part(part)), wanted, strict=True):
            assert mine.dtype == np.float32
            assert np.array_equal(mine, one)
    assert made.test.place(0) == "x.mat/testdata, piece 1"
    assert made.features[0] == "21"
    assert made.features[-1] == "108"
    assert made.notes[-1] == "left out 1 pieces of fewer than two frames: x.mat/testdata, piece 2"


def test_folder_of_midi_files_is_split_by_file(tmp_path: Path) -> None:
    wanted = {}
    for number in range(20):
        folder = tmp_path / "songs" / ("a" if number % 2 else "b")
        folder.mkdir(parents=True, exist_ok=True)
        name = folder / (f"{number}.mid" if number % 3 else f"{number}.MIDI")
        wanted[str(name.relative_to(tmp_path))] = roll = draw_roll(8 + number, number)
        write_midi(name, roll, 0.5)
    (tmp_path / "songs/readme.txt").write_text("not music")
    made = read_rolls(tmp_path / "songs", step=0.5)
    assert [len(made.train), len(made.valid), len(made.test)] == [16, 2, 2]
    found = {}
    for part in (made.train, made.valid, made.test):
        found |= dict(zip(part.places, rolls(part), strict=True))
    assert found.keys() == wanted.keys()
    assert all(np.array_equal(found[name], wanted[name]) for name in wanted)
    assert "20 pieces split 80 / 10 / 10 % by piece, in an order drawn from a seed" in made.notes
    again, other = read_rolls(tmp_path / "songs", step=0.5), read_rolls(tmp_path / "songs", step=0.25)
    assert again.train.places == made.train.places
    assert again.fingerprint == made.fingerprint != other.fingerprint
    uneven = read_rolls(tmp_path / "songs", fractions=(0.01, 0.5, 0.49))
    assert len(uneven.train) == 1


def test_folders_named_like_parts_are_the_parts(tmp_path: Path) -> None:
    for part, count in (("train", 3), ("valid", 1), ("test", 2)):
        (tmp_path / part).mkdir()
        for number in range(count):
            np.save(tmp_path / part / f"{number}.npy", draw_roll(4, number))
    made = read_rolls(tmp_path)
    assert [len(made.train), len(made.valid), len(made.test)] == [3, 1, 2]


def test_one_piece_is_cut_in_time(tmp_path: Path) -> None:
    roll = draw_roll(100)
    np.save(tmp_path / "x.npy", roll.astype(bool))
    made = read_rolls(tmp_path / "x.npy")
    assert np.array_equal(np.concatenate(rolls(made.train) + rolls(made.valid) + rolls(made.test)), roll)
    assert [len(part.inputs.values) for part in (made.train, made.valid, made.test)] == [80, 10, 10]  # type: ignore[union-attr]
    assert "1 piece: cut in time, 80 / 10 / 10 %" in made.notes


def test_all_pitches_are_cut_to_the_keys(tmp_path: Path) -> None:
    wide = np.zeros((3, 10, 128), np.int8)
    wide[:, :, 21] = wide[:, :, 108] = wide[0, 0, 20] = wide[0, 0, 109] = 1
    np.save(tmp_path / "x.npy", wide)
    made = read_rolls(tmp_path / "x.npy")
    assert all((roll[:, [0, 87]] == 1).all() and roll.sum() == 20 for roll in rolls(made.train) + rolls(made.test))
    assert "left out 2 notes outside of the piano's 88 keys" in made.notes


def test_bad_rolls(tmp_path: Path) -> None:
    loud = draw_roll(3)
    loud[1, 2] = 0.5
    for array, message in (
        (np.zeros((3, 87)), r"a roll of the shape \(3, 87\), where \(frames,88\) is wanted"),
        (np.zeros(88), "a roll of the shape"),
        (loud, "x.npy, frame 2, key 3: 0.5, where a roll holds only 0 and 1"),
        (np.full((3, 88), np.nan), "frame 1, key 1: nan"),
        (np.full((3, 88), "a"), "a roll holds only 0 and 1"),
        (np.zeros((1, 88)), "no piece of two frames"),
    ):
        np.save(tmp_path / "x.npy", array)
        with pytest.raises(SeriatimError, match=message):
            read_rolls(tmp_path / "x.npy")
    scipy.io.savemat(tmp_path / "x.mat", {"other": np.ones((2, 2))})
    for source, message in (
        (tmp_path / "x.mat", "has no cell traindata, only other"),
        (tmp_path / "nothing.mid", "there is no file or data set"),
        ("adding", "no file: its numbers are made for the task regress"),
    ):
        with pytest.raises(SeriatimError, match=message):
            read_rolls(source)
    (tmp_path / "empty").mkdir()
    with pytest.raises(SeriatimError, match=r"holds no .mid or .npy files"):
        read_rolls(tmp_path / "empty")
    (tmp_path / "x.txt").write_text("do re mi")
    with pytest.raises(SeriatimError, match="not music"):
        read_rolls(tmp_path / "x.txt")


def test_steps_that_are_none(tmp_path: Path) -> None:
    write_midi(tmp_path / "x.mid", draw_roll(8))
    for step in (0.0, -1.0, float("nan"), float("inf")):
        with pytest.raises(SeriatimError, match="is no length"):
            read_rolls(tmp_path / "x.mid", step=step)
    with pytest.raises(SeriatimError, match="more than 1,000,000"):
        read_rolls(tmp_path / "x.mid", step=1e-9)


REAL = os.environ.get("SERIATIM_REAL_DATA")


@pytest.mark.skipif(REAL is None, reason="needs a local copy of the data sets")
def test_real_chorales_there_and_back(tmp_path: Path) -> None:
    made = read_rolls("jsb-chorales", REAL)
    assert [len(made.train), len(made.valid), len(made.test)] == [229, 76, 77]
    for number, roll in enumerate(rolls(made.test)):
        write_midi(tmp_path / "x.mid", roll, 1.0)
        assert np.array_equal(roll_of(read_midi(tmp_path / "x.mid"), 1.0)[0], roll), number
    other = read_rolls("nottingham", REAL)
    assert [len(other.train), len(other.valid), len(other.test)] == [694, 173, 170]
