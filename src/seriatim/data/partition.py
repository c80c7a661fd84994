"""Parts of examples: drawn where the data does not say them, and what is worth telling about them.

The draw follows from the place of an example alone, so that everybody who splits the same file has the same parts.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from seriatim.core.errors import SeriatimError

from .pictures import Pictures
from .sequences import NOTHING, Examples, Sequences

NAMES = ("train", "valid", "test")
SHOWN = 10  # classes in a note
Fractions = tuple[float, float, float]


def take(examples: Examples, rows: Sequence[int] | np.ndarray) -> Examples:
    """The examples of some rows."""
    rows = np.asarray(rows, dtype=np.int64)
    chosen = rows.tolist()
    inputs, targets = examples.inputs, examples.targets
    return Examples(
        inputs.take(rows) if isinstance(inputs, Sequences | Pictures) else [inputs[row] for row in chosen],
        targets.take(rows) if isinstance(targets, Sequences) else targets and [targets[row] for row in chosen],
        [examples.places[row] for row in chosen] if len(examples.places) else (),
    )


def split(
    examples: Examples,
    said: list[str] | None,
    given: dict[str, Examples],
    fractions: Fractions,
    numeric: bool,
    notes: list[str],
) -> dict[str, Examples]:
    """As files say, else as the data says, else drawn. Where only the validation part is missing, it is drawn."""
    parts = {"train": examples, "valid": NOTHING, "test": NOTHING} | given
    if said is not None:
        of = np.array(said)
        parts = {name: take(examples, np.flatnonzero(of == name)) for name in NAMES}
    if given or said is not None:
        if not len(parts["valid"]) and fractions[1] > 0 and len(parts["train"]) > 1:
            share = fractions[1] / (fractions[0] + fractions[1])
            parts |= drawn(parts["train"], (1 - share, share, 0.0), numeric)
            notes.extend([f"no validation part is given: drew {100 * share:.3g} % of the training examples for it"])
        if not len(parts["test"]):
            notes.extend(["no test part is given, so it is empty"])
        return parts
    parts |= {"train": NOTHING} | drawn(examples, fractions, numeric)
    shares = " / ".join(f"{100 * share:g}" for share in fractions)
    if any(share > 0 and not len(parts[name]) for name, share in zip(NAMES, fractions, strict=True)):
        raise SeriatimError(
            "data.too-short",
            f"too few to split {shares} %: {len(examples):,} examples" + ("" if numeric else of_classes(examples)),
            "give more, name files for validation and test, or choose other fractions, such as 0.8, 0.2, 0",
        )
    by = ", each class alike" if examples.targets and isinstance(examples.targets[0], str) else ""
    notes.extend([f"split {shares} % at random{by}, in the same way each time"])
    return parts


def drawn(examples: Examples, fractions: Fractions, numeric: bool) -> dict[str, Examples]:
    """The parts with a share, drawn; those without are not named."""
    targets = _list(examples)
    single = targets if not numeric and targets and isinstance(targets[0], str) else None
    part = draw(single, len(examples), fractions)
    return {
        name: take(examples, np.flatnonzero(part == index)) for index, name in enumerate(NAMES) if fractions[index] > 0
    }


def draw(targets: list[Any] | None, count: int, fractions: Fractions) -> np.ndarray:
    """The part (0, 1, 2) of each of `count` examples; with labels, each label with the same shares in every part."""
    groups: dict[Any, list[int]] = {}
    for row in range(count):
        groups.setdefault(targets[row] if targets is not None else None, []).append(row)
    marks = _scattered(count)
    part = np.zeros(count, dtype=np.int64)
    owed = [0.0, 0.0]  # what rounding kept from a part so far: many small classes add up to the shares, too
    for members in groups.values():
        rows = np.array(members)
        rows = rows[np.argsort(marks[rows], kind="stable")]
        first = _rounded(len(rows) * fractions[0], 1, len(rows), owed, 0)  # at least one: it is to be learnt
        rest = len(rows) - first
        second = first + (_rounded(len(rows) * fractions[1], 0, rest, owed, 1) if fractions[2] > 0 else rest)
        part[rows[first:second]] = 1
        part[rows[second:]] = 2
    return part


def _rounded(share: float, least: int, most: int, owed: list[float], which: int) -> int:
    found = min(max(round(share + owed[which]), least), most)
    owed[which] = min(max(owed[which] + share - found, -0.5), 0.5)
    return found


def _scattered(count: int) -> np.ndarray:
    """A number for each place that looks random (the finaliser of splitmix64)."""
    mark = np.arange(1, count + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        mark = (mark ^ (mark >> np.uint64(shift))) * np.uint64(factor)
    return np.asarray(mark ^ (mark >> np.uint64(31)))


def without_empty(examples: Examples) -> tuple[Examples, np.ndarray, list[str]]:
    """Without texts of nothing but white space and sequences of length 0; the rows that are left, and what to tell.

    Of two texts one may be empty: that is told, too.
    """
    inputs = examples.inputs
    what, notes = "empty texts", []
    if isinstance(inputs, Pictures):
        return examples, np.arange(len(inputs)), []
    if isinstance(inputs, Sequences):
        what, full = "sequences of length 0", inputs.lengths > 0
    elif len(inputs) and isinstance(inputs[0], tuple):
        sides = np.array([[bool(text.strip()) for text in pair] for pair in inputs], dtype=bool)  # (n,2)
        what, full = "rows of two empty texts", sides[:, 0] | sides[:, 1]
        if (half := sides[:, 0] != sides[:, 1]).any():
            first = examples.place(int(np.argmax(half)))
            notes.append(f"{int(half.sum()):,} examples have one text of two, the other is empty (the first: {first})")
    else:
        full = np.array([bool(text.strip()) for text in inputs], dtype=bool)
    rows = np.flatnonzero(full)
    if full.all():
        return examples, rows, notes
    note = f"left out {int((~full).sum()):,} {what} (the first: {examples.place(int(np.argmin(full)))})"
    return take(examples, rows), rows, [note, *notes]


def told(parts: dict[str, Examples], numeric: bool) -> Iterator[str]:
    yield "examples: " + ", ".join(f"{len(part):,} {name}" for name, part in parts.items() if len(part))
    if not numeric and (targets := _list(parts["train"])):
        yield from _classes(targets)
    yield from _repeated(parts)


def of_classes(examples: Examples) -> str:
    return f" of {len({str(target) for target in _list(examples)}):,} classes"


def _classes(targets: Sequence[Any]) -> Iterator[str]:
    """The classes, their shares, and what the most frequent alone would reach."""
    if any(isinstance(one, tuple) for one in targets):
        counts = Counter(label for one in targets for label in one)
        mean = sum(len(one) for one in targets) / len(targets)
        yield f"{len(counts)} labels, {mean:.2g} an example on average: {_shares(counts, len(targets))}"
    else:
        counts = Counter(targets)
        best = counts.most_common(1)[0][1] / len(targets)
        shares = _shares(counts, len(targets))
        yield f"{len(counts)} classes: {shares}; the most frequent alone gives accuracy {best:.2f}"
    if rare := [label for label, number in counts.items() if number == 1]:
        names = ", ".join(rare[:SHOWN]) + (" …" if len(rare) > SHOWN else "")
        yield f"{len(rare)} of them with a single training example: {names}"


def _shares(counts: Counter[Any], total: int) -> str:
    shown = ", ".join(f"{label} ({_percent(number / total)})" for label, number in counts.most_common(SHOWN))
    return shown + (" …" if len(counts) > SHOWN else "")


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %" if share >= 0.01 else f"{100 * share:.2g} %"


def check_labels(parts: dict[str, Examples]) -> None:
    """Two classes at least in training, and no others in the other parts."""
    targets = _list(parts["train"])
    if len(set(targets)) == 1:
        only = targets[0] if isinstance(targets[0], str) else ", ".join(targets[0]) or "none"
        raise SeriatimError(
            "data.one-class",
            f'all {len(targets):,} training examples have the label "{only}"',
            "give examples of at least two classes, or name another --target",
        )
    known = {label for one in targets for label in _labels(one)}
    for name in NAMES[1:]:
        for index, target in enumerate(_list(parts[name])):
            for label in _labels(target):
                if label not in known:
                    few = ", ".join(sorted(known)[:20]) + (" …" if len(known) > 20 else "")
                    raise SeriatimError(
                        "data.label",
                        f'{parts[name].place(index)}: the label "{label}" does not occur in the training part',
                        f"correct it, or add examples of it; the labels are: {few}",
                    )


def _list(examples: Examples) -> list[Any]:
    return examples.targets if isinstance(examples.targets, list) else []


def _labels(target: Any) -> tuple[str, ...]:
    return target if isinstance(target, tuple) else (target,)


def _repeated(parts: dict[str, Examples]) -> Iterator[str]:
    """How much of a part was seen in training already."""
    seen = set(_marks(parts["train"]))
    for name in NAMES[1:]:
        if len(parts[name]) and (again := sum(mark in seen for mark in _marks(parts[name]))):
            yield f"{again:,} of {len(parts[name]):,} {name} examples have an input that is in the training part too"


def _marks(examples: Examples) -> Iterable[bytes]:
    inputs = examples.inputs
    if isinstance(inputs, Pictures):
        yield from map(inputs.mark, range(len(inputs)))
        return
    for index in range(len(inputs)):
        one = inputs[index]
        data = one.tobytes() if isinstance(one, np.ndarray) else json.dumps(one).encode()
        yield hashlib.blake2b(data, digest_size=16).digest()


def fingerprint(parts: dict[str, Examples]) -> str:
    """Of all inputs and targets."""
    found = hashlib.sha256()
    for name, part in parts.items():
        found.update(f"{name} {len(part)}\n".encode())
        for values in (part.inputs, part.targets):
            if isinstance(values, Pictures):
                found.update(b"".join(map(values.mark, range(len(values)))))
            elif isinstance(values, Sequences):
                found.update(np.ascontiguousarray(values.ends).tobytes())
                found.update(np.ascontiguousarray(values.values).tobytes())
            else:
                found.update(json.dumps(values).encode())
    return found.hexdigest()
