"""Translators in use: results do not depend on other inputs, scores are those of `score`, alignments and ensembles are
what one computes by hand."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import sacrebleu
import torch
from torch import Tensor, nn

from seriatim.core import registry
from seriatim.core.errors import SeriatimError
from seriatim.data.tokenizers import Tokenizer, TokenizerSettings
from seriatim.decode.settings import BeamSettings
from seriatim.nn.network import TokenHead, weights
from seriatim.report.charts import BinnedMetric, Heatmap, Table
from seriatim.tasks.base import DataSettings, Splits, TaskConfig
from seriatim.tasks.decoding import Generated
from seriatim.tasks.encoder_decoder import encode_with_eos
from seriatim.tasks.inspection import Alignment, TokenizedText
from seriatim.tasks.metrics import Scoring, translation_metrics
from seriatim.tasks.predictor import Request
from seriatim.tasks.reading import Layout, prepare
from seriatim.tasks.translate.processor import Pairs, source_groups
from seriatim.tasks.translate.spec import TranslateSettings
from seriatim.tasks.translate.task import TranslateTask, TranslationPredictor, TranslationProcessor
from seriatim.tasks.translate.views import length_bins, metric_by_length, source_lengths
from seriatim.training.checkpoint import Checkpoints
from seriatim.training.config import TrainSettings
from seriatim.training.loop import Loop
from seriatim.training.objective import TaskObjective

Prepared = tuple[TranslateTask, Splits[Pairs]]

PEOPLE = {"I": "je", "you": "tu", "he": "il", "we": "nous"}
VERBS = {"see": ("vois", "vois", "voit", "voyons"), "eat": ("mange", "manges", "mange", "mangeons")}
THINGS = {"hat": "chapeau", "book": "livre", "cat": "chat"}
ADJECTIVES = {"red": "rouge", "big": "énorme", "green": "vert"}
ROWS = [
    (f"{who} {verb} the {adjective} {thing} .", f"{qui} {VERBS[verb][n]} le {chose} {adjectif} .")
    for n, (who, qui) in enumerate(PEOPLE.items())
    for verb in VERBS
    for thing, chose in THINGS.items()
    for adjective, adjectif in ADJECTIVES.items()
]
TEXTS = ["I see the red hat .", "we eat", "", "he see the big big big green cat .", "ßß Ж you"]
MODELS: dict[str, dict[str, Any]] = {
    "seq2seq": {"layers": 1},
    "bahdanau": {"cell": "lstm", "layers": 2},
    "transformer": {"heads": 2, "layers": 2, "feedforward": 32},
    "gru": {},
    "tcn": {},
    "gpt": {"heads": 2, "layers": 1},
    "mlp": {},
}


def make_processor(kind: str, context_length: int = 60) -> TranslationProcessor:
    """Returns one vocabulary of words or subwords for both sides."""
    settings = TokenizerSettings(kind=kind, vocab_size=90)  # type: ignore[arg-type]
    tokenizer = Tokenizer.train(settings, (f"{text}\n" for row in ROWS for text in row))
    return TranslationProcessor(tokenizer, tokenizer, context_length)


SUBWORDS = make_processor("bpe")


def make_task(name: str, processor: TranslationProcessor = SUBWORDS, **settings: Any) -> TranslateTask:
    values = {"name": name, "width": 16, **MODELS.get(name, {}), **settings}
    model = registry.models.load(name).Settings(**values)
    config = TaskConfig(task=TranslateSettings(), data=DataSettings(source="none"), model=model)
    return TranslateTask(config, processor, Layout())


def untrained(
    name: str, processor: TranslationProcessor = SUBWORDS, seed: int = 0, **settings: Any
) -> TranslationPredictor:
    """Returns a model that is sure of its outputs, though it was not trained."""
    task = make_task(name, processor, **settings)
    torch.manual_seed(seed)
    network = task.network(task.config.model)
    with torch.no_grad():
        network.head.bias.copy_(2 * torch.randn(processor.target.vocab_size))
        network.head.bias[processor.target.eos or 0] += 1
    return TranslationPredictor(task, network.eval())


def translate(predictor: TranslationPredictor, texts: list[str], **options: Any) -> list[list[Generated]]:
    sources = encode_with_eos(predictor.processor.source, texts)
    return predictor.translator.translate(texts, sources, BeamSettings(**options))


def score(predictor: TranslationPredictor, source: str, target: str) -> dict[str, Any]:
    return predictor.call("score", [(source, target)])[0]


@pytest.fixture(scope="module", params=MODELS)
def predictor(request: pytest.FixtureRequest) -> TranslationPredictor:
    return untrained(request.param)


@pytest.mark.parametrize("options", [{"beams": 4, "nbest": 2}, {"beams": 1}, {"top_k": 5, "nbest": 2}], ids=str)
def test_alone_as_among_others_and_scored_alike(predictor: TranslationPredictor, options: dict[str, Any]) -> None:
    together = translate(predictor, TEXTS, **options, max_tokens=8)
    for text, group in zip(TEXTS, together, strict=True):
        (alone,) = translate(predictor, [text], **options, max_tokens=8)
        assert [one.text for one in group] == [one.text for one in alone]
        assert [one.score for one in group] == pytest.approx([one.score for one in alone], abs=1e-5)
        if not text:
            assert [one.text for one in group] == [""]
            continue
        assert len(group) == options.get("nbest", 1)
        for one in group:
            assert len(one.tokens) <= 8
            assert one.score == pytest.approx(score(predictor, text, one.text)["log_probability"], abs=1e-4)


def test_the_capability(predictor: TranslationPredictor) -> None:
    answer = predictor.execute(Request("translate", TEXTS, {"max_tokens": 8}))
    records = answer.predictions()
    expected = [group[0] for group in translate(predictor, TEXTS, max_tokens=8)]
    assert [record["translation"] for record in records] == [one.text for one in expected]
    assert any('read as <unk>: "ß", "Ж"' in note for note in answer.notes)
    (several,) = predictor.call("translate", TEXTS[:1], nbest=3, max_tokens=8)
    assert len(set(several["translation"])) == len(several["score"]) == 3
    assert several["score"] == [one.score for one in translate(predictor, TEXTS[:1], nbest=3, max_tokens=8)[0]]
    with pytest.raises(SeriatimError, match="nbest 3 needs beams"):
        predictor.call("translate", ["a"], nbest=3, beams=1)


def test_long_sources(predictor: TranslationPredictor) -> None:
    """A thousand tokens are fine for models of any length; the others name the input and both numbers."""
    texts = ["we eat", "", "we" + " we" * 999]
    count = len(encode_with_eos(SUBWORDS.source, texts)[2])
    assert count > 1000
    if predictor.decoder.context_length is None:
        assert len(translate(predictor, texts, beams=2, max_tokens=4)[2][0].tokens) <= 4
        return
    with pytest.raises(SeriatimError, match=f"row 2 has {count:,} tokens, the model takes 60"):
        predictor.call("translate", texts)


@pytest.mark.parametrize("beams", [1, 3])
def test_no_longer_than_the_positions(beams: int) -> None:
    processor = make_processor("bpe", context_length=12)
    predictor = untrained("transformer", processor, positions="learned")
    with torch.no_grad():
        predictor.network.head.bias[processor.target.eos] = -50  # it never ends
    ((best, *_),) = translate(predictor, ["we eat"], beams=beams)
    assert (len(best.tokens), best.finished) == (12, False)


def test_score_is_a_product_of_probabilities(predictor: TranslationPredictor) -> None:
    """The chain rule, by the network as a whole."""
    source, target = (encode_with_eos(SUBWORDS.target, [text])[0] for text in ("we eat", "le chat"))
    shifted = torch.tensor([[SUBWORDS.tokens.start, *target[:-1]]])
    with torch.inference_mode():
        log_probs = predictor.network(torch.from_numpy(source)[None], shifted).log_softmax(dim=-1)[0]
    expected = log_probs[torch.arange(len(target)), torch.from_numpy(target)]
    record = score(predictor, "we eat", "le chat")
    values = [value for _, value in record["token_log_probabilities"]]
    assert values == pytest.approx(expected.tolist(), abs=1e-5)
    assert record["tokens"] == len(target)
    assert record["log_probability"] == pytest.approx(float(expected.sum()), abs=1e-4)
    assert record["perplexity"] == pytest.approx(math.exp(-record["log_probability"] / len(target)))
    scored = predictor.token_scorer()("we eat", "le chat")
    torch.testing.assert_close(torch.cat(list(scored.distributions)), log_probs, atol=1e-5, rtol=0)
    assert scored.ids.tolist() == target.tolist()
    assert scored.log_probs == pytest.approx(expected.numpy(), abs=1e-5)


def test_a_prefix() -> None:
    predictor = untrained("bahdanau")
    for beams in (1, 3):
        ((best, *_),) = translate(predictor, ["we eat"], prefix="nous mange", beams=beams, max_tokens=20)
        assert best.text.startswith("nous mange")
        assert best.score == pytest.approx(score(predictor, "we eat", best.text)["log_probability"], abs=1e-4)
    with pytest.raises(SeriatimError, match="prefix"):
        translate(predictor, ["we eat"], prefix="nous mangeons", max_tokens=2)
    with pytest.raises(SeriatimError, match="Ж"):
        translate(predictor, ["we eat"], prefix="Ж")


@pytest.mark.parametrize("name", ["bahdanau", "transformer", "gru"])
def test_coverage_by_hand(name: str) -> None:
    """Hypotheses are ranked by score / length penalty + β Σ log min(Σ weights, 1)."""
    predictor, texts = untrained(name), ["I see the red hat .", "we eat"]
    options = {"coverage_penalty": 0.4, "beams": 3, "nbest": 3, "max_tokens": 8}
    with torch.no_grad():
        predictor.network.head.bias[SUBWORDS.target.eos] += 4
    checked = 0
    for text, group in zip(texts, translate(predictor, texts, **options), strict=True):
        for one in group:
            weights = predictor.translator.align([text], [one.text], by_words=False)[0].weights
            same = encode_with_eos(SUBWORDS.target, [one.text])[0].tolist() == one.tokens
            if one.finished and same:
                missed = np.log(np.minimum(weights.sum(axis=0), 1)).sum()
                ranked = one.score / BeamSettings(**options).divisor(len(one.tokens)) + 0.4 * missed
                assert one.normalized_score == pytest.approx(ranked, abs=1e-4)
                checked += 1
    assert checked


def test_without_attention() -> None:
    predictor = untrained("seq2seq")
    for name, options in (("align", {}), ("translate", {"coverage_penalty": 0.2})):
        with pytest.raises(SeriatimError) as caught:
            predictor.call(name, ["we eat"], **options)
        assert caught.value.code == "model.no-attention"
        assert "bahdanau" in caught.value.remedy
        assert not {"seq2seq", "nadaraya_watson", "ngram", "resnet"} & set(caught.value.remedy.replace(",", "").split())


# Ensembles


@pytest.mark.parametrize("beams", [1, 3])
def test_an_ensemble_of_a_model_with_itself_is_that_model(beams: int) -> None:
    predictor = untrained("transformer")
    alone = translate(predictor, TEXTS, beams=beams, max_tokens=8)
    twice = translate(predictor.ensemble([predictor]), TEXTS, beams=beams, max_tokens=8)
    assert [group[0].text for group in alone] == [group[0].text for group in twice]
    assert [group[0].score for group in alone] == pytest.approx([group[0].score for group in twice], abs=1e-5)


def test_probabilities_are_averaged() -> None:
    """Greedy, step by step, from the mean of the two distributions."""
    parts = [untrained("bahdanau"), untrained("transformer", seed=1)]
    both = parts[0].ensemble(parts[1:])
    source = torch.from_numpy(encode_with_eos(SUBWORDS.source, ["I see"])[0])[None]
    tokens, total = [SUBWORDS.tokens.start], 0.0
    with torch.inference_mode():
        for _ in range(6):
            probs = sum(part.network(source, torch.tensor([tokens])).softmax(dim=-1)[0, -1].double() for part in parts)
            probs = probs / 2
            probs[SUBWORDS.target.unk] = 0
            tokens.append(int(probs.argmax()))
            total += math.log(probs.max())
            if tokens[-1] == SUBWORDS.target.eos:
                break
    ((best,),) = translate(both, ["I see"], beams=1, max_tokens=6)
    assert best.tokens == tokens[1:]
    if best.finished:
        assert best.score == pytest.approx(total, abs=1e-4)
    pieces = [score(part, "I see", "je vois")["token_log_probabilities"] for part in parts]
    expected = [math.log((math.exp(a) + math.exp(b)) / 2) for (_, a), (_, b) in zip(*pieces, strict=True)]
    values = [value for _, value in score(both, "I see", "je vois")["token_log_probabilities"]]
    assert values == pytest.approx(expected, abs=1e-5)
    with pytest.raises(SeriatimError, match="different vocabularies"):
        both.ensemble([untrained("gru", make_processor("word"))])


# Alignments and unknown words


class Parrot(nn.Module):
    """Copies the source token by token, and attends to the token that it copies."""

    def __init__(self, vocab_size: int) -> None:
        super().__init__()
        self.head = TokenHead(vocab_size, vocab_size)
        self.backbone = nn.Module()
        self.backbone.context_length = None  # type: ignore[assignment]
        with torch.no_grad():
            self.head.weight.copy_(10 * torch.eye(vocab_size))

    def empty_source(self) -> Tensor:
        return torch.zeros(1, 1, dtype=torch.long)

    def encode(self, source: Tensor, mask: Tensor | None = None, trace: Any = None) -> Any:
        return source

    def decode(self, target: Tensor, memory: Any, state: Any = None, trace: Any = None) -> tuple[Tensor, Any]:
        first = torch.zeros(len(target), dtype=torch.long) if state is None else state
        positions = (first[:, None] + torch.arange(target.shape[1])).clamp(max=memory.shape[1] - 1)
        if trace is not None:
            trace["alignment"] = nn.functional.one_hot(positions, memory.shape[1]).float()
        copied = nn.functional.one_hot(memory.gather(1, positions), self.head.weight.shape[0])
        return copied.float(), first + target.shape[1]


def parrot(processor: TranslationProcessor) -> TranslationPredictor:
    network: Any = Parrot(processor.target.vocab_size).eval()
    return TranslationPredictor(make_task("gru", processor), network)


def test_unknown_words_are_copied_from_the_source() -> None:
    predictor = parrot(make_processor("word"))
    texts = ["the Zebra sees Oslo .", "I see the red hat ."]
    groups = translate(predictor, texts)
    assert [group[0].text for group in groups] == ["the Zebra sees Oslo.", "I see the red hat."]
    expected = score(predictor, texts[0], "the <unk> <unk> <unk> .")["log_probability"]
    assert groups[0][0].score == pytest.approx(expected, abs=1e-5)
    for beams in (1, 2):
        ((best, *_),) = translate(predictor, texts[:1], beams=beams, replace_unknown=False)
        assert predictor.processor.target.unk not in best.tokens
        assert "Zebra" not in best.text
    answer = predictor.execute(Request("translate", texts))
    assert answer.predictions()[0]["translation"] == "the Zebra sees Oslo."
    assert answer.notes == ['not in the vocabulary, read as <unk>: "Zebra", "sees", "Oslo"']
    ((best, *_),) = translate(parrot(SUBWORDS), ["Ж see"])
    assert SUBWORDS.target.unk not in best.tokens


def test_alignment_by_words() -> None:
    predictor = parrot(SUBWORDS)
    text = "we see the enormous hat."
    (by_tokens,) = predictor.translator.align([text], [text], by_words=False)
    assert by_tokens.weights.shape == (len(by_tokens.target), len(by_tokens.source))
    assert by_tokens.weights.sum(axis=1) == pytest.approx(1)
    (words,) = predictor.translator.align([text], [text])
    assert words.source == words.target == ["we", "see", "the", "enormous", "hat", ".", "<eos>"]
    for position, (word, strongest) in enumerate(words.strongest()):
        assert strongest[0][0] == word
        assert words.weights[position].sum() == pytest.approx(1)
    (record,) = predictor.call("align", [(text, text)])
    assert record["source"] == words.source
    assert record["weights"] == words.weights.tolist()
    assert len(predictor.call("align", [(text, text)], tokens=True)[0]["source"]) == len(by_tokens.source)
    (chart,) = predictor.charts("align", None, None, [record])  # type: ignore[arg-type]
    assert isinstance(chart, Heatmap)
    assert (chart.rows, chart.columns) == (tuple(words.target), tuple(words.source))


def test_alignment_of_the_translation() -> None:
    predictor = untrained("bahdanau")
    (record,) = predictor.call("align", ["I see the red hat ."], max_tokens=6)
    (best,) = predictor.call("translate", ["I see the red hat ."], max_tokens=6)
    expected = predictor.translator.align(["I see the red hat ."], [best["translation"]])[0]
    assert record["target"] == expected.target
    np.testing.assert_allclose(record["weights"], expected.weights, atol=1e-6)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("le petit chien", ["le", "petit", "chien", "<eos>"]),
        ("l'eau 12,5", ["l", "'", "eau", "12", ",", "5", "<eos>"]),
        ("שלום עולם", ["שלום", "עולם", "<eos>"]),
    ],
)
@pytest.mark.parametrize("kind", ["bpe", "byte-bpe", "unigram"])
def test_words_of_subwords(kind: str, text: str, words: list[str]) -> None:
    settings = TokenizerSettings(kind=kind, vocab_size=300)  # type: ignore[arg-type]
    tokenizer = Tokenizer.train(settings, [f"{text}\n"] * 3)
    assert tokenizer.eos is not None
    assert TokenizedText.of(tokenizer, [*tokenizer.encode(text).tolist(), tokenizer.eos], text).words == words


def test_scripts_without_spaces_stay_in_tokens() -> None:
    tokenizer = Tokenizer.train(TokenizerSettings(kind="bpe", vocab_size=8), ["我喜欢书\n", "我喜欢你\n"] * 3)
    ids = tokenizer.encode("我喜欢书").tolist()
    text = TokenizedText.of(tokenizer, ids, "我喜欢书")
    assert len(text.words) == len(ids) > 1
    letters = Tokenizer.train(TokenizerSettings(kind="bpe", vocab_size=6), ["ab b\n"])
    ids = letters.encode("ab b").tolist()
    assert [letters.token(index) for index in ids] == ["a", "b", "␣", "b"]
    assert TokenizedText.of(letters, ids, "ab b").words == ["ab", "b"]  # a space belongs to what follows
    assert Alignment.by_words(text, text, np.eye(len(text.tokens))).source == text.tokens


# Views


def test_bins_by_hand() -> None:
    lengths = [1] * 10 + [2] * 20 + [3] * 30 + [5] * 20 + [9] * 15 + [20] * 5
    assert length_bins(lengths, least=10) == [(1, 2), (3, 3), (5, 5), (9, 20)]
    assert length_bins(lengths, least=5) == [(1, 2), (3, 3), (5, 5), (9, 9), (20, 20)]
    assert length_bins([4] * 50) == [(4, 4)]
    assert length_bins([1, 2, 3]) == [(1, 3)]
    assert source_lengths(["a b c", "d"]) == ([3, 1], "words")
    assert source_lengths(["我不知道", "他"]) == ([4, 1], "characters")


def test_quality_by_length_is_that_of_the_sentences_of_the_length() -> None:
    sources = [f"{index} a" for index in range(25)] + [f"{index} a b c d" for index in range(25)]
    references = [[f"{source} e f", "g"] for source in sources]
    hypotheses = [group[0] if index % 2 else "x y z a b" for index, group in enumerate(references)]
    chart = metric_by_length(sources, hypotheses, references, Scoring(), "bleu")
    assert chart is not None
    assert (chart.bins, chart.counts) == (("2", "5"), (25, 25))
    first = [group[0] for group in references]
    expected = [sacrebleu.corpus_bleu(hypotheses[a:b], [first[a:b]]).score for a, b in ((0, 25), (25, 50))]
    assert chart.series[""] == pytest.approx(expected, abs=1e-4)
    assert "nrefs:1" in chart.note
    exact = metric_by_length(sources, hypotheses, references, Scoring(), "exact_match")
    assert exact is not None
    assert exact.series[""] == (12 / 25, 13 / 25)
    characters = metric_by_length(sources, hypotheses, references, Scoring(), "chrf")
    assert characters is not None
    expected = [sacrebleu.corpus_chrf(hypotheses[a:b], [first[a:b]]).score for a, b in ((0, 25), (25, 50))]
    assert characters.series[""] == pytest.approx(expected, abs=1e-4)
    assert metric_by_length(sources[:25], hypotheses[:25], references[:25], Scoring(), "bleu") is None


def test_short_sentences_that_are_all_correct_have_a_bleu_of_100() -> None:
    """ "Go ." has no n-gram of four words: sacreBLEU's corpus BLEU of such sentences is 0."""
    sources = [f"{index} ." for index in range(25)] + [f"{index} a b c d" for index in range(25)]
    assert sacrebleu.corpus_bleu(sources[:25], [sources[:25]]).score == 0
    chart = metric_by_length(sources, sources, [[source] for source in sources], Scoring(), "bleu")
    assert chart is not None
    assert chart.series[""] == pytest.approx((100, 100))
    assert chart.note.endswith("length 2: n-grams of up to 2, the longest reference")
    half = [source if index % 2 else f"{index} !" for index, source in enumerate(sources)]
    chart = metric_by_length(sources, half, [[source] for source in sources], Scoring(), "bleu")
    assert chart is not None
    expected = sacrebleu.BLEU(max_ngram_order=2).corpus_score(half[:25], [sources[:25]]).score
    assert chart.series[""][0] == pytest.approx(expected, abs=1e-4)
    assert 0 < expected < 100


# The task with data


@pytest.fixture(scope="module")
def prepared() -> Prepared:
    """Sources of two lengths, some with two targets."""
    rows = []
    for index in range(160):
        words = [f"w{(index * 7 + n) % 11}" for n in range(3 if index % 2 else 8)]
        source = " ".join([*words, f"n{index}"])
        rows.append({"source": source, "target": " ".join(reversed(words)) + " <&>"})
        rows += [{"source": source, "target": " ".join(words)}] if index % 5 == 0 else []
    model = registry.models.load("bahdanau").Settings(name="bahdanau", width=8)
    settings = TranslateSettings(beams=2, tokenizer={"kind": "word", "vocab_size": 60})  # type: ignore[arg-type]
    data = DataSettings(source="rows", fractions=(0.4, 0.3, 0.3))
    return prepare(TranslateTask, TaskConfig(task=settings, data=data, model=model), rows)


def test_evaluation_is_by_beam_search(prepared: Prepared) -> None:
    task, splits = prepared
    network, test = task.build(splits.train), splits["test"]
    groups = source_groups(test.rows)
    assert len(groups) == 48 < len(test.rows)
    predictor, evaluation = task.predictor(network), task.evaluate(network, test)
    sources, references, metrics = evaluation.outputs.sources, evaluation.outputs.references, evaluation.metrics
    assert sources == list(dict.fromkeys(test.rows["source"]))
    assert [set(group) for group in references] == [{test.rows["target"][row] for row in group} for group in groups]
    best = [record["translation"] for record in predictor.call("translate", sources, beams=2)]
    assert evaluation.outputs.hypotheses == best
    first = [group[0] for group in references]
    assert metrics["bleu"] == sacrebleu.corpus_bleu(best, [first], force=True).score
    assert metrics["chrf"] == sacrebleu.corpus_chrf(best, [first]).score
    assert metrics["tokens"] == test.items.targets.lengths.sum()
    assert metrics["perplexity"] == pytest.approx(math.exp(metrics["loss"]))
    scores = predictor.translator.score(test.items)
    assert metrics["loss"] == pytest.approx(-np.concatenate([one.log_probs for one in scores]).mean())
    with pytest.raises(SeriatimError, match="there is no other split"):
        splits["other"]


def test_a_sample_has_whole_sources_and_is_the_split_if_that_is_small(
    prepared: Prepared, monkeypatch: pytest.MonkeyPatch
) -> None:
    task, splits = prepared
    network, validation = task.build(splits.train), splits["validation"]
    groups, size = source_groups(validation.rows), int(task.row_sizes(validation.rows).sum())
    sample = task.sample_split(validation)
    assert sample.rows is validation.rows
    whole, sampled = task.evaluate(network, validation), task.evaluate(network, sample)
    assert sampled.metrics == whole.metrics
    assert sampled.outputs.hypotheses == whole.outputs.hypotheses
    monkeypatch.setattr("seriatim.tasks.translate.task.SAMPLED_SOURCES", 7)
    sampled = task.evaluate(network, task.sample_split(validation))
    spaced = np.linspace(0, len(groups) - 1, 7).astype(int).tolist()
    assert sampled.outputs.hypotheses == [whole.outputs.hypotheses[number] for number in spaced]
    assert sampled.metrics["loss"] == whole.metrics["loss"]
    half = task.sample_split(validation, size // 2)
    assert len(source_groups(half.rows)) == pytest.approx(len(groups) / 2, abs=1)
    for source, rows in half.rows.groups("source").items():
        assert len(rows) == len(validation.rows.groups("source")[source])
    evaluation = task.evaluate(network, half)
    assert len(evaluation.outputs.sources) == 7
    assert evaluation.metrics["tokens"] == half.items.targets.lengths.sum()
    assert len(task.evaluate(network, task.sample_split(validation, 1)).outputs.sources) == 1


def test_the_loss_is_the_cross_entropy_of_the_targets(prepared: Prepared) -> None:
    task, splits = prepared
    network, train = task.build(splits.train).eval(), splits.train.items
    batch = task.collate(train, np.arange(5))
    source, decoder_inputs, _ = batch.inputs
    scores = network(source, decoder_inputs, batch.mask)
    expected = nn.functional.cross_entropy(
        scores.flatten(0, 1), batch.targets.flatten(), ignore_index=-1, reduction="sum"
    )
    torch.testing.assert_close(task.loss(task.forward(network, batch), batch), expected)
    assert batch.count == train.targets.lengths[:5].sum()
    objective = TaskObjective.of(task, splits)
    parts = [objective.batch(0, first, first + 4, 8) for first in (0, 4)]
    whole = objective.batch(0, 0, 8, 8)
    assert sum(part.count for part in parts) == whole.count
    empty = objective.batch(0, 0, 1, 10_000)  # fewer pairs than processes
    assert empty.count == int((empty.targets >= 0).sum())


def test_resumed_is_as_if_never_stopped(prepared: Prepared, tmp_path: Any) -> None:
    task, splits = prepared

    def run(name: str, cut: bool) -> dict[str, Tensor]:
        for resumed in (False, True) if cut else (False,):
            settings = TrainSettings(batch_size=8, steps=6, evaluate_steps=2, label_smoothing=0.1)
            objective = TaskObjective.of(task, splits)
            loop = Loop(objective, task.build(splits.train), settings, 1e-2, 0, Checkpoints(tmp_path / name))
            if resumed:
                loop.resume()
            for event in loop.run():
                if cut and not resumed and event.step == 5:
                    break
        return weights(loop.network)

    whole, resumed = run("whole", cut=False), run("cut", cut=True)
    assert all(torch.equal(whole[name], resumed[name]) for name in whole)


def test_the_network_reads_a_split_once_for_metrics_views_and_samples(prepared: Prepared) -> None:
    task, splits = prepared
    evaluation = task.evaluate(task.build(splits.train), splits["test"])
    calls: list[Any] = []
    with nn.modules.module.register_module_forward_hook(lambda *arguments: calls.append(arguments)):
        task.views(evaluation)
        task.sample(evaluation)
    assert not calls


def test_views_baselines_and_samples(prepared: Prepared) -> None:
    task, splits = prepared
    evaluation = task.evaluate(task.build(splits.train), splits["test"])
    views = task.views(evaluation)
    assert list(dict.fromkeys(map(type, views))) == [BinnedMetric, Heatmap, Table]
    worst, median = (view for view in views if isinstance(view, Table))
    assert [len(worst.rows), len(median.rows)] == [10, 10]
    scores = [row[3] for row in worst.rows]
    assert scores == sorted(scores)
    assert scores[-1] <= median.rows[0][3]
    heatmap = next(view for view in views if isinstance(view, Heatmap))
    assert heatmap.columns[-1] == "<eos>"
    assert np.array(heatmap.values).sum(axis=1) == pytest.approx(1, abs=1e-3)
    baselines = task.baselines(splits, ["test"])["test"]
    outputs = evaluation.outputs
    expected = translation_metrics(outputs.sources, outputs.references, outputs.scoring)
    assert baselines["copy of the source"] == dict(expected)
    assert set(baselines) == {"copy of the source", "most similar source"}
    sample = task.sample(evaluation)
    assert sample.count("\n  → ") == sample.count("\n  = ") == 4


def test_model_inputs_and_usage(prepared: Prepared) -> None:
    task, splits = prepared
    predictor = task.predictor(task.build(splits.train))
    (best,) = predictor.call("translate", ["w1 w2"])
    result = predictor.model_input(["w1 w2"])
    assert result.sequences[0]["source"] == ["w1", "w2", "<eos>"]
    assert len(result.sequences[0]["target"]) == len(best["translation"].split()) + 1
    result = predictor.model_input([("w1 w2", "w3")])
    assert result.sequences[0] == {"source": ["w1", "w2", "<eos>"], "target": ["w3", "<eos>"]}
    assert result.batch.inputs[1].shape == result.batch.targets.shape == (1, 2)
    assert task.hidden_states(predictor.network, result.batch).shape[:2] == (1, 3)
    usage = predictor.usage("runs/x", splits["validation"].rows)
    assert usage[0].shell.startswith('seriatim translate runs/x "')
    assert usage[0].python.startswith('run.translate("')


def test_teacher_mismatches(prepared: Prepared) -> None:
    task, splits = prepared
    predictor = task.predictor(task.build(splits.train))
    assert task.teacher_mismatches(predictor) == []
    other = untrained("transformer", make_processor("word", 20), positions="learned")
    mismatches = task.teacher_mismatches(other)
    assert any(text.startswith("source: ") for text in mismatches)
    assert any("the teacher reads 20" in text for text in mismatches)


def test_a_source_that_is_too_long_has_no_translation() -> None:
    rows = [{"source": " ".join("abcdef"[: 1 + n % 6]) + f" {n}", "target": "a b"} for n in range(60)]
    model = registry.models.load("gpt").Settings(name="gpt", width=8, layers=1, heads=1)
    settings = TranslateSettings(context_length=6, tokenizer={"kind": "word"})  # type: ignore[arg-type]
    config = TaskConfig(task=settings, data=DataSettings(source="rows"), model=model)
    task, splits = prepare(TranslateTask, config, rows)
    evaluation = task.evaluate(task.build(splits.train), splits["test"])
    assert evaluation.metrics["tokens"] <= 6 * len(splits["test"].rows)
    outputs = evaluation.outputs
    long = [len(text.split()) > 5 for text in outputs.sources]
    assert any(long)
    assert all(text == "" for text, is_long in zip(outputs.hypotheses, long, strict=True) if is_long)


def test_a_processor_is_stored_and_shared(tmp_path: Any) -> None:
    from seriatim.tasks.processor import from_dict

    separate = TranslationProcessor(SUBWORDS.source, make_processor("word").target, 60, decoder_start=3)
    for processor in (SUBWORDS, separate):
        values, tokenizers = processor.to_dict()
        for name, tokenizer in tokenizers.items():
            tokenizer.save(tmp_path / name)
        restored = from_dict(values, tmp_path)
        assert restored.compatible(processor)
        assert (restored.source is restored.target) == (processor.source is processor.target)
        assert restored.tokens.start == processor.tokens.start
    assert not SUBWORDS.compatible(separate)
    pretrained = {"tokenizer": separate.target, "source_tokenizer": SUBWORDS.source}
    assert TranslationProcessor.from_pretrained(pretrained, 60).compatible(separate)
