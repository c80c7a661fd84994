"""From what comes in (texts, numbers or pictures) to what a network reads, learnt from the training part."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from torch import nn

from ..core.errors import SeriatimError
from ..core.files import write_json
from ..core.tensors import without_contents
from ..data import cells
from ..data.picture_files import Form
from ..data.picture_settings import PictureSettings
from ..data.pictures import Pictures
from ..data.sequences import Examples, Parts, Sequences
from ..data.tokenizers import Tokenizer, TokenizerSettings
from ..nn.backbone import BackboneSettings
from ..nn.inputs import NumberInput
from ._picture_coder import form_of, read_pictures, refuse_pictures

WORDS = 20_000  # of a vocabulary that was not asked for
PIECES = (8_000, 30_000)  # the same for pieces of words: from a small text to the paper's
TEXT = 500  # characters of a text for each piece
FILE = "data.json"  # what a run keeps of its data


@dataclass(frozen=True)
class Coder:
    """From inputs as they come to sequences for a network. A run keeps it."""

    kind: str  # text, numbers or pictures
    longest: int  # elements of the longest sequence known; a model with a limited context is made for it
    labels: tuple[str, ...] = ()  # what the outputs mean
    several: bool = False  # an example may have several labels
    features: tuple[str, ...] = ()
    tokenizer: Tokenizer | None = None
    limit: int | None = None  # longer sequences are cut here
    pairs: bool | None = False  # an input is two texts; None: either (a model trained elsewhere does not say)
    columns: dict[str, str] = field(default_factory=dict)  # of the table it was learnt from
    picture: dict[str, Any] | None = None  # the form of pictures

    @property
    def size(self) -> int:
        """Of the vocabulary, or of the vectors."""
        return len(self.features) if self.tokenizer is None else self.tokenizer.size

    @property
    def form(self) -> Form | None:
        """Of the pictures it knows."""
        return None if self.picture is None else Form(**self.picture)

    @property
    def known(self) -> dict[str, Any]:
        """What reading another source is to know of the one it was learnt from."""
        numeric = None if self.picture is not None else self.kind == "numbers"
        return {"numeric_input": numeric, "columns": self.columns, "pairs": self.pairs, "form": self.form}

    def network_input(self, model: BackboneSettings) -> tuple[nn.Module, int]:
        """The first part of a network, and the size of the vectors it gives."""
        if self.form is not None:
            pictures = model.picture_input(self.form.shape)
            return pictures, pictures.width
        if self.kind == "numbers":
            numbers = NumberInput(self.size, model.embedding)
            return numbers, numbers.width
        tokens = model.token_input(self.size, None if self.tokenizer is None else self.tokenizer.sep)
        return tokens, tokens.embedding_dim

    def encode(self, inputs: Any) -> Any:
        """Sequences, or Pictures."""
        if self.form is not None:
            return read_pictures(inputs, self.form)
        if self.tokenizer is not None:
            return self._encode_texts(self.tokenizer, inputs)
        if not isinstance(inputs, Sequences):
            inputs = Sequences.of([self._vectors(one, index) for index, one in enumerate(inputs)], width=self.size)
        if not len(inputs.values):  # nothing but empty sequences: their width says nothing
            inputs = replace(inputs, values=np.zeros((0, self.size), np.float32))
        self._fits(inputs.values)
        if self.limit is None or inputs.lengths.max(initial=0) <= self.limit:
            return inputs
        return Sequences.of([inputs[index][: self.limit] for index in range(len(inputs))], width=self.size)

    def _encode_texts(self, tokenizer: Tokenizer, inputs: Any) -> Sequences:
        texts = [_texts(one, index, self.pairs) for index, one in enumerate(inputs)]
        found = iter(tokenizer.encode_many([text for one in texts for text in one], strict=False))
        rows = (tokenizer.frame(next(found), next(found) if len(one) == 2 else None, self.limit) for one in texts)
        empty = np.array([tokenizer.eos or 0])  # a text without a word still has an end
        return Sequences.of([row if len(row) else empty for row in rows])

    def _vectors(self, one: Any, index: int) -> np.ndarray:
        """Numbers (T,F) from a list of numbers, or of such lists, or from a text like "0.1 0.2 0.3"."""
        block: np.ndarray
        try:
            block = np.asarray(cells.parsed(one) if isinstance(one, str) else one, dtype=np.float32)
        except (TypeError, ValueError):
            block = np.zeros(())
        block = block[:, None] if block.ndim == 1 else block
        if block.ndim != 2 or not np.isfinite(block).all():
            cause = f"input {index + 1} is {cells.shown(one)}, no sequence of numbers"
            raise SeriatimError("predict.input", cause, 'give "0.1 0.2 0.3" or [0.1, 0.2, 0.3]')
        if not len(block):
            return np.zeros((0, self.size), np.float32)
        self._fits(block)
        return block

    def _fits(self, block: np.ndarray) -> None:
        if block.shape[-1] != self.size:
            raise SeriatimError(
                "data.features",
                f"the numbers of a step are {block.shape[-1]}, the model was trained on {self.size}",
                f"give {', '.join(self.features)}",
            )

    def save(self, folder: Path) -> None:
        values = {
            name: getattr(self, name)
            for name in ("kind", "longest", "labels", "several", "features", "limit", "pairs", "columns")
        }
        write_json(folder / FILE, values if self.picture is None else values | {"picture": self.picture})
        if self.tokenizer is not None:
            self.tokenizer.save(folder / "tokenizer.json")

    @classmethod
    def load(cls, folder: Path) -> Coder:
        try:
            values = json.loads((folder / FILE).read_text(encoding="utf-8"))
            kept: dict[str, Any] = {name: tuple(v) if isinstance(v, list) else v for name, v in values.items()}
            coder = cls(**kept)
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise SeriatimError("run.damaged", f"{folder / FILE} is not whole: {error}", "restore the file") from None
        return replace(coder, tokenizer=Tokenizer.load(folder)) if coder.kind == "text" else coder


def learn_coder(
    parts: Parts,
    settings: TokenizerSettings | None,
    limit: int | None,
    notify: Callable[[str], None],
    model: BackboneSettings,
    tokenizer: Tokenizer | None = None,
    pictures: PictureSettings | None = None,
) -> Coder:
    """The coder of some data, learnt from its training part; a tokenizer that is ready is taken as it is.

    What the model cannot take in is cut and told, like what is longer than the limit. `pictures` says how these were
    read.
    """
    inputs = parts.train.inputs
    refuse_pictures(model, inputs, limit)
    if isinstance(inputs, Pictures):
        form = form_of(inputs, pictures or PictureSettings())
        return Coder("pictures", 1, columns=parts.columns, picture=asdict(form))
    if isinstance(inputs, Sequences):
        coder = Coder("numbers", 1, features=parts.features)
    else:
        pairs = isinstance(inputs[0], tuple)
        if tokenizer is None:
            texts = [text for one in inputs for text in one] if pairs else inputs
            tokenizer = learn_tokenizer(texts, settings, model, notify)
        coder = Coder("text", 1, tokenizer=tokenizer, pairs=pairs)
    lengths = np.concatenate([coder.encode(part.inputs).lengths for part in _parts(parts)])
    longest = int(lengths.max())
    limited, declared = context_of(model)
    limit = min((size for size in (limit, declared) if size is not None), default=longest if limited else None)
    if coder.tokenizer is not None:
        coder.tokenizer.frame([], [] if coder.pairs else None, limit)  # refuses a limit that leaves no room
    if limit is not None and longest > limit:
        cut = int((lengths > limit).sum())
        notify(f"{cut:,} sequences are longer than {limit} and lose what stands behind")
        longest = limit
    return replace(coder, longest=longest, limit=limit, columns=parts.columns)


def context_of(model: BackboneSettings) -> tuple[bool, int | None]:
    """Whether a model takes in only so many elements, and how many where the settings say so; where they do not, it
    is made for the longest sequence it is trained on."""
    if model.counts:
        return False, None
    with without_contents():  # whether there is a limit shows when it is made
        limited = model.build(model.input_width(tied=False), 1).context is not None
    return limited, getattr(model, "context", None) if limited else None


def fitting(model: BackboneSettings, texts: Sequence[str]) -> TokenizerSettings | None:
    """The tokenizer that a model wants, where it wants one; the larger the text, the more pieces are worth having."""
    suited = getattr(model, "tokens", {})  # a model that counts may be of its own kind
    if not suited:
        return None
    least, most = PIECES
    size = min(max(sum(map(len, texts)) // TEXT, least), most)
    return TokenizerSettings(**{"size": size, **suited})


def learn_tokenizer(
    texts: Sequence[str], settings: TokenizerSettings | None, model: BackboneSettings, notify: Callable[[str], None]
) -> Tokenizer:
    """The tokenizer that was asked for, that the model wants, or that suits the texts."""
    chosen = settings or fitting(model, texts) or _usual(texts)
    end = "" if chosen.kind == "char" else "\n"  # the last word of a text and the first of the next are two
    learnt = Tokenizer.train(chosen, (text + end for text in texts))
    notify(f"{learnt.kind} tokenizer with {learnt.size:,} tokens, learnt from the training part")
    return learnt


def _usual(texts: Sequence[str]) -> TokenizerSettings:
    """Words where there are several of them in a text, else characters (a protein, a name)."""
    some = texts[:1000]
    spaces = sum(text.strip().count(" ") for text in some)
    if spaces < len(some):
        return TokenizerSettings(kind="char")
    return TokenizerSettings(kind="word", size=WORDS, lowercase=True, min_count=2 if len(texts) >= 1000 else 1)


def _parts(parts: Parts) -> list[Examples]:
    return [part for part in (parts.train, parts.valid, parts.test) if len(part)]


def _texts(one: Any, index: int, pairs: bool | None) -> tuple[str, ...]:
    """The one or two texts of an input; a pair may come as a list, as from JSON."""
    if isinstance(one, str) and not pairs:
        return (one,)
    both = isinstance(one, tuple | list) and len(one) == 2 and all(isinstance(text, str) for text in one)
    if both and pairs is not False:
        return tuple(one)
    single = "a pair of texts, where the model knows single ones" if both else "no text"
    is_not = "no pair of texts" if pairs else single
    remedy = 'give ("a text", "another")' if pairs else 'give "a text"'
    raise SeriatimError("predict.input", f"input {index + 1} is {cells.shown(one)}, {is_not}", remedy)
