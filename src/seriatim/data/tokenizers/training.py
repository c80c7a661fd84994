"""Training of tokenizers: how each kind learns its vocabulary from texts.

Vocabularies of every kind but wordpiece and unigram depend on the texts alone: not on how they are divided, and not
on the order of a hash table. (The package's trainers of these two give other vocabularies each time.)

`bert` is WordPiece as in Devlin et al., "BERT" (2019). Control characters are deleted, all white space is a blank,
Chinese characters and punctuation are words of their own; with `lowercase`, accents are removed, too. The first piece
of a word is its longest prefix in the vocabulary, the next the longest prefix of the rest, written with ## before it; a
word that has no such pieces is [UNK]. A text is [CLS] text [SEP], two are [CLS] first [SEP] second [SEP].
"""

from __future__ import annotations

import json
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain

from tokenizers import AddedToken, Regex, decoders, models, normalizers, pre_tokenizers, processors, trainers
from tokenizers import Tokenizer as Backend

from ...core.errors import SeriatimError
from ..settings import TokenizerSettings
from .segments import (
    SPACE,
    TextBlock,
    align_blocks,
    batch_blocks,
    byte_token,
    count_characters,
    distinct_words,
    split_segments,
)

UNK, EOS = "<unk>", "<eos>"
SPECIAL_TOKENS = [UNK, EOS]  # ids 0 and 1 of every tokenizer trained here, except of kind bert
# By their use, in the order of their ids in a BERT vocabulary trained here.
BERT_SPECIAL_TOKENS = {"pad": "[PAD]", "unk": "[UNK]", "cls": "[CLS]", "sep": "[SEP]", "mask": "[MASK]"}
BYTE_TOKENS = [byte_token(byte) for byte in range(256)]
# A word keeps an apostrophe inside it ("don't"); any other punctuation is a token of its own.
WORD_PATTERN = r"<unk>|<eos>|\w+(?:['’]\w+)*|[^\w\s]"
BLANK_SEPARATED = r"\S+"
# What each pattern leaves as one word, whatever is next to it; a literal "<unk>" begins with "<", so it is excluded.
SINGLE_WORD = {WORD_PATTERN: re.compile("[A-Za-z0-9_]+"), BLANK_SEPARATED: re.compile(f"[^<{SPACE}]+")}
# Letters, digits and signs apart, each with the blank before it; no match goes from other characters to white space.
SUBWORD_PATTERN = r" ?[\p{L}\p{M}]+| ?\p{N}+| ?[^\s\p{L}\p{M}\p{N}]+|\s+(?!\S)|\s"

CHUNK_SIZE = 1 << 15  # characters of a text for a trainer, which takes 256 texts at a time
WORD_LIMIT = 256  # the BPE trainer's time grows with the square of a word's length, and a genome is one word
COUNT_SIZE = 1 << 20  # characters whose words are counted at a time


def train_backend(settings: TokenizerSettings, texts: Iterable[str]) -> Backend:
    """Returns a tokenizer of the `tokenizers` package trained on texts, which are read once and joined in order."""
    by_kind = {
        "char": _train_characters,
        "word": _train_words,
        "bpe": _train_bpe,
        "byte-bpe": _train_bpe,
        "wordpiece": _train_wordpiece,
        "unigram": _train_unigram,
        "bert": _train_bert,
    }
    return by_kind[settings.kind](settings, texts)


def _train_characters(settings: TokenizerSettings, texts: Iterable[str]) -> Backend:
    """BPE without merges, the package's only model that can fall back to bytes."""
    normalizer = _lowercase(settings)
    counts = count_characters(normalizer.normalize_str(text) if normalizer else text for text in texts)
    frequent = [character for character, count in counts.items() if count >= settings.min_count]
    tokens = SPECIAL_TOKENS + (BYTE_TOKENS if settings.byte_fallback else []) + frequent
    vocab = {token: index for index, token in enumerate(tokens)}
    backend = Backend(models.BPE(vocab=vocab, merges=[], unk_token=UNK, byte_fallback=settings.byte_fallback))
    if normalizer:
        backend.normalizer = normalizer
    backend.decoder = decoders.Sequence([decoders.ByteFallback(), decoders.Fuse()])
    return backend


def _train_words(settings: TokenizerSettings, texts: Iterable[str]) -> Backend:
    counts = count_words(settings, texts)
    frequent = sorted(word for word, count in counts.items() if count >= settings.min_count)
    words = sorted((word for word in frequent if word not in SPECIAL_TOKENS), key=counts.__getitem__, reverse=True)
    tokens = SPECIAL_TOKENS + words[: settings.vocab_size - len(SPECIAL_TOKENS)]
    vocab = {token: index for index, token in enumerate(tokens)}
    backend = split_into_words(Backend(models.WordLevel(vocab=vocab, unk_token=UNK)), settings)
    backend.decoder = decoders.WordPiece(prefix="##", cleanup=True)
    return backend


def _train_wordpiece(settings: TokenizerSettings, texts: Iterable[str]) -> Backend:
    learner = split_into_words(Backend(models.WordPiece(unk_token=UNK)), settings, training=True)
    trainer = trainers.WordPieceTrainer(
        vocab_size=settings.vocab_size,
        min_frequency=settings.min_count,
        special_tokens=SPECIAL_TOKENS,
        limit_alphabet=max(1, (settings.vocab_size - len(SPECIAL_TOKENS)) // 2),  # each letter also as ##letter
        show_progress=False,
    )
    run_trainer(learner, trainer, texts)
    backend = split_into_words(Backend(models.WordPiece(vocab=learner.get_vocab(), unk_token=UNK)), settings)
    backend.decoder = decoders.WordPiece(prefix="##", cleanup=True)
    return backend


def _train_bpe(settings: TokenizerSettings, texts: Iterable[str]) -> Backend:
    by_bytes = settings.kind == "byte-bpe"
    special_tokens = SPECIAL_TOKENS + (BYTE_TOKENS if settings.byte_fallback else [])
    trainer = trainers.BpeTrainer(
        vocab_size=settings.vocab_size,
        min_frequency=settings.min_count,
        special_tokens=special_tokens,
        limit_alphabet=max(1, settings.vocab_size - len(special_tokens)),
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()) if by_bytes else [],
        show_progress=False,
    )
    learner = _split_into_subwords(Backend(models.BPE()), settings)
    run_trainer(learner, trainer, texts)
    model = json.loads(learner.to_str())["model"]
    # Rebuilt without the trainer's added tokens, which would turn a literal "<eos>" in a text into the special one.
    merges = [tuple(pair) for pair in model["merges"]]
    backend = Backend(
        models.BPE(vocab=model["vocab"], merges=merges, unk_token=UNK, byte_fallback=settings.byte_fallback)
    )
    fused = decoders.Sequence([decoders.ByteFallback(), decoders.Fuse()])
    backend.decoder = decoders.ByteLevel() if by_bytes else fused
    return _split_into_subwords(backend, settings)


def _train_unigram(settings: TokenizerSettings, texts: Iterable[str]) -> Backend:
    trainer = trainers.UnigramTrainer(
        vocab_size=settings.vocab_size, special_tokens=SPECIAL_TOKENS, unk_token=UNK, show_progress=False
    )
    learner = _split_into_subwords(Backend(models.Unigram()), settings)
    run_trainer(learner, trainer, texts)
    model = json.loads(learner.to_str())["model"]
    # The package reads long decimals back slightly different from what it wrote; short ones exactly.
    backend = Backend(models.Unigram([(piece, round(score, 8)) for piece, score in model["vocab"]], unk_id=0))
    backend.decoder = decoders.Fuse()
    return _split_into_subwords(backend, settings)


def _train_bert(settings: TokenizerSettings, texts: Iterable[str]) -> Backend:
    """The package's trainer numbers single letters in the order of a hash table; here they are given to it, sorted."""
    learner = Backend(models.WordPiece(unk_token=BERT_SPECIAL_TOKENS["unk"]))
    _split_as_bert(learner, settings.lowercase)
    by_blanks: Counter[str] = Counter()
    for chunk in training_chunks(texts):
        by_blanks.update(learner.normalizer.normalize_str(chunk).split(" "))
    words: Counter[str] = Counter()
    letters: Counter[str] = Counter()
    for text, count in by_blanks.items():
        for word, _ in learner.pre_tokenizer.pre_tokenize_str(text):
            words[word] += count
    for word, count in sorted(words.items()):
        for letter in word:
            letters[letter] += count
    frequent = sorted(
        (letter for letter in letters if letters[letter] >= settings.min_count), key=lambda x: -letters[x]
    )
    initial = sorted(frequent[: max((settings.vocab_size - len(BERT_SPECIAL_TOKENS)) // 2, 1)])  # each may come twice

    def can_continue(letter: str) -> bool:
        """Whether it can occur inside a word, unlike punctuation and Chinese characters."""
        return len(learner.pre_tokenizer.pre_tokenize_str(learner.normalizer.normalize_str("a" + letter))) == 1

    following = [f"##{letter}" for letter in initial if can_continue(letter)]
    trainer = trainers.WordPieceTrainer(
        vocab_size=settings.vocab_size,
        min_frequency=settings.min_count,
        special_tokens=[*BERT_SPECIAL_TOKENS.values(), *initial, *following],
        limit_alphabet=0,  # beyond those given
        show_progress=False,
    )
    run_trainer(learner, trainer, _repeat_words(words))
    return bert_backend(learner.get_vocab(), settings.lowercase)


def _repeat_words(words: Mapping[str, int]) -> Iterator[str]:
    """Yields words as often as they were counted, sorted, in chunks of bounded size."""
    for word, count in sorted(words.items()):
        most = max(CHUNK_SIZE // (len(word) + 1), 1)
        for start in range(0, count, most):
            yield f"{word} " * min(most, count - start)


def bert_backend(
    vocab: Mapping[str, int],
    lowercase: bool,
    strip_accents: bool | None = None,
    split_chinese: bool = True,
    special_tokens: Mapping[str, str] = BERT_SPECIAL_TOKENS,
) -> Backend:
    """Returns BERT's tokenizer with a vocabulary; `strip_accents` None means: if `lowercase`."""
    backend = Backend(models.WordPiece(vocab=dict(vocab), unk_token=special_tokens["unk"]))
    _split_as_bert(backend, lowercase, strip_accents, split_chinese)
    backend.decoder = decoders.WordPiece(prefix="##", cleanup=True)
    known = [name for name in special_tokens.values() if name in vocab]
    backend.add_special_tokens([AddedToken(name, special=True, normalized=False) for name in known])
    cls, sep = special_tokens["cls"], special_tokens["sep"]
    backend.post_processor = processors.TemplateProcessing(
        single=[f"{cls}:0", "$A:0", f"{sep}:0"],
        pair=[f"{cls}:0", "$A:0", f"{sep}:0", "$B:1", f"{sep}:1"],
        special_tokens=[(cls, vocab[cls]), (sep, vocab[sep])],
    )
    return backend


def _split_as_bert(
    backend: Backend, lowercase: bool, strip_accents: bool | None = None, split_chinese: bool = True
) -> None:
    backend.normalizer = normalizers.BertNormalizer(
        clean_text=True, handle_chinese_chars=split_chinese, strip_accents=strip_accents, lowercase=lowercase
    )
    backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer()


def split_into_words(backend: Backend, settings: TokenizerSettings, training: bool = False) -> Backend:
    """Returns the backend with words as pre-tokens and `<eos>` for line ends; in training, without `<eos>`, `<unk>`."""
    steps: list[normalizers.Normalizer] = [normalizers.Lowercase()] if settings.lowercase else []
    steps.append(normalizers.Replace("\n", " " if training else " <eos> "))
    backend.normalizer = normalizers.Sequence(steps)
    pattern = WORD_PATTERN if settings.split_punctuation else BLANK_SEPARATED
    words = pre_tokenizers.Split(Regex(pattern), "removed", invert=True)
    no_special_tokens = pre_tokenizers.Split(Regex("<unk>|<eos>"), "removed")
    backend.pre_tokenizer = pre_tokenizers.Sequence([no_special_tokens, words]) if training else words
    return backend


def _split_into_subwords(backend: Backend, settings: TokenizerSettings) -> Backend:
    if normalizer := _lowercase(settings):
        backend.normalizer = normalizer
    by_bytes = settings.kind == "byte-bpe"
    split = pre_tokenizers.Split(Regex(SUBWORD_PATTERN), "isolated")
    parts = pre_tokenizers.ByteLevel(add_prefix_space=False) if by_bytes else split
    lines = pre_tokenizers.Split(Regex("\n"), "merged_with_previous")  # first, so that no token crosses a line end
    backend.pre_tokenizer = pre_tokenizers.Sequence([lines, parts])
    return backend


def _lowercase(settings: TokenizerSettings) -> normalizers.Normalizer | None:
    return normalizers.Lowercase() if settings.lowercase else None


def run_trainer(learner: Backend, trainer: trainers.Trainer, texts: Iterable[str]) -> None:
    """Trains with a trainer of the package; what it rejects is an error "tokenizer.train"."""
    try:
        learner.train_from_iterator(training_chunks(texts), trainer)
    except Exception as error:  # the package raises nothing narrower
        cause = f"the tokenizer could not be trained on this text ({error})"
        raise SeriatimError("tokenizer.train", cause, "use tokenizer.kind=char") from None


def training_chunks(texts: Iterable[str]) -> Iterator[str]:
    """Yields the text in chunks for a trainer, cut at positions that depend on the text alone."""
    blocks = align_blocks(TextBlock(text) for text in texts)
    return _join_segments((segment for block in blocks for segment in split_segments(block.text)), "")


def count_words(settings: TokenizerSettings, texts: Iterable[str]) -> Counter[str]:
    """Returns how often each word occurs: as the package's trainer counts, but each distinct segment is split once."""
    segments: Counter[str] = Counter()
    for group in batch_blocks(align_blocks(TextBlock(text) for text in texts), COUNT_SIZE):
        block_texts = [block.text for block in group]
        distinct = distinct_words(block_texts, WORD_LIMIT)
        segments.update(
            chain.from_iterable(map(split_segments, block_texts)) if distinct is None else distinct.counts()
        )
    words: Counter[str] = Counter()
    if not settings.lowercase:  # most segments are single words already
        is_word = SINGLE_WORD[WORD_PATTERN if settings.split_punctuation else BLANK_SEPARATED].fullmatch
        words.update({text: segments[text] for text in segments if len(text) <= WORD_LIMIT and is_word(text)})
    by_count: dict[int, list[str]] = defaultdict(list)
    for segment, count in segments.items():
        if segment not in words:
            by_count[count].append(segment)
    splitter = split_into_words(Backend(models.WordLevel(unk_token=UNK)), settings, training=True)
    for count, equally_frequent in by_count.items():
        for text in _join_segments(equally_frequent, " "):
            for word, _ in splitter.pre_tokenizer.pre_tokenize_str(splitter.normalizer.normalize_str(text)):
                words[word] += count
    return words


def _join_segments(segments: Iterable[str], separator: str) -> Iterator[str]:
    """Yields chunks of about `CHUNK_SIZE` characters; segments longer than `WORD_LIMIT` are cut."""
    group: list[str] = []
    size = 0
    for segment in segments:
        if len(segment) > WORD_LIMIT:
            yield from (segment[i : i + WORD_LIMIT] for i in range(0, len(segment), WORD_LIMIT))
            continue
        group.append(segment)
        size += len(segment)
        if size >= CHUNK_SIZE:
            yield separator.join(group)
            group, size = [], 0
    yield separator.join(group)
