"""BERT's tokenizer: words apart, each as the longest pieces that the vocabulary has.

Devlin et al., "BERT" (2019). Control characters go, every white space is a blank, Chinese characters and punctuation
stand alone; in small letters the accents go, too. The longest beginning of a word that is in the vocabulary is its
first piece, then the longest beginning of what remains, written with ## before it; a word that cannot be put together
so is [UNK]. A text is framed as [CLS] text [SEP], two texts as [CLS] first [SEP] second [SEP].

The trainer of the `tokenizers` package numbers the pieces of a single letter in the order of a hash table, so that
each training gives another vocabulary. Here all letters are named before it begins, and it gives the same one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from .learning import TRAIN_PIECE, learn, small

if TYPE_CHECKING:
    from tokenizers import Tokenizer as Backend

    from .tokenizer import TokenizerSettings

# By what they are for, in the order of their ids in a vocabulary that is learnt here.
SPECIALS = {"pad": "[PAD]", "unk": "[UNK]", "cls": "[CLS]", "sep": "[SEP]", "mask": "[MASK]"}
PREFIX = "##"


def train(settings: TokenizerSettings, texts: Iterable[str]) -> Backend:
    from tokenizers import Tokenizer as Backend
    from tokenizers import models, trainers

    learner = Backend(models.WordPiece(unk_token=SPECIALS["unk"]))
    _apart(learner, settings.lowercase)
    words = _counted(learner, texts)
    begin, follow = _letters(learner, words, settings)
    trainer = trainers.WordPieceTrainer(
        vocab_size=settings.size,
        min_frequency=settings.min_count,
        special_tokens=[*SPECIALS.values(), *begin, *follow],
        limit_alphabet=0,  # beyond those that are named
        show_progress=False,
    )
    learn(learner, trainer, _repeated(words))
    return assemble(learner.get_vocab(), settings.lowercase)


def assemble(
    vocab: Mapping[str, int],
    lowercase: bool,
    accents: bool | None = None,
    chinese: bool = True,
    specials: Mapping[str, str] = SPECIALS,
) -> Backend:
    """The tokenizer of a vocabulary. `accents` says whether they are taken off (None: where letters are made small)."""
    from tokenizers import AddedToken, decoders, models, processors
    from tokenizers import Tokenizer as Backend

    backend = Backend(models.WordPiece(vocab=dict(vocab), unk_token=specials["unk"]))
    _apart(backend, lowercase, accents, chinese)
    backend.decoder = decoders.WordPiece(prefix=PREFIX, cleanup=True)
    known = [name for name in specials.values() if name in vocab]
    backend.add_special_tokens([AddedToken(name, special=True, normalized=False) for name in known])
    cls, sep = specials["cls"], specials["sep"]
    backend.post_processor = processors.TemplateProcessing(
        single=[f"{cls}:0", "$A:0", f"{sep}:0"],
        pair=[f"{cls}:0", "$A:0", f"{sep}:0", "$B:1", f"{sep}:1"],
        special_tokens=[(cls, vocab[cls]), (sep, vocab[sep])],
    )
    return backend


def _apart(backend: Backend, lowercase: bool, accents: bool | None = None, chinese: bool = True) -> None:
    from tokenizers import normalizers, pre_tokenizers

    backend.normalizer = normalizers.BertNormalizer(
        clean_text=True, handle_chinese_chars=chinese, strip_accents=accents, lowercase=lowercase
    )
    backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer()


def _counted(learner: Backend, texts: Iterable[str]) -> dict[str, int]:
    """How often each word occurs. Few words make most of a text, so only distinct ones are looked at closely."""
    found: Counter[str] = Counter()
    for part in small(texts):
        found.update(learner.normalizer.normalize_str(part).split(" "))
    words: Counter[str] = Counter()
    for blank_separated, count in found.items():
        for word, _ in learner.pre_tokenizer.pre_tokenize_str(blank_separated):
            words[word] += count
    return dict(sorted(words.items()))


def _letters(learner: Backend, words: dict[str, int], settings: TokenizerSettings) -> tuple[list[str], list[str]]:
    """The letters that are pieces by themselves: at the beginning of a word, and (with ##) behind it."""
    counts: Counter[str] = Counter()
    for word, count in words.items():
        for letter in word:
            counts[letter] += count
    room = max((settings.size - len(SPECIALS)) // 2, 1)  # each may come twice
    often = sorted((letter for letter in counts if counts[letter] >= settings.min_count), key=lambda one: -counts[one])
    kept = sorted(often[:room])
    return kept, [PREFIX + letter for letter in kept if _continues(learner, letter)]


def _continues(learner: Backend, letter: str) -> bool:
    """Whether it can stand inside a word, unlike punctuation and Chinese characters."""
    both: Any = learner.pre_tokenizer.pre_tokenize_str(learner.normalizer.normalize_str("a" + letter))
    return len(both) == 1


def _repeated(words: dict[str, int]) -> Iterator[str]:
    """Words as often as they were counted, in parts of bounded size."""
    for word, count in words.items():
        most = max(TRAIN_PIECE // (len(word) + 1), 1)
        for done in range(0, count, most):
            yield f"{word} " * min(most, count - done)
