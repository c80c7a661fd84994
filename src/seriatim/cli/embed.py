"""Turn texts into vectors: how alike they are, which are nearest, what a word means where.

seriatim embed runs/x "a text" "another"    seriatim embed runs/x --file texts.csv --out vectors.parquet
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..core.errors import SeriatimError
from . import _options as o
from . import _vectors as shown
from ._lines import chunks, decoded, open_lines
from ._output import note, silent
from ._watched import watched

if TYPE_CHECKING:
    import numpy as np

    from ..data.vector_files import Vectors
    from ..runs import Run

TEXTS = 2_048  # that are embedded together: enough to put like lengths together
FEW = 12  # texts whose similarities are printed as a table
DRAWN = 2_000  # points of a picture at most
SENTENCES = 500  # of a file that are looked at for a word


def command(
    run: o.RunPath,
    texts: Annotated[list[str] | None, typer.Argument(help="Texts; - reads one a line.", show_default=False)] = None,
    file: Annotated[
        str | None, typer.Option("--file", help="A file of texts: lines, CSV, TSV, JSONL, Parquet; - for stdin.")
    ] = None,
    column: o.Column = None,
    encoding: o.Encoding = None,
    out: Annotated[
        Path | None, typer.Option("--out", help="Vectors as .npy, or .parquet with the texts; neighbours as a table.")
    ] = None,
    pooling: Annotated[str | None, typer.Option(help="mean, cls, max or last. [default: mean]")] = None,
    normalise: Annotated[bool, typer.Option(help="Give vectors the length 1.")] = True,
    nearest: Annotated[
        list[str] | None,
        typer.Option("--nearest", metavar="TEXT", help="Which of the texts are nearest to this; may be repeated."),
    ] = None,
    top: Annotated[
        int | None, typer.Option(min=1, help="So many neighbours; without --nearest, of each text. [default: 5]")
    ] = None,
    word: Annotated[
        str | None, typer.Option("--word", help="A word of the texts: its vector in each of them, and by itself.")
    ] = None,
    picture: Annotated[
        Path | None, typer.Option("--picture", help="Draw how alike they are: .html, .png, .svg or .json.")
    ] = None,
    plugin: o.Plugin = None,
    data_dir: o.DataDir = None,
    json: Annotated[bool, typer.Option("--json", help="A JSON object a line.")] = False,
    quiet: o.Quiet = False,
) -> None:
    searches = nearest is not None or top is not None
    _check(texts, file, column, out, word, picture, searches)
    o.add_plugins(plugin)
    from ..runs import Run

    work = Work(Run(run), pooling, normalise, json, silent if quiet else note)
    if searches:
        kept = _stored(file) if column is None else None
        work.search(nearest, kept or work.source(texts, file, column, encoding, data_dir), top or 5, out)
        return
    source = work.source(texts, file, column, encoding, data_dir)
    if word is not None:
        work.word(word, source, file is not None, out, picture)
    else:
        work.vectors(source, file, out, picture)


def _check(
    texts: list[str] | None,
    file: str | None,
    column: str | None,
    out: Path | None,
    word: str | None,
    picture: Path | None,
    searches: bool,
) -> None:
    """What cannot be meant is said before anything is read."""
    if (file is None) == (not texts):
        cause = "either texts or --file says what to embed"
        raise SeriatimError("embed.input", cause, '`seriatim embed RUN "a text" "another"`, or --file texts.txt')
    if column is not None and file in (None, "-"):
        raise SeriatimError("data.column", "texts and lines have no columns", "leave --column away")
    if word is not None and searches:
        raise SeriatimError("embed.word", "--word is about a word, --nearest and --top about texts", "give one of them")
    if picture is not None and searches:
        raise SeriatimError("embed.picture", "neighbours are not drawn", "leave --nearest and --top away")
    if picture is not None:
        from ..report.looks import check_ending

        check_ending(picture)
    if out is not None:
        from ..data import vector_files, writing

        (writing if searches else vector_files).check_ending(out)


def _stored(file: str | None) -> Vectors | None:
    from ..data.vector_files import stored

    return None if file is None else stored(file)


@dataclass
class Work:
    run: Run
    pooling: str | None
    normalise: bool
    json: bool
    tell: Callable[[str], None]
    notes: list[str] = field(default_factory=list)  # of the source, told when it is read

    def source(
        self,
        texts: list[str] | None,
        file: str | None,
        column: str | None,
        encoding: str | None,
        data_dir: str | None,
    ) -> Iterable[str]:
        """The texts as they come, and on stderr how far they are."""
        if file == "-" or texts == ["-"]:
            stream, name, _ = open_lines(Path("-"))
            return self._watched(decoded(stream, name), name)
        if file is None:
            return texts or []
        from ..data.text_rows import TextRows

        known = getattr(getattr(self.run.predictor, "coder", None), "columns", {}).get("column")
        rows = TextRows(file, column, known, encoding or "utf-8", data_dir)
        self.notes = rows.facts.notes
        return self._watched(rows, Path(file).name)

    def _watched(self, texts: Iterable[str], name: str) -> Iterable[str]:
        return texts if self.tell is silent else watched(texts, name)

    # All texts

    def vectors(self, source: Iterable[str], file: str | None, out: Path | None, picture: Path | None) -> None:
        """Into a file, a picture, or onto the screen."""
        embedder = self.run.embedder(self.pooling or "mean", self.normalise)
        kept = shown.Kept(DRAWN if picture is not None else FEW)
        count = 0
        with ExitStack() as opened:
            takers: list[Callable[[Sequence[str], np.ndarray], Any]] = []
            if out is not None:
                from ..data.vector_files import writing

                takers.append(opened.enter_context(writing(out, embedder.width, self._about())))
            if self.json:
                takers.append(shown.lines)
            if picture is not None or not takers:
                takers.append(kept.add)
            for texts in chunks(source, TEXTS):
                count += len(texts)
                if count > FEW and takers == [kept.add] and picture is None:
                    raise SeriatimError(
                        "embed.output", f"more than {FEW} texts are too many for the screen",
                        "write vectors with --out, draw them with --picture, print them with --json",
                    )  # fmt: skip
                vectors = embedder(texts)
                for take in takers:
                    take(texts, vectors)
            if not count:
                raise SeriatimError("data.empty", f"{file or 'stdin'} holds no texts", "give some")
        self._tell_all(embedder.told)
        if out is not None:
            self.tell(f"{count:,} vectors of {embedder.width} numbers: {out}")
        if picture is not None:
            self._draw(kept, count, picture)
        elif out is None and not self.json:
            shown.alike(kept.texts, kept.vectors)

    def _about(self) -> dict[str, Any]:
        """What a file of vectors says about them."""
        run = {"run": str(self.run.path), "model": self.run.identity}
        return run | {"pooling": self.pooling or "mean", "normalised": self.normalise}

    def _draw(self, kept: shown.Kept, count: int, picture: Path) -> None:
        import numpy as np

        from ..report.looks import save
        from ..report.vectors import texts_picture

        save(texts_picture(kept.texts, np.stack(kept.vectors))[0], picture)
        some = "" if len(kept.texts) == count else f": {len(kept.texts):,} of {count:,} texts, evenly spread"
        self.tell(f"wrote {picture}{some}")

    def _tell_all(self, *told: str) -> None:
        for text in (*self.notes, *told):
            if text:
                self.tell(text)

    # Neighbours

    def search(self, asked: list[str] | None, among: Iterable[str] | Vectors, top: int, out: Path | None) -> None:
        found = self.run.nearest(asked, among, top, self.pooling, self.tell)
        pairs = found if asked is None else list(zip(asked, found, strict=True))
        self._tell_all()
        if not pairs or not any(neighbours for _, neighbours in pairs):
            raise SeriatimError("data.empty", "there is no text that could be near", "give some")
        if out is not None:
            table = shown.table(pairs)
            table.write(out)
            self.tell(f"{len(table.rows):,} neighbours: {out}")
        elif self.json:
            shown.records(pairs)
        else:
            shown.neighbours(pairs)

    # A word

    def word(self, word: str, source: Iterable[str], from_file: bool, out: Path | None, picture: Path | None) -> None:
        sentences = list(source) if not from_file else self._having(word, source)
        found = self.run.words(word, sentences, self.normalise, strict=not from_file)
        behind = f'{found.lost:,} more places of "{word}" stand behind what the model can take in'
        self._tell_all(behind if found.lost else "")
        if out is not None:
            from ..data.vector_files import writing

            with writing(out, found.contextual.shape[1], self._about() | {"word": word}) as add:
                add(found.sentences, found.contextual)
            self.tell(f"{len(found.sentences):,} vectors of {found.contextual.shape[1]} numbers: {out}")
        if picture is not None:
            from ..report.looks import save
            from ..report.vectors import word_picture

            save(word_picture(word, found.fragments(), found.contextual, found.plain)[0], picture)
            self.tell(f"wrote {picture}")
        if self.json:
            shown.word_records(found)
        elif out is None and len(found.sentences) <= FEW:
            shown.word(found)
        elif out is None and picture is None:
            raise SeriatimError(
                "embed.output", f"{len(found.sentences):,} places of \"{word}\" are too many for the screen",
                "write vectors with --out, draw them with --picture, print them with --json",
            )  # fmt: skip

    def _having(self, word: str, source: Iterable[str]) -> list[str]:
        """The sentences of a file that have a word, the first of them where there are many."""
        found = list(islice((text for text in source if word.lower() in text.lower()), SENTENCES + 1))
        if len(found) > SENTENCES:
            self.notes.append(f'the first {SENTENCES} texts with "{word}" are taken')
        return found[:SENTENCES]
