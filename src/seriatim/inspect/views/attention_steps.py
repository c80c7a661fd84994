"""Attention step by step, with the numbers of each step: of every head, or of a Bahdanau step.

    self-attention   q = W^q x, k = W^k x, v = W^v x      q·k      q·k/√d      α = softmax      z = Σ_j α_j v_j
    additive         W_q s + W_k h_i      wᵀ tanh(…)      α = softmax      c = Σ_i α_i h_i

A run reads the user's own sentence. An untrained Transformer shows the example of Alammar, "The illustrated
Transformer" (2018): scores of 112 and 96, divided by √64 14 and 12, weights of 0.88 and 0.12.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from threading import get_ident

import numpy as np
import torch
from torch import Tensor, nn

from ...core.errors import SeriatimError
from ...core.state import State
from ...core.text import format_number
from ...nn.attention import Additive, masked_softmax
from ...nn.encoder_decoder import AttentionDecoder
from ...nn.transformer import CrossAttention, SelfAttention
from ...report.charts import Heatmap, HeatmapGrid, Table, View, matrix
from ...tasks.inspection import check_position
from ..catalog import AttentionSteps
from ..result import Arrays, Drawing, NamedArray
from ..subject import InspectedInput, Subject
from ..trace import TraceName
from . import Request, implement
from .attention import attention_parts, choose_part

MAX_ELEMENTS = 40  # of a sentence; the steps of a longer one cannot be read
MAX_WRITTEN = 10  # elements; with more, cells have no numbers
CLASSIC_WORDS = ("Thinking", "Machines")
CLASSIC_SIZE = 64


@dataclass(frozen=True)
class HeadSteps:
    """The steps of all heads of one layer for T queries and S keys."""

    x: Tensor  # (T,D)
    query: Tensor  # (H,T,d)
    key: Tensor  # (H,S,d)
    value: Tensor  # (H,S,d)
    mask: Tensor | None  # (T,S), True where a query may attend to a key
    queries: list[str]
    keys: list[str]

    @property
    def products(self) -> Tensor:
        """q·k (H,T,S)."""
        return self.query @ self.key.transpose(-2, -1)

    @property
    def scaled(self) -> Tensor:
        """q·k/√d (H,T,S); −∞ where masked."""
        scores = self.products / math.sqrt(self.query.shape[-1])
        return scores if self.mask is None else scores.masked_fill(~self.mask, -math.inf)

    @property
    def weights(self) -> Tensor:
        return masked_softmax(self.scaled, self.mask)

    @property
    def pooled(self) -> Tensor:
        """z (H,T,d)."""
        return self.weights @ self.value


def lacks_steps(subject: Subject) -> bool:
    """Returns whether there are no such steps: T5 adds numbers to its scores instead of dividing them."""
    modules = list(subject.backbone.modules())
    scaled = bool(attention_parts(subject)) and any(isinstance(module, SelfAttention) for module in modules)
    return not scaled and not isinstance(subject.backbone, AttentionDecoder)


@dataclass(frozen=True)
class HeadFacts:
    """Whether some keys are masked, and the element that the tables follow."""

    masked: bool
    position: int


@dataclass(frozen=True)
class AdditiveFacts:
    """The position of the step, and the arrays of the parts of its score."""

    position: int
    parts: list[str]


StepFacts = HeadFacts | AdditiveFacts


def step_arrays(subject: Subject, request: Request[AttentionSteps]) -> Arrays[StepFacts]:
    """Returns inputs, queries, keys, values, products, scores, weights and outputs of the heads of one layer; of
    Bahdanau's attention, the parts of one step."""
    o = request.options
    if isinstance(subject.backbone, AttentionDecoder):
        reading = subject.read(*request.texts, target=o.target, example=o.example)
        return additive_arrays(subject, reading, o.position)
    if subject.trained:
        reading = subject.read(*request.texts, target=o.target, example=o.example)
        steps, error = read_steps(subject, reading, o.layer, choose_part(subject, o.part))
        title = f"Attention step by step: {subject.label}, layer {o.layer}"
        notes = [*reading.notes, f"with the layer's own output projection z gives its output (to {error:.0e})"]
    else:
        if request.texts:
            raise subject.unavailable("is not trained and knows no tokens", "omit the text, or name a run")
        steps, title = classic_example(), "Attention step by step: the classic example"
        notes = ["two words of four numbers; matrices chosen so that the first query has scores of 112 and 96"]
    for count in (len(steps.queries), len(steps.keys)):
        if count > MAX_ELEMENTS:
            raise SeriatimError(
                "inspect.length", f"the steps of {count} elements cannot be read", "pass a shorter text"
            )
    check_position(o.position, len(steps.queries))
    count = len(steps.query)
    heads = list(range(count)) if o.head is None else [check_position(o.head, count, "head")]
    names = [f"head {index}" for index in heads]
    inputs, numbers = ([str(n) for n in range(tensor.shape[-1])] for tensor in (steps.x, steps.query))
    queries = {"head": names, "element": steps.queries, "number": numbers}
    keys = {"head": names, "element": steps.keys, "number": numbers}
    pairs = {"head": names, "query": steps.queries, "key": steps.keys}
    arrays = {
        "x": NamedArray(steps.x.numpy(), {"element": steps.queries, "number": inputs}),
        "queries": NamedArray(steps.query[heads].numpy(), queries),
        "keys": NamedArray(steps.key[heads].numpy(), keys),
        "values": NamedArray(steps.value[heads].numpy(), keys),
        "products": NamedArray(steps.products[heads].numpy(), pairs),
        "scores": NamedArray(steps.scaled[heads].numpy(), pairs),
        "weights": NamedArray(steps.weights[heads].numpy(), pairs),
        "z": NamedArray(steps.pooled[heads].numpy(), queries),
    }
    masked = steps.mask is not None and not bool(steps.mask.all())
    return Arrays(title, arrays, HeadFacts(masked, o.position), notes)


def step_charts(arrays: Arrays[StepFacts]) -> Drawing:
    """Returns a chart of each step, and tables of what one query computes."""
    facts = arrays.facts
    if isinstance(facts, AdditiveFacts):
        return additive_charts(arrays, facts)
    x, size = arrays["x"], arrays["queries"].values.shape[-1]
    masked = "empty: masked, a score of −∞" if facts.masked else ""
    charts: list[View] = [
        vector_chart("1. Inputs x", NamedArray(x.values[None], {"head": [""], **x.axes})),
        vector_chart("2. Queries q = W^q x", arrays["queries"]),
        vector_chart("3. Keys k = W^k x", arrays["keys"]),
        vector_chart("4. Values v = W^v x", arrays["values"]),
        pair_chart("5. Scores: the products q·k", arrays["products"], diverging=True),
        pair_chart(f"6. Divided by √{size}", arrays["scores"], masked, diverging=True),
        pair_chart("7. Weights: the softmax of each row", arrays["weights"], "rows sum to 1", low=0.0, high=1.0),
        vector_chart("8. Outputs z = Σ α v", arrays["z"]),
    ]
    return Drawing(charts, query_tables(arrays, facts.position))


implement(
    AttentionSteps,
    step_arrays,
    step_charts,
    {"has neither scaled dot-product nor Bahdanau's attention": lacks_steps},
    network=True,
)


def read_steps(subject: Subject, reading: InspectedInput, layer: int, part: str) -> tuple[HeadSteps, float]:
    """Returns the steps of a layer, and the largest difference of their output from the output of the module."""
    kind = "cross_attention" if part == "cross" else "attention"
    side = {"cross": "decoder"}.get(part, part)
    names = [TraceName.parse(name) for name in subject.trace_names]
    check_position(layer, sum(name.side == side and name.part == kind for name in names), "layer")
    wanted = CrossAttention if part == "cross" else SelfAttention
    root = subject.backbone.get_submodule(side) if side else subject.backbone
    module = [module for module in root.modules() if isinstance(module, wanted)][layer]
    calls: list[tuple[tuple[Tensor | None, ...], Tensor]] = []

    thread = get_ident()

    def keep(module: nn.Module, arguments: tuple[Tensor | None, ...], output: Tensor | tuple[Tensor, Tensor]) -> None:
        if get_ident() == thread:  # others may use the network meanwhile
            calls.append((arguments, output if isinstance(output, Tensor) else output[0]))

    handle = module.register_forward_hook(keep)
    try:
        subject.run(reading, [f"{side}.layer{layer}.{kind}" if side else f"layer{layer}.{kind}"])
    finally:
        handle.remove()
    (arguments, output), *_ = calls
    x = arguments[0]
    assert x is not None
    with torch.inference_mode():
        if isinstance(module, CrossAttention):
            memory, mask, causal = arguments[1], arguments[2], False
            assert memory is not None
            parts = [module.query(x), *memory.chunk(2, dim=-1)]
        else:
            mask, causal = arguments[2], bool(arguments[3])
            parts = list(module.inputs(x).chunk(3, dim=-1))
        query, key, value = (split_heads(tensor, module.heads) for tensor in parts)
        queries, keys = query.shape[1], key.shape[1]
        allowed = torch.ones(queries, keys, dtype=torch.bool).tril() if causal else None
        if mask is not None:
            given = mask[0].expand(1, queries, keys)[0].cpu() if mask.dim() > 2 else mask[0].expand(queries, keys).cpu()
            allowed = given if allowed is None else allowed & given
        names_of = [reading.elements(side, queries), reading.elements("encoder" if part == "cross" else side, keys)]
        steps = HeadSteps(x[0].float().cpu(), query, key, value, allowed, *names_of)
        device = output.device
        mixed = module.output(steps.pooled.transpose(0, 1).flatten(1).to(device=device, dtype=output.dtype))
        error = float((mixed - output[0]).abs().max())
    return steps, error


def split_heads(tensor: Tensor, heads: int) -> Tensor:
    """Returns (1,T,D) as (H,T,d) on the CPU."""
    return tensor[0].float().cpu().unflatten(-1, (heads, -1)).transpose(0, 1)


def classic_example() -> HeadSteps:
    """Returns two words whose first query has the scores 112 and 96 of 64 numbers each."""
    x = torch.tensor([[1.0, 0.0, 1.0, 0.0], [0.0, 1.0, 0.0, 1.0]])
    index = torch.arange(CLASSIC_SIZE)
    odd, quarter = (index % 2).float(), (index % 4 == 0).float()
    one = torch.ones(CLASSIC_SIZE)
    columns = {  # W as four columns; W x is the sum of the first and third, or of the second and fourth
        "query": (one, one, odd, -2 * quarter),  # q_1 has 32 ones and 32 twos, q_2 48 ones and 16 times −1
        "key": (one, one, quarter, 0 * one),  # k_1 has 16 twos where q_1 has ones
        "value": (torch.sin(index / 10).round(decimals=1), torch.cos(index / 10).round(decimals=1), 0 * one, 0 * one),
    }
    query, key, value = ((x @ torch.stack(matrix_columns))[None] for matrix_columns in columns.values())
    return HeadSteps(x, query, key, value, None, list(CLASSIC_WORDS), list(CLASSIC_WORDS))


def vector_chart(title: str, array: NamedArray) -> View:
    """Returns the vectors of the elements (H,T,d), a panel for each head."""
    heads, elements, numbers = array.axes.values()
    panels = {name: matrix(values) for name, values in zip(heads, array.values, strict=True)}
    return grid(title, panels, elements, numbers, "", "", "", diverging=True)


def pair_chart(
    title: str, array: NamedArray, note: str = "", diverging: bool = False, low: float | None = None,
    high: float | None = None,
) -> View:  # fmt: skip
    """Returns values of pairs (H,T,S) with the numbers written into the cells if there are few."""
    heads, queries, keys = array.axes.values()
    values = np.where(np.isfinite(array.values), array.values, np.nan)
    panels = {name: matrix(cells) for name, cells in zip(heads, values, strict=True)}
    texts = {}
    if max(len(queries), len(keys)) <= MAX_WRITTEN:
        texts = {name: written(cells) for name, cells in zip(heads, array.values, strict=True)}
    return grid(title, panels, queries, keys, "query", "key", note, texts, diverging, low, high)


def written(values: np.ndarray) -> list[list[str]]:
    return [
        ["−∞" if np.isneginf(value) else format_number(round(float(value), 2)) for value in line] for line in values
    ]


def grid(
    title: str,
    panels: dict[str, tuple[tuple[float | None, ...], ...]],
    rows: Sequence[str],
    columns: Sequence[str],
    y: str,
    x: str,
    note: str = "",
    texts: dict[str, list[list[str]]] | None = None,
    diverging: bool = False,
    low: float | None = None,
    high: float | None = None,
) -> View:
    """Returns a heatmap, or several beside each other."""
    texts = texts or {}
    if len(panels) == 1:
        (name,) = panels
        return Heatmap(
            title=title, note=note, rows=rows, columns=columns, values=panels[name], texts=texts.get(name, ()),
            x=x, y=y, diverging=diverging, low=low, high=high,
        )  # fmt: skip
    return HeatmapGrid(
        title=title, note=note, rows=rows, columns=columns, panels=panels, texts=texts, x=x, y=y, diverging=diverging,
        low=low, high=high, per_row=2 if len(columns) > MAX_ELEMENTS else min(len(panels), 4),
    )  # fmt: skip


def query_tables(arrays: Mapping[str, NamedArray], position: int) -> list[Table]:
    """Returns for each head what one query computes, key by key, and its output."""
    heads, queries, keys = (list(labels) for labels in arrays["products"].axes.values())
    outputs = arrays["z"].values
    size = outputs.shape[-1]
    tables = []
    for n, head in enumerate(heads):
        figures = np.stack([arrays[name].values[n, position] for name in ("products", "scores", "weights")], axis=1)
        rows = [
            (name, *("−∞" if number == -math.inf else round(number, 4) for number in line))
            for name, line in zip(keys, figures.tolist(), strict=True)
        ]
        z = ", ".join(f"{number:.3f}" for number in outputs[n, position, :6].tolist())
        note = f"z = Σ α v = ({z}{', …' if size > 6 else ''})"
        title = f"Query “{queries[position]}” ({position}), {head}"
        columns = ("key", "q·k", f"/ √{size}", "softmax α")
        tables.append(Table(title=title, note=note, columns=columns, rows=rows))
    return tables


# Attention inside a recurrent decoder


def additive_arrays(subject: Subject, reading: InspectedInput, position: int) -> Arrays[StepFacts]:
    """Returns the step of a recurrent decoder that attends before the element at `position` of the target."""
    backbone: AttentionDecoder = subject.backbone
    source, target = reading.inputs[0], reading.inputs[1]
    names = list(reading.sequences.values())
    predicted = reading.predicted or names[-1]
    check_position(position, len(predicted))
    with torch.inference_mode():
        if subject.trained:
            network = subject.network
            memory, vectors = network.encode(source, reading.batch.mask), network.target(target) * network.scale
        else:
            memory, vectors = backbone.encode(source), target
        state: State = None
        trace: dict[str, Tensor] = {}
        for t in range(position + 1):
            before = memory[-1] if state is None else state[0]
            _, state = backbone.decode(vectors[:, t : t + 1], memory, state, trace)
        values, keys = memory[0], memory[1]
        query = before[0][:, None]  # s_{t−1}
        if backbone.query_input is not None:
            query = query + backbone.query_input(vectors[:, position : position + 1])
        scores = backbone.score(query, keys)
        weights = trace["alignment"][0, 0].float().cpu()  # of the last step
        context = (trace["alignment"] @ values)[0, 0].float().cpu()
        parts: dict[str, Tensor] = {}
        if isinstance(backbone.score, Additive):
            projected = backbone.score.query(query)[0]
            parts = {"W_q s": projected.expand_as(keys[0]), "W_k h": keys[0]}
            parts["tanh(W_q s + W_k h)"] = torch.tanh(projected + keys[0])
    elements = reading.elements("encoder", values.shape[1])
    arrays = {
        "scores": NamedArray(scores[0, 0].float().cpu().numpy(), {"source": elements}),
        "weights": NamedArray(weights.numpy(), {"source": elements}),
        "context": NamedArray(context.numpy(), {"number": [str(n) for n in range(len(context))]}),
    }
    for name, tensor in parts.items():
        cells = tensor.float().cpu().numpy()
        arrays[name] = NamedArray(cells, {"source": elements, "unit": [str(n) for n in range(cells.shape[1])]})
    title = f"The attention of one decoder step: {subject.label}, before “{predicted[position]}” ({position})"
    return Arrays(title, arrays, AdditiveFacts(position, list(parts)), reading.notes)


def additive_charts(arrays: Mapping[str, NamedArray], facts: AdditiveFacts) -> Drawing:
    scores, weights, context = (arrays[name].values for name in ("scores", "weights", "context"))
    elements = list(arrays["scores"].axes["source"])
    charts: list[View] = []
    for name in facts.parts:
        numbers = list(arrays[name].axes["unit"])
        note = "the same at every source word" if name == "W_q s" else ""
        title = f"{len(charts) + 1}. {name}"
        panel = {"": matrix(arrays[name].values)}
        charts.append(grid(title, panel, elements, numbers, "source", "unit", note, diverging=True))
    for name, line, low, high in (("Scores w·tanh(W_q s + W_k h)" if facts.parts else "Scores", scores, None, None),
                                  ("Weights: the softmax of the scores", weights, 0.0, 1.0)):  # fmt: skip
        charts.append(
            Heatmap(
                title=f"{len(charts) + 1}. {name}",
                rows=[f"step {facts.position}"],
                columns=elements,
                values=matrix(line[None]),
                texts=written(line[None]),
                low=low,
                high=high,
                diverging=low is None,
            )
        )
    rows = [
        (name, round(float(score), 4), round(float(weight), 4))
        for name, score, weight in zip(elements, scores, weights, strict=True)
    ]
    head = ", ".join(f"{number:.3f}" for number in context[:6].tolist())
    note = f"c = Σ α h = ({head}{', …' if len(context) > 6 else ''}) goes into the cell with the last token"
    return Drawing(
        charts, [Table(title="Source words", note=note, columns=("source", "score", "softmax α"), rows=rows)]
    )
