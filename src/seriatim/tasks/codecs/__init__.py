"""Codecs: from input columns to what a network reads. Each file is a modality; processors contain codecs.

A codec knows everything that differs between texts, numbers, images and what else an input may be; tasks ask it. A
file that is added here, or named by `--plugin`, is a further modality: no other file changes.
"""

import importlib
import pkgutil

from ..inputs import SequenceSettings
from .base import CODECS, InputCodec, NumberLayout, SequenceCodec, TextInput, pretrained_codec
from .images import ImageCodec
from .numbers import NumberCodec
from .text import (
    TRAINING_CHARACTERS,
    TextCodec,
    fit_tokenizer,
    model_tokenizer,
    normalize_text,
    text_key,
    train_tokenizer,
    training_texts,
)

__all__ = [
    "CODECS",
    "TRAINING_CHARACTERS",
    "ImageCodec",
    "InputCodec",
    "NumberCodec",
    "NumberLayout",
    "SequenceCodec",
    "SequenceSettings",
    "TextCodec",
    "TextInput",
    "fit_tokenizer",
    "model_tokenizer",
    "normalize_text",
    "pretrained_codec",
    "text_key",
    "train_tokenizer",
    "training_texts",
]

for _module in pkgutil.iter_modules(__path__):
    importlib.import_module(f"{__name__}.{_module.name}")
