"""What the declarations of several tasks share: vectors of texts, and scores. For inputs, see `inputs.py`."""

from __future__ import annotations

from pydantic import Field as Setting

from ..core.config import Settings
from ..data.kinds import NUMBER, NUMBERS, TEXT, TOKENS
from ..data.schema import Field, Schema
from ..nn.names import TextPooling
from .capability import Capability

# Vectors of texts

TEXTS = Schema((Field("text", (TEXT,), ("sentence", "content", "prompt", "source")),), positions=("text",))


class EmbedOptions(Settings):
    pooling: TextPooling | None = Setting(
        None, description="how the vectors of all elements become one (default: that of a sentence encoder, or mean)"
    )
    normalize: bool | None = Setting(
        None, description="scale vectors to length 1 (default: as a sentence encoder does, or yes)"
    )


class NearestOptions(Settings):
    among: str | list[str] | None = Setting(
        None, description="texts, or a file of texts or vectors, to search (default: the other inputs)"
    )
    top: int = Setting(5, ge=1, le=1_000_000, description="number of neighbors")
    pooling: TextPooling | None = Setting(
        None, description="how the vectors of all elements become one (default: that of a sentence encoder, or mean)"
    )


class WordOptions(Settings):
    word: str = Setting(description="the word to look for, in any case")
    normalize: bool = Setting(True, description="scale vectors to length 1")
    strict: bool = Setting(True, description="whether a text without the word is an error")


EMBED = Capability(
    "embed",
    "Compute a vector for each text.",
    TEXTS,
    {"vector": NUMBERS, "text": TEXT},
    EmbedOptions,
    scalar=True,
    presentation="vectors",
    common=("pooling", "normalize"),
)
NEAREST = Capability(
    "nearest",
    "Find the texts most similar to each input, in a file or among the other inputs.",
    TEXTS,
    {"query": TEXT, "row": NUMBER, "similarity": NUMBER, "text": TEXT},
    NearestOptions,
    per_row=False,
    sources=("among",),
    presentation="neighbors",
    common=("among", "top"),
)
WORDS = Capability(
    "words",
    "Compute the vectors of a word wherever it occurs: in its context, and without it.",
    TEXTS,
    {
        "text": TEXT,
        "start": NUMBER,
        "end": NUMBER,
        "tokens": TOKENS,
        "vector": NUMBERS,
        "static_vector": NUMBERS,
    },
    WordOptions,
    per_row=False,
    presentation="vectors",
    common=("word",),
)
EMBEDDINGS = (EMBED, NEAREST, WORDS)


# Probabilities of a text, as a whole and token by token

SCORE_OUTPUTS = {"log_probability": NUMBER, "tokens": NUMBER, "perplexity": NUMBER, "token_log_probabilities": NUMBERS}
