"""Units that keep track of something: where in the line the text is, whether inside quotes or brackets, …

Karpathy et al., "Visualizing and understanding recurrent networks" (2015), found such units by eye; here they are found
by correlation: of every unit over a text with what a rule says of each place (`_signals`). With hundreds of units some
correlation is always there, so a unit counts only where it beats two things: chance, which is the best of as many units
against the same signal moved along the text, and the best unit of several such networks before training: a random one
carries what it has just read, too. So tried, networks without training track nothing but for a rare stroke of luck.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..core.errors import SeriatimError
from ..core.measures import plain
from . import own
from ._signals import signals
from .reading import Reading, reads_two
from .rows import aligned
from .seen import Array, Seen
from .subject import Subject
from .trace import Trace, traced

PLACE = re.compile(r"(layer|level)(\d+)\.(?:(forward|backward)\.)?(cell|hidden|activation)")
LENGTH = 4_000  # tokens of a run's own text
LEAST = 50  # tokens, without which a correlation says nothing
FRESH = (3, 24)  # networks without training: so many at least and at most, …
UNITS = 600  # … so that they have as many units together: of few units the best is a matter of luck
MARGIN = 0.1  # by which a unit has to beat the best one of them
SURE = 0.99  # share of the moved signals that a unit has to beat
NEAR = 20  # a signal is moved by a 1/NEAR of the text at least
STRIP = 300  # tokens that are written
PART = 128  # units together
SINCE = "position since the beginning"


@dataclass(frozen=True)
class Read:
    """A text in parts that the network can take: what it reads, and where each element stands in the text."""

    text: str
    readings: list[Reading]
    spans: np.ndarray  # (n,2) of all elements that stand somewhere
    kept: list[np.ndarray]  # for each part, which of its elements these are
    since: np.ndarray  # (n,) elements since the network began to read

    @property
    def names(self) -> list[str]:
        return [self.text[start:end] for start, end in self.spans.tolist()]

    def signals(self) -> dict[str, np.ndarray]:
        own_signals = signals(self.text, [(int(start), int(end)) for start, end in self.spans])
        return ({SINCE: self.since} if self.since.std() > 0 else {}) | own_signals


@dataclass(frozen=True)
class Best:
    """The unit that goes with a signal, and what it has to beat."""

    signal: str
    unit: int  # of all
    correlation: float
    chance: float
    untrained: float

    @property
    def tracked(self) -> bool:
        size = abs(self.correlation)
        return size > self.chance and size > self.untrained + MARGIN


def suits(subject: Subject) -> str:
    if why := own.lacking(subject):
        return why
    if subject.pairs:
        return "is an encoder–decoder; this is shown of one sequence"
    return "reads two texts; this is shown of one" if reads_two(subject) else ""


def look(subject: Subject, text: str | None = None, *, top: int = 3) -> Seen:
    """Over a text, or by default over the run's own validation part; the `top` units are shown over it."""
    read = parts_of(subject, own.text(subject, LENGTH) if text is None else text)
    told = read.signals()
    if len(read.spans) < LEAST or not told:
        raise SeriatimError("inspect.length", f"too few tokens: {len(read.spans)}", f"give {LEAST} or more")
    units, activity = _activity(subject.network, read)
    count = min(max(-(-UNITS // len(units)), FRESH[0]), FRESH[1])
    names = list(told)
    values = np.stack(list(told.values()))  # (S,n)
    found = correlations(activity, values)  # (S,U)
    before = np.zeros(len(names))
    for seed in range(count):
        fresh = _activity(own.untrained(subject, read.readings[0].inputs, seed), read)[1]
        before = np.maximum(before, np.abs(correlations(fresh, values)).max(axis=1))
    luck = chance(activity, values)
    best = [
        Best(name, int(np.abs(row).argmax()), float(row[np.abs(row).argmax()]), float(luck[i]), float(before[i]))
        for i, (name, row) in enumerate(zip(names, found, strict=True))
    ]
    best.sort(key=lambda one: (not one.tracked, -(abs(one.correlation) - max(one.chance, one.untrained))))
    title = f"Units that keep track of something: {subject.label}"
    table = _table(best, units)
    shown: dict[int, Best] = {}
    for one in best:
        if one.tracked:
            shown.setdefault(one.unit, one)  # each unit for what it tracks best
    strips = [_strip(one, units, activity, read.names) for one in list(shown.values())[:top]]
    arrays = {
        "correlation": Array(found, (("signal", names), ("unit", units))),
        "chance": Array(luck, (("signal", names),)),
        "untrained": Array(before, (("signal", names),)),
    }
    return Seen(title, arrays, [table, *strips], _told(table), _notes(best, len(read.spans), len(units), count))


def parts_of(subject: Subject, text: str) -> Read:
    """A text cut where the network can take no more."""
    reader = subject.reader
    text = reader.read(text)
    readings, spans, kept, since = [], [], [], []
    start = 0
    while start < len(text):
        encoded, places = reader.spans(text[start:])
        real = np.nonzero(places[:, 1] > places[:, 0])[0]
        if not len(real):
            break
        end = int(places[real, 1].max()) if encoded.cut else len(text) - start
        part = subject.read(text[start : start + end])
        places = reader.spans(text[start : start + end])[1]
        real = np.nonzero(places[:, 1] > places[:, 0])[0]
        readings.append(part)
        kept.append(real)
        spans.append(places[real] + start)
        since.append(real.astype(np.float64))
        start += end
    if not readings:
        raise SeriatimError("inspect.text", "the text has no tokens", "give one that has some")
    return Read(text, readings, np.concatenate(spans), kept, np.concatenate(since))


def _activity(network: Any, read: Read) -> tuple[list[str], np.ndarray]:
    """All units and what each did at each element (n,U)."""
    names: list[str] = []
    found = []
    for reading, kept in zip(read.readings, read.kept, strict=True):
        layers = _layers(traced(network, reading.inputs, reading.mask, wanted=("cell", "hidden", "activation"))[1])
        names = [f"{place}, unit {unit}" for place, values in layers.items() for unit in range(values.shape[1])]
        found.append(np.concatenate(list(layers.values()), axis=1)[kept])
    return names, np.concatenate(found)


def _layers(trace: Trace) -> dict[str, np.ndarray]:
    """What each layer holds (T,D): its cell where it has one, as it is read, else its state or output."""
    found: dict[str, np.ndarray] = {}
    for name, values in trace.items():
        if match := PLACE.fullmatch(name):
            place = ", ".join(part for part in (f"{match[1]} {match[2]}", match[3]) if part)
            if match[4] == "cell":
                found[place] = np.tanh(values[0].double().numpy())
            else:
                found.setdefault(place, values[0].double().numpy())
    return found


def correlations(activity: np.ndarray, told: np.ndarray) -> np.ndarray:
    """Pearson's, of signals (S,n) with units (n,U): (S,U). A unit that never changes has none: 0."""
    return _standard(told.T).T @ _standard(activity) / len(activity)


def chance(activity: np.ndarray, told: np.ndarray) -> np.ndarray:
    """For each signal (S,n) the largest correlation of any unit that moving the signal along the text gives, but for
    the rarest moves. What is moved stays as smooth as it was, so units that change slowly have no advantage."""
    length = len(activity)
    moved = np.zeros((len(told), length))
    spectra = np.fft.rfft(_standard(told.T), axis=0)  # (F,S)
    for start in range(0, activity.shape[1], PART):
        units = np.fft.rfft(_standard(activity[:, start : start + PART]), axis=0)  # (F,u)
        for index in range(len(told)):
            found = np.fft.irfft(units * spectra[:, index, None].conj(), n=length, axis=0) / length  # (n,u)
            np.maximum(moved[index], np.abs(found).max(axis=1), out=moved[index])
    near = max(length // NEAR, 1)
    far: np.ndarray = np.quantile(moved[:, near : length - near], SURE, axis=1)
    return far


def _standard(values: np.ndarray) -> np.ndarray:
    """Columns with mean 0 and deviation 1."""
    away = values - values.mean(axis=0)
    size = away.std(axis=0)
    still = size <= 1e-12 * np.abs(values).max(axis=0, initial=0)
    scaled: np.ndarray = np.where(still, 0.0, away / np.where(still, 1.0, size))
    return scaled


def _table(best: list[Best], units: list[str]) -> dict[str, Any]:
    rows = [
        [one.signal, units[one.unit], round(one.correlation, 3), round(one.untrained, 3), round(one.chance, 3),
         "yes" if one.tracked else "no"]
        for one in best
    ]  # fmt: skip
    columns = ["signal", "best unit", "correlation", "before training", "by chance", "tracked"]
    note = f"tracked: beyond chance, and at least {MARGIN} beyond the best unit before training"
    return {"kind": "table", "title": "The best unit of each signal", "columns": columns, "rows": rows, "note": note}


def _strip(one: Best, units: list[str], activity: np.ndarray, names: list[str]) -> dict[str, Any]:
    """The unit over the beginning of the text, as it differs from its mean."""
    values = activity[:, one.unit]
    values = (values - values.mean())[:STRIP]
    return {
        "kind": "strip", "title": f"{one.signal[:1].upper()}{one.signal[1:]}: {units[one.unit]}",
        "tokens": names[:STRIP], "values": values.tolist(), "diverging": True, "of": "activity",
        "note": f"activity above and below its mean; correlation {plain(one.correlation, 2)}",
    }  # fmt: skip


def _told(table: dict[str, Any]) -> list[str]:
    rows = [[one if isinstance(one, str) else plain(one) for one in row] for row in table["rows"]]
    return aligned([table["columns"], *rows], (0, 1, 5))


def _notes(best: list[Best], tokens: int, units: int, fresh: int) -> list[str]:
    tracked = sum(one.tracked for one in best)
    found = "No unit tracks any of these" if not tracked else f"{tracked} of {len(best)} are tracked"
    return [
        f"{found}: over {tokens:,} tokens, {units:,} units.",
        f"Tracked: beyond chance ({SURE:.0%} of the same signals moved along the text), and at least {MARGIN} beyond "
        f"the best unit of {fresh} such networks without training.",
    ]
