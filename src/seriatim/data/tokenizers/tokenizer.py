"""Tokenizer: text to token ids and back, around the `tokenizers` package and saved as its `tokenizer.json`.

Id 0 is `<unk>`, id 1 is `<eos>`. `char`, `bpe`, `byte-bpe` and `unigram` preserve every character of a text whose
characters they know; `word` and `wordpiece` preserve words and line ends ("\\n" is `<eos>`), but not how many blanks
lie between words. In `word` and `wordpiece` a literal `<unk>` in a text is the token `<unk>`; in the others it is five
characters like any.

`bert` is BERT's: ids begin with [PAD] [UNK] [CLS] [SEP] [MASK], and a literal "[SEP]" is the token [SEP]. A tokenizer
made elsewhere has its own ids.
"""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Iterable, Sequence
from functools import cached_property
from itertools import chain
from pathlib import Path

import numpy as np
from tokenizers import Encoding
from tokenizers import Tokenizer as Backend

from ...core.errors import SeriatimError
from ...core.files import atomic_file
from ...core.text import listed
from ..settings import TokenizerSettings
from .external import (
    EOS_ALIASES,
    GPT_WORD_END,
    byte_alphabet,
    check_description,
    frame_tokens,
    package_errors,
    read_backend,
    recognize_kind,
    single_word_pattern,
    special_token_ids,
    splits_punctuation,
)
from .segments import SEGMENT_LIMIT, SPACE, CharacterTable, DistinctWords, byte_token, distinct_words, split_segments
from .training import SPECIAL_TOKENS, UNK, train_backend

CACHE_SIZE = 1 << 18  # segments whose ids are cached
VISIBLE = {" ": "␣", "\n": "↵", "\t": "⇥", "\r": "␍"}  # how white space is shown
WORD_KINDS = ("word", "wordpiece", "bert")  # kinds that drop the white space between words


class Tokenizer:
    """Encodes and decodes text; created by `train` or `load`.

    Attributes:
        kind: As in `TokenizerSettings`; "other" for a tokenizer made elsewhere that is none of these.
        vocab_size: The number of ids.
        unk, eos, cls, sep, mask, pad: Ids of special tokens; None for those the tokenizer lacks.
        has_cls_sep: Whether `frame` puts a text between [CLS] and [SEP].
        separators: The number of [SEP] between two texts: 1, or 2 as in RoBERTa.
        frames_texts: Whether its file puts a text between [CLS] and [SEP].
        lossless: Whether every text can be encoded without `<unk>`.
        drops_whitespace: Whether it preserves words, but not the white space between them.
        backend: The tokenizer of the `tokenizers` package.
    """

    def __init__(self, backend: Backend, source: str = "the tokenizer") -> None:
        self.backend = backend
        backend.no_truncation()  # a file may enable both, but the length of a sequence depends on the model
        backend.no_padding()
        with package_errors(f"{source} cannot be used", "use another tokenizer"):
            description = json.loads(backend.to_str())
        check_description(description, source)
        self.kind = recognize_kind(description)
        self.drops_whitespace = self.kind in WORD_KINDS
        self._splits_punctuation = splits_punctuation(description)
        listed = description["model"]["vocab"]  # `get_vocab` is slower than everything else here
        complete = isinstance(listed, dict) and len(listed) == backend.get_vocab_size()
        self._vocab: dict[str, int] = listed if complete else backend.get_vocab()
        self.vocab_size = 1 + max(self._vocab.values())
        self._names = [""] * self.vocab_size
        for name, index in self._vocab.items():
            self._names[index] = name
        special = special_token_ids(description, self.kind, self._vocab)
        self.cls, self.sep, self.mask, self.pad = (special[use] for use in ("cls", "sep", "mask", "pad"))
        self.has_cls_sep = self.cls is not None and self.sep is not None
        first, *around = frame_tokens(description) or (None,)
        self.separators = 2 if len(around) == 3 and len(set(around)) == 1 else 1
        self.frames_texts = first is not None and self._vocab.get(first) == self.cls is not None
        ends = (self._vocab[name] for name in EOS_ALIASES if name in self._vocab)
        self.eos = self.sep if self.kind == "bert" else next(ends, None)
        self.unk = self._vocab.get(getattr(backend.model, "unk_token", None) or UNK)
        # A lossless tokenizer may have <unk> in its vocabulary all the same, but never emits it.
        self.lossless = self.kind == "byte-bpe" or bool(getattr(backend.model, "byte_fallback", False))
        self._characters = CharacterTable(self._vocab) if self.kind == "char" else None
        added = description["added_tokens"]
        self._added = {token["id"] for token in added}
        # An added token may contain or absorb white space; then segments do not have the tokens of the whole text.
        spaced = any(token["rstrip"] or re.search(f"[{SPACE}]", token["content"]) for token in added)
        self._has_segments = self.kind != "other" and not spaced
        self._single_word = single_word_pattern(description) if self.unk is not None else None
        self._cache: dict[str, list[int]] = {}

    @classmethod
    def train(cls, settings: TokenizerSettings, texts: Iterable[str]) -> Tokenizer:
        """Returns a tokenizer trained on texts; they are read once, joined in order, and never all in memory."""
        return cls(train_backend(settings, texts))

    @classmethod
    def load(cls, path: str | Path) -> Tokenizer:
        """Returns the tokenizer of a run folder, of a folder in one of the layouts of `external`, or of such a file."""
        return cls(read_backend(Path(path)), str(path))

    def save(self, path: str | Path) -> None:
        """Writes `tokenizer.json`."""
        with atomic_file(path) as aside:
            aside.write_text(self.backend.to_str(pretty=True), encoding="utf-8")

    def to_json(self) -> str:
        """Returns the tokenizer as JSON that is the same for equal tokenizers."""
        return json.dumps(json.loads(self.backend.to_str()), sort_keys=True, ensure_ascii=True)

    @property
    def names(self) -> list[str]:
        """The tokens by id, as the vocabulary writes them."""
        return list(self._names)

    @cached_property
    def continues_word(self) -> np.ndarray:
        """For each id (vocab_size,) whether the token continues the word of the token before it."""
        from_bytes = self.kind in ("bpe", "byte-bpe")
        texts = [data.decode("utf-8", "replace") for data in self._token_bytes] if from_bytes else self._names
        flags = continues_word(self.kind, texts)
        flags[[*self._added, *(index for index in (self.unk, self.eos) if index is not None)]] = False
        return flags

    @cached_property
    def pieces(self) -> list[bytes]:
        """The bytes that each token adds to a text, none for `<eos>`.

        If white space is dropped, a token that begins a word begins with a blank, and `<eos>` is a blank and a line
        end.
        """
        if self.drops_whitespace:
            names = ("\n" if index == self.eos else name for index, name in enumerate(self._names))
            subwords = self.kind in ("wordpiece", "bert")
            return [(name[2:] if subwords and name.startswith("##") else f" {name}").encode() for name in names]
        if self.kind != "other":
            return self._token_bytes
        blank = GPT_WORD_END if self._ends_words else "▁"
        return [
            bytes([int(name[3:5], 16)])
            if re.fullmatch("<0x[0-9A-F]{2}>", name)
            else name.replace(blank, " ").encode() * (index != self.eos)
            for index, name in enumerate(self._names)
        ]

    @cached_property
    def _ends_words(self) -> bool:
        """Whether the last token of a word has the blank after it, as in the first GPT."""
        return self.kind == "other" and any(name.endswith(GPT_WORD_END) for name in self._names)

    def split_last_word(self, text: str) -> tuple[str, str]:
        """Returns a text without the last part whose tokens may change if it goes on, and that part.

        That is nothing for characters. If white space is dropped it is the last word, nothing after white space; for
        subwords it is the white space before the last word, too.
        """
        if self.kind == "char":
            return text, ""
        if not self.drops_whitespace:
            segments = split_segments(text)
            last = segments[-1] if segments else ""
            last = last.lstrip(" ") if self._ends_words else last
        elif text[-1:].isspace():
            last = ""
        else:
            encoding = self.encoding(text)
            word = encoding.word_ids[-1] if encoding.ids else None
            span = None if word is None else encoding.word_to_chars(word)
            last = "" if span is None else text[span[0] :]
        return text[: len(text) - len(last)], last

    def encode(self, text: str, strict: bool = True) -> np.ndarray:
        """Returns the ids of a text (n,), int64.

        Args:
            text: The text.
            strict: Whether what is not in the vocabulary is an error; else it is `<unk>`.
        """
        return self.encode_many([text], strict)[0]

    def encode_many(self, texts: Sequence[str], strict: bool = True) -> list[np.ndarray]:
        """Returns the ids of each text; much faster than one call per text."""
        for text in texts:
            _check_text(text)
        if strict and (unknown := self._find_unknown(texts)):
            raise self._unknown_error(unknown)
        if self._characters is not None:
            return self._characters.encode([self.normalize(text) for text in texts])
        if not self._has_segments:
            with self._errors():
                encoded = self.backend.encode_batch_fast(list(texts), add_special_tokens=False)
            return [np.array(encoding.ids, dtype=np.int64) for encoding in encoded]
        if self.drops_whitespace and (distinct := distinct_words(texts, SEGMENT_LIMIT)) is not None:
            return self._encode_words(distinct)
        segments = [split_segments(text) for text in texts]
        ids = self._segment_ids(chain.from_iterable(segments))
        return [np.array([*chain.from_iterable(ids[segment] for segment in row)], np.int64) for row in segments]

    def encode_spans(self, text: str) -> tuple[np.ndarray, np.ndarray]:
        """Returns the ids of a text (n,) and the span of each in it (n,2), first and last + 1 character.

        Spans exclude white space at the edges of a token, unless the token has nothing else.
        """
        encoding = self.encoding(text)
        spans = np.array(encoding.offsets, dtype=np.int64).reshape(-1, 2).clip(0, len(text))  # bytes may have more
        positions = np.arange(len(text) + 1)
        blank = np.fromiter(map(str.isspace, text), bool, len(text))
        next_solid = np.minimum.accumulate(np.where(np.append(blank, False), len(text), positions)[::-1])[::-1]
        solid_end = np.maximum.accumulate(np.where(np.append(True, blank), 0, positions))
        inside = np.stack([next_solid[spans[:, 0]], solid_end[spans[:, 1]]], axis=1)
        return np.array(encoding.ids, dtype=np.int64), np.where(inside[:, :1] < inside[:, 1:], inside, spans)

    def encoding(self, text: str) -> Encoding:
        """Returns the encoding of a text by the package: ids, spans of characters, words."""
        _check_text(text)
        with self._errors():
            return self.backend.encode(text, add_special_tokens=False)

    def _errors(self) -> contextlib.AbstractContextManager[None]:
        """Raises SeriatimError for what the package raises, such as a word that a tokenizer without `<unk>` lacks."""
        return package_errors("the tokenizer cannot encode or decode this", "use another tokenizer", "tokenizer.failed")

    def frame(
        self,
        ids: np.ndarray | Sequence[int],
        second: np.ndarray | Sequence[int] | None = None,
        limit: int | None = None,
    ) -> np.ndarray:
        """Returns one text or two as a network reads them: [CLS] a [SEP] b [SEP] if the tokenizer has these tokens (of
        RoBERTa <s> a </s></s> b </s>), else a `<eos>` b. With a limit, the longer text is truncated first; special
        tokens stay."""
        if self.cls is not None and self.sep is not None:
            before, between, after = [self.cls], [self.sep] * self.separators, [self.sep]
        elif second is not None and self.eos is None:
            cause = "the tokenizer has no token to separate two texts"
            raise SeriatimError("tokenizer.eos", cause, "choose another tokenizer")
        else:
            before, between, after = [], [] if self.eos is None else [self.eos], []
        other = None if second is None else np.asarray(second, dtype=np.int64)
        return join_texts(np.asarray(ids, dtype=np.int64), other, before, between, after, limit)

    def decode(self, ids: Iterable[int] | np.ndarray) -> str:
        """Returns the text of ids. `<eos>` is a line end in word and wordpiece, nothing in other kinds; bert omits
        [CLS], [SEP] and [PAD]."""
        ids = self._check_ids(ids)
        if self.kind == "other":
            with self._errors():
                return str(self.backend.decode(ids.tolist(), skip_special_tokens=False))
        if self.drops_whitespace:
            silent = (self.cls, self.sep, self.pad)
            return self.join_words([self._names[index] for index in ids.tolist() if index not in silent])
        token_bytes = self._token_bytes
        return b"".join([token_bytes[index] for index in ids.tolist()]).decode("utf-8", "replace")

    def token(self, index: int) -> str:
        """Returns a token in printable form: white space is made visible, other signs as <U+2028>.

        There are no backslashes in it, which a table of predictions would escape once more.
        """
        index = int(self._check_ids([index])[0])
        if index in (self.eos, self.unk) or index in self._added or self.drops_whitespace or self.kind == "other":
            return self._names[index]
        data = self._token_bytes[index]
        try:
            text = data.decode("utf-8")
        except UnicodeDecodeError:
            return "".join(map(byte_token, data))
        return "".join(VISIBLE.get(x) or (x if x.isprintable() else f"<U+{ord(x):04X}>") for x in text)

    def piece(self, index: int) -> str:
        """Returns what a token stands for within a text, with the blank before it if that belongs to it; the pieces of
        a word after the first one begin with ## where the vocabulary marks them so."""
        if self.kind == "other":
            return self._names[index].replace("▁", " ")
        if index in (self.eos, self.unk) or index in self._added or self.drops_whitespace:
            return self._names[index]
        return self._token_bytes[index].decode("utf-8", "replace")

    def unknown(self, text: str) -> list[str]:
        """Returns what of a text is not in the vocabulary, each once, in order: characters, or words for word kinds."""
        return self._find_unknown([text])

    def _find_unknown(self, texts: Sequence[str]) -> list[str]:
        if self.lossless:
            return []
        if self._characters is not None:
            return self._characters.unknown(self.normalize("".join(texts)))
        unknown: dict[str, None] = {}
        for segment, ids in self._segment_ids(chain.from_iterable(map(split_segments, texts))).items():
            if self.unk in ids:
                encoding = self.encoding(segment)
                spans = zip(encoding.ids, encoding.offsets, strict=True)
                unknown.update((segment[start:end], None) for index, (start, end) in spans if index == self.unk)
        unknown.pop(self._names[self.unk] if self.unk is not None else UNK, None)
        return list(unknown)

    def normalize(self, text: str) -> str:
        """Returns the text that is tokenized, in lower case if the settings say so."""
        # The package's own normalizer: Python lower-cases a final sigma in another way.
        with self._errors():
            return self.backend.normalizer.normalize_str(text) if self.backend.normalizer else text

    def _encode_words(self, distinct: DistinctWords) -> list[np.ndarray]:
        is_word, words = self._single_word, distinct.words  # to look a word up costs a tenth of encoding it
        encoded = self._segment_ids(word for word in words if is_word is None or not is_word.fullmatch(word))
        ids = [encoded[word] if word in encoded else (self._vocab.get(word, self.unk),) for word in words]
        lengths = np.fromiter(map(len, ids), np.int64, len(ids))
        flat = np.fromiter(chain.from_iterable(ids), np.int64, int(lengths.sum()))  # ids of all distinct words
        ends = np.cumsum(distinct.lengths)[:-1]
        if (lengths == 1).all():
            return np.split(flat[distinct.indices], ends)
        sizes = lengths[distinct.indices]
        stops = np.cumsum(sizes)
        shifts = np.cumsum(lengths)[distinct.indices] - stops  # from a position in the result to one in `flat`
        joined = flat[np.arange(sizes.sum()) + np.repeat(shifts, sizes)]
        return np.split(joined, np.append(0, stops)[ends])

    def _segment_ids(self, segments: Iterable[str]) -> dict[str, list[int]]:
        """Returns the ids of distinct segments, from a cache: few segments make up most of a text."""
        distinct = dict.fromkeys(segments)
        missing = [segment for segment in distinct if segment not in self._cache]
        if len(self._cache) + len(missing) > CACHE_SIZE:
            self._cache.clear()
            missing = list(distinct)
        with self._errors():
            encoded = self.backend.encode_batch_fast(missing, add_special_tokens=False)
        self._cache.update((segment, encoding.ids) for segment, encoding in zip(missing, encoded, strict=True))
        return {segment: self._cache[segment] for segment in distinct}

    @cached_property
    def _token_bytes(self) -> list[bytes]:
        """The bytes each token of a kind that preserves characters stands for; none for `<eos>`."""
        alphabet = byte_alphabet()

        def stands_for(index: int, name: str) -> bytes:
            if index == self.eos:
                return b""
            if index in self._added or name in SPECIAL_TOKENS:
                return name.encode()
            if self.kind == "byte-bpe" and alphabet.keys() >= set(name):
                return bytes(alphabet[character] for character in name)
            if self.kind in ("char", "bpe") and re.fullmatch("<0x[0-9A-F]{2}>", name):
                return bytes([int(name[3:5], 16)])
            return name.encode()

        return [stands_for(index, name) for index, name in enumerate(self._names)]

    def join_words(self, words: list[str]) -> str:
        """Returns words with blanks between them and "\\n" for `<eos>`; punctuation is attached as English has it."""
        text = " ".join(words)
        if self.kind in ("wordpiece", "bert"):
            text = text.replace(" ##", "").removeprefix("##")
        if self.kind == "bert":
            text = re.sub(r"(?<=\w) ([’']) (?=(?:s|t|m|d|re|ve|ll)\b)", r"\1", text, flags=re.IGNORECASE)
        text = re.sub(r" ?<eos> ?", "\n", text)
        if not self._splits_punctuation:
            return text
        text = re.sub(r" ([,.;:!?%)\]}’”»…])", r"\1", text)
        return re.sub(r"([(\[{“«¿¡]) ", r"\1", text)

    def _check_ids(self, ids: Iterable[int] | np.ndarray) -> np.ndarray:
        array = np.asarray(ids if isinstance(ids, np.ndarray | list | tuple) else list(ids))
        array = array.astype(np.int64).reshape(-1)
        if array.size and (array.min() < 0 or array.max() >= self.vocab_size):
            wrong = int(array.min() if array.min() < 0 else array.max())
            cause = f"there is no token {wrong}: the vocabulary has {self.vocab_size:,}"
            raise SeriatimError("tokenizer.id", cause, "use the tokenizer that made the ids")
        return array

    def _unknown_error(self, unknown: list[str]) -> SeriatimError:
        shown = listed([json.dumps(text, ensure_ascii=False) for text in unknown])
        what = "words" if self.drops_whitespace else "characters"
        remedy = "use words of the training text, or train with tokenizer.kind=byte-bpe, which encodes every text"
        if self.kind in ("char", "bpe"):
            remedy = "train with task.tokenizer.byte_fallback=true, which encodes unknown characters as bytes"
        cause = f"these {what} are not in the tokenizer's vocabulary: {shown}"
        return SeriatimError("tokenizer.unknown", cause, remedy)

    def __repr__(self) -> str:
        return f"Tokenizer(kind={self.kind!r}, vocab_size={self.vocab_size})"


def _check_text(text: str) -> None:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        cause = f"character {error.start + 1} of the text is half a surrogate pair, which is not a character"
        raise SeriatimError("tokenizer.text", cause, "check the encoding the text was read with") from None


def join_texts(
    first: np.ndarray,
    second: np.ndarray | None,
    before: Sequence[int],
    between: Sequence[int],
    after: Sequence[int],
    limit: int | None,
) -> np.ndarray:
    """Returns one text or two with special tokens around them, truncated to a total of `limit` tokens."""
    around = len(before) + len(after) + (0 if second is None else len(between))
    if limit is not None:
        if limit < around:
            texts = "a text" if second is None else "two texts"
            cause = f"{limit} tokens have no room for the {around} special tokens around {texts}"
            raise SeriatimError("tokenizer.limit", cause, "allow longer sequences: --context-length")
        lengths = truncated_lengths(len(first), 0 if second is None else len(second), limit - around)
        first, second = first[: lengths[0]], None if second is None else second[: lengths[1]]
    parts = [before, first, after] if second is None else [before, first, between, second, after]
    return np.concatenate([np.asarray(part, dtype=np.int64) for part in parts])


def truncated_lengths(first: int, second: int, room: int) -> tuple[int, int]:
    """Returns the lengths of two texts within `room`: the longer one is truncated until both are equal, then both."""
    if first > second:
        return truncated_lengths(second, first, room)[::-1]
    if first + second <= room:
        return first, second
    if room - first >= first:
        return first, room - first
    return room // 2, room - room // 2


def continues_word(kind: str, texts: Sequence[str]) -> np.ndarray:
    """Returns for each token, by the text it stands for, whether it continues the word of the token before it.

    Where blanks belong to tokens, what begins with a letter or digit (or within one) continues: without a blank, it
    begins a word only after a line end or punctuation. If a text does not show it, no token continues.
    """
    if kind in ("wordpiece", "bert"):
        return np.array([text.startswith("##") and len(text) > 2 for text in texts], dtype=bool)
    if kind in ("bpe", "byte-bpe", "unigram") or (kind == "other" and any(text.startswith("▁") for text in texts)):
        return np.array([text[:1].isalnum() or text[:1] == "\ufffd" for text in texts], dtype=bool)
    return np.zeros(len(texts), dtype=bool)
