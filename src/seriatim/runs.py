"""The run folder: everything about one trained model in one place, readable without this program.

    config.yaml  model.safetensors  tokenizer.json  checkpoints/  metrics.jsonl  samples.jsonl
    summary.json  report.html  README.md

Opening, listing and reading runs does not import torch; answering with the model does.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .core.config import load_yaml
from .core.errors import SeriatimError, did_you_mean

if TYPE_CHECKING:
    import numpy as np

    from .data.vector_files import Vectors
    from .data.writing import Table
    from .decode.options import TranslateSettings
    from .inspect import Inspector
    from .tasks._alignment import Looked
    from .tasks._answerer import Answer
    from .tasks._captioner import Caption
    from .tasks._readers import Reader
    from .tasks._speak import Continuation, Generation, Score
    from .tasks._translator import Translation
    from .tasks._vectors import Embedder, WordVectors
    from .training.config import Config


class Run:
    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        if not (self.path / "config.yaml").is_file():
            near = did_you_mean(self.path.name, (run.path.name for run in list_runs(self.path.parent)))
            raise SeriatimError("run.missing", f"{self.path} is not the folder of a run", near or "`seriatim runs`")

    def __repr__(self) -> str:
        return f"Run({str(self.path)!r})"

    # What is written in the folder

    @cached_property
    def settings(self) -> dict[str, Any]:
        """config.yaml as it stands."""
        return load_yaml(self.path / "config.yaml")

    @property
    def summary(self) -> dict[str, Any]:
        """The figures of the run: what is known at its start, and after it stopped also how it went."""
        file = self.path / "summary.json"
        if not file.is_file():
            return {}
        try:
            values: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
        except ValueError as error:
            raise SeriatimError(
                "run.damaged", f"{file} is not whole: {error}", "restore the file, or remove it"
            ) from None
        return values

    def history(self, event: str = "") -> list[dict[str, Any]]:
        """The events of the training, all or those of one kind ("stepped", "evaluated", …)."""
        return [line for line in self._lines("metrics.jsonl") if not event or line["event"] == event]

    def samples(self) -> list[dict[str, Any]]:
        """What the model produced as it learned."""
        return list(self._lines("samples.jsonl"))

    def evaluation(self) -> dict[str, list[dict[str, Any]]]:
        """What the task found worth looking at, by part: tables and the figures behind pictures."""
        file = self.path / "evaluation.json"
        found: dict[str, list[dict[str, Any]]] = json.loads(file.read_text("utf-8")) if file.is_file() else {}
        return found

    def _lines(self, name: str) -> Iterator[dict[str, Any]]:
        file = self.path / name
        if file.is_file():
            with open(file, encoding="utf-8") as lines:
                for line in lines:
                    if line.endswith("\n"):  # a crash may leave half a line
                        yield json.loads(line)

    # The model

    @cached_property
    def config(self) -> Config:
        from .training.config import make_config

        return make_config(self.settings, str(self.path / "config.yaml"))

    @cached_property
    def predictor(self) -> Any:
        """The model with its best weights, ready to answer: what it can be asked depends on the task."""
        return self._open(self.config)

    def _open(self, config: Config) -> Any:
        from .core import registry

        return registry.tasks.load(config.task.name).open_run(self.path, config)

    def _ask(self, question: str) -> Any:
        answer = getattr(self.predictor, question, None)
        if answer is None:
            raise SeriatimError(
                "run.question",
                f"{self.path}: a model of the task {self.config.task.name} cannot be asked to {question}",
                f"it can: {', '.join(self.predictor.questions)}",
            )
        return answer

    @property
    def model(self) -> Any:
        """The network (or the counts) itself."""
        return self.predictor.model

    def next(self, prompt: str, top: int = 10) -> list[Continuation]:
        """The likeliest tokens behind a prompt, with their probabilities."""
        found: list[Continuation] = self._ask("next")(prompt, top)
        return found

    @cached_property
    def int8(self) -> Run:
        """This run with its weights rounded to 8 bits each: faster where they come from memory, and nearly as good;
        `seriatim evaluate --int8` tells how nearly."""
        run = Run(self.path)
        run.predictor = self._ask("rounded")()
        return run

    def generate(self, prompt: str | list[str], int8: bool = False, **options: Any) -> Any:
        """Continues a prompt (a text, or a list of them); options are those of `DecodeSettings`, and `int8`: with
        weights of 8 bits.

        Returns a text for a text and a list for a list; with `nbest` above 1, lists of texts.
        """
        from .core.config import validate
        from .decode.options import DecodeSettings

        checked = validate(DecodeSettings, options, "the options of generate")
        prompts = [prompt] if isinstance(prompt, str) else prompt
        run = self.int8 if int8 else self
        found = [[one.text for one in answers] for answers in run.generations(prompts, checked)]
        answers = [texts if checked.nbest > 1 else texts[0] for texts in found]
        return answers[0] if isinstance(prompt, str) else answers

    def generations(self, prompts: list[str], options: Any) -> list[list[Generation]]:
        """The same with scores and lengths."""
        found: list[list[Generation]] = self._ask("generate")(prompts, options)
        return found

    def score(self, text: Any, target: str | None = None) -> Score:
        """The log-probability of a text, its perplexity, and those of its pieces; for a translator, of a target, and
        for a captioner, of a caption of a picture."""
        ask = self._ask("score")
        describes = "caption" in self.predictor.questions
        if (describes or "translate" in self.predictor.questions) == (target is None):
            both = "a picture and a caption" if describes else "a source and a target"
            takes = "a text" if target is not None else both
            cause = f"{self.path}: a model of the task {self.config.task.name} scores {takes}"
            raise SeriatimError("score.input", cause, f"give {takes}")
        found: Score = ask(text) if target is None else ask(text, target)
        return found

    def translate(self, text: str | list[str], **options: Any) -> Any:
        """Translates a text, or a list of them; options are those of `TranslateSettings`.

        Returns a text for a text and a list for a list; with `nbest` above 1, lists of texts.
        """
        from .core.config import validate
        from .decode.options import TranslateSettings

        checked = validate(TranslateSettings, options, "the options of translate")
        texts = [text] if isinstance(text, str) else text
        found = [[one.text for one in answers] for answers in self.translations(texts, checked)]
        answers = [one if checked.nbest > 1 else one[0] for one in found]
        return answers[0] if isinstance(text, str) else answers

    def translations(self, texts: list[str], options: TranslateSettings | None = None) -> list[list[Translation]]:
        """The same with scores, tokens and, where asked for, alignments; best first."""
        from .decode.options import TranslateSettings

        ask = self._ask("translate")
        found: list[list[Translation]] = ask(texts, TranslateSettings() if options is None else options)
        return found

    def caption(self, picture: Any, **options: Any) -> Any:
        """Says what is to be seen in a picture (a file, or an array (H,W[,C]) of 8 bits), or in each of a list; options
        are those of `TranslateSettings`.

        Returns a text for a picture and a list for a list; with `nbest` above 1, lists of texts.
        """
        from .core.config import validate
        from .decode.options import TranslateSettings

        checked = validate(TranslateSettings, options, "the options of caption")
        several = isinstance(picture, list | tuple)
        found = [[one.text for one in some] for some in self.captions(picture if several else [picture], checked)]
        answers = [one if checked.nbest > 1 else one[0] for one in found]
        return answers if several else answers[0]

    def captions(self, pictures: Sequence[Any], options: TranslateSettings | None = None) -> list[list[Caption]]:
        """The same with scores, tokens and, where asked for, where each word looked; best first."""
        found: list[list[Caption]] = self._ask("caption")(pictures, options)
        return found

    def answer(
        self, passage: str, question: str | Sequence[str], nbest: int = 1, threshold: float | None = None
    ) -> Any:
        """Answers a question about a passage, or a list of them, by a part of it: an `Answer` with text, start, end,
        score and probability, and passage[start:end] is the text. "" says that there is no answer.

        Returns an answer for a question and a list for a list; with `nbest` above 1, lists of answers, best first.
        """
        questions = [question] if isinstance(question, str) else question
        found: list[list[Answer]] = self._ask("answer")(passage, questions, nbest, threshold)
        answers = [some if nbest > 1 else some[0] for some in found]
        return answers[0] if isinstance(question, str) else answers

    def alignment(self, source: str, target: str | None = None) -> Looked:
        """Where each token of a target (by default, of the translation) looked in its source."""
        found: Looked = self._ask("alignment")(source, target)
        return found

    def together(self, *others: Run) -> Run:
        """This run and others as one translator: the mean of their probabilities decides. One vocabulary for all."""
        own = self._ask("together")
        for other in others:
            other._ask("together")
            if not self.predictor.coder.same(other.predictor.coder):
                cause = f"{other.path} has other vocabularies than {self.path}"
                raise SeriatimError("run.vocabulary", cause, "train both on the same data with the same tokenizer")
        joined = Run(self.path)
        joined.predictor = own([other.predictor for other in others])
        return joined

    def predict(self, inputs: Any) -> Any:
        """Answers for a list of inputs, each a dictionary; for a single text, or two texts that are one input, its
        answer alone."""
        single = isinstance(inputs, str) or (
            _two_texts(inputs) and getattr(self.predictor, "pairs", False) is not False
        )
        found: list[dict[str, Any]] = self._ask("predict")([inputs] if single else inputs)
        return found[0] if single else found

    def predict_file(self, source: str | Path, data_dir: str | None = None, column: str | None = None) -> Table:
        """A table with a row for each row of a file; `column` is where the inputs stand in it."""
        answer = self._ask("predict_file")
        if column is not None:
            answer = self._open(self.named(column=column)).predict_file
        found: Table = answer(str(source), data_dir)
        return found

    def named(self, **columns: str | None) -> Config:
        """The configuration with other names of columns, for another file."""
        given = {name: value for name, value in columns.items() if value is not None}
        if strange := [name for name in given if name not in type(self.config.data).model_fields]:
            raise SeriatimError(
                "data.column", f"the task {self.config.task.name} knows no --{strange[0]}", "leave it away"
            )
        return self.config.model_copy(update={"data": self.config.data.model_copy(update=given)})

    @cached_property
    def _reader(self) -> Reader:
        from .tasks._readers import reader

        return reader(self.predictor, f"{self.path}: a model of the task {self.config.task.name}")

    def embedder(self, pooling: str = "mean", normalise: bool = True) -> Embedder:
        """What makes vectors of texts, for more of them than fit into memory: `embedder(some)`, as often as needed."""
        from .tasks._vectors import Embedder

        return Embedder(self._reader, pooling, normalise)

    def embed(
        self,
        texts: str | Sequence[str],
        pooling: str = "mean",
        normalise: bool = True,
        notify: Callable[[str], None] | None = None,
    ) -> np.ndarray:
        """The vectors of texts (n,D), of length 1 where they are to be normalised; for a single text, its vector (D,).

        `pooling` is mean, max, last or, for a model that sets [CLS] before a text, cls.
        """
        embedder = self.embedder(pooling, normalise)
        return embedder.answer(texts, notify)

    def nearest(
        self,
        text: str | Sequence[str] | None,
        among: Iterable[str] | Vectors,
        top: int = 5,
        pooling: str | None = None,
        notify: Callable[[str], None] | None = None,
    ) -> Any:
        """The texts whose vectors have the largest cosine with that of a text: a list of neighbours, nearest first. For
        several texts a list of lists; for None, each of the texts with a list of the others.

        `among` is read in parts, so it may be larger than the memory; it may be a file of vectors that was written
        before (`data.vector_files.stored`).
        """
        from .tasks._neighbours import search

        return search(self.embedder, text, among, top, pooling, notify, lambda: self.identity)

    @cached_property
    def identity(self) -> str:
        """Of the weights: another model has another."""
        from .core.files import sha256

        return sha256(self.path / "model.safetensors")

    def words(self, word: str, texts: Sequence[str], normalise: bool = True, strict: bool = True) -> WordVectors:
        """A word in sentences: its vector in each of them, and the one it has by itself. A sentence without it is an
        error, or left out where not strict."""
        from .tasks._vectors import words

        return words(self._reader, word, texts, normalise, strict)

    def compose(
        self, out: str | Path, frames: int = 200, temperature: float = 1.0, seed: int = 0, opening: Path | None = None
    ) -> None:
        """Writes music as a MIDI file; it goes on from `opening`, another such file."""
        self._ask("compose")(Path(out), frames, temperature, seed, opening)

    @property
    def inspect(self) -> Inspector:
        """Looks inside: `run.inspect.attention("text")`, and whatever else `run.inspect.offered()` lists."""
        from .inspect import Inspector

        return Inspector(self)

    def plot(self) -> Any:
        """The curves of the training as an Altair chart."""
        from .report.charts import curves

        return curves([self])


def _two_texts(inputs: Any) -> bool:
    return isinstance(inputs, tuple) and len(inputs) == 2 and all(isinstance(text, str) for text in inputs)


def list_runs(folder: str | Path = "runs") -> list[Run]:
    """The runs in a folder and in the comparisons within it, newest first."""
    folder = Path(folder)
    configs = [*folder.glob("*/config.yaml"), *folder.glob("*/*/config.yaml")] if folder.is_dir() else []
    return [Run(file.parent) for file in sorted(configs, key=lambda file: -file.stat().st_mtime)]


def fresh_folder(base: str | Path, stem: str) -> Path:
    """runs/stem, or runs/stem-2, … where that exists."""
    base = Path(base)
    names = [stem, *(f"{stem}-{number}" for number in range(2, 10_000))]
    return next(base / name for name in names if not (base / name).exists())
