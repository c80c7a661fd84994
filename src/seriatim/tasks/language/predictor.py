"""The predictor of language models: generate, next, score, answer, and embeddings; for networks and n-grams alike.

A text is read as what follows a line end: the token of the line end is put before it (`task.line_start`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor, nn

from ...core.errors import Diagnostics, SeriatimError
from ...core.state import State, append
from ...data.dataset import Dataset
from ...data.sequences import Sequences
from ...data.source import DataInput
from ...data.tokenizers.tokenizer import VISIBLE
from ...decode.beam import beam_search
from ...decode.sampling import (
    Constraints,
    Hypothesis,
    Stopped,
    draw_tokens,
    pad_rows,
    penalize_repetition,
    sample,
    sampling_probs,
)
from ...decode.settings import GenerationSettings
from ...decode.words import END, NextWords, Pieces, in_word, search_words, split_units
from ...embedding.reader import TextReader
from ..batching import Batch
from ..capability import Call, Record, capability
from ..choices import Labels, answer_record, continuations, with_choices
from ..choose.spec import choice_rows
from ..decoding import nbest_record, own_streams, score_record
from ..inspection import ScoredTokens, TokenReadout, TokenScorer
from ..predictor import Usage
from ..text_predictor import EmbeddingPredictor, no_vectors
from ..values import Encoded
from .engine import Engine, open_engine
from .spec import (
    ANSWER,
    GENERATE,
    NEXT,
    PROMPT,
    SCORE,
    GenerateOptions,
    LikelihoodOptions,
    NextOptions,
    ScoreOptions,
)

if TYPE_CHECKING:
    from .stream import LanguageProcessor
    from .task import LanguageTask

MAX_ROWS = 64  # prompts that are decoded together
MAX_PREFIX = 64  # characters of a prompt's last word whose tokens are searched
MAX_WORD_TOKENS = 32  # of each of the next words
EXAMPLE = "Once upon a time"  # of a prompt, for the model card


class LanguageModelPredictor(EmbeddingPredictor["LanguageTask"]):
    """A trained language model."""

    processor: LanguageProcessor

    def __init__(self, task: LanguageTask, network: nn.Module, engine: Engine | None = None) -> None:
        super().__init__(task, network)
        self.tokenizer = self.processor.tokenizer
        self.line_start: bool = task.settings.line_start
        unk, eos = self.tokenizer.unk, self.tokenizer.eos
        self.forbidden = [] if unk is None else [unk]
        line_end = self.tokenizer.encode("\n", strict=False)
        usable = len(line_end) > 0 and line_end[-1] != unk
        other = unk or 0 if eos is None else eos  # the first GPT has no token for an end
        self.start = line_end[-1:].astype(np.int64) if usable else np.array([other], dtype=np.int64)
        self._engine = engine

    @cached_property
    def engine(self) -> Engine:
        if self._engine is not None:
            return self._engine
        return open_engine(self.network, self.task.settings.context_length)

    def quantize(self) -> LanguageModelPredictor:
        return self._quantized

    def rounded(self, int8: bool) -> LanguageModelPredictor:
        """Returns the predictor, with int8 weights if they are wanted."""
        return self._quantized if int8 else self

    @cached_property
    def _quantized(self) -> LanguageModelPredictor:
        engine = self.engine.quantize()
        return LanguageModelPredictor(self.task, engine.model, engine)

    # Texts and tokens

    def text_ids(self, text: str) -> np.ndarray:
        """Returns the token ids of a text. An unknown character is an error, an unknown word is `<unk>`."""
        return self.tokenizer.encode(text, strict=not self.tokenizer.drops_whitespace).astype(np.int64)

    def encode_prompt(self, text: str) -> np.ndarray:
        """Returns the token ids that the model reads for a text: after a line end, unless the settings say no."""
        ids = self.text_ids(text)
        return ids if len(ids) and not self.line_start else np.concatenate([self.start, ids])

    def encode_scored(self, text: str) -> np.ndarray:
        """Returns the token ids that are scored, and one before them that is not."""
        ids = self.encode_prompt(text)
        return np.concatenate([self.start, ids]) if len(ids) == 1 and not self.line_start else ids

    def continuation_text(self, prompt: str, tokens: Sequence[int]) -> str:
        """Returns the text of tokens after a prompt, with the white space between them."""
        before = self.text_ids(prompt).tolist()
        prefix, whole = self.tokenizer.decode(before), self.tokenizer.decode([*before, *tokens])
        return whole[len(prefix) :] if whole.startswith(prefix) else self.tokenizer.decode(list(tokens))

    # Capabilities

    def stream_generation(self, call: Call[GenerateOptions]) -> Iterator[Record]:
        """Returns the continuation of a prompt piece by piece; options that cannot be streamed are refused at once."""
        if call.options.beams > 1 or call.options.nbest > 1:
            cause = "beam search and several answers cannot be streamed"
            raise SeriatimError("generate.options", cause, "omit --beams and --nbest")
        return self.rounded(call.options.int8).stream(call.rows["text"][0], call.options)

    @capability(GENERATE, pieces=stream_generation)
    def generate(self, call: Call[GenerateOptions]) -> Iterator[Record]:
        predictor, options = self.rounded(call.options.int8), call.options
        prompts = list(call.rows["text"])
        for prompt, hypotheses in zip(prompts, predictor.decode(prompts, options), strict=True):
            rows = [predictor.generation(prompt, hypothesis, options) for hypothesis in hypotheses]
            yield nbest_record(rows, options.nbest)

    @capability(NEXT)
    def next(self, call: Call[NextOptions]) -> Iterator[Record]:
        for prompt in call.rows["text"]:
            if call.options.unit == "token":
                rows = self._next_tokens(prompt, call.options)
            else:
                rows = self._next_words(prompt, call.options, call.note)
            for row in rows:
                yield {"prompt": prompt, **row} if len(call.rows) > 1 else row

    def _next_tokens(self, prompt: str, options: NextOptions) -> list[Record]:
        log_probs, _ = self._read_prompt(prompt, self.encode_prompt(prompt))
        best = log_probs[0].topk(min(options.top, log_probs.shape[1]))
        has_blank = self.tokenizer.drops_whitespace and prompt[-1:].isspace()  # no second one is added
        return [
            {
                "text": self.tokenizer.token(token),
                "completion": self.continuation_text(prompt, [token]).removeprefix(" " if has_blank else ""),
                "probability": probability,
                "unaccounted": 0.0,
            }
            for token, probability in zip(best.indices.tolist(), best.values.exp().tolist(), strict=True)
        ]

    def _next_words(self, prompt: str, options: NextOptions, note: Callable[[str], None]) -> list[Record]:
        """Returns words that complete the prompt by a character or more; none if no known word begins like its last.

        If its last word is known and begins no other one, and the tokenizer drops white space, they are the next words.
        """
        partial, found = self._complete_words(prompt, options)
        rows = [row for row in found if row["completion"] or not partial]
        complete = next((row["probability"] for row in found if partial and not row["completion"]), 0.0)
        if not found:
            cause = f'no known word begins with "{partial}"' if partial else "no known word follows"
            note(f"{cause}; end the prompt with a space for the word after it" if partial else cause)
        elif not rows and self.tokenizer.drops_whitespace:
            _, rows = self._complete_words(f"{prompt} ", options)
            note(f'no known word goes on from "{partial}": these are the words after it')
            rows = [{**row, "completion": self._after(partial, row["completion"])} for row in rows]
        elif complete > max((row["probability"] for row in rows), default=0.0):
            cause = f'"{partial}" is a word as it stands with probability {complete:.3g}; only longer ones are listed'
            note(f"{cause}; end the prompt with a space for the next word")
        return rows[: options.top]

    def _after(self, word: str, completion: str) -> str:
        """Returns the next words with the white space between them and the word before."""
        return completion if completion[:1] == "\n" else self.tokenizer.join_words([word, completion])[len(word) :]

    def _complete_words(self, prompt: str, options: NextOptions) -> tuple[str, list[Record]]:
        """Returns the last word of the prompt if it may go on, and `top` words and the one as it stands."""
        self.text_ids(prompt)  # raises an error if it has unknown characters
        head, last = self.tokenizer.split_last_word(prompt)
        spaced = self.tokenizer.drops_whitespace
        if spaced:
            partial = last if any(map(in_word, last)) else ""  # else it is a sign, and a word of its own
            head, prefix = (head, f" {self.tokenizer.normalize(last)}") if partial else (prompt, " ")
        else:
            partial = split_units(prompt[-MAX_PREFIX:]).rest
            head, last = (prompt, "") if len(last) > MAX_PREFIX else (head, last)
            prefix = last if self.tokenizer.kind == "other" else self.tokenizer.normalize(last)
        if partial and options.words == 1:
            options = options.model_copy(update={"top": options.top + 1})  # the word as it stands is not listed
        results, unaccounted = self._search(prompt, head, partial, prefix, options)
        if not results and not spaced:  # a tokenizer made elsewhere may write its first word in another way
            results, unaccounted = self._search(prompt, prompt, partial, "", options)
        records = []
        for result in results:
            text, completion = (partial + result.completion).lstrip(" "), result.completion
            if spaced:
                text = self.tokenizer.join_words([*result.words])
                completion = text[len(partial) :]
            elif len(result.words) == 1:
                text = result.words[0]
            elif result.words[-1] == END:
                text += END
            text = text.replace("\n", VISIBLE["\n"])
            records.append({"text": text, "completion": completion, "probability": result.probability})
        return partial, [record | {"unaccounted": unaccounted} for record in records]

    def _search(
        self, prompt: str, head: str, partial: str, prefix: str, options: NextOptions
    ) -> tuple[list[NextWords], float]:
        log_probs, state = self._read_prompt(prompt, self.encode_prompt(head))
        return search_words(
            self.engine.step,
            log_probs,
            state,
            self._pieces,
            partial,
            prefix.encode(),
            options.words,
            options.top,
            options.beams,
            MAX_WORD_TOKENS * options.words,
        )

    def _read_prompt(self, prompt: str, ids: np.ndarray) -> tuple[Tensor, State]:
        log_probs, state = self.engine.prefill([ids])
        if not bool(log_probs.isfinite().any()):
            cause = f"the context of {prompt!r} does not occur in the training text, and without smoothing"
            remedy = "train with another smoothing: --set model.smoothing=modified-kneser-ney"
            raise SeriatimError("model.no-distribution", f"{cause} its next token has no probabilities", remedy)
        return log_probs, state

    @cached_property
    def _pieces(self) -> Pieces:
        tokenizer, eos = self.tokenizer, self.tokenizer.eos
        end = eos if eos is not None and not tokenizer.pieces[eos] else None
        return Pieces(tokenizer.pieces, tokenizer.drops_whitespace, end, self.forbidden)

    @capability(SCORE)
    def score(self, call: Call[ScoreOptions]) -> Iterator[Record]:
        engine = self.rounded(call.options.int8).engine
        for ids in [self.encode_scored(text) for text in call.rows["text"]]:
            yield score_record(self.tokenizer, ids[1:].tolist(), engine.score(ids))

    @capability(ANSWER)
    def answer(self, call: Call[LikelihoodOptions]) -> Iterator[Record]:
        rows, options = with_choices(call.rows, call.options.choices), call.options
        for choices, (prompt, texts) in zip(choice_rows(rows), continuations(rows), strict=True):
            scores = np.array([self.score_continuation(prompt, text, options.normalize) for text in texts])
            yield answer_record(choices, scores, Labels("0"), options.probabilities)

    def score_continuation(self, prompt: str, text: str, normalize: str = "none") -> float:
        """Returns log p(text | prompt), of all tokens of both together that are not those of the prompt alone.

        Args:
            prompt: What the model reads before.
            text: The continuation, with a space in front where there is one.
            normalize: "none", or whether the sum is divided by the number of "tokens" or "characters".
        """
        prefix, whole = self.encode_prompt(prompt), self.text_ids(prompt + text)
        ids = np.concatenate([prefix[: len(prefix) - len(self.text_ids(prompt))], whole])
        before = min(len(prefix), len(ids) - 1)  # a token may span the end of the prompt
        log_probs = self.engine.score(ids)[before - 1 :]
        size = {"tokens": len(log_probs), "characters": len(text.strip())}.get(normalize, 1)
        return float(log_probs.sum()) / max(size, 1)

    # Decoding

    def continuation(self, prompt: str, options: GenerationSettings) -> str:
        """Returns a generated continuation of a prompt."""
        return str(self.generation(prompt, self.decode([prompt], options)[0][0], options)["text"])

    def decode(self, prompts: Sequence[str], options: GenerationSettings) -> list[list[Hypothesis]]:
        """Returns `nbest` hypotheses for each prompt, best first if a beam search ranks them."""
        copies = 1 if options.beams > 1 else options.nbest
        jobs = [prompt for prompt in prompts for _ in range(copies)]
        rows = [self.encode_prompt(prompt) for prompt in jobs]
        streams = own_streams(jobs, options.seed)
        results: list[list[Hypothesis]] = [[] for _ in jobs]
        order = sorted(range(len(jobs)), key=lambda job: len(rows[job]))  # similar lengths together: little padding
        for first in range(0, len(order), MAX_ROWS):
            batch = order[first : first + MAX_ROWS]
            answers = self._decode_batch([rows[job] for job in batch], options, [streams[job] for job in batch])
            for job, hypotheses in zip(batch, answers, strict=True):
                results[job] = hypotheses
        groups = (results[first : first + copies] for first in range(0, len(results), copies))
        return [[hypothesis for hypotheses in group for hypothesis in hypotheses] for group in groups]

    def _decode_batch(
        self, rows: list[np.ndarray], options: GenerationSettings, streams: list[np.random.Generator]
    ) -> list[list[Hypothesis]]:
        log_probs, state = self.engine.prefill(rows)
        eos, stopped, forbidden = self.tokenizer.eos, self._stopper(options), self.forbidden
        history = pad_rows([row[1 if self.line_start else 0 :].tolist() for row in rows], left=True)
        if options.beams > 1:
            return beam_search(self.engine.step, log_probs, state, options, eos, stopped, history, forbidden)
        multi_step = self.engine.multi_step(options, eos, forbidden)
        hypotheses = sample(
            self.engine.step,
            log_probs,
            state,
            options,
            streams,
            eos,
            stopped,
            history,
            forbidden,
            multi_step=multi_step,
        )
        return [[hypothesis] for hypothesis in hypotheses]

    def _stopper(self, options: GenerationSettings) -> Stopped | None:
        """Returns a function that ends a row if a stop string occurs in its last tokens."""
        if not options.stop:
            return None
        reach = max(len(stop.encode()) for stop in options.stop) + 1  # a token has at least one byte
        return lambda row, tokens: any(stop in self.tokenizer.decode(tokens[-reach:]) for stop in options.stop)

    def generation(self, prompt: str, hypothesis: Hypothesis, options: GenerationSettings) -> Record:
        """Returns the record of a hypothesis: its text ends before a stop string; its score counts all tokens."""
        ended = hypothesis.finished and hypothesis.tokens[-1] == self.tokenizer.eos
        text = self.continuation_text(prompt, hypothesis.tokens[:-1] if ended else hypothesis.tokens)
        ends = [position for stop in options.stop if (position := text.find(stop)) >= 0]
        return {
            "text": text[: min(ends)] if ends else text,
            "log_probability": hypothesis.score,
            "tokens": len(hypothesis.tokens),
            "finished": hypothesis.finished,
        }

    @torch.inference_mode()
    def stream(self, prompt: str, options: GenerationSettings) -> Iterator[Record]:
        """Yields the continuation of a prompt piece by piece, as soon as tokens are chosen; joined as in `generate`.

        The last piece has the other columns of `generate`, too.
        """
        eos, stopped = self.tokenizer.eos, self._stopper(options)
        constraints = Constraints(1, options, eos, self.forbidden, None)
        row = self.encode_prompt(prompt)
        (random,) = own_streams([prompt], options.seed)
        past = torch.from_numpy(row[None, 1 if self.line_start else 0 :])
        log_probs, state = self.engine.prefill([row])
        past = past.to(log_probs.device)
        tokens: list[int] = []
        score, written = 0.0, 0
        held_back = max((len(stop) - 1 for stop in options.stop), default=0)  # may become a stop string
        while True:
            allowed = constraints(log_probs, past, len(tokens), torch.zeros(1, dtype=torch.long))
            allowed = penalize_repetition(allowed, past, options.repetition_penalty)
            if options.temperature == 0:
                next_token = allowed.argmax(dim=-1)
            else:
                number = torch.tensor([random.random()], dtype=torch.float64)
                next_token = draw_tokens(sampling_probs(allowed, options), number)
            token = int(next_token[0])
            possible = bool(allowed[0, token] > -torch.inf)  # an n-gram without smoothing may have no next token
            if possible:
                tokens.append(token)
                score += float(log_probs[0, token])
            finished = possible and (token == eos or (stopped is not None and stopped(0, tokens)))
            last = finished or not possible or len(tokens) >= options.max_tokens
            record = self.generation(prompt, Hypothesis(tokens, score, finished, 0.0), options)
            text = record["text"]
            if last:
                yield {**record, "text": text[written:]}
                return
            visible = len(text.rstrip("\ufffd")) - held_back  # half a character is held back
            if visible > written:
                yield {"text": text[written:visible]}
                written = visible
            past = append(past, next_token[:, None], dim=1)
            log_probs, state = self.engine.step(next_token, state)

    # Inspection and embeddings

    def encode_inputs(self, inputs: DataInput) -> Encoded:
        texts = self.task.read(inputs, Diagnostics(), PROMPT)["text"]
        return Encoded(Sequences.of([self.encode_prompt(text) for text in texts]))

    def generate_input(self, text: str, tokens: int, seed: int) -> tuple[Encoded, int] | None:
        if self.engine.network is None:
            return None
        generated = self.decode([text], GenerationSettings(max_tokens=tokens, seed=seed))[0][0].tokens
        before = self.encode_prompt(text)
        return Encoded(Sequences.of([np.concatenate([before, np.array(generated, np.int64)])])), len(before)

    def token_scorer(self) -> TokenScorer:
        return self.score_tokens

    def score_tokens(self, text: str, target: str | None) -> ScoredTokens:
        """Returns the tokens of a text as the model rates them, those behind a limited context included."""
        if target is not None:
            raise SeriatimError("inspect.target", "a language model has no target texts", "omit --target")
        ids = self.encode_scored(text)
        characters = len(self.tokenizer.decode(ids[1:].tolist()))  # those that are scored
        log_probs = self.engine.score(ids)
        return ScoredTokens(self.tokenizer, ids[1:], log_probs, self.engine.log_probs(ids), characters, ids[:1])

    def token_readout(self) -> TokenReadout | None:
        network = self.engine.network
        if network is None:
            return None

        def next_tokens(batch: Batch) -> Tensor:
            return torch.cat([batch.inputs[0, 1:], batch.inputs.new_full((1,), -1)])

        return TokenReadout(self.tokenizer, network.head, next_tokens, True)

    def text_reader(self) -> TextReader:
        if self.engine.network is None:
            raise no_vectors(self, "is an n-gram model and has no vectors")
        limit = self.engine.context_length
        return TextReader(self, self.tokenizer, max_length=limit, prefix=self.start.tolist(), cls_sep=False)

    def usage(self, run: str, rows: Dataset | None = None) -> list[Usage]:
        unknown = set() if self.tokenizer.drops_whitespace else set(self.tokenizer.unknown(EXAMPLE))
        words = (word for word in EXAMPLE.split() if not unknown.intersection(word))
        blank = "" if " " in unknown else " "
        text = blank.join(words)
        return [
            Usage(f'seriatim generate {run} "{text}"', f'print(run.generate("{text}"))'),
            Usage(f'seriatim next {run} "{text}{blank}"', f'print(run.next("{text}{blank}", top=5))'),
            Usage(f'seriatim score {run} "{text}"', f'print(run.score("{text}")["perplexity"])'),
        ]
