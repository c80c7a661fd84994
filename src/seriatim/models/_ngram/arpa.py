r"""ARPA files, the plain-text form of back-off models that SRILM, KenLM and others read and write.

    \data\                        how many n-grams of each order
    ngram 1=4
    \1-grams:                     log10 p, the tokens, log10 of the back-off weight where it is a context
    -0.7  the  -0.3

Tokens are separated by white space, so special characters are escaped: `\s` space, `\n`
`\t` `\r` `\\` as in Python, `\e` the empty token, `\u2028;` any other white space or unprintable character, and
a leading `\` before a token that looks like <s>, </s> or <UNK> but is none. A word of another program's file that
is not a valid escape, such as `C:\dir`, is unchanged.

The model's boundary is written as </s> with its probability and as <s> with its back-off weight. KenLM expects <s>,
</s> and <unk> in every file: if the model has no such token they are written with −99, a probability of zero, and are
skipped when reading.
"""

from __future__ import annotations

import math
import re
from array import array
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ...core.errors import SeriatimError
from ...core.files import atomic_file
from .counting import search

Array = np.ndarray
Levels = list[tuple[Array, Array, Array]]  # for each order: sorted keys, natural log p, natural log back-off

NEVER = -99.0
LN10 = math.log(10)
BLOCK = 1 << 16
SHORT = {" ": r"\s", "\n": r"\n", "\t": r"\t", "\r": r"\r", "\\": r"\\"}
LONG = {value: key for key, value in SHORT.items()}
SPECIAL = re.compile(r"\\*(</?s>|<UNK>)")  # KenLM takes <UNK> for <unk>


def escape(token: str) -> str:
    if token == "":
        return r"\e"
    if SPECIAL.fullmatch(token):
        return "\\" + token
    return "".join(_escape_character(c) for c in token)


def unescape(word: str) -> str:
    if word == r"\e":
        return ""
    if word.startswith("\\") and SPECIAL.fullmatch(word):
        return word[1:]
    token = re.sub(r"\\u([0-9a-f]{1,5}|10[0-9a-f]{4});|\\[sntr\\]", _unescape_match, word)
    return token if escape(token) == word else word


def _escape_character(c: str) -> str:
    if c in SHORT:
        return SHORT[c]
    return c if c.isprintable() else f"\\u{ord(c):x};"


def _unescape_match(match: re.Match[str]) -> str:
    return chr(int(match[1], 16)) if match[1] else LONG[match[0]]


# Writing


def write(path: str | Path, tokens: Sequence[str], levels: Levels, vocab_size: int, boundary: int | None) -> None:
    names = [escape(token) for token in tokens]
    if len(names) != vocab_size or len(set(names)) != vocab_size:
        raise SeriatimError(
            "arpa.vocabulary",
            f"the model has {vocab_size:,} tokens, and {len(set(names)):,} different names are there for them",
            "pass one name for each token id",
        )
    filled = [level for level in levels if len(level[0])]  # pruning may have emptied the highest orders
    extra = [name for name in ("<unk>",) if name not in names] + ["<s>"] + ["</s>"] * (boundary is None)
    with atomic_file(path) as temporary, open(temporary, "wb") as file:
        file.write(b"\\data\\\n")
        for m, (keys, _, _) in enumerate(filled, start=1):
            file.write(f"ngram {m}={len(keys) + (len(extra) if m == 1 else 0)}\n".encode())
        for m in range(1, len(filled) + 1):
            weights = m < len(filled)
            file.write(f"\n\\{m}-grams:\n".encode())
            if m == 1:
                begin = 0.0 if boundary is None else float(_log10(filled[0][2][boundary]))
                file.writelines(
                    (f"{NEVER:g}\t{name}" + (f"\t{begin if name == '<s>' else 0:.9g}\n" if weights else "\n")).encode()
                    for name in extra
                )
            file.writelines(_lines(filled[:m], names, vocab_size, boundary, weights))
        file.write(b"\n\\end\\\n")


def _lines(levels: Levels, names: list[str], vocab_size: int, boundary: int | None, weights: bool) -> Iterator[Any]:
    """Yields the lines of the highest level in blocks of bytes; pyarrow formats numbers far faster than Python."""
    import pyarrow as pa
    from pyarrow import compute

    firsts, lasts = [*names], [*names]
    if boundary is not None:
        firsts[boundary], lasts[boundary] = "<s>", "</s>"
    text = pa.large_string()
    tables = [pa.array([" " + name for name in firsts], text)] * len(levels)
    tables[-1] = pa.array([" " + name for name in lasts], text)
    tables[0] = pa.array(["\t" + name for name in (firsts if len(levels) > 1 else lasts)], text)
    nothing, tab, end = (pa.scalar(mark, text) for mark in ("", "\t", "\n"))
    keys, log_probs, back_off = levels[-1]
    for start in range(0, len(keys), BLOCK):
        block = slice(start, start + BLOCK)
        columns = _columns(levels, keys[block], vocab_size)
        fields = [pa.array(_nine_digits(_log10(log_probs[block]))).cast(text)]
        fields += [table.take(pa.array(column)) for table, column in zip(tables, columns, strict=True)]
        if weights:
            backs = _log10(back_off[block])
            if boundary is not None:
                backs[columns[-1] == boundary] = 0.0  # of </s>; that of <s> is in its own line
            fields += [tab, pa.array(_nine_digits(backs)).cast(text)]
        lines = compute.binary_join_element_wise(*fields, end, nothing)
        yield lines.buffers()[2].slice(0, compute.sum(compute.binary_length(lines)).as_py())


def _nine_digits(values: Array) -> Array:
    """Returns numbers whose shortest decimal form, which pyarrow writes, has at most nine digits."""
    rounded, sizes = values.copy(), np.abs(values)
    large = sizes > 1e-13  # below it the power of ten would be inexact
    scale = 10.0 ** (8 - np.floor(np.log10(sizes[large])))
    rounded[large] = np.round(values[large] * scale) / scale
    return rounded


def _columns(levels: Levels, keys: Array, vocab_size: int) -> list[Array]:
    """Returns the token ids of n-grams, first to last: a key contains its last token and an index one order below."""
    columns = []
    for m in range(len(levels) - 1, -1, -1):
        indices, last = np.divmod(keys, vocab_size)
        columns.append(last)
        keys = levels[m - 1][0][indices]
    return columns[::-1]


def _log10(values: Array) -> Array:
    tens: Array = np.maximum(np.asarray(values, np.float64) / LN10, NEVER)
    return tens


# Reading


class _Lines:
    """The non-empty lines of a file, with their numbers for error messages."""

    def __init__(self, path: Path, file: Iterator[str]) -> None:
        self.path, self.number = path, 0
        self._file = file

    def next(self) -> str:
        try:
            for line in self._file:
                self.number += 1
                if text := line.strip(" \t\r\n"):
                    return text
        except UnicodeDecodeError:
            self.number += 1
            raise self.error("is not UTF-8 text") from None
        raise self.error("the file ends too early")

    def error(self, what: str, line: int | None = None) -> SeriatimError:
        return SeriatimError(
            "arpa.malformed",
            f"{self.path}, line {self.number if line is None else line}: {what}",
            "create the ARPA file again",
        )


def read(path: str | Path, tokens: Sequence[str] | None, boundary: int | None) -> tuple[Levels, list[str], int | None]:
    """Returns the levels, the names of the ids, and the id that is <s> and </s>."""
    path = Path(path)
    if not path.is_file():
        raise SeriatimError("arpa.missing", f"there is no ARPA file {path}", "check the path")
    with open(path, encoding="utf-8", newline="\n") as file:
        lines = _Lines(path, file)
        sizes = _header(lines)
        rows = _section(lines, 1, sizes)
        first, names, ids = _unigrams(lines, rows, tokens, boundary)
        levels = [first]
        for m in range(2, len(sizes) + 1):
            levels.append(_level(lines, m, sizes, levels, ids, len(names)))
        if lines.next() != "\\end\\":
            raise lines.error(r"expected \end\ after the last n-gram")
    return levels, names, ids.get("</s>")


def _header(lines: _Lines) -> list[int]:
    if lines.next().lstrip("\ufeff") != "\\data\\":
        raise lines.error(r"an ARPA file begins with \data\ ")
    sizes: list[int] = []
    while match := re.fullmatch(r"ngram (\d+) *= *(\d+)", text := lines.next()):
        if int(match[1]) != len(sizes) + 1:
            raise lines.error(f"expected the number of {len(sizes) + 1}-grams")
        sizes.append(int(match[2]))
    if not sizes or text != "\\1-grams:":
        raise lines.error(r"expected `ngram 1=…` and then \1-grams:")
    return sizes


def _section(lines: _Lines, m: int, sizes: list[int]) -> Iterator[tuple[int, float, list[str], float]]:
    """Yields (line number, ln p, tokens, ln back-off) of each n-gram of order m, as many as the header says."""
    if m > 1 and lines.next() != f"\\{m}-grams:":
        raise lines.error(f"expected \\{m}-grams: after {sizes[m - 2]:,} {m - 1}-grams")
    for _ in range(sizes[m - 1]):
        text = lines.next()
        fields = text.replace("\t", " ").split(" ")  # split() would also split at other white space inside a word
        if "" in fields:
            fields = [field for field in fields if field]
        if len(fields) not in (m + 1, m + 2):
            raise lines.error(f"expected log10 p, {m} tokens and optionally a back-off weight, got {text[:60]!r}")
        yield lines.number, _number(lines, fields[0]), fields[1 : m + 1], _number(lines, *fields[m + 1 :])


def _number(lines: _Lines, text: str = "0") -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if math.isnan(value) or value == math.inf:
        raise lines.error(f"{text[:40]!r} is not a number")
    return value * LN10 if value > NEVER else -math.inf


def _unigrams(
    lines: _Lines,
    rows: Iterator[tuple[int, float, list[str], float]],
    tokens: Sequence[str] | None,
    boundary: int | None,
) -> tuple[tuple[Array, Array, Array], list[str], dict[str, int]]:
    """Returns the first level, the names, and the id of every word of the file."""
    unigrams: dict[str, tuple[float, float]] = {}
    for _, log_prob, (word,), back_off in rows:
        if word in unigrams:
            raise lines.error(f"{word!r} occurs twice")
        unigrams[word] = log_prob, back_off
    absent = [word for word in ("<unk>", "</s>") if unigrams.get(word, (-math.inf, 0))[0] == -math.inf]
    words = [word for word in unigrams if word != "<s>" and word not in absent]
    if tokens is None:
        names = [word if word == "</s>" else unescape(word) for word in words]
        ids = {word: i for i, word in enumerate(words)}
    else:
        names = list(tokens)
        ids = {"</s>" if i == boundary or token == "</s>" else escape(token): i for i, token in enumerate(names)}
        if set(ids) != set(words) or len(set(names)) != len(names):
            odd = sorted(set(ids) ^ set(words))[:5]
            raise SeriatimError(
                "arpa.vocabulary",
                f"{lines.path} has other tokens than the vocabulary: {', '.join(odd) or 'a name occurs twice'}",
                "read it with its own vocabulary, or without one",
            )
    log_probs, weights = np.zeros((2, len(names)), np.float32)
    for word in words:
        log_probs[ids[word]], weights[ids[word]] = unigrams[word]
    if "</s>" in ids and "<s>" in unigrams:
        weights[ids["</s>"]] = unigrams["<s>"][1]
    return (np.arange(len(names)), log_probs, weights), names, ids


def _level(
    lines: _Lines, m: int, sizes: list[int], levels: Levels, ids: dict[str, int], vocab_size: int
) -> tuple[Array, Array, Array]:
    """Returns the n-grams of order m as sorted keys; each must continue an n-gram of the order below."""
    starts = {word: i for word, i in ids.items() if word != "</s>"}
    if "</s>" in ids:
        starts["<s>"] = ids["</s>"]
    rows, numbers, log_probs, weights = [], array("q"), array("f"), array("f")
    for number, log_prob, words, weight in _section(lines, m, sizes):
        try:
            # <s> may only be first, </s> only last.
            rows.append([starts[words[0]], *[ids[word] for word in words[1:]]])
        except KeyError as error:
            raise lines.error(f"{error.args[0]!r} is no 1-gram, or is at a wrong position") from None
        if "</s>" in words[:-1]:
            raise lines.error("nothing can follow </s>")
        numbers.append(number)
        log_probs.append(log_prob)
        weights.append(weight)
    grams, line = np.array(rows, np.int64).reshape(-1, m), np.array(numbers)
    indices = grams[:, 0]
    for column, (keys, _, _) in zip(range(1, m - 1), levels[1:], strict=True):
        expected = indices * vocab_size + grams[:, column]
        indices = search(keys, expected)
        missing = np.append(keys, -1)[indices] != expected
        if missing.any():
            raise lines.error("its first tokens are no n-gram of the order below", int(line[missing][0]))
    keys = indices * vocab_size + grams[:, -1]
    order = np.argsort(keys, kind="stable")
    repeated = np.flatnonzero(np.diff(keys[order]) == 0)
    if len(repeated):
        raise lines.error("this n-gram occurs twice", int(line[order[repeated + 1]].min()))
    return keys[order], np.array(log_probs)[order], np.array(weights)[order]
