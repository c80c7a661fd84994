"""Words as input: a vector for each known word, and features of its spelling for every word.

The features are a convolution over the characters, of which each unit keeps the largest value (dos Santos and
Zadrozny, "Learning character-level representations for part-of-speech tagging", 2014):

    f(word) = relu(max_t (W [e(c_t); e(c_t+1); e(c_t+2)] + b))        word = ⟨ c_1 … c_n ⟩

The marks ⟨ and ⟩ let it tell beginnings and endings ("un…", "…ing", a capital). Most words of a batch occur in it
several times, so the features are computed once for each distinct word.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

PADDING, UNSEEN, BEGIN, END = range(4)  # the first characters of every alphabet
KERNEL = 3
EMBEDDING = 32  # size of a character's vector

# The words of a batch (B,T), for each the row of its spelling (B,T), and the spellings of distinct words (U,L).
Words = tuple[Tensor, Tensor, Tensor]


class CharacterFeatures(nn.Module):
    """Spellings (U,L), filled up with PADDING → features (U,size)."""

    def __init__(self, alphabet: int, size: int) -> None:
        super().__init__()
        self.embed = nn.Embedding(alphabet, EMBEDDING, padding_idx=PADDING)
        self.convolve = nn.Conv1d(EMBEDDING, size, KERNEL)
        with torch.no_grad():
            self.embed.weight.normal_(std=1 / math.sqrt(EMBEDDING))
            self.embed.weight[PADDING] = 0

    def forward(self, spelled: Tensor) -> Tensor:
        found = self.convolve(self.embed(spelled).transpose(1, 2))  # (U,size,L−2)
        real = spelled[:, KERNEL - 1 :] != PADDING  # windows that end before the padding; a word has one at least
        highest: Tensor = found.masked_fill(~real[:, None], -torch.inf).amax(dim=-1)
        return torch.relu(highest)


class WordInput(nn.Module):
    """The vector of a word beside the features of its spelling: `Words` → (B,T,width). Without features the words are
    enough, (B,T).

    While training a share of the words is `hidden`: read as the unknown word, so that the model learns to go by the
    spelling and the neighbours alone.
    """

    def __init__(
        self, words: nn.Embedding, alphabet: int, characters: int, hidden: float = 0.0, unknown: int = 0
    ) -> None:
        super().__init__()
        self.words = words
        self.characters = CharacterFeatures(alphabet, characters) if characters else None
        self.hidden = hidden
        self.unknown = unknown
        self.width = words.embedding_dim + characters

    def forward(self, x: Words | Tensor) -> Tensor:
        words, *spelling = x if isinstance(x, tuple) else (x,)
        if self.training and self.hidden:
            covered = torch.rand(words.shape, device=words.device) < self.hidden
            words = words.masked_fill(covered, self.unknown)
        vectors: Tensor = self.words(words)
        if self.characters is None:
            return vectors
        which, spelled = spelling
        features = self.characters(spelled)[which]  # (B,T,characters)
        return torch.cat([vectors, features], dim=-1)
