"""Tokenizers made elsewhere, read from `tokenizer.json`, `vocab.txt`, or `vocab.json` with `merges.txt`.

A folder's `tokenizer_config.json` may name special tokens and say whether text is lower-cased.
"""

from __future__ import annotations

import contextlib
import json
import math
import re
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from tokenizers import AddedToken, decoders, models, normalizers, pre_tokenizers, processors
from tokenizers import Tokenizer as Backend

from ...core.errors import SeriatimError
from ...core.limits import FILE_BYTES, TEXT_GROWTH, TOKEN_IDS, TOKENIZER_STEPS
from ...core.text import listed
from .training import (
    BERT_SPECIAL_TOKENS,
    BLANK_SEPARATED,
    BYTE_TOKENS,
    EOS,
    SINGLE_WORD,
    SPECIAL_TOKENS,
    UNK,
    WORD_PATTERN,
    bert_backend,
)

PARTS = ("normalizer", "pre_tokenizer", "post_processor", "decoder")
SEQUENCES = ("normalizers", "pretokenizers", "processors", "decoders")
MAX_REASON = 200  # characters
GPT2_END = "<|endoftext|>"
ROBERTA_MASK = "<mask>"
ROBERTA_TOKENS = {"<s>", "</s>", "<pad>", "<unk>", ROBERTA_MASK}
GPT_WORD_END = "</w>"  # after the last piece of a word in the vocabulary of the first GPT
SHOWN_PROBLEMS = 5  # of one file
EOS_ALIASES = (EOS, "<|endoftext|>", "</s>", "[SEP]")  # ends of a text in tokenizers made elsewhere
ALIASES = {  # a token is special only where its tokenizer declares it
    "cls": (BERT_SPECIAL_TOKENS["cls"],),
    "sep": (BERT_SPECIAL_TOKENS["sep"],),
    "mask": (BERT_SPECIAL_TOKENS["mask"], "<mask>"),
    "pad": (BERT_SPECIAL_TOKENS["pad"], "<pad>"),
}

Description = Mapping[str, Any]  # the contents of a tokenizer.json, or a part of them


def read_backend(path: Path) -> Backend:
    """Returns the tokenizer of a folder, or of a file in one of the three formats."""
    readers: dict[str, Callable[[Path], Backend]] = {
        "tokenizer.json": _read_tokenizer_json,
        "vocab.txt": _read_bert_vocab,
        "vocab.json": _read_vocab_and_merges,
        "merges.txt": _read_vocab_and_merges,
    }
    if path.is_file():
        return readers.get(path.name, _read_tokenizer_json)(path)
    cause = f"there is no tokenizer {path}"
    if path.is_dir():
        for name, reader in readers.items():
            if (path / name).is_file():
                return reader(path / name)
        others = [file.name for file in sorted(path.glob("*")) if file.suffix in (".spm", ".model")]
        hint = f" (a SentencePiece file such as {others[0]} is read through its tokenizer.json)" if others else ""
        cause = f"there is no tokenizer in {path}{hint}"
    remedy = "name a tokenizer.json, or a folder with tokenizer.json, with vocab.txt, or with vocab.json and merges.txt"
    raise SeriatimError("tokenizer.missing", cause, remedy)


@contextlib.contextmanager
def package_errors(cause: str, remedy: str, code: str = "tokenizer.unreadable") -> Iterator[None]:
    """Converts errors of the package to SeriatimError: plain exceptions, and panics, which are no `Exception`."""
    try:
        yield
    except (SeriatimError, MemoryError):
        raise
    except BaseException as error:
        if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
            raise
        reason = str(error).strip().partition("\n")[0][:MAX_REASON] or type(error).__name__
        raise SeriatimError(code, f"{cause} ({reason})", remedy) from None


def _read_tokenizer_json(path: Path) -> Backend:
    values = _read_json(path)
    model = values.get("model") if isinstance(values, dict) else None
    vocab = model.get("vocab") if isinstance(model, dict) else None
    ids = [index for index in vocab.values() if type(index) is int] if isinstance(vocab, dict) else []
    TOKEN_IDS.check(1 + max(ids, default=0), str(path))  # the package counts up to the largest
    with package_errors(f"{path} is not a tokenizer.json", "name a file of the tokenizers package"):
        return Backend.from_file(str(path))


def check_description(description: Description, source: str) -> None:
    """Raises SeriatimError unless a tokenizer has tokens, and not too many ids or steps."""
    vocab = description["model"]["vocab"]
    ids = list(vocab.values() if isinstance(vocab, dict) else range(len(vocab)))
    ids += [token["id"] for token in description["added_tokens"]]
    if not ids:
        raise _unreadable(f"{source} has no tokens", "name a trained tokenizer")
    TOKEN_IDS.check(1 + max(ids), source)
    steps = [step for part in PARTS for step in _steps(description[part])]
    TOKENIZER_STEPS.check(len(steps), source)
    TEXT_GROWTH.check(math.prod(map(_growth, steps)), f"{source}: what it replaces makes")


def _steps(part: Any) -> Iterator[Description]:
    """Yields the steps of a part of a tokenizer.json, also of nested sequences."""
    if isinstance(part, dict):
        inner = next((part[key] for key in SEQUENCES if isinstance(part.get(key), list)), None)
        if inner is None or part.get("type") != "Sequence":
            yield part
        for step in inner or ():
            yield from _steps(step)


def _growth(step: Description) -> float:
    """Returns how many times as long a text becomes at most by a step that replaces."""
    if step.get("type") != "Replace":
        return 1
    literal = step["pattern"].get("String")
    return max(len(step["content"]) / len(literal) if literal else 1 + len(step["content"]), 1)


def _read_bert_vocab(path: Path) -> Backend:
    """BERT's `vocab.txt`: one token per line, its id the line number from 0 on."""
    options = _read_options(path.parent)
    special_tokens = {use: _special_token(options, use) or name for use, name in BERT_SPECIAL_TOKENS.items()}
    lines = _read_text(path).removesuffix("\n").split("\n")
    vocab = {line.removesuffix("\r"): number for number, line in enumerate(lines)}
    TOKEN_IDS.check(len(lines), str(path))
    missing = [special_tokens[use] for use in ("unk", "cls", "sep") if special_tokens[use] not in vocab]
    if missing:
        raise _unreadable(f"{path} has no {', no '.join(missing)}", "give BERT's vocabulary, one token per line")
    with package_errors(f"{path} is no vocabulary of BERT", "restore the file"):
        return bert_backend(
            vocab,
            lowercase=bool(options.get("do_lower_case", True)),
            strip_accents=None if (accents := options.get("strip_accents")) is None else bool(accents),
            split_chinese=bool(options.get("tokenize_chinese_chars", True)),
            special_tokens=special_tokens,
        )


def _read_vocab_and_merges(path: Path) -> Backend:
    """BPE of GPT, GPT-2 and RoBERTa: `vocab.json` with the ids, `merges.txt` with one pair per line."""
    vocab = _read_vocab(path.with_name("vocab.json"))
    merges = _read_merges(path.with_name("merges.txt"), vocab)
    with package_errors(f"{path} is no vocabulary of GPT", "restore vocab.json and merges.txt"):
        return _gpt_backend(vocab, merges, _read_options(path.parent))


def _gpt_backend(vocab: dict[str, int], merges: list[tuple[str, str]], options: Description) -> Backend:
    unk = _special_token(options, "unk")
    if any(name.endswith(GPT_WORD_END) for name in vocab):
        unk = UNK if unk is None else unk
        backend = Backend(models.BPE(vocab=vocab, merges=merges, unk_token=unk, end_of_word_suffix=GPT_WORD_END))
        backend.normalizer = normalizers.BertNormalizer(lowercase=True)
        backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
        backend.decoder = decoders.BPEDecoder(suffix=GPT_WORD_END)
        names = [unk]
    else:
        backend = Backend(models.BPE(vocab=vocab, merges=merges))
        backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=bool(options.get("add_prefix_space", False)))
        backend.decoder = decoders.ByteLevel()
        names = [GPT2_END]
    names += [name for use in ("bos", "eos", "unk", "pad") if (name := _special_token(options, use)) is not None]
    if vocab.keys() >= ROBERTA_TOKENS:
        backend.add_special_tokens([AddedToken(ROBERTA_MASK, lstrip=True)])
        backend.post_processor = processors.RobertaProcessing(("</s>", vocab["</s>"]), ("<s>", vocab["<s>"]))
        names += sorted(ROBERTA_TOKENS - {ROBERTA_MASK})
    backend.add_special_tokens([name for name in dict.fromkeys(names) if name in vocab])
    return backend


def _read_vocab(path: Path) -> dict[str, int]:
    vocab = _read_json(path)
    if not isinstance(vocab, dict) or not all(type(index) is int for index in vocab.values()):
        raise _unreadable(f"{path} is not a mapping of tokens to ids", 'give a file such as {"a": 0, "b": 1}')
    if sorted(vocab.values()) != list(range(len(vocab))):
        raise _unreadable(f"{path}: the ids are not 0 to {len(vocab) - 1}, each once", "restore the file")
    return vocab


def _read_merges(path: Path, vocab: Mapping[str, int]) -> list[tuple[str, str]]:
    merges: list[tuple[str, str]] = []
    problems: list[str] = []
    for number, line in enumerate(_read_text(path).split("\n"), 1):
        if not line.strip() or (number == 1 and line.startswith("#version")):
            continue
        pair = line.split()
        if len(pair) != 2:
            problems.append(f"line {number} is not a pair of tokens")
        elif unknown := [token for token in (*pair, "".join(pair)) if token not in vocab]:
            problems.append(f"line {number} has {unknown[0]!r}, which vocab.json lacks")
        else:
            merges.append((pair[0], pair[1]))
    if problems:
        cause = f"{path}: {listed(problems, SHOWN_PROBLEMS, '; ')}"
        raise _unreadable(cause, "give the merges.txt that belongs to the vocab.json")
    return merges


def _read_options(folder: Path) -> dict[str, Any]:
    path = folder / "tokenizer_config.json"
    options = _read_json(path) if path.is_file() else {}
    if not isinstance(options, dict):
        raise _unreadable(f"{path} holds no settings", "restore the file, or remove it")
    return options


def _special_token(options: Description, use: str) -> str | None:
    """Returns the name of a special token, which is stored as a string or with its properties."""
    token = options.get(f"{use}_token")
    token = token.get("content") if isinstance(token, dict) else token
    return token if isinstance(token, str) else None


def _read_json(path: Path) -> object:
    try:
        return json.loads(_read_text(path))
    except (ValueError, RecursionError) as error:
        raise _unreadable(f"{path} is not JSON ({error})", "restore the file") from None


def _read_text(path: Path) -> str:
    try:
        FILE_BYTES.check(path.stat().st_size, str(path))
        return path.read_bytes().decode("utf-8")
    except OSError as error:
        cause = f"{path} cannot be read ({error.strerror})"
        raise SeriatimError("tokenizer.missing", cause, "vocab.json and merges.txt belong together") from None
    except UnicodeDecodeError as error:
        raise _unreadable(f"{path} is not UTF-8 at byte {error.start + 1}", "convert it to UTF-8") from None


def _unreadable(cause: str, remedy: str) -> SeriatimError:
    return SeriatimError("tokenizer.unreadable", cause, remedy)


# The contents of a tokenizer.json


def recognize_kind(description: Description) -> str:
    """Returns the kind of a `tokenizer.json`, wherever it was made; "other" if it is none of ours."""
    model, pre_tokenizer = description["model"], description["pre_tokenizer"] or {}
    if model["type"] == "WordPiece" and pre_tokenizer.get("type") == "BertPreTokenizer":
        normalizer = (description["normalizer"] or {}).get("type")
        return "bert" if normalizer == "BertNormalizer" and model["continuing_subword_prefix"] == "##" else "other"
    if _is_gpt2(description):
        return "byte-bpe"
    if model["vocab"] and not _has_our_special_tokens(model["vocab"]):
        return "other"
    if model["type"] == "BPE" and not pre_tokenizer and not model["merges"]:
        byte_tokens = sum(name in model["vocab"] for name in BYTE_TOKENS)
        return "char" if byte_tokens in (0, len(BYTE_TOKENS)) else "other"
    if model["type"] in ("WordLevel", "WordPiece") and _is_split(pre_tokenizer, WORD_PATTERN, BLANK_SEPARATED):
        return {"WordLevel": "word", "WordPiece": "wordpiece"}[model["type"]]
    steps = pre_tokenizer.get("pretokenizers", [])
    if len(steps) == 2 and _is_split(steps[0], "\n") and model["type"] in ("BPE", "Unigram"):
        if steps[1]["type"] == "ByteLevel":
            return "byte-bpe"
        return "bpe" if model["type"] == "BPE" else "unigram"
    return "other"


def splits_punctuation(description: Description) -> bool:
    """Returns whether a tokenizer separates punctuation from words."""
    pre_tokenizer = description["pre_tokenizer"] or {}
    return pre_tokenizer.get("type") == "BertPreTokenizer" or _is_split(pre_tokenizer, WORD_PATTERN)


def single_word_pattern(description: Description) -> re.Pattern[str] | None:
    """Returns what a word tokenizer made as ours leaves as one unchanged word; None for other tokenizers."""
    line_ends = {"type": "Replace", "pattern": {"String": "\n"}, "content": " <eos> "}
    if description["normalizer"] != {"type": "Sequence", "normalizers": [line_ends]} or description["added_tokens"]:
        return None
    split = description["pre_tokenizer"] if recognize_kind(description) == "word" else {}
    if (split.get("behavior"), split.get("invert")) != ("Removed", True):
        return None
    return SINGLE_WORD[split["pattern"]["Regex"]]


def _has_our_special_tokens(vocab: Mapping[str, int] | list[tuple[str, float]]) -> bool:
    if isinstance(vocab, Mapping):
        return [vocab.get(token) for token in SPECIAL_TOKENS] == [0, 1]
    return [piece for piece, _ in vocab[:2]] == SPECIAL_TOKENS


def _is_gpt2(description: Description) -> bool:
    """Returns whether it is BPE over all bytes as in GPT-2: lines are not split, and an added token ends a text."""
    model, pre_tokenizer = description["model"], description["pre_tokenizer"] or {}
    if model["type"] != "BPE" or description["normalizer"] or pre_tokenizer.get("type") != "ByteLevel":
        return False
    if pre_tokenizer["add_prefix_space"] or not pre_tokenizer.get("use_regex", True) or model["dropout"]:
        return False
    plain = model["vocab"].keys() - {token["content"] for token in description["added_tokens"]}
    alphabet = byte_alphabet()
    return alphabet.keys() <= plain and set("".join(plain)) <= alphabet.keys()


def _is_split(step: Description, *patterns: str) -> bool:
    return step.get("type") == "Split" and step["pattern"].get("Regex") in patterns


@cache
def byte_alphabet() -> dict[str, int]:
    """Returns character → byte of byte-level BPE: printable bytes are themselves, the others from U+0100 on."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    return {chr(byte): byte for byte in printable} | {chr(0x100 + index): byte for index, byte in enumerate(others)}


def special_token_ids(description: Description, kind: str, vocab: Mapping[str, int]) -> dict[str, int | None]:
    """Returns the ids of cls, sep, mask and pad in a `tokenizer.json`; None for those it lacks."""
    added = {token["content"] for token in description["added_tokens"]}
    declared = vocab.keys() if kind == "bert" else vocab.keys() & added
    ids = {use: next((vocab[name] for name in names if name in declared), None) for use, names in ALIASES.items()}
    delimiters = frame_tokens(description)[:2]
    if delimiters and all(name in declared for name in delimiters):
        ids |= {"cls": vocab[delimiters[0]], "sep": vocab[delimiters[1]]}
    return ids


def frame_tokens(description: Description) -> tuple[str, ...]:
    """Returns what the post-processor puts around texts: the token before the first, that after it, and those between
    two; () if it has another form."""
    for step in _steps(description["post_processor"] or {}):
        if step.get("type") in ("BertProcessing", "RobertaProcessing"):
            separators = 2 if step["type"] == "RobertaProcessing" else 1
            return step["cls"][0], *[step["sep"][0]] * (1 + separators)
        single, pair = (step.get(form, []) for form in ("single", "pair"))
        if [next(iter(part)) for part in single] != ["SpecialToken", "Sequence", "SpecialToken"]:
            continue
        tokens = [part.get("SpecialToken", {}).get("id") for part in pair]  # None for a text
        texts = [position for position, token in enumerate(tokens) if token is None]
        between = tokens[texts[0] + 1 : texts[1]] if len(texts) == 2 else []
        return single[0]["SpecialToken"]["id"], single[2]["SpecialToken"]["id"], *between
    return ()
