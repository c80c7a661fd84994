"""Rank texts by preference: a user's own task in one file.

p(a is preferred to b) = σ(s(a) − s(b)),        s = w · pool(h)
"""

from dataclasses import dataclass, replace

import numpy as np
import torch
from torch.nn import functional as F

from seriatim.data.kinds import NUMBER, TEXT
from seriatim.data.schema import Field, Schema
from seriatim.data.sequences import Sequences
from seriatim.nn.network import VectorHead, assemble
from seriatim.tasks.base import Batch, Encoded, Measured, Output, Processor, Task, padding_mask
from seriatim.tasks.capability import capability
from seriatim.tasks.codecs import SequenceSettings, TextCodec
from seriatim.tasks.predictor import Predictor


class RankSettings(SequenceSettings):
    name: str = "rank"


@dataclass(frozen=True, eq=False)
class RankItems(Encoded):
    rejected: Sequences | None = None  # the less preferred text of each pair; None in prediction

    def take(self, items):
        rejected = None if self.rejected is None else self.rejected.take(items)
        return replace(super().take(items), rejected=rejected)


@dataclass(frozen=True)
class RankProcessor(Processor[RankItems]):
    text: TextCodec

    @classmethod
    def fit(cls, train, config, pretrained, diagnostics):
        return cls(TextCodec.fit(train, "text", config, pretrained, diagnostics))

    def encode(self, rows, diagnostics):
        """Returns the texts as inputs, and the less preferred text of each pair."""
        rejected = self.text.encode(rows, "rejected", diagnostics) if "rejected" in rows else None
        return RankItems(self.text.encode(rows, "text", diagnostics), rejected)


class RankPredictor(Predictor):
    @capability(outputs={"score": NUMBER})
    def rank(self, call):
        """Score each text; a higher score means preferred."""
        items = self.task.encode(call.rows, call.diagnostics)
        return [{"score": float(scores[0])} for scores in self.scores(items)]


class RankTask(Task[RankSettings, RankProcessor, RankItems, list]):
    name = "rank"
    schema = Schema(
        (
            Field("text", (TEXT,), ("chosen", "better")),
            Field("rejected", (TEXT,), ("worse",), target=True),
        )
    )
    settings_type = RankSettings
    processor_type = RankProcessor
    predictor_type = RankPredictor
    monitor = "error"

    def network(self, model):
        codec = self.processor.text
        module, width = codec.input_module(model)
        return assemble(model, module, width, codec.longest, lambda backbone: VectorHead(backbone.width, 1, "mean"))

    def collate(self, items, chosen):
        """Returns the texts of the chosen items, in training followed by their rejected texts: (B,T) or (2B,T)."""
        sides = [items.inputs] if items.rejected is None else [items.inputs, items.rejected]
        texts = Sequences.of([side[int(item)] for side in sides for item in chosen])
        inputs, mask = texts.padded(np.arange(len(texts)))
        return Batch(torch.from_numpy(inputs), None, len(chosen), padding_mask(mask))

    def forward(self, network, batch, state=None):
        scores, _ = network(batch.inputs, batch.mask)
        return Output(scores.unflatten(0, (-1, batch.count)).squeeze(-1).T)  # (B,2): chosen, rejected; or (B,1)

    def loss(self, output, batch, smoothing=0.0):
        chosen, rejected = output.scores.unbind(dim=1)
        return F.softplus(rejected - chosen).sum()

    def measure(self, items, scores):
        return Measured({"error": float(np.mean([rejected >= chosen for chosen, rejected in scores]))})
