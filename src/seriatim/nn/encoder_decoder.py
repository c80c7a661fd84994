"""Encoder–decoders: the interface of architectures over two sequences, and the network around them.

    memory = model.encode(source, mask)          hidden, state = model.decode(target, memory, state)

`memory` and `state` are opaque trees of tensors whose first dimension is the batch. The decoder is causal and may be
fed whole, in chunks or one element at a time, with the same result. `mask` (B,S) is True for source elements and False
for padding, which is on the right and never changes the output. The target needs no mask: no element sees later ones.
"""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from ..core.errors import SeriatimError
from .attention import attention_pool
from .attention_scores import EQUAL_SIZE_SCORES, make_score
from .backbone import Backbone, BackboneSettings
from .layers import TokenInput
from .network import TokenHead
from .trace import Trace, record, trace_scope


class EncoderDecoderBackbone(nn.Module):
    """Base of the encoder–decoders. `width` is the size of the decoder's outputs."""

    width: int
    causal: bool = True
    carries_state: bool = False
    directions: int = 1
    context_length: int | None = None  # the longest source and target; None: any

    def encode(self, x: Tensor, mask: Tensor | None = None, trace: Trace | None = None) -> Any:
        raise TypeError(f"{type(self).__name__} has no encode")

    def encoder_outputs(self, x: Tensor, mask: Tensor | None = None, trace: Trace | None = None) -> Tensor:
        """Returns the encoder's output for each source element (B,S,D)."""
        y: Tensor = self.get_submodule("encoder")(x, mask, None, trace_scope(trace, "encoder", mask))[0]
        return y

    def decode(self, y: Tensor, memory: Any, state: Any = None, trace: Trace | None = None) -> tuple[Tensor, Any]:
        """Returns outputs (B,T,width) and the state; attention weights are traced as "alignment" (B,T,S)."""
        raise TypeError(f"{type(self).__name__} has no decode")

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

    def source_width(self, inputs: int) -> int:
        """Returns the size of source vectors for target vectors of size `inputs`; images have content and position."""
        return 2 * inputs if self.images_only else inputs


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

    def encode(self, source: Tensor, mask: Tensor | None = None, trace: Trace | None = None) -> Any:
        return self.backbone.encode(self.source(source) * self.scale, mask, trace)

    def empty_source(self) -> Tensor:
        """Returns the smallest valid source, for trial runs."""
        return torch.zeros(1, 1, dtype=torch.long, device=self.head.weight.device)

    def encoder_outputs(self, source: Tensor, mask: Tensor | None = None, trace: Trace | None = None) -> Tensor:
        """Returns the encoder's output for each source element (B,S,D)."""
        return self.backbone.encoder_outputs(self.source(source) * self.scale, mask, trace)

    def decode(self, target: Tensor, memory: Any, state: Any = None, trace: Trace | None = None) -> tuple[Tensor, Any]:
        return self.backbone.decode(self.target(target) * self.scale, memory, state, trace)

    def forward(self, source: Tensor, target: Tensor, mask: Tensor | None = None, trace: Trace | None = None) -> Tensor:
        hidden, _ = self.decode(target, self.encode(source, mask, trace), None, trace)
        scores: Tensor = self.head(hidden)
        return scores


class LuongEncoderDecoder(EncoderDecoderBackbone):
    """Attention after a backbone: any causal backbone decodes, and attends to the source with its outputs.

    Luong et al., "Effective approaches to attention-based neural machine translation" (2015):

        c_t = Σ_i α(h_t, m_i) m_i        ĥ_t = tanh(W [h_t; c_t])
    """

    def __init__(self, encoder: Backbone, decoder: Backbone, score: str = "general") -> None:
        super().__init__()
        self.width = decoder.width
        limits = [part.context_length for part in (encoder, decoder) if part.context_length is not None]
        self.context_length = min(limits) if limits else None
        self.encoder = encoder
        self.decoder = decoder
        project = score in EQUAL_SIZE_SCORES and encoder.width != decoder.width
        self.project = nn.Linear(encoder.width, decoder.width, bias=False) if project else nn.Identity()
        width = decoder.width if project else encoder.width
        self.score = make_score(score, decoder.width, width, decoder.width)
        self.mix = nn.Linear(decoder.width + width, decoder.width)

    def encode(self, x: Tensor, mask: Tensor | None = None, trace: Trace | None = None) -> Any:
        memory = self.project(self.encoder(x, mask, None, trace_scope(trace, "encoder", mask))[0])
        return memory, self.score.prepare(memory), mask

    def decode(self, y: Tensor, memory: Any, state: Any = None, trace: Trace | None = None) -> tuple[Tensor, Any]:
        values, keys, mask = memory
        hidden, state = self.decoder(y, None, state, trace_scope(trace, "decoder"))
        context, weights = attention_pool(self.score(hidden, keys), values, None if mask is None else mask[:, None])
        record(trace, "alignment", weights)
        return torch.tanh(self.mix(torch.cat([hidden, context], dim=-1))), state


def luong_encoder_decoder(settings: BackboneSettings, inputs: int, length: int, score: str) -> LuongEncoderDecoder:
    """Returns an encoder and a decoder of one architecture; the encoder is bidirectional if it can be."""
    if not settings.causal:
        cause = f"{settings.name} sees the elements that it should predict: it can encode, but not decode"
        raise SeriatimError("task.not-causal", cause, "choose another --model, such as transformer, bahdanau or gru")
    both = {"bidirectional": True} if "bidirectional" in type(settings).model_fields else {}
    halved = {"width": max(settings.width // 2, 1)} if both else {}  # so that both have outputs of about the same size
    encoder = settings.model_copy(update=both | halved).build(inputs, length)
    decoder = settings.model_copy(update=dict.fromkeys(both, False)).build(inputs, length)
    return LuongEncoderDecoder(encoder, decoder, score)


def encoder_decoder_network(
    settings: BackboneSettings, source_size: int, target_size: int, joint: bool, length: int, score: str = "general"
) -> EncoderDecoder:
    """Returns the network of an architecture.

    Args:
        settings: Of an encoder–decoder, or of a causal backbone, which gets Luong's attention.
        source_size: The size of the source vocabulary.
        target_size: The size of the target vocabulary.
        joint: Whether both are the same vocabulary.
        length: The length of the longest training sequence.
        score: The attention score of a causal backbone.
    """
    tied = settings.embedding in (None, settings.width) and settings.tie is not False
    size = settings.width if tied else settings.input_width(tied=False)
    backbone = encoder_decoder_backbone(settings, size, length, score)
    tied = tied and backbone.width == size
    std = None if tied else 1.0  # tied ones are scaled by √size: entries have size 1 in either case
    target = TokenInput(target_size, size, std)
    source = target if joint else TokenInput(source_size, size, std)
    head = TokenHead(backbone.width, target_size, target if tied else None)
    return EncoderDecoder(source, target, backbone, head, settings.input_scale(size, tied))


def encoder_decoder_backbone(
    settings: BackboneSettings, inputs: int, length: int, score: str
) -> EncoderDecoderBackbone:
    """Returns the encoder–decoder of the settings, or Luong's around a causal backbone."""
    if settings.encoder_decoder:
        backbone: EncoderDecoderBackbone = settings.build(inputs, length)
        return backbone
    return luong_encoder_decoder(settings, inputs, length, score)
