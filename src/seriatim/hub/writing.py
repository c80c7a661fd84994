"""A model of ours as a folder that `transformers` opens: config.json, model.safetensors and the tokenizer."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from safetensors.torch import save_file
from torch import Tensor

from ..core.errors import SeriatimError
from ..core.exchange import Form, Head
from ..core.files import atomic_folder, write_json, write_text
from ..data.tokenizers import Tokenizer
from .preprocessing import write_preprocessor
from .reading import TARGET

SPREAD = ("mean", "deviation")  # of the colours of pictures: no weights there
SPECIALS = {"unk_token": "unk", "eos_token": "eos", "pad_token": "pad", "cls_token": "cls", "sep_token": "sep",
            "mask_token": "mask"}  # fmt: skip


def write(
    path: Path,
    form: Form,
    head: Head,
    settings: Any,
    tensors: Mapping[str, Tensor],
    tokenizer: Tokenizer | None,
    extra: Mapping[str, Any],
    target: Tokenizer | None = None,
    picture: Mapping[str, Any] | None = None,
) -> None:
    """`extra` is what config.json says besides sizes: the names of labels, special tokens. `target` is the tokenizer of
    the other side, where there are two; `picture` the form of what it reads, where that is pictures."""
    problems: list[str] = []
    tensors = form.made(settings) | dict(tensors)
    spread = [tensors.pop(f"input.{name}") for name in SPREAD] if form.pictures else []
    needed = {entry.ours: entry for entry in form.entries(settings, head)}
    entries = needed | {entry.ours: entry for entry in head.optional}
    config = form.config(settings, tensors, problems)
    if picture is not None:
        problems += _unlike(picture, config)
    if not problems:  # what has no place there follows from them
        problems += [f"{name} has no place there" for name in tensors if name not in entries]
        problems += [f"{name} is missing" for name in needed if name not in tensors]
    if problems:
        cause = f"this model cannot be written as {head.architecture}:\n" + "\n".join(f"  - {one}" for one in problems)
        raise SeriatimError("hub.unfit", cause, "train one with settings that the other format knows")
    theirs = {
        name: part
        for ours, tensor in tensors.items()
        for name, part in entries[ours].write(tensor.detach().cpu()).items()
    }
    about = {"architectures": [head.architecture], "model_type": form.kind, "dtype": "float32"} | config | dict(extra)
    with atomic_folder(path) as aside:
        save_file(
            {name: tensor.clone() for name, tensor in theirs.items()}, aside / "model.safetensors", {"format": "pt"}
        )
        write_json(aside / "config.json", about)
        if picture is not None:
            write_preprocessor(aside, picture, *spread)
        longest = about.get("max_position_embeddings", about.get("n_positions"))
        if tokenizer is not None:
            write_tokenizer(aside, tokenizer, longest, closed=head.task == "translate")
        if head.task == "translate" and tokenizer is not None:
            _write_search(aside, about, tokenizer if target is None else target)
        if target is not None:
            (aside / TARGET).mkdir()
            write_tokenizer(aside / TARGET, target, longest, closed=True)


def _unlike(picture: Mapping[str, Any], config: Mapping[str, Any]) -> list[str]:
    """What positions that are learned for squares of whole patches cannot be for."""
    height, width, wanted = picture["height"], picture["width"], config.get("image_size")
    if wanted is None or height == width == wanted:
        return []
    return [f"pictures of {height} × {width} pixels; there they are squares of whole patches: data.pictures.side"]


def _write_search(path: Path, config: Mapping[str, Any], tokenizer: Tokenizer) -> None:
    """What a search must know. A file of its own, for without one the defaults of an architecture would hold."""
    found = {name: config[name] for name in ("decoder_start_token_id", "eos_token_id", "pad_token_id")}
    never = {found["pad_token_id"], tokenizer.unk} - {found["eos_token_id"], None}
    about = found | {"max_length": config["max_position_embeddings"], "bad_words_ids": [[one] for one in sorted(never)]}
    write_json(path / "generation_config.json", about)


def write_tokenizer(path: Path, tokenizer: Tokenizer, longest: int | None, closed: bool = False) -> None:
    """`closed`: a text ends with `<eos>`, as a translator wants its sources."""
    write_text(path / "tokenizer.json", _closed(tokenizer) if closed else tokenizer.backend.to_str(pretty=True))
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
        write_text(path / "vocab.txt", "\n".join(tokenizer.names) + "\n")


def _closed(tokenizer: Tokenizer) -> str:
    """The tokenizer.json of one that puts `<eos>` behind a text, whatever it did before."""
    description = json.loads(tokenizer.backend.to_str())
    if tokenizer.eos is None:
        return json.dumps(description, ensure_ascii=False, indent=2)
    name = tokenizer.names[tokenizer.eos]
    text: list[dict[str, Any]] = [{"Sequence": {"id": "A", "type_id": 0}}]
    other: list[dict[str, Any]] = [{"Sequence": {"id": "B", "type_id": 0}}]
    end: list[dict[str, Any]] = [{"SpecialToken": {"id": name, "type_id": 0}}]
    description["post_processor"] = {
        "type": "TemplateProcessing",
        "single": text + end,
        "pair": text + other + end,
        "special_tokens": {name: {"id": name, "ids": [tokenizer.eos], "tokens": [name]}},
    }
    return json.dumps(description, ensure_ascii=False, indent=2)
