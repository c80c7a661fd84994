"""Writing a model as a folder that `transformers` opens: config.json, model.safetensors and the tokenizer."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from safetensors.torch import save_file
from torch import Tensor

from ..core.errors import SeriatimError
from ..core.files import Json, atomic_folder, write_json, write_text
from ..data.tokenizers import Tokenizer
from .mapping import Config, HubHead, ModelMapping
from .reading import PREPROCESSOR, TARGET_FOLDER, HubImage
from .sentence import SentenceModules, write_modules

BILINEAR = 2  # Pillow's number of the filter
NORMALIZATION = ("input.mean", "input.std")  # of images: not among the weights in `transformers`
SPECIAL_TOKENS = {
    "unk_token": "unk", "eos_token": "eos", "pad_token": "pad", "cls_token": "cls", "sep_token": "sep",
    "mask_token": "mask",
}  # fmt: skip


GENERATION = (
    "decoder_start_token_id", "eos_token_id", "pad_token_id", "forced_bos_token_id", "forced_eos_token_id",
)  # fmt: skip


def find_head(
    mappings: list[tuple[ModelMapping, HubHead]], settings: Any, tensors: Mapping[str, Tensor]
) -> tuple[ModelMapping, HubHead]:
    """Returns the first architecture that has all tensors; if none has, the first one, and `write_model` says why."""
    for mapping, head in mappings:
        known = {entry.name for entry in (*mapping.maps(settings, head), *head.optional)}
        if tensors.keys() <= known | (set(NORMALIZATION) if mapping.images else set()):
            return mapping, head
    return mappings[0]


def write_model(
    path: Path,
    mapping: ModelMapping,
    head: HubHead,
    settings: Any,
    tensors: Mapping[str, Tensor],
    tokenizers: Mapping[str, Tokenizer],
    config: Config,
    image: HubImage | None = None,
    sentence: SentenceModules | None = None,
) -> None:
    """Writes a model folder.

    Args:
        path: The folder.
        mapping: The `model_type`.
        head: The architecture.
        settings: Of our model.
        tensors: Our weights by name.
        tokenizers: "tokenizer", and "source_tokenizer" if source and target have separate ones.
        config: Entries of config.json besides sizes: labels, special tokens.
        image: The images that the model reads; mean and std are among the tensors.
        sentence: How it embeds texts, for a folder of sentence-transformers.
    """
    problems: list[str] = []
    tensors = mapping.constants(settings) | dict(tensors)
    if mapping.images and image is not None:
        mean, std = (tuple(tensors.pop(name).tolist()) for name in NORMALIZATION)
        image = replace(image, mean=mean, std=std)
    required = {entry.name: entry for entry in mapping.maps(settings, head)}
    maps = required | {entry.name: entry for entry in head.optional}
    sizes = mapping.config(settings, tensors, problems)
    if "pad_token_id" in sizes and (padding := tokenizers["tokenizer"].pad) != sizes["pad_token_id"]:
        expected = f"positions begin after the id of the padding token, {sizes['pad_token_id']}; the tokenizer has"
        problems.append(f"{expected} {'none' if padding is None else padding}: model.position_offset")
    side = sizes.get("image_size")
    if image is not None and side is not None and not image.height == image.width == side:
        shape = f"images of {image.height} × {image.width} pixels"
        problems.append(f"{shape}; in `transformers` they are squares of whole patches: task.images.side")
    if not problems:  # otherwise missing tensors follow from the problems
        problems += [f"{name} does not exist there" for name in tensors if name not in maps]
        problems += [f"{name} is missing" for name in required if name not in tensors]
    if problems:
        lines = "\n".join(f"  - {problem}" for problem in problems)
        cause = f"this model cannot be written as {head.architecture}:\n{lines}"
        raise SeriatimError("hub.unfit", cause, "train one with settings that the other format supports")
    hub_tensors = {
        name: part for ours, tensor in tensors.items() for name, part in maps[ours].write(tensor.detach().cpu()).items()
    }
    values: Json = {
        "architectures": [head.architecture],
        "model_type": mapping.model_type,
        "dtype": "float32",
    }
    values |= sizes | dict(config)
    tokenizer, source = tokenizers.get("tokenizer"), tokenizers.get("source_tokenizer")
    max_length = settings.traits.context_length or values.get("max_position_embeddings", values.get("n_positions"))
    segments = values.get("type_vocab_size", 0) > 1
    encoder_decoder = bool(values.get("is_encoder_decoder"))
    generation = {key: values[key] for key in GENERATION if values.get(key) is not None} | {"max_length": max_length}
    framed = values.pop("forced_bos_token_id", None) is not None
    append_eos = encoder_decoder and not framed
    with atomic_folder(path) as temporary:
        cloned = {name: tensor.clone() for name, tensor in hub_tensors.items()}
        save_file(cloned, temporary / "model.safetensors", {"format": "pt"})
        write_json(temporary / "config.json", values)
        if image is not None:
            write_preprocessor(temporary, image)
        if tokenizer is not None:
            first = tokenizer if source is None else source
            write_tokenizer(temporary, first, max_length, append_eos, segments, framed)
            if encoder_decoder:
                _write_generation_config(temporary, generation, tokenizer)
        if tokenizer is not None and source is not None:
            (temporary / TARGET_FOLDER).mkdir()
            write_tokenizer(temporary / TARGET_FOLDER, tokenizer, max_length, append_eos, framed=framed)
        if sentence is not None:
            write_modules(temporary, settings.width, sentence)


def write_preprocessor(path: Path, image: HubImage) -> None:
    sides = {"height": image.height, "width": image.width}
    values = {
        "do_resize": True,
        "resample": BILINEAR,
        "do_rescale": True,
        "rescale_factor": 1 / 255,
        "do_normalize": True,
        "image_mean": list(image.mean),
        "image_std": list(image.std),
        "do_convert_rgb": image.channels == 3,
    }
    if image.fit == "stretch":
        values |= {"image_processor_type": "ViTImageProcessor", "size": sides}
    else:
        shortest = {"shortest_edge": min(sides.values())}
        values |= {"image_processor_type": "CLIPImageProcessor", "size": shortest, "do_center_crop": True}
        values["crop_size"] = sides
    write_json(path / PREPROCESSOR, values)


def _write_generation_config(path: Path, values: Json, tokenizer: Tokenizer) -> None:
    """Writes generation_config.json; without it the defaults of the architecture would apply."""
    forbidden = {values["pad_token_id"], tokenizer.unk} - {values["eos_token_id"], None}
    write_json(path / "generation_config.json", values | {"bad_words_ids": [[token] for token in sorted(forbidden)]})


def write_tokenizer(
    path: Path,
    tokenizer: Tokenizer,
    max_length: int | None,
    append_eos: bool = False,
    segments: bool = False,
    framed: bool = False,
) -> None:
    """Writes the files of a tokenizer.

    Args:
        path: The folder.
        tokenizer: The tokenizer.
        max_length: The longest sequence the model reads.
        append_eos: Whether texts end with `<eos>`, as an encoder–decoder expects.
        segments: Whether the model reads which of two texts a token belongs to.
        framed: Whether [CLS] and [SEP] are the first and the last token of a text, as in BART.
    """
    text = _with_eos(tokenizer) if append_eos else tokenizer.backend.to_str(pretty=True)
    write_text(path / "tokenizer.json", text)
    names = SPECIAL_TOKENS | ({"bos_token": "cls", "eos_token": "sep"} if framed else {})
    special = {key: getattr(tokenizer, name, None) for key, name in names.items()}
    values: Json = {key: tokenizer.names[token] for key, token in special.items() if token is not None}
    values.setdefault("pad_token", values.get("eos_token"))
    values |= {"tokenizer_class": "PreTrainedTokenizerFast", "clean_up_tokenization_spaces": False}
    values["model_input_names"] = ["input_ids", *(["token_type_ids"] if segments else []), "attention_mask"]
    if max_length is not None:
        values["model_max_length"] = max_length
    write_json(path / "tokenizer_config.json", {key: value for key, value in values.items() if value is not None})
    if tokenizer.kind == "bert":
        write_text(path / "vocab.txt", "\n".join(tokenizer.names) + "\n")


def _with_eos(tokenizer: Tokenizer) -> str:
    """Returns the tokenizer.json of a tokenizer that appends `<eos>` to a text."""
    description = json.loads(tokenizer.backend.to_str())
    if tokenizer.eos is None:
        return json.dumps(description, ensure_ascii=False, indent=2)
    name = tokenizer.names[tokenizer.eos]
    text: list[Json] = [{"Sequence": {"id": "A", "type_id": 0}}]
    pair: list[Json] = [{"Sequence": {"id": "B", "type_id": 0}}]
    end: list[Json] = [{"SpecialToken": {"id": name, "type_id": 0}}]
    description["post_processor"] = {
        "type": "TemplateProcessing",
        "single": text + end,
        "pair": text + pair + end,
        "special_tokens": {name: {"id": name, "ids": [tokenizer.eos], "tokens": [name]}},
    }
    return json.dumps(description, ensure_ascii=False, indent=2)
