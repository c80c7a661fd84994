"""Tagged sentences in three parts, with tags that say what they mean: schemes recognised, slips put right and told."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, field_validator

from seriatim.core.errors import SeriatimError

from . import entities
from .conll import Sentences, read_found
from .sources import Found, find_path, locate
from .splits import too_short
from .text import TextSettings
from .tokenizers import TokenizerSettings, with_kind

SPLITS = ("train", "valid", "test")
TITLES = {"bio": "BIO", "iob1": "IOB1", "iobes": "IOBES", "bilou": "BILOU"}
Say = Callable[[str], None]

# A column by number, which YAML reads as one, or by name.
Column = Annotated[str | None, BeforeValidator(lambda value: str(value) if type(value) is int else value)]


class TagSettings(TextSettings):
    source: str = Field(description="a CoNLL, CoNLL-U or JSONL file, .gz, a folder of them, or a name of the catalogue")
    column: Column = Field(
        None, description="the column of the words, by number or name (default: the first; form; tokens)"
    )
    target: Column = Field(
        None, description="the column of the tags, by number or name (default: the last; upos; tags)"
    )
    scheme: Literal["auto", "none", "bio", "iob1", "iobes", "bilou"] = Field(
        "auto", description="how the tags mark entities: recognised, or named, or none for tags of single words"
    )
    min_count: int | None = Field(
        None,
        ge=1,
        description="rarer words are read as the unknown word (default: 2 for 1,000 sentences or more, else 1)",
    )
    tokenizer: TokenizerSettings | None = Field(  # type: ignore[assignment]
        None, description="parts of words instead of words, such as bpe (default: words in small letters)"
    )

    @field_validator("tokenizer", mode="before")
    @classmethod
    def _words(cls, given: Any) -> Any:
        return with_kind(given, kind="word", lowercase=True)


@dataclass(frozen=True)
class Tagged:
    train: Sentences
    valid: Sentences
    test: Sentences
    scheme: str  # none, bio, iobes or bilou
    fingerprint: str

    def part(self, name: str) -> Sentences:
        found: Sentences = getattr(self, name)
        return found


def read(settings: TagSettings, data_dir: str | None, say: Say, scheme: str | None = None) -> Tagged:
    """The three parts of the settings; `scheme` is that of a trained model."""
    found, given = _found(settings.source, data_dir, say)
    if settings.valid is not None or settings.test is not None:
        named = {"valid": settings.valid, "test": settings.test}
        given = {split: _found(source, data_dir, say)[0] for split, source in named.items() if source is not None}
    whole = _read(found, settings, say)
    if given:
        parts = {"train": whole, **{split: _read(one, settings, say) for split, one in given.items()}}
        for split in SPLITS[1:]:
            if split not in parts:
                say(f"no {split} file is given, so the {split} part is empty")
    else:
        parts = _split(whole, settings.fractions)
        say(f"split {' / '.join(f'{100 * share:g}' for share in settings.fractions)} % by contiguous blocks")
    chosen = _scheme(settings.scheme, parts["train"], say) if scheme is None else scheme
    for split, part in parts.items():
        put_right(part, chosen, split, say)
    digest = hashlib.sha256("".join(parts[split].fingerprint for split in parts).encode())
    digest.update(repr([chosen, *(len(part) for part in parts.values())]).encode())
    nothing = Sentences("")
    return Tagged(
        parts["train"],
        parts.get("valid", nothing),
        parts.get("test", nothing),
        "bio" if chosen == "iob1" else chosen,
        digest.hexdigest(),
    )


def read_single(source: str, settings: TagSettings, data_dir: str | None, say: Say, scheme: str) -> Sentences:
    """A whole source: what a trained model is evaluated on."""
    found, _ = _found(source, data_dir, say)
    sentences = _read(found, settings, say)
    written = entities.recognise(sentences.tags) if scheme == "bio" else scheme
    put_right(sentences, "iob1" if written == "iob1" else scheme, found.title, say)
    return sentences


def _found(source: str, data_dir: str | None, say: Say) -> tuple[Found, dict[str, Found]]:
    located = locate(source, data_dir)
    if located is None:
        return find_path(Path(source).expanduser()), {}
    say(f"{source}: {located.source}")
    given = {"valid": located.valid, "test": located.test}
    return find_path(located.train), {split: find_path(path) for split, path in given.items() if path is not None}


def _read(found: Found, settings: TagSettings, say: Say) -> Sentences:
    sentences = read_found(found, settings.column, settings.target, settings.encoding)
    for note in sentences.notes:
        say(note)
    return sentences


def _split(whole: Sentences, fractions: tuple[float, float, float]) -> dict[str, Sentences]:
    ends = [0, *(round(len(whole) * reached) for reached in accumulate(fractions))]
    parts = {split: whole.between(ends[i], ends[i + 1]) for i, split in enumerate(SPLITS)}
    if any(share > 0 and not len(parts[split]) for split, share in zip(SPLITS, fractions, strict=True)):
        raise too_short(f"{len(whole):,} sentences", fractions)
    return {split: part for split, part in parts.items() if len(part)}


def _scheme(wanted: str, train: Sentences, say: Say) -> str:
    if wanted != "auto":
        return wanted
    found = entities.recognise(train.tags)
    if found != "none":
        say(f"the tags mark entities, as {TITLES[found]}")
        return found
    marks = sum(tag.startswith(("B-", "I-")) for tags in train.tags for tag in tags)
    strange = next(
        ((i, j) for i, tags in enumerate(train.tags) for j, tag in enumerate(tags) if entities.parse(tag) is None), None
    )
    if marks and strange is not None:
        i, j = strange
        say(
            f'{train.place(i, j)}: "{train.tags[i][j]}" marks no entity, though B- and I- are among the tags: '
            "read as tags of single words (data.scheme)"
        )
    return "none"


def put_right(part: Sentences, scheme: str, name: str, say: Say) -> None:
    """Rewrites the tags of a part where they break the rules of the scheme, and says which and where."""
    if scheme == "none":
        return
    changes: dict[tuple[str, str], list[tuple[int, int]]] = {}
    for index, tags in enumerate(part.tags):
        for place, tag in enumerate(tags):
            if not entities.fits(tag, scheme):
                raise SeriatimError(
                    "data.scheme",
                    f'{part.place(index, place)}: "{tag}" is no tag of {TITLES[scheme]}',
                    "mend it, or choose another data.scheme: none takes all tags as they are",
                )
        mended = entities.repair(tags, scheme)
        if mended != tags:
            for place, (old, new) in enumerate(zip(tags, mended, strict=True)):
                if old != new:
                    changes.setdefault((old, new), []).append((index, place))
            part.tags[index] = mended
    if scheme == "iob1":
        count = sum(map(len, changes.values()))
        if count:
            say(f"{name}: {count:,} tags of IOB1 are written as BIO says it: I- that begins an entity becomes B-")
        return
    for (old, new), places in sorted(changes.items(), key=lambda item: -len(item[1])):
        why = "without a B- before" if old[:1] == "I" and new[:1] == "B" else f"against the rules of {TITLES[scheme]}"
        tags_are = f"tag {old}" if len(places) == 1 else f"{len(places):,} tags {old}"
        say(f"{name}: {tags_are} {why}: read as {new} ({part.place(*places[0])}{' and others' * (len(places) > 1)})")
