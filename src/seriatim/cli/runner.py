"""The one runner behind every command that uses a run: where inputs come from, and how predictions go out."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

from ..core.config import Settings, validate
from ..core.errors import Diagnostics, SeriatimError, did_you_mean
from ..core.files import atomic_file, path_exists
from ..core.text import format_number
from ..data.formats import tables
from ..data.kinds import LINES, TEXT
from ..data.reader import options_of_source, read_header
from ..data.source import DataInput, open_source
from ..report.charts import View
from ..runs.configure import add_plugins
from ..runs.run import Run
from ..tasks.capability import Capability, Record
from ..tasks.predictor import Predictions, Predictor, Request, flatten
from .output import escape_line, note, note_once, print_error, replace_infinite, silent, track

ROWS = 512  # predicted at a time: enough to batch similar lengths
Records = Sequence[Record]


@dataclass(frozen=True)
class Command:
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


def answer(command: Command) -> None:
    """Predicts for all inputs of a command and writes the predictions as they come."""
    add_plugins(command.plugin)
    predictor = Run(command.run).predictor
    if command.others:
        predictor = predictor.ensemble([Run(path).predictor for path in command.others])
    if command.int8:
        predictor = predictor.quantize()
    known = predictor.capabilities
    name = next(iter(known)) if command.verb == "predict" else command.verb
    if name not in known:
        cause = f"{command.run} is a run of the task {predictor.task.name}, which has no {name}"
        raise SeriatimError("run.capability", cause, did_you_mean(name, known))
    capability = known[name]
    options = validate(capability.options, command.options, f"the options of {name}")
    check_outputs(command, predictor, capability, options)
    charts: list[View] = []
    parts = predict_parts(command, predictor, capability, options, charts)
    if command.out is None:
        print_records(command, capability, parts)
    else:
        count = write_file(command, predictor, capability, options, parts)
        if not command.quiet:
            note(f"{count:,} rows: {command.out}")
    if command.chart is not None:
        from ..report.render import save

        if not charts:
            cause = f"{command.run} has no chart of {name}"
            raise SeriatimError("output.chart", cause, "omit --chart; `seriatim inspect` shows the inside of a model")
        save(charts, command.chart)
        if not command.quiet:
            note(f"wrote {command.chart}")


def check_outputs(command: Command, predictor: Predictor[Any], capability: Capability, options: Settings) -> None:
    """Raises SeriatimError before anything long starts if inputs contradict or a file cannot be written."""
    if command.inputs and command.data is not None:
        raise SeriatimError("input.two", "inputs and --data exclude each other", "omit one of them")
    if command.column is not None and command.data is None:
        raise SeriatimError("data.column", "inputs on the command line have no columns", "omit --column")
    if command.out is not None:
        arrays = predictor.open_writer(capability.name, options, Path("arrays.npy"), str(command.run)) is not None
        tables.check_extension(command.out, (*predictor.file_extensions, *([".npy"] if arrays else [])))
    if command.chart is not None:
        from ..report.render import check_extension

        check_extension(command.chart)


def predict_parts(
    command: Command, predictor: Predictor[Any], capability: Capability, options: Settings, charts: list[View]
) -> Iterator[Records]:
    """Yields the records of the inputs in parts; adds their charts to `charts` if there is a --chart."""
    on_note = silent if command.quiet else note_once()  # such as columns that were guessed
    columns = None if command.column is None else {str(capability.inputs.input_role): command.column}
    for inputs in read_inputs(command, capability):
        request = Request(
            command.verb, inputs, command.options, columns, part=ROWS, on_note=on_note, data_dir=command.data_dir
        )
        cells = file_cells(command, predictor, capability) if command.data is not None else None
        try:
            answer = predictor.execute(request)
            for part in track(answer, capability.name, -(-max(answer.count, 1) // ROWS), command.quiet):
                records = list(answer.rename_main(part.records))
                if command.verb == "predict" and capability.per_row:
                    own = part.cells() if cells is None else cells
                    records = [next(own, {}) | record for record in records]
                yield records
                if command.chart is not None:
                    charts += predictor.charts(capability.name, part.rows, options, part.records)
        except SeriatimError as error:
            if not is_interactive(command):
                raise
            print_error(error)


def file_cells(command: Command, predictor: Predictor[Any], capability: Capability) -> Iterator[Record]:
    """Yields the cells of each row of a file by column, also of the columns that the task does not read."""
    source = open_source(str(command.data), command.data_dir)
    named = {} if command.column is None else {str(capability.inputs.input_role): command.column}
    options = options_of_source(source, predictor.task.config.data.read_options(), named, trained=True)
    _, records = read_header(source, capability.inputs, options, Diagnostics())
    for record in records:
        yield dict(record.values)


# Inputs


def is_interactive(command: Command) -> bool:
    """Returns whether inputs are typed at a terminal."""
    return not command.inputs and command.data is None and sys.stdin.isatty()


def read_inputs(command: Command, capability: Capability) -> Iterator[DataInput | None]:
    """Yields the inputs: all of the arguments or the file, or standard input in parts, line by line at a terminal."""
    schema = capability.inputs
    fixed = {role: read_fixed(text) for role, text in command.fixed.items()}
    roles = [field.role for field in schema.fields if field.required and field.role not in fixed]
    if command.data is not None:
        yield Path(command.data) if path_exists(command.data) else open_source(command.data, command.data_dir)
    elif capability.own_data and not command.inputs:
        yield None
    elif command.inputs == ["-"] or not command.inputs:
        if sys.stdin.isatty():
            note(f"a {' and a '.join(roles)} per line; ctrl-D ends")
        lines = read_stdin()
        while part := list(islice(lines, 1 if sys.stdin.isatty() else ROWS)):
            yield [parse_line(line, roles, fixed) for line in part]
    elif len(roles) == 1:
        inputs = list(command.inputs)
        is_file = TEXT not in schema[roles[0]].kinds and len(inputs) == 1 and path_exists(inputs[0])
        yield Path(inputs[0]) if is_file else [{roles[0]: text, **fixed} for text in inputs]
    else:
        *shared, _ = roles
        if len(command.inputs) < len(roles):
            cause = f"{capability.name} needs a {' and a '.join(roles)}"
            raise SeriatimError("input.missing", cause, f"`seriatim {capability.name} RUN {' '.join(roles).upper()}`")
        first, rest = command.inputs[: len(shared)], command.inputs[len(shared) :]
        yield [dict(zip(roles, (*first, text), strict=True)) | fixed for text in rest]


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
    command: Command, predictor: Predictor[Any], capability: Capability, options: Settings, parts: Iterator[Records]
) -> int:
    """Writes all records to a table, to lines of text, or in a format of the task, and returns their number."""
    path = Path(str(command.out))
    extension = path.suffix.lower()
    if (writer := predictor.open_writer(capability.name, options, path, str(command.run))) is not None:
        count = 0
        with writer as write:
            for records in parts:
                write(list(records))
                count += len(records)
        return count
    if extension in predictor.file_extensions:
        predictions = Predictions(record for records in parts for record in records)
        predictions.source = None if command.data is None else open_source(command.data, command.data_dir)
        contents = predictor.format_file(extension, predictions)
        with atomic_file(path) as temporary:
            temporary.write_bytes(contents if isinstance(contents, bytes) else contents.encode())
        return len(predictions)
    cells = (flatten(record) for records in parts for record in records)
    if extension == ".txt":
        main = main_column(command, capability)
        return tables.write_table(path, [main], ([format_lines(record[main], capability)] for record in cells))
    return tables.write_records(path, cells)


def main_column(command: Command, capability: Capability) -> str:
    """Returns the output that a pipe gets: the first one, which `predict` calls "prediction"."""
    return "prediction" if command.verb == "predict" else next(iter(capability.outputs))


def format_lines(value: object, capability: Capability) -> str:
    """Returns a main output for a pipe: one line, or what is laid out in lines as it is, and a blank line after it."""
    laid_out = next(iter(capability.outputs.values())) is LINES
    return f"{value}\n" if laid_out else escape_line(value)


def print_records(command: Command, capability: Capability, parts: Iterator[Records]) -> None:
    """Prints records as they come.

    A pipe gets the main output, one line per input or what is laid out in lines; a terminal also the numbers beside it;
    --json everything. Several records per input are a table with tabs.
    """
    main = main_column(command, capability)
    columns: list[str] = []
    for records in parts:
        for record in records:
            if command.json:
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
