"""How widely each head looks: from one element alone (0 bits) to all that it can see alike.

    H = −Σ_j α_j log₂ α_j        2^H elements: as many as would be looked at alike        |i − j| steps away

Each is a mean over the elements that look. The most that a head could have depends on what there is to be seen: of a
model that looks back, on the place of the element.
"""

from __future__ import annotations

import numpy as np

from .attention import Weights, parts, read
from .seen import Array, Seen
from .subject import Subject

TOLD = 5


def suits(subject: Subject) -> str:
    return "" if parts(subject) else "has no attention between the elements of a text"


def look(
    subject: Subject,
    *texts: str,
    part: str | None = None,
    target: str | None = None,
    example: int | None = None,
    generate: int | None = None,
) -> Seen:
    reading, found = read(subject, *texts, part=part, target=target, example=example, generate=generate)
    bits, most = entropy(found.values), possible(found)
    spans = {"entropy": bits.mean(axis=-1), "elements": np.exp2(bits).mean(axis=-1)}
    if found.part != "cross":  # places of a source and of a target are not the same
        spans["distance"] = distance(found.values).mean(axis=-1)
    ends = (("layer", found.layers), ("head", found.heads))
    arrays = {name: Array(values, ends) for name, values in spans.items()}
    arrays["possible"] = Array(most, (("from", found.rows),))
    arrays["entropy by element"] = Array(bits, (*ends, ("from", found.rows)))
    where = f"{subject.label}{f', {found.part}' if found.part else ''}"
    title = f"How widely each head looks: {where}"
    names = {"rows": found.layers, "columns": found.heads, "kind": "heat"}
    high = float(most.mean())
    note = f"mean over {len(found.rows)} elements; the most there can be: {high:.2f} bits"
    views = [{**names, "title": f"{title} (bits)", "values": spans["entropy"].tolist(), "high": high, "note": note}]
    if "distance" in spans:
        away = f"How far away it looks: {where} (elements)"
        views.append({**names, "title": away, "values": spans["distance"].tolist()})
    return Seen(title, arrays, views, _told(found, spans, high), reading.notes)


def entropy(values: np.ndarray) -> np.ndarray:
    """Of weights (…,S) in bits."""
    logs = np.log2(values, out=np.zeros_like(values), where=values > 0)
    found: np.ndarray = np.maximum(-(values * logs).sum(axis=-1), 0.0)  # no −0
    return found


def possible(found: Weights) -> np.ndarray:
    """The entropy of each row if all that can be seen were looked at alike, (T,)."""
    count = len(found.columns)
    seen = np.arange(1, count + 1) if found.backwards else np.full(len(found.rows), count)
    return np.log2(seen.astype(np.float64))


def distance(values: np.ndarray) -> np.ndarray:
    """How many elements away each looks on average, (…,T)."""
    places = np.arange(values.shape[-1])
    found: np.ndarray = (values * np.abs(places[:, None] - places)).sum(axis=-1)
    return found


def _told(found: Weights, spans: dict[str, np.ndarray], high: float) -> list[str]:
    heads = [(float(spans["entropy"][i, j]), i, j) for i in range(len(found.layers)) for j in range(len(found.heads))]
    heads.sort()
    lines = [f"on average {spans['entropy'].mean():.2f} bits of {high:.2f} that are possible"]
    lines += [
        f"{layer}: {values.mean():.2f} bits" for layer, values in zip(found.layers, spans["entropy"], strict=True)
    ]
    shown = {"narrowest": heads[:TOLD], "widest": heads[::-1][:TOLD]} if len(heads) > 2 * TOLD else {"heads": heads}
    for name, some in shown.items():
        said = []
        for bits, i, j in some:
            far = f", {spans['distance'][i, j]:.1f} away" if "distance" in spans else ""
            said.append(
                f"{found.layers[i]} {found.heads[j]} ({bits:.2f} bits, {spans['elements'][i, j]:.1f} elements{far})"
            )
        lines.append(f"{name}: {'; '.join(said)}")
    return lines
