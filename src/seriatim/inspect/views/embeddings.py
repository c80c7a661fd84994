"""Token vectors at the input, before any context: nearest neighbors and a projection; and a word in its contexts.

By itself "bank" is one point, wherever it occurs; in a sentence its vector moves towards what is meant there.
"""

from __future__ import annotations

import re

import numpy as np

from ...core.errors import SeriatimError
from ...data.vectors import nearest, normalized
from ...embedding.words import word_vectors
from ...report.charts import Heatmap, Scatter, Table, View, format_number, matrix
from ...report.formatting import principal_components
from ...tasks.inspection import EmbeddingTable
from ..result import NamedArray, Result
from ..subject import Subject
from . import Reasons, view

SPECIAL = re.compile(r"<.+>|\[.+\]")  # <eos>, [CLS], [unused7], <0x0A>
MAX_TOKENS = 200  # of a projection without a text
FEW_TOKENS, NEIGHBORS = 12, 6  # so few tokens are drawn among so many neighbors of each
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


@view("neighbors", NO_VECTORS, network=True, trained=True)
def show_neighbors(subject: Subject, text: str = "", *, top: int = 8, target: str | None = None) -> Result:
    """The `top` neighbors of each distinct token of the text, by the cosine of their vectors.

    Of a translator the text is looked up among the tokens of the source, `target` among those of the target.
    """
    tables = subject.predictor.embedding_tables()
    check_sides(subject, tables, target, top)
    title = f"Nearest tokens: {subject.label}"
    arrays: dict[str, NamedArray] = {}
    charts: list[View] = []
    details = []
    for index, side_text in enumerate((text, target)):
        if not side_text:
            continue
        table = tables[min(index, len(tables) - 1)]
        side = ("source", "target")[index] if tables[0].side else ""
        ids = token_ids(table, side_text)
        rows, cosines = nearest_tokens(table.vectors, ids, top)
        token = table.tokenizer.token
        names, near = [token(n) for n in ids], [[token(n) for n in line] for line in rows.tolist()]
        ranks = [str(rank) for rank in range(1, rows.shape[1] + 1)]
        prefix = f"{side} " if side else ""
        arrays[f"{prefix}neighbors"] = NamedArray(np.array(near), {"token": names, "rank": ranks})
        arrays[f"{prefix}cosines"] = NamedArray(cosines, {"token": names, "rank": ranks})
        side_title = f"{title}, {side}" if side else title
        charts.append(
            Heatmap(
                title=side_title,
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
        details.append(Table(title=side_title, columns=("token", "neighbors"), rows=lines))
    if not charts:
        raise SeriatimError("inspect.text", "there is no text whose tokens to look up", "pass one")
    return Result(title, arrays, charts, (), details)


@view("projection", NO_VECTORS, network=True, trained=True)
def show_projection(subject: Subject, text: str = "", *, top: int = MAX_TOKENS, target: str | None = None) -> Result:
    """On the two principal components: the tokens of the text, and if they are few those nearest to them; without a
    text, the first `top` of the vocabulary. Of a translator both sides, unless only one of the texts is passed."""
    tables = subject.predictor.embedding_tables()
    check_sides(subject, tables, target, top)
    title = f"Token vectors: {subject.label}"
    arrays: dict[str, NamedArray] = {}
    charts: list[View] = []
    notes = []
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
        names = [table.tokenizer.token(n) for n in ids]
        points, shares = principal_components(table.vectors[ids])
        prefix = f"{table.side} " if table.side else ""
        arrays[f"{prefix}points"] = NamedArray(points, {"token": names, "component": ["1", "2"]})
        side_title = f"{title}, {table.side}" if table.side else title
        charts.append(Scatter.of_vectors(table.vectors[ids], names, title=side_title, groups=groups))
        share = f"{100 * sum(shares):.0f} % of their variance"
        notes.append(f"{prefix}{len(ids):,} of {table.tokenizer.vocab_size:,} tokens; two components have {share}")
    return Result(title, arrays, charts, notes)


def first_tokens(table: EmbeddingTable, count: int) -> list[int]:
    """Returns whole words in the order of the vocabulary, which is mostly from frequent to rare; if there are hardly
    any, all tokens but special ones."""
    tokenizer = table.tokenizer
    known = [n for n in range(tokenizer.vocab_size) if not SPECIAL.fullmatch(tokenizer.token(n))]
    words = []
    for n in known:
        word = "" if tokenizer.continues_word[n] else tokenizer.token(n).strip("·␣▁Ġ ")
        if len(word) > 1 and word.isalpha():
            words.append(n)
    return (words if 10 * len(words) > len(known) else known)[:count]


@view("context", NO_VECTORS, network=True, trained=True)
def show_context(subject: Subject, *texts: str, word: str = "") -> Result:
    """`word` wherever it occurs in the texts, each of which has it."""
    if not word:
        raise SeriatimError("inspect.word", "this view shows a word, and none is named", "name one: --word bank")
    occurrences = word_vectors(subject.predictor.text_reader(), word, texts)
    names = occurrences.fragments()
    contextual, static = (normalized(vectors) @ normalized(vectors).T for vectors in (
        occurrences.contextual, occurrences.static
    ))  # fmt: skip
    title = f"“{word}” in context: {subject.label}"

    def numbered(vectors: np.ndarray) -> NamedArray:
        return NamedArray(vectors, {"occurrence": names, "number": [str(n) for n in range(vectors.shape[1])]})

    axes = {"occurrence": names, "other occurrence": names}
    arrays = {
        "contextual": numbered(occurrences.contextual),
        "static": numbered(occurrences.static),
        "contextual cosines": NamedArray(contextual, axes),
        "static cosines": NamedArray(static, axes),
    }
    charts: list[View] = [
        Scatter.of_vectors(
            occurrences.contextual, names, title=title, note="output of the network for each occurrence"
        ),
        Scatter.of_vectors(occurrences.static, names, title=f"“{word}” by itself", note="vector at the input"),
    ]
    pairs = np.triu_indices(len(names), 1)
    if 1 < len(names) <= MAX_CELLS:
        means = [format_number(float(cosines[pairs].mean())) for cosines in (static, contextual)]
        charts.append(
            Heatmap(
                title=f"Cosines of “{word}” in its contexts",
                note=f"on average {means[0]} without context, {means[1]} with it",
                rows=[f"{n} {name}" for n, name in enumerate(occurrences.fragments(SHORT_CONTEXT), 1)],
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
    details = [Table(title="Cosines", columns=columns, rows=rows)] if rows else []
    truncated = occurrences.truncated
    notes = [f"{truncated} occurrences are after what the model reads"] if truncated else []
    return Result(title, arrays, charts, notes, details)
