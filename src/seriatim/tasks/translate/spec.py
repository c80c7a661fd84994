"""The declaration of the task translate: pairs of texts."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated

from pydantic import Field as Setting

from ...core.config import Settings
from ...core.errors import Diagnostics, SeriatimError
from ...data.kinds import LINES, NUMBER, NUMBERS, TEXT, TOKENS, Cell
from ...data.schema import Field, Header, Roles, Schema
from ...data.settings import TokenizerSettings, default_kind
from ...decode.settings import BeamSettings
from ...nn.names import ScoreName
from ..capability import Capability
from ..shared_spec import EMBEDDINGS, SCORE_OUTPUTS
from ..spec import CONTEXT_LENGTH, TaskSpec

MAX_LENGTH = 256  # tokens of a training pair, by default
SUBWORDS = 4_000  # tokens of a vocabulary whose size is not set
SIDES = ("source", "target")
NAME_PAIRS = (  # usual names of the columns of source and target
    ("source", "target"),
    ("src", "tgt"),
    ("src", "trg"),
    ("input", "output"),
    ("question", "answer"),
    ("original", "translation"),
    ("sentence", "translation"),
    ("text", "translation"),
)
_CODES = (
    "af am ar az be bg bn bs ca cs cy da de el en eo es et eu fa fi fr ga gl gu he hi hr hu hy id is it ja ka kk km kn "
    "ko ky la lb lo lt lv mk ml mn mr ms mt my nb ne nl nn no pa pl ps pt ro ru si sk sl so sq sr sv sw ta te tg th tk "
    "tl tr uk ur uz vi yi zh zu"
)
_NAMES = (
    "arabic bulgarian catalan chinese croatian czech danish dutch english esperanto estonian finnish french german "
    "greek hebrew hindi hungarian icelandic indonesian irish italian japanese korean latin latvian lithuanian "
    "norwegian persian polish portuguese romanian russian serbian slovak slovenian spanish swedish thai turkish "
    "ukrainian vietnamese welsh"
)
LANGUAGE_CODES = frozenset(_CODES.split())
LANGUAGES = frozenset(_NAMES.split())


def is_language(name: str) -> bool:
    """Returns whether a name is a language: `en`, `pt_BR` or `English`, but not `No`, which may be a sentence."""
    name = name.strip().rpartition(".")[2]  # of an object in a cell: translation.en
    match = re.fullmatch(r"([a-z]{2})(?:[-_][A-Za-z]{2,4})?", name)
    return (match is not None and match[1] in LANGUAGE_CODES) or name.lower() in LANGUAGES


def find_sides(names: Sequence[str]) -> tuple[str, str] | None:
    """Returns the columns of source and target by usual names, or None: two languages are taken in their order."""
    lowered = [name.strip().lower() for name in names]
    for source, target in NAME_PAIRS:
        if source in lowered and target in lowered:
            return names[lowered.index(source)], names[lowered.index(target)]
    languages = [name for name in names if "." in name and is_language(name)] or list(names[:2])
    if len(languages) > 1 and languages[0].lower() != languages[1].lower() and all(map(is_language, languages[:2])):
        return languages[0], languages[1]
    return None


def holds_text(cells: Sequence[Cell]) -> bool:
    """Returns whether most cells of a column are texts or empty: the others are reported by line."""
    return 2 * sum(cell is None or isinstance(cell, str) for cell in cells) >= len(cells)


@dataclass(frozen=True)
class PairSchema(Schema):
    """Source and target: by usual names, by languages, or the only two columns of text, in this order.

    Args:
        reverse: Whether the columns are taken in the other order.
        named: The columns of source and target as the settings of the task name them, whose order is reversed, too.
    """

    reverse: bool = False
    named: tuple[str, str] | None = None

    def is_header(self, cells: Sequence[str]) -> bool | None:
        """Returns whether the first row of a table names its columns; None if only the user's names can tell."""
        return True if find_sides(cells) is not None else None

    @property
    def header_names(self) -> frozenset[str]:
        """None: a single usual name, such as "translation", may be a sentence."""
        return frozenset()

    def has_usual_name(self, role: str, header: Header) -> bool:
        return find_sides(header.columns) is not None or super().has_usual_name(role, header)

    def resolve(self, header: Header, overrides: Mapping[str, str], diagnostics: Diagnostics) -> Roles:
        overrides = dict(overrides)
        if self.reverse and self.named is not None and tuple(overrides.get(role) for role in SIDES) == self.named:
            overrides |= dict(zip(SIDES, reversed(self.named), strict=True))
        open_roles = [role for role in SIDES if role in self.roles and role not in overrides]
        if len(header.columns) > 1 and open_roles:
            taken = {column for names in overrides.values() if names for column in self._parse_override(header, names)}
            texts = [name for name in header.columns if name not in taken and holds_text(header.samples[name])]
            sides = find_sides(header.columns) or ((texts[0], texts[1]) if header.unnamed and len(texts) > 1 else None)
            if sides is None and len(texts) == 2:
                sides = texts[0], texts[1]
            if len(set(SIDES) - overrides.keys()) == 1:  # one is named: the other one is the only other text
                sides = (texts[0], texts[0]) if len(texts) == 1 else None
            if sides is not None:
                by_role = dict(zip(SIDES, reversed(sides) if self.reverse else sides, strict=True))
                overrides |= {role: by_role[role] for role in open_roles}
                if not header.unnamed:
                    diagnostics.note(f"{header.name}: {' → '.join(overrides[r] for r in SIDES if r in overrides)}")
            elif "target" in self.roles and self["target"].required:
                cause = f"{header.name}: which columns are the source and the target? It has: "
                remedy = "name them: data.columns.source=NAME data.columns.target=NAME"
                raise SeriatimError("data.column", cause + ", ".join(header.columns), remedy)
        return super().resolve(header, overrides, diagnostics)


SCHEMA = PairSchema(
    (
        Field("source", (TEXT,), ("src", "input", "question", "original", "sentence")),
        Field("target", (TEXT,), ("tgt", "trg", "output", "answer", "translation"), target=True),
    ),
    positions=SIDES,
)
SCORED = replace(SCHEMA, fields=(SCHEMA["source"], replace(SCHEMA["target"], target=False)))  # both sides are inputs
ALIGNED = replace(
    SCORED, fields=(SCHEMA["source"], replace(SCHEMA["target"], target=False, required=False)), positions=()
)


class TranslateSettings(Settings):
    name: str = "translate"
    score: ScoreName = Setting("general", description="attention score of models with attention after the decoder")
    learned_values: bool = Setting(False, description="that attention pools learned values v(h) of the source")
    beams: int = Setting(5, ge=1, le=1_024, description="beam size of the final evaluation")
    reverse: bool = Setting(False, description="translate from the target to the source")
    normalize: bool = Setting(
        True, description="Unicode NFC, and one space for any run of spaces, tabs and line ends; false: as it is"
    )
    tokenizer: Annotated[TokenizerSettings | None, default_kind(kind="bpe", vocab_size=SUBWORDS)] = Setting(
        None, description="how text is tokenized (default: 4,000 BPE subwords)"
    )
    joint: bool | None = Setting(
        None, description="one vocabulary for both sides, or one for each (default: one for subwords)"
    )
    context_length: Annotated[int, CONTEXT_LENGTH] = Setting(
        MAX_LENGTH,
        ge=1,
        le=1_000_000,
        description="longest source or target in tokens, if the model reads as many; longer pairs are not trained on",
    )
    decoder_start: int | None = Setting(
        None, ge=0, le=10**9, description="token that the decoder reads first (default: <eos>)"
    )


class AlignOptions(BeamSettings):
    """The settings of the translation that is aligned if no target is given."""

    tokens: bool = Setting(False, description="align tokens, not words")


TRANSLATE = Capability(
    "translate",
    "Translate each text, with the log-probability of the translation; lists of both for nbest > 1.",
    SCHEMA.inputs(),
    {"translation": TEXT, "score": NUMBER},
    BeamSettings,
    scalar=True,
    presentation="text",
    common=("beams", "nbest", "temperature"),
)
SCORE = Capability(
    "score",
    "Return the log-probability of a target given its source, as a whole and token by token.",
    SCORED,
    SCORE_OUTPUTS,
    presentation="tokens",
)
ALIGN = Capability(
    "align",
    "Return the attention weights of each target word over the source words; without targets, of translations.",
    ALIGNED,
    {"alignment": LINES, "target": TOKENS, "source": TOKENS, "weights": NUMBERS},
    AlignOptions,
    presentation="alignment",
    common=("tokens",),
)
SPEC = TaskSpec(
    "translate",
    "Translate one sequence into another, for any pairs of texts",
    SCHEMA,
    TranslateSettings,
    (TRANSLATE, SCORE, ALIGN, *EMBEDDINGS),
    default_model="transformer",
    default_model_reason="attention over the source translates best, and it trains fastest on short sentences",
    compared_models=("seq2seq", "bahdanau", "transformer"),
    encoder_decoder=True,
)
