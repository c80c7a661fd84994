"""Pre-training: sentences, documents, pairs of passages, hidden tokens, the loss of both, and what is filled in."""

from __future__ import annotations

import csv
import math
from collections import Counter
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import seriatim
from seriatim import api
from seriatim.core import registry
from seriatim.data.corpus import whole_span
from seriatim.data.documents import Documents
from seriatim.data.encoded import EncodedPart
from seriatim.data.notes import Notes
from seriatim.data.sentences import sentences
from seriatim.data.tokenizers import Tokenizer, TokenizerSettings
from seriatim.tasks._masking import Masking
from seriatim.tasks._passages import Passages

# ── sentences and documents ───────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    "wanted",
    [
        ["Mr. Smith went to Washington.", "He met Dr. J. R. Brown at 3 p.m. on Monday!", '"Really?" she asked.'],
        ["Then they left...", "And so on"],
        ["The U.S. economy grew by 3.5 percent.", "She said no.", "It was No. 5.", "Vol. 3 came out in Jan. 1990."],
        ["Was it he?", "(No.)", "¿Cómo está?", "«Bien.»"],
        ["H. gammarus is found at 60 cm ( 24 in ) .", 'It is " big . "'],
        ["यह अच्छा है।", "और यह भी।"],
    ],
)
def test_sentences_are_told_apart(wanted: list[str]) -> None:
    assert sentences("  ".join(wanted) + " ") == wanted


def test_sentences_of_full_width_need_no_blanks() -> None:
    wanted = ["今天天气很好。", "我们去公园！", "「好吗？」", "他说。"]
    assert sentences("".join(wanted)) == wanted


def read(path: Path, column: str | None = None) -> list[list[str]]:
    return list(Documents(whole_span(str(path), column, "utf-8", None, Notes(None))[0]))


def test_titles_of_wikitext_begin_documents_and_its_marks_go(tmp_path: Path) -> None:
    text = (
        " \n = First = \n \n It is 2 @.@ 5 m long . The <unk> is a well @-@ known one . \n \n = = Part = = \n \n"
        " Goals : A \n = Ties , L = \n none . \n \n = Second = \n \n It was last . \n"
    )
    (tmp_path / "wiki.txt").write_text(text, encoding="utf-8")
    assert read(tmp_path / "wiki.txt") == [
        ["It is 2.5 m long .", "The [UNK] is a well-known one .", "Goals : A", "none ."],
        ["It was last ."],
    ]


def test_blank_lines_or_files_or_rows_are_documents(tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text("One. Two.\nThree.\n\n\nFour.", encoding="utf-8")
    assert read(tmp_path / "text.txt") == [["One.", "Two.", "Three."], ["Four."]]
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "a.txt").write_text("One.\n\nTwo.", encoding="utf-8")
    (folder / "b.txt").write_text("Three.", encoding="utf-8")
    assert read(folder) == [["One.", "Two."], ["Three."]]
    with open(tmp_path / "table.csv", "w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([["id", "text"], ["1", "One.\n\nTwo."], ["2", "Three."]])
    assert read(tmp_path / "table.csv", "text") == [["One.", "Two."], ["Three."]]


def test_lines_broken_where_they_were_full_are_joined(tmp_path: Path) -> None:
    paragraph = "It was a long way\nto the town and\nback. They went\nall the same.\n\n"
    (tmp_path / "book.txt").write_text(paragraph * 10, encoding="utf-8")
    assert read(tmp_path / "book.txt") == [["It was a long way to the town and back.", "They went all the same."]] * 10


# ── pairs of passages ─────────────────────────────────────────────────────────────────────────────────────────────

TEXT = "the old new cat dog saw bit hat man ran far near a house was big small red"
WORDS = TEXT.split()


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return Tokenizer.train(TokenizerSettings(kind="bert", size=80), [" ".join(WORDS) + " unbelievably"] * 3)


def part_of(lengths: list[list[int]]) -> EncodedPart:
    """Documents of sentences of so many tokens. Each token is the number of its place, from 100 on."""
    flat = [length for document in lengths for length in document]
    tokens = np.arange(100, 100 + sum(flat))
    return EncodedPart(tokens, np.cumsum(flat), np.cumsum([len(document) for document in lengths]))


def some_documents(seed: int = 0) -> list[list[int]]:
    draw = np.random.default_rng(seed)
    return [draw.integers(1, 25, draw.integers(2, 12)).tolist() for _ in range(40)]


def drawn(part: Passages, times: int) -> list[tuple[list[int], list[int], int]]:
    """First and second passage of every row, drawn several times, and whether the second is from elsewhere."""
    found = []
    for time in range(times):
        pairs = part.draw(np.arange(len(part)), np.random.default_rng(time))
        for tokens, length, text, other in zip(pairs.tokens, pairs.lengths, pairs.text, pairs.elsewhere, strict=True):
            cls, sep, pad = part.around
            row = tokens[:length].tolist()
            middle = row.index(sep)
            assert row[0] == cls
            assert row[-1] == sep
            assert row.count(sep) == 2
            assert set(tokens[length:].tolist()) <= {pad}
            assert (tokens[text] >= 100).all()
            assert text.sum() == length - 3
            found.append((row[1:middle], row[middle + 1 : -1], int(other)))
    return found


def test_passages_are_whole_sentences_that_follow_or_come_from_another_document(tokenizer: Tokenizer) -> None:
    documents = some_documents()
    length, half = 48, (48 - 3) // 2
    part = Passages(part_of(documents), tokenizer, length, paired=True)
    ends = np.cumsum([n for document in documents for n in document])  # of sentences; those too long are in parts
    assert max(max(document) for document in documents) > half
    document_of = np.repeat(np.arange(len(documents)), [sum(document) for document in documents])
    begins = set(np.cumsum([0, *(sum(document) for document in documents)]).tolist())
    borders = {0, *part.ends.tolist()}
    assert set(ends.tolist()) <= borders
    assert np.diff(part.ends, prepend=0).max() <= half
    labels = Counter()
    for first, second, elsewhere in drawn(part, 30):
        a, b = np.array(first) - 100, np.array(second) - 100
        assert len(a) + len(b) <= length - 3
        for passage in (a, b):
            assert (np.diff(passage) == 1).all()
            assert {int(passage[0]), int(passage[-1]) + 1} <= borders
            assert len(set(document_of[passage].tolist())) == 1
        assert int(b[0]) not in begins  # a passage that begins a document would give itself away
        follows = document_of[a[0]] == document_of[b[0]]
        assert follows == (not elsewhere)
        assert elsewhere or b[0] == a[-1] + 1
        after = part.ends[np.searchsorted(part.ends, int(b[-1]) + 2)] if int(b[-1]) + 1 not in begins else 10**9
        assert len(a) + len(b) + int(after) - int(b[-1]) - 1 > length - 3  # no room for another sentence
        labels[elsewhere] += 1
    assert 0.45 < labels[1] / sum(labels.values()) < 0.55


def test_every_sentence_of_another_document_is_as_likely(tokenizer: Tokenizer) -> None:
    part = Passages(part_of([[4, 4, 4], [4, 4], [4, 4, 4, 4]]), tokenizer, 32, paired=True)
    chosen = part._another(np.zeros(60_000, np.int64), np.random.default_rng(0))
    counts = Counter(chosen.tolist())
    assert set(counts) == {4, 6, 7, 8}  # those that follow another in the second and the third document
    assert all(abs(count - 15_000) < 600 for count in counts.values())


def test_borders_of_stretches_move_and_all_is_read(tokenizer: Tokenizer) -> None:
    part = Passages(part_of([[5] * 40, [5] * 3]), tokenizer, 23, paired=True)
    begins = {first[0] for first, _, _ in drawn(part, 20)}
    assert len(begins) > len(part)
    whole = Passages(part_of([[5] * 40, [5] * 3]), tokenizer, 23, paired=False)
    assert not whole.left_out
    rows = [whole.draw(np.arange(len(whole)), np.random.default_rng(time)) for time in range(10)]
    seen = {token for some in rows for token in some.tokens[some.text].tolist()}
    assert seen == set(range(100, 100 + 43 * 5))


def test_a_single_document_is_cut_into_several_and_single_sentences_are_left_out(tokenizer: Tokenizer) -> None:
    assert len(set(Passages(part_of([[4] * 70]), tokenizer, 32, paired=True).document.tolist())) > 1
    part = Passages(part_of([[4] * 6, [4], [4] * 6]), tokenizer, 32, paired=True)
    assert part.left_out == 1
    assert not any(124 <= token < 128 for a, b, _ in drawn(part, 20) for token in a + b)
    with pytest.raises(seriatim.SeriatimError, match="training part: 1, and pairs need several"):
        Passages(part_of([[4] * 6, [4]]), tokenizer, 32, paired=True)


# ── hidden tokens ─────────────────────────────────────────────────────────────────────────────────────────────────


def test_fifteen_in_a_hundred_are_hidden_eighty_ten_ten(tokenizer: Tokenizer) -> None:
    masking = Masking.of(tokenizer, 0.15, whole_word=False)
    draw = np.random.default_rng(0)
    tokens = draw.integers(0, tokenizer.size, (400, 100))
    text = np.ones(tokens.shape, dtype=bool)
    text[:, 90:] = False
    chosen = masking.choose(tokens, text, draw)
    shown = masking.cover(tokens, chosen, draw)
    specials = {tokenizer.cls, tokenizer.sep, tokenizer.mask, tokenizer.pad, tokenizer.unk}
    ordinary = ~np.isin(tokens, list(specials))
    assert not (chosen & ~(text & ordinary)).any()
    assert (chosen.sum(axis=1) == np.rint(0.15 * (text & ordinary).sum(axis=1))).all()
    assert (shown == tokens)[~chosen].all()
    hidden, kept = shown[chosen] == tokenizer.mask, shown[chosen] == tokens[chosen]
    changed = shown[chosen][~hidden & ~kept]
    assert abs(hidden.mean() - 0.8) < 0.02
    assert abs(len(changed) / chosen.sum() - 0.1) < 0.015
    assert not set(changed.tolist()) & specials
    assert len(set(changed.tolist())) > 0.9 * (tokenizer.size - 5)
    assert abs(chosen[:, :90].mean(axis=0).std() / chosen.mean()) < 0.2  # no place is preferred


def test_a_row_of_unknown_tokens_has_a_target(tokenizer: Tokenizer) -> None:
    tokens = np.full((3, 9), tokenizer.unk)
    text = np.arange(9) > np.array([[0], [5], [7]])
    chosen = Masking.of(tokenizer, 0.15, whole_word=True).choose(tokens, text, np.random.default_rng(0))
    assert (chosen.sum(axis=1) == 1).all()
    assert not (chosen & ~text).any()


def test_words_are_hidden_whole(tokenizer: Tokenizer) -> None:
    going_on = np.flatnonzero(tokenizer.continues)
    starting = np.flatnonzero(~tokenizer.continues)[5:]
    draw = np.random.default_rng(1)
    tokens = np.where(draw.random((300, 60)) < 0.5, *(draw.choice(some, (300, 60)) for some in (going_on, starting)))
    tokens[:, 0] = starting[0]
    text = np.ones(tokens.shape, dtype=bool)
    text[:, -1] = False  # as [SEP] stands there
    chosen = Masking.of(tokenizer, 0.15, whole_word=True).choose(tokens, text, draw)
    same_word = tokenizer.continues[tokens[:, 1:-1]]
    assert (chosen[:, 1:-1] == chosen[:, :-2])[same_word].all()
    counts = chosen.sum(axis=1)
    assert counts.min() >= 1
    longest_word = 20
    assert counts.max() <= max(round(0.15 * 59), longest_word)
    assert 0.11 < chosen[:, :-1].mean() < 0.15


# ── the task ──────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    draw = np.random.default_rng(3)
    texts = []
    for _ in range(120):
        count = draw.integers(2, 7)
        chosen = (draw.choice(WORDS, draw.integers(2, 9)).tolist() for _ in range(count))
        texts.append("\n".join(" ".join(words) + " ." for words in chosen))
    path = tmp_path_factory.mktemp("library") / "library.txt"
    path.write_text("\n\n".join(texts), encoding="utf-8")
    return path


def prepared(library: Path, model: Any = None, **task: Any) -> tuple[Any, Any]:
    tiny = {"name": "bert", "width": 8, "layers": 2, "heads": 2, "dropout": 0.0} if model is None else model
    settings = {"model": tiny, "task": {"length": 32, **task}, "train": {"steps": 4, "batch": 6}}
    config = api.configure("pretrain", str(library), None, settings)
    return config, registry.tasks.load("pretrain").prepare(config)


def oracle(network: Any, config: Any) -> Any:
    """The same network by another program."""
    from transformers import BertConfig, BertForPreTraining

    from seriatim.models import bert

    (form,) = bert.HUB
    head = next(one for one in form.heads if one.architecture == "BertForPreTraining")
    own = dict(network.named_parameters())
    described = form.config(config.model, own, [])
    theirs = BertForPreTraining(BertConfig(**described, attn_implementation="eager")).eval()
    tensors: dict[str, Any] = {}
    for entry in form.entries(config.model, head):
        tensors |= entry.write(own[entry.ours].detach())
    missing, unexpected = theirs.load_state_dict(tensors, strict=False)
    assert not unexpected
    assert all("decoder" in name or "position_ids" in name for name in missing)
    theirs.tie_weights()
    return theirs


def test_loss_and_gradients_are_those_of_bert_for_pre_training(library: Path) -> None:
    config, task = prepared(library)
    network = task.build(config.model).eval()
    batch = task.batch(3, 0, 6, 6)
    loss, _ = task.loss(network, batch, None, 0.0)
    (loss / batch.count).backward()

    theirs = oracle(network, config)
    labels = torch.full(batch.inputs.shape, -100)
    labels.view(-1)[batch.targets["places"]] = batch.targets["tokens"]
    segments = network.input.segments_of(batch.inputs)
    mask = torch.ones_like(batch.inputs) if batch.mask is None else batch.mask.long()
    elsewhere = batch.targets["elsewhere"]
    out = theirs(batch.inputs, mask, segments, labels=labels, next_sentence_label=elsewhere)
    out.loss.backward()
    assert 0 < int(elsewhere.sum()) < 6
    torch.testing.assert_close(loss / batch.count, out.loss, rtol=1e-5, atol=1e-6)
    named = dict(theirs.named_parameters())
    for ours, their in {
        "input.weight": "bert.embeddings.word_embeddings.weight",
        "input.segments.weight": "bert.embeddings.token_type_embeddings.weight",
        "head.pooler.weight": "bert.pooler.dense.weight",
        "head.masked.dense.weight": "cls.predictions.transform.dense.weight",
        "head.masked.bias": "cls.predictions.bias",
        "head.next.weight": "cls.seq_relationship.weight",
    }.items():
        torch.testing.assert_close(network.get_parameter(ours).grad, named[their].grad, rtol=1e-4, atol=1e-6)
    assert set(segments[0].tolist()) == {0, 1}


@pytest.mark.parametrize("task", [{}, {"whole_word": True}, {"next": False}, {"masked": False}])
def test_how_a_step_is_cut_changes_nothing(library: Path, task: dict[str, Any]) -> None:
    """Gradients of a global batch in one piece, and in pieces of unequal numbers of hidden tokens."""
    config, made = prepared(library, **task)
    network = made.build(config.model).double().eval()

    def gradients(cuts: list[int]) -> list[torch.Tensor]:
        network.zero_grad()
        batches = [made.batch(5, first, last, 12) for first, last in pairwise(cuts)]
        count = sum(batch.count for batch in batches)
        for batch in batches:
            (made.loss(network, batch, None, 0.0)[0] / count).backward()
        return [parameter.grad.clone() for parameter in network.parameters()]

    whole = gradients([0, 12])
    torch.testing.assert_close(whole, gradients([0, 1, 5, 12]), rtol=1e-9, atol=1e-12)
    assert all(gradient.abs().sum() > 0 for gradient in whole)


def test_a_teacher_is_asked_about_both(library: Path) -> None:
    config, task = prepared(library)
    network, batch = task.build(config.model).eval(), task.batch(0, 0, 6, 6)
    scores, vectors, _ = task.read(network, batch)
    assert len(vectors) == batch.count
    assert task.soft(network, scores, scores, 2.0).item() == pytest.approx(0.0, abs=1e-4)
    other = scores._replace(next=scores.next + torch.tensor([0.0, 1.0]))
    logs = [(one / 2.0).log_softmax(dim=-1) for one in (scores.next, other.next)]
    wanted = 4.0 * batch.count / 6 * (logs[1].exp() * (logs[1] - logs[0])).sum()
    torch.testing.assert_close(task.soft(network, scores, other, 2.0), wanted, rtol=1e-3, atol=1e-4)
    predictor = registry.tasks.load("pretrain").Filler(network, task.coder)
    assert task.unlike(predictor) == []
    single, alone = prepared(library, next=False)
    silent = registry.tasks.load("pretrain").Filler(alone.build(single.model), alone.coder)
    assert task.unlike(silent) == ["it was never asked for pairs"]


def test_measures_are_the_means_of_the_parts_and_fixed(library: Path) -> None:
    config, task = prepared(library)
    network = task.build(config.model)
    measured = task.evaluate(network, "train")
    assert math.isclose(measured["loss"], measured["masked_loss"] + measured["next_loss"])
    assert math.isclose(measured["masked_perplexity"], math.exp(measured["masked_loss"]))
    network.train()
    again = prepared(library)[1]
    assert again.evaluate(network, "train") == measured
    # Along the way fewer rows are looked at: they are drawn as among all.
    rows, some = task.chosen("train"), task.chosen("train", 1_000)
    assert 0 < len(some) < len(rows)
    whole = [row for one in task._drawn("train", rows) for row in one.shown.tolist()]
    few = [row for one in task._drawn("train", some) for row in one.shown.tolist()]
    assert [_bare(row) for row in few] == [_bare(whole[index]) for index in some.tolist()]


def _bare(row: list[int]) -> list[int]:
    return [token for token in row if token]


def test_the_baseline_is_the_entropy_of_single_tokens(library: Path) -> None:
    _, task = prepared(library)
    (measures,) = task.baselines("test").values()
    counts = Counter(task.parts["train"].tokens.tolist())
    total = sum(counts.values()) + 0.5 * (task.coder.tokenizer.size - 5)  # no special token stands in this text
    rows = list(task._drawn("test", task.chosen("test")))
    hidden = [token for one in rows for token in one.tokens[one.chosen].tolist()]
    wanted = -sum(math.log((counts[token] + 0.5) / (total + 2.5)) for token in hidden) / len(hidden)
    assert math.isclose(measures["masked_loss"], wanted)
    assert measures["next_loss"] == pytest.approx(math.log(2))
    assert measures["next_accuracy"] == 0.5


def test_masks_are_drawn_anew_in_every_epoch(library: Path) -> None:
    _, task = prepared(library)
    size = len(task.parts["train"])
    rows = size // 2 * 2
    first, second = (task.batch(step, 0, rows, rows) for step in (0, 1))
    seen = [set(map(tuple, batch.inputs.tolist())) for batch in (first, second)]
    assert len(seen[0] & seen[1]) < rows / 10


@pytest.mark.parametrize(
    ("settings", "code"),
    [
        ({"model": {"name": "gpt"}}, "task.causal"),
        ({"model": {"name": "lstm", "bidirectional": False}}, "task.causal"),
        ({"task": {"masked": False, "next": False}}, "task.heads"),
        ({"data": {"tokenizer": {"kind": "word"}}}, "tokenizer.special"),
        ({"model": {"name": "bert", "context": 16}, "task": {"length": 32}}, "model.context"),
    ],
)
def test_what_cannot_be_is_refused_before_a_folder_is_made(
    library: Path, tmp_path: Path, settings: dict[str, Any], code: str
) -> None:
    with pytest.raises(seriatim.SeriatimError) as caught:
        seriatim.train("pretrain", str(library), settings={"model": {"name": "bert"}} | settings, out=tmp_path / "run")
    assert caught.value.code == code
    assert not (tmp_path / "run").exists()


# ── answers ───────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture(scope="module")
def filler(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Sentences that say nothing but one thing each: learnt in a moment."""
    folder = tmp_path_factory.mktemp("capitals")
    facts = {"france": "paris", "italy": "rome", "spain": "madrid", "greece": "athens"}
    lines = [f"The capital of {land.capitalize()} is {town.capitalize()} ." for land, town in facts.items()]
    draw = np.random.default_rng(0)
    texts = ["\n".join(draw.choice(lines, 4)) for _ in range(200)]
    (folder / "text.txt").write_text("\n\n".join(texts), encoding="utf-8")
    model = {"name": "gru", "width": 32}
    train = {"steps": 150, "batch": 16, "optimiser": {"rate": 0.01}, "schedule": {"warmup": 20}, "evaluate_steps": 150}
    settings = {"model": model, "task": {"length": 20}, "train": train, "data": {"fractions": [0.8, 0.1, 0.1]}}
    return seriatim.train("pretrain", str(folder / "text.txt"), settings=settings, out=folder / "run")


def test_gaps_are_filled_with_what_was_learnt(filler: Any) -> None:
    answers = filler.predict(["The capital of [MASK] is Paris .", "The capital of Spain is [MASK] [MASK]"])
    assert answers[0]["text"] == "The capital of france is Paris ."
    assert answers[1]["text"] == "The capital of Spain is madrid ."
    assert [len(answer["gaps"]) for answer in answers] == [1, 2]
    likely = [one["probability"] for one in answers[0]["gaps"][0]]
    assert len(likely) == 5
    assert likely == sorted(likely, reverse=True)
    assert likely[0] > 0.5
    alone = filler.predict("The capital of [MASK] is Paris .")
    assert alone["gaps"][0][0]["probability"] == pytest.approx(likely[0], rel=1e-4)
    measures = filler.summary["measures"]["test"]
    (baseline,) = filler.summary["baselines"]["test"].values()
    assert measures["masked_loss"] < 0.5 * baseline["masked_loss"]


def test_two_texts_are_judged_and_tables_written(filler: Any, tmp_path: Path) -> None:
    two = ("The capital of Spain is Madrid .", "The capital of [MASK] is Rome .")
    pair, tabbed, one = filler.predict([two, "\t".join(two), "The capital of [MASK] is Rome ."])
    assert pair == tabbed
    assert 0 < pair["follows"] < 1
    assert pair["text"] == [two[0], two[1].replace("[MASK]", "italy")]
    assert "follows" not in one
    with open(tmp_path / "new.csv", "w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([["text"], ["The capital of [MASK] is Rome ."], ["[MASK] capital"]])
    table = filler.predict_file(tmp_path / "new.csv")
    assert table.columns == ["text", "gaps"]
    assert [row[0] for row in table.rows] == ["The capital of italy is Rome .", "the capital"]


def test_texts_without_gaps_are_all_told_at_once(filler: Any) -> None:
    with pytest.raises(seriatim.SeriatimError) as caught:
        filler.predict(["Nothing hidden .", "The [MASK] of Spain", "Nor here ."])
    assert caught.value.code == "predict.input"
    assert "input 1" in caught.value.cause
    assert "input 3" in caught.value.cause
    assert "input 2" not in caught.value.cause
    with pytest.raises(seriatim.SeriatimError, match="behind the 20 tokens"):
        filler.predict(["capital " * 30 + "[MASK]"])


def test_an_encoder_without_heads_answers_nothing_and_embeds(library: Path, tmp_path: Path) -> None:
    from seriatim.core.config import dump_yaml
    from seriatim.core.files import write_text
    from seriatim.core.tensors import save_tensors
    from seriatim.nn.network import weights
    from seriatim.tasks._pretrain_network import network

    config, task = prepared(library)
    bare = config.model_copy(update={"task": config.task.model_copy(update={"masked": False, "next": False})})
    made = network(bare.model, task.coder, masked=False, next=False)
    assert {name.split(".")[1] for name in weights(made) if name.startswith("head.")} == {"pooler"}
    task.save(tmp_path)
    write_text(tmp_path / "config.yaml", dump_yaml(bare))
    save_tensors(tmp_path / "model.safetensors", weights(made))
    run = seriatim.load(tmp_path)
    with pytest.raises(seriatim.SeriatimError) as caught:
        run.predict(["the [MASK] cat"])
    assert caught.value.code == "run.question"
    assert np.allclose(np.linalg.norm(run.embed(["the old cat", "a dog"]), axis=1), 1.0, atol=1e-5)


# ── how a fresh network begins ────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("preset", ["tiny", "mini"])
def test_fresh_heads_look_at_neighbours_and_at_the_same_word_of_the_other_text(preset: str) -> None:
    torch.manual_seed(0)
    settings = registry.models.load("bert").Settings(name="bert", preset=preset)
    inputs = settings.token_input(1_000, 3)
    bert = settings.build(inputs.embedding_dim, 128).eval()
    tokens = torch.randint(5, 1_000, (8, 101))
    tokens[:, 0], tokens[:, 50], tokens[:, 100] = 2, 3, 3  # [CLS] a [SEP] b [SEP]
    tokens[:, 20] = tokens[:, 80] = 4
    trace: dict[str, torch.Tensor] = {}
    with torch.inference_mode():
        bert(inputs(tokens), None, None, trace)
    places = torch.arange(1, 100)
    first, second = trace["layer0.attention"], trace["layer1.attention"]
    assert first[:, 0, places, places - 1].mean() > 0.9
    assert second[:, 0, places, places + 1].mean() > 0.5
    same = first[:, 1, 80, 20]  # the one word of b that a has
    assert same.median() > 0.3
    assert first[:, 1, 80, 0].median() < 0.5 < 10 * first[:, 1, 60:79, 0].mean()
    assert (same > first[:, 1, 60:79, 20].mean(dim=1)).all()


def test_pairs_may_come_first_but_not_where_weights_are_trained(library: Path) -> None:
    config, _ = prepared(library, pairs_first=2)
    config = config.model_copy(update={"train": config.train.model_copy(update={"steps": 10})})
    task = registry.tasks.load("pretrain").prepare(config)
    assert [len(task.batch(step, 0, 4, 4).targets["places"]) > 0 for step in range(4)] == [False, False, True, True]
    network = task.build(config.model)
    loss, _ = task.loss(network, batch := task.batch(0, 0, 4, 4), None, 0.0)
    scores, _, _ = task.read(network, batch)
    wanted = torch.nn.functional.cross_entropy(scores.next, batch.targets["elsewhere"], reduction="sum")
    assert loss.item() == wanted.item()
    assert batch.count == 4
    started = config.model_copy(update={"start": "elsewhere"})
    assert registry.tasks.load("pretrain").prepare(started).settings.pairs_first == 0
    short = config.model_copy(update={"train": config.train.model_copy(update={"steps": 5})})
    assert registry.tasks.load("pretrain").prepare(short).settings.pairs_first == 1
