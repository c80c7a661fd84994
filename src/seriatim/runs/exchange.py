"""Import and export of runs: a folder of `transformers` or an ARPA file becomes a run, and a run becomes one of them.

An imported run predicts, is evaluated, started from and exported like any other; it only has no history of training.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from .. import report
from .._version import __version__
from ..core.errors import SeriatimError, did_you_mean
from ..core.files import save_tensors, write_json
from ..core.run_folder import FORMAT, fresh_folder, locked_folder
from ..core.run_summary import DataSummary, RunSummary
from ..data.tokenizers import Tokenizer
from ..hub.mapping import HubHead, ModelMapping
from ..hub.mappings import MAPPINGS
from ..hub.reading import HubImage, HubModel, locate_model, read_model
from ..hub.sentence import SentenceModules
from ..hub.writing import find_head, write_model
from ..models.ngram import NGram
from ..nn.network import count_parameters, weights
from ..tasks import load_all
from ..tasks.base import AnyTask
from ..tasks.language.task import LanguageTask, read_arpa
from ..tasks.processor import Processor
from ..tasks.reading import Layout
from ..training.config import Config, make_config
from .capabilities import predictor_capabilities
from .run import WEIGHTS, Run, save_task
from .session import check_unused

Notify = Callable[[str], None]
FORMATS = ("transformers", "sentence-transformers", "arpa")
UNBOUNDED_LENGTH = 512  # tokens of a sequence, for an imported model without a limit


def import_model(source: str | Path, out: str | Path | None = None, notify: Notify | None = None) -> Run:
    """Returns a run with a model of another program.

    Args:
        source: A folder of `transformers`, a name on the hub, or an ARPA file.
        out: The run folder; by default a new one in runs/.
        notify: Called with notes.
    """
    note: Notify = notify or (lambda text: None)
    if (Path(source) / "config.yaml").is_file():
        raise SeriatimError("hub.run", f"{source} is the folder of a run already", "use it as it is")
    if Path(source).is_file():
        return _import_arpa(Path(source), out, note)
    model = read_model(locate_model(str(source)))
    if model.sentence is not None and (problems := _sentence_problems(model)):
        lines = "\n".join(f"  - {problem}" for problem in problems)
        remedy = "fine-tune from it (--from), which needs the encoder only, or use another model"
        raise SeriatimError("hub.unfit", f"{source} cannot be used:\n{lines}", remedy)
    for text in model.notes:
        note(text)
    if not model.tokenizers and model.image is None:
        cause = f"{model.path} has no tokenizer"
        remedy = "add its tokenizer.json (`save_pretrained` of the tokenizer in transformers writes it), vocab.txt, or"
        raise SeriatimError("hub.tokenizer", cause, f"{remedy} vocab.json and merges.txt")
    task_class = next(task for task in load_all().values() if task.hub_head == model.head.kind)
    settings = {"name": task_class.name, **model.head.task_settings, **task_class.hub_settings(model.config)}
    config = make_config({"task": settings, "data": {"source": str(source)}, "model": model.settings})
    hub_config = model.config if model.image is None else model.config | {"image": vars(model.image)}
    max_length = config.model.traits.context_length or UNBOUNDED_LENGTH
    if model.sentence is not None:
        max_length = min(max_length, model.sentence.max_length or max_length)
        length = "of length 1" if model.sentence.normalize else "not normalized"
        note(f"sentence-transformers: pooling {model.sentence.pooling}, vectors {length}, texts of {max_length} tokens")
    hub_config = hub_config | {"sentence_embedding": {} if model.sentence is None else model.sentence.settings}
    processor = task_class.processor_type.from_pretrained(model.tokenizers, max_length, model.labels, hub_config)
    folder = fresh_folder("runs", model.path.resolve().name) if out is None else Path(out)
    tensors = model.tensors | model.new_tensors | _neutral_scale(model)
    run = _write_run(folder, task_class, config, processor, tensors, str(source))
    size = f"{run.results.parameters:,} parameters"
    note(f"{model.head.architecture}: {config.model.name} of {size}, task {task_class.name}")
    return run


def _import_arpa(file: Path, out: str | Path | None, note: Notify) -> Run:
    model, processor = read_arpa(file)
    settings = {"name": "ngram", "order": model.settings.order, "smoothing": model.settings.smoothing}
    config = make_config({"task": LanguageTask.name, "data": {"source": str(file)}, "model": settings})
    folder = fresh_folder("runs", file.stem) if out is None else Path(out)
    run = _write_run(folder, LanguageTask, config, processor, weights(model), str(file))
    note(f"{file}: an n-gram model of order {model.settings.order} with {processor.tokenizer.vocab_size:,} tokens")
    return run


def _write_run(
    folder: Path,
    task_class: type[Any],
    config: Config,
    processor: Processor[Any],
    tensors: Mapping[str, Tensor],
    source: str,
) -> Run:
    """Writes the files of a run without training, and returns it."""
    with locked_folder(folder):
        check_unused(folder)
        settings = config.model_dump(mode="json")
        task: AnyTask = task_class(config.task_config(), processor, Layout())
        save_task(folder, task, settings)
        write_json(folder / "capabilities.json", predictor_capabilities(task))
        save_tensors(folder / WEIGHTS, dict(tensors))
        run = Run.create(folder, settings)
        results = RunSummary(
            format=FORMAT,
            version=__version__,
            task=task_class.name,
            model=config.model.name,
            parameters=count_parameters(run.network),
            reason="imported",
            data=DataSummary(source=source),
        )
        run.write_results(results)
        report.write_card(run)
    return run


def _sentence_problems(model: HubModel) -> list[str]:
    """Returns why the vectors of a folder of sentence-transformers would differ from its own."""
    problems = [] if model.sentence is None else model.sentence.problems
    if model.head.kind == "pretraining":
        return problems
    return [*problems, f"sentence-transformers of the type {model.mapping.model_type} are not supported"]


def _neutral_scale(model: HubModel) -> dict[str, Tensor]:
    """Returns the scale and shift of a head whose outputs are in the units of the data already."""
    if not any(name.startswith("head.head.") for name in model.tensors):
        return {}
    count = len(model.labels)
    return {"head.scale": torch.ones(count), "head.shift": torch.zeros(count)}


def export_model(path: str | Path, out: str | Path | None = None, format: str | None = None) -> Path:
    """Writes the model of a run in the format of another program, and returns the folder or file.

    Args:
        path: The run.
        out: The folder of `transformers`, by default in the run; or the ARPA file.
        format: "transformers", "sentence-transformers" (an encoder that `embed` uses) or "arpa"; by default that of the
            model.
    """
    run = Run(path)
    format = format or ("arpa" if run.config.model.gradient_free else "transformers")
    if format not in FORMATS:
        raise SeriatimError("export.format", f'there is no format "{format}"', did_you_mean(format, FORMATS))
    target = run.path / ("model.arpa" if format == "arpa" else format) if out is None else Path(out)
    if target.exists():
        raise SeriatimError("export.exists", f"{target} exists already", "remove it, or choose another --out")
    processor = run.task.processor
    if format == "arpa":
        if not isinstance(run.network, NGram):
            cause = f"{run.path}: {run.config.model.name} is not an n-gram model"
            raise SeriatimError("export.format", cause, "ARPA files hold n-gram models; use --format transformers")
        run.network.write_arpa(target, processor.tokenizers["tokenizer"].names)
        return target
    if format == "sentence-transformers":
        _export_encoder(run, target)
        return target
    architectures = _architectures(run)
    tensors = _fold_scale(weights(run.network))
    mapping, head = find_head(architectures, run.config.model, tensors)
    tokenizers, image = processor.tokenizers, processor.hub_layout.get("image")
    if not tokenizers and image is None:
        raise SeriatimError(
            "export.numbers", f"{path} reads neither text nor images", "no architecture there supports it"
        )
    config = _label_config(processor.outputs) | dict(run.task.hub_config())
    if tokenizers:
        config |= _token_config(tokenizers["tokenizer"])
    layout = None if image is None else HubImage(**image, mean=(), std=())
    write_model(target, mapping, head, run.config.model, tensors, tokenizers, config, layout)
    return target


def _export_encoder(run: Run, target: Path) -> None:
    """Writes the encoder of a run as a folder of sentence-transformers, with the vectors that `embed` gives."""
    settings = run.config.model
    mappings = [mapping for mapping in MAPPINGS if mapping.model == settings.name and mapping.supports(settings)]
    heads = [(m, head) for m in mappings for head in m.heads if head.kind == "pretraining" and not head.prefixed]
    if not heads:
        names = sorted({mapping.model for mapping in MAPPINGS for head in mapping.heads if head.kind == "pretraining"})
        cause = f"{run.path}: sentence-transformers has no {settings.name}"
        raise SeriatimError("export.format", cause, f"supported: {', '.join(names)}")
    reader = run.predictor.text_reader()
    mapping, head = heads[0]
    known = {entry.name for entry in (*mapping.maps(settings, head), *head.optional)}
    tensors = {name: tensor for name, tensor in weights(run.network).items() if name in known}
    own = reader.embedding
    modules = SentenceModules(target, own.pooling, own.normalize, reader.max_length, prompt=own.prompt)
    tokenizers, config = {"tokenizer": reader.tokenizer}, _token_config(reader.tokenizer)
    write_model(target, mapping, head, settings, tensors, tokenizers, config, sentence=modules)


def _architectures(run: Run) -> list[tuple[ModelMapping, HubHead]]:
    """Returns the architectures of `transformers` that a run may be written as."""
    config, kind = run.config, run.task.hub_head
    heads = [
        (mapping, head)
        for mapping in MAPPINGS
        if mapping.model == config.model.name and mapping.supports(config.model)
        for head in mapping.heads
        if head.kind == kind
    ]
    settings = config.task.model_dump()
    matching = [
        (mapping, head)
        for mapping, head in heads
        if {name: settings.get(name) for name in head.task_settings} == dict(head.task_settings)
    ]
    if matching:
        return matching
    cause = f"{run.path}: transformers has no {config.model.name} for the task {run.task.name}"
    if heads:
        needed = " or ".join(
            ", ".join(f"task.{name}={value}" for name, value in head.task_settings.items()) for _, head in heads
        )
        raise SeriatimError("export.format", f"{cause} with these settings", f"train with {needed}")
    tasks = {task.hub_head: name for name, task in load_all().items() if task.hub_head is not None}
    known: dict[str, list[str]] = {}
    for mapping in MAPPINGS:
        for head in mapping.heads:
            names = known.setdefault(mapping.model, [])
            names += [name for name in [tasks.get(head.kind, head.kind)] if name not in names]
    supported = "; ".join(f"{model} ({', '.join(names)})" for model, names in known.items())
    raise SeriatimError("export.format", cause, f"supported: {supported}")


def _fold_scale(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """Returns the weights with scale and shift of the outputs folded into the last layer."""
    scale, shift = tensors.pop("head.scale", None), tensors.pop("head.shift", None)
    if scale is not None and shift is not None:
        weight, bias = tensors["head.head.output.weight"], tensors["head.head.output.bias"]
        tensors |= {"head.head.output.weight": weight * scale[:, None], "head.head.output.bias": bias * scale + shift}
    return tensors


def _label_config(labels: tuple[str, ...]) -> dict[str, object]:
    if not labels:
        return {}
    return {
        "id2label": {str(index): label for index, label in enumerate(labels)},
        "label2id": {label: index for index, label in enumerate(labels)},
    }


def _token_config(tokenizer: Tokenizer) -> dict[str, object]:
    pad = tokenizer.pad if tokenizer.pad is not None else tokenizer.eos
    ids = {"pad_token_id": pad}
    return ids if tokenizer.has_cls_sep else ids | {"bos_token_id": tokenizer.eos, "eos_token_id": tokenizer.eos}
