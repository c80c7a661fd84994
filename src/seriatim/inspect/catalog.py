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
        module: Its file in `inspect.views`.
    """

    summary: str
    module: str
    text: bool = True
    several: bool = False


@dataclass(frozen=True)
class OptionInfo:
    """An option that one or more views take."""

    type: type
    summary: str


VIEWS = {
    "attention": ViewInfo("Attention weights: all heads, or those of --layer and --head.", "attention"),
    "alignment": ViewInfo("Which source words each word of a translation attends to.", "attention"),
    "entropy": ViewInfo("Entropy of each attention head, from one element (0 bits) to all.", "attention"),
    "gates": ViewInfo("Gates of an LSTM or GRU over a text, averaged or of one --unit.", "gates"),
    "units": ViewInfo("Units that track something: position, quotes, brackets, …", "units"),
    "activations": ViewInfo("Outputs of each layer or level, element by element.", "activations"),
    "gradients": ViewInfo(
        "How far back the gradient of the last loss reaches, before and after training.", "gradients", several=True
    ),
    "depth": ViewInfo(
        "Gradients layer by layer in deep stacks, with and without skips.", "depth", text=False, several=True
    ),
    "backpropagation": ViewInfo(
        "Backpropagation through time on a tiny network, term by term.", "backpropagation", text=False
    ),
    "surprise": ViewInfo("Surprise of each token, and what was expected instead at a --position.", "surprise"),
    "lens": ViewInfo("What each layer of a Transformer would predict (logit lens).", "lens"),
    "backoff": ViewInfo("Which n-gram order predicted each token.", "backoff"),
    "neighbors": ViewInfo("Tokens whose vectors are nearest to those of the text.", "embeddings"),
    "projection": ViewInfo("Token vectors projected on the plane.", "embeddings"),
    "context": ViewInfo("A word in several sentences: its vector in each, beside its own embedding.", "embeddings"),
    "positions": ViewInfo("Position embeddings, and their similarity by distance.", "positions", text=False),
    "scores": ViewInfo("Weights of every attention score over the same queries and keys.", "positions", text=False),
    "growth": ViewInfo(
        "Time and memory over the sequence length, beside the theory.", "growth", text=False, several=True
    ),
    "saliency": ViewInfo("Which tokens a prediction depends on: integrated gradients.", "saliency"),
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
    "steps": OptionInfo(int, "Elements that it reads; or points of the integral of --saliency."),
    "scale": OptionInfo(float, "Factor of its recurrent matrix: 0.5 vanishes, 2 may explode."),
    "seed": OptionInfo(int, "Seed of the weights of --backpropagation and --depth."),
}
