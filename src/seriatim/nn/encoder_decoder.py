"""Encoder–decoders: the interface of architectures over two sequences, the network around them, recurrent decoders.

    memory = model.encode(source, mask)          hidden, state = model.decode(target, memory, state)

`memory` and `state` are opaque trees of tensors whose first dimension is the batch. The decoder is causal and may be
fed whole, in chunks or one element at a time, with the same result. `mask` (B,S) is True for source elements and False
for padding, which is on the right and never changes the output. The target needs no mask: no element sees later ones.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from ..core.errors import SeriatimError
from ..core.state import State
from .attention import EQUAL_SIZE_SCORES, Kernel, attention_pool, make_score, masked_softmax, pooling_weights
from .backbone import Backbone, BackboneSettings, Trace, record, trace_scope
from .layers import Dropout, TokenInput
from .network import TokenHead
from .recurrent import Cell, CellState, LoopMatmul, Recurrent


class EncoderDecoderBackbone(nn.Module):
    """Base of the encoder–decoders. `width` is the size of the decoder's outputs."""

    width: int
    causal: bool = True
    carries_state: bool = False
    directions: int = 1
    context_length: int | None = None  # the longest source and target; None: any

    def encode(self, x: Tensor, mask: Tensor | None = None, trace: Trace | None = None) -> State:
        raise TypeError(f"{type(self).__name__} has no encode")

    def encoder_outputs(self, x: Tensor, mask: Tensor | None = None, trace: Trace | None = None) -> Tensor:
        """Returns the encoder's output for each source element (B,S,D)."""
        y: Tensor = self.get_submodule("encoder")(x, mask, None, trace_scope(trace, "encoder", mask))[0]
        return y

    def decode(self, y: Tensor, memory: State, state: State = None, trace: Trace | None = None) -> tuple[Tensor, State]:
        """Returns outputs (B,T,width) and the state; attention weights are traced as "alignment" (B,T,S)."""
        raise TypeError(f"{type(self).__name__} has no decode")

    def decoder_outputs(self, y: Tensor, memory: State) -> Tensor:
        """Returns the outputs of whole targets (B,T,width) without a state, at less cost than `decode` if possible."""
        return self.decode(y, memory)[0]

    def final_norm(self) -> nn.Module | None:
        """Returns what follows the last block on the residual stream, for the logit lens; None if there is none."""
        return None

    def native_parts(self, embeddings: Tensor, head: TokenHead, scale: float) -> Any:
        """Returns the parts of the decoder for native generation (nn/native.py), None if it is not supported.

        Args:
            embeddings: The token vectors (V,D) of the target.
            head: The head.
            scale: The factor of the token vectors.
        """
        return None


class EncoderDecoderSettings(BackboneSettings):
    """The settings that all encoder–decoders share."""

    encoder_decoder: ClassVar[bool] = True
    attends: ClassVar[bool] = True
    muon_lr: ClassVar[float | None] = None  # recurrent ones learn faster at first, and end at a higher loss

    def source_width(self, inputs: int) -> int:
        """Returns the size of source vectors for target vectors of size `inputs`; images have content and position."""
        return 2 * inputs if self.modality == "image" else inputs


class EncoderDecoder(nn.Module):
    """A network from the tokens of a source and of a target so far to scores of the target's next token.

    With a joint vocabulary one matrix serves both inputs, and the output if tied. Weights that are small enough for the
    output are too small for the inputs, hence `scale`.
    """

    def __init__(
        self,
        source: TokenInput,
        target: TokenInput,
        backbone: EncoderDecoderBackbone,
        head: TokenHead,
        scale: float = 1.0,
    ) -> None:
        super().__init__()
        self.scale = scale
        self.source = source
        self.target = target
        self.backbone = backbone
        self.head = head

    def encode(self, source: Tensor, mask: Tensor | None = None, trace: Trace | None = None) -> State:
        return self.backbone.encode(self.source(source) * self.scale, mask, trace)

    def empty_source(self) -> Tensor:
        """Returns the smallest valid source, for trial runs."""
        return torch.zeros(1, 1, dtype=torch.long, device=self.head.weight.device)

    def encoder_outputs(self, source: Tensor, mask: Tensor | None = None, trace: Trace | None = None) -> Tensor:
        """Returns the encoder's output for each source element (B,S,D)."""
        return self.backbone.encoder_outputs(self.source(source) * self.scale, mask, trace)

    def decode(
        self, target: Tensor, memory: State, state: State = None, trace: Trace | None = None
    ) -> tuple[Tensor, State]:
        return self.backbone.decode(self.target(target) * self.scale, memory, state, trace)

    def decoder_outputs(self, target: Tensor, memory: State) -> Tensor:
        """Returns the decoder's outputs for whole targets (B,T,width), without the state."""
        return self.backbone.decoder_outputs(self.target(target) * self.scale, memory)

    def forward(self, source: Tensor, target: Tensor, mask: Tensor | None = None, trace: Trace | None = None) -> Tensor:
        hidden, _ = self.decode(target, self.encode(source, mask, trace), None, trace)
        scores: Tensor = self.head(hidden)
        return scores


class LuongEncoderDecoder(EncoderDecoderBackbone):
    """Attention after a backbone: any causal backbone decodes, and attends to the source with its outputs.

    Luong et al., "Effective approaches to attention-based neural machine translation" (2015):

        c_t = Σ_i α(h_t, m_i) m_i        ĥ_t = tanh(W [h_t; c_t])

    Kernels have a bandwidth of √d, so that random vectors with numbers of size 1 are in reach. With `learned_values`
    the pooled values are v(m_i) = V m_i.
    """

    def __init__(
        self, encoder: Backbone, decoder: Backbone, score: str = "general", learned_values: bool = False
    ) -> None:
        super().__init__()
        self.width = decoder.width
        limits = [part.context_length for part in (encoder, decoder) if part.context_length is not None]
        self.context_length = min(limits) if limits else None
        self.encoder = encoder
        self.decoder = decoder
        project = score in EQUAL_SIZE_SCORES and encoder.width != decoder.width
        self.project = nn.Linear(encoder.width, decoder.width, bias=False) if project else nn.Identity()
        width = decoder.width if project else encoder.width
        self.score = make_score(score, decoder.width, width, decoder.width, math.sqrt(width))
        self.values = nn.Linear(width, width, bias=False) if learned_values else nn.Identity()
        self.mix = nn.Linear(decoder.width + width, decoder.width)

    def encode(self, x: Tensor, mask: Tensor | None = None, trace: Trace | None = None) -> State:
        memory = self.project(self.encoder(x, mask, None, trace_scope(trace, "encoder", mask))[0])
        return self.values(memory), self.score.prepare(memory), mask

    def decode(self, y: Tensor, memory: State, state: State = None, trace: Trace | None = None) -> tuple[Tensor, State]:
        values, keys, mask = memory
        hidden, state = self.decoder(y, None, state, trace_scope(trace, "decoder"))
        context, weights = attention_pool(self.score(hidden, keys), values, None if mask is None else mask[:, None])
        record(trace, "alignment", weights)
        return torch.tanh(self.mix(torch.cat([hidden, context], dim=-1))), state


def luong_encoder_decoder(
    settings: BackboneSettings, inputs: int, length: int, score: str, learned_values: bool = False
) -> LuongEncoderDecoder:
    """Returns an encoder and a decoder of one architecture; the encoder is bidirectional if it can be."""
    if not settings.causal:
        cause = f"{settings.name} sees the elements that it should predict: it can encode, but not decode"
        raise SeriatimError("task.not-causal", cause, "choose another --model, such as transformer, bahdanau or gru")
    both = {"bidirectional": True} if "bidirectional" in type(settings).model_fields else {}
    half = settings.with_width(max(settings.width // 2, 1)) if both else settings  # outputs of about the same size
    encoder = half.model_copy(update=both).build(inputs, length)
    decoder = settings.model_copy(update=dict.fromkeys(both, False)).build(inputs, length)
    return LuongEncoderDecoder(encoder, decoder, score, learned_values)


def encoder_decoder_network(
    settings: BackboneSettings,
    source_size: int,
    target_size: int,
    joint: bool,
    length: int,
    score: str = "general",
    learned_values: bool = False,
) -> EncoderDecoder:
    """Returns the network of an architecture.

    Args:
        settings: Of an encoder–decoder, or of a causal backbone, which gets Luong's attention.
        source_size: The size of the source vocabulary.
        target_size: The size of the target vocabulary.
        joint: Whether both are the same vocabulary.
        length: The length of the longest training sequence.
        score: The attention score of a causal backbone.
        learned_values: Whether its attention pools v(m) instead of the encoder's outputs m.
    """
    tied = settings.embedding in (None, settings.width) and settings.tie is not False
    size = settings.width if tied else settings.input_width(tied=False)
    backbone = encoder_decoder_backbone(settings, size, length, score, learned_values)
    tied = tied and backbone.width == size
    std = None if tied else 1.0  # tied ones are scaled by √size: entries have size 1 in either case
    bias = True
    if settings.encoder_decoder:  # a causal backbone uses its own defaults
        std = std if settings.embedding_std is None else settings.embedding_std
        bias = settings.output_bias
    target = TokenInput(target_size, size, std)
    source = target if joint else TokenInput(source_size, size, std)
    head = TokenHead(backbone.width, target_size, target if tied else None, bias)
    return EncoderDecoder(source, target, backbone, head, settings.input_scale(size, tied))


def encoder_decoder_backbone(
    settings: BackboneSettings, inputs: int, length: int, score: str, learned_values: bool = False
) -> EncoderDecoderBackbone:
    """Returns the encoder–decoder of the settings, or Luong's around a causal backbone."""
    if settings.encoder_decoder:
        backbone: EncoderDecoderBackbone = settings.build(inputs, length)
        return backbone
    return luong_encoder_decoder(settings, inputs, length, score, learned_values)


class AttentionDecoder(EncoderDecoderBackbone):
    """Base of encoder–decoders with attention inside the recurrence: the decoder attends before each output.

        c_t = Σ_i α(s_{t−1}, m_i) m_i        s_t = f([y_{t−1}; c_t], s_{t−1})        ŝ_t = tanh(W [s_t; c_t; y_{t−1}])

    The memory m (B,S,E) may be the outputs of an encoder over tokens (Bahdanau et al. 2015) or the grid of an image (Xu
    et al. 2015), which adds a gate for the whole context: c_t ← σ(w·s_{t−1} + b) c_t. In the papers the query is
    s_{t−1}, which has not read the last token. Optionally it is part of the query: α(s_{t−1} + U y_{t−1}, m_i).
    The pooled values may be learned: v(m_i) = V m_i in place of m_i. Kernels have a bandwidth of √d.

    The memory of `make_memory` is a tuple: the vectors, the keys, what each position adds to the gates (or None), the
    mask (or None) and the first state. The state has the attending layer's and the states of the layers above.

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
        key_size: The number of leading entries of a memory vector that make its key; by default all.
        gated: Whether a gate scales the context.
        query_input: Whether the last token is part of the query.
        precompute: Whether to compute the contributions to the gates once.
        learned_values: Whether attention pools v(m) instead of m.
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
        learned_values: bool = False,
    ) -> None:
        super().__init__()
        self.width = width
        self.precompute = precompute
        self.cell = cell(inputs, width)
        self.context = nn.Linear(memory, self.cell.input.out_features, bias=False)  # W of c_t in f
        self.bridge = nn.Linear(memory, width * self.cell.state_tensors)
        self.stacked = {"context.weight": len(self.cell.gates), "bridge.weight": self.cell.state_tensors}
        self.key_size = memory if key_size is None else key_size
        self.score = make_score(score, width, self.key_size, width, math.sqrt(self.key_size))
        self.values = nn.Linear(memory, memory, bias=False) if learned_values else nn.Identity()
        self.gate = nn.Linear(width, 1) if gated else None
        self.query_input = nn.Linear(inputs, width, bias=False) if query_input else None
        self.above = Recurrent(cell, width, [width] * (layers - 1), dropout, first_layer=1) if layers > 1 else None
        self.readout = nn.Linear(width + memory + inputs, width)
        self.dropout = Dropout(dropout)
        for block in self.context.weight.chunk(len(self.cell.gates)):
            nn.init.xavier_uniform_(block)

    def make_memory(self, memory: Tensor, summary: Tensor, mask: Tensor | None = None) -> State:
        """Returns what `decode` reads: of vectors (B,S,E), and a summary (B,E) for the first state."""
        first = torch.tanh(self.bridge(summary)).chunk(self.cell.state_tensors, dim=-1)
        keys = self.score.prepare(memory[..., : self.key_size])
        values = self.values(memory)
        return values, keys, self.context(values) if self.precompute else None, mask, first

    def decode(self, y: Tensor, memory: State, state: State = None, trace: Trace | None = None) -> tuple[Tensor, State]:
        values, keys, contributions, mask, first = memory
        query_mask = None if mask is None else mask[:, None]
        inner: CellState = first if state is None else state[0]
        projected = self.cell.input(self.dropout(y)).unbind(dim=1)  # of all steps at once, (B,G·D) each
        matmuls = self.cell.matmuls()
        to_gates = LoopMatmul(self.context.weight.T if contributions is None else contributions)
        score = self.score.bind(keys)
        softmax = pooling_weights if isinstance(self.score, Kernel) else masked_softmax
        queries = None if self.query_input is None else self.query_input(y).unbind(dim=1)
        hidden, alignments, gated_weights, gates = [], [], [], []
        for t in range(y.shape[1]):
            query = inner[0] if queries is None else inner[0] + queries[t]
            weights = softmax(score(query[:, None]), query_mask)  # (B,1,S)
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
