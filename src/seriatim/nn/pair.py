"""Two sequences: what every encoder–decoder answers to, and the network around it.

    memory = model.encode(source, mask)          hidden, state = model.decode(target, memory, state)

`memory` and `state` are opaque trees of tensors whose first dimension is the batch. The decoder is causal and may be
fed whole, in chunks or one element at a time, with the same result. `mask` (B,S) is True where a real source element
stands; padding is on the right and never changes what is decoded. Padding of the target needs no mask: nothing looks
to the right.
"""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from ..core.errors import SeriatimError
from .attention import ONE_LENGTH, make_score, pool
from .backbone import Backbone, BackboneSettings
from .network import TokenHead, TokenInput
from .trace import Trace, inside, show


class PairBackbone(nn.Module):
    """The base of the encoder–decoders. `width` is the size of what the decoder gives."""

    width: int
    context: int | None = None  # the longest source and target it can take; None: any

    def encode(self, x: Tensor, mask: Tensor | None = None, trace: Trace | None = None) -> Any:
        raise TypeError(f"{type(self).__name__} has no encode")

    def read(self, x: Tensor, mask: Tensor | None = None, trace: Trace | None = None) -> Tensor:
        """What the encoder makes of each element (B,S,D), before the decoder takes what it needs of it."""
        y: Tensor = self.get_submodule("encoder")(x, mask, None, inside(trace, "encoder", mask))[0]
        return y

    def native(self, tokens: Tensor, head: TokenHead, scale: float) -> Any:
        """The parts of its decoder, between vectors of tokens (V,D) times `scale` and a head, for the native step of
        generation (nn/native.py); None where there is none."""
        return None

    def decode(self, y: Tensor, memory: Any, state: Any = None, trace: Trace | None = None) -> tuple[Tensor, Any]:
        """`trace`, where given, collects the weights over the source under "alignment" (B,T,S), if there are any."""
        raise TypeError(f"{type(self).__name__} has no decode")


class PairSettings(BackboneSettings):
    """The settings that all encoder–decoders share."""

    pairs: ClassVar[bool] = True

    def source_width(self, inputs: int) -> int:
        """The size of the vectors of a source, where those of a target have `inputs` numbers: of pictures, what is seen
        at a place and where it is."""
        return 2 * inputs if self.pictures else inputs


class Translator(nn.Module):
    """Tokens of a source and of a target so far in, scores of the target's next token out.

    With one vocabulary for both sides one table can serve as both inputs, and as the output too where it is tied. What
    is small enough for the output is too small for the inputs, hence `scale`.
    """

    def __init__(
        self, source: TokenInput, target: TokenInput, backbone: PairBackbone, head: TokenHead, scale: float = 1.0
    ) -> None:
        super().__init__()
        self.scale = scale
        self.source = source
        self.target = target
        self.backbone = backbone
        self.head = head

    def encode(self, source: Tensor, mask: Tensor | None = None, trace: Trace | None = None) -> Any:
        return self.backbone.encode(self.source(source) * self.scale, mask, trace)

    def blank(self) -> Tensor:
        """The least that can be a source, for those who try something out."""
        return torch.zeros(1, 1, dtype=torch.long, device=self.head.weight.device)

    def read(self, source: Tensor, mask: Tensor | None = None, trace: Trace | None = None) -> Tensor:
        """What the encoder makes of each element of a source (B,S,D)."""
        return self.backbone.read(self.source(source) * self.scale, mask, trace)

    def decode(self, target: Tensor, memory: Any, state: Any = None, trace: Trace | None = None) -> tuple[Tensor, Any]:
        return self.backbone.decode(self.target(target) * self.scale, memory, state, trace)

    def forward(self, source: Tensor, target: Tensor, mask: Tensor | None = None, trace: Trace | None = None) -> Tensor:
        hidden, _ = self.decode(target, self.encode(source, mask, trace), None, trace)
        scores: Tensor = self.head(hidden)
        return scores


class Attended(PairBackbone):
    """Attention after a backbone: any causal one decodes, and looks at the source once it has its outputs.

    Luong et al., "Effective approaches to attention-based neural machine translation" (2015):

        c_t = Σ_i α(h_t, m_i) m_i        ĥ_t = tanh(W [h_t; c_t])
    """

    def __init__(self, encoder: Backbone, decoder: Backbone, score: str = "general") -> None:
        super().__init__()
        self.width = decoder.width
        limits = [one.context for one in (encoder, decoder) if one.context is not None]
        self.context = min(limits) if limits else None
        self.encoder = encoder
        self.decoder = decoder
        bring = score in ONE_LENGTH and encoder.width != decoder.width
        self.bring = nn.Linear(encoder.width, decoder.width, bias=False) if bring else nn.Identity()
        width = decoder.width if bring else encoder.width
        self.score = make_score(score, decoder.width, width, decoder.width)
        self.mix = nn.Linear(decoder.width + width, decoder.width)

    def encode(self, x: Tensor, mask: Tensor | None = None, trace: Trace | None = None) -> Any:
        memory = self.bring(self.encoder(x, mask, None, inside(trace, "encoder", mask))[0])
        return memory, self.score.prepare(memory), mask

    def decode(self, y: Tensor, memory: Any, state: Any = None, trace: Trace | None = None) -> tuple[Tensor, Any]:
        values, keys, mask = memory
        hidden, state = self.decoder(y, None, state, inside(trace, "decoder"))
        found, weights = pool(self.score(hidden, keys), values, None if mask is None else mask[:, None])
        show(trace, "alignment", weights)
        return torch.tanh(self.mix(torch.cat([hidden, found], dim=-1))), state


def attended(settings: BackboneSettings, inputs: int, length: int, score: str) -> Attended:
    """An encoder and a decoder of the same architecture; the encoder reads in both directions where it can."""
    if not settings.causal:
        cause = f"{settings.name} sees what it is to predict: it can encode, and not decode"
        raise SeriatimError("task.not-causal", cause, "choose another --model, such as transformer, bahdanau or gru")
    both = {"bidirectional": True} if "bidirectional" in type(settings).model_fields else {}
    halved = {"width": max(settings.width // 2, 1)} if both else {}  # so that both have outputs of about one size
    encoder = settings.model_copy(update=both | halved).build(inputs, length)
    decoder = settings.model_copy(update=dict.fromkeys(both, False)).build(inputs, length)
    return Attended(encoder, decoder, score)


def pair_network(
    settings: BackboneSettings, sources: int, targets: int, joint: bool, length: int, score: str = "general"
) -> Translator:
    """For vocabularies of some size; `joint`: it is one."""
    tied = settings.embedding in (None, settings.width) and settings.tie is not False
    size = settings.width if tied else settings.input_width(tied=False)
    backbone = settings.build(size, length) if settings.pairs else attended(settings, size, length, score)
    tied = tied and backbone.width == size
    spread = None if tied else 1.0  # tied, scaled by √size: entries of size 1 go in either way
    target = TokenInput(targets, size, spread)
    source = target if joint else TokenInput(sources, size, spread)
    head = TokenHead(backbone.width, targets, target if tied else None)
    return Translator(source, target, backbone, head, settings.input_scale(size, tied))
