"""The declaration of the task answer: questions, passages and the spans of the passages that answer them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated

from pydantic import Field as Setting

from ...core.config import Settings
from ...core.errors import Diagnostics
from ...data.kinds import FLAG, KINDS, LABEL, NUMBER, TEXT, Cell, Kind, check_characters
from ...data.schema import Field, Schema
from ...data.settings import TokenizerSettings, default_kind
from ..capability import Capability
from ..shared_spec import EMBEDDINGS
from ..spec import CONTEXT_LENGTH, TaskSpec

if TYPE_CHECKING:
    from ...data.dataset import Dataset


ParsedAnswer = tuple[str, int | None]
MIN_LENGTH = 8  # of a window in which question and passage both have room
ALTERNATIVES = Kind("list of spans", list)


def parse_answers(cell: Cell) -> tuple[ParsedAnswer, ...]:
    """Returns text and start (None if it is not named) of each answer of a cell.

    It holds a text, a list of texts or of {"text", "answer_start"}, or {"text": […], "answer_start": […]}, as objects
    or as JSON; nothing if there is no answer.
    """
    if cell is None or cell == "":
        return ()
    if isinstance(cell, str):
        if cell.lstrip()[:1] not in ("[", "{"):
            return ((cell, None),)
        try:
            cell = json.loads(cell)
        except json.JSONDecodeError:
            return ((cell, None),)
    try:
        if isinstance(cell, dict) and not isinstance(cell.get("text"), str):  # columns, as on the Hugging Face hub
            texts = list(cell["text"])
            starts = list(cell.get("answer_start") or [None] * len(texts))
            cell = [{"text": text, "answer_start": start} for text, start in zip(texts, starts, strict=True)]
        answers: list[ParsedAnswer] = []
        for answer in [cell] if isinstance(cell, dict) else cell:
            text, start = (answer, None) if isinstance(answer, str) else (answer["text"], answer.get("answer_start"))
            if not isinstance(text, str) or not (start is None or type(start) is int):
                raise ValueError("not an answer")
            answers.append((text, start))
        return tuple(answers)
    except (LookupError, AttributeError) as error:
        raise ValueError("not a list of answers") from error


def parse_passage(cell: Cell) -> str:
    """Returns a text exactly as it is, since positions count its characters."""
    if not isinstance(cell, str):
        raise ValueError("not text")
    check_characters(cell)
    return cell


ANSWERS = Kind("list of answers", parse_answers, size=lambda answers: max(len(answers), 1))  # none is not missing
PASSAGE = Kind("passage", parse_passage, size=lambda text: len(text.strip()))
KINDS |= {kind.name: kind for kind in (ANSWERS, PASSAGE)}


def check_questions(dataset: Dataset, diagnostics: Diagnostics) -> None:
    """Reports answers that are not in their passage, and contradictory marks; notes oddities."""
    from .questions import check_answers

    check_answers(dataset, diagnostics)


SCHEMA = Schema(
    (
        Field("context", (PASSAGE, TEXT), ("passage", "paragraph", "text", "document")),
        Field("question", (TEXT,), ("query",)),
        Field("answers", (ANSWERS,), ("answer",), target=True, lists_only=True),
        Field("answer_start", (NUMBER,), required=False, target=True),
        Field("is_impossible", (FLAG,), required=False, target=True),
        Field("id", (LABEL,), required=False),
        Field("title", (LABEL,), ("article",), required=False),
    ),
    constraints=(check_questions,),
)


class AnswerSettings(Settings):
    name: str = Setting("answer", description="the task: see `seriatim list tasks`")
    context_length: Annotated[int, CONTEXT_LENGTH] = Setting(
        384,
        ge=MIN_LENGTH,
        le=1_000_000,
        description="longest window of question and passage; a longer passage is read in windows that overlap",
    )
    stride: int = Setting(128, ge=1, le=1_000_000, description="tokens between the starts of consecutive windows")
    question_length: int = Setting(
        64, ge=1, le=1_000_000, description="longest question in tokens; longer ones are truncated"
    )
    answer_length: int | None = Setting(
        None,
        ge=1,
        le=1_000_000,
        description="longest answer in tokens (default: 30, or more if training answers are longer)",
    )
    unanswerable: bool | None = Setting(
        None, description="questions may have no answer, as in SQuAD 2.0 (default: if the training split has such)"
    )
    threshold: float = Setting(
        0.0,
        ge=-1e9,
        le=1e9,
        description="no answer is predicted if its score is above that of the best span by more than this",
    )
    tokenizer: Annotated[TokenizerSettings | None, default_kind(kind="word", lowercase=True)] = Setting(
        None, description="how text is tokenized (default: words in lower case, characters, or the model's own)"
    )


class AnswerOptions(Settings):
    nbest: int = Setting(1, ge=1, le=1_024, description="the number of answers to a question, best first")
    threshold: float | None = Setting(
        None,
        ge=-1e9,
        le=1e9,
        description="no answer is predicted if its score is above that of the best span by more than this "
        "(default: the run's own, if questions may have no answer)",
    )


ANSWER = Capability(
    "answer",
    "Find the answer to each question in its passage: text, first character, end, and probability.",
    SCHEMA.inputs(),
    {
        "answer": TEXT,
        "start": NUMBER,
        "end": NUMBER,
        "score": NUMBER,
        "probability": NUMBER,
        "answers": ALTERNATIVES,
    },
    AnswerOptions,
    presentation="span",
    common=("nbest", "threshold"),
)
SPEC = TaskSpec(
    "answer",
    "Answer questions by a span of a passage",
    SCHEMA,
    AnswerSettings,
    (ANSWER, *EMBEDDINGS),
    default_model="gru",
    default_model_reason="a bidirectional GRU is fast on a CPU; good answers need a pretrained BERT (--from)",
)
