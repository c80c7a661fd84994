"""Models of images in the format of transformers, whole folders: imported, asked, exported, begun from."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import load_file

import seriatim
from helpers import shaken
from seriatim.core.errors import SeriatimError
from seriatim.runs.exchange import export_model, import_model

transformers: Any = pytest.importorskip("transformers")
SIDE, LABELS = 16, {0: "bars", 1: "dots", 2: "other"}
SPREAD = {"image_mean": [0.4, 0.5, 0.6], "image_std": [0.2, 0.3, 0.25]}
KINDS = ["resnet", "vit"]


def folder_of(kind: str, path: Path, **preprocessor: Any) -> Any:
    """A random model of theirs as a folder, and the model."""
    torch.manual_seed(0)
    labels = {"id2label": LABELS, "label2id": {name: index for index, name in LABELS.items()}}
    if kind == "resnet":
        sizes = {"embedding_size": 4, "hidden_sizes": [4, 8, 16, 32], "depths": [1, 1, 1, 1], "layer_type": "basic"}
        model = transformers.ResNetForImageClassification(transformers.ResNetConfig(**sizes, **labels))
    else:
        sizes = {"hidden_size": 8, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 12}
        sizes |= {"image_size": SIDE, "patch_size": 4}
        model = transformers.ViTForImageClassification(transformers.ViTConfig(**sizes, **labels))
    shaken(model).save_pretrained(path)
    about = {"size": {"height": SIDE, "width": SIDE}, **SPREAD, **preprocessor}
    (path / "preprocessor_config.json").write_text(json.dumps(about), encoding="utf-8")
    return model.eval()


def images(count: int) -> np.ndarray:
    return np.random.default_rng(0).integers(0, 256, (count, SIDE, SIDE, 3), dtype=np.uint8)


def answers(model: Any, values: np.ndarray) -> torch.Tensor:
    mean, std = (torch.tensor(SPREAD[name]).view(3, 1, 1) for name in ("image_mean", "image_std"))
    pixels = (torch.from_numpy(values).permute(0, 3, 1, 2) / 255 - mean) / std
    with torch.no_grad():
        found: torch.Tensor = model(pixels).logits.softmax(dim=-1)
    return found


@pytest.mark.parametrize("kind", KINDS)
def test_a_folder_becomes_a_run_and_a_folder_again(kind: str, tmp_path: Path) -> None:
    theirs = folder_of(kind, tmp_path / "theirs")
    run = import_model(tmp_path / "theirs", tmp_path / "run")
    values = images(3)
    expected = answers(theirs, values)
    for one, row in zip(run.predict(list(values), probabilities=True), expected, strict=True):
        assert one["probabilities"] == pytest.approx(dict(zip(LABELS.values(), row.tolist(), strict=True)), abs=1e-5)
        assert one["prediction"] == LABELS[int(row.argmax())]
    out = export_model(run.path, tmp_path / "again")
    before, after = load_file(tmp_path / "theirs" / "model.safetensors"), load_file(out / "model.safetensors")
    counted = {name for name in before if name.endswith("num_batches_tracked")}
    assert after.keys() == before.keys() - counted
    assert all(torch.equal(after[name], before[name]) for name in after)
    opened = type(theirs).from_pretrained(out).eval()
    torch.testing.assert_close(answers(opened, values), expected, rtol=0, atol=1e-6)
    about = json.loads((out / "preprocessor_config.json").read_text(encoding="utf-8"))
    for name, value in SPREAD.items():
        assert about[name] == pytest.approx(value)
    assert about["size"] == {"height": SIDE, "width": SIDE}


@pytest.mark.parametrize("kind", KINDS)
def test_a_training_begins_with_their_weights(kind: str, tmp_path: Path) -> None:
    """Also with how they brought pixels to numbers; the head is fresh where labels are others."""
    folder_of(kind, tmp_path / "theirs")
    for number, value in enumerate(images(24)):
        path = tmp_path / "images" / ("dark" if number % 2 else "light") / f"{number}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(value // 3 if number % 2 else value).save(path)
    run = seriatim.train(
        "classify", str(tmp_path / "images"), start=str(tmp_path / "theirs"), out=tmp_path / "run", steps=1,
        report=False, settings={"train": {"batch_size": 4, "optimizer": {"lr": 1e-9}}},
    )  # fmt: skip
    found = load_file(run.path / "model.safetensors")
    torch.testing.assert_close(found["input.mean"], torch.tensor(SPREAD["image_mean"]))
    name, other = {
        "resnet": ("input.resnet.blocks.3.second.convolution", "resnet.encoder.stages.3.layers.0.layer.1.convolution"),
        "vit": ("backbone.blocks.1.feedforward.hidden", "vit.encoder.layer.1.intermediate.dense"),
    }[kind]
    expected = load_file(tmp_path / "theirs" / "model.safetensors")[f"{other}.weight"]
    torch.testing.assert_close(found[f"{name}.weight"], expected, rtol=0, atol=1e-6)
    assert len(found["head.output.weight"]) == 2


@pytest.mark.parametrize(
    ("kind", "config", "preprocessor", "word"),
    [
        ("resnet", {"layer_type": "bottleneck"}, {}, "layer_type"),
        ("resnet", {"depths": [3, 4, 23, 3]}, {}, "depths"),
        ("resnet", {"hidden_sizes": [4, 8, 16, 30]}, {}, "hidden_sizes"),
        ("resnet", {"downsample_in_first_stage": True}, {}, "downsample_in_first_stage"),
        ("vit", {"qkv_bias": False}, {}, "qkv_bias"),
        ("vit", {"image_size": 32}, {}, "position_embeddings"),
        ("vit", {}, {"image_mean": [0.5]}, "image_mean"),
        ("vit", {}, {"rescale_factor": 1.0}, "rescale_factor"),
    ],
)
def test_what_has_no_counterpart_is_refused(
    kind: str, config: dict[str, Any], preprocessor: dict[str, Any], word: str, tmp_path: Path
) -> None:
    folder_of(kind, tmp_path, **preprocessor)
    file = tmp_path / "config.json"
    file.write_text(json.dumps(json.loads(file.read_text(encoding="utf-8")) | config), encoding="utf-8")
    with pytest.raises(SeriatimError, match=word) as told:
        import_model(tmp_path, tmp_path / "run")
    assert told.value.code == "hub.unfit"


def test_small_pictures_have_no_form_there(tmp_path: Path) -> None:
    for number, value in enumerate(images(24)):
        path = tmp_path / "images" / ("dark" if number % 2 else "light") / f"{number}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(value // 3 if number % 2 else value).save(path)
    run = seriatim.train(
        "classify", str(tmp_path / "images"), "resnet", out=tmp_path / "run", steps=1, report=False,
        settings={"model": {"width": 4}, "train": {"batch_size": 4}},
    )  # fmt: skip
    with pytest.raises(SeriatimError, match="stem for small images"):
        export_model(run.path, tmp_path / "there")
