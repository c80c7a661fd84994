"""What several test files need."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import torch

from seriatim.core import registry
from seriatim.nn.backbone import Backbone

# Tiny settings for every backbone; a new model works without an entry here.
TINY: dict[str, dict[str, Any]] = {
    "bert": {"width": 8, "heads": 2, "layers": 2, "context": 12},
    "gpt": {"width": 8, "heads": 2, "layers": 2, "context": 12},
    "tcn": {"width": 6, "levels": 2, "kernel": 2},
    "mlp": {"width": 6, "window": 3, "layers": 2},
}
VARIANTS: list[tuple[str, dict[str, Any]]] = [
    ("rnn", {"activation": "relu"}),
    ("lstm", {"layers": 2}),
    ("gru", {"reset": "after"}),
    ("gru", {"layers": 2}),
    ("gpt", {"norm": "after"}),
]


def backbones() -> list[tuple[str, dict[str, Any]]]:
    """Every registered causal architecture that learns, and the variants worth their own test."""
    return [(name, {}) for name in _learners() if _kind(name).causal] + VARIANTS


def _learners() -> list[str]:
    kinds = {name: _kind(name) for name in registry.models.names()}
    return [name for name, kind in kinds.items() if not (kind.counts or kind.pairs or kind.pictures)]


def picture_models() -> list[str]:
    """Every registered architecture that reads nothing but pictures, and gives vectors."""
    kinds = {name: _kind(name) for name in registry.models.names()}
    return [name for name, kind in kinds.items() if kind.pictures and not kind.pairs]


def pair_models() -> list[str]:
    """Every registered encoder–decoder."""
    return [name for name in registry.models.names() if _kind(name).pairs]


def _kind(name: str) -> Any:
    return registry.models.load(name).Settings


RECURRENT_BOTH = [(name, {"bidirectional": True, "layers": 2}) for name in ("rnn", "lstm", "gru")]
BIDIRECTIONAL = RECURRENT_BOTH + [(name, {}) for name in _learners() if not _kind(name).causal]


def label(case: tuple[str, dict[str, Any]]) -> str:
    return "-".join([case[0], *(f"{key}={value}" for key, value in case[1].items())])


def settings_of(case: tuple[str, dict[str, Any]]) -> Any:
    name, extra = case
    return registry.models.load(name).Settings(**({"width": 6} | TINY.get(name, {}) | {"name": name} | extra))


def registry_settings(name: str, given: dict[str, Any]) -> Any:
    """The settings of a model by its name."""
    return registry.models.load(name).Settings(**(given | {"name": name}))


def shaken(module: torch.nn.Module, by: float = 0.1) -> torch.nn.Module:
    """Nothing stays at a beginning that would hide a mistake: no bias is 0, no gain is 1."""
    with torch.no_grad():
        for parameter in module.parameters():
            if parameter.requires_grad:  # Marian's sinusoids are what they are
                parameter += by * torch.randn_like(parameter)
        if isinstance(bias := getattr(module, "final_logits_bias", None), torch.Tensor):
            bias.normal_()
    return module.eval()


def build(case: tuple[str, dict[str, Any]], inputs: int = 5, dtype: torch.dtype = torch.float64) -> Backbone:
    torch.manual_seed(0)
    backbone = settings_of(case).build(inputs, length=12).to(dtype).eval()
    for parameter in backbone.parameters():  # no zero biases: they would hide mistakes
        parameter.data += 0.1 * torch.randn_like(parameter)
    return backbone


def sequence(batch: int, steps: int, inputs: int = 5, dtype: torch.dtype = torch.float64) -> torch.Tensor:
    return torch.randn(batch, steps, inputs, dtype=dtype, generator=torch.Generator().manual_seed(batch * 100 + steps))


def mask_of(lengths: list[int], steps: int) -> torch.Tensor:
    return torch.arange(steps) < torch.tensor(lengths)[:, None]


def torchrun(processes: int, *arguments: str, cwd: Path) -> None:
    command = [sys.executable, "-m", "torch.distributed.run", f"--nproc-per-node={processes}", "--master-port=0"]
    command += ["--rdzv-backend=c10d", "--rdzv-endpoint=localhost:0", "-m", "seriatim", *arguments]
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr


SPOKEN_TEXT = "a fine film full of light and warm humour that dull people will not see twice"
SPOKEN = SPOKEN_TEXT.split()


def tagged(folder: Path) -> str:
    """Words with tags, as a file."""
    lines = []
    for number in range(40):
        words = SPOKEN[number % 5 : number % 5 + 1 + number % 6]
        lines += [f"{word}\t{'LONG' if len(word) > 4 else 'SHORT'}" for word in words] + [""]
    (folder / "tagged.conll").write_text("\n".join(lines), encoding="utf-8")
    return str(folder / "tagged.conll")


def asked(folder: Path) -> str:
    """Questions about passages, as a file."""
    rows = []
    for number in range(40):
        words = [*SPOKEN[number % 6 : number % 6 + 5], SPOKEN[number % 16], SPOKEN[number // 3]]
        rows.append({"question": f"what follows {words[1]}?", "context": " ".join(words), "answers": [words[2]]})
    (folder / "asked.jsonl").write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    return str(folder / "asked.jsonl")
