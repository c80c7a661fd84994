"""A training step of a small GPT: Seriatim's beside `transformers`' GPT-2, `torch.nn.TransformerEncoder` and a module
in nanoGPT's form: one product for queries, keys and values, PyTorch's fused attention, a shared table. It has biases,
as GPT-2 and ours have, or none, as in nanoGPT's own trainings, and then less to compute.

The same batch, the same fused AdamW, the same clipping; interleaved, so that the machine's moods hit all alike.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

from benchmarks.timing import interleaved, report
from seriatim.models.gpt import Settings
from seriatim.nn.network import token_network

VOCABULARY = 67
SIZES = {  # layers, heads, width, length, batch
    "nanogpt": (4, 4, 128, 64, 12),
    "six-layers": (6, 6, 384, 256, 12),
}


class Encoder(nn.Module):
    """torch's own layers, made causal."""

    def __init__(self, layers: int, heads: int, width: int, length: int) -> None:
        super().__init__()
        self.tokens, self.positions = nn.Embedding(VOCABULARY, width), nn.Embedding(length, width)
        layer = nn.TransformerEncoderLayer(width, heads, 4 * width, 0.0, F.gelu, batch_first=True, norm_first=True)
        self.layers = nn.TransformerEncoder(layer, layers, nn.LayerNorm(width), enable_nested_tensor=False)
        self.head = nn.Linear(width, VOCABULARY)
        self.register_buffer("mask", nn.Transformer.generate_square_subsequent_mask(length))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = self.tokens(x) + self.positions.weight
        return self.head(self.layers(hidden, mask=self.mask, is_causal=True))


class PlainBlock(nn.Module):
    """As one writes it by hand."""

    def __init__(self, heads: int, width: int, bias: bool) -> None:
        super().__init__()
        self.heads = heads
        self.first, self.second = nn.LayerNorm(width, bias=bias), nn.LayerNorm(width, bias=bias)
        self.inputs, self.mixing = nn.Linear(width, 3 * width, bias=bias), nn.Linear(width, width, bias=bias)
        self.up, self.down = nn.Linear(width, 4 * width, bias=bias), nn.Linear(4 * width, width, bias=bias)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        rows, steps, width = x.shape
        parts = self.inputs(self.first(x)).split(width, dim=2)
        query, key, value = (part.view(rows, steps, self.heads, -1).transpose(1, 2) for part in parts)
        mixed = F.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.mixing(mixed.transpose(1, 2).contiguous().view(rows, steps, width))
        return x + self.down(F.gelu(self.up(self.second(x))))


class Plain(nn.Module):
    """The form of nanoGPT, without dropout."""

    def __init__(self, layers: int, heads: int, width: int, length: int, bias: bool) -> None:
        super().__init__()
        self.tokens, self.positions = nn.Embedding(VOCABULARY, width), nn.Embedding(length, width)
        self.blocks = nn.Sequential(*(PlainBlock(heads, width, bias) for _ in range(layers)))
        self.norm = nn.LayerNorm(width, bias=bias)
        self.head = nn.Linear(width, VOCABULARY, bias=False)
        self.head.weight = self.tokens.weight

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = self.tokens(x) + self.positions(torch.arange(x.shape[1]))
        return self.head(self.norm(self.blocks(hidden)))


def competitors(size: str) -> dict[str, Callable[[], Any]]:
    from transformers import GPT2Config, GPT2LMHeadModel

    layers, heads, width, length, batch = SIZES[size]
    ours = token_network(Settings(name="gpt", layers=layers, heads=heads, width=width), VOCABULARY, length)
    theirs = GPT2LMHeadModel(
        GPT2Config(
            vocab_size=VOCABULARY, n_positions=length, n_embd=width, n_layer=layers, n_head=heads,
            resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0, use_cache=False,
        )
    )  # fmt: skip
    encoder = Encoder(layers, heads, width, length)
    plain, bare = (Plain(layers, heads, width, length, bias) for bias in (True, False))
    pair = torch.randint(0, VOCABULARY, (batch, length + 1))

    def step(network: nn.Module, logits: Callable[[torch.Tensor], torch.Tensor]) -> Callable[[], Any]:
        optimiser = torch.optim.AdamW(network.parameters(), lr=1e-3, fused=True)

        def run() -> None:
            optimiser.zero_grad(set_to_none=True)
            scores = logits(pair[:, :-1])
            F.cross_entropy(scores.flatten(0, 1), pair[:, 1:].flatten()).backward()
            nn.utils.clip_grad_norm_(network.parameters(), 1.0)
            optimiser.step()

        return run

    return {
        "seriatim": step(ours, lambda x: ours(x)[0]),
        "transformers": step(theirs, lambda x: theirs(x).logits),
        "torch.nn": step(encoder, encoder),
        "nanoGPT's form": step(plain, plain),
        "the same, no biases": step(bare, bare),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--size", choices=sorted(SIZES), action="append")
    parser.add_argument("--repeats", type=int, default=30)
    arguments = parser.parse_args()
    for size in arguments.size or SIZES:
        report(f"gpt-training-{size}", interleaved(competitors(size), arguments.repeats))


if __name__ == "__main__":
    main()
