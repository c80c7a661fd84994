"""A training step of encoder–decoders: Seriatim's beside `transformers`' Marian and JoeyNMT's of the same shape.

The same batches of real pairs (fra-eng where there is a local copy, else the built-in dates), the same fused AdamW and
clipping; interleaved. Marian and JoeyNMT compute all logits of the padded batch, as their own trainings do.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

from benchmarks.timing import interleaved, report
from seriatim.api import configure
from seriatim.core import registry
from seriatim.core.device import flush_denormals, keep_memory
from seriatim.core.errors import SeriatimError
from seriatim.tasks._pairs import NO_TOKEN

BATCHES = 8  # different ones, which a run goes through
SMOOTHING = 0.1


def prepared(model: str) -> tuple[Any, Any]:
    for data in ("fra-eng", "dates"):
        config = configure("translate", data, model)
        try:
            return config, registry.tasks.load("translate").prepare(config)
        except SeriatimError as error:
            print(f"{data}: {error.cause}")
    raise SystemExit(1)


def trained(network: nn.Module, loss: Callable[[Any], torch.Tensor], batches: list[Any]) -> Callable[[], None]:
    optimiser = torch.optim.AdamW(network.parameters(), lr=1e-3, fused=True)

    def run() -> None:
        network.train()
        for batch in batches:
            optimiser.zero_grad(set_to_none=True)
            (loss(batch) / batch.count).backward()
            nn.utils.clip_grad_norm_(network.parameters(), 1.0)
            optimiser.step()

    return run


def cross_entropy(scores: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    return F.cross_entropy(
        scores.flatten(0, 1), targets.flatten(), reduction="sum", ignore_index=NO_TOKEN, label_smoothing=SMOOTHING
    )


def real(batch: Any) -> torch.Tensor:
    """The mask of the sources (B,S)."""
    return torch.ones_like(batch.inputs[0], dtype=torch.bool) if batch.mask is None else batch.mask


def marian(model: Any, size: int) -> tuple[nn.Module, Callable[[Any], torch.Tensor]]:
    from transformers import MarianConfig, MarianMTModel

    network = MarianMTModel(
        MarianConfig(
            vocab_size=size, d_model=model.width, encoder_layers=model.layers, decoder_layers=model.decoder_layers,
            encoder_attention_heads=model.heads, decoder_attention_heads=model.heads, dropout=model.dropout,
            encoder_ffn_dim=model.fine_size(), decoder_ffn_dim=model.fine_size(), activation_function="relu",
            pad_token_id=1, eos_token_id=1, decoder_start_token_id=1, forced_eos_token_id=1, use_cache=False,
        )
    )  # fmt: skip

    def loss(batch: Any) -> torch.Tensor:
        source, given = batch.inputs
        scores = network(input_ids=source, attention_mask=real(batch).long(), decoder_input_ids=given).logits
        return cross_entropy(scores, batch.targets)

    return network, loss


class Joey(nn.Module):
    """JoeyNMT's encoder and decoder with a shared table, as its model puts them together."""

    def __init__(self, model: Any, size: int) -> None:
        from joeynmt import decoders, encoders

        super().__init__()
        self.table = nn.Embedding(size, model.width)
        self.recurrent = model.name == "bahdanau"
        if self.recurrent:
            common = {"rnn_type": model.cell, "hidden_size": model.width, "emb_size": model.width}
            self.encoder = encoders.RecurrentEncoder(**common, bidirectional=True, emb_dropout=model.dropout)
            dropouts = {"emb_dropout": model.dropout, "hidden_dropout": model.dropout}
            self.decoder = decoders.RecurrentDecoder(**common, encoder=self.encoder, vocab_size=size, **dropouts)
        else:
            common = {"hidden_size": model.width, "ff_size": model.fine_size(), "num_heads": model.heads}
            common |= {"dropout": model.dropout, "emb_dropout": model.dropout, "layer_norm": "pre"}
            self.encoder = encoders.TransformerEncoder(**common, num_layers=model.layers)
            self.decoder = decoders.TransformerDecoder(**common, num_layers=model.decoder_layers, vocab_size=size)
        self.decoder.output_layer.weight = self.table.weight

    def loss(self, batch: Any) -> torch.Tensor:
        (source, given), mask = batch.inputs, real(batch)
        scale = self.table.embedding_dim**0.5
        order = mask.sum(dim=1).sort(descending=True, stable=True).indices  # packing wants the longest first
        source, given, mask = source[order], given[order], mask[order]
        output, state = self.encoder(self.table(source) * scale, mask.sum(dim=1), mask[:, None])
        scores, *_ = self.decoder(
            self.table(given) * scale, encoder_output=output, encoder_hidden=state, src_mask=mask[:, None],
            unroll_steps=given.shape[1], hidden=None, trg_mask=(batch.targets[order] != NO_TOKEN)[:, None],
        )  # fmt: skip
        return cross_entropy(scores, batch.targets[order])


def competitors(name: str) -> tuple[dict[str, Callable[[], Any]], int]:
    config, task = prepared(name)
    model, rows = config.model, config.train.batch
    batches = [task.batch(step, 0, rows, rows) for step in range(BATCHES)]
    ours = task.build(model)
    found = {"seriatim": trained(ours, lambda batch: task.loss(ours, batch, None, SMOOTHING)[0], batches)}
    size = task.coder.target.size
    if name == "transformer":
        network, loss = marian(model, size)
        found["transformers Marian"] = trained(network, loss, batches)
    try:
        joey = Joey(model, size)
        found["JoeyNMT"] = trained(joey, joey.loss, batches)
    except ImportError as error:
        print(f"without JoeyNMT: {error}")
    return found, sum(batch.count for batch in batches)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", choices=("transformer", "bahdanau"), action="append")
    parser.add_argument("--repeats", type=int, default=10)
    arguments = parser.parse_args()
    flush_denormals()
    keep_memory()  # as every training of ours begins; the peers have it too, in the same process
    for name in arguments.model or ("transformer", "bahdanau"):
        runs, tokens = competitors(name)
        times = interleaved(runs, arguments.repeats)
        report(f"translate-training-{name}", times)
        for key, values in times.items():
            print(f"  {key:<24} {tokens / sorted(values)[len(values) // 2]:9,.0f} target tokens/s")


if __name__ == "__main__":
    main()
