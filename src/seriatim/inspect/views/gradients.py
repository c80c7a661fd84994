"""How far back the gradient of the last loss reaches: ‖∂loss_T/∂x_t‖ over the distance T − t, also before training.

x_t is the vector that enters the backbone at t, which every architecture has. In a plain RNN the path from there to
the loss is a product of T − t matrices, and the gradient vanishes; an LSTM or GRU keeps what its gates leave open;
attention is one step away from everything; a convolution ends with its receptive field. Each curve is the mean over
several sequences, relative to the gradient at the last element. Beside it: how often gradients were clipped.

Before training the initialization decides: an update gate of a GRU with a bias of 0 keeps half of the state at each
step, so that a fresh GRU forgets faster than a fresh RNN with an orthogonal matrix. The classical comparison is at the
same spectral radius of all recurrent matrices (Pascanu et al., "On the difficulty of training recurrent neural
networks", 2013): there the gradient of the RNN vanishes, and gates decide with their bias how much is kept.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from ...core.device import derive, global_stream, numpy_stream
from ...core.errors import SeriatimError
from ...core.text import plural
from ...nn.network import as_float32, count_parameters, token_network
from ...nn.recurrent import Cell as RecurrentCell
from ...report.charts import Annotation, Lines, Series, Table, View, row
from ..catalog import Gradients
from ..declare import Notify
from ..result import Arrays, Drawing, NamedArray
from ..subject import GradientHistory, Subject
from ..trace import evaluation_mode
from . import Brief, Request, implement

SEQUENCES = 32
FRESH_TOKENS = 64  # distinct tokens that fresh networks read
STREAM_TOKENS = 20_000  # of the validation split that sequences are taken from
DISTANCES = (1, 10, 50, 100)  # in the table
KEEP_GATES = ("forget", "update")  # the share of the state that is kept, in an LSTM and in a GRU
KEEP_BIAS = 3.0  # of a gate that keeps: σ(3) = 0.95
SAME_RADIUS = "same radius"  # the array of the classical comparison
SMALLEST = 1e-30  # near the smallest number of single precision
MAX_PARAMETERS = 5_000_000  # above, gradients take too long for a report

Inputs = list[
    tuple[Any, Tensor | None]
]  # network inputs (n,T,…), and the tokens that follow (n,) if they are predicted


NO_NORMS = np.zeros(0)


@dataclass(frozen=True)
class Reach:
    """The norm of the gradient by distance (T,), relative to distance 0."""

    label: str
    before: bool  # of a trained model: before its training; in the classical comparison: with gates half open
    norms: np.ndarray
    sequences: int
    has_loss: bool
    suffix: str = ""  # what distinguishes it from other curves of the network

    @property
    def name(self) -> str:
        return f"{self.label}, {self.suffix}" if self.suffix else self.label

    @property
    def distance(self) -> int:
        """The largest distance with a gradient."""
        return int(np.flatnonzero(self.norms > SMALLEST).max(initial=0))

    @property
    def factor(self) -> float | None:
        """The factor per element: the slope of the logarithm of the norms, without distance 0."""
        positions = np.flatnonzero(self.norms[1:] > SMALLEST) + 1
        if len(positions) < 2:
            return None
        return float(np.exp(np.polyfit(positions, np.log(self.norms[positions]), 1)[0]))


@dataclass(frozen=True)
class GradientFacts:
    """What the charts need besides the arrays.

    Args:
        reaches: The curves without their norms.
        lengths: The number of distances of each.
        compared: The curves of the classical comparison without their norms; empty if it is not shown.
        radius: The spectral radius of the recurrent matrices in it.
        clips: For each network whose training is known, the norm above which gradients were clipped.
    """

    reaches: list[Reach]
    lengths: list[int]
    compared: list[Reach]
    radius: float
    clips: dict[str, float | None]


def gradient_arrays(subjects: list[Subject], request: Request[Gradients]) -> Arrays[GradientFacts]:
    """Returns the norms by distance (N,T), NaN beyond the sequences, and their factors (N,); the norms of the
    classical comparison; and the norm of the gradient at each step of a training."""
    length, radius = request.options.context_length, request.options.scale
    if length < 2:
        raise SeriatimError("inspect.length", f"{length} elements have no distance", "--context-length 2")
    reaches = [
        reach for subject in subjects for reach in subject_reaches(subject, request.texts, length, request.notify)
    ]
    longest = max(len(reach.norms) for reach in reaches)
    if longest < 2:
        raise SeriatimError("inspect.length", "a sequence of one element has no distance", "pass a longer one")
    values = np.full((len(reaches), longest), np.nan)
    for line, reach in zip(values, reaches, strict=True):
        line[: len(reach.norms)] = reach.norms
    names = [reach.name for reach in reaches]
    factors = np.array([np.nan if reach.factor is None else reach.factor for reach in reaches])
    arrays = {
        "gradient": NamedArray(values, {"network": names, "distance": [str(n) for n in range(longest)]}),
        "factor": NamedArray(factors, {"network": names}),
    }
    compared = []
    if len(subjects) > 1 or not subjects[0].trained:  # the report of a run shows its own curves
        compared = [reach for subject in subjects for reach in radius_reaches(subject, length, radius, request.notify)]
    if compared:
        axes = {"network": [reach.name for reach in compared], "distance": [str(n) for n in range(length)]}
        arrays[SAME_RADIUS] = NamedArray(np.stack([reach.norms for reach in compared]), axes)
    clips = {}
    for subject in subjects:
        history = None if subject.load_history is None else subject.load_history()
        if history is not None:
            steps = [str(int(step)) for step in history.steps]
            arrays[history_name(subject.label)] = NamedArray(history.norms, {"step": steps})
            clips[subject.label] = history.clip
    notes = reach_notes(reaches, all(subject.trained for subject in subjects))
    if compared and not all(subject.trained for subject in subjects):
        notes.append(
            "they are initialized as for training: orthogonal recurrent matrices, a bias of 1 for the forget gates of "
            "an LSTM and of 0 for the update gates of a GRU, which keep half of the state at each step and fade fastest"
        )
    facts = GradientFacts(
        reaches=[replace(reach, norms=NO_NORMS) for reach in reaches],
        lengths=[len(reach.norms) for reach in reaches],
        compared=[replace(reach, norms=NO_NORMS) for reach in compared],
        radius=radius,
        clips=clips,
    )
    return Arrays("How far back the gradient of the last loss reaches", arrays, facts, notes)


def history_name(label: str) -> str:
    return f"norm, {label}"


def gradient_charts(arrays: Arrays[GradientFacts]) -> Drawing:
    """Returns the curves, their figures, and how gradients were clipped."""
    facts = arrays.facts
    lines = zip(facts.reaches, arrays["gradient"].values, facts.lengths, strict=True)
    reaches = [replace(reach, norms=norms[:length]) for reach, norms, length in lines]
    compared = [
        replace(reach, norms=norms)
        for reach, norms in zip(facts.compared, arrays[SAME_RADIUS].values if facts.compared else (), strict=True)
    ]
    charts: list[View] = [reach_chart(reaches)]
    charts += [reach_chart(compared, facts.radius)] if compared else []
    charts.append(reach_table(reaches))
    charts += [reach_table(compared, facts.radius)] if compared else []
    histories = {}
    for label, clip in facts.clips.items():
        array = arrays[history_name(label)]
        histories[label] = GradientHistory(np.array(array.axes["step"], float), array.values, clip)
    if histories:
        charts += [history_chart(histories), clipping_table(histories)]
    return Drawing(charts)


implement(
    Gradients,
    gradient_arrays,
    gradient_charts,
    {
        "is an encoder–decoder; this view shows networks over one sequence": lambda subject: subject.encoder_decoder,
        "reads no sequence: it sees an image at once": lambda subject: not list(subject.backbone.parameters()),
    },
    network=True,
    brief=lambda subject: None if count_parameters(subject.network) > MAX_PARAMETERS else Brief(),
)


def subject_reaches(subject: Subject, texts: Sequence[str], length: int, notify: Notify) -> list[Reach]:
    """Returns the reach before training and, of a trained model, after it, over the same sequences."""
    notify(f"gradients of {subject.label}")
    if not subject.trained:
        settings: Any = subject.settings
        with global_stream(0, "init"):
            network = token_network(settings, FRESH_TOKENS, length).eval()
        rows = numpy_stream(0, "gradients").integers(0, FRESH_TOKENS, (SEQUENCES, length + 1))
        return [Reach(subject.label, False, mean_norms(network, next_token_inputs(rows)), len(rows), True)]
    readout = subject.predictor.token_readout()
    predicts_next = readout is not None and readout.predicts_next
    inputs = token_windows(subject, texts, length) if predicts_next else example_inputs(subject, texts, length)
    count = sum(len(tensors if isinstance(tensors, Tensor) else tensors[0]) for tensors, _ in inputs)
    networks = ((False, subject.network), (True, subject.untrained_network()))
    return [
        Reach(
            subject.label,
            before,
            mean_norms(network, inputs),
            count,
            predicts_next,
            "before training" if before else "",
        )
        for before, network in networks
    ]


def radius_reaches(subject: Subject, length: int, radius: float, notify: Notify) -> list[Reach]:
    """Returns the reach of untrained recurrent networks whose recurrent matrices have one spectral radius: with gates
    that keep, and with gates that are half open; none for other architectures."""
    notify(f"gradients of {subject.label} at a spectral radius of {radius:g}")
    settings: Any = subject.settings
    reaches = []
    rows = numpy_stream(0, "gradients").integers(0, FRESH_TOKENS, (SEQUENCES, length + 1))
    for bias in (KEEP_BIAS, 0.0):
        with global_stream(0, "init"):
            network = token_network(settings, FRESH_TOKENS, length).eval()
        cells = [module for module in network.modules() if isinstance(module, RecurrentCell)]
        gated = [cell for cell in cells if any(gate in KEEP_GATES for gate in cell.gates)]
        if not cells or (bias == 0.0 and not gated):  # without gates there is one curve
            continue
        with torch.no_grad():
            for cell in cells:
                cell.recurrent.mul_(radius)  # of orthogonal blocks, whose radius is 1
                for gate, block in zip(cell.gates, cell.input.bias.chunk(len(cell.gates)), strict=True):
                    if gate in KEEP_GATES:
                        block.fill_(bias)
        how = "" if not gated else "gates keep" if bias else "gates half open"
        norms = mean_norms(network, next_token_inputs(rows))
        reaches.append(Reach(subject.label, bias == 0.0, norms, len(rows), True, how))
    return reaches


def token_windows(subject: Subject, texts: Sequence[str], length: int) -> Inputs:
    """Returns windows of the texts, or of the validation split, and the tokens that follow them."""
    limit = subject.backbone.context_length
    tokenizer = subject.predictor.processor.tokenizers["tokenizer"]
    sources = [np.asarray(ids) for ids in tokenizer.encode_many(list(texts), strict=False)] if texts else []
    if not texts:
        stream = subject.stream
        sources = [np.empty(0) if stream is None else np.asarray(stream[:STREAM_TOKENS])]
    size = min(length if limit is None else min(length, limit), min(len(ids) for ids in sources) - 1)
    if size < 1:
        raise SeriatimError("inspect.length", "a text of one token has no next token", "pass a longer one")
    windows = []
    for ids in sources:
        starts = np.unique(np.linspace(0, len(ids) - size - 1, -(-SEQUENCES // len(sources))).round().astype(int))
        windows += [ids[start : start + size + 1] for start in starts]
    return next_token_inputs(np.stack(windows))


def next_token_inputs(rows: np.ndarray) -> Inputs:
    tokens = torch.from_numpy(rows.astype(np.int64))
    return [(tokens[:, :-1], tokens[:, -1])]


def example_inputs(subject: Subject, texts: Sequence[str], length: int) -> Inputs:
    """Returns the last elements of the texts, or of the first sequences of the model's own data."""
    if texts:
        pairs = subject.predictor.texts_per_input == (2,)
        readings = [subject.read(*texts)] if pairs else [subject.read(text) for text in texts]
    else:
        count = min(SEQUENCES, len(subject.examples))
        readings = [subject.read(example=number) for number in range(count)]
    inputs: Inputs = []
    for reading in readings:
        tensor = reading.inputs
        sequence = isinstance(tensor, Tensor) and tensor.dim() < 4  # words with spellings and images stay whole
        inputs.append((tensor[:, -length:] if sequence else tensor, None))
    return inputs


def mean_norms(network: Any, inputs: Inputs) -> np.ndarray:
    """Returns the mean norm by distance, relative to distance 0, as far back as half of the sequences go."""
    rows = [line for tensors, targets in inputs for line in gradient_norms(network, tensors, targets)]
    longest = int(np.median([len(line) for line in rows]))
    means = np.array([np.mean([line[n] for line in rows if len(line) > n]) for n in range(longest)])
    return means / means[0]


def gradient_norms(network: Any, inputs: Any, targets: Tensor | None = None) -> np.ndarray:
    """Returns ‖∂loss_T/∂x_t‖ of each sequence by distance, 0 first (n,T).

    The loss is the cross-entropy of the next token; without targets, the last output times a random direction.
    """
    device = next(network.parameters()).device
    inputs = inputs.to(device) if isinstance(inputs, Tensor) else inputs
    with evaluation_mode(network), torch.inference_mode(False), torch.enable_grad():
        vectors = network.input(inputs).detach().clone().requires_grad_()
        output: Tensor = network.backbone(vectors)[0][:, -1]  # (n,D)
        if targets is not None:
            scores = as_float32(network.head(output[:, None])[:, 0])
            loss = F.cross_entropy(scores, targets.to(device), reduction="sum")
        else:
            direction = torch.randn(output.shape, generator=torch.Generator().manual_seed(derive(0, "gradients")))
            loss = (output * direction.to(device)).sum()
        (gradient,) = torch.autograd.grad(loss, vectors)
    norms: np.ndarray = gradient.double().norm(dim=-1).flip(1).cpu().numpy()
    return norms


def reach_chart(reaches: Sequence[Reach], radius: float | None = None) -> Lines:
    """Returns the curves; with a radius, of the classical comparison."""
    before = any(reach.before for reach in reaches)
    note = "solid: after training; dashed: before it" if before else "before training, as initialized for training"
    if radius is not None:
        note = f"before training; solid: RNN, or gates that keep (bias {KEEP_BIAS:g}); dashed: gates half open (bias 0)"
    series = []
    for reach in reaches:
        positions = np.flatnonzero(reach.norms > SMALLEST)
        x, y = positions.tolist(), row(reach.norms[positions])
        series.append(Series(reach.name, x, y, dashed=reach.before, group=reach.label))
    return Lines(
        title="How far back the gradient of the last loss reaches"
        if radius is None
        else f"The same with recurrent matrices of one spectral radius, {radius:g}",
        note=note,
        x="distance T − t in elements",
        y="norm of ∂loss_T/∂x_t, relative to T",
        series=series,
        log_y=True,
        join="gradients" if radius is None else "",
    )


def reach_table(reaches: Sequence[Reach], radius: float | None = None) -> Table:
    distances = [n for n in DISTANCES if n < max(len(reach.norms) for reach in reaches)]
    rows = []
    for reach in reaches:
        values = [float(reach.norms[n]) if n < len(reach.norms) else None for n in distances]
        rows.append((reach.name, reach.factor, reach.distance, *values))
    columns = ("network", "factor per element", "reaches back", *(f"at distance {n}" for n in distances))
    title = "Reach of the gradient" if radius is None else f"The same at a spectral radius of {radius:g}"
    return Table(title=title, columns=columns, rows=rows)


def reach_notes(reaches: Sequence[Reach], all_trained: bool) -> list[str]:
    count, longest = max(reach.sequences for reach in reaches), max(len(reach.norms) for reach in reaches)
    notes = [f"mean over {plural(count, 'sequence')} of up to {longest} elements"]
    if not all_trained:
        notes.append(f"networks that are not trained read {FRESH_TOKENS} kinds of random tokens")
    if others := list(dict.fromkeys(reach.label for reach in reaches if not reach.has_loss)):
        notes.append(f"{', '.join(others)}: not of the loss but of the last output in a random direction")
    if short := [reach.name for reach in reaches if reach.distance < len(reach.norms) - 1]:
        notes.append(f"no gradient arrives from further back than the table says: {'; '.join(short)}")
    return notes


# Clipping


def history_chart(histories: dict[str, GradientHistory]) -> Lines:
    """Returns the norm of the whole gradient over the training, and the norms it was clipped at."""
    levels = sorted({history.clip for history in histories.values() if history.clip is not None})
    return Lines(
        title="Norm of the gradient during training",
        note="before clipping, at the recorded steps",
        x="step",
        y="norm",
        series=[Series(label, row(history.steps), row(history.norms)) for label, history in histories.items()],
        log_y=True,
        annotations=[Annotation(f"clipped above {level:g}", y=level) for level in levels],
    )


def clipping_table(histories: dict[str, GradientHistory]) -> Table:
    rows = []
    for label, (_, norms, clip) in histories.items():
        clipped = 0 if clip is None else int((norms > clip).sum())
        share = f"{100 * clipped / len(norms):.1f} %"
        rows.append((label, clip, len(norms), clipped, share, float(np.median(norms)), float(norms.max())))
    columns = ("network", "clipped above", "recorded steps", "clipped", "share", "median norm", "largest norm")
    return Table(title="Clipping during training", columns=columns, rows=rows)
