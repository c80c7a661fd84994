"""The declaration of the task tag: sentences with a tag per word."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field as Setting

from ...core.config import Settings, Short
from ...core.errors import Diagnostics
from ...data.kinds import KINDS, NUMBERS, TEXT, TOKENS, Cell, Kind, check_characters
from ...data.schema import Field, Schema
from ...data.settings import TokenizerSettings, default_kind
from ..capability import Capability
from ..shared_spec import EMBEDDINGS
from ..spec import CONTEXT_LENGTH, TaskSpec

if TYPE_CHECKING:
    from ...data.dataset import Dataset


WORD_TOKENIZER = {"kind": "word", "lowercase": True, "vocab_size": 30_000}  # if none is configured
NO_TAG = "_"  # CoNLL-U's mark of an empty cell
ENTITIES = Kind("list of entities", list)


def parse_words(cell: Cell) -> tuple[str, ...]:
    """Returns a list of words or numbers as strings."""
    if isinstance(cell, (str, dict)) or not all(type(word) in (str, int) for word in cell):
        raise ValueError("not a list of words")
    words = tuple(map(str, cell))
    check_characters("".join(words))
    return words


def parse_sentence(cell: Cell) -> str | tuple[str, ...]:
    """Returns a text, or a list of words."""
    if not isinstance(cell, str):
        return parse_words(cell)
    check_characters(cell)
    return cell


SENTENCE = Kind("sentence", parse_sentence, size=lambda cell: len(cell.strip() if isinstance(cell, str) else cell))
TAGS = Kind("list of tags", parse_words, size=len)
KINDS |= {kind.name: kind for kind in (SENTENCE, TAGS)}


def check_sentences(dataset: Dataset, diagnostics: Diagnostics) -> None:
    """Reports sentences with another number of tags than of words, and empty words or tags."""
    if "tags" not in dataset:
        return
    for sentence, tags, location in zip(dataset["tokens"], dataset["tags"], dataset.locations, strict=True):
        words = sentence.split() if isinstance(sentence, str) else sentence
        if len(words) != len(tags):
            diagnostics.report("data.tags", f"{location}: {len(words)} words and {len(tags)} tags", "tag every word")
            continue
        for index, (word, tag) in enumerate(zip(words, tags, strict=True)):
            if not word or not tag:
                cause = f"{location.element(index)}: the {'tag' if word else 'word'} is empty"
                diagnostics.report("data.columns", cause, "correct the line")
    if len(dataset) and all(tag == NO_TAG for tags in dataset["tags"] for tag in tags):
        column = dataset.columns["tags"][0].name
        cause = f'{dataset.name}: column "{column}" holds no tags, only {NO_TAG}'
        diagnostics.report("data.no-tags", cause, "name another: data.columns.tags=NAME")


SCHEMA = Schema(
    (
        Field("tokens", (SENTENCE, TOKENS, TEXT), ("words", "form", "sentence", "text")),
        Field("tags", (TOKENS, TAGS), ("labels", "upos", "ner_tags", "pos_tags"), target=True),
    ),
    constraints=(check_sentences,),
)


class TagSettings(Settings):
    name: str = Setting("tag", description="the task: see `seriatim list tasks`")
    scheme: Literal["auto", "none", "bio", "iob1", "iobes", "bilou"] = Setting(
        "auto", description="how the tags mark entities: recognized, or named, or none for tags of single words"
    )
    character_features: int | None = Setting(
        None, ge=0, le=4096, description="features of the characters of a word; 0: none (default: 64 for words, else 0)"
    )
    crf: Annotated[bool, Short("predict the tags of a sentence together, by a conditional random field")] = Setting(
        False, description="predict the tags of a sentence together: scores of transitions, Viterbi decoding (CRF)"
    )
    calibrate: bool = Setting(
        True, description="choose the score of O that has the best F1 of entities on the validation split"
    )
    word_dropout: float = Setting(
        0.1,
        ge=0,
        lt=1,
        description="share of words replaced by the unknown word in training; not with BERT's tokenizer",
    )
    context_length: Annotated[int | None, CONTEXT_LENGTH] = Setting(
        None, ge=2, le=1_000_000, description="longest sequence; a longer one is read in windows that overlap"
    )
    tokenizer: Annotated[TokenizerSettings | None, default_kind(**WORD_TOKENIZER)] = Setting(
        None, description="sub-words instead of words, such as bpe (default: words in lower case, or the model's own)"
    )


TAG = Capability(
    "tag",
    "Predict the tag of each word, and the entities that the tags mark.",
    SCHEMA.inputs(),
    {"tags": TOKENS, "words": TOKENS, "confidence": NUMBERS, "entities": ENTITIES},
    presentation="tags",
)
SPEC = TaskSpec(
    "tag",
    "Tag every word of a sentence: parts of speech, named entities, any symbol for each step",
    SCHEMA,
    TagSettings,
    (TAG, *EMBEDDINGS),
    default_model="lstm",
    default_model_reason="a bidirectional LSTM with character features tags well after minutes on a CPU",
)
