"""A training step of Show, Attend and Tell, against the same network written plainly: nn.Conv2d, nn.BatchNorm2d, an
nn.LSTMCell in a loop, attention in four lines. Both learn from the same pictures of 64 × 64 with the same captions,
three of each picture; the plain one shows a picture once for each of its captions, as such code does, and, to tell what
that alone is worth, once for all."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from benchmarks.timing import interleaved, report
from seriatim.core.device import flush_denormals, keep_memory
from seriatim.tasks.caption import Settings, network
from seriatim.training.config import make_config

PICTURES, EACH, WORDS, VOCABULARY, WIDTH, REPEATS = 32, 3, 17, 28, 128, 15


class PlainBlock(nn.Module):
    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.first_norm = nn.BatchNorm2d(outputs)
        self.second = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.second_norm = nn.BatchNorm2d(outputs)
        self.skip = nn.Identity()
        if stride > 1 or inputs != outputs:
            self.skip = nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))

    def forward(self, x: Tensor) -> Tensor:
        y = F.relu(self.first_norm(self.first(x)))
        return F.relu(self.second_norm(self.second(y)) + self.skip(x))


class Plain(nn.Module):
    def __init__(self, width: int, vocabulary: int) -> None:
        super().__init__()
        self.encoder = nn.Sequential(
            nn.Conv2d(3, 16, 3, 1, 1, bias=False), nn.BatchNorm2d(16), nn.ReLU(), PlainBlock(16, 16, 1),
            PlainBlock(16, 32, 2), PlainBlock(32, 64, 2), nn.AvgPool2d(2),
        )  # fmt: skip
        self.project, self.norm = nn.Linear(64, width), nn.LayerNorm(width)
        self.places = nn.Parameter(torch.randn(64, width))
        self.embedding = nn.Embedding(vocabulary, width)
        self.first = nn.Linear(width, 2 * width)
        self.key, self.query = nn.Linear(width, width, bias=False), nn.Linear(width, width, bias=False)
        self.asked, self.weight = nn.Linear(width, width, bias=False), nn.Linear(width, 1, bias=False)
        self.gate = nn.Linear(width, 1)
        self.cell = nn.LSTMCell(2 * width, width)
        self.readout, self.head = nn.Linear(3 * width, width), nn.Linear(width, vocabulary)
        self.dropout = nn.Dropout(0.1)

    def forward(self, pictures: Tensor, given: Tensor, owners: Tensor) -> Tensor:
        grid = self.encoder((pictures.float() / 255 - 0.5) / 0.25).flatten(2).transpose(1, 2)
        memory = (self.norm(self.project(grid)) + self.places)[owners]
        keys, words = self.key(memory), self.embedding(given)
        hidden, inner = torch.tanh(self.first(memory.mean(dim=1))).chunk(2, dim=-1)
        found = []
        for t in range(given.shape[1]):
            query = self.query(hidden + self.asked(words[:, t]))
            weights = self.weight(torch.tanh(query[:, None] + keys)).softmax(dim=1)
            context = torch.sigmoid(self.gate(hidden)) * (weights * memory).sum(dim=1)
            hidden, inner = self.cell(self.dropout(torch.cat([words[:, t], context], dim=-1)), (hidden, inner))
            said = self.dropout(torch.cat([hidden, context, words[:, t]], dim=-1))
            found.append(self.head(self.dropout(torch.tanh(self.readout(said)))))
        return torch.stack(found, dim=1)


def ours(owners: Tensor, pictures: Tensor, given: Tensor, targets: Tensor) -> Any:
    from seriatim.core.state import select
    from seriatim.data.picture_files import Form
    from seriatim.nn.loss import token_loss

    config = make_config({"task": "caption", "data": "scenes", "model": {"name": "showattend", "width": WIDTH}})
    coder: Any = type("Coder", (), {"shape": Form(64, 64, 3).shape, "longest": WORDS, "target": None})()
    coder.target = type("Words", (), {"size": VOCABULARY})()
    model = network(config.model, coder, Settings(name="caption")).train()
    optimiser = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)

    def step() -> None:
        optimiser.zero_grad(set_to_none=True)
        hidden, _ = model.decode(given, select(model.encode(pictures), owners))
        loss = token_loss(hidden.flatten(0, 1), model.head.weight, model.head.bias, targets.flatten())
        (loss / targets.numel()).backward()
        optimiser.step()

    return step


def plain(owners: Tensor, pictures: Tensor, given: Tensor, targets: Tensor) -> Any:
    model = Plain(WIDTH, VOCABULARY).train()
    optimiser = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)

    def step() -> None:
        optimiser.zero_grad(set_to_none=True)
        scores = model(pictures, given, owners)
        F.cross_entropy(scores.flatten(0, 1), targets.flatten()).backward()
        optimiser.step()

    return step


def main() -> None:
    flush_denormals()
    keep_memory()
    torch.manual_seed(0)
    pictures = torch.randint(0, 256, (PICTURES, 64, 64, 3), dtype=torch.uint8).permute(0, 3, 1, 2)
    given, targets = torch.randint(0, VOCABULARY, (2, PICTURES * EACH, WORDS)).unbind()
    owners = torch.arange(PICTURES).repeat_interleave(EACH)
    again = pictures[owners].contiguous()
    competitors = {
        "seriatim": ours(owners, pictures, given, targets),
        "plain, a picture for all": plain(owners, pictures.contiguous(), given, targets),
        "plain, one for each": plain(torch.arange(len(again)), again, given, targets),
    }
    report("captions", interleaved(competitors, REPEATS))


if __name__ == "__main__":
    main()
