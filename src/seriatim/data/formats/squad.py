"""SQuAD: questions about the paragraphs of articles, in one JSON file of version 1.1 or 2.0.

{"data": [{"title": "…", "paragraphs": [{"context": "…", "qas": [
    {"id": "…", "question": "…", "answers": [{"text": "…", "answer_start": 34}], "is_impossible": false}]}]}]}
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from ...core.errors import Diagnostics, SeriatimError
from ..kinds import Cell
from ..source import Source
from ..stream import Location, parse_json
from .base import Format, ReadOptions, Record

MEMBERS = re.compile(r'"(?:data|paragraphs)"\s*:')
FORM = 'SQuAD is {"data": [{"paragraphs": [{"context": "…", "qas": […]}]}]}'


class Squad(Format):
    """SQuAD files; a record per question, located by its path such as data[0].paragraphs[2].qas[1]."""

    def sniff(self, source: Source) -> bool:
        heads = [stream.read_head().lstrip("\ufeff \r\n\t") for stream in source.streams if stream.extension == "json"]
        return (
            bool(heads)
            and len(heads) == len(source.streams)
            and all(head.startswith("{") and MEMBERS.search(head) for head in heads)
        )

    def usable(self, options: ReadOptions) -> bool:
        return not options.header_names or "context" in options.header_names

    def records(self, source: Source, options: ReadOptions, diagnostics: Diagnostics) -> Iterator[Record]:
        for stream in source.streams:
            try:
                document = parse_json(stream.read_text(options.encoding))
            except json.JSONDecodeError as error:
                cause = f"{stream.name}, line {error.lineno}, column {error.colno}: invalid JSON ({error.msg})"
                raise SeriatimError("data.json", cause, f"correct the file; {FORM}") from None
            except ValueError as error:
                raise SeriatimError("data.json", f"{stream.name}: {error}", FORM) from None
            questions = self._questions(stream.name, document, diagnostics)
            for number, (values, path) in enumerate(questions, 1):
                yield Record(values, Location(stream.name, number, "question", path))

    def _questions(
        self, file: str, document: object, diagnostics: Diagnostics
    ) -> Iterator[tuple[dict[str, Cell], str]]:
        """Yields the columns of each question and its path; members that are missing or wrong are reported."""

        def member(record: object, name: str, kind: type, path: str) -> Any:
            """Returns a member of a record, or None with a report if it is missing or of another type."""
            if not isinstance(record, dict):
                problem = f"{shorten(record)}, not an object"
            elif name not in record:
                problem = f'has no "{name}"; it has: {", ".join(list(record)[:10]) or "nothing"}'
            elif not isinstance(record[name], kind):
                problem = f'"{name}" is {shorten(record[name])}, not {"a list" if kind is list else "a text"}'
            else:
                return record[name]
            diagnostics.report("data.questions", f"{file}{', ' if path else ''}{path}: {problem}", FORM)
            return None

        for a, article in enumerate(member(document, "data", list, "") or []):
            article_path = f"data[{a}]"
            title = article.get("title") if isinstance(article, dict) else None
            for p, paragraph in enumerate(member(article, "paragraphs", list, article_path) or []):
                paragraph_path = f"{article_path}.paragraphs[{p}]"
                context = member(paragraph, "context", str, paragraph_path)
                questions = member(paragraph, "qas", list, paragraph_path) if isinstance(paragraph, dict) else None
                for q, question in enumerate(questions or [] if context is not None else []):
                    path = f"{paragraph_path}.qas[{q}]"
                    text = member(question, "question", str, path)
                    if text is None:
                        continue
                    values = {"question": text, "context": context, "answers": question.get("answers")}
                    values |= {"id": question.get("id"), "title": title or article_path}
                    if "is_impossible" in question:  # version 2.0
                        values["is_impossible"] = bool(question["is_impossible"])
                    yield values, path


def shorten(value: object) -> str:
    """Returns a value as JSON of at most 60 characters, for messages."""
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= 60 else text[:59] + "…"
