"""Models that take no more than so many tokens, on data that has more: trained and measured all the same."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import seriatim
from seriatim.decode.options import TranslateSettings

LONGEST = 6


@pytest.fixture
def table(tmp_path: Path) -> Path:
    draw = np.random.default_rng(0)
    rows = [" ".join(draw.choice(list("abcdef"), size)) for size in draw.integers(2, 14, 200)]
    path = tmp_path / "pairs.tsv"
    path.write_text("".join(f"{row}\t{row}\n" for row in rows), encoding="utf-8")
    return path


@pytest.mark.parametrize(
    "model", [{"name": "transformer", "heads": 2, "layers": 1, "positions": "learned"}, {"name": "gpt", "layers": 1}]
)
def test_longer_than_the_model_takes(table: Path, tmp_path: Path, model: dict[str, Any]) -> None:
    data = {"source": str(table), "longest": LONGEST, "tokenizer": {"kind": "word"}}
    settings = {"task": "translate", "model": {"width": 16} | model, "data": data, "train": {"steps": 3, "batch": 8}}
    run = seriatim.train(settings=settings, out=tmp_path / "run")
    test = run.summary["measures"]["test"]
    assert test["loss"] > 0
    assert test["tokens"] <= LONGEST * test["sentences"]
    with pytest.raises(seriatim.SeriatimError, match="has 9 tokens, the model takes 6"):
        run.translate("a b c d e f a b")


def test_room_for_what_is_asked() -> None:
    """Two for each token of the source and fifty, but never fewer than are wanted or given."""
    assert TranslateSettings().limits([1, 300]) == [52, 512]
    assert TranslateSettings(min_tokens=80).limits([1, 100]) == [80, 250]
    assert TranslateSettings().limits([1], given=70) == [71]
    assert TranslateSettings(max_tokens=60).limits([1, 9], given=70) == [60, 60]


def test_a_long_beginning_and_a_least_length(table: Path, tmp_path: Path) -> None:
    data = {"source": str(table), "tokenizer": {"kind": "word"}}
    model = {"name": "seq2seq", "width": 8, "layers": 1}
    settings = {"task": "translate", "model": model, "data": data, "train": {"steps": 1, "batch": 8}}
    run = seriatim.train(settings=settings, out=tmp_path / "run")
    given = " ".join("abcdef" * 12)  # more than a source of one token allows by itself
    assert run.translate("a", prefix=given).startswith(given)
    ((one,),) = run.translations(["a"], TranslateSettings(min_tokens=80))
    assert len(one.tokens) > 79
    with pytest.raises(seriatim.SeriatimError, match="coverage_penalty needs attention") as error:
        run.translations(["a"], TranslateSettings(coverage_penalty=0.2))
    assert "bahdanau" in error.value.remedy
    assert "kernel" not in error.value.remedy
