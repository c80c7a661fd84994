"""A training step of a sentence classifier: Seriatim's network and batches beside plain PyTorch with packed sequences.

A bidirectional LSTM of 128 units over 32 sentences of 5 to 50 words, 10,000 words, the mean of the outputs, two labels,
AdamW: forward, backward and update.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from benchmarks.timing import interleaved, parse_options, report
from seriatim.models.lstm import Settings
from seriatim.nn.layers import TokenInput
from seriatim.nn.network import Network, VectorHead

BATCH, LONGEST, WORDS, SIZE, WIDTH = 32, 50, 10_000, 128, 128
CASES = {"classify": "Bidirectional LSTM of 128, 32 sentences of 5 to 50 words: training step"}


class Packed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(WORDS, SIZE)
        self.lstm = nn.LSTM(SIZE, WIDTH, batch_first=True, bidirectional=True)
        self.output = nn.Linear(2 * WIDTH, 2)

    def forward(self, tokens: Tensor, lengths: Tensor) -> Tensor:
        packed = pack_padded_sequence(self.embedding(tokens), lengths, batch_first=True, enforce_sorted=False)
        hidden, _ = pad_packed_sequence(self.lstm(packed)[0], batch_first=True)
        scores: Tensor = self.output(hidden.sum(dim=1) / lengths[:, None])
        return scores


def main() -> None:
    options = parse_options(__doc__, CASES, repeats=50)
    torch.manual_seed(0)
    lengths = torch.randint(5, LONGEST + 1, (BATCH,))
    lengths[0] = LONGEST
    mask = torch.arange(LONGEST) < lengths[:, None]
    tokens = torch.randint(0, WORDS, (BATCH, LONGEST)) * mask
    labels = torch.randint(0, 2, (BATCH,))

    backbone = Settings(name="lstm", width=WIDTH, bidirectional=True).build(SIZE, LONGEST)
    ours = Network(TokenInput(WORDS, SIZE), backbone, VectorHead(2 * WIDTH, 2, "mean"))
    packed = Packed()
    optimizers = {id(network): torch.optim.AdamW(network.parameters(), fused=True) for network in (ours, packed)}

    def step(network: nn.Module, scores: Tensor) -> None:
        optimizers[id(network)].zero_grad()
        F.cross_entropy(scores, labels).backward()
        optimizers[id(network)].step()

    competitors = {
        "seriatim": lambda: step(ours, ours(tokens, mask)[0]),
        "nn.LSTM, packed": lambda: step(packed, packed(tokens, lengths)),
    }
    report("classify", interleaved(competitors, options), options)


if __name__ == "__main__":
    main()
