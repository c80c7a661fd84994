"""The configuration of a run: the settings of task, data, model, training and distillation."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Annotated, Any, Literal

from pydantic import Field, ValidationInfo, create_model, field_validator

from .. import tasks
from ..core import registry
from ..core.config import Count, Seed, Settings, Short, validate
from ..core.errors import SeriatimError
from ..data.settings import DataSettings
from ..nn.settings import ModelSettings
from ..tasks.spec import TaskConfig

Decay = Annotated[float, Field(ge=0, lt=1)]
Freeze = Literal["none", "embeddings", "backbone"] | Annotated[int, Field(ge=1, le=10_000)]
MAX_STEPS = 10**12
MAX_MINUTES = 10**7  # 19 years
DEFAULT_STEPS = 2_000  # if neither steps nor minutes are set
MUON_LR = 0.02  # for a model that does not name its own


class OptimizerSettings(Settings):
    name: Literal["auto", "muon", "adamw", "adam", "sgd"] = Field(
        "auto", description="the optimizer; auto: the model's, adamw for pretrained weights"
    )
    lr: Annotated[float | None, Short("Peak learning rate. (default: depends on the model)")] = Field(
        None,
        gt=0,
        le=1e3,
        description="peak learning rate (default: the model's, higher if the minutes allow few updates)",
    )
    muon_lr: float | None = Field(
        None, gt=0, le=1e3, description="peak learning rate of the matrices of Muon (default: the model's, as for lr)"
    )
    lr_scale: float = Field(1.0, gt=0, le=1e3, description="factor of both learning rates, set or by default")
    betas: tuple[Decay, Decay] = Field((0.9, 0.99), description="decay rates of the two averages of Adam")
    momentum: float | None = Field(None, ge=0, lt=1, description="momentum of SGD and Muon (default: 0.9)")
    weight_decay: float = Field(
        0.1, ge=0, le=1e3, description="decay of matrices towards zero, times the learning rate"
    )
    layer_decay: float = Field(
        1.0, gt=0, le=1, description="learning rate of a block relative to the block above it; 1: all the same"
    )


class ScheduleSettings(Settings):
    name: Literal["constant", "linear", "cosine", "wsd", "inverse-sqrt", "one-cycle", "step"] = Field(
        "cosine", description="how the learning rate changes after the warm-up; wsd: warm-up, stable, decay"
    )
    warmup: Annotated[int, Field(ge=0, le=MAX_STEPS)] | Decay = Field(
        100, description="steps of the rise of the learning rate from zero; below 1: a share of the training"
    )
    floor: float = Field(0.1, ge=0, le=1, description="where linear, cosine and wsd end, as a share of the peak")
    decay: float = Field(
        0.3, gt=0, le=1, description="wsd: share of the training, at its end, with a falling learning rate"
    )
    step_size: int = Field(
        1000, ge=1, le=MAX_STEPS, description="step: number of steps between two drops of the learning rate"
    )
    gamma: float = Field(0.5, gt=0, le=1, description="step: factor of each drop")

    @field_validator("warmup", mode="before")
    @classmethod
    def _check_warmup(cls, warmup: object) -> int | float:
        number = warmup if isinstance(warmup, int | float) and not isinstance(warmup, bool) else -1
        if not 0 <= number <= MAX_STEPS or (number > 1 and number != int(number)):
            raise ValueError(f"a whole number of steps up to {MAX_STEPS:,}, or a share of them below 1")
        return int(number) if number == int(number) else number


class TrainSettings(Settings):
    steps: Annotated[Count | None, Short("Updates to make. (default: 2,000, or what fits in --minutes)")] = Field(
        None, description="number of updates (default: 2,000, or as many as fit into `minutes`)"
    )
    epochs: Annotated[float | None, Short("Passes over the training split, instead of --steps.")] = Field(
        None, gt=0, le=1e9, description="passes over the training split, instead of steps"
    )
    tokens: Annotated[Count | None, Short("Tokens (or examples) to train on, as 10M, instead of --steps.")] = Field(
        None, description="what to train on (tokens, examples: what the task counts), instead of steps"
    )
    flops: Annotated[float | None, Short("Floating-point operations to train with, as 1e13, instead of --steps.")] = (
        Field(None, gt=0, le=1e30, description="floating-point operations of the matrix products, instead of steps")
    )
    minutes: Annotated[float | None, Short("Minutes of training (evaluation not counted).")] = Field(
        None,
        gt=0,
        le=MAX_MINUTES,
        description="training time (evaluation not counted); with another end: the largest",
    )
    clock: Literal["wall", "cpu"] = Field(
        "wall", description="what minutes are: wall time, or cpu: processor time, for a machine that is busy"
    )
    batch_size: Annotated[int | None, Short("Sequences in a batch.")] = Field(
        None,
        ge=1,
        le=1_000_000,
        description="sequences in a batch, for each process (default: the task's, fewer if the minutes are few)",
    )
    accumulate: int = Field(1, ge=1, le=1_000_000, description="batches whose gradients make up one update")
    optimizer: OptimizerSettings = Field(default_factory=OptimizerSettings)
    schedule: ScheduleSettings = Field(default_factory=ScheduleSettings)
    freeze: Freeze = Field(
        "none", description="what is not trained: none, embeddings, backbone, or a number of the lowest blocks"
    )
    clip: float | None = Field(1.0, gt=0, le=1e9, description="largest norm of the whole gradient; null: no clipping")
    label_smoothing: float = Field(0.0, ge=0, lt=1, description="share of the target spread over all classes")
    ema: float = Field(0.0, ge=0, lt=1, description="decay of the average of weights that is evaluated; 0: none")
    monitor: str | None = Field(
        None, description="the metric that selects the best weights and ends by `patience` (default: the task's)"
    )
    evaluations: int | None = Field(
        None,
        ge=1,
        le=100_000,
        description="evaluations during training (default: 10, more for many passes over the data)",
    )
    evaluate_steps: int | None = Field(
        None, ge=1, le=MAX_STEPS, description="steps between evaluations, instead of their number"
    )
    evaluate_minutes: float | None = Field(
        None, gt=0, le=MAX_MINUTES, description="minutes between evaluations, instead of steps"
    )
    evaluate_limit: Count | None = Field(
        None,
        description="characters, numbers or images per evaluation during training, the same for every model; "
        "all at the end (default: 65,536)",
    )
    keep_checkpoints: int = Field(
        1, ge=1, le=1_000, description="number of last checkpoints that are kept besides the best, to average"
    )
    patience: int | None = Field(
        None, ge=1, le=10**9, description="stop after this many evaluations without improvement"
    )
    precision: Literal["auto", "float32", "bfloat16"] = Field(
        "auto", description="auto: bfloat16 if the device supports it natively"
    )
    device: Annotated[str, Short("auto, cpu, cuda, mps. (default: auto)")] = Field(
        "auto", description="auto, cpu, cuda, cuda:1, mps"
    )

    @field_validator("freeze", mode="before")
    @classmethod
    def _check_freeze(cls, freeze: object) -> object:
        known = freeze in ("none", "embeddings", "backbone") if isinstance(freeze, str) else type(freeze) is int
        if not known or (isinstance(freeze, int) and freeze < 1):
            raise ValueError("none, embeddings, backbone, or a number of blocks from 1 on")
        return freeze

    @field_validator("epochs", "tokens", "flops")
    @classmethod
    def _check_end(cls, end: float | None, info: ValidationInfo) -> float | None:
        others = [name for name in ("steps", "epochs", "tokens") if info.data.get(name) is not None]
        if end is not None and others:
            raise ValueError(f"set {others[0]} or {info.field_name}, not both")
        return end

    @property
    def timed(self) -> bool:
        """Whether minutes are the only end: the training then makes as many updates as fit."""
        return self.minutes is not None and all(getattr(self, end) is None for end in ENDS if end != "minutes")


class DistillSettings(Settings):
    teacher: Annotated[str, Short("Distillation: the run folder of the teacher.")] = Field(
        description="the run folder of the teacher"
    )
    temperature: Annotated[float, Short("Distillation: temperature of the teacher's probabilities. (default: 2)")] = (
        Field(2.0, gt=0, le=1_000, description="the higher, the more the teacher's scores of wrong answers count")
    )
    weight: Annotated[
        float, Short("Distillation: share of the teacher in the loss. (default: 0.5)", name="distillation_weight")
    ] = Field(0.5, ge=0, le=1, description="weight of the teacher's loss; the rest is that of the targets")
    hidden_weight: float = Field(
        0.0, ge=0, le=1e6, description="weight of a loss on the similarities of hidden vectors within a batch"
    )
    unlabeled_data: Annotated[str | None, Short("Distillation: more examples, without targets.")] = Field(
        None, description="classify, regress: further examples without targets, learned from the teacher's predictions"
    )


ENDS = ("steps", "epochs", "tokens", "flops", "minutes")  # of a training
EXAMPLE = "`seriatim train language --data book.txt --model lstm`"


class Config(TaskConfig[Any]):
    """The contents of config.yaml. The exact types of `task` and `model` follow from their names."""

    task: Any = Field(description="the task and its settings")
    data: DataSettings = Field(description="where the data is and how it is read")
    model: Any = Field(description="the architecture and its settings")
    start: Annotated[str | None, Short()] = Field(
        None, description="pretrained weights: a run, a folder of `transformers` or a name on its hub (--from)"
    )
    distill: DistillSettings | None = Field(None, description="distillation from a teacher")
    train: TrainSettings = Field(default_factory=TrainSettings, description="the training loop")
    params: Annotated[Count | None, Short("Number of parameters, as 1M or 70k: solves for the width of the model.")] = (
        Field(None, description="parameter budget: solves for the model's width")
    )
    seed: Annotated[Seed, Short("The same seed gives the same model. (default: 0)")] = Field(
        0, description="of every random stream"
    )

    def task_config(self) -> TaskConfig[Any]:
        """Returns the settings that a task depends on."""
        return TaskConfig(task=self.task, data=self.data, model=self.model, seed=self.seed)


def make_config(values: Mapping[str, Any], origin: str = "the settings") -> Config:
    """Returns the validated configuration, with the defaults of task and model.

    Args:
        values: Nested plain values. `task` and `model` may be names, `data` a source.
        origin: Where the values are from, for messages.
    """
    values = dict(values)
    values.pop("format", None)  # of a run folder's config.yaml
    for section, key in (("task", "name"), ("model", "name"), ("data", "source")):
        if isinstance(values.get(section), str):
            values[section] = {key: values[section]}
        if section == "model" and isinstance(values.get("model") or {}, Mapping):  # after the task, with a default
            default = tasks.load(str(values["task"]["name"])).default_model
            values["model"] = {"name": default, **(values.get("model") or {})}
        if not isinstance(values.get(section), Mapping) or key not in values[section]:
            cause = f"{origin}: {section} is not named"
            raise SeriatimError("config.incomplete", cause, f"set {section}.{key}, as in {EXAMPLE}")
    task = tasks.load(str(values["task"]["name"]))
    model: type[ModelSettings] = registry.models.load(str(values["model"]["name"])).Settings
    values["model"] = {**_known(task.model_defaults(values), model), **values["model"]}
    values["task"] = {**_known(model.task_defaults, task.settings_type), **values["task"]}
    tokenizer = values["task"].get("tokenizer")
    if model.tokenizer_defaults and isinstance(tokenizer, Mapping) and "kind" not in tokenizer:
        # A vocabulary size alone, as --vocab-size 8000, is that of the model's usual tokenizer.
        values["task"]["tokenizer"] = {**model.tokenizer_defaults, **tokenizer}
    if isinstance(train := values.get("train") or {}, Mapping):  # else `validate` reports it
        has_end = any(train.get(name) is not None for name in ENDS)  # an end set by the user replaces the task's
        defaults = {key: value for key, value in task.train_defaults(values).items() if not (has_end and key in ENDS)}
        values["train"] = defaults | dict(train)
    sections = frozenset(task.settings_type.model_fields)
    config = validate(_config_class(task.settings_type, model, sections), values, origin)
    optimizer = config.train.optimizer
    if optimizer.name == "auto":  # resolved here: a run keeps its optimizer if the defaults change
        muon = task.muon and model.muon_lr is not None and config.start is None
        optimizer = optimizer.model_copy(update={"name": "muon" if muon else "adamw"})
    train = config.train.model_copy(update={"optimizer": optimizer})
    if train.batch_size is None and not train.timed:
        train = train.model_copy(update={"batch_size": task.batch_size})  # else by the pace, when the training starts
    settings = task.resolve_settings(config.task, config.model_dump(mode="json"))
    return config.model_copy(update={"task": settings, "train": train})


@cache
def _config_class(task: type[Settings], model: type[ModelSettings], fields: frozenset[str]) -> type[Config]:
    """Returns the class of a configuration; `fields` are those of the task, to which a plug-in may add a section."""
    return create_model("Config", __base__=Config, task=(task, ...), model=(model, ...))


def learning_rates(config: Config) -> tuple[float, float]:
    """Returns the peak learning rates of AdamW (or SGD) and of Muon.

    Defaults are the model's. A learning rate of the user changes that of Muon in proportion, unless both are set.
    `lr_scale` is a factor of both.
    """
    model, optimizer = config.model, config.train.optimizer
    default = model.default_lr() if config.start is None else model.fine_tuning_lr()
    lr = default if optimizer.lr is None else optimizer.lr
    muon_lr = optimizer.muon_lr
    if muon_lr is None:
        muon_lr = (MUON_LR if model.muon_lr is None else model.muon_lr) * lr / model.default_lr()
    return lr * optimizer.lr_scale, muon_lr * optimizer.lr_scale


def _known(defaults: Mapping[str, object], settings: type[Settings]) -> dict[str, object]:
    return {name: value for name, value in defaults.items() if name in settings.model_fields}
