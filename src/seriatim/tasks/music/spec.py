"""The declaration of the task music."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field as Setting

from ...core.config import Seed, Settings
from ...data.kinds import LABEL, NUMBER, Kind
from ...data.music import ROLE, ROLL
from ...data.schema import SPLIT_FIELD, Field, Schema
from ..capability import Capability
from ..spec import CONTEXT_LENGTH, TaskSpec

NOTES = Kind("list of notes", list)
SCHEMA = Schema((Field(ROLE, (ROLL,), ("piece",)), SPLIT_FIELD))


class MusicSettings(Settings):
    name: str = Setting("music", description="the task: see `seriatim list tasks`")
    context_length: Annotated[int | None, CONTEXT_LENGTH] = Setting(
        None, ge=2, le=1_000_000, description="frames of a training sequence, cut from a piece anywhere (default: all)"
    )
    step: float = Setting(0.25, gt=0, le=1e6, description="beats per frame, if the source is MIDI")


class ComposeSettings(Settings):
    frames: int = Setting(200, ge=1, le=100_000, description="frames to compose")
    temperature: float = Setting(1.0, ge=0, le=100, description="below 1 safer, above 1 more surprising")
    seed: Seed = Setting(0, description="of the random numbers")


SCORE = Capability(
    "score",
    "Score how well each piece is predicted, in nats per frame; lower is better.",
    SCHEMA.inputs(),
    {"nll": NUMBER, "frames": NUMBER, "piece": LABEL},
    per_row=False,
)
COMPOSE = Capability(
    "compose",
    "Compose a piece, or continue each of the pieces that are passed; --out piece.mid writes it as MIDI.",
    SCHEMA.inputs(),
    {"notes": NOTES, "frames": NUMBER},
    ComposeSettings,
    per_row=False,
    own_data=True,
    presentation="notes",
    common=("frames", "temperature", "seed"),
)
SPEC = TaskSpec(
    "music",
    "Predict the next frame of a piece of music: which of the 88 keys sound, given all frames before",
    SCHEMA,
    MusicSettings,
    (SCORE, COMPOSE),
    default_model="gru",
    default_model_reason="a recurrent network composes frame by frame without a limit on the length",
)
