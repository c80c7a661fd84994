"""The declaration of the task caption: images with captions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Literal, NamedTuple

from pydantic import Field as Setting

from ...core.config import Settings
from ...data.images import IMAGE, is_image_name
from ...data.kinds import KINDS, LINES, NUMBER, NUMBERS, TEXT, TOKENS, Cell, Kind
from ...data.schema import Field, Schema
from ...data.settings import ImageSettings, TokenizerSettings, default_kind
from ...decode.settings import BeamSettings
from ...nn.names import ScoreName
from ..capability import Capability
from ..shared_spec import SCORE_OUTPUTS
from ..spec import CONTEXT_LENGTH, TaskSpec

Box = tuple[float, float, float, float]  # left, top, right and bottom in pixels; right and bottom are exclusive
NUMBERED = r"(caption|text|sentence|description|comment)s?[ _-]?\d+"  # several columns of captions


class Region(NamedTuple):
    """A noun of a caption, and the box of what it names."""

    position: int  # of the noun among the words of the caption, from 0
    noun: str
    box: Box


def parse_regions(cell: Cell) -> tuple[Region, ...]:
    """Returns the regions of a cell: tuples, or [{"noun": "dog", "position": 1, "box": [4, 8, 30, 20]}]."""
    regions = []
    for region in cell or ():
        if isinstance(region, dict):
            region = region.get("position", region.get("place")), region.get("noun"), region.get("box")
        position, noun, box = region
        left, top, right, bottom = (float(edge) for edge in box)
        regions.append(Region(int(position), str(noun), (left, top, right, bottom)))
    return tuple(regions)


def _parse_captions(cell: Cell) -> tuple[str, ...]:
    """Returns the captions of a cell: a text, or a list of texts or of {"raw": text}."""
    cells = cell if isinstance(cell, (list, tuple)) else [cell]
    captions = tuple(one.get("raw") if isinstance(one, Mapping) else one for one in cells)
    if not all(isinstance(caption, str) for caption in captions):
        raise ValueError("not captions")
    return captions  # type: ignore[return-value]


CAPTIONS = Kind("list of captions", _parse_captions, size=lambda captions: sum(len(text.strip()) for text in captions))
REGIONS = Kind("list of regions", parse_regions, size=len)
KINDS |= {kind.name: kind for kind in (CAPTIONS, REGIONS)}


@dataclass(frozen=True)
class CaptionSchema(Schema):
    """An image and its captions."""

    def is_header(self, cells: Sequence[str]) -> bool:
        """Returns whether the first row of a table names its columns: a row with the name of an image does not."""
        return not any(is_image_name(cell.strip()) for cell in cells)


IMAGE_FIELD = Field(
    "image",
    (IMAGE,),
    (
        "image_path", "imagepath", "file_name", "filename", "image_name", "image_file", "img", "img_path", "file",
        "filepath", "path", "picture", "photo", "name",
    ),
)  # fmt: skip
CAPTION_FIELD = Field(
    "caption",
    (CAPTIONS, TEXT),
    (
        "captions", "text", "texts", "sentence", "sentences", "description", "comment", "raw", "title", "alt_text",
    ),
    alias_pattern=NUMBERED,
    max_columns=None,
    target=True,
)  # fmt: skip
SCHEMA = CaptionSchema(
    (
        IMAGE_FIELD,
        CAPTION_FIELD,
        Field("regions", (REGIONS,), ("boxes",), required=False, target=True),
    ),
    positions=("image", "caption"),
    join_extra=True,
)
SCORED = replace(SCHEMA, fields=(IMAGE_FIELD, replace(CAPTION_FIELD, target=False)))  # both are inputs
ALIGNED = replace(SCORED, fields=(IMAGE_FIELD, replace(CAPTION_FIELD, target=False, required=False)), positions=())


EncoderName = Literal["local", "resnet", "patches"]


class CaptionSettings(Settings):
    name: str = "caption"
    encoder: EncoderName | None = Setting(
        None,
        description="the feature map of a residual network with a small (local) or large (resnet) receptive field, or "
        "patches (default: local for small images, else resnet)",
    )
    layers: int | None = Setting(
        None, ge=8, le=1_202, description="of the residual network (default: 8, of photographs 18)"
    )
    channels: int | None = Setting(
        None, ge=1, le=4_096, description="of its first stage (default: 16, of photographs and resnet more)"
    )
    penalty: float = Setting(
        0.0, ge=0, le=100, description="weight λ of the penalty for unequal attention to the cells of the image"
    )
    score: ScoreName = Setting("general", description="attention score of models with attention after the decoder")
    learned_values: bool = Setting(False, description="that attention pools learned values v(h) of the source")
    beams: int = Setting(5, ge=1, le=1_024, description="beam size of the final evaluation")
    images: ImageSettings = Setting(default_factory=ImageSettings, description="how images are read and augmented")
    image_folder: str | None = Setting(None, description="the folder of the images, if it is not that of the table")
    normalize: bool = Setting(
        True, description="Unicode NFC, and one space for any run of spaces, tabs and line ends; false: as it is"
    )
    tokenizer: Annotated[TokenizerSettings | None, default_kind(kind="word")] = Setting(
        None, description="how captions are tokenized (default: words)"
    )
    context_length: Annotated[int | None, CONTEXT_LENGTH] = Setting(
        None, ge=1, le=1_000_000, description="longest caption in tokens; longer ones are not trained on"
    )


class CaptionOptions(BeamSettings):
    """The settings of decoding captions."""

    skip_broken: bool = Setting(False, description="leave images that cannot be read without a caption")


CAPTION = Capability(
    "caption",
    "Describe each image, with the log-probability of the caption; lists of both for nbest > 1.",
    SCHEMA.inputs(),
    {"caption": TEXT, "score": NUMBER},
    CaptionOptions,
    scalar=True,
    presentation="text",
    common=("beams", "nbest", "temperature"),
)
SCORE = Capability(
    "score",
    "Return the log-probability of a caption given its image, as a whole and token by token.",
    SCORED,
    SCORE_OUTPUTS,
    presentation="tokens",
)
ALIGN = Capability(
    "align",
    "Return the attention of each word of a caption to the cells of its image; by default, of a generated one.",
    ALIGNED,
    {"attention": LINES, "words": TOKENS, "grid": NUMBERS, "weights": NUMBERS},
    BeamSettings,
    presentation="image attention",
)
SPEC = TaskSpec(
    "caption",
    "Describe images in words",
    SCHEMA,
    CaptionSettings,
    (CAPTION, SCORE, ALIGN),
    default_model="show_attend_tell",
    default_model_reason="it attends to a part of the image for each word, and shows where",
    compared_models=("show_tell", "show_attend_tell", "transformer"),
    modality="image",
    encoder_decoder=True,
)
