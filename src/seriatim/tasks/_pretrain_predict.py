"""A pre-trained encoder that answers: what stands at each [MASK], and whether a second text follows the first."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from ..core.errors import SeriatimError
from ..data.examples import ExampleSettings, read_inputs
from ..data.sequences import Sequences
from ..data.writing import Table
from ..nn.network import full
from ._coder import Coder
from ._examples import ELEMENTS, shown
from ._predict import short

TOP = 5  # tokens given for a gap
WRONG = 5  # inputs that an error names


class Encoder:
    """Without a head there is nothing to answer with; its vectors can be asked for."""

    questions: tuple[str, ...] = ("embed",)

    def __init__(self, network: nn.Module, coder: Coder, data: Any = None) -> None:
        self.model = network
        self.coder = coder
        self.data = data  # the settings by which a file is read


class Filler(Encoder):
    questions = ("predict", "embed")

    @property
    def pairs(self) -> bool | None:
        """None: an input is one text or two, where the model can judge two."""
        head: Any = self.model.get_submodule("head")
        return False if head.next is None else None

    def predict(self, items: Any) -> list[dict[str, Any]]:
        """For each text the likeliest tokens of each [MASK] in it, and the text with the gaps filled; for two texts (a
        pair, or with a tab between them) also how likely the second follows the first."""
        head: Any = self.model.get_submodule("head")
        inputs = [_pair(item) if head.next is not None else item for item in items]
        sequences = self.coder.encode(inputs)
        gaps = self._gaps(inputs, sequences)
        answers: list[dict[str, Any]] = [{}] * len(sequences)
        rows = np.argsort(-sequences.lengths, kind="stable")
        while len(rows):
            some = rows[: max(ELEMENTS // int(sequences.lengths[rows[0]]), 1)]
            rows = rows[len(some) :]
            for row, answer in zip(some.tolist(), self._answers(inputs, sequences, some, gaps), strict=True):
                answers[row] = answer
        return answers

    @torch.inference_mode()
    def _answers(
        self, inputs: list[Any], sequences: Sequences, rows: np.ndarray, gaps: np.ndarray
    ) -> list[dict[str, Any]]:
        network: Any = self.model.eval()
        device = next(network.parameters()).device
        block, real = sequences.padded(rows)
        mask = None if real.all() else torch.from_numpy(real).to(device)
        hidden, _ = network.hidden(torch.from_numpy(block).to(device), mask)
        places = torch.from_numpy(np.flatnonzero((block == self._mask) & real)).to(device)
        found: list[tuple[list[float], list[int]]] = []
        if network.head.masked is not None and len(places):
            scores = network.head.masked.scores(hidden.flatten(0, 1).index_select(0, places))
            likely, best = full(scores).softmax(dim=-1).topk(min(TOP, scores.shape[-1]))
            found = list(zip(likely.tolist(), best.tolist(), strict=True))
        follows = None if network.head.next is None else _follows(network.head.next(network.head.pooled(hidden)))
        waiting = iter(found)
        answers = []
        for index, row in enumerate(rows.tolist()):
            answer = self._answer(inputs[row], [next(waiting) for _ in range(gaps[row])])
            if follows is not None and not isinstance(inputs[row], str):
                answer["follows"] = short(follows[index])
            answers.append(answer)
        return answers

    def _answer(self, one: Any, found: list[tuple[list[float], list[int]]]) -> dict[str, Any]:
        names = self._tokenizer.names
        gaps = [
            [{"token": names[index], "probability": short(value)} for value, index in zip(*gap, strict=True)]
            for gap in found
        ]
        best = iter([gap[0]["token"].removeprefix("##") for gap in gaps])
        texts = []
        for text in (one,) if isinstance(one, str) else one:
            first, *others = text.split(self._name)
            texts.append(first + "".join(next(best) + other for other in others) if gaps else text)
        return {"text": texts[0] if isinstance(one, str) else texts, "gaps": gaps}

    @property
    def _tokenizer(self) -> Any:
        return self.coder.tokenizer

    @property
    def _mask(self) -> int:
        return -1 if self._tokenizer.mask is None else int(self._tokenizer.mask)

    @property
    def _name(self) -> str:
        """What is written where something is hidden."""
        return "[MASK]" if self._mask < 0 else str(self._tokenizer.names[self._mask])

    def _gaps(self, inputs: list[Any], sequences: Sequences) -> np.ndarray:
        """How many there are in each input; all inputs that cannot be answered are told at once."""
        head: Any = self.model.get_submodule("head")
        read = np.array([int((sequences[row] == self._mask).sum()) for row in range(len(inputs))], dtype=np.int64)
        wrong = []
        for index, one in enumerate(inputs):
            single = isinstance(one, str)
            there = sum(text.count(self._name) for text in ((one,) if single else one))
            if head.masked is None and single:
                wrong.append(f"input {index + 1} is one text, and the model judges two: {shown(one, 60)}")
            elif not there and (single or head.next is None):
                wrong.append(f"input {index + 1} has no {self._name}: {shown(one, 60)}")
            elif head.masked is not None and there > read[index]:
                wrong.append(f"input {index + 1} has a {self._name} behind the {self.coder.limit} tokens that are read")
        if wrong:
            more = [f"and {len(wrong) - WRONG:,} more"] if len(wrong) > WRONG else []
            remedy = f'write {self._name} where a token is to be guessed, as in "The capital of {self._name} is Paris."'
            both = 'give two texts: ("They met.", "Then they left.")'
            cause = "\n    ".join([*wrong[:WRONG], *more])
            raise SeriatimError("predict.input", cause, remedy if head.masked is not None else both)
        return read if head.masked is not None else np.zeros_like(read)

    def table(self, answers: list[dict[str, Any]]) -> Table:
        pairs = any("follows" in answer for answer in answers)
        rows = []
        for answer in answers:
            text = answer["text"] if isinstance(answer["text"], str) else " ⇥ ".join(answer["text"])
            gaps = [", ".join(f"{one['token']} {one['probability']:.3f}" for one in gap) for gap in answer["gaps"]]
            rows.append([text, " | ".join(gaps), *([answer.get("follows")] if pairs else [])])
        return Table(["text", "gaps", *(["follows"] if pairs else [])], rows)

    def predict_file(self, source: str, data_dir: str | None = None) -> Table:
        """A row for each row of the file."""
        settings = ExampleSettings(source=source, column=self.data.column, encoding=self.data.encoding, kind="text")
        found = read_inputs(source, settings, data_dir, False)
        return self.table(self.predict(list(found.inputs)))  # type: ignore[arg-type]


def _pair(one: Any) -> Any:
    return tuple(one.split("\t")) if isinstance(one, str) and one.count("\t") == 1 else one


def _follows(scores: Tensor) -> list[float]:
    found: list[float] = full(scores).softmax(dim=-1)[:, 0].tolist()
    return found
