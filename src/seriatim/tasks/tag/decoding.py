"""From the scores of tags to tags: word by word or by a conditional random field, calibrated for the F1 of entities.

Most words are outside of all entities. As long as a network is not sure of an entity, O has the highest score, and the
F1 is 0; the threshold that is best for F1 is lower than ½ (Lipton et al., "Optimal thresholding of classifiers to
maximize F1 measure", 2014). So the score of O is lowered by what is best on the validation split (`entity_offset`).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor, nn

from ...data.entities import TagSpans
from ...nn.crf import Chain, CrfHead, best_path, log_partition, marginals
from ...nn.inference import MAX_ELEMENTS, run_batches
from ...nn.network import as_float32
from .processor import UNSEEN, TagEncoded

OFFSETS = np.arange(-1.0, 10.01)  # that are tried, then those between the best and its neighbors


def pad_rows(values: Tensor, lengths: Tensor, fill: float) -> Tensor:
    """Returns the values of all rows after each other (N,…) as padded rows (B,T,…)."""
    mask = torch.arange(int(lengths.max()), device=lengths.device) < lengths[:, None]  # (B,T)
    rows = values.new_full((*mask.shape, *values.shape[1:]), fill)
    return rows.masked_scatter(mask.view(*mask.shape, *[1] * (values.dim() - 1)), values)


def element_chain(head: CrfHead, elements: np.ndarray, cut: Tensor, scores: Tensor) -> Chain:
    """Returns the chain of the elements at which words are tagged, of scores (B,T,tags) of a sentence."""
    emissions = as_float32(scores[:, torch.from_numpy(elements)])
    lengths = torch.full((len(scores),), len(elements), device=scores.device)
    return head.chain(emissions, lengths, cut.to(scores.device).expand(len(scores), -1))


def chain_log_odds(head: CrfHead, elements: np.ndarray, cut: Tensor, number: int, scores: Tensor, index: int) -> Tensor:
    """Returns the log-odds (B,) of a tag of the word `number`: of all sequences that have it to those that do not."""
    chain = element_chain(head, elements, cut, scores)
    tags = torch.full(chain.emissions.shape[:2], UNSEEN, device=scores.device)
    tags[:, number] = index
    forbidden = torch.zeros_like(chain.emissions[:1], dtype=torch.bool)
    forbidden[0, number, index] = True
    others = chain._replace(emissions=chain.emissions.masked_fill(forbidden, -torch.inf))
    return log_partition(chain.restricted(tags)) - log_partition(others)


def decode_words(
    head: nn.Module, encoded: TagEncoded, words: np.ndarray, scores: np.ndarray, confident: bool = True
) -> tuple[np.ndarray, np.ndarray]:
    """Returns the predicted tag of each word (n,) and its probability (n,).

    Args:
        head: The head of the network; a conditional random field decodes whole sentences.
        encoded: The sentences.
        words: Those that are tagged, all words of some sentences (n,).
        scores: The scores of their tags (n,tags).
        confident: Whether the probabilities are needed; else they are 0.
    """
    if not isinstance(head, CrfHead):
        best = scores.argmax(axis=-1)
        if not confident:
            return best, np.zeros(len(best))
        return best, torch.from_numpy(scores).softmax(dim=-1).amax(dim=-1).numpy()
    emissions = np.zeros((len(encoded.word_forms), scores.shape[1]), scores.dtype)
    emissions[words] = scores
    sentences = np.unique(np.searchsorted(encoded.ends, words, side="right"))
    bounds = np.array(encoded.bounds)[sentences]
    lengths, device = bounds[:, 1] - bounds[:, 0], head.weight.device
    tags = np.zeros(len(emissions), dtype=np.int64)
    confidence = np.zeros(len(emissions))

    def run(items: np.ndarray) -> list[None]:
        steps = np.arange(int(lengths[items].max()))
        inside = steps < lengths[items][:, None]
        index = np.where(inside, bounds[items, :1] + steps, 0)  # (B,T)
        chain = head.chain(torch.from_numpy(emissions[index]).to(device), torch.from_numpy(lengths[items]).to(device))
        path = best_path(chain)
        tags[index[inside]] = path.cpu().numpy()[inside]
        if confident:
            probabilities = marginals(chain).gather(2, path[:, :, None])[:, :, 0]
            confidence[index[inside]] = probabilities.cpu().numpy()[inside]
        return [None] * len(items)

    run_batches(lengths, run, max(MAX_ELEMENTS // scores.shape[1], 1))
    return tags[words], confidence[words]


def entity_offset(
    head: nn.Module, tags: Sequence[str], encoded: TagEncoded, words: np.ndarray, scores: np.ndarray
) -> tuple[np.ndarray, float, float]:
    """Returns what to add to the scores of all tags (tags,) for the best F1 of entities, and the F1 before and after.

    Word by word, the score of O is lowered. In a sequence that would favor long entities, whose words all avoid O, so
    that the scores of tags which begin an entity are raised instead. It is 0 unless the gain is more than two standard
    errors. Arguments as of `decode_words`.
    """
    names = list(dict.fromkeys([*tags, *(tag for sentence in encoded.references or () for tag in sentence)]))
    ids = {tag: index for index, tag in enumerate(names)}
    references = np.array([ids[tag] for sentence in encoded.references or () for tag in sentence], dtype=np.int64)
    order = np.argsort(words)
    starts = np.isin(words[order], np.concatenate([[0], encoded.ends]))
    spans = TagSpans(names)
    expected = spans.find(references[words[order]], starts)
    direction = -spans.is_outside[: len(tags)].astype(scores.dtype)
    if isinstance(head, CrfHead):
        direction = spans.begins[: len(tags)].astype(scores.dtype)

    def f1(offset: float) -> float:
        shifted = scores + scores.dtype.type(offset) * direction
        predictions, _ = decode_words(head, encoded, words, shifted, confident=False)
        found = spans.find(predictions[order], starts)
        return 2 * len(np.intersect1d(expected, found)) / max(len(expected) + len(found), 1)

    results = {float(offset): f1(offset) for offset in OFFSETS}
    best = max(results, key=lambda offset: (results[offset], -abs(offset)))
    for step in (0.5, 0.25):
        results |= {offset: f1(offset) for offset in (best - step, best + step)}
        best = max(results, key=lambda offset: (results[offset], -abs(offset)))
    variance = sum(value * (1 - value) for value in (results[0.0], results[best]))
    if results[best] - results[0.0] <= 2 * (variance / max(len(expected), 1)) ** 0.5:
        best = 0.0
    return best * direction, results[0.0], results[best]
