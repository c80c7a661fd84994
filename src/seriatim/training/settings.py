"""Every setting of the training loop, with its one default."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, ValidationInfo, field_validator

from ..core.config import Count, Settings

Decay = Annotated[float, Field(ge=0, lt=1)]
Freeze = Literal["none", "embeddings", "backbone"] | int


class OptimiserSettings(Settings):
    name: Literal["adamw", "sgd"] = Field("adamw", description="the rule that turns gradients into steps")
    rate: float | None = Field(None, gt=0, le=1e3, description="peak learning rate (default: what suits the model)")
    betas: tuple[Decay, Decay] = Field((0.9, 0.99), description="decay of AdamW's two averages")
    momentum: float = Field(0.9, ge=0, lt=1, description="momentum of SGD")
    weight_decay: float = Field(0.1, ge=0, description="pull of matrices towards zero, times the learning rate")
    layer_decay: float = Field(
        1.0, gt=0, le=1, description="the rate of a block as a share of that of the block above it; 1: all the same"
    )


class ScheduleSettings(Settings):
    name: Literal["constant", "linear", "cosine", "inverse-sqrt", "one-cycle", "step"] = Field(
        "cosine", description="how the learning rate moves after the warm-up"
    )
    warmup: int | float = Field(
        100, description="steps in which the learning rate rises from zero; below 1: a share of all steps"
    )
    floor: float = Field(0.1, ge=0, le=1, description="where linear and cosine end, as a share of the peak")
    every: int = Field(1000, ge=1, description="step: the learning rate drops every so many steps")
    factor: float = Field(0.5, gt=0, le=1, description="step: it drops to this share")

    @field_validator("warmup", mode="before")
    @classmethod
    def _steps_or_share(cls, warmup: Any) -> Any:
        number = float(warmup) if isinstance(warmup, int | float) and not isinstance(warmup, bool) else -1.0
        if not (0 <= number < 1 or number.is_integer()) or number < 0:
            raise ValueError("a whole number of steps, or a share of them below 1")
        return int(number) if number.is_integer() else number


class TrainSettings(Settings):
    steps: Count | None = Field(
        None, ge=1, description="updates to make (default: 2,000, or as many as fit into `minutes`)"
    )
    epochs: float | None = Field(None, gt=0, description="passes over the training part, instead of steps")
    minutes: float | None = Field(None, gt=0, description="stop after so much training time (evaluation not counted)")
    batch: int = Field(32, ge=1, description="sequences in a batch, for each process")
    accumulate: int = Field(1, ge=1, description="batches whose gradients make up one update")
    optimiser: OptimiserSettings = Field(default_factory=OptimiserSettings)
    schedule: ScheduleSettings = Field(default_factory=ScheduleSettings)
    freeze: Freeze = Field(
        "none", description="what does not learn: none, embeddings, backbone, or so many of the lowest blocks"
    )
    clip: float | None = Field(1.0, gt=0, description="largest norm of the whole gradient; null: no clipping")
    label_smoothing: float = Field(0.0, ge=0, lt=1, description="share of the target spread over all tokens")
    ema: float = Field(0.0, ge=0, lt=1, description="decay of the average of weights that is evaluated; 0: none")
    evaluate_steps: int | None = Field(None, ge=1, description="evaluate every so many steps (default: ten times)")
    evaluate_minutes: float | None = Field(None, gt=0, description="evaluate every so many minutes instead")
    evaluate_limit: Count = Field(200_000, ge=1, description="tokens to evaluate on along the way; all at the end")
    keep: int = Field(1, ge=1, le=1_000, description="checkpoints kept, the last so many besides the best: to average")
    patience: int | None = Field(None, ge=1, description="stop after so many evaluations without improvement")
    precision: Literal["auto", "float32", "bfloat16"] = Field(
        "auto", description="auto: bfloat16 where the device is made for it"
    )
    device: str = Field("auto", description="auto, cpu, cuda, cuda:1, mps")

    @field_validator("freeze", mode="before")
    @classmethod
    def _part(cls, freeze: Any) -> Any:
        known = freeze in ("none", "embeddings", "backbone") if isinstance(freeze, str) else type(freeze) is int
        if not known or (isinstance(freeze, int) and freeze < 1):
            raise ValueError("none, embeddings, backbone, or a number of blocks from 1 on")
        return freeze

    @field_validator("epochs")
    @classmethod
    def _one_end(cls, epochs: float | None, info: ValidationInfo) -> float | None:
        if epochs is not None and info.data.get("steps") is not None:
            raise ValueError("steps or epochs say how long, not both")
        return epochs


class DistilSettings(Settings):
    teacher: str = Field(description="the folder of the run to learn from")
    temperature: float = Field(
        2.0, gt=0, le=1_000, description="the higher, the more the teacher's view of wrong answers counts"
    )
    alpha: float = Field(0.5, ge=0, le=1, description="the teacher's part in the loss; the rest is that of the targets")
    hidden: float = Field(
        0.0, ge=0, description="weight of a further loss: vectors that the teacher finds alike shall be alike"
    )
    unlabelled: str | None = Field(
        None, description="classify, regress: more examples, without targets, to learn the teacher's answers to"
    )
