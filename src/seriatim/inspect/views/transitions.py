"""What a conditional random field has learned about neighboring tags: the score of every transition.

A score is added to that of a tag sequence, so that a difference of 1 makes it e times as likely. A transition that the
scheme of the tags does not allow has no score.
"""

from __future__ import annotations

import numpy as np

from ...nn.crf import CrfHead
from ...report.charts import Heatmap, Table, matrix
from ...report.formatting import format_number
from ..result import NamedArray, Result
from ..subject import Subject
from . import view

LISTED = 10  # transitions at each end of the table


def crf_head(subject: Subject) -> CrfHead | None:
    head = dict(subject.network.named_children()).get("head") if subject.trained else None
    return head if isinstance(head, CrfHead) else None


@view(
    "transitions",
    {"has no conditional random field (task.crf)": lambda subject: crf_head(subject) is None},
    network=True,
    trained=True,
)
def show_transitions(subject: Subject) -> Result:
    """From the tag of a row to that of a column; the first row is the start of a sentence, the last column its end."""
    head, tags = crf_head(subject), list(subject.predictor.processor.outputs)
    assert head is not None
    scores = np.full(head.allowed.shape, np.nan)
    scores[:-1, :-1] = head.transitions.detach().float().cpu().numpy()
    scores[-1, :-1] = head.start.detach().float().cpu().numpy()
    scores[:-1, -1] = head.end.detach().float().cpu().numpy()
    scores[~head.allowed] = np.nan
    scores = np.concatenate([scores[-1:], scores[:-1]])  # the start comes first
    rows, columns = ["start", *tags], [*tags, "end"]
    title = "Transitions between tags"
    forbidden = int((~head.allowed[:-1, :-1]).sum())
    chart = Heatmap(
        title=title,
        note="scores of the conditional random field" + (", empty where not allowed" if forbidden else ""),
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
    table = Table(title="Highest and lowest", columns=("tag", "next tag", "score"), rows=cells)
    share = format_number(100 * forbidden / len(tags) ** 2)
    notes = [f"{forbidden} of {len(tags) ** 2} transitions ({share} %) are not allowed"] if forbidden else []
    return Result(title, {"scores": NamedArray(scores, {"tag": rows, "next tag": columns})}, [chart], notes, [table])
