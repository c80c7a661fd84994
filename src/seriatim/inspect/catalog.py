"""The views that look inside a model, by name; see `inspect.declare`."""

from typing import Annotated

from .declare import (
    ANY_TEXTS,
    ONE_TEXT,
    TEXT_OR_OWN,
    Example,
    Generate,
    Head,
    Layer,
    Layers,
    Part,
    Seed,
    Target,
    Unit,
    view,
)

VIEWS = "seriatim.inspect.views"


@view("attention", f"{VIEWS}.attention", texts=ANY_TEXTS, report=4)
class Attention:
    """Attention weights of every head, or of one layer or head.

    Of a model that describes images: where each word attends to, unless a part, layer or head is named.
    """

    layer: Layer = None
    head: Head = None
    part: Part = None
    target: Target = None
    example: Example = None
    generate: Generate = None


@view("alignment", f"{VIEWS}.attention", texts=ONE_TEXT)
class AlignmentOptions:
    """Which source words each word of a translation attends to.

    The weights of a Transformer are the mean over the heads and blocks of its decoder.
    """

    target: Target = None
    tokens: Annotated[bool, "Token by token, instead of word by word."] = False


@view("entropy", f"{VIEWS}.attention", texts=ANY_TEXTS)
class Entropy:
    """Entropy of each attention head, from one element (0 bits) to all.

    Means over the elements that attend. The largest possible entropy depends on the number of elements that may be
    attended to: in a causal model on the position.
    """

    part: Part = None
    target: Target = None
    example: Example = None
    generate: Generate = None


@view("attention_steps", f"{VIEWS}.attention_steps", texts=ANY_TEXTS)
class AttentionSteps:
    """Attention step by step: queries, keys, scores, weights and outputs of every head.

    The table follows the element at a position. Of Bahdanau's attention: the step at which that element of the target
    is predicted. An untrained Transformer shows the classic example of two words.
    """

    layer: Annotated[int, "This layer, counted from 0."] = 0
    head: Head = None
    part: Part = None
    target: Target = None
    example: Example = None
    position: Annotated[int, "The element that the table follows, counted from 0."] = 0


@view("gates", f"{VIEWS}.gates", texts=ANY_TEXTS, report=5)
class Gates:
    """Gates of an LSTM or GRU over a text, averaged over units or of one unit.

    All layers, or one; of one unit, by default of the first layer.
    """

    layer: Layer = None
    unit: Unit = None
    target: Target = None
    example: Example = None


@view("units", f"{VIEWS}.units", texts=TEXT_OR_OWN)
class Units:
    """Units that track something: position, quotes, brackets, …

    Without a text, over the run's own validation split.
    """

    top: Annotated[int, "The number of units that are drawn over the text."] = 3


@view("activations", f"{VIEWS}.layers", texts=ANY_TEXTS)
class Activations:
    """Outputs of each layer or level, element by element; or of the units of one layer."""

    layer: Layer = None
    target: Target = None
    example: Example = None


@view("gradients", f"{VIEWS}.gradients", texts=ANY_TEXTS, several=True, report=7)
class Gradients:
    """How far back the gradient of the last loss reaches, before and after training.

    Over the texts, over a run's own validation split, or over random tokens for networks that are not trained. Of
    recurrent networks also the classical comparison: untrained, all recurrent matrices with one spectral radius, with
    gates that keep and gates that are half open.
    """

    context_length: Annotated[int, "The largest number of elements that gradients are followed through."] = 128
    scale: Annotated[float, "The spectral radius of all recurrent matrices in the classical comparison."] = 0.9


@view("depth", f"{VIEWS}.depth", several=True)
class Depth:
    """Gradients layer by layer in deep stacks, with and without skips.

    The name of a model stands for fresh networks of these layers (6n+2) over random images; a run for its trained
    network and the one before training, over images of its validation split.
    """

    layers: Layers = None
    seed: Seed = 0


@view("paths", f"{VIEWS}.paths", several=True)
class PathOptions:
    """Residual networks as ensembles: path lengths, gradients by length, and deleted blocks.

    The name of a model stands for fresh networks of these layers (6n+2), with skips and without, over random images; a
    run for its trained network over images of its validation split.
    """

    layers: Layers = None
    seed: Seed = 0


@view("surprise", f"{VIEWS}.surprise", texts=TEXT_OR_OWN, report=1)
class Surprise:
    """Surprise of each token, and what was expected instead.

    Of an encoder–decoder the text is the source, and its target is rated. Without a text, a language model reads its
    own validation split.
    """

    target: Target = None
    position: Annotated[int | None, "Also the likeliest tokens at this position, counted from 0."] = None
    top: Annotated[int, "The number of likeliest tokens at the position."] = 10


@view("lens", f"{VIEWS}.layers", texts=ANY_TEXTS)
class Lens:
    """What each layer of a Transformer would predict (logit lens)."""

    target: Target = None
    example: Example = None
    position: Annotated[int | None, "Only at this element, counted from 0, with its likeliest tokens."] = None


@view("backoff", f"{VIEWS}.surprise", texts=TEXT_OR_OWN, report=2)
class Backoff:
    """Which n-gram order predicted each token.

    Without a text, of the beginning of the model's own validation split.
    """


@view("neighbors", f"{VIEWS}.embeddings", texts=TEXT_OR_OWN)
class Neighbors:
    """Tokens whose vectors are nearest to the tokens of the text, by cosine.

    Of a translator the text is looked up in the vocabulary of the source, the target in the vocabulary of the target.
    """

    top: Annotated[int, "The number of nearest tokens."] = 8
    target: Annotated[str | None, "The text that is looked up in the vocabulary of the target."] = None


@view("projection", f"{VIEWS}.embeddings", texts=TEXT_OR_OWN)
class Projection:
    """Token vectors projected on the plane of their two principal components.

    The tokens of the text, and if they are few those nearest to them; without a text, the first of the vocabulary. Of a
    translator both sides, unless only one of the texts is passed.
    """

    top: Annotated[int, "The number of tokens of the vocabulary, without a text."] = 200
    target: Annotated[str | None, "The text that is looked up in the vocabulary of the target."] = None


@view("context", f"{VIEWS}.embeddings", texts=ANY_TEXTS)
class Context:
    """A word in several sentences: its vector in each, beside its own embedding."""

    word: Annotated[str, "The word, which occurs in each of the texts."] = ""


@view("positions", f"{VIEWS}.positions")
class Positions:
    """Position embeddings, and their similarity by distance.

    Up to the context length of the model, at most 512 positions.
    """


@view("transitions", f"{VIEWS}.transitions", report=6)
class Transitions:
    """Scores of transitions between tags, of a tagger with a conditional random field (task.crf).

    From the tag of a row to the tag of a column; the first row is the start of a sentence, the last column its end.
    """


@view("saliency", f"{VIEWS}.saliency", texts=ANY_TEXTS, report=3)
class Saliency:
    """Which tokens a prediction depends on: integrated gradients.

    Of a tagger, the prediction for the word at a position.
    """

    target: Annotated[str | None, "The label or value that is explained, by default the prediction."] = None
    position: Annotated[int | None, "The word whose tag is explained, counted from 0."] = None
    steps: Annotated[int, "The first number of points of the integral, which is doubled until the sum is exact."] = 16
    example: Example = None
