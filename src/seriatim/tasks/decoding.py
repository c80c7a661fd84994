"""Generated texts: decoding of many items in batches, the random streams of samples, the records of capabilities."""

from __future__ import annotations

import math
import zlib
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np

from ..core.device import numpy_stream
from ..data.tokenizers import Tokenizer
from ..decode.sampling import Hypothesis
from ..decode.seq2seq import Seq2Seq, TargetScores
from ..decode.settings import BeamSettings
from ..nn.inference import MAX_ELEMENTS, run_batches
from .base import Progress
from .batching import Batch
from .capability import Record
from .metrics import perplexity

MAX_ROWS = 64  # sources that are decoded together
Collate = Callable[[np.ndarray], Batch]  # from some of the items (B,) to their batch


@dataclass(frozen=True)
class Generated(Hypothesis):
    """A generated target."""

    text: str = ""


def search_items(
    decoder: Seq2Seq,
    collate: Collate,
    lengths: np.ndarray,
    options: BeamSettings,
    limits: Sequence[int],
    key: Callable[[int], str],
    prefix: Sequence[int] = (),
    forbidden: Sequence[int] = (),
    progress: Progress | None = None,
) -> list[list[Hypothesis]]:
    """Returns the `nbest` best hypotheses of each item, best first: by beam search, or sampled.

    Args:
        decoder: The networks.
        collate: Returns the batch of some of the items.
        lengths: The length of each source (items,), by which batches are made.
        options: Beam size, temperature and so on.
        limits: The largest number of tokens of each target (items,).
        key: Returns a text that identifies the source of an item: samples depend on it and the seed alone.
        prefix: Tokens that every target begins with.
        forbidden: Tokens that are never generated.
        progress: Called with the number of searches that are done, and that of all.
    """
    copies = 1 if options.beams > 1 else options.nbest
    jobs = np.repeat(np.arange(len(lengths)), copies)  # one for each beam search or sample
    streams = own_streams([key(item) for item in jobs.tolist()], options.seed) if options.beams == 1 else []
    done = 0

    def run(numbers: np.ndarray) -> list[list[Hypothesis]]:
        nonlocal done
        if progress is not None:
            progress(done, len(jobs))
        done += len(numbers)
        batch = collate(jobs[numbers]).to(decoder.device)
        own = [streams[number] for number in numbers.tolist()] if streams else []
        return decoder.search(batch, options, [limits[item] for item in jobs[numbers]], prefix, forbidden, own)

    results = run_batches(np.maximum(lengths[jobs] * options.beams, MAX_ELEMENTS // MAX_ROWS), run)
    merged = (chain(*results[first : first + copies]) for first in range(0, len(results), copies))
    return [sorted(group, key=lambda hypothesis: -hypothesis.normalized_score) for group in merged]


def score_items(decoder: Seq2Seq, collate: Collate, lengths: np.ndarray, alignment: bool = False) -> list[TargetScores]:
    """Returns the scores of the true tokens of each item.

    Args:
        decoder: The networks.
        collate: Returns the batch of some of the items.
        lengths: The length of each item (items,), by which batches are made.
        alignment: Whether to return the weights over the source.
    """

    def run(items: np.ndarray) -> list[TargetScores]:
        return decoder.score(collate(items).to(decoder.device), alignment)

    return run_batches(np.maximum(lengths, MAX_ELEMENTS // (8 * MAX_ROWS)), run)


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
