"""Encoder–decoders at tiny sizes, for the contract tests of models, traces and training."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from helpers import TINY, Case, backbones, encoder_decoder_models, settings_class
from seriatim.nn.attention import SCORES
from seriatim.nn.encoder_decoder import EncoderDecoder, encoder_decoder_network

SMALL = {name: {"width": 8, "heads": 2, "layers": 2, "feedforward": 10} for name in ("transformer", "t5")} | TINY
SMALL |= {"gpt": {key: value for key, value in TINY["gpt"].items() if key != "context_length"}}
NAMES: list[Case] = [(name, {}) for name in encoder_decoder_models() if settings_class(name).modality is None]
PAIRS: list[Case] = [
    *NAMES,
    ("seq2seq", {"cell": "gru", "layers": 1}),
    ("seq2seq", {"cell": "rnn"}),
    *(("bahdanau", {"score": score}) for score in SCORES if score != "additive"),
    ("bahdanau", {"cell": "lstm", "layers": 2}),
    ("bahdanau", {"cell": "rnn", "bidirectional": False}),
    ("bahdanau", {"reset": "after"}),
    ("bahdanau", {"learned_values": True, "score": "epanechnikov"}),
    ("transformer", {"norm": "after", "activation": "gelu"}),
    ("transformer", {"positions": "learned", "decoder_layers": 1, "activation": "silu"}),
    ("transformer", {"positions": "none"}),
    ("transformer", {"embedding": 5}),
    ("transformer", {"norm": "after", "positions": "learned", "shared_positions": False, "embedding_norm": True}),
    ("t5", {"gated": True, "activation": "gelu-tanh", "tie": False, "head_size": 3, "decoder_layers": 1}),
    ("t5", {"embedding": 5, "buckets": 4, "max_distance": 3}),
]
AFTER: list[Case] = [
    *(case for case in backbones() if not case[1]),
    ("gru", {"score": "dot", "width": 7}),
    ("gru", {"score": "boxcar", "learned_values": True}),
]
OF_TASK = {"score", "learned_values"}  # settings of Luong's attention, which any causal backbone gets
MAIN = NAMES + [case for case in AFTER if not case[1]]


def pair_settings(case: Case, **more: Any) -> Any:
    name, extra = case
    extra = {key: value for key, value in extra.items() if name in encoder_decoder_models() or key not in OF_TASK}
    return settings_class(name)(**({"width": 6} | SMALL.get(name, {}) | {"name": name} | extra | more))


def pair_network(case: Case, length: int = 14, **more: Any) -> EncoderDecoder:
    of_task = {} if case[0] in encoder_decoder_models() else {key: case[1][key] for key in OF_TASK & case[1].keys()}
    return encoder_decoder_network(pair_settings(case, **more), 11, 9, joint=False, length=length, **of_task)


def build_pair(case: Case, **more: Any) -> EncoderDecoder:
    torch.manual_seed(0)
    network = pair_network(case, **more).double().eval()
    for parameter in network.parameters():  # no zero biases: they would hide mistakes
        parameter.data += 0.1 * torch.randn_like(parameter)
    return network


def tokens(batch: int, steps: int, vocab_size: int) -> Tensor:
    return torch.randint(0, vocab_size, (batch, steps), generator=torch.Generator().manual_seed(10 * batch + steps))
