"""How to turn probabilities into text: every option of decoding, with its one default."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from ..core.config import Settings


class DecodeSettings(Settings):
    max_tokens: int = Field(200, ge=1, le=1_000_000, description="tokens to generate at most")
    min_tokens: int = Field(0, ge=0, le=1_000_000, description="tokens before the end may come")
    temperature: float = Field(1.0, ge=0, le=100, description="below 1: safer, above: bolder; 0: always the likeliest")
    top_k: int | None = Field(None, ge=1, description="draw from the k likeliest tokens only")
    top_p: float | None = Field(None, gt=0, le=1, description="draw from the likeliest tokens that make up this share")
    repetition_penalty: float = Field(1.0, ge=1, le=100, description="above 1: what occurred becomes less likely")
    no_repeat_ngram: int = Field(0, ge=0, le=1_000, description="never the same so many tokens in a row twice; 0: may")
    beams: int = Field(1, ge=1, le=1_024, description="above 1: beam search with so many hypotheses")
    length_penalty: float = Field(1.0, ge=0, le=10, description="beam: score / length to this power; 0: none")
    length_norm: Literal["power", "wu"] = Field(
        "power", description="beam: what length_penalty is the power of: the length, or (5 + length) / 6 (Wu 2016)"
    )
    early_stop: bool = Field(
        False, description="beam: end once no unfinished hypothesis is ahead, though a longer one might yet win"
    )
    nbest: int = Field(1, ge=1, le=1_024, description="answers for each prompt")
    seed: int = Field(0, description="of the draws: the same seed gives the same text")
    stop: list[Annotated[str, Field(min_length=1)]] = Field(
        default_factory=list, description="end where one of these strings appears"
    )

    @model_validator(mode="after")
    def _consistent(self) -> DecodeSettings:
        if self.min_tokens > self.max_tokens:
            raise ValueError(f"min_tokens {self.min_tokens} is more than max_tokens ({self.max_tokens})")
        if self.beams > 1 and self.nbest > self.beams:
            raise ValueError(f"nbest {self.nbest} needs at least as many beams (there are {self.beams})")
        plain = (None, None, type(self).model_fields["temperature"].default, 1)
        if self.beams > 1 and (self.top_k, self.top_p, self.temperature, self.repetition_penalty) != plain:
            raise ValueError("beam search draws nothing: with beams no top_k, top_p, temperature or repetition_penalty")
        return self

    def divisor(self, length: int) -> float:
        """What the score of a hypothesis of some length is divided by before it is compared with others."""
        base = (5 + length) / 6 if self.length_norm == "wu" else max(length, 1)
        return float(base**self.length_penalty)


class TranslateSettings(DecodeSettings):
    """The same for answers to a source: beam search, and a length that follows the source's."""

    max_tokens: int = Field(512, ge=1, le=1_000_000, description="tokens of a translation at most")
    max_ratio: float = Field(2.0, ge=0, le=1_000, description="and at most so many for each token of the source …")
    max_extra: int = Field(50, ge=1, le=1_000_000, description="… and so many more")
    temperature: float = Field(0.0, ge=0, le=100, description="above 0: draw instead of search; 1: as the model says")
    beams: int = Field(5, ge=1, le=1_024, description="hypotheses of the beam search; 1: always the likeliest token")
    length_norm: Literal["power", "wu"] = Field(
        "wu", description="what length_penalty is the power of: the length, or (5 + length) / 6 (Wu 2016)"
    )
    coverage_penalty: float = Field(
        0.0, ge=0, le=100, description="beam: above 0, leaving parts of the source unread costs (Wu 2016; try 0.2)"
    )
    early_stop: bool = Field(
        True, description="beam: end once no unfinished hypothesis is ahead, though a longer one might yet win"
    )
    nbest: int = Field(1, ge=1, le=1_024, description="translations of each source")
    prefix: str = Field("", description="what every translation begins with")
    replace_unknown: bool | None = Field(
        None,
        description="words: where the model says that it has no word, write the source word that it looks at (default: "
        "where it has attention); false: it must find a word",
    )

    @model_validator(mode="before")
    @classmethod
    def _meant(cls, values: Any) -> Any:
        """Who names a temperature, top_k or top_p wants to draw, not to search; many answers need as many beams."""
        if not isinstance(values, Mapping):
            return values
        if any(values.get(name) is not None for name in ("temperature", "top_k", "top_p")):
            return {"beams": 1, "temperature": 1.0} | dict(values)
        nbest = values.get("nbest")
        usual = cls.model_fields["beams"].default
        return ({"beams": max(usual, nbest)} if isinstance(nbest, int) else {}) | dict(values)

    @model_validator(mode="after")
    def _several(self) -> TranslateSettings:
        if self.nbest > 1 and self.beams == 1 and self.temperature == 0:
            raise ValueError(f"nbest {self.nbest} needs beams, or a temperature to draw with")
        return self

    def limits(self, lengths: Iterable[int], given: int = 0) -> list[int]:
        """The longest translation of sources of some lengths, in tokens: with room for the least that is wanted, and
        for more than the `given` beginning."""
        least = max(self.min_tokens, given + 1)
        return [min(self.max_tokens, max(least, int(self.max_ratio * length) + self.max_extra)) for length in lengths]
