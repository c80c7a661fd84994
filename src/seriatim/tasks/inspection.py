"""What `inspect` asks of a predictor: values and functions that its hooks return (see `base.Predictor`)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from torch import Tensor, nn

from ..core.errors import SeriatimError, did_you_mean
from ..data.tokenizers import Tokenizer
from ..report.charts import format_number
from .alignment import Alignment
from .batching import Batch

MAX_LISTED = 20  # names in an error


@dataclass(frozen=True)
class ScoredTokens:
    """The tokens of a text as a model rates them.

    Args:
        tokenizer: Of the tokens.
        ids: The tokens (T,).
        log_probs: The log-probability of each (T,), as the capability `score` returns it.
        distributions: Log-probabilities (n,V) of all tokens at n consecutive positions, then at the next ones.
        characters: The number of characters of the text.
        context: The tokens before the first one that is rated.
    """

    tokenizer: Tokenizer
    ids: np.ndarray
    log_probs: np.ndarray
    distributions: Iterable[Tensor]
    characters: int
    context: np.ndarray = field(default_factory=lambda: np.empty(0, np.int64))


TokenScorer = Callable[[str, str | None], ScoredTokens]  # (text, target of an encoder–decoder)


@dataclass(frozen=True)
class TokenReadout:
    """How the scores of tokens follow from the outputs of the backbone.

    Args:
        tokenizer: Of the scored tokens.
        scores: From outputs (…,D) to the scores of all tokens (…,V).
        targets: The true token at each element of a batch of one item (T,), −1 if it is not known.
        predicts_next: Whether that is the next token, not the one at the element.
    """

    tokenizer: Tokenizer
    scores: Callable[[Tensor], Tensor]
    targets: Callable[[Batch], Tensor]
    predicts_next: bool


@dataclass(frozen=True)
class ExplainedOutput:
    """A number in the output of a network, whose dependence on the input is explained.

    Args:
        name: Such as "the log-odds of positive".
        value: From the outputs for n inputs to (n,).
        prediction: What the model predicts, in a few words.
    """

    name: str
    value: Callable[[Tensor], Tensor]
    prediction: str = ""


# (encoded, item, output of the network for it (1,…), label or name, position of a word) → what is explained
Explainer = Callable[[Any, int, Tensor, str | None, int | None], ExplainedOutput]
Aligner = Callable[[str, str | None, bool], Alignment]  # (source, target, by words)


@dataclass(frozen=True)
class EmbeddingTable:
    """The vectors of all tokens at the input; `side` is source or target, "" if there is one table."""

    side: str
    tokenizer: Tokenizer
    module: nn.Embedding

    @property
    def vectors(self) -> np.ndarray:
        """The vectors (V,E)."""
        vectors: np.ndarray = self.module.weight.detach().float().cpu().numpy()
        return vectors


def log_odds(scores: Tensor, index: int) -> Tensor:
    """Returns log p / (1 − p) of one of the outputs (n,K) of a softmax, (n,)."""
    others = [output for output in range(scores.shape[1]) if output != index]
    return scores[:, index] - scores[:, others].logsumexp(dim=-1)


def explain_label(labels: Sequence[str], probabilities: Tensor, target: str | None) -> tuple[int, str]:
    """Returns the label to explain, by default the likeliest of probabilities (K,), and the prediction in words."""
    best = int(probabilities.argmax())
    index = best if target is None else find_name(labels, target, "there is no label")
    shares = [f"{labels[n]} {format_number(100 * float(probabilities[n]))} %" for n in dict.fromkeys((best, index))]
    return index, f"predicted: {', '.join(shares)}"


def find_name(names: Sequence[str], name: str, problem: str) -> int:
    """Returns the index of a name, or raises an error with candidates; `problem` completes "… "name"."."""
    if name not in names:
        listed = ", ".join(names[:MAX_LISTED]) + (" …" if len(names) > MAX_LISTED else "")
        remedy = did_you_mean(name, names) or f"choose from: {listed}"
        raise SeriatimError("inspect.target", f'{problem} "{name}"', remedy)
    return list(names).index(name)


def check_position(position: int, count: int, noun: str = "position") -> int:
    """Returns a number from 0 to count − 1, or raises an error."""
    if not 0 <= position < count:
        remedy = f"choose from 0 to {count - 1}" if count > 1 else f"omit --{noun}"
        raise SeriatimError(f"inspect.{noun.replace(' ', '-')}", f"there is no {noun} {position}", remedy)
    return position
