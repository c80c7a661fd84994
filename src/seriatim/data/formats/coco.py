"""Captions of images: annotations as of COCO, Karpathy's split files, Flickr8k, and folders of images with a table.

    COCO       {"images": [{"id": 1, "file_name": "a.jpg"}], "annotations": [{"image_id": 1, "caption": "…"}]}
    Karpathy   {"images": [{"filename": "a.jpg", "split": "train", "sentences": [{"raw": "…"}]}]}
    mapping    {"a.jpg": ["…", "…"]}
    list       [{"image": "a.jpg", "caption": "…"}]
    Flickr8k   a.jpg#0<tab>caption, with Flickr_8k.trainImages.txt … beside it
    folder     captions.csv, metadata.jsonl, captions_train2014.json, annotations/…, train/metadata.csv …

A record has the columns `image` (a path) and `caption`; `split` if a file says it. Tables keep their own columns.
"""

from __future__ import annotations

import os
import re
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path, PurePath
from typing import Any

from ...core.errors import Diagnostics, SeriatimError
from ...core.text import listed
from ..images import is_image_name
from ..kinds import SPLIT_ALIASES
from ..source import Source, Stream, open_source
from ..stream import Location, parse_json
from .base import Format, ReadOptions, Record

TABLE = r"\.(csv|tsv|jsonl|ndjson|json|txt|parquet|pq)(\.gz)?"
# Of a folder, the first pattern with a match decides. Files of the second group may be several, one for each split.
SINGLE_FILES = (
    re.compile(r"flickr\d+k\.token\.txt|results_\d+\.token|results\.csv", re.IGNORECASE),
    re.compile(r"dataset_?\w*\.json", re.IGNORECASE),
    re.compile(rf"(captions?|metadata){TABLE}", re.IGNORECASE),
)
SPLIT_FILES = (
    re.compile(r"captions_\w+\.json", re.IGNORECASE),
    re.compile(rf"(captions?[ _-]?)?(train|valid|validation|val|dev|test)(ing)?{TABLE}", re.IGNORECASE),
)
IMAGE_LIST = re.compile(r"flickr_?\d+k\.(train|dev|test)images\.txt", re.IGNORECASE)
FLICKR_LINE = re.compile(r"\S.*\.\w+#\d+\t")
JSON_HEAD = re.compile(
    r"""\s*(\{.*?"(images|annotations)"\s*:\s*\[ | \{\s*"[^"]+\.(jpe?g|png|gif|webp|bmp)"\s*: |
    \[\s*\{[^{}]*"(image|image_path|file_name|filename|image_name|img)"\s*:)""",
    re.IGNORECASE | re.DOTALL | re.VERBOSE,
)
KARPATHY_SPLITS = {"restval": "train"}  # the rest of COCO's validation split, which most papers train on
FOLDERS = ("", "annotations", "Flickr8k_text", "captions")
IMAGE_FOLDERS = (
    "", "images", "Images", "pictures", "photos", "Flicker8k_Dataset", "Flickr8k_Dataset",
    "Flickr8k_Dataset/Flicker8k_Dataset", "flickr30k_images", "flickr30k-images",
)  # fmt: skip
SAMPLED_IMAGES = 20  # looked up to find the folder of the images
FORMS = 'write {"images": …, "annotations": …} as COCO does, or a list of {"image": …, "caption": …}'


class Captions(Format):
    """Annotations of one JSON or Flickr file, or the caption files of a folder of images."""

    def usable(self, options: ReadOptions) -> bool:
        return "captions" in options.header_names

    def sniff(self, source: Source) -> bool:
        files = [stream for stream, _ in caption_files(source)]
        return bool(files) and (holds_images(source) or all(map(is_annotation, files)))

    def records(self, source: Source, options: ReadOptions, diagnostics: Diagnostics) -> Iterator[Record]:
        images = [stream for stream in source.streams if is_image_name(stream.name)]
        if images and options.positions == ("image",):  # prediction describes the images of a folder, each once
            yield from (Record({"image": stream.path}, Location(stream.name, 1, "")) for stream in images)
            return
        files = caption_files(source)
        if len(files) > 1:
            listed = ", ".join(PurePath(stream.name).name for stream, _ in files)
            diagnostics.note(f"splits by file names: {listed}")
        for stream, split in files:
            hints = re.findall(r"(?:captions|instances)_(\w+)\.json", PurePath(stream.name).name)
            records = list(read_captions(stream, options, diagnostics))
            lists = read_image_lists(stream, source, options)
            if lists:
                total = {str(record.values.get("image")) for record in records}
                diagnostics.note(
                    f"splits by lists of images beside {stream.name}; {len(total - lists.keys()):,} images are in none "
                    "of them and are left out"
                )
                records = [record for record in records if str(record.values.get("image")) in lists]
            folder = Path() if stream.path is None else stream.path.parent
            names = list(dict.fromkeys(str(record.values.get("image", "")) for record in records))
            root = find_image_folder(names, [folder, folder.parent], hints)
            for record in records:
                values = dict(record.values)
                if values.get("image"):
                    values["image"] = os.path.normpath(os.path.join(root, str(values["image"])))
                if lists:
                    values["split"] = lists[str(record.values["image"])]
                elif split:
                    values["split"] = split
                yield Record(values, record.location)


def is_annotation(stream: Stream) -> bool:
    """Returns whether a file has captions in one of the forms of JSON or of Flickr8k."""
    if stream.extension not in ("json", "txt", "token"):
        return False
    head = stream.read_head()
    if stream.extension == "json":
        return JSON_HEAD.match(head) is not None
    return FLICKR_LINE.match(head) is not None and is_image_name(head.partition("#")[0])


def holds_images(source: Source) -> bool:
    return any(is_image_name(stream.name) for stream in source.streams)


def caption_files(source: Source) -> list[tuple[Stream, str]]:
    """Returns the caption files of a source, each with its split if its name or its folder says one."""
    streams = [stream for stream in source.streams if not is_image_name(stream.name)]
    if len(source.streams) == 1:
        return [(stream, "") for stream in streams]
    depth = min(len(PurePath(stream.name).parts) for stream in source.streams)
    root = PurePath(*PurePath(source.streams[0].name).parts[: 1 if depth > 1 else 0])
    inner = {root / name for name in FOLDERS}
    here = [stream for stream in streams if PurePath(stream.name).parent in inner]
    for pattern in SINGLE_FILES:
        if matches := [stream for stream in here if pattern.fullmatch(PurePath(stream.name).name)]:
            return [(only_file(source, matches), "")]
    for pattern in SPLIT_FILES:
        if matches := [stream for stream in here if pattern.fullmatch(PurePath(stream.name).name)]:
            return files_by_split(source, matches)
    within = [
        (stream, SPLIT_ALIASES[PurePath(stream.name).parent.name.lower()])
        for stream in streams
        if PurePath(stream.name).parent.name.lower() in SPLIT_ALIASES
        and SINGLE_FILES[-1].fullmatch(PurePath(stream.name).name)
    ]
    if within:
        return within
    tables = [stream for stream in here if re.search(f"{TABLE}$", stream.name.lower())]
    return [(only_file(source, tables), "")] if tables and holds_images(source) else []


def only_file(source: Source, streams: Sequence[Stream]) -> Stream:
    if len(streams) > 1:
        names = listed([stream.name for stream in streams])
        cause = f"the folder {source.name} has {len(streams)} files of captions: {names}"
        raise SeriatimError("data.several", cause, f"name one of them: --data {streams[0].name}")
    return streams[0]


def files_by_split(source: Source, streams: Sequence[Stream]) -> list[tuple[Stream, str]]:
    """Returns each file with the split that its name says; each split has one."""
    if len(streams) == 1:
        return [(streams[0], "")]
    files: dict[str, Stream] = {}
    for stream in streams:
        words = re.split(r"[^a-z]+", PurePath(stream.name).name.lower())
        split = next((SPLIT_ALIASES[word] for word in words if word in SPLIT_ALIASES), "")
        if not split or split in files:
            only_file(source, streams)
        files[split] = stream
    return [(files[split], split) for split in ("train", "validation", "test") if split in files]


# Files


def read_captions(stream: Stream, options: ReadOptions, diagnostics: Diagnostics) -> Iterator[Record]:
    """Yields the records of one file of captions; paths of images are as written."""
    if stream.extension == "json":
        yield from read_json(stream, options, diagnostics)
    elif is_annotation(stream):
        for number, line in enumerate(stream.lines(options.encoding), options.first_line):
            location = Location(stream.name, number)
            name, tab, caption = line.removesuffix("\n").partition("\t")
            if tab:
                yield Record({"image": re.sub(r"#\d+$", "", name.strip()), "caption": caption}, location)
            elif line.strip():
                cause = f"{location}: there is no tab"
                diagnostics.report("data.caption", cause, "write the image's name, a tab and the caption on each line")
    else:
        from . import read_records  # the formats of tables

        yield from read_records(Source(stream.name, (stream,)), options, diagnostics)


def read_json(stream: Stream, options: ReadOptions, diagnostics: Diagnostics) -> Iterator[Record]:
    try:
        values = parse_json(stream.read_text(options.encoding))
    except ValueError as error:
        raise SeriatimError("data.json", f"{stream.name}: not JSON ({error})", "correct the file") from None
    if isinstance(values, dict) and isinstance(values.get("images"), list):
        if isinstance(values.get("annotations"), list):
            yield from read_coco(stream.name, values["images"], values["annotations"], diagnostics)
        else:
            yield from read_karpathy(stream.name, values["images"], diagnostics)
    elif isinstance(values, dict) and all(isinstance(captions, str | list) for captions in values.values()):
        for number, (image, captions) in enumerate(values.items(), 1):
            location = Location(stream.name, number, "entry")
            for caption in captions if isinstance(captions, list) else [captions]:
                yield Record({"image": image, "caption": as_text(caption, location, diagnostics)}, location)
    elif isinstance(values, list):
        for number, entry in enumerate(values, 1):
            location = Location(stream.name, number, "entry")
            if isinstance(entry, dict):
                yield Record(entry, location)
            else:
                diagnostics.report("data.json", f"{location}: not an object", FORMS)
    else:
        raise SeriatimError("data.json", f"{stream.name}: no captions in a known form", FORMS)


def read_coco(
    name: str, images: Iterable[Any], annotations: Iterable[Any], diagnostics: Diagnostics
) -> Iterator[Record]:
    files: dict[Hashable, tuple[str, int]] = {}
    for number, image in enumerate(images, 1):
        try:
            files[image["id"]] = str(image["file_name"]), number
        except (TypeError, KeyError):
            location = Location(name, number, "image")
            diagnostics.report("data.json", f"{location}: has no id or no file_name", FORMS)
    uncaptioned = dict(files)
    for number, annotation in enumerate(annotations, 1):
        location = Location(name, number, "annotation")
        try:
            image, caption = annotation["image_id"], annotation["caption"]
        except (TypeError, KeyError):
            remedy = "name the file of captions; that of instances has none"
            diagnostics.report("data.json", f"{location}: has no image_id or no caption", remedy)
            continue
        if isinstance(image, (dict, list)) or image not in files:
            remedy = "add the image, or remove its annotations"
            diagnostics.report("data.json", f"{location}: there is no image {str(image)[:40]}", remedy)
            continue
        uncaptioned.pop(image, None)
        yield Record({"image": files[image][0], "caption": as_text(caption, location, diagnostics)}, location)
    if len(uncaptioned) == len(files):
        diagnostics.raise_problems()  # without a single caption nothing else can be said about the file
    for file, number in uncaptioned.values():
        yield Record({"image": file, "caption": ""}, Location(name, number, "image"))


def read_karpathy(name: str, images: Iterable[Any], diagnostics: Diagnostics) -> Iterator[Record]:
    for number, image in enumerate(images, 1):
        location = Location(name, number, "image")
        try:
            folder, file = image.get("filepath", ""), image["filename"]
            captions = [sentence["raw"] for sentence in image["sentences"]]
        except (AttributeError, TypeError, KeyError):
            diagnostics.report("data.json", f"{location}: has no filename or no sentences", FORMS)
            continue
        split = str(image["split"]) if "split" in image else ""
        split = KARPATHY_SPLITS.get(split.lower(), split)
        for caption in captions or [""]:
            values = {
                "image": f"{folder}/{file}" if folder else file,
                "caption": as_text(caption, location, diagnostics),
            }
            yield Record(values | ({"split": split} if split else {}), location)


def as_text(value: object, location: Location, diagnostics: Diagnostics) -> str:
    if isinstance(value, str):
        return value
    cause = f"{location}: the caption is {type(value).__name__}, not text"
    diagnostics.report("data.json", cause, "write it as a string")
    return ""


def read_image_lists(stream: Stream, source: Source, options: ReadOptions) -> Mapping[str, str]:
    """Returns image → split by the lists of images that Flickr8k has beside its captions."""
    splits: dict[str, str] = {}
    lists = [other for other in source.streams if IMAGE_LIST.fullmatch(PurePath(other.name).name)]
    if stream.path is not None and not lists:
        siblings = [file for file in sorted(stream.path.parent.iterdir()) if IMAGE_LIST.fullmatch(file.name)]
        lists = [other for file in siblings if file.is_file() for other in open_source(file).streams]
    for other in lists:
        split = SPLIT_ALIASES[PurePath(other.name).name.lower().split(".")[1].removesuffix("images")]
        splits |= dict.fromkeys(map(str.strip, other.read_text(options.encoding).split("\n")), split)
    return splits


def find_image_folder(names: Sequence[str], bases: Sequence[Path], hints: Sequence[str] = ()) -> Path:
    """Returns the folder with most of the first images, by the usual names; the first base if there is none.

    Args:
        names: Paths of images as they are written.
        bases: Folders to look in: that of the file, its parent.
        hints: Further folder names, such as train2014.
    """
    best, most = bases[0], 0
    for base in bases:
        for folder in (base / usual / hint for hint in ("", *hints) for usual in IMAGE_FOLDERS):
            if not folder.is_dir():
                continue
            count = sum(os.path.isfile(os.path.join(folder, name)) for name in names[:SAMPLED_IMAGES])
            if count > most:
                best, most = folder, count
    return best
