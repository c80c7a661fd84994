"""The network of a pre-training, what it says about hidden tokens and pairs, and how far that is from the truth."""

from __future__ import annotations

from typing import Any, NamedTuple

from torch import Tensor, nn
from torch.nn import functional as F

from ..core.errors import SeriatimError
from ..data.tokenizers import Tokenizer
from ..nn.backbone import Backbone, BackboneSettings
from ..nn.heads import PretrainHead
from ..nn.loss import token_loss
from ..nn.network import Network, assemble, full
from ..nn.soft import TokenScores, soft_loss
from ..nn.transformer import HeadedSettings
from ._coder import Coder
from ._task import Batch


class Scores(NamedTuple):
    masked: TokenScores | None  # of the M hidden tokens
    next: Tensor | None  # (B,2) of the pairs: the second follows the first, or is from elsewhere
    weight: Tensor  # of a pair, beside a hidden token


def tokenizer_of(coder: Coder) -> Tokenizer:
    if coder.tokenizer is None:
        raise SeriatimError("run.damaged", "the run has no tokenizer", "restore tokenizer.json")
    return coder.tokenizer


def network(model: BackboneSettings, coder: Coder, masked: bool, next: bool) -> Network:
    tokenizer = tokenizer_of(coder)
    inputs = model.token_input(tokenizer.size, tokenizer.sep)

    def head(backbone: Backbone) -> nn.Module:
        if backbone.causal:
            raise looks_back(model)
        shaped = {name: getattr(model, name) for name in ("activation", "epsilon") if hasattr(model, name)}
        shaped = shaped if isinstance(model, HeadedSettings) else {}  # a cell's activation is another matter
        return PretrainHead(backbone.width, inputs, masked, next, **shaped, spread=model.spread)

    return assemble(model, inputs, inputs.embedding_dim, coder.longest, head)


def looks_back(model: BackboneSettings) -> SeriatimError:
    return SeriatimError(
        "task.causal",
        f"{model.name} looks back only; what is hidden is to be guessed from both sides",
        "choose bert, or rnn, lstm or gru with model.bidirectional=true",
    )


def read(network: Any, batch: Batch) -> tuple[Scores, Tensor]:
    """Only hidden tokens go through the vocabulary. Their vectors (M,D), or those of pairs (B,D), come along."""
    hidden, _ = network.hidden(batch.inputs, batch.mask)
    head: PretrainHead = network.head
    vectors, masked = hidden[:, 0], None
    if head.masked is not None:
        vectors = hidden.flatten(0, 1).index_select(0, batch.targets["places"])
        masked = TokenScores(head.masked(vectors), head.masked.weight, head.masked.bias)
    pairs = None if head.next is None else full(head.next(head.pooled(hidden)))
    return Scores(masked, pairs, batch.targets["weight"]), vectors


def hard(scores: Scores, batch: Batch, smoothing: float) -> Tensor:
    """Against the truth."""
    losses = []
    if scores.masked is not None:
        losses.append(token_loss(*scores.masked, batch.targets["tokens"], smoothing))
    if scores.next is not None:
        losses.append(scores.weight * F.cross_entropy(scores.next, batch.targets["elsewhere"], reduction="sum"))
    return sum(losses[1:], losses[0])


def soft(scores: Scores, taught: Scores, temperature: float) -> Tensor:
    """Against a teacher."""
    losses = []
    if scores.masked is not None and taught.masked is not None:
        losses.append(soft_loss(scores.masked, taught.masked, temperature))
    if scores.next is not None and taught.next is not None:
        losses.append(scores.weight * soft_loss(scores.next, taught.next, temperature))
    return sum(losses[1:], losses[0])
