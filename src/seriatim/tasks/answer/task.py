"""The task answer: network, loss, evaluation and what a report shows.

    p(start = i) = softmax_i(w_s · h_i + b_s)        p(end = j) = softmax_j(w_e · h_j + b_e)
    h = backbone([CLS] question [SEP] passage [SEP])

Trained by the cross-entropy of both positions among the tokens of the passage (Devlin et al. 2019; the questions are
those of Rajpurkar et al. 2016). If questions may have no answer (Rajpurkar et al. 2018), the element [CLS], or the last
one of models without it, stands for none.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple, cast

import numpy as np
import torch
from torch import Tensor, nn

from ...core import registry
from ...core.config import Settings
from ...core.errors import Diagnostics, SeriatimError
from ...core.state import State
from ...core.text import evenly_spaced, plural
from ...data.dataset import Dataset
from ...embedding.reader import TextReader
from ...nn.backbone import BackboneSettings, ModelSettings
from ...nn.loss import distillation_loss
from ...nn.network import Network, SpanHead, as_float32, assemble
from ...report.charts import BinnedMetric, Span, SpanText, Table, View
from ..base import (
    IGNORED,
    SAMPLED_SIZE,
    Batch,
    Evaluation,
    Metrics,
    Output,
    Progress,
    Split,
    Splits,
    Task,
    padding_mask,
)
from ..batching import LengthSampler, Sampler
from ..capability import Call, Record, capability
from ..codecs import text_key
from ..inspection import ExplainedOutput, Explainer, find_name, log_odds
from ..predictor import Predictions, Predictor, Usage
from ..processor import Values, length_mismatches, tokenizer_mismatches
from ..text_predictor import EmbeddingPredictor
from ..values import spaced_rows
from .questions import BY_ARTICLE, answer_metrics, nearest_names, score_answers
from .spans import UNANSWERABLE_KEY, AnswerEncoded, AnswerProcessor, BestSpans, answered_rows, search_spans
from .spec import ANSWER, SPEC, AnswerOptions, AnswerSettings

__all__ = ["AnswerOptions", "AnswerPredictor", "AnswerProcessor", "AnswerSettings", "AnswerTask"]

SAMPLED_QUESTIONS = 3
MAX_MISTAKES = 20
MAX_CHARACTERS = 300  # of a text in a table
CONTEXT_CHARACTERS = 120  # shown on each side of an answer
# The first of these words in a question is its kind.
QUESTION_WORDS = re.compile(r"\b(who|whom|whose|what|which|when|where|why|how (?:many|much)|how)\b", re.IGNORECASE)
SYNONYMS = {"whom": "who", "whose": "who", "how much": "how many, how much", "how many": "how many, how much"}
ANSWER_BINS = ((1, 1), (2, 2), (3, 3), (4, 5), (6, 10), (11, None))  # words of an answer
PASSAGE_BINS = ((1, 50), (51, 100), (101, 150), (151, 200), (201, 300), (301, None))  # words of a passage
THRESHOLDS = (-5.0, -2.0, -1.0, 0.0, 1.0, 2.0, 5.0)


class AnswerPredictor(EmbeddingPredictor):
    task: AnswerTask
    processor: AnswerProcessor
    file_extensions = (".json",)

    @capability(ANSWER)
    def answer(self, call: Call[AnswerOptions]) -> list[Record]:
        dataset, options = call.rows, call.options
        for role, texts in (("question", dataset["question"]), ("passage", dataset["context"])):
            for row, text in enumerate(texts):
                if not text.strip():
                    cause = f"{dataset.locations[row]}: the {role} is empty"
                    raise SeriatimError("predict.input", cause, 'pass {"context": "…", "question": "…"}')
        records = []
        for row, answers in enumerate(self.find_answers(dataset, options.nbest, options.threshold, call.diagnostics)):
            record = dict(answers[0]) | ({"answers": answers} if options.nbest > 1 else {})
            record |= {role: dataset[role][row] for role in ("id", "question") if role in dataset}
            records.append(record)
        return records

    def find_answers(
        self, dataset: Dataset, nbest: int, threshold: float | None, diagnostics: Diagnostics
    ) -> list[list[Record]]:
        """Returns the best answers to each question, best first; no answer is the text "", from 0 to 0."""
        unanswerable = self.processor.unanswerable or threshold is not None
        threshold = self.task.settings.threshold if threshold is None else threshold
        encoded = replace(self.processor, unanswerable=unanswerable).encode(dataset, diagnostics)
        diagnostics.raise_problems()
        if not len(encoded):
            return []
        scores = self.scores(encoded)
        best = search_spans(encoded, np.arange(len(encoded)), scores, self.processor.answer_length, nbest)
        characters = [best.characters(encoded, rank) for rank in range(nbest)]
        results = []
        for row, passage in enumerate(dataset["context"]):
            answers = []
            for rank in np.flatnonzero(best.spans[row, :, 0] != IGNORED).tolist():
                start, end = characters[rank][row]
                answers.append(describe_answer(passage, start, end, best.scores[row, rank], best.total[row]))
            if unanswerable or not answers:  # no answer has its rank among the others
                null = describe_answer("", 0, 0, best.null[row], best.total[row])
                better = sum(null["score"] - answer["score"] <= threshold for answer in answers)
                answers.insert(better, null)
            results.append(answers[:nbest])
        return results

    def text_reader(self) -> TextReader:
        return TextReader(self, self.processor.tokenizer, self.processor.max_length)

    def explainer(self) -> Explainer:
        return self.explain_span

    def explain_span(
        self, encoded: AnswerEncoded, item: int, output: Tensor, target: str | None, position: int | None
    ) -> ExplainedOutput:
        """Returns the log-odds of the most likely start of an answer, or of its end (`target`)."""
        if position is not None:
            raise SeriatimError("inspect.position", "the prediction is for the whole input", "omit --position")
        side = find_name(("start", "end"), "start" if target is None else target, "an answer has no")
        scores = mask_scores(output, torch.from_numpy(encoded.choices(np.array([item]))).to(output.device))[0, side]
        element = int(scores.argmax())
        name = self.element_names(encoded, item)[element]
        what = f"the log-odds that the answer {('starts', 'ends')[side]} at {name}"
        return ExplainedOutput(what, lambda outputs: log_odds(outputs[..., side], element))

    def charts(self, name: str, dataset: Dataset, options: Settings, predictions: Sequence[Record]) -> list[View]:
        """Returns a table of questions with their answers, which are highlighted in the passages."""
        rows = tuple(
            (
                dataset["question"][row],
                record["answer"] or "(none)",
                mark_span(dataset["context"][row], record["start"], record["end"]),
                record["probability"],
            )
            for row, record in enumerate(predictions)
        )
        return [Table(title="Answers", columns=("question", "answer", "passage", "probability"), rows=rows)]

    def format_file(self, extension: str, predictions: Predictions) -> str:
        """Returns {id: answer} as JSON, which the official programs of SQuAD read."""
        column = "prediction" if predictions and "prediction" in predictions[0] else "answer"
        answers = {str(record.get("id", n)): record[column] for n, record in enumerate(predictions, 1)}
        if len(answers) < len(predictions):
            cause = f"{len(predictions) - len(answers):,} questions have the id of another"
            raise SeriatimError("output.ids", cause, "give each question an id of its own, or write a .jsonl file")
        return json.dumps(answers, ensure_ascii=False, indent=2) + "\n"

    def usage(self, run: str, rows: Dataset | None = None) -> list[Usage]:
        return [
            Usage(
                f'seriatim answer {run} "Oslo lies in Norway." "Where is Oslo?"',
                'print(run.answer(("Oslo lies in Norway.", "Where is Oslo?")))',
            ),
            Usage(
                f"seriatim answer {run} --data questions.json --out predictions.json",
                'print(run.answer([("Oslo lies in Norway.", "Where is Oslo?")], nbest=3).to_frame())',
            ),
        ]


def describe_answer(passage: str, start: int, end: int, score: float, total: float) -> Record:
    """Returns an answer with its probability among all spans, with the digits that single precision has."""
    probability = float(np.exp(score - total)) if np.isfinite(total) else 0.0
    score = float(score) if np.isfinite(score) else 0.0
    values = {"score": float(f"{score:.7g}"), "probability": float(f"{probability:.7g}")}
    return {"answer": passage[start:end], "start": start, "end": end, **values}


class AnswerOutputs(NamedTuple):
    """What a model predicts for the questions of a split."""

    best: BestSpans  # of each question
    texts: list[str]  # the predicted answers, "" for none


class AnswerTask(Task[AnswerSettings, AnswerProcessor, AnswerEncoded, AnswerOutputs]):
    spec = SPEC
    split_policy = BY_ARTICLE
    processor_type = AnswerProcessor
    predictor_type = AnswerPredictor
    monitor = "error"
    unit = "windows"
    teacher_tokenizer = True
    hub_head = "question-answering"

    def hub_config(self) -> Values:
        return {UNANSWERABLE_KEY: self.processor.unanswerable}

    @classmethod
    def model_defaults(cls, values: Values) -> Values:
        """Both directions, each half as wide, since an answer depends on later words; dropout for few questions."""
        fields = registry.models.load(str(values["model"]["name"])).Settings.model_fields
        if "bidirectional" not in fields:
            return {}
        half = {"width": 128} if values["model"].get("bidirectional", True) else {}
        return {"bidirectional": True, "dropout": 0.2, **half}

    def link(self, splits: Splits[AnswerEncoded], diagnostics: Diagnostics) -> Splits[AnswerEncoded]:
        """Leaves out questions that must have an answer and have none, and notes what a user should know of others."""
        parts = {name: self._answered(part, diagnostics) for name, part in splits.parts.items()}
        known = set(map(text_key, dict.fromkeys(parts["train"].rows["context"]))) if "train" in parts else set()
        for part in parts.values():
            self._note_split(part, known, diagnostics.note)
        return Splits(parts)

    def _answered(self, split: Split[AnswerEncoded], diagnostics: Diagnostics) -> Split[AnswerEncoded]:
        """Returns the questions that have an answer, unless none may be right, too."""
        if self.processor.unanswerable or "answers" not in split.rows:
            return split
        rows = answered_rows(split.rows)
        if not (omitted := len(split.rows) - len(rows)):
            return split
        questions = plural(omitted, "question")
        diagnostics.note(f"{split.name}: {questions} without an answer are left out (task.unanswerable)")
        return replace(split, rows=rows, items=self.processor.encode(rows, Diagnostics()))

    def _note_split(self, split: Split[AnswerEncoded], known: set[str], note: Callable[[str], None]) -> None:
        processor, encoded, name = self.processor, split.items, split.name
        if windowed := int((np.bincount(encoded.rows) > 1).sum()):
            questions = plural(windowed, "question")
            note(f"{name}: the passages of {questions} are read in windows of {processor.max_length}")
        if encoded.truncated:
            questions = plural(encoded.truncated, "question")
            note(f"{name}: {questions} of more than {processor.question_length} tokens truncated")
        if inexact := encoded.inexact:
            answers = plural(inexact, "answer")
            note(f"{name}: {answers} with a start or end inside of a token, which cannot be predicted exactly")
        if name != "train":
            passages = dict.fromkeys(split.rows["context"])
            if repeated := sum(text_key(passage) in known for passage in passages):
                note(f"{repeated:,} of {len(passages):,} {name} passages are in the training split, too")

    # Network

    def sampler(self, train: AnswerEncoded, diagnostics: Diagnostics) -> Sampler:
        """Returns a sampler of the windows that have a target."""
        targets = cast(np.ndarray, train.targets)
        return LengthSampler(np.flatnonzero(targets[:, 0] != IGNORED), train.lengths, self.config.seed)

    def network(self, model: ModelSettings) -> Network:
        processor, settings = self.processor, cast(BackboneSettings, model)
        module = settings.token_input(processor.tokenizer.vocab_size, processor.special_tokens[2])
        return assemble(
            settings, module, module.embedding_dim, processor.longest, lambda backbone: SpanHead(backbone.width)
        )

    def collate(self, items: AnswerEncoded, chosen: np.ndarray) -> Batch:
        """Returns tokens (B,T); the targets are positions (B,2) and the mask of elements they are chosen from (B,T)."""
        tokens, mask = items.inputs.padded(chosen)
        targets = np.full((len(chosen), 2), IGNORED) if items.targets is None else items.targets[chosen]
        choices = torch.from_numpy(items.choices(chosen))
        count = int((targets[:, 0] != IGNORED).sum())
        return Batch(torch.from_numpy(tokens), (torch.from_numpy(targets), choices), count, padding_mask(mask))

    def forward(self, network: Network, batch: Batch, state: State = None) -> Output[Tensor]:
        """Returns two scores per item, of its start and its end (2·B,T), −∞ outside of the choices."""
        hidden, mask, _ = network.head_input(batch.inputs, batch.mask)
        targets, choices = batch.targets
        scores = mask_scores(network.head(hidden, mask), choices)
        rows = torch.arange(len(targets), device=targets.device)[:, None]
        return Output(scores.flatten(0, 1), hidden[rows, targets.clamp(min=0)].flatten(0, 1))

    def loss(self, output: Output[Tensor], batch: Batch, smoothing: float = 0.0) -> Tensor:
        targets, choices = batch.targets
        return span_losses(output.scores.unflatten(0, (-1, 2)), targets, choices, smoothing).sum()

    def distillation_loss(self, output: Output[Tensor], teacher: Output[Tensor], temperature: float) -> Tensor:
        return distillation_loss(output.scores, teacher.scores, temperature) / 2  # the mean of start and end

    def teacher_mismatches(self, teacher: Predictor[Any]) -> list[str]:
        ours, theirs = self.processor, cast(AnswerProcessor, teacher.processor)
        sentences = tokenizer_mismatches(ours.tokenizer, theirs.tokenizer)
        limit = teacher.task.config.model.traits.context_length
        sentences += length_mismatches("windows", ours.longest, limit)
        if ours.unanswerable != theirs.unanswerable:
            owner = "this model" if ours.unanswerable else "the teacher"
            sentences.append(f"only {owner} may predict that there is no answer (task.unanswerable)")
        elif ours.unanswerable and ours.null_last != theirs.null_last:
            sentences.append("the first element stands for no answer in one model, the last one in the other")
        return sentences

    # Evaluation

    def unbatch(self, output: Output[Tensor], batch: Batch) -> Sequence[np.ndarray]:
        """Returns start and end scores (2,T) of each item."""
        return list(output.scores.unflatten(0, (-1, 2)).cpu().numpy())

    def sample_split(self, split: Split[AnswerEncoded], limit: int | None = None) -> Split[AnswerEncoded]:
        """Returns evenly spaced questions with about `limit` characters."""
        chosen = spaced_rows(self.row_sizes(split.rows), SAMPLED_SIZE if limit is None else limit)
        if len(chosen) == len(split.rows):
            return split
        rows = split.rows.take(chosen)
        return replace(split, rows=rows, items=self.processor.encode(rows, Diagnostics()))

    def evaluate(
        self, network: nn.Module, split: Split[AnswerEncoded], progress: Progress | None = None
    ) -> Evaluation[AnswerEncoded, AnswerOutputs]:
        encoded = split.items
        loss, scores = self.score_items(network, encoded, progress)
        best = search_spans(encoded, np.arange(len(encoded)), scores, self.processor.answer_length)
        texts = self.answer_texts(split, best)
        references = [[text for text, _ in encoded.answers[row]] for row in best.rows.tolist()]
        measured = answer_metrics(texts, references, self.processor.unanswerable)
        return Evaluation(split, {"loss": loss, **measured}, AnswerOutputs(best, texts), measured.examples)

    def answer_texts(self, split: Split[AnswerEncoded], best: BestSpans) -> list[str]:
        """Returns the predicted answers, "" for none."""
        null = best.is_null(self.settings.threshold) & self.processor.unanswerable
        passages, characters = split.rows["context"], best.characters(split.items)
        return [
            "" if empty else passages[row][start:end]
            for row, (start, end), empty in zip(best.rows.tolist(), characters, null.tolist(), strict=True)
        ]

    def baselines(self, splits: Splits[AnswerEncoded], names: Sequence[str]) -> dict[str, dict[str, Metrics]]:
        """Names and numbers of the sentence nearest to the question; and no answer, if that may be right."""
        unanswerable = self.processor.unanswerable
        baselines: dict[str, dict[str, Metrics]] = {}
        for name in names:
            rows = splits[name].rows
            references = [[text for text, _ in answers] for answers in splits[name].items.answers]
            nearest = [nearest_names(*pair) for pair in zip(rows["question"], rows["context"], strict=True)]
            predictions = {"names nearest to the question": nearest}
            if unanswerable:
                predictions["never an answer"] = [""] * len(rows)
            baselines[name] = {
                method: dict(answer_metrics(texts, references, unanswerable)) for method, texts in predictions.items()
            }
        return baselines

    # Report

    def views(self, evaluation: Evaluation[AnswerEncoded, AnswerOutputs]) -> list[View]:
        return make_views(evaluation.split.rows, evaluation.split.items, *evaluation.outputs)

    def sample(self, evaluation: Evaluation[AnswerEncoded, AnswerOutputs]) -> str:
        """Returns questions with their answers, wrong ones with the reference."""
        rows, answers = evaluation.split.rows, evaluation.split.items.answers
        best, texts = evaluation.outputs
        lines = []
        for number in np.unique(evenly_spaced(len(best.rows), SAMPLED_QUESTIONS)).tolist():
            row, text = int(best.rows[number]), texts[number]
            references = [reference for reference, _ in answers[row]]
            right = text in references or (not text and not references)
            suffix = "" if right else f" (is {references[0] if references else 'none'})"
            lines.append(f"{rows['question'][row].strip()} — {text or 'none'}{suffix}")
        return "\n".join(lines)


def mask_scores(scores: Tensor, choices: Tensor) -> Tensor:
    """Returns start and end scores (B,T,2) as (B,2,T), −∞ outside of the choices (B,T)."""
    return as_float32(scores).transpose(1, 2).masked_fill(~choices[:, None], -torch.inf)


def span_losses(scores: Tensor, targets: Tensor, choices: Tensor, smoothing: float = 0.0) -> Tensor:
    """Returns the mean of −log p of start and end of each item (B,), 0 for items without a target.

    Args:
        scores: From `mask_scores` (B,2,T).
        targets: Start and end element (B,2), or IGNORED.
        choices: The elements they are chosen from (B,T).
        smoothing: Share of the targets that is spread evenly over the choices.
    """
    log_probs = scores.log_softmax(dim=-1)
    losses = -log_probs.gather(-1, targets.clamp(min=0)[..., None])[..., 0]  # (B,2)
    if smoothing:
        spread = -log_probs.masked_fill(~choices[:, None], 0.0).sum(dim=-1) / choices.sum(dim=-1, keepdim=True)
        losses = (1 - smoothing) * losses + smoothing * spread
    return torch.where(targets[:, 0] != IGNORED, losses.mean(dim=-1), 0.0)


# Charts and tables


def make_views(dataset: Dataset, encoded: AnswerEncoded, best: BestSpans, predictions: list[str]) -> list[View]:
    """Returns the charts and tables of a split.

    Args:
        dataset: The questions.
        encoded: Their windows.
        best: The best span of each question.
        predictions: The predicted answers, "" for none.
    """
    references = [[text for text, _ in answers] for answers in encoded.answers]
    exact, f1 = score_answers(predictions, references, encoded.unanswerable)
    answer_words = np.array([len(texts[0].split()) if texts else 0 for texts in references])
    passage_words = np.array([len(passage.split()) for passage in dataset["context"]])
    note = "questions that have an answer, by the first of their answers"
    return [
        *by_question_word(dataset["question"], exact, f1),
        *by_length("answer", answer_words, ANSWER_BINS, f1, note),
        *by_length("passage", passage_words, PASSAGE_BINS, f1, ""),
        *(by_threshold(dataset, encoded, best, references) if encoded.unanswerable else []),
        *mistakes(dataset, encoded, best, predictions, exact),
    ]


def mark_span(passage: str, start: int, end: int, wrong: bool = False) -> SpanText:
    """Returns the part of a passage around a span, which is highlighted."""
    first = max(start - CONTEXT_CHARACTERS, 0)
    spans = (Span(start - first, end - first, wrong=wrong),) if end > start else ()
    return SpanText(passage[first : end + CONTEXT_CHARACTERS], spans)


def by_question_word(questions: np.ndarray, exact: np.ndarray, f1: np.ndarray) -> list[View]:
    """Returns the metrics by question word; nothing if most questions have none, as in another language."""
    matches = [QUESTION_WORDS.search(question) for question in questions]
    words = [match.group().lower() if match else "other" for match in matches]
    words = [SYNONYMS.get(word, word) for word in words]
    if 2 * words.count("other") > len(words):
        return []
    rows = []
    for name in sorted(dict.fromkeys(words), key=lambda name: (name == "other", -words.count(name))):
        mask = np.array([word == name for word in words])
        rows.append((name, float(exact[mask].mean()), float(f1[mask].mean()), int(mask.sum())))
    columns = ("question word", "exact_match", "f1", "questions")
    return [Table(title="Metrics by question word", columns=columns, rows=tuple(rows))]


def by_length(
    noun: str, sizes: np.ndarray, bins: tuple[tuple[int, int | None], ...], f1: np.ndarray, note: str
) -> list[View]:
    """Returns the F1 by the number of words of the answer or the passage."""
    names, counts, values = [], [], []
    for low, high in bins:
        mask = (sizes >= low) & (sizes <= (sizes.max(initial=0) if high is None else high))
        if mask.any():
            names.append(f"over {low - 1}" if high is None else str(low) if low == high else f"{low}–{high}")
            counts.append(int(mask.sum()))
            values.append(float(f1[mask].mean()))
    if len(names) < 2:
        return []
    return [
        BinnedMetric(
            title=f"F1 by length of the {noun}",
            note=note,
            metric="f1",
            x=f"words of the {noun}",
            unit="questions",
            bins=tuple(names),
            counts=tuple(counts),
            series={"": tuple(values)},
            join=f"f1 by length of the {noun}",
        )
    ]


def by_threshold(dataset: Dataset, encoded: AnswerEncoded, best: BestSpans, references: list[list[str]]) -> list[View]:
    """Returns the metrics that other thresholds would give."""
    spans = zip(dataset["context"], best.characters(encoded), strict=True)
    texts = [passage[start:end] for passage, (start, end) in spans]
    answered = np.stack(score_answers(texts, references, True), axis=1)  # (n,2)
    empty = np.stack(score_answers([""] * len(texts), references, True), axis=1)
    rows = []
    for threshold in THRESHOLDS:
        null = best.is_null(threshold)
        exact, f1 = np.where(null[:, None], empty, answered).mean(axis=0).tolist()
        rows.append((threshold, exact, f1, round(float(null.mean()), 4)))
    return [
        Table(
            title="Metrics by threshold",
            note="No answer is predicted if its score is above that of the best span by more than task.threshold.",
            columns=("threshold", "exact_match", "f1", "share without an answer"),
            rows=tuple(rows),
        )
    ]


def mistakes(
    dataset: Dataset, encoded: AnswerEncoded, best: BestSpans, predictions: list[str], exact: np.ndarray
) -> list[View]:
    """Returns a table of the wrong answers with the highest probability, the predicted one marked in its passage."""
    null = np.array([not text for text in predictions]) & encoded.unanswerable
    with np.errstate(invalid="ignore"):
        probability = np.nan_to_num(np.exp(np.where(null, best.null, best.scores[:, 0]) - best.total))
    characters = best.characters(encoded)
    wrong = np.flatnonzero(exact == 0)
    rows = []
    for row in wrong[np.argsort(-probability[wrong], kind="stable")][:MAX_MISTAKES].tolist():
        references = " | ".join(dict.fromkeys(text for text, _ in encoded.answers[row])) or "(none)"
        start, end = (0, 0) if null[row] else characters[row]
        rows.append(
            (
                str(dataset.locations[row]),
                dataset["question"][row].strip()[:MAX_CHARACTERS],
                (predictions[row] or "(none)")[:MAX_CHARACTERS],
                references[:MAX_CHARACTERS],
                mark_span(dataset["context"][row], start, end, wrong=True),
                round(float(probability[row]), 3),
            )
        )
    columns = ("location", "question", "prediction", "reference", "passage", "probability")
    return [Table(title="Most confident mistakes", columns=columns, rows=tuple(rows))] if rows else []
