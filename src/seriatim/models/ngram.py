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

The mass of n-grams that `entries` drops goes to γ, so that p still sums to one; a context that lost all its
continuations is replaced by its longest suffix that has some, with any smoothing.

The model stores the log p of each n-gram and the log γ of each context, as ARPA files do. The n-grams of order m are
sorted keys, (index of the first m−1 tokens in the order below) · V + last token, so that one integer is enough at any
order, the continuations of a context are adjacent, and look-up is binary search.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from ..core.config import Count, validate
from ..core.errors import SeriatimError
from ..nn.backbone import ModelSettings
from . import _ngram_arpa as arpa
from . import _ngram_counting as counting

QUERY = 1 << 18  # positions scored at a time
FALLBACK = {1: (0.5, 0.5, 0.5), 3: (0.5, 1.0, 1.5)}  # discounts of a text that is too small to estimate them
DIRECT = ("none", "add-k")  # back off to 1/V, not to a shorter context
END = np.iinfo(np.int64).max  # after the last key, so that a search always returns a valid index

Array = np.ndarray


class Settings(ModelSettings):
    gradient_free: ClassVar[bool] = True

    order: int = Field(5, ge=1, le=7, description="n: the predicted token and the n−1 before it")
    smoothing: Literal["none", "add-k", "kneser-ney", "modified-kneser-ney"] = Field(
        "modified-kneser-ney", description="how unseen continuations get a probability"
    )
    k: float = Field(0.1, gt=0, description="number that add-k adds to every count")
    entries: Count | None = Field(
        None, ge=1, description="largest number of stored numbers; the rarest of the longest n-grams are dropped"
    )

    def within_budget(self, entries: int, tokens: Array, vocab_size: int, boundary: int | None) -> Settings:
        """Returns settings for a budget of entries.

        If no order is set, it is the lowest one whose table fills the budget, because only n-grams of the highest order
        should be dropped: lower orders hold continuation counts.
        """
        orders = [self.order] if "order" in self.model_fields_set else range(2, 8)
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
            raise counting.bad_token(np.array([boundary]), 0, vocab_size)
        unigrams, run = counting.count(tokens, vocab_size, settings.order, boundary, chunk, progress)
        keys = [np.arange(vocab_size), *(level for level, _ in run)]
        counts = [unigrams, *(count for _, count in run)]
        keep, pruned = _within_budget(keys, counts, settings.entries, vocab_size)
        suffixes = counting.suffixes(keys, vocab_size)
        adjusted = counts
        if settings.smoothing not in DIRECT:
            adjusted = counting.continuations(keys, counts, suffixes, tokens, vocab_size, boundary)
        discounts = np.array([_discounts(level, settings.smoothing) for level in adjusted])
        finished = _finish(keys, adjusted, suffixes, discounts, keep, settings, vocab_size)
        model = cls(finished, settings, vocab_size, boundary)
        model.discounts, model.pruned = discounts, pruned
        return model

    # Scoring

    def log_probs(self, tokens: Array, context: Array | None = None) -> Array:
        """log p (natural) of each token given all before it; `context` stands before the first."""
        return self._score(tokens, context)[0]

    def order_used(self, tokens: Array, context: Array | None = None) -> Array:
        """The order of the n-gram found for each token: lower than `order` where the model had to back off."""
        return self._score(tokens, context)[1]

    def shares(self, tokens: Array, context: Array | None = None) -> Array:
        """How much of the probability of each token comes from each order, (T,order): of interpolated smoothing, where
        p(w | h) is what the counts of the whole context give, plus γ(h) times what a shorter one says."""
        before = self._before(context)
        line = self._checked(np.concatenate([before, tokens]))
        parts = np.zeros((self.order, len(line)))
        self._score_line(line, parts)
        return (parts / parts.sum(axis=0)).T[len(before) :]

    def next_log_probs(self, contexts: Array) -> Array:
        """log p of every next token: contexts (N, order−1), ending with the last token, −1 where nothing → (N, V).

        With smoothing `none` the row of a never-seen context is −inf throughout (see `has_distribution`).
        """
        contexts = np.asarray(contexts)
        score = np.repeat(self.levels[0].log_probs[None, :-1], len(contexts), axis=0)  # (N,V)
        for m, (places, whole) in enumerate(self._contexts(contexts)):
            score = self._back_off(self.levels[m], places[:, None], whole[:, None], score)
            keys = self.levels[m + 1].keys
            begin, end = (np.searchsorted(keys, (places + more) * self.vocab_size) for more in (0, 1))
            rows = np.repeat(np.arange(len(places)), end - begin)
            stored = np.arange(len(rows)) + np.repeat(begin - np.cumsum(end - begin) + (end - begin), end - begin)
            score[rows, keys[stored] % self.vocab_size] = self.levels[m + 1].log_probs[stored]
        return score

    def has_distribution(self, contexts: Array) -> Array:
        """Which of the contexts (N, order−1) have a distribution; with smoothing all of them."""
        known = np.ones(len(contexts), bool)
        if self.settings.smoothing == "none" and not self.pruned:
            for level, (places, whole) in zip(self.levels, self._contexts(np.asarray(contexts)), strict=False):
                known &= ~whole | level.context[places]
        return known

    def advance(self, tokens: Tensor, state: Tensor | None = None, mask: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """tokens (B,T) → log p of what comes after each (B,T,V), and the state: the last order−1 tokens, −1: none."""
        B, T = tokens.shape
        n = self.order - 1
        if state is None:
            state = tokens.new_full((B, n), -1)
        if mask is not None:
            tokens = tokens.masked_fill(~mask, 0)  # what padding holds need not be an id
        line = torch.cat([state, tokens], dim=1)  # (B, n+T)
        windows = line.unfold(1, n, 1)[:, 1:] if n else line.new_zeros(B, T, 0)  # (B,T,n)
        flat = self.next_log_probs(windows.reshape(B * T, n).cpu().numpy())
        log_probs = torch.from_numpy(flat).view(B, T, self.vocab_size).to(tokens.device)
        lengths = mask.sum(1) if mask is not None else tokens.new_full((B,), T)
        return log_probs, line.gather(1, lengths[:, None] + torch.arange(n, device=tokens.device))

    def _score(self, tokens: Array, context: Array | None) -> tuple[Array, Array]:
        n, before = self.order - 1, self._before(context)
        scores, orders = np.empty(len(tokens)), np.empty(len(tokens), np.int8)
        for start in range(0, len(tokens), QUERY):
            new = np.asarray(tokens[start : start + QUERY])
            line = self._checked(np.concatenate([before, new]))
            window = slice(start, start + len(new))
            scores[window], orders[window] = (values[len(before) :] for values in self._score_line(line))
            before = line[max(0, len(line) - n) :]
        return scores, orders

    def _before(self, context: Array | None) -> Array:
        """What of a context matters, behind the boundary where it is all there is."""
        n = self.order - 1
        before = np.zeros(0, np.int64) if context is None else np.asarray(context)[max(0, len(context) - n) :]
        return np.concatenate([[self.boundary], before]) if self.boundary is not None and len(before) < n else before

    def _score_line(self, line: Array, parts: Array | None = None) -> tuple[Array, Array]:
        """The same for one array of ids with nothing before it; entry t of a result belongs to line[t]. `parts` (order,
        T) take what each order adds to p."""
        score, order = self.levels[0].log_probs[line].astype(np.float64), np.ones(len(line), np.int8)
        places = line  # of the n-gram that starts here, −1 where it is not stored
        whole = np.ones(len(line), bool)  # whether it crosses no boundary
        if parts is not None:
            parts[0] = np.exp(score)
        for m, level in enumerate(self.levels[1:], start=1):
            contexts, whole = places[:-1], whole[:-1]
            if m > 1 and self.boundary is not None:
                whole = whole & (line[m - 1 : -1] != self.boundary)
            places = self._find(level, contexts, line[m:])
            found = places >= 0
            rest = self._back_off(self.levels[m - 1], contexts, whole, score[m:])
            score[m:] = np.where(found, level.log_probs[places], rest)
            order[m:][found] = m + 1
            if parts is not None:
                parts[:m, m:] *= np.exp(self.levels[m - 1].back_off[contexts])
                parts[m, m:] = np.where(found, np.maximum(np.exp(score[m:]) - np.exp(rest), 0.0), 0.0)
        return score, order

    def _find(self, level: Level, contexts: Array, tokens: Array) -> Array:
        """The places of n-grams, −1 where not stored, as after a context of −1."""
        places = np.full(len(contexts), -1)
        asked = np.flatnonzero(contexts >= 0)  # of a new text's longer contexts most are not stored
        keys = contexts[asked] * self.vocab_size + tokens[asked]
        found = counting.search(level.keys, keys)
        stored = level.keys[found] == keys
        places[asked[stored]] = found[stored]
        return places

    def _contexts(self, contexts: Array) -> list[tuple[Array, Array]]:
        """For the last 1, 2, … tokens: where they are stored, and whether they are there and cross no boundary."""
        contexts = self._checked(contexts, least=-1)
        if contexts.shape[1:] != (self.order - 1,) or ((contexts[:, 1:] < 0) & (contexts[:, :-1] >= 0)).any():
            raise SeriatimError(
                "ngram.context",
                f"contexts of shape {contexts.shape}, or with −1 after a token; wanted (N, {self.order - 1})",
                "fill what is missing on the left with −1",
            )
        if self.boundary is not None:
            contexts = np.where(contexts < 0, self.boundary, contexts)  # before the text stands a boundary
        found = []
        for first in range(contexts.shape[1] - 1, -1, -1):
            places = contexts[:, first]
            for m, column in enumerate(range(first + 1, contexts.shape[1]), start=1):
                places = self._find(self.levels[m], places, contexts[:, column])
            inner = contexts[:, first + 1 :]
            crosses = (inner == self.boundary).any(1) if self.boundary is not None else contexts[:, first] < 0
            found.append((places, ~crosses))
        return found

    def _back_off(self, level: Level, contexts: Array, whole: Array, shorter: Array) -> Array:
        """log p of what is not stored after these contexts, where `shorter` is what one token less would say."""
        weights: Array = level.back_off[contexts]
        backed: Array = weights + shorter
        if not self._direct:
            return backed
        uniform = np.float32(-np.log(self.vocab_size))
        unseen = np.float32(-np.inf) if self.settings.smoothing == "none" else uniform
        answer = shorter if self.pruned else np.where(whole, unseen, shorter)
        return np.where(level.context[contexts], weights + uniform, answer)

    def _checked(self, ids: Array, least: int = 0) -> Array:
        if ids.size and not least <= int(ids.min()) <= int(ids.max()) < self.vocab_size:
            raise counting.bad_token(ids, least, self.vocab_size)
        return ids.astype(np.int64, copy=False)

    # Storage

    @property
    def entries(self) -> int:
        """How many numbers are stored: log p of each n-gram, log γ of each that is a context."""
        return sum(len(level.keys) - 1 + int(np.count_nonzero(level.context)) for level in self.levels)

    def describe(self) -> dict[str, Any]:
        """What is stored: n-grams by order, numbers, bytes, and the discounts where they are known."""
        return {
            "ngrams": [len(level.keys) - 1 for level in self.levels],
            "entries": self.entries,
            "bytes": sum(tensor.nbytes for tensor in self.tensors().values()),
            "discounts": None if self.discounts is None else self.discounts.tolist(),
            "pruned": self.pruned,
        }

    def tensors(self) -> dict[str, Array]:
        boundary = -1 if self.boundary is None else self.boundary
        found = {"pruned": np.array([self.pruned], np.uint8), "boundary": np.array([boundary])}
        if self.discounts is not None:
            found["discounts"] = self.discounts
        for m, level in enumerate(self.levels, start=1):
            found |= {f"log_probs.{m}": level.log_probs[:-1], f"back_off.{m}": level.back_off[:-1]}
            found |= {f"keys.{m}": level.keys[:-1]} if m > 1 else {}  # unigrams: every id
        return found

    @classmethod
    def from_tensors(cls, tensors: Mapping[str, Array], settings: Settings, vocab_size: int) -> NGram:
        """The inverse of `tensors`."""
        named = {"keys.1": np.arange(vocab_size), **tensors}
        try:
            run = [
                (named[f"keys.{m}"], named[f"log_probs.{m}"], named[f"back_off.{m}"])
                for m in range(1, settings.order + 1)
            ]
            if any(len({*map(len, level)}) > 1 for level in run):
                raise KeyError("tensors of equal length for each order")
            boundary = int(named["boundary"][0])
            model = cls(run, settings, vocab_size, None if boundary < 0 else boundary)
            model.pruned, model.discounts = bool(named["pruned"][0]), named.get("discounts")
        except (KeyError, IndexError) as error:
            raise SeriatimError(
                "ngram.tensors", f"these are not the tensors of this n-gram model: {error}", "load the whole folder"
            ) from None
        return model

    def write_arpa(self, path: str | Path, tokens: Sequence[str]) -> None:
        """Writes an ARPA file; `tokens` are the ids' names (see `_ngram_arpa` for how spaces in them are written)."""
        if self._direct:
            raise SeriatimError(
                "arpa.smoothing",
                f"an ARPA file can hold models that back off to shorter contexts; {self.settings.smoothing} does not",
                "use the smoothing kneser-ney or modified-kneser-ney",
            )
        run = [(level.keys[:-1], level.log_probs[:-1], level.back_off[:-1]) for level in self.levels]
        arpa.write(path, tokens, run, self.vocab_size, self.boundary)

    @classmethod
    def read_arpa(
        cls, path: str | Path, tokens: Sequence[str] | None = None, boundary: int | None = None
    ) -> tuple[NGram, list[str]]:
        """The model and the names of its ids: the file's own in their order, or `tokens` where given.

        `boundary` is the id in `tokens` that plays <s> and </s>, unless one is named "</s>".
        """
        run, names, boundary = arpa.read(path, tokens, boundary)
        settings = validate(Settings, {"name": "ngram", "order": len(run)}, str(path))
        return cls(run, settings, len(names), boundary), names


def _discounts(counts: Array, smoothing: str) -> tuple[float, ...]:
    """What is taken from counts of 1, of 2, and of 3 and more."""
    if smoothing in DIRECT:
        return (0.0, 0.0, 0.0)
    n = np.bincount(np.minimum(counts, 5), minlength=6).astype(float)  # n[j]: n-grams counted j times
    kinds = 3 if smoothing == "modified-kneser-ney" else 1
    if not n[1 : max(3, kinds + 1)].all():
        return FALLBACK[kinds]
    y = n[1] / (n[1] + 2 * n[2])
    found = tuple(float(j - (j + 1) * y * n[j + 1] / n[j]) for j in (1, 2, 3)) if kinds == 3 else (float(y),) * 3
    return found if all(0 < value <= j for j, value in enumerate(found, start=1)) else FALLBACK[kinds]


def _finish(
    keys: list[Array],
    counts: list[Array],
    suffixes: list[Array],
    discounts: Array,
    keep: list[Array],
    settings: Settings,
    vocab_size: int,
) -> list[tuple[Array, Array, Array]]:
    """From counts to (keys, log p, log γ), from the unigrams up, as each order leans on the one below.

    What is dropped is dropped from the highest order down, so the places of what stays below never change.
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
        finished.append((key[keep[m]], _log(lower[keep[m]]), np.zeros(np.count_nonzero(keep[m]), np.float32)))
    return finished


def _interpolate(
    counts: Array, parents: Array, contexts: int, discounts: Array, keep: Array, base: Array, added: float
) -> tuple[Array, Array]:
    """p of each n-gram and log γ of each context; what is not kept leaves all its mass to γ."""
    taken = np.where(keep, np.append(0.0, discounts)[np.minimum(counts, 3)], counts)
    total = np.bincount(parents, counts, contexts) + added
    used = total > added
    share = np.divide(np.bincount(parents, taken, contexts) + added, total, out=np.ones(contexts), where=used)
    return (counts - taken) / total[parents] + share[parents] * base, _log(share)


def _within_budget(
    keys: list[Array], counts: list[Array], budget: int | None, vocab_size: int
) -> tuple[list[Array], bool]:
    """Which n-grams stay: from the highest order down the rarest go, until the numbers to store are few enough."""
    keep = [np.ones(len(level), bool) for level in keys]
    pruned = False
    for m in range(len(keys) - 1, 0, -1):
        if budget is None:
            break
        below = vocab_size + sum(len(level) + _contexts_in(level // vocab_size) for level in keys[1:m])
        ranked = np.argsort(-counts[m], kind="stable")
        cost = np.ones(len(ranked), np.int64)  # an n-gram costs its log p, and the first of a context log γ too
        cost[np.unique(keys[m][ranked] // vocab_size, return_index=True)[1]] = 2
        fits = int(np.searchsorted(np.cumsum(cost), budget - below, side="right"))
        keep[m][ranked[fits:]] = False
        pruned |= fits < len(ranked)
        if fits > 0:
            break
    return keep, pruned


def _contexts_in(parents: Array) -> int:
    return int(np.count_nonzero(np.diff(parents, prepend=-1)))  # parents ascend, as keys do


def _log(values: Array) -> Array:
    with np.errstate(divide="ignore"):
        logs: Array = np.log(values).astype(np.float32)
    return logs
