"""Describe images in words."""

from .predictor import CaptionPredictor
from .task import CaptionProcessor, CaptionSettings, CaptionTask

__all__ = ["CaptionPredictor", "CaptionProcessor", "CaptionSettings", "CaptionTask"]
