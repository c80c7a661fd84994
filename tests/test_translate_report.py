"""How translations are judged and shown: against sacreBLEU itself, by hand, and on pages made from tiny runs."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import sacrebleu

import seriatim
from seriatim import report
from seriatim.core import measures
from seriatim.core.measures import Measured
from seriatim.decode.options import TranslateSettings
from seriatim.report.bins import bins as drawn
from seriatim.report.figures import read
from seriatim.report.lessons import lessons
from seriatim.report.views import together
from seriatim.runs import Run
from seriatim.tasks import _bleu, _translate_views, translate
from seriatim.tasks._bleu import Manner, Wanted
from seriatim.tasks._nearest import Memory
from test_report import Page, make_run

SAID = ["the cat sat on the mat .", "he reads a book", "", "we go home now , together"]
FIRST = ["the cat sat on a mat .", "she reads the book", "nothing", "we go home now , together"]
OTHER = ["a cat sat on the mat .", None, "nothing at all", None]
REFERENCES = [[a] if b is None else [a, b] for a, b in zip(FIRST, OTHER, strict=True)]


def wanted() -> Wanted:
    return Wanted(["s1", "s2", "s3", "s4"], REFERENCES)


# Measures


def test_measures_are_those_of_sacrebleu() -> None:
    found = _bleu.judged(SAID, wanted(), Manner())
    assert list(found) == ["bleu", "bleu_all", "chrf", "exact_match", "sentences"]
    assert found["bleu"] == sacrebleu.corpus_bleu(SAID, [FIRST]).score
    assert found["bleu_all"] == sacrebleu.corpus_bleu(SAID, [FIRST, OTHER]).score  # type: ignore[list-item]
    assert found["chrf"] == sacrebleu.corpus_chrf(SAID, [FIRST]).score
    assert (found["exact_match"], found["sentences"]) == (0.25, 4.0)
    assert 0 < found["bleu"] < found["bleu_all"] < 100
    version = f"version:{sacrebleu.__version__}"
    assert found.signatures == {
        "bleu": f"nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|{version}",
        "bleu_all": f"nrefs:var|case:mixed|eff:no|tok:13a|smooth:exp|{version}",
        "chrf": f"nrefs:1|case:mixed|eff:yes|nc:6|nw:0|space:no|{version}",
    }
    one_each = _bleu.judged(SAID, Wanted(["a", "b", "c", "d"], [[a] for a in FIRST]), Manner())
    assert "bleu_all" not in one_each
    each = _bleu.each_chrf(SAID, REFERENCES)
    assert each == [sacrebleu.sentence_chrf(a, b).score for a, b in zip(SAID, REFERENCES, strict=True)]


def test_bleu_by_hand() -> None:
    """Of 5 words 4 are right, of 4 pairs 3, of 3 triples 2, of 2 fours 1; one word longer than the reference."""
    value, _ = _bleu.bleu(["a b c d e"], [["a b c d"]])
    assert value == pytest.approx(100 * (4 / 5 * 3 / 4 * 2 / 3 * 1 / 2) ** 0.25)


def test_sources_are_judged_once_with_all_their_targets() -> None:
    found = Wanted.of(["b", "a", "b", "b", "c"], ["1", "2", "3", "1", "4"])
    assert (found.sources, found.references) == (["b", "a", "c"], [["1", "3"], ["2"], ["4"]])
    assert found.several
    assert found.spread(2).sources == ["b", "c"]
    assert found.spread(3) is found
    assert _bleu.right(["3", "1", "4"], found.references) == [True, False, True]


@pytest.mark.parametrize(
    ("targets", "letters", "manner"),
    [
        (["Je ne sais pas.", "Où est-il ?", "Elle dort."], False, Manner("13a", False)),
        (["我不知道。", "他在哪里?", "她在睡觉。"], False, Manner("char", False)),
        (["HH AH L OW", "OW L AH HH"] * 100, False, Manner("13a", True)),  # phonemes
        (["bonjour", "merci", "maison"], False, Manner("char", True)),  # single words
        (["1999-01-31", "2003-11-02"], True, Manner("char", True)),  # dates, letter by letter
        (["a", "b", "a"] * 30, False, Manner("13a", True)),  # single symbols
        ([], False, Manner("13a", False)),
    ],
)
def test_how_to_judge_follows_from_the_targets(targets: list[str], letters: bool, manner: Manner) -> None:
    assert Manner.of(targets, letters) == manner


def test_writing_without_blanks_is_split_into_characters_and_the_signature_says_so() -> None:
    said, true = ["我不知道他"], ["我不知道她"]
    found = _bleu.judged(said, Wanted(["x"], [true]), Manner("char", False))
    assert found["bleu"] == sacrebleu.corpus_bleu(said, [true], tokenize="char").score > 0
    assert "tok:char" in found.signatures["bleu"]


def test_of_a_closed_set_the_first_measure_is_the_exact_match() -> None:
    closed = _bleu.judged(SAID, wanted(), Manner("13a", True)) | {"loss": 1.0, "accuracy": 0.5}
    assert measures.main(closed) == "exact_match"
    assert measures.main(_bleu.judged(SAID, wanted(), Manner()) | {"loss": 1.0}) == "bleu"
    assert measures.telling(closed)[:2] == ["exact_match", "bleu"]
    assert "loss" in measures.telling(closed)
    assert measures.main({"loss": 1.0, "perplexity": 2.7}) == "loss"


def test_a_translation_memory_finds_the_most_similar_source() -> None:
    memory = Memory(["the cat sleeps", "the dog sleeps", "the cat sleeps", "no one"], ["A", "B", "C", "D"])
    assert memory.answer("The dog!") == "B"
    assert memory.answer("a cat") == "A"  # the first target of a source
    assert memory.answer("xyz") == "xyz"
    assert memory.answer("") == ""
    chinese = Memory(["我睡觉", "他走路"], ["I sleep", "he walks"])
    assert chinese.answer("她走路") == "he walks"


# Views


def test_bins_by_hand() -> None:
    sizes = [1] * 10 + [2] * 20 + [3] * 30 + [5] * 20 + [9] * 15 + [20] * 5
    assert _translate_views.bins(sizes, least=10) == [(1, 2), (3, 3), (5, 5), (9, 20)]
    assert _translate_views.bins(sizes, least=5) == [(1, 2), (3, 3), (5, 5), (9, 9), (20, 20)]
    assert _translate_views.bins([4] * 50) == [(4, 4)]
    assert _translate_views.bins([1, 2, 3]) == [(1, 3)]


def test_quality_by_length_is_that_of_the_sentences_of_the_length() -> None:
    sources = [f"{index} a" for index in range(25)] + [f"{index} a b c d" for index in range(25)]
    references = [[f"{source} e f", "g"] for source in sources]
    said = [reference[0] if index % 2 else "x y z a b" for index, reference in enumerate(references)]
    both = Wanted(sources, references)
    (view,) = _translate_views.by_length(said, both, Manner(), "bleu")
    assert view["bins"] == ["2", "5"]
    assert view["counts"] == [25, 25]
    first = [some[0] for some in references]
    parts = [sacrebleu.corpus_bleu(said[a:b], [first[a:b]]).score for a, b in ((0, 25), (25, 50))]
    assert view["series"] == [["", pytest.approx(parts, abs=1e-4)]]
    assert "nrefs:1" in view["note"]
    (view,) = _translate_views.by_length(said, both, Manner(), "exact_match")
    assert view["series"] == [["", [12 / 25, 13 / 25]]]
    assert _translate_views.by_length(said[:25], both.take(range(25)), Manner(), "bleu") == []


def test_lengths_are_counted_in_what_the_writing_has() -> None:
    assert _translate_views.lengths(["a b c", "d"]) == ([3, 1], "words")
    assert _translate_views.lengths(["我不知道", "他"]) == ([4, 1], "characters")


# Runs


@pytest.fixture(scope="module")
def compared(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Two tiny models that have learned next to nothing; sources of two lengths, some with two targets."""
    folder = tmp_path_factory.mktemp("translate")
    rows = []
    for index in range(160):
        words = [f"w{(index * 7 + place) % 11}" for place in range(3 if index % 2 else 8)]
        source = " ".join([*words, f"n{index}"])
        rows.append(f"{source}\t{' '.join(reversed(words))} <&>\n")
        rows += [f"{source}\t{' '.join(words)}\n"] if index % 5 == 0 else []
    (folder / "pairs.tsv").write_text("".join(rows), encoding="utf-8")
    settings = {
        "model": {"width": 8},
        "data": {"held_out": 50, "tokenizer": {"kind": "word", "size": 60}},
        "task": {"beams": 2},
    }
    found = seriatim.compare(
        "translate",
        str(folder / "pairs.tsv"),
        ["seq2seq", "bahdanau"],
        out=folder / "out",
        steps=2,
        batch=8,
        settings=settings,
    )
    assert not found.failed
    return found


def test_a_part_is_translated_by_beam_search_at_the_end_and_greedily_along_the_way(compared: Any) -> None:
    run: Run = compared.runs[1]
    task = translate.reopen(run.path, run.config)
    part = task.parts["test"].examples
    once = Wanted.of(part.inputs, part.targets)  # type: ignore[arg-type]
    assert len(once) == 50 < len(part)
    best = [one[0].text for one in run.predictor.translate(once.sources, TranslateSettings(beams=2))]
    found = task.evaluate(run.model, "test")
    first = [some[0] for some in once.references]
    assert found["bleu"] == sacrebleu.corpus_bleu(best, [first], force=True).score
    assert found["chrf"] == sacrebleu.corpus_chrf(best, [first]).score
    assert found["sentences"] == 50
    assert found["tokens"] == sum(task.parts["test"].targets.lengths)
    assert run.summary["measures"]["test"] == pytest.approx(dict(found))
    translate_judged, translate.JUDGED = translate.JUDGED, 7
    try:
        some, said = task.translated(run.model, "valid", 1_000)
    finally:
        translate.JUDGED = translate_judged
    assert len(some) == 7
    assert said == [one[0].text for one in run.predictor.translate(some.sources, TranslateSettings(beams=1))]


def test_translations_are_kept_for_the_views_until_the_weights_change(compared: Any) -> None:
    run: Run = compared.runs[1]
    task = translate.reopen(run.path, run.config)
    network = task.build(run.config.model)
    _, first = task.translated(network, "test")
    assert task.translated(network, "test")[1] is first
    for weight in network.parameters():
        weight.data.add_(0.5)
    assert task.translated(network, "test")[1] is not first


def test_a_source_that_is_too_long_for_the_model_has_no_translation(compared: Any) -> None:
    run: Run = compared.runs[1]
    interpreter = translate.open_run(run.path, run.config)
    interpreter.__dict__["context"] = 5
    found = _translate_views.answers(interpreter, ["w1 w2", "w1 " * 9], TranslateSettings(beams=1))
    assert found[1] == ""


def test_views_are_json_and_complete(compared: Any) -> None:
    plain, attending = (run.evaluation()["test"] for run in compared.runs)
    kinds = [view["kind"] for view in attending]
    assert list(dict.fromkeys(kinds)) == ["bins", "heat", "table"]
    assert "heat" not in [view["kind"] for view in plain]
    worst, middle = (view for view in attending if view["kind"] == "table")
    assert [len(worst["rows"]), len(middle["rows"])] == [10, 10]
    scores = [row[3] for row in worst["rows"]]
    assert scores == sorted(scores)
    assert scores[-1] <= middle["rows"][0][3]
    picture = next(view for view in attending if view["kind"] == "heat")
    assert picture["columns"][-1] == "<eos>"
    assert np.array(picture["values"]).sum(axis=1) == pytest.approx(1, abs=1e-5)
    json.dumps(attending, allow_nan=False)


def test_the_signature_is_kept_and_shown(compared: Any, capsys: pytest.CaptureFixture[str]) -> None:
    run: Run = compared.runs[0]
    signature = f"nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:{sacrebleu.__version__}"
    assert run.summary["signatures"]["bleu"] == signature
    page = Page(run.path / "report.html")
    page.check()
    assert signature in page.text
    assert "beam search with 2 hypotheses" in page.text
    assert signature in Page(compared.path / "report.html").text
    assert signature.replace("|", "\\|") in (run.path / "README.md").read_text(encoding="utf-8")
    from seriatim.cli import evaluate

    evaluate.command(run.path, data=None, split="valid", column=None, target=None, plugin=None, data_dir=None)
    assert f"BLEU: sacreBLEU {signature}" in capsys.readouterr().out
    evaluate.command(run.path, data=None, split="valid", plugin=None, data_dir=None, json=True)
    told = json.loads(capsys.readouterr().out)
    assert told["signatures"]["bleu"] == signature
    assert told["bleu"] == pytest.approx(run.summary["measures"]["valid"]["bleu"])


def test_the_comparison_has_one_picture_with_a_line_for_each_model(compared: Any) -> None:
    page = Page(compared.path / "report.html")
    page.check()
    labels = [str(attrs["aria-label"]) for attrs in page.named("svg")]
    (told,) = {label for label in labels if label.startswith("BLEU by length of the source")}
    values = [run.evaluation()["test"] for run in compared.runs]
    for name, views in zip(("seq2seq", "bahdanau"), values, strict=True):
        view = next(view for view in views if view.get("together") == "bleu by length")
        points = zip(view["bins"], view["series"][0][1], strict=True)
        assert f"{name}: " + ", ".join(f"{one} {measures.shown('bleu', value)}" for one, value in points) in told
    assert "most similar source" in page.text  # a baseline


# Pages from runs written by hand


def translator(folder: Path, model: str, bleu: float, values: list[float], **changes: Any) -> Run:
    both = {
        split: {
            "bleu": bleu,
            "chrf": bleu + 15,
            "loss": changes.get("loss", 2.0),
            "perplexity": 7.4,
            "sentences": 2000.0,
        }
        for split in ("valid", "test")
    }
    run = make_run(folder, model, 2.0, task="translate", objective="loss", measures=both)
    view = {
        "kind": "bins",
        "title": "BLEU by length of the source",
        "measure": "bleu",
        "x": "words of the source",
        "of": "sentences",
        "bins": ["1–4", "5–9", "10–31"],
        "counts": [700, 900, 400],
        "series": [["", values]],
        "together": "bleu by length",
    }
    (folder / "evaluation.json").write_text(json.dumps({"test": [view]}), encoding="utf-8")
    return run


def test_translators_are_ranked_by_bleu_and_told_apart_by_length(tmp_path: Path) -> None:
    plain = translator(tmp_path / "a", "seq2seq", 21.0, [30.0, 25.0, 9.0], loss=1.0)  # a low loss does not help it
    attending = translator(tmp_path / "b", "bahdanau", 33.0, [35.0, 36.0, 30.0])
    found = lessons([plain, attending])
    assert found[0].startswith(
        "Best on the validation data: the Bahdanau model with a BLEU of 33.0, 12.0 BLEU ahead of"
    )
    assert any(
        text.startswith("The Bahdanau model beats the seq2seq by 12.0 BLEU (33.0 against 21.0)") for text in found
    )
    (length,) = (text for text in found if "longest sources" in text)
    assert "(10–31 words of the source) the seq2seq keeps 30 % of its best BLEU, the Bahdanau model 83 %" in length
    assert "one state" in length
    report.write_comparison_report(tmp_path, [plain, attending])
    page = Page(tmp_path / "report.html")
    page.check()
    assert "the Bahdanau model keeps" not in page.text
    assert "bahdanau: 1–4 35.0, 5–9 36.0, 10–31 30.0" in page.source


def test_equal_translators_are_told_as_equal(tmp_path: Path) -> None:
    one = translator(tmp_path / "a", "seq2seq", 30.0, [30.0, 31.0, 29.0])
    other = translator(tmp_path / "b", "transformer", 30.5, [31.0, 30.0, 30.0])
    found = lessons([one, other])
    assert "comes so near that another seed may turn it round" in found[0]
    assert any("draws level with" in text and "less than 0.9 BLEU apart" in text for text in found)
    assert any(text.startswith("Length tells them apart little") for text in found)


def test_pictures_that_do_not_belong_together_are_not_put_together(tmp_path: Path) -> None:
    one = translator(tmp_path / "a", "seq2seq", 30.0, [30.0, 31.0, 29.0])
    other = translator(tmp_path / "b", "bahdanau", 30.0, [30.0, 31.0, 29.0])
    views = json.loads((tmp_path / "b" / "evaluation.json").read_text(encoding="utf-8"))
    views["test"][0]["bins"] = ["1", "2", "3"]
    (tmp_path / "b" / "evaluation.json").write_text(json.dumps(views), encoding="utf-8")
    assert together(read([one, other])) == ""
    assert together(read([one])) == ""


def test_names_at_the_ends_of_lines_stay_apart_and_inside() -> None:
    from seriatim.report.bins import _ends

    rows = [{"name": str(index), "x": 2, "y": 99.0 + 0.1 * index} for index in range(5)]
    places = [row["place"] for row in _ends(rows, 100.0)]
    assert places == sorted(places)
    assert all(b - a >= 5.49 for a, b in pairwise(places))
    assert max(places) <= 98.0


def test_a_share_by_length_is_a_percentage() -> None:
    view = {"title": "t", "measure": "exact_match", "bins": ["1", "2"], "counts": [5, 6], "series": [["", [0.5, None]]]}
    chart, told = drawn(view)
    assert told == "t: 1 50.0 %, 2 –."
    assert "Exact match, %" in json.dumps(chart.to_dict())
    with pytest.raises(ValueError, match="ranges have values"):
        drawn(view | {"series": [["", [None, None]]]})


def test_measured_is_a_dictionary() -> None:
    found = Measured({"bleu": 1.0}, {"bleu": "s"})
    assert json.loads(json.dumps(found)) == {"bleu": 1.0}
    assert measures.signatures(found) == {"bleu": "s"}
    assert measures.signatures({"bleu": 1.0}) == {}
