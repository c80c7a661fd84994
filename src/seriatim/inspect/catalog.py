"""The names, summaries and options of all views, without torch: the command line makes its options from them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class ViewInfo:
    """What a view shows.

    Args:
        summary: One line for help texts.
        text: Whether it takes a text.
        several: Whether it shows several models in one chart.
    """

    summary: str
    text: bool = True
    several: bool = False


@dataclass(frozen=True)
class OptionInfo:
    """An option that one or more views take."""

    type: type
    summary: str


VIEWS = {
    "attention": ViewInfo("Attention weights: all heads, or those of --layer and --head."),
    "alignment": ViewInfo("Which source words each word of a translation attends to."),
    "entropy": ViewInfo("Entropy of each attention head, from one element (0 bits) to all."),
    "gates": ViewInfo("Gates of an LSTM or GRU over a text, averaged or of one --unit."),
    "units": ViewInfo("Units that track something: position, quotes, brackets, …"),
    "activations": ViewInfo("Outputs of each layer or level, element by element."),
    "gradients": ViewInfo(
        "How far back the gradient of the last loss reaches, before and after training.", several=True
    ),
    "depth": ViewInfo("Gradients layer by layer in deep stacks, with and without skips.", text=False, several=True),
    "backpropagation": ViewInfo("Backpropagation through time on a tiny network, term by term.", text=False),
    "surprise": ViewInfo("Surprise of each token, and what was expected instead at a --position."),
    "lens": ViewInfo("What each layer of a Transformer would predict (logit lens)."),
    "backoff": ViewInfo("Which n-gram order predicted each token."),
    "neighbors": ViewInfo("Tokens whose vectors are nearest to those of the text."),
    "projection": ViewInfo("Token vectors projected on the plane."),
    "context": ViewInfo("A word in several sentences: its vector in each, beside its own embedding."),
    "positions": ViewInfo("Position embeddings, and their similarity by distance.", text=False),
    "scores": ViewInfo("Weights of every attention score over the same queries and keys.", text=False),
    "growth": ViewInfo("Time and memory over the sequence length, beside the theory.", text=False, several=True),
    "saliency": ViewInfo("Which tokens a prediction depends on: integrated gradients."),
}

OPTIONS = {
    "layer": OptionInfo(int, "Only this layer, counted from 0."),
    "head": OptionInfo(int, "Only this head, counted from 0."),
    "unit": OptionInfo(int, "Only this unit, counted from 0."),
    "position": OptionInfo(int, "At this token, counted from 0."),
    "top": OptionInfo(int, "How many of the best."),
    "target": OptionInfo(str, "The second text: a translation, or the label that is explained."),
    "part": OptionInfo(str, "Of an encoder–decoder: encoder, decoder or cross."),
    "example": OptionInfo(int, "Without a text: this sequence of the run's validation split, counted from 0."),
    "generate": OptionInfo(int, "How many tokens the model generates after the text, traced step by step."),
    "tokens": OptionInfo(bool, "By token, not by word."),
    "word": OptionInfo(str, "The word that is shown."),
    "lengths": OptionInfo(str, "Sequence lengths, as 64,128,256."),
    "budget": OptionInfo(float, "Seconds for each curve of --growth."),
    "context_length": OptionInfo(int, "Elements of the windows that gradients are followed through."),
    "layers": OptionInfo(str, "Layers of the stacks of --depth, as 20,56."),
    "width": OptionInfo(int, "Units of the tiny network of --backpropagation."),
    "steps": OptionInfo(int, "Elements that it reads."),
    "scale": OptionInfo(float, "Factor of its recurrent matrix: 0.5 vanishes, 2 may explode."),
    "seed": OptionInfo(int, "Seed of the weights of --backpropagation and --depth."),
}
