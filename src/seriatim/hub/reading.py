"""Reading a model of `transformers`: its settings, tokenizers and weights by our names, or all its problems.

The model is a folder, local or fetched from the hub. Weights are read from model.safetensors, whole or in shards. The
older pytorch_model.bin is a pickle, which can run code: torch's restricted reader loads tensors only.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import torch
from safetensors.torch import load_file
from torch import Tensor

from ..core import registry
from ..core.config import validate
from ..core.errors import SeriatimError
from ..core.files import Json, check_finite
from ..core.limits import LABELS
from ..core.text import listed, plural
from ..data.tokenizers import Tokenizer
from .mapping import Config, HubHead, ModelMapping, TensorMap, read_json_object, read_sizes
from .mappings import by_model_type
from .sentence import SentenceModules, lowercased, read_modules

CONFIG = "config.json"
MAX_SHOWN = 200  # characters of a name or message
WEIGHTS = ("model.safetensors", "pytorch_model.bin")
OLD_NAMES = {r"LayerNorm\.gamma$": "LayerNorm.weight", r"LayerNorm\.beta$": "LayerNorm.bias"}
HUB_NAME = re.compile(r"[\w.-]+(/[\w.-]+)?")
FETCHED = [
    "config.json", "*.safetensors", "*.safetensors.index.json", "tokenizer.json", "tokenizer_config.json", "vocab.txt",
    "vocab.json", "merges.txt", "special_tokens_map.json", "preprocessor_config.json", "modules.json",
    "sentence_*_config.json", "config_sentence_transformers.json", "*_Pooling/config.json", "0_Transformer/*.json",
    "0_Transformer/*.txt",
]  # fmt: skip
FETCHED_PICKLES = ["pytorch_model*.bin", "pytorch_model.bin.index.json", "0_Transformer/pytorch_model*.bin"]


def locate_model(source: str) -> Path:
    """Returns an existing folder, or that of a model of this name on the hub, fetched if it is not in the cache."""
    try:
        path = Path(source).expanduser()
        if path.exists() or not HUB_NAME.fullmatch(source):
            return path
    except (OSError, RuntimeError, ValueError) as error:  # a name too long, an unknown user, a zero character
        cause = f'"{source[:MAX_SHOWN]}" is no folder of a model: {error}'
        raise SeriatimError("hub.missing", cause, "name a run or the folder of a model") from None
    from huggingface_hub import snapshot_download

    try:
        folder = Path(snapshot_download(source, allow_patterns=FETCHED))
        if not any(folder.rglob("*.safetensors")):
            folder = Path(snapshot_download(source, allow_patterns=FETCHED_PICKLES))
        return folder
    except Exception as error:  # the package raises whatever its network layer raises
        reason = str(error).strip().partition("\n")[0][:200] or type(error).__name__
        cause = f'there is no folder "{source}", and no model of that name could be fetched: {reason}'
        raise SeriatimError("hub.fetch", cause, "name a run or the folder of a model, or check the network") from None


@dataclass(frozen=True)
class HubFolder:
    path: Path
    config: Json
    sentence: SentenceModules | None = None  # if it is a folder of sentence-transformers

    @classmethod
    def open(cls, path: str | Path) -> HubFolder:
        path = Path(path)
        if not path.is_dir():
            raise SeriatimError("hub.missing", f"there is no folder {path}", "name a folder with a config.json")
        sentence = read_modules(path)
        path = path if sentence is None else sentence.path
        if not (path / CONFIG).is_file():
            cause = f"{path} is not a model: it has no {CONFIG}"
            remedy = "name a folder that `save_pretrained` of transformers wrote"
            raise SeriatimError("hub.not-a-model", cause, remedy)
        return cls(path, read_json_object(path / CONFIG), sentence)

    @property
    def model_type(self) -> str:
        return str(self.config.get("model_type") or "")

    @property
    def architecture(self) -> str:
        names = self.config.get("architectures")
        return str(names[0]) if isinstance(names, list) and names else ""

    def tensors(self) -> dict[str, Tensor]:
        """Returns all weights by their own names."""
        for name in WEIGHTS:
            for file in (self.path / name, self.path / f"{name}.index.json"):
                if file.is_file():
                    tensors = _read_shards(file) if file.suffix == ".json" else _read_tensors(file)
                    return {_modern_name(name): tensor for name, tensor in tensors.items()}
        cause = f"{self.path} has no weights: neither {' nor '.join(WEIGHTS)}"
        raise SeriatimError("hub.not-a-model", cause, "copy the weights into the folder")


def _read_shards(index: Path) -> dict[str, Tensor]:
    files = read_json_object(index).get("weight_map")
    if not isinstance(files, dict) or not files:
        raise SeriatimError("hub.damaged", f"{index} has no weight_map", "restore the file")
    names = sorted({str(name) for name in files.values()})
    beside = {file.name for file in index.parent.iterdir() if file.is_file()}  # where a shard must be
    ending = Path(index.name.removesuffix(".index.json")).suffix
    if missing := [name[:MAX_SHOWN] for name in names if name not in beside or not name.endswith(ending)]:
        cause = f"{index.parent}: missing shards: {listed(missing, MAX_LISTED)}"
        raise SeriatimError("hub.shards", cause, "copy all shards into the folder")
    return {name: tensor for shard in names for name, tensor in _read_tensors(index.parent / shard).items()}


def _read_tensors(file: Path) -> dict[str, Tensor]:
    try:
        if file.suffix == ".safetensors":
            stored = load_file(file)
            check_finite(stored, file)
            return stored
        tensors = _read_pickle(file)
    except (SeriatimError, MemoryError):
        raise
    except Exception as error:  # of a damaged pickle, almost any
        first = str(error).strip().partition("\n")[0][:MAX_SHOWN] or type(error).__name__
        raise SeriatimError("hub.damaged", f"{file} cannot be read: {first}", "copy the file again") from None
    named = isinstance(tensors, dict) and all(isinstance(n, str) and isinstance(t, Tensor) for n, t in tensors.items())
    if not named:
        raise SeriatimError("hub.pickle", f"{file} contains other objects than named tensors", "use model.safetensors")
    for name, tensor in tensors.items():  # a pickle may have one of any shape over a few bytes
        if tensor.layout != torch.strided or tensor.is_quantized or tensor.device.type != "cpu":
            raise SeriatimError("hub.pickle", f"{file}: {name[:MAX_SHOWN]} is no plain tensor", "use model.safetensors")
        if tensor.nbytes > tensor.untyped_storage().nbytes():
            cause = f"{file}: {name[:MAX_SHOWN]} is larger than what is stored of it"
            raise SeriatimError("hub.damaged", cause, "copy the file again")
    check_finite(tensors, file)
    return tensors


def _read_pickle(file: Path) -> Any:
    """Returns the contents of a pickle of tensors and plain containers; no other code in it is run."""
    with open(file, "rb") as opened:
        zipped = opened.read(2) == b"PK"
    try:
        return torch.load(file, map_location="cpu", weights_only=True, mmap=zipped)
    except Exception as error:
        if type(error).__name__ != "UnpicklingError":
            raise
        cause = f"{file} contains more than tensors: it may run code, and was not opened"
        raise SeriatimError("hub.pickle", cause, "ask for the model as model.safetensors") from None


def _modern_name(name: str) -> str:
    for old, new in OLD_NAMES.items():
        name = re.sub(old, new, name)
    return name


PREPROCESSOR = "preprocessor_config.json"
DEFAULT_SIDE = 224  # pixels, if no file has a size
MAX_SIDE = 16_384
MAX_STATISTIC = 1e6  # of pixels
DEFAULT_NORMALIZATION = 0.5  # mean and std, if no file has them: pixels between -1 and 1


@dataclass(frozen=True)
class HubImage:
    """The images that a model reads."""

    height: int
    width: int
    channels: int
    fit: Literal["stretch", "crop"]
    mean: tuple[float, ...]  # of each channel, pixels between 0 and 1
    std: tuple[float, ...]


def read_preprocessor(path: Path, config: Config, problems: list[str], notes: list[str]) -> HubImage:
    """Returns the images of a model folder; adds unsupported preprocessing to the problems."""
    channels = int(config.get("num_channels", 3))
    values = read_json_object(path / PREPROCESSOR) if (path / PREPROCESSOR).is_file() else {}
    if not values:
        notes.append(f"there is no {PREPROCESSOR}: pixels are scaled between -1 and 1")
    factor = values.get("rescale_factor", 1 / 255)
    if not _is_number(factor) or abs(factor * 255 - 1) > 1e-3 or values.get("do_rescale", True) is False:
        problems.append(f"{PREPROCESSOR}: pixels are not divided by 255: do_rescale, rescale_factor")
    unnormalized = values.get("do_normalize", True) is False
    statistics = []
    for key, neutral in (("image_mean", 0.0), ("image_std", 1.0)):
        numbers = [neutral] * channels if unnormalized else values.get(key, [DEFAULT_NORMALIZATION] * channels)
        if not isinstance(numbers, list) or len(numbers) != channels or not all(map(_is_number, numbers)):
            problems.append(f"{PREPROCESSOR}: {key} is {numbers}, not {channels} numbers")
            numbers = [1.0] * channels
        statistics.append(tuple(float(number) for number in numbers))
    size, crop = _sides(values.get("size")), _sides(values.get("crop_size"))
    cropped = bool(values.get("do_center_crop", crop is not None)) and crop is not None
    side = config.get("image_size")
    height, width = (side, side) if type(side) is int else (crop if cropped else size) or (DEFAULT_SIDE, DEFAULT_SIDE)
    if not (1 <= height <= MAX_SIDE and 1 <= width <= MAX_SIDE):
        problems.append(f"images of {height} × {width} pixels; a side has 1 to {MAX_SIDE:,}")
    stretched = isinstance(values.get("size"), dict) and "height" in values["size"] and not cropped
    return HubImage(height, width, channels, "stretch" if stretched else "crop", *statistics)


def _sides(value: object) -> tuple[int, int] | None:
    """Returns height and width, in any of the notations."""
    sides = value if isinstance(value, dict) else {"shortest_edge": value}
    height, width = (sides.get(key, sides.get("shortest_edge")) for key in ("height", "width"))
    if not (isinstance(height, int) and isinstance(width, int) and height > 0 and width > 0):
        return None
    return height, width


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= MAX_STATISTIC


MAX_LISTED = 20  # problems
SEPARATOR = "\n  - "  # of problems
NEW_WEIGHT_STD = 0.02  # of missing optional weights
TARGET_FOLDER = "target"  # of the second tokenizer, if a model has two


@dataclass(frozen=True)
class HubModel:
    """The contents of a model folder in our terms."""

    path: Path
    settings: Json  # of our model
    mapping: ModelMapping
    head: HubHead
    tensors: dict[str, Tensor]
    config: Json  # config.json
    tokenizers: dict[str, Tokenizer]  # "tokenizer", and "source_tokenizer" if source and target have separate ones
    labels: tuple[str, ...] = ()  # of its outputs, in order
    notes: list[str] = field(default_factory=list)
    new_tensors: dict[str, Tensor] = field(default_factory=dict)  # optional ones that are missing, initialized
    image: HubImage | None = None
    sentence: SentenceModules | None = None

    @property
    def decoder_start(self) -> int | None:
        """The token that a decoder begins with, if config.json has one."""
        tokens = [self.config.get(name) for name in ("decoder_start_token_id", "pad_token_id")]
        token = next((token for token in tokens if token is not None), None)
        if self.head.kind != "seq2seq-lm" or not isinstance(token, int):
            return None
        targets = [self.tensors[name] for name in self.mapping.token_tables if name in self.tensors][-1]
        return token if 0 <= token < len(targets) else None


def read_settings(path: str | Path) -> Json:
    """Returns the settings of the model in a folder, without reading its weights."""
    folder = HubFolder.open(path)
    return _model_settings(folder, _find_mapping(folder))[0]


def read_model(path: str | Path) -> HubModel:
    """Returns the model in a folder; raises SeriatimError with all its problems."""
    folder = HubFolder.open(path)
    mapping = _find_mapping(folder)
    values, settings = _model_settings(folder, mapping)
    problems: list[str] = []
    notes: list[str] = []
    head, labels = _find_head(folder, mapping), _labels(folder.config, problems)
    shapes = mapping.shapes(settings, head, folder.config, len(labels))
    stored = _with_prefix(folder.tensors(), mapping, head)
    stored |= {name: stored[one] for name, one in mapping.aliases.items() if name not in stored and one in stored}
    required = mapping.maps(settings, head)
    present = [entry for entry in head.optional if all(name in stored for name in entry.hub_names)]
    tensors = _convert([*required, *present], shapes, stored, problems)
    problems += mapping.check(stored)
    problems += [
        f"{name} and {copy} differ, but must be equal here"
        for name, copy in head.copies
        if name in stored and copy in stored and not torch.equal(stored[name], stored[copy])
    ]
    absent = [entry for entry in head.optional if entry not in present]
    if absent:
        names = ", ".join(name for entry in absent for name in entry.hub_names)
        notes.append(f"{head.architecture} without {names}: these are initialized")
    image, tokenizers = None, {}
    if mapping.images:
        image = read_preprocessor(folder.path, folder.config, problems, notes)
        tensors |= {"input.mean": torch.tensor(image.mean), "input.std": torch.tensor(image.std)}
    else:
        tokenizers = _read_tokenizers(folder.path, "target.weight" in tensors, problems)
        if folder.sentence is not None and folder.sentence.lowercase:
            tokenizers = {name: lowercased(tokenizer) for name, tokenizer in tokenizers.items()}
    for name in mapping.token_tables:
        if name in tensors:
            is_source = name == mapping.token_tables[0] and "source_tokenizer" in tokenizers
            tokenizer = tokenizers.get("source_tokenizer" if is_source else "tokenizer")
            tensors[name] = _fit_vocabulary(tensors[name], tokenizer, problems, notes)
    _raise_problems(folder.path, problems)
    used = {name for entry in (*required, *head.optional) for name in entry.hub_names}
    unused = [name for name in stored if name not in used and not any(re.fullmatch(p, name) for p in mapping.ignored)]
    if unused:
        notes.append(
            f"{plural(len(unused), 'tensor is', 'tensors are')} not part of {head.architecture}: {listed(unused, 5)}"
        )
    new_tensors = {entry.name: _initialize(shapes[entry.name]) for entry in absent}
    notes = list(dict.fromkeys(notes))
    parts = (folder.path, values, mapping, head, tensors, folder.config, tokenizers)
    return HubModel(*parts, labels, notes, new_tensors, image, folder.sentence)


def _model_settings(folder: HubFolder, mapping: ModelMapping) -> tuple[Json, Any]:
    """Returns the settings as plain values and validated; building the modules shows contradictory sizes."""
    problems: list[str] = []
    values = mapping.settings(folder.config, problems)
    read_sizes(problems, folder.config, mapping.sizes)
    _raise_problems(folder.path, problems)
    try:
        settings = validate(registry.models.load(values["name"]).Settings, values, f"{folder.path / CONFIG}")
        mapping.shapes(settings, HubHead("", ""), folder.config, 1)
    except SeriatimError as error:
        raise SeriatimError("hub.unfit", error.cause, "use another model") from None
    return values, settings


def _convert(
    maps: Iterable[TensorMap], shapes: Mapping[str, Tensor], stored: Mapping[str, Tensor], problems: list[str]
) -> dict[str, Tensor]:
    """Returns tensors by our names; adds a problem for each hub tensor that config.json does not describe."""
    tensors = {}
    for entry in maps:
        errors = []
        for name, expected in entry.write(shapes[entry.name]).items():
            if name not in stored:
                errors.append(f"the tensor {name} is missing")
            elif stored[name].shape != expected.shape:
                actual, described = tuple(stored[name].shape), tuple(expected.shape)
                errors.append(f"the tensor {name} has the shape {actual}; config.json describes {described}")
            elif not stored[name].is_floating_point():
                dtype = str(stored[name].dtype).removeprefix("torch.")
                errors.append(f"the tensor {name} has the type {dtype}, not that of weights")
            elif not stored[name].float().isfinite().all():
                errors.append(f"the tensor {name} has values that are not finite")
        if not errors and (problem := entry.problem(stored)) is not None:
            errors = [problem]
        problems += errors
        if not errors:
            tensors[entry.name] = entry.read({name: stored[name].float() for name in entry.hub_names})
    return tensors


def _fit_vocabulary(table: Tensor, tokenizer: Tokenizer | None, problems: list[str], notes: list[str]) -> Tensor:
    """Returns a tensor with a row per token: some have unused rows at the end, to make the number a round one."""
    if tokenizer is None or tokenizer.vocab_size == len(table):
        return table
    if tokenizer.vocab_size > len(table):
        problem = f"the tokenizer has {tokenizer.vocab_size:,} tokens, the token vectors {len(table):,} rows"
        problems += [problem] if problem not in problems else []
        return table
    unused = f"the token vectors have {len(table):,} rows for {tokenizer.vocab_size:,} tokens"
    notes.append(f"{unused}; the rest is left out")
    return table[: tokenizer.vocab_size].clone()


def _initialize(like: Tensor) -> Tensor:
    tensor = torch.zeros(like.shape)
    if tensor.dim() < 2:
        return tensor
    return tensor.normal_(std=NEW_WEIGHT_STD, generator=torch.Generator().manual_seed(0))


def _labels(config: Config, problems: list[str]) -> tuple[str, ...]:
    names, count = config.get("id2label"), config.get("num_labels", 2)
    if isinstance(names, dict) and names:
        numbered = {str(index): names.get(str(index)) for index in range(len(names))}
        if names.keys() == numbered.keys() and len({str(name) for name in numbered.values()}) < len(names):
            problems.append("config.json: id2label has two labels of the same name")
        if names.keys() == numbered.keys():
            return tuple(str(name) for name in numbered.values())
        problems.append(f"config.json: id2label does not number its {len(names)} labels from 0 on")
    elif names or not isinstance(count, int) or isinstance(count, bool) or count < 1:
        problems.append(f"config.json: {'id2label' if names else 'num_labels'} is {repr(names or count)[:MAX_SHOWN]}")
        return ("",)
    else:
        LABELS.check(count, "config.json: num_labels")
    return tuple(f"LABEL_{index}" for index in range(len(names) if names else count))


def _find_mapping(folder: HubFolder) -> ModelMapping:
    mappings = by_model_type()
    if folder.model_type not in mappings:
        name = f"a model of type {folder.model_type[:MAX_SHOWN]}" if folder.model_type else "no type of model"
        cause = f"{folder.path}: config.json has {name}"
        raise SeriatimError("hub.type", cause, f"supported: {', '.join(sorted(mappings))}")
    return mappings[folder.model_type]


def _find_head(folder: HubFolder, mapping: ModelMapping) -> HubHead:
    architecture = folder.architecture or mapping.heads[0].architecture
    for head in mapping.heads:
        if folder.sentence is not None and head.kind == "pretraining" and not head.prefixed:
            return head  # the encoder alone, whatever it was trained as
        if head.architecture == architecture and head.matches(folder.config):
            return head
    supported = ", ".join(dict.fromkeys(head.architecture for head in mapping.heads))
    cause = f"{folder.path}: config.json has the architecture {architecture[:MAX_SHOWN]}"
    raise SeriatimError("hub.architecture", cause, f"supported: {supported}")


def _with_prefix(stored: dict[str, Tensor], mapping: ModelMapping, head: HubHead) -> dict[str, Tensor]:
    """Returns tensors with the names of the architecture: some folders have the body with a prefix, some without."""
    prefixed = any(name.startswith(mapping.prefix) for name in stored)
    if head.prefixed == prefixed or not mapping.prefix:
        return stored
    if prefixed:
        return {name.removeprefix(mapping.prefix): tensor for name, tensor in stored.items()}
    unchanged = {name for entry in head.maps for name in entry.hub_names}
    unchanged |= {name for name in stored if any(re.fullmatch(pattern, name) for pattern in mapping.ignored)}
    return {name if name in unchanged else mapping.prefix + name: tensor for name, tensor in stored.items()}


def _read_tokenizers(path: Path, separate: bool, problems: list[str]) -> dict[str, Tokenizer]:
    """Returns the tokenizer, that of the target if source and target have separate ones."""

    def load(folder: Path) -> Tokenizer | None:
        try:
            return Tokenizer.load(folder)
        except SeriatimError as error:
            if error.code != "tokenizer.missing":
                problems.append(error.cause)
            return None

    tokenizer = load(path)
    if not separate or tokenizer is None:
        return {} if tokenizer is None else {"tokenizer": tokenizer}
    target = load(path / TARGET_FOLDER if (path / TARGET_FOLDER).is_dir() else path)  # another object, even if equal
    return {"tokenizer": tokenizer if target is None else target, "source_tokenizer": tokenizer}


def _raise_problems(path: Path, problems: list[str]) -> None:
    if problems:
        cause = f"{path} cannot be used:\n  - {listed(problems, MAX_LISTED, SEPARATOR)}"
        raise SeriatimError("hub.unfit", cause, "use a folder whose config.json, weights and tokenizer belong together")
