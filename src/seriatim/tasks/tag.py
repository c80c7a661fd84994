"""Give every word a tag: word classes, names in a text, any symbol for each step.

    p(tag of word t) = softmax(W h_t + b)        h = backbone([word vectors; features of the spelling])

Trained by cross-entropy over the words. A model that can reads in both directions. Where the tags mark entities (BIO
and its kin), what counts is the F1 of whole entities, as conlleval and seqeval (in its default mode) count them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import Field
from torch import Tensor, nn
from torch.nn import functional as F

from ..core import config, registry
from ..core.errors import SeriatimError
from ..data import entities, generated, tagged
from ..data.conll import Sentences
from ..data.notes import Notes
from ..data.sequences import Examples, Parts, Sequences
from ..data.tokenizers import Tokenizer
from ..nn.backbone import BackboneSettings
from ..nn.characters import WordInput
from ..nn.heads import StepHead
from ..nn.network import Network, assemble, full
from ..nn.soft import soft_loss
from ._examples import ExampleTask, mismatch, refuse_counting, restore, spread_over
from ._tag_learn import in_windows, learn
from ._tag_views import oddities, tags_of, views
from ._tagger import Tagger, Tagging, tagging
from ._task import Batch
from ._unlike import unlike_names
from ._words import NO_TAG, WordCoder, WordPart

__all__ = ["DataSettings", "Settings", "mismatch", "model_defaults", "open_run", "prepare", "reopen", "reopen_on"]

DataSettings = tagged.TagSettings
SPELLING = 64  # features of the spelling, where nothing is said
SHOWN = 30  # words of a sample


class Settings(config.Settings):
    name: str = Field("tag", description="the task: see `seriatim list tasks`")
    characters: int | None = Field(
        None, ge=0, le=4096, description="features of a word's spelling; 0: none (default: 64 for words, else 0)"
    )
    word_dropout: float = Field(
        0.1,
        ge=0,
        lt=1,
        description="share of words read as the unknown word while training; none with BERT's tokenizer",
    )
    length: int | None = Field(
        None,
        ge=2,
        le=1_000_000,
        description="steps of a sequence at most; a longer one is read in windows that overlap",
    )


def model_defaults(values: Mapping[str, Any]) -> dict[str, Any]:
    """A tag depends on the words behind as well, so both directions, and each half as wide; treebanks are small, so
    dropout. The generated tasks are for models that only look back, and never short of examples."""
    if str(values["data"]["source"]).partition(":")[0] in generated.SETS:
        return {}
    sided = "bidirectional" in registry.models.load(str(values["model"]["name"])).Settings.model_fields
    halved = {"width": 128} if sided and values["model"].get("bidirectional", True) else {}
    return {"bidirectional": True, "dropout": 0.2, **halved}


class TagTask(ExampleTask):
    unit = "words"
    objective = "error"
    coder: WordCoder  # type: ignore[assignment]
    parts: dict[str, WordPart]  # type: ignore[assignment]

    def shape(self, model: BackboneSettings) -> Network:
        return network(model, self.coder, self.settings)

    def collate(self, split: str, rows: np.ndarray) -> Batch:
        return self.parts[split].collate(rows, spelled=spelling(self.settings, self.coder) > 0)

    def read(self, network: Any, batch: Batch, state: Any = None) -> tuple[Tensor, Tensor, None]:
        hidden, _, _ = network.given(batch.inputs, batch.mask)
        vectors = hidden[batch.targets != NO_TAG]
        return full(network.head(vectors)), vectors, None

    def hard(self, network: nn.Module, scores: Tensor, batch: Batch, smoothing: float) -> Tensor:
        targets = batch.targets[batch.targets != NO_TAG]
        return F.cross_entropy(scores, targets, reduction="sum", label_smoothing=smoothing)

    def loss(self, network: nn.Module, batch: Batch, state: Any, smoothing: float) -> tuple[Tensor, Any]:
        scores, _, _ = self.read(network, batch)
        return self.hard(network, scores, batch, smoothing), None

    def soft(self, network: nn.Module, scores: Tensor, taught: Tensor, temperature: float) -> Tensor:
        return soft_loss(scores, taught, temperature)

    def unlike(self, teacher: Any) -> list[str]:
        return unlike_names(self.coder.labels, teacher.coder.labels, "tag")

    def answered(self, rows: np.ndarray) -> np.ndarray:
        """Words, in the order in which a batch has them."""
        part = self.parts["train"]
        words = Sequences(part.where, part.inputs.ends).take(rows).values
        words = words[words >= 0]
        return words[part.targets[words] != NO_TAG]

    def some(self, split: str, count: int) -> list[Any]:
        return spread_over(self.parts[split].words(), count)

    def read_by(self, config: Any, predictor: Any) -> TagTask:
        """The training part as another run reads it, to be asked about all of its words."""
        other = predictor.coder.encode(self.parts["train"].words())
        read = replace(other, targets=np.zeros_like(other.targets))
        return replace(self, settings=config.task, coder=predictor.coder, parts={"train": read})

    def chosen(self, split: str, limit: int | None = None) -> np.ndarray:
        """Whole sentences: all windows of those that are chosen."""
        rows, part = super().chosen(split, limit), self.parts[split]
        return np.flatnonzero(np.isin(part.sentence, part.sentence[rows]))

    def evaluate(self, model: nn.Module, split: str, limit: int | None = None) -> dict[str, float]:
        rows, part = self.chosen(split, limit), self.parts[split]
        said = tagging(model, part, rows)
        known = said.loss[~np.isnan(said.loss)]
        return {"loss": float(known.mean(dtype=np.float64)) if len(known) else 0.0} | self._measures(part, said)

    def _measures(self, part: WordPart, said: Tagging) -> dict[str, float]:
        accuracy = float((part.targets[said.words] == said.best).mean())
        found = {"accuracy": accuracy}
        error = 1 - accuracy
        if self.coder.scheme != "none":
            whole, _ = entities.score(*tags_of(self.coder, part, said))
            found |= {"precision": whole.precision, "recall": whole.recall, "f1": whole.f1}
            error = 1 - whole.f1
        return found | {"error": error, "words": float(len(said.words))}

    def baselines(self, split: str) -> dict[str, dict[str, float]]:
        """Each word has the tag that it has most often in the training part; a new one has the most frequent of all."""
        if not self.has("train"):  # another file than that of the training
            return {}
        train, part = self.parts["train"], self.parts[split]
        size = len(self.coder.labels)
        counts = np.bincount(train.forms * size + train.targets, minlength=len(train.names) * size)
        counts = counts.reshape(-1, size)
        usual = counts.sum(axis=0)
        best = (counts + usual / (1 + usual.sum())).argmax(axis=1)  # of equal ones, the one more frequent elsewhere
        best[counts.sum(axis=1) == 0] = usual.argmax()
        numbers = {name: index for index, name in enumerate(train.names)}
        places = np.array([numbers.get(name, -1) for name in part.names], dtype=np.int64)[part.forms]
        given = np.where(places >= 0, best[places], usual.argmax())
        said = Tagging(np.arange(len(given)), given, np.ones(len(given)), np.zeros(len(given)))
        return {"most frequent tag of the word": self._measures(part, said)}

    def details(self, model: nn.Module, split: str) -> list[dict[str, Any]]:
        part = self.parts[split]
        said = tagging(model, part, self.chosen(split))
        return views(self.coder, part, said, set(self.parts["train"].names) if self.has("train") else None)

    def sample(self, model: nn.Module, step: int) -> str:
        """A few sentences of the validation part with their tags; wrong ones with what they should be."""
        part = self.parts["valid"]
        some = np.unique(np.linspace(0, len(part.ends) - 1, 3).astype(np.int64))
        said = tagging(model, part, np.flatnonzero(np.isin(part.sentence, some)))
        best = dict(zip(said.words.tolist(), said.best.tolist(), strict=True))
        labels, lines = self.coder.labels, []
        for first, end in (part.bounds[index] for index in some.tolist()):
            words = []
            for place in range(first, min(end, first + SHOWN)):
                word, tag, true = part.names[part.forms[place]], best[place], int(part.targets[place])
                wanted = labels[true] if true != NO_TAG else "?"
                words.append(f"{word}/{labels[tag]}" + ("" if tag == true else f" (is {wanted})"))
            lines.append(" ".join(words) + (" …" if end - first > SHOWN else ""))
        return "\n".join(lines)


def spelling(settings: Settings, coder: WordCoder) -> int:
    """How many features of the spelling there are; BERT's pieces have none."""
    if coder.tokenizer is None or coder.framed:
        return 0
    if settings.characters is None:
        return SPELLING if coder.tokenizer.kind == "word" else 0
    return settings.characters


def network(model: BackboneSettings, coder: WordCoder, settings: Settings) -> Network:
    inputs: Any
    if coder.tokenizer is None or coder.framed:
        known = len(coder.symbols) if coder.tokenizer is None else coder.tokenizer.size
        inputs = model.token_input(known, None if coder.tokenizer is None else coder.tokenizer.sep)
        width = inputs.embedding_dim
    else:
        words = model.token_input(coder.tokenizer.size)
        unknown = coder.tokenizer.unk or 0
        inputs = WordInput(words, coder.characters, spelling(settings, coder), settings.word_dropout, unknown)
        width = inputs.width
    return assemble(model, inputs, width, coder.longest, lambda backbone: StepHead(backbone.width, len(coder.labels)))


def prepare(
    config: Any,
    data_dir: str | None = None,
    notify: Callable[[str], None] | None = None,
    coder: WordCoder | None = None,
    tokenizer: Tokenizer | None = None,
) -> TagTask:
    """Reads the data; the coder is learnt from it where none is given, with a tokenizer that may be ready."""
    refuse_counting(config.model, config.task.name)
    notes = Notes(notify)
    if getattr(config.model, "bidirectional", False):
        notes(f"{config.model.name} reads in both directions (model.bidirectional)")
    made = generated.parts(config.data.source)
    if made is not None:
        return _made_task(config, made, notes, coder)
    data = tagged.read(config.data, data_dir, notes, None if coder is None else coder.scheme)
    if coder is None:
        coder = learn(config, data, notes, tokenizer)
        read = {split: _read(coder, data.part(split)) for split in tagged.SPLITS}
        coder, parts = in_windows(config, coder, read, notes)
    else:
        parts = {split: coder.cut(_read(coder, data.part(split))) for split in tagged.SPLITS}
    for split in tagged.SPLITS[1:]:
        for note in oddities(coder, parts[split], split):
            notes(note)
    return TagTask(config.task, coder, parts, config.seed, list(notes), data.fingerprint)  # type: ignore[arg-type]


def _made_task(config: Any, made: Parts, notes: Notes, coder: WordCoder | None) -> TagTask:
    """Symbols with a target for each step."""
    if not isinstance(made.train.targets, Sequences) or not made.symbols:
        raise SeriatimError(
            "data.steps", f"{config.data.source} has no tag for each step", "choose another task, or --data copy:100"
        )
    for note in made.notes:
        notes(note)
    fresh = coder is None
    if coder is None:
        coder = WordCoder("symbols", labels=made.symbols, symbols=made.symbols)
    parts = {split: _encode_made(coder, made.part(split)) for split in tagged.SPLITS}
    if fresh:
        coder, parts = in_windows(config, coder, parts, notes)
    return TagTask(config.task, coder, parts, config.seed, list(notes), made.fingerprint)  # type: ignore[arg-type]


def _encode_made(coder: WordCoder, part: Examples) -> WordPart:
    return coder.encode_symbols(part.inputs, part.targets)  # type: ignore[arg-type]


def _read(coder: WordCoder, sentences: Sentences) -> WordPart:
    return replace(coder.read(sentences.words, sentences.tags), source=sentences)


def reopen(
    path: Path, config: Any, data_dir: str | None = None, notify: Callable[[str], None] | None = None
) -> TagTask:
    return prepare(config, data_dir, notify, WordCoder.load(path))


def reopen_on(
    path: Path, config: Any, source: str, data_dir: str | None = None, notify: Callable[[str], None] | None = None
) -> TagTask:
    notes, coder = Notes(notify), WordCoder.load(path)
    made = generated.parts(source)
    if made is not None and coder.kind == "symbols":
        part, fingerprint = _encode_made(coder, made.test), made.fingerprint
    else:
        sentences = tagged.read_single(source, config.data, data_dir, notes, coder.scheme)
        part, fingerprint = coder.cut(_read(coder, sentences)), sentences.fingerprint
        for note in oddities(coder, part, "test"):
            notes(note)
    parts: dict[str, Any] = {"test": part}
    return TagTask(config.task, coder, parts, config.seed, list(notes), fingerprint)  # type: ignore[arg-type]


def adopt(folder: Path, tokenizer: Tokenizer, labels: tuple[str, ...], longest: int, several: bool) -> None:
    """What a run keeps besides weights, for a model that was trained elsewhere."""
    scheme = entities.recognise([labels])
    WordCoder("words", labels, scheme, longest=longest, window=longest, tokenizer=tokenizer).save(folder)


def open_run(path: Path, config: Any) -> Tagger:
    coder = WordCoder.load(path)
    return Tagger(restore(network(config.model, coder, config.task), path), coder, config.data)
