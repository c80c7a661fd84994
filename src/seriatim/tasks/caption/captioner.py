"""Images in, texts out: the tokenizer around a decoder, for evaluation and prediction alike.

CaptionTask, CaptionPredictor ──► Captioner (images and texts) ──► Seq2Seq (batches) ──► decode/ (log-probabilities)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import cast

import numpy as np

from ...data.images import IMAGE
from ...data.images.batches import Images
from ...decode.sampling import Hypothesis
from ...decode.seq2seq import Seq2Seq, TargetScores
from ...decode.settings import BeamSettings
from ...nn.images import ImageEncoderDecoder
from ...nn.inference import MAX_ELEMENTS
from ..base import Progress
from ..decoding import MAX_ROWS, Generated, score_items, search_items
from ..encoder_decoder import encode_with_eos
from ..inspection import ImageAttention, TokenizedText
from .processor import CaptionProcessor, EncodedCaptions, collate_captions

MAX_TOKENS = 100  # of a caption, if the options set no limit and training captions are shorter
IMAGE_LENGTH = MAX_ELEMENTS // MAX_ROWS  # by which batches have MAX_ROWS images


@dataclass(frozen=True)
class Captioner:
    """Captions, their scores and the attention of their words.

    Args:
        processor: Encodes images and captions.
        decoder: One network or an ensemble.
    """

    processor: CaptionProcessor
    decoder: Seq2Seq

    @property
    def grid(self) -> tuple[int, int]:
        """Rows and columns of the cells that the decoder attends to."""
        return cast(ImageEncoderDecoder, self.decoder.networks[0]).source.image.grid

    def caption(self, images: Images, options: BeamSettings, progress: Progress | None = None) -> list[list[Generated]]:
        """Returns the `nbest` captions of each image, best first.

        Args:
            images: The images.
            options: Beam size, length limits and so on.
            progress: Called with the number of captions so far, and that of all.
        """

        def key(item: int) -> str:
            return str(IMAGE.key(np.ascontiguousarray(images[item])))

        return [
            [Generated(**vars(one), text=self.processor.decode_text(one.tokens)) for one in group]
            for group in self.search(images, options, key, progress)
        ]

    def search(
        self, images: Images, options: BeamSettings, key: Callable[[int], str], progress: Progress | None = None
    ) -> list[list[Hypothesis]]:
        """Returns the hypotheses of each image, best first; samples depend on its `key` and the seed alone."""
        longest, limit = self.decoder.context_length, options.max_tokens
        if "max_tokens" not in options.model_fields_set:
            limit = min(limit, max(MAX_TOKENS, 2 * self.processor.context_length))
        items, start = EncodedCaptions(images), self.decoder.tokens.start
        return search_items(
            self.decoder,
            lambda chosen: collate_captions(items, chosen, start),
            np.full(len(images), IMAGE_LENGTH),
            options,
            [min(limit, longest or limit)] * len(images),
            key,
            self.processor.encode_prefix(options, longest, "caption"),
            self.processor.forbidden_tokens(),
            progress,
        )

    def score(
        self, items: EncodedCaptions, alignment: bool = False, max_length: int | None = None
    ) -> list[TargetScores]:
        """Returns the scores of the true tokens of each caption.

        Args:
            items: Images with captions.
            alignment: Whether to return the weights over the cells of the image.
            max_length: Truncates captions, for models with a limited context.
        """
        start, lengths = self.decoder.tokens.start, np.full(len(items), IMAGE_LENGTH)
        return score_items(
            self.decoder, lambda chosen: collate_captions(items, chosen, start, max_length), lengths, alignment
        )

    def attend(self, images: Images, texts: Sequence[str]) -> list[ImageAttention]:
        """Returns the attention of a text to each of some images, averaged over the tokens of each word."""
        self.decoder.require_alignment("there is no attention to show")
        targets = encode_with_eos(self.processor.target, texts)
        attentions = []
        for item, scores in enumerate(self.score(EncodedCaptions(images, targets), alignment=True)):
            assert scores.weights is not None
            words = TokenizedText.of(self.processor.target, targets[item].tolist(), texts[item])
            means = np.stack([scores.weights[group].mean(axis=0) for group in words.groups])
            count = len(words.words) - 1  # <eos> is not a word
            attentions.append(ImageAttention(images[item], self.grid, words.words[:count], means[:count]))
        return attentions
