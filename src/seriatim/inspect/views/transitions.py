"""What a conditional random field has learned about neighboring tags: the score of every transition.

A score is added to the score of a tag sequence, so that a difference of 1 makes it e times as likely. A transition that
the scheme of the tags does not allow has no score.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ...core.text import format_number
from ...nn.crf import CrfHead
from ...report.charts import Heatmap, Table, matrix
from ..catalog import Transitions
from ..result import Arrays, Drawing, NamedArray
from ..subject import Subject
from . import Request, implement

LISTED = 10  # transitions at each end of the table


def crf_head(subject: Subject) -> CrfHead | None:
    head = dict(subject.network.named_children()).get("head") if subject.trained else None
    return head if isinstance(head, CrfHead) else None


@dataclass(frozen=True)
class TransitionFacts:
    """The number of transitions between tags that are not allowed."""

    forbidden: int


def transition_arrays(subject: Subject, request: Request[Transitions]) -> Arrays[TransitionFacts]:
    """Returns the scores (tag, next tag), NaN where a transition is not allowed."""
    head, tags = crf_head(subject), list(subject.predictor.processor.outputs)
    assert head is not None
    scores = np.full(head.allowed.shape, np.nan)
    scores[:-1, :-1] = head.transitions.detach().float().cpu().numpy()
    scores[-1, :-1] = head.start.detach().float().cpu().numpy()
    scores[:-1, -1] = head.end.detach().float().cpu().numpy()
    scores[~head.allowed] = np.nan
    scores = np.concatenate([scores[-1:], scores[:-1]])  # the start comes first
    forbidden = int((~head.allowed[:-1, :-1]).sum())
    share = format_number(100 * forbidden / len(tags) ** 2)
    notes = [f"{forbidden} of {len(tags) ** 2} transitions ({share} %) are not allowed"] if forbidden else []
    arrays = {"scores": NamedArray(scores, {"tag": ["start", *tags], "next tag": [*tags, "end"]})}
    return Arrays("Transitions between tags", arrays, TransitionFacts(forbidden), notes)


def transition_charts(arrays: Arrays[TransitionFacts]) -> Drawing:
    scores = arrays["scores"].values
    rows, columns = (list(labels) for labels in arrays["scores"].axes.values())
    empty = ", empty where not allowed" if arrays.facts.forbidden else ""
    chart = Heatmap(
        title=arrays.title,
        note=f"scores of the conditional random field{empty}",
        rows=rows,
        columns=columns,
        values=matrix(scores),
        x="next tag",
        y="tag",
        diverging=True,
    )
    order = np.argsort(-np.nan_to_num(scores, nan=-np.inf), axis=None, kind="stable")[: np.isfinite(scores).sum()]
    listed = order if len(order) <= 2 * LISTED else [*order[:LISTED], *order[-LISTED:]]
    cells = [
        (rows[index // len(columns)], columns[index % len(columns)], round(float(scores.flat[index]), 3))
        for index in map(int, listed)
    ]
    return Drawing([chart], [Table(title="Highest and lowest", columns=("tag", "next tag", "score"), rows=cells)])


implement(
    Transitions,
    transition_arrays,
    transition_charts,
    {"has no conditional random field (task.crf)": lambda subject: crf_head(subject) is None},
    network=True,
    trained=True,
)
