"""How to turn probabilities into text: every option of decoding, with its one default."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, model_validator

from ..core.config import Settings


class DecodeSettings(Settings):
    max_tokens: int = Field(200, ge=1, le=1_000_000, description="tokens to generate at most")
    temperature: float = Field(1.0, ge=0, le=100, description="below 1: safer, above: bolder; 0: always the likeliest")
    top_k: int | None = Field(None, ge=1, description="draw from the k likeliest tokens only")
    top_p: float | None = Field(None, gt=0, le=1, description="draw from the likeliest tokens that make up this share")
    repetition_penalty: float = Field(1.0, ge=1, le=100, description="above 1: what occurred becomes less likely")
    beams: int = Field(1, ge=1, le=1_024, description="above 1: beam search with so many hypotheses")
    length_penalty: float = Field(1.0, ge=0, le=10, description="beam: score / length to this power; 0: none")
    nbest: int = Field(1, ge=1, le=1_024, description="answers for each prompt")
    seed: int = Field(0, description="of the draws: the same seed gives the same text")
    stop: list[Annotated[str, Field(min_length=1)]] = Field(
        default_factory=list, description="end where one of these strings appears"
    )

    @model_validator(mode="after")
    def _consistent(self) -> DecodeSettings:
        if self.beams > 1 and self.nbest > self.beams:
            raise ValueError(f"nbest {self.nbest} needs at least as many beams (there are {self.beams})")
        if self.beams > 1 and (self.top_k, self.top_p, self.temperature, self.repetition_penalty) != (None, None, 1, 1):
            raise ValueError("beam search draws nothing: with beams no top_k, top_p, temperature or repetition_penalty")
        return self
