"""Translations of programs: gettext catalogues as text (.po) and compiled (.mo).

https://www.gnu.org/software/gettext/manual/html_node/PO-Files.html and MO-Files.html. Of plural forms the one for
n = 1 goes with the singular and each other with the plural; where a language has a single form it goes with both.
"""

from __future__ import annotations

import codecs
import re
import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from gettext import c2py  # the expression of Plural-Forms, read by the standard library
from pathlib import Path

from seriatim.core.errors import SeriatimError

from .decoding import Facts, Raw, check_encoding, decode
from .sources import blocks
from .tables import lines

KEYWORD = re.compile(r"(msgctxt|msgid_plural|msgid|msgstr)(?:\[(\d+)\])?\s*(.*)")
CODES = re.compile(r"(?:\\x[0-9a-fA-F]{1,2}|\\[0-7]{1,3})+")  # a run of them may be the bytes of one character
ESCAPE = re.compile(r"\\(.)")
CHARACTERS = {"n": "\n", "t": "\t", "r": "\r", "a": "\a", "b": "\b", "f": "\f", "v": "\v", "\\": "\\", '"': '"'}
HEAD = 1 << 14  # bytes in which the header says its charset
MAGIC = 0x950412DE

Pair = tuple[str, str, str]  # source, target, place


@dataclass
class Message:
    """An entry; `targets` has a form for each number of the plural."""

    place: str
    source: str = ""
    plural: str | None = None
    targets: dict[int, str] = field(default_factory=dict)
    context: str | None = None
    fuzzy: bool = False
    obsolete: bool = False

    @property
    def header(self) -> bool:
        return self.source == "" and self.context is None


@dataclass
class Left:
    """What was left out of a source."""

    fuzzy: int = 0
    untranslated: int = 0
    obsolete: int = 0


def kind(name: str) -> str:
    """po, mo, or nothing, by the name of a file."""
    suffix = Path(name.lower().removesuffix(".gz")).suffix
    return suffix[1:] if suffix in (".po", ".mo") else ""


def pairs(raws: Iterable[Raw], encoding: str, facts: Facts, every: bool = False) -> Iterator[Pair]:
    """The translated messages of catalogues; with `every`, those without a translation too."""
    left, languages = Left(), dict[str, str]()
    for raw in raws:
        single = 0
        for message in _po(raw, encoding, facts) if kind(raw.name) == "po" else _mo(raw, encoding, facts):
            if message.header:
                fields = _fields(message.targets.get(0, ""))
                single = _singular(fields.get("plural-forms", ""))
                if name := fields.get("language", ""):
                    languages.setdefault(name.lower().replace("-", "_"), raw.name)
                    _one_language(languages)
            elif message.obsolete:
                left.obsolete += 1
            elif message.fuzzy and not every:
                left.fuzzy += 1
            else:
                for source, target in _forms(message, single):
                    if target or every:
                        yield source, target, message.place
                    else:
                        left.untranslated += 1
    told = [f"{number:,} {name}" for name, number in vars(left).items() if number]
    if told:
        facts.notes.append(f"left out messages: {', '.join(told)}")


def _forms(message: Message, single: int) -> Iterator[tuple[str, str]]:
    if message.plural is None:
        yield message.source, message.targets.get(0, "")
        return
    if len(message.targets) < 2:
        only = message.targets.get(0, "")
        yield from ((message.source, only), (message.plural, only))
        return
    for number, target in sorted(message.targets.items()):
        yield (message.source if number == single else message.plural), target


def _fields(header: str) -> dict[str, str]:
    found = (line.partition(":") for line in header.split("\n"))
    return {name.strip().lower(): value.strip() for name, colon, value in found if colon}


def _singular(plural_forms: str) -> int:
    """The form that is used for one thing."""
    match = re.search(r"plural\s*=\s*([^;]+)", plural_forms)
    try:
        return int(c2py(match[1].strip())(1)) if match else 0
    except (ValueError, ZeroDivisionError, RecursionError):
        return 0


def _one_language(languages: dict[str, str]) -> None:
    """fr and fr_CA may stand side by side; fr and de are not to be learnt as one."""
    shortest = min(languages, key=len)
    for name, file in languages.items():
        if name != shortest and not name.startswith((f"{shortest}_", f"{shortest}@")):
            cause = f"{file} is in {name}, {languages[shortest]} in {shortest}: one model learns one language"
            raise SeriatimError("data.pair", cause, "name the files of one language, such as locale/fr")


def _charset(head: bytes, encoding: str) -> str:
    match = re.search(rb"charset=([A-Za-z0-9_.:-]+)", head)
    name = match[1].decode() if match else ""
    try:
        return codecs.lookup(name).name if name else encoding
    except LookupError:  # the template says charset=CHARSET
        return encoding


# ── .po ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def _po(raw: Raw, encoding: str, facts: Facts) -> Iterator[Message]:
    head = b"".join(block for block, _ in zip(blocks(raw), range(1), strict=False))[:HEAD]
    codec = _charset(head, check_encoding(encoding))
    current: Message | None = None
    into: tuple[str, int] | None = None  # what a line of only a string goes on with
    fuzzy = False
    for number, line in enumerate(lines(decode(raw, blocks(raw), codec, facts)), 1):
        where = f"{raw.name}, line {number}"
        text = line.strip()
        obsolete = text.startswith("#~")
        text = text[2:].strip() if obsolete else text
        if text.startswith("#") or not text or (obsolete and text.startswith("|")):
            if text.startswith("#,"):
                fuzzy = fuzzy or "fuzzy" in (flag.strip() for flag in text[2:].split(","))
            continue
        match = KEYWORD.fullmatch(text)
        try:
            if match is not None:
                name, form = match[1], int(match[2] or 0)
                said = _string(where, match[3], codec)
                begins = name == "msgctxt" or (name == "msgid" and (into is None or into[0] != "msgctxt"))
                if begins:
                    if current is not None:
                        yield current
                    current = Message(where, fuzzy=fuzzy, obsolete=obsolete)
                    fuzzy = False
                elif current is None:
                    raise _wrong(where, f"{name} before any msgid")
                into = (name, form)
                _put(current, into, said)
            elif text.startswith('"') and current is not None and into is not None:
                _put(current, into, _string(where, text, codec))
            else:
                raise _wrong(where, "neither a comment, a string, nor msgctxt, msgid, msgid_plural or msgstr")
        except SeriatimError as error:
            facts.trouble(error)
    if current is not None:
        yield current


def _put(message: Message, into: tuple[str, int], text: str) -> None:
    name, form = into
    if name == "msgctxt":
        message.context = (message.context or "") + text
    elif name == "msgid":
        message.source += text
    elif name == "msgid_plural":
        message.plural = (message.plural or "") + text
    else:
        message.targets[form] = message.targets.get(form, "") + text


def _string(where: str, quoted: str, codec: str) -> str:
    if not re.fullmatch(r'"(?:[^"\\]|\\.)*"', quoted):
        raise _wrong(where, "a string that is not closed" if quoted.startswith('"') else "no string in quotation marks")
    inner = quoted[1:-1]
    if "\\" not in inner:
        return inner
    # A backslash that is itself escaped is no beginning of an escape, so these are taken apart first.
    parts = inner.split("\\\\")
    return "\\".join(_unescaped(where, part, codec) for part in parts)


def _unescaped(where: str, text: str, codec: str) -> str:
    def codes(match: re.Match[str]) -> str:
        numbers = re.findall(r"\\x([0-9a-fA-F]+)|\\([0-7]+)", match[0])
        return bytes(int(a, 16) if a else int(b, 8) & 255 for a, b in numbers).decode(codec, "replace")

    def single(match: re.Match[str]) -> str:
        if match[1] not in CHARACTERS:
            raise _wrong(where, f'there is no escape "\\{match[1]}"')
        return CHARACTERS[match[1]]

    return ESCAPE.sub(single, CODES.sub(codes, text))


def _wrong(where: str, what: str) -> SeriatimError:
    return SeriatimError("data.gettext", f"{where}: {what}", "mend the file; `msgfmt --check` says more about it")


# ── .mo ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def _mo(raw: Raw, encoding: str, facts: Facts) -> Iterator[Message]:
    data = b"".join(blocks(raw))
    order = next((sign for sign in "<>" if data[:4] == struct.pack(f"{sign}I", MAGIC)), None)
    if order is None or len(data) < 20:
        raise _broken(raw.name, "it does not begin as a compiled catalogue does")
    revision, count, sources, targets = struct.unpack_from(f"{order}4I", data, 4)
    if revision >> 16 > 1:
        raise _broken(raw.name, f"it is of revision {revision >> 16}, of which nothing is known")
    if max(sources, targets) + 8 * count > len(data):
        raise _broken(raw.name, f"its table of {count:,} messages reaches beyond its end")
    table = [
        (_bytes(raw, data, order, sources, index), _bytes(raw, data, order, targets, index)) for index in range(count)
    ]
    codec = check_encoding(encoding)
    for source, target in table:
        if not source:
            codec = _charset(target, codec)
    for index, (source, target) in enumerate(table, 1):
        place = f"{raw.name}, message {index}"
        try:
            key, value = source.decode(codec), target.decode(codec)
        except UnicodeDecodeError as error:
            cause = f"{place}: not {codec.upper()} ({error.reason})"
            facts.trouble(SeriatimError("data.encoding", cause, "name the encoding with --encoding"))
            continue
        context, sign, text = key.rpartition("\x04")
        single, more, plural = text.partition("\0")
        forms = dict(enumerate(value.split("\0"))) if more else {0: value}
        yield Message(place, single, plural if more else None, forms, context if sign else None)


def _bytes(raw: Raw, data: bytes, order: str, table: int, index: int) -> bytes:
    length, start = struct.unpack_from(f"{order}2I", data, table + 8 * index)
    if start + length > len(data):
        raise _broken(raw.name, f"message {index + 1} reaches beyond its end")
    return data[start : start + length]


def _broken(name: str, what: str) -> SeriatimError:
    return SeriatimError("data.gettext", f"{name}: {what}", "compile it again with msgfmt, or give the .po file")
