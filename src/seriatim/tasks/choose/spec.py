"""The declaration of the task choose: the columns of multiple choice in their usual layouts.

COPA            premise, question ("cause" or "effect"), choice1, choice2, label
SWAG            sent1, sent2, ending0 … ending3, label: a choice is sent2 with an ending
lists           question, choices (a list of texts, its JSON, or {"text": […]}), label
"""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

from pydantic import Field as Setting

from ...core.config import Settings
from ...core.errors import Diagnostics
from ...core.text import plural
from ...data.kinds import KINDS, LABEL, NUMBER, NUMBERS, TEXT, TOKENS, Cell, Kind, check_characters
from ...data.schema import Field, Schema
from ...data.settings import TokenizerSettings, default_kind
from ...nn.names import Pooling
from ..capability import Capability
from ..shared_spec import EMBEDDINGS
from ..spec import CONTEXT_LENGTH, POOLING, TaskSpec

if TYPE_CHECKING:
    from ...data.dataset import Dataset


MIN_CHOICES = 2
OUTPUTS = {"answer": TEXT, "choice": LABEL, "probability": NUMBER, "probabilities": NUMBERS}


def parse_choices(cell: Cell) -> tuple[str, ...]:
    """Returns the texts of a cell: one text, a list of texts, its JSON, or {"text": […]} as in CommonsenseQA."""
    if isinstance(cell, str) and cell.lstrip()[:1] in ("[", "{"):
        try:
            parsed = json.loads(cell)
        except ValueError:
            parsed = cell
        cell = parsed if isinstance(parsed, list | dict) else cell
    if isinstance(cell, dict):
        cell = cell.get("text")
    if hasattr(cell, "tolist"):  # an array
        cell = cell.tolist()
    texts = (cell,) if isinstance(cell, str) else tuple(cell if isinstance(cell, list | tuple) else (None,))
    if not all(isinstance(text, str) for text in texts):
        raise ValueError("not a list of texts")
    for text in texts:
        check_characters(text)
    return tuple(text.strip() for text in texts)


CHOICES = Kind("list of choices", parse_choices, size=lambda texts: sum(map(len, texts)))
KINDS[CHOICES.name] = CHOICES

CONTEXT = Field(
    "context",
    (TEXT,),
    ("premise", "sent1", "ctx", "startphrase", "passage", "article", "sentence", "goal", "question_stem", "question"),
)
QUESTION = Field("question", (TEXT,), required=False)
STEM = Field("stem", (TEXT,), ("sent2",), required=False)  # with which every choice begins
CHOICE_FIELD = Field(
    "choices",
    (CHOICES, TOKENS),
    ("options", "endings", "alternatives"),
    max_columns=None,
    alias_pattern=r"(choice|option|ending|alternative|sol|solution|answer)[ _]?([0-9]|[a-h])",
    lists_only=True,
)
LABEL_FIELD = Field("label", (LABEL,), ("answer", "answerKey", "correct", "gold", "target", "y"), target=True)


def choice_rows(dataset: Dataset) -> list[tuple[str, ...]]:
    """Returns the choices of each row, from one column of lists or several columns; without empty ones at the end."""
    rows = []
    for cells in zip(*(column.values for column in dataset.columns["choices"]), strict=True):
        choices = [text for cell in cells for text in cell]
        while choices and not choices[-1]:
            choices.pop()
        rows.append(tuple(choices))
    return rows


def check_choices(dataset: Dataset, diagnostics: Diagnostics) -> None:
    """Reports the rows with fewer than two choices, and those with an empty one before another."""
    if "choices" not in dataset:
        return
    for row, choices in enumerate(choice_rows(dataset)):
        if len(choices) < MIN_CHOICES or not all(choices):
            few = f"{plural(len(choices), 'choice')}, at least {MIN_CHOICES} are needed"
            problem = "an empty choice" if len(choices) >= MIN_CHOICES else few
            diagnostics.report("data.choices", f"{dataset.locations[row]}: {problem}", "correct or remove the row")


SCHEMA = Schema((CONTEXT, QUESTION, STEM, CHOICE_FIELD, LABEL_FIELD), constraints=(check_choices,))
INPUTS = replace(  # the choices may also be an option, the same for all questions
    SCHEMA.inputs(),
    fields=(CONTEXT, QUESTION, STEM, replace(CHOICE_FIELD, required=False)),
    positions=("context", "choices"),
)


class ChooseSettings(Settings):
    name: str = Setting("choose", description="the task: see `seriatim list tasks`")
    context_length: Annotated[int | None, CONTEXT_LENGTH] = Setting(
        None, ge=1, le=1_000_000, description="longest question with a choice; of longer ones the longer is truncated"
    )
    pooling: Annotated[Pooling, POOLING] = Setting(
        "mean", description="how the outputs of all elements become one vector (default of causal models: last)"
    )
    tokenizer: Annotated[TokenizerSettings | None, default_kind(kind="word", lowercase=True)] = Setting(
        None, description="how text is tokenized (default: lowercase words, or characters of texts without words)"
    )


class ChoiceOptions(Settings):
    choices: list[str] = Setting(default=[], description="the choices of all questions; repeat the option for each")
    probabilities: bool = Setting(False, description="return the probability of each choice")


ANSWER = Capability(
    "answer",
    "Choose the answer to each question among its choices, or among those of --choices.",
    INPUTS,
    OUTPUTS,
    ChoiceOptions,
    presentation="label",
    common=("choices", "probabilities"),
)
SPEC = TaskSpec(
    "choose",
    "Choose the answer to a question among several: multiple choice, as in COPA, SWAG and RACE",
    SCHEMA,
    ChooseSettings,
    (ANSWER, *EMBEDDINGS),
    default_model="gru",
    default_model_reason="a GRU is fast on a CPU; good choices need a pretrained BERT or GPT (--from)",
)
