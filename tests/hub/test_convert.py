"""The format of transformers, beside transformers: what they save we read, what we write they read, with equal numbers.

A folder of a random model becomes a run, whose network must give the same outputs and gradients; the run becomes a
folder again, tensor by tensor the same. Networks of ours that were never theirs go the other way round.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from tokenizers import AddedToken, ByteLevelBPETokenizer, processors
from torch import Tensor, nn

import seriatim
from helpers import shaken
from seriatim.core import registry
from seriatim.data.tokenizers import Tokenizer, TokenizerSettings
from seriatim.hub import reading, writing
from seriatim.hub.mapping import HubHead, ModelMapping
from seriatim.hub.mappings import MAPPINGS
from seriatim.nn.encoder_decoder import encoder_decoder_network
from seriatim.nn.network import load_weights, token_network, weights
from seriatim.runs.exchange import export_model, import_model

transformers: Any = pytest.importorskip("transformers")
CLOSE = {"rtol": 0, "atol": 1e-5}
SENTENCES = [
    "The old cat saw a new hat, and the man sat.",
    "A dog bit the unhappy man; he wasn't amused!",
    "Where is the cat? It was seen at 17:45.",
    "über die Brücke läuft ein Hund",
]


def trained(kind: Any, vocab_size: int = 90, **settings: Any) -> Tokenizer:
    texts = [f"{text}\n" for text in SENTENCES * 3]
    return Tokenizer.train(TokenizerSettings(kind=kind, vocab_size=vocab_size, **settings), texts)


def roberta_tokenizer() -> Tokenizer:
    """BPE over bytes with the special tokens of RoBERTa, their ids, and what it puts around texts."""
    learner = ByteLevelBPETokenizer()
    special = ["<s>", "<pad>", "</s>", "<unk>", AddedToken("<mask>", lstrip=True)]
    learner.train_from_iterator(SENTENCES * 3, vocab_size=300, show_progress=False, special_tokens=special)
    learner._tokenizer.post_processor = processors.RobertaProcessing(("</s>", 2), ("<s>", 0))
    return Tokenizer(learner._tokenizer)


@pytest.fixture(scope="module")
def tokens() -> dict[str, Tokenizer]:
    named = {"bert": trained("bert", lowercase=True), "bpe": trained("bpe"), "two": trained("bpe", 75)}
    return named | {"roberta": roberta_tokenizer()}


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
            ids[row, place : place + size] = torch.randint(5, tokenizer.vocab_size, (size,))
            ids[row, place + size] = tokenizer.sep
            segments[row, place : place + size + 1] = segment
            place += size + 1
        real[row] = torch.arange(real.shape[1]) < place
    return {"ids": ids, "real": real, "segments": segments}


def unsegmented(tokenizer: Tokenizer) -> dict[str, Tensor]:
    """The same for an encoder that has no segments."""
    return {name: tensor for name, tensor in framed(tokenizer).items() if name != "segments"}


def plain(tokenizer: Tokenizer) -> dict[str, Tensor]:
    real = ragged([11, 4, 1])
    return {"ids": torch.randint(2, tokenizer.vocab_size, real.shape) * real, "real": real}


def paired(tokenizer: Tokenizer) -> dict[str, Tensor]:
    """Their padding token has no gradient; it stands here only where nothing looks."""
    real = ragged([9, 5, 1])
    ids = torch.randint(2, tokenizer.vocab_size, real.shape) * real
    return {"ids": ids, "real": real, "target": torch.randint(2, tokenizer.vocab_size, (3, 7))}


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


def bare(network: Any, batch: dict[str, Tensor]) -> Outputs:
    return [network.hidden(batch["ids"], batch["real"])[0][batch["real"]]]


def pretrained(network: Any, batch: dict[str, Tensor]) -> Outputs:
    masked, follows = network(batch["ids"], batch["real"])[0]
    return [masked[batch["real"]], *([] if follows is None else [follows])]


def both_pretrained(peer: Any, batch: dict[str, Tensor]) -> Outputs:
    result = peer(**asked(batch))
    return [result.prediction_logits[batch["real"]], result.seq_relationship_logits]


def spans(network: Any, batch: dict[str, Tensor]) -> Outputs:
    result = network(batch["ids"], batch["real"])[0][batch["real"]]
    return [result[:, 0], result[:, 1]]


def translated(network: Any, batch: dict[str, Tensor]) -> Outputs:
    return [network(batch["ids"], batch["target"], batch["real"])]


def choices(name: str) -> Callable[[Any, dict[str, Tensor]], Outputs]:
    """The scores of all rows as choices of one question."""

    def chosen(peer: Any, batch: dict[str, Tensor]) -> Outputs:
        last = {"mc_token_ids": batch["real"].sum(dim=1) - 1} if name == "mc_logits" else {}
        given = {key: value[None] for key, value in (asked(batch) | last).items()}
        return [getattr(peer(**given), name)]

    return chosen


def chosen(network: Any, batch: dict[str, Tensor]) -> Outputs:
    return [network(batch["ids"], batch["real"])[0].T]


def encoded_and_translated(network: Any, batch: dict[str, Tensor]) -> Outputs:
    return [network.encoder_outputs(batch["ids"], batch["real"])[batch["real"]], *translated(network, batch)]


def both_sides(peer: Any, batch: dict[str, Tensor]) -> Outputs:
    """What the encoder says of every real place, and the scores of the decoder."""
    result = peer(**asked(batch))
    return [result.encoder_last_hidden_state[batch["real"]], result.logits]


def both_of_body(peer: Any, batch: dict[str, Tensor]) -> Outputs:
    result = peer(**asked(batch))
    return [result.last_hidden_state[batch["real"]], result.pooler_output]


def gpt_body(peer: Any, batch: dict[str, Tensor]) -> Outputs:
    return [(peer(**asked(batch)).last_hidden_state @ peer.get_input_embeddings().weight.T)[batch["real"]]]


BERT = {"hidden_size": 12, "num_hidden_layers": 2, "num_attention_heads": 3, "intermediate_size": 20}
BERT |= {"max_position_embeddings": 14}
DEEP = {"num_hidden_layers": 3, "num_attention_heads": 2, "hidden_act": "gelu_new", "layer_norm_eps": 1e-3}
WIDE = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 4, "hidden_act": "relu", "type_vocab_size": 3}
ROBERTA = BERT | {"max_position_embeddings": 16, "pad_token_id": 1}
DISTIL = {"hidden_dim": 20}
GPT = {"n_embd": 12, "n_layer": 2, "n_head": 3, "n_positions": 13, "bos_token_id": 1, "eos_token_id": 1}
PAIR = {"d_model": 12, "encoder_layers": 2, "decoder_layers": 3, "encoder_attention_heads": 2}
PAIR |= {"decoder_attention_heads": 2, "encoder_ffn_dim": 20, "decoder_ffn_dim": 20, "max_position_embeddings": 15}
PAIR |= {"pad_token_id": 0, "eos_token_id": 1, "bos_token_id": 1, "decoder_start_token_id": 0}
PAIR |= {"forced_eos_token_id": None, "activation_function": "swish", "scale_embedding": True}
T5 = {"d_model": 12, "num_layers": 2, "num_decoder_layers": 3, "num_heads": 3, "d_kv": 5, "d_ff": 20}
FLAN = T5 | {"tie_word_embeddings": False, "feed_forward_proj": "gated-gelu", "num_decoder_layers": 1}
FLAN |= {"relative_attention_num_buckets": 6, "relative_attention_max_distance": 5, "layer_norm_epsilon": 1e-3}
SEPARATE = PAIR | {"share_encoder_decoder_embeddings": False, "decoder_vocab_size": 90}
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
    Case("BertForMultipleChoice", "bert", choices("logits"), chosen, ({}, DEEP), "choose"),
    Case("GPT2DoubleHeadsModel", "bpe", choices("mc_logits"), chosen, (GPT,), "choose", plain),
    *(
        Case(f"{family}{architecture}", tokenizer, theirs, ours, shapes, task, batch)
        for family, tokenizer, batch, one, other in (
            ("Roberta", "roberta", unsegmented, ROBERTA, ROBERTA | DEEP | {"type_vocab_size": 1}),
            ("XLMRoberta", "roberta", unsegmented, ROBERTA | {"type_vocab_size": 1}, ROBERTA | WIDE),
            ("DistilBert", "bert", unsegmented, DISTIL, DISTIL | {"n_layers": 3, "n_heads": 2, "activation": "relu"}),
            ("Electra", "bert", framed, {"embedding_size": 6}, {"embedding_size": 12} | DEEP),
        )
        for architecture, theirs, ours, shapes, task in (
            *(
                [("Model", both_of_body, body, (one, other), "pretrain")]
                if "Roberta" in family
                else [("Model", steps("last_hidden_state"), bare, (one, other), "pretrain")]
            ),
            ("ForMaskedLM", steps("logits"), pretrained, (one, other), "pretrain"),
            ("ForSequenceClassification", whole("logits"), scores, (one, LABELS | other), "classify"),
            ("ForSequenceClassification", whole("logits"), scores, ({"num_labels": 1} | one,), "regress"),
            ("ForTokenClassification", steps("logits"), placed, (LABELS | one,), "tag"),
            ("ForQuestionAnswering", steps("start_logits", "end_logits"), spans, (one,), "answer"),
            ("ForMultipleChoice", choices("logits"), chosen, (one,), "choose"),
        )
    ),
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
        whole("logits"),  # the numbers of their vectors have another order
        translated,
        (
            PAIR,
            PAIR | {"d_model": 9, "encoder_attention_heads": 3, "decoder_attention_heads": 3, "decoder_layers": 1},
            PAIR | {"scale_embedding": False, "activation_function": "relu"},
            SEPARATE | {"activation_function": "gelu"},
            SEPARATE | {"tie_word_embeddings": False, "scale_embedding": False},
        ),
        "translate",
        paired,
    ),
    Case(
        "BartForConditionalGeneration",
        "bpe",
        both_sides,
        encoded_and_translated,
        (PAIR, PAIR | {"decoder_layers": 1, "scale_embedding": False, "activation_function": "gelu"}),
        "translate",
        paired,
    ),
    Case(
        "T5ForConditionalGeneration",
        "bpe",
        both_sides,
        encoded_and_translated,
        (T5, T5 | {"d_kv": 4, "feed_forward_proj": "gelu", "num_decoder_layers": None}, FLAN),
        "translate",
        paired,
    ),
    Case(
        "BlenderbotForConditionalGeneration",
        "bpe",
        both_sides,
        encoded_and_translated,
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
    peer: Any = shaken(model(model.config_class(vocab_size=tokenizer.vocab_size, **shape)))
    if "Bart" in case.architecture:  # two rows that nothing reads
        for side in (peer.model.encoder, peer.model.decoder):
            side.embed_positions.weight.data[:2] = 0
    if "T5" in case.architecture and not peer.config.scale_decoder_outputs:  # as in FLAN-T5
        peer.lm_head.weight = nn.Parameter(torch.randn_like(peer.lm_head.weight))
    return peer


def saved(peer: Any, folder: Path, tokenizer: Tokenizer) -> Path:
    peer.save_pretrained(folder)
    tokenizer.save(folder / "tokenizer.json")
    return folder


def gradients(outputs: Outputs, module: nn.Module) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(7)
    expected = [torch.randn(one.shape, generator=generator) for one in outputs]
    module.zero_grad()
    sum((one * other).sum() for one, other in zip(outputs, expected, strict=True)).backward()  # type: ignore[union-attr]
    named = module.named_parameters(remove_duplicate=False)  # XLM-RoBERTa names a tied table by its output first
    return {name: torch.zeros_like(p) if p.grad is None else p.grad.clone() for name, p in named}


@pytest.fixture(params=ROWS, ids=lambda row: f"{label(row[0])}-{row[1]}", scope="module")
def bridge(request: Any, tokens: dict[str, Tokenizer], tmp_path_factory: Any) -> Any:
    """A random model of theirs, its folder, and the run that it became."""
    case, index = request.param
    tokenizer = tokens[case.tokenizer]
    if case.shapes[index].get("share_encoder_decoder_embeddings", True) is False:
        case.shapes[index]["decoder_vocab_size"] = tokenizer.vocab_size
    peer = random_peer(case, index, tokenizer)
    folder = tmp_path_factory.mktemp("bridge")
    run = import_model(saved(peer, folder / "theirs", tokenizer), folder / "run")
    torch.manual_seed(3)
    return case, peer, run, case.batch(tokenizer), folder


def test_what_they_save_gives_the_same_outputs_and_gradients(bridge: Any) -> None:
    case, peer, run, batch, folder = bridge
    network = run.network
    assert run.config.task.name == case.task
    theirs, ours = case.theirs(peer, batch), case.ours(network, batch)
    assert len(theirs) == len(ours)
    for one, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(one, other, **CLOSE)
    model = reading.read_model(folder / "theirs")
    settings = run.config.model
    mine, expected = gradients(ours, network), gradients(theirs, peer)
    present = [entry for entry in model.head.optional if entry.hub_names[0] in expected]
    maps = (*model.mapping.maps(settings, model.head), *present)
    entries = [entry for entry in maps if entry.hub_names[0] in expected]
    named = dict(peer.named_parameters(remove_duplicate=False))
    mapped = {id(named[name]) for entry in entries for name in entry.hub_names}
    assert [name for name, one in named.items() if one.requires_grad and id(one) not in mapped] == []
    for entry in entries:
        for name, gradient in entry.write(mine[entry.name]).items():
            torch.testing.assert_close(
                gradient, expected[name], rtol=1e-4, atol=1e-4, msg=lambda said, n=name: f"{n}: {said}"
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
    again, info = getattr(transformers, case.architecture).from_pretrained(back, output_loading_info=True)
    assert not any(info[name] for name in ("missing_keys", "unexpected_keys", "mismatched_keys")), info
    for one, other in zip(case.theirs(again.eval(), batch), case.theirs(peer, batch), strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-6)


QUESTION = "The old cat saw a new hat."
ANSWERS = ["The man sat.", "A dog bit the unhappy man; he wasn't amused!", "über die Brücke"]


def test_an_answer_is_theirs(tokens: dict[str, Tokenizer], tmp_path: Path) -> None:
    """From texts to probabilities: BERT reads a pair of texts for each choice, and their tokenizer gives the same."""
    case = next(case for case in CASES if case.architecture == "BertForMultipleChoice")
    case = replace(case, shapes=({"max_position_embeddings": 64},))
    run = import_model(saved(random_peer(case, 0, tokens["bert"]), tmp_path / "theirs", tokens["bert"]), tmp_path / "r")
    back = export_model(run.path, tmp_path / "back")
    peer, tokenizer = (
        transformers.AutoModelForMultipleChoice.from_pretrained(back).eval(),
        transformers.AutoTokenizer.from_pretrained(back),
    )
    given = tokenizer([QUESTION] * len(ANSWERS), ANSWERS, return_tensors="pt", padding=True)
    expected = peer(**{name: tensor[None] for name, tensor in given.items()}).logits[0].softmax(dim=0)
    record = run.answer(QUESTION, choices=ANSWERS, probabilities=True)
    torch.testing.assert_close(torch.tensor(record["probabilities"]), expected, **CLOSE)
    assert record["choice"] == int(expected.argmax())
    assert record["answer"] == ANSWERS[record["choice"]]


@pytest.mark.parametrize("normalize", ["none", "tokens", "characters"])
def test_a_likelihood_is_theirs(normalize: str, tokens: dict[str, Tokenizer], tmp_path: Path) -> None:
    """log p(choice | question) of a GPT-2 that was imported, and its softmax over the choices."""
    case = next(case for case in CASES if case.architecture == "GPT2LMHeadModel")
    case, tokenizer = replace(case, shapes=(GPT | {"n_positions": 128},)), tokens["bpe"]
    peer = random_peer(case, 0, tokenizer)
    run = import_model(saved(peer, tmp_path / "theirs", tokenizer), tmp_path / "r")
    expected = []
    for answer in ANSWERS:
        ids = torch.tensor(tokenizer.encode(f"{QUESTION} {answer}", strict=False)).long()
        before = len(tokenizer.encode(QUESTION, strict=False))
        log_probs = peer(ids[None]).logits[0].log_softmax(dim=-1)
        scores = log_probs[before - 1 : -1].gather(1, ids[before:, None])
        size = {"none": 1, "tokens": len(scores), "characters": len(answer)}[normalize]
        expected.append(scores.sum() / size)
    record = run.answer(QUESTION, choices=ANSWERS, probabilities=True, normalize=normalize)
    torch.testing.assert_close(torch.tensor(record["probabilities"]), torch.stack(expected).softmax(dim=0), **CLOSE)


# Networks of ours, as they are trained by default and otherwise


def mapping_of(settings: Any, architecture: str, tensors: dict[str, Tensor]) -> tuple[ModelMapping, HubHead]:
    for mapping in MAPPINGS:
        if mapping.model == settings.name and mapping.supports(settings):
            for head in mapping.heads:
                names = {entry.name for entry in (*mapping.maps(settings, head), *head.optional)}
                if head.architecture == architecture and tensors.keys() - mapping.constants(settings).keys() <= names:
                    return mapping, head
    raise KeyError(architecture)


SMALL = {"width": 12, "layers": 2, "heads": 3}
LEARNED = {"positions": "learned", "shared_positions": False}
OURS: list[tuple[str, dict[str, Any]]] = [
    ("GPT2LMHeadModel", {"name": "gpt"}),
    ("GPT2LMHeadModel", {"name": "gpt", "activation": "gelu", "feedforward": 5, "eps": 1e-4, "dropout": 0.3}),
    ("OpenAIGPTLMHeadModel", {"name": "gpt", "norm": "after"}),
    ("OpenAIGPTLMHeadModel", {"name": "gpt", "norm": "after", "activation": "relu", "feedforward": 48}),
    ("GPT2LMHeadModel", {"name": "gpt", "positions": "sinusoidal"}),
    ("OpenAIGPTLMHeadModel", {"name": "gpt", "norm": "after", "positions": "none", "context_length": 20}),
    ("BlenderbotForConditionalGeneration", {"name": "transformer"}),
    ("BlenderbotForConditionalGeneration", {"name": "transformer", "positions": "none"}),
    ("BlenderbotForConditionalGeneration", {"name": "transformer", "positions": "learned", "decoder_layers": 1}),
    ("MarianMTModel", {"name": "transformer", "norm": "after"}),
    ("MarianMTModel", {"name": "transformer", "norm": "after", "scale": False, "activation": "gelu-tanh", "width": 9}),
    ("MarianMTModel two vocabularies", {"name": "transformer", "norm": "after", "decoder_layers": 1}),
    ("MarianMTModel two vocabularies", {"name": "transformer", "norm": "after", "tie": False}),
    ("BartForConditionalGeneration", {"name": "transformer", "norm": "after", "embedding_norm": True}),
    ("BartForConditionalGeneration", {"name": "transformer", "norm": "after", "embedding_norm": True, **LEARNED}),
    ("T5ForConditionalGeneration", {"name": "t5"}),
    ("T5ForConditionalGeneration", {"name": "t5", "gated": True, "activation": "gelu", "tie": False, "head_size": 5}),
    ("T5ForConditionalGeneration", {"name": "t5", "decoder_layers": 1, "buckets": 9, "max_distance": 7, "eps": 1e-3}),
]


@pytest.mark.parametrize(("architecture", "values"), OURS, ids=lambda one: one if isinstance(one, str) else "")
def test_networks_of_ours_are_theirs(
    architecture: str, values: dict[str, Any], tokens: dict[str, Tokenizer], tmp_path: Path
) -> None:
    architecture, _, apart = architecture.partition(" ")
    settings = registry.models.load(values["name"]).Settings(**(SMALL | values))
    source, target = tokens["bpe"], tokens["two"] if apart else tokens["bpe"]
    torch.manual_seed(0)

    def built(model: Any) -> Any:
        if model.name == "gpt":
            return token_network(model, source.vocab_size, 13)
        return encoder_decoder_network(model, source.vocab_size, target.vocab_size, not apart, 15)

    network: Any = shaken(built(settings))
    ids = {"eos_token_id": target.eos, "pad_token_id": target.eos, "decoder_start_token_id": target.eos}
    mapping, head = mapping_of(settings, architecture, weights(network))
    tokenizers = {"tokenizer": target} | ({"source_tokenizer": source} if apart else {})
    writing.write_model(tmp_path / "a", mapping, head, settings, weights(network), tokenizers, ids)

    auto = transformers.AutoModelForCausalLM if settings.name == "gpt" else transformers.AutoModelForSeq2SeqLM
    peer, info = auto.from_pretrained(tmp_path / "a", output_loading_info=True)
    assert type(peer).__name__ == architecture
    assert not any(info[name] for name in ("missing_keys", "unexpected_keys", "mismatched_keys")), info
    batch = plain(target) if settings.name == "gpt" else paired(target)
    result = placed(network, batch) if settings.name == "gpt" else translated(network, batch)
    expected = steps("logits")(peer.eval(), batch) if settings.name == "gpt" else whole("logits")(peer.eval(), batch)
    torch.testing.assert_close(result[0], expected[0], **CLOSE)

    again = reading.read_model(tmp_path / "a")
    assert not again.notes
    expected = mapping.constants(settings) | weights(network)
    copies = again.tensors.keys() - expected.keys()  # a table of positions that both sides share, they have twice
    assert copies <= {"backbone.decoder_positions.weight"}
    expected |= {name: expected[name.replace("decoder_positions", "positions")] for name in copies}
    assert expected.keys() == again.tensors.keys()
    assert all(torch.equal(tensor, again.tensors[name]) for name, tensor in expected.items())
    read: Any = built(registry.models.load(settings.name).Settings(**again.settings)).eval()
    load_weights(read, again.tensors)
    same = placed(read, batch) if settings.name == "gpt" else translated(read, batch)
    torch.testing.assert_close(same[0], result[0], rtol=0, atol=1e-6)
    assert again.tokenizers["tokenizer"].names == target.names
    assert again.tokenizers.get("source_tokenizer", target).names == source.names


# Tokenizers

TEXTS = [*SENTENCES, "the cat.  A hat", "tab\tand  blanks ", "unseen words: zebra 😀 Ωμέγα", "\n a line\nanother", ""]
KINDS = {
    "bert": {"lowercase": True},
    "byte-bpe": {"vocab_size": 300},
    "bpe": {},
    "word": {},
    "wordpiece": {},
    "char": {},
    "unigram": {},
}
TYPES = {"bert": ["bert"], "byte-bpe": ["gpt2", "openai-gpt", "marian", "blenderbot"]}


@pytest.mark.parametrize(
    ("kind", "model_type"), [(kind, one) for kind in KINDS for one in TYPES.get(kind, ["gpt2", "marian"])]
)
def test_tokenizers_of_ours_are_theirs(kind: str, model_type: str, tmp_path: Path) -> None:
    """The same ids for the same texts, with what stands around them; and the same special tokens."""
    ours = trained(kind, **KINDS[kind])
    closed = model_type in ("marian", "blenderbot")
    writing.write_tokenizer(tmp_path, ours, 512, closed, segments=ours.has_cls_sep)
    (tmp_path / "config.json").write_text(json.dumps({"model_type": model_type}))
    peer = transformers.AutoTokenizer.from_pretrained(tmp_path)
    end = [ours.eos] if closed else []
    for text in TEXTS:
        ids = ours.encode(text, strict=False)
        assert peer(text)["input_ids"] == [*(ours.frame(ids) if ours.has_cls_sep else ids), *end], text
    if ours.has_cls_sep:
        pair = peer(TEXTS[0], TEXTS[1])
        both = ours.frame(ours.encode(TEXTS[0], strict=False), ours.encode(TEXTS[1], strict=False))
        assert pair["input_ids"] == both.tolist()
        ends = np.cumsum(both == ours.sep)
        assert pair["token_type_ids"] == (np.concatenate([[0], ends[:-1]]) > 0).astype(int).tolist()
    padded = peer(TEXTS[:2], padding=True, return_tensors="pt")
    assert padded["attention_mask"].sum(1).tolist() == [len(peer(text)["input_ids"]) for text in TEXTS[:2]]
    assert (peer.eos_token_id, peer.unk_token_id) == (ours.eos, ours.unk)
    assert peer.pad_token_id == (ours.eos if ours.pad is None else ours.pad)
    assert (peer.cls_token_id, peer.sep_token_id, peer.mask_token_id) == (ours.cls, ours.sep, ours.mask)
    assert len(peer) == ours.vocab_size
    assert peer.model_max_length == 512
    again = Tokenizer.load(tmp_path)
    assert all(again.encode(text, strict=False).tolist() == ours.encode(text, strict=False).tolist() for text in TEXTS)


# Files: in shards, as pickles, in half precision, with names of older versions


@pytest.fixture(scope="module")
def peer(tokens: dict[str, Tokenizer]) -> Any:
    return random_peer(CASES[3], 0, tokens["bert"])


def as_shards(peer: Any, folder: Path) -> None:
    peer.save_pretrained(folder, max_shard_size="8KB")
    assert len(list(folder.glob("model-*.safetensors"))) > 1


def as_pickle(peer: Any, folder: Path) -> None:
    peer.config.save_pretrained(folder)
    torch.save(peer.state_dict(), folder / "pytorch_model.bin")


def as_old_pickle(peer: Any, folder: Path) -> None:
    """As PyTorch wrote before it zipped them, with the names that layer norms had in TensorFlow."""
    peer.config.save_pretrained(folder)
    names = {"LayerNorm.weight": "LayerNorm.gamma", "LayerNorm.bias": "LayerNorm.beta"}
    renamed = {}
    for name, tensor in peer.state_dict().items():
        ending = next((one for one in names if name.endswith(one)), None)
        renamed[name.removesuffix(ending) + names[ending] if ending else name] = tensor
    renamed["bert.embeddings.position_ids"] = torch.arange(14)[None]
    torch.save(renamed, folder / "pytorch_model.bin", _use_new_zipfile_serialization=False)


def as_pickles(peer: Any, folder: Path) -> None:
    peer.config.save_pretrained(folder)
    named = list(peer.state_dict().items())
    parts = {"pytorch_model-00001-of-00002.bin": named[:9], "pytorch_model-00002-of-00002.bin": named[9:]}
    for file, part in parts.items():
        torch.save(dict(part), folder / file)
    placed = {name: file for file, part in parts.items() for name, _ in part}
    (folder / "pytorch_model.bin.index.json").write_text(json.dumps({"metadata": {}, "weight_map": placed}))


@pytest.mark.parametrize("layout", [as_shards, as_pickle, as_old_pickle, as_pickles])
def test_every_layout_of_weights_is_read(layout: Any, peer: Any, tmp_path: Path) -> None:
    peer.save_pretrained(tmp_path / "b")  # first: it is what names the architecture in the config
    layout(peer, tmp_path)
    result, expected = reading.read_model(tmp_path), reading.read_model(tmp_path / "b")
    assert not result.notes
    assert result.tensors.keys() == expected.tensors.keys()
    assert all(torch.equal(tensor, expected.tensors[name]) for name, tensor in result.tensors.items())


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_weights_of_other_precision_are_read_as_singles(dtype: torch.dtype, peer: Any, tmp_path: Path) -> None:
    peer.save_pretrained(tmp_path)
    expected = load_file(tmp_path / "model.safetensors")
    save_file({name: one.to(dtype) for name, one in expected.items()}, tmp_path / "model.safetensors", {"format": "pt"})
    result = reading.read_model(tmp_path)
    assert all(tensor.dtype == torch.float32 for tensor in result.tensors.values())
    torch.testing.assert_close(
        result.tensors["input.weight"], expected["bert.embeddings.word_embeddings.weight"].to(dtype).float()
    )


def test_gpt2_as_it_lies_on_the_hub(tokens: dict[str, Tokenizer], tmp_path: Path) -> None:
    """Without the prefix of its body, with the constant triangles, and with the tied table a second time."""
    gpt = next(case for case in CASES if case.architecture == "GPT2LMHeadModel")
    random_peer(gpt, 0, tokens["bpe"]).save_pretrained(tmp_path)
    expected = reading.read_model(tmp_path)
    stored = load_file(tmp_path / "model.safetensors")
    bare = {name.removeprefix("transformer."): tensor for name, tensor in stored.items()}
    more = {f"h.{index}.attn.bias": torch.ones(1, 1, 13, 13).tril() for index in range(2)}
    more |= {f"h.{index}.attn.masked_bias": torch.tensor(-1e4) for index in range(2)}
    more["lm_head.weight"] = bare["wte.weight"].clone()
    save_file(bare | more, tmp_path / "model.safetensors", {"format": "pt"})
    result = reading.read_model(tmp_path)
    assert not result.notes
    assert all(torch.equal(tensor, expected.tensors[name]) for name, tensor in result.tensors.items())


def test_a_table_with_rows_to_spare_is_cut_and_told(tokens: dict[str, Tokenizer], tmp_path: Path) -> None:
    tokenizer = tokens["bert"]
    case = next(case for case in CASES if case.architecture == "BertForMaskedLM")
    peer = random_peer(case, 0, tokenizer)
    saved(peer, tmp_path / "exact", tokenizer)
    peer.resize_token_embeddings(tokenizer.vocab_size + 6)
    saved(peer, tmp_path / "padded", tokenizer)
    result, expected = reading.read_model(tmp_path / "padded"), reading.read_model(tmp_path / "exact")
    rows = f"the token vectors have {tokenizer.vocab_size + 6} rows for {tokenizer.vocab_size} tokens"
    assert result.notes == [f"{rows}; the rest is left out"]
    assert all(torch.equal(tensor, expected.tensors[name]) for name, tensor in result.tensors.items())


def test_a_body_takes_no_more_than_it_needs(peer: Any, tmp_path: Path) -> None:
    """A folder of a classifier that says it is a bare BERT: its head is left, and that is told."""
    peer.save_pretrained(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(config | {"architectures": ["BertModel"]}))
    result = reading.read_model(tmp_path)
    assert result.head.kind == "pretraining"
    assert {name for name in result.tensors if name.startswith("head.")} == {"head.pooler.weight", "head.pooler.bias"}
    assert len(result.notes) == 1
    assert "classifier.weight" in result.notes[0]


def test_a_body_without_its_pooler_gets_a_new_one(tokens: dict[str, Tokenizer], tmp_path: Path) -> None:
    peer = transformers.BertModel(
        transformers.BertConfig(vocab_size=tokens["bert"].vocab_size, **BERT), add_pooling_layer=False
    )
    said: list[str] = []
    run = import_model(saved(shaken(peer), tmp_path / "theirs", tokens["bert"]), tmp_path / "run", said.append)
    assert [one for one in said if "pooler.dense.weight, pooler.dense.bias: these are initialized" in one]
    batch = framed(tokens["bert"])
    result = body(run.network, batch)[0]
    torch.testing.assert_close(result, peer(**asked(batch)).last_hidden_state[batch["real"]], **CLOSE)
    assert 0.01 < run.network.head.pooler.weight.std() < 0.03
    # a warm start from it has a new pooler, too
    assert "head.pooler.weight" not in reading.read_model(tmp_path / "theirs").tensors


# Runs, from the text to the answer


def made_random(run: Any) -> Any:
    """Weights large enough that every input has an answer of its own."""
    file = run.path / "model.safetensors"
    torch.manual_seed(5)
    save_file({name: one + 0.4 * torch.randn_like(one) for name, one in load_file(file).items()}, file)
    return seriatim.load(run.path)


@pytest.fixture(scope="module")
def pairs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    draw = np.random.default_rng(0)
    words = ["one", "two", "three", "four", "five"]
    lines = [" ".join(draw.choice(words, draw.integers(1, 6))) for _ in range(80)]
    path = tmp_path_factory.mktemp("pairs") / "pairs.tsv"
    path.write_text("".join(f"{one}\t{' '.join(w[::-1] for w in one.split())}\n" for one in lines), encoding="utf-8")
    return path


@pytest.mark.parametrize(
    ("norm", "tokenizer", "architecture"),
    [
        ("before", {"kind": "bpe", "vocab_size": 40}, "BlenderbotForConditionalGeneration"),
        ("after", {"kind": "bpe", "vocab_size": 40}, "MarianMTModel"),
        ("after", {"kind": "word"}, "MarianMTModel"),
    ],
)
def test_a_translator_says_the_same_there(
    norm: str, tokenizer: dict[str, Any], architecture: str, pairs: Path, tmp_path: Path
) -> None:
    """Trained here, asked here and there: tokens, beginning, beam search and what is never said are all the same."""
    model = {"preset": "tiny", "width": 24, "heads": 2, "layers": 1, "decoder_layers": 1, "norm": norm}
    settings = {"model": model, "task": {"tokenizer": tokenizer}}
    arguments = {"settings": settings, "out": tmp_path / "run", "steps": 1, "report": False}
    run = seriatim.train("translate", str(pairs), "transformer", **arguments)
    run = made_random(run)
    folder = export_model(run.path)
    assert folder == tmp_path / "run" / "transformers"
    source = transformers.AutoTokenizer.from_pretrained(folder)
    target = transformers.AutoTokenizer.from_pretrained(folder / "target" if tokenizer["kind"] == "word" else folder)
    peer = transformers.AutoModelForSeq2SeqLM.from_pretrained(folder).eval()
    assert type(peer).__name__ == architecture
    texts = ["two one", "five", "three four one two", "five five two"]
    said = peer.generate(**source(texts, padding=True, return_tensors="pt"), num_beams=4, max_length=13)
    options = {"beams": 4, "nbest": 4, "max_tokens": 12, "length_norm": "power", "replace_unknown": False}
    result = run.translate(texts, **options)
    theirs = [[token for token in row[1:] if token != target.eos_token_id] for row in said.tolist()]
    assert len({tuple(one) for one in theirs}) > 1
    assert [row["translation"][0].split() for row in result] == [target.decode(one).split() for one in theirs]
    again = import_model(folder, tmp_path / "again")
    texts_again = [row["translation"] for row in again.translate(texts, **options)]
    assert texts_again == [row["translation"] for row in result]


def test_a_language_model_goes_on_the_same_there(book: Path, tmp_path: Path) -> None:
    """A text begins a line with a model that was trained here, and goes on doing so where it comes back."""
    settings = {
        "model": {"width": 16, "layers": 1, "heads": 2},
        "task": {"tokenizer": {"kind": "byte-bpe", "vocab_size": 300}, "context_length": 32},
    }
    arguments = {"settings": settings, "out": tmp_path / "run", "steps": 1, "report": False}
    run = seriatim.train("language", str(book), "gpt", **arguments)
    run = made_random(run)
    folder = export_model(run.path)
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    peer = transformers.AutoModelForCausalLM.from_pretrained(folder).eval()
    given = tokenizer("\nthe old cat", return_tensors="pt")
    said = peer.generate(**given, do_sample=False, max_new_tokens=12)[0]
    again = import_model(folder, tmp_path / "again")
    for one in (run, again):
        assert "\nthe old cat" + one.generate("the old cat", temperature=0, max_tokens=12) == tokenizer.decode(said)
        loss = peer(**given, labels=given["input_ids"]).loss.item() * (given["input_ids"].shape[1] - 1)
        assert one.score("the old cat")["log_probability"] == pytest.approx(-loss, abs=1e-4)


def test_a_classifier_of_pairs_answers_the_same_there(tmp_path: Path) -> None:
    """Two texts, framed and told apart by their segments, by each tokenizer for itself."""
    rows = [(one, other, "same" if one == other else "other") for one in SENTENCES[:3] for other in SENTENCES[:3]] * 4
    lines = [json.dumps({"first": one, "second": other, "label": label}) for one, other, label in rows]
    (tmp_path / "pairs.jsonl").write_text("\n".join(lines), encoding="utf-8")
    settings = {
        "model": {"width": 16, "layers": 1, "heads": 2, "context_length": 60},
        "task": {"tokenizer": {"kind": "bert", "vocab_size": 90, "lowercase": True}},
        "data": {"columns": {"input": "first,second"}},
    }
    run = seriatim.train(
        "classify",
        str(tmp_path / "pairs.jsonl"),
        "bert",
        settings=settings,
        out=tmp_path / "run",
        steps=1,
        report=False,
    )
    run = made_random(run)
    folder = export_model(run.path)
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    peer = transformers.AutoModelForSequenceClassification.from_pretrained(folder).eval()
    asked = [(SENTENCES[0], SENTENCES[1]), (SENTENCES[2], SENTENCES[2]), ("a hat", SENTENCES[3])]
    given = tokenizer([one for one, _ in asked], [other for _, other in asked], padding=True, return_tensors="pt")
    expected = peer(**given).logits.softmax(-1).detach()
    for one in (run, import_model(folder, tmp_path / "again")):
        for answer, row in zip(one.predict(asked, probabilities=True), expected, strict=True):
            assert answer["probabilities"] == pytest.approx(
                {peer.config.id2label[index]: value for index, value in enumerate(row.tolist())}, abs=1e-5
            )


def test_the_first_gpt_with_its_own_tokenizer(tmp_path: Path) -> None:
    """vocab.json and merges.txt, words that end in </w>, and neither a token for the end nor one for a new line."""
    letters = sorted({letter for text in SENTENCES for letter in text.lower() if letter.isascii() and letter.isalpha()})
    merges = [("t", "h"), ("th", "e</w>"), ("c", "a"), ("ca", "t</w>")]
    names = ["<unk>", *letters, *(f"{letter}</w>" for letter in [*letters, ".", ","]), *map("".join, merges)]
    peer = transformers.OpenAIGPTLMHeadModel(transformers.OpenAIGPTConfig(vocab_size=len(names), **GPT))
    shaken(peer, 0.4).save_pretrained(tmp_path / "theirs")
    (tmp_path / "theirs" / "vocab.json").write_text(json.dumps({name: index for index, name in enumerate(names)}))
    (tmp_path / "theirs" / "merges.txt").write_text("#version: 0.2\n" + "\n".join(map(" ".join, merges)) + "\n")
    tokenizer = transformers.OpenAIGPTTokenizer.from_pretrained(tmp_path / "theirs")
    run = import_model(tmp_path / "theirs", tmp_path / "run")
    ids = tokenizer("The cat sat, the man.")["input_ids"]
    assert run.task.processor.tokenizer.encode("The cat sat, the man.").tolist() == ids
    given = torch.tensor([ids[:6]])  # as they stand: nothing is set before them
    expected = peer(given).logits[0].log_softmax(-1)[:-1].gather(1, given[0, 1:, None]).sum().item()
    assert run.score(tokenizer.decode(ids[:6]))["log_probability"] == pytest.approx(expected, abs=1e-4)


def test_a_translator_of_theirs_is_trained_on(pairs: Path, tokens: dict[str, Tokenizer], tmp_path: Path) -> None:
    """From their folder, and from the run that it became: the weights, and the token that its decoder begins with."""
    marian = next(case for case in CASES if case.architecture == "MarianMTModel")
    peer = random_peer(marian, 0, tokens["bpe"])
    folder = saved(peer, tmp_path / "theirs", tokens["bpe"])
    imported = import_model(folder, tmp_path / "imported")
    batch = paired(tokens["bpe"])
    for number, source in enumerate([folder, imported.path]):
        settings = {"start": str(source), "train": {"optimizer": {"lr": 1e-9}}}
        out = tmp_path / f"run{number}"
        run = seriatim.train("translate", str(pairs), settings=settings, out=out, steps=1, report=False)
        assert run.task.processor.tokens.start == peer.config.decoder_start_token_id == 0
        torch.testing.assert_close(translated(run.network, batch), whole("logits")(peer, batch), **CLOSE)
