"""Folders of sentence-transformers: a model of `transformers` beside files that say how a text becomes one vector.

modules.json                         the modules in order: Transformer, Pooling, Normalize
1_Pooling/config.json                how the vectors of all tokens become one
sentence_bert_config.json            the longest text in tokens, and whether it is lower-cased first
config_sentence_transformers.json    a prompt before every text
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from tokenizers import normalizers

from ..core.errors import SeriatimError
from ..core.files import Json, write_json
from ..data.tokenizers import Tokenizer
from .mapping import read_json, read_json_object

MODULES = "modules.json"
PROMPTS = "config_sentence_transformers.json"
TRANSFORMER = "sentence_bert_config.json"
OTHER_NAMES = tuple(f"sentence_{name}_config.json" for name in ("roberta", "distilbert", "xlm-roberta"))
POOLING = {"mean": "mean", "cls": "cls", "max": "max", "lasttoken": "last"}  # theirs → ours
POOLING_KEYS = {
    "pooling_mode_cls_token": "cls",
    "pooling_mode_max_tokens": "max",
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_mean_sqrt_len_tokens": "mean_sqrt_len_tokens",
    "pooling_mode_weightedmean_tokens": "weightedmean",
    "pooling_mode_lasttoken": "lasttoken",
}  # of files before version 6: one is true
MAX_SHOWN = 100  # characters of a value


@dataclass(frozen=True)
class SentenceModules:
    """How the model of a folder embeds texts.

    Args:
        path: The folder with config.json.
        pooling: As the option of `embed`.
        normalize: Whether vectors have length 1.
        max_length: The longest text in tokens; None: as the model.
        lowercase: Whether texts are lower-cased first.
        prompt: What is put before every text.
        problems: What is not supported: other modules, other poolings.
    """

    path: Path
    pooling: str = "mean"
    normalize: bool = True
    max_length: int | None = None
    lowercase: bool = False
    prompt: str = ""
    problems: list[str] = field(default_factory=list)

    @property
    def settings(self) -> Json:
        return {"pooling": self.pooling, "normalize": self.normalize, "prompt": self.prompt}


def read_modules(path: Path) -> SentenceModules | None:
    """Returns the modules of a folder; None if it is not one of sentence-transformers."""
    if not (path / MODULES).is_file():
        return None
    listed = read_json(path / MODULES)
    if not isinstance(listed, list) or not listed or not all(isinstance(module, dict) for module in listed):
        raise SeriatimError("hub.damaged", f"{path / MODULES} is not a list of modules", "restore the file")
    kinds = [str(module.get("type", "")).rpartition(".")[2] for module in listed]
    folders = [_subfolder(path, module.get("path", "")) for module in listed]
    problems: list[str] = []
    if kinds[:2] != ["Transformer", "Pooling"] or kinds[2:] not in ([], ["Normalize"]):
        modules = ", ".join(kinds)[:MAX_SHOWN]
        problems.append(f"{MODULES} has the modules {modules}; supported: Transformer, Pooling, Normalize")
    if kinds[1:2] != ["Pooling"]:
        return SentenceModules(folders[0], problems=problems)
    pooling, include_prompt = _read_pooling(folders[1], problems)
    options = next((read_json_object(file) for file in _present(folders[0], TRANSFORMER, *OTHER_NAMES)), {})
    length = options.get("max_seq_length")
    if length is None:
        files = _present(folders[0], "tokenizer_config.json")
        length = next((read_json_object(file).get("model_max_length") for file in files), None)
    max_length = int(length) if isinstance(length, int | float) and 1 <= length < 2**31 else None
    prompt = _read_prompt(path, problems)
    if prompt and not include_prompt:
        problems.append(f"{PROMPTS}: a prompt that is not pooled (include_prompt is false)")
    lowercase = bool(options.get("do_lower_case"))
    return SentenceModules(folders[0], pooling, "Normalize" in kinds, max_length, lowercase, prompt, problems)


def _present(folder: Path, *names: str) -> list[Path]:
    return [folder / name for name in names if (folder / name).is_file()]


def _subfolder(path: Path, name: object) -> Path:
    """Returns the folder of a module, which is inside of that of the model."""
    parts = Path(name).parts if isinstance(name, str) and "\0" not in name else ("..",)
    if ".." in parts or Path(*parts).is_absolute():
        cause = f"{path / MODULES} names the folder {str(name)[:MAX_SHOWN]!r}"
        raise SeriatimError("hub.damaged", cause, "restore the file: the folder of a module is inside of the model's")
    return path.joinpath(*parts)


def _read_pooling(folder: Path, problems: list[str]) -> tuple[str, bool]:
    """Returns our name of the pooling, and whether a prompt is pooled."""
    values = read_json_object(folder / "config.json")
    modes = values.get("pooling_mode")
    if modes is None:
        modes = [mode for key, mode in POOLING_KEYS.items() if values.get(key)] or ["mean"]
    modes = [modes] if isinstance(modes, str) else modes
    mode = str(modes[0]) if isinstance(modes, list) and len(modes) == 1 else None
    if mode not in POOLING:
        problems.append(f"{folder.name}: the pooling is {str(modes)[:MAX_SHOWN]}; supported: {', '.join(POOLING)}")
    return POOLING.get(str(mode), "mean"), values.get("include_prompt", True) is not False


def _read_prompt(path: Path, problems: list[str]) -> str:
    values = read_json_object(path / PROMPTS) if (path / PROMPTS).is_file() else {}
    name, prompts = values.get("default_prompt_name"), values.get("prompts")
    if name is None:
        return ""
    prompt = prompts.get(name) if isinstance(prompts, dict) and isinstance(name, str) else None
    if not isinstance(prompt, str):
        problems.append(f"{PROMPTS}: there is no prompt {str(name)[:MAX_SHOWN]}")
        return ""
    return prompt


def lowercased(tokenizer: Tokenizer) -> Tokenizer:
    """Returns a tokenizer that lower-cases texts first."""
    own = tokenizer.backend.normalizer
    if own is not None and own.normalize_str("A") == "a":
        return tokenizer
    steps = [normalizers.Lowercase(), *([] if own is None else [own])]
    tokenizer.backend.normalizer = normalizers.Sequence(steps)
    return Tokenizer(tokenizer.backend)


def write_modules(path: Path, width: int, modules: SentenceModules) -> None:
    """Writes the files that make the folder of a model one of sentence-transformers; versions before 6 read them too.

    Args:
        path: The folder.
        width: The size of the vectors.
        modules: How it embeds texts.
    """
    kinds = ["Transformer", "Pooling", *(["Normalize"] if modules.normalize else [])]
    folders = ["", *(f"{index}_{kind}" for index, kind in enumerate(kinds[1:], 1))]
    listed = [
        {"idx": index, "name": str(index), "path": folder, "type": f"sentence_transformers.models.{kind}"}
        for index, (kind, folder) in enumerate(zip(kinds, folders, strict=True))
    ]
    mode = {ours: theirs for theirs, ours in POOLING.items()}[modules.pooling]
    pooling = {"word_embedding_dimension": width} | {key: name == mode for key, name in POOLING_KEYS.items()}
    for folder in folders[1:]:
        (path / folder).mkdir()
    write_json(path / MODULES, listed)
    write_json(path / folders[1] / "config.json", pooling)
    write_json(path / TRANSFORMER, {"max_seq_length": modules.max_length, "do_lower_case": False})
    prompts = {"prompts": {"default": modules.prompt}, "default_prompt_name": "default"} if modules.prompt else {}
    write_json(path / PROMPTS, {"similarity_fn_name": "cosine"} | prompts)
