"""gettext catalogs (.po, .mo): a record for each translated message and plural form, read by polib.

The columns are `source` and `target`. A fuzzy or untranslated message has an empty target; obsolete ones are left out.
"""

from __future__ import annotations

import re
import struct
import tempfile
from collections import Counter
from collections.abc import Iterator
from gettext import c2py  # evaluates the expression of Plural-Forms
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from ...core.errors import Diagnostics, SeriatimError
from ..source import Source, Stream
from ..stream import Location, check_encoding, shorten_error
from .base import Format, ReadOptions, Record

if TYPE_CHECKING:
    import polib

EXTENSIONS = ("po", "mo")
STRING = re.compile(r'(?:#~\s*)?(?:(?:msgctxt|msgid(?:_plural)?|msgstr(?:\[\d+\])?)\s*)?"(?:[^"\\]|\\.)*"')
CHARSET = re.compile(rb"charset=([A-Za-z0-9_.:-]+)")
HEADER_SIZE = 1 << 14  # bytes searched for the charset in the header


class Gettext(Format):
    """The .po and .mo files of a source; other files beside them are not read."""

    def sniff(self, source: Source) -> bool:
        return any(stream.extension in EXTENSIONS for stream in source.streams)

    def records(self, source: Source, options: ReadOptions, diagnostics: Diagnostics) -> Iterator[Record]:
        streams = [stream for stream in source.streams if stream.extension in EXTENSIONS]
        texts = {stem(stream) for stream in streams if stream.extension == "po"}
        used = [stream for stream in streams if stream.extension == "po" or stem(stream) not in texts]
        if len(used) < len(streams):
            diagnostics.note(f"{len(streams) - len(used):,} .mo files are not read: their .po files are beside them")
        counts: Counter[str] = Counter()
        languages: dict[str, str] = {}  # language → the first file in it
        for stream in used:
            catalog = read_catalog(stream, options.encoding, diagnostics)
            if catalog is None:
                continue
            language = catalog.metadata.get("Language", "").lower().replace("-", "_")
            if language:
                languages.setdefault(language, stream.name)
                check_languages(languages)
            singular = singular_form(catalog.metadata.get("Plural-Forms", ""))
            for number, entry in enumerate(catalog, 1):
                if entry.obsolete:
                    counts["obsolete"] += 1
                    continue
                is_text = stream.extension == "po"
                fuzzy = is_text and entry.fuzzy  # msgfmt does not compile fuzzy messages
                location = Location(stream.name, entry.linenum if is_text else number, "line" if is_text else "message")
                for text, target in plural_pairs(entry, singular):
                    counts["fuzzy" if fuzzy else "" if target else "untranslated"] += 1
                    yield Record({"source": text, "target": "" if fuzzy else target}, location)
        omitted = [f"{counts[name]:,} {name}" for name in ("fuzzy", "untranslated", "obsolete") if counts[name]]
        if omitted:
            diagnostics.note(f"messages without a translation: {', '.join(omitted)}")


def stem(stream: Stream) -> str:
    """Returns the path of a file without its extensions."""
    return re.sub(r"\.(po|mo)(\.gz)?$", "", stream.name, flags=re.IGNORECASE)


def read_catalog(stream: Stream, encoding: str, diagnostics: Diagnostics) -> polib.POFile | polib.MOFile | None:
    """Returns the messages of a file, or None after reporting what is wrong with it."""
    try:
        import polib
    except ImportError:
        remedy = "pip install 'seriatim[gettext]'"
        raise SeriatimError("dependency.missing", f"reading {stream.name} needs polib", remedy) from None
    data = stream.read_bytes()
    if stream.extension == "mo":
        check_compiled(stream.name, data)
        with tempfile.NamedTemporaryFile(suffix=".mo") as copy:  # polib reads compiled catalogs by path only
            Path(copy.name).write_bytes(data)
            try:
                return polib.mofile(copy.name, encoding=declared_charset(data, encoding))
            except Exception as error:  # damaged bytes raise many types
                cause = f"{stream.name}: not a compiled catalog ({shorten_error(error)})"
                diagnostics.report(
                    "data.gettext", cause.replace(copy.name, stream.name), "compile it again with msgfmt"
                )
                return None
    text = stream.read_text(declared_charset(data[:HEADER_SIZE], encoding))
    is_valid = True
    for number, line in enumerate(text.split("\n"), 1):
        line = line.strip()
        if line and not (line.startswith("#") and not line.startswith("#~ m")) and not STRING.fullmatch(line):
            cause = f'{stream.name}, line {number}: not a comment, nor msgctxt, msgid or msgstr with a closed "string"'
            diagnostics.report("data.gettext", cause, "correct the file; `msgfmt --check` says more")
            is_valid = False
    if not is_valid:
        return None
    try:
        return polib.pofile(f"\n{text}\n" if "\n" not in text else text)  # a text with a line end is no path
    except Exception as error:  # polib raises many types for a text that is no catalog
        cause = f"{stream.name}: not a catalog ({shorten_error(error)})"
        diagnostics.report("data.gettext", cause, "correct the file; `msgfmt --check` says more")
        return None


def check_compiled(name: str, data: bytes) -> None:
    """Raises an error if the strings of a compiled catalog overlap: few bytes could then stand for many."""
    order = {b"\xde\x12\x04\x95": "<", b"\x95\x04\x12\xde": ">"}.get(data[:4])
    if order is None or len(data) < 20:
        return  # polib says what is wrong
    count, *tables = struct.unpack_from(f"{order}III", data, 8)
    lengths = 0
    for start in tables:
        pairs = np.frombuffer(
            data[start : start + 8 * count], f"{order}u4", -1 if start + 8 * count <= len(data) else 0
        )
        lengths += int(pairs[::2].astype(np.int64).sum())
    if lengths > len(data):
        cause = f"{name}: the catalog is damaged: {lengths:,} bytes of strings in a file of {len(data):,}"
        raise SeriatimError("data.gettext", cause, "compile it again with msgfmt")


def declared_charset(head: bytes, encoding: str) -> str:
    """Returns the charset that the header of a catalog names; a template names none."""
    match = CHARSET.search(head)
    try:
        return check_encoding(match[1].decode()) if match else encoding
    except SeriatimError:
        return encoding


def singular_form(plural_forms: str) -> int:
    """Returns the number of the plural form that is used for one thing."""
    match = re.search(r"plural\s*=\s*([^;]+)", plural_forms)
    try:
        return int(c2py(match[1].strip())(1)) if match else 0
    except Exception:  # of an expression that a file wrote
        return 0


def plural_pairs(entry: polib.POEntry | polib.MOEntry, singular: int) -> Iterator[tuple[str, str]]:
    """Yields source and target of each form of a message; a language with one form has both sources in it."""
    if not entry.msgid_plural:
        yield entry.msgid, entry.msgstr
        return
    forms = {int(number): text for number, text in entry.msgstr_plural.items()}
    if len(forms) < 2:
        only = forms.get(0, "")
        yield from ((entry.msgid, only), (entry.msgid_plural, only))
        return
    for number, text in sorted(forms.items()):
        yield (entry.msgid if number == singular else entry.msgid_plural), text


def check_languages(languages: dict[str, str]) -> None:
    """Raises an error if the files are in different languages; fr and fr_CA are one."""
    shortest = min(languages, key=len)
    for name, file in languages.items():
        if name != shortest and not name.startswith((f"{shortest}_", f"{shortest}@")):
            cause = f"{file} is in {name}, {languages[shortest]} in {shortest}: one model learns one language"
            raise SeriatimError("data.pair", cause, "name the files of one language, such as locale/fr")
