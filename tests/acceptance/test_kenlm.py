"""KenLM reads our ARPA files and gives the same probabilities, token by token, on held-out text."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import seriatim
from seriatim.models._ngram import arpa
from seriatim.models.ngram import NGram, Settings

kenlm: Any = pytest.importorskip("kenlm", reason="kenlm is not installed: ./setup acceptance")
pytestmark = pytest.mark.slow

LINES = (Path(__file__).parents[1] / "golden" / "ngram" / "words.txt").read_text(encoding="utf-8").splitlines()
DATA = Path(os.environ.get("SERIATIM_REAL_DATA", "../shared/data"))
TRAIN, HELD_OUT = LINES[:700], LINES[700:]


def tokenize(line: str, level: str) -> list[str]:
    return line.split() if level == "words" else list(line)


def encode(lines: list[str], level: str, names: list[str], boundary: bool) -> np.ndarray:
    ids = {name: i for i, name in enumerate(names)}
    end = ["<eos>"] if boundary else []
    return np.array([ids[token] for line in lines for token in [*tokenize(line, level), *end]])


@pytest.mark.parametrize("limits", [{}, {"entries": 3000}, {"prune": (0, 0, 1)}])
@pytest.mark.parametrize("smoothing", ["kneser-ney", "modified-kneser-ney"])
@pytest.mark.parametrize("boundary", [True, False])
@pytest.mark.parametrize(("level", "order"), [("words", 3), ("words", 5), ("characters", 6)])
def test_kenlm_agrees(
    level: str, order: int, boundary: bool, smoothing: str, limits: dict[str, Any], tmp_path: Path
) -> None:
    names = ["<eos>", *sorted({token for line in LINES for token in tokenize(line, level)})]
    settings = Settings(name="ngram", order=order, smoothing=smoothing, **limits)
    model = NGram.fit(encode(TRAIN, level, names, boundary), len(names), settings, 0 if boundary else None)
    model.write_arpa(tmp_path / "model.arpa", names)
    theirs = kenlm.Model(str(tmp_path / "model.arpa"))
    for line in HELD_OUT:
        text = " ".join(map(arpa.escape, tokenize(line, level)))
        expected = list(theirs.full_scores(text, bos=boundary, eos=boundary))
        tokens = encode([line], level, names, boundary)
        np.testing.assert_allclose(
            model.scorer.log_probs(tokens) / np.log(10), [score for score, _, _ in expected], atol=1e-4, err_msg=line
        )
        assert model.scorer.order_used(tokens).tolist() == [length for _, length, _ in expected]
        assert not any(unknown for _, _, unknown in expected)


@pytest.mark.skipif(not DATA.is_dir(), reason="SERIATIM_REAL_DATA names no local copy of the data sets")
@pytest.mark.parametrize("kind", ["word", "char"])
def test_kenlm_backs_off_where_we_say(kind: str, tmp_path: Path) -> None:
    """On the last part of Shakespeare, which is not in the training split."""
    settings = {
        "task": {"tokenizer": {"kind": kind}},
        "data": {"fractions": [0.9, 0.1, 0.0]},
        "model": {"order": 5},
    }
    run = seriatim.train(
        "language",
        "tiny-shakespeare",
        "ngram",
        settings=settings,
        data_dir=str(DATA),
        out=tmp_path / "run",
        report=False,
    )
    predictor: Any = run.predictor
    model: NGram = run.network
    names = [f"w{index}" for index in range(predictor.tokenizer.vocab_size)]  # any names: some tokens are white space
    model.write_arpa(tmp_path / "model.arpa", names)
    theirs = kenlm.Model(str(tmp_path / "model.arpa"))
    text = (DATA / "tinyshakespeare" / "input.txt").read_text(encoding="utf-8")[-20_000:]
    backoff = run.inspect.backoff(text)
    first, *ids = predictor.encode_scored(text).tolist()
    lines: list[list[str]] = [[names[first]] if model.boundary is None else []]
    for index in ids:
        if index == model.boundary:  # the end of a line is <s> and </s>
            lines.append([])
        else:
            lines[-1].append(names[index])
    ends = model.boundary is not None
    scores = [score for line in lines for score in theirs.full_scores(" ".join(line), bos=ends, eos=ends)]
    expected = scores[: len(ids)] if ends else scores[1:]
    assert backoff.arrays["order"].values.tolist() == [length for _, length, _ in expected]
    surprise = run.inspect.surprise(text).arrays["surprise"].values
    np.testing.assert_allclose(-surprise * np.log10(2), [score for score, _, _ in expected], atol=1e-4)
