"""Images: what a file may hold, what is refused, the store of decoded images, and augmentation."""

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
from seriatim.data.images import IMAGE, ImageLayout, PixelSequence, store
from seriatim.data.images.batches import Images
from seriatim.data.images.decode import TRANSPOSITIONS, Header, fit_array, read_image, visible_box
from seriatim.data.images.store import choose_layout, load_images, read_headers
from seriatim.data.kinds import NUMBERS
from seriatim.data.settings import ImageSettings

SCENE = np.random.default_rng(0).integers(0, 256, (9, 14, 3), dtype=np.uint8)


def save(path: Path, image: Image.Image, **options: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    image.save(path, **options)
    return path


def image_files(root: Path, count: int = 12, size: tuple[int, int] = (20, 16)) -> list[Path]:
    paths = []
    for number in range(count):
        pixels = np.random.default_rng(number).integers(0, 256, (size[1], size[0], 3), dtype=np.uint8)
        paths.append(save(root / ("odd" if number % 2 else "even") / f"{number:03}.png", Image.fromarray(pixels)))
    return paths


# One file


def test_lossless_files_keep_their_pixels(tmp_path: Path) -> None:
    for extension in ("png", "bmp", "tif", "ppm", "webp"):
        options = {"lossless": True} if extension == "webp" else {}
        path = save(tmp_path / f"a.{extension}", Image.fromarray(SCENE), **options)
        assert np.array_equal(read_image(path), SCENE), extension
    assert np.array_equal(read_image((tmp_path / "a.png").read_bytes()), SCENE)
    gray = read_image(save(tmp_path / "g.png", Image.fromarray(SCENE[..., 0])))
    assert np.array_equal(gray, SCENE[..., :1])
    assert read_image(tmp_path / "g.png", ImageSettings(color="rgb")).shape == (9, 14, 3)
    assert read_image(tmp_path / "a.png", ImageSettings(color="gray")).shape == (9, 14, 1)


@pytest.mark.parametrize("orientation", range(1, 9))
def test_exif_orientation(tmp_path: Path, orientation: int) -> None:
    exif = Image.Exif()
    exif[0x0112] = orientation
    path = save(tmp_path / "rotated.png", Image.fromarray(SCENE), exif=exif)
    with Image.open(path) as image:
        upright = np.asarray(ImageOps.exif_transpose(image))
    assert np.array_equal(read_image(path), upright)
    assert (orientation in TRANSPOSITIONS) == (not np.array_equal(upright, SCENE))


def test_cmyk_palettes_and_transparency(tmp_path: Path) -> None:
    cmyk = Image.fromarray(SCENE).convert("CMYK")
    assert np.array_equal(read_image(save(tmp_path / "cmyk.tif", cmyk)), np.asarray(cmyk.convert("RGB")))
    palette = Image.fromarray(SCENE).quantize(8)
    assert np.array_equal(read_image(save(tmp_path / "few.png", palette)), np.asarray(palette.convert("RGB")))
    transparent = np.dstack([SCENE, np.full(SCENE.shape[:2], 0, np.uint8)])
    transparent[:, :7, 3] = 255
    pixels = read_image(save(tmp_path / "transparent.png", Image.fromarray(transparent)))
    assert np.array_equal(pixels[:, :7], SCENE[:, :7])
    assert (pixels[:, 7:] == 255).all()  # white, whatever color is behind it
    invisible = Image.fromarray(np.zeros((2, 2), np.uint8), "P")
    invisible.putpalette([10, 20, 30] * 256)
    assert (read_image(save(tmp_path / "invisible.gif", invisible, transparency=0)) == 255).all()


def test_sixteen_bits_and_floats_are_scaled(tmp_path: Path) -> None:
    deep = np.array([[0, 255, 256, 32_768, 65_535]], np.uint16)
    for extension in ("png", "tif"):
        pixels = read_image(save(tmp_path / f"deep.{extension}", Image.fromarray(deep)))
        assert pixels[0, :, 0].tolist() == [0, 1, 1, 128, 255]
    fractions = np.array([[0.0, 0.5, 1.0]], np.float32)
    assert read_image(save(tmp_path / "f.tif", Image.fromarray(fractions)))[0, :, 0].tolist() == [0, 128, 255]
    with pytest.raises(SeriatimError, match="exceed 16 bits"):
        read_image(save(tmp_path / "odd.tif", Image.fromarray(fractions - 3)))


def test_smallest_and_longest_images(tmp_path: Path) -> None:
    dot = read_image(
        save(tmp_path / "dot.png", Image.new("RGB", (1, 1), (1, 2, 3))), layout=ImageLayout(16, 16, 3, margin=2)
    )
    assert dot.shape == (20, 20, 3)
    assert (dot == [1, 2, 3]).all()
    line = save(tmp_path / "line.png", Image.new("L", (60_000, 1), 7))
    for fit in ("crop", "pad", "stretch"):  # none of them makes the whole line as high as the layout
        assert (read_image(line, layout=ImageLayout(16, 16, 1, fit)) == 7).all()


def test_crop_pad_and_stretch(tmp_path: Path) -> None:
    wide = np.zeros((10, 30, 3), np.uint8)
    wide[:, 10:20] = 200
    path = save(tmp_path / "wide.png", Image.fromarray(wide))
    assert (read_image(path, layout=ImageLayout(10, 10, 3)) == 200).all()  # the center
    assert np.array_equal(read_image(path, layout=ImageLayout(10, 30, 3)), wide)
    margins = read_image(path, layout=ImageLayout(10, 30, 3, margin=2))
    assert np.array_equal(margins, np.pad(wide, ((2, 2), (2, 2), (0, 0)), mode="edge"))
    padded = read_image(path, layout=ImageLayout(30, 30, 3, "pad"))
    assert (padded[:, 15] == 200).all()
    assert (padded[:, 2] == 0).all()
    assert (read_image(path, layout=ImageLayout(30, 30, 3, "stretch"))[:, 15] == 200).all()
    assert np.array_equal(fit_array(wide, ImageLayout(10, 10, 3)), read_image(path, layout=ImageLayout(10, 10, 3)))


def test_visible_box() -> None:
    crop = ImageLayout(10, 10, 3)  # of an image of 10 × 30 the center is visible
    assert visible_box((10, 0, 20, 10), (10, 30), crop) == (0, 0, 10, 10)
    assert visible_box((5, 2, 12, 6), (10, 30), crop) == (0, 2, 2, 6)
    assert visible_box((0, 0, 9, 9), (10, 30), crop) is None
    assert visible_box((0, 0, 30, 10), (10, 30), ImageLayout(30, 30, 3, "pad")) == (0, 10, 30, 20)


def test_large_jpeg_is_decoded_small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    smooth = Image.fromarray(SCENE).resize((800, 640), Image.Resampling.BICUBIC)
    exif = Image.Exif()
    exif[0x0112] = 6
    path = save(tmp_path / "large.jpg", smooth, quality=95, exif=exif)
    layout, resize, sizes = ImageLayout(64, 48, 3), Image.Image.resize, []

    def spy(self: Image.Image, *arguments: Any, **options: Any) -> Image.Image:
        sizes.append(self.size)
        return resize(self, *arguments, **options)

    monkeypatch.setattr(Image.Image, "resize", spy)
    small = read_image(path, layout=layout)
    assert sizes == [(80, 100)]  # an eighth, upright
    monkeypatch.undo()
    with Image.open(path) as image:
        whole = fit_array(np.asarray(ImageOps.exif_transpose(image)), layout)
    assert np.abs(small.astype(float) - whole).mean() < 3


def test_first_of_several_frames(tmp_path: Path) -> None:
    frames = [Image.new("RGB", (20, 20), color) for color in ("red", "blue")]
    for extension in ("gif", "png", "webp", "tif"):
        options = {"lossless": True} if extension == "webp" else {}
        path = save(tmp_path / f"many.{extension}", frames[0], save_all=True, append_images=frames[1:], **options)
        assert (read_image(path) == [255, 0, 0]).all()
        assert any("several frames" in note for note in choose_layout(read_headers([path]), ImageSettings())[1])


# What is refused


def png(width: int, height: int, *chunks: bytes) -> bytes:
    header = png_chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0))
    return b"\x89PNG\r\n\x1a\n" + header + b"".join(chunks) + png_chunk(b"IEND", b"")


def png_chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def test_decompression_bombs_are_refused_by_their_header(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Image.Image, "load", None)  # nothing may be decoded
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for width, height in ((10_000, 10_000), (60_000, 60_000), (8_001, 8_000)):
            path = tmp_path / "bomb.png"
            path.write_bytes(png(width, height, png_chunk(b"IDAT", zlib.compress(bytes(1000)))))
            with pytest.raises(
                SeriatimError, match=r"bomb\.png.*more than (64 megapixels|178,000,000 pixels)"
            ) as error:
                read_image(path)
            assert error.value.code == "image.large"


def test_compressed_text_and_profiles_are_bounded(tmp_path: Path) -> None:
    bomb = zlib.compress(bytes(200_000_000))
    pixel = png_chunk(b"IDAT", zlib.compress(b"\0\0"))
    for kind, head in ((b"zTXt", b"a\0\0"), (b"iCCP", b"a\0\0"), (b"iTXt", b"a\0\1\0\0\0")):
        path = tmp_path / "text.png"
        path.write_bytes(png(1, 1, png_chunk(kind, head + bomb), pixel))
        with pytest.raises(SeriatimError, match=r"text\.png cannot be read"):
            read_image(path)


def test_files_that_are_no_images(tmp_path: Path) -> None:
    whole = save(tmp_path / "whole.png", Image.fromarray(SCENE)).read_bytes()
    contents = {
        "cut.png": (whole[: len(whole) // 2], "cannot be read"),
        "empty.jpg": (b"", "is empty"),
        "words.gif": (b"not an image at all", "known format"),
        "script.png": (b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n", "known format"),
    }
    for name, (data, cause) in contents.items():
        (tmp_path / name).write_bytes(data)
        with pytest.raises(SeriatimError, match=f"{name}.*{cause}") as error:
            read_image(tmp_path / name)
        assert error.value.code == "image.broken"
    with pytest.raises(SeriatimError, match="there is no file") as error:
        read_image(tmp_path / "none.png")
    assert error.value.code == "image.missing"
    with pytest.raises(SeriatimError):
        read_image(tmp_path)
    with pytest.raises(SeriatimError, match="not an image"):
        fit_array(np.zeros((3, 3)), ImageLayout(2, 2, 1))


def sample_files() -> dict[str, bytes]:
    """Returns a small file of every format."""
    frames = [Image.fromarray(np.roll(SCENE, shift, 0)) for shift in range(3)]
    several = {"save_all": True, "append_images": frames[1:]}
    exif = Image.Exif()
    exif[0x0112] = 6
    formats: dict[str, dict[str, Any]] = {
        "PNG": {"exif": exif},
        "JPEG": {"exif": exif},
        "GIF": several,
        "TIFF": several,
        "BMP": {},
        "WEBP": several,
        "PPM": {},
        "TIFF:lzw": {"compression": "tiff_lzw"},
        "JPEG:progressive": {"progressive": True},
    }
    files = {}
    for name, options in formats.items():
        buffer = io.BytesIO()
        frames[0].save(buffer, name.partition(":")[0], **options)
        files[name] = buffer.getvalue()
    return files


SAMPLES = sample_files()
FUZZ = settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
STARTS = [b"", b"\x89PNG\r\n\x1a\n", b"\xff\xd8\xff", b"GIF89a", b"II*\0", b"BM", b"RIFF", b"P6 "]


def check_any_bytes(path: Path, data: bytes) -> None:
    """Asserts that bytes are read as an image of the layout, or give an error that names the file."""
    path.write_bytes(data)
    for layout in (None, ImageLayout(8, 8, 3, margin=1)):
        try:
            pixels = read_image(path, ImageSettings(max_megapixels=1), layout)
        except SeriatimError as error:
            assert error.code.startswith("image.")  # noqa: PT017
            assert path.name in error.cause  # noqa: PT017
            continue
        assert pixels.dtype == np.uint8
        assert layout is None or pixels.shape == layout.stored_shape


@FUZZ
@given(name=st.sampled_from(sorted(SAMPLES)), data=st.data())
def test_changed_bytes(tmp_path: Path, name: str, data: st.DataObject) -> None:
    whole = bytearray(SAMPLES[name])
    changes = st.tuples(st.integers(0, len(whole) - 1), st.integers(0, 255))
    for position, value in data.draw(st.lists(changes, min_size=1, max_size=6)):
        whole[position] = value
    check_any_bytes(tmp_path / "changed.png", bytes(whole))


@FUZZ
@given(name=st.sampled_from(sorted(SAMPLES)), share=st.floats(0, 1), more=st.binary(max_size=40))
def test_truncated_files(tmp_path: Path, name: str, share: float, more: bytes) -> None:
    whole = SAMPLES[name]
    check_any_bytes(tmp_path / "cut.png", whole[: int(share * len(whole))] + more)


@FUZZ
@given(start=st.sampled_from(STARTS), rest=st.binary(max_size=200))
def test_random_bytes(tmp_path: Path, start: bytes, rest: bytes) -> None:
    check_any_bytes(tmp_path / "random.png", start + rest)


# Many files

LAYOUT = ImageLayout(16, 20, 3, margin=2)


def test_store_holds_what_the_files_hold(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "SHARD_BYTES", 5_000)  # a few images in a shard
    paths = image_files(tmp_path / "a")
    layout, notes = choose_layout(read_headers(paths), ImageSettings())
    assert layout == LAYOUT
    assert any("20 × 16 pixels, RGB (their own size" in note for note in notes)
    images, broken = load_images(paths, layout)
    assert (images.shape, images.margin, broken) == ((3, 16, 20), 2, {})
    for row, path in enumerate(paths):
        assert np.array_equal(images[row], read_image(path))
    block, mask = images.padded([3, 1])
    assert np.array_equal(block[1], images[1].transpose(2, 0, 1))
    assert mask.all()
    monkeypatch.setattr(store, "decode", None)  # the second time nothing is decoded
    again, _ = load_images([*paths, paths[7]], layout)
    assert np.array_equal(again[7], images[7])
    assert np.array_equal(again[12], images[7])  # one file in two rows


def test_interrupted_store_continues(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "SHARD_BYTES", 5_000)
    paths = image_files(tmp_path / "b")
    decoded: list[Path] = []
    decode = store.decode

    def interrupt(path: Path, *arguments: Any) -> np.ndarray:
        decoded.append(path)
        if path == paths[9]:
            raise KeyboardInterrupt
        return decode(path, *arguments)

    threads = threading.active_count()
    monkeypatch.setattr(store, "decode", interrupt)
    with pytest.raises(KeyboardInterrupt):
        load_images(paths, LAYOUT)
    assert threading.active_count() == threads
    count = len(decoded)
    monkeypatch.setattr(store, "decode", lambda path, *arguments: decoded.append(path) or decode(path, *arguments))
    images, _ = load_images(paths, LAYOUT)
    assert len(decoded) - count < len(paths)
    assert np.array_equal(images[9], decode(paths[9]))


def test_changed_file_is_read_again(tmp_path: Path) -> None:
    paths = image_files(tmp_path / "c", 4)
    first, _ = load_images(paths, LAYOUT)
    keys = [IMAGE.key(path) for path in paths]
    save(paths[2], Image.new("RGB", (20, 16), "red"), compress_level=0)
    again, _ = load_images(paths, LAYOUT)
    assert (again[2] == [255, 0, 0]).all()
    assert np.array_equal(again[1], first[1])
    assert [IMAGE.key(path) == key for path, key in zip(paths, keys, strict=True)] == [True, True, False, True]


def test_broken_files_are_returned_with_their_errors(tmp_path: Path) -> None:
    paths = image_files(tmp_path / "d", 6)
    paths[1].write_bytes(paths[1].read_bytes()[:60])
    paths[2].unlink()
    for _ in range(2):  # also from the cache
        images, broken = load_images(paths, LAYOUT)
        assert {row: error.code for row, error in broken.items()} == {1: "image.broken", 2: "image.missing"}
        assert np.array_equal(images[3], read_image(paths[3]))
        headers = read_headers(paths)
        assert [row for row, header in enumerate(headers) if isinstance(header, SeriatimError)] == [1, 2]
    values = [path.read_bytes() if path.exists() else b"x" for path in paths]
    in_memory, broken = load_images(values, LAYOUT)
    assert sorted(broken) == [1, 2]
    assert np.array_equal(in_memory[3], images[3])


def test_full_disk_is_reported_before_decoding(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store.shutil, "disk_usage", lambda _: type("Usage", (), {"free": 100})())
    with pytest.raises(SeriatimError, match="GB left") as error:
        load_images(image_files(tmp_path / "e", 4), LAYOUT)
    assert error.value.code == "data.cache"


def test_layout_follows_from_the_headers() -> None:
    small = [Header(28, 28, True, False)] * 3
    auto = ImageSettings()
    assert choose_layout(small, auto)[0] == ImageLayout(28, 28, 1, "crop", 3)
    settings = ImageSettings(size=16, max_shift=0, color="rgb")
    assert choose_layout(small, settings)[0] == ImageLayout(16, 16, 3)
    assert choose_layout([*small, Header(30, 28, False, False)], auto)[0] == ImageLayout(32, 32, 3, "crop", 4)
    assert choose_layout([Header(100, 120, False, False)], auto)[0] == ImageLayout(64, 64, 3, "crop", 8)
    assert choose_layout([Header(375, 500, False, False)], auto)[0] == ImageLayout(224, 224, 3, "crop", 16)


# Batches


def test_augmentation_stays_within_the_margin_and_does_not_depend_on_the_share() -> None:
    values = np.arange(8 * 8, dtype=np.uint8).reshape(1, 8, 8).repeat(5, 0)
    images, rows = Images.of(values, margin=2), np.arange(5)
    whole = images.augmented(rows, np.random.default_rng(3), True)
    shares = [images.augmented(rows, np.random.default_rng(3), True, share) for share in (slice(0, 2), slice(2, 5))]
    assert np.array_equal(whole, np.concatenate(shares))
    windows = [values[0, y : y + 4, x : x + 4] for x in range(5) for y in range(5)]
    crops = {window.tobytes() for window in windows}
    flipped = {np.ascontiguousarray(window[:, ::-1]).tobytes() for window in windows}
    drawn = {
        np.ascontiguousarray(image[0]).tobytes()
        for seed in range(200)
        for image in images.augmented(rows, np.random.default_rng(seed), True)
    }
    assert drawn == crops | flipped
    unflipped = images.augmented(rows, np.random.default_rng(1))
    assert {np.ascontiguousarray(image[0]).tobytes() for image in unflipped} <= crops


def test_mean_and_std_of_the_channels() -> None:
    values = np.random.default_rng(1).integers(0, 256, (7, 6, 5, 3), dtype=np.uint8)
    mean, std = Images.of(values).mean_and_std()
    assert np.allclose(mean, (values / 255).mean(axis=(0, 1, 2)), atol=1e-6)
    assert np.allclose(std, (values / 255).std(axis=(0, 1, 2)), atol=1e-6)
    assert Images.of(np.zeros((2, 4, 4), np.uint8)).mean_and_std()[1].tolist() == [1.0]


# The kind


def test_cells_that_are_images(tmp_path: Path) -> None:
    assert IMAGE.accepts(["a.png", "b/c.JPG", None])
    assert IMAGE.parse({"bytes": b"abc", "path": None}) == b"abc"
    assert IMAGE.parse({"bytes": None, "path": "a.png"}) == Path("a.png")
    assert IMAGE.parse(Image.fromarray(SCENE)).shape == (9, 14, 3)
    for cell in ("a.txt", 3, np.zeros((2, 2)), np.zeros((2, 2, 5), np.uint8), ""):
        assert not IMAGE.accepts([cell])
    pixels = PixelSequence(SCENE[..., 0])
    assert np.array_equal(IMAGE.parse(pixels), SCENE[..., 0])
    assert np.array_equal(NUMBERS.parse(pixels), SCENE[..., 0].reshape(-1, 1) / np.float32(255))


def test_data_check_names_unreadable_files_and_tells_sizes(tmp_path: Path) -> None:
    paths = image_files(tmp_path / "f", 4)
    save(tmp_path / "f" / "gray.png", Image.new("L", (40, 30)))
    paths[1].unlink()
    paths[3].write_bytes(b"words")
    assert IMAGE.examine is not None
    lines, errors = IMAGE.examine([*paths, tmp_path / "f" / "gray.png"])
    assert {row: error.code for row, error in errors.items()} == {1: "image.missing", 3: "image.broken"}
    line = "; ".join(lines)
    assert line.startswith("3 images: smallest 20 × 16, median 20 × 16, largest 40 × 30 pixels; ")
    assert line.endswith("; 1 are gray, the others in color: all are read in color")
