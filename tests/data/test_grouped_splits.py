"""Groups of rows are drawn as before they had one class: published splits stay what they are."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from seriatim.core.errors import SeriatimError
from seriatim.data.dataset import Column, Dataset
from seriatim.data.images import IMAGE
from seriatim.data.kinds import LABEL, TEXT, Kind
from seriatim.data.split import Grouped, SplitPolicy, order_by_hash
from seriatim.tasks import load

FRACTIONS = ((0.8, 0.1, 0.1), (8 / 9, 1 / 9, 0.0), (0.55, 0.25, 0.2))
# Recorded with version 0.2 and its classes HashedGroups, ByImage, ByContext, GroupedByArticle and Consecutive: the
# split of each row (train, validation, e for test) at each of FRACTIONS.
DRAWS = {
    "translate": [
        "vtttttttttttttetettvtttvtettttttttvttttettttttttettttttttttt",
        "ttttttttttttttvtvttttttttvtttttttttttttvttttttttvttttttttttt",
        "ettttttevtvvttetettetttetetttvtvttettvtetvvtttttetttvevttvvt",
    ],
    "translate at most 2": [
        "vtttttttttttttetettttttvtvtttttttttttttettttttttvttttttttttt",
        "ttttttttttttttvtvttttttttttttttttttttttvtttttttttttttttttttt",
        "ettttttevtvvttetettetttetetttvtvttettvtetvvtttttetttvevttvvt",
    ],
    "caption": [
        "evttttttttttvttttevttttttttttvtttteetttttttttevttt",
        "tvttttttttttvtttttvttttttttttvtttttvttttttttttvttt",
        "vvtettettetvvttttvvteetettetvvttttvvtettettetvvttt",
    ],
    "choose": [
        "vttetttttettttttttttvtvtvtttteetttttttttvttetttttettttttttttvtvtvtttteettttttttt",
        "tttvtttttvtttttttttttttttttttvvttttttttttttvtttttvtttttttttttttttttttvvttttttttt",
        "ettetttvtetvtvvttvtvevetevttveetttvtttttettetttvtetvtvvttvtvevetevttveetttvttttt",
    ],
    "choose few": [
        "vttetttttetttttttttv",
        "ettetttvtetvtvvttvte",
    ],
    "answer": [
        "vvtttteetttttttttteettttttttttttttttttvvvvtttteetttttttttteettttttttttttttttttvv",
        "ttttttvvttttttttttvvttttttttttttttttttttttttttvvttttttttttvvtttttttttttttttttttt",
        "eetttteettttttvvtteettvvttvvvvttttvvtteeeetttteettttttvvtteettvvttvvvvttttvvttee",
    ],
    "answer untitled": [
        "vttetttttettttttttttvtvtvtttteetttttttttvttetttttettttttttttvtvtvtttteettttttttt",
        "ettetttvtetvtvvttvtvevetevttveetttvtttttettetttvtetvtvvttvtvevetevttveetttvttttt",
    ],
    "tag": [
        "ttttttttttttttttttttttttttttttttttttttttttttttttttttttvvveee",
        "tttttttttttttttttttttttttttttttttvvvvvvvvvvvvvvveeeeeeeeeeee",
    ],
}


def table(**columns: tuple[Kind, list[Any]]) -> Dataset:
    built = {role: (Column(role, kind, np.array(cells, object)),) for role, (kind, cells) in columns.items()}
    return Dataset("table", built, np.arange(len(next(iter(columns.values()))[1])))


VARIANTS = ("The  cat {}", "the cat {} ", "Élan {}", "THE CAT {}")  # upper case and spaces make no difference
PAIRS = table(
    source=(TEXT, [VARIANTS[n % 4].format(n * 7 % 23) for n in range(60)]), target=(TEXT, [str(n) for n in range(60)])
)
IMAGES = table(image=(IMAGE, [Path(f"{'abc'[n % 3]}/{n * 5 % 17}.png") for n in range(50)]))
CONTEXTS = (TEXT, [f"Passage {n * 3 % 40}." for n in range(80)])
QUESTIONS = table(context=CONTEXTS)
FEW = table(context=(TEXT, [f"Passage {n % 7}" for n in range(20)]))
ARTICLES = table(context=CONTEXTS, title=(LABEL, [f"article {n % 40 // 2}" for n in range(80)]))
ALL, FIRST_AND_LAST, BLOCKS = FRACTIONS, FRACTIONS[::2], ((0.9, 0.05, 0.05), FRACTIONS[2])


def draw(policy: SplitPolicy, dataset: Dataset, fractions: tuple[float, float, float]) -> str:
    splits = np.full(len(dataset), "-")
    for mark, rows in zip("tve", policy.divide(dataset, fractions), strict=True):
        splits[rows.locations.astype(int)] = mark
    return "".join(splits)


def policy_of(task: str) -> Any:
    return load(task).split_policy


@pytest.mark.parametrize(
    ("name", "policy", "dataset", "fractions"),
    [
        ("translate", policy_of("translate"), PAIRS, ALL),
        ("translate at most 2", replace(policy_of("translate"), at_most=2), PAIRS, ALL),
        ("caption", policy_of("caption"), IMAGES, ALL),
        ("choose", policy_of("choose"), QUESTIONS, ALL),
        ("choose few", policy_of("choose"), FEW, FIRST_AND_LAST),
        ("answer", policy_of("answer"), ARTICLES, ALL),
        ("answer untitled", policy_of("answer"), QUESTIONS, FIRST_AND_LAST),
        ("tag", policy_of("tag"), PAIRS, BLOCKS),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_draws_are_those_of_version_0_2(
    name: str, policy: SplitPolicy, dataset: Dataset, fractions: tuple[tuple[float, float, float], ...]
) -> None:
    assert [draw(policy, dataset, shares) for shares in fractions] == DRAWS[name]


def test_the_order_of_rows_makes_no_difference_to_a_hash() -> None:
    rows = np.random.default_rng(0).permutation(len(PAIRS))
    splits = (
        policy_of("translate").divide(PAIRS, FRACTIONS[2]),
        policy_of("translate").divide(PAIRS.take(rows), FRACTIONS[2]),
    )
    assert [sorted(part["target"]) for part in splits[0]] == [sorted(part["target"]) for part in splits[1]]


def test_texts_order_groups_of_equal_hashes() -> None:
    assert order_by_hash([(b"x", "b"), (b"x", "a"), (b"x", "")], 3).tolist() == [2, 1, 0]
    assert order_by_hash([(b"x", ""), (b"x", "")], 2).tolist() == [0, 1]


def test_descriptions_are_stored_in_runs() -> None:
    assert {task: policy_of(task).describe() for task in ("translate", "caption", "choose", "answer", "tag")} == {
        "translate": "of the distinct values of source, chosen by a hash, by default at most 2,000 each",
        "caption": "of the images, chosen by a hash of their names",
        "choose": "by context, or by question if there are fewer than 10",
        "answer": "by article, or by passage if there are fewer than 10",
        "tag": "consecutive blocks",
    }
    assert policy_of("tag").reports_overlap
    assert not policy_of("language").reports_overlap


def test_too_few_groups() -> None:
    for policy, dataset in ((policy_of("translate"), PAIRS), (policy_of("caption"), IMAGES)):
        assert isinstance(policy, Grouped)
        with pytest.raises(SeriatimError, match=f"2 {policy.noun}") as caught:
            policy.divide(dataset.take(np.arange(2)), FRACTIONS[0])
        assert caught.value.code == "data.too-short"
