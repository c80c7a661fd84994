"""Pre-train an encoder on plain text: guess hidden tokens, and whether one passage follows another.

    loss = −mean log p(token | the text around it)  −  mean log p(b follows a, or not)

Devlin et al. 2019. Out of documents come pairs of passages, [CLS] a [SEP] b [SEP]; half of the time b is what follows
a in its document. Of the tokens 15 in 100 are hidden and to be guessed from both sides. Pairs and hidden tokens are
drawn anew for every step. What is learnt so serves other tasks with few examples of their own (`--from`).

The two means are over different things, hidden tokens and pairs. So that cutting a step into batches changes nothing,
a sum over pairs is weighted with the hidden tokens per pair of the whole step, which every process knows:

    Σ_tokens + (M/P) Σ_pairs, divided by M        M hidden tokens and P pairs of the step
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import Field
from torch import Tensor, nn

from ..core import config
from ..core.errors import SeriatimError
from ..core.tensors import without_contents
from ..data import encoded
from ..data.documents import DocumentSettings
from ..data.notes import Notes
from ..data.tokenizers import Tokenizer
from ..nn.backbone import BackboneSettings
from ..nn.network import Network
from . import _pretrain_network as nets
from ._coder import Coder
from ._examples import ExampleTask, digest, mismatch, refuse_counting, restore
from ._masking import Masking
from ._passages import Passages
from ._pretrain_network import Scores, looks_back, tokenizer_of
from ._pretrain_predict import Encoder, Filler
from ._pretrain_rows import GROUP, Rows, Said, groups, said_of
from ._pretrain_views import filled, passages, views
from ._task import Batch
from ._unlike import unlike_tokens

__all__ = [
    "DataSettings", "Settings", "adopt", "mismatch", "model_defaults", "open_run", "prepare", "reopen", "reopen_on",
]  # fmt: skip

DataSettings = DocumentSettings
SAME_TOKENS = True  # as its teacher a student must have: each is an answer
SHOWN = 3  # rows of a sample
PIECES = 40  # of each
LOOKED_AT = 10  # rows of a report


class Settings(config.Settings):
    name: str = Field("pretrain", description="the task: see `seriatim list tasks`")
    length: int = Field(
        128, ge=8, le=1_000_000, description="tokens of a pair of passages, with what stands around them"
    )
    masked: bool = Field(True, description="ask for hidden tokens")
    next: bool = Field(True, description="ask whether the second passage follows the first; false: no pairs")
    pairs_first: int = Field(
        0,
        ge=0,
        description="steps about pairs alone, at most a fifth of all, before hidden tokens join in (none with --from)",
    )
    share: float = Field(0.15, gt=0, lt=1, description="share of the tokens that is hidden")
    whole_word: bool = Field(False, description="hide all pieces of a word together")


def model_defaults(values: Mapping[str, Any]) -> dict[str, Any]:
    """What is hidden is guessed from both sides."""
    return {"bidirectional": True}


class PretrainTask(ExampleTask):
    unit = "hidden tokens"
    objective = "loss"
    parts: dict[str, Passages]  # type: ignore[assignment]

    def __post_init__(self) -> None:
        super().__post_init__()
        self.masking = Masking.of(tokenizer_of(self.coder), self.settings.share, self.settings.whole_word)
        self._rows: tuple[tuple[int, int], Rows] | None = None
        self._said: tuple[Any, Said] | None = None
        if not self.settings.masked:
            self.unit = "pairs"

    def shape(self, model: BackboneSettings) -> Network:
        return nets.network(model, self.coder, self.settings.masked, self.settings.next)

    def batch(self, step: int, first: int, last: int, rows: int) -> Batch:
        """The rows of a step are drawn together, by every process and only once."""
        if self._rows is None or self._rows[0] != (step, rows):
            pairs_alone = self.settings.next and step < self.settings.pairs_first
            masking = self.masking if self.settings.masked and not pairs_alone else None
            drawn = Rows.draw(self.parts["train"], self.rows(step, rows), masking, self.seed, "train", step)
            self._rows = (step, rows), drawn
        drawn = self._rows[1]
        return drawn.take(slice(first, last)).batch(drawn.weight)

    def read(self, network: Any, batch: Batch, state: Any = None) -> tuple[Scores, Tensor, None]:
        return *nets.read(network, batch), None

    def hard(self, network: nn.Module, scores: Scores, batch: Batch, smoothing: float) -> Tensor:
        return nets.hard(scores, batch, smoothing)

    def soft(self, network: nn.Module, scores: Scores, taught: Scores, temperature: float) -> Tensor:
        return nets.soft(scores, taught, temperature)

    def loss(self, network: nn.Module, batch: Batch, state: Any, smoothing: float) -> tuple[Tensor, Any]:
        scores, _, _ = self.read(network, batch)
        return self.hard(network, scores, batch, smoothing), None

    def unlike(self, teacher: Any) -> list[str]:
        found = unlike_tokens(tokenizer_of(self.coder), tokenizer_of(teacher.coder))
        head, room = teacher.model.head, teacher.coder.longest
        asked = {"hidden tokens": (self.settings.masked, head.masked), "pairs": (self.settings.next, head.next)}
        found += [f"it was never asked for {name}" for name, (ours, theirs) in asked.items() if ours and theirs is None]
        if room < self.settings.length:
            found.append(f"sequences have {self.settings.length} tokens, the teacher takes {room} (--length)")
        return found

    # Evaluation

    def chosen(self, split: str, limit: int | None = None) -> np.ndarray:
        """All rows, or whole groups spread evenly: rows are drawn group by group."""
        rows = super().chosen(split, limit)
        if len(rows) == len(self.parts[split]):
            return rows
        count = -(-len(self.parts[split]) // GROUP)
        some = np.unique(np.linspace(0, count - 1, max(round(len(rows) / GROUP), 1)).astype(np.int64))
        return np.flatnonzero(np.isin(np.arange(len(self.parts[split])) // GROUP, some))

    def said(self, network: nn.Module, split: str, limit: int | None = None) -> Said:
        """Kept while the weights stay: measures and details ask one after the other."""
        asked = (digest(network), split, limit)
        if self._said is None or self._said[0] != asked:
            self._said = asked, said_of(network, self._drawn(split, self.chosen(split, limit)))
        return self._said[1]

    def _drawn(self, split: str, rows: np.ndarray) -> Any:
        masking = self.masking if self.settings.masked else None
        return groups(self.parts[split], masking, self.seed, split, rows)

    def evaluate(self, model: nn.Module, split: str, limit: int | None = None) -> dict[str, float]:
        said = self.said(model, split, limit)
        masked = said.likely, said.best == said.token
        return self._measures(masked, (said.sure, said.guessed == said.elsewhere))

    def _measures(
        self, masked: tuple[np.ndarray, np.ndarray], pairs: tuple[np.ndarray, np.ndarray]
    ) -> dict[str, float]:
        """From log p of what is true and whether it was guessed, for hidden tokens and for pairs."""
        found: dict[str, float] = {}
        if self.settings.masked:
            loss, right = -float(masked[0].mean(dtype=np.float64)), float(masked[1].mean())
            found |= {"masked_loss": loss, "masked_perplexity": math.exp(min(loss, 700.0)), "masked_accuracy": right}
        if self.settings.next:
            loss, right = -float(pairs[0].mean(dtype=np.float64)), float(pairs[1].mean())
            found |= {"next_loss": loss, "next_accuracy": right}
        total = {"loss": found.get("masked_loss", 0.0) + found.get("next_loss", 0.0)}
        counts = {"tokens": float(len(masked[0]))} if self.settings.masked else {}
        return total | found | counts | {"sequences": float(len(pairs[0]))}

    @cached_property
    def frequencies(self) -> np.ndarray:
        """How often each token occurs in the training part, special ones aside."""
        counts = np.bincount(self.parts["train"].tokens, minlength=len(self.masking.ordinary))
        return np.where(self.masking.ordinary, counts, 0)

    def baselines(self, split: str) -> dict[str, dict[str, float]]:
        """Each token as likely as it is in the training part, whatever stands around it; and a coin for the pairs."""
        if not self.has("train"):
            return {}
        rows = list(self._drawn(split, self.chosen(split)))
        tokens = np.concatenate([one.tokens[one.chosen] for one in rows])
        counts = self.frequencies + 0.5
        likely = np.log(counts / counts.sum())[tokens]
        pairs = np.full(sum(len(one) for one in rows), -math.log(2))
        found = self._measures((likely, tokens == counts.argmax()), (pairs, np.full(len(pairs), 0.5)))
        names = ["frequencies"] * self.settings.masked + ["a coin"] * self.settings.next
        return {" and ".join(names): found}

    def details(self, model: nn.Module, split: str) -> list[dict[str, Any]]:
        counts = self.frequencies if self.has("train") else None
        tokenizer, asked = tokenizer_of(self.coder), self.settings
        found = views(tokenizer, self.said(model, split), counts, asked.masked, asked.next)
        rows, said = self._some(model, split, LOOKED_AT)
        return [*found, passages(tokenizer, rows, said, asked.next)] if asked.masked else found

    def sample(self, model: nn.Module, step: int) -> str:
        """Passages of the validation part: what it puts in the place of what was hidden, and what was there."""
        if not self.settings.masked:
            return ""
        rows, said = self._some(model, "valid", SHOWN)
        tokenizer = tokenizer_of(self.coder)
        return "\n".join(filled(tokenizer, row[:PIECES], said, index) for index, row in enumerate(rows))

    def _some(self, model: nn.Module, split: str, count: int) -> tuple[list[np.ndarray], Said]:
        """A few rows, spread evenly, and what is said about them."""
        some = np.unique(np.linspace(0, len(self.parts[split]) - 1, count).astype(np.int64))
        drawn = list(self._drawn(split, some))
        return [row for one in drawn for row in one.tokens], said_of(model, drawn)


def prepare(
    config: Any,
    data_dir: str | None = None,
    notify: Callable[[str], None] | None = None,
    coder: Coder | None = None,
    tokenizer: Tokenizer | None = None,
) -> PretrainTask:
    """Reads and tokenises the data of a configuration; a tokenizer is learnt where none is given."""
    _check(config, coder)
    notes = Notes(notify)
    known = tokenizer if coder is None else coder.tokenizer
    found = encoded.prepare(config.data, data_dir, notes, known)
    if coder is None:
        _check_tokens(found.tokenizer, config.task)
        coder = Coder("text", config.task.length, tokenizer=found.tokenizer, limit=config.task.length, pairs=None)
    return _task(config, coder, found, notes)


def _check(config: Any, coder: Coder | None) -> None:
    """All that can be wrong before a text is read."""
    refuse_counting(config.model, config.task.name)
    if not (config.task.masked or config.task.next):
        raise SeriatimError(
            "task.heads",
            "with neither task.masked nor task.next there is nothing to learn and nothing to measure",
            "ask for one of them; for another task begin with this run: --from",
        )
    with without_contents():  # which way a model looks shows when it is made
        length = config.task.length if coder is None else coder.longest
        if config.model.build(config.model.input_width(tied=False), length).causal:
            raise looks_back(config.model)


def _check_tokens(tokenizer: Tokenizer, settings: Settings) -> None:
    wanted = {"cls": "[CLS]", "sep": "[SEP]"} | ({"mask": "[MASK]"} if settings.masked else {})
    missing = [name for use, name in wanted.items() if getattr(tokenizer, use) is None]
    if missing:
        raise SeriatimError(
            "tokenizer.special",
            f"the {tokenizer.kind} tokenizer has no {', no '.join(missing)}",
            "leave --tokenizer away, or name bert",
        )


def _task(config: Any, coder: Coder, found: encoded.Encoded, notes: Notes) -> PretrainTask:
    parts = {
        split: Passages(part, found.tokenizer, config.task.length, config.task.next, split)
        for split, part in found.parts.items()
    }
    for split, part in parts.items():
        if part.left_out:
            notes(f"{split}: left out {part.left_out:,} documents of a single sentence, which nothing follows")
    what = "pairs of passages" if config.task.next else "passages"
    notes(f"{what}: " + ", ".join(f"{len(part):,} {split}" for split, part in parts.items()))
    settings = config.task.model_copy(update={"pairs_first": _pairs_first(config)})
    return PretrainTask(settings, coder, parts, config.seed, list(notes), found.fingerprint)  # type: ignore[arg-type]


def _pairs_first(config: Any) -> int:
    """Whether passages belong together is found with difficulty once everything serves to guess tokens. Weights that
    were trained before have been through that."""
    if config.start is not None or not (config.task.masked and config.task.next):
        return 0
    steps = config.train.steps
    return config.task.pairs_first if steps is None else min(config.task.pairs_first, steps // 5)


def reopen(
    path: Path, config: Any, data_dir: str | None = None, notify: Callable[[str], None] | None = None
) -> PretrainTask:
    return prepare(config, data_dir, notify, Coder.load(path))


def reopen_on(
    path: Path, config: Any, source: str, data_dir: str | None = None, notify: Callable[[str], None] | None = None
) -> PretrainTask:
    coder, notes = Coder.load(path), Notes(notify)
    _check(config, coder)
    found = encoded.prepare_single(source, config.data, data_dir, notes, tokenizer_of(coder))
    return _task(config, coder, found, notes)


def adopt(folder: Path, tokenizer: Tokenizer, labels: tuple[str, ...], longest: int, several: bool) -> None:
    """What a run keeps besides weights, for a model that was trained elsewhere."""
    Coder("text", longest, tokenizer=tokenizer, limit=longest, pairs=None).save(folder)


def open_run(path: Path, config: Any) -> Encoder:
    coder = Coder.load(path)
    opened = restore(nets.network(config.model, coder, config.task.masked, config.task.next), path)
    answers = config.task.masked or config.task.next
    return (Filler if answers else Encoder)(opened, coder, config.data)
