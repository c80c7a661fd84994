"""The settings of training and distillation."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, ValidationInfo, field_validator

from ..core.config import Count, Settings

Decay = Annotated[float, Field(ge=0, lt=1)]
Freeze = Literal["none", "embeddings", "backbone"] | int


class OptimizerSettings(Settings):
    name: Literal["adamw", "sgd"] = Field("adamw", description="the optimizer")
    lr: float | None = Field(None, gt=0, le=1e3, description="peak learning rate (default: the model's)")
    betas: tuple[Decay, Decay] = Field((0.9, 0.99), description="decay rates of AdamW's two averages")
    momentum: float = Field(0.9, ge=0, lt=1, description="momentum of SGD")
    weight_decay: float = Field(0.1, ge=0, description="decay of matrices towards zero, times the learning rate")
    layer_decay: float = Field(
        1.0, gt=0, le=1, description="learning rate of a block relative to the block above it; 1: all the same"
    )


class ScheduleSettings(Settings):
    name: Literal["constant", "linear", "cosine", "inverse-sqrt", "one-cycle", "step"] = Field(
        "cosine", description="how the learning rate changes after the warm-up"
    )
    warmup: int | float = Field(
        100, description="steps in which the learning rate rises from zero; below 1: a share of all steps"
    )
    floor: float = Field(0.1, ge=0, le=1, description="where linear and cosine end, as a share of the peak")
    step_size: int = Field(1000, ge=1, description="step: number of steps between two drops of the learning rate")
    gamma: float = Field(0.5, gt=0, le=1, description="step: factor of each drop")

    @field_validator("warmup", mode="before")
    @classmethod
    def _check_warmup(cls, warmup: Any) -> Any:
        number = float(warmup) if isinstance(warmup, int | float) and not isinstance(warmup, bool) else -1.0
        if not (0 <= number < 1 or number.is_integer()) or number < 0:
            raise ValueError("a whole number of steps, or a share of them below 1")
        return int(number) if number.is_integer() else number


class TrainSettings(Settings):
    steps: Count | None = Field(
        None, ge=1, description="number of updates (default: 2,000, or as many as fit into `minutes`)"
    )
    epochs: float | None = Field(None, gt=0, description="passes over the training split, instead of steps")
    minutes: float | None = Field(None, gt=0, description="largest training time (evaluation not counted)")
    batch_size: int = Field(32, ge=1, description="sequences in a batch, for each process")
    accumulate: int = Field(1, ge=1, description="batches whose gradients make up one update")
    optimizer: OptimizerSettings = Field(default_factory=OptimizerSettings)
    schedule: ScheduleSettings = Field(default_factory=ScheduleSettings)
    freeze: Freeze = Field(
        "none", description="what is not trained: none, embeddings, backbone, or a number of the lowest blocks"
    )
    clip: float | None = Field(1.0, gt=0, description="largest norm of the whole gradient; null: no clipping")
    label_smoothing: float = Field(0.0, ge=0, lt=1, description="share of the target spread over all classes")
    ema: float = Field(0.0, ge=0, lt=1, description="decay of the average of weights that is evaluated; 0: none")
    evaluate_steps: int | None = Field(None, ge=1, description="steps between evaluations (default: ten evaluations)")
    evaluate_minutes: float | None = Field(None, gt=0, description="minutes between evaluations, instead of steps")
    evaluate_limit: Count = Field(200_000, ge=1, description="tokens per evaluation during training; all at the end")
    keep_checkpoints: int = Field(
        1, ge=1, le=1_000, description="number of last checkpoints that are kept besides the best, to average"
    )
    patience: int | None = Field(None, ge=1, description="stop after this many evaluations without improvement")
    precision: Literal["auto", "float32", "bfloat16"] = Field(
        "auto", description="auto: bfloat16 if the device supports it natively"
    )
    device: str = Field("auto", description="auto, cpu, cuda, cuda:1, mps")

    @field_validator("freeze", mode="before")
    @classmethod
    def _check_freeze(cls, freeze: Any) -> Any:
        known = freeze in ("none", "embeddings", "backbone") if isinstance(freeze, str) else type(freeze) is int
        if not known or (isinstance(freeze, int) and freeze < 1):
            raise ValueError("none, embeddings, backbone, or a number of blocks from 1 on")
        return freeze

    @field_validator("epochs")
    @classmethod
    def _check_end(cls, epochs: float | None, info: ValidationInfo) -> float | None:
        if epochs is not None and info.data.get("steps") is not None:
            raise ValueError("set steps or epochs, not both")
        return epochs


class DistillSettings(Settings):
    teacher: str = Field(description="the run folder of the teacher")
    temperature: float = Field(
        2.0, gt=0, le=1_000, description="the higher, the more the teacher's scores of wrong answers count"
    )
    weight: float = Field(0.5, ge=0, le=1, description="weight of the teacher's loss; the rest is that of the targets")
    hidden_weight: float = Field(
        0.0, ge=0, description="weight of a loss on the similarities of hidden vectors within a batch"
    )
    unlabeled_data: str | None = Field(
        None, description="classify, regress: further examples without targets, learned from the teacher's predictions"
    )
