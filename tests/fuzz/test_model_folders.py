"""Model folders of `transformers`: one that is read becomes a run, and damaged and hostile ones are errors.

The valid folders are made from the mappings themselves: a config.json, and a tensor of each described shape.
"""

from __future__ import annotations

import copy
import json
import os
import pickle  # to write hostile weight files, whose code must not run when they are read
import shutil
import struct
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import example
from hypothesis import strategies as st
from safetensors.torch import save

from fuzzing import HOSTILE, dump_json, fuzz, mutated, mutated_bytes
from seriatim.core.errors import SeriatimError
from seriatim.data.tokenizers import Tokenizer, TokenizerSettings
from seriatim.hub import reading
from seriatim.hub.reading import HubFolder, locate_model, read_model
from seriatim.runs.exchange import import_model

BERT = {
    "model_type": "bert", "hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 8,
    "max_position_embeddings": 8, "type_vocab_size": 2, "hidden_act": "gelu", "layer_norm_eps": 1e-12,
    "hidden_dropout_prob": 0.1, "problem_type": None,
}  # fmt: skip
LABELS = {"id2label": {"0": "no", "1": "yes"}, "num_labels": 2}
CONFIGS: dict[str, dict[str, Any]] = {
    "bert-classify": BERT | LABELS | {"architectures": ["BertForSequenceClassification"]},
    "bert-tag": BERT | LABELS | {"architectures": ["BertForTokenClassification"]},
    "bert-pretrain": BERT | {"architectures": ["BertForPreTraining"]},
    "bert-answer": BERT | {"architectures": ["BertForQuestionAnswering"]},
    "roberta-pretrain": BERT | {"model_type": "roberta", "architectures": ["RobertaForMaskedLM"], "pad_token_id": 0},
    "electra-pretrain": BERT | {"model_type": "electra", "architectures": ["ElectraForMaskedLM"], "embedding_size": 4},
    "distilbert-classify": LABELS | {
        "model_type": "distilbert", "architectures": ["DistilBertForSequenceClassification"], "dim": 8, "n_layers": 1,
        "n_heads": 2, "hidden_dim": 8, "max_position_embeddings": 8, "activation": "gelu", "dropout": 0.1,
    },
    "sentence": BERT | {"architectures": ["BertModel"]},
    "gpt2": {
        "model_type": "gpt2", "architectures": ["GPT2LMHeadModel"], "n_embd": 8, "n_layer": 1, "n_head": 2,
        "n_positions": 8, "n_inner": None, "activation_function": "gelu_new", "resid_pdrop": 0.1,
    },
    "marian": {
        "model_type": "marian", "architectures": ["MarianMTModel"], "d_model": 8, "encoder_layers": 1,
        "pad_token_id": 0, "decoder_layers": 1, "encoder_attention_heads": 2, "decoder_attention_heads": 2,
        "encoder_ffn_dim": 8, "decoder_ffn_dim": 8, "activation_function": "gelu", "scale_embedding": True,
        "decoder_start_token_id": 1, "share_encoder_decoder_embeddings": True, "decoder_vocab_size": None,
        "static_position_embeddings": True,
    },
    "bart": {
        "model_type": "bart", "architectures": ["BartForConditionalGeneration"], "d_model": 8, "encoder_layers": 1,
        "pad_token_id": 0, "decoder_layers": 1, "encoder_attention_heads": 2, "decoder_attention_heads": 2,
        "encoder_ffn_dim": 8, "decoder_ffn_dim": 8, "activation_function": "gelu", "max_position_embeddings": 20,
        "decoder_start_token_id": 3, "forced_eos_token_id": 3, "tie_word_embeddings": True,
    },
    "t5": {
        "model_type": "t5", "architectures": ["T5ForConditionalGeneration"], "d_model": 8, "d_kv": 3, "d_ff": 8,
        "num_layers": 1, "num_decoder_layers": None, "num_heads": 2, "feed_forward_proj": "gated-gelu",
        "relative_attention_num_buckets": 8, "relative_attention_max_distance": 9, "layer_norm_epsilon": 1e-6,
        "dropout_rate": 0.1, "tie_word_embeddings": False, "is_encoder_decoder": True, "pad_token_id": 0,
    },
    "vit": LABELS | {
        "model_type": "vit", "architectures": ["ViTForImageClassification"], "hidden_size": 8, "num_hidden_layers": 1,
        "num_attention_heads": 2, "intermediate_size": 8, "image_size": 8, "patch_size": 4, "num_channels": 3,
    },
    "resnet": LABELS | {
        "model_type": "resnet", "architectures": ["ResNetForImageClassification"], "embedding_size": 2,
        "hidden_sizes": [2, 4, 8, 16], "depths": [1, 1, 1, 1], "layer_type": "basic", "hidden_act": "relu",
        "num_channels": 3, "image_size": 40,
    },
}  # fmt: skip
PREPROCESSOR = {
    "do_rescale": True, "rescale_factor": 1 / 255, "do_normalize": True, "image_mean": [0.5] * 3,
    "image_std": [0.5] * 3, "size": {"height": 8, "width": 8}, "do_center_crop": False, "crop_size": 8,
}  # fmt: skip
MODULES = {
    "modules.json": [
        {"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.models.Transformer"},
        {"idx": 1, "name": "1", "path": "1_Pooling", "type": "sentence_transformers.models.Pooling"},
        {"idx": 2, "name": "2", "path": "2_Normalize", "type": "sentence_transformers.models.Normalize"},
    ],
    "1_Pooling/config.json": {"word_embedding_dimension": 8, "pooling_mode": "mean", "include_prompt": True},
    "sentence_bert_config.json": {"max_seq_length": 6, "do_lower_case": False},
    "config_sentence_transformers.json": {"prompts": {"query": "a: "}, "default_prompt_name": "query"},
}
Files = dict[str, bytes]


@cache
def tensors(name: str) -> dict[str, torch.Tensor]:
    """Returns the tensors that the mapping of a config.json describes."""
    folder = HubFolder(Path("."), config(name))
    mapping = reading._find_mapping(folder)
    settings, head = reading._model_settings(folder, mapping)[1], reading._find_head(folder, mapping)
    shapes = mapping.shapes(settings, head, folder.config, 2)
    generator = torch.Generator().manual_seed(0)
    maps = [*mapping.maps(settings, head), *head.optional]
    written = [entry.write(torch.randn(shapes[entry.name].shape, generator=generator)) for entry in maps]
    return {name: tensor.clone() for entry in written for name, tensor in entry.items()}


@cache
def tokenizer() -> Tokenizer:
    return Tokenizer.train(TokenizerSettings(kind="bert", vocab_size=40), ["the cat sat on the mat", "a dog"])


def config(name: str) -> dict[str, Any]:
    return copy.deepcopy(CONFIGS[name]) | {"vocab_size": tokenizer().vocab_size}


@cache
def valid_files(name: str) -> Files:
    images = name in ("vit", "resnet")
    rest = {"preprocessor_config.json": dump_json(PREPROCESSOR)} if images else {"tokenizer.json": _tokenizer_json()}
    rest |= {file: dump_json(values) for file, values in MODULES.items()} if name == "sentence" else {}
    return {"config.json": dump_json(config(name)), "model.safetensors": save(tensors(name)), **rest}


def _tokenizer_json() -> bytes:
    return tokenizer().to_json().encode()


def write_folder(folder: Path, files: Files) -> Path:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for name, data in files.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_bytes(data)
    return folder


def safetensors_file(header: Any, rest: bytes) -> bytes:
    data = dump_json(header)
    return struct.pack("<Q", len(data)) + data + rest


@st.composite
def weights_file(draw: Any, name: str) -> Files:
    """Draws weights: a damaged file or header, other shapes and dtypes, shards with an index, a pickle."""
    stored, valid = dict(tensors(name)), valid_files(name)["model.safetensors"]
    size = struct.unpack("<Q", valid[:8])[0]
    how = draw(st.sampled_from(["bytes", "header", "tensors", "shards", "pickle", "pickle bytes"]))
    if how == "bytes":
        return {"model.safetensors": draw(mutated_bytes(valid))}
    if how == "header":
        return {
            "model.safetensors": safetensors_file(draw(mutated(json.loads(valid[8 : 8 + size]))), valid[8 + size :])
        }
    for key in draw(st.lists(st.sampled_from(sorted(stored)), max_size=2, unique=True)):
        change = draw(
            st.sampled_from(["gone", "half", "int", "bool", "nan", "flat", "empty", "scalar", "name", "double"])
        )
        tensor = stored.pop(key)
        if change == "nan":
            tensor = torch.full_like(tensor, draw(st.sampled_from([torch.nan, torch.inf])))
        changed = {
            "half": tensor.half(), "int": tensor.int(), "bool": tensor > 0, "nan": tensor, "flat": tensor.flatten(),
            "empty": tensor[:0].clone(), "scalar": torch.tensor(1.0), "double": tensor.double(),
        }  # fmt: skip
        if change in changed:
            stored[key] = changed[change]
        elif change == "name":
            stored[draw(st.text(max_size=5, alphabet="ab.é/"))] = tensor
    if how == "shards":
        index = {"metadata": {}, "weight_map": dict.fromkeys(stored, "a.safetensors")}
        changed_index = dump_json(draw(mutated(index))) if draw(st.booleans()) else dump_json(index)
        return {"a.safetensors": save(stored), "model.safetensors.index.json": changed_index}
    if how.startswith("pickle"):
        path = Path(os.environ["SERIATIM_CACHE"]) / "fuzz.bin"
        torch.save(stored, path, _use_new_zipfile_serialization=draw(st.booleans()))
        data = path.read_bytes()
        return {"pytorch_model.bin": draw(mutated_bytes(data)) if how == "pickle bytes" else data}
    return {"model.safetensors": save(stored)}


@st.composite
def model_folder(draw: Any) -> Files:
    name = draw(st.sampled_from(sorted(CONFIGS)))
    files = dict(valid_files(name))
    for part in draw(st.sets(st.sampled_from(["config.json", "weights", "other"]), min_size=1)):
        if part == "weights":
            del files["model.safetensors"]
            files |= draw(weights_file(name))
        else:
            others = sorted(file for file in valid_files(name) if file not in ("config.json", "model.safetensors"))
            file = part if part == "config.json" else draw(st.sampled_from(others))
            files[file] = dump_json(draw(mutated(json.loads(valid_files(name)[file]))))
    if draw(st.integers(0, 9)) == 0:
        files.pop(draw(st.sampled_from(sorted(files))))
    return files


def with_config(name: str, **changes: Any) -> Files:
    return valid_files(name) | {"config.json": dump_json(config(name) | changes)}


def with_pickle(value: Any) -> Files:
    files = {key: data for key, data in valid_files("gpt2").items() if key != "model.safetensors"}
    return files | {"pytorch_model.bin": pickle.dumps(value)}


class Command:
    """Unpickled by `pickle`, it makes a file."""

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        return os.mkdir, ("executed",)


@fuzz(files=model_folder())
@example(files=with_config("gpt2", n_embd=10**30))
@example(files=with_config("gpt2", n_layer=10**9))
@example(files=with_config("gpt2", vocab_size=10**9))
@example(files=with_config("bert-classify", num_labels=10**9, id2label=None))
@example(files=with_config("bert-classify", id2label=5))
@example(files=with_config("bert-classify", id2label=["a"]))
@example(files=with_config("bert-classify", id2label={"0": [], "1": []}))
@example(files=with_config("resnet", id2label={"a": "no"}, num_labels=None))
@example(files=with_config("resnet", vocab_size=None))
@example(files=with_config("marian", encoder_ffn_dim=[]))
@example(files=with_config("bert-classify", max_position_embeddings=10**12))
@example(files=with_config("vit", image_size=10**9))
@example(files=with_config("vit", num_channels=10**9))
@example(files=with_config("marian", decoder_start_token_id=10**9))
@example(files=with_config("t5", relative_attention_num_buckets=3))
@example(files=with_config("t5", relative_attention_max_distance=1))
@example(files=with_config("t5", feed_forward_proj=["relu"]))
@example(files=with_config("t5", d_kv=10**7))
@example(files=with_config("bart", tie_word_embeddings=False))
@example(files=with_config("gpt2", auto_map={"AutoModel": "modeling.Model"}, trust_remote_code=True))
@example(files=with_pickle(Command()))
@example(files=with_pickle({"wte.weight": Command()}))
def test_reading(files: Files, tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = write_folder(tmp_path_factory.getbasetemp() / "model", files)
    try:
        model = read_model(folder)
    finally:
        assert not Path("executed").exists()
    assert all(tensor.isfinite().all() for tensor in model.tensors.values())


VERBS = {"language": "generate", "pretrain": "fill"}


def import_and_predict(files: Files, text: str, base: Path) -> None:
    """Makes a run of a model folder and asks it once."""
    shutil.rmtree(base / "imported", ignore_errors=True)
    run = import_model(write_folder(base / "model", files), base / "imported")
    name = run.config.task.name
    image = torch.zeros(9, 9, 3, dtype=torch.uint8).numpy()
    inputs = image if "preprocessor_config.json" in files else (text, f"{text} cat") if name == "answer" else text
    verb = "embed" if "modules.json" in files else VERBS.get(name, name)
    run.call(verb, inputs, **({"max_tokens": 3} if name in ("language", "translate") else {}))


@fuzz(weight=0.2, files=model_folder(), text=st.text(max_size=12))
@example(files=with_config("resnet", image_size=-1), text="")
@example(files=with_config("resnet", image_size=False), text="")
@example(files=with_config("resnet", image_size=10**9), text="")
@example(files=valid_files("vit") | {"preprocessor_config.json": dump_json({"image_mean": [10**400] * 3})}, text="")
def test_import_and_predict(files: Files, text: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    import_and_predict(files, text, tmp_path_factory.getbasetemp())


@pytest.mark.parametrize("name", CONFIGS)
def test_valid_folders_predict(name: str, tmp_path: Path) -> None:
    import_and_predict(valid_files(name), "the [MASK]" if name.endswith("pretrain") else "the cat", tmp_path)


@pytest.mark.parametrize(
    ("files", "problem"),
    [
        (with_config("gpt2", n_embd=10**30), "n_embd is too large"),
        (with_config("gpt2", n_layer=10**7), "layers: less than or equal to 200"),
        (
            with_config("bert-classify", num_labels=10**9, id2label=None),
            "1,000,000,000 different labels, but the limit is 1,000,000",
        ),
        (with_config("vit", num_channels=10**9), "num_channels is too large"),
        (with_pickle(Command()), "contains more than tensors: it may run code, and was not opened"),
    ],
)
def test_what_a_folder_claims_is_checked_before_it_is_allocated(files: Files, problem: str, tmp_path: Path) -> None:
    with pytest.raises(SeriatimError) as raised:
        read_model(write_folder(tmp_path / "model", files))
    assert problem in raised.value.cause


@pytest.mark.parametrize(
    "shard", ["../secret.safetensors", "/etc/passwd", "sub/a.safetensors", "config.json", "", "\x00"]
)
def test_a_shard_is_beside_its_index(shard: str, tmp_path: Path) -> None:
    files = {key: data for key, data in valid_files("gpt2").items() if key != "model.safetensors"}
    index = {"weight_map": dict.fromkeys(tensors("gpt2"), shard)}
    write_folder(tmp_path / "model", files | {"model.safetensors.index.json": dump_json(index)})
    (tmp_path / "secret.safetensors").write_bytes(save(tensors("gpt2")))
    (tmp_path / "model" / "sub").mkdir()
    (tmp_path / "model" / "sub" / "a.safetensors").write_bytes(save(tensors("gpt2")))
    with pytest.raises(SeriatimError) as raised:
        read_model(tmp_path / "model")
    assert raised.value.code == "hub.shards"


def test_a_tensor_larger_than_its_storage_is_refused(tmp_path: Path) -> None:
    files = {key: data for key, data in valid_files("gpt2").items() if key != "model.safetensors"}
    folder = write_folder(tmp_path / "model", files)
    torch.save({"wte.weight": torch.zeros(1).half().expand(10**12)}, folder / "pytorch_model.bin")
    with pytest.raises(SeriatimError, match="larger than what is stored"):
        read_model(folder)


def test_code_in_a_folder_is_not_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    code = b"import os; os.mkdir('executed')"
    files = with_config("gpt2", auto_map={"AutoModelForCausalLM": "modeling_x.Model", "AutoTokenizer": "modeling_x.T"})
    read_model(write_folder(tmp_path / "model", files | {"modeling_x.py": code, "tokenization_x.py": code}))
    assert not Path("executed").exists()


@fuzz(weight=0.1, source=st.text(max_size=20) | st.sampled_from([x for x in HOSTILE if isinstance(x, str)]))
@example(source="~nobody-of-this-name")
@example(source="\x00")
@example(source="x" * 300)
def test_location(source: str) -> None:
    locate_model(f"/missing/{source}" if reading.HUB_NAME.fullmatch(source) else source)
