"""A training step of Show, Attend and Tell, beside the same network written plainly: nn.Conv2d, nn.BatchNorm2d, an
nn.LSTMCell in a loop, attention in four lines. Both are trained on the same images of 64 × 64 with the same captions,
three of each image. The plain network encodes an image once for each of its captions, as such code usually does, and,
to show what this alone costs, once for all of them.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from benchmarks.timing import count_flops, interleaved, parse_options, report
from seriatim.core.device import flush_denormals, retain_freed_memory
from seriatim.core.state import select
from seriatim.models.show_attend_tell import Settings
from seriatim.nn.images import image_encoder_decoder_network
from seriatim.nn.loss import token_loss
from seriatim.tasks.caption.task import image_encoder

IMAGES, CAPTIONS, WORDS, VOCAB_SIZE, WIDTH = 32, 3, 17, 28, 128
CASES = {"captions": "Show, Attend and Tell, 32 images with 3 captions each: training step"}
Step = Callable[[], None]


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
    def __init__(self, width: int, vocab_size: int) -> None:
        super().__init__()
        self.encoder = nn.Sequential(
            nn.Conv2d(3, 16, 3, 1, 1, bias=False), nn.BatchNorm2d(16), nn.ReLU(), PlainBlock(16, 16, 1),
            PlainBlock(16, 32, 2), PlainBlock(32, 64, 2), nn.AvgPool2d(2),
        )  # fmt: skip
        self.project, self.norm = nn.Linear(64, width), nn.LayerNorm(width)
        self.positions = nn.Parameter(torch.randn(64, width))
        self.embedding = nn.Embedding(vocab_size, width)
        self.initial = nn.Linear(width, 2 * width)
        self.key, self.query = nn.Linear(width, width, bias=False), nn.Linear(width, width, bias=False)
        self.word_query, self.weight = nn.Linear(width, width, bias=False), nn.Linear(width, 1, bias=False)
        self.gate = nn.Linear(width, 1)
        self.cell = nn.LSTMCell(2 * width, width)
        self.readout, self.head = nn.Linear(3 * width, width), nn.Linear(width, vocab_size)
        self.dropout = nn.Dropout(0.1)

    def forward(self, images: Tensor, tokens: Tensor, image_of: Tensor) -> Tensor:
        grid = self.encoder((images.float() / 255 - 0.5) / 0.25).flatten(2).transpose(1, 2)
        memory = (self.norm(self.project(grid)) + self.positions)[image_of]
        keys, words = self.key(memory), self.embedding(tokens)
        hidden, cell = torch.tanh(self.initial(memory.mean(dim=1))).chunk(2, dim=-1)
        scores = []
        for t in range(tokens.shape[1]):
            query = self.query(hidden + self.word_query(words[:, t]))
            weights = self.weight(torch.tanh(query[:, None] + keys)).softmax(dim=1)
            context = torch.sigmoid(self.gate(hidden)) * (weights * memory).sum(dim=1)
            hidden, cell = self.cell(self.dropout(torch.cat([words[:, t], context], dim=-1)), (hidden, cell))
            features = self.dropout(torch.cat([hidden, context, words[:, t]], dim=-1))
            scores.append(self.head(self.dropout(torch.tanh(self.readout(features)))))
        return torch.stack(scores, dim=1)


def make_step(network: nn.Module, loss: Callable[[], Tensor]) -> Step:
    """Returns a training step; `loss` is the mean over all tokens."""
    optimizer = torch.optim.AdamW(network.train().parameters(), lr=1e-3, fused=True)

    def step() -> None:
        optimizer.zero_grad(set_to_none=True)
        loss().backward()
        optimizer.step()

    return step


def make_own_step(images: Tensor, tokens: Tensor, image_of: Tensor, targets: Tensor) -> Step:
    settings, shape = Settings(name="show_attend_tell", width=WIDTH), (3, 64, 64)
    encoder = image_encoder(None, settings, shape, None, None)
    network = image_encoder_decoder_network(settings, encoder, shape, VOCAB_SIZE, WORDS)

    def loss() -> Tensor:
        hidden, _ = network.decode(tokens, select(network.encode(images), image_of))
        total = token_loss(hidden.flatten(0, 1), network.head.weight, network.head.bias, targets.flatten())
        return total / targets.numel()

    return make_step(network, loss)


def make_plain_step(images: Tensor, tokens: Tensor, image_of: Tensor, targets: Tensor) -> Step:
    network = Plain(WIDTH, VOCAB_SIZE)
    return make_step(
        network, lambda: F.cross_entropy(network(images, tokens, image_of).flatten(0, 1), targets.flatten())
    )


def main() -> None:
    options = parse_options(__doc__, CASES)
    count = 2 if options.quick else IMAGES
    flush_denormals()
    retain_freed_memory()
    torch.manual_seed(0)
    images = torch.randint(0, 256, (count, 64, 64, 3), dtype=torch.uint8).permute(0, 3, 1, 2)
    tokens, targets = torch.randint(0, VOCAB_SIZE, (2, count * CAPTIONS, WORDS)).unbind()
    image_of = torch.arange(count).repeat_interleave(CAPTIONS)
    repeated = images[image_of].contiguous()
    competitors = {
        "seriatim": make_own_step(images, tokens, image_of, targets),
        "plain, encoded once": make_plain_step(images.contiguous(), tokens, image_of, targets),
        "plain, for each caption": make_plain_step(repeated, tokens, torch.arange(len(repeated)), targets),
    }
    flops = count_flops(competitors["plain, encoded once"])
    report("captions", interleaved(competitors, options), options, flops=flops)


if __name__ == "__main__":
    main()
