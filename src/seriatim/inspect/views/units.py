"""Units that track something: the position in the line, whether the text is inside of quotes or brackets, …

Karpathy et al., "Visualizing and understanding recurrent networks" (2015), found such units by eye; here they are found
by the correlation of every unit with signals that rules compute for each character. With hundreds of units some
correlate by chance, so a unit counts only if it exceeds two things: chance, the best of as many units with the same
signal shifted along the text; and the best unit of several such networks before training, since random networks
carry what they have just read, too. Tested this way, networks without training track nothing but by rare luck.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ...core.errors import SeriatimError
from ...core.text import format_number
from ...report.charts import Table, TokenStrip, row
from ..catalog import Units
from ..result import Arrays, Drawing, NamedArray
from ..subject import InspectedInput, Subject
from ..trace import TraceName, run_traced
from . import Request, implement

OWN_TOKENS = 4_000  # of the run's own text
MIN_TOKENS = 50  # below, a correlation means nothing
MIN_NETWORKS, MAX_NETWORKS = 3, 24  # without training, for comparison …
COMPARED_UNITS = 600  # … so that they have this many units together: the best of few units is a matter of luck
MARGIN = 0.1  # lead of a unit over the best unit without training
CONFIDENCE = 0.99  # share of the shifted signals that a unit must exceed
MIN_SHIFT = 20  # a signal is shifted by at least 1/MIN_SHIFT of the text
MAX_STRIP = 300  # tokens that are drawn
UNIT_BLOCK = 128  # units whose shifted correlations are computed together
SINCE_START = "position since the start"
OPENING, CLOSING = "([{（「『【〔", ")]}）」』】〕"
QUOTES = {"“": "”", "«": "»", "„": "“", "‹": "›"}  # opening → closing; straight quotes are both
STOPS = ".!?。！？؟"


# Signals: a number for every character of a text


def since(text: str, ends: Callable[[str], bool]) -> list[float]:
    """Returns the number of characters since one that ends something."""
    counts, count = [], 0.0
    for character in text:
        counts.append(count)
        count = 0.0 if ends(character) else count + 1
    return counts


def previous_line_length(text: str) -> list[float]:
    lengths: list[float] = []
    before = 0.0
    for line in text.splitlines(keepends=True):
        lengths += [before] * len(line)
        before = float(len(line))
    return lengths


def inside_quotes(text: str) -> list[float]:
    """Returns 1 inside of quotes: straight ones open and close in turn, and an empty line closes all."""
    values, closing = [], ""
    for position, character in enumerate(text):
        if closing and text[position - 1 : position + 1] == "\n\n":
            closing = ""
        values.append(float(bool(closing)))
        if closing and character == closing:
            closing = ""
        elif not closing and (character == '"' or character in QUOTES):
            closing = QUOTES.get(character, '"')
    return values


def inside_brackets(text: str) -> list[float]:
    """Returns the number of open brackets."""
    values, depth = [], 0
    for character in text:
        values.append(float(depth))
        depth = depth + 1 if character in OPENING else max(depth - 1, 0) if character in CLOSING else depth
    return values


def word_in_capitals(text: str) -> list[float]:
    """Returns 1 in words of two or more letters that are all upper case."""
    values: list[float] = []
    for _, group in groupby(text, str.isalnum):
        word = "".join(group)
        values += [float(len(word) > 1 and word.isupper())] * len(word)
    return values


SIGNALS: dict[str, Callable[[str], list[float]]] = {
    "position in the line": lambda text: since(text, lambda character: character == "\n"),
    "position in the sentence": lambda text: since(text, lambda character: character in STOPS),
    "position in the word": lambda text: since(text, lambda character: not character.isalnum()),
    "length of the previous line": previous_line_length,
    "inside quotes": inside_quotes,
    "inside brackets": inside_brackets,
    "inside a word": lambda text: [float(character.isalnum()) for character in text],
    "upper case": lambda text: [float(character.isupper()) for character in text],
    "a word in capitals": word_in_capitals,
    "digits": lambda text: [float(character.isdigit()) for character in text],
    "punctuation": lambda text: [float(not (character.isalnum() or character.isspace())) for character in text],
}


def token_signals(text: str, spans: Sequence[tuple[int, int]]) -> dict[str, np.ndarray]:
    """Returns the signals of tokens with these spans of characters: means over their characters; constant ones are
    left out."""
    signals = {}
    for name, rule in SIGNALS.items():
        sums = np.concatenate([[0.0], np.cumsum(rule(text))])
        values = np.array([(sums[end] - sums[start]) / max(end - start, 1) for start, end in spans])
        if len(values) and values.std() > 0:
            signals[name] = values
    return signals


# Units


@dataclass(frozen=True)
class TextParts:
    """A text in parts that the network can read.

    Args:
        text: The whole text.
        readings: The parts.
        spans: The characters of all elements that are in the text (n,2).
        elements: For each part, which of its elements these are.
    """

    text: str
    readings: list[InspectedInput]
    spans: np.ndarray
    elements: list[np.ndarray]

    @property
    def names(self) -> list[str]:
        return [self.text[start:end] for start, end in self.spans.tolist()]

    def signals(self) -> dict[str, np.ndarray]:
        positions = np.concatenate([part.astype(np.float64) for part in self.elements])
        own = {SINCE_START: positions} if positions.std() > 0 else {}
        return own | token_signals(self.text, [(int(start), int(end)) for start, end in self.spans])


@dataclass(frozen=True)
class BestUnit:
    """The unit with the largest correlation with a signal, and the correlations that it must exceed."""

    signal: str
    unit: int  # among all units
    name: str
    correlation: float
    chance: float
    untrained: float

    @property
    def tracked(self) -> bool:
        size = abs(self.correlation)
        return size > self.chance and size > self.untrained + MARGIN


@dataclass(frozen=True)
class UnitFacts:
    """The best unit of each signal, and the ones that are drawn over the text."""

    best: list[BestUnit]
    drawn: list[BestUnit]


def unit_arrays(subject: Subject, request: Request[Units]) -> Arrays[UnitFacts]:
    """Returns the correlations (S,U) of units with signals, what they must exceed (S,), and the activity of the best
    units over the text (T,n)."""
    parts = split_text(subject, subject.own_text(OWN_TOKENS) if request.text is None else request.text)
    signals = parts.signals()
    if len(parts.spans) < MIN_TOKENS or not signals:
        remedy = f"pass {MIN_TOKENS} or more"
        raise SeriatimError("inspect.length", f"the text has only {len(parts.spans)} tokens", remedy)
    units, activity = unit_activity(subject.network, parts)
    names, values = list(signals), np.stack(list(signals.values()))  # (S,n)
    trained = correlations(activity, values)  # (S,U)
    networks = min(max(-(-COMPARED_UNITS // len(units)), MIN_NETWORKS), MAX_NETWORKS)
    untrained = np.zeros(len(names))
    for seed in range(networks):
        request.notify(f"network without training {seed + 1} of {networks}")
        fresh = unit_activity(subject.untrained_network(seed), parts)[1]
        untrained = np.maximum(untrained, np.abs(correlations(fresh, values)).max(axis=1))
    request.notify("correlations by chance")
    by_chance = chance_correlations(activity, values)
    best = []
    for index, (name, line) in enumerate(zip(names, trained, strict=True)):
        unit = int(np.abs(line).argmax())
        figures = (float(line[unit]), float(by_chance[index]), float(untrained[index]))
        best.append(BestUnit(name, unit, units[unit], *figures))
    best.sort(key=lambda unit: (not unit.tracked, max(unit.chance, unit.untrained) - abs(unit.correlation)))
    tracked = [unit for unit in best if unit.tracked]
    first = {unit.unit: unit for unit in reversed(tracked)}  # each unit for what it tracks best
    drawn = [unit for unit in tracked if first[unit.unit] is unit][: request.options.top]
    arrays = {
        "correlation": NamedArray(trained, {"signal": names, "unit": units}),
        "chance": NamedArray(by_chance, {"signal": names}),
        "untrained": NamedArray(untrained, {"signal": names}),
        "activity": NamedArray(
            activity[:, [unit.unit for unit in drawn]], {"token": parts.names, "unit": [unit.name for unit in drawn]}
        ),
    }
    count = f"{len(tracked)} of {len(best)} signals are tracked" if tracked else "no unit tracks any of these signals"
    notes = [
        f"{count}: over {len(parts.spans):,} tokens, {len(units):,} units",
        f"tracked: exceeds chance ({CONFIDENCE:.0%} of the same signals shifted along the text), and by {MARGIN} the "
        f"best unit of {networks} such networks without training",
    ]
    return Arrays(f"Units that track something: {subject.label}", arrays, UnitFacts(best, drawn), notes)


def unit_charts(arrays: Arrays[UnitFacts]) -> Drawing:
    """Returns the best unit of each signal, and some of them over the text."""
    tokens = list(arrays["activity"].axes["token"])
    columns = arrays["activity"].values.T
    strips = [unit_strip(unit, values, tokens) for unit, values in zip(arrays.facts.drawn, columns, strict=True)]
    return Drawing([best_table(arrays.facts.best), *strips])


implement(
    Units,
    unit_arrays,
    unit_charts,
    {
        "is an encoder–decoder; this view shows networks over one sequence": lambda subject: subject.encoder_decoder,
        "does not read single texts": lambda subject: 1 not in subject.predictor.texts_per_input,
        "does not read text": lambda subject: not subject.predictor.embedding_tables(),
    },
    network=True,
    trained=True,
)


def split_text(subject: Subject, text: str) -> TextParts:
    """Returns a text in parts that the network can read."""
    reader = subject.predictor.text_reader()
    text = reader.prepare(text)
    readings, spans, elements = [], [], []
    start = 0
    while start < len(text):
        encoded, offsets = reader.spans(text[start:])
        inside = np.flatnonzero(offsets[:, 1] > offsets[:, 0])
        if not len(inside):
            break
        end = start + int(offsets[inside, 1].max()) if encoded.truncated else len(text)
        encoded, offsets = reader.spans(text[start:end])
        inside = np.flatnonzero(offsets[:, 1] > offsets[:, 0])
        readings.append(subject.reading(encoded.encoded, 0, truncate=True))
        elements.append(inside)
        spans.append(offsets[inside] + start)
        start = end
    if not readings:
        raise SeriatimError("inspect.text", "the text has no tokens", "pass another one")
    return TextParts(text, readings, np.concatenate(spans), elements)


def input_shape(reading: InspectedInput) -> tuple[int, ...]:
    """Returns the shape of an input, by which inputs are batched; words with spellings have a shape of their own."""
    return tuple(reading.inputs.shape) if isinstance(reading.inputs, Tensor) else (id(reading),)


def unit_activity(network: Any, parts: TextParts) -> tuple[list[str], np.ndarray]:
    """Returns the names of all units, and what each output at every element of the text (n,U)."""
    names: list[str] = []
    blocks = []
    pairs = zip(parts.readings, parts.elements, strict=True)
    for _, group in groupby(pairs, lambda pair: input_shape(pair[0])):  # parts of one length together
        same = list(group)
        inputs = [reading.inputs for reading, _ in same]
        batch = torch.cat(inputs) if len(inputs) > 1 else inputs[0]
        trace = run_traced(network, batch, None, names=("cell", "hidden", "activation"))[1]
        layers: dict[str, np.ndarray] = {}
        for name, values in trace.items():  # of a layer with a cell its tanh, as it is output
            parsed = TraceName.parse(name)
            if parsed.part == "cell":
                layers[parsed.location] = np.tanh(values.double().numpy())
            elif parsed.kind:
                layers.setdefault(parsed.location, values.double().numpy())
        names = [f"{layer}, unit {unit}" for layer, values in layers.items() for unit in range(values.shape[2])]
        joined = np.concatenate(list(layers.values()), axis=2)
        blocks += [joined[row, elements] for row, (_, elements) in enumerate(same)]
    return names, np.concatenate(blocks)


def correlations(activity: np.ndarray, signals: np.ndarray) -> np.ndarray:
    """Returns Pearson's correlation (S,U) of signals (S,n) with units (n,U); 0 for constant units."""
    return standardize(signals.T).T @ standardize(activity) / len(activity)


def chance_correlations(activity: np.ndarray, signals: np.ndarray) -> np.ndarray:
    """Returns for each signal (S,n) the largest correlation of any unit (n,U) with the signal shifted along the text,
    but for the rarest shifts. A shifted signal is as smooth as before, so slow units have no advantage."""
    length = len(activity)
    largest = np.zeros((len(signals), length))
    spectra = np.fft.rfft(standardize(signals.T), axis=0)  # (F,S)
    for start in range(0, activity.shape[1], UNIT_BLOCK):
        units = np.fft.rfft(standardize(activity[:, start : start + UNIT_BLOCK]), axis=0)  # (F,u)
        for index in range(len(signals)):
            shifted = np.fft.irfft(units * spectra[:, index, None].conj(), n=length, axis=0) / length  # (n,u)
            np.maximum(largest[index], np.abs(shifted).max(axis=1), out=largest[index])
    nearest = max(length // MIN_SHIFT, 1)
    quantiles: np.ndarray = np.quantile(largest[:, nearest : length - nearest], CONFIDENCE, axis=1)
    return quantiles


def standardize(values: np.ndarray) -> np.ndarray:
    """Returns columns with mean 0 and standard deviation 1; constant columns are 0."""
    centered = values - values.mean(axis=0)
    std = centered.std(axis=0)
    constant = std <= 1e-12 * np.abs(values).max(axis=0, initial=0)
    scaled: np.ndarray = np.where(constant, 0.0, centered / np.where(constant, 1.0, std))
    return scaled


def best_table(best: list[BestUnit]) -> Table:
    rows = []
    for unit in best:
        figures = (round(value, 3) for value in (unit.correlation, unit.untrained, unit.chance))
        rows.append((unit.signal, unit.name, *figures, "yes" if unit.tracked else "no"))
    columns = ("signal", "best unit", "correlation", "before training", "by chance", "tracked")
    return Table(title="The best unit of each signal", columns=columns, rows=rows)


def unit_strip(best: BestUnit, values: np.ndarray, names: list[str]) -> TokenStrip:
    """Returns a unit (T,) over the beginning of the text, relative to its mean."""
    return TokenStrip(
        title=f"{best.signal[:1].upper()}{best.signal[1:]}: {best.name}",
        note=f"relative to its mean; correlation {format_number(best.correlation)}",
        tokens=names[:MAX_STRIP],
        values=row((values - values.mean())[:MAX_STRIP]),
        label="activity",
        diverging=True,
    )
