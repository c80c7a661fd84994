"""How each kind of tokenizer learns its vocabulary and is put together, and what its pieces stand for."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from functools import cache, partial
from itertools import count
from typing import TYPE_CHECKING, Any

from . import characters, wordpiece
from .blanks import Parts
from .learning import count_words, learn
from .pieces import SPACE

if TYPE_CHECKING:
    from tokenizers import Tokenizer as Backend

    from .tokenizer import TokenizerSettings

SPECIALS = ["<unk>", "<eos>"]
BYTES = [characters.byte_name(byte) for byte in range(256)]

# A word keeps an apostrophe inside it ("don't"); any other punctuation is a token of its own.
WORDS = r"<unk>|<eos>|\w+(?:['’]\w+)*|[^\w\s]"
BLANK_SEPARATED = r"\S+"
# What both ways leave as one word, whatever stands around it; a literal "<unk>" begins with a sign that is left out.
SINGLE = {WORDS: re.compile("[A-Za-z0-9_]+"), BLANK_SEPARATED: re.compile(f"[^<{SPACE}]+")}
# Letters, digits and signs apart, each with the blank before it; no piece goes from other characters to white space.
PARTS = r" ?[\p{L}\p{M}]+| ?\p{N}+| ?[^\s\p{L}\p{M}\p{N}]+|\s+(?!\S)|\s"


def train(settings: TokenizerSettings, texts: Iterable[str], parts: Parts | None = None) -> Backend:
    makers: dict[str, Callable[[TokenizerSettings, Iterable[str]], Backend]] = {
        "char": _char,
        "word": partial(_word, parts=parts),
        "bpe": _bpe,
        "byte-bpe": _bpe,
        "wordpiece": _wordpiece,
        "unigram": _unigram,
        "bert": wordpiece.train,
    }
    return makers[settings.kind](settings, texts)


def kind_of(description: dict[str, Any]) -> str:
    """Which of our kinds a `tokenizer.json` is, wherever it was made; "other" where it is none of them."""
    model, before = description["model"], description["pre_tokenizer"] or {}
    if model["type"] == "WordPiece" and before.get("type") == "BertPreTokenizer":
        normal = (description["normalizer"] or {}).get("type")
        return "bert" if normal == "BertNormalizer" and model["continuing_subword_prefix"] == "##" else "other"
    if _is_gpt2(description):
        return "byte-bpe"
    if model["vocab"] and not _numbered(model["vocab"]):
        return "other"
    inner = before.get("pretokenizers", [])
    if model["type"] == "BPE" and not before and not model["merges"]:
        return "char"
    if model["type"] in ("WordLevel", "WordPiece") and _is_split(before, WORDS, BLANK_SEPARATED):
        return {"WordLevel": "word", "WordPiece": "wordpiece"}[model["type"]]
    if len(inner) == 2 and _is_split(inner[0], "\n") and model["type"] in ("BPE", "Unigram"):
        if inner[1]["type"] == "ByteLevel":
            return "byte-bpe"
        return "bpe" if model["type"] == "BPE" else "unigram"
    return "other"


def piece_bytes(kind: str, name: str) -> bytes:
    """The bytes that a token of a character-keeping kind stands for."""
    if name in SPECIALS:
        return name.encode()
    if kind == "byte-bpe":
        alphabet = _byte_alphabet()
        return bytes(alphabet[character] for character in name)
    if kind in ("char", "bpe") and re.fullmatch("<0x[0-9A-F]{2}>", name):
        return bytes([int(name[3:5], 16)])
    return name.encode("utf-8")


def join_words(names: list[str], kind: str, apart: bool) -> str:
    """Words with blanks between them; `<eos>` ends a line.

    Where punctuation was split off (`apart`) it is put back as English and its neighbours write it.
    """
    text = " ".join(names)
    if kind in ("wordpiece", "bert"):
        text = text.replace(" ##", "").removeprefix("##")
    if kind == "bert":
        text = re.sub(r"(?<=\w) ([’']) (?=(?:s|t|m|d|re|ve|ll)\b)", r"\1", text, flags=re.IGNORECASE)
    text = re.sub(r" ?<eos> ?", "\n", text)
    if not apart:
        return text
    text = re.sub(r" ([,.;:!?%)\]}’”»…])", r"\1", text)
    return re.sub(r"([(\[{“«¿¡]) ", r"\1", text)


def splits_punctuation(description: dict[str, Any]) -> bool:
    before = description["pre_tokenizer"] or {}
    return before.get("type") == "BertPreTokenizer" or _is_split(before, WORDS)


def single_word(description: dict[str, Any]) -> re.Pattern[str] | None:
    """What a tokenizer of words, put together as ours are, has as one word that it does not change; else None."""
    ends = {"type": "Replace", "pattern": {"String": "\n"}, "content": " <eos> "}
    if description["normalizer"] != {"type": "Sequence", "normalizers": [ends]} or description["added_tokens"]:
        return None
    split = description["pre_tokenizer"] if kind_of(description) == "word" else {}
    if (split.get("behavior"), split.get("invert")) != ("Removed", True):
        return None
    return SINGLE[split["pattern"]["Regex"]]


def _char(settings: TokenizerSettings, texts: Iterable[str]) -> Backend:
    """Character by character: BPE without merges, which is the model of the package that can fall back to bytes."""
    from tokenizers import Tokenizer as Backend
    from tokenizers import decoders, models

    normalizer = _normalizer(settings)
    counts = characters.count(normalizer.normalize_str(text) if normalizer else text for text in texts)
    kept = [character for character, number in counts.items() if number >= settings.min_count]
    vocab = _numbers(SPECIALS + (BYTES if settings.fallback else []) + kept)
    backend = Backend(models.BPE(vocab=vocab, merges=[], unk_token="<unk>", byte_fallback=settings.fallback))
    if normalizer:
        backend.normalizer = normalizer
    backend.decoder = decoders.Sequence([decoders.ByteFallback(), decoders.Fuse()])
    return backend


def _word(settings: TokenizerSettings, texts: Iterable[str], parts: Parts | None = None) -> Backend:
    from tokenizers import Tokenizer as Backend
    from tokenizers import decoders, models

    splitter = _words_apart(Backend(models.WordLevel(unk_token="<unk>")), settings, lines=False)
    single = None if settings.lowercase else SINGLE[WORDS if settings.punctuation else BLANK_SEPARATED]
    counts = count_words(splitter, texts, single, parts)
    often = sorted(word for word, number in counts.items() if number >= settings.min_count and word not in SPECIALS)
    words = sorted(often, key=counts.__getitem__, reverse=True)  # words that come equally often stay as they are
    vocab = _numbers(SPECIALS + words[: settings.size - len(SPECIALS)])
    backend = _words_apart(Backend(models.WordLevel(vocab=vocab, unk_token="<unk>")), settings)
    backend.decoder = decoders.WordPiece(prefix="##", cleanup=True)
    return backend


def _wordpiece(settings: TokenizerSettings, texts: Iterable[str]) -> Backend:
    from tokenizers import Tokenizer as Backend
    from tokenizers import decoders, models, trainers

    learner = _words_apart(Backend(models.WordPiece(unk_token="<unk>")), settings, lines=False)
    trainer = trainers.WordPieceTrainer(
        vocab_size=settings.size,
        min_frequency=settings.min_count,
        special_tokens=SPECIALS,
        # Each letter comes twice, as a beginning and as a continuation.
        limit_alphabet=max(1, (settings.size - len(SPECIALS)) // 2),
        show_progress=False,
    )
    learn(learner, trainer, texts)
    backend = _words_apart(Backend(models.WordPiece(vocab=learner.get_vocab(), unk_token="<unk>")), settings)
    backend.decoder = decoders.WordPiece(prefix="##", cleanup=True)
    return backend


def _bpe(settings: TokenizerSettings, texts: Iterable[str]) -> Backend:
    import json

    from tokenizers import Tokenizer as Backend
    from tokenizers import decoders, models, pre_tokenizers, trainers

    by_bytes = settings.kind == "byte-bpe"
    specials = SPECIALS + (BYTES if settings.fallback else [])
    trainer = trainers.BpeTrainer(
        vocab_size=settings.size,
        min_frequency=settings.min_count,
        special_tokens=specials,
        limit_alphabet=max(1, settings.size - len(specials)),
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()) if by_bytes else [],
        show_progress=False,
    )
    learner = _parts_apart(Backend(models.BPE()), settings)
    learn(learner, trainer, texts)
    model = json.loads(learner.to_str())["model"]
    # Rebuilt without the trainer's added tokens, which would turn a literal "<eos>" in a text into the special one.
    backend = Backend(
        models.BPE(
            vocab=model["vocab"],
            merges=[tuple(pair) for pair in model["merges"]],
            unk_token="<unk>",
            byte_fallback=settings.fallback,
        )
    )
    fused = decoders.Sequence([decoders.ByteFallback(), decoders.Fuse()])
    backend.decoder = decoders.ByteLevel() if by_bytes else fused
    return _parts_apart(backend, settings)


def _unigram(settings: TokenizerSettings, texts: Iterable[str]) -> Backend:
    import json

    from tokenizers import Tokenizer as Backend
    from tokenizers import decoders, models, trainers

    trainer = trainers.UnigramTrainer(
        vocab_size=settings.size, special_tokens=SPECIALS, unk_token="<unk>", show_progress=False
    )
    learner = _parts_apart(Backend(models.Unigram()), settings)
    learn(learner, trainer, texts)
    model = json.loads(learner.to_str())["model"]
    # The package reads long numbers back a little differently than it wrote them; short ones exactly.
    backend = Backend(models.Unigram([(piece, round(score, 8)) for piece, score in model["vocab"]], unk_id=0))
    backend.decoder = decoders.Fuse()
    return _parts_apart(backend, settings)


def _words_apart(backend: Backend, settings: TokenizerSettings, lines: bool = True) -> Backend:
    """Splits words; `lines=False` while learning, when line ends and literal specials are no words to learn from."""
    from tokenizers import Regex, normalizers, pre_tokenizers

    steps: list[Any] = [normalizers.Lowercase()] if settings.lowercase else []
    steps.append(normalizers.Replace("\n", " <eos> " if lines else " "))
    backend.normalizer = normalizers.Sequence(steps)
    pattern = WORDS if settings.punctuation else BLANK_SEPARATED
    split = pre_tokenizers.Split(Regex(pattern), "removed", invert=True)
    if lines:
        backend.pre_tokenizer = split
    else:
        gone = pre_tokenizers.Split(Regex("<unk>|<eos>"), "removed")
        backend.pre_tokenizer = pre_tokenizers.Sequence([gone, split])
    return backend


def _parts_apart(backend: Backend, settings: TokenizerSettings) -> Backend:
    from tokenizers import Regex, pre_tokenizers

    normalizer = _normalizer(settings)
    if normalizer:
        backend.normalizer = normalizer
    by_bytes = settings.kind == "byte-bpe"
    parts = pre_tokenizers.ByteLevel(add_prefix_space=False) if by_bytes else None
    # Lines first, so that no token goes over a line end.
    steps = [
        pre_tokenizers.Split(Regex("\n"), "merged_with_previous"),
        parts or pre_tokenizers.Split(Regex(PARTS), "isolated"),
    ]
    backend.pre_tokenizer = pre_tokenizers.Sequence(steps)
    return backend


def _normalizer(settings: TokenizerSettings) -> Any:
    from tokenizers import normalizers

    return normalizers.Lowercase() if settings.lowercase else None


def _numbers(names: Iterable[str]) -> dict[str, int]:
    return dict(zip(names, count()))


def _numbered(vocab: Any) -> bool:
    """Whether `<unk>` and `<eos>` come first, as in every tokenizer made here."""
    if isinstance(vocab, dict):
        return vocab.get("<unk>") == 0 and vocab.get("<eos>") == 1
    return [piece for piece, _ in vocab[:2]] == SPECIALS


def _is_gpt2(description: dict[str, Any]) -> bool:
    """BPE over all bytes as GPT-2 has it: lines are not apart, and the end of a text is an added token."""
    model, before, alphabet = description["model"], description["pre_tokenizer"] or {}, _byte_alphabet()
    if model["type"] != "BPE" or description["normalizer"] or before.get("type") != "ByteLevel":
        return False
    if before["add_prefix_space"] or not before.get("use_regex", True) or model["dropout"]:
        return False
    added = {token["content"] for token in description["added_tokens"]}
    plain = model["vocab"].keys() - added
    return alphabet.keys() <= plain and set("".join(plain)) <= alphabet.keys()


def _is_split(step: dict[str, Any], *patterns: str) -> bool:
    return step.get("type") == "Split" and step["pattern"].get("Regex") in patterns


@cache
def _byte_alphabet() -> dict[str, int]:
    """Byte-level BPE shows each byte as a character: the printable ones as themselves, the others from U+0100 on."""
    shown = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    hidden = [byte for byte in range(256) if byte not in shown]
    table = {chr(byte): byte for byte in shown}
    return table | {chr(0x100 + index): byte for index, byte in enumerate(hidden)}
