"""The views that build and measure networks of their own, by name; see `inspect.declare`."""

from collections.abc import Sequence
from typing import Annotated

from ...inspect.declare import Seed, view

VIEWS = "seriatim.lab.views"

RowLengths = Annotated[str | Sequence[int], "The lengths of the sequences of the batch, as 5,3,1."]


@view("masked_softmax", f"{VIEWS}.masked_softmax")
class MaskedSoftmax:
    """Masked softmax over rows of different lengths, beside one without a mask.

    Rows of random scores are padded to the longest; a row of length 0 has no elements. The same for every model.
    """

    lengths: RowLengths = (5, 3, 1, 0)
    seed: Seed = 0


@view("scores", f"{VIEWS}.scores")
class Scores:
    """Weights of every attention score over the same queries and keys.

    The same for every model: which score it uses is one of its settings.
    """


@view("backpropagation", f"{VIEWS}.backpropagation")
class Backpropagation:
    """Backpropagation through time on a tiny network, term by term, and what truncation drops."""

    width: Annotated[int, "The number of units of the tiny network."] = 3
    steps: Annotated[int, "The number of elements that the tiny network reads."] = 5
    outputs: Annotated[str | Sequence[int], "The outputs in its loss: all, last, last3, or steps as 2,5."] = "all"
    seed: Seed = 0
    scale: Annotated[float, "The factor of its recurrent matrix, which is orthogonal: 0.5 vanishes, 2 may explode."] = (
        0.7
    )
    weights: Annotated[
        Sequence[Sequence[float]] | None, "The rows of its recurrent matrix, instead of random ones."
    ] = None


@view("saturation", f"{VIEWS}.norms")
class Saturation:
    """Sigmoids in deep stacks: gradients shrink layer by layer; batch norm cures it.

    Untrained stacks over random examples: sigmoid with and without batch norm, tanh and relu.
    """

    layers: Annotated[str | int, "The number of layers of the stacks of sigmoids, as 20."] = 20
    seed: Seed = 0


@view("normalization", f"{VIEWS}.norms")
class Normalization:
    """Batch norm and layer norm on the same batch, also small and ragged ones.

    How much the first sequence changes with its neighbors, the size of the batch and padding. The same for every model,
    with γ = 1 and β = 0.
    """

    lengths: RowLengths = (4, 3, 2, 1)
    seed: Seed = 0


@view("growth", f"{VIEWS}.growth", several=True)
class Growth:
    """Time and memory over the sequence length, beside the theory."""

    lengths: Annotated[str | Sequence[int] | None, "The lengths that are measured, as 64,128,256."] = None
    budget: Annotated[float, "The seconds after which a curve ends."] = 20.0


@view("complexity", f"{VIEWS}.complexity", several=True)
class Complexity:
    """Operations of one layer over n, d and k, sequential operations and paths, beside the theory.

    n, d and k are varied one at a time; all other settings are the settings of the model.
    """
