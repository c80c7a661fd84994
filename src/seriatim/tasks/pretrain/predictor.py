"""The predictor of pretrained encoders: fill [MASK], judge whether a text follows another, and embeddings."""

from __future__ import annotations

from typing import Any, cast

import numpy as np
import torch
from pydantic import Field as Setting
from torch import Tensor

from ...core.config import Settings
from ...core.errors import SeriatimError
from ...data.dataset import Dataset
from ...data.kinds import NUMBER, TEXT, TOKENS
from ...data.schema import Field, Schema
from ...data.sequences import Sequences
from ...data.shards import frame_texts
from ...nn.network import MaskedHead, PretrainHead, as_float32
from ..base import Task
from ..batching import Batch, padding_mask, run_batches
from ..embedding import EmbeddingPredictor, TextReader
from ..inspection import ScoredTokens, TokenReadout, TokenScorer
from ..predictor import Record, Usage, capability
from ..processor import Encoded
from .processor import PretrainProcessor

MAX_LISTED = 5  # inputs in an error
MAX_ELEMENTS = 8_192  # of texts with one masked token each that are read at once
INPUTS = Schema(
    (
        Field("text", (TEXT,), ("sentence", "content", "first", "block")),
        Field("second", (TEXT,), ("second_text", "text2", "sentence2"), required=False),
    ),
    positions=("text", "second"),
)


class FillOptions(Settings):
    top: int = Setting(5, ge=1, le=1_000_000, description="tokens listed for each [MASK]")


class FillMaskPredictor(EmbeddingPredictor):
    """A pretrained encoder. Without heads (an imported encoder) it only has embeddings."""

    processor: PretrainProcessor

    def __init__(self, task: Task[Any], network: Any) -> None:
        super().__init__(task, network)
        self.tokenizer = self.processor.tokenizer
        self.mask = -1 if self.tokenizer.mask is None else int(self.tokenizer.mask)
        self.mask_name = "[MASK]" if self.mask < 0 else self.tokenizer.names[self.mask]

    @property
    def head(self) -> PretrainHead:
        return cast(PretrainHead, self.network.head)

    @capability(outputs={"text": TEXT, "masks": TOKENS, "follows": NUMBER}, options=FillOptions, inputs=INPUTS)
    def fill(self, dataset: Dataset, options: FillOptions) -> list[Record]:
        """Predict the token at each [MASK] of a text, and whether a second text follows the first."""
        if self.head.masked is None and self.head.next is None:
            cause = "this encoder has no head: neither for masked tokens nor for pairs"
            raise SeriatimError("predict.capability", cause, "it can: embed, nearest, words; or fine-tune it (--from)")
        inputs = self.read_texts(dataset)
        sequences = self.encode_texts(inputs)
        counts = self._count_masks(inputs, sequences)
        device = next(self.network.parameters()).device

        def run(items: np.ndarray) -> list[Record]:
            block, elements = sequences.padded(items)
            mask = padding_mask(elements)
            hidden, _ = self.network.hidden(
                torch.from_numpy(block).to(device), None if mask is None else mask.to(device)
            )
            positions = torch.from_numpy(np.flatnonzero((block == self.mask) & elements)).to(device)
            candidates: list[list[Record]] = []
            if self.head.masked is not None and len(positions):
                scores = self.head.masked.scores(hidden.flatten(0, 1).index_select(0, positions))
                probs, best = as_float32(scores).softmax(dim=-1).topk(min(options.top, scores.shape[-1]))
                candidates = [
                    [
                        {"token": self.tokenizer.names[token], "probability": probability}
                        for token, probability in zip(tokens, probabilities, strict=True)
                    ]
                    for tokens, probabilities in zip(best.tolist(), probs.tolist(), strict=True)
                ]
            follows = None
            if self.head.next is not None:
                follows = as_float32(self.head.next(self.head.pooled(hidden))).softmax(dim=-1)[:, 0].tolist()
            remaining = iter(candidates)
            records = []
            for row, item in enumerate(items.tolist()):
                masks = [next(remaining) for _ in range(counts[item])]
                record = {"text": self._fill_text(inputs[item], masks), "masks": masks}
                if follows is not None and len(inputs[item]) == 2:
                    record["follows"] = follows[row]
                records.append(record)
            return records

        return run_batches(sequences.lengths, run)

    def read_texts(self, dataset: Dataset) -> list[tuple[str, ...]]:
        """Returns one text of each row, or two: of two columns, or separated by a tab."""
        texts = list(dataset["text"])
        second = list(dataset["second"]) if "second" in dataset else [""] * len(texts)
        pairs: list[tuple[str, ...]] = [
            (text, other) if other else (text,) for text, other in zip(texts, second, strict=True)
        ]
        if self.head.next is None:
            return pairs
        return [tuple(pair[0].split("\t")) if len(pair) == 1 and pair[0].count("\t") == 1 else pair for pair in pairs]

    def encode_texts(self, inputs: list[tuple[str, ...]]) -> Sequences:
        limit = self.processor.max_length
        rows = [frame_texts(self.tokenizer, [[text] for text in texts], limit)[0] for texts in inputs]
        return Sequences.of(rows)

    def _fill_text(self, texts: tuple[str, ...], masks: list[list[Record]]) -> str | list[str]:
        best = iter([candidates[0]["token"].removeprefix("##") for candidates in masks])
        filled = []
        for text in texts:
            first, *others = text.split(self.mask_name)
            filled.append(first + "".join(next(best) + other for other in others) if masks else text)
        return filled[0] if len(filled) == 1 else filled

    def _count_masks(self, inputs: list[tuple[str, ...]], sequences: Sequences) -> np.ndarray:
        """Returns the number of [MASK] in each input; raises an error that lists the inputs without an answer."""
        counts = np.array([int((sequences[row] == self.mask).sum()) for row in range(len(inputs))], dtype=np.int64)
        predicts = self.head.masked is not None
        problems = []
        for number, (texts, count) in enumerate(zip(inputs, counts.tolist(), strict=True), 1):
            single, written = len(texts) == 1, sum(text.count(self.mask_name) for text in texts)
            shown = " ⇥ ".join(texts)[:60]
            if not predicts and single:
                problems.append(f"input {number} is one text, but the model judges two: {shown}")
            elif not written and (single or self.head.next is None):
                problems.append(f"input {number} has no {self.mask_name}: {shown}")
            elif predicts and written > count:
                limit = self.processor.max_length
                problems.append(f"input {number} has a {self.mask_name} beyond the {limit} tokens that are read")
        if problems:
            more = [f"and {len(problems) - MAX_LISTED:,} more"] if len(problems) > MAX_LISTED else []
            cause = "\n    ".join([*problems[:MAX_LISTED], *more])
            example = f'write {self.mask_name} for the token to predict: "The capital of {self.mask_name} is Paris."'
            pair = 'pass two texts: ("They met.", "Then they left.")'
            raise SeriatimError("predict.input", cause, example if predicts else pair)
        return counts if predicts else np.zeros_like(counts)

    @property
    def texts_per_input(self) -> tuple[int, ...]:
        return (1, 2)

    def encode_inputs(self, inputs: object) -> Encoded:
        return Encoded(self.encode_texts(self.read_texts(self.task.read(inputs, INPUTS))))

    def token_scorer(self) -> TokenScorer | None:
        return None if self.head.masked is None or self.mask < 0 else self.score_tokens

    def score_tokens(self, text: str, target: str | None) -> ScoredTokens:
        """Returns the tokens of a text, each as the model rates it if it is masked alone."""
        if target is not None:
            raise SeriatimError("inspect.target", "an encoder has no target texts", "omit --target")
        if self.text_reader().encode([text]).truncated:
            cause = f"the text is longer than the {self.text_reader().max_length} elements that the model reads"
            raise SeriatimError("inspect.length", cause, "pass a shorter one")
        tokenizer, device = self.tokenizer, next(self.network.parameters()).device
        tokens = torch.from_numpy(self.encode_inputs([text]).inputs[0])
        special = [
            token for token in (tokenizer.cls, tokenizer.sep, tokenizer.mask, tokenizer.pad) if token is not None
        ]
        positions = torch.nonzero(~torch.isin(tokens, torch.tensor(special)))[:, 0]
        parts = []
        with torch.inference_mode():
            for chunk in positions.split(max(MAX_ELEMENTS // max(len(tokens), 1), 1)):
                rows = torch.arange(len(chunk))
                masked = tokens.repeat(len(chunk), 1)  # (n,T), each with one masked token
                masked[rows, chunk] = self.mask
                hidden, _ = self.network.hidden(masked.to(device))
                scores = cast(MaskedHead, self.head.masked).scores(hidden[rows, chunk])
                parts.append(as_float32(scores).log_softmax(dim=-1).cpu())
        log_probs = torch.cat(parts) if parts else torch.zeros(0, tokenizer.vocab_size)
        ids = tokens[positions]
        own = log_probs.gather(1, ids[:, None])[:, 0].double().numpy()
        return ScoredTokens(tokenizer, ids.numpy(), own, [log_probs], len(text))

    def token_readout(self) -> TokenReadout | None:
        if self.head.masked is None:
            return None

        def visible_tokens(batch: Batch) -> Tensor:
            tokens: Tensor = batch.inputs[0]
            return torch.where(tokens == self.mask, -1, tokens)

        return TokenReadout(self.tokenizer, self.head.masked.scores, visible_tokens, False)

    def element_names(self, encoded: Encoded, item: int) -> list[str]:
        return [self.tokenizer.token(int(token)) for token in encoded.inputs[item]]

    def text_reader(self) -> TextReader:
        limits = [self.processor.max_length, self.network.backbone.context_length]
        limit = min(limit for limit in limits if limit is not None)
        return TextReader(self, self.tokenizer, max_length=limit)

    def usage(self, run: str) -> list[Usage]:
        text = f"The capital of {self.mask_name} is Paris."
        lines = [Usage(f'seriatim embed {run} "A sentence."', 'print(run.embed("A sentence."))')]
        if self.head.masked is None:
            return lines
        return [Usage(f'seriatim fill {run} "{text}"', f'print(run.fill("{text}")["text"])'), *lines]
