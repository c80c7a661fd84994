"""Layers: inputs from tokens, numbers or words; linear layers with packed weights, dropout, positions, and windows.

Within `readable_equations` all modules compute by their equations in PyTorch, not by fused kernels.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterable, Iterator
from contextvars import ContextVar
from functools import lru_cache, partial
from typing import Literal
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ..core.state import append, last_elements
from ..kernels import layers as kernels

Activation = Literal["relu", "gelu", "gelu-tanh", "silu"]
ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": F.relu,
    "gelu": F.gelu,
    "gelu-tanh": partial(F.gelu, approximate="tanh"),  # of GPT-2
    "silu": F.silu,
}
MIN_PACKED = 1 << 14  # weights; for fewer, packing costs more than it saves
SEEDS = 1 << 62
MIN_POSITIONS = 64  # rows of a table of sinusoids; the sizes are powers of two, so that there are few tables
_readable = ContextVar("readable", default=False)
_packed: WeakKeyDictionary[nn.Module, tuple[object, Tensor]] = WeakKeyDictionary()


@contextlib.contextmanager
def readable_equations() -> Iterator[None]:
    """Within the block modules compute by their equations in PyTorch, not by fused kernels, as counting FLOPs needs."""
    token = _readable.set(True)
    try:
        yield
    finally:
        _readable.reset(token)


def equations_enabled() -> bool:
    return _readable.get()


def weights_version(weights: Iterable[Tensor]) -> object:
    """Returns a value that differs after a change of the weights: their places in memory and torch's counts of changes.

    Tensors that were made in inference mode are not counted: their version equals no other, so that nothing derived
    from them is reused.
    """
    return tuple(object() if weight.is_inference() else (weight.data_ptr(), weight._version) for weight in weights)


class Linear(nn.Linear):
    """A linear layer that keeps its weights packed for inference, and fuses bias and activation.

    A matrix product first brings the weights into an order that suits the processor. In training they change with each
    step; within `torch.inference_mode` on a CPU the layer packs them once (a second copy in memory) and multiplies by
    the native kernel, whose results differ from the library's in the last bits. `train()` drops the packed weights.
    """

    def forward(self, x: Tensor) -> Tensor:
        return self._packed_forward(x) if self._can_pack(x) else F.linear(x, self.weight, self.bias)

    def activated(self, x: Tensor, activation: Activation) -> Tensor:
        """Returns the activation of the layer's output, with bias and activation in one pass."""
        if self._can_pack(x):
            return self._packed_forward(x, activation)
        same_type = x.dtype == self.weight.dtype
        if self.bias is not None and same_type and not equations_enabled() and kernels.is_available(x):
            return kernels.bias_activation(F.linear(x, self.weight), self.bias, activation)
        return ACTIVATIONS[activation](F.linear(x, self.weight, self.bias))

    def train(self, mode: bool = True) -> Linear:
        if mode:
            _packed.pop(self, None)
        return super().train(mode)

    def _can_pack(self, x: Tensor) -> bool:
        return (
            not self.training
            and torch.is_inference_mode_enabled()
            and x.dtype == self.weight.dtype == torch.float32
            and self.weight.numel() >= MIN_PACKED
            and x.numel() > 0
            and not equations_enabled()
            and not torch.compiler.is_compiling()
            and kernels.is_available(x)
        )

    def _packed_forward(self, x: Tensor, activation: Activation | None = None) -> Tensor:
        version = weights_version([self.weight])
        cached = _packed.get(self)
        if cached is None or cached[0] != version:
            cached = version, kernels.pack(self.weight.detach())
            _packed[self] = cached
        return kernels.packed_linear(x, cached[1], self.out_features, self.bias, activation)


class Dropout(nn.Dropout):
    """Equals `nn.Dropout`. The native kernel draws one seed instead of a random number per element."""

    def forward(self, x: Tensor) -> Tensor:
        if not self.training or self.p == 0:
            return x
        if not kernels.has_dropout(x):
            return F.dropout(x, self.p)
        return kernels.dropout(x, self.p, int(torch.randint(SEEDS, ())))


# Positions: vectors that are added to the elements

Positions = Literal["sinusoidal", "learned", "none"]


def sinusoids(first: int, count: int, width: int) -> Tensor:
    """Returns rows first…first+count−1 of the sinusoids of Vaswani et al. 2017, (count,width), in float64.

    p[i,2j] = sin(i/10000^{2j/d}), p[i,2j+1] = cos(i/10000^{2j/d})
    """
    positions = torch.arange(first, first + count, dtype=torch.float64)[:, None]
    angles = positions / 10_000 ** (torch.arange(0, width, 2, dtype=torch.float64) / width)
    return torch.stack([angles.sin(), angles.cos()], dim=-1).flatten(1)[:, :width]


@lru_cache(maxsize=32)
def _sinusoid_table(rows: int, width: int, scale: float, device: torch.device, dtype: torch.dtype) -> Tensor:
    with torch.inference_mode(False):  # the cached table is also used in training
        return (scale * sinusoids(0, rows, width)).to(device, dtype)


def _position_indices(first: Tensor, like: Tensor) -> Tensor:
    return first[:, None] + torch.arange(like.shape[1], device=like.device)  # (B,T)


class SinusoidalPositions(nn.Module):
    """Position vectors for any number of elements; `scale` is the amplitude of the sinusoids."""

    def __init__(self, width: int, scale: float = 1.0) -> None:
        super().__init__()
        self.width, self.scale = width, scale

    def forward(self, first: int | Tensor, like: Tensor) -> Tensor:
        """Returns the vectors (T,width) of the elements first, first+1, … of sequences (B,T,width).

        With a first element for each row (B,), the vectors are (B,T,width).
        """
        if isinstance(first, Tensor):
            indices = _position_indices(first, like)
            return F.embedding(indices, self._table(int(indices.max()) + 1, like))
        return self._table(first + like.shape[1], like)[first : first + like.shape[1]]

    def _table(self, count: int, like: Tensor) -> Tensor:
        """Returns `count` rows or more."""
        rows = max(MIN_POSITIONS, 1 << (count - 1).bit_length())
        return _sinusoid_table(rows, self.width, self.scale, like.device, like.dtype)


class LearnedPositions(nn.Embedding):
    """Learned position vectors for at most `context_length` elements, after `offset` rows that are not used.

    Initially they are normal with the given std; without one they are for the caller to initialize.
    """

    def __init__(self, width: int, context_length: int, std: float | None = None, offset: int = 0) -> None:
        super().__init__(offset + context_length, width)
        self.offset = offset
        if std is not None:
            nn.init.normal_(self.weight, std=std)

    def forward(self, first: int | Tensor, like: Tensor) -> Tensor:  # type: ignore[override]
        if isinstance(first, Tensor):
            indices = (self.offset + _position_indices(first, like)).clamp(max=len(self.weight) - 1)  # only of padding
        else:
            indices = self.offset + first + torch.arange(like.shape[1], device=like.device)
        return F.embedding(indices, self.weight).to(like.dtype)


class NoPositions(nn.Module):
    """Zeros: elements differ by their content and, in a causal network, by what they attend to."""

    def forward(self, first: int | Tensor, like: Tensor) -> Tensor:
        return like.new_zeros(like.shape[1:])


def make_positions(
    kind: Positions,
    width: int,
    context_length: int | None,
    scale: float = 1.0,
    std: float | None = None,
    offset: int = 0,
) -> LearnedPositions | SinusoidalPositions | NoPositions:
    """Returns the module of position vectors.

    Args:
        kind: The kind of positions.
        width: The size of the vectors.
        context_length: The number of learned vectors.
        scale: The amplitude of sinusoids.
        std: Of learned vectors, before training; None: the caller initializes them.
        offset: Rows before the learned vectors that are not used.
    """
    if kind == "sinusoidal":
        return SinusoidalPositions(width, scale)
    if kind == "none":
        return NoPositions()
    assert context_length is not None
    return LearnedPositions(width, context_length, std, offset)


# Windows: the last elements before a chunk, as the state of models with a finite receptive field


def extend_window(x: Tensor, window: Tensor | None, size: int) -> Tensor:
    """Returns x (B,T,D) after the `size` elements before it, zeros without a window: (B,size+T,D)."""
    if window is None:
        window = x.new_zeros(len(x), size, x.shape[-1])
    return append(window.to(x.dtype), x, dim=1)


def last_window(extended: Tensor, mask: Tensor | None, size: int) -> Tensor:
    """Returns the last `size` elements of each row of the result of `extend_window`: the window of the next chunk."""
    if mask is None:
        return last_elements(extended, size, dim=1)
    ends = mask.sum(dim=1, keepdim=True)  # (B,1): elements of this chunk; the rows are padded on the right
    index = ends + torch.arange(size, device=extended.device)  # (B,size)
    return extended.gather(1, index[:, :, None].expand(-1, -1, extended.shape[-1]))


# Inputs


class TokenInput(nn.Embedding):
    """Token vectors, normally distributed with the given standard deviation, by default 1/√width."""

    def __init__(self, vocab_size: int, width: int, std: float | None = None) -> None:
        super().__init__(vocab_size, width)
        nn.init.normal_(self.weight, std=1 / math.sqrt(width) if std is None else std)


class NumberInput(nn.Module):
    """Vectors of numbers, standardized by the mean and standard deviation of the training split.

    They go straight into the backbone, whose first layer is linear; with a `size`, through another linear layer.
    """

    mean: Tensor
    std: Tensor

    def __init__(self, features: int, size: int | None = None) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(features))
        self.register_buffer("std", torch.ones(features))
        self.project = nn.Identity() if size is None else nn.Linear(features, size)
        self.width = features if size is None else size

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.project((x - self.mean) / self.std)
        return y


class SegmentedInput(TokenInput):
    """Token vectors plus the vector of the segment: which of several texts a token belongs to.

    A separator ends a text, so the segment of a token is the number of separators before it, at most the last one.
    """

    def __init__(self, vocab_size: int, width: int, segments: int, separator: int | None) -> None:
        super().__init__(vocab_size, width)
        self.segments = nn.Embedding(segments, width)
        self.separator = separator

    def forward(self, tokens: Tensor, segments: Tensor | None = None) -> Tensor:
        segments = self.segments_of(tokens) if segments is None else segments
        return super().forward(tokens) + self.segments(segments)

    def segments_of(self, tokens: Tensor) -> Tensor:
        if self.separator is None:
            return torch.zeros_like(tokens)
        ends = tokens == self.separator
        before = ends.cumsum(dim=1) - ends.long()
        return before.clamp(max=self.segments.num_embeddings - 1)


# Words with features of their spelling

PADDING, UNKNOWN, BEGIN, END = range(4)  # the first characters of every alphabet
KERNEL = 3
CHARACTER_SIZE = 32  # of a character's vector

# The words of a batch (B,T), for each the row of its spelling (B,T), and the spellings of distinct words (U,L).
Words = tuple[Tensor, Tensor, Tensor]


class CharacterFeatures(nn.Module):
    """A convolution over the characters of a word, max-pooled: spellings (U,L), padded → features (U,size).

    dos Santos and Zadrozny, "Learning character-level representations for part-of-speech tagging" (2014):

        f(word) = relu(max_t (W [e(c_t); e(c_t+1); e(c_t+2)] + b))        word = ⟨ c_1 … c_n ⟩

    The marks ⟨ and ⟩ make prefixes, suffixes and capitals recognizable ("un…", "…ing").
    """

    def __init__(self, alphabet: int, size: int) -> None:
        super().__init__()
        self.embed = nn.Embedding(alphabet, CHARACTER_SIZE, padding_idx=PADDING)
        self.convolve = nn.Conv1d(CHARACTER_SIZE, size, KERNEL)
        with torch.no_grad():
            self.embed.weight.normal_(std=1 / math.sqrt(CHARACTER_SIZE))
            self.embed.weight[PADDING] = 0

    def forward(self, spellings: Tensor) -> Tensor:
        features = self.convolve(self.embed(spellings).transpose(1, 2))  # (U,size,L−2)
        mask = spellings[:, KERNEL - 1 :] != PADDING  # windows that end before the padding; a word has at least one
        highest: Tensor = features.masked_fill(~mask[:, None], -torch.inf).amax(dim=-1)
        return torch.relu(highest)


class WordInput(nn.Module):
    """The vector of a word beside the features of its spelling: `Words` → (B,T,width).

    Features are computed once per distinct word of a batch. Without features the input is words (B,T).

    Args:
        words: The word vectors.
        alphabet: The number of characters.
        characters: The number of features; 0: none.
        mask_rate: The share of words read as `unknown` in training, so that the model learns to use spelling and
            context.
        unknown: The id of the unknown word.
    """

    def __init__(
        self, words: nn.Embedding, alphabet: int, characters: int, mask_rate: float = 0.0, unknown: int = 0
    ) -> None:
        super().__init__()
        self.words = words
        self.characters = CharacterFeatures(alphabet, characters) if characters else None
        self.mask_rate = mask_rate
        self.unknown = unknown
        self.width = words.embedding_dim + characters

    def forward(self, x: Words | Tensor) -> Tensor:
        words, *spelling = x if isinstance(x, tuple) else (x,)
        if self.training and self.mask_rate:
            masked = torch.rand(words.shape, device=words.device) < self.mask_rate
            words = words.masked_fill(masked, self.unknown)
        vectors: Tensor = self.words(words)
        if self.characters is None:
            return vectors
        rows, spellings = spelling
        features = self.characters(spellings)[rows]  # (B,T,characters)
        return torch.cat([vectors, features], dim=-1)
