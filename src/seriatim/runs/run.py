"""`Run`: a run folder with its trained model, and everything one can ask of it.

    run = seriatim.load("runs/translate-transformer")
    run.translate("the red cat")                    a capability of its predictor
    run.translate(["the red cat", "a green dog"])   predictions, one record per input
    run.predict(frame)                              a DataFrame in gives a DataFrame back

The methods of a run are the capabilities that its predictor declares; `run.capabilities` lists them.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from ..core.errors import SeriatimError, did_you_mean
from ..core.files import Json, load_tensors, sha256, write_json
from ..core.run_folder import FORMAT, RunFolder, damaged
from ..data.kinds import KINDS
from ..data.source import DataInput
from ..nn.network import compare_weights, load_weights, weights_without_memory
from ..tasks import load as load_task
from ..tasks.base import AnyTask
from ..tasks.predictor import Answer, Predictor, Request
from ..tasks.processor import from_dict
from ..tasks.reading import Layout
from ..training.config import ENDS, Config, make_config

if TYPE_CHECKING:
    from ..inspect import Inspector
    from ..report.charts import Lines
    from .evaluate import Data

WEIGHTS = "model.safetensors"
RESTORE = "restore the file, or train again"


def json_digest(value: object) -> str:
    """Returns the SHA-256 of a JSON value, whatever the order of its keys."""
    return hashlib.sha256(json.dumps(value, sort_keys=True, default=str).encode()).hexdigest()


def settings_digests(settings: Json) -> dict[str, str]:
    """Returns digests of the stored settings that weights depend on, by section; the end of a training may move."""
    train = {key: value for key, value in (settings.get("train") or {}).items() if key not in ENDS}
    sections = {"task": settings["task"], "model": settings["model"], "train": train, "seed": settings.get("seed")}
    return {name: json_digest(values) for name, values in sections.items()}


def save_task(
    folder: Path, task: AnyTask, settings: Json, fingerprint: str | None = None, notes: Sequence[str] = ()
) -> None:
    """Writes the tokenizers and data.json: the processor, columns and kinds by role, and digests.

    Args:
        folder: The run folder.
        task: The task.
        settings: What config.yaml will hold.
        fingerprint: A hash of the training rows; None if the run was not trained here.
        notes: What was noted when the data was read.
    """
    processor, tokenizers = task.processor.to_dict()
    for name, tokenizer in tokenizers.items():
        tokenizer.save(folder / name)
    values = {
        "format": FORMAT,
        "processor": processor,
        "outputs": list(task.processor.outputs),
        "columns": dict(task.layout.columns),
        "kinds": {role: kind.name for role, kind in task.layout.kinds.items()},
        "fingerprint": fingerprint,
        "notes": list(notes),
        "files": {name: sha256(folder / name) for name in tokenizers},
        "settings": settings_digests(settings),
        **({} if task.layout.data_dir is None else {"data_dir": task.layout.data_dir}),
    }
    write_json(folder / "data.json", values | {"sha256": json_digest(json.loads(json.dumps(values)))})


class MissingCapabilityError(SeriatimError, AttributeError):
    """The predictor of a run does not have the capability that was called."""


class Run(RunFolder):
    """A run folder whose model can be used. Opening one builds no network; the first question does.

    Args:
        path: The run folder.
    """

    memory: Data | None = None  # the data in memory that it was trained on, in the process that trained it

    members: tuple[Run, ...] = ()  # of an ensemble

    # The model

    @cached_property
    def config(self) -> Config:
        """The validated settings of the run."""
        return make_config(self.settings, str(self.path / "config.yaml"))

    @cached_property
    def task(self) -> AnyTask:
        """The task with the processor of the run."""
        task_class = load_task(self.config.task.name)  # its module defines the class of the processor
        values = self.stored_data
        try:
            processor = from_dict(values["processor"], self.path)
            if not isinstance(processor, task_class.processor_type):
                raise TypeError(f"the processor is no {task_class.processor_type.__name__}")
            columns = {str(role): str(name) for role, name in values["columns"].items()}
            kinds = {role: KINDS[name] for role, name in values["kinds"].items()}
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise damaged(self.path / "data.json", f"{type(error).__name__}: {error}", RESTORE) from None
        folder = values.get("data_dir")
        layout = Layout(columns, kinds, folder if isinstance(folder, str) else None)
        return task_class(self.config.task_config(), processor, layout)

    @cached_property
    def stored_data(self) -> Json:
        """The content of data.json, compared with its digests and with those of config.yaml and the tokenizers."""
        file = self.path / "data.json"
        if not file.is_file():
            raise SeriatimError("run.damaged", f"{file} does not exist", RESTORE)
        values = self.read_json("data.json", {})
        digest = values.get("sha256")
        if digest is None:  # a run of an earlier version
            return values
        if digest != json_digest({key: value for key, value in values.items() if key != "sha256"}):
            raise damaged(file, "its checksum differs", RESTORE)
        for name, expected in values["files"].items():
            if (self.path / name).is_file() and sha256(self.path / name) != expected:
                raise damaged(self.path / name, "its checksum differs", RESTORE)
        changed = self.changed_settings(values)
        if changed & {"task", "model"}:
            sections = " and ".join(sorted(changed & {"task", "model"}))
            cause = f"{self.path / 'config.yaml'}: {sections} is not what the weights were trained with"
            raise SeriatimError("run.damaged", cause, "restore config.yaml; to train another model, start a new run")
        return values

    def changed_settings(self, data: Json) -> set[str]:
        """Returns the sections of config.yaml that were edited since data.json was written."""
        actual = settings_digests(self.settings)
        return {name for name, digest in data.get("settings", {}).items() if actual.get(name) != digest}

    @cached_property
    @torch.inference_mode(False)  # whose weights have no version, by which caches notice changes
    def network(self) -> Any:
        """The trained network in evaluation mode, or a gradient-free model, on the CPU."""
        file = self.path / WEIGHTS
        if not file.is_file():
            cause = f"{self.path} has no weights: {WEIGHTS} is written after the first evaluation"
            raise SeriatimError("run.untrained", cause, f"`seriatim resume {self.path}`")
        task = self.task
        try:
            tensors = load_tensors(file, finite=not self.config.model.gradient_free)
        except SeriatimError as error:
            if error.code == "checkpoint.damaged" and (self.path / "checkpoints").is_dir():
                error.remedy += f", or let `seriatim resume {self.path}` write it again from the checkpoints"
            raise
        try:
            build = partial(task.network, self.config.model)
            if (expected := weights_without_memory(build)) is not None:
                compare_weights(expected, tensors)  # before a network of any other size is built
            network = build()
            load_weights(network, tensors)
        except (KeyError, ValueError, SeriatimError) as error:
            cause = f"{file} does not fit the settings of {self.path}: {error}"
            raise SeriatimError("run.damaged", cause, "restore config.yaml and the weights of one training") from None
        return network.eval()

    @cached_property
    def predictor(self) -> Predictor[Any]:
        """The trained model with the capabilities of its task."""
        return self.task.predictor(self.network)

    @cached_property
    def int8(self) -> Run:
        """The run with its weights rounded to 8 bits: faster where weights come from memory, and nearly as accurate."""
        run = Run(self.path)
        run.predictor = self.predictor.quantize()
        run.network = run.predictor.network
        return run

    @cached_property
    def identity(self) -> str:
        """A hash of the weights: stored vectors name the model they come from by it."""
        return sha256(self.path / WEIGHTS)

    # Predictions

    def __getattr__(self, name: str) -> Callable[..., Any]:
        """Returns a capability of the predictor as a method `(inputs, **options)`; see `call`."""
        if name.startswith("_"):
            raise AttributeError(name)
        if hasattr(type(self), name):  # a property raised AttributeError: its own message, not one about capabilities
            return object.__getattribute__(self, name)
        if name not in self.capabilities:
            cause = f"{self.path}: a run of the task {self.settings['task']['name']} has no {name}"
            raise MissingCapabilityError("run.capability", cause, did_you_mean(name, self.capabilities))
        return lambda inputs=None, **options: self.call(name, inputs, **options)

    def __dir__(self) -> list[str]:
        """Returns the attributes and the capabilities, which completion in a notebook then offers."""
        return sorted({*super().__dir__(), *self.capabilities})

    def execute(self, request: Request) -> Answer:
        """Returns the answer to a request: what every way to a prediction asks."""
        return self.predictor.execute(request)

    def call(self, name: str, inputs: DataInput | None = None, **options: Any) -> Any:
        """Returns the predictions of a capability.

        Args:
            name: The capability.
            inputs: A path, a table or a list of inputs; or a single input: a text, an image array, a tuple of roles.
            options: Fields of the capability's options.

        Returns:
            `Predictions`, or a DataFrame if `inputs` is one. For a single input its record, or the main output alone
            where the capability says so (`scalar`).
        """
        return self.execute(Request(name, inputs, options)).value()

    def predict(self, inputs: DataInput, **options: Any) -> Any:
        """Returns the predictions of the first capability, its main output named "prediction"; see `call`."""
        return self.call("predict", inputs, **options)

    def ensemble(self, *others: Run) -> Run:
        """Returns this run and others as one model, which averages their probabilities; all share one vocabulary."""
        run = Run(self.path)
        run.predictor = self.predictor.ensemble([other.predictor for other in others])
        run.members = (self, *others)
        return run

    # Understanding

    @property
    def metrics(self) -> dict[str, dict[str, float | None]]:
        """The metrics by split, as computed when training ended; empty before."""
        return dict(self.results.metrics)

    def evaluate(self, data: DataInput | None = None, **options: Any) -> dict[str, float]:
        """Returns the metrics on the run's test split, or on other data; see `seriatim.evaluate`."""
        from .evaluate import evaluate_run

        return dict(evaluate_run(self, data, **options).metrics)

    @property
    def inspect(self) -> Inspector:
        """Views of the inside of the network: `run.inspect.attention("text")`; `run.inspect.available()` lists them."""
        from .inspection import open_inspector

        return open_inspector(self)

    def plot(self) -> Lines:
        """Returns the curves of the training."""
        from ..report import curves

        return curves([self])
