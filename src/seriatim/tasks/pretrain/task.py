"""The task pretrain: network, loss, evaluation and what a report shows.

    loss = −mean log p(token | the text around it)  −  mean log p(b follows a, or does not)       Devlin et al. 2019

From documents come pairs of passages, [CLS] a [SEP] b [SEP]; in half of them b follows a in its document. 15 % of the
tokens are masked and must be predicted from both sides. Pairs and masks are drawn for every step. Other tasks
start from the weights (`--from`) and then need few examples.

The two means are over different things, masked tokens and pairs. So that dividing a step into batches changes nothing,
the sum over pairs is weighted by the masked tokens per pair of the whole step, which every process knows:

    Σ_tokens + (M/P) Σ_pairs, divided by M        M masked tokens and P pairs of the step
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any, NamedTuple, cast

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ...core.errors import Diagnostics, SeriatimError
from ...core.state import State
from ...core.text import evenly_spaced, listed
from ...data.dataset import Dataset
from ...data.sequences import Sequences
from ...data.shards import frame_texts
from ...data.source import DataInput
from ...data.split import Contiguous
from ...embedding.reader import TextReader
from ...nn.backbone import Backbone, BackboneSettings
from ...nn.inference import device_of, run_batches
from ...nn.loss import TokenScores, distillation_loss, token_loss, token_predictions
from ...nn.network import MaskedHead, Network, PretrainHead, as_float32, assemble
from ...nn.settings import ModelSettings
from ...report.charts import View
from ..base import (
    SAMPLED_SIZE,
    Batch,
    Encoded,
    Evaluation,
    Metrics,
    Output,
    Progress,
    Split,
    Splits,
    Task,
    padding_mask,
)
from ..capability import Call, Record, capability
from ..inspection import ScoredTokens, TokenReadout, TokenScorer
from ..metrics import perplexity
from ..predictor import Predictor, Usage
from ..processor import Values, length_mismatches, tokenizer_mismatches
from ..text_predictor import EmbeddingPredictor
from .masking import MaskedBatch, Masking, PretrainPredictions, filled_passages, filled_text, prediction_views
from .processor import EncodedPassages, PretrainProcessor
from .spec import FILL, INPUTS, SPEC, FillOptions, PretrainSettings

EVALUATION_GROUP = 64  # spans whose passages are drawn together in evaluation
SAMPLE_ROWS, SAMPLE_TOKENS = 3, 40  # of a sample during training
VIEWED_ROWS = 10  # of the report
MAX_LISTED = 5  # inputs in an error
MAX_ELEMENTS = 8_192  # of texts with one masked token each that are read at once


class FillMaskPredictor(EmbeddingPredictor):
    """A pretrained encoder. Without heads (an imported encoder) it only has embeddings."""

    processor: PretrainProcessor

    def __init__(self, task: PretrainTask, network: Network) -> None:
        super().__init__(task, network)
        self.tokenizer = self.processor.tokenizer
        self.mask = -1 if self.tokenizer.mask is None else int(self.tokenizer.mask)
        self.mask_name = "[MASK]" if self.mask < 0 else self.tokenizer.names[self.mask]

    @property
    def head(self) -> PretrainHead:
        return cast(PretrainHead, self.network.head)

    @capability(FILL)
    def fill(self, call: Call[FillOptions]) -> list[Record]:
        if self.head.masked is None and self.head.next is None:
            cause = "this encoder has no head: neither for masked tokens nor for pairs"
            raise SeriatimError("predict.capability", cause, "it can: embed, nearest, words; or fine-tune it (--from)")
        inputs = self.read_texts(call.rows)
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
                probs, best = as_float32(scores).softmax(dim=-1).topk(min(call.options.top, scores.shape[-1]))
                candidates = [
                    [
                        {"token": self.tokenizer.piece(token), "probability": probability}
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
            result, *others = text.split(self.mask_name) if masks else [text]
            for other in others:
                token = next(best)
                if token.startswith(" "):  # which the mask replaces as well
                    result, token = result.rstrip(" "), token if result.strip(" ") else token.lstrip(" ")
                result += token + other
            filled.append(result)
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
            cause = listed(problems, MAX_LISTED, "\n    ")
            example = f'write {self.mask_name} for the token to predict: "The capital of {self.mask_name} is Paris."'
            pair = 'pass two texts: ("They met.", "Then they left.")'
            raise SeriatimError("predict.input", cause, example if predicts else pair)
        return counts if predicts else np.zeros_like(counts)

    @property
    def texts_per_input(self) -> tuple[int, ...]:
        return (1, 2)

    def encode_inputs(self, inputs: DataInput) -> Encoded:
        return Encoded(self.encode_texts(self.read_texts(self.task.read(inputs, Diagnostics(), INPUTS))))

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

    def text_reader(self) -> TextReader:
        limits = [self.processor.max_length, self.network.backbone.context_length]
        limit = min(limit for limit in limits if limit is not None)
        return TextReader(self, self.tokenizer, max_length=limit, embedding=self.processor.embedding)

    def usage(self, run: str, rows: Dataset | None = None) -> list[Usage]:
        text = f"The capital of {self.mask_name} is Paris."
        lines = [Usage(f'seriatim embed {run} "A sentence."', 'print(run.embed("A sentence."))')]
        if self.head.masked is None:
            return lines
        return [Usage(f'seriatim fill {run} "{text}"', f'print(run.fill("{text}")["text"])'), *lines]


# The task


class PretrainScores(NamedTuple):
    masked: TokenScores | None  # of the M masked tokens
    next: Tensor | None  # (B,2) of "follows" and "does not"
    pair_weight: Tensor  # of a pair beside a masked token


class PretrainTask(Task[PretrainSettings, PretrainProcessor, EncodedPassages, PretrainPredictions]):
    spec = SPEC
    split_policy = Contiguous("text")
    processor_type = PretrainProcessor
    predictor_type = FillMaskPredictor
    teacher_tokenizer = True
    default_fractions = (0.9, 0.05, 0.05)
    hub_head = "pretraining"

    @classmethod
    def model_defaults(cls, values: Values) -> Values:
        return {"bidirectional": True}

    @classmethod
    def resolve_settings(cls, settings: PretrainSettings, values: Values) -> PretrainSettings:
        """Limits `pairs_first`: pretrained weights need none, and a short training at most a fifth of its steps."""
        steps = (values.get("train") or {}).get("steps")
        limit = settings.pairs_first if steps is None else int(steps) // 5
        needless = values.get("start") is not None or not (settings.masked and settings.next)
        return settings.model_copy(update={"pairs_first": 0 if needless else min(settings.pairs_first, limit)})

    @property
    def unit(self) -> str:  # type: ignore[override]
        return "masked tokens" if self.settings.masked else "pairs"

    @cached_property
    def masking(self) -> Masking | None:
        """How tokens are selected and replaced; None if only pairs are judged."""
        if not self.settings.masked:
            return None
        return Masking.of(self.processor.tokenizer, self.settings.mask_rate, self.settings.whole_word)

    def encode_split(self, name: str, rows: Dataset, diagnostics: Diagnostics) -> EncodedPassages:
        return self.processor.encode(rows, diagnostics, name)

    def link(self, splits: Splits[EncodedPassages], diagnostics: Diagnostics) -> Splits[EncodedPassages]:
        """Counts the tokens of the training split, and notes the number of passages of each split."""
        if "train" not in splits:
            return splits
        noun = "pairs of passages" if self.settings.next else "passages"
        counts = ", ".join(f"{len(splits[name].items):,} {name}" for name in splits)
        diagnostics.note(f"{noun}: {counts}")
        ordinary = Masking.of(self.processor.tokenizer, self.settings.mask_rate, False).ordinary
        occurrences = np.bincount(splits.train.items.passages.tokens, minlength=len(ordinary))
        known = np.where(ordinary, occurrences, 0)
        return Splits(
            {name: replace(part, items=replace(part.items, token_counts=known)) for name, part in splits.parts.items()}
        )

    # Network

    def network(self, model: ModelSettings) -> Network:
        if model.gradient_free:
            raise self.unsupported_model(model)
        check_bidirectional(model)
        backbone_settings = cast(BackboneSettings, model)
        settings, tokenizer = self.settings, self.processor.tokenizer
        inputs = backbone_settings.token_input(tokenizer.vocab_size, tokenizer.sep)

        def head(backbone: Backbone) -> nn.Module:
            options = backbone_settings.pretrain_head | {"std": backbone_settings.embedding_std}
            return PretrainHead(backbone.width, inputs, settings.masked, settings.next, **options)

        return assemble(backbone_settings, inputs, inputs.embedding_dim, self.processor.max_length, head)

    # Training

    def shown_items(self, items: EncodedPassages) -> EncodedPassages:
        raise SeriatimError("inspect.example", "passages are drawn in every step", "pass a text")

    def training_batch(self, train: EncodedPassages, chosen: np.ndarray, share: slice, step: int) -> Batch:
        """Returns a share of the passages of a step, which every process draws as a whole."""
        pairs_only = self.settings.next and step < self.settings.pairs_first
        masking = None if pairs_only else self.masking
        whole = MaskedBatch.draw(train.passages, train.numbers[chosen], masking, self.config.seed, "train", step)
        return whole.take(share).to_batch(whole.pair_weight)

    def collate(self, items: EncodedPassages, chosen: np.ndarray) -> Batch:
        inputs, mask = items.inputs.padded(chosen)
        return Batch(torch.from_numpy(inputs), None, len(chosen), padding_mask(mask))

    def forward(self, network: Network, batch: Batch, state: State = None) -> Output[PretrainScores]:
        """Returns the scores; only masked tokens are compared with the vocabulary."""
        hidden, _ = network.hidden(batch.inputs, batch.mask)
        head = cast(PretrainHead, network.head)
        vectors, masked = hidden[:, 0], None
        if head.masked is not None:
            vectors = hidden.flatten(0, 1).index_select(0, batch.targets["positions"])
            masked = TokenScores(head.masked(vectors), head.masked.weight, head.masked.bias)
        pairs = None if head.next is None else as_float32(head.next(head.pooled(hidden)))
        return Output(PretrainScores(masked, pairs, batch.targets["pair_weight"]), vectors)

    def loss(self, output: Output[PretrainScores], batch: Batch, smoothing: float = 0.0) -> Tensor:
        scores = output.scores
        losses = []
        if scores.masked is not None:
            losses.append(token_loss(*scores.masked, batch.targets["tokens"], smoothing))
        if scores.next is not None:
            pair_loss = F.cross_entropy(scores.next, batch.targets["unrelated"], reduction="sum")
            losses.append(scores.pair_weight * pair_loss)
        return sum(losses[1:], losses[0])

    def distillation_loss(self, output: Output[Any], teacher: Output[Any], temperature: float) -> Tensor:
        scores, teacher_scores = output.scores, teacher.scores
        losses = []
        if scores.masked is not None and teacher_scores.masked is not None:
            losses.append(distillation_loss(scores.masked, teacher_scores.masked, temperature))
        if scores.next is not None and teacher_scores.next is not None:
            losses.append(scores.pair_weight * distillation_loss(scores.next, teacher_scores.next, temperature))
        return sum(losses[1:], losses[0])

    def teacher_mismatches(self, teacher: Predictor[Any]) -> list[str]:
        other = cast(PretrainProcessor, teacher.processor)
        sentences = tokenizer_mismatches(self.processor.tokenizer, other.tokenizer)
        head = teacher.network.head
        heads = {"masked tokens": (self.settings.masked, head.masked), "pairs": (self.settings.next, head.next)}
        sentences += [
            f"it was not trained for {name}" for name, (own, theirs) in heads.items() if own and theirs is None
        ]
        return sentences + length_mismatches("sequences", self.settings.context_length, other.max_length)

    # Evaluation

    def sample_split(self, split: Split[EncodedPassages], limit: int | None = None) -> Split[EncodedPassages]:
        """Returns whole groups of spans, evenly spaced, with about `limit` characters."""
        limit = SAMPLED_SIZE if limit is None else limit
        count, characters = len(split.items), int(self.row_sizes(split.rows).sum())
        if characters <= limit:
            return split
        groups = -(-count // EVALUATION_GROUP)
        sampled = evenly_spaced(groups, max(round(groups * limit / characters), 1))
        spans = np.flatnonzero(np.isin(np.arange(count) // EVALUATION_GROUP, sampled))
        return replace(split, items=split.items.take(spans))

    def draw_evaluated(self, split: Split[EncodedPassages], spans: np.ndarray) -> Iterator[MaskedBatch]:
        """Yields the passages of spans as they are always drawn in evaluation, whichever other spans are."""
        passages = split.items.passages
        stream = f"evaluated {'valid' if split.name == 'validation' else split.name}"  # weights depend on the name
        for number in np.unique(spans // EVALUATION_GROUP).tolist():
            group = np.arange(number * EVALUATION_GROUP, min((number + 1) * EVALUATION_GROUP, len(passages)))
            whole = MaskedBatch.draw(passages, group, self.masking, self.config.seed, stream, number)
            yield whole.take(np.flatnonzero(np.isin(group, spans)))

    @torch.inference_mode()
    def predict_masked(
        self, network: nn.Module, batches: Iterable[MaskedBatch], notify: Callable[[int], None] = lambda done: None
    ) -> PretrainPredictions:
        """Returns the predictions of a network for passages, in order; `notify` receives how many are done."""
        network.eval()
        device = device_of(network)
        parts: list[tuple[np.ndarray, ...]] = []
        before = 0
        for rows in batches:
            batch = rows.to_batch(1.0).to(device)
            scores = self.forward(cast(Network, network), batch).scores
            row, position = np.nonzero(rows.selected)
            best, log_prob = torch.zeros(len(row), dtype=torch.int64), torch.zeros(len(row))
            if scores.masked is not None:
                log_prob, best = token_predictions(*scores.masked, batch.targets["tokens"])
            pairs = torch.zeros(len(rows), 2) if scores.next is None else scores.next.log_softmax(dim=-1).cpu()
            pair_log_prob = pairs.gather(1, torch.from_numpy(rows.unrelated)[:, None])[:, 0]
            tokens = before + row, position, rows.tokens[row, position], rows.inputs[row, position]
            predicted = best.cpu().numpy(), log_prob.cpu().numpy()
            parts.append((*tokens, *predicted, rows.unrelated, pairs.argmax(dim=1).numpy(), pair_log_prob.numpy()))
            before += len(rows)
            notify(before)
        return PretrainPredictions(*(np.concatenate(arrays) for arrays in zip(*parts, strict=True)))

    def evaluate(
        self, network: nn.Module, split: Split[EncodedPassages], progress: Progress | None = None
    ) -> Evaluation[EncodedPassages, PretrainPredictions]:
        numbers = split.items.numbers
        notify = (lambda done: None) if progress is None else (lambda done: progress(done, len(numbers)))
        result = self.predict_masked(network, self.draw_evaluated(split, numbers), notify)
        masked = result.log_prob, result.best == result.token
        metrics = self.measure_predictions(masked, (result.pair_log_prob, result.predicted == result.unrelated))
        return Evaluation(split, metrics, result)

    def measure_predictions(
        self, masked: tuple[np.ndarray, np.ndarray], pairs: tuple[np.ndarray, np.ndarray]
    ) -> Metrics:
        """Returns the metrics from log p of the truth and whether it was predicted, of masked tokens and of pairs."""
        metrics: Metrics = {}
        if self.settings.masked:
            loss, accuracy = -float(masked[0].mean(dtype=np.float64)), float(masked[1].mean())
            metrics |= {"masked_loss": loss, "masked_perplexity": perplexity(loss), "masked_accuracy": accuracy}
        if self.settings.next:
            loss, accuracy = -float(pairs[0].mean(dtype=np.float64)), float(pairs[1].mean())
            metrics |= {"next_loss": loss, "next_accuracy": accuracy}
        total = {"loss": metrics.get("masked_loss", 0.0) + metrics.get("next_loss", 0.0)}
        counts = {"tokens": float(len(masked[0]))} if self.settings.masked else {}
        return total | metrics | counts | {"sequences": float(len(pairs[0]))}

    def baselines(self, splits: Splits[EncodedPassages], names: Sequence[str]) -> dict[str, dict[str, Metrics]]:
        """Returns the metrics of token frequencies, whatever is around a token, and of chance for the pairs."""
        methods = ["token frequencies"] * self.settings.masked + ["chance"] * self.settings.next
        baselines: dict[str, dict[str, Metrics]] = {}
        for name in names:
            split = splits[name]
            batches = list(self.draw_evaluated(split, split.items.numbers))
            tokens = np.concatenate([rows.tokens[rows.selected] for rows in batches])
            counts = cast(np.ndarray, split.items.token_counts) + 0.5
            log_probs = np.log(counts / counts.sum())[tokens]
            pairs = np.full(sum(map(len, batches)), -math.log(2))
            masked = log_probs, tokens == counts.argmax()
            metrics = self.measure_predictions(masked, (pairs, np.full(len(pairs), 0.5)))
            baselines[name] = {" and ".join(methods): metrics}
        return baselines

    # Report

    def views(self, evaluation: Evaluation[EncodedPassages, PretrainPredictions]) -> list[View]:
        tokenizer, settings, result = self.processor.tokenizer, self.settings, evaluation.outputs
        counts = evaluation.split.items.token_counts
        views = prediction_views(tokenizer, result, counts, settings.masked, settings.next)
        if not settings.masked:
            return views
        return [*views, filled_passages(tokenizer, *self._shown(evaluation, VIEWED_ROWS), settings.next)]

    def sample(self, evaluation: Evaluation[EncodedPassages, PretrainPredictions]) -> str:
        """Returns passages with the predicted tokens, and the true ones where these differ."""
        if not self.settings.masked:
            return ""
        rows, result = self._shown(evaluation, SAMPLE_ROWS)
        tokenizer = self.processor.tokenizer
        return "\n".join(filled_text(tokenizer, row[:SAMPLE_TOKENS], result, number) for number, row in enumerate(rows))

    def _shown(
        self, evaluation: Evaluation[EncodedPassages, PretrainPredictions], count: int
    ) -> tuple[list[np.ndarray], PretrainPredictions]:
        """Returns a few passages, evenly spaced, and the predictions for them."""
        rows = np.unique(evenly_spaced(len(evaluation.split.items), count))
        batches = self.draw_evaluated(evaluation.split, evaluation.split.items.numbers[rows])
        return [tokens for drawn in batches for tokens in drawn.tokens], evaluation.outputs.take(rows)


def check_bidirectional(model: Any) -> None:
    if model.traits.causal:
        cause = f"{model.name} reads earlier elements only; masked tokens are predicted from both sides"
        raise SeriatimError("task.causal", cause, "choose bert, or rnn, lstm or gru with model.bidirectional=true")
