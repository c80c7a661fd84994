"""Pairs of texts in three parts: what translate learns from, chooses by and is measured on.

A source is a table (TSV as of Tatoeba, CSV, JSONL, Parquet), a gettext catalogue or a folder of them, two aligned
files as "train.en,train.fr", or a name of the catalogue. Parts are drawn by the source text alone, so that no sentence
is in two of them, whatever the order of the rows, and "Run!" stays with "run!".
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from pydantic import Field, field_validator

from seriatim.core.config import Count, Settings
from seriatim.core.errors import SeriatimError

from . import _pair_texts as texts
from . import generated, partition
from ._pair_rows import Rows, Wanted, aligned, gather, streams
from ._pair_texts import normalised
from .corpus import fetching
from .decoding import Facts, check_encoding, decodes
from .notes import Notes
from .pictures import Pictures
from .sequences import NOTHING, Examples, Parts
from .sources import find_path, locate
from .tagged import Column
from .tokenizers import TokenizerSettings, with_kind

__all__ = ["PairSettings", "normalised", "read", "read_inputs", "read_single"]

Notify = Callable[[str], None]
TOKENS = 4_000  # parts of words of a vocabulary whose size was not asked for


class PairSettings(Settings):
    source: str = Field(
        description="a table (TSV, CSV, JSONL, Parquet), a gettext .po or .mo file or a folder of them, two aligned "
        "files as train.en,train.fr, or a name of the catalogue"
    )
    valid: str | None = Field(None, description="what to validate on, in any of these forms; else a part of the source")
    test: str | None = Field(None, description="what to test on, in any of these forms; else a part of the source")
    column: Column = Field(None, description="the column of the source, by name or by number (default: the first)")
    target: Column = Field(None, description="the column of the target, by name or by number (default: the second)")
    encoding: str = Field("utf-8", description="the encoding of the files, such as utf-8, utf-16 or cp1252")
    held_out: Count | None = Field(
        None,
        ge=0,
        description="distinct source texts for validation and as many for the test, where files do not say (default: "
        "a tenth, at most 2,000)",
    )
    reverse: bool = Field(False, description="learn from the target to the source")
    normalise: bool = Field(
        True, description="Unicode NFC, and one blank for any run of blanks, tabs and ends of lines; false: as it is"
    )
    joint: bool | None = Field(
        None, description="one vocabulary for both sides, or one for each (default: one for parts of words)"
    )
    longest: int | None = Field(
        None, ge=1, description="longer sources and targets, in tokens, are not trained on (default: by the task)"
    )
    tokenizer: TokenizerSettings | None = Field(None, description="how text becomes tokens (default: by the task)")

    @field_validator("tokenizer", mode="before")
    @classmethod
    def _parts_of_words(cls, given: Any) -> Any:
        return with_kind(given, kind="bpe", size=TOKENS)


def read(settings: PairSettings, data_dir: str | None = None, notify: Notify | None = None) -> Parts:
    """The parts of the source, checked."""
    notes = Notes(notify)
    made = _made(settings.source, settings.reverse)
    if made is not None:
        notes.extend(made.notes)
        return made
    whole, given = _gather(settings.source, settings, data_dir, notes)
    if settings.valid is not None or settings.test is not None:
        named = {"valid": settings.valid, "test": settings.test}
        given = {name: path for name, path in named.items() if path is not None}
    others = {name: _gather(path, settings, data_dir, notes)[0] for name, path in given.items()}
    if not len(whole):
        cause = f"{settings.source}: holds no pair with text on both sides"
        raise SeriatimError("data.empty", cause, "give pairs for training")
    keys = texts.keys_of(whole.sources)
    notes.extend(texts.told(whole, keys))
    # With files, only validation is drawn, since a run cannot do without; a test on other pairs is nobody's wish.
    wanted = ["test", "valid"] if not given else ["valid"] if "valid" not in given else []
    parts, drawn = texts.divide(whole, keys, wanted, settings.held_out)
    notes.extend(drawn)
    parts |= others
    if given:
        notes.extend(texts.seen(parts))
        notes.extend(["no test part is given, so it is empty"] if "test" not in given else [])
    found = {name: parts[name].examples() if name in parts else NOTHING for name in partition.NAMES}
    notes.extend(["parts: " + ", ".join(f"{len(part):,} {name}" for name, part in found.items() if len(part))])
    return Parts(
        found["train"], found["valid"], found["test"], notes=list(notes), fingerprint=partition.fingerprint(found)
    )


def read_single(
    source: str, settings: PairSettings, data_dir: str | None = None, notify: Notify | None = None
) -> Examples:
    """All pairs of another source, read by the same settings: what a trained model is evaluated on."""
    notes = Notes(notify)
    made = _made(source, settings.reverse)
    if made is not None:
        notes.extend(made.notes)
        return made.test
    rows, _ = _gather(source, _for_another(source, settings), data_dir, notes)
    notes.extend([f"pairs: {len(rows):,}"])
    return rows.examples()


def read_inputs(source: str, settings: PairSettings, data_dir: str | None = None) -> Examples:
    """Only the sources, one for each line of a text file or row of a table, the empty ones too."""
    made = _made(source, settings.reverse)
    if made is not None:
        return replace(made.test, targets=None)
    side = 1 if settings.reverse else 0
    rows, _ = _gather(source, _for_another(source, settings), data_dir, Notes(None), side)
    return Examples(rows.sources, None, rows.places)


def _gather(
    source: str, settings: PairSettings, data_dir: str | None, notes: Notes, side: int | None = None
) -> tuple[Rows, dict[str, str]]:
    """The pairs of one source (or all that stands on one `side`), and the files that the catalogue gives with it."""
    facts = Facts()
    rows, given = rows_of(source, settings, data_dir, notes, facts, side)
    if settings.reverse and side is None:
        rows = Rows(rows.targets, rows.sources, rows.places)
    if settings.normalise:
        rows.sources, forms, spaces = texts.normalise(rows.sources)
        rows.targets, more_forms, more_spaces = texts.normalise(rows.targets)
        notes.extend(texts.changes(forms + more_forms, spaces + more_spaces))
    if side is not None:
        return rows, given
    rows, empty = texts.complete(rows)
    notes.extend(empty)
    return rows, given


def rows_of(
    source: str, settings: PairSettings, data_dir: str | None, notes: Notes, facts: Facts, side: int | None = None
) -> tuple[Rows, dict[str, str]]:
    """The same as it is written, with nothing left out."""
    check_encoding(settings.encoding)
    given: dict[str, str] = {}
    both = aligned_files(source)
    if both is not None and side is None:
        rows = aligned(find_path(both[0]), find_path(both[1]), settings.encoding, facts)
    else:
        path = Path(source).expanduser() if both is None else both[side or 0]
        located = locate(source, data_dir, fetching(source, notes.notify)) if both is None else None
        if located is not None:
            notes.extend([f"{source}: {located.source}"])
            path = located.train
            given = {name: str(one) for name in ("valid", "test") if (one := getattr(located, name)) is not None}
        found = streams(path)
        notes.extend(found.notes)
        rows = gather(found, Wanted(settings.column, settings.target, settings.encoding, side), facts)
    notes.extend(facts.notes)
    if facts.crlf:
        notes.extend([f"turned {facts.crlf:,} Windows line ends (CRLF) into \\n"])
    return rows, given


def aligned_files(source: str) -> tuple[Path, Path] | None:
    """The two files that "train.en,train.fr" names; None for a single path or name."""
    if "," not in source or Path(source).expanduser().exists():
        return None
    cuts = [match.start() for match in re.finditer(",", source)]
    choices = [(_path(source[:cut]), _path(source[cut + 1 :])) for cut in cuts]
    for first, second in choices:
        if first.is_file() and second.is_file():
            return first, second
    missing = next(path for path in choices[0] if not path.is_file())
    raise SeriatimError("data.missing", f'there is no file "{missing}"', "name two aligned files as train.en,train.fr")


def _path(name: str) -> Path:
    return Path(name.strip()).expanduser()


def _for_another(source: str, settings: PairSettings) -> PairSettings:
    """The encoding of the training data holds where another file is not UTF-8."""
    files = aligned_files(source) or (_path(source),)
    raws = [raw for file in files if file.is_file() for raw in find_path(file).raws if raw.kind != "parquet"]
    plain = bool(raws) and all(decodes(raw, "utf-8") for raw in raws)
    return settings.model_copy(update={"source": source, "encoding": "utf-8" if plain else settings.encoding})


def _made(source: str, reverse: bool) -> Parts | None:
    """The parts of a set that is made here, as "reverse-pairs:30"."""
    made = None if Path(source).expanduser().exists() else generated.pairs(source)
    if made is None or not reverse:
        return made
    train, valid, test = (_reversed(made.part(name)) for name in partition.NAMES)
    return replace(made, train=train, valid=valid, test=test, fingerprint=f"{made.fingerprint} reversed")


def _reversed(part: Examples) -> Examples:
    assert part.targets is not None  # pairs that are made have both sides
    assert not isinstance(part.inputs, Pictures)
    return Examples(part.targets, part.inputs, part.places)
