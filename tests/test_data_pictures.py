"""Pictures from files: what a file may hold, what is refused, and how many of them become one array."""

from __future__ import annotations

import io
import struct
import threading
import warnings
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from PIL import Image, ImageOps

from seriatim.core.errors import SeriatimError
from seriatim.data import picture_store
from seriatim.data.caption_doctor import holds_captions
from seriatim.data.examples import ExampleSettings, read, read_inputs
from seriatim.data.picture_doctor import check_pictures, holds_labelled_pictures
from seriatim.data.picture_files import TURNED, Form, fitted, read_picture
from seriatim.data.picture_settings import PictureSettings
from seriatim.data.picture_store import choose_form, store
from seriatim.data.pictures import Pictures

PLAIN = PictureSettings()
DRAW = np.random.default_rng(0)
SCENE = DRAW.integers(0, 256, (9, 14, 3), dtype=np.uint8)


def saved(path: Path, picture: Image.Image, **options: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    picture.save(path, **options)
    return path


# ── one file ──────────────────────────────────────────────────────────────────────────────────────────────────────


def test_pixels_of_lossless_files_are_as_they_were_saved(tmp_path: Path) -> None:
    for ending in ("png", "bmp", "tif", "ppm", "webp"):
        path = saved(
            tmp_path / f"a.{ending}", Image.fromarray(SCENE), **({"lossless": True} if ending == "webp" else {})
        )
        assert np.array_equal(read_picture(path, PLAIN), SCENE), ending
    grey = read_picture(saved(tmp_path / "g.png", Image.fromarray(SCENE[..., 0])), PLAIN)
    assert np.array_equal(grey, SCENE[..., :1])
    assert read_picture(tmp_path / "g.png", PictureSettings(colours="colour")).shape == (9, 14, 3)
    assert read_picture(tmp_path / "a.png", PictureSettings(colours="grey")).shape == (9, 14, 1)


@pytest.mark.parametrize("orientation", range(1, 9))
def test_a_camera_that_was_held_askew(tmp_path: Path, orientation: int) -> None:
    exif = Image.Exif()
    exif[0x0112] = orientation
    path = saved(tmp_path / "turned.png", Image.fromarray(SCENE), exif=exif)
    with Image.open(path) as picture:
        upright = np.asarray(ImageOps.exif_transpose(picture))
    assert np.array_equal(read_picture(path, PLAIN), upright)
    assert (orientation in TURNED) == (not np.array_equal(upright, SCENE))


def test_ink_palettes_and_transparency(tmp_path: Path) -> None:
    ink = Image.fromarray(SCENE).convert("CMYK")
    assert np.array_equal(read_picture(saved(tmp_path / "ink.tif", ink), PLAIN), np.asarray(ink.convert("RGB")))
    few = Image.fromarray(SCENE).quantize(8)
    assert np.array_equal(read_picture(saved(tmp_path / "few.png", few), PLAIN), np.asarray(few.convert("RGB")))
    clear = np.dstack([SCENE, np.full(SCENE.shape[:2], 0, np.uint8)])
    clear[:, :7, 3] = 255
    found = read_picture(saved(tmp_path / "clear.png", Image.fromarray(clear)), PLAIN)
    assert np.array_equal(found[:, :7], SCENE[:, :7])
    assert (found[:, 7:] == 255).all()  # what is not there is white, whatever colour it would have
    palette = Image.fromarray(np.zeros((2, 2), np.uint8), "P")
    palette.putpalette([10, 20, 30] * 256)
    assert (read_picture(saved(tmp_path / "gone.gif", palette, transparency=0), PLAIN) == 255).all()


def test_sixteen_bits_keep_their_range(tmp_path: Path) -> None:
    deep = np.array([[0, 255, 256, 32_768, 65_535]], np.uint16)
    for ending in ("png", "tif"):
        found = read_picture(saved(tmp_path / f"deep.{ending}", Image.fromarray(deep)), PLAIN)
        assert found[0, :, 0].tolist() == [0, 1, 1, 128, 255]
    real = np.array([[0.0, 0.5, 1.0]], np.float32)
    assert read_picture(saved(tmp_path / "real.tif", Image.fromarray(real)), PLAIN)[0, :, 0].tolist() == [0, 128, 255]
    with pytest.raises(SeriatimError, match="beyond 16 bits"):
        read_picture(saved(tmp_path / "odd.tif", Image.fromarray(real - 3)), PLAIN)


def test_the_smallest_and_the_longest(tmp_path: Path) -> None:
    form = Form(16, 16, 3, margin=2)
    dot = read_picture(saved(tmp_path / "dot.png", Image.new("RGB", (1, 1), (1, 2, 3))), PLAIN, form)
    assert dot.shape == (20, 20, 3)
    assert (dot == [1, 2, 3]).all()
    line = saved(tmp_path / "line.png", Image.new("L", (60_000, 1), 7))
    for fit in ("crop", "pad", "stretch"):  # none of them makes the whole line as high as the form
        assert (read_picture(line, PLAIN, Form(16, 16, 1, fit)) == 7).all()


def test_fits(tmp_path: Path) -> None:
    wide = np.zeros((10, 30, 3), np.uint8)
    wide[:, 10:20] = 200
    path = saved(tmp_path / "wide.png", Image.fromarray(wide))
    assert (read_picture(path, PLAIN, Form(10, 10, 3)) == 200).all()  # the middle
    assert np.array_equal(read_picture(path, PLAIN, Form(10, 30, 3)), wide)
    margins = read_picture(path, PLAIN, Form(10, 30, 3, margin=2))
    assert np.array_equal(margins, np.pad(wide, ((2, 2), (2, 2), (0, 0)), mode="edge"))
    padded = read_picture(path, PLAIN, Form(30, 30, 3, "pad"))
    assert (padded[:, 15] == 200).all()
    assert (padded[:, 2] == 0).all()
    stretched = read_picture(path, PLAIN, Form(30, 30, 3, "stretch"))
    assert (stretched[:, 15] == 200).all()
    assert np.array_equal(fitted(wide, Form(10, 10, 3)), read_picture(path, PLAIN, Form(10, 10, 3)))


def test_large_jpeg_files_are_decoded_small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    smooth = Image.fromarray(SCENE).resize((800, 640), Image.Resampling.BICUBIC)
    exif = Image.Exif()
    exif[0x0112] = 6
    path = saved(tmp_path / "large.jpg", smooth, quality=95, exif=exif)
    form = Form(64, 48, 3)
    sizes = []
    monkeypatch.setattr(Image.Image, "resize", _seeing(sizes, Image.Image.resize))
    small = read_picture(path, PLAIN, form)
    assert sizes == [(80, 100)]  # an eighth, upright
    monkeypatch.undo()
    with Image.open(path) as picture:
        whole = fitted(np.asarray(ImageOps.exif_transpose(picture)), form)
    assert np.abs(small.astype(float) - whole).mean() < 3


def _seeing(sizes: list[tuple[int, int]], resize: Any) -> Any:
    def seen(self: Image.Image, *given: Any, **named: Any) -> Image.Image:
        sizes.append(self.size)
        found: Image.Image = resize(self, *given, **named)
        return found

    return seen


def test_several_frames_give_the_first(tmp_path: Path) -> None:
    frames = [Image.new("RGB", (20, 20), colour) for colour in ("red", "blue")]
    for ending in ("gif", "png", "webp", "tif"):
        options = {"lossless": True} if ending == "webp" else {}
        path = saved(tmp_path / f"many.{ending}", frames[0], save_all=True, append_images=frames[1:], **options)
        assert (read_picture(path, PLAIN) == [255, 0, 0]).all()
        assert any("several frames" in note for note in store([path], PLAIN)[2]), ending


# ── what is refused ───────────────────────────────────────────────────────────────────────────────────────────────


def png(width: int, height: int, *chunks: bytes) -> bytes:
    header = _chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0))
    return b"\x89PNG\r\n\x1a\n" + header + b"".join(chunks) + _chunk(b"IEND", b"")


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def test_bombs_are_refused_from_their_header(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Image.Image, "load", None)  # nothing may be decoded
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for width, height in ((10_000, 10_000), (60_000, 60_000), (8_001, 8_000)):
            path = tmp_path / "bomb.png"
            path.write_bytes(png(width, height, _chunk(b"IDAT", zlib.compress(bytes(1000)))))
            with pytest.raises(SeriatimError, match=r"bomb\.png.*more than (64|178) megapixels") as error:
                read_picture(path, PLAIN)
            assert error.value.code == "picture.large"


def test_compressed_text_and_profiles_are_bounded(tmp_path: Path) -> None:
    bomb = zlib.compress(bytes(200_000_000))
    pixel = _chunk(b"IDAT", zlib.compress(b"\0\0"))
    for chunk in (
        _chunk(b"zTXt", b"a\0\0" + bomb),
        _chunk(b"iCCP", b"a\0\0" + bomb),
        _chunk(b"iTXt", b"a\0\1\0\0\0" + bomb),
    ):
        path = tmp_path / "text.png"
        path.write_bytes(png(1, 1, chunk, pixel))
        with pytest.raises(SeriatimError, match=r"text\.png: cannot be read"):
            read_picture(path, PLAIN)


def test_what_is_no_picture_is_told_by_name(tmp_path: Path) -> None:
    whole = saved(tmp_path / "whole.png", Image.fromarray(SCENE)).read_bytes()
    (tmp_path / "cut.png").write_bytes(whole[: len(whole) // 2])
    (tmp_path / "empty.jpg").write_bytes(b"")
    (tmp_path / "words.gif").write_text("not a picture at all", encoding="utf-8")
    (tmp_path / "script.png").write_bytes(b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n")
    for name, cause in (("cut.png", "cannot be read"), ("empty.jpg", "is empty"), ("words.gif", "known kind"),
                        ("script.png", "known kind")):  # fmt: skip
        with pytest.raises(SeriatimError, match=f"{name}.*{cause}") as error:
            read_picture(tmp_path / name, PLAIN)
        assert error.value.code == "picture.broken"
    with pytest.raises(SeriatimError, match="no such file"):
        read_picture(tmp_path / "none.png", PLAIN)
    with pytest.raises(SeriatimError):
        read_picture(tmp_path, PLAIN)


def samples() -> dict[str, bytes]:
    """A small file of every kind."""
    found = {}
    frames = [Image.fromarray(np.roll(SCENE, shift, 0)) for shift in range(3)]
    many = {"save_all": True, "append_images": frames[1:]}
    exif = Image.Exif()
    exif[0x0112] = 6
    kinds: dict[str, dict[str, Any]] = {
        "PNG": {"exif": exif}, "JPEG": {"exif": exif}, "GIF": many, "TIFF": many, "BMP": {}, "WEBP": many, "PPM": {},
        "TIFF:lzw": {"compression": "tiff_lzw"}, "JPEG:progressive": {"progressive": True},
    }  # fmt: skip
    for kind, options in kinds.items():
        out = io.BytesIO()
        frames[0].save(out, kind.partition(":")[0], **options)
        found[kind] = out.getvalue()
    return found


SAMPLES = samples()
FUZZ = settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


def judged(path: Path, data: bytes) -> None:
    """Whatever the bytes are: a picture of the form, or an error that names the file."""
    path.write_bytes(data)
    for form in (None, Form(8, 8, 3, margin=1)):
        wrong = None
        try:
            found = read_picture(path, PictureSettings(megapixels=1), form)
        except SeriatimError as error:
            wrong = error
        if wrong is not None:
            assert wrong.code.startswith("picture.")
            assert path.name in wrong.cause
        else:
            assert found.dtype == np.uint8
            assert form is None or found.shape == form.stored


@FUZZ
@given(kind=st.sampled_from(sorted(SAMPLES)), data=st.data())
def test_flipped_bytes_never_give_a_traceback(tmp_path: Path, kind: str, data: st.DataObject) -> None:
    whole = bytearray(SAMPLES[kind])
    for place, value in data.draw(
        st.lists(st.tuples(st.integers(0, len(whole) - 1), st.integers(0, 255)), min_size=1, max_size=6)
    ):
        whole[place] = value
    judged(tmp_path / "flipped.png", bytes(whole))


@FUZZ
@given(kind=st.sampled_from(sorted(SAMPLES)), share=st.floats(0, 1), more=st.binary(max_size=40))
def test_files_that_break_off_never_give_a_traceback(tmp_path: Path, kind: str, share: float, more: bytes) -> None:
    whole = SAMPLES[kind]
    judged(tmp_path / "cut.png", whole[: int(share * len(whole))] + more)


@FUZZ
@given(begin=st.sampled_from([b"", b"\x89PNG\r\n\x1a\n", b"\xff\xd8\xff", b"GIF89a", b"II*\0", b"BM", b"RIFF", b"P6 "]),
       rest=st.binary(max_size=200))  # fmt: skip
def test_random_bytes_never_give_a_traceback(tmp_path: Path, begin: bytes, rest: bytes) -> None:
    judged(tmp_path / "random.png", begin + rest)


# ── many files ────────────────────────────────────────────────────────────────────────────────────────────────────


def folder_of(root: Path, count: int = 12, size: tuple[int, int] = (20, 16)) -> list[Path]:
    found = []
    for number in range(count):
        pixels = np.random.default_rng(number).integers(0, 256, (size[1], size[0], 3), dtype=np.uint8)
        found.append(saved(root / ("even" if number % 2 == 0 else "odd") / f"{number:03}.png", Image.fromarray(pixels)))
    return found


def test_a_store_holds_what_the_files_hold(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(picture_store, "PIECE", 5_000)  # a few pictures a piece
    paths = folder_of(tmp_path / "a")
    pictures, kept, notes = store(paths, PLAIN)
    assert pictures.shape == (3, 16, 20)
    assert pictures.margin == 2
    assert kept == list(range(12))
    assert any("20 × 16 pixels, in colour (their own size" in note for note in notes)
    for row, path in enumerate(paths):
        assert np.array_equal(pictures[row], read_picture(path, PLAIN))
    block, real = pictures.padded([3, 1])
    assert np.array_equal(block[1], pictures[1].transpose(2, 0, 1))
    assert real.all()
    monkeypatch.setattr(picture_store, "decode", None)  # the second time nothing is decoded
    again, _, _ = store(paths, PLAIN)
    assert np.array_equal(again[7], pictures[7])


def test_preparing_goes_on_where_it_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(picture_store, "PIECE", 5_000)
    paths = folder_of(tmp_path / "b")
    read: list[Path] = []
    plain = picture_store.decode

    def stopping(path: Path, *given: Any) -> np.ndarray:
        read.append(path)
        if path == paths[9]:
            raise KeyboardInterrupt
        return plain(path, *given)

    before = threading.active_count()
    monkeypatch.setattr(picture_store, "decode", stopping)
    with pytest.raises(KeyboardInterrupt):
        store(paths, PLAIN)
    assert threading.active_count() == before
    seen = len(read)
    monkeypatch.setattr(picture_store, "decode", lambda path, *given: read.append(path) or plain(path, *given))
    pictures, _, _ = store(paths, PLAIN)
    assert len(read) - seen < len(paths)
    assert np.array_equal(pictures[9], plain(paths[9], PLAIN))


def test_a_file_that_changed_is_read_anew(tmp_path: Path) -> None:
    paths = folder_of(tmp_path / "c", 4)
    first, _, _ = store(paths, PLAIN)
    saved(paths[2], Image.new("RGB", (20, 16), "red"), compress_level=0)
    again, _, _ = store(paths, PLAIN)
    assert (again[2] == [255, 0, 0]).all()
    assert np.array_equal(again[1], first[1])
    assert again.mark(1) == first.mark(1) != again.mark(2) != first.mark(2)


def test_broken_pictures_are_refused_or_left_out(tmp_path: Path) -> None:
    paths = folder_of(tmp_path / "d", 14)
    for path in paths[:12]:
        path.write_bytes(path.read_bytes()[:60])
    with pytest.raises(SeriatimError) as error:
        store(paths, PLAIN)
    assert "12 of 14 pictures cannot be read" in error.value.cause
    assert error.value.cause.count(".png") == 10
    assert "2 more" in error.value.cause
    assert "data.pictures.broken=skip" in error.value.remedy
    pictures, kept, notes = store(paths, PictureSettings(broken="skip"))
    assert kept == [12, 13]
    assert len(pictures) == 2
    assert np.array_equal(pictures[0], read_picture(paths[12], PLAIN))
    assert any("left out 12 of 14" in note and "000.png" in note for note in notes)
    for path in paths:
        path.write_bytes(b"")
    with pytest.raises(SeriatimError, match="14 of 14"):
        store(paths, PictureSettings(broken="skip"))


def test_a_disk_that_is_too_small_is_told_before_anything_is_decoded(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr(picture_store.shutil, "disk_usage", lambda _: type("Usage", (), {"free": 100})())
    with pytest.raises(SeriatimError, match="GB left"):
        store(folder_of(tmp_path / "e", 4), PLAIN)


def test_the_form_follows_from_the_headers() -> None:
    header = picture_store.Header
    small = [header(28, 28, True, False)] * 3
    assert choose_form(small, PLAIN)[0] == Form(28, 28, 1, "crop", 3)
    assert choose_form(small, PictureSettings(side=16, crops=0, colours="colour"))[0] == Form(16, 16, 3)
    assert choose_form([*small, header(30, 28, False, False)], PLAIN)[0] == Form(32, 32, 3, "crop", 4)
    assert choose_form([header(100, 120, False, False)], PLAIN)[0] == Form(64, 64, 3, "crop", 8)
    assert choose_form([header(375, 500, False, False)], PLAIN)[0] == Form(224, 224, 3, "crop", 16)


def test_moves_stay_within_the_margin_and_do_not_depend_on_how_a_step_is_shared() -> None:
    values = np.arange(8 * 8, dtype=np.uint8).reshape(1, 8, 8).repeat(5, 0)
    pictures = Pictures.of(values, margin=2)
    rows = np.arange(5)
    whole = pictures.drawn(rows, np.random.default_rng(3), True)
    halves = [pictures.drawn(rows, np.random.default_rng(3), True, part) for part in (slice(0, 2), slice(2, 5))]
    assert np.array_equal(whole, np.concatenate(halves))
    crops = {values[0, y : y + 4, x : x + 4].tobytes() for x in range(5) for y in range(5)}
    mirrored = {
        np.ascontiguousarray(values[0, y : y + 4, x : x + 4][:, ::-1]).tobytes() for x in range(5) for y in range(5)
    }
    found = {np.ascontiguousarray(one[0]).tobytes() for seed in range(200)
             for one in pictures.drawn(rows, np.random.default_rng(seed), True)}  # fmt: skip
    assert found == crops | mirrored
    assert {np.ascontiguousarray(one[0]).tobytes() for one in pictures.drawn(rows, np.random.default_rng(1))} <= crops


def test_the_spread_of_colours_is_that_of_all_pixels() -> None:
    values = np.random.default_rng(1).integers(0, 256, (7, 6, 5, 3), dtype=np.uint8)
    mean, deviation = Pictures.of(values).spread()
    assert np.allclose(mean, (values / 255).mean(axis=(0, 1, 2)), atol=1e-6)
    assert np.allclose(deviation, (values / 255).std(axis=(0, 1, 2)), atol=1e-6)
    assert Pictures.of(np.zeros((2, 4, 4), np.uint8)).spread()[1].tolist() == [1.0]


# ── sources ───────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_folder_for_each_class(tmp_path: Path) -> None:
    paths = folder_of(tmp_path / "images", 40)
    parts = read(ExampleSettings(source=str(tmp_path / "images")))
    assert [len(part) for part in (parts.train, parts.valid, parts.test)] == [32, 4, 4]
    assert parts.train.targets == [place.split("/")[1] for place in parts.train.places]
    by_place = {f"images/{path.parent.name}/{path.name}": path for path in paths}
    for row, place in enumerate(parts.valid.places):
        assert np.array_equal(parts.valid.inputs[row], read_picture(by_place[place], PLAIN))


def test_a_link_that_leads_nowhere_is_told(tmp_path: Path) -> None:
    paths = folder_of(tmp_path / "images", 40)
    (paths[0].parent / "gone.png").symlink_to("nowhere.png")
    with pytest.raises(SeriatimError, match=r"gone\.png: there is no such file"):
        read(ExampleSettings(source=str(tmp_path / "images")))


def test_folders_for_the_parts(tmp_path: Path) -> None:
    for part, count in (("train", 10), ("val", 4), ("test", 6)):
        folder_of(tmp_path / "images" / part, count)
    saved(tmp_path / "images" / "stray.png", Image.new("L", (5, 5)))
    notes: list[str] = []
    parts = read(ExampleSettings(source=str(tmp_path / "images")), notify=notes.append)
    assert [len(part) for part in (parts.train, parts.valid, parts.test)] == [10, 4, 6]
    assert any("1 pictures without a class: images/stray.png" in note for note in notes)
    assert any("4 of 4 valid examples have an input that is in the training part too" in note for note in notes)


def table(tmp_path: Path, name: str = "labels.csv") -> Path:
    paths = folder_of(tmp_path / "files", 20)
    rows = [
        f"files/{path.parent.name}/{path.name},{path.parent.name},{number / 2}" for number, path in enumerate(paths)
    ]
    (tmp_path / name).write_text("\n".join(["path,kind,value", *rows]) + "\n", encoding="utf-8")
    return tmp_path / name


def test_a_table_of_paths(tmp_path: Path) -> None:
    labels = table(tmp_path)
    parts = read(ExampleSettings(source=str(labels), target="kind"))
    assert isinstance(parts.train.inputs, Pictures)
    assert parts.columns == {"column": "path", "target": "kind"}
    numbers = read(ExampleSettings(source=str(labels), target="value"), numeric_target=True)
    assert isinstance(numbers.train.targets[0], float)  # type: ignore[index]
    text = read(ExampleSettings(source=str(labels), target="kind", column="path", kind="text"))
    assert isinstance(text.train.inputs, list)
    inputs = read_inputs(str(labels), ExampleSettings(source="x"), form=Form(8, 8, 3), columns={"column": "path"})
    assert inputs.inputs.shape == (3, 8, 8)  # type: ignore[union-attr]
    assert len(inputs) == 20


def test_paths_that_lead_nowhere_are_told_with_their_line(tmp_path: Path) -> None:
    labels = table(tmp_path)
    (tmp_path / "files" / "odd" / "003.png").unlink()
    with pytest.raises(SeriatimError, match=r"labels\.csv, line 5: there is no file 'files/odd/003\.png'") as error:
        read(ExampleSettings(source=str(labels), target="kind"))
    assert error.value.code == "picture.missing"
    assert str(tmp_path) in error.value.remedy
    skipping = ExampleSettings(source=str(labels), target="kind", pictures=PictureSettings(broken="skip"))
    parts = read(skipping)
    assert len(parts.train) + len(parts.valid) + len(parts.test) == 19


def test_parts_in_files_of_their_own_take_one_form(tmp_path: Path) -> None:
    labels = table(tmp_path)
    folder_of(tmp_path / "other", 6, (50, 40))
    parts = read(ExampleSettings(source=str(labels), target="kind", valid=str(labels), test=str(tmp_path / "other")))
    shapes = {parts.part(name).inputs.shape for name in ("train", "valid", "test")}  # type: ignore[union-attr]
    assert shapes == {(3, 32, 32)}


def test_arrays_of_pictures(tmp_path: Path) -> None:
    values = np.random.default_rng(0).integers(0, 256, (40, 10, 12, 3), dtype=np.uint8)
    np.savez(tmp_path / "set.npz", x=values, y=np.arange(40) % 2)
    parts = read(ExampleSettings(source=str(tmp_path / "set.npz")))
    shown: Any = parts.train.inputs
    assert shown.shape == (3, 10, 12)
    row = int(parts.train.places[0].split()[-1]) - 1
    assert np.array_equal(shown[0], values[row])
    np.savez(tmp_path / "grey.npz", x=values[..., 0], y=np.arange(40) % 2)
    grey = read(ExampleSettings(source=str(tmp_path / "grey.npz"), kind="pictures"))
    assert grey.train.inputs.shape == (1, 10, 12)  # type: ignore[union-attr]
    assert not isinstance(read(ExampleSettings(source=str(tmp_path / "grey.npz"))).train.inputs, Pictures)
    np.savez(tmp_path / "first.npz", x=values.transpose(0, 3, 1, 2), y=np.arange(40) % 2)
    with pytest.raises(SeriatimError, match="12 colours") as error:
        read(ExampleSettings(source=str(tmp_path / "first.npz")))
    assert "transpose" in error.value.remedy


def test_folders_without_classes_say_what_is_missing(tmp_path: Path) -> None:
    saved(tmp_path / "flat" / "a.png", Image.new("L", (5, 5)))
    with pytest.raises(SeriatimError, match="have no labels"):
        read(ExampleSettings(source=str(tmp_path / "flat")))
    with pytest.raises(SeriatimError, match="labels, not numbers"):
        read(ExampleSettings(source=str(tmp_path / "flat")), numeric_target=True)


# ── the data doctor ───────────────────────────────────────────────────────────────────────────────────────────────


def test_the_doctor_finds_all_that_is_wrong_with_a_folder(tmp_path: Path) -> None:
    paths = folder_of(tmp_path / "images", 24)
    paths[4].write_bytes(paths[4].read_bytes()[:70])
    paths[6].write_bytes(b"")
    (tmp_path / "images" / "odd" / "again.png").write_bytes(paths[2].read_bytes())
    source = str(tmp_path / "images")
    assert holds_labelled_pictures(source, None)
    assert not holds_captions(source)
    report = check_pictures(source, None, None)
    assert not report.usable
    assert [(problem.code, problem.count) for problem in report.problems] == [("picture.broken", 2)]
    assert {name for name in ("004.png", "006.png") if any(name in one for one in report.problems[0].examples)} == {
        "004.png", "006.png"
    }  # fmt: skip
    assert report.classes == [("odd", 13), ("even", 12)]
    assert report.repeated == 1
    assert any("002.png (even) and again.png (odd)" in remark for remark in report.remarks)
    assert report.sizes["middle"] == "20 × 16"
    assert sum(report.split.values()) == 25


def test_the_doctor_of_tables_names_lines(tmp_path: Path) -> None:
    labels = table(tmp_path)
    (tmp_path / "files" / "odd" / "003.png").unlink()
    assert holds_labelled_pictures(str(labels), None)
    assert not holds_labelled_pictures(str(labels), "kind")
    report = check_pictures(str(labels), None, "kind")
    assert [(problem.code, problem.count) for problem in report.problems] == [("picture.missing", 1)]
    assert "labels.csv, line 5" in report.problems[0].examples[0]
