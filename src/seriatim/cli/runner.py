"""The one runner behind every command that uses a run: where inputs come from, and how predictions go out."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path

import numpy as np

from ..core.config import Settings, validate
from ..core.errors import Diagnostics, SeriatimError, did_you_mean
from ..core.files import atomic_file
from ..core.text import format_number
from ..data.dataset import Dataset
from ..data.formats import tables
from ..data.kinds import LINES, TEXT
from ..data.reader import options_of_source, read_header
from ..data.source import open_source
from ..report.charts import View
from ..runs.configure import add_plugins
from ..runs.run import Run
from ..tasks.capability import Capability, Record
from ..tasks.predictor import Predictions, Predictor, flatten
from .output import escape_line, note, note_once, print_error, replace_infinite, silent, track

ROWS = 512  # predicted at a time: enough to batch similar lengths
Records = Sequence[Record]


@dataclass(frozen=True)
class Request:
    """A command that uses a run: inputs from arguments, a file, or else standard input."""

    run: Path
    verb: str
    inputs: Sequence[str] | None = None
    fixed: Mapping[str, str] = field(default_factory=dict)  # role → the same text for all inputs
    data: str | None = None
    column: str | None = None
    options: Mapping[str, object] = field(default_factory=dict)
    out: Path | None = None
    chart: Path | None = None
    int8: bool = False
    others: Sequence[Path] | None = None
    data_dir: str | None = None
    plugin: Sequence[Path] | None = None
    json: bool = False
    quiet: bool = False


def answer(request: Request) -> None:
    """Predicts for all inputs of a request and writes the predictions as they come."""
    add_plugins(request.plugin)
    run = Run(request.run)
    predictor = run.predictor
    predictor.task.diagnostics.on_note = silent if request.quiet else note_once()  # such as columns that were guessed
    if request.others:
        predictor = predictor.ensemble([Run(path).predictor for path in request.others])
    if request.int8:
        predictor = predictor.quantize()
    name = next(iter(predictor.methods)) if request.verb == "predict" else request.verb
    if name not in predictor.capabilities:
        cause = f"{request.run} is a run of the task {predictor.task.name}, which has no {name}"
        raise SeriatimError("run.capability", cause, did_you_mean(name, predictor.capabilities))
    capability = predictor.capabilities[name]
    options = validate(capability.options, request.options, f"the options of {name}")
    check_outputs(request, predictor, capability, options)
    charts: list[View] = []
    records = predict_records(request, run, predictor, capability, options, charts)
    if request.out is None:
        print_records(request, capability, records)
    else:
        count = write_file(request, predictor, capability, options, records)
        if not request.quiet:
            note(f"{count:,} rows: {request.out}")
    if request.chart is not None:
        from ..report.render import save

        if not charts:
            cause = f"{request.run} has no chart of {name}"
            raise SeriatimError("output.chart", cause, "omit --chart; `seriatim inspect` shows the inside of a model")
        save(charts, request.chart)
        if not request.quiet:
            note(f"wrote {request.chart}")


def check_outputs(request: Request, predictor: Predictor, capability: Capability, options: Settings) -> None:
    """Raises SeriatimError before anything long starts if inputs contradict or a file cannot be written."""
    if request.inputs and request.data is not None:
        raise SeriatimError("input.two", "inputs and --data exclude each other", "omit one of them")
    if request.column is not None and request.data is None:
        raise SeriatimError("data.column", "inputs on the command line have no columns", "omit --column")
    if request.out is not None:
        arrays = predictor.open_writer(capability.name, options, Path("arrays.npy"), str(request.run)) is not None
        tables.check_extension(request.out, (*predictor.file_extensions, *([".npy"] if arrays else [])))
    if request.chart is not None:
        from ..report.render import check_extension

        check_extension(request.chart)


def predict_records(
    request: Request,
    run: Run,
    predictor: Predictor,
    capability: Capability,
    options: Settings,
    charts: list[View],
) -> Iterator[Records]:
    """Yields the records of the inputs in parts; adds their charts to `charts` if there is a --chart."""
    method = predictor.methods[capability.name].method
    for dataset in read_inputs(request, run, predictor, capability):
        size = ROWS if capability.per_row else max(len(dataset), 1)
        starts = range(0, max(len(dataset), 1), size)
        cells = input_cells(request, predictor, capability, dataset)
        try:
            for start in track(starts, capability.name, len(starts), request.quiet):
                rows = dataset.take(np.arange(start, min(start + size, len(dataset)))) if len(starts) > 1 else dataset
                records = method(predictor, rows, options)
                yield name_predictions(records, capability, cells) if request.verb == "predict" else records
                if request.chart is not None:
                    charts += predictor.charts(capability.name, rows, options, records)
        except SeriatimError as error:
            if not is_interactive(request):
                raise
            print_error(error)


def name_predictions(records: Records, capability: Capability, cells: Iterator[Record]) -> Records:
    """Returns the records of `predict`: the columns of the input, and the main output as "prediction"."""
    main = next(iter(capability.outputs))
    renamed = [{"prediction" if key == main else key: value for key, value in record.items()} for record in records]
    return [next(cells, {}) | record for record in renamed] if capability.per_row else renamed


def input_cells(request: Request, predictor: Predictor, capability: Capability, dataset: Dataset) -> Iterator[Record]:
    """Yields the cells of each input row by column: all columns of a file, else those that the task reads."""
    if request.data is not None:
        source = open_source(request.data, request.data_dir)
        named = {} if request.column is None else {str(capability.inputs.input_role): request.column}
        options = options_of_source(source, predictor.task.config.data.read_options(), named, trained=True)
        _, records = read_header(source, capability.inputs, options, Diagnostics())
        for record in records:
            yield dict(record.values)
        return
    columns = [column for columns in dataset.columns.values() for column in columns]
    for row in range(len(dataset)):
        yield {column.name: column.values[row] for column in columns}


# Inputs


def is_interactive(request: Request) -> bool:
    """Returns whether inputs are typed at a terminal."""
    return not request.inputs and request.data is None and sys.stdin.isatty()


def read_inputs(request: Request, run: Run, predictor: Predictor, capability: Capability) -> Iterator[Dataset]:
    """Yields the inputs: all of the arguments or the file, or standard input in parts, line by line at a terminal."""
    task, schema = predictor.task, capability.inputs
    fixed = {role: read_fixed(text) for role, text in request.fixed.items()}
    roles = [field.role for field in schema.fields if field.required and field.role not in fixed]
    if request.data is not None:
        columns = {} if request.column is None else {str(schema.input_role): request.column}
        yield task.read(open_source(request.data, request.data_dir), schema, columns)
    elif capability.own_data and not request.inputs:
        yield task.read_own_data(request.data_dir)
    elif request.inputs == ["-"] or not request.inputs:
        if sys.stdin.isatty():
            note(f"a {' and a '.join(roles)} per line; ctrl-D ends")
        lines = read_stdin()
        while part := list(islice(lines, 1 if sys.stdin.isatty() else ROWS)):
            yield task.read([parse_line(line, roles, fixed) for line in part], schema)
    elif len(roles) == 1:
        inputs = list(request.inputs)
        if TEXT not in schema[roles[0]].kinds and len(inputs) == 1 and Path(inputs[0]).exists():
            yield task.read(open_source(inputs[0], request.data_dir), schema)
        else:
            yield task.read([{roles[0]: text, **fixed} for text in inputs], schema)
    else:
        *shared, _ = roles
        if len(request.inputs) < len(roles):
            cause = f"{capability.name} needs a {' and a '.join(roles)}"
            raise SeriatimError("input.missing", cause, f"`seriatim {capability.name} RUN {' '.join(roles).upper()}`")
        first, rest = request.inputs[: len(shared)], request.inputs[len(shared) :]
        records = [dict(zip(roles, (*first, text), strict=True)) | fixed for text in rest]
        yield task.read(records, schema)


def read_stdin() -> Iterator[str]:
    """Yields the lines of standard input, which are UTF-8 whatever the locale says."""
    for number, line in enumerate(getattr(sys.stdin, "buffer", sys.stdin), start=1):
        try:
            text = line if isinstance(line, str) else line.decode("utf-8-sig" if number == 1 else "utf-8")
        except UnicodeDecodeError:
            remedy = "convert it first, as `iconv -f latin1 -t utf-8` does"
            raise SeriatimError("file.encoding", f"stdin, line {number}: not UTF-8", remedy) from None
        yield text.rstrip("\r\n")


def read_fixed(text: str) -> str:
    """Returns the contents of a file if the text names one, else the text itself."""
    try:
        path = Path(text)
        if not path.is_file():
            return text
        return path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError:
        raise SeriatimError("file.encoding", f"{text}: not UTF-8", "convert the file") from None
    except (OSError, ValueError):  # too long for a name, or with characters that none can have
        return text


def parse_line(line: str, roles: Sequence[str], fixed: Mapping[str, str]) -> Record:
    """Returns the record of a line: a JSON object, a text, or for several roles texts with tabs between them."""
    if line.startswith("{"):
        try:
            return json.loads(line) | fixed
        except ValueError:
            pass
    cells = [line] if len(roles) == 1 else line.split("\t")
    if len(cells) != len(roles):
        cause = f"{len(cells)} texts in the line {line!r}, not {len(roles)}"
        raise SeriatimError("input.line", cause, f"write {', '.join(roles)} with tabs between them")
    return {**dict(zip(roles, cells, strict=True)), **fixed}


# Outputs


def write_file(
    request: Request, predictor: Predictor, capability: Capability, options: Settings, parts: Iterator[Records]
) -> int:
    """Writes all records to a table, to lines of text, or in a format of the task, and returns their number."""
    path = Path(str(request.out))
    extension = path.suffix.lower()
    if (writer := predictor.open_writer(capability.name, options, path, str(request.run))) is not None:
        count = 0
        with writer as write:
            for records in parts:
                write(list(records))
                count += len(records)
        return count
    if extension in predictor.file_extensions:
        predictions = Predictions(record for records in parts for record in records)
        predictions.source = None if request.data is None else open_source(request.data, request.data_dir)
        contents = predictor.format_file(extension, predictions)
        with atomic_file(path) as temporary:
            temporary.write_bytes(contents if isinstance(contents, bytes) else contents.encode())
        return len(predictions)
    cells = (flatten(record) for records in parts for record in records)
    if extension == ".txt":
        main = main_column(request, capability)
        return tables.write_table(path, [main], ([format_lines(record[main], capability)] for record in cells))
    return tables.write_records(path, cells)


def main_column(request: Request, capability: Capability) -> str:
    """Returns the output that a pipe gets: the first one, which `predict` calls "prediction"."""
    return "prediction" if request.verb == "predict" else next(iter(capability.outputs))


def format_lines(value: object, capability: Capability) -> str:
    """Returns a main output for a pipe: one line, or what is laid out in lines as it is, and a blank line after it."""
    laid_out = next(iter(capability.outputs.values())) is LINES
    return f"{value}\n" if laid_out else escape_line(value)


def print_records(request: Request, capability: Capability, parts: Iterator[Records]) -> None:
    """Prints records as they come.

    A pipe gets the main output, one line per input or what is laid out in lines; a terminal also the numbers beside it;
    --json everything. Several records per input are a table with tabs.
    """
    main = main_column(request, capability)
    columns: list[str] = []
    for records in parts:
        for record in records:
            if request.json:
                print(json.dumps(replace_infinite(record), ensure_ascii=False, default=str))
            elif not capability.per_row:
                cells = flatten(record)
                if not columns:
                    columns = list(cells)
                    print("\t".join(columns))
                print("\t".join(escape_line(cells.get(column, "")) for column in columns))
            else:
                several = capability.scalar and isinstance(record[main], list)  # hypotheses of one input, best first
                if several:
                    print("\t".join(map(escape_line, record[main])))
                else:
                    terminal = sys.stdout.isatty()
                    print(describe_record(record, main) if terminal else format_lines(record[main], capability))
        sys.stdout.flush()


def describe_record(record: Mapping[str, object], main: str) -> str:
    """Returns a record for a terminal: its main column, and the numbers beside it."""
    numbers = [
        f"{name} {format_number(value)}" for name, value in record.items() if isinstance(value, float) and name != main
    ]
    value = record[main]
    text = " ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
    return f"{text}    [{', '.join(numbers)}]" if numbers else text
