"""Predictors that read text: the capabilities `embed`, `nearest` and `words`; see `seriatim.embedding`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..core.config import Settings
from ..core.errors import SeriatimError
from ..data.dataset import Dataset
from ..data.sequences import Sequences
from ..data.source import open_source
from ..data.vectors import EXTENSIONS, TextBlocks, VectorWriter, nearest, nearest_to_each, open_vectors
from ..embedding.reader import Embedder, TextReader, text_blocks
from ..embedding.words import WordVectors, word_vectors
from ..nn.inference import device_of
from ..nn.network import as_float32, weights_digest
from ..report.charts import Scatter, View, embedding_charts
from .batching import Batch, padding_mask
from .capability import Call, Record, capability
from .predictor import Predictor, T
from .shared_spec import EMBED, NEAREST, TEXTS, WORDS, EmbedOptions, NearestOptions, WordOptions
from .values import Encoded

MAX_LABEL = 40  # characters of a text beside a point


def no_vectors(predictor: Predictor, reason: str) -> SeriatimError:
    """Returns the error of a predictor without embeddings; `reason` completes "a model of the task …"."""
    cause = f"a model of the task {predictor.task.name} {reason}"
    return SeriatimError("predict.capability", cause, "embed with a network that was trained on text")


class EmbeddingPredictor(Predictor[T]):
    """A predictor with embeddings. A subclass implements `text_reader`."""

    def text_reader(self) -> TextReader:
        """Returns the encoder of single texts, or raises `no_vectors`."""
        raise no_vectors(self, "does not read text")

    def text_items(self, ids: Sequences) -> Any:
        """Returns token ids as items of the network."""
        return Encoded(ids)

    def text_batch(self, items: Any, rows: np.ndarray) -> Batch:
        """Returns a batch of some items of `text_items`."""
        inputs, mask = items.inputs.padded(rows)
        return Batch(torch.from_numpy(inputs), None, len(rows), padding_mask(mask))

    def text_states(self, items: Any, rows: np.ndarray) -> tuple[Tensor, Tensor | None]:
        """Returns the network's output for every element (n,T,D) of some items, and the mask (n,T)."""
        batch = self.text_batch(items, rows).to(device_of(self.network))
        return as_float32(self.task.hidden_states(self.network, batch)), batch.mask

    def element_names(self, encoded: Any, item: int) -> list[str]:
        """Returns the tokens of an item; the first tokenizer of a processor is that of the input."""
        tokenizer = next(iter(self.processor.tokenizers.values()))
        return [tokenizer.token(int(token)) for token in encoded.inputs[item]]

    def embedder(self, pooling: str | None = None, normalize: bool | None = None) -> Embedder:
        """Returns a function from texts to vectors (n,D), for more texts than fit into memory."""
        reader = self.text_reader()
        pooling = reader.embedding.pooling if pooling is None else pooling
        return Embedder(reader, pooling, reader.embedding.normalize if normalize is None else normalize)

    def word_vectors(self, word: str, texts: Sequence[str], normalize: bool = True, strict: bool = True) -> WordVectors:
        """Returns the vectors of a word in context; see the function `word_vectors`."""
        return word_vectors(self.text_reader(), word, texts, normalize, strict)

    def open_writer(
        self, name: str, options: Settings, path: Path, run: str
    ) -> AbstractContextManager[Callable[[Sequence[Record]], None]] | None:
        if not isinstance(options, EmbedOptions) or path.suffix.lower() not in EXTENSIONS:
            return super().open_writer(name, options, path, run)

        return self.vector_writer(path, options, run)

    @contextmanager
    def vector_writer(
        self, path: Path, options: EmbedOptions, run: str
    ) -> Iterator[Callable[[Sequence[Record]], None]]:
        """Opens a file of vectors whose description names the model, for the records of `embed`."""
        embedder = self.embedder(options.pooling, options.normalize)
        description: dict[str, object] = {"run": run, "model": weights_digest(self.network)}
        description |= {"pooling": embedder.pooling, "normalize": embedder.normalize}
        with VectorWriter(path, embedder.width, description) as writer:
            yield lambda records: writer.write(
                [record["text"] for record in records], np.stack([record["vector"] for record in records])
            )

    @capability(EMBED)
    def embed(self, call: Call[EmbedOptions]) -> Iterator[Record]:
        embedder = self.embedder(call.options.pooling, call.options.normalize)
        for block in text_blocks(call.rows["text"]):
            for vector, text in zip(embedder(block), block, strict=True):
                yield {"vector": vector, "text": text}
        if embedder.note:
            call.note(embedder.note)

    @capability(NEAREST)
    def nearest(self, call: Call[NearestOptions]) -> list[Record]:
        queries, options = call.rows["text"], call.options
        among = options.among
        vectors = open_vectors(among) if isinstance(among, str) else None
        if vectors is not None:
            blocks: TextBlocks = vectors
            embedder = self.embedder(vectors.check_model(weights_digest(self.network), options.pooling))
        else:
            texts = queries if among is None else self._read_texts(among, call)
            embedder = self.embedder(options.pooling)
            blocks = ((block, embedder(block)) for block in text_blocks(texts))
        if among is None:
            results = nearest_to_each(blocks, options.top)
        else:
            results = list(zip(queries, nearest(embedder(list(queries)), blocks, options.top), strict=True))
        return [
            {"query": query, "row": neighbor.row, "similarity": neighbor.similarity, "text": neighbor.text}
            for query, neighbors in results
            for neighbor in neighbors
        ]

    def _read_texts(self, source: str | list[str], call: Call[NearestOptions]) -> Any:
        return self.task.read(open_source(source), call.diagnostics, TEXTS)["text"]

    @capability(WORDS)
    def words(self, call: Call[WordOptions]) -> list[Record]:
        options = call.options
        result = self.word_vectors(options.word, list(call.rows["text"]), options.normalize, options.strict)
        rows = zip(result.sentences, result.spans, result.tokens, result.contextual, result.static, strict=True)
        return [
            {"text": text, "start": first, "end": last, "tokens": tokens, "vector": vector, "static_vector": static}
            for text, (first, last), tokens, vector, static in rows
        ]

    def charts(self, name: str, dataset: Dataset, options: Settings, predictions: Sequence[Record]) -> list[View]:
        if isinstance(options, WordOptions):
            labels = [str(record["text"])[:MAX_LABEL] for record in predictions]
            vectors = {"in context": "vector", "without context": "static_vector"}
            return [
                Scatter.of_vectors(
                    np.stack([record[key] for record in predictions]), labels, title=f"{options.word}, {title}"
                )
                for title, key in vectors.items()
            ]
        if isinstance(options, EmbedOptions):
            return embedding_charts(
                [str(record["text"]) for record in predictions], np.stack([record["vector"] for record in predictions])
            )
        return super().charts(name, dataset, options, predictions)
