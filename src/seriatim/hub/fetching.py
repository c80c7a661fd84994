"""A model by its name on the hub, from the cache or over the network."""

from __future__ import annotations

import re
from pathlib import Path

from ..core.errors import SeriatimError

NAME = re.compile(r"[\w.-]+(/[\w.-]+)?")
WANTED = [
    "config.json", "*.safetensors", "*.safetensors.index.json", "tokenizer.json", "tokenizer_config.json", "vocab.txt",
    "vocab.json", "merges.txt", "special_tokens_map.json",
]  # fmt: skip


def fetch(name: str) -> Path:
    """The folder of a model, fetched where it is not in the cache yet."""
    from huggingface_hub import snapshot_download

    try:
        return Path(snapshot_download(name, allow_patterns=WANTED))
    except Exception as error:  # the package raises whatever its network layer raises
        why = str(error).strip().partition("\n")[0][:200] or type(error).__name__
        cause = f'there is no folder "{name}", and no model of that name could be fetched: {why}'
        raise SeriatimError("hub.fetch", cause, "name a run, or the folder of a model; or check the network") from None


def located(source: str) -> Path:
    """A folder that is there, or the folder of a model of that name on the hub."""
    path = Path(source).expanduser()
    if path.exists() or not NAME.fullmatch(source):
        return path
    return fetch(source)
