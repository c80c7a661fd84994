"""Entities in tags: schemes, spans and scores as seqeval computes them."""

import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from seqeval.metrics import classification_report, f1_score, precision_score, recall_score
from seqeval.metrics.sequence_labeling import get_entities
from seqeval.scheme import BILOU, IOB2, IOBES

from seriatim.data import entities

PREFIXES = {"bio": "BI", "iobes": "BIES", "bilou": "BILU"}
STRICT = {"bio": IOB2, "iobes": IOBES, "bilou": BILOU}


@pytest.mark.parametrize(
    ("tags", "scheme"),
    [
        ("O B-x I-x O B-y", "bio"),
        ("O I-x I-x O I-y B-y", "iob1"),
        ("O S-x B-y I-y E-y", "iobes"),
        ("O U-x B-y I-y L-y", "bilou"),
        ("I-x B-x O B-y", "bio"),
        ("NOUN VERB", "none"),
        ("O O", "none"),
        ("O B-x NOUN", "none"),
        ("O E-x L-x", "none"),
    ],
)
def test_recognizes_schemes(tags: str, scheme: str) -> None:
    assert entities.recognize_scheme([tags.split()]) == scheme


@st.composite
def tag_pairs(draw: st.DrawFn) -> tuple[str, list[list[str]], list[list[str]]]:
    """Draws a scheme, references and predictions of the same lengths."""
    scheme = draw(st.sampled_from(sorted(PREFIXES)))
    tag = st.sampled_from(["O", *(f"{prefix}-{kind}" for prefix in PREFIXES[scheme] for kind in ("x", "y-z"))])
    references = draw(st.lists(st.lists(tag, min_size=1, max_size=8), min_size=1, max_size=4))
    predictions = [draw(st.lists(tag, min_size=len(tags), max_size=len(tags))) for tags in references]
    return scheme, references, predictions


def as_iobes(sentences: list[list[str]]) -> list[list[str]]:
    """Returns tags for the default mode of seqeval, which knows no L and U."""
    return [[{"L": "E", "U": "S"}.get(tag[0], tag[0]) + tag[1:] for tag in tags] for tags in sentences]


@settings(max_examples=150, deadline=None)
@given(tag_pairs())
def test_spans_and_scores_equal_seqeval(pair: tuple[str, list[list[str]], list[list[str]]]) -> None:
    _, references, predictions = pair
    for tags in as_iobes([*references, *predictions]):
        assert entities.find_spans(tags) == [(kind, first, last + 1) for kind, first, last in get_entities(tags)]
    total, types = entities.score_entities(references, predictions)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        peers = as_iobes(references), as_iobes(predictions)
        assert total.precision == pytest.approx(precision_score(*peers), abs=1e-12)
        assert total.recall == pytest.approx(recall_score(*peers), abs=1e-12)
        assert total.f1 == pytest.approx(f1_score(*peers), abs=1e-12)
        if types:
            report = classification_report(*peers, output_dict=True)
            for kind, score in types.items():
                assert score.f1 == pytest.approx(report[kind]["f1-score"], abs=1e-12)
                assert score.reference == report[kind]["support"]


@settings(max_examples=150, deadline=None)
@given(tag_pairs())
def test_repaired_tags_have_the_same_spans_and_are_strictly_well_formed(
    pair: tuple[str, list[list[str]], list[list[str]]],
) -> None:
    scheme, references, predictions = pair
    repaired = [[entities.repair_tags(tags, scheme) for tags in sentences] for sentences in (references, predictions)]
    for before, after in zip([*references, *predictions], [*repaired[0], *repaired[1]], strict=True):
        assert entities.find_spans(after) == entities.find_spans(before)
        assert entities.repair_tags(after, scheme) == after
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        strict = f1_score(*repaired, mode="strict", scheme=STRICT[scheme])
    assert entities.score_entities(references, predictions)[0].f1 == pytest.approx(strict, abs=1e-12)


@settings(deadline=None)
@given(tag_pairs())
def test_spans_of_all_sentences_at_once(pair: tuple[str, list[list[str]], list[list[str]]]) -> None:
    _, *both = pair
    names = sorted({tag for sentences in both for tags in sentences for tag in tags})
    spans, lengths = entities.TagSpans(names), [len(tags) for tags in both[0]]
    starts = np.isin(np.arange(sum(lengths)), np.cumsum([0, *lengths]))
    results = [spans.find(np.array([names.index(t) for tags in side for t in tags]), starts) for side in both]
    score, _ = entities.score_entities(*both)
    correct = len(np.intersect1d(*results))
    assert (correct, len(results[1]), len(results[0])) == (score.correct, score.predicted, score.reference)


def test_iob1_becomes_bio() -> None:
    tags = ["I-x", "I-x", "B-x", "I-y", "O", "I-y"]
    assert entities.repair_tags(tags, "iob1") == ["B-x", "I-x", "B-x", "B-y", "O", "B-y"]


def test_tags_that_cannot_occur_in_a_scheme() -> None:
    assert [entities.is_valid(tag, "bio") for tag in ("B-x", "O", "E-x", "NOUN", "B-", "B")] == [1, 1, 0, 0, 0, 1]
