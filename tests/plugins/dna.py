"""DNA as an input: a user's own modality in one file. Every task that reads one input reads it from then on."""

from dataclasses import dataclass

import numpy as np
from pydantic import Field

from seriatim.core.config import Settings
from seriatim.data.kinds import Kind
from seriatim.data.sequences import Sequences
from seriatim.nn.layers import NumberInput
from seriatim.tasks.codecs import SequenceCodec
from seriatim.tasks.inputs import Modality


def parse(cell):
    if not isinstance(cell, str) or set(cell) - set("ACGT"):
        raise ValueError("no DNA")
    return cell


DNA = Kind("DNA", parse, size=len)


class DnaSettings(Settings):
    """How DNA is read."""

    opposite: bool = Field(False, description="read the opposite strand")


@dataclass(frozen=True)
class DnaCodec(SequenceCodec):
    """DNA as one of four numbers per base."""

    modality = Modality("dna", "DNA sequences", (DNA,), settings=DnaSettings)

    opposite: bool
    longest: int
    max_length: int | None = None

    @classmethod
    def fit(cls, train, role, config, pretrained, diagnostics):
        return cls(config.task.dna.opposite, max(map(len, train[role])))

    def encode(self, dataset, role, diagnostics=None):
        one_hot, order = np.eye(4, dtype=np.float32), "TGCA" if self.opposite else "ACGT"
        return Sequences.of((one_hot[[order.index(base) for base in text]] for text in dataset[role]), width=4)

    def input_module(self, model):
        module = NumberInput(4, model.embedding)
        return module, module.width

    def element_names(self, item):
        return ["ACGT"[int(base.argmax())] for base in item]

    def describe(self, rows, row):
        return rows["input"][row]

    def example(self):
        return "ACGT", '["ACGT"]'
