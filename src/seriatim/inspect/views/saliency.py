"""Which tokens a prediction depends on, and in which direction: integrated gradients.

Sundararajan, Taly and Yan, "Axiomatic attribution for deep networks" (2017). On the straight line from a baseline b to
the input x the gradients of an output F are summed:

    a_t = Σ_d (x_td − b_td) ∫₀¹ ∂F(b + α (x − b)) / ∂x_td dα        Σ_t a_t = F(x) − F(b)

The integral is computed at the points of Gauss and Legendre, doubled until the parts sum to the difference within 1 %.
F is a number to which parts can be added: the log-odds of a label, log p / (1 − p); a predicted value; the log-odds of
the tag of one word; or those of where an answer starts. The baseline has the mean of all token vectors at every token
between the same [CLS] and [SEP]: networks are less undecided about unknown words or zero vectors than about these.
Attributions of the tokens of a word are added.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor, nn

from ...core.errors import SeriatimError
from ...nn.layers import WordInput
from ...nn.network import Network, as_float32
from ...report.charts import Bars, Table, TokenStrip, View, format_number, row
from ...tasks.inspection import ExplainedOutput, TokenizedText
from ..result import NamedArray, Result
from ..subject import Reading, Subject
from ..trace import evaluation_mode
from . import view

STEPS, MAX_STEPS = 16, 512  # points of the integral
MAX_ELEMENTS = 4_096  # in one forward and backward pass
TOLERANCE = 0.01  # of the difference that is explained …
MIN_TOLERANCE = 1e-4  # … or, if that is near zero, of the sum of all absolute attributions
MAX_WORDS = 10  # that are listed


@dataclass(frozen=True)
class Attribution:
    """Attributions (T,), which sum to `output` − `baseline` up to the `gap`."""

    values: np.ndarray
    output: float
    baseline: float
    steps: int

    @property
    def difference(self) -> float:
        return self.output - self.baseline

    @property
    def gap(self) -> float:
        return abs(float(self.values.sum()) - self.difference)

    @property
    def complete(self) -> bool:
        return self.gap <= max(TOLERANCE * abs(self.difference), MIN_TOLERANCE * float(np.abs(self.values).sum()))


def integrate_gradients(
    output: Callable[[Tensor], Tensor], vectors: Tensor, baseline: Tensor, steps: int = STEPS
) -> Attribution:
    """Returns the attributions of each element.

    Args:
        output: From n inputs (n,T,D) to a number each (n,).
        vectors: The input (T,D).
        baseline: (T,D).
        steps: Points of the integral; doubled until it is exact enough.
    """
    with torch.no_grad():
        there, before = (float(output(inputs[None])[0]) for inputs in (vectors, baseline))
    path = vectors - baseline  # (T,D)
    while True:
        points, weights = np.polynomial.legendre.leggauss(steps)  # on [−1, 1], where weights sum to 2
        alphas = torch.from_numpy((points + 1) / 2).to(path)
        total = torch.zeros(vectors.shape, dtype=torch.float64, device=vectors.device)
        for chunk in torch.arange(steps).split(max(MAX_ELEMENTS // len(vectors), 1)):
            inputs = (baseline + alphas[chunk, None, None] * path).requires_grad_()  # (n,T,D)
            (gradient,) = torch.autograd.grad(output(inputs).sum(), inputs)
            weight = torch.from_numpy(weights[chunk.numpy()] / 2).to(total)
            total += torch.einsum("n,ntd->td", weight, gradient.double())
        values = (total * path.double()).sum(dim=-1).cpu().numpy()
        attribution = Attribution(values, there, before, steps)
        if attribution.complete or 2 * steps > MAX_STEPS:
            return attribution
        steps *= 2


@view(
    "saliency",
    {"does not predict labels, values or answers for texts": lambda subject: subject.predictor.explainer() is None},
    network=True,
    trained=True,
)
def show_saliency(
    subject: Subject,
    *texts: str,
    target: str | None = None,
    position: int | None = None,
    steps: int = STEPS,
    example: int | None = None,
) -> Result:
    """With respect to the label or value `target`, by default the prediction; of a tagger, of the word at `position`.

    `steps` points of the integral at first. Instead of a text, an `example` of the run's own data.
    """
    if not texts and example is None:
        raise SeriatimError("inspect.text", "there is no text to explain", "pass one, or --example 0")
    if steps < 1:
        raise SeriatimError("inspect.steps", f"an integral of {steps} points has no value", "ask for 1 or more")
    explain = subject.predictor.explainer()
    assert explain is not None
    network: Network = subject.network
    with evaluation_mode(network), torch.inference_mode(False), torch.enable_grad():
        reading = subject.read(*texts, example=example)
        tail = Network(nn.Identity(), network.backbone, network.head)
        vectors = network.input(reading.inputs).detach()  # (1,T,D)
        with torch.no_grad():
            scores = as_float32(tail(vectors, reading.batch.mask)[0])
        explained = explain(reading.encoded, reading.item, scores, target, position)
        special = special_tokens(subject, reading)
        if special.all():
            raise SeriatimError("inspect.text", "the text has no tokens", "pass another one")
        baseline = mean_baseline(network.input, reading, vectors[0], special)
        attribution = integrate_gradients(
            lambda inputs: explained.value(as_float32(tail(inputs)[0])), vectors[0], baseline, steps
        )
    words, groups = group_words(subject, reading, special)
    names = list(reading.names)
    for word, group in zip(words, groups, strict=True):  # an unknown word as it is written
        names[group[0]] = word if len(group) == 1 else names[group[0]]
    return make_result(subject, reading, names, words, groups, explained, attribution)


def special_tokens(subject: Subject, reading: Reading) -> np.ndarray:
    """Returns where [CLS] and [SEP] are (T,)."""
    tokenizer = subject.predictor.processor.tokenizers.get("tokenizer")
    around = [] if tokenizer is None else [token for token in (tokenizer.cls, tokenizer.sep) if token is not None]
    tokens = reading.tokens
    assert tokens is not None
    return np.isin(tokens, around)


def mean_baseline(module: nn.Module, reading: Reading, vectors: Tensor, special: np.ndarray) -> Tensor:
    """Returns vectors (T,D) with the mean of all token vectors; segments and special tokens stay."""
    table = module.words if isinstance(module, WordInput) else module
    if not isinstance(table, nn.Embedding):
        return torch.zeros_like(vectors)
    mean = table.weight.detach().mean(dim=0)
    if isinstance(module, WordInput):  # without features of the spelling
        average = nn.functional.pad(mean, (0, vectors.shape[1] - len(mean))).expand_as(vectors)
    else:
        ids = torch.from_numpy(reading.tokens).to(vectors.device)
        average = vectors - nn.functional.embedding(ids, table.weight.detach()) + mean
    return torch.where(torch.from_numpy(special).to(vectors.device)[:, None], vectors, average)


def group_words(subject: Subject, reading: Reading, special: np.ndarray) -> tuple[list[str], list[list[int]]]:
    """Returns the words of the texts, and the elements of each; special tokens are words of their own."""
    tokenizer, tokens = subject.predictor.processor.tokenizers.get("tokenizer"), reading.tokens
    if tokenizer is None or tokens is None:
        return reading.names, [[n] for n in range(len(reading.names))]
    words: list[str] = []
    groups: list[list[int]] = []
    unknown = "" if tokenizer.unk is None else tokenizer.token(tokenizer.unk)
    texts = iter(reading.texts if special.any() else ["\n".join(reading.texts)])
    for before, end in pairwise([-1, *np.flatnonzero(special).tolist(), len(tokens)]):
        if end - before > 1:
            part = TokenizedText.of(tokenizer, tokens[before + 1 : end].tolist(), next(texts, ""))
            elements = [[before + 1 + n for n in group] for group in part.groups]
            names = [reading.names[group[0]] for group in elements]
            words += [
                name if word == unknown or not word.strip() else word
                for word, name in zip(part.words, names, strict=True)
            ]
            groups += elements
        if end < len(tokens):
            words.append(reading.names[end])
            groups.append([end])
    return words, groups


def make_result(
    subject: Subject,
    reading: Reading,
    names: list[str],
    words: list[str],
    groups: list[list[int]],
    explained: ExplainedOutput,
    attribution: Attribution,
) -> Result:
    values = np.array([attribution.values[group].sum() for group in groups])
    title = f"What {explained.name} depends on: {subject.label}"
    arrays = {"attribution": NamedArray(attribution.values, {"token": names})}
    hints: list[str] = []
    if len(groups) < len(names):
        arrays["words"] = NamedArray(values, {"word": words})
        hints = [", ".join(f"{names[n]} {signed(attribution.values[n])}" for n in group) for group in groups]
    output, baseline = format_number(attribution.output), format_number(attribution.baseline)
    whole = f"{output} for the text, {baseline} for one of average tokens"
    charts: list[View] = [
        TokenStrip(
            title=title,
            note=whole,
            tokens=words,
            values=row(values),
            label="attribution",
            diverging=True,
            hints=hints,
        )
    ]
    by_word: dict[str, list[float]] = {}
    for word, value in zip(words, values.tolist(), strict=True):
        by_word.setdefault(word, []).append(value)
    totals = [(word, len(parts), sum(parts)) for word, parts in by_word.items() if any(parts)]
    totals = sorted(totals, key=lambda total: -abs(total[2]))[:MAX_WORDS]
    if len(totals) > 1:
        labels = [f"{word} ({count}×)" if count > 1 else word for word, count, _ in totals]
        sums = row([total for _, _, total in totals])
        charts.append(Bars(title="Largest attributions", labels=labels, values=sums, x="attribution"))
    rows = [(word, count, signed(total)) for word, count, total in totals]
    note = "; ".join(part for part in (explained.prediction, whole) if part)
    table = Table(title="Largest attributions", note=note, columns=("word", "times", "attribution"), rows=rows)
    share = attribution.gap / abs(attribution.difference) if attribution.difference else float(attribution.gap > 0)
    caution = "" if attribution.complete else ": not exact"
    notes = [
        *reading.notes,
        f"attributions sum to {signed(float(attribution.values.sum()))}, the difference is "
        f"{signed(attribution.difference)}: {100 * share:.2f} % apart, with {attribution.steps} points{caution}",
    ]
    return Result(title, arrays, charts, notes, [table])


def signed(value: float) -> str:
    return f"{'+' if value > 0 else ''}{format_number(float(value))}"
