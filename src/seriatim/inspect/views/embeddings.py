"""Token vectors at the input, before any context: nearest neighbors and a projection; and a word in its contexts.

By itself "bank" is one point, wherever it occurs; in a sentence its vector moves towards what is meant there.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np

from ...core.errors import SeriatimError
from ...core.text import format_number
from ...data.vectors import nearest, normalized
from ...embedding.words import word_vectors
from ...report.charts import Heatmap, Scatter, Table, View, matrix
from ...report.formatting import principal_components
from ...tasks.inspection import EmbeddingTable
from ..catalog import Context, Neighbors, Projection
from ..result import Arrays, Drawing, NamedArray
from ..subject import Subject
from . import Reasons, Request, implement

SPECIAL = re.compile(r"<.+>|\[.+\]")  # <eos>, [CLS], [unused7], <0x0A>
FEW_TOKENS, NEIGHBORS = 12, 6  # up to FEW_TOKENS tokens are drawn with NEIGHBORS neighbors each
OF_TEXT, NEAREST = "of the text", "nearest to them"
MAX_CELLS = 30  # occurrences of a word whose cosines are drawn
SHORT_CONTEXT = 8  # characters beside a word in labels
MAX_PAIRS = 40  # in a table


NO_VECTORS: Reasons = {"has no token vectors": lambda subject: not subject.predictor.embedding_tables()}


def token_ids(table: EmbeddingTable, text: str) -> list[int]:
    """Returns the distinct tokens of a text in order."""
    ids = list(dict.fromkeys(table.tokenizer.encode_many([text], strict=False)[0].tolist()))
    if not ids:
        raise SeriatimError("inspect.text", "the text has no tokens", "pass another one")
    return ids


def nearest_tokens(vectors: np.ndarray, ids: list[int], top: int) -> tuple[np.ndarray, np.ndarray]:
    """Returns the `top` nearest other tokens (n,top) of some tokens by cosine, and the cosines."""
    names = [""] * len(vectors)
    results = nearest(vectors[ids], [(names, vectors)], min(top, len(vectors) - 1), np.array(ids))
    rows = np.array([[neighbor.row for neighbor in line] for line in results])
    return rows, np.array([[neighbor.similarity for neighbor in line] for line in results])


def check_sides(subject: Subject, tables: list[EmbeddingTable], target: str | None, top: int) -> None:
    if target is not None and not tables[0].side:
        raise SeriatimError("inspect.target", f"{subject.label} has no target", "omit --target")
    if top < 1:
        raise SeriatimError("inspect.top", f"the {top} nearest cannot be shown", "ask for 1 or more")


def neighbor_arrays(subject: Subject, request: Request[Neighbors]) -> Arrays[list[str]]:
    """Returns the nearest tokens (token, rank) of each side and their cosines; the facts are the sides."""
    top, target = request.options.top, request.options.target
    tables = subject.predictor.embedding_tables()
    check_sides(subject, tables, target, top)
    arrays: dict[str, NamedArray] = {}
    sides = []
    for index, text in enumerate((request.text, target)):
        if not text:
            continue
        table = tables[min(index, len(tables) - 1)]
        side = ("source", "target")[index] if tables[0].side else ""
        ids = token_ids(table, text)
        rows, cosines = nearest_tokens(table.vectors, ids, top)
        token = table.tokenizer.token
        axes = {"token": [token(n) for n in ids], "rank": [str(rank) for rank in range(1, rows.shape[1] + 1)]}
        near = np.array([[token(n) for n in line] for line in rows.tolist()])
        arrays[array_name(side, "neighbors")] = NamedArray(near, axes)
        arrays[array_name(side, "cosines")] = NamedArray(cosines, axes)
        sides.append(side)
    if not sides:
        raise SeriatimError("inspect.text", "there is no text whose tokens to look up", "pass one")
    return Arrays(f"Nearest tokens: {subject.label}", arrays, sides)


def array_name(side: str, name: str) -> str:
    return f"{side} {name}" if side else name


def neighbor_charts(arrays: Arrays[list[str]]) -> Drawing:
    charts: list[View] = []
    details = []
    for side in arrays.facts:
        near = arrays[array_name(side, "neighbors")].values.tolist()
        cosines = arrays[array_name(side, "cosines")].values
        names, ranks = (list(labels) for labels in arrays[array_name(side, "cosines")].axes.values())
        title = f"{arrays.title}, {side}" if side else arrays.title
        charts.append(
            Heatmap(
                title=title,
                note="cosine of their vectors",
                rows=names,
                columns=ranks,
                values=matrix(cosines),
                texts=near,
                x="nearest first",
                y="token",
                high=1,
            )
        )
        lines = [
            (name, ", ".join(f"{other} {cosine:.2f}" for other, cosine in zip(*pair, strict=True)))
            for name, *pair in zip(names, near, cosines.tolist(), strict=True)
        ]
        details.append(Table(title=title, columns=("token", "neighbors"), rows=lines))
    return Drawing(charts, details)


implement(Neighbors, neighbor_arrays, neighbor_charts, NO_VECTORS, network=True, trained=True)


@dataclass(frozen=True)
class ProjectedTable:
    """The tokens of one side that are projected.

    Args:
        side: source or target; "" if there is one table of vectors.
        shares: The shares of the variance of both components.
        groups: The group of each token; empty if there is one.
    """

    side: str
    shares: tuple[float, float]
    groups: list[str]


def projection_arrays(subject: Subject, request: Request[Projection]) -> Arrays[list[ProjectedTable]]:
    """Returns the points (token, component) of each side."""
    top, text, target = request.options.top, request.text or "", request.options.target
    tables = subject.predictor.embedding_tables()
    check_sides(subject, tables, target, top)
    arrays: dict[str, NamedArray] = {}
    projected, notes = [], []
    by_side = {"source": text, "target": target or ""}
    for table in tables:
        side_text = by_side.get(table.side, text)
        if not side_text and any(by_side.values()):
            continue
        groups: list[str] = []
        ids = token_ids(table, side_text) if side_text else first_tokens(table, top)
        if side_text and len(ids) <= FEW_TOKENS:
            near = nearest_tokens(table.vectors, ids, NEIGHBORS)[0]
            others = [n for n in dict.fromkeys(near.ravel().tolist()) if n not in ids]
            groups = [OF_TEXT] * len(ids) + [NEAREST] * len(others)
            ids = [*ids, *others]
        points, (first, second) = principal_components(table.vectors[ids])
        axes = {"token": [table.tokenizer.token(n) for n in ids], "component": ["1", "2"]}
        arrays[array_name(table.side, "points")] = NamedArray(points, axes)
        projected.append(ProjectedTable(table.side, (first, second), groups))
        count = array_name(table.side, f"{len(ids):,} of {table.tokenizer.vocab_size:,} tokens")
        notes.append(f"{count}; two components have {100 * (first + second):.0f} % of their variance")
    return Arrays(f"Token vectors: {subject.label}", arrays, projected, notes)


def projection_charts(arrays: Arrays[list[ProjectedTable]]) -> Drawing:
    charts: list[View] = []
    for table in arrays.facts:
        points = arrays[array_name(table.side, "points")]
        title = f"{arrays.title}, {table.side}" if table.side else arrays.title
        names = list(points.axes["token"])
        charts.append(Scatter.of_projection(points.values, table.shares, names, title=title, groups=table.groups))
    return Drawing(charts)


implement(Projection, projection_arrays, projection_charts, NO_VECTORS, network=True, trained=True)


def first_tokens(table: EmbeddingTable, count: int) -> list[int]:
    """Returns whole words in the order of the vocabulary, which is mostly from frequent to rare; if they are less than
    a tenth of it, all tokens but special ones."""
    tokenizer = table.tokenizer
    known = [n for n in range(tokenizer.vocab_size) if not SPECIAL.fullmatch(tokenizer.token(n))]
    words = []
    for n in known:
        word = "" if tokenizer.continues_word[n] else tokenizer.token(n).strip("·␣▁Ġ ")
        if len(word) > 1 and word.isalpha():
            words.append(n)
    return (words if 10 * len(words) > len(known) else known)[:count]


@dataclass(frozen=True)
class ContextFacts:
    """The word, and each occurrence with few characters beside it."""

    word: str
    short_names: list[str]


def context_arrays(subject: Subject, request: Request[Context]) -> Arrays[ContextFacts]:
    """Returns the vectors (n,D) of the word in its contexts and by itself, and the cosines (n,n) of all pairs."""
    word = request.options.word
    if not word:
        raise SeriatimError("inspect.word", "this view shows a word, and none is named", "name one: --word bank")
    occurrences = word_vectors(subject.predictor.text_reader(), word, request.texts)
    names = occurrences.fragments()
    axes = {"occurrence": names, "other occurrence": names}
    arrays = {}
    for name, vectors in (("contextual", occurrences.contextual), ("static", occurrences.static)):
        unit = normalized(vectors)
        numbers = [str(n) for n in range(vectors.shape[1])]
        arrays[name] = NamedArray(vectors, {"occurrence": names, "number": numbers})
        arrays[f"{name} cosines"] = NamedArray(unit @ unit.T, axes)
    truncated = occurrences.truncated
    notes = [f"{truncated} occurrences are after what the model reads"] if truncated else []
    facts = ContextFacts(word, occurrences.fragments(SHORT_CONTEXT))
    return Arrays(f"“{word}” in context: {subject.label}", arrays, facts, notes)


def context_charts(arrays: Arrays[ContextFacts]) -> Drawing:
    word = arrays.facts.word
    names = list(arrays["contextual"].axes["occurrence"])
    contextual, static = (arrays[f"{name} cosines"].values for name in ("contextual", "static"))
    charts: list[View] = [
        Scatter.of_vectors(
            arrays["contextual"].values,
            names,
            title=arrays.title,
            note="output of the network for each occurrence",
        ),
        Scatter.of_vectors(arrays["static"].values, names, title=f"“{word}” by itself", note="vector at the input"),
    ]
    pairs = np.triu_indices(len(names), 1)
    if 1 < len(names) <= MAX_CELLS:
        means = [format_number(float(cosines[pairs].mean())) for cosines in (static, contextual)]
        charts.append(
            Heatmap(
                title=f"Cosines of “{word}” in its contexts",
                note=f"on average {means[0]} without context, {means[1]} with it",
                rows=[f"{n} {name}" for n, name in enumerate(arrays.facts.short_names, 1)],
                columns=[str(n) for n in range(1, len(names) + 1)],
                values=matrix(contextual),
                low=-1,
                high=1,
                diverging=True,
            )
        )
    order = np.argsort(-contextual[pairs], kind="stable")[:MAX_PAIRS]
    rows = [
        (round(float(contextual[i, j]), 3), round(float(static[i, j]), 3), names[i], names[j])
        for i, j in zip(pairs[0][order].tolist(), pairs[1][order].tolist(), strict=True)
    ]
    columns = ("in context", "by itself", "occurrence", "other occurrence")
    return Drawing(charts, [Table(title="Cosines", columns=columns, rows=rows)] if rows else [])


implement(Context, context_arrays, context_charts, NO_VECTORS, network=True, trained=True)
