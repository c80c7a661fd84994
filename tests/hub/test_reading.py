"""Folders of models that cannot be used: each is refused with a code, the cause and a remedy, all problems at once."""

from __future__ import annotations

import json
import pickle  # to write hostile weight files, whose code must not run when the hub reads them
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from seriatim.core import registry
from seriatim.core.errors import SeriatimError
from seriatim.data.tokenizers import Tokenizer, TokenizerSettings
from seriatim.hub import reading, writing
from seriatim.hub.mappings import by_model_type
from seriatim.nn.encoder_decoder import encoder_decoder_network
from seriatim.nn.network import token_network, weights

WEIGHTS = "model.safetensors"
BLOCK = "bert.encoder.layer.1"


def trained(kind: Any, size: int) -> Tokenizer:
    texts = ["the old cat saw a new hat, and the man sat\n", "a dog bit the unhappy man; he was not amused\n"]
    return Tokenizer.train(TokenizerSettings(kind=kind, vocab_size=size), texts)


BERT = {"vocab_size": 50, "hidden_size": 8, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 12}
BERT |= {"max_position_embeddings": 10, "type_vocab_size": 2, "model_type": "bert", "num_labels": 3}
BERT |= {"architectures": ["BertForSequenceClassification"]}
SHAPES = {
    "embeddings.word_embeddings.weight": (50, 8),
    "embeddings.position_embeddings.weight": (10, 8),
    "embeddings.token_type_embeddings.weight": (2, 8),
    "pooler.dense.weight": (8, 8),
}
LAYER = {"attention.self.query": (8, 8), "attention.self.key": (8, 8), "attention.self.value": (8, 8)}
LAYER |= {"attention.output.dense": (8, 8), "intermediate.dense": (12, 8), "output.dense": (8, 12)}


def model_tensors() -> dict[str, Tensor]:
    """A BERT that is whole, made without transformers."""
    torch.manual_seed(0)
    shapes: dict[str, tuple[int, ...]] = dict(SHAPES)
    shapes |= {f"encoder.layer.{index}.{name}.weight": shape for index in range(2) for name, shape in LAYER.items()}
    shapes |= {
        name.replace(".weight", ".bias"): shape[:1] for name, shape in shapes.items() if "embeddings" not in name
    }
    norms = ["embeddings", *(f"encoder.layer.{i}.{part}" for i in range(2) for part in ("attention.output", "output"))]
    shapes |= {f"{place}.LayerNorm.{kind}": (8,) for place in norms for kind in ("weight", "bias")}
    tensors = {f"bert.{name}": torch.randn(shape) for name, shape in shapes.items()}
    return tensors | {"classifier.weight": torch.randn(3, 8), "classifier.bias": torch.randn(3)}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "config.json").write_text(json.dumps(BERT))
    save_file(model_tensors(), tmp_path / WEIGHTS)
    return tmp_path


def changed(folder: Path, **values: Any) -> None:
    file = folder / "config.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), **values}))


def stored(folder: Path, change: Callable[[dict[str, Tensor]], Any]) -> None:
    tensors = load_file(folder / WEIGHTS)
    change(tensors)
    save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, folder / WEIGHTS)


def refused(folder: Path, code: str, *texts: str) -> SeriatimError:
    with pytest.raises(SeriatimError) as caught:
        reading.read_model(folder)
    error = caught.value
    assert error.code == code
    assert error.exit_code == 2
    assert error.remedy
    for text in texts:
        assert text in error.cause, error.cause
    return error


def test_whole_as_it_is(folder: Path) -> None:
    model = reading.read_model(folder)
    assert (model.head.kind, model.labels, model.notes) == ("classification", ("LABEL_0", "LABEL_1", "LABEL_2"), [])


# What is no model


def test_no_folder(tmp_path: Path) -> None:
    refused(tmp_path / "nowhere", "hub.missing", "nowhere")


def test_a_folder_of_something_else(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("a diary")
    refused(tmp_path, "hub.not-a-model", str(tmp_path), "config.json")


def test_a_model_without_weights(folder: Path) -> None:
    (folder / WEIGHTS).unlink()
    refused(folder, "hub.not-a-model", "model.safetensors", "pytorch_model.bin")


@pytest.mark.parametrize("text", ["{", "[1, 2]", "[" * 100_000, b"\xff"])
def test_config_that_is_broken(folder: Path, text: Any) -> None:
    (folder / "config.json").write_bytes(text if isinstance(text, bytes) else text.encode())
    refused(folder, "hub.damaged", "config.json")


@pytest.mark.parametrize(("kind", "said"), [("llama", "llama"), (None, "no type"), (["bert"], "bert")])
def test_types_that_are_not_known(folder: Path, kind: Any, said: str) -> None:
    changed(folder, model_type=kind)
    error = refused(folder, "hub.type", said)
    assert error.remedy == f"supported: {', '.join(sorted(by_model_type()))}"


@pytest.mark.parametrize("named", [["BertLMHeadModel"], ["BertForNextSentencePrediction"], "BertLMHeadModel"])
def test_architectures_that_are_not_known(folder: Path, named: Any) -> None:
    changed(folder, architectures=named)
    if isinstance(named, str):  # no list: as if it were not there
        assert reading.read_model(folder).head.architecture == "BertModel"
        return
    error = refused(folder, "hub.architecture", named[0])
    assert "BertForTokenClassification" in error.remedy


# What does not fit together


def test_all_problems_of_a_config_at_once(folder: Path) -> None:
    values = {"hidden_act": "quick_gelu", "hidden_size": "8", "num_hidden_layers": -1, "is_decoder": True}
    changed(folder, **values, position_embedding_type="relative_key", vocab_size=None, num_attention_heads=True)
    error = refused(
        folder, "hub.unfit", "hidden_act is quick_gelu", "hidden_size is '8'", "num_hidden_layers is -1",
        "is_decoder is True", "position_embedding_type is relative_key", "vocab_size is None",
        "num_attention_heads is True",
    )  # fmt: skip
    assert error.cause.count("\n  - ") == 7
    with pytest.raises(SeriatimError):
        reading.read_settings(folder)


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"num_attention_heads": 3}, "width 8 is not a multiple of heads 3"),
        ({"hidden_dropout_prob": 1.5}, "dropout"),
        ({"layer_norm_eps": "small"}, "eps"),
        ({"hidden_act": ["gelu"]}, "hidden_act"),
        ({"num_hidden_layers": 10**9}, "layers"),
        ({"id2label": {"0": "a", "2": "b"}}, "id2label"),
        ({"id2label": ["a", "b"]}, "id2label"),
        ({"num_labels": "three"}, "num_labels"),
        ({"num_labels": 0}, "num_labels"),
    ],
)
def test_settings_that_contradict_each_other(folder: Path, values: dict[str, Any], said: str) -> None:
    changed(folder, **values)
    refused(folder, "hub.unfit", said)


def test_all_missing_tensors_and_wrong_shapes_at_once(folder: Path) -> None:
    """In their names, and with what config.json asks for."""

    def change(tensors: dict[str, Tensor]) -> None:
        del (
            tensors[f"{BLOCK}.output.dense.bias"],
            tensors["bert.embeddings.LayerNorm.weight"],
            tensors["classifier.bias"],
        )
        tensors[f"{BLOCK}.attention.self.key.weight"] = torch.zeros(8, 6)
        tensors[f"{BLOCK}.intermediate.dense.weight"] = tensors[f"{BLOCK}.intermediate.dense.weight"].t()
        tensors["bert.embeddings.position_embeddings.weight"] = torch.zeros(9, 8)
        tensors["classifier.weight"] = torch.zeros(4, 8)
        tensors["bert.pooler.dense.bias"] = torch.zeros(8, dtype=torch.int8)

    stored(folder, change)
    error = refused(
        folder,
        "hub.unfit",
        f"the tensor {BLOCK}.output.dense.bias is missing",
        "the tensor bert.embeddings.LayerNorm.weight is missing",
        "the tensor classifier.bias is missing",
        f"the tensor {BLOCK}.attention.self.key.weight has the shape (8, 6); config.json describes (8, 8)",
        f"the tensor {BLOCK}.intermediate.dense.weight has the shape (8, 12); config.json describes (12, 8)",
        "the tensor bert.embeddings.position_embeddings.weight has the shape (9, 8); config.json describes (10, 8)",
        "the tensor classifier.weight has the shape (4, 8); config.json describes (3, 8)",
        "the tensor bert.pooler.dense.bias has the type int8",
    )
    assert error.cause.count("\n  - ") == 8


def test_weights_of_another_model(folder: Path) -> None:
    save_file({"wte.weight": torch.zeros(50, 8)}, folder / WEIGHTS)
    error = refused(folder, "hub.unfit", "bert.embeddings.word_embeddings.weight is missing", "and 21 more")
    assert error.cause.count("\n") == 21


def test_a_config_of_another_size(folder: Path) -> None:
    changed(folder, intermediate_size=16, vocab_size=51)
    error = refused(
        folder, "hub.unfit", "(12, 8); config.json describes (16, 8)", "(50, 8); config.json describes (51, 8)"
    )
    assert error.cause.count("\n  - ") == 7


def test_a_vocabulary_larger_than_the_table(folder: Path) -> None:
    tokenizer = trained("bert", 60)
    assert tokenizer.vocab_size > 50
    tokenizer.save(folder / "tokenizer.json")
    stored(folder, lambda tensors: tensors.pop("classifier.bias"))
    error = refused(folder, "hub.unfit", f"{tokenizer.vocab_size} tokens", "50 rows", "classifier.bias is missing")
    assert error.cause.count("\n  - ") == 2


def test_a_tokenizer_that_is_broken(folder: Path) -> None:
    (folder / "tokenizer.json").write_text("{}")
    refused(folder, "hub.unfit", "tokenizer.json")


# Files that are damaged, or dangerous


def shards(folder: Path, places: dict[str, str]) -> None:
    (folder / WEIGHTS).rename(folder / "a.safetensors")
    (folder / f"{WEIGHTS}.index.json").write_text(json.dumps({"weight_map": places}))


def test_missing_shards_are_all_named(folder: Path) -> None:
    shards(folder, {"one": "a.safetensors", "two": "b.safetensors", "three": "c.safetensors"})
    error = refused(folder, "hub.shards", "b.safetensors", "c.safetensors")
    assert "a.safetensors" not in error.cause


@pytest.mark.parametrize("outside", ["../a.safetensors", "/tmp/a.safetensors", "sub/../../a.safetensors", "..", ""])
def test_shards_lie_in_the_folder(folder: Path, outside: str) -> None:
    """Though the file may well be there."""
    inner = folder / "inner"
    inner.mkdir()
    (folder / "config.json").rename(inner / "config.json")
    (folder / WEIGHTS).rename(folder / "a.safetensors")
    (inner / f"{WEIGHTS}.index.json").write_text(json.dumps({"weight_map": {"one": outside}}))
    refused(inner, "hub.shards")


@pytest.mark.parametrize("text", ["{", "[]", '{"weight_map": {}}', '{"weight_map": 3}'])
def test_an_index_that_is_broken(folder: Path, text: str) -> None:
    shards(folder, {})
    (folder / f"{WEIGHTS}.index.json").write_text(text)
    refused(folder, "hub.damaged", f"{WEIGHTS}.index.json")


@pytest.mark.parametrize("kept", [0, 5, 200, 0.5, 0.999])
@pytest.mark.parametrize("name", [WEIGHTS, "pytorch_model.bin"])
def test_files_that_are_cut_off(folder: Path, name: str, kept: float) -> None:
    if name != WEIGHTS:
        torch.save(load_file(folder / WEIGHTS), folder / name)
        (folder / WEIGHTS).unlink()
    data = (folder / name).read_bytes()
    (folder / name).write_bytes(data[: int(kept * len(data)) if isinstance(kept, float) else kept])
    refused(folder, "hub.damaged", name)


class Trap:
    """What a pickle may do when it is opened: here, make a file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return (Path.touch, (self.path,))


@pytest.mark.parametrize("layout", ["zipped", "legacy", "bare"])
def test_code_in_a_pickle_is_never_run(folder: Path, layout: str) -> None:
    trap, file = folder / "sprung", folder / "pytorch_model.bin"
    held: dict[str, Any] = {**load_file(folder / WEIGHTS), "more": Trap(trap)}
    (folder / WEIGHTS).unlink()
    if layout == "bare":
        file.write_bytes(pickle.dumps(held["more"], protocol=2))
    else:
        torch.save(held, file, _use_new_zipfile_serialization=layout == "zipped")
    refused(folder, "hub.pickle", "pytorch_model.bin", "may run code")
    assert not trap.exists()
    with open(file, "rb") as opened:  # the trap is one: whoever opens the pickle springs it
        pickle.load(opened) if layout == "bare" else torch.load(file, weights_only=False)  # noqa: S301
    assert trap.exists()


def test_a_pickle_of_something_else_than_tensors(folder: Path) -> None:
    (folder / WEIGHTS).unlink()
    for held in ([torch.zeros(3)], {"state": {"a": torch.zeros(3)}}, {1: torch.zeros(3)}):
        torch.save(held, folder / "pytorch_model.bin")
        refused(folder, "hub.pickle", "named tensors")


def test_the_command_ends_without_a_traceback(folder: Path) -> None:
    (folder / "config.json").write_text(json.dumps(BERT | {"hidden_size": 9}))
    command = [sys.executable, "-m", "seriatim", "import", str(folder), "--out", str(folder / "run")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "hub.unfit" in done.stderr
    assert "width 9 is not a multiple of heads 2" in done.stderr
    assert "Traceback" not in done.stderr + done.stdout
    assert not (folder / "run").exists()


# Variants that have no counterpart

GPT = {"model_type": "gpt2", "n_embd": 8, "n_layer": 1, "n_head": 2, "n_positions": 9, "vocab_size": 20}
PAIR = {"vocab_size": 20, "d_model": 8, "encoder_layers": 1, "decoder_layers": 1, "encoder_attention_heads": 2}
PAIR |= {"decoder_attention_heads": 2, "encoder_ffn_dim": 12, "decoder_ffn_dim": 12, "max_position_embeddings": 11}
T5 = {"model_type": "t5", "vocab_size": 20, "d_model": 8, "num_layers": 1, "num_heads": 2, "d_kv": 4, "d_ff": 12}


@pytest.mark.parametrize(
    ("config", "said"),
    [
        (GPT | {"scale_attn_by_inverse_layer_idx": True}, "scale_attn_by_inverse_layer_idx is True"),
        (GPT | {"reorder_and_upcast_attn": True}, "reorder_and_upcast_attn is True"),
        (GPT | {"scale_attn_weights": False}, "scale_attn_weights is False"),
        (GPT | {"tie_word_embeddings": False}, "tie_word_embeddings is False"),
        (GPT | {"add_cross_attention": True}, "add_cross_attention is True"),
        (GPT | {"n_inner": "4"}, "n_inner is '4'"),
        (GPT | {"model_type": "openai-gpt", "afn": "gelu_new"}, "afn is gelu_new"),
        (PAIR | {"model_type": "marian", "normalize_before": True}, "normalize_before is True"),
        (PAIR | {"model_type": "marian", "static_position_embeddings": False}, "static_position_embeddings is False"),
        (PAIR | {"model_type": "marian", "decoder_ffn_dim": 16}, "decoder_ffn_dim is 16"),
        (PAIR | {"model_type": "marian", "decoder_attention_heads": 4}, "decoder_attention_heads is 4"),
        (PAIR | {"model_type": "marian", "tie_word_embeddings": False}, "tie_word_embeddings is False"),
        (PAIR | {"model_type": "marian", "decoder_vocab_size": -2}, "decoder_vocab_size is -2"),
        (PAIR | {"model_type": "bart", "normalize_before": True}, "normalize_before is True"),
        (PAIR | {"model_type": "bart", "tie_word_embeddings": False}, "tie_word_embeddings is False"),
        (T5 | {"feed_forward_proj": "gated-mish"}, "feed_forward_proj is gated-mish"),
        (T5 | {"is_encoder_decoder": False}, "is_encoder_decoder is False"),
        (T5 | {"d_kv": 0}, "d_kv is 0"),
        (T5 | {"relative_attention_max_distance": 16}, "max_distance"),
        (PAIR | {"model_type": "blenderbot", "normalize_before": False}, "normalize_before is False"),
    ],
)
def test_variants_that_have_no_counterpart(config: dict[str, Any], said: str, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(config))
    refused(tmp_path, "hub.unfit", said)


def written(tmp_path: Path, kind: str, joint: bool = True, **values: Any) -> Path:
    """A folder of ours, of a network with some settings."""
    settings = registry.models.load(values["name"]).Settings(width=8, layers=1, heads=2, **values)
    tokenizer = trained("bpe", 50)
    if values["name"] == "gpt":
        network: Any = token_network(settings, tokenizer.vocab_size, 9)
    else:
        network = encoder_decoder_network(settings, tokenizer.vocab_size, tokenizer.vocab_size, joint, 9)
    mapping = by_model_type()[kind]
    ids = {"eos_token_id": 1, "pad_token_id": 1, "decoder_start_token_id": 1}
    head, tokenizers = mapping.heads[0], {"tokenizer": tokenizer}
    writing.write_model(tmp_path / "out", mapping, head, settings, weights(network), tokenizers, ids)
    return tmp_path / "out"


@pytest.mark.parametrize(
    ("kind", "values", "shared"),
    [
        ("marian", {"name": "transformer", "norm": "after"}, "model.shared.weight"),
        ("bart", {"name": "transformer", "norm": "after", "embedding_norm": True}, "model.shared.weight"),
        ("blenderbot", {"name": "transformer"}, "model.shared.weight"),
        ("t5", {"name": "t5"}, "shared.weight"),
    ],
)
def test_output_weights_that_should_be_those_of_the_input(
    kind: str, values: dict[str, Any], shared: str, tmp_path: Path
) -> None:
    folder = written(tmp_path, kind, **values)
    stored(folder, lambda tensors: tensors.update({"lm_head.weight": tensors[shared].clone()}))
    assert not reading.read_model(folder).notes
    stored(folder, lambda tensors: tensors["lm_head.weight"].add_(0.1))
    refused(folder, "hub.unfit", "lm_head.weight", "differ, but must be equal here")


def test_marian_with_positions_of_its_own(tmp_path: Path) -> None:
    folder = written(tmp_path, "marian", name="transformer", norm="after")
    name = "model.encoder.embed_positions.weight"
    stored(folder, lambda tensors: tensors.update({name: torch.zeros(512, 8)}))
    refused(folder, "hub.unfit", f"{name} has other positions than sinusoids")


@pytest.mark.parametrize(
    ("kind", "values", "said"),
    [
        ("gpt2", {"name": "gpt", "tie": False}, "model.tie"),
        ("gpt2", {"name": "gpt", "tie": None, "embedding": 6}, "model.embedding"),
        ("openai-gpt", {"name": "gpt", "norm": "after", "feedforward": 9}, "model.feedforward"),
        ("openai-gpt", {"name": "gpt", "norm": "after", "activation": "gelu"}, "model.activation is gelu"),
        ("marian", {"name": "transformer", "norm": "after", "positions": "learned"}, "model.positions"),
        ("marian", {"name": "transformer", "norm": "after", "positions": "none"}, "positions are missing"),
        ("blenderbot", {"name": "transformer", "tie": False}, "model.tie"),
        ("blenderbot", {"name": "transformer", "embedding": 6}, "model.embedding"),
        ("blenderbot", {"name": "transformer", "joint": False}, "task.joint"),
        ("blenderbot", {"name": "transformer", "embedding_norm": True}, "model.embedding_norm"),
        ("bart", {"name": "transformer", "norm": "after", "embedding_norm": True, "joint": False}, "task.joint"),
        ("marian", {"name": "transformer", "norm": "after", "tie": False}, "model.tie"),
        ("t5", {"name": "t5", "embedding": 6}, "model.embedding"),
        ("t5", {"name": "t5", "joint": False}, "task.joint"),
    ],
)
def test_networks_that_have_no_place_there(kind: str, values: dict[str, Any], said: str, tmp_path: Path) -> None:
    with pytest.raises(SeriatimError) as caught:
        written(tmp_path, kind, **values)
    assert caught.value.code == "hub.unfit"
    assert said in caught.value.cause
    assert not (tmp_path / "out").exists()
