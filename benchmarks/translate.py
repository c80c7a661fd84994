"""A training step of encoder–decoders: Seriatim's beside Marian of `transformers` and JoeyNMT's of the same shape.

The same batches of real pairs (fra-eng if there is a local copy, else the built-in dates), the same fused AdamW and
clipping; interleaved. Marian and JoeyNMT compute all logits of the padded batch, as their own training does.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

from benchmarks.timing import Competitors, Options, interleaved, parse_options, report
from seriatim.core.device import flush_denormals, retain_freed_memory
from seriatim.core.errors import SeriatimError
from seriatim.runs.configure import configure
from seriatim.tasks.base import IGNORED, Batch, Splits
from seriatim.tasks.reading import prepare
from seriatim.tasks.translate.processor import Pairs
from seriatim.tasks.translate.task import TranslateTask
from seriatim.training.config import Config
from seriatim.training.objective import TaskObjective

BATCHES = 8  # different ones, in each run
SMOOTHING = 0.1
CASES = {
    "translate-training-transformer": "Transformer, English to French: 8 training steps",
    "translate-training-bahdanau": "Bahdanau's network, English to French: 8 training steps",
}


def read_data(model: str, quick: bool) -> tuple[Config, TranslateTask, Splits[Pairs], str]:
    """Returns settings, task, data, and a note about the data."""
    note = ""
    for data in ("dates",) if quick else ("fra-eng", "dates"):
        config = configure("translate", data, model)
        try:
            task, splits = prepare(TranslateTask, config.task_config())
            return config, task, splits, note
        except SeriatimError as error:
            note = f"with built-in dates, since {data} is not here: {error.cause}"
    raise SystemExit(note)


def make_steps(network: nn.Module, loss: Callable[[Batch], torch.Tensor], batches: list[Batch]) -> Callable[[], None]:
    optimizer = torch.optim.AdamW(network.parameters(), lr=1e-3, fused=True)

    def run() -> None:
        network.train()
        for batch in batches:
            optimizer.zero_grad(set_to_none=True)
            (loss(batch) / batch.count).backward()
            nn.utils.clip_grad_norm_(network.parameters(), 1.0)
            optimizer.step()

    return run


def cross_entropy(scores: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    return F.cross_entropy(
        scores.flatten(0, 1), targets.flatten(), reduction="sum", ignore_index=IGNORED, label_smoothing=SMOOTHING
    )


def source_mask(batch: Batch) -> torch.Tensor:
    """Returns the mask of the sources (B,S)."""
    return torch.ones_like(batch.inputs[0], dtype=torch.bool) if batch.mask is None else batch.mask


def make_marian(model: Any, vocab_size: int) -> tuple[nn.Module, Callable[[Any], torch.Tensor]]:
    from transformers import MarianConfig, MarianMTModel

    network = MarianMTModel(
        MarianConfig(
            vocab_size=vocab_size, d_model=model.width,
            encoder_layers=model.layers, decoder_layers=model.decoder_layers,
            encoder_attention_heads=model.heads, decoder_attention_heads=model.heads, dropout=model.dropout,
            encoder_ffn_dim=model.budget_size(), decoder_ffn_dim=model.budget_size(), activation_function="relu",
            pad_token_id=1, eos_token_id=1, decoder_start_token_id=1, forced_eos_token_id=1, use_cache=False,
        )
    )  # fmt: skip

    def loss(batch: Batch) -> torch.Tensor:
        source, shifted, _ = batch.inputs
        scores = network(input_ids=source, attention_mask=source_mask(batch).long(), decoder_input_ids=shifted).logits
        return cross_entropy(scores, batch.targets)

    return network, loss


class Joey(nn.Module):
    """JoeyNMT's encoder and decoder with a shared embedding, as its model combines them."""

    def __init__(self, model: Any, vocab_size: int) -> None:
        from joeynmt import decoders, encoders

        super().__init__()
        self.embedding = nn.Embedding(vocab_size, model.width)
        self.recurrent = model.name == "bahdanau"
        if self.recurrent:
            common = {"rnn_type": model.cell, "hidden_size": model.width, "emb_size": model.width}
            self.encoder = encoders.RecurrentEncoder(**common, bidirectional=True, emb_dropout=model.dropout)
            dropouts = {"emb_dropout": model.dropout, "hidden_dropout": model.dropout}
            self.decoder = decoders.RecurrentDecoder(**common, encoder=self.encoder, vocab_size=vocab_size, **dropouts)
        else:
            common = {"hidden_size": model.width, "ff_size": model.budget_size(), "num_heads": model.heads}
            common |= {"dropout": model.dropout, "emb_dropout": model.dropout, "layer_norm": "pre"}
            self.encoder = encoders.TransformerEncoder(**common, num_layers=model.layers)
            self.decoder = decoders.TransformerDecoder(**common, num_layers=model.decoder_layers, vocab_size=vocab_size)
        self.decoder.output_layer.weight = self.embedding.weight

    def loss(self, batch: Batch) -> torch.Tensor:
        (source, shifted, _), mask = batch.inputs, source_mask(batch)
        scale = self.embedding.embedding_dim**0.5
        order = mask.sum(dim=1).sort(descending=True, stable=True).indices  # packing needs the longest first
        source, shifted, mask = source[order], shifted[order], mask[order]
        output, state = self.encoder(self.embedding(source) * scale, mask.sum(dim=1), mask[:, None])
        scores, *_ = self.decoder(
            self.embedding(shifted) * scale, encoder_output=output, encoder_hidden=state, src_mask=mask[:, None],
            unroll_steps=shifted.shape[1], hidden=None, trg_mask=(batch.targets[order] != IGNORED)[:, None],
        )  # fmt: skip
        return cross_entropy(scores, batch.targets[order])


def measure(name: str, options: Options) -> None:
    model_name = name.removeprefix("translate-training-")
    config, task, splits, note = read_data(model_name, options.quick)
    model, size = config.model, config.train.batch_size
    objective, ours = TaskObjective.of(task, splits), task.build(splits.train)
    batches = [objective.batch(step, 0, size, size) for step in range(1 if options.quick else BATCHES)]
    competitors = Competitors(
        {"seriatim": make_steps(ours, lambda batch: task.loss(task.forward(ours, batch), batch, SMOOTHING), batches)}
    )
    vocab_size = task.processor.target.vocab_size

    def make_joey() -> Callable[[], Any]:
        joey = Joey(model, vocab_size)
        return make_steps(joey, joey.loss, batches)

    if model_name == "transformer":
        competitors.add("transformers Marian", lambda: make_steps(*make_marian(model, vocab_size), batches))
    competitors.add("JoeyNMT", make_joey)
    measurement = interleaved(competitors, options)
    tokens = sum(batch.count for batch in batches)
    speed = f"{tokens / statistics.median(measurement.seconds['seriatim']):,.0f} target tokens/s"
    report(name, measurement, options, note="; ".join(filter(None, (speed, note))))


def main() -> None:
    options = parse_options(__doc__, CASES)
    flush_denormals()
    retain_freed_memory()  # as in every training of ours; it also applies to the peers, in the same process
    for name in options.cases:
        measure(name, options)


if __name__ == "__main__":
    main()
