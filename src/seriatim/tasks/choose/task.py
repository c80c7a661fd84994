"""The task choose: network, loss, evaluation and what a report shows.

    p(choice c) = softmax_c(w · pool(h_c) + b)        h_c = backbone([CLS] question [SEP] choice c [SEP])

Every choice is read with the question by itself, and gets one score (Radford et al. 2018; Devlin et al. 2019). Trained
by cross-entropy over the choices of a question, of which there may be any number. A language model answers without
training: see the command `answer` of the task language.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Self, cast

import numpy as np
import torch
from torch import Tensor, nn

from ...core import registry
from ...core.errors import Diagnostics, SeriatimError
from ...core.metrics import Measured
from ...core.state import State
from ...core.text import evenly_spaced, plural
from ...data.dataset import Column, Dataset
from ...data.kinds import TEXT
from ...data.sequences import Sequences
from ...data.source import DataInput
from ...data.split import Grouped
from ...embedding.reader import TextReader
from ...nn.backbone import BackboneSettings
from ...nn.loss import distillation_loss
from ...nn.network import Network, VectorHead, as_float32, assemble
from ...nn.settings import ModelSettings
from ...report.charts import Cell, Table, View
from ..base import IGNORED, Task
from ..batching import Batch, padding_mask
from ..capability import Call, Record, capability
from ..choices import UNKNOWN_LABELS, Labels, answer_record, chance, text_pairs, with_choices
from ..codecs import TextCodec, text_key
from ..inspection import ExplainedOutput, Explainer
from ..metrics import mean_scores
from ..predictor import Predictor, Usage
from ..processor import Processor, Tokenizers, Values, length_mismatches, tokenizer_mismatches
from ..spec import TaskConfig
from ..text_predictor import EmbeddingPredictor
from ..values import Evaluation, Labeled, Metrics, Output, Split, Splits, Subset
from .spec import ANSWER, INPUTS, SPEC, ChoiceOptions, ChooseSettings, choice_rows

FEW_CONTEXTS = 10
FIRST_KEY = "seriatim_first_choice"  # in config.json of an exported model
SAMPLED_QUESTIONS = 3
MAX_MISTAKES = 20
MAX_CHARACTERS = 300  # of a text in a table
MAX_QUESTIONS = 10  # kinds of questions in a table, such as "cause" and "effect"


def group_questions(dataset: Dataset) -> np.ndarray:
    """Returns a group number per row (rows,): its context, or its own if there are fewer than `FEW_CONTEXTS`."""
    groups = dataset.group_ids(["context"], text_key)
    return groups if groups.max(initial=-1) + 1 >= FEW_CONTEXTS else np.arange(len(dataset))


BY_CONTEXT = Grouped(group_questions, "contexts", f"by context, or by question if there are fewer than {FEW_CONTEXTS}")


# Processor


@dataclass(frozen=True, eq=False)
class Questions(Labeled):
    """Questions: the choices of all of them are the inputs, one after another."""

    ends: np.ndarray = field(default_factory=lambda: np.zeros(0, np.int64))  # (n,) where the choices of each end

    def __len__(self) -> int:
        return len(self.ends)

    @property
    def counts(self) -> np.ndarray:
        """The number of choices of each question (n,)."""
        return np.diff(self.ends, prepend=0)

    @property
    def lengths(self) -> np.ndarray:
        """The elements of each question in a batch (n,): all its choices, as long as the longest."""
        if not len(self.ends):
            return np.zeros(0, np.int64)
        return self.counts * np.maximum.reduceat(self.inputs.lengths, self.ends - self.counts)

    def choices(self, items: np.ndarray) -> np.ndarray:
        """Returns the inputs that are the choices of these questions, one question after another."""
        counts = self.counts[items]
        ends = np.cumsum(counts)
        return np.arange(int(counts.sum())) + np.repeat(self.ends[items] - ends, counts)

    def take(self, items: np.ndarray) -> Questions:
        targets = None if self.targets is None else self.targets[items]
        return Questions(Subset(self.inputs, self.choices(items)), targets, ends=np.cumsum(self.counts[items]))

    def single(self) -> Questions:
        """Returns each choice as a question of its own, without targets: what `inspect` shows."""
        return Questions(self.inputs, ends=np.arange(1, len(self.inputs) + 1))


@dataclass(frozen=True)
class ChooseProcessor(Processor[Questions]):
    """Encodes the question with each choice as a pair of texts, and labels by the number of the choice."""

    text: TextCodec
    first: str  # the label of the first choice; see `Labels`

    @classmethod
    def fit(cls, train: Dataset, config: TaskConfig[Any], pretrained: Tokenizers, diagnostics: Diagnostics) -> Self:
        labels, choices = train["label"].tolist(), choice_rows(train)
        first = Labels.detect(labels, choices).first
        counts = np.unique([len(row) for row in choices])
        number = str(counts[0]) if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"
        named = f"counted from {first}" if first else "the texts of the choices"
        diagnostics.note(f"{number} choices; labels are {named}")
        return cls(TextCodec.fit(pair_dataset(train)[0], "pair", config, pretrained, diagnostics), first)

    @classmethod
    def from_pretrained(
        cls, tokenizers: Tokenizers, max_length: int, labels: tuple[str, ...] = (), config: Values | None = None
    ) -> Self:
        codec = TextCodec(tokenizers["tokenizer"], max_length, max_length, texts=2)
        return cls(codec, str((config or {}).get(FIRST_KEY, "0")))

    def encode(self, dataset: Dataset, diagnostics: Diagnostics) -> Questions:
        pairs, counts = pair_dataset(dataset)
        inputs = self.text.encode(pairs, "pair") if len(pairs) else Sequences.of([], None)
        targets = self.encode_labels(dataset, diagnostics) if "label" in dataset else None
        return Questions(inputs, targets, ends=np.cumsum(counts))

    def encode_labels(self, dataset: Dataset, diagnostics: Diagnostics) -> np.ndarray:
        """Returns the number of the right choice of each question from 0 on (n,); reports labels that name none."""
        labels, targets = Labels(self.first), np.zeros(len(dataset), np.int64)
        for row, (label, choices) in enumerate(zip(dataset["label"], choice_rows(dataset), strict=True)):
            index = labels.index(label, choices)
            if index is None:
                cause = f'{dataset.locations[row]}: the label "{label}" names none of the {len(choices)} choices'
                style = f"labels count from {self.first}" if self.first else "a label is the text of a choice"
                diagnostics.report("data.label", cause, f"correct it; {style}")
            targets[row] = IGNORED if index is None else index
        return targets

    def answers(self, rows: Dataset, scores: Sequence[np.ndarray], probabilities: bool = False) -> list[Record]:
        """Returns the record of each question, by the scores of its choices; see `answer_record`."""
        labels = Labels(self.first)
        return [
            answer_record(choices, values[: len(choices)], labels, probabilities)
            for choices, values in zip(choice_rows(rows), scores, strict=True)
        ]


def pair_dataset(dataset: Dataset) -> tuple[Dataset, np.ndarray]:
    """Returns a row for every choice of every question, with the role `pair` of two texts, and the counts (rows,)."""
    first, second, counts = text_pairs(dataset)
    columns = tuple(Column(name, TEXT, TEXT.store(texts)) for name, texts in (("question", first), ("choice", second)))
    locations = dataset.take(np.repeat(np.arange(len(dataset)), counts)).locations
    return Dataset(dataset.name, {"pair": columns}, locations), counts


# Predictor


class ChoosePredictor(EmbeddingPredictor[Any]):
    processor: ChooseProcessor

    @capability(ANSWER)
    def answer(self, call: Call[ChoiceOptions]) -> list[Record]:
        rows = with_choices(call.rows, call.options.choices)
        scores = self.scores(self.task.encode(rows.without("label"), call.diagnostics))
        return self.processor.answers(rows, scores, call.options.probabilities)

    def text_reader(self) -> TextReader:
        return TextReader(self, self.processor.text.tokenizer, self.processor.text.max_length)

    # Inspection: a question with one choice

    @property
    def texts_per_input(self) -> tuple[int, ...]:
        return (2,)

    def encode_inputs(self, inputs: DataInput) -> Questions:
        """Returns questions with one choice or more; each choice is an item."""
        diagnostics = Diagnostics()
        items: Questions = self.task.encode(self.task.read(inputs, diagnostics, INPUTS), diagnostics)
        return items.single()

    def element_names(self, encoded: Questions, item: int) -> list[str]:
        return self.processor.text.element_names(encoded.inputs[item])

    def explainer(self) -> Explainer:
        return self.explain_score

    def explain_score(
        self, encoded: Questions, item: int, output: Tensor, target: str | None, position: int | None
    ) -> ExplainedOutput:
        """Returns the score of a choice; see `Explainer`."""
        if target is not None or position is not None:
            option = "target" if target is not None else "position"
            raise SeriatimError(f"inspect.{option}", "a choice has one score", f"omit --{option}")
        return ExplainedOutput("the score of the choice", lambda scores: scores[:, 0])

    def usage(self, run: str, rows: Dataset | None = None) -> list[Usage]:
        question, choices = "The ground is wet. Why?", ("It rained.", "The sun shone.")
        options = " ".join(f'--choices "{choice}"' for choice in choices)
        return [
            Usage(
                f'seriatim answer {run} "{question}" {options}',
                f'print(run.answer("{question}", choices={list(choices)}))',
            ),
            Usage(
                f"seriatim answer {run} --data FILE --probabilities --out predictions.jsonl",
                'print(run.answer(Path("FILE"), probabilities=True).to_frame())',
            ),
        ]


# Task


class ChooseTask(Task[ChooseSettings, ChooseProcessor, Questions, list[np.ndarray]]):
    """The outputs of an evaluation are the scores of the choices of each question (C,), −∞ where there is none."""

    spec = SPEC
    split_policy = BY_CONTEXT
    processor_type = ChooseProcessor
    predictor_type = ChoosePredictor
    monitor = "error"
    unit = "questions"
    batch_size = 16
    teacher_tokenizer = True
    hub_head = "multiple-choice"

    @classmethod
    def resolve_settings(cls, settings: ChooseSettings, values: Values) -> ChooseSettings:
        """Returns the settings; the last element of a causal model has read both texts."""
        model_class: type[ModelSettings] = registry.models.load(str(values["model"]["name"])).Settings
        causal = model_class.model_validate(values["model"]).traits.causal
        is_open = "pooling" not in settings.model_fields_set
        return settings.model_copy(update={"pooling": "last"}) if is_open and causal else settings

    def hub_config(self) -> Values:
        return {FIRST_KEY: self.processor.first}

    @classmethod
    def held_out(cls, rows: Dataset, diagnostics: Diagnostics) -> Dataset:
        """Returns the questions of a source; none of a split whose labels are not published."""
        if not len(rows) or not all(label in UNKNOWN_LABELS for label in rows["label"]):
            return rows
        diagnostics.note(f"{rows.name}: has no labels, and is left out")
        return rows.take(np.arange(0))

    def shown_items(self, items: Questions) -> Questions:
        return items.single()

    def link(self, splits: Splits[Questions], diagnostics: Diagnostics) -> Splits[Questions]:
        limit = self.processor.text.max_length
        for name, split in splits.parts.items():
            full = 0 if limit is None or name == "train" else int((split.items.inputs.lengths == limit).sum())
            if full:
                diagnostics.note(f"{name}: {plural(full, 'choice')} fill the {limit} elements that the model reads")
        return splits

    # Network

    def network(self, model: BackboneSettings) -> Network:
        codec, pooling = self.processor.text, self.settings.pooling
        if pooling == "first" and model.traits.causal:
            cause = f"{model.name} is causal: the output of the first element depends on nothing but this element"
            raise SeriatimError("task.pooling", cause, "choose last, mean, max or attention: --pooling")
        module, width = codec.input_module(model)
        dropout = model.dropout if pooling == "first" else 0.0

        def head(backbone: nn.Module) -> VectorHead:
            directions = cast(int, backbone.directions)
            return VectorHead(cast(int, backbone.width), 1, pooling, directions, dropout, model.pooler)

        return assemble(model, module, width, codec.sequence_length(module), head)

    def collate(self, items: Questions, chosen: np.ndarray) -> Batch:
        """Returns the choices of all questions (choices,T); the targets are the right ones (B,) and a mask (B,C).

        C is the largest number of choices; the mask is False where a question has fewer.
        """
        tokens, mask = items.inputs.padded(items.choices(chosen))
        counts = items.counts[chosen]
        exists = torch.from_numpy(np.arange(int(counts.max(initial=1))) < counts[:, None])
        targets = np.full(len(chosen), IGNORED) if items.targets is None else items.targets[chosen]
        return Batch(torch.from_numpy(tokens), (torch.from_numpy(targets), exists), len(chosen), padding_mask(mask))

    def forward(self, network: Network, batch: Batch, state: State = None) -> Output[Tensor]:
        """Returns the scores of the choices (B,C), −∞ where there is none."""
        values, _ = network(batch.inputs, batch.mask)  # (choices,1)
        values, (_, exists) = as_float32(values)[:, 0], batch.targets
        return Output(values.new_full(exists.shape, -torch.inf).masked_scatter(exists, values))

    def loss(self, output: Output[Tensor], batch: Batch, smoothing: float = 0.0) -> Tensor:
        targets, exists = batch.targets
        log_probs = output.scores.log_softmax(dim=-1)
        losses = -log_probs.gather(1, targets.clamp(min=0)[:, None])[:, 0]  # (B,)
        if smoothing:
            spread = -log_probs.masked_fill(~exists, 0.0).sum(dim=-1) / exists.sum(dim=-1)
            losses = (1 - smoothing) * losses + smoothing * spread
        return torch.where(targets != IGNORED, losses, 0.0).sum()

    def distillation_loss(self, output: Output[Tensor], teacher: Output[Tensor], temperature: float) -> Tensor:
        return distillation_loss(output.scores, teacher.scores, temperature)

    def teacher_mismatches(self, teacher: Predictor[Any]) -> list[str]:
        ours, theirs = self.processor.text, cast(ChooseProcessor, teacher.processor).text
        limit = teacher.task.config.model.traits.context_length
        return [
            *tokenizer_mismatches(ours.tokenizer, theirs.tokenizer),
            *length_mismatches("questions with a choice", ours.longest, limit),
        ]

    # Evaluation

    def measure(self, items: Questions, scores: Sequence[np.ndarray]) -> Measured:
        right = np.array([values.argmax() == target for values, target in zip(scores, items.labels, strict=True)])
        accuracy = float(right.mean())
        values = {"accuracy": accuracy, "error": 1 - accuracy, "questions": float(len(items))}
        return Measured(values, examples={"accuracy": mean_scores(right)})

    def baselines(self, splits: Splits[Questions], names: Sequence[str]) -> dict[str, dict[str, Metrics]]:
        """Returns the metrics of chance, of the most frequent position, and of the words that a choice shares."""
        position = int(np.bincount(splits.train.items.labels).argmax())
        measured = {}
        for name in names:
            items = splits[name].items
            first, second, counts = text_pairs(splits[name].rows)
            shared = [shared_words(*pair) for pair in zip(first, second, strict=True)]
            likely = [np.argmax(values) for values in np.split(shared, np.cumsum(counts)[:-1])]
            accuracies = {
                "always the most frequent position": float(np.mean(items.labels == position)),
                "most words of the question": float(np.mean(items.labels == likely)),
            }
            measured[name] = {"chance": dict(chance(items.counts))} | {
                method: {"accuracy": accuracy, "error": 1 - accuracy} for method, accuracy in accuracies.items()
            }
        return measured

    def sample(self, evaluation: Evaluation[Questions, list[np.ndarray]]) -> str:
        """Returns questions with their answers, wrong ones with the reference."""
        split = evaluation.split
        chosen = evenly_spaced(len(split.rows), SAMPLED_QUESTIONS)
        rows, references = split.rows.take(chosen), split.items.labels[chosen].tolist()
        records = self.processor.answers(rows, [evaluation.outputs[row] for row in chosen.tolist()])
        lines = []
        for row, (record, choices) in enumerate(zip(records, choice_rows(rows), strict=True)):
            answer, reference = record["answer"], choices[references[row]]
            suffix = "" if answer == reference else f" (is {reference})"
            lines.append(f"{rows['context'][row].strip()} — {answer}{suffix}")
        return "\n".join(lines)

    def views(self, evaluation: Evaluation[Questions, list[np.ndarray]]) -> list[View]:
        split, targets, rows = evaluation.split, evaluation.split.items.labels, evaluation.split.rows
        predictions = np.array([values.argmax() for values in evaluation.outputs])
        right = predictions == targets
        views = [self._by_position(predictions, targets)]
        if "question" in rows and 1 < len(kinds := sorted(set(rows["question"]))) <= MAX_QUESTIONS:
            masks = {kind: np.array([text == kind for text in rows["question"]]) for kind in kinds}
            table = tuple((kind, float(right[mask].mean()), int(mask.sum())) for kind, mask in masks.items())
            views.append(Table(title="Accuracy by question", columns=("question", "accuracy", "questions"), rows=table))
        return [*views, *self._mistakes(split, evaluation.outputs, predictions)]

    def _by_position(self, predictions: np.ndarray, targets: np.ndarray) -> View:
        """Returns how often each position is right and chosen: a model that prefers one shows here."""
        labels = Labels(self.processor.first)
        rows = []
        for index in range(int(max(predictions.max(), targets.max())) + 1):
            mask = targets == index
            accuracy = float((predictions[mask] == index).mean()) if mask.any() else None
            rows.append((str(labels.name(index)), accuracy, int(mask.sum()), int((predictions == index).sum())))
        columns = ("right choice", "accuracy", "right", "chosen")
        return Table(title="Accuracy by position of the right choice", columns=columns, rows=tuple(rows))

    def _mistakes(self, split: Split[Questions], scores: Sequence[np.ndarray], predictions: np.ndarray) -> list[View]:
        """Returns a table of the wrong answers with the highest probability."""
        rows, targets = split.rows, split.items.labels
        probabilities = np.array([np.exp(values.max() - np.logaddexp.reduce(values)) for values in scores])
        wrong = np.flatnonzero(predictions != targets)
        choices = choice_rows(rows)
        table: list[tuple[Cell, ...]] = []
        for row in wrong[np.argsort(-probabilities[wrong], kind="stable")][:MAX_MISTAKES].tolist():
            texts = (rows["context"][row].strip(), choices[row][predictions[row]], choices[row][targets[row]])
            shortened = (text[:MAX_CHARACTERS] for text in texts)
            table.append((str(rows.locations[row]), *shortened, round(float(probabilities[row]), 3)))
        columns = ("location", "context", "prediction", "reference", "probability")
        return [Table(title="Most confident mistakes", columns=columns, rows=tuple(table))] if table else []


def shared_words(first: str, second: str) -> float:
    """Returns the share of the words of the second text that the first one has, too."""
    known, words = set(first.lower().split()), second.lower().split()
    return sum(word in known for word in words) / max(len(words), 1)
