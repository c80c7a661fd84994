"""Captions asked for: the verb, the run, and looking inside models that read pictures."""

from __future__ import annotations

import csv
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import seriatim
from seriatim import cli
from seriatim.core.errors import SeriatimError
from seriatim.decode.options import TranslateSettings
from seriatim.inspect import VIEWS, Inspector
from seriatim.inspect.overview import overview

SAY = {"red": (220, 20, 30), "blue": (20, 40, 220)}
TINY = {"channels": 4, "layers": 8, "beams": 2}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Pictures with captions and in folders of classes, and runs that hardly learnt."""
    folder = tmp_path_factory.mktemp("captions")
    rows = [["image", "caption"]]
    (folder / "pictures").mkdir()
    for number in range(24):
        colour = list(SAY)[number % 2]
        pixels = np.full((16, 16, 3), 200 + number, np.uint8)
        top, left = divmod(number // 2, 4)
        pixels[1 + top : 7 + top, 1 + left : 7 + left] = SAY[colour]
        (folder / "classes" / colour).mkdir(parents=True, exist_ok=True)
        for place in (folder / "pictures", folder / "classes" / colour):
            Image.fromarray(pixels).save(place / f"{number}.png")
        rows.append([f"{number}.png", f"a {colour} square"])
    with open(folder / "pictures" / "captions.csv", "w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows(rows)
    (folder / "broken.png").write_bytes(b"nothing")
    Image.new("1", (10_000, 10_000)).save(folder / "huge.png")
    (folder / "empty").mkdir()
    small = {"train": {"steps": 4, "batch": 4}}
    for model, more in {"showattend": {}, "showtell": {}, "transformer": {"heads": 2, "layers": 1}}.items():
        settings = {"model": {"name": model, "width": 8, **more}, "task": TINY, **small}
        seriatim.train("caption", data=str(folder / "pictures"), settings=settings, out=folder / model)
    for model, more in {"resnet": {}, "vit": {"heads": 2, "layers": 1}, "lstm": {}}.items():
        settings = {"model": {"name": model, "width": 8, **more}, **small}
        seriatim.train("classify", data=str(folder / "classes"), settings=settings, out=folder / model)
    return folder


@pytest.fixture
def say(capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str, str]]:
    """A command: its status, what it printed, and what it noted."""

    def run(*arguments: Any) -> tuple[int, str, str]:
        capsys.readouterr()
        status = cli.run([str(one) for one in arguments])
        out, err = capsys.readouterr()
        return status, out, err

    return run


def test_what_the_verb_says_is_what_the_run_says(made, say):
    run, first, second = seriatim.load(made / "showattend"), made / "pictures" / "0.png", made / "pictures" / "1.png"
    found = run.captions([str(first), str(second)], TranslateSettings(nbest=2))
    assert say("caption", run.path, first)[1] == run.caption(str(first)) + "\n"
    lines = "".join(f"{path}\t{some[0].text}\n" for path, some in zip((first, second), found, strict=True))
    assert say("caption", run.path, first, second)[1] == lines
    ranked = "".join(f"{rank}\t{one.score:.4f}\t{one.text}\n" for rank, one in enumerate(found[0], 1))
    assert say("caption", run.path, first, "--nbest", 2)[1] == ranked
    records = [
        json.loads(line) for line in say("caption", run.path, first, second, "--nbest", 2, "--json")[1].splitlines()
    ]
    assert [one["picture"] for one in records] == [str(first), str(second)]
    assert [[one["text"] for one in record["captions"]] for record in records] == [
        [one.text for one in some] for some in found
    ]
    assert records[0]["captions"][0]["score"] == pytest.approx(found[0][0].score)
    assert run.caption([str(first)], nbest=2) == [[one.text for one in found[0]]]
    assert run.caption(np.asarray(Image.open(first))) == run.caption(str(first))


def test_options_are_those_of_decoding(made, say):
    run, picture = made / "showattend", made / "pictures" / "0.png"
    drawn = [say("caption", run, picture, "--temperature", 1, "--seed", seed, "--max-tokens", 3)[1] for seed in (1, 1)]
    assert drawn[0] == drawn[1]
    longest = json.loads(say("caption", run, picture, "--min-tokens", 4, "--max-tokens", 5, "--json")[1])
    assert 4 <= len(longest["captions"][0]["tokens"]) <= 5
    assert say("caption", run, picture, "--prefix", "a blue", "--max-tokens", 6)[1].startswith("a blue")
    status, _, err = say("caption", run, picture, "--nbest", 3, "--beams", 1)
    assert (status, "nbest 3 needs beams" in err) == (2, True)


def test_a_folder_is_written_as_a_table(made, say, tmp_path):
    run = seriatim.load(made / "showtell")
    status, out, err = say("caption", run.path, made / "pictures", "--out", tmp_path / "c.tsv")
    assert (status, out) == (0, "")
    assert "24 pictures" in err
    paths = sorted((made / "pictures").glob("*.png"))
    found = run.captions([str(path) for path in paths])
    lines = (tmp_path / "c.tsv").read_text().splitlines()
    assert lines[0] == "picture\tcaption\tscore"
    wanted = [[str(path), some[0].text, some[0].score] for path, some in zip(paths, found, strict=True)]
    rows = [line.split("\t") for line in lines[1:]]
    assert [row[:2] for row in rows] == [row[:2] for row in wanted]
    np.testing.assert_allclose([float(row[2]) for row in rows], [row[2] for row in wanted], atol=1e-5)
    say("caption", run.path, paths[0], "--nbest", 2, "--out", tmp_path / "c.jsonl")
    assert [list(json.loads(line)) for line in (tmp_path / "c.jsonl").read_text().splitlines()] == [
        ["picture", "rank", "caption", "score"]
    ] * 2


def test_attention_is_drawn(made, say, tmp_path):
    run, picture = seriatim.load(made / "showattend"), made / "pictures" / "0.png"
    for ending in ("html", "svg", "png", "json"):
        path = tmp_path / f"look.{ending}"
        assert say("caption", run.path, picture, "--prefix", "a red", "--attention", path)[0] == 0
        assert path.stat().st_size > 100
    about = json.loads((tmp_path / "look.json").read_text())
    (found,) = run.captions([str(picture)], TranslateSettings(prefix="a red"))
    assert about["words"] == found[0].attention.words
    assert about["words"][:2] == ["a", "red"]
    assert about["captions"] == [[found[0].text, found[0].score]]
    np.testing.assert_allclose(about["weights"], found[0].attention.weights, atol=1e-6)
    several = tmp_path / "several.html"
    assert say("caption", run.path, picture, made / "pictures" / "1.png", "--attention", several)[0] == 0
    text = several.read_text()
    assert text.index("0.png") < text.index("1.png")
    assert text.count("<figure") == 2


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["pictures/0.png", "nowhere.png", "empty"], ["there is no file", "nowhere.png", "empty holds no pictures"]),
        (["pictures/0.png", "--out", "x.parquet"], ["output.kind"]),
        (["pictures/0.png", "--attention", "x.pdf"], ["chart.format"]),
        (["pictures", "--attention", "x.svg"], ["one picture", "24"]),
        (["broken.png"], ["broken.png: is no picture", "mend or remove the file"]),
        (["huge.png"], ["picture.large", "make it smaller"]),
        (["broken.png", "--skip-broken"], ["broken.png: is no picture"]),
        (["pictures/0.png", "broken.png"], ["broken.png: is no picture", "--skip-broken"]),
    ],
)
def test_mistakes_are_told(made, say, monkeypatch, arguments, told):
    monkeypatch.chdir(made)
    status, out, err = say("caption", "showattend", *arguments)
    assert (status, out) == (2, "")
    for words in told:
        assert words in err


def test_what_is_broken_can_be_left_out(made, say, monkeypatch):
    monkeypatch.chdir(made)
    status, out, err = say("caption", "showattend", "pictures/0.png", "broken.png", "pictures/1.png", "--skip-broken")
    assert status == 0
    assert [line.partition("\t")[0] for line in out.splitlines()] == ["pictures/0.png", "pictures/1.png"]
    assert "broken.png: is no picture" in err


def test_of_a_folder_links_that_lead_nowhere_are_told_and_hidden_files_left_alone(made, say, tmp_path):
    """A Mac leaves ._x.png beside x.png, which is no picture."""
    folder = tmp_path / "some"
    folder.mkdir()
    shutil.copy(made / "pictures" / "0.png", folder / "a.png")
    (folder / "._a.png").write_bytes(b"nothing")
    run = seriatim.load(made / "showattend")
    assert say("caption", run.path, folder)[0] == 0
    assert [row[0] for row in run.predict_file(folder).rows] == ["a.png"]
    (folder / "b.png").symlink_to("nowhere.png")
    status, _, err = say("caption", run.path, folder)
    assert (status, "picture.missing" in err, "b.png: there is no such file" in err) == (2, True, True)
    status, _, err = say("predict", run.path, "--data", folder)
    assert (status, "b.png: there is no such file" in err, "--set" in err) == (2, True, False)  # it has no such option
    assert say("caption", run.path, folder, "--skip-broken")[0] == 0


def test_how_it_was_measured_is_told_as_it_was(made, say):
    """Not by sacreBLEU, and nothing was translated."""
    out = say("evaluate", made / "showtell")[1]
    assert "CIDEr: coco CIDEr-D|" in out
    page = (made / "showtell" / "report.html").read_text(encoding="utf-8")
    assert "Measured as COCO does: CIDEr coco CIDEr-D|" in page
    assert "Described by beam search with 2 hypotheses" in page
    assert "sacreBLEU" not in out + page


def test_a_model_without_attention_says_so(made, say, tmp_path):
    status, _, err = say("caption", made / "showtell", made / "pictures" / "0.png", "--attention", tmp_path / "x.html")
    assert (status, "model.no-attention" in err) == (2, True)
    assert not (tmp_path / "x.html").exists()
    status, _, err = say("caption", made / "resnet", made / "pictures" / "0.png")
    assert (status, "cannot be asked to caption" in err) == (2, True)


def test_a_caption_is_scored(made, say):
    run, picture = seriatim.load(made / "showattend"), str(made / "pictures" / "0.png")
    likely = run.score(picture, "a red square").log_probability
    assert f"{likely:.4f}" in say("score", run.path, picture, "a red square")[1]
    with pytest.raises(SeriatimError, match="scores a picture and a caption"):
        run.score(picture)


# Inside


@pytest.mark.parametrize("name", ["showattend", "showtell", "transformer", "resnet", "vit", "lstm"])
def test_every_view_that_is_offered_works_and_others_say_why(made, name):
    """Of a picture of the user's and of the run's own; a text that is no picture is refused as that."""
    inspector, picture = Inspector(made / name), str(made / "pictures" / "0.png")
    offered = inspector.offered()
    assert "activations" in offered
    assert ("attention" in offered) == (name in ("showattend", "transformer", "vit"))
    assert not {"saliency", "surprise", "neighbours", "alignment"} & set(offered)
    for view in set(VIEWS) - set(offered):
        with pytest.raises(SeriatimError, match=name):
            inspector.look(view)
    for view in set(offered) - {"growth"}:
        inspector.look(view).chart()
        if VIEWS[view].text:
            inspector.look(view, picture).chart()
            with pytest.raises(SeriatimError, match="no file of a picture"):
                inspector.look(view, "some words")
    run = seriatim.load(made / name)
    task = inspector.subjects[0].data
    kinds = [view["kind"] for view in overview(run, task)]
    assert "overlay" not in kinds  # those stand among the captions


def test_attention_of_a_captioner_is_where_its_words_looked(made, tmp_path):
    picture = str(made / "pictures" / "3.png")
    for name in ("showattend", "transformer"):
        run = seriatim.load(made / name)
        seen = run.inspect.attention(picture, target="a red square")
        found = run.predictor.attention(picture, "a red square")
        assert seen.arrays["attention"].axes[0] == ("word", ["a", "red", "square"])
        np.testing.assert_allclose(seen.arrays["attention"].values.reshape(3, -1), found.weights, atol=1e-6)
        row, column = np.unravel_index(found.weights[1].argmax(), found.grid)
        assert f"red     → {row},{column} {found.weights[1].max():.2f}" in "\n".join(seen.lines())
        seen.save(tmp_path / f"{name}.html")
        assert "<figure" in (tmp_path / f"{name}.html").read_text()
    heads = run.inspect.attention(picture, target="a red square", part="cross")
    assert heads.arrays["attention"].values.shape[1:] == (2, 4, np.prod(found.grid))
    with pytest.raises(SeriatimError, match="neither layers nor heads"):
        seriatim.load(made / "showattend").inspect.attention(picture, head=0)


def test_places_of_a_picture_are_named_by_row_and_column(made):
    picture = str(made / "pictures" / "3.png")
    seen = seriatim.load(made / "vit").inspect.attention(picture)
    values, axes = seen.arrays["attention"].values, dict(seen.arrays["attention"].axes)
    assert axes["to"][:3] == ["[whole]", "0,0", "0,1"]
    assert len(axes["to"]) == values.shape[-1] == 65
    np.testing.assert_allclose(values.sum(axis=-1), 1, rtol=1e-5)
    with pytest.raises(SeriatimError, match="one picture, and 2"):
        seriatim.load(made / "vit").inspect.attention(picture, picture)
