"""Helpers of several test files."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import torch

from seriatim.core import registry
from seriatim.nn.backbone import Backbone

Case = tuple[str, dict[str, Any]]  # a model's name, and settings that differ from the tiny ones

# Tiny settings for every backbone; a new model works without an entry here.
TINY: dict[str, dict[str, Any]] = {
    "bert": {"width": 8, "heads": 2, "layers": 2, "context_length": 12},
    "gpt": {"width": 8, "heads": 2, "layers": 2, "context_length": 12},
    "tcn": {"width": 6, "levels": 2, "kernel": 2},
    "mlp": {"width": 6, "window": 3, "layers": 2},
}
VARIANTS: list[Case] = [
    ("rnn", {"widths": [7, 4, 3]}),
    ("mlp", {"widths": [7, 6]}),
    ("rnn", {"activation": "relu"}),
    ("lstm", {"layers": 2}),
    ("gru", {"reset": "after"}),
    ("gru", {"layers": 2}),
    ("gpt", {"norm": "after"}),
    ("gpt", {"positions": "sinusoidal", "context_length": None}),
    ("gpt", {"positions": "none", "context_length": None}),
]


def settings_class(name: str) -> Any:
    return registry.models.load(name).Settings


def backbones() -> list[Case]:
    """Returns every registered causal backbone, and the variants worth their own test."""
    return [(name, {}) for name in _backbone_names() if settings_class(name).causal] + VARIANTS


def _backbone_names() -> list[str]:
    classes = {name: settings_class(name) for name in registry.models.names()}
    return [
        name
        for name, settings in classes.items()
        if not (settings.gradient_free or settings.encoder_decoder or settings.modality)
    ]


def image_models() -> list[str]:
    """Returns every registered architecture that reads images only, and gives vectors."""
    classes = {name: settings_class(name) for name in registry.models.names()}
    return [name for name, settings in classes.items() if settings.modality == "image" and not settings.encoder_decoder]


def encoder_decoder_models() -> list[str]:
    """Returns every registered encoder–decoder."""
    return [name for name in registry.models.names() if settings_class(name).encoder_decoder]


RECURRENT_BOTH: list[Case] = [(name, {"bidirectional": True, "layers": 2}) for name in ("rnn", "lstm", "gru")]
BIDIRECTIONAL = [*RECURRENT_BOTH, *((name, {}) for name in _backbone_names() if not settings_class(name).causal)]
BIDIRECTIONAL += [("bert", {"variant": "roberta", "position_offset": 2}), ("bert", {"variant": "electra"})]
BIDIRECTIONAL += [("bert", {"positions": kind}) for kind in ("sinusoidal", "none")]


def label(case: Case) -> str:
    """Returns the id of a parametrized case."""
    return "-".join([case[0], *(f"{key}={value}" for key, value in case[1].items())])


def settings_of(case: Case) -> Any:
    name, extra = case
    return settings_class(name)(**({"width": 6} | TINY.get(name, {}) | {"name": name} | extra))


def registry_settings(name: str, values: dict[str, Any]) -> Any:
    return settings_class(name)(**(values | {"name": name}))


def shaken(module: torch.nn.Module, by: float = 0.1) -> torch.nn.Module:
    """Returns the module with noise on all parameters, so that no zero bias or unit gain hides a mistake."""
    with torch.no_grad():
        for parameter in module.parameters():
            if parameter.requires_grad:  # Marian's sinusoids are constant
                parameter += by * torch.randn_like(parameter)
        if isinstance(bias := getattr(module, "final_logits_bias", None), torch.Tensor):
            bias.normal_()
    return module.eval()


def build(case: Case, inputs: int = 5, dtype: torch.dtype = torch.float64) -> Backbone:
    torch.manual_seed(0)
    backbone = settings_of(case).build(inputs, length=12).to(dtype).eval()
    for parameter in backbone.parameters():  # no zero biases: they would hide mistakes
        parameter.data += 0.1 * torch.randn_like(parameter)
    return backbone


def sequence(batch: int, steps: int, inputs: int = 5, dtype: torch.dtype = torch.float64) -> torch.Tensor:
    return torch.randn(batch, steps, inputs, dtype=dtype, generator=torch.Generator().manual_seed(batch * 100 + steps))


def mask_of(lengths: list[int], steps: int) -> torch.Tensor:
    return torch.arange(steps) < torch.tensor(lengths)[:, None]


def copy_recurrent(ours: Any, theirs: torch.nn.RNNBase) -> None:
    """Copies the weights of a torch RNN: its two biases per gate are summed, except in the reset of a GRU."""
    directions = 2 if theirs.bidirectional else 1
    with torch.no_grad():
        for index, cell in enumerate(ours.cells):
            suffix = f"l{index // directions}" + ("_reverse" if index % directions else "")
            recurrent_bias = getattr(theirs, f"bias_hh_{suffix}").clone()
            if isinstance(getattr(cell, "bias", None), torch.Tensor):  # inside the reset of a GRU
                cell.bias.copy_(recurrent_bias[2 * cell.width :])
                recurrent_bias[2 * cell.width :] = 0
            cell.input.weight.copy_(getattr(theirs, f"weight_ih_{suffix}"))
            cell.input.bias.copy_(getattr(theirs, f"bias_ih_{suffix}") + recurrent_bias)
            cell.recurrent.copy_(getattr(theirs, f"weight_hh_{suffix}"))


def torchrun(processes: int, *arguments: str, cwd: Path) -> None:
    command = [sys.executable, "-m", "torch.distributed.run", f"--nproc-per-node={processes}", "--master-port=0"]
    command += ["--rdzv-backend=c10d", "--rdzv-endpoint=localhost:0", "-m", "seriatim", *arguments]
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr


WORDS = "a fine film full of light and warm humor that dull people will not see twice"
SENTENCE = WORDS.split()


def tagged_file(folder: Path) -> str:
    """Writes sentences with tags, and returns the path."""
    lines = []
    for number in range(40):
        words = SENTENCE[number % 5 : number % 5 + 1 + number % 6]
        lines += [f"{word}\t{'LONG' if len(word) > 4 else 'SHORT'}" for word in words] + [""]
    (folder / "tagged.conll").write_text("\n".join(lines), encoding="utf-8")
    return str(folder / "tagged.conll")


def questions_file(folder: Path) -> str:
    """Writes questions about passages, and returns the path."""
    rows = []
    for number in range(40):
        words = [*SENTENCE[number % 6 : number % 6 + 5], SENTENCE[number % 16], SENTENCE[number // 3]]
        rows.append({"question": f"what follows {words[1]}?", "context": " ".join(words), "answers": [words[2]]})
    (folder / "questions.jsonl").write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    return str(folder / "questions.jsonl")


# A backbone in a user's own file: every output depends on the mean of all inputs so far.
RUNNING_MEAN = '''
"""A running mean: every output is a product of the mean of all inputs so far."""

import torch
from torch import nn

from seriatim.nn.backbone import Backbone, BackboneSettings


class Mean(Backbone):
    def __init__(self, inputs, width):
        super().__init__()
        self.width = width
        self.output = nn.Linear(2 * inputs, width)

    def forward(self, x, mask=None, state=None, trace=None):
        total, count = state if state is not None else (x.new_zeros(len(x), x.shape[2]), x.new_zeros(len(x), 1))
        valid = torch.ones(x.shape[:2], dtype=x.dtype) if mask is None else mask.to(x.dtype)
        sums = total[:, None] + (x * valid[:, :, None]).cumsum(1)
        counts = count[:, None] + valid.cumsum(1)[:, :, None]
        y = torch.tanh(self.output(torch.cat([x, sums / counts.clamp(min=1)], dim=-1)))
        if trace is not None:
            trace["mean"] = y
        return y, (sums[:, -1], counts[:, -1])


class Settings(BackboneSettings):
    def build(self, inputs, length):
        return Mean(inputs, self.width)
'''
