"""The declaration of the task regress."""

from __future__ import annotations

from pydantic import Field as Setting

from ...data.kinds import NUMBER, NUMBERS
from ...data.schema import Field, Schema
from ..capability import Capability
from ..inputs import INPUT, TARGET_NAMES, PooledSettings
from ..shared_spec import EMBEDDINGS
from ..spec import TaskSpec

TARGETS = (*TARGET_NAMES, "value", "stability_score", "log_fluorescence")  # the last two: proteins in TAPE
SCHEMA = Schema(
    (
        INPUT,
        Field("target", (NUMBER, NUMBERS), TARGETS, max_columns=None, target=True, one_alias=True),
    )
)


class RegressSettings(PooledSettings):
    name: str = Setting("regress", description="the task: see `seriatim list tasks`")


REGRESS = Capability(
    "regress",
    "Predict the number of each input, or its numbers by the names of the target columns.",
    SCHEMA.inputs(),
    {"prediction": NUMBER},
    presentation="number",
)
SPEC = TaskSpec(
    "regress",
    "Predict a number for an input, or several: a rating, a stability, the sum of two marked values",
    SCHEMA,
    RegressSettings,
    (REGRESS, *EMBEDDINGS),
    fitted_models=("nadaraya_watson",),
    modality=None,
)
