"""A model of ours as a folder that `transformers` opens: config.json, model.safetensors and the tokenizer."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from safetensors.torch import save_file
from torch import Tensor

from ..core.errors import SeriatimError
from ..core.exchange import Form, Head
from ..core.files import atomic_folder, write_json
from ..data.tokenizers import Tokenizer

SPECIALS = {"unk_token": "unk", "eos_token": "eos", "pad_token": "pad", "cls_token": "cls", "sep_token": "sep",
            "mask_token": "mask"}  # fmt: skip


def write(
    path: Path,
    form: Form,
    head: Head,
    settings: Any,
    tensors: Mapping[str, Tensor],
    tokenizer: Tokenizer,
    extra: Mapping[str, Any],
) -> None:
    """`extra` is what config.json says besides sizes: the names of labels, special tokens."""
    problems: list[str] = []
    config = form.config(settings, len(tensors["input.weight"]), problems)
    entries = {entry.ours: entry for entry in (*form.entries(settings, head), *head.optional)}
    problems += [f"{name} has no place in {head.architecture}" for name in tensors if name not in entries]
    wanted = [entry.ours for entry in form.entries(settings, head)]
    problems += [f"{name} is missing" for name in wanted if name not in tensors]
    if problems:
        cause = f"this model cannot be written as {head.architecture}:\n" + "\n".join(f"  - {one}" for one in problems)
        raise SeriatimError("hub.unfit", cause, "train one with settings that the other format knows")
    theirs = {
        name: part
        for ours, tensor in tensors.items()
        for name, part in entries[ours].write(tensor.detach().cpu()).items()
    }
    with atomic_folder(path) as aside:
        save_file(
            {name: tensor.clone() for name, tensor in theirs.items()}, aside / "model.safetensors", {"format": "pt"}
        )
        about = {"architectures": [head.architecture], "model_type": form.kind, "dtype": "float32"}
        write_json(aside / "config.json", about | config | dict(extra))
        write_tokenizer(aside, tokenizer, getattr(settings, "context", None))


def write_tokenizer(path: Path, tokenizer: Tokenizer, longest: int | None) -> None:
    tokenizer.save(path / "tokenizer.json")
    named = {theirs: getattr(tokenizer, ours, None) for theirs, ours in SPECIALS.items()}
    about: dict[str, Any] = {name: tokenizer.names[index] for name, index in named.items() if index is not None}
    about.setdefault("pad_token", about.get("eos_token"))
    about |= {"tokenizer_class": "PreTrainedTokenizerFast", "clean_up_tokenization_spaces": False}
    inputs = ["input_ids", "token_type_ids", "attention_mask"]
    about["model_input_names"] = inputs if tokenizer.framed else [inputs[0], inputs[2]]
    if longest is not None:
        about["model_max_length"] = longest
    write_json(path / "tokenizer_config.json", {name: value for name, value in about.items() if value is not None})
    if tokenizer.kind == "bert":
        (path / "vocab.txt").write_text("\n".join(tokenizer.names) + "\n", encoding="utf-8")
