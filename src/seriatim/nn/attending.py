"""A recurrent decoder that looks at a memory before every word that it writes, whatever the memory is.

    c_t = Σ_i α(s_{t−1}, m_i) m_i        s_t = f([y_{t−1}; c_t], s_{t−1})        ŝ_t = tanh(W [s_t; c_t; y_{t−1}])

The memory m (B,S,E) may be the outputs of an encoder over words (Bahdanau et al. 2015) or the grid of a picture (Xu et
al. 2015), which adds a gate for looking as a whole: c_t ← σ(w·s_{t−1} + b) c_t. The papers ask with s_{t−1}, which has
not read the last word yet. Where it decides what is to be looked for, the word asks, too: α(s_{t−1} + U y_{t−1}, m_i).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from .attention import make_score, masked_softmax
from .dropout import Dropout
from .pair import PairBackbone
from .product import Product
from .recurrent import Cell, Recurrent, State
from .trace import Trace, inside, show


class Attending(PairBackbone):
    """What `remember` gives: the memory, the keys made of it, what each of its places adds to the gates (or None), its
    mask (or None), and the first state. The state: that of the layer that attends, and those of the layers above.

    W c_t = Σ_i α_i W m_i: of a short memory of wide vectors, what each place adds to the gates is worked out once
    (`ahead`), and no step has a product of its own; of many narrow ones that would be more to read than to work out.
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
        keyed: int | None = None,
        gated: bool = False,
        asking: bool = False,
        ahead: bool = True,
    ) -> None:
        """For a memory of vectors of size `memory`, of whose numbers the first `keyed` say whether it is to be looked
        at (default: all); `gated`: how much it looks at all is a gate; `asking`: the last word asks, too."""
        super().__init__()
        self.width = width
        self.ahead = ahead
        self.cell = cell(inputs, width)
        self.attended = nn.Linear(memory, self.cell.input.out_features, bias=False)  # W of c_t in f
        self.bridge = nn.Linear(memory, width * self.cell.parts)
        self.keyed = memory if keyed is None else keyed
        self.score = make_score(score, width, self.keyed, width)
        self.gate = nn.Linear(width, 1) if gated else None
        self.asked = nn.Linear(inputs, width, bias=False) if asking else None
        self.above = Recurrent(cell, width, width, layers - 1, dropout, below=1) if layers > 1 else None
        self.readout = nn.Linear(width + memory + inputs, width)
        self.dropout = Dropout(dropout)
        for block in self.attended.weight.chunk(len(self.cell.gates)):
            nn.init.xavier_uniform_(block)

    def remember(self, memory: Tensor, whole: Tensor, mask: Tensor | None = None) -> Any:
        """`whole` (B,E) stands for all of the memory: the first state is made of it."""
        first = torch.tanh(self.bridge(whole)).chunk(self.cell.parts, dim=-1)
        keys = self.score.prepare(memory[..., : self.keyed])
        return memory, keys, self.attended(memory) if self.ahead else None, mask, first

    def decode(self, y: Tensor, memory: Any, state: Any = None, trace: Trace | None = None) -> tuple[Tensor, Any]:
        values, keys, pulls, mask, first = memory
        visible = None if mask is None else mask[:, None]
        inner: State = first if state is None else state[0]
        projected = self.cell.input(self.dropout(y)).unbind(dim=1)  # of all steps at once, (B,G·D) each
        products, to_gates = self.cell.products(), Product(self.attended.weight.T if pulls is None else pulls)
        score = self.score.over(keys)
        asks = None if self.asked is None else self.asked(y).unbind(dim=1)
        hidden, looked, used, gates = [], [], [], []
        for t in range(y.shape[1]):
            query = inner[0] if asks is None else inner[0] + asks[t]
            weights = masked_softmax(score(query[:, None]), visible)  # (B,1,S)
            looked.append(weights)
            if self.gate is not None:
                weights = weights * torch.sigmoid(self.gate(inner[0]))[:, None]
            pulled = to_gates((weights @ values)[:, 0]) if pulls is None else to_gates(weights)[:, 0]  # (B,G·D)
            inner, told = self.cell.step(projected[t] + pulled, inner, products)
            hidden.append(inner[0])
            used.append(weights)
            if trace is not None:
                gates.append(told)
        show(trace, "alignment", torch.cat(looked, dim=1))  # (B,T,S)
        for name in gates[0] if gates else ():
            show(trace, f"decoder.layer0.{name}", torch.stack([told[name] for told in gates], dim=1))
        above = None
        outputs = torch.stack(hidden, dim=1)  # (B,T,D)
        if self.above is not None:
            outputs, above = self.above(outputs, None, None if state is None else state[1], inside(trace, "decoder"))
        seen = torch.cat([outputs, torch.cat(used, dim=1) @ values, y], dim=-1)
        return self.dropout(torch.tanh(self.readout(self.dropout(seen)))), (inner, above)
