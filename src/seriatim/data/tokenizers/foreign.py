"""Tokenizers that others made, in a file or a folder: `tokenizer.json`, or `vocab.txt`, or `vocab.json` with
`merges.txt`. What a folder's `tokenizer_config.json` says about small letters and special tokens is heeded."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from seriatim.core.errors import SeriatimError

from . import wordpiece

if TYPE_CHECKING:
    from tokenizers import Tokenizer as Backend

END = "<|endoftext|>"
WORD_END = "</w>"  # behind the last piece of a word in the vocabulary of the first GPT
SHOWN = 5  # problems of a file that are told one by one


def read(path: Path) -> Backend:
    """The tokenizer of a folder, or of a file of one of the three forms."""
    readers: dict[str, Callable[[Path], Backend]] = {
        "tokenizer.json": _description,
        "vocab.txt": _wordpiece,
        "vocab.json": _pairs,
        "merges.txt": _pairs,
    }
    if path.is_file():
        return readers.get(path.name, _description)(path)
    if path.is_dir():
        for name, reader in readers.items():
            if (path / name).is_file():
                return reader(path / name)
    others = [one.name for one in sorted(path.glob("*")) if one.suffix in (".spm", ".model")] if path.is_dir() else []
    there = f" (a SentencePiece file such as {others[0]} is read through its tokenizer.json)" if others else ""
    raise SeriatimError(
        "tokenizer.missing",
        f"there is no tokenizer in {path}{there}" if path.is_dir() else f"there is no tokenizer {path}",
        "name a tokenizer.json, or a folder with tokenizer.json, with vocab.txt, or with vocab.json and merges.txt",
    )


def _description(path: Path) -> Backend:
    from tokenizers import Tokenizer as Backend

    try:
        return Backend.from_file(str(path))
    except Exception as error:  # the package raises nothing narrower
        raise _unreadable(
            f"{path} is not a tokenizer.json ({error})", "name a file of the tokenizers package"
        ) from None


def _wordpiece(path: Path) -> Backend:
    """BERT's `vocab.txt`: a token a line, its id the number of the line from 0 on."""
    options = _options(path.parent)
    specials = {use: _name(options, use) or name for use, name in wordpiece.SPECIALS.items()}
    lines = _text(path).removesuffix("\n").split("\n")
    vocab = {line.removesuffix("\r"): number for number, line in enumerate(lines)}
    missing = [specials[use] for use in ("unk", "cls", "sep") if specials[use] not in vocab]
    if missing:
        raise _unreadable(f"{path} has no {', no '.join(missing)}", "give BERT's vocabulary, a token on each line")
    return wordpiece.assemble(
        vocab,
        lowercase=bool(options.get("do_lower_case", True)),
        accents=options.get("strip_accents"),
        chinese=bool(options.get("tokenize_chinese_chars", True)),
        specials=specials,
    )


def _pairs(path: Path) -> Backend:
    """BPE as the first and the second GPT have it: `vocab.json` with the ids, `merges.txt` with a pair on each line."""
    from tokenizers import Tokenizer as Backend
    from tokenizers import decoders, models, normalizers, pre_tokenizers

    vocab = _vocab(path.with_name("vocab.json"))
    merges = _merges(path.with_name("merges.txt"), vocab)
    options = _options(path.parent)
    unk = _name(options, "unk")
    if any(name.endswith(WORD_END) for name in vocab):
        unk = "<unk>" if unk is None else unk
        backend = Backend(models.BPE(vocab=vocab, merges=merges, unk_token=unk, end_of_word_suffix=WORD_END))
        backend.normalizer = normalizers.BertNormalizer(lowercase=True)
        backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
        backend.decoder = decoders.BPEDecoder(suffix=WORD_END)
        names = [unk]
    else:
        backend = Backend(models.BPE(vocab=vocab, merges=merges))
        spaced = bool(options.get("add_prefix_space", False))
        backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=spaced)
        backend.decoder = decoders.ByteLevel()
        names = [END]
    names += [name for use in ("bos", "eos", "unk", "pad") if (name := _name(options, use)) is not None]
    backend.add_special_tokens([name for name in dict.fromkeys(names) if name in vocab])
    return backend


def _vocab(path: Path) -> dict[str, int]:
    found = _json(path)
    if not isinstance(found, dict) or not all(type(one) is int for one in found.values()):
        raise _unreadable(f"{path} is no list of tokens with their ids", 'give a file such as {"a": 0, "b": 1}')
    if sorted(found.values()) != list(range(len(found))):
        raise _unreadable(f"{path}: the ids are not 0 to {len(found) - 1}, each once", "restore the file")
    return found


def _merges(path: Path, vocab: Mapping[str, int]) -> list[tuple[str, str]]:
    merges: list[tuple[str, str]] = []
    problems: list[str] = []
    for number, line in enumerate(_text(path).split("\n"), 1):
        if not line.strip() or (number == 1 and line.startswith("#version")):
            continue
        parts = line.split()
        if len(parts) != 2:
            problems.append(f"line {number} is no pair of tokens")
        elif unknown := [one for one in (*parts, "".join(parts)) if one not in vocab]:
            problems.append(f"line {number} has {unknown[0]!r}, which vocab.json lacks")
        else:
            merges.append((parts[0], parts[1]))
    if problems:
        more = f"; and {len(problems) - SHOWN:,} more" if len(problems) > SHOWN else ""
        cause = f"{path}: {'; '.join(problems[:SHOWN])}{more}"
        raise _unreadable(cause, "give the merges.txt that belongs to the vocab.json")
    return merges


def _options(folder: Path) -> dict[str, Any]:
    path = folder / "tokenizer_config.json"
    found = _json(path) if path.is_file() else {}
    if not isinstance(found, dict):
        raise _unreadable(f"{path} holds no settings", "restore the file, or remove it")
    return found


def _name(options: Mapping[str, Any], use: str) -> str | None:
    """The name of a special token, which is written as it is or with its properties."""
    found = options.get(f"{use}_token")
    found = found.get("content") if isinstance(found, dict) else found
    return found if isinstance(found, str) else None


def _json(path: Path) -> Any:
    try:
        return json.loads(_text(path))
    except ValueError as error:
        raise _unreadable(f"{path} is no JSON ({error})", "restore the file") from None


def _text(path: Path) -> str:
    try:
        return path.read_bytes().decode("utf-8")
    except OSError as error:
        raise SeriatimError(
            "tokenizer.missing", f"{path} cannot be read ({error.strerror})", "vocab.json and merges.txt go together"
        ) from None
    except UnicodeDecodeError as error:
        raise _unreadable(f"{path} is not UTF-8 at byte {error.start + 1}", "write it anew as UTF-8") from None


def _unreadable(cause: str, remedy: str) -> SeriatimError:
    return SeriatimError("tokenizer.unreadable", cause, remedy)
