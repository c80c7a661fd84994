"""BERT of MiniLM's size: Seriatim's beside that of `transformers`, in a training step of a classifier and in inference;
inference and the vectors of all tokens also beside ONNX Runtime, in float32, with as many threads as torch has.

The same weights, the same batches with the same padding, the same fused AdamW and clipping; interleaved. Batches of one
length show the network alone, ragged ones are like sentences of a corpus.
"""

from __future__ import annotations

import contextlib
import io
import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from benchmarks.timing import Competitors, count_flops, interleaved, parse_options, report
from seriatim.core.device import retain_freed_memory
from seriatim.hub.mappings import by_model_type
from seriatim.models.bert import Settings
from seriatim.nn.network import Network, VectorHead, load_weights

VOCAB_SIZE, WIDTH, LAYERS, HEADS, LABELS = 30_522, 384, 6, 12, 2
TRAINING = {"32x26": (32, 26, 26), "32x16-32": (32, 16, 32), "16x128": (16, 128, 128)}  # rows, shortest, longest
INFERENCE = {"1x16": (1, 16, 16), "1x128": (1, 128, 128), "16x128": (16, 128, 128), "32x16-32": (32, 16, 32)}
KINDS = {"training": "training step", "inference": "scores", "vectors": "vectors of all tokens"}
CASES = {
    f"bert-{kind}-{size}": f"BERT of MiniLM's size, {size.replace('x', ' × ').replace('-', '–')} tokens: {what}"
    for kind, what in KINDS.items()
    for size in (TRAINING if kind == "training" else INFERENCE)
}


def make_networks() -> tuple[Network, nn.Module]:
    """Returns our network, and the peer's with the same weights."""
    from transformers import BertConfig, BertForSequenceClassification

    settings = Settings(name="bert", width=WIDTH, layers=LAYERS, heads=HEADS, dropout=0.1)
    inputs = settings.token_input(VOCAB_SIZE, separator=102)
    ours = Network(inputs, settings.build(WIDTH, 128), VectorHead(WIDTH, LABELS, "first", dropout=0.1))
    theirs = BertForSequenceClassification(
        BertConfig(
            vocab_size=VOCAB_SIZE, hidden_size=WIDTH, num_hidden_layers=LAYERS, num_attention_heads=HEADS,
            intermediate_size=4 * WIDTH, num_labels=LABELS,
        )
    )  # fmt: skip
    mapping, tensors = by_model_type()["bert"], theirs.state_dict()
    head = next(head for head in mapping.heads if head.kind == "classification")
    load_weights(ours, {entry.name: entry.read(tensors) for entry in mapping.maps(settings, head)})
    return ours, theirs


def make_batch(rows: int, shortest: int, longest: int) -> tuple[Tensor, Tensor | None]:
    """Returns tokens and their mask, None without padding."""
    lengths = torch.linspace(shortest, longest, rows).round().long()
    mask = torch.arange(longest) < lengths[:, None]
    tokens = torch.randint(1_000, VOCAB_SIZE, (rows, longest)) * mask
    return tokens, None if bool(mask.all()) else mask


def make_training(size: str) -> Competitors:
    ours, theirs = make_networks()
    tokens, mask = make_batch(*TRAINING[size])
    labels = torch.randint(0, LABELS, (len(tokens),))
    attention_mask = torch.ones_like(tokens) if mask is None else mask.long()

    def make_step(network: nn.Module, scores: Callable[[], Tensor]) -> Callable[[], Any]:
        network.train()
        optimizer = torch.optim.AdamW(network.parameters(), lr=5e-5, fused=True)

        def step() -> None:
            optimizer.zero_grad(set_to_none=True)
            F.cross_entropy(scores(), labels).backward()
            nn.utils.clip_grad_norm_(network.parameters(), 1.0)
            optimizer.step()

        return step

    return Competitors(
        {
            "seriatim": make_step(ours, lambda: ours(tokens, mask)[0]),
            "transformers": make_step(theirs, lambda: theirs(input_ids=tokens, attention_mask=attention_mask).logits),
        }
    )


class Exported(nn.Module):
    """A network of `transformers` with a single output."""

    def __init__(self, network: nn.Module, output: str) -> None:
        super().__init__()
        self.network, self.output = network, output

    def forward(self, tokens: Tensor, attention_mask: Tensor) -> Tensor:
        output: Tensor = getattr(self.network(input_ids=tokens, attention_mask=attention_mask), self.output)
        return output


def run_onnx(network: nn.Module, output: str, tokens: Tensor, attention_mask: Tensor) -> Callable[[], Any]:
    """Returns a run of ONNX Runtime on batches of this shape."""
    import onnx  # noqa: F401
    import onnxruntime
    import onnxscript  # noqa: F401

    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
        warnings.simplefilter("ignore")
        file = str(Path(folder) / "bert.onnx")
        names = ["tokens", "attention_mask"]
        exported = Exported(network, output)
        torch.onnx.export(exported, (tokens, attention_mask), file, input_names=names, dynamo=True)
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = torch.get_num_threads()
        options.add_session_config_entry("session.force_spinning_stop", "1")  # so that they do not disturb the next one
        session = onnxruntime.InferenceSession(file, options, providers=["CPUExecutionProvider"])
    tensors = {"tokens": tokens, "attention_mask": attention_mask}
    inputs = {entry.name: tensors[entry.name].numpy() for entry in session.get_inputs()}
    return lambda: session.run(None, inputs)[0]


def make_inference(kind: str, size: str) -> Competitors:
    """Returns the competitors that compute scores, or those that compute the vectors of all tokens."""
    ours, theirs = (network.eval() for network in make_networks())
    tokens, mask = make_batch(*INFERENCE[size])
    attention_mask = torch.ones_like(tokens) if mask is None else mask.long()

    @torch.inference_mode()
    def own_scores() -> Tensor:
        scores: Tensor = ours(tokens, mask)[0]
        return scores

    @torch.inference_mode()
    def peer_scores() -> Tensor:
        scores: Tensor = theirs(input_ids=tokens, attention_mask=attention_mask).logits
        return scores

    @torch.inference_mode()
    def own_vectors() -> Tensor:
        vectors: Tensor = ours.hidden(tokens, mask)[0]
        return vectors

    @torch.inference_mode()
    def peer_vectors() -> Tensor:
        vectors: Tensor = theirs.bert(input_ids=tokens, attention_mask=attention_mask).last_hidden_state  # type: ignore[operator]
        return vectors

    if kind == "inference":
        competitors = Competitors({"seriatim": own_scores, "transformers": peer_scores})
        exported, output = theirs, "logits"
    else:
        competitors = Competitors({"seriatim": own_vectors, "transformers": peer_vectors})
        exported, output = theirs.get_submodule("bert"), "last_hidden_state"
    competitors.add("ONNX Runtime", lambda: run_onnx(exported, output, tokens, attention_mask))
    expected = own_scores() if kind == "inference" else own_vectors()
    compared = torch.ones(expected.shape[:2], dtype=torch.bool) if kind == "inference" or mask is None else mask
    for peer in list(competitors.values())[1:]:
        torch.testing.assert_close(torch.as_tensor(peer())[compared], expected[compared], rtol=1e-4, atol=1e-4)
    return competitors


def main() -> None:
    quick = ["bert-training-32x26", "bert-inference-1x16", "bert-vectors-1x16"]
    options = parse_options(__doc__, CASES, quick, repeats=40)
    retain_freed_memory()
    for name in options.cases:
        _, kind, size = name.split("-", 2)
        competitors = make_training(size) if kind == "training" else make_inference(kind, size)
        flops = None if "-" in size else count_flops(competitors["transformers"])  # padding is no work to be done
        report(name, interleaved(competitors, options, rest=kind != "training"), options, flops=flops)


if __name__ == "__main__":
    main()
