"""From rows to series on a regular grid: sorted, without doubles, gaps open, and cut into parts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from seriatim.core.errors import SeriatimError

from ._calendar import Frequency, infer
from ._series_table import Roles, Rows

PARTS = ("train", "valid", "test")
TOLD = 10  # series whose missing values are told one by one


@dataclass(frozen=True)
class Series:
    """One series on its grid. `spans` are the elements of each part; `ahead` are future columns behind its end."""

    name: str
    start: float  # the time of the first element
    values: np.ndarray  # (n,columns) of float64: targets, past, future; NaN where missing
    spans: dict[str, tuple[int, int]] = field(default_factory=dict)
    ahead: np.ndarray = field(default_factory=lambda: np.zeros((0, 0)))
    like: str = ""  # the series of the training part whose scaling it shares

    def __len__(self) -> int:
        return len(self.values)


@dataclass
class Piece:
    """What one file says of one series."""

    name: str
    times: np.ndarray
    values: np.ndarray
    part: str


def pieces_of(rows: Rows, roles: Roles, part: str, notes: list[str]) -> list[Piece]:
    """The rows by series, in the order of time; the same time twice is an error."""
    groups: dict[str, list[int]] = {}
    for row, name in enumerate(rows.ids):
        groups.setdefault(name, []).append(row)
    pieces, sorted_ones = [], []
    for name, members in groups.items():
        index = np.array(members)
        order = np.argsort(rows.times[index], kind="stable")
        if (order != np.arange(len(order))).any():
            sorted_ones.append(name)
        index = index[order]
        times = rows.times[index]
        if len(same := np.flatnonzero(np.diff(times) == 0)):
            early, late = sorted((int(index[same[0]]), int(index[same[0] + 1])))
            cell = rows.columns.cells[roles.time or ""][late]
            cause = (
                f'{rows.columns.places[late]}: the time "{cell}" {f"of series {name} " if name else ""}is there twice'
            )
            first = rows.columns.places[early].rpartition(", ")[2]
            remedy = "remove one of the lines" if name else "remove one, or name the column of series: data.series"
            raise SeriatimError("data.time-twice", f"{cause} (first on {first})", remedy)
        pieces.append(Piece(name, times, rows.values[index], part))
    if sorted_ones:
        what = f"{len(sorted_ones)} series" if len(groups) > 1 else "the rows"
        notes.append(f"{rows.columns.name}: {what} sorted by time")
    return pieces


def continued(earlier: Sequence[Piece], more: list[Piece]) -> list[Piece]:
    """Pieces of a further file: those that go on where a series ended keep its name, others stand alone."""
    ends = {piece.name: piece.times[-1] for piece in earlier}
    return [
        piece if piece.times[0] > ends.get(piece.name, np.inf) else replace(piece, name=f"{piece.name}\0{piece.part}")
        for piece in more
    ]


def gridded(
    pieces: list[Piece], roles: Roles, dates: bool, notes: list[str], frequency: Frequency | None = None
) -> tuple[list[Series], Frequency]:
    groups: dict[str, list[Piece]] = {}
    for piece in pieces:
        groups.setdefault(piece.name, []).append(piece)
    times = {name: np.concatenate([one.times for one in members]) for name, members in groups.items()}
    if frequency is not None and frequency.dates != dates:
        words = ("numbers", "dates")
        cause = f"the times are {words[dates]}, those that the model was trained on are {words[frequency.dates]}"
        raise SeriatimError("data.time", cause, "give times of the same kind")
    if frequency is None:
        frequency = Frequency("rows") if roles.time is None else infer(list(times.values()), dates)
        if frequency.name:
            notes.append(f"frequency: {frequency.name}")
    found, uneven = [], []
    for name, members in groups.items():
        values = np.concatenate([one.values for one in members])
        steps = frequency.steps(times[name])
        places = np.rint(steps).astype(np.int64)
        apart = np.diff(places)
        if len(apart) and ((apart < 1).any() or places[-1] + 1 > 4 * len(places) + 1000):
            uneven.append(name)
            places = np.arange(len(places))
        grid = np.full((int(places[-1]) + 1, values.shape[1]), np.nan)
        grid[places] = values
        ends = np.cumsum([len(one.times) for one in members])
        spans, begin = {}, 0
        for one, end in zip(members, ends, strict=True):
            stop = int(places[end - 1]) + 1
            spans[one.part] = (begin, stop)
            begin = stop
        base, _, part = name.partition("\0")
        shown = f"{base or 'the series'} ({part})" if part else base
        found.append(_trimmed(Series(shown, float(times[name][0]), grid, spans, like=base), roles))
    if empty := [one for one in found if not len(one)]:
        if len(empty) == len(found):
            remedy = "fill the column, or name another target"
            raise SeriatimError("data.empty", f"{title(empty[0])} has no value of the target", remedy)
        notes.append(f"{title(empty[0])} has no values: {len(empty)} such left out")
    if uneven:
        which = f"series {uneven[0]}" if uneven[0] else "the times"
        notes.append(f"{which}{f' and {len(uneven) - 1} more' if len(uneven) > 1 else ''}: not on a regular grid, ")
        notes[-1] += "rows are taken as consecutive steps"
    return [one for one in found if len(one)], frequency


def _trimmed(series: Series, roles: Roles) -> Series:
    """Rows at the end without any target are the horizon: their future columns are kept aside."""
    there = np.flatnonzero(~np.isnan(series.values[:, : len(roles.targets)]).all(axis=1))
    end = int(there[-1]) + 1 if len(there) else 0
    ahead = series.values[end:, len(roles.targets) + len(roles.past) :]
    spans = {part: (min(begin, end), min(stop, end)) for part, (begin, stop) in series.spans.items()}
    return replace(series, values=series.values[:end], spans=spans, ahead=ahead)


def split(series: list[Series], by: str, shares: Sequence[float], in_order: bool, notes: list[str]) -> list[Series]:
    told = " / ".join(f"{100 * share:g}" for share in shares)
    if by == "series":
        order = np.arange(len(series)) if in_order else np.random.default_rng(0).permutation(len(series))
        cuts = np.rint(np.cumsum(shares) * len(series)).astype(int)
        part_of = {int(row): PARTS[int(np.searchsorted(cuts, place, "right"))] for place, row in enumerate(order)}
        counts = [sum(part == name for part in part_of.values()) for name in PARTS]
        notes.append(f"split by series: {' / '.join(f'{count:,}' for count in counts)} ({told} %)")
        return [_with(one, {part_of[row]: (0, len(one))}) for row, one in enumerate(series)]
    notes.append(f"split {told} % along time")
    result = []
    for one in series:
        first, second = (round(float(len(one) * share)) for share in np.cumsum(shares)[:2])
        result.append(_with(one, {"train": (0, first), "valid": (first, second), "test": (second, len(one))}))
    return result


def _with(series: Series, spans: dict[str, tuple[int, int]]) -> Series:
    spans = {part: span for part, span in spans.items() if span[1] > span[0]}
    return replace(series, spans=spans)


def report(series: list[Series], roles: Roles, notes: list[str]) -> None:
    """How many series there are, and what is missing in which."""
    sizes = [len(one) for one in series]
    if len(series) > 1:
        lengths = f"{min(sizes):,}" if min(sizes) == max(sizes) else f"{min(sizes):,} to {max(sizes):,}"
        notes.append(f"{len(series):,} series of {lengths} steps")
    columns = len(roles.numbers)
    holes = []
    for one in series:
        empty = np.isnan(one.values)
        if empty.any():
            whole = empty.all(axis=1)
            gaps = int(np.count_nonzero(np.diff(whole.astype(int), prepend=0) == 1))
            holes.append((int(empty.sum()), gaps, one))
    holes.sort(key=lambda hole: -hole[0])
    for count, gaps, one in holes[:TOLD]:
        gap = f"{gaps:,} gap{'s' if gaps != 1 else ''}, " if gaps else ""
        values = f"{count:,} missing value{'s' if count != 1 else ''}"
        notes.append(f"{title(one)}: {gap}{values} of {len(one) * columns:,}")
    if len(holes) > TOLD:
        notes.append(f"and {len(holes) - TOLD:,} more series with missing values")


def check_future(series: list[Series], roles: Roles, frequency: Frequency) -> None:
    """A future column must be there wherever the series is, and must not be the target in disguise."""
    first = len(roles.targets) + len(roles.past)
    for at, name in enumerate(roles.future, first):
        for one in series:
            lacking = np.isnan(one.values[:, at]) & ~np.isnan(one.values).all(axis=1)
            if lacking.any():
                when = frequency.text(float(frequency.after(one.start, int(np.argmax(lacking)))))
                cause = f'{title(one)}: the future column "{name}" has no value at {when}'
                raise SeriatimError("data.future", cause, "fill it, or move the column to data.past")
        known = np.concatenate([one.values[:, at] for one in series])
        for place, target in enumerate(roles.targets):
            wanted = np.concatenate([one.values[:, place] for one in series])
            if _same(known, wanted):
                cause = f'the future column "{name}" tells the target "{target}": a future that leaks'
                raise SeriatimError("data.leak", cause, f"take {name} out of data.future")


def _same(a: np.ndarray, b: np.ndarray) -> bool:
    """Equal up to a factor and an offset."""
    both = ~np.isnan(a) & ~np.isnan(b)
    a, b = a[both], b[both]
    if len(a) < 3 or a.std() == 0 or b.std() == 0:
        return False
    return bool(abs(np.corrcoef(a, b)[0, 1]) > 1 - 1e-9)


def title(series: Series) -> str:
    return f"series {series.name}" if series.name else "the series"
