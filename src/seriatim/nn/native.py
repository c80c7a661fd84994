"""Native generation: the weights of a network are packed once, then one call generates a token, or many.

The network is described by tensors in a fixed order (see `blocks.h` and `cells.h`). The modules of `nn/` are the
reference; tests hold both equal. float32 on the CPU. `make_stepper` returns an object that generates natively, or None
if that is not supported: other precisions and devices, other architectures, no compiler, or readable equations.

With weights of 8 bits the memory traffic, which bounds the time per generated token, is a quarter. Each output of a
matrix product has its own scale: its largest weight becomes 127, the others the nearest integer. Input embeddings,
biases, norms and activations are unchanged. `seriatim evaluate RUN --int8` measures the loss of quality.
"""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn

from ..core.errors import SeriatimError
from ..core.state import RowState, State
from ..kernels import load
from ..kernels.layers import NAMES as ACTIVATION_NAMES
from .encoder_decoder import EncoderDecoder
from .fitted import FittedModel
from .layers import TokenInput, equations_enabled, weights_version
from .network import Network, TokenHead
from .recurrent import Cell

if TYPE_CHECKING:
    from .transformer import Block

N = TypeVar("N", bound=nn.Module)


@dataclass(frozen=True)
class PositionTable:
    """The position vectors of a Transformer: all of them, or as many as are needed if there is no limit."""

    module: nn.Module
    width: int
    context_length: int | None

    def rows(self, count: int) -> Tensor:
        """Returns the first `count` vectors (count,width)."""
        like = next(self.module.parameters(), torch.empty(0)).new_empty(1, count, self.width)
        vectors: Tensor = self.module(0, like)
        return vectors


@dataclass(frozen=True)
class NetworkParts:
    """A network for the native step: its kind, tensors, sizes, floating-point numbers, and unbounded positions."""

    kind: str
    tensors: Sequence[Tensor | None]
    sizes: Sequence[int]
    numbers: Sequence[float] = ()
    positions: PositionTable | None = None

    @property
    def supported(self) -> bool:
        """Whether the tensors are float32 on the CPU."""
        tensors = [tensor for tensor in self.tensors if tensor is not None]
        return all(tensor.dtype == torch.float32 and tensor.device.type == "cpu" for tensor in tensors)


@dataclass(frozen=True)
class TokenChoice:
    """How `NativeGenerator.generate` chooses tokens."""

    eos: int | None
    min_tokens: int = 0  # before the end
    forbidden: tuple[int, ...] = ()
    temperature: float = 0.0  # 0: the most likely token
    top_k: int | None = None
    top_p: float | None = None


class NativeState(RowState):
    """The state of a batch of rows; the longest has at most `length` elements."""

    def __init__(self, generator: Any, inner: object, length: int) -> None:
        self.generator, self.inner, self.length = generator, inner, length

    def select(self, rows: Tensor) -> NativeState:
        return NativeState(self.generator, self.generator.select(self.inner, rows.cpu()), self.length)


class NativeGenerator:
    """A network with packed weights, in float32 or 8 bits."""

    def __init__(self, parts: NetworkParts, int8: bool = False) -> None:
        tensors = [torch.empty(0) if tensor is None else tensor.detach() for tensor in parts.tensors]
        numbers = [float(number) for number in parts.numbers]
        self.generator = _classes().Generator(parts.kind, tensors, list(parts.sizes), numbers, int8)
        self.positions = parts.positions
        self.position_count = POSITIONS

    def from_state(
        self,
        state: Sequence[Tensor],
        state_mask: Tensor | None = None,
        memory: Sequence[Tensor] = (),
        memory_mask: Tensor | None = None,
    ) -> NativeState:
        """Returns the native state of exported tensors, with the memory of an encoder."""
        inner = self.generator.from_state(list(state), state_mask, list(memory), memory_mask)
        return NativeState(self.generator, inner, state[0].shape[2] if state[0].dim() == 4 else 0)

    def prefill(self, tokens: Tensor) -> tuple[Tensor, NativeState]:
        """Returns the log-probabilities (N,V) after prompts (N,T), and the state."""
        self._extend_positions(tokens.shape[-1])
        log_probs, inner = self.generator.prefill(tokens)
        return log_probs, NativeState(self.generator, inner, tokens.shape[-1])

    def _extend_positions(self, length: int) -> None:
        """Replaces a table of unbounded positions by a longer one if sequences of this length need it."""
        if self.positions is not None and length > self.position_count:
            self.position_count = 1 << (length - 1).bit_length()
            self.generator.extend_positions(self.positions.rows(self.position_count))

    def step(self, tokens: Tensor, state: NativeState) -> tuple[Tensor, NativeState]:
        """Returns the log-probabilities (N,V) after one more token of each row (N,), and the state."""
        self._extend_positions(state.length + 1)
        log_probs, inner = self.generator.step(tokens, state.inner)
        return log_probs, NativeState(self.generator, inner, state.length + 1)

    def generate(
        self,
        tokens: Tensor,
        state: NativeState,
        steps: int,
        limits: Tensor,
        choice: TokenChoice,
        uniforms: Tensor | None = None,
    ) -> tuple[Tensor, Tensor, NativeState]:
        """Returns up to `steps` tokens of each row after `tokens`, their log-probabilities, and a state.

        Both are (N,steps); −1 marks tokens after the end of a row. The state is that of the rows that have not ended,
        before their last token.
        """
        self._extend_positions(state.length + steps)
        generated, log_probs, inner = self.generator.generate(
            tokens,
            state.inner,
            steps,
            limits,
            -1 if choice.eos is None else choice.eos,
            choice.min_tokens,
            list(choice.forbidden),
            uniforms,
            choice.temperature,
            0 if choice.top_k is None else choice.top_k,
            1.0 if choice.top_p is None else choice.top_p,
        )
        return generated, log_probs, NativeState(self.generator, inner, state.length + steps)


@functools.cache
def _classes() -> Any:
    if not load():
        raise RuntimeError("the native kernels are not available: see `seriatim doctor`")
    return torch.classes.seriatim


POSITIONS = 1024  # initial rows of a table of unbounded positions
FAST_PREFILL = 1 << 24  # multiplications that take about as long as the start of a forward pass
CELL_KINDS = ("tanh", "relu", "lstm", "gru", "gru-after")  # in the order of `cells.h`

_generators: WeakKeyDictionary[nn.Module, dict[bool, tuple[object, NativeGenerator]]] = WeakKeyDictionary()


def transformer_parts(
    embeddings: Tensor,
    positions: PositionTable,
    blocks: Sequence[Block],
    norms: tuple[nn.Module, nn.Module],
    head: TokenHead,
    scale: float = 1.0,
) -> NetworkParts | None:
    """Returns the parts of a stack of blocks over token vectors (V,D) times `scale`.

    `norms` normalize its inputs, after the positions, and its outputs; each may be the identity.
    """
    first = blocks[0]
    if embeddings.shape[1] != first.attention.inputs.in_features:
        return None
    tensors: list[Tensor | None] = [embeddings, positions.rows(positions.context_length or POSITIONS)]
    for norm in norms:
        tensors += [norm.weight, norm.bias] if isinstance(norm, nn.LayerNorm) else [None, None]
    tensors += [head.weight, head.bias]
    for block in blocks:
        tensors += _block_tensors(block)
    cross = hasattr(first, "cross")
    activation = ACTIVATION_NAMES.index(first.feedforward.activation)
    sizes = (len(blocks), first.attention.heads, first.pre_norm, cross, activation)
    unbounded = positions if positions.context_length is None else None
    numbers = [first.attention_norm.eps, scale]
    return NetworkParts("transformer", tensors, [int(size) for size in sizes], numbers, unbounded)


def _block_tensors(block: Block) -> Iterator[Tensor]:
    parts: list[nn.LayerNorm | nn.Linear] = [block.attention_norm, block.attention.inputs, block.attention.output]
    if hasattr(block, "cross"):
        parts += [block.cross_norm, block.cross.query, block.cross.output]
    parts += [block.feedforward_norm, block.feedforward.hidden, block.feedforward.output]
    for part in parts:
        yield from (part.weight, part.bias)


def recurrent_parts(embeddings: Tensor, cells: Sequence[Cell], head: TokenHead) -> NetworkParts | None:
    """Returns the parts of stacked cells of one kind."""
    kinds = {cell.native for cell in cells}
    kind = kinds.pop()
    if kinds or kind not in CELL_KINDS:
        return None
    tensors: list[Tensor | None] = [embeddings, head.weight, head.bias]
    for cell in cells:
        tensors += [cell.input.weight, cell.input.bias, cell.recurrent, getattr(cell, "bias", None)]
    return NetworkParts("recurrent", tensors, [len(cells), CELL_KINDS.index(kind)])


class Stepper:
    """Native generation with a network of tokens; `int8`: with 8-bit weights."""

    def __init__(self, network: Network, int8: bool = False) -> None:
        self.network, self.int8 = network, int8
        self.parameters = sum(parameter.numel() for parameter in network.backbone.parameters())
        self._generator: NativeGenerator | None = None

    def prefills_faster(self, tokens: int) -> bool:
        """Returns whether `prefill` of a number of tokens is faster than a forward pass of the network."""
        return tokens * self.parameters <= FAST_PREFILL

    def prefill(self, tokens: Tensor) -> tuple[Tensor, NativeState]:
        """Returns the log-probabilities (N,V) after prompts (N,T), and the state."""
        return self._packed().prefill(tokens)

    def from_state(self, state: State) -> NativeState:
        """Returns the native state of a state that the network's forward pass returned."""
        return self._packed().from_state(*self.network.backbone.export_state(state))

    def step(self, tokens: Tensor, state: NativeState) -> tuple[Tensor, NativeState]:
        """Returns the log-probabilities (N,V) after one more token of each row (N,), and the state."""
        assert self._generator is not None  # a state comes from `prefill` or `from_state`
        return self._generator.step(tokens, state)

    def generate(
        self,
        tokens: Tensor,
        state: NativeState,
        steps: int,
        limits: Tensor,
        choice: TokenChoice,
        uniforms: Tensor | None,
    ) -> tuple[Tensor, Tensor, NativeState]:
        """Generates several tokens of each row: see `NativeGenerator.generate`."""
        assert self._generator is not None
        return self._generator.generate(tokens, state, steps, limits, choice, uniforms)

    def _packed(self) -> NativeGenerator:
        self._generator = _packed_generator(self.network, self.int8, lambda: network_parts(self.network))
        return self._generator


class EncoderDecoderStepper:
    """Native generation with an encoder–decoder, given the memory of the sources."""

    def __init__(self, network: EncoderDecoder, memory: State, int8: bool = False) -> None:
        backbone = network.backbone
        self._generator = _packed_generator(network, int8, lambda: encoder_decoder_parts(network))
        keys_values, mask = memory
        heads: int = backbone.get_submodule("decoder.0.attention").heads  # type: ignore[assignment]
        empty = torch.empty(len(keys_values[0]), 2 * heads, 0, backbone.width // heads)
        self._first = self._generator.from_state([empty] * len(keys_values), None, keys_values, mask)

    def step(self, tokens: Tensor, state: NativeState | None) -> tuple[Tensor, NativeState]:
        """Returns the log-probabilities after one more token of each row; without a state it is the first token."""
        return self._generator.step(tokens, self._first if state is None else state)


def network_parts(network: nn.Module) -> NetworkParts | None:
    if not isinstance(network, Network) or type(network.input) is not TokenInput:
        return None
    if not isinstance(network.head, TokenHead):
        return None
    parts: NetworkParts | None = network.backbone.native_parts(network.input.weight, network.head)
    return parts


def encoder_decoder_parts(network: nn.Module) -> NetworkParts | None:
    if not isinstance(network, EncoderDecoder) or type(network.target) is not TokenInput:
        return None
    parts: NetworkParts | None = network.backbone.native_parts(network.target.weight, network.head, network.scale)
    return parts


def make_stepper(network: nn.Module, int8: bool = False) -> Stepper | None:
    """Returns a stepper over a network of tokens, None if it is not supported."""
    return Stepper(network, int8) if _supported(network, network_parts) else None  # type: ignore[arg-type]


def make_encoder_decoder_stepper(
    network: EncoderDecoder, memory: State, int8: bool = False
) -> EncoderDecoderStepper | None:
    """Returns a stepper given the memory of sources, None if it is not supported."""
    return EncoderDecoderStepper(network, memory, int8) if _supported(network, encoder_decoder_parts) else None


def _supported(network: N, find_parts: Callable[[N], NetworkParts | None]) -> bool:
    if network.training or equations_enabled() or torch.is_autocast_enabled("cpu"):
        return False
    parts = find_parts(network)
    return parts is not None and parts.supported and load()


def _packed_generator(network: nn.Module, int8: bool, find_parts: Callable[[], NetworkParts | None]) -> NativeGenerator:
    """Returns the cached generator of a network; its weights are packed again if they have changed."""
    version = weights_version(network.parameters())
    cache = _generators.setdefault(network, {})
    if int8 not in cache or cache[int8][0] != version:
        parts = find_parts()
        assert parts is not None  # checked by `_supported`
        cache[int8] = version, NativeGenerator(parts, int8)
    return cache[int8][1]


# Quantization

MAX_INT8 = 127


def quantize_rows(weight: Tensor) -> Tensor:
    """Returns a matrix (outputs, inputs) rounded to integers times a scale for each row."""
    largest = weight.abs().amax(dim=1, keepdim=True)
    scale = torch.where(largest > 0, largest / MAX_INT8, 1.0)
    return (weight / scale).round() * scale


@torch.inference_mode(False)  # whose weights have no version
@torch.no_grad()
def quantize_weights(network: N) -> N:
    """Returns a copy of a network with quantized matrices; a tied matrix becomes two: the output's is quantized."""
    if isinstance(network, FittedModel):
        raise SeriatimError("run.gradient-free", "a model that is fitted in one pass has no weights", "omit --int8")
    network = copy.deepcopy(network)
    modules = list(network.modules())
    cell_inputs = {module.input for module in modules if isinstance(module, Cell)}
    for module in modules:
        if isinstance(module, TokenHead):
            module.weight = nn.Parameter(quantize_rows(module.weight), requires_grad=False)
        elif isinstance(module, Cell):  # its two matrices are one product
            both = quantize_rows(torch.cat([module.input.weight, module.recurrent], dim=1))
            module.input.weight.copy_(both[:, : module.input.in_features])
            module.recurrent.copy_(both[:, module.input.in_features :])
        elif isinstance(module, nn.Linear) and module not in cell_inputs:
            module.weight.copy_(quantize_rows(module.weight))
    return network
