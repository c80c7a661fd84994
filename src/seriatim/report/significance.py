"""Whether models differ by more than chance: tests over seeds or over examples, corrected for how many there are.

Over seeds it is Welch's t-test (1947) of two means with unequal variances; a model without a seed is a constant, which
gives the t-test of one mean. With one seed there is a test over the examples, if the runs recorded what each of them
contributes. It says whether the two trained models differ on other examples, not what other seeds do. For right and
wrong it is McNemar's exact test (1947): of the examples that only one model has right, either model should have half.
For other metrics (F1, BLEU, errors) it is approximate randomization (Noreen 1989): how often the difference is as large
if the outputs of the two models are exchanged, example by example, at random. Runs that recorded nothing have the
two-proportion z-test of a share of examples. Several pairs are corrected by Holm's method (1979).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, variance

import numpy as np

from ..core.metrics import ExampleScores, finite
from .run_data import RunData

ALPHA = 0.05  # a difference is one if chance explains it with a smaller probability
WELCH, SHARES = "Welch's t-test over seeds", "two-proportion z-test over the examples"
MCNEMAR, RANDOMIZATION = "McNemar's exact test over the examples", "approximate randomization over the examples"
TRIALS, MAX_CELLS = 5_000, 4_000_000  # of a randomization, and trials · examples at a time
SHARES_OF_EXAMPLES = ("accuracy", "error", "exact_match")  # metrics that are a mean of right or wrong
INDEPENDENT = ("examples", "questions", "sentences")  # counts of what may be taken as independent


@dataclass(frozen=True)
class Difference:
    """The difference between two models in the main metric on the validation split.

    Args:
        gap: By how much the score of the second is higher, that is worse.
        p: The corrected probability of such a difference by chance; None if there is no test.
        test: The test; "" if there is none.
    """

    gap: float
    p: float | None = None
    test: str = ""

    @property
    def supported(self) -> bool:
        """Whether the two differ significantly."""
        return self.p is not None and self.p < ALPHA


Pair = tuple[str, str]  # labels


def compare_pairs(pairs: Sequence[tuple[RunData, RunData]]) -> dict[Pair, Difference]:
    """Returns the difference of each pair, under both orders of its labels, corrected over all pairs with a test."""
    unique = list({frozenset((a.label, b.label)): (a, b) for a, b in pairs if a.label != b.label}.values())
    tests = [pair_test(a, b) for a, b in unique]
    tested = [n for n, (p, _) in enumerate(tests) if p is not None]
    corrected = dict(zip(tested, holm([tests[n][0] or 0.0 for n in tested]), strict=True))
    differences: dict[Pair, Difference] = {}
    for n, (a, b) in enumerate(unique):
        gap = (b.score or 0.0) - (a.score or 0.0) if a.score is not None and b.score is not None else math.nan
        for labels, sign in (((a.label, b.label), 1), ((b.label, a.label), -1)):
            differences[labels] = Difference(sign * gap, corrected.get(n), tests[n][1])
    return differences


def pair_test(a: RunData, b: RunData) -> tuple[float | None, str]:
    """Returns the probability that chance explains the difference of two models, and the test; (None, "") without."""
    first, second = a.values("validation", a.main), b.values("validation", a.main)
    pairs = ((first, a), (second, b))
    if len(first) + len(second) > 2 and all(len(values) > 1 or (values and run.gradient_free) for values, run in pairs):
        p = welch(first, second)
        return p, "" if p is None else WELCH
    if not len(first) == len(second) == 1:
        return None, ""
    own, other = (run.examples.get(a.main) for run in (a, b))
    if own is not None and other is not None and (own.kind, own.values.shape) == (other.kind, other.values.shape):
        both = np.stack([own.values, other.values])
        if own.kind == "mean" and np.isin(both, (0, 1)).all():
            return mcnemar(own, other), MCNEMAR
        return (randomization(own, other), RANDOMIZATION) if np.isfinite(both).all() else (None, "")
    count = min(example_count(run, "validation", a.main) for run in (a, b))
    return (two_shares(first[0], second[0], count), SHARES) if count else (None, "")


def p_value(run: RunData, split: str, metric: str, value: float) -> float | None:
    """Returns the probability that chance explains the distance of a metric from a fixed value; None without a test."""
    values, count = run.values(split, metric), example_count(run, split, metric)
    if len(values) > 1:
        return welch(values, [value])
    return two_shares(values[0], value, count) if values and count else None


def example_count(run: RunData, split: str, metric: str) -> float:
    """Returns how many independent examples a metric is a share of, 0 if it is no such share."""
    counts = (finite(run.metrics(split).get(name)) for name in INDEPENDENT)
    return max((float(count or 0) for count in counts), default=0.0) if metric in SHARES_OF_EXAMPLES else 0.0


def welch(a: Sequence[float], b: Sequence[float]) -> float | None:
    """Returns the two-sided p-value of two means; a single value is a constant. None if nothing varies."""
    scale = max(map(abs, (*a, *b))) or 1.0  # so that squares neither overflow nor vanish
    a, b = [value / scale for value in a], [value / scale for value in b]
    errors = [variance(values) / len(values) if len(values) > 1 else 0.0 for values in (a, b)]  # squared, of the means
    total = sum(errors)
    if total <= 0:
        return 1.0 if fmean(a) == fmean(b) else None
    t = (fmean(a) - fmean(b)) / math.sqrt(total)
    pairs = zip(errors, (a, b), strict=True)
    degrees = total**2 / sum(error**2 / (len(values) - 1) for error, values in pairs if len(values) > 1)
    return t_tails(t, degrees)


def two_shares(a: float, b: float, count: float) -> float:
    """Returns the two-sided p-value of two shares of `count` examples each."""
    pooled = (a + b) / 2
    if not 0 < pooled < 1:
        return 1.0
    return math.erfc(abs(a - b) / math.sqrt(2 * pooled * (1 - pooled) / count) / math.sqrt(2))


def mcnemar(a: ExampleScores, b: ExampleScores) -> float:
    """Returns the two-sided p-value of McNemar's exact test of scores that are 0 or 1."""
    difference = a.values[:, 0] - b.values[:, 0]
    first, second = int((difference > 0).sum()), int((difference < 0).sum())
    # P(X ≤ k) of n fair coins is the incomplete beta function I_½(n − k, k + 1).
    return min(1.0, 2 * incomplete_beta(0.5, max(first, second), min(first, second) + 1)) if first != second else 1.0


def randomization(a: ExampleScores, b: ExampleScores, trials: int = TRIALS) -> float:
    """Returns the p-value of the difference of a metric by approximate randomization, always the same."""
    first, second = (scores.values.astype(np.float64) for scores in (a, b))
    sums, exchanged = (first.sum(axis=0), second.sum(axis=0)), first - second
    count = len(first)

    def differences(moved: np.ndarray) -> np.ndarray:
        """Returns the absolute differences (trials,) after moving sums (trials,k) from the first to the second."""
        return np.abs(combine(a.kind, sums[0] - moved, count) - combine(a.kind, sums[1] + moved, count))

    observed = float(differences(np.zeros_like(sums[0])[None])[0])
    generator, extreme = np.random.default_rng(0), 0
    size = max(MAX_CELLS // max(count, 1), 1)
    for start in range(0, trials, size):
        coins = generator.integers(0, 2, (min(size, trials - start), count), dtype=np.int8)
        extreme += int((differences(coins.astype(np.float32) @ exchanged) >= observed * (1 - 1e-9)).sum())
    return (extreme + 1) / (trials + 1)


def combine(kind: str, sums: np.ndarray, count: int) -> np.ndarray:
    """Returns the metric (n,) of sums (n,k) over `count` examples; see `ExampleScores`."""
    if kind == "mean":
        return np.asarray(sums[:, 0] / max(count, 1))
    if kind == "ratio":
        return np.asarray(sums[:, 0] / np.maximum(sums[:, 1], 1))
    if kind == "f1":
        return np.asarray(2 * sums[:, 0] / np.maximum(sums[:, 1] + sums[:, 2], 1))
    lengths, (correct, total) = sums[:, :2], np.split(np.round(sums[:, 2:]), 2, axis=1)
    halvings = np.cumsum(correct == 0, axis=1)  # as sacreBLEU smooths: the k-th order without a match has 1/2^k of one
    precisions = np.where(correct > 0, correct, 0.5**halvings) / np.maximum(total, 1)
    penalty = np.minimum(1 - lengths[:, 1] / np.maximum(lengths[:, 0], 1), 0.0)
    some = (total > 0).all(axis=1) & (correct > 0).any(axis=1)
    return np.asarray(np.where(some, 100 * np.exp(penalty + np.log(precisions).mean(axis=1)), 0.0))


def holm(values: Sequence[float]) -> list[float]:
    """Returns p-values corrected by Holm's method for that there are several."""
    order = sorted(range(len(values)), key=lambda n: values[n])
    corrected, largest = [0.0] * len(values), 0.0
    for rank, n in enumerate(order):
        largest = max(largest, min((len(values) - rank) * values[n], 1.0))
        corrected[n] = largest
    return corrected


def t_tails(t: float, degrees: float) -> float:
    """Returns the probability of a value at least as far from 0 under Student's t: I_x(ν/2, 1/2), x = ν/(ν + t²)."""
    if t * t < 1:  # x is near 1, and its complement exact
        return 1 - incomplete_beta(t * t / (degrees + t * t), 0.5, degrees / 2)
    return incomplete_beta(degrees / (degrees + t * t), degrees / 2, 0.5)


def incomplete_beta(x: float, a: float, b: float) -> float:
    """Returns the regularized incomplete beta function I_x(a,b), by its continued fraction (Lentz's method)."""
    if x <= 0 or x >= 1:
        return float(x >= 1)
    if x > (a + 1) / (a + b + 2):  # where the fraction of the complement converges faster
        return 1 - incomplete_beta(1 - x, b, a)
    c, d = 1.0, 1 / (1 - (a + b) * x / (a + 1))
    fraction = d
    for m in range(1, 300):
        even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        before = fraction
        for term in (even, odd):
            d, c = 1 / (1 + term * d), 1 + term / c
            fraction *= c * d
        if abs(fraction - before) < 1e-15 * abs(fraction):
            break
    front = math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log1p(-x)
    return math.exp(front) * fraction / a


def format_p(p: float) -> str:
    """Returns a p-value: "p = 0.031", "p = 0.42", "p < 0.001"."""
    return "p < 0.001" if p < 0.001 else f"p = {p:.{3 if p < 0.1 else 2}f}"
