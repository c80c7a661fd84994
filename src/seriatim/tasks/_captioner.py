"""What one asks of a captioner: what is to be seen here, how likely is that text, and where did it look.

Several networks over the same vocabulary answer together. A picture is looked at as those of the training were: brought
to their size, the middle of it shown.
"""

from __future__ import annotations

import base64
import hashlib
import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ..core.errors import SeriatimError
from ..data import captions
from ..data.captioned import CaptionExamples
from ..data.pictures import Pictures
from ..data.sequences import NOTHING, Sequences
from ..data.writing import Table
from ..decode.options import TranslateSettings
from ..decode.sampling import Hypothesis
from ..nn.captioner import Captioner as Network
from ._alignment import Side
from ._captions import CaptionCoder
from ._pair_engine import ROWS, Search, attends, forced
from ._pairs import PairPart, end_of
from ._picture_coder import read_pictures
from ._predict import short
from ._speak import Score, own_streams

LONGEST = 100  # tokens of a caption, where nothing else is said


@dataclass(frozen=True)
class Glance:
    """Where each word of a caption looked: `weights` (words, places) over the `grid` (rows, columns) of a picture."""

    picture: np.ndarray  # (H,W,C) of 8 bits
    grid: tuple[int, int]
    words: list[str]
    weights: np.ndarray

    def record(self) -> dict[str, Any]:
        return {"words": self.words, "grid": list(self.grid), "weights": self.weights.round(6).tolist()}

    def view(self, title: str = "Where each word looked") -> dict[str, Any]:
        """As the figures of a picture (kind overlay)."""
        return {"kind": "overlay", "title": title, "picture": png(self.picture), **self.record()}


@dataclass(frozen=True)
class Caption:
    """`score` is the log-probability of the text with its end; `tokens` are as they were found."""

    text: str
    score: float
    tokens: list[int]
    finished: bool  # it ended by itself, not by a limit
    value: float = 0.0  # what it was ranked by
    look: Callable[[], Glance] | None = field(default=None, repr=False, compare=False)

    @cached_property
    def attention(self) -> Glance:
        """Where each word looked."""
        if self.look is None:
            raise SeriatimError("caption.unseen", "this caption was not found in a picture", "ask for one that was")
        return self.look()

    def record(self) -> dict[str, Any]:
        return {"text": self.text, "score": self.score, "finished": self.finished, "tokens": self.tokens}


class Captioner:
    questions = ("caption", "score", "predict")

    def __init__(self, networks: Sequence[Network], coder: CaptionCoder, data: Any = None) -> None:
        self.networks = [network.eval() for network in networks]
        self.model = self.networks[0]
        self.coder = coder
        self.data = data  # the settings by which pictures and texts were read
        self.device = next(self.model.parameters()).device
        self.end = end_of(coder.target)

    @cached_property
    def attends(self) -> bool:
        with torch.inference_mode():
            return any(attends(network) for network in self.networks)

    @property
    def grid(self) -> tuple[int, int]:
        return self.model.source.picture.grid

    # Captions

    @torch.inference_mode()
    def caption(self, inputs: Any, options: TranslateSettings | None = None) -> list[list[Caption]]:
        """For each picture its `nbest` captions, best first. Pictures are files, arrays (H,W[,C]) of 8 bits, or
        `Pictures`."""
        options = TranslateSettings() if options is None else options
        seen = self._seen(inputs)
        copies = 1 if options.beams > 1 else options.nbest
        jobs = [row for row in range(len(seen)) for _ in range(copies)]
        draws = own_streams([hashed(seen[row]) for row in jobs], options.seed)
        found: dict[int, list[Hypothesis]] = {}
        room = max(ROWS // max(options.beams, 1), 1)
        for start in range(0, len(jobs), room):
            some = range(start, min(start + room, len(jobs)))
            rows = [jobs[job] for job in some]
            block = torch.from_numpy(seen.padded(rows)[0]).to(self.device)
            answers = self._search(options).find(
                self.networks, block, None, options, self._limits(options, len(rows)), [draws[job] for job in some]
            )
            for row, more in zip(rows, answers, strict=True):
                found.setdefault(row, []).extend(more)
        return [self._told(seen, row, found[row]) for row in range(len(seen))]

    def _search(self, options: TranslateSettings) -> Search:
        tokenizer = self.coder.target
        never = tuple(one for one in (tokenizer.unk, tokenizer.pad) if one is not None and one != self.end)
        prefix = tokenizer.encode(options.prefix).tolist() if options.prefix else []
        return Search(self.coder.begin, self.end, never, prefix)

    def _limits(self, options: TranslateSettings, count: int) -> list[int]:
        said = "max_tokens" in options.model_fields_set
        most = options.max_tokens if said else min(options.max_tokens, max(LONGEST, 2 * self.coder.longest))
        context = self.model.backbone.context
        return [most if context is None else min(most, context)] * count

    def _told(self, seen: Pictures, row: int, found: list[Hypothesis]) -> list[Caption]:
        made = []
        for one in sorted(found, key=lambda some: -some.value):
            tokens = one.tokens[:-1] if one.tokens[-1:] == [self.end] else one.tokens
            text = self.coder.target.decode(tokens)
            look = lambda text=text: self._looked(seen.take([row]), text)  # noqa: E731
            made.append(Caption(text, one.score, one.tokens, one.finished, one.value, look))
        return made

    # Looking and scoring

    @torch.inference_mode()
    def attention(self, picture: Any, text: str | None = None) -> Glance:
        """Where each word of a text looks in a picture; without a text, of its caption."""
        seen = self._seen(picture if isinstance(picture, Pictures) else [picture])
        return self._looked(seen, self.caption(seen)[0][0].text if text is None else text)

    @torch.inference_mode()
    def score(self, picture: Any, text: str) -> Score:
        """log p(text | picture), its end included, altogether and token by token."""
        targets = self.coder.targets([text])
        (values,), _ = self.forced(self._seen([picture]), targets)
        names = [self.coder.target.token(token) for token in targets[0].tolist()]
        return Score(text, float(values.sum()), len(values), list(zip(names, values.tolist(), strict=True)))

    @torch.inference_mode()
    def forced(
        self, seen: Pictures, targets: Sequences, watched: bool = False
    ) -> tuple[list[np.ndarray], list[np.ndarray]]:
        """For each row the log-probability of every token and, if `watched`, its weights over the grid (T,S)."""
        return forced(self.networks, PairPart(seen, targets, NOTHING), self.coder.begin, watched)  # type: ignore[arg-type]

    def _looked(self, seen: Pictures, text: str) -> Glance:
        self.must_attend()
        targets = self.coder.targets([text])
        _, (weights,) = self.forced(seen, targets, watched=True)
        side = Side.of(self.coder.target, targets[0].tolist(), text)
        means = np.stack([weights[some].mean(axis=0) for some in side.groups])
        kept = len(side.words) - 1  # the end is no word
        return Glance(seen[0], self.grid, side.words[:kept], means[:kept])

    def must_attend(self) -> None:
        if not self.attends:
            cause = "this model does not show where it looks: it sees a picture once, as one vector"
            raise SeriatimError("model.no-attention", cause, "train showattend or transformer")

    # Pictures and files

    def _seen(self, inputs: Any) -> Pictures:
        """Pictures as those of the training were, whatever they come as."""
        return read_pictures(inputs, self.coder.form)

    def readable(self, paths: Sequence[Path], broken: dict[str, SeriatimError]) -> Pictures:
        """Files as the model sees them. Those that cannot be read are left out, and stand in `broken` by name."""
        found = []
        for path in paths:
            try:
                found.append(self._seen([path])[0])
            except SeriatimError as error:
                broken[str(path)] = error
        return Pictures.of(np.stack(found)) if found else self._seen([])

    def predict(self, inputs: Any) -> list[dict[str, Any]]:
        found = self.caption(inputs)
        return [{"caption": one[0].text, "score": short(one[0].score)} for one in found]

    def table(self, answers: list[dict[str, Any]]) -> Table:
        return Table(["caption", "score"], [[one["caption"], one["score"]] for one in answers])

    def predict_file(self, source: str, data_dir: str | None = None) -> Table:
        """A row for each picture of the source."""
        found: CaptionExamples = captions.read_inputs(source, self.data, data_dir, self.coder.shape)
        table = self.table(self.predict(found.inputs))
        named = [[place, *row] for place, row in zip(found.places, table.rows, strict=True)]
        return Table(["picture", *table.columns], named, table.usual)


def hashed(picture: np.ndarray) -> str:
    return hashlib.blake2b(np.ascontiguousarray(picture).data, digest_size=16).hexdigest()


def png(picture: np.ndarray) -> str:
    """A picture (H,W,C) of 8 bits as base64 of a PNG."""
    from PIL import Image

    held = io.BytesIO()
    Image.fromarray(picture[..., 0] if picture.shape[-1] == 1 else picture).save(held, "PNG")
    return base64.b64encode(held.getvalue()).decode("ascii")
