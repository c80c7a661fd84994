"""The one runner behind every command that uses a run: where inputs come from, and how predictions go out."""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any, TextIO

import numpy as np

from ..core.config import Settings, validate
from ..core.errors import SeriatimError, did_you_mean
from ..core.files import atomic_file
from ..data.dataset import Dataset
from ..data.kinds import TEXT
from ..data.source import Source, open_source
from ..report.charts import View, format_number
from ..runs.configure import add_plugins
from ..runs.run import Run
from ..tasks.base import Capability, Predictions, Predictor, flatten
from .output import note, one_line, print_error, replace_infinite
from .progress import track

ROWS = 512  # predicted at a time: enough to batch similar lengths
TABLES = (".csv", ".tsv", ".jsonl", ".parquet", ".txt")
Records = Sequence[dict[str, Any]]
Writer = Callable[[Records], None]


@dataclass(frozen=True)
class Request:
    """A command that uses a run: inputs from arguments, a file, or else standard input."""

    run: Path
    verb: str
    inputs: Sequence[str] | None = None
    fixed: Mapping[str, str] = field(default_factory=dict)  # role → the same text for all inputs
    data: str | None = None
    column: str | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
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
    check_outputs(request)
    add_plugins(request.plugin)
    run = Run(request.run)
    predictor = run.predictor
    if request.others:
        predictor = predictor.ensemble([Run(path).predictor for path in request.others])
    if request.int8:
        predictor = predictor.quantize()
    name = next(iter(predictor.methods)) if request.verb == "predict" else request.verb
    if name not in predictor.methods:
        cause = f"{request.run} is a run of the task {predictor.task.name}, which has no {name}"
        raise SeriatimError("run.capability", cause, did_you_mean(name, predictor.methods))
    capability = predictor.capabilities[name]
    options = validate(capability.options, request.options, f"the options of {name}")
    with ExitStack() as stack:
        writer = None
        if request.out is not None:
            writer = predictor.open_writer(name, options, request.out, str(request.run))
        write = make_writer(request, predictor, capability, stack) if writer is None else stack.enter_context(writer)
        for dataset in read_inputs(request, run, predictor, capability):
            try:
                predict_rows(request, predictor, capability, options, dataset, write)
            except SeriatimError as error:
                if not is_interactive(request):
                    raise
                print_error(error)
    if request.out is not None and not request.quiet:
        note(f"wrote {request.out}")


def check_outputs(request: Request) -> None:
    """Raises SeriatimError before anything long starts if inputs or output files contradict."""
    if request.inputs and request.data is not None:
        raise SeriatimError("input.two", "inputs and --data exclude each other", "omit one of them")
    if request.column is not None and request.data is None:
        raise SeriatimError("data.column", "inputs on the command line have no columns", "omit --column")
    if request.chart is not None:
        from ..report.render import check_extension

        check_extension(request.chart)


def predict_rows(
    request: Request,
    predictor: Predictor,
    capability: Capability,
    options: Settings,
    dataset: Dataset,
    write: Writer,
) -> None:
    """Predicts the rows of a data set in parts, writes the records, and draws the charts if there is a --chart."""
    method = predictor.methods[capability.name].method
    size = ROWS if capability.per_row else max(len(dataset), 1)
    starts = range(0, max(len(dataset), 1), size)
    charts: list[View] = []
    for start in track(starts, capability.name, len(starts), request.quiet):
        rows = dataset.take(np.arange(start, min(start + size, len(dataset)))) if len(starts) > 1 else dataset
        records = method(predictor, rows, options)
        write(name_predictions(rows, records, capability) if request.verb == "predict" else records)
        if request.chart is not None:
            charts += predictor.charts(capability.name, rows, options, records)
    if request.chart is not None:
        from ..report.render import save

        if not charts:
            cause = f"{request.run} has no chart of {capability.name}"
            raise SeriatimError("output.chart", cause, "omit --chart; `seriatim inspect` shows the inside of a model")
        save(charts, request.chart)
        if not request.quiet:
            note(f"wrote {request.chart}")


def name_predictions(rows: Dataset, records: Records, capability: Capability) -> Records:
    """Returns the records of `predict`: the columns of the input, and the main output as "prediction"."""
    main = next(iter(capability.outputs))
    renamed = [{"prediction" if key == main else key: value for key, value in record.items()} for record in records]
    if not capability.per_row:
        return renamed
    columns = [column for columns in rows.columns.values() for column in columns]
    return [{column.name: column.values[row] for column in columns} | record for row, record in enumerate(renamed)]


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
        while lines := list(islice(sys.stdin, 1 if sys.stdin.isatty() else ROWS)):
            yield task.read([parse_line(line, roles, fixed) for line in lines], schema)
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


def parse_line(line: str, roles: Sequence[str], fixed: Mapping[str, str]) -> dict[str, Any]:
    """Returns the record of a line: a JSON object, a text, or for several roles texts with tabs between them."""
    line = line.rstrip("\r\n")
    if line.startswith("{"):
        try:
            return json.loads(line) | fixed
        except ValueError:
            pass
    cells = [line] if len(roles) == 1 else line.split("\t")
    if len(cells) != len(roles):
        cause = f"{len(cells)} texts in the line {line!r}, not {len(roles)}"
        raise SeriatimError("input.line", cause, f"write {', '.join(roles)} with tabs between them")
    return dict(zip(roles, cells, strict=True)) | fixed


# Outputs


def make_writer(request: Request, predictor: Predictor, capability: Capability, stack: ExitStack) -> Writer:
    """Returns a function that writes records to the terminal, to a pipe or to a file.

    A pipe gets the first output column, one line per input; a terminal also the numbers beside it; --json everything.
    """
    out = request.out
    main = "prediction" if request.verb == "predict" else next(iter(capability.outputs))
    suffix = "" if out is None else out.suffix.lower()
    if out is not None and suffix not in (*TABLES, *predictor.file_extensions):
        extensions = ", ".join((*TABLES, *predictor.file_extensions))
        raise SeriatimError("output.format", f"{out}: unknown format", f"end it in {extensions}")
    if out is not None and (suffix in predictor.file_extensions or suffix == ".parquet"):
        records: list[dict[str, Any]] = []
        source = None if request.data is None else open_source(request.data, request.data_dir)
        stack.callback(write_whole_file, out, predictor, records, source)
        return records.extend
    file: TextIO = sys.stdout
    if out is not None:
        temporary = stack.enter_context(atomic_file(out))
        file = stack.enter_context(temporary.open("w", encoding="utf-8", newline=""))
    if request.json or suffix == ".jsonl":
        return lambda rows: write_lines(
            file, (json.dumps(replace_infinite(row), ensure_ascii=False, default=str) for row in rows)
        )
    if suffix in (".csv", ".tsv") or not capability.per_row:
        delimiter = "," if suffix == ".csv" else "\t"
        return TableWriter(csv.writer(file, delimiter=delimiter, lineterminator="\n"))
    if file.isatty():
        return lambda rows: write_lines(file, (describe_record(row, main) for row in rows))
    return lambda rows: write_lines(file, (one_line(row[main]) for row in rows))


def write_whole_file(
    path: Path, predictor: Predictor, records: list[dict[str, Any]], source: Source | None = None
) -> None:
    """Writes all records at once: Parquet, or a format of the task, which may extend the lines of the source."""
    predictions = Predictions(records)
    predictions.source = source
    with atomic_file(path) as temporary:
        if path.suffix.lower() == ".parquet":
            import pyarrow.parquet

            pyarrow.parquet.write_table(predictions.to_arrow(), temporary)
            return
        contents = predictor.format_file(path.suffix.lower(), predictions)
        temporary.write_bytes(contents if isinstance(contents, bytes) else contents.encode())


class TableWriter:
    """Writes records as rows of a CSV file, after a header; a mapping becomes a column per key."""

    def __init__(self, table: Any) -> None:
        self.table, self.columns = table, list[str]()

    def __call__(self, records: Records) -> None:
        for record in map(plain_cells, records):
            if not self.columns:
                self.columns = list(record)
                self.table.writerow(self.columns)
            self.table.writerow([record.get(column) for column in self.columns])


def plain_cells(record: Mapping[str, Any]) -> dict[str, Any]:
    """Returns a record whose cells are plain: mappings as `column.key`, lists as JSON."""
    return {
        column: json.dumps(replace_infinite(value), default=str)
        if isinstance(value, list | tuple | np.ndarray)
        else value
        for column, value in flatten(record).items()
    }


def write_lines(file: TextIO, lines: Iterable[str]) -> None:
    for line in lines:
        file.write(line + "\n")
    file.flush()


def describe_record(record: Mapping[str, Any], main: str) -> str:
    """Returns a record for a terminal: its main column, and the numbers beside it."""
    numbers = [
        f"{name} {format_number(value)}" for name, value in record.items() if isinstance(value, float) and name != main
    ]
    value = record[main]
    text = " ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
    return f"{text}    [{', '.join(numbers)}]" if numbers else text
