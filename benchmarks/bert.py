"""BERT of MiniLM's size: Seriatim's beside `transformers`', a training step of a classifier and its answers; these and
the vectors of all tokens also beside ONNX Runtime, in float32, with as many threads as torch has.

The same weights, the same batches with the same padding, the same fused AdamW and clipping; interleaved. Batches of one
length show the network alone, ragged ones what sentences of a corpus are like.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import io
import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from benchmarks.timing import interleaved, report
from seriatim.core.device import keep_memory
from seriatim.models.bert import Settings
from seriatim.nn.heads import VectorHead
from seriatim.nn.network import Network, load_weights, weights

VOCABULARY, WIDTH, LAYERS, HEADS, LABELS = 30_522, 384, 6, 12, 2
TRAINING = {"32x26": (32, 26, 26), "32x16-32": (32, 16, 32), "16x128": (16, 128, 128)}  # rows, shortest, longest
ANSWERING = {"1x16": (1, 16, 16), "1x128": (1, 128, 128), "16x128": (16, 128, 128), "32x16-32": (32, 16, 32)}


def networks() -> tuple[Network, nn.Module]:
    """Ours, and theirs with the same weights."""
    from transformers import BertConfig, BertForSequenceClassification

    settings = Settings(name="bert", width=WIDTH, layers=LAYERS, heads=HEADS, dropout=0.1)
    inputs = settings.token_input(VOCABULARY, separator=102)
    ours = Network(inputs, settings.build(WIDTH, 128), VectorHead(WIDTH, LABELS, "first", dropout=0.1))
    theirs = BertForSequenceClassification(
        BertConfig(
            vocab_size=VOCABULARY, hidden_size=WIDTH, num_hidden_layers=LAYERS, num_attention_heads=HEADS,
            intermediate_size=4 * WIDTH, num_labels=LABELS,
        )
    )  # fmt: skip
    from seriatim.models.bert import HUB

    head = next(one for one in HUB[0].heads if one.task == "classify")
    stored = theirs.state_dict()
    load_weights(ours, {entry.ours: entry.read(stored) for entry in HUB[0].entries(settings, head)})
    assert weights(ours).keys()
    return ours, theirs


def batch(rows: int, shortest: int, longest: int) -> tuple[Tensor, Tensor | None]:
    """Tokens, and where they are real; None where all are."""
    lengths = torch.linspace(shortest, longest, rows).round().long()
    mask = torch.arange(longest) < lengths[:, None]
    tokens = torch.randint(1_000, VOCABULARY, (rows, longest)) * mask
    return tokens, None if bool(mask.all()) else mask


def training(size: str) -> dict[str, Callable[[], Any]]:
    ours, theirs = networks()
    tokens, mask = batch(*TRAINING[size])
    labels = torch.randint(0, LABELS, (len(tokens),))
    real = torch.ones_like(tokens) if mask is None else mask.long()

    def step(network: nn.Module, scores: Callable[[], Tensor]) -> Callable[[], Any]:
        network.train()
        optimiser = torch.optim.AdamW(network.parameters(), lr=5e-5, fused=True)

        def run() -> None:
            optimiser.zero_grad(set_to_none=True)
            F.cross_entropy(scores(), labels).backward()
            nn.utils.clip_grad_norm_(network.parameters(), 1.0)
            optimiser.step()

        return run

    return {
        "seriatim": step(ours, lambda: ours(tokens, mask)[0]),
        "transformers": step(theirs, lambda: theirs(input_ids=tokens, attention_mask=real).logits),
    }


class Exported(nn.Module):
    """What is exported: one tensor out."""

    def __init__(self, theirs: nn.Module, output: str) -> None:
        super().__init__()
        self.theirs, self.output = theirs, output

    def forward(self, tokens: Tensor, real: Tensor) -> Tensor:
        answer: Tensor = getattr(self.theirs(input_ids=tokens, attention_mask=real), self.output)
        return answer


def by_onnx(theirs: nn.Module, output: str, tokens: Tensor, real: Tensor) -> Callable[[], Any] | None:
    """An output of theirs by ONNX Runtime, for batches of this shape; None where that is not installed."""
    if not all(importlib.util.find_spec(name) for name in ("onnx", "onnxscript", "onnxruntime")):
        print("  ONNX Runtime is left out: it wants onnx, onnxscript and onnxruntime")
        return None
    import onnxruntime

    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
        warnings.simplefilter("ignore")
        file = str(Path(folder) / "bert.onnx")
        torch.onnx.export(Exported(theirs, output), (tokens, real), file, input_names=["tokens", "real"], dynamo=True)
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = torch.get_num_threads()
        options.add_session_config_entry("session.force_spinning_stop", "1")  # lest they disturb the next
        session = onnxruntime.InferenceSession(file, options, providers=["CPUExecutionProvider"])
    names = [one.name for one in session.get_inputs()]
    given = {name: value.numpy() for name, value in (("tokens", tokens), ("real", real)) if name in names}
    return lambda: session.run(None, given)[0]


def answering(size: str) -> dict[str, dict[str, Callable[[], Any]]]:
    """Answers, and the vectors of all tokens."""
    ours, theirs = (network.eval() for network in networks())
    tokens, mask = batch(*ANSWERING[size])
    real = torch.ones_like(tokens) if mask is None else mask.long()

    @torch.inference_mode()
    def own() -> Tensor:
        scores: Tensor = ours(tokens, mask)[0]
        return scores

    @torch.inference_mode()
    def other() -> Tensor:
        scores: Tensor = theirs(input_ids=tokens, attention_mask=real).logits
        return scores

    @torch.inference_mode()
    def own_vectors() -> Tensor:
        vectors: Tensor = ours.hidden(tokens, mask)[0]
        return vectors

    @torch.inference_mode()
    def other_vectors() -> Tensor:
        vectors: Tensor = theirs.bert(input_ids=tokens, attention_mask=real).last_hidden_state  # type: ignore[operator]
        return vectors

    runs: dict[str, dict[str, Callable[[], Any]]] = {
        "answering": {"seriatim": own, "transformers": other},
        "vectors": {"seriatim": own_vectors, "transformers": other_vectors},
    }
    body: nn.Module = theirs.bert  # type: ignore[assignment]
    for kind, (network, output) in zip(runs, ((theirs, "logits"), (body, "last_hidden_state")), strict=True):
        if run := by_onnx(network, output, tokens, real):
            runs[kind]["ONNX Runtime"] = run
        wanted = runs[kind]["seriatim"]()
        for peer in list(runs[kind].values())[1:]:
            shown = torch.ones(wanted.shape[:2], dtype=torch.bool) if kind == "answering" or mask is None else mask
            torch.testing.assert_close(torch.as_tensor(peer())[shown], wanted[shown], rtol=1e-4, atol=1e-4)
    return runs


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=20)
    parser.add_argument("--size", choices=sorted({*TRAINING, *ANSWERING}), action="append")
    parser.add_argument("--only", choices=("training", "answering"))
    arguments = parser.parse_args()
    keep_memory()
    chosen = arguments.size or [*TRAINING, *ANSWERING]
    for size in [size for size in TRAINING if size in chosen and arguments.only != "answering"]:
        report(f"bert-training-{size}", interleaved(training(size), arguments.repeats))
    for size in [size for size in ANSWERING if size in chosen and arguments.only != "training"]:
        for kind, runs in answering(size).items():
            report(f"bert-{kind}-{size}", interleaved(runs, 3 * arguments.repeats, rest=True))


if __name__ == "__main__":
    main()
