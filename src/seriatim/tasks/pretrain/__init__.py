"""Pretraining of encoders: masked language modeling and next-sentence prediction."""

from .predictor import FillMaskPredictor
from .processor import PretrainProcessor, PretrainSettings
from .task import PretrainTask

__all__ = ["FillMaskPredictor", "PretrainProcessor", "PretrainSettings", "PretrainTask"]
