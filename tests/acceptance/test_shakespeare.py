"""GPT in nanoGPT's setting for a CPU, on tiny Shakespeare."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import seriatim

DATA = Path(os.environ.get("SERIATIM_REAL_DATA", "../shared/data"))


@pytest.mark.slow
@pytest.mark.skipif(not DATA.is_dir(), reason="SERIATIM_REAL_DATA names no local copy of the data sets")
def test_gpt_reaches_the_published_loss(tmp_path: Path) -> None:
    """4 layers, 4 heads, width 128, context 64, batch 12, 2,000 steps, no dropout: 1.88 nats per character."""
    run = seriatim.train(
        "language",
        "tiny-shakespeare",
        "gpt",
        settings={"model": {"layers": 4, "heads": 4, "width": 128}, "data": {"fractions": [0.9, 0.1, 0.0]}},
        context_length=64,
        batch_size=12,
        steps=2000,
        data_dir=str(DATA),
        out=tmp_path / "run",
        report=False,
    )
    assert run.metrics["validation"]["loss"] <= 1.88
