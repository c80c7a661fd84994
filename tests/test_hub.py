"""The format of transformers, beside transformers: what they save we read, what we write they read, with equal numbers.

A folder of a random model becomes a run, whose network must give the same outputs and gradients; the run becomes a
folder again, tensor by tensor the same. Networks of ours that were never theirs go the other way round.
"""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

import seriatim
from seriatim.core import registry
from seriatim.core.exchange import Copies, Form, Head
from seriatim.data.tokenizers import Tokenizer, TokenizerSettings
from seriatim.exchange import export_model, import_model
from seriatim.hub import reading, writing
from seriatim.nn.network import load_weights, token_network, weights
from seriatim.nn.pair import pair_network

transformers: Any = pytest.importorskip("transformers")
CLOSE = {"rtol": 0, "atol": 1e-5}
SENTENCES = [
    "The old cat saw a new hat, and the man sat.",
    "A dog bit the unhappy man; he wasn't amused!",
    "Where is the cat? It was seen at 17:45.",
    "über die Brücke läuft ein Hund",
]


def learnt(kind: Any, size: int = 90, **settings: Any) -> Tokenizer:
    return Tokenizer.train(TokenizerSettings(kind=kind, size=size, **settings), [f"{one}\n" for one in SENTENCES * 3])


@pytest.fixture(scope="module")
def tokens() -> dict[str, Tokenizer]:
    return {"bert": learnt("bert", lowercase=True), "bpe": learnt("bpe"), "two": learnt("bpe", 75)}


def shaken(module: nn.Module, by: float = 0.1) -> nn.Module:
    """Nothing stays at a beginning that would hide a mistake: no bias is 0, no gain is 1."""
    with torch.no_grad():
        for parameter in module.parameters():
            if parameter.requires_grad:  # Marian's sinusoids are what they are
                parameter += by * torch.randn_like(parameter)
        if isinstance(bias := getattr(module, "final_logits_bias", None), Tensor):
            bias.normal_()
    return module.eval()


def ragged(lengths: list[int]) -> Tensor:
    return torch.arange(max(lengths))[None] < torch.tensor(lengths)[:, None]


# Batches: what they are asked, what we are asked, and the outputs of both that must agree

Outputs = list[Tensor]


@dataclass(frozen=True)
class Case:
    """An architecture of theirs, its shapes, and how to ask for its outputs."""

    architecture: str
    tokenizer: str
    theirs: Callable[[Any, dict[str, Tensor]], Outputs]
    ours: Callable[[Any, dict[str, Tensor]], Outputs]
    shapes: tuple[dict[str, Any], ...] = ({},)
    task: str = ""
    batch: Callable[[Tokenizer], dict[str, Tensor]] = field(default=lambda tokenizer: framed(tokenizer))


def framed(tokenizer: Tokenizer) -> dict[str, Tensor]:
    """Texts and pairs of texts of unequal length, as BERT reads them; segments by the texts they belong to."""
    rows = [((5,), 12), ((3, 4), 10), ((1,), 3), ((2, 6), 11)]
    real = ragged([length for _, length in rows])
    ids, segments = torch.full(real.shape, tokenizer.pad), torch.zeros(real.shape, dtype=torch.long)
    for row, (sizes, _) in enumerate(rows):
        place = 1
        ids[row, 0] = tokenizer.cls
        for segment, size in enumerate(sizes):
            size = size if len(sizes) > 1 or row == 2 else 10
            ids[row, place : place + size] = torch.randint(5, tokenizer.size, (size,))
            ids[row, place + size] = tokenizer.sep
            segments[row, place : place + size + 1] = segment
            place += size + 1
        real[row] = torch.arange(real.shape[1]) < place
    return {"ids": ids, "real": real, "segments": segments}


def plain(tokenizer: Tokenizer) -> dict[str, Tensor]:
    real = ragged([11, 4, 1])
    return {"ids": torch.randint(2, tokenizer.size, real.shape) * real, "real": real}


def paired(tokenizer: Tokenizer) -> dict[str, Tensor]:
    """Their padding token has no gradient; it stands here only where nothing looks."""
    real = ragged([9, 5, 1])
    ids = torch.randint(2, tokenizer.size, real.shape) * real
    return {"ids": ids, "real": real, "target": torch.randint(2, tokenizer.size, (3, 7))}


def asked(batch: dict[str, Tensor]) -> dict[str, Tensor]:
    named = {"ids": "input_ids", "segments": "token_type_ids", "target": "decoder_input_ids"}
    given = {theirs: batch[ours] for ours, theirs in named.items() if ours in batch}
    return given | {"attention_mask": batch["real"].long()}


def steps(*names: str) -> Callable[[Any, dict[str, Tensor]], Outputs]:
    """Outputs of every real place."""
    return lambda peer, batch: [getattr(peer(**asked(batch)), name)[batch["real"]] for name in names]


def whole(*names: str) -> Callable[[Any, dict[str, Tensor]], Outputs]:
    return lambda peer, batch: [getattr(peer(**asked(batch)), name) for name in names]


def scores(network: Any, batch: dict[str, Tensor]) -> Outputs:
    return [network(batch["ids"], batch["real"])[0]]


def placed(network: Any, batch: dict[str, Tensor]) -> Outputs:
    return [network(batch["ids"], batch["real"])[0][batch["real"]]]


def body(network: Any, batch: dict[str, Tensor]) -> Outputs:
    hidden, _ = network.hidden(batch["ids"], batch["real"])
    return [hidden[batch["real"]], network.head.pooled(hidden)]


def pretrained(network: Any, batch: dict[str, Tensor]) -> Outputs:
    masked, follows = network(batch["ids"], batch["real"])[0]
    return [masked[batch["real"]], *([] if follows is None else [follows])]


def both_pretrained(peer: Any, batch: dict[str, Tensor]) -> Outputs:
    found = peer(**asked(batch))
    return [found.prediction_logits[batch["real"]], found.seq_relationship_logits]


def spans(network: Any, batch: dict[str, Tensor]) -> Outputs:
    found = network(batch["ids"], batch["real"])[0][batch["real"]]
    return [found[:, 0], found[:, 1]]


def translated(network: Any, batch: dict[str, Tensor]) -> Outputs:
    return [network(batch["ids"], batch["target"], batch["real"])]


def both_of_body(peer: Any, batch: dict[str, Tensor]) -> Outputs:
    found = peer(**asked(batch))
    return [found.last_hidden_state[batch["real"]], found.pooler_output]


def gpt_body(peer: Any, batch: dict[str, Tensor]) -> Outputs:
    return [(peer(**asked(batch)).last_hidden_state @ peer.get_input_embeddings().weight.T)[batch["real"]]]


BERT = {"hidden_size": 12, "num_hidden_layers": 2, "num_attention_heads": 3, "intermediate_size": 20}
BERT |= {"max_position_embeddings": 14}
DEEP = {"num_hidden_layers": 3, "num_attention_heads": 2, "hidden_act": "gelu_new", "layer_norm_eps": 1e-3}
WIDE = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 4, "hidden_act": "relu", "type_vocab_size": 3}
GPT = {"n_embd": 12, "n_layer": 2, "n_head": 3, "n_positions": 13, "bos_token_id": 1, "eos_token_id": 1}
PAIR = {"d_model": 12, "encoder_layers": 2, "decoder_layers": 3, "encoder_attention_heads": 2}
PAIR |= {"decoder_attention_heads": 2, "encoder_ffn_dim": 20, "decoder_ffn_dim": 20, "max_position_embeddings": 15}
PAIR |= {"pad_token_id": 0, "eos_token_id": 1, "bos_token_id": 1, "decoder_start_token_id": 0}
PAIR |= {"forced_eos_token_id": None, "activation_function": "swish", "scale_embedding": True}
LABELS = {"num_labels": 5}
CASES = [
    Case("BertModel", "bert", both_of_body, body, ({}, DEEP, WIDE), "pretrain"),
    Case("BertForPreTraining", "bert", both_pretrained, pretrained, ({}, DEEP), "pretrain"),
    Case("BertForMaskedLM", "bert", steps("logits"), pretrained, ({}, WIDE), "pretrain"),
    Case("BertForSequenceClassification", "bert", whole("logits"), scores, ({}, LABELS | DEEP), "classify"),
    Case(
        "BertForSequenceClassification",
        "bert",
        whole("logits"),
        scores,
        ({"num_labels": 1}, {"problem_type": "regression", "num_labels": 2} | WIDE),
        "regress",
    ),
    Case("BertForTokenClassification", "bert", steps("logits"), placed, ({}, LABELS | WIDE), "tag"),
    Case("BertForQuestionAnswering", "bert", steps("start_logits", "end_logits"), spans, ({}, DEEP), "answer"),
    Case(
        "GPT2LMHeadModel",
        "bpe",
        steps("logits"),
        placed,
        (GPT, GPT | {"n_inner": 7, "n_layer": 3, "activation_function": "relu", "layer_norm_epsilon": 1e-3}),
        "language",
        plain,
    ),
    Case("GPT2Model", "bpe", gpt_body, placed, (GPT,), "language", plain),
    Case(
        "OpenAIGPTLMHeadModel",
        "bpe",
        steps("logits"),
        placed,
        (GPT, GPT | {"n_layer": 3, "n_head": 2, "afn": "silu", "layer_norm_epsilon": 1e-3}),
        "language",
        plain,
    ),
    Case(
        "MarianMTModel",
        "bpe",
        whole("logits"),
        translated,
        (
            PAIR,
            PAIR | {"d_model": 9, "encoder_attention_heads": 3, "decoder_attention_heads": 3, "decoder_layers": 1},
            PAIR | {"scale_embedding": False, "activation_function": "relu"},
            PAIR | {"share_encoder_decoder_embeddings": False, "decoder_vocab_size": 90, "activation_function": "gelu"},
        ),
        "translate",
        paired,
    ),
    Case(
        "BlenderbotForConditionalGeneration",
        "bpe",
        whole("logits"),
        translated,
        (PAIR, PAIR | {"encoder_layers": 1, "scale_embedding": False, "activation_function": "gelu"}),
        "translate",
        paired,
    ),
]
ROWS = [(case, index) for case in CASES for index in range(len(case.shapes))]


def label(value: Any) -> str:
    return f"{value.architecture}-{value.task}" if isinstance(value, Case) else str(value)


def random_peer(case: Case, index: int, tokenizer: Tokenizer) -> Any:
    torch.manual_seed(index)
    model = getattr(transformers, case.architecture)
    shape = (BERT if case.tokenizer == "bert" else {}) | case.shapes[index]
    peer: Any = shaken(model(model.config_class(vocab_size=tokenizer.size, **shape)))
    if "Blenderbot" in case.architecture:  # of its two tables of positions ours has one
        peer.model.decoder.embed_positions.weight.data.copy_(peer.model.encoder.embed_positions.weight)
    return peer


def saved(peer: Any, folder: Path, tokenizer: Tokenizer) -> Path:
    peer.save_pretrained(folder)
    tokenizer.save(folder / "tokenizer.json")
    return folder


def gradients(outputs: Outputs, module: nn.Module) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(7)
    wanted = [torch.randn(one.shape, generator=generator) for one in outputs]
    module.zero_grad()
    sum((one * other).sum() for one, other in zip(outputs, wanted, strict=True)).backward()  # type: ignore[union-attr]
    named = module.named_parameters()
    return {name: torch.zeros_like(p) if p.grad is None else p.grad.clone() for name, p in named}


@pytest.fixture(params=ROWS, ids=lambda row: f"{label(row[0])}-{row[1]}", scope="module")
def bridge(request: Any, tokens: dict[str, Tokenizer], tmp_path_factory: Any) -> Any:
    """A random model of theirs, its folder, and the run that it became."""
    case, index = request.param
    tokenizer = tokens[case.tokenizer]
    if case.shapes[index].get("share_encoder_decoder_embeddings", True) is False:
        case.shapes[index]["decoder_vocab_size"] = tokenizer.size
    peer = random_peer(case, index, tokenizer)
    folder = tmp_path_factory.mktemp("bridge")
    run = import_model(saved(peer, folder / "theirs", tokenizer), folder / "run")
    torch.manual_seed(3)
    return case, peer, run, case.batch(tokenizer), folder


def test_what_they_save_gives_the_same_outputs_and_gradients(bridge: Any) -> None:
    case, peer, run, batch, folder = bridge
    network = run.predictor.model
    assert run.config.task.name == case.task
    theirs, ours = case.theirs(peer, batch), case.ours(network, batch)
    assert len(theirs) == len(ours)
    for one, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(one, other, **CLOSE)
    found = reading.read(folder / "theirs")
    settings = run.config.model
    mine, wanted = gradients(ours, network), gradients(theirs, peer)
    there = [one for one in found.head.optional if one.theirs[0] in wanted]
    entries = [one for one in (*found.form.entries(settings, found.head), *there) if one.theirs[0] in wanted]
    assert {name for one in entries for name in one.theirs} == {
        name for name, parameter in peer.named_parameters() if parameter.requires_grad
    }
    for entry in entries:
        if isinstance(entry, Copies):
            torch.testing.assert_close(
                mine[entry.ours], sum(wanted[name] for name in entry.theirs), rtol=1e-4, atol=1e-4
            )
            continue
        for name, gradient in entry.write(mine[entry.ours]).items():
            torch.testing.assert_close(
                gradient, wanted[name], rtol=1e-4, atol=1e-4, msg=lambda said, n=name: f"{n}: {said}"
            )


def test_and_goes_back_as_it_was(bridge: Any) -> None:
    """Tensor by tensor; and transformers opens it without a missing or an unexpected one."""
    case, peer, run, batch, folder = bridge
    back = export_model(run.path, folder / "back")
    before, after = load_file(folder / "theirs" / "model.safetensors"), load_file(back / "model.safetensors")
    if case.architecture == "GPT2Model":  # it goes back with the head that a language model has: its own table
        before = {f"transformer.{name}": tensor for name, tensor in before.items()}
    assert before.keys() == after.keys()
    assert all(torch.equal(before[name], tensor) for name, tensor in after.items())
    again, told = getattr(transformers, case.architecture).from_pretrained(back, output_loading_info=True)
    assert not any(told[name] for name in ("missing_keys", "unexpected_keys", "mismatched_keys")), told
    for one, other in zip(case.theirs(again.eval(), batch), case.theirs(peer, batch), strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-6)
