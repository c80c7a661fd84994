"""Tag every word of a sentence: parts of speech, named entities, any symbol for each step.

    p(tag of word t) = softmax(W h_t + b)        h = backbone([word vectors; character features])

Trained by cross-entropy over the words, bidirectionally if the model can. If the tags mark entities (BIO and similar
schemes), the metric is the F1 of whole entities, as conlleval and the default mode of seqeval count them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ...core import registry
from ...core.config import Settings
from ...core.errors import Diagnostics
from ...core.metrics import ExampleScores, MetricValues
from ...core.state import State
from ...data.dataset import Dataset
from ...data.entities import EntityScore, find_spans, score_entities
from ...data.formats.conll import Conll, append_column
from ...data.kinds import NUMBERS, TOKENS, Kind
from ...data.sequences import Sequences
from ...nn.backbone import BackboneSettings
from ...nn.layers import KERNEL, PADDING, WordInput
from ...nn.loss import distillation_loss
from ...nn.network import Network, StepHead, as_float32, assemble
from ...report.charts import Bars, Confusion, Span, SpanText, Table, TokenStrip, View
from ..base import IGNORED, Metrics, Output, Task
from ..batching import Batch, evenly_spaced, padding_mask
from ..embedding import EmbeddingPredictor, EncodedTexts, TextReader, no_vectors
from ..inspection import ExplainedOutput, Explainer, check_position, explain_label, log_odds
from ..metrics import class_counts, confusion, precision_recall_f1
from ..predictor import Predictions, Predictor, Record, Usage, capability
from ..processor import Encoded, Values, name_mismatches
from .processor import GENERATED, SCHEMA, UNSEEN, Consecutive, TagEncoded, TagProcessor, TagSettings

__all__ = ["TagPredictor", "TagProcessor", "TagSettings", "TagTask"]

NO_WORD = "\ufffd"  # what a text without a word is read as
SAMPLED_WORDS = 30  # of a sentence in a sample
ENTITIES = Kind("list of entities", list)
SAMPLED_SENTENCES = 3
MAX_MISTAKES = 20
CONTEXT_WORDS = 8  # shown on each side of a mistake
MAX_CONFUSION = 60  # tags of a confusion matrix that can still be read
EXAMPLES = 10  # sentences with entities
MAX_CHARTED = 20  # predictions in charts


class WordReader(TextReader):
    """Reads texts as words, each as its tokens and perhaps its characters; of a long text the first window."""

    predictor: TagPredictor

    def encode(self, texts: Sequence[str]) -> EncodedTexts:
        processor = self.predictor.processor
        words = [processor.split_words(text)[0] or [NO_WORD] for text in texts]
        windows = processor.cut_windows(processor.encode_words(words))
        _, first, counts = np.unique(cast(np.ndarray, windows.rows), return_index=True, return_counts=True)
        elements = (windows.tagged_words, windows.element_forms)
        tagged, forms = (Sequences(values, windows.inputs.ends).take(first).values for values in elements)
        chosen = replace(
            windows, inputs=windows.inputs.take(first), rows=None, tagged_words=tagged, element_forms=forms
        )
        return EncodedTexts(chosen, int((counts > 1).sum()))

    def spans(self, text: str) -> tuple[EncodedTexts, np.ndarray]:
        processor, encoded = self.predictor.processor, self.encode([text])
        words, characters = processor.split_words(text)
        tagged = processor.encode_words([words or [NO_WORD]]).tagged_words
        word_of = np.maximum.accumulate(tagged)  # a token belongs to the word that began last
        offsets = np.zeros((len(encoded.encoded.inputs[0]), 2), np.int64)
        before, count = int(processor.framed), len(offsets) - 2 * processor.framed
        offsets[before : before + count] = np.array(characters or [(0, 0)])[word_of[:count]]
        return encoded, offsets

    def batch(self, encoded: Encoded, items: np.ndarray) -> Batch:
        return self.predictor.task.collate(cast(TagEncoded, encoded), items)


class TagPredictor(EmbeddingPredictor):
    task: TagTask
    processor: TagProcessor
    file_extensions = (".conll", ".conllu")

    @capability(outputs={"tags": TOKENS, "words": TOKENS, "confidence": NUMBERS, "entities": ENTITIES})
    def tag(self, dataset: Dataset, options: Settings) -> list[Record]:
        """Predict the tag of each word, and the entities that the tags mark."""
        encoded = self.task.encode(dataset)
        best, confidence = self.predict_words(encoded)
        records = []
        for cell, (first, end) in zip(dataset["tokens"], encoded.bounds, strict=True):
            words, characters = self.processor.split_words(cell)
            tags = [self.processor.tags[index] for index in best[first:end].tolist()]
            rounded = [round(value, 6) for value in confidence[first:end].tolist()]
            record: Record = {"tags": tags, "words": words, "confidence": rounded}
            if self.processor.scheme != "none":
                record["entities"] = [
                    describe_entity(kind, start, stop, words, cell, characters)
                    for kind, start, stop in find_spans(tags)
                ]
            records.append(record)
        return records

    def predict_words(self, encoded: TagEncoded) -> tuple[np.ndarray, np.ndarray]:
        """Returns the best tag of every word (words,) and its probability (words,)."""
        words = encoded.item_words(np.arange(len(encoded)))
        best = np.zeros(len(encoded.word_forms), dtype=np.int64)
        confidence = np.zeros(len(encoded.word_forms), dtype=np.float64)
        if len(words):
            scores = torch.from_numpy(np.concatenate(self.scores(encoded)))  # (words,tags)
            highest = scores.softmax(dim=-1).max(dim=-1)
            best[words], confidence[words] = highest.indices.numpy(), highest.values.numpy()
        return best, confidence

    def text_reader(self) -> TextReader:
        if self.processor.tokenizer is None:
            raise no_vectors(self, "reads symbols, not text")
        return WordReader(self, self.processor.tokenizer, self.processor.max_length)

    def element_names(self, encoded: TagEncoded, item: int) -> list[str]:
        tokenizer, tokens = self.processor.tokenizer, encoded.inputs[item].tolist()
        if tokenizer is None:
            return [self.processor.symbols[symbol] for symbol in tokens]
        return [tokenizer.token(token) for token in tokens]

    def explainer(self) -> Explainer | None:
        return None if self.processor.tokenizer is None else self.explain_word

    def explain_word(
        self, encoded: TagEncoded, item: int, output: Tensor, target: str | None, position: int | None
    ) -> ExplainedOutput:
        """Returns the log-odds of a tag of a word: by default of the predicted tag of the first word."""
        tags, ends = self.processor.tags, encoded.inputs.ends
        tagged = Sequences(encoded.tagged_words, ends)[item]
        elements = np.flatnonzero(tagged >= 0)
        number = check_position(0 if position is None else position, len(elements))
        element = int(elements[number])
        word = encoded.forms[encoded.word_forms[tagged[element]]]
        index, prediction = explain_label(tags, output[0, element].softmax(dim=-1), target)
        name = f'the log-odds of {tags[index]} for word {number}, "{word}"'
        return ExplainedOutput(name, lambda scores: log_odds(scores[:, element], index), prediction)

    def charts(self, name: str, dataset: Dataset, options: Settings, predictions: Sequence[Record]) -> list[View]:
        """Returns a table of sentences with their entities, or strips of words with the confidence of their tags."""
        shown = [record for record in predictions[:MAX_CHARTED] if record["words"]]
        if any("entities" in record for record in shown):
            rows = tuple((highlight(record["words"], record["tags"], record["tags"]),) for record in shown)
            return [Table(title="Entities", columns=("sentence",), rows=rows)]
        return [
            TokenStrip(
                title="Tags",
                tokens=tuple(f"{word}/{tag}" for word, tag in zip(record["words"], record["tags"], strict=True)),
                values=tuple(record["confidence"]),
                label="confidence",
                low=0.0,
                high=1.0,
            )
            for record in shown
        ]

    def format_file(self, extension: str, predictions: Predictions) -> str:
        """Returns the lines of a CoNLL file with one more column; other inputs as words, tags and confidences."""
        source = predictions.source
        column = "prediction" if predictions and "prediction" in predictions[0] else "tags"
        if source is not None and Conll().sniff(source):
            tags = (tag for record in predictions for tag in record[column])
            return append_column(source, tags, self.task.config.data.read_options())
        blocks = (
            "".join(f"{word}\t{tag}\t{confidence}\n" for word, tag, confidence in zip(*columns, strict=True))
            for record in predictions
            for columns in [(record["words"], record[column], record["confidence"])]
        )
        return "\n".join(blocks)

    def usage(self, run: str) -> list[Usage]:
        return [
            Usage(f'seriatim tag {run} "They live in Oslo."', 'print(run.tag("They live in Oslo.")["tags"])'),
            Usage(
                f"seriatim tag {run} --data new.conll --out tagged.conll",
                'print(run.tag([["They", "live", "in", "Oslo", "."]]).to_frame())',
            ),
        ]


def describe_entity(
    kind: str, first: int, end: int, words: list[str], sentence: str, characters: list[tuple[int, int]]
) -> Record:
    """Returns an entity with its words, and its characters (start, end) in a sentence that is a text."""
    if not characters:
        return {"type": kind, "text": " ".join(words[first:end]), "first": first, "last": end - 1}
    start, stop = characters[first][0], characters[end - 1][1]
    entity = {"type": kind, "text": sentence[start:stop], "first": first, "last": end - 1}
    return entity | {"start": start, "end": stop}


class TagTask(Task[TagEncoded]):
    name = "tag"
    schema = SCHEMA
    split_policy = Consecutive()
    default_fractions = (0.9, 0.05, 0.05)
    settings_type = TagSettings
    processor_type = TagProcessor
    predictor_type = TagPredictor
    monitor = "error"
    unit = "words"
    default_model = "lstm"
    default_model_reason = "a bidirectional LSTM with character features tags well after minutes on a CPU"
    hub_head = "token-classification"
    processor: TagProcessor

    @classmethod
    def model_defaults(cls, values: Values) -> Values:
        """Both directions, each half as wide, since a tag depends on later words, too; dropout for small treebanks.

        The generated sets test causal models and never lack examples.
        """
        if str(values["data"]["source"]).partition(":")[0] in GENERATED:
            return {}
        fields = registry.models.load(str(values["model"]["name"])).Settings.model_fields
        bidirectional = "bidirectional" in fields and values["model"].get("bidirectional", True)
        return {"bidirectional": True, "dropout": 0.2, **({"width": 128} if bidirectional else {})}

    def note_encoded(self, split: str, encoded: TagEncoded) -> None:
        """Notes windows, and outside of training unknown words and tags that no prediction can match."""
        processor, note = self.processor, self.diagnostics.note
        windowed = int((np.bincount(encoded.rows) > 1).sum()) if encoded.rows is not None else 0
        if windowed:
            size = processor.max_length
            note(f"{split}: {windowed:,} sequences are read in windows of {size}, which overlap by half")
        if split == "train":
            return
        tokenizer = processor.tokenizer
        if tokenizer is not None and tokenizer.kind == "word":
            share = float((encoded.inputs.values == tokenizer.unk).mean())
            note(f"{split}: {100 * share:.1f} % of the words are not in the vocabulary")
        unseen = np.flatnonzero(encoded.targets == UNSEEN)
        if len(unseen) and encoded.references is not None:
            sentence, position = encoded.locate(int(unseen[0]))
            tag = encoded.references[sentence][position]
            location = self.datasets[split].locations[sentence].element(position)
            words = "1 word has a tag" if len(unseen) == 1 else f"{len(unseen):,} words have tags"
            note(
                f'{split}: {words} that the training split does not have, such as "{tag}" ({location}): '
                "always counted as wrong"
            )

    # Network

    def network(self, model: BackboneSettings) -> Network:
        processor, tokenizer = self.processor, self.processor.tokenizer
        module: nn.Module
        if tokenizer is None:
            module = model.token_input(len(processor.symbols))
            width = module.embedding_dim
        elif processor.framed:
            module = model.token_input(tokenizer.vocab_size, tokenizer.sep)
            width = module.embedding_dim
        else:
            unknown = 0 if tokenizer.unk is None else tokenizer.unk
            words = model.token_input(tokenizer.vocab_size)
            module = WordInput(
                words, processor.character_count, processor.character_features, self.settings.word_dropout, unknown
            )
            width = module.width
        return assemble(
            model, module, width, processor.longest, lambda backbone: StepHead(backbone.width, len(processor.tags))
        )

    def collate(self, encoded: TagEncoded, items: np.ndarray) -> Batch:
        """Returns token ids (B,T); with character features also distinct words (B,T) and their characters (words,L).

        Targets (B,T) are tags; IGNORED where no word is tagged, UNSEEN where the tag is not known.
        """
        ends = encoded.inputs.ends
        tokens, mask = encoded.inputs.padded(items)
        words, _ = Sequences(encoded.tagged_words, ends).padded(items, fill=-1)
        targets = np.where(words >= 0, UNSEEN if encoded.targets is None else encoded.targets[words], IGNORED)
        inputs: Any = torch.from_numpy(tokens)
        if self.processor.character_features:
            forms, _ = Sequences(encoded.element_forms, ends).padded(items)
            distinct, index = np.unique(forms, return_inverse=True)
            characters = encoded.characters[distinct]
            characters = characters[:, : max(int((characters != PADDING).any(axis=0).sum()), KERNEL)]
            inputs = (inputs, torch.from_numpy(index.reshape(tokens.shape)), torch.from_numpy(characters))
        return Batch(inputs, torch.from_numpy(targets), int((targets >= 0).sum()), padding_mask(mask))

    def forward(self, network: Network, batch: Batch, state: State = None) -> Output:
        """Returns the scores (words,tags) of the words that are tagged in the batch."""
        hidden, _, _ = network.head_input(batch.inputs, batch.mask)
        vectors = hidden[batch.targets != IGNORED]
        return Output(as_float32(network.head(vectors)), vectors)

    def loss(self, output: Output, batch: Batch, smoothing: float = 0.0) -> Tensor:
        targets = batch.targets[batch.targets != IGNORED]
        return F.cross_entropy(output.scores, targets, reduction="sum", label_smoothing=smoothing, ignore_index=UNSEEN)

    def distillation_loss(self, output: Output, teacher: Output, temperature: float) -> Tensor:
        return distillation_loss(output.scores, teacher.scores, temperature)

    def teacher_mismatches(self, teacher: Predictor) -> list[str]:
        return name_mismatches(self.processor.tags, cast(TagProcessor, teacher.processor).tags, "tag")

    # Evaluation

    def unbatch(self, output: Output, batch: Batch) -> Sequence[np.ndarray]:
        counts = (batch.targets != IGNORED).sum(dim=1).tolist()
        return [scores.cpu().numpy() for scores in output.scores.split(counts)]

    def metrics(self, network: nn.Module, split: str, items: np.ndarray, scores: Sequence[np.ndarray]) -> Metrics:
        encoded = self.encoded[split]
        predictions = np.concatenate([window.argmax(axis=-1) for window in scores])
        return self._word_metrics(encoded, encoded.item_words(items), predictions)

    def _word_metrics(self, encoded: TagEncoded, words: np.ndarray, predictions: np.ndarray) -> Metrics:
        """Returns the metrics of the predicted tags (n,) of words (n,), which are whole sentences."""
        correct = encoded.targets[words] == predictions
        accuracy = float(correct.mean())
        metrics, error = {"accuracy": accuracy}, 1 - accuracy
        sentences = np.searchsorted([end for _, end in encoded.bounds], words, side="right")
        counts = [np.bincount(sentences, weights, len(encoded.bounds)) for weights in (correct, np.ones(len(words)))]
        examples = {"accuracy": ExampleScores("ratio", np.stack(counts, axis=1).astype(np.float32))}
        if self.processor.scheme != "none":
            pairs = zip(*self.tag_pairs(encoded, words, predictions), strict=True)
            scores = [score_entities([reference], [predicted])[0] for reference, predicted in pairs]
            by_sentence = np.array([(s.correct, s.predicted, s.reference) for s in scores], np.float32).reshape(-1, 3)
            score = EntityScore(*by_sentence.sum(axis=0, dtype=np.float64).astype(int).tolist())
            metrics |= {"precision": score.precision, "recall": score.recall, "f1": score.f1}
            examples["f1"] = ExampleScores("f1", by_sentence)
            error = 1 - score.f1
        return MetricValues(metrics | {"error": error, "words": float(len(words))}, examples=examples)

    def tag_pairs(
        self, encoded: TagEncoded, words: np.ndarray, predictions: np.ndarray
    ) -> tuple[list[list[str]], list[list[str]]]:
        """Returns the reference and the predicted tags of the sentences that these words make up."""
        tags, best = self.processor.tags, np.full(len(encoded.word_forms), IGNORED)
        best[words] = predictions
        bounds = [
            (sentence, first, end)
            for sentence, (first, end) in enumerate(encoded.bounds)
            if end > first and best[first] != IGNORED
        ]
        references = [(encoded.references or [])[sentence] for sentence, _, _ in bounds]
        return references, [[tags[index] for index in best[first:end].tolist()] for _, first, end in bounds]

    def baselines(self, split: str) -> dict[str, Metrics]:
        """Each word has its most frequent tag of the training split, a new word the most frequent of all tags."""
        if "train" not in self.encoded:
            return {}
        train, encoded, size = self.encoded["train"], self.encoded[split], len(self.processor.tags)
        pairs = train.word_forms * size + train.targets
        counts = np.bincount(pairs, minlength=len(train.forms) * size).reshape(-1, size)
        totals = counts.sum(axis=0)
        best = (counts + totals / (1 + totals.sum())).argmax(axis=1)  # of equal ones the more frequent tag
        indices = {form: index for index, form in enumerate(train.forms)}
        forms = np.array([indices.get(form, -1) for form in encoded.forms], dtype=np.int64)[encoded.word_forms]
        predictions = np.where(forms >= 0, best[forms], totals.argmax())
        words = np.arange(len(predictions))
        return {"most frequent tag of the word": self._word_metrics(encoded, words, predictions)}

    def views(self, predictor: Predictor, split: str) -> list[View]:
        encoded, rows, tags = self.encoded[split], self.datasets[split], self.processor.tags
        best, confidence = TagPredictor(self, predictor.network).predict_words(encoded)
        views: list[View] = []
        if self.processor.scheme != "none":
            views += entity_views(tags, encoded, rows, best)
        known = encoded.targets >= 0
        counts = class_counts(best[known], encoded.targets[known], len(tags))
        scores = (*precision_recall_f1(*counts), counts[2])
        cells = zip(tags, *(column.tolist() for column in scores), strict=True)
        columns = ("tag", "precision", "recall", "f1", "words")
        views.append(Table(title="Scores by tag", columns=columns, rows=tuple(cells)))
        if len(tags) <= MAX_CONFUSION:
            matrix = confusion(encoded.targets[known], best[known], len(tags)).tolist()
            views.append(Confusion(title="Confusion of tags", labels=tags, counts=tuple(map(tuple, matrix))))
        if self.processor.tokenizer is None:
            return views
        if "train" in self.encoded:
            views.append(known_words(encoded, best, set(self.encoded["train"].forms)))
        return [*views, *mistakes(tags, encoded, rows, best, confidence)]

    def sample(self, network: nn.Module) -> str:
        """Returns sentences of the validation split with their tags, wrong ones with the reference."""
        rows = self.datasets["validation"]
        sampled = rows.take(evenly_spaced(len(rows), SAMPLED_SENTENCES))
        encoded = self.processor.encode(sampled, Diagnostics())
        best, _ = self.predictor_type(self, network.eval()).predict_words(encoded)
        lines = []
        for (first, end), references in zip(encoded.bounds, encoded.references or [], strict=True):
            words = []
            for word in range(first, min(end, first + SAMPLED_WORDS)):
                tag, reference = self.processor.tags[best[word]], references[word - first]
                form = encoded.forms[encoded.word_forms[word]]
                words.append(f"{form}/{tag}" + ("" if tag == reference else f" (is {reference})"))
            lines.append(" ".join(words) + (" …" if end - first > SAMPLED_WORDS else ""))
        return "\n".join(lines)


# Charts and tables


def entity_views(tags: Sequence[str], encoded: TagEncoded, dataset: Dataset, best: np.ndarray) -> list[View]:
    """Returns the scores of entities by type, and sentences with their entities."""
    references = encoded.references or []
    predictions = [[tags[index] for index in best[first:end].tolist()] for first, end in encoded.bounds]
    total, types = score_entities(references, predictions)

    def cells(name: str, score: EntityScore) -> tuple[str, float, float, float, int]:
        return name, score.precision, score.recall, score.f1, score.reference

    table = Table(
        title="Entities by type",
        note="An entity is correct if its type, its first and its last word are.",
        columns=("type", "precision", "recall", "f1", "entities"),
        rows=(*(cells(name, score) for name, score in types.items()), cells("all", total)),
    )
    views: list[View] = [table]
    if types:
        scores = tuple(score.f1 for score in types.values())
        views.append(Bars(title="F1 by entity type", labels=tuple(types), values=scores, x="F1", metric="f1"))
    examples: list[tuple[str, SpanText, SpanText]] = []
    for row, (first, end) in enumerate(encoded.bounds):
        if len(examples) == EXAMPLES:
            break
        if find_spans(references[row]):
            words = [encoded.forms[form] for form in encoded.word_forms[first:end].tolist()]
            examples.append(
                (
                    str(dataset.locations[row]),
                    highlight(words, predictions[row], references[row]),
                    highlight(words, references[row], references[row]),
                )
            )
    if examples:
        columns = ("location", "prediction", "reference")
        views.append(Table(title="Sentences with their entities", columns=columns, rows=tuple(examples)))
    return views


def highlight(words: Sequence[str], tags: Sequence[str], references: Sequence[str]) -> SpanText:
    """Returns a sentence with its entities highlighted; those that are not in the reference are marked wrong."""
    starts = np.cumsum([0, *(len(word) + 1 for word in words)]).tolist()
    expected = set(find_spans(references))
    spans = [
        Span(starts[first], starts[end] - 1, kind, (kind, first, end) not in expected)
        for kind, first, end in find_spans(tags)
    ]
    return SpanText(" ".join(words), tuple(spans))


def known_words(encoded: TagEncoded, best: np.ndarray, train_forms: set[str]) -> Table:
    """Returns the accuracy on words that occur in the training split and on new ones."""
    known = np.array([form in train_forms for form in encoded.forms], dtype=bool)[encoded.word_forms]
    correct = encoded.targets == best
    rows = tuple(
        (name, float(correct[mask].mean()) if mask.any() else None, int(mask.sum()))
        for name, mask in (("in the training split", known), ("new", ~known))
    )
    return Table(title="Known and new words", columns=("words", "accuracy", "number"), rows=rows)


def mistakes(
    tags: tuple[str, ...], encoded: TagEncoded, dataset: Dataset, best: np.ndarray, confidence: np.ndarray
) -> list[View]:
    """Returns a table of the wrong predictions with the highest confidence, with the words around them."""
    wrong = np.flatnonzero(encoded.targets != best)
    rows = []
    for word in wrong[np.argsort(-confidence[wrong], kind="stable")][:MAX_MISTAKES].tolist():
        sentence, position = encoded.locate(word)
        first, end = encoded.bounds[sentence]
        forms = [encoded.forms[form] for form in encoded.word_forms[first:end].tolist()]
        start = max(position - CONTEXT_WORDS, 0)
        shown = forms[start : position + 1 + CONTEXT_WORDS]
        begin = len(" ".join([*shown[: position - start], ""]))
        text = SpanText(" ".join(shown), (Span(begin, begin + len(forms[position]), wrong=True),))
        reference = (encoded.references or [])[sentence][position]
        location = str(dataset.locations[sentence].element(position))
        rows.append((location, text, reference, tags[int(best[word])], round(float(confidence[word]), 3)))
    columns = ("location", "words", "reference", "prediction", "confidence")
    return [Table(title="Most confident mistakes", columns=columns, rows=tuple(rows))] if rows else []
