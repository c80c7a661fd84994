"""Runs to transformers and back: its own classes open what we export and give the same numbers, and so do we."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import seriatim
from seriatim.cli import run as cli
from seriatim.runs.exchange import export_model, import_model

TINY: dict[str, Any] = {
    "model": {"width": 16, "heads": 2, "layers": 2, "context_length": 48},
    "train": {"batch_size": 8},
}
COLUMNS = {"columns": {"input": "text", "target": "label"}}
TEXTS = ["a fine film, warm and long", "so dull", "What a fine day; what a film!", "dull"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Data of every kind."""
    path = tmp_path_factory.mktemp("exchange")
    draw = np.random.default_rng(0)
    words = ["a", "fine", "film", "that", "warm", "people", "like", "and", "dull", "ones", "do", "not", "see", "twice"]
    sentences = [draw.choice(words, 2 + number % 6).tolist() for number in range(80)]
    with open(path / "films.csv", "w", newline="", encoding="utf-8") as file:
        rows = []
        for one in sentences:
            kinds = "warm|fine" if "warm" in one else "dull"
            rows.append([" ".join(one), "good" if "fine" in one else "bad", len(one) / 3, kinds])
        csv.writer(file).writerows([["text", "label", "value", "kinds"], *rows])
    tagged = "\n\n".join("\n".join(f"{w}\t{'LONG' if len(w) > 4 else 'SHORT'}" for w in one) for one in sentences)
    (path / "tagged.conll").write_text(tagged + "\n", encoding="utf-8")
    with open(path / "asked.jsonl", "w", encoding="utf-8") as file:
        for number in range(40):
            some = draw.choice(words, 6, replace=False).tolist()
            passage = f"{' '.join(some)} {number}"
            file.write(json.dumps({"question": f"what follows {some[0]}?", "context": passage, "answers": [some[1]]}))
            file.write("\n")
    texts = [f"{' '.join(one)}." for one in sentences]
    (path / "documents.txt").write_text("\n\n".join("\n".join(texts[i : i + 4]) for i in range(0, 80, 4)), "utf-8")
    (path / "book.txt").write_text("\n".join(texts * 3), encoding="utf-8")
    (path / "pairs.tsv").write_text("\n".join(f"{' '.join(s)}\t{' '.join(reversed(s))}" for s in sentences), "utf-8")
    return path


def trained(folder: Path, name: str, task: str, source: str, model: str, /, **settings: Any) -> Any:
    out = folder / name
    if not out.exists():
        merged = {key: TINY.get(key, {}) | settings.get(key, {}) for key in TINY.keys() | settings.keys()}
        seriatim.train(task, str(folder / source), model, settings=merged, steps=6, out=out, report=False)
        export_model(out, folder / f"{name}-hf")
    return seriatim.load(out), folder / f"{name}-hf"


def opened(kind: str, folder: Path) -> tuple[Any, Any]:
    """Their model and tokenizer; nothing is missing or left over."""
    import transformers

    model, about = getattr(transformers, kind).from_pretrained(folder, output_loading_info=True)
    assert not about["missing_keys"]
    assert not about["unexpected_keys"]
    assert not about["mismatched_keys"]
    return model.eval(), transformers.AutoTokenizer.from_pretrained(folder)


def close(ours: Any, theirs: Any) -> None:
    np.testing.assert_allclose(np.asarray(ours), np.asarray(theirs), rtol=1e-4, atol=1e-5)


def scores(model: Any, tokenizer: Any, texts: list[str]) -> torch.Tensor:
    with torch.no_grad():
        logits: torch.Tensor = model(**tokenizer(texts, padding=True, return_tensors="pt")).logits
    return logits


@pytest.mark.parametrize(("target", "separator"), [("label", None), ("kinds", "|")])
def test_labels(folder: Path, target: str, separator: str | None) -> None:
    data = {"data": {"columns": {"input": "text", "target": target}, "label_separator": separator}}
    run, there = trained(folder, f"classify-{target}", "classify", "films.csv", "bert", **data)
    model, tokenizer = opened("AutoModelForSequenceClassification", there)
    found = scores(model, tokenizer, TEXTS)
    chances = found.sigmoid() if separator else found.softmax(dim=-1)
    for answer, row in zip(run.predict(TEXTS, probabilities=True), chances.tolist(), strict=True):
        close(list(answer["probabilities"].values()), row)
        assert list(answer["probabilities"]) == list(model.config.id2label.values())
    back = import_model(there, folder / f"classify-{target}-back")
    assert back.config.task.name == "classify"
    close([list(one["probabilities"].values()) for one in back.predict(TEXTS, probabilities=True)], chances)


def test_values(folder: Path) -> None:
    data = {"data": {"columns": {"input": "text", "target": "value"}}}
    run, there = trained(folder, "regress", "regress", "films.csv", "bert", **data)
    found = scores(*opened("AutoModelForSequenceClassification", there), TEXTS)
    close([one["prediction"] for one in run.predict(TEXTS)], found[:, 0])
    back = import_model(there, folder / "regress-back")
    close([one["prediction"] for one in back.predict(TEXTS)], found[:, 0])


def test_tags(folder: Path) -> None:
    run, there = trained(folder, "tag", "tag", "tagged.conll", "bert")
    model, tokenizer = opened("AutoModelForTokenClassification", there)
    words = ["a", "fine", "film", "unseen"]
    encoded = tokenizer(words, is_split_into_words=True, return_tensors="pt")
    with torch.no_grad():
        chances = model(**encoded).logits[0].softmax(dim=-1)
    places = [encoded.word_ids().index(index) for index in range(len(words))]  # the first piece of each
    answer = run.predict([words])[0]
    names = model.config.id2label
    assert answer["prediction"] == [names[int(chances[place].argmax())] for place in places]
    close(answer["confidence"], [float(chances[place].max()) for place in places])
    back = import_model(there, folder / "tag-back")
    again = back.predict([words])[0]
    assert again["prediction"] == answer["prediction"]
    close(again["confidence"], answer["confidence"])


def test_answers(folder: Path) -> None:
    run, there = trained(folder, "answer", "answer", "asked.jsonl", "bert")
    model, tokenizer = opened("AutoModelForQuestionAnswering", there)
    passage, question = "fine film warm people 7", "what follows film?"
    with torch.no_grad():
        found = model(**tokenizer(question, passage, return_tensors="pt"))
    encoded = tokenizer(question, passage, return_offsets_mapping=True)
    inside = [place for place, segment in enumerate(encoded.sequence_ids()) if segment == 1]
    sums = {(i, j): float(found.start_logits[0, i] + found.end_logits[0, j]) for i in inside for j in inside if j >= i}
    best = max(sums, key=sums.__getitem__)
    span = encoded["offset_mapping"]
    answer = run.answer((passage, question))
    assert answer["answer"] == passage[span[best[0]][0] : span[best[1]][1]]
    back = import_model(there, folder / "answer-back")
    assert back.answer((passage, question))["answer"] == answer["answer"]
    assert not back.task.processor.unanswerable
    config = json.loads((there / "config.json").read_text("utf-8"))
    (there / "config.json").write_text(json.dumps(config | {"seriatim_unanswerable": True}), "utf-8")
    assert import_model(there, folder / "answer-or-none-back").task.processor.unanswerable


def test_pretrained(folder: Path) -> None:
    few = {"task": {"context_length": 32}, "data": {"fractions": [0.6, 0.2, 0.2]}}
    run, there = trained(folder, "pretrain", "pretrain", "documents.txt", "bert", **few)
    model, tokenizer = opened("AutoModelForPreTraining", there)
    text = "a fine [MASK] that warm"
    encoded = tokenizer([text], return_tensors="pt")
    with torch.no_grad():
        found = model(**encoded).prediction_logits.softmax(dim=-1)
    place = encoded["input_ids"][0].tolist().index(tokenizer.mask_token_id)
    for one in run.fill(text)["masks"][0]:
        index = tokenizer.convert_tokens_to_ids(one["token"])
        close(one["probability"], found[0, place, index])
    back = import_model(there, folder / "pretrain-back")
    close(back.embed(text), run.embed(text))
    with torch.no_grad():
        close(run.embed(text, normalize=False), model.bert(**encoded).last_hidden_state[0].mean(dim=0))


def test_language(folder: Path) -> None:
    run, there = trained(folder, "language", "language", "book.txt", "gpt", task={"context_length": 48})
    model, tokenizer = opened("AutoModelForCausalLM", there)
    text = "a fine film that"
    ids = tokenizer(f"\n{text}", add_special_tokens=False, return_tensors="pt")["input_ids"]
    with torch.no_grad():
        chances = model(ids).logits[0, -1].softmax(dim=-1)
    ours = {row["text"]: row["probability"] for row in run.next(text, top=5, unit="token")}
    close(sorted(ours.values()), sorted(chances.topk(5).values.tolist()))
    back = import_model(there, folder / "language-back")
    assert back.generate(text, max_tokens=8) == run.generate(text, max_tokens=8)


def test_a_foreign_gpt_says_what_it_says_there(folder: Path) -> None:
    """Its prompts are read as they stand: no token of ours before them."""
    from transformers import GPT2Config, GPT2LMHeadModel

    _, made = trained(folder, "language", "language", "book.txt", "gpt", task={"context_length": 48})
    there = folder / "foreign-gpt"
    torch.manual_seed(1)
    size = json.loads((made / "config.json").read_text("utf-8"))["vocab_size"]
    model = GPT2LMHeadModel(GPT2Config(vocab_size=size, n_positions=32, n_embd=16, n_layer=2, n_head=2)).eval()
    model.save_pretrained(there)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (there / name).write_bytes((made / name).read_bytes())
    _, tokenizer = opened("AutoModelForCausalLM", there)
    run = import_model(there, folder / "foreign-gpt-run")
    ids = tokenizer("a fine film", add_special_tokens=False, return_tensors="pt")["input_ids"]
    found = model.generate(ids, max_new_tokens=8, do_sample=False, eos_token_id=None, suppress_tokens=[0])
    assert run.generate("a fine film", max_tokens=8, temperature=0) == tokenizer.decode(found[0, ids.shape[1] :])
    with torch.no_grad():
        likely = model(ids).logits[0, :-1].log_softmax(dim=-1).gather(1, ids[0, 1:, None]).sum()
    assert run.score("a fine film")["log_probability"] == pytest.approx(float(likely), rel=1e-4)


@pytest.mark.parametrize("norm", ["before", "after"])
def test_translations(folder: Path, norm: str) -> None:
    model = {"width": 16, "heads": 2, "layers": 2, "norm": norm}
    out, there = folder / f"translate-{norm}", folder / f"translate-{norm}-hf"
    settings = {"model": model, "train": {"batch_size": 8}}
    seriatim.train(
        "translate", str(folder / "pairs.tsv"), "transformer", settings=settings, steps=6, out=out, report=False
    )
    export_model(out, there)
    run = seriatim.load(out)
    peer, tokenizer = opened("AutoModelForSeq2SeqLM", there)
    texts = ["a fine film", "dull ones do not see"]
    encoded = tokenizer(texts, padding=True, return_tensors="pt")
    with torch.no_grad():
        found = peer.generate(**encoded, num_beams=1, do_sample=False, max_new_tokens=6)
    said = tokenizer.batch_decode(found, skip_special_tokens=True)
    ours = run.translate(texts, beams=1, max_tokens=6)
    assert [one.split() for one in said] == [row["translation"].split() for row in ours]
    back = import_model(there, folder / f"translate-{norm}-back")
    assert back.translate(texts, beams=2) == run.translate(texts, beams=2)


def test_what_has_no_counterpart_is_refused(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = folder / "lstm"
    seriatim.train("classify", str(folder / "films.csv"), "lstm", steps=2, out=out,
                   settings={"data": COLUMNS}, report=False)  # fmt: skip
    assert cli(["export", str(out), "--format", "transformers"]) == 2
    assert "export.format" in capsys.readouterr().err
    pooled = folder / "pooled"
    seriatim.train("classify", str(folder / "films.csv"), "bert", steps=2, out=pooled, pooling="mean",
                   settings=TINY | {"data": COLUMNS}, report=False)  # fmt: skip
    assert cli(["export", str(pooled), "--format", "transformers"]) == 2
    assert "task.pooling=first" in capsys.readouterr().err


def test_a_file_is_no_run_folder(tmp_path: Path) -> None:
    (tmp_path / "model.arpa").write_text("\\data\\\nngram 1=3\n\n\\1-grams:\n-1\t<s>\n-1\t</s>\n-1\ta\n\n\\end\\\n")
    (tmp_path / "out").write_text("a file")
    assert cli(["import", str(tmp_path / "model.arpa"), "--out", str(tmp_path / "out")]) == 2
