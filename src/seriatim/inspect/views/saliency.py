"""Which tokens a prediction depends on, and in which direction: integrated gradients.

Sundararajan, Taly and Yan, "Axiomatic attribution for deep networks" (2017). On the straight line from a baseline b to
the input x the gradients of an output F are summed:

    a_t = Σ_d (x_td − b_td) ∫₀¹ ∂F(b + α (x − b)) / ∂x_td dα        Σ_t a_t = F(x) − F(b)

The integral is computed at the points of Gauss and Legendre, doubled until the parts sum to the difference within 1 %.
F is a number to which parts can be added: a predicted value, or the log-odds log p / (1 − p) of a label, of the tag of
one word, or of the start of an answer. The baseline has the mean of all token vectors at every token between the same
[CLS] and [SEP]: networks are less undecided about unknown words or zero vectors than about these. Attributions of the
tokens of a word are added.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor, nn

from ...core.errors import SeriatimError
from ...core.text import format_number
from ...nn.layers import WordInput
from ...nn.network import Network, as_float32
from ...report.charts import Bars, Table, TokenStrip, View, row
from ...tasks.inspection import TokenizedText
from ..catalog import Saliency
from ..declare import Notify
from ..result import Arrays, Drawing, NamedArray
from ..subject import InspectedInput, Subject
from ..trace import evaluation_mode
from . import Brief, Request, ignore, implement, is_long

STEPS, MAX_STEPS = 16, 512  # points of the integral: the first number, and the largest
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
    output: Callable[[Tensor], Tensor],
    vectors: Tensor,
    baseline: Tensor,
    steps: int = STEPS,
    notify: Notify = ignore,
) -> Attribution:
    """Returns the attributions of each element.

    Args:
        output: From n inputs (n,T,D) to a number each (n,).
        vectors: The input (T,D).
        baseline: (T,D).
        steps: Points of the integral; doubled until it is exact enough.
        notify: Called before each integral.
    """
    with torch.no_grad():
        there, before = (float(output(inputs[None])[0]) for inputs in (vectors, baseline))
    path = vectors - baseline  # (T,D)
    while True:
        notify(f"integral of {steps} points")
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


@dataclass(frozen=True)
class SaliencyFacts:
    """What the charts need besides the arrays.

    Args:
        words: The words of the texts.
        groups: For each word the numbers of its tokens.
        prediction: What the model predicts, in a few words.
        output: The number that is explained, for the text …
        baseline: … and for one of average tokens.
    """

    words: list[str]
    groups: list[list[int]]
    prediction: str
    output: float
    baseline: float


def saliency_arrays(subject: Subject, request: Request[Saliency]) -> Arrays[SaliencyFacts]:
    """Returns the attribution of each token (T,), and of each word (n,) if a word has several."""
    texts, options = request.texts, request.options
    if not texts and options.example is None:
        raise SeriatimError("inspect.text", "there is no text to explain", "pass one, or --example 0")
    if options.steps < 1:
        raise SeriatimError("inspect.steps", f"an integral of {options.steps} points has no value", "ask for 1 or more")
    explain = subject.predictor.explainer()
    assert explain is not None
    network: Network = subject.network
    with evaluation_mode(network), torch.inference_mode(False), torch.enable_grad():
        reading = subject.read(*texts, example=options.example)
        tail = Network(nn.Identity(), network.backbone, network.head)
        vectors = network.input(reading.inputs).detach()  # (1,T,D)
        with torch.no_grad():
            scores = as_float32(tail(vectors, reading.batch.mask)[0])
        explained = explain(reading.encoded, reading.item, scores, options.target, options.position)
        special = special_tokens(subject, reading)
        if special.all():
            raise SeriatimError("inspect.text", "the text has no tokens", "pass another one")
        baseline = mean_baseline(network.input, reading, vectors[0], special)
        attribution = integrate_gradients(
            lambda inputs: explained.value(as_float32(tail(inputs)[0])),
            vectors[0],
            baseline,
            options.steps,
            request.notify,
        )
    words, groups = group_words(subject, reading, special)
    names = list(reading.names)
    for word, group in zip(words, groups, strict=True):  # an unknown word as it is written
        names[group[0]] = word if len(group) == 1 else names[group[0]]
    arrays = {"attribution": NamedArray(attribution.values, {"token": names})}
    if len(groups) < len(names):
        sums = np.array([attribution.values[group].sum() for group in groups])
        arrays["words"] = NamedArray(sums, {"word": words})
    share = attribution.gap / abs(attribution.difference) if attribution.difference else float(attribution.gap > 0)
    caution = "" if attribution.complete else ": not exact"
    notes = [
        *reading.notes,
        f"attributions sum to {signed(float(attribution.values.sum()))}, the difference is "
        f"{signed(attribution.difference)}: {100 * share:.2f} % apart, with {attribution.steps} points{caution}",
    ]
    facts = SaliencyFacts(words, groups, explained.prediction, attribution.output, attribution.baseline)
    return Arrays(f"What {explained.name} depends on: {subject.label}", arrays, facts, notes)


def special_tokens(subject: Subject, reading: InspectedInput) -> np.ndarray:
    """Returns where [CLS] and [SEP] are (T,)."""
    tokenizer = subject.predictor.processor.tokenizers.get("tokenizer")
    around = [] if tokenizer is None else [token for token in (tokenizer.cls, tokenizer.sep) if token is not None]
    tokens = reading.tokens
    assert tokens is not None
    return np.isin(tokens, around)


def mean_baseline(module: nn.Module, reading: InspectedInput, vectors: Tensor, special: np.ndarray) -> Tensor:
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


def group_words(subject: Subject, reading: InspectedInput, special: np.ndarray) -> tuple[list[str], list[list[int]]]:
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


def saliency_charts(arrays: Arrays[SaliencyFacts]) -> Drawing:
    """Returns the attributions over the text, and the words with the largest ones."""
    facts, tokens = arrays.facts, arrays["attribution"]
    names = list(tokens.axes["token"])
    values = np.array([tokens.values[group].sum() for group in facts.groups])
    hints: list[str] = []
    if "words" in arrays:
        hints = [", ".join(f"{names[n]} {signed(tokens.values[n])}" for n in group) for group in facts.groups]
    whole = f"{format_number(facts.output)} for the text, {format_number(facts.baseline)} for one of average tokens"
    charts: list[View] = [
        TokenStrip(
            title=arrays.title,
            note=whole,
            tokens=facts.words,
            values=row(values),
            label="attribution",
            diverging=True,
            hints=hints,
        )
    ]
    by_word: dict[str, list[float]] = {}
    for word, value in zip(facts.words, values.tolist(), strict=True):
        by_word.setdefault(word, []).append(value)
    totals = [(word, len(parts), sum(parts)) for word, parts in by_word.items() if any(parts)]
    totals = sorted(totals, key=lambda total: -abs(total[2]))[:MAX_WORDS]
    if len(totals) > 1:
        labels = [f"{word} ({count}×)" if count > 1 else word for word, count, _ in totals]
        sums = row([total for _, _, total in totals])
        charts.append(Bars(title="Largest attributions", labels=labels, values=sums, x="attribution"))
    rows = [(word, count, signed(total)) for word, count, total in totals]
    note = "; ".join(part for part in (facts.prediction, whole) if part)
    columns = ("word", "times", "attribution")
    return Drawing(charts, [Table(title="Largest attributions", note=note, columns=columns, rows=rows)])


implement(
    Saliency,
    saliency_arrays,
    saliency_charts,
    {"does not predict labels, values or answers for texts": lambda subject: subject.predictor.explainer() is None},
    network=True,
    trained=True,
    brief=lambda subject: None if is_long(subject) else Brief(options={"example": 0}),
)


def signed(value: float) -> str:
    return f"{'+' if value > 0 else ''}{format_number(float(value))}"
