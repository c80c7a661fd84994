"""Tokenizers: text to numbers and back, around the `tokenizers` package and saved as its `tokenizer.json`.

Id 0 is `<unk>`, id 1 is `<eos>`. `char`, `bpe`, `byte-bpe` and `unigram` keep every character of a text whose
characters they know; `word` and `wordpiece` keep words and line ends (a "\\n" is an `<eos>`) and forget how
many blanks lay between. In `word` and `wordpiece` a literal `<unk>` in the text is the token `<unk>`; in the
others it is five characters like any.

`bert` is BERT's: it begins with [PAD] [UNK] [CLS] [SEP] [MASK] and frames texts, and a literal "[SEP]" is the token
[SEP]. A tokenizer that others made keeps its own ids.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from pydantic import Field, model_validator

from seriatim.core.config import Count, Settings
from seriatim.core.errors import SeriatimError
from seriatim.core.files import atomic_file

from . import blanks, foreign, framing, vocabulary
from .blanks import Parts
from .characters import CharacterTable, check, visible
from .pieces import LIMIT, SPACE, stretches

if TYPE_CHECKING:
    from tokenizers import Tokenizer as Backend

UNK, EOS = "<unk>", "<eos>"
# What other tokenizers call the end of a text; looked for in files that are not ours.
EOS_NAMES = (EOS, "<|endoftext|>", "</s>", "[SEP]")
REMEMBERED = 1 << 18
BY_WORDS = ("word", "wordpiece", "bert")  # kinds that keep words and forget the blanks between them
SPACES = re.compile(f"[{SPACE}]")
Ids = np.ndarray


class TokenizerSettings(Settings):
    kind: Literal["char", "word", "bpe", "byte-bpe", "wordpiece", "unigram", "bert"] = Field(
        "char", description="what a token is: a character, a word, or a part of a word found by one of five methods"
    )
    size: Count = Field(8192, ge=3, description="the largest vocabulary, for every kind but char")
    lowercase: bool = Field(False, description="make all letters small first (bert: without accents, too)")
    fallback: bool = Field(
        False, description="write unseen characters as bytes, so nothing is ever lost; 256 more tokens (char, bpe)"
    )
    min_count: int = Field(1, ge=1, description="leave out what occurs less often in the training text")
    punctuation: bool = Field(
        True, description="split punctuation off words (word, wordpiece); false for text split already, as WikiText is"
    )

    @model_validator(mode="after")
    def _fits(self) -> TokenizerSettings:
        if self.fallback and self.kind not in ("char", "bpe"):
            raise ValueError(f"fallback is for char and bpe; {self.kind} has no use for it")
        bytes_wanted = self.kind == "byte-bpe" or (self.fallback and self.kind == "bpe")
        if bytes_wanted and self.size < 260:
            raise ValueError(f"{self.kind} with all 256 bytes needs a size of at least 260, not {self.size}")
        if self.kind == "bert" and self.size < 7:
            raise ValueError(f"bert with its 5 special tokens needs a size of at least 7, not {self.size}")
        return self


def with_kind(given: Any, **usual: Any) -> Any:
    """Settings as they came in, with the usual ones where no kind is named: who asks for a size alone, as by
    --vocabulary 8000, asks for so many of what a task is used to."""
    return {**usual, **given} if isinstance(given, Mapping) and "kind" not in given else given


class Tokenizer:
    """Encodes and decodes. Made by `train` or `load`."""

    def __init__(self, backend: Backend) -> None:
        self.backend = backend
        backend.no_truncation()  # a file may ask for both, but how long a sequence is depends on the model
        backend.no_padding()
        description = json.loads(backend.to_str())
        self.kind = vocabulary.kind_of(description)
        self._apart = vocabulary.splits_punctuation(description)
        listed = description["model"]["vocab"]  # to ask the package for it again costs more than all else here
        complete = isinstance(listed, dict) and len(listed) == backend.get_vocab_size()
        self._vocab = names = listed if complete else backend.get_vocab()
        self.size = 1 + max(names.values())
        self._names = [""] * self.size
        for name, index in names.items():
            self._names[index] = name
        special = framing.special_ids(description, self.kind, names)
        self.cls, self.sep, self.mask, self.pad = (special[use] for use in ("cls", "sep", "mask", "pad"))
        self.framed = self.cls is not None and self.sep is not None
        ends = (names[name] for name in EOS_NAMES if name in names)
        self.eos = self.sep if self.kind == "bert" else next(ends, None)
        unk = getattr(backend.model, "unk_token", None) or UNK
        self.unk = names.get(unk)
        # A tokenizer that can write every text has <unk> in its list all the same, but never says it.
        self.lossless = self.kind == "byte-bpe" or bool(getattr(backend.model, "byte_fallback", False))
        self._characters = CharacterTable(names) if self.kind == "char" else None
        self._added = {token["id"]: token["content"] for token in description["added_tokens"]}
        # A special token may swallow white space, so that the stretches of a text are not what they are alone.
        wide = any(token["rstrip"] or SPACES.search(token["content"]) for token in description["added_tokens"])
        self._whole = self.kind == "other" or wide
        self._single = vocabulary.single_word(description) if self.unk is not None else None
        self._seen: dict[str, list[int]] = {}
        self._bytes: list[bytes] | None = None

    @classmethod
    def train(cls, settings: TokenizerSettings, texts: Iterable[str], parts: Parts | None = None) -> Tokenizer:
        """Learns the vocabulary from `texts`, read once and never held together; or, where words are all it wants to
        know, from their `parts`."""
        return cls(vocabulary.train(settings, texts, parts))

    @classmethod
    def load(cls, path: str | Path) -> Tokenizer:
        """Of a run folder, of a folder with one of the layouts of `foreign`, or from a file of such a layout."""
        return cls(foreign.read(Path(path)))

    def save(self, path: str | Path) -> None:
        with atomic_file(path) as aside:
            aside.write_text(self.backend.to_str(pretty=True), encoding="utf-8")

    @property
    def names(self) -> list[str]:
        """The tokens themselves, by id, as the vocabulary has them."""
        return list(self._names)

    def to_json(self) -> str:
        """The tokenizer as a text that is the same for equal tokenizers."""
        return json.dumps(json.loads(self.backend.to_str()), sort_keys=True, ensure_ascii=True)

    def encode(self, text: str, strict: bool = True) -> Ids:
        """The ids of a text (int64). What is not in the vocabulary is an error, or `<unk>` where not strict."""
        return self.encode_many([text], strict)[0]

    def encode_many(self, texts: Sequence[str], strict: bool = True) -> list[Ids]:
        """The ids of each text; much faster than one call a text where the texts are short."""
        for text in texts:
            check(text)
        if strict and (unseen := self._unknown(texts)):
            raise self._unseen(unseen)
        if self._characters is not None:
            return self._characters.encode([self._normal(text) for text in texts])
        if self._whole:
            found = self.backend.encode_batch_fast(list(texts), add_special_tokens=False)
            return [np.array(one.ids, dtype=np.int64) for one in found]
        parts = blanks.parts(texts, LIMIT) if self.by_words else None
        return self._encode_stretches(texts) if parts is None else self._encode_parts(parts)

    def encode_parts(self, parts: Parts) -> list[Ids] | None:
        """The ids of texts whose parts are known; None where the parts do not tell them."""
        return self._encode_parts(parts) if self.by_words and not self._whole and parts.longest <= LIMIT else None

    def encode_spans(self, text: str) -> tuple[Ids, np.ndarray]:
        """The ids of a text (n,), and for each where it stands in the text (n,2): from which character to which.

        White space at the edges of a token is left out, but where it is all there is.
        """
        check(text)
        found = self.backend.encode(text, add_special_tokens=False)
        spans = np.array(found.offsets, dtype=np.int64).reshape(-1, 2)
        places = np.arange(len(text) + 1)
        blank = np.fromiter(map(str.isspace, text), bool, len(text))
        following = np.minimum.accumulate(np.where(np.append(blank, False), len(text), places)[::-1])[::-1]
        preceding = np.maximum.accumulate(np.where(np.append(True, blank), 0, places))  # the end of what is not blank
        inside = np.stack([following[spans[:, 0]], preceding[spans[:, 1]]], axis=1)
        return np.array(found.ids, dtype=np.int64), np.where(inside[:, :1] < inside[:, 1:], inside, spans)

    def frame(
        self, ids: Ids | Sequence[int], second: Ids | Sequence[int] | None = None, limit: int | None = None
    ) -> Ids:
        """One text, or two, as a network reads them: [CLS] a [SEP] b [SEP] where there are such tokens, else a <eos> b.

        With a limit the longer one is cut first, and what stands around them is kept.
        """
        if self.cls is not None and self.sep is not None:
            before, between, behind = [self.cls], [self.sep], [self.sep]
        elif second is not None and self.eos is None:
            cause = "the tokenizer has no token to stand between two texts"
            raise SeriatimError("tokenizer.eos", cause, "choose another tokenizer")
        else:
            before, between, behind = [], [] if self.eos is None else [self.eos], []
        others = None if second is None else np.asarray(second, dtype=np.int64)
        return framing.join(np.asarray(ids, dtype=np.int64), others, before, between, behind, limit)

    @cached_property
    def continues(self) -> np.ndarray:
        """For each id whether the token goes on with the word before it (see `framing`)."""
        kept = self.kind in ("bpe", "byte-bpe")
        names = [piece.decode("utf-8", "replace") for piece in self._pieces()] if kept else self._names
        found = framing.continues(self.kind, names)
        found[[*self._added, *(one for one in (self.unk, self.eos) if one is not None)]] = False
        return found

    @property
    def by_words(self) -> bool:
        """Whether it keeps words, and forgets what lies between them."""
        return self.kind in BY_WORDS

    def decode(self, ids: Iterable[int] | Ids) -> str:
        """The text of ids. `<eos>` is a line end in word and wordpiece, and nothing in the others; bert leaves out
        [CLS], [SEP] and [PAD]."""
        ids = self._checked(ids)
        if self.kind == "other":
            return str(self.backend.decode(ids.tolist(), skip_special_tokens=False))
        if self.by_words:
            silent = (self.cls, self.sep, self.pad)
            names = [self._names[i] for i in ids.tolist() if i not in silent]
            return vocabulary.join_words(names, self.kind, self._apart)
        pieces = self._pieces()
        return b"".join([pieces[i] for i in ids.tolist()]).decode("utf-8", "replace")

    def token(self, index: int) -> str:
        """One token in a form fit to be shown: blanks and line ends are made visible."""
        index = int(self._checked([index])[0])
        name = self._names[index]
        if index in (self.eos, self.unk) or index in self._added or self.by_words or self.kind == "other":
            return name
        data = self._pieces()[index]
        try:
            text = data.decode("utf-8")
        except UnicodeDecodeError:
            return "".join(f"<0x{byte:02X}>" for byte in data)
        return "".join(visible(character) for character in text)

    def unknown(self, text: str) -> list[str]:
        """What of `text` is not in the vocabulary, each once, in order: characters, or words for kinds of words."""
        return self._unknown([text])

    def _unknown(self, texts: Sequence[str]) -> list[str]:
        if self.lossless:
            return []
        if self._characters is not None:
            return self._characters.unknown(self._normal("".join(texts)))
        found: dict[str, None] = {}
        for stretch, ids in self._ids_of(stretch for text in texts for stretch in stretches(text)).items():
            if self.unk in ids:
                encoded = self.backend.encode(stretch, add_special_tokens=False)
                spans = zip(encoded.ids, encoded.offsets, strict=True)
                found.update((stretch[a:b], None) for index, (a, b) in spans if index == self.unk)
        found.pop(self._names[self.unk] if self.unk is not None else UNK, None)
        return list(found)

    def _normal(self, text: str) -> str:
        # The package's own normaliser, because Python makes a final sigma small in another way.
        return self.backend.normalizer.normalize_str(text) if self._characters and self.backend.normalizer else text

    def _encode_stretches(self, texts: Sequence[str]) -> list[Ids]:
        parts = [stretches(text) for text in texts]
        known = self._ids_of(stretch for part in parts for stretch in part)
        result = []
        for part in parts:
            ids: list[int] = []
            for stretch in part:
                ids += known[stretch]
            result.append(np.array(ids, dtype=np.int64))
        return result

    def _encode_parts(self, parts: Parts) -> list[Ids]:
        single, number = self._single, self._vocab.get  # to look a word up costs a tenth of encoding it
        known = self._ids_of(part for part in parts.different if single is None or not single.fullmatch(part))
        each = (len(known[part]) if part in known else 1 for part in parts.different)
        lengths = np.fromiter(each, np.int64, len(parts.different))
        ids = (known[part] if part in known else (number(part, self.unk),) for part in parts.different)
        flat = np.fromiter(chain.from_iterable(ids), np.int64, int(lengths.sum()))
        if (lengths == 1).all():  # words with single blanks between them
            return np.split(flat[parts.which], np.cumsum(parts.sizes)[:-1])
        sizes, ends = lengths[parts.which], np.cumsum(lengths)
        stops = np.cumsum(sizes)
        shifts = ends[parts.which] - stops  # from a place in the whole text to one in `flat`
        joined = flat[np.arange(sizes.sum()) + np.repeat(shifts, sizes)]
        return np.split(joined, np.append(0, stops)[np.cumsum(parts.sizes)[:-1]])

    def _ids_of(self, parts: Iterable[str]) -> dict[str, list[int]]:
        """The ids of stretches. Few words make most of a text, so remembering them is ten times as fast."""
        wanted = dict.fromkeys(parts)
        missing = [part for part in wanted if part not in self._seen]
        if len(self._seen) + len(missing) > REMEMBERED:
            self._seen.clear()
            missing = list(wanted)
        encoded = self.backend.encode_batch_fast(missing, add_special_tokens=False)
        self._seen.update((part, one.ids) for part, one in zip(missing, encoded, strict=True))
        return {part: self._seen[part] for part in wanted}

    def _pieces(self) -> list[bytes]:
        if self._bytes is None:
            self._bytes = [
                vocabulary.piece_bytes(self.kind, name) if i not in self._added else name.encode()
                for i, name in enumerate(self._names)
            ]
            if self.eos is not None:
                self._bytes[self.eos] = b""
        return self._bytes

    def _checked(self, ids: Iterable[int] | Ids) -> Ids:
        found = np.asarray(ids if isinstance(ids, np.ndarray | list | tuple) else list(ids))
        found = found.astype(np.int64).reshape(-1)
        if found.size and (found.min() < 0 or found.max() >= self.size):
            bad = int(found.min() if found.min() < 0 else found.max())
            cause = f"there is no token {bad}: the vocabulary has {self.size:,}"
            raise SeriatimError("tokenizer.id", cause, "use the tokenizer the ids were made with")
        return found

    def _unseen(self, unseen: list[str]) -> SeriatimError:
        shown = ", ".join(json.dumps(one, ensure_ascii=False) for one in unseen[:10])
        more = f" and {len(unseen) - 10:,} more" if len(unseen) > 10 else ""
        what = "words" if self.by_words else "characters"
        remedy = {
            "char": "train with tokenizer.fallback=true, which writes unseen characters as bytes",
            "bpe": "train with tokenizer.fallback=true, which writes unseen characters as bytes",
        }.get(self.kind, "use what the training text has, or train with tokenizer.kind=byte-bpe, which knows all")
        return SeriatimError(
            "tokenizer.unknown", f"the tokenizer has not seen these {what} in training: {shown}{more}", remedy
        )

    def __repr__(self) -> str:
        return f"Tokenizer(kind={self.kind!r}, size={self.size})"
