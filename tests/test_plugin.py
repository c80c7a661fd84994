"""A backbone in one file of the user's own works at once: train, resume, generate, score, compare, budget."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import seriatim
from seriatim.cli import run as cli
from seriatim.core import registry

TOY = '''
"""A running mean: every output is a product of the mean of all inputs so far."""

import torch
from pydantic import Field
from torch import nn

from seriatim.nn.backbone import Backbone, BackboneSettings


class Mean(Backbone):
    def __init__(self, inputs, width):
        super().__init__()
        self.width = width
        self.output = nn.Linear(2 * inputs, width)

    def forward(self, x, mask=None, state=None, trace=None):
        total, count = state if state is not None else (x.new_zeros(len(x), x.shape[2]), x.new_zeros(len(x), 1))
        real = torch.ones(x.shape[:2], dtype=x.dtype) if mask is None else mask.to(x.dtype)
        sums = total[:, None] + (x * real[:, :, None]).cumsum(1)
        counts = count[:, None] + real.cumsum(1)[:, :, None]
        y = torch.tanh(self.output(torch.cat([x, sums / counts.clamp(min=1)], dim=-1)))
        if trace is not None:
            trace["mean"] = y
        return y, (sums[:, -1], counts[:, -1])


class Settings(BackboneSettings):
    def build(self, inputs, length):
        return Mean(inputs, self.width)
'''


@pytest.fixture
def toy(tmp_path: Path):
    file = tmp_path / "runningmean.py"
    file.write_text(TOY, encoding="utf-8")
    yield file
    registry.models._files.clear()


def test_a_model_is_one_file(toy: Path, book: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plugin = ["--plugin", str(toy)]
    out = str(tmp_path / "run")
    train = ["train", "language", "--data", str(book), "--model", "runningmean", "--params", "5k", "--steps", "30"]
    assert cli([*train, "--length", "16", "--out", out, "--quiet", "--json", *plugin]) == 0
    summary = json.loads(capsys.readouterr().out)
    assert 4_900 <= summary["parameters"] <= 5_000
    assert cli(["resume", out, "--steps", "40", "--quiet", *plugin]) == 0
    assert cli(["generate", out, "--prompt", "the ", "--max-tokens", "5", *plugin]) == 0
    assert cli(["next", out, "the ", *plugin]) == 0
    assert cli(["score", out, "the cat", *plugin]) == 0
    assert cli(["evaluate", out, *plugin, "--quiet"]) == 0
    capsys.readouterr()
    assert cli(["list", "models", *plugin]) == 0
    assert "A running mean" in capsys.readouterr().out
    both = ["compare", "language", "--data", str(book), "--models", "runningmean,gru", "--steps", "5", "--length", "16"]
    assert cli([*both, "--out", str(tmp_path / "both"), "--quiet", *plugin]) == 0
    assert (tmp_path / "both" / "report.html").exists()

    run = seriatim.load(out)
    assert run.generate("the ", max_tokens=3, temperature=0).__class__ is str

    # the folder holds safetensors, JSON, YAML and text, and nothing that runs when it is read
    endings = {path.suffix for path in Path(out).rglob("*") if path.is_file()}
    assert endings <= {".safetensors", ".json", ".jsonl", ".yaml", ".md", ".html"}

    # without the file, a clear word instead of code from a run folder
    registry.models._files.clear()
    with pytest.raises(seriatim.SeriatimError) as caught:
        seriatim.load(out).generate("the ")
    assert caught.value.code == "model.unknown"


def test_it_serves_every_task_at_once(toy: Path, tmp_path: Path) -> None:
    plugin, common = ["--plugin", str(toy)], ["--model", "runningmean", "--steps", "3", "--batch", "4", "--quiet"]
    rows = [f"a {word} film {n},{label}" for n in range(20) for word, label in (("fine", "good"), ("dull", "bad"))]
    (tmp_path / "films.csv").write_text("\n".join(["text,label", *rows]), encoding="utf-8")
    lengths = [f"{'ab' * (1 + n % 5)},{n % 5}" for n in range(40)]
    (tmp_path / "lengths.csv").write_text("\n".join(["text,value", *lengths]), encoding="utf-8")
    (tmp_path / "words.conll").write_text("the\tD\ncat\tN\nsat\tV\n\n" * 30, encoding="utf-8")
    (tmp_path / "series.csv").write_text("value\n" + "\n".join(f"{n % 7}" for n in range(200)), encoding="utf-8")
    for task, file in (("classify", "films"), ("regress", "lengths"), ("tag", "words"), ("forecast", "series")):
        data = next(tmp_path.glob(f"{file}.*"))
        out = tmp_path / task
        assert cli(["train", task, "--data", str(data), "--out", str(out), *common, *plugin]) == 0
        assert cli(["predict", str(out), "--data", str(data), "--out", str(tmp_path / f"{task}.csv"), *plugin]) == 0
