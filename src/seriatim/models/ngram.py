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
tokens refer to the whole text, as in `lmplz --prune`.

The model stores the log p of each n-gram and the log γ of each context, as ARPA files do. The n-grams of order m are
sorted keys, (index of the first m−1 tokens in the order below) · V + last token, so that one integer is enough at any
order, the continuations of a context are adjacent, and look-up is binary search.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, ClassVar, Literal

import numpy as np
import torch
from pydantic import Field, field_validator
from torch import Tensor

from ..core.config import Count, validate
from ..core.errors import SeriatimError
from ..core.model_info import History
from ..nn.fitted import FittedModel
from ..nn.settings import ModelSettings
from ._ngram import arpa, counting
from ._ngram.mixture import Mixture
from ._ngram.table import DIRECT, Scorer, Table

MAX_SOLVED_ORDER = 7  # that a budget of entries leads to, if none is set
FALLBACK = {1: (0.5, 0.5, 0.5), 3: (0.5, 1.0, 1.5)}  # discounts of a text that is too small to estimate them

Array = np.ndarray


class Settings(ModelSettings):
    title: ClassVar[str] = "n-gram"
    color: ClassVar[tuple[str, str] | None] = ("#50565e", "#c3c9d1")
    history: ClassVar[History] = "sequences"
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
        description="largest dropped counts by order: [0,0,1] drops n-grams of 3 and more tokens that occur once",
    )

    @field_validator("prune")
    @classmethod
    def _check_prune(cls, value: tuple[int, ...] | None) -> tuple[int, ...] | None:
        if value is not None and (value[0] != 0 or list(value) != sorted(value)):
            raise ValueError(f"{list(value)}: the first must be 0 (single tokens are kept), the others must not fall")
        return value

    @property
    def thresholds(self) -> tuple[int, ...]:
        """The largest count of dropped n-grams of each order; the last of `prune` applies to higher orders."""
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


class NGram(FittedModel):
    """An n-gram model, or several that are interpolated; which of both, the stored arrays say.

    Its buffers are log p and log γ of each order (`log_probs.1`, `back_off.1`, …) and the keys of n-grams of two and
    more tokens (`keys.2`, …). The `scorer` computes with the same memory.

    Args:
        settings: The settings.
        vocab_size: The number of tokens V.
        scorer: The tables; by default they are loaded later.
    """

    tensors_error = ("ngram.tensors", "this n-gram model")
    scorer: Scorer

    def __init__(self, settings: Settings, vocab_size: int, scorer: Scorer | None = None) -> None:
        super().__init__()
        self.settings, self.vocab_size = settings, vocab_size
        if scorer is not None:
            self.scorer = scorer
            self.register_arrays()

    def set_arrays(self, arrays: Mapping[str, Array]) -> None:
        if "weights" in arrays:
            self.scorer = Mixture.from_arrays(arrays, self.vocab_size)
        else:
            settings = self.settings
            self.scorer = Table.from_arrays(arrays, settings.order, settings.smoothing, self.vocab_size)

    def arrays(self) -> dict[str, Array]:
        return self.scorer.arrays()

    @property
    def entries(self) -> int:
        return self.scorer.entries

    def forward(self, x: Tensor, mask: Tensor | None = None, state: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Returns the log p of the token after each (B,T,V), and the state: the last order−1 tokens, −1 for none."""
        B, T = x.shape
        n = self.scorer.order - 1
        if state is None:
            state = x.new_full((B, n), -1)
        if mask is not None:
            x = x.masked_fill(~mask, 0)  # padding need not be a valid id
        line = torch.cat([state, x], dim=1)  # (B, n+T)
        windows = line.unfold(1, n, 1)[:, 1:] if n else line.new_zeros(B, T, 0)  # (B,T,n)
        flat = self.scorer.next_log_probs(windows.reshape(B * T, n).cpu().numpy())
        log_probs = torch.from_numpy(flat).view(B, T, self.vocab_size).to(x.device)
        lengths = mask.sum(1) if mask is not None else x.new_full((B,), T)
        return log_probs, line.gather(1, lengths[:, None] + torch.arange(n, device=x.device))

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
        pruned = not all(level.all() for level in keep)
        table = Table.of(finished, vocab_size, boundary, settings.smoothing, pruned, discounts)
        return cls(settings, vocab_size, table)

    @classmethod
    def mix(cls, models: Sequence[NGram], tokens: Array, context: Array | None = None) -> NGram:
        """Returns the interpolation of models, with the weights that suit a text best."""
        tables = [table for model in models for table in model.scorer.tables]
        return cls(models[0].settings, models[0].vocab_size, Mixture.fit(tables, tokens, context))

    # ARPA files

    def write_arpa(self, path: str | Path, tokens: Sequence[str]) -> None:
        """Writes an ARPA file; `tokens` are the names of the ids (`_ngram.arpa` escapes spaces in them)."""
        if len(self.scorer.tables) > 1:
            cause = "an ARPA file holds one n-gram model, and this one interpolates several"
            raise SeriatimError("arpa.mixture", cause, "export the runs that were interpolated")
        (table,) = self.scorer.tables
        if table.direct:
            raise SeriatimError(
                "arpa.smoothing",
                f"ARPA files hold models that back off to shorter contexts; {table.smoothing} does not",
                "use the smoothing kneser-ney or modified-kneser-ney",
            )
        levels = [(level.keys[:-1], level.log_probs[:-1], level.back_off[:-1]) for level in table.levels]
        arpa.write(path, tokens, levels, self.vocab_size, table.boundary)

    @classmethod
    def read_arpa(
        cls, path: str | Path, tokens: Sequence[str] | None = None, boundary: int | None = None
    ) -> tuple[NGram, list[str]]:
        """Returns the model and the names of its ids.

        Args:
            path: The ARPA file.
            tokens: The names of the ids; by default the order of the file.
            boundary: The id in `tokens` that is <s> and </s>, unless one is named "</s>".
        """
        levels, names, boundary = arpa.read(path, tokens, boundary)
        settings = validate(Settings, {"name": "ngram", "order": len(levels)}, str(path))
        return cls(settings, len(names), Table.of(levels, len(names), boundary, settings.smoothing)), names


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

    An n-gram is dropped with all longer ones that begin or end with it, so that every kept n-gram has its context.
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
        if m > 0 and not keep[m - 1].all():  # the indices of contexts among kept n-grams
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
