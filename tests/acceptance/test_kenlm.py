"""The real KenLM reads our ARPA files and gives the same probabilities, token by token, on held-out text."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from seriatim.models import _ngram_arpa as arpa
from seriatim.models.ngram import NGram, Settings

kenlm = pytest.importorskip("kenlm")
pytestmark = pytest.mark.slow

LINES = (Path(__file__).parents[1] / "golden" / "ngram" / "words.txt").read_text(encoding="utf-8").splitlines()
TRAIN, HELD_OUT = LINES[:700], LINES[700:]


def tokenize(line: str, level: str) -> list[str]:
    return line.split() if level == "words" else list(line)


def encode(lines: list[str], level: str, names: list[str], boundary: bool) -> np.ndarray:
    ids = {name: i for i, name in enumerate(names)}
    end = ["<eos>"] if boundary else []
    return np.array([ids[token] for line in lines for token in [*tokenize(line, level), *end]])


@pytest.mark.parametrize("entries", [None, 3000])
@pytest.mark.parametrize("smoothing", ["kneser-ney", "modified-kneser-ney"])
@pytest.mark.parametrize("boundary", [True, False])
@pytest.mark.parametrize(("level", "order"), [("words", 3), ("words", 5), ("characters", 6)])
def test_kenlm_agrees(level, order, boundary, smoothing, entries, tmp_path):
    names = ["<eos>", *sorted({token for line in LINES for token in tokenize(line, level)})]
    settings = Settings(name="ngram", order=order, smoothing=smoothing, entries=entries)
    model = NGram.fit(encode(TRAIN, level, names, boundary), len(names), settings, 0 if boundary else None)
    model.write_arpa(tmp_path / "model.arpa", names)
    theirs = kenlm.Model(str(tmp_path / "model.arpa"))
    for line in HELD_OUT:
        text = " ".join(map(arpa.escape, tokenize(line, level)))
        expected = list(theirs.full_scores(text, bos=boundary, eos=boundary))
        tokens = encode([line], level, names, boundary)
        np.testing.assert_allclose(
            model.log_probs(tokens) / np.log(10), [score for score, _, _ in expected], atol=1e-4, err_msg=line
        )
        assert model.order_used(tokens).tolist() == [length for _, length, _ in expected]
        assert not any(unknown for _, _, unknown in expected)
