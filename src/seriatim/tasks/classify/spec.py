"""The declaration of the task classify."""

from __future__ import annotations

from dataclasses import replace

from pydantic import Field as Setting

from ...core.config import Settings
from ...data.kinds import KINDS, LABEL, LABELS, NUMBER, NUMBERS
from ...data.schema import Field, Schema
from ..capability import Capability
from ..inputs import INPUT, TARGET_NAMES, PooledSettings
from ..shared_spec import EMBEDDINGS
from ..spec import TaskSpec

INTEGER_LABEL = replace(LABEL, name="integer label")  # of data in memory; predictions are integers, too
KINDS[INTEGER_LABEL.name] = INTEGER_LABEL
SCHEMA = Schema((INPUT, Field("target", (LABELS, LABEL), TARGET_NAMES, max_columns=None, target=True, one_alias=True)))


class ClassifySettings(PooledSettings):
    name: str = Setting("classify", description="the task: see `seriatim list tasks`")


class ClassifyOptions(Settings):
    probabilities: bool = Setting(False, description="return the probability of each label")


CLASSIFY = Capability(
    "classify",
    "Predict the label of each input, or its labels, with probabilities.",
    SCHEMA.inputs(),
    {"prediction": LABEL, "confidence": NUMBER, "probabilities": NUMBERS},
    ClassifyOptions,
    presentation="label",
    common=("probabilities",),
)
SPEC = TaskSpec(
    "classify",
    "Predict the label of an input, or several labels: sentiment, language, digit, species",
    SCHEMA,
    ClassifySettings,
    (CLASSIFY, *EMBEDDINGS),
    modality=None,
)
