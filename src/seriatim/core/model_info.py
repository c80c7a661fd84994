"""`ModelInfo`: what a model's file declares for reports, known without importing it.

The declarations are class variables of the file's class Settings, documented in `nn.settings.ModelSettings` and written
as literals: `core.registry` reads them from the source. A run stores them, so that its report needs no plug-in.
"""

from __future__ import annotations

from string import Formatter
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator

History = Literal["", "sequences", "pairs"]
WORDS = ("window", "wider", "field", "context", "tokens")  # that novelties may hold in braces: `report.verdict`
Color = Annotated[str, Field(pattern="^#[0-9a-fA-F]{6}$")]


class ModelInfo(BaseModel):
    """The name, color and place in history of a model; see the class variables of `nn.settings.ModelSettings`."""

    model_config = ConfigDict(frozen=True, extra="allow", protected_namespaces=(), defer_build=True)

    title: str = ""
    color: Annotated[list[Color], Field(min_length=2, max_length=2)] | None = None
    history: History = ""
    predecessors: list[str] = Field(default_factory=list)
    novelty: str = ""
    limitation: str = ""
    attention_novelty: str = ""
    attention_limitation: str = ""
    recurrent: bool = False

    @field_validator("novelty", "limitation", "attention_novelty", "attention_limitation")
    @classmethod
    def _check_words(cls, text: str) -> str:
        unknown = sorted({name for _, name, _, _ in Formatter().parse(text) if name is not None} - {*WORDS})
        if unknown:
            raise ValueError(f"{{{unknown[0]}}} is none of {', '.join(WORDS)}")
        return text
