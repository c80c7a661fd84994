"""Conditional random fields: equal to the enumeration of all tag sequences, and to pytorch-crf if that is installed."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from seriatim.data.entities import allowed_transitions, may_follow, repair_tags
from seriatim.nn.crf import (
    Chain,
    CrfHead,
    best_path,
    divergence,
    log_likelihood,
    log_partition,
    marginals,
    path_score,
)

BIO = ("B-a", "B-b", "I-a", "O")
LENGTHS = [4, 1, 3, 0, 2]


def make_chain(tags: tuple[str, ...] = BIO, scheme: str = "bio", cut: Tensor | None = None, seed: int = 0) -> Chain:
    torch.manual_seed(seed)
    head = CrfHead(3, np.array(allowed_transitions(tags, scheme))).double()
    for parameter in head.parameters():
        parameter.data.normal_()
    return head.chain(torch.randn(len(LENGTHS), 4, len(tags), dtype=torch.float64), torch.tensor(LENGTHS), cut)


def enumerate_scores(chain: Chain, row: int) -> dict[tuple[int, ...], Tensor]:
    """Returns the score of every tag sequence of a row, by the formula."""
    emissions, lengths, start, transitions, end = chain
    start, end = (side if side.dim() == 1 else side[row] for side in (start, end))
    scores = {}
    for path in itertools.product(range(emissions.shape[2]), repeat=int(lengths[row])):
        terms = [emissions[row, t, tag] for t, tag in enumerate(path)]
        terms += [transitions[i, j] for i, j in itertools.pairwise(path)]
        terms += [start[path[0]], end[path[-1]]] if path else []
        scores[path] = torch.stack(terms).sum() if terms else torch.zeros((), dtype=torch.float64)
    return scores


CUT = torch.tensor([[True, False], [False, True], [True, True], [False, False], [False, False]])
CASES = {
    "none": (("a", "b", "c"), "none", None),
    "bio": (BIO, "bio", None),
    "windows": (BIO, "bio", CUT),
    "iobes": (("B-a", "E-a", "I-a", "O", "S-b"), "iobes", None),
}
cases = pytest.mark.parametrize("case", CASES)


@cases
def test_log_partition_likelihood_and_best_path_equal_enumeration(case: str) -> None:
    chain = make_chain(*CASES[case])
    log_z, best = log_partition(chain), best_path(chain)
    for row, length in enumerate(LENGTHS):
        scores = enumerate_scores(chain, row)
        total = torch.stack(list(scores.values())).logsumexp(0)
        torch.testing.assert_close(log_z[row], total)
        path = max(scores, key=lambda p: scores[p].item())
        assert tuple(best[row, :length].tolist()) == path
        tags = torch.full((len(LENGTHS), 4), -100)
        tags[row, :length] = torch.tensor(path)
        alone = Chain(chain.emissions[row : row + 1], chain.lengths[row : row + 1], *(
            part if part.dim() == 1 or part is chain.transitions else part[row : row + 1] for part in chain[2:]
        ))  # fmt: skip
        torch.testing.assert_close(path_score(alone, tags[row : row + 1])[0], scores[path])
        torch.testing.assert_close(log_likelihood(alone, tags[row : row + 1])[0], scores[path] - total)
        torch.testing.assert_close(log_partition(alone)[0], log_z[row])  # neighbors and padding change nothing


@cases
def test_marginals_equal_enumeration(case: str) -> None:
    chain = make_chain(*CASES[case])
    result = marginals(chain)
    for row, length in enumerate(LENGTHS):
        expected = torch.zeros(4, chain.emissions.shape[2], dtype=torch.float64)
        scores = enumerate_scores(chain, row)
        total = torch.stack(list(scores.values())).logsumexp(0)
        for path, score in scores.items():
            for t, tag in enumerate(path):
                expected[t, tag] += (score - total).exp()
        torch.testing.assert_close(result[row], expected)
        torch.testing.assert_close(result[row, :length].sum(1), torch.ones(length, dtype=torch.float64))


@cases
def test_gradients_equal_those_of_the_enumeration(case: str) -> None:
    """Those of the loss of given tags, and of tags of which some are not known."""
    tags, scheme, cut = CASES[case]
    allowed = np.array(allowed_transitions(tags, scheme))
    torch.manual_seed(1)
    head = CrfHead(3, allowed).double()
    for parameter in head.parameters():
        parameter.data.normal_()
    emissions = torch.randn(len(LENGTHS), 4, len(tags), dtype=torch.float64, requires_grad=True)
    inputs = [emissions, head.start, head.transitions, head.end]
    targets = best_path(head.chain(emissions.detach(), torch.tensor(LENGTHS), cut))
    targets[0, 1] = targets[2, 0] = -2
    weights = torch.randn(len(LENGTHS), dtype=torch.float64)

    def enumerated() -> Tensor:
        chain = head.chain(emissions, torch.tensor(LENGTHS), cut)
        rows = []
        for row, length in enumerate(LENGTHS):
            scores = enumerate_scores(chain, row)
            known = targets[row, :length].tolist()
            matches = [s for p, s in scores.items() if all(k in (-2, tag) for k, tag in zip(known, p, strict=True))]
            finite = [torch.stack([s for s in group if s > -torch.inf]) for group in (matches, list(scores.values()))]
            rows.append(finite[0].logsumexp(0) - finite[1].logsumexp(0))
        return torch.stack(rows)

    expected = enumerated()
    result = log_likelihood(head.chain(emissions, torch.tensor(LENGTHS), cut), targets)
    torch.testing.assert_close(result, expected)
    gradients = torch.autograd.grad((result * weights).sum(), inputs, materialize_grads=True)
    references = torch.autograd.grad((expected * weights).sum(), inputs, materialize_grads=True)
    for gradient, reference in zip(gradients, references, strict=True):
        torch.testing.assert_close(gradient, reference)
        assert gradient.isfinite().all()


@cases
def test_divergence_equals_enumeration(case: str) -> None:
    """Of all sequences together, and its gradient by differences."""
    chain, teacher = make_chain(*CASES[case]), make_chain(*CASES[case], seed=5).scaled(0.7)
    expected = torch.zeros((), dtype=torch.float64)
    for row in range(len(LENGTHS)):
        both = [enumerate_scores(part, row) for part in (chain, teacher)]
        ours, theirs = (torch.stack(list(scores.values())).log_softmax(0) for scores in both)
        expected += sum(p.exp() * (p - q) for p, q in zip(theirs, ours, strict=True) if p > -torch.inf)
    torch.testing.assert_close(divergence(chain, teacher), expected)
    assert divergence(chain, chain).item() == pytest.approx(0, abs=1e-9)
    emissions = chain.emissions.clone().requires_grad_()
    assert torch.autograd.gradcheck(lambda x: divergence(chain._replace(emissions=x), teacher), emissions)


def test_unknown_tags_between_which_none_is_allowed_have_no_probability() -> None:
    """Three words of an entity whose middle tag is not known: B-a must be followed by E-a, which ends it."""
    chain = make_chain(("B-a", "E-a", "O"), "iobes")._replace(lengths=torch.tensor([4, 3, 3, 2, 2]))
    known = torch.tensor([[0, -1, 1, 2], [2, -1, 2, 0], [-1, 1, -1, 0], [0, -1, 0, 0], [-1, 0, 0, 0]])
    likelihoods = log_likelihood(chain, known)
    assert likelihoods.isneginf().tolist() == [True, False, False, False, True]
    assert not likelihoods.isnan().any()


def test_long_rows_and_large_scores_stay_finite() -> None:
    """In single precision, with scores that leave one valid sequence."""
    head = CrfHead(3, np.array(allowed_transitions(BIO, "bio")))
    torch.manual_seed(0)
    emissions = (200 * torch.randn(3, 500, 4)).requires_grad_()
    chain = head.chain(emissions, torch.tensor([500, 499, 7]))
    path = best_path(chain)
    loss = -log_likelihood(chain, path)
    loss.sum().backward()
    assert loss.isfinite().all()
    assert (loss > -1e-2).all()
    for parameter in (emissions, head.start, head.transitions, head.end):
        assert parameter.grad is not None
        assert parameter.grad.isfinite().all()
    for row, length in enumerate((500, 499, 7)):
        tags = [BIO[k] for k in path[row, :length].tolist()]
        assert repair_tags(tags, "bio") == tags
    assert bool((head.transitions.grad[~torch.from_numpy(head.allowed[:-1, :-1])] == 0).all())  # type: ignore[index]


@pytest.mark.parametrize(
    ("scheme", "tags"),
    [
        ("bio", BIO),
        ("bio", ("B", "I", "O")),
        ("iobes", ("B-a", "B-b", "E-a", "E-b", "I-a", "O", "S-a")),
        ("bilou", ("B-a", "I-a", "L-a", "O", "U-a", "U-b")),
    ],
)
def test_allowed_sequences_are_the_well_formed_ones(scheme: str, tags: tuple[str, ...]) -> None:
    for length in (1, 2, 3):
        for path in itertools.product(tags, repeat=length):
            steps = itertools.pairwise((None, *path, None))
            assert all(may_follow(*step, scheme) for step in steps) == (repair_tags(path, scheme) == list(path)), path


def test_every_length_has_a_sequence() -> None:
    """Even if no tag of the training split may stand alone."""
    table = np.array(allowed_transitions(("B-a", "E-a"), "iobes"))
    assert table.tolist() == [[False, True, True], [True, False, True], [True, True, True]]
    chain = CrfHead(2, table).chain(torch.zeros(3, 3, 2), torch.tensor([1, 2, 3]))
    assert log_partition(chain).isfinite().all()
    assert np.array(allowed_transitions(("a", "b"), "none")).all()


def test_it_is_pytorch_crf() -> None:
    peer: Any = pytest.importorskip("torchcrf")
    torch.manual_seed(0)
    theirs = peer.CRF(5, batch_first=True).double()
    head = CrfHead(3, np.ones((6, 6), dtype=bool)).double()
    with torch.no_grad():
        for name in ("start", "end"):
            head.get_parameter(name).copy_(theirs.get_parameter(f"{name}_transitions"))
        head.transitions.copy_(theirs.transitions)
    lengths = torch.tensor([7, 3, 1, 6])
    mask = torch.arange(7) < lengths[:, None]
    emissions, tags = torch.randn(4, 7, 5, dtype=torch.float64, requires_grad=True), torch.randint(0, 5, (4, 7))
    chain = head.chain(emissions, lengths)
    expected = theirs(emissions, tags, mask, reduction="none")
    result = log_likelihood(chain, tags)
    torch.testing.assert_close(result, expected)
    gradients = [torch.autograd.grad(value.sum(), emissions, retain_graph=True)[0] for value in (result, expected)]
    torch.testing.assert_close(*gradients)
    decoded = theirs.decode(emissions, mask)
    assert [row[:length].tolist() for row, length in zip(best_path(chain), lengths.tolist(), strict=True)] == decoded
