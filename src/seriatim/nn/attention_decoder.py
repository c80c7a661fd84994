"""A recurrent decoder that attends to a memory before each output.

    c_t = Σ_i α(s_{t−1}, m_i) m_i        s_t = f([y_{t−1}; c_t], s_{t−1})        ŝ_t = tanh(W [s_t; c_t; y_{t−1}])

The memory m (B,S,E) may be the outputs of an encoder over tokens (Bahdanau et al. 2015) or the grid of an image (Xu et
al. 2015), which adds a gate for the whole context: c_t ← σ(w·s_{t−1} + b) c_t. In the papers the query is s_{t−1},
which has not read the last token. Optionally the last token is part of the query: α(s_{t−1} + U y_{t−1}, m_i).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from .attention import masked_softmax
from .attention_scores import make_score
from .encoder_decoder import EncoderDecoderBackbone
from .layers import Dropout
from .matmul import LoopMatmul
from .recurrent import Cell, Recurrent, State
from .trace import Trace, record, trace_scope


class AttentionDecoder(EncoderDecoderBackbone):
    """Base of encoder–decoders with attention inside the recurrence.

    The memory of `make_memory` is a tuple: the vectors, the keys, what each position adds to the gates (or None), the
    mask (or None) and the first state. The state is that of the attending layer and those of the layers above.

    Since W c_t = Σ_i α_i W m_i, the contribution W m_i of each position can be computed once (`precompute`), and no
    step has a product of its own: faster for short memories of wide vectors, slower for many narrow ones.

    Args:
        cell: Makes a cell from the size of its inputs and its width.
        inputs: The size of the token vectors.
        memory: The size of the memory's vectors.
        width: The size of the hidden vectors.
        score: The attention score.
        layers: Recurrent layers; the first one attends.
        dropout: The share of dropped activations.
        key_size: The first numbers of a memory vector, from which its key is made; by default all.
        gated: Whether a gate scales the context.
        query_input: Whether the last token is part of the query.
        precompute: Whether to compute the contributions to the gates once.
    """

    def __init__(
        self,
        cell: Callable[[int, int], Cell],
        inputs: int,
        memory: int,
        width: int,
        score: str = "additive",
        layers: int = 1,
        dropout: float = 0.0,
        key_size: int | None = None,
        gated: bool = False,
        query_input: bool = False,
        precompute: bool = True,
    ) -> None:
        super().__init__()
        self.width = width
        self.precompute = precompute
        self.cell = cell(inputs, width)
        self.context = nn.Linear(memory, self.cell.input.out_features, bias=False)  # W of c_t in f
        self.bridge = nn.Linear(memory, width * self.cell.state_tensors)
        self.key_size = memory if key_size is None else key_size
        self.score = make_score(score, width, self.key_size, width)
        self.gate = nn.Linear(width, 1) if gated else None
        self.query_input = nn.Linear(inputs, width, bias=False) if query_input else None
        self.above = Recurrent(cell, width, width, layers - 1, dropout, first_layer=1) if layers > 1 else None
        self.readout = nn.Linear(width + memory + inputs, width)
        self.dropout = Dropout(dropout)
        for block in self.context.weight.chunk(len(self.cell.gates)):
            nn.init.xavier_uniform_(block)

    def make_memory(self, memory: Tensor, summary: Tensor, mask: Tensor | None = None) -> Any:
        """Returns what `decode` reads: of vectors (B,S,E), and a summary (B,E) from which the first state is made."""
        first = torch.tanh(self.bridge(summary)).chunk(self.cell.state_tensors, dim=-1)
        keys = self.score.prepare(memory[..., : self.key_size])
        return memory, keys, self.context(memory) if self.precompute else None, mask, first

    def decode(self, y: Tensor, memory: Any, state: Any = None, trace: Trace | None = None) -> tuple[Tensor, Any]:
        values, keys, contributions, mask, first = memory
        query_mask = None if mask is None else mask[:, None]
        inner: State = first if state is None else state[0]
        projected = self.cell.input(self.dropout(y)).unbind(dim=1)  # of all steps at once, (B,G·D) each
        matmuls = self.cell.matmuls()
        to_gates = LoopMatmul(self.context.weight.T if contributions is None else contributions)
        score = self.score.bind(keys)
        queries = None if self.query_input is None else self.query_input(y).unbind(dim=1)
        hidden, alignments, gated_weights, gates = [], [], [], []
        for t in range(y.shape[1]):
            query = inner[0] if queries is None else inner[0] + queries[t]
            weights = masked_softmax(score(query[:, None]), query_mask)  # (B,1,S)
            alignments.append(weights)
            if self.gate is not None:
                weights = weights * torch.sigmoid(self.gate(inner[0]))[:, None]
            if contributions is None:
                context = to_gates((weights @ values)[:, 0])  # (B,G·D)
            else:
                context = to_gates(weights)[:, 0]
            inner, step_gates = self.cell.step(projected[t] + context, inner, matmuls)
            hidden.append(inner[0])
            gated_weights.append(weights)
            if trace is not None:
                gates.append(step_gates)
        record(trace, "alignment", torch.cat(alignments, dim=1))  # (B,T,S)
        for name in gates[0] if gates else ():
            record(trace, f"decoder.layer0.{name}", torch.stack([step[name] for step in gates], dim=1))
        above = None
        outputs = torch.stack(hidden, dim=1)  # (B,T,D)
        if self.above is not None:
            before = None if state is None else state[1]
            outputs, above = self.above(outputs, None, before, trace_scope(trace, "decoder"))
        readout = torch.cat([outputs, torch.cat(gated_weights, dim=1) @ values, y], dim=-1)
        return self.dropout(torch.tanh(self.readout(self.dropout(readout)))), (inner, above)
