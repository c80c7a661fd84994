"""Inputs: modules from tokens, numbers or words to the vectors that a backbone reads."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn


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
