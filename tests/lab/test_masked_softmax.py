"""Masked softmax over ragged rows."""

from __future__ import annotations

import numpy as np
import pytest

from seriatim.core.errors import SeriatimError
from seriatim.inspect import Inspector


def test_masked_softmax_is_the_softmax_of_each_row_alone() -> None:
    result = Inspector("gpt").masked_softmax(lengths="4,2,0,1", seed=3)
    scores = result.arrays["scores, padding included"].values
    weights = result.arrays["masked softmax"].values
    masked = result.arrays["masked: −∞ at padding"].values
    for row, length in enumerate((4, 2, 0, 1)):
        alone = np.exp(scores[row, :length]) / np.exp(scores[row, :length]).sum()
        np.testing.assert_allclose(weights[row, :length], alone, rtol=1e-6)
        assert not weights[row, length:].any()
        assert np.isneginf(masked[row, length:]).all()
    np.testing.assert_allclose(result.arrays["softmax over padding: wrong"].values.sum(axis=1), 1, rtol=1e-6)
    lost = [row[1] for row in result.details[0].rows]
    assert lost[0] == 0
    assert lost[2] == 1
    for lengths in ("", "a", "-1,2", "0", [99]):
        with pytest.raises(SeriatimError) as caught:
            Inspector("gpt").masked_softmax(lengths=lengths)
        assert caught.value.code == "inspect.lengths"
