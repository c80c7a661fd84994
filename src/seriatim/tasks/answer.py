"""Answer questions about a passage by a part of it: from which character to which.

    p(begins at i) = softmax_i(w_b · h_i + b_b)        p(ends at j) = softmax_j(w_e · h_j + b_e)
    h = backbone([CLS] question [SEP] passage [SEP])

Trained by the cross-entropy of both places among the tokens of the passage (Devlin et al. 2019; Rajpurkar et al. 2016
for the questions). A passage longer than a model can take in is read in windows that overlap. Where questions may have
no answer (Rajpurkar et al. 2018), the element [CLS] stands for none.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from pydantic import Field
from torch import Tensor, nn

from ..core import config, registry
from ..core.errors import SeriatimError
from ..data import questions
from ..data.notes import Notes
from ..data.tokenizers import Tokenizer
from ..nn.backbone import BackboneSettings
from ..nn.heads import SpanHead
from ..nn.network import Network, assemble
from ..nn.soft import soft_loss
from ._answer_baseline import nearest
from ._answer_learn import LEAST, USUAL, answerable, fitted, learn, may_be_silent, tell
from ._answer_scores import measures, score_all
from ._answer_search import Found, among, search, target_losses
from ._answer_views import spoken, views
from ._answerer import Answerer
from ._examples import ExampleTask, digest, mismatch, refuse_counting, restore, spread_over
from ._spans import SpanCoder, SpanPart
from ._task import Batch
from ._unlike import unlike_tokens

__all__ = [
    "DataSettings", "Settings", "adopt", "mismatch", "model_defaults", "open_run", "prepare", "reopen", "reopen_on",
]  # fmt: skip

DataSettings = questions.QuestionSettings
SAME_TOKENS = True  # as its teacher a student must have: each may begin an answer or end it


class Settings(config.Settings):
    name: str = Field("answer", description="the task: see `seriatim list tasks`")
    length: int = Field(
        384,
        ge=LEAST,
        le=1_000_000,
        description="elements of question and passage at most; a longer passage is read in windows that overlap",
    )
    stride: int = Field(128, ge=1, description="tokens from the beginning of a window to that of the next")
    question: int = Field(64, ge=1, description="tokens of a question at most; it loses what stands behind")
    longest: int | None = Field(
        None,
        ge=1,
        description="tokens of an answer at most (default: 30, or more where training answers are longer)",
    )
    unanswerable: bool | None = Field(
        None, description="questions may have no answer, as in SQuAD 2.0 (default: where the training part has such)"
    )
    threshold: float = Field(
        0.0, description="no answer is given where its score is above that of the best span by more than this"
    )


def model_defaults(values: Mapping[str, Any]) -> dict[str, Any]:
    """An answer depends on the words behind it as well, so both directions, and each half as wide; there are few
    questions to learn from, so dropout."""
    fields = registry.models.load(str(values["model"]["name"])).Settings.model_fields
    if "bidirectional" not in fields:
        return {}
    halved = {"width": 128} if values["model"].get("bidirectional", True) else {}
    return {"bidirectional": True, "dropout": 0.2, **halved}


class AnswerTask(ExampleTask):
    unit = "windows"
    objective = "error"
    coder: SpanCoder  # type: ignore[assignment]
    parts: dict[str, SpanPart]  # type: ignore[assignment]

    @property
    def size(self) -> int:
        return self.parts["train"].learnt

    def has(self, split: str) -> bool:
        return split in self.parts and len(self.parts[split].asked) > 0

    def shape(self, model: BackboneSettings) -> Network:
        return network(model, self.coder)

    def collate(self, split: str, rows: np.ndarray) -> Batch:
        return self.parts[split].collate(rows)

    def read(self, network: Any, batch: Batch, state: Any = None) -> tuple[Tensor, Tensor, None]:
        """Two choices for each row, where the answer begins and where it ends: (2·B,T) and (2·B,D)."""
        hidden, mask, _ = network.given(batch.inputs, batch.mask)
        targets, choice = batch.targets
        scores = among(network.head(hidden, mask), choice)
        each = torch.arange(len(targets), device=targets.device)[:, None]
        return scores.flatten(0, 1), hidden[each, targets.clamp(min=0)].flatten(0, 1), None

    def hard(self, network: nn.Module, scores: Tensor, batch: Batch, smoothing: float) -> Tensor:
        targets, choice = batch.targets
        return target_losses(scores.unflatten(0, (-1, 2)), targets, choice, smoothing).sum()

    def loss(self, network: nn.Module, batch: Batch, state: Any, smoothing: float) -> tuple[Tensor, Any]:
        scores, _, _ = self.read(network, batch)
        return self.hard(network, scores, batch, smoothing), None

    def soft(self, network: nn.Module, scores: Tensor, taught: Tensor, temperature: float) -> Tensor:
        return soft_loss(scores, taught, temperature) / 2  # the mean of both choices, as in `hard`

    def some(self, split: str, count: int) -> list[Any]:
        """Some questions of a part with their passages, for a predictor to be asked."""
        part = self.parts[split].asked
        return [(one.text, part.passages[one.passage]) for one in spread_over(part.asked, count)]

    def unlike(self, teacher: Any) -> list[str]:
        ours, theirs, context = self.coder, teacher.coder, teacher.model.backbone.context
        found = unlike_tokens(ours.tokenizer, theirs.tokenizer)
        if context is not None and context < ours.longest:
            found.append(f"rows have up to {ours.longest} elements, the teacher takes {context} (--length)")
        if ours.unanswerable != theirs.unanswerable:
            who = "this model" if ours.unanswerable else "the teacher"
            found.append(f"only {who} may say that there is no answer (task.unanswerable)")
        elif ours.unanswerable and ours.closing != theirs.closing:
            found.append("one says at the first element that there is no answer, the other at the last")
        return found

    def chosen(self, split: str, limit: int | None = None) -> np.ndarray:
        """Whole questions: all windows of those that are chosen."""
        rows, of = super().chosen(split, limit), self.parts[split].inputs.question
        return np.flatnonzero(np.isin(of, of[rows]))

    def found(self, model: nn.Module, split: str, limit: int | None = None) -> Found:
        """What the model says about the questions of a part; the last answer is kept while the weights stay."""
        asked: Any = (digest(model), split, limit)
        if self._last is None or self._last[0] != asked:
            found: Any = search(model, self.parts[split], self.chosen(split, limit), self.coder.answer)
            self._last = (asked, found)
        return self._last[1]  # type: ignore[return-value]

    def evaluate(self, model: nn.Module, split: str, limit: int | None = None) -> dict[str, float]:
        found = self.found(model, split, limit)
        loss = float(found.losses.mean()) if len(found.losses) else 0.0
        return {"loss": loss} | measures(self._said(split, found), self._wanted(split, found), self.coder.unanswerable)

    def _said(self, split: str, found: Found) -> list[str]:
        """The answers that are given."""
        texts = spoken(self.parts[split], found)
        if not self.coder.unanswerable:
            return texts
        return ["" if none else text for text, none in zip(texts, found.none(self.settings.threshold), strict=True)]

    def _wanted(self, split: str, found: Found) -> list[list[str]]:
        asked = self.parts[split].asked.asked
        return [[text for text, _ in asked[index].answers] for index in found.questions.tolist()]

    def baselines(self, split: str) -> dict[str, dict[str, float]]:
        """Names and numbers of the sentence that is nearest to the question; and where it may be right, no answer."""
        part = self.parts[split].asked
        wanted = [[text for text, _ in one.answers] for one in part.asked]
        given = {"names nearest to the question": [nearest(one.text, part.passages[one.passage]) for one in part.asked]}
        if self.coder.unanswerable:
            given["never an answer"] = [""] * len(wanted)
        return {name: measures(texts, wanted, self.coder.unanswerable) for name, texts in given.items()}

    def details(self, model: nn.Module, split: str) -> list[dict[str, Any]]:
        found = self.found(model, split)
        given = self._said(split, found)
        exact, f1 = score_all(given, self._wanted(split, found), self.coder.unanswerable)
        return views(self.parts[split], found, given, exact, f1)

    def sample(self, model: nn.Module, step: int) -> str:
        """A few questions of the validation part, the answers that are given, and what they should be."""
        part = self.parts["valid"]
        some = np.unique(np.linspace(0, len(part.asked) - 1, 3).astype(np.int64))
        found = search(model, part, np.flatnonzero(np.isin(part.inputs.question, some)), self.coder.answer)
        asked, lines = [part.asked.asked[index] for index in some.tolist()], []
        for one, given, true in zip(asked, self._said("valid", found), self._wanted("valid", found), strict=True):
            wrong = "" if given in true or (not given and not true) else f" (is {true[0] if true else 'none'})"
            lines.append(f"{one.text.strip()} — {given or 'none'}{wrong}")
        return "\n".join(lines)


def network(model: BackboneSettings, coder: SpanCoder) -> Network:
    inputs = model.token_input(coder.tokenizer.size, coder.frame[1])
    return assemble(model, inputs, inputs.embedding_dim, coder.longest, lambda backbone: SpanHead(backbone.width))


def prepare(
    config: Any,
    data_dir: str | None = None,
    notify: Callable[[str], None] | None = None,
    coder: SpanCoder | None = None,
    tokenizer: Tokenizer | None = None,
) -> AnswerTask:
    """`coder` is that of a run that goes on; a tokenizer that is ready is taken as it is."""
    refuse_counting(config.model, config.task.name)
    notes = Notes(notify)
    if getattr(config.model, "bidirectional", False):
        notes(f"{config.model.name} reads in both directions (model.bidirectional)")
    asked = questions.read(config.data, data_dir, notes)
    unanswerable = coder.unanswerable if coder is not None else may_be_silent(config.task, asked.parts["train"], notes)
    used = {split: answerable(part, split, unanswerable, notes) for split, part in asked.parts.items()}
    if not len(used["train"]):
        raise SeriatimError(
            "data.empty", "no question of the training part has an answer", "give answers to learn from"
        )
    if coder is None:
        coder = learn(config, used["train"], unanswerable, tokenizer, notes)
        parts = {split: coder.encode(part) for split, part in used.items()}
        coder = fitted(config, coder, parts)
    else:
        parts = {split: coder.encode(part) for split, part in used.items()}
    if not parts["train"].learnt:
        raise SeriatimError(
            "data.answers", "no answer of the training part lies within a window", "raise --length, or data.tokenizer"
        )
    tell(coder, parts, notes)
    return AnswerTask(config.task, coder, parts, config.seed, list(notes), asked.fingerprint)  # type: ignore[arg-type]


def reopen(
    path: Path, config: Any, data_dir: str | None = None, notify: Callable[[str], None] | None = None
) -> AnswerTask:
    return prepare(config, data_dir, notify, SpanCoder.load(path))


def reopen_on(
    path: Path, config: Any, source: str, data_dir: str | None = None, notify: Callable[[str], None] | None = None
) -> AnswerTask:
    notes, coder = Notes(notify), SpanCoder.load(path)
    asked, fingerprint = questions.read_single(source, config.data.encoding, data_dir, notes)
    parts: dict[str, Any] = {"test": coder.encode(answerable(asked, "test", coder.unanswerable, notes))}
    tell(coder, parts, notes)
    return AnswerTask(config.task, coder, parts, config.seed, list(notes), fingerprint)  # type: ignore[arg-type]


def adopt(
    folder: Path,
    tokenizer: Tokenizer,
    labels: tuple[str, ...],
    longest: int,
    several: bool,
    unanswerable: bool = False,
) -> None:
    """What a run keeps besides weights, for a model that was trained elsewhere."""
    usual = Settings()
    window = min(usual.length, longest)
    question = min(usual.question, (window - 2) // 2)
    sizes = (window, usual.stride, question, USUAL)
    SpanCoder(tokenizer, unanswerable, *sizes, not tokenizer.framed, longest).save(folder)


def open_run(path: Path, config: Any) -> Answerer:
    coder = SpanCoder.load(path)
    return Answerer(restore(network(config.model, coder), path), coder, config.task.threshold, config.data.encoding)
