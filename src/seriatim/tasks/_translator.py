"""What one asks of a translator: what is this in the other language, how likely is that, and where did it look.

Several networks over the same vocabularies answer together. The score of a translation is what `score` says of its
text: where tokens were put together in another way than the tokenizer would, or no end was found, it is taken anew.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import torch

from ..core import registry
from ..core.errors import SeriatimError
from ..data import pairs
from ..data.sequences import NOTHING, Sequences
from ..data.tokenizers import UNK
from ..data.writing import Table
from ..decode.options import TranslateSettings
from ..decode.sampling import Hypothesis
from ..nn.network import full
from ..nn.pair import Translator
from ._alignment import Looked, Side, words_of
from ._pair_engine import Search, attends, batches, forced, mean_of
from ._pairs import PairCoder, PairPart, end_of
from ._predict import short
from ._speak import Score, own_streams

MOST = 16_384  # tokens of a text, where the model itself has no limit: time grows with the square of it


@dataclass(frozen=True)
class Translation:
    """`score` is the log-probability of the text with its end; `tokens` are as they were found."""

    text: str
    score: float
    tokens: list[int]
    finished: bool  # it ended by itself, not by a limit
    value: float = 0.0  # what it was ranked by
    look: Callable[[], Looked] | None = field(default=None, repr=False, compare=False)

    @cached_property
    def alignment(self) -> Looked:
        """Where each token looked."""
        if self.look is None:
            raise SeriatimError("translate.empty", "an empty text has no alignment", "give a text")
        return self.look()

    def record(self) -> dict[str, Any]:
        return {"text": self.text, "score": self.score, "finished": self.finished, "tokens": self.tokens}


class Interpreter:
    questions = ("translate", "score", "alignment", "predict")

    def __init__(self, networks: Sequence[Translator], coder: PairCoder, data: Any = None) -> None:
        self.networks = [network.eval() for network in networks]
        self.model = self.networks[0]
        self.coder = coder
        self.data = data  # the settings by which texts were read
        self.device = next(self.model.parameters()).device
        self.end = end_of(coder.target)

    def together(self, others: Sequence[Interpreter]) -> Interpreter:
        """With the networks of others, which must have the same vocabularies."""
        return Interpreter(
            [*self.networks, *(one for other in others for one in other.networks)], self.coder, self.data
        )

    @cached_property
    def context(self) -> int | None:
        """The longest source and target that all networks take."""
        limits = [one.backbone.context for one in self.networks if one.backbone.context is not None]
        return min(limits) if limits else None

    @cached_property
    def attends(self) -> bool:
        with torch.inference_mode():
            return any(attends(network) for network in self.networks)

    def unknown(self, texts: Sequence[str]) -> list[str]:
        """What of some sources is not in the vocabulary, each once."""
        return list(dict.fromkeys(one for text in texts for one in self.coder.source.unknown(self._read(text))))

    def _read(self, text: str) -> str:
        """A text as those of the training were."""
        return pairs.normalised(text) if self.data is not None and self.data.normalise else text

    # Translating

    @torch.inference_mode()
    def translate(
        self, texts: Sequence[str], options: TranslateSettings, places: Sequence[str] = ()
    ) -> list[list[Translation]]:
        """For each text its `nbest` translations, best first; an empty text has an empty one. `places` say where the
        texts stand, for errors."""
        texts = [self._read(text) for text in texts]
        sources = self.coder.sources(texts)
        wanted = [index for index, text in enumerate(texts) if text.strip()]
        self._fits(sources, wanted, places)
        copies = 1 if options.beams > 1 else options.nbest
        jobs = [index for index in wanted for _ in range(copies)]
        draws = own_streams([texts[index] for index in jobs], options.seed)
        lengths = [int(sources.lengths[index]) for index in jobs]
        order = sorted(range(len(jobs)), key=lambda job: lengths[job])  # like lengths together: little padding
        found: list[list[Hypothesis]] = [[] for _ in jobs]
        for some in batches(lengths, order, max(options.beams, 1)):
            rows = [jobs[job] for job in some]
            for job, answers in zip(
                some, self._decode(sources, rows, options, [draws[job] for job in some]), strict=True
            ):
                found[job] = answers
        told = self._told(texts, sources, jobs, found, self._replaces(options))
        nothing = Translation("", 0.0, [], True)
        return [told.get(index, [nothing]) for index in range(len(texts))]

    def _fits(self, sources: Sequences, rows: Sequence[int], places: Sequence[str] = ()) -> None:
        most = MOST if self.context is None else self.context
        remedy = "shorten it, or train a model that takes any length" if self.context else "break it into sentences"
        for row in rows:
            if sources.lengths[row] > most:
                place = places[row] if places else f"input {row + 1}"
                cause = f"{place} has {sources.lengths[row]:,} tokens, the model takes {most:,}"
                raise SeriatimError("predict.long", cause, remedy)

    def _replaces(self, options: TranslateSettings) -> bool:
        """Whether `<unk>` may be said, because a word of the source will stand in its place."""
        if self.coder.target.kind != "word" or self.coder.source.kind != "word" or options.replace_unknown is False:
            return False
        if options.replace_unknown:
            self._must_attend("unknown words cannot be replaced")
        return self.attends

    def _must_attend(self, why: str) -> None:
        if not self.attends:
            models = {name: registry.models.load(name).Settings for name in registry.models.names()}
            names = [name for name, one in models.items() if name != "seq2seq" and not one.counts]
            raise SeriatimError(
                "model.no-attention",
                f"{why}: this model does not show where it looks",
                f"train one that attends: {', '.join(names)}",
            )

    def _decode(
        self, sources: Sequences, rows: list[int], options: TranslateSettings, draws: list[np.random.Generator]
    ) -> list[list[Hypothesis]]:
        block, real = sources.padded(rows)
        mask = None if real.all() else torch.from_numpy(real).to(self.device)
        if options.beams > 1 and options.coverage_penalty > 0:
            self._must_attend("coverage_penalty needs attention")
        unk, pad = self.coder.target.unk, self.coder.target.pad
        never = {None if self._replaces(options) else unk, pad} - {None, self.end}
        prefix = self._prefix(options)
        limits = options.limits(sources.lengths[rows].tolist(), len(prefix))
        limits = limits if self.context is None else [min(limit, self.context) for limit in limits]
        search = Search(self.coder.begin, self.end, tuple(one for one in never if one is not None), prefix)
        return search.find(self.networks, torch.from_numpy(block).to(self.device), mask, options, limits, draws)

    def _prefix(self, options: TranslateSettings) -> list[int]:
        text = self._read(options.prefix)
        ids: list[int] = self.coder.target.encode(text).tolist() if text else []
        room = options.max_tokens if self.context is None else min(options.max_tokens, self.context)
        if len(ids) >= room:
            cause = f"the prefix has {len(ids)} tokens, and a translation {room} at most"
            raise SeriatimError("translate.prefix", cause, "shorten it")
        return ids

    def _told(
        self, texts: Sequence[str], sources: Sequences, jobs: list[int], found: list[list[Hypothesis]], replaces: bool
    ) -> dict[int, list[Translation]]:
        """Hypotheses as texts with their scores, by the number of the source."""
        rows = [index for index, answers in zip(jobs, found, strict=True) for _ in answers]
        hypotheses = [one for answers in found for one in answers]
        seen = [one.tokens[:-1] if one.tokens[-1:] == [self.end] else one.tokens for one in hypotheses]
        said = [self._read(self.coder.target.decode(tokens)) for tokens in seen]
        targets = self.coder.targets(said)
        scores = [one.score for one in hypotheses]
        odd = [n for n, one in enumerate(hypotheses) if one.tokens != targets[n].tolist() and self._room(targets[n])]
        likely, _ = self._forced(sources, targets, rows, odd)
        for number, values in zip(odd, likely, strict=True):
            scores[number] = float(values.sum())
        shown = dict(zip(range(len(said)), said, strict=True))
        if replaces:
            shown |= self._replaced(texts, sources, targets, rows, said)
        answers: dict[int, list[Translation]] = {}
        for number, (row, one) in enumerate(zip(rows, hypotheses, strict=True)):
            look = self._looking(texts[row], said[number])
            made = Translation(shown[number], scores[number], one.tokens, one.finished, one.value, look)
            answers.setdefault(row, []).append(made)
        return {row: sorted(some, key=lambda one: -one.value) for row, some in answers.items()}

    def _room(self, target: np.ndarray) -> bool:
        return self.context is None or len(target) <= self.context

    def _forced(
        self, sources: Sequences, targets: Sequences, rows: Sequence[int], some: Sequence[int], watched: bool = False
    ) -> tuple[list[np.ndarray], list[np.ndarray]]:
        """`some` of the targets, which belong to the sources `rows`."""
        part = PairPart(sources.take([rows[n] for n in some]), targets.take(some), NOTHING)
        return forced(self.networks, part, self.coder.begin, watched)

    def _replaced(
        self, texts: Sequence[str], sources: Sequences, targets: Sequences, rows: Sequence[int], said: Sequence[str]
    ) -> dict[int, str]:
        """The texts that have `<unk>`, with the source word in its place that was looked at most."""
        some = [n for n in range(len(said)) if self.coder.target.unk in targets[n] and self._room(targets[n])]
        found = {}
        for number, weights in zip(some, self._forced(sources, targets, rows, some, watched=True)[1], strict=True):
            words = words_of(self.coder.source, texts[rows[number]])
            places = np.flatnonzero(targets[number] == self.coder.target.unk)
            first, *parts = said[number].split(UNK)
            chosen = [words[int(weights[place, : len(words)].argmax())] for place in places]
            found[number] = first + "".join(word + part for word, part in zip(chosen, parts, strict=True))
        return found

    # Looking and scoring

    def _looking(self, source: str, target: str) -> Callable[[], Looked]:
        return lambda: self.alignment(source, target)

    @torch.inference_mode()
    def alignment(self, source: str, target: str | None = None) -> Looked:
        """Where each token of a target looks in its source; without a target, of the translation."""
        self._must_attend("there is no alignment to show")
        if target is None:
            return self.translate([source], TranslateSettings())[0][0].alignment
        _, (weights,), sources, targets = self._pair(source, target, watched=True)
        one = Side.of(self.coder.source, sources[0].tolist(), self._read(source))
        other = Side.of(self.coder.target, targets[0].tolist(), self._read(target))
        return Looked.of(one, other, weights)

    @torch.inference_mode()
    def score(self, source: str, target: str) -> Score:
        """log p(target | source), its end included, altogether and token by token."""
        (values,), _, _, targets = self._pair(source, target)
        names = [self.coder.target.token(token) for token in targets[0].tolist()]
        return Score(target, float(values.sum()), len(values), list(zip(names, values.tolist(), strict=True)))

    @torch.inference_mode()
    def along(self, source: str, target: str) -> tuple[np.ndarray, torch.Tensor]:
        """The tokens of a target with its end (T,), and log-probabilities (T,V) of what could stand at each place."""
        _, _, sources, targets = self._pair(source, target)
        batch = PairPart(sources, targets, NOTHING).collate(np.array([0]), self.coder.begin).to(self.device)
        tokens, given = batch.inputs
        hidden = [network.decode(given, network.encode(tokens, batch.mask))[0][0] for network in self.networks]
        scores = [network.head(one) for network, one in zip(self.networks, hidden, strict=True)]
        return targets[0], mean_of([full(one).log_softmax(dim=-1) for one in scores])

    def _pair(
        self, source: str, target: str, watched: bool = False
    ) -> tuple[list[np.ndarray], list[np.ndarray], Sequences, Sequences]:
        sources, targets = self.coder.sources([self._read(source)]), self.coder.targets([self._read(target)])
        self._fits(sources, [0], ["the source"])
        self._fits(targets, [0], ["the target"])
        likely, looked = self._forced(sources, targets, [0], [0], watched)
        return likely, looked, sources, targets

    # Files

    def predict(self, inputs: Sequence[str], places: Sequence[str] = ()) -> list[dict[str, Any]]:
        found = self.translate(inputs, TranslateSettings(), places)
        return [{"translation": one[0].text, "score": short(one[0].score)} for one in found]

    def table(self, answers: list[dict[str, Any]]) -> Table:
        return Table(["translation", "score"], [[one["translation"], one["score"]] for one in answers])

    def predict_file(self, source: str, data_dir: str | None = None) -> Table:
        """A row for each row of the file."""
        found = pairs.read_inputs(source, self.data, data_dir)
        return self.table(self.predict(found.inputs, found.places))  # type: ignore[arg-type]
