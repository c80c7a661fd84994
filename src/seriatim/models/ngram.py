"""The n-gram language model: smoothed counts of the last n tokens.

    p(w | h) = count(h w) / count(h),    h the last n−1 tokens          Shannon 1948, Jelinek 1976

It has two problems. *Sparsity*: an unseen continuation has probability 0, and an unseen context has no distribution at
all (`smoothing: none` shows it). *Storage*: the table grows with n (`entries` is a budget for it). All smoothings have
one form, a discounted count plus a share of a less specific distribution:

    p(w | h) = (a(hw) − D(a(hw))) / z(h) + γ(h) · q(w | h)         γ(h): the remaining mass, so that p sums to one

    none                  a = count, z = Σ a, D = 0, so γ = 0
    add-k                 a = count, z = Σ a + kV, D = 0, q = 1/V: (count(hw) + k) / (count(h) + kV)
    kneser-ney            z = Σ a, q = p(w | h without its first token), down to the uniform 1/V; a = count in
                          the highest order, below it the number of *different* tokens seen before hw; one
                          D = n₁/(n₁+2n₂) an order (n_j: how many n-grams have a = j)       Kneser & Ney 1995
    modified-kneser-ney   the same with Y = n₁/(n₁+2n₂) and D_j = j − (j+1) Y n_{j+1}/n_j for a = 1, 2, ≥3
                                                                                     Chen & Goodman 1999
If a text is too small for these discounts (an n_j is 0, or a D_j is outside (0, j]) the order takes 0.5, 1 and 1.5, as
KenLM's `--discount_fallback` does, and 0.5 if there is only one. With a `boundary` and modified Kneser–Ney the result
equals that of KenLM's `lmplz` (Heafield 2013): no n-gram crosses the boundary, which is <s> as a context and </s> as a
prediction, and n-grams that begin with it keep their plain counts. A text without boundary begins with a shorter
context; its start counts as one different token.

The mass of n-grams that `entries` or `prune` drops goes to γ, so that p still sums to one; a context that lost all its
continuations is replaced by its longest suffix that has some, with any smoothing. Discounts and the counts of different
tokens are those of the whole text, as in `lmplz --prune`.

The model stores the log p of each n-gram and the log γ of each context, as ARPA files do. The n-grams of order m are
sorted keys, (index of the first m−1 tokens in the order below) · V + last token, so that one integer is enough at any
order, the continuations of a context are adjacent, and look-up is binary search.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, ClassVar, Literal

import numpy as np
import torch
from pydantic import Field, field_validator
from torch import Tensor

from ..core.config import Count, validate
from ..core.errors import SeriatimError
from ..core.files import Json
from ..nn.backbone import ModelSettings
from ._ngram import arpa, counting

MAX_SOLVED_ORDER = 7  # that a budget of entries leads to, if none is set
QUERY = 1 << 18  # positions scored at a time
FALLBACK = {1: (0.5, 0.5, 0.5), 3: (0.5, 1.0, 1.5)}  # discounts of a text that is too small to estimate them
DIRECT = ("none", "add-k")  # back off to 1/V, not to a shorter context
END = np.iinfo(np.int64).max  # after the last key, so that a search always returns a valid index

Array = np.ndarray


class Settings(ModelSettings):
    title: ClassVar[str] = "n-gram"
    gradient_free: ClassVar[bool] = True

    order: int = Field(5, ge=1, le=64, description="n: the predicted token and the n−1 before it")
    smoothing: Literal["none", "add-k", "kneser-ney", "modified-kneser-ney"] = Field(
        "modified-kneser-ney", description="how unseen continuations get a probability"
    )
    k: float = Field(0.1, gt=0, le=1e9, description="number that add-k adds to every count")
    entries: Count | None = Field(
        None, description="largest number of stored numbers; the rarest of the longest n-grams are dropped"
    )
    prune: tuple[Annotated[int, Field(ge=0, le=10**9)], ...] | None = Field(
        None,
        min_length=1,
        max_length=64,
        description="drop n-grams that occur at most so often: [0,0,1] those of 3 and more tokens that occur once",
    )

    @field_validator("prune")
    @classmethod
    def _check_prune(cls, value: tuple[int, ...] | None) -> tuple[int, ...] | None:
        if value is not None and (value[0] != 0 or list(value) != sorted(value)):
            raise ValueError(f"{list(value)}: the first must be 0 (single tokens are kept), the others must not fall")
        return value

    @property
    def thresholds(self) -> tuple[int, ...]:
        """The count up to which n-grams of each order are dropped; the last of `prune` is that of higher orders."""
        prune = self.prune or (0,)
        return (*prune, *(prune[-1:] * (self.order - len(prune))))

    def within_budget(self, entries: int, tokens: Array, vocab_size: int, boundary: int | None) -> Settings:
        """Returns settings for a budget of entries.

        If no order is set, it is the lowest one whose table fills the budget, because only n-grams of the highest order
        should be dropped: lower orders hold continuation counts. Every threshold of `prune` has its order.
        """
        lowest = max(len(self.prune or ()), 2)
        highest = max(lowest, MAX_SOLVED_ORDER)
        orders = [self.order] if "order" in self.model_fields_set else range(lowest, highest + 1)
        for order in orders:
            settings = self.model_copy(update={"order": order, "entries": entries})
            if len(orders) > 1 and NGram.fit(tokens, vocab_size, settings, boundary).entries >= 0.98 * entries:
                break
        return settings


@dataclass(frozen=True, eq=False)
class Level:
    """The n-grams of one order. Arrays have an empty last element, at index −1: that of n-grams that are not stored."""

    keys: Array  # int64, ascending
    log_probs: Array  # float32
    back_off: Array  # float32: log γ of the n-gram as a context; 0 if it is none
    context: Array  # bool: whether a longer n-gram begins with it


class NGram:
    def __init__(
        self, levels: Sequence[tuple[Array, Array, Array]], settings: Settings, vocab_size: int, boundary: int | None
    ) -> None:
        """`levels` are (keys, log p, log γ) of each order, as `tensors` returns them."""
        self.settings, self.vocab_size, self.boundary, self.order = settings, vocab_size, boundary, settings.order
        self.discounts: Array | None = None
        self.pruned = False
        self._direct = settings.smoothing in DIRECT
        longer = [keys for keys, _, _ in levels[1:]] + [np.zeros(0, np.int64)]
        self.levels = []
        for (keys, log_probs, back_off), children in zip(levels, longer, strict=True):
            context = np.zeros(len(keys) + 1, bool)
            context[children // vocab_size] = True
            log_probs, back_off = (np.append(values, np.float32(0)) for values in (log_probs, back_off))
            self.levels.append(Level(np.append(keys, END), log_probs, back_off, context))

    # Fitting

    @classmethod
    def fit(
        cls,
        tokens: Array,
        vocab_size: int,
        settings: Settings,
        boundary: int | None = None,
        progress: Callable[[str], None] | None = None,
        chunk: int = counting.CHUNK,
    ) -> NGram:
        """Returns the model of a text of ids. Memory holds the distinct n-grams and one chunk of the text."""
        if len(tokens) == 0:
            raise SeriatimError("ngram.empty", "the text has no tokens", "use a text that is not empty")
        if boundary is not None and not 0 <= boundary < vocab_size:
            raise counting.token_error(np.array([boundary]), 0, vocab_size)
        if settings.prune is not None and len(settings.prune) > settings.order:  # which stored runs may have
            cause = f"model.prune has {len(settings.prune)} thresholds, but n-grams have up to {settings.order} tokens"
            raise SeriatimError("ngram.prune", cause, f"name {settings.order} or fewer, or raise model.order")
        unigrams, higher = counting.count(tokens, vocab_size, settings.order, boundary, chunk, progress)
        keys = [np.arange(vocab_size), *(level for level, _ in higher)]
        counts = [unigrams, *(count for _, count in higher)]
        keep = [
            count > least if m else count >= 0
            for m, (count, least) in enumerate(zip(counts, settings.thresholds, strict=True))
        ]
        _drop_rarest(keys, counts, keep, settings.entries, vocab_size)
        suffixes = counting.suffixes(keys, vocab_size)
        adjusted = counts
        if settings.smoothing not in DIRECT:
            adjusted = counting.continuations(keys, counts, suffixes, tokens, vocab_size, boundary)
        discounts = np.array([_discounts(level, settings.smoothing) for level in adjusted])
        finished = _probabilities(keys, adjusted, suffixes, discounts, keep, settings, vocab_size)
        model = cls(finished, settings, vocab_size, boundary)
        model.discounts, model.pruned = discounts, not all(level.all() for level in keep)
        return model

    # Scoring

    def log_probs(self, tokens: Array, context: Array | None = None) -> Array:
        """Returns the natural log p of each token after all earlier ones; `context` precedes the first."""
        return self._score(tokens, context)[0]

    def order_used(self, tokens: Array, context: Array | None = None) -> Array:
        """Returns the order of the longest stored n-gram that ends with each token: below `order` if it backs off."""
        return self._score(tokens, context)[1]

    def shares(self, tokens: Array, context: Array | None = None) -> Array:
        """Returns the share of each order in the probability of each token (T,order), for interpolated smoothing.

        p(w | h) is the discounted count of the whole context, plus γ(h) times the p of a shorter one.
        """
        before = self._relevant_context(context)
        line = self._check_ids(np.concatenate([before, tokens]))
        parts = np.zeros((self.order, len(line)))
        self._score_line(line, parts)
        return (parts / parts.sum(axis=0)).T[len(before) :]

    def next_log_probs(self, contexts: Array) -> Array:
        """Returns the log p of every next token (N,V).

        With smoothing `none` the row of an unseen context is −inf (see `has_distribution`).

        Args:
            contexts: The last order−1 tokens (N,order−1), padded with −1 on the left.
        """
        contexts = np.asarray(contexts)
        score = np.repeat(self.levels[0].log_probs[None, :-1], len(contexts), axis=0)  # (N,V)
        for m, (indices, whole) in enumerate(self._find_contexts(contexts)):
            score = self._back_off(self.levels[m], indices[:, None], whole[:, None], score)
            keys = self.levels[m + 1].keys
            begin, end = (np.searchsorted(keys, (indices + offset) * self.vocab_size) for offset in (0, 1))
            rows = np.repeat(np.arange(len(indices)), end - begin)
            stored = np.arange(len(rows)) + np.repeat(begin - np.cumsum(end - begin) + (end - begin), end - begin)
            score[rows, keys[stored] % self.vocab_size] = self.levels[m + 1].log_probs[stored]
        return score

    def has_distribution(self, contexts: Array) -> Array:
        """Returns which of the contexts (N,order−1) have a distribution; with smoothing all have."""
        known = np.ones(len(contexts), bool)
        if self.settings.smoothing == "none" and not self.pruned:
            for level, (indices, whole) in zip(self.levels, self._find_contexts(np.asarray(contexts)), strict=False):
                known &= ~whole | level.context[indices]
        return known

    def advance(self, tokens: Tensor, state: Tensor | None = None, mask: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Returns the log p of the token after each (B,T,V), and the state: the last order−1 tokens, −1 for none."""
        B, T = tokens.shape
        n = self.order - 1
        if state is None:
            state = tokens.new_full((B, n), -1)
        if mask is not None:
            tokens = tokens.masked_fill(~mask, 0)  # padding need not be a valid id
        line = torch.cat([state, tokens], dim=1)  # (B, n+T)
        windows = line.unfold(1, n, 1)[:, 1:] if n else line.new_zeros(B, T, 0)  # (B,T,n)
        flat = self.next_log_probs(windows.reshape(B * T, n).cpu().numpy())
        log_probs = torch.from_numpy(flat).view(B, T, self.vocab_size).to(tokens.device)
        lengths = mask.sum(1) if mask is not None else tokens.new_full((B,), T)
        return log_probs, line.gather(1, lengths[:, None] + torch.arange(n, device=tokens.device))

    def _score(self, tokens: Array, context: Array | None) -> tuple[Array, Array]:
        n, before = self.order - 1, self._relevant_context(context)
        scores, orders = np.empty(len(tokens)), np.empty(len(tokens), np.int8)
        for start in range(0, len(tokens), QUERY):
            new = np.asarray(tokens[start : start + QUERY])
            line = self._check_ids(np.concatenate([before, new]))
            window = slice(start, start + len(new))
            scores[window], orders[window] = (values[len(before) :] for values in self._score_line(line))
            before = line[max(0, len(line) - n) :]
        return scores, orders

    def _relevant_context(self, context: Array | None) -> Array:
        """Returns the last order−1 tokens of a context, after a boundary if there are fewer."""
        n = self.order - 1
        before = np.zeros(0, np.int64) if context is None else np.asarray(context)[max(0, len(context) - n) :]
        return np.concatenate([[self.boundary], before]) if self.boundary is not None and len(before) < n else before

    def _score_line(self, line: Array, parts: Array | None = None) -> tuple[Array, Array]:
        """Returns log p and order of each token of an array; `parts` (order,T) receives each order's share of p."""
        score, order = self.levels[0].log_probs[line].astype(np.float64), np.ones(len(line), np.int8)
        indices = line  # of the n-gram that starts here, −1 if it is not stored
        whole = np.ones(len(line), bool)  # whether it crosses no boundary
        if parts is not None:
            parts[0] = np.exp(score)
        for m, level in enumerate(self.levels[1:], start=1):
            contexts, whole = indices[:-1], whole[:-1]
            if m > 1 and self.boundary is not None:
                whole = whole & (line[m - 1 : -1] != self.boundary)
            indices = self._find(level, contexts, line[m:])
            stored = indices >= 0
            rest = self._back_off(self.levels[m - 1], contexts, whole, score[m:])
            score[m:] = np.where(stored, level.log_probs[indices], rest)
            order[m:][stored] = m + 1
            if parts is not None:
                parts[:m, m:] *= np.exp(self.levels[m - 1].back_off[contexts])
                parts[m, m:] = np.where(stored, np.maximum(np.exp(score[m:]) - np.exp(rest), 0.0), 0.0)
        return score, order

    def _find(self, level: Level, contexts: Array, tokens: Array) -> Array:
        """Returns the indices of n-grams in a level, −1 if not stored, as after a context of −1."""
        indices = np.full(len(contexts), -1)
        rows = np.flatnonzero(contexts >= 0)  # most longer contexts of a new text are not stored
        keys = contexts[rows] * self.vocab_size + tokens[rows]
        candidates = counting.search(level.keys, keys)
        stored = level.keys[candidates] == keys
        indices[rows[stored]] = candidates[stored]
        return indices

    def _find_contexts(self, contexts: Array) -> list[tuple[Array, Array]]:
        """Returns, for the last 1, 2, … tokens, their indices and whether they exist and cross no boundary."""
        contexts = self._check_ids(contexts, lowest=-1)
        if contexts.shape[1:] != (self.order - 1,) or ((contexts[:, 1:] < 0) & (contexts[:, :-1] >= 0)).any():
            raise SeriatimError(
                "ngram.context",
                f"contexts of shape {contexts.shape}, or with −1 after a token; expected (N, {self.order - 1})",
                "pad on the left with −1",
            )
        if self.boundary is not None:
            contexts = np.where(contexts < 0, self.boundary, contexts)  # a boundary precedes the text
        results = []
        for first in range(contexts.shape[1] - 1, -1, -1):
            indices = contexts[:, first]
            for m, column in enumerate(range(first + 1, contexts.shape[1]), start=1):
                indices = self._find(self.levels[m], indices, contexts[:, column])
            inner = contexts[:, first + 1 :]
            crosses = (inner == self.boundary).any(1) if self.boundary is not None else contexts[:, first] < 0
            results.append((indices, ~crosses))
        return results

    def _back_off(self, level: Level, contexts: Array, whole: Array, shorter: Array) -> Array:
        """Returns the log p of tokens not stored after these contexts, from their log p after shorter ones."""
        weights: Array = level.back_off[contexts]
        interpolated: Array = weights + shorter
        if not self._direct:
            return interpolated
        uniform = np.float32(-np.log(self.vocab_size))
        unseen = np.float32(-np.inf) if self.settings.smoothing == "none" else uniform
        without_context = shorter if self.pruned else np.where(whole, unseen, shorter)
        return np.where(level.context[contexts], weights + uniform, without_context)

    def _check_ids(self, ids: Array, lowest: int = 0) -> Array:
        if ids.size and not lowest <= int(ids.min()) <= int(ids.max()) < self.vocab_size:
            raise counting.token_error(ids, lowest, self.vocab_size)
        return ids.astype(np.int64, copy=False)

    # Storage

    @property
    def entries(self) -> int:
        """The number of stored numbers: log p of each n-gram, log γ of each context."""
        return sum(len(level.keys) - 1 + int(np.count_nonzero(level.context)) for level in self.levels)

    def describe(self) -> Json:
        """Returns the n-grams by order, the numbers and bytes stored, and the discounts if they are known."""
        return {
            "ngrams": [len(level.keys) - 1 for level in self.levels],
            "entries": self.entries,
            "bytes": sum(tensor.nbytes for tensor in self.tensors().values()),
            "discounts": None if self.discounts is None else self.discounts.tolist(),
            "pruned": self.pruned,
        }

    def tensors(self) -> dict[str, Array]:
        boundary = -1 if self.boundary is None else self.boundary
        tensors = {"pruned": np.array([self.pruned], np.uint8), "boundary": np.array([boundary])}
        if self.discounts is not None:
            tensors["discounts"] = self.discounts
        for m, level in enumerate(self.levels, start=1):
            tensors |= {f"log_probs.{m}": level.log_probs[:-1], f"back_off.{m}": level.back_off[:-1]}
            tensors |= {f"keys.{m}": level.keys[:-1]} if m > 1 else {}  # unigrams: every id
        return tensors

    @classmethod
    def from_tensors(cls, tensors: Mapping[str, Array], settings: Settings, vocab_size: int) -> NGram:
        """Returns the model of stored tensors: the inverse of `tensors`."""
        named = {"keys.1": np.arange(vocab_size), **tensors}
        try:
            levels = [
                (named[f"keys.{m}"], named[f"log_probs.{m}"], named[f"back_off.{m}"])
                for m in range(1, settings.order + 1)
            ]
            if any(len({*map(len, level)}) > 1 for level in levels):
                raise KeyError("tensors of equal length for each order")
            boundary = int(named["boundary"][0])
            model = cls(levels, settings, vocab_size, None if boundary < 0 else boundary)
            model.pruned, model.discounts = bool(named["pruned"][0]), named.get("discounts")
        except (KeyError, IndexError) as error:
            raise SeriatimError(
                "ngram.tensors", f"these are not the tensors of this n-gram model: {error}", "copy the whole folder"
            ) from None
        return model

    def write_arpa(self, path: str | Path, tokens: Sequence[str]) -> None:
        """Writes an ARPA file; `tokens` are the names of the ids (`_ngram.arpa` escapes spaces in them)."""
        if self._direct:
            raise SeriatimError(
                "arpa.smoothing",
                f"ARPA files hold models that back off to shorter contexts; {self.settings.smoothing} does not",
                "use the smoothing kneser-ney or modified-kneser-ney",
            )
        levels = [(level.keys[:-1], level.log_probs[:-1], level.back_off[:-1]) for level in self.levels]
        arpa.write(path, tokens, levels, self.vocab_size, self.boundary)

    @classmethod
    def read_arpa(
        cls, path: str | Path, tokens: Sequence[str] | None = None, boundary: int | None = None
    ) -> tuple[NGram, list[str]]:
        """Returns the model and the names of its ids.

        Args:
            path: The ARPA file.
            tokens: The names of the ids; by default those of the file, in order.
            boundary: The id in `tokens` that is <s> and </s>, unless one is named "</s>".
        """
        levels, names, boundary = arpa.read(path, tokens, boundary)
        settings = validate(Settings, {"name": "ngram", "order": len(levels)}, str(path))
        return cls(levels, settings, len(names), boundary), names


def _discounts(counts: Array, smoothing: str) -> tuple[float, ...]:
    """Returns the discounts of counts of 1, of 2, and of 3 and more."""
    if smoothing in DIRECT:
        return (0.0, 0.0, 0.0)
    n = np.bincount(np.minimum(counts, 5), minlength=6).astype(float)  # n[j]: n-grams counted j times
    kinds = 3 if smoothing == "modified-kneser-ney" else 1
    if not n[1 : max(3, kinds + 1)].all():
        return FALLBACK[kinds]
    y = n[1] / (n[1] + 2 * n[2])
    discounts = tuple(float(j - (j + 1) * y * n[j + 1] / n[j]) for j in (1, 2, 3)) if kinds == 3 else (float(y),) * 3
    return discounts if all(0 < value <= j for j, value in enumerate(discounts, start=1)) else FALLBACK[kinds]


def _probabilities(
    keys: list[Array],
    counts: list[Array],
    suffixes: list[Array],
    discounts: Array,
    keep: list[Array],
    settings: Settings,
    vocab_size: int,
) -> list[tuple[Array, Array, Array]]:
    """Returns (keys, log p, log γ) of each order, from the unigrams up, as each order depends on the one below.

    An n-gram is dropped with all longer ones that begin or end with it, so that those that are kept have a context.
    """
    direct = settings.smoothing in DIRECT
    added = settings.k * vocab_size if settings.smoothing == "add-k" else 0.0
    uniform = np.array(1 / vocab_size)
    finished: list[tuple[Array, Array, Array]] = []
    lower, sizes = uniform, [1, *map(len, keys)]
    for m, (key, count) in enumerate(zip(keys, counts, strict=True)):
        base = uniform if direct or m == 0 else lower[suffixes[m]]
        parents = key // vocab_size  # all 0 for unigrams: the empty context
        lower, weights = _interpolate(count, parents, sizes[m], discounts[m], keep[m], base, added)
        if m > 0:
            finished[m - 1] = (*finished[m - 1][:2], weights[keep[m - 1]])
        stored = key[keep[m]]
        if m > 0 and not keep[m - 1].all():  # the indices of contexts among those that are kept
            stored = (np.cumsum(keep[m - 1]) - 1)[stored // vocab_size] * vocab_size + stored % vocab_size
        finished.append((stored, _log(lower[keep[m]]), np.zeros(len(stored), np.float32)))
    return finished


def _interpolate(
    counts: Array, parents: Array, contexts: int, discounts: Array, keep: Array, base: Array, added: float
) -> tuple[Array, Array]:
    """Returns p of each n-gram and log γ of each context; the mass of dropped n-grams goes to γ."""
    discounted = np.where(keep, np.append(0.0, discounts)[np.minimum(counts, 3)], counts)
    total = np.bincount(parents, counts, contexts) + added
    used = total > added
    share = np.divide(np.bincount(parents, discounted, contexts) + added, total, out=np.ones(contexts), where=used)
    return (counts - discounted) / total[parents] + share[parents] * base, _log(share)


def _drop_rarest(
    keys: list[Array], counts: list[Array], keep: list[Array], budget: int | None, vocab_size: int
) -> None:
    """Clears `keep` of n-grams beyond a budget of entries: the rarest of the highest order are dropped first."""
    for m in range(len(keys) - 1, 0, -1):
        if budget is None:
            break
        # Contexts are counted by where they change: they are sorted, as keys are.
        kept = [level[own] for level, own in zip(keys[1:m], keep[1:m], strict=True)]
        contexts = [np.count_nonzero(np.diff(level // vocab_size, prepend=-1)) for level in kept]
        below = vocab_size + sum(map(len, kept)) + int(sum(contexts))
        ranked = np.flatnonzero(keep[m])
        ranked = ranked[np.argsort(-counts[m][ranked], kind="stable")]
        cost = np.ones(len(ranked), np.int64)  # an n-gram costs its log p, and the first of a context log γ too
        cost[np.unique(keys[m][ranked] // vocab_size, return_index=True)[1]] = 2
        fits = int(np.searchsorted(np.cumsum(cost), budget - below, side="right"))
        keep[m][ranked[fits:]] = False
        if fits > 0:
            break


def _log(values: Array) -> Array:
    with np.errstate(divide="ignore"):
        logs: Array = np.log(values).astype(np.float32)
    return logs
