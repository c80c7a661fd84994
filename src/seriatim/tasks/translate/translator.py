"""Texts in, texts out: the tokenizers around a decoder, for evaluation and prediction alike.

TranslateTask, TranslationPredictor ──► Translator (texts) ──► Seq2Seq (batches) ──► decode/ (log-probabilities)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from ...data.sequences import Sequences
from ...data.tokenizers import UNK
from ...decode.sampling import Hypothesis
from ...decode.seq2seq import Seq2Seq, TargetScores
from ...decode.settings import BeamSettings
from ..base import Progress
from ..codecs import normalize_text
from ..decoding import Generated, score_items, search_items
from ..inspection import Alignment, TokenizedText, written_words
from ..values import Items, Subset
from .processor import Pairs, TranslationProcessor, collate_pairs

EMPTY = Generated([], 0.0, True, 0.0)
ALIGNED_QUANTILES = (0.5, 0.8)  # of the lengths of the sentences whose alignment is shown
MAX_ALIGNED = 30  # tokens of such a sentence


@dataclass(frozen=True)
class Translator:
    """Translations, their scores and alignments.

    The score of a translation is what the capability `score` returns for its text: where its tokens differ from those
    that the tokenizer makes of the text, or the end is missing, it is computed from the text.

    Args:
        processor: Encodes both sides.
        decoder: One network or an ensemble.
        normalize: Whether texts are normalized as those of the training were.
    """

    processor: TranslationProcessor
    decoder: Seq2Seq
    normalize: bool = True

    def translate(
        self, texts: Sequence[str], sources: Items, options: BeamSettings, progress: Progress | None = None
    ) -> list[list[Generated]]:
        """Returns the `nbest` translations of each text, best first; an empty one if the model cannot read it.

        Args:
            texts: The sources.
            sources: The sources, encoded.
            options: Beam size, length limits and so on.
            progress: Called with the number of translations so far, and that of all.
        """
        readable = np.array([bool(text.strip()) for text in texts], dtype=bool)
        if self.decoder.context_length is not None:
            readable &= sources.lengths <= self.decoder.context_length
        items = np.flatnonzero(readable)
        groups = self.search(Subset(sources, items), options, lambda item: texts[int(items[item])], progress)
        finished = iter(self._finish(texts, sources, items, groups, options))
        results: list[list[Generated]] = [[EMPTY] for _ in texts]
        for item, group in zip(items.tolist(), groups, strict=True):
            results[item] = [next(finished) for _ in group]
        return results

    def search(
        self, sources: Items, options: BeamSettings, key: Callable[[int], str], progress: Progress | None = None
    ) -> list[list[Hypothesis]]:
        """Returns the hypotheses of each source, best first; samples depend on its `key` and the seed alone."""
        replaces_unknown, longest = self.replaces_unknown(options), self.decoder.context_length
        prefix = self.processor.encode_prefix(options, longest, "translate")
        forbidden = self.processor.forbidden_tokens(unknown=replaces_unknown)
        limits = options.limits(sources.lengths.tolist(), len(prefix))
        limits = [min(limit, longest or limit) for limit in limits]
        pairs, start = Pairs(sources), self.decoder.tokens.start
        return search_items(
            self.decoder,
            lambda items: collate_pairs(pairs, items, start),
            sources.lengths,
            options,
            limits,
            key,
            prefix,
            forbidden,
            progress,
        )

    def _finish(
        self,
        texts: Sequence[str],
        sources: Items,
        items: np.ndarray,
        groups: Sequence[Sequence[Hypothesis]],
        options: BeamSettings,
    ) -> list[Generated]:
        """Returns text and score of the hypotheses of these items, one after another."""
        hypotheses = [one for group in groups for one in group]
        rows = np.repeat(items, [len(group) for group in groups])
        decoded = [self.clean(self.processor.decode_text(one.tokens)) for one in hypotheses]
        targets = self.processor.encode_texts(self.processor.target, decoded)
        fits = targets.lengths <= (self.decoder.context_length or np.inf)
        own = [one.finished and one.tokens == targets[n].tolist() for n, one in enumerate(hypotheses)]
        same = np.array(own, dtype=bool)
        scores = [one.score for one in hypotheses]
        changed = np.flatnonzero(fits & ~same)
        for number, forced in zip(changed.tolist(), self.score(_pairs(sources, rows, targets, changed)), strict=True):
            scores[number] = float(forced.log_probs.sum())
        if self.replaces_unknown(options):
            unk = self.processor.target.unk
            unknown = np.array([n for n in np.flatnonzero(fits).tolist() if unk in targets[n]], dtype=np.int64)
            pairs = _pairs(sources, rows, targets, unknown)
            for number, forced in zip(unknown.tolist(), self.score(pairs, alignment=True), strict=True):
                assert forced.weights is not None
                words = written_words(self.processor.source, texts[int(rows[number])])
                positions = np.flatnonzero(targets[number] == unk)
                copied = [words[int(forced.weights[position, : len(words)].argmax())] for position in positions]
                first, *rest = decoded[number].split(UNK)
                decoded[number] = first + "".join(word + part for word, part in zip(copied, rest, strict=True))
        return [
            Generated(one.tokens, score, one.finished, one.normalized_score, text)
            for text, score, one in zip(decoded, scores, hypotheses, strict=True)
        ]

    def score(self, pairs: Pairs, alignment: bool = False, max_length: int | None = None) -> list[TargetScores]:
        """Returns the scores of the true tokens of each pair.

        Args:
            pairs: With targets.
            alignment: Whether to return the weights over the source.
            max_length: Truncates both sides, for models with a limited context.
        """
        start = self.decoder.tokens.start
        return score_items(
            self.decoder, lambda items: collate_pairs(pairs, items, start, max_length), pairs.pair_lengths, alignment
        )

    def align(self, sources: Sequence[str], targets: Sequence[str], by_words: bool = True) -> list[Alignment]:
        """Returns the attention of each target over its source."""
        processor = self.processor
        inputs = processor.encode_texts(processor.source, sources)
        outputs = processor.encode_texts(processor.target, targets)
        alignments = []
        for item, scores in enumerate(self.score(Pairs(inputs, outputs), alignment=True)):
            assert scores.weights is not None
            source = TokenizedText.of(processor.source, inputs[item].tolist(), sources[item])
            target = TokenizedText.of(processor.target, outputs[item].tolist(), targets[item])
            if by_words:
                alignments.append(Alignment.by_words(source, target, scores.weights))
            else:
                alignments.append(Alignment(source.tokens, target.tokens, scores.weights))
        return alignments

    def align_some(self, sources: Sequence[str], hypotheses: Sequence[str]) -> list[Alignment]:
        """Returns the attention while translating a sentence of medium length and a longer one, for the report."""
        if not self.decoder.has_alignment:
            return []
        processor = self.processor
        pairs = [(source, text) for source, text in zip(sources, hypotheses, strict=True) if text.strip()]
        tokenizers = processor.source, processor.target
        sides = [processor.encode_texts(one, [pair[n] for pair in pairs]).lengths for n, one in enumerate(tokenizers)]
        lengths = np.maximum(*sides)
        limit = lengths.max(initial=0) if self.decoder.context_length is None else self.decoder.context_length
        order = [row for row in np.argsort(lengths, kind="stable").tolist() if lengths[row] <= limit]
        order = [row for row in order if lengths[row] <= MAX_ALIGNED] or order[:1]
        rows = list(dict.fromkeys(order[int(share * (len(order) - 1))] for share in ALIGNED_QUANTILES)) if order else []
        return self.align([pairs[row][0] for row in rows], [pairs[row][1] for row in rows])

    def clean(self, text: str) -> str:
        """Returns a text as those of the training were normalized."""
        return normalize_text(text) if self.normalize else text

    def replaces_unknown(self, options: BeamSettings) -> bool:
        """Returns whether `<unk>` may be generated, because the attended source word replaces it."""
        kinds = {self.processor.target.kind, self.processor.source.kind}
        if kinds != {"word"} or options.replace_unknown is False:
            return False
        if options.replace_unknown:
            self.decoder.require_alignment("unknown words cannot be replaced")
        return self.decoder.has_alignment


def _pairs(sources: Items, rows: np.ndarray, targets: Sequences, chosen: np.ndarray) -> Pairs:
    """Returns some targets with their sources, of these rows."""
    return Pairs(Subset(sources, rows[chosen]), Subset(targets, chosen))
