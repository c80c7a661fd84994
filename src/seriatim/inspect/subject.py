"""`Subject`: a trained model, or a fresh network of a named architecture, and how it reads what is inspected.

A subject knows no task and no architecture: it asks the hooks of the predictor (`tasks.predictor`), and the names that
the network records in a trace. Several threads may ask for views of one subject.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from threading import RLock
from typing import Any, Generic, NamedTuple, Self, TypeVar, overload

import numpy as np
import torch
from torch import Tensor, nn

from ..core import registry
from ..core.device import global_stream, torch_stream
from ..core.errors import SeriatimError
from ..nn.backbone import Trace
from ..nn.encoder_decoder import EncoderDecoderSettings
from ..nn.settings import ModelSettings
from ..tasks.base import AnyTask
from ..tasks.batching import Batch
from ..tasks.inspection import check_position
from ..tasks.predictor import Predictor
from ..tasks.values import Split, Splits
from .trace import MAX_BYTES, BoundedTrace, TraceName, evaluation_mode, join_traces, run_traced

FRESH_LENGTH = 512  # elements that a fresh network is built for
NOISE_LENGTH = 32  # random vectors that a fresh network reads
SPLITS = ("validation", "test", "train")  # where examples come from: the first that there is
CLASS_TOKEN = "[image]"  # the element of a Vision Transformer that stands for the whole image


T = TypeVar("T")


class once(Generic[T]):  # noqa: N801, like property
    """A property of a subject that is computed once, also if several threads ask for it."""

    def __init__(self, compute: Callable[[Any], T]) -> None:
        self.compute, self.__doc__ = compute, compute.__doc__

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    @overload
    def __get__(self, subject: None, owner: type) -> Self: ...

    @overload
    def __get__(self, subject: Subject, owner: type) -> T: ...

    def __get__(self, subject: Subject | None, owner: type) -> Self | T:
        if subject is None:
            return self
        with subject.lock:
            if self.name not in vars(subject):  # else another thread was faster
                vars(subject)[self.name] = self.compute(subject)
            value: T = vars(subject)[self.name]
        return value


class GradientHistory(NamedTuple):
    """Norms of the gradient during training, before clipping."""

    steps: np.ndarray  # (n,)
    norms: np.ndarray  # (n,)
    clip: float | None  # the norm above which gradients were clipped


@dataclass(frozen=True)
class InspectedInput:
    """One sequence as a network reads it, or two.

    Args:
        batch: One item; its inputs are inputs of the network, or vectors for the backbone of a fresh network.
        sequences: Axis → the name of each element that is read; the sequence of the encoder comes first.
        predicted: The target of a decoder at each element.
        encoded: The encoded items, of which this is one; None for a fresh network.
        item: The number of this item among them.
        texts: The texts that were passed; none for an example of the data.
        prompt_length: The number of elements before the generated ones; None if nothing was generated.
        notes: Where the sequence comes from, and how many elements are not in the vocabulary.
    """

    batch: Batch
    sequences: dict[str, list[str]]
    predicted: list[str] = field(default_factory=list)
    encoded: Any = None
    item: int = 0
    texts: tuple[str, ...] = ()
    prompt_length: int | None = None
    notes: tuple[str, ...] = ()

    @property
    def names(self) -> list[str]:
        """The names of the elements of the first sequence."""
        return next(iter(self.sequences.values()))

    @property
    def inputs(self) -> Any:
        return self.batch.inputs

    @property
    def tokens(self) -> np.ndarray | None:
        """The token ids of the first sequence (T,); None if it has no tokens."""
        tensor = self.inputs[0] if isinstance(self.inputs, tuple) else self.inputs
        is_tokens = isinstance(tensor, Tensor) and tensor.dim() == 2 and not tensor.is_floating_point()
        return tensor[0].cpu().numpy() if is_tokens else None

    def elements(self, side: str, count: int) -> list[str]:
        """Returns the names of the elements at a side of the network ("encoder", "decoder" or "")."""
        names = list(self.sequences.values())[-1 if side == "decoder" else 0]
        if len(names) == count:
            return names
        return [CLASS_TOKEN, *names] if len(names) + 1 == count else [str(position) for position in range(count)]


class Subject:
    """A model that is inspected: a trained one, or a fresh network of an architecture.

    Args:
        label: Its name in charts and errors.
        settings: The settings of the model.
        open_predictor: Returns the trained model; None for a fresh network.
        load_data: Returns the task, and the data that the model was trained on.
        load_history: Returns the gradients during training, None if they are not known.
    """

    def __init__(
        self,
        label: str,
        settings: ModelSettings,
        open_predictor: Callable[[], Predictor[Any]] | None = None,
        load_data: Callable[[], tuple[AnyTask, Splits[Any]]] | None = None,
        load_history: Callable[[], GradientHistory | None] | None = None,
    ) -> None:
        self.label, self.settings = label, settings
        self.lock = RLock()  # of what is computed once
        self.open_predictor, self.load_data, self.load_history = open_predictor, load_data, load_history

    @classmethod
    def fresh(cls, name: str) -> Subject:
        """Returns a network of an architecture with its default settings."""
        return cls(name, registry.models.load(name).Settings(name=name))

    def __repr__(self) -> str:
        return f"Subject({self.label!r})"

    # The model

    @property
    def trained(self) -> bool:
        return self.open_predictor is not None

    @property
    def gradient_free(self) -> bool:
        """Whether the model is not a network, such as an n-gram model."""
        return self.settings.gradient_free

    @once
    def predictor(self) -> Predictor[Any]:
        if self.open_predictor is None:
            raise self.unavailable("is not trained and knows no tokens", "name a run")
        with torch.inference_mode(False):  # weights made in inference mode have no gradients and no version
            return self.open_predictor()

    @once
    def data(self) -> tuple[AnyTask, Splits[Any]]:
        """The task, and the data that the model was trained on."""
        if self.load_data is None:
            raise self.unavailable("has no data", "name a run" if not self.trained else "pass a text")
        return self.load_data()

    @property
    def task(self) -> AnyTask:
        """The task of the model."""
        return self.data[0]

    @property
    def split(self) -> Split[Any]:
        """The split that examples come from."""
        splits = self.data[1]
        return next(splits[name] for name in SPLITS if name in splits)

    @property
    def examples(self) -> Any:
        """The items of the split that can be shown."""
        return self.task.shown_items(self.split.items)

    @property
    def stream(self) -> np.ndarray | None:
        """The tokens (T,) of the split if it is one running text whose next token is predicted."""
        return self.task.stream(self.split.items)

    @property
    def network(self) -> Any:
        """The whole network of a trained model."""
        if self.gradient_free:
            raise self.unavailable("is not a network", "name another run")
        return self.predictor.network

    @once
    def encoder_decoder(self) -> bool:
        """Whether it reads a source and writes a target; every architecture does in a task of pairs."""
        return self.predictor.task.encoder_decoder if self.trained else self.settings.encoder_decoder

    @once
    def backbone(self) -> Any:
        return self.network.get_submodule("backbone") if self.trained else self.fresh_backbone()

    def fresh_backbone(self, seed: int = 0) -> Any:
        """Returns the backbone before training, with the settings of the model."""
        settings: Any = self.settings
        single_length = settings.modality is not None and not settings.encoder_decoder
        with global_stream(seed, "init"):
            length = NOISE_LENGTH if single_length else FRESH_LENGTH
            return settings.build(settings.input_width(tied=True), length).eval()

    def untrained_network(self, seed: int | None = None) -> Any:
        """Returns the network of a trained model with its initial weights, or with the initial weights of a seed."""
        task = self.predictor.task
        with global_stream(task.config.seed if seed is None else seed, "init"):
            return task.network(self.settings).eval()

    @once
    def trace_names(self) -> frozenset[str]:
        """The names that the network records in a trace: they decide which views there are."""
        if self.gradient_free:
            return frozenset()
        if not self.trained:
            return frozenset(self.run(self.read())[1])
        trace: Trace = {}
        with torch.inference_mode(), evaluation_mode(self.network):
            if self.encoder_decoder:
                source = self.network.empty_source()
                start = torch.zeros(1, 1, dtype=torch.long, device=source.device)
                self.network.decode(start, self.network.encode(source, None, trace), None, trace)
            else:
                module: Any = self.network.input
                width = module.embedding_dim if isinstance(module, nn.Embedding) else module.width
                rows, columns = getattr(module, "grid", (1, 1))
                device = next(self.network.parameters()).device
                self.backbone(torch.zeros(1, rows * columns, width, device=device), None, None, trace)
        return frozenset(trace)

    def records(self, *parts: str) -> bool:
        """Returns whether the network records a part, such as "attention"."""
        return any(TraceName.parse(name).part in parts for name in self.trace_names)

    def unavailable(self, reason: str, remedy: str) -> SeriatimError:
        """Returns the error of something that the subject lacks; `reason` follows its name."""
        return SeriatimError("inspect.unavailable", f"{self.label} {reason}", remedy)

    # What it reads

    def read(self, *texts: str, target: str | None = None, example: int | None = None) -> InspectedInput:
        """Returns texts, or a sequence of the model's own data, as the network reads them.

        Args:
            texts: One input: a text, two for models of pairs, or the path of an image.
            target: The target of an encoder–decoder; by default what the model generates.
            example: The number of a sequence; without texts, by default the first.
        """
        if texts and example is not None:
            raise SeriatimError("inspect.example", "a text and --example exclude each other", "omit one of them")
        if not self.trained:
            if texts:
                raise self.unavailable("is not trained and knows no tokens", "omit the text, or name a run")
            if example is None:
                return self._read_noise()
        return self._read_texts(texts, target) if texts else self._read_example(example or 0)

    def _read_texts(self, texts: tuple[str, ...], target: str | None) -> InspectedInput:
        predictor = self.predictor
        counts = predictor.texts_per_input
        if not counts:
            remedy = "omit the text, and choose a sequence of its data: --example 0"
            raise self.unavailable("does not read text", remedy)
        if len(texts) not in counts:
            expected = " or ".join("one text" if count == 1 else "two texts" for count in counts)
            raise SeriatimError("inspect.text", f"{self.label} reads {expected}, not {len(texts)}", f"pass {expected}")
        tokenizer = next(iter(predictor.processor.tokenizers.values()), None)
        if tokenizer is None and not any(text.strip() for text in texts):
            raise SeriatimError("inspect.text", "the text is empty", "pass another one")
        encoded = predictor.encode_inputs([texts[0] if len(texts) == 1 else texts])
        if len(encoded) > 1:
            raise self.too_long()
        cut = encoded.rows is None and not self.encoder_decoder  # windows and sources are not truncated
        if tokenizer is not None and cut and len(encoded):
            tokens = sum(len(ids) for ids in tokenizer.encode_many(list(texts), strict=False))
            if encoded.lengths[0] < tokens:
                raise self.too_long()
        if self.encoder_decoder or target is not None:
            encoded = predictor.with_target(encoded, target)
        if not len(encoded) or not encoded.lengths[0]:
            raise SeriatimError("inspect.text", "the text has no tokens", "pass another one")
        return self._name_unknown(replace(self.reading(encoded, 0), texts=texts))

    def too_long(self) -> SeriatimError:
        limit = self.backbone.context_length
        most = "" if limit is None else f" the {limit} elements"
        return SeriatimError(
            "inspect.length", f"the text is longer than{most} {self.label} reads", "pass a shorter one"
        )

    def reading(self, encoded: Any, item: int, truncate: bool = False) -> InspectedInput:
        """Returns an item as the network reads it; one that is longer is an error, or truncated."""
        predictor = self.predictor
        batch = predictor.task.collate(encoded, np.array([item])).to(next(self.network.parameters()).device)
        sequences = predictor.sequences(encoded, item)
        limit = self.backbone.context_length
        if limit is not None and any(len(names) > limit for names in sequences.values()):
            if not truncate:
                raise self.too_long()
            inputs = batch.inputs
            if self.encoder_decoder:
                cut = tuple(
                    tensor[:, :limit] if isinstance(tensor, Tensor) and tensor.dim() < 4 else tensor
                    for tensor in inputs
                )
                batch = replace(batch, inputs=cut, targets=batch.targets[:, :limit])
            elif isinstance(inputs, Tensor):
                batch = replace(batch, inputs=inputs[:, :limit])
            sequences = {axis: names[:limit] for axis, names in sequences.items()}
        predicted: list[str] = []
        if self.encoder_decoder:
            axis, predicted = list(sequences.items())[-1]
            tokenizer = predictor.processor.tokenizers["tokenizer"]
            sequences[axis] = [tokenizer.token(int(batch.inputs[1][0, 0])), *predicted[:-1]]
        return InspectedInput(batch, sequences, predicted, encoded, item)

    def _name_unknown(self, reading: InspectedInput) -> InspectedInput:
        """Returns the reading with unknown tokens named as they are written, and a note on them."""
        tokens, tokenizers = reading.tokens, list(self.predictor.processor.tokenizers.values())
        unknown = tokenizers[0].unk if tokenizers else None
        if tokens is None or unknown is None or unknown not in tokens:
            return reading
        count = int((tokens == unknown).sum())
        note = (
            f"{count:,} of {len(tokens):,} elements are not in the vocabulary: read as {tokenizers[0].token(unknown)}"
        )
        names = list(reading.names)
        if len(reading.texts) == 1:
            written = self.written_elements(reading)
            names = [
                text if token == unknown and text else name
                for token, text, name in zip(tokens, written, names, strict=True)
            ]
        axis = next(iter(reading.sequences))
        return replace(reading, sequences={**reading.sequences, axis: names}, notes=(note,))

    def spans(self, reading: InspectedInput) -> tuple[str, np.ndarray] | None:
        """Returns the text as the model reads it, and the start and end of each element in it (T,2).

        White space between elements belongs to none; an element that is not in the text, such as [CLS], is empty. None
        if there is not one text whose elements are the first sequence.
        """
        if len(reading.texts) != 1:
            return None
        try:
            reader = self.predictor.text_reader()
        except SeriatimError:
            return None
        text = reader.prepare(reading.texts[0])
        spans = reader.spans(text)[1]
        return (text, spans) if len(spans) == len(reading.names) else None

    def written_elements(self, reading: InspectedInput) -> list[str]:
        """Returns the elements of the first sequence as they are written in the text; else their names."""
        if (located := self.spans(reading)) is None:
            return reading.names
        text, spans = located
        return [text[start:end] or name for (start, end), name in zip(spans.tolist(), reading.names, strict=True)]

    def _read_example(self, number: int) -> InspectedInput:
        encoded = self.examples
        check_position(number, len(encoded), "example")
        note = f"sequence {number} of the {self.split.name} split"
        return replace(self.reading(encoded, number, truncate=True), notes=(note,))

    def _read_noise(self) -> InspectedInput:
        settings: Any = self.settings
        width, generator = settings.input_width(tied=True), torch_stream(0, "noise")
        names = [str(position) for position in range(NOISE_LENGTH)]
        notes = (f"a fresh network over {NOISE_LENGTH} random vectors",)
        if not isinstance(settings, EncoderDecoderSettings):
            batch = Batch(torch.randn(1, NOISE_LENGTH, width, generator=generator), None, 1)
            return InspectedInput(batch, {"element": names}, notes=notes)
        widths = (settings.source_width(width), width)
        inputs = tuple(torch.randn(1, NOISE_LENGTH, size, generator=generator) for size in widths)
        return InspectedInput(Batch(inputs, None, 1), {"source": names, "target": names}, names, notes=notes)

    def own_text(self, tokens: int) -> str:
        """Returns the beginning of the validation split, if that is running text."""
        stream = self.stream
        if stream is None:
            raise SeriatimError("inspect.text", f"{self.label} has no running text of its own", "pass a text")
        tokenizer = self.predictor.processor.tokenizers["tokenizer"]
        return tokenizer.decode(np.asarray(stream[:tokens]).astype(np.int64))

    # What happens inside

    def run(
        self, reading: InspectedInput, names: Iterable[str] = (), max_bytes: int = MAX_BYTES
    ) -> tuple[Any, BoundedTrace]:
        """Returns the output of the network, and its trace.

        Args:
            reading: What it reads.
            names: Names, or last parts of names, to record; by default all.
            max_bytes: The largest size of the trace.
        """
        network, inputs, mask = self.network if self.trained else self.backbone, reading.inputs, reading.batch.mask
        if not self.encoder_decoder:
            return run_traced(network, inputs, mask, names=names, max_bytes=max_bytes)
        if self.trained:
            return run_traced(network, inputs[0], inputs[1], mask, names=names, max_bytes=max_bytes)

        def encode_decode(source: Tensor, target: Tensor, trace: Trace) -> Any:
            return network.decode(target, network.encode(source, None, trace), None, trace)

        return run_traced(encode_decode, *inputs, names=names, max_bytes=max_bytes)

    def generate(
        self, text: str, tokens: int, names: Iterable[str] = (), seed: int = 0
    ) -> tuple[InspectedInput, Mapping[str, Tensor]]:
        """Returns a text with up to `tokens` generated tokens, and the trace of their generation, step by step."""
        if tokens < 1:
            raise SeriatimError("inspect.generate", f"{tokens} tokens cannot be generated", "ask for 1 or more")
        generated = self.predictor.generate_input(text, tokens, seed)
        if generated is None:
            raise self.unavailable("generates no text", "omit --generate")
        encoded, prompt_length = generated
        try:
            reading = self.reading(encoded, 0)
        except SeriatimError as error:
            if error.code != "inspect.length":
                raise
            raise SeriatimError(error.code, error.cause, "pass a shorter text, or ask for fewer tokens") from None
        reading = replace(reading, texts=(text,), prompt_length=prompt_length)
        count = len(list(reading.sequences.values())[-1])
        note = f"the last {count - prompt_length} of {count} elements are generated, one at a time"
        return replace(reading, notes=(note,)), self.trace_steps(reading, names)

    @torch.inference_mode()
    def trace_steps(
        self, reading: InspectedInput, names: Iterable[str] = (), max_bytes: int = MAX_BYTES
    ) -> dict[str, Tensor]:
        """Returns the trace of a reading whose generated elements are fed one at a time, with the state carried on."""
        network, traces, state = self.network, [BoundedTrace(names, max_bytes)], None
        if self.encoder_decoder:
            memory = network.encode(reading.inputs[0], reading.batch.mask, traces[0])
            parts = reading.inputs[1].split(1, dim=1)
        else:
            count, before = reading.inputs.shape[1], reading.prompt_length or 0
            sizes = [size for size in (before, *[1] * (count - before)) if size]
            parts = reading.inputs.split(sizes, dim=1)
        for part in parts:
            traces.append(BoundedTrace(names, max_bytes, traces[-1].bytes))
            if self.encoder_decoder:
                _, state = network.decode(part, memory, state, traces[-1])
            else:
                _, state = network(part, None, state, traces[-1])
        return join_traces(traces)
