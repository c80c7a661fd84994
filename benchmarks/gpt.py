"""A training step of a small GPT: Seriatim's beside GPT-2 of `transformers`, `torch.nn.TransformerEncoder` and a plain
module like nanoGPT's: one matmul for queries, keys and values, PyTorch's fused attention, tied embeddings. It has
biases, as GPT-2 and ours have, or none, as nanoGPT is trained, and then less to compute; with biases also by
`torch.compile`.

The same batch, the same fused AdamW, the same clipping; interleaved, so that disturbances affect all alike.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

from benchmarks.timing import Competitors, count_flops, interleaved, parse_options, report
from seriatim.models.gpt import Settings
from seriatim.nn.network import token_network

VOCAB_SIZE = 67
SIZES = {  # layers, heads, width, length, batch
    "nanogpt": (4, 4, 128, 64, 12),
    "one-million": (5, 4, 128, 128, 16),
    "six-layers": (6, 6, 384, 256, 12),
}
CASES = {
    f"gpt-training-{size}": f"GPT, {layers} layers of {width}, {batch} × {length} tokens: training step"
    for size, (layers, _, width, length, batch) in SIZES.items()
}


class Encoder(nn.Module):
    """The layers of torch, with a causal mask."""

    def __init__(self, layers: int, heads: int, width: int, length: int) -> None:
        super().__init__()
        self.tokens, self.positions = nn.Embedding(VOCAB_SIZE, width), nn.Embedding(length, width)
        layer = nn.TransformerEncoderLayer(width, heads, 4 * width, 0.0, F.gelu, batch_first=True, norm_first=True)
        self.layers = nn.TransformerEncoder(layer, layers, nn.LayerNorm(width), enable_nested_tensor=False)
        self.head = nn.Linear(width, VOCAB_SIZE)
        self.register_buffer("mask", nn.Transformer.generate_square_subsequent_mask(length))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = self.tokens(x) + self.positions.weight
        return self.head(self.layers(hidden, mask=self.mask, is_causal=True))


class PlainBlock(nn.Module):
    def __init__(self, heads: int, width: int, bias: bool) -> None:
        super().__init__()
        self.heads = heads
        self.first, self.second = nn.LayerNorm(width, bias=bias), nn.LayerNorm(width, bias=bias)
        self.inputs, self.output = nn.Linear(width, 3 * width, bias=bias), nn.Linear(width, width, bias=bias)
        self.up, self.down = nn.Linear(width, 4 * width, bias=bias), nn.Linear(4 * width, width, bias=bias)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        rows, steps, width = x.shape
        projected = self.inputs(self.first(x)).split(width, dim=2)
        query, key, value = (part.view(rows, steps, self.heads, -1).transpose(1, 2) for part in projected)
        attended = F.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.output(attended.transpose(1, 2).contiguous().view(rows, steps, width))
        return x + self.down(F.gelu(self.up(self.second(x))))


class Plain(nn.Module):
    """A GPT as in nanoGPT, without dropout."""

    def __init__(self, layers: int, heads: int, width: int, length: int, bias: bool) -> None:
        super().__init__()
        self.tokens, self.positions = nn.Embedding(VOCAB_SIZE, width), nn.Embedding(length, width)
        self.blocks = nn.Sequential(*(PlainBlock(heads, width, bias) for _ in range(layers)))
        self.norm = nn.LayerNorm(width, bias=bias)
        self.head = nn.Linear(width, VOCAB_SIZE, bias=False)
        self.head.weight = self.tokens.weight

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = self.tokens(x) + self.positions(torch.arange(x.shape[1]))
        return self.head(self.norm(self.blocks(hidden)))


def make_competitors(size: str) -> Competitors:
    layers, heads, width, length, batch = SIZES[size]
    ours = token_network(Settings(name="gpt", layers=layers, heads=heads, width=width), VOCAB_SIZE, length)
    encoder = Encoder(layers, heads, width, length)
    plain, without_biases = (Plain(layers, heads, width, length, bias) for bias in (True, False))
    tokens = torch.randint(0, VOCAB_SIZE, (batch, length + 1))

    def make_step(network: nn.Module, logits: Callable[[torch.Tensor], torch.Tensor]) -> Callable[[], Any]:
        optimizer = torch.optim.AdamW(network.parameters(), lr=1e-3, fused=True)

        def step() -> None:
            optimizer.zero_grad(set_to_none=True)
            scores = logits(tokens[:, :-1])
            F.cross_entropy(scores.flatten(0, 1), tokens[:, 1:].flatten()).backward()
            nn.utils.clip_grad_norm_(network.parameters(), 1.0)
            optimizer.step()

        return step

    def make_transformers_step() -> Callable[[], Any]:
        from transformers import GPT2Config, GPT2LMHeadModel

        config = GPT2Config(
            vocab_size=VOCAB_SIZE, n_positions=length, n_embd=width, n_layer=layers, n_head=heads,
            resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0, use_cache=False,
        )  # fmt: skip
        theirs = GPT2LMHeadModel(config)
        return make_step(theirs, lambda x: theirs(x).logits)

    def make_compiled_step() -> Callable[[], Any]:
        compiled = Plain(layers, heads, width, length, bias=True)
        return make_step(compiled, torch.compile(compiled))

    competitors = Competitors(
        {
            "seriatim": make_step(ours, lambda x: ours.head(ours.outputs(x))),
            "torch.nn": make_step(encoder, encoder),
            "nanoGPT": make_step(plain, plain),
            "nanoGPT, no biases": make_step(without_biases, without_biases),
        }
    )
    competitors.add("transformers", make_transformers_step)
    competitors.add("nanoGPT, compiled", make_compiled_step)
    return competitors


def main() -> None:
    options = parse_options(__doc__, CASES, quick=["gpt-training-nanogpt"], repeats=30)
    for name in options.cases:
        competitors = make_competitors(name.removeprefix("gpt-training-"))
        flops = count_flops(competitors["nanoGPT"])
        report(name, interleaved(competitors, options), options, flops=flops)


if __name__ == "__main__":
    main()
