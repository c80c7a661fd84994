"""The settings of any model, without torch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from pydantic import Field

from ..core.config import Settings
from ..core.model_info import History, ModelInfo


@dataclass(frozen=True)
class BackboneTraits:
    """The traits of an architecture with its settings, known without building a network."""

    causal: bool = True  # no output depends on later elements
    carries_state: bool = False  # its state may be carried from one training batch to the next
    directions: int = 1  # 2 if it is bidirectional and concatenates both directions
    bounded: bool = False  # it accepts sequences up to a context length only
    context_length: int | None = None  # that length, if the settings name it; else the training data decides

    def max_length(self, setting: int | None, longest: int) -> int | None:
        """Returns the length at which sequences are truncated, None if they are not.

        Args:
            setting: The context length in the settings of the task.
            longest: The length of the longest training sequence.
        """
        limits = [limit for limit in (setting, self.context_length) if limit is not None]
        if limits:
            return min(limits)
        return longest if self.bounded else None


class ModelSettings(Settings):
    """The settings of any model, and the traits that tasks ask of it. A model's file adds its own settings."""

    # For reports. The file of a model declares these as literals: they are read without importing it.
    title: ClassVar[str] = ""  # the name as people write it
    color: ClassVar[tuple[str, str] | None] = None  # in charts, on light and on dark screens: ("#0072b2", "#3d9be0")
    history: ClassVar[History] = ""  # that it belongs to: of models over sequences, or over pairs of sequences
    predecessors: ClassVar[tuple[str, ...]] = ()  # the models that it replaced, by name
    novelty: ClassVar[str] = ""  # what was new, which explains that it wins; may hold `core.model_info.WORDS`
    limitation: ClassVar[str] = ""  # what explains that it loses, if the numbers do not
    attention_novelty: ClassVar[str] = ""  # `novelty` of the models that attend to the source in its place
    attention_limitation: ClassVar[str] = ""  # `limitation` of these
    recurrent: ClassVar[bool] = False  # it goes from element to element

    gradient_free: ClassVar[bool] = False  # fitted in one pass, not trained by gradients
    encoder_decoder: ClassVar[bool] = False  # for pairs of sequences
    attends: ClassVar[bool] = False  # an encoder–decoder with attention over the source
    causal: ClassVar[bool] = True  # it can be restricted to earlier elements, and so predict the next one
    modality: ClassVar[str | None] = None  # the only one whose inputs it reads, such as "image"; None: any
    muon_lr: ClassVar[float | None] = None  # peak learning rate of hidden matrices by Muon; None: AdamW by default
    task_defaults: ClassVar[Mapping[str, object]] = {}  # defaults of task settings with this model
    tokenizer_defaults: ClassVar[Mapping[str, object]] = {}  # defaults of tokenizer settings with this model

    name: str = Field(description="the architecture: see `seriatim list models`")

    @classmethod
    def __pydantic_init_subclass__(cls, **options: Any) -> None:
        super().__pydantic_init_subclass__(**options)
        cls.info()  # an invalid declaration is an error of the file

    @classmethod
    def info(cls) -> ModelInfo:
        """Returns what the class itself declares for reports: a subclass is another model, with a name of its own."""
        return ModelInfo.model_validate({name: vars(cls)[name] for name in ModelInfo.model_fields if name in vars(cls)})

    @property
    def traits(self) -> BackboneTraits:
        return BackboneTraits(causal=self.causal)
