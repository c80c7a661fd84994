"""A training step of a sentence classifier: Seriatim's network and batches beside plain PyTorch with packed sequences.

Bidirectional LSTM of 128 units over 32 sentences of 5 to 50 words, 10,000 words, the mean of the outputs, two labels,
AdamW: forward, backward and update.
"""

from __future__ import annotations

import argparse

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from benchmarks.timing import interleaved, report
from seriatim.models.lstm import LSTM
from seriatim.nn.heads import VectorHead
from seriatim.nn.network import Network, TokenInput

BATCH, LONGEST, WORDS, SIZE, WIDTH = 32, 50, 10_000, 128, 128


class Packed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(WORDS, SIZE)
        self.lstm = nn.LSTM(SIZE, WIDTH, batch_first=True, bidirectional=True)
        self.output = nn.Linear(2 * WIDTH, 2)

    def forward(self, tokens: Tensor, lengths: Tensor) -> Tensor:
        packed = pack_padded_sequence(self.table(tokens), lengths, batch_first=True, enforce_sorted=False)
        hidden, _ = pad_packed_sequence(self.lstm(packed)[0], batch_first=True)
        scores: Tensor = self.output(hidden.sum(dim=1) / lengths[:, None])
        return scores


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=20)
    repeats = parser.parse_args().repeats
    torch.manual_seed(0)
    lengths = torch.randint(5, LONGEST + 1, (BATCH,))
    lengths[0] = LONGEST
    mask = torch.arange(LONGEST) < lengths[:, None]
    tokens = torch.randint(0, WORDS, (BATCH, LONGEST)) * mask
    labels = torch.randint(0, 2, (BATCH,))

    ours = Network(TokenInput(WORDS, SIZE), LSTM(SIZE, WIDTH, bidirectional=True), VectorHead(2 * WIDTH, 2, "mean"))
    packed = Packed()
    optimisers = {id(one): torch.optim.AdamW(one.parameters(), fused=True) for one in (ours, packed)}

    def step(network: nn.Module, scores: Tensor) -> None:
        optimisers[id(network)].zero_grad()
        F.cross_entropy(scores, labels).backward()
        optimisers[id(network)].step()

    competitors = {
        "seriatim": lambda: step(ours, ours(tokens, mask)[0]),
        "nn.LSTM, packed": lambda: step(packed, packed(tokens, lengths)),
    }
    report("classify", interleaved(competitors, repeats))


if __name__ == "__main__":
    main()
