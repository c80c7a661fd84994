"""The task tag: network, loss, evaluation and what a report shows.

    p(tag of word t) = softmax(W h_t + b)        h = backbone([word vectors; character features])

Trained by cross-entropy over the words, bidirectionally if the model can. With a conditional random field
(`task.crf=true`) the tags of a sentence are predicted together:

    p(tags) ∝ exp(Σ_t (W h_t + b)_{tag_t} + Σ_t transition(tag_{t−1}, tag_t))

If the tags mark entities (BIO and similar schemes), sequences that are not well-formed have the probability 0, and the
metric is the F1 of whole entities, as conlleval and the default mode of seqeval count them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple, Self, cast

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ...core import registry
from ...core.config import Settings
from ...core.errors import Diagnostics, SeriatimError
from ...core.metrics import ExampleScores
from ...core.state import State
from ...core.text import evenly_spaced, plural
from ...data.dataset import Dataset
from ...data.entities import OUTSIDE, EntityScore, allowed_transitions, find_spans, score_entities
from ...data.formats.conll import Conll, append_column
from ...data.sequences import Sequences
from ...data.split import Contiguous
from ...embedding.reader import EncodedTexts, TextReader
from ...nn.backbone import Backbone, BackboneSettings
from ...nn.crf import Chain, CrfHead, divergence, log_likelihood, marginals
from ...nn.layers import KERNEL, PADDING, WordInput
from ...nn.loss import distillation_loss
from ...nn.network import Network, StepHead, as_float32, assemble
from ...nn.settings import ModelSettings
from ...report.charts import Confusion, Table, TokenStrip, View
from ..base import (
    IGNORED,
    SAMPLED_SIZE,
    Batch,
    Evaluation,
    Metrics,
    Output,
    Progress,
    Split,
    Splits,
    Task,
    padding_mask,
)
from ..capability import Call, Record, capability
from ..inspection import ExplainedOutput, Explainer, check_position, explain_label, log_odds
from ..metrics import class_counts, confusion, precision_recall_f1
from ..predictor import Predictions, Predictor, Usage
from ..processor import Values, name_mismatches
from ..text_predictor import EmbeddingPredictor, no_vectors
from ..values import spaced_rows
from .decoding import chain_log_odds, decode_words, element_chain, entity_offset, pad_rows
from .processor import GENERATED, UNSEEN, TagEncoded, TagProcessor
from .spec import SPEC, TAG, TagSettings
from .views import entity_views, highlight, known_words, mistakes

__all__ = ["TagPredictor", "TagProcessor", "TagSettings", "TagTask"]

NO_WORD = "\ufffd"  # what a text without a word is read as
SAMPLED_WORDS = 30  # of a sentence in a sample
SAMPLED_SENTENCES = 3
MAX_CONFUSION = 60  # tags of a confusion matrix that can still be read
MAX_CHARTED = 20  # predictions in charts


class WordReader(TextReader):
    """Reads texts as words, each as its tokens and perhaps its characters; of a long text the first window."""

    model: TagPredictor

    def encode(self, texts: Sequence[str]) -> EncodedTexts:
        processor = self.model.processor
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
        processor, encoded = self.model.processor, self.encode([text])
        words, characters = processor.split_words(text)
        tagged = processor.encode_words([words or [NO_WORD]]).tagged_words
        word_of = np.maximum.accumulate(tagged)  # a token belongs to the word that began last
        offsets = np.zeros((len(encoded.encoded.inputs[0]), 2), np.int64)
        before, count = int(processor.framed), len(offsets) - 2 * processor.framed
        offsets[before : before + count] = np.array(characters or [(0, 0)])[word_of[:count]]
        return encoded, offsets


class TagPredictor(EmbeddingPredictor):
    task: TagTask
    processor: TagProcessor
    file_extensions = (".conll", ".conllu")

    @capability(TAG)
    def tag(self, call: Call[Settings]) -> list[Record]:
        encoded = self.task.encode(call.rows, call.diagnostics)
        best, confidence = self.predict_words(encoded)
        records = []
        for cell, (first, end) in zip(call.rows["tokens"], encoded.bounds, strict=True):
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
        if not len(words):
            nothing = np.zeros(len(encoded.word_forms))
            return nothing.astype(np.int64), nothing
        scores = np.concatenate(self.scores(encoded))  # (words,tags)
        return TaggedWords.decode(self.network.head, encoded, words, scores)

    def text_batch(self, items: TagEncoded, rows: np.ndarray) -> Batch:
        return self.task.collate(items, rows)

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
        head, probabilities = self.network.head, output[0, element].softmax(dim=-1)
        value: Callable[[Tensor], Tensor] = lambda scores: log_odds(scores[:, element], index)  # noqa: E731
        if isinstance(head, CrfHead):
            cut = torch.from_numpy(encoded.cut_sides(tagged[None]))
            probabilities = marginals(element_chain(head, elements, cut, output))[0, number]
            value = lambda scores: chain_log_odds(head, elements, cut, number, scores, index)  # noqa: E731
        index, prediction = explain_label(tags, probabilities, target)
        if isinstance(head, CrfHead) and not bool(value(output).isfinite().all()):
            cause = f'no allowed sequence of tags has {tags[index]} for word {number}, "{word}", or all have'
            raise SeriatimError("inspect.target", cause, "choose another --target or --position")
        return ExplainedOutput(f'the log-odds of {tags[index]} for word {number}, "{word}"', value, prediction)

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

    def usage(self, run: str, rows: Dataset | None = None) -> list[Usage]:
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


class TaggedWords(NamedTuple):
    """What a model predicts for the words of a split."""

    best: np.ndarray  # (words,) the most likely tag
    confidence: np.ndarray  # (words,) its probability

    @classmethod
    def decode(cls, head: nn.Module, encoded: TagEncoded, words: np.ndarray, scores: np.ndarray) -> TaggedWords:
        """Returns the predictions from the scores (n,tags) of some words (n,); the others have the first tag."""
        best, confidence = np.zeros(len(encoded.word_forms), np.int64), np.zeros(len(encoded.word_forms))
        best[words], confidence[words] = decode_words(head, encoded, words, scores)
        return cls(best, confidence)


class TagTask(Task[TagSettings, TagProcessor, TagEncoded, TaggedWords]):
    spec = SPEC
    split_policy = Contiguous()
    default_fractions = (0.9, 0.05, 0.05)
    processor_type = TagProcessor
    predictor_type = TagPredictor
    monitor = "error"
    unit = "words"
    hub_head = "token-classification"

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

    def link(self, splits: Splits[TagEncoded], diagnostics: Diagnostics) -> Splits[TagEncoded]:
        """Gives the splits the words of the training split; notes windows, unknown words and unknown tags."""
        for name in splits:
            self._note_split(splits[name], diagnostics.note)
        if "train" not in splits:
            return splits
        known = frozenset(splits.train.items.forms)
        parts = {name: replace(part, items=replace(part.items, known=known)) for name, part in splits.parts.items()}
        return Splits(parts)

    def _note_split(self, split: Split[TagEncoded], note: Callable[[str], None]) -> None:
        """Notes windows, and outside of training unknown words and tags that no prediction can match."""
        processor, encoded = self.processor, split.items
        windowed = int((np.bincount(encoded.rows) > 1).sum()) if encoded.rows is not None else 0
        if windowed:
            size = processor.max_length
            note(f"{split.name}: {windowed:,} sequences are read in windows of {size}, which overlap by half")
        if split.name == "train":
            return
        tokenizer = processor.tokenizer
        if tokenizer is not None and tokenizer.kind == "word":
            share = float((encoded.inputs.values == tokenizer.unk).mean())
            note(f"{split.name}: {100 * share:.1f} % of the words are not in the vocabulary")
        unseen = np.flatnonzero(encoded.targets == UNSEEN)
        if len(unseen) and encoded.references is not None:
            sentence, position = encoded.locate(int(unseen[0]))
            tag = encoded.references[sentence][position]
            location = split.rows.locations[sentence].element(position)
            words = plural(len(unseen), "word has a tag", "words have tags")
            note(
                f'{split.name}: {words} that the training split does not have, such as "{tag}" ({location}): '
                "always counted as wrong"
            )

    # Network

    def network(self, model: ModelSettings) -> Network:
        settings = cast(BackboneSettings, model)
        processor, tokenizer = self.processor, self.processor.tokenizer
        module: nn.Module
        if tokenizer is None:
            module = settings.token_input(len(processor.symbols))
            width = module.embedding_dim
        elif processor.framed:
            module = settings.token_input(tokenizer.vocab_size, tokenizer.sep)
            width = module.embedding_dim
        else:
            unknown = 0 if tokenizer.unk is None else tokenizer.unk
            words = settings.token_input(tokenizer.vocab_size)
            module = WordInput(
                words, processor.character_count, processor.character_features, self.settings.word_dropout, unknown
            )
            width = module.width

        def head(backbone: Backbone) -> StepHead:
            if not self.settings.crf:
                return StepHead(backbone.width, len(processor.tags))
            return CrfHead(backbone.width, np.array(allowed_transitions(processor.tags, processor.scheme)))

        return assemble(settings, module, width, processor.longest, head)

    def collate(self, items: TagEncoded, chosen: np.ndarray) -> Batch:
        """Returns token ids (B,T); with character features also distinct words (B,T) and their characters (words,L).

        Targets (B,T) are tags; IGNORED where no word is tagged, UNSEEN where the tag is not known. With a conditional
        random field the second target is whether rows begin and end inside of their sentence (B,2).
        """
        ends = items.inputs.ends
        tokens, mask = items.inputs.padded(chosen)
        words, _ = Sequences(items.tagged_words, ends).padded(chosen, fill=-1)
        targets = np.where(words >= 0, UNSEEN if items.targets is None else items.targets[words], IGNORED)
        inputs: Any = torch.from_numpy(tokens)
        if self.processor.character_features:
            forms, _ = Sequences(items.element_forms, ends).padded(chosen)
            distinct, index = np.unique(forms, return_inverse=True)
            characters = items.characters[distinct]
            characters = characters[:, : max(int((characters != PADDING).any(axis=0).sum()), KERNEL)]
            inputs = (inputs, torch.from_numpy(index.reshape(tokens.shape)), torch.from_numpy(characters))
        tags: Any = torch.from_numpy(targets)
        if self.settings.crf:
            tags = tags, torch.from_numpy(items.cut_sides(words))
        return Batch(inputs, tags, int((targets >= 0).sum()), padding_mask(mask))

    def forward(self, network: Network, batch: Batch, state: State = None) -> Output[Any]:
        """Returns the scores (words,tags) of the words that are tagged in the batch, or their `Chain`."""
        hidden, _, _ = network.head_input(batch.inputs, batch.mask)
        tagged = tag_targets(batch) != IGNORED
        vectors, head = hidden[tagged], network.head
        scores = as_float32(head(vectors))
        if not isinstance(head, CrfHead):
            return Output(scores, vectors)
        lengths = tagged.sum(dim=1)
        return Output(head.chain(pad_rows(scores, lengths, 0.0), lengths, batch.targets[1]), vectors)

    def loss(self, output: Output[Any], batch: Batch, smoothing: float = 0.0) -> Tensor:
        targets = tag_targets(batch)
        targets = targets[targets != IGNORED]
        if not isinstance(output.scores, Chain):
            return F.cross_entropy(
                output.scores, targets, reduction="sum", label_smoothing=smoothing, ignore_index=UNSEEN
            )
        if smoothing:
            cause = "a conditional random field has no label smoothing"
            raise SeriatimError("task.crf", cause, "omit train.label_smoothing, or task.crf")
        log_probs = log_likelihood(output.scores, pad_rows(targets, output.scores.lengths, UNSEEN))
        # If no known tag is allowed in the place of an unknown one, the sentence is left out, as the unknown tag is.
        left_out = (tag_targets(batch) == UNSEEN).any(dim=1) & (log_probs == -torch.inf)
        return -log_probs.masked_fill(left_out, 0.0).sum()

    def distillation_loss(self, output: Output[Any], teacher: Output[Any], temperature: float) -> Tensor:
        """With a conditional random field, the divergence of whole sequences from those of the teacher.

        Of the teacher the probability of each tag is known; its sequences are those that are allowed.
        """
        chain = output.scores
        if not isinstance(chain, Chain):
            return distillation_loss(chain, teacher.scores, temperature)
        emissions = pad_rows(as_float32(teacher.scores).log_softmax(dim=-1), chain.lengths, 0.0)
        start, transitions, end = (
            torch.where(scores == -torch.inf, scores, 0.0).detach()
            for scores in (chain.start, chain.transitions, chain.end)
        )
        other = Chain(emissions, chain.lengths, start, transitions, end)
        return temperature**2 * divergence(chain.scaled(1 / temperature), other.scaled(1 / temperature))

    def teacher_scores(self, output: Output[Any]) -> Tensor:
        if not isinstance(output.scores, Chain):
            return super().teacher_scores(output)
        return marginals(output.scores)[output.scores.mask].log()

    def teacher_mismatches(self, teacher: Predictor[Any]) -> list[str]:
        return name_mismatches(self.processor.tags, cast(TagProcessor, teacher.processor).tags, "tag")

    # Evaluation

    def unbatch(self, output: Output[Any], batch: Batch) -> Sequence[np.ndarray]:
        if isinstance(output.scores, Chain):
            lengths = output.scores.lengths.tolist()
            return [row[:length].cpu().numpy() for row, length in zip(output.scores.emissions, lengths, strict=True)]
        counts = (tag_targets(batch) != IGNORED).sum(dim=1).tolist()
        return [scores.cpu().numpy() for scores in output.scores.split(counts)]

    def sample_split(self, split: Split[TagEncoded], limit: int | None = None) -> Split[TagEncoded]:
        """Returns evenly spaced sentences with about `limit` words."""
        chosen = spaced_rows(self.row_sizes(split.rows), SAMPLED_SIZE if limit is None else limit)
        if len(chosen) == len(split.rows):
            return split
        rows = split.rows.take(chosen)
        items = replace(self.processor.encode(rows, Diagnostics()), known=split.items.known)
        return replace(split, rows=rows, items=items)

    def evaluate(
        self, network: Network, split: Split[TagEncoded], progress: Progress | None = None
    ) -> Evaluation[TagEncoded, TaggedWords]:
        encoded, head = split.items, network.head
        loss, parts = self.score_items(network, encoded, progress)
        words, scores = encoded.item_words(np.arange(len(encoded))), np.concatenate(parts)
        if split.name == "validation" and self.calibrated:  # as `calibrate` will leave it
            scores = scores + entity_offset(head, self.processor.tags, encoded, words, scores)[0]
        predicted = TaggedWords.decode(head, encoded, words, scores)
        metrics, examples = self.measure_words(encoded, words, predicted.best[words])
        return Evaluation(split, {"loss": loss} | metrics, predicted, examples)

    @property
    def calibrated(self) -> bool:
        """Whether the score of O is chosen for the F1 of entities, on the validation split."""
        return self.settings.calibrate and self.processor.scheme != "none" and OUTSIDE in self.processor.tags

    def calibrate(
        self, network: Network, validation: Split[TagEncoded], diagnostics: Diagnostics
    ) -> tuple[Self, Mapping[str, Tensor]]:
        """Returns the bias of O, or of the beginnings of entities, that has the best F1 on the validation split."""
        if not self.calibrated:
            return self, {}
        encoded, tags = validation.items, self.processor.tags
        words, scores = encoded.item_words(np.arange(len(encoded))), self.predictor(network).scores(encoded)
        offsets, before, after = entity_offset(network.head, tags, encoded, words, np.concatenate(scores))
        if not offsets.any():
            return self, {}
        moved = next(index for index, offset in enumerate(offsets.tolist()) if offset)
        name = "O" if tags[moved] == OUTSIDE else "the first tag of an entity"
        change = f"{'raised' if offsets[moved] > 0 else 'lowered'} by {abs(offsets[moved]):g}"
        gain = f"F1 {100 * before:.1f} → {100 * after:.1f} % on the validation split"
        diagnostics.note(f"the score of {name} is {change}: {gain} (task.calibrate)")
        bias = network.head.get_parameter("bias").detach()
        return self, {"head.bias": bias + torch.from_numpy(offsets).to(bias)}

    def measure_words(
        self, encoded: TagEncoded, words: np.ndarray, predictions: np.ndarray
    ) -> tuple[Metrics, dict[str, ExampleScores]]:
        """Returns the metrics of the predicted tags (n,) of words (n,), which are whole sentences, and their scores."""
        correct = encoded.labels[words] == predictions
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
        return metrics | {"error": error, "words": float(len(words))}, examples

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

    def baselines(self, splits: Splits[TagEncoded], names: Sequence[str]) -> dict[str, dict[str, Metrics]]:
        """Each word has its most frequent tag of the training split, a new word the most frequent of all tags."""
        train, size = splits.train.items, len(self.processor.tags)
        pairs = train.word_forms * size + train.labels
        counts = np.bincount(pairs, minlength=len(train.forms) * size).reshape(-1, size)
        totals = counts.sum(axis=0)
        best = (counts + totals / (1 + totals.sum())).argmax(axis=1)  # of equal ones the more frequent tag
        indices = {form: index for index, form in enumerate(train.forms)}
        baselines: dict[str, dict[str, Metrics]] = {}
        for name in names:
            encoded = splits[name].items
            forms = np.array([indices.get(form, -1) for form in encoded.forms], dtype=np.int64)[encoded.word_forms]
            predictions = np.where(forms >= 0, best[forms], totals.argmax())
            metrics, _ = self.measure_words(encoded, np.arange(len(predictions)), predictions)
            baselines[name] = {"most frequent tag of the word": metrics}
        return baselines

    # Report

    def views(self, evaluation: Evaluation[TagEncoded, TaggedWords]) -> list[View]:
        encoded, rows, tags = evaluation.split.items, evaluation.split.rows, self.processor.tags
        best, confidence = evaluation.outputs
        views: list[View] = []
        if self.processor.scheme != "none":
            views += entity_views(tags, encoded, rows, best)
        known = encoded.labels >= 0
        counts = class_counts(best[known], encoded.labels[known], len(tags))
        scores = (*precision_recall_f1(*counts), counts[2])
        cells = zip(tags, *(column.tolist() for column in scores), strict=True)
        columns = ("tag", "precision", "recall", "f1", "words")
        views.append(Table(title="Scores by tag", columns=columns, rows=tuple(cells)))
        if len(tags) <= MAX_CONFUSION:
            matrix = confusion(encoded.labels[known], best[known], len(tags)).tolist()
            views.append(Confusion(title="Confusion of tags", labels=tags, counts=tuple(map(tuple, matrix))))
        if self.processor.tokenizer is None:
            return views
        if encoded.known is not None:
            views.append(known_words(encoded, best, encoded.known))
        return [*views, *mistakes(tags, encoded, rows, best, confidence)]

    def sample(self, evaluation: Evaluation[TagEncoded, TaggedWords]) -> str:
        """Returns sentences with their tags, wrong ones with the reference."""
        encoded, best = evaluation.split.items, evaluation.outputs.best
        bounds, references = encoded.bounds, encoded.references or []
        lines = []
        for sentence in np.unique(evenly_spaced(len(bounds), SAMPLED_SENTENCES)).tolist():
            first, end = bounds[sentence]
            words = []
            for word in range(first, min(end, first + SAMPLED_WORDS)):
                tag, reference = self.processor.tags[best[word]], references[sentence][word - first]
                form = encoded.forms[encoded.word_forms[word]]
                words.append(f"{form}/{tag}" + ("" if tag == reference else f" (is {reference})"))
            lines.append(" ".join(words) + (" …" if end - first > SAMPLED_WORDS else ""))
        return "\n".join(lines)


def tag_targets(batch: Batch) -> Tensor:
    """Returns the tags (B,T) of a batch."""
    tags: Tensor = batch.targets[0] if isinstance(batch.targets, tuple) else batch.targets
    return tags
