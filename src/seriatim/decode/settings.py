"""The settings of decoding, without torch: of sampling and beam search, and of encoder–decoders."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Annotated, Literal

from pydantic import Field, model_validator

from ..core.config import Seed, Settings


class GenerationSettings(Settings):
    """Options of sampling and beam search from a language model."""

    max_tokens: int = Field(200, ge=1, le=1_000_000, description="largest number of generated tokens")
    min_tokens: int = Field(0, ge=0, le=1_000_000, description="smallest number of generated tokens")
    temperature: float = Field(
        1.0, ge=0, le=100, description="below 1: safer, above 1: more varied; 0: always the most likely token"
    )
    top_k: int | None = Field(None, ge=1, le=10**9, description="sample from the k most likely tokens only")
    top_p: float | None = Field(
        None, gt=0, le=1, description="sample from the most likely tokens with this total probability"
    )
    repetition_penalty: float = Field(1.0, ge=1, le=100, description="above 1: tokens that occurred become less likely")
    no_repeat_ngram: int = Field(
        0, ge=0, le=1_000, description="size of n-grams that may occur only once; 0: no restriction"
    )
    beams: int = Field(1, ge=1, le=1_024, description="above 1: beam search with this many hypotheses")
    length_penalty: float = Field(
        1.0, ge=0, le=10, description="beam: divides the score by the length to this power; 0: none"
    )
    length_norm: Literal["power", "wu"] = Field(
        "power", description="beam: base of length_penalty: the length, or (5 + length) / 6 (Wu 2016)"
    )
    early_stop: bool = Field(
        False, description="beam: stop once no unfinished hypothesis leads, though a longer one might still win"
    )
    nbest: int = Field(1, ge=1, le=1_024, description="results per prompt")
    seed: Seed = Field(0, description="of sampling: the same seed gives the same text")
    stop: list[Annotated[str, Field(min_length=1)]] = Field(
        default_factory=list, description="strings that end the text"
    )

    @model_validator(mode="after")
    def _consistent(self) -> GenerationSettings:
        if self.min_tokens > self.max_tokens:
            raise ValueError(f"min_tokens {self.min_tokens} is more than max_tokens ({self.max_tokens})")
        if self.beams > 1 and self.nbest > self.beams:
            raise ValueError(f"nbest {self.nbest} needs at least as many beams (there are {self.beams})")
        plain = (None, None, type(self).model_fields["temperature"].default, 1)
        if self.beams > 1 and (self.top_k, self.top_p, self.temperature, self.repetition_penalty) != plain:
            raise ValueError(
                "beam search does not sample: top_k, top_p, temperature and repetition_penalty need beams=1"
            )
        return self

    def divisor(self, length: int) -> float:
        """Returns the divisor of the score of a hypothesis of a length."""
        base = (5 + length) / 6 if self.length_norm == "wu" else max(length, 1)
        return float(base**self.length_penalty)


class BeamSettings(GenerationSettings):
    """Options of encoder–decoders: beam search by default, and a length limit relative to the source."""

    max_tokens: int = Field(512, ge=1, le=1_000_000, description="largest number of tokens of a result")
    max_ratio: float = Field(2.0, ge=0, le=1_000, description="largest number of tokens per source token …")
    max_extra: int = Field(50, ge=1, le=1_000_000, description="… plus this many")
    temperature: float = Field(
        0.0, ge=0, le=100, description="above 0: sample instead of beam search; 1: the model's distribution"
    )
    beams: int = Field(5, ge=1, le=1_024, description="hypotheses of the beam search; 1: always the most likely token")
    length_norm: Literal["power", "wu"] = Field(
        "wu", description="base of length_penalty: the length, or (5 + length) / 6 (Wu 2016)"
    )
    coverage_penalty: float = Field(
        0.0, ge=0, le=100, description="beam: above 0, penalizes unattended parts of the source (Wu 2016; try 0.2)"
    )
    early_stop: bool = Field(
        True, description="beam: stop once no unfinished hypothesis leads, though a longer one might still win"
    )
    nbest: int = Field(1, ge=1, le=1_024, description="results per source")
    prefix: str = Field("", description="text that every result begins with")
    replace_unknown: bool | None = Field(
        None,
        description="word tokenizers: replace an unknown word by the source word with the most attention (default: "
        "if the model has attention); false: never generate unknown words",
    )

    @model_validator(mode="before")
    @classmethod
    def _infer_method(cls, values: object) -> object:
        """A temperature, top_k or top_p selects sampling; `nbest` results need as many beams."""
        if not isinstance(values, Mapping):
            return values
        if any(values.get(name) is not None for name in ("temperature", "top_k", "top_p")):
            return {"beams": 1, "temperature": 1.0} | dict(values)
        nbest = values.get("nbest")
        default = cls.model_fields["beams"].default
        return ({"beams": max(default, nbest)} if isinstance(nbest, int) else {}) | dict(values)

    @model_validator(mode="after")
    def _check_nbest(self) -> BeamSettings:
        if self.nbest > 1 and self.beams == 1 and self.temperature == 0:
            raise ValueError(f"nbest {self.nbest} needs beams, or a temperature to sample with")
        return self

    def limits(self, lengths: Iterable[int], prefix_length: int = 0) -> list[int]:
        """Returns the largest number of tokens for each source length, more than the minimum and the prefix."""
        smallest = max(self.min_tokens, prefix_length + 1)
        return [
            min(self.max_tokens, max(smallest, int(self.max_ratio * length) + self.max_extra)) for length in lengths
        ]
