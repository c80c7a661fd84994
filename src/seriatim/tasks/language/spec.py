"""The declaration of the task language."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field as Setting
from pydantic import model_validator

from ...core.config import Settings
from ...data.kinds import FLAG, NUMBER, TEXT
from ...data.schema import Field, Schema
from ...data.settings import TokenizerSettings
from ...decode.settings import GenerationSettings
from ..capability import Capability
from ..choose.spec import INPUTS, OUTPUTS, ChoiceOptions
from ..shared_spec import EMBEDDINGS, SCORE_OUTPUTS
from ..spec import CONTEXT_LENGTH, TaskSpec

TEXT_ALIASES = ("block", "content", "document", "sentence", "sentences", "body", "article")
TEXT_SCHEMA = Schema((Field("text", (TEXT,), TEXT_ALIASES),), text_unit="block")
PROMPT = Schema((Field("text", (TEXT,), ("prompt",)),), positions=("text",))


class LanguageSettings(Settings):
    """Settings of the task language."""

    name: str = Setting("language", description="the task: see `seriatim list tasks`")
    context_length: Annotated[int, CONTEXT_LENGTH] = Setting(
        128,
        ge=1,
        le=1_000_000,
        description="tokens of a training sequence (by default 64 for words and sub-words in less than 10 minutes)",
    )
    line_start: bool = Setting(
        True, description="read a text as what follows a line end; false: as it is, as `transformers` does"
    )
    last_word: bool = Setting(
        False, description="also report the perplexity of the last word of each line, given the rest of it (LAMBADA)"
    )
    tokenizer: TokenizerSettings = Setting(TokenizerSettings(), description="how text is tokenized")

    @model_validator(mode="after")
    def _check_last_word(self) -> Self:
        if self.last_word and self.tokenizer.kind != "word":
            raise ValueError(f"last_word is for tokens that are words, not for tokenizer.kind={self.tokenizer.kind}")
        return self


# Options

INT8 = Setting(False, description="with int8 weights: faster, nearly the same results")


class GenerateOptions(GenerationSettings):
    int8: bool = INT8


class NextOptions(Settings):
    top: int = Setting(
        10, ge=1, le=1_000_000, description="number of words or tokens; the search drops what is less probable"
    )
    unit: Literal["word", "token"] = Setting("word", description="what is predicted: whole words, or a token")
    words: int = Setting(1, ge=1, le=100, description="number of words of each completion")
    beams: int = Setting(32, ge=1, le=4_096, description="largest number of hypotheses of the search; see also top")

    @model_validator(mode="after")
    def _check_unit(self) -> NextOptions:
        if self.unit == "token" and self.words > 1:
            raise ValueError(f"words {self.words} is for unit=word")
        return self


class ScoreOptions(Settings):
    int8: bool = INT8


class LikelihoodOptions(ChoiceOptions):
    normalize: Literal["none", "tokens", "characters"] = Setting(
        "none", description="divide the log-probability of a choice by its length, so that short ones have no advantage"
    )


GENERATE = Capability(
    "generate",
    "Continue each prompt, by sampling or beam search.",
    PROMPT,
    {"text": TEXT, "log_probability": NUMBER, "tokens": NUMBER, "finished": FLAG},
    GenerateOptions,
    scalar=True,
    streams=True,
    presentation="text",
    common=("max_tokens", "temperature", "top_k"),
)
NEXT = Capability(
    "next",
    "List the likeliest next words of each prompt or, unless a space ends it, completions of its last word.",
    PROMPT,
    {"text": TEXT, "completion": TEXT, "probability": NUMBER, "unaccounted": NUMBER},
    NextOptions,
    per_row=False,
    presentation="candidates",
    common=("top", "unit", "words"),
)
SCORE = Capability(
    "score",
    "Compute the log-probability of each text and of each of its tokens, and its perplexity.",
    PROMPT,
    SCORE_OUTPUTS,
    ScoreOptions,
    presentation="tokens",
)
ANSWER = Capability(
    "answer",
    "Choose the answer to each question among its choices: the likeliest continuation of the question.",
    INPUTS,
    OUTPUTS,
    LikelihoodOptions,
    presentation="label",
    common=("choices", "normalize", "probabilities"),
)
SPEC = TaskSpec(
    "language",
    "Language models: next-token prediction over characters, words or sub-words, by networks and n-grams",
    TEXT_SCHEMA,
    LanguageSettings,
    (GENERATE, NEXT, SCORE, ANSWER, *EMBEDDINGS),
    default_model="lstm",
    default_model_reason="an LSTM reads any length, generates in constant time per token and trains on a CPU",
    compared_models=("ngram", "mlp", "rnn", "lstm", "gru", "tcn", "gpt"),
    fitted_models=("ngram",),
)
