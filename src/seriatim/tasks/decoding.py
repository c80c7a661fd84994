"""Generated texts: the random streams of samples, and the records of capabilities."""

from __future__ import annotations

import math
import zlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ..core.device import numpy_stream
from ..data.tokenizers import Tokenizer
from ..decode.sampling import Hypothesis
from .capability import Record
from .metrics import perplexity


@dataclass(frozen=True)
class Generated(Hypothesis):
    """A generated target."""

    text: str = ""


def own_streams(keys: Sequence[str], seed: int) -> list[np.random.Generator]:
    """Returns a random stream per key that depends on nothing but the key, and on how often it came before."""
    before: Counter[str] = Counter()
    streams = []
    for key in keys:
        streams.append(numpy_stream(seed, "sample", zlib.crc32(key.encode()), before[key]))
        before[key] += 1
    return streams


def nbest_record(rows: Sequence[Record], nbest: int) -> Record:
    """Returns the record of an input: that of its best hypothesis or, for `nbest` > 1, lists of the values of all."""
    return rows[0] if nbest == 1 else {column: [row[column] for row in rows] for column in rows[0]}


def score_record(tokenizer: Tokenizer, ids: Sequence[int], log_probs: np.ndarray) -> Record:
    """Returns the record of the capability `score`: log-probability, tokens and perplexity of a text."""
    total, names = float(log_probs.sum()), [tokenizer.token(token) for token in ids]
    return {
        "log_probability": total,
        "tokens": len(names),
        "perplexity": math.inf if math.isinf(total) else perplexity(-total / max(len(names), 1)),
        "token_log_probabilities": list(zip(names, log_probs.tolist(), strict=True)),
    }
