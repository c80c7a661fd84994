"""Tagged sentences: three forms of files, what is wrong with them by file and line, entities as seqeval counts them."""

import gzip
import json
import warnings

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from seqeval.metrics import classification_report, f1_score, precision_score, recall_score
from seqeval.metrics.sequence_labeling import get_entities
from seqeval.scheme import BILOU, IOB2, IOBES

from seriatim.core.errors import SeriatimError
from seriatim.data import conll, entities, tagged

COLUMNS = "They PRP O\nare VBP O\n\nMary NNP B-per\nSmith NNP I-per\n"
CONLLU = """# sent_id = 1
# text = I don't.
1\tI\tI\tPRON\tPRP\t_\t3\tnsubj\t_\t_
2-3\tdon't\t_\t_\t_\t_\t_\t_\t_\t_
2\tdo\tdo\tAUX\tVBP\t_\t0\troot\t_\t_
3\tn't\tnot\tPART\tRB\t_\t2\tadvmod\t_\t_
3.1\tgo\tgo\tVERB\tVB\t_\t_\t_\t_\t_
4\t.\t.\tPUNCT\t.\t_\t2\tpunct\t_\t_

# sent_id = 2
1\tYes\tyes\tINTJ\tUH\t_\t0\troot\t_\t_
"""


def write(path, text):
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return str(path)


def read(tmp_path, text, name="a.conll", **options):
    return conll.read(write(tmp_path / name, text), **options)


def trouble(call, *arguments, **options):
    with pytest.raises(SeriatimError) as caught:
        call(*arguments, **options)
    return caught.value


# Reading


def test_columns_take_the_first_as_words_and_the_last_as_tags(tmp_path):
    found = read(tmp_path, COLUMNS)
    assert found.words == [["They", "are"], ["Mary", "Smith"]]
    assert found.tags == [["O", "O"], ["B-per", "I-per"]]
    assert found.place(1, 1) == "a.conll, line 5"


def test_other_columns_are_chosen_by_number(tmp_path):
    assert read(tmp_path, COLUMNS, target="2").tags == [["PRP", "VBP"], ["NNP", "NNP"]]
    assert read(tmp_path, COLUMNS, column="2").words == [["PRP", "VBP"], ["NNP", "NNP"]]


def test_conllu_leaves_out_comments_ranges_and_empty_nodes(tmp_path):
    found = read(tmp_path, CONLLU, "a.txt")
    assert found.words == [["I", "do", "n't", "."], ["Yes"]]
    assert found.tags == [["PRON", "AUX", "PART", "PUNCT"], ["INTJ"]]
    assert found.lines == [[3, 5, 6, 8], [11]]
    assert read(tmp_path, CONLLU, target="deprel").tags[0] == ["nsubj", "root", "advmod", "punct"]
    assert read(tmp_path, CONLLU, target="5").tags[1] == ["UH"]


def test_jsonl_gives_a_sentence_a_line(tmp_path):
    lines = [{"tokens": ["a", "b c"], "tags": ["X", "Y"]}, {"tokens": [], "tags": []}, {"words": ["d"], "labels": [7]}]
    text = "".join(json.dumps(line) + "\n" for line in lines)
    found = read(tmp_path, text, "a.data")
    assert (found.words, found.tags) == ([["a", "b c"], ["d"]], [["X", "Y"], ["7"]])
    assert "left out 1 sentences without a word" in found.notes


def test_packed_files_and_windows_line_ends_read_the_same(tmp_path):
    plain = read(tmp_path, COLUMNS)
    packed = read(tmp_path, gzip.compress(COLUMNS.replace("\n", "\r\n").encode()), "a.conll.gz")
    assert (plain.words, plain.tags, plain.fingerprint) == (packed.words, packed.tags, packed.fingerprint)
    assert any("Windows line ends" in note for note in packed.notes)


def test_lines_of_white_space_part_sentences_and_cells_may_hold_blanks(tmp_path):
    assert read(tmp_path, "5 000\tNUM\n\t\nyes\tX\n").words == [["5 000"], ["yes"]]


def test_a_no_break_space_parts_nothing_and_a_brace_is_a_word(tmp_path):
    assert read(tmp_path, "{ PUNCT\n5\xa0000 NUM\n\xa0 X\n").words == [["{", "5\xa0000", "\xa0"]]


def test_a_hash_is_a_word_but_at_the_head_of_a_sentence_in_another_form(tmp_path):
    found = read(tmp_path, "# id 7 of the file\n#ham\tO\n#\tO\n\n# id 8 of it\nx\tB-a\n")
    assert found.words == [["#ham", "#"], ["x"]]


def test_document_marks_of_conll_2003_are_no_words(tmp_path):
    assert read(tmp_path, "-DOCSTART- -X- O\n\nEU NNP B-ORG\n").words == [["EU"]]


@pytest.mark.parametrize(
    ("text", "code", "where"),
    [
        ("a X\nb\n", "data.columns", "a.conll, line 2: 1 column where the first line of a word has 2"),
        ("a X\nb Y Z\n", "data.columns", "a.conll, line 2: 3 columns"),
        ("a\tX\n\tY\n", "data.columns", "a.conll, line 2: the word is empty"),
        ("a\nb\n", "data.no-tags", "a.conll, line 1: column 1 is that of the words and of the tags"),
        ("", "data.empty", "a.conll: holds no sentences"),
        ("\n \n", "data.empty", "a.conll: holds no sentences"),
        (b"a X\n\xff Y\n", "data.encoding", "a.conll, line 2"),
        ('{"tokens": ["a", "b"], "tags": ["X"]}\n', "data.tags", "a.conll, line 1: 2 words and 1 tags"),
        ('{"tokens": ["a"]}\n', "data.column", 'a.conll, line 1: has no "tags"; it has: tokens'),
        ('{"tokens": "a", "tags": ["X"]}\n', "data.jsonl", 'line 1: "tokens" is not a list of texts'),
        ('{"tokens": ["a"], "tags": ["X"]}\n{oops\n', "data.jsonl", "a.conll, line 2: not JSON"),
        ('{"tokens": ["\\ud800"], "tags": ["X"]}\n', "data.binary", "a.conll, line 1"),
        (CONLLU + "1\tx\n", "data.columns", "a.conll, line 12: 2 columns where CoNLL-U has 10"),
        (CONLLU.replace("PRON", "_").replace("4\t.", "x\t."), "data.conll", 'a.conll, line 8: "x" is not the number'),
    ],
)
def test_what_is_wrong_is_told_with_file_and_line(tmp_path, text, code, where):
    error = trouble(read, tmp_path, text)
    assert error.code == code
    assert where in error.cause


def test_a_column_that_is_not_there_and_a_column_without_tags(tmp_path):
    assert 'none is "9"' in trouble(read, tmp_path, COLUMNS, target="9").cause
    assert trouble(read, tmp_path, CONLLU, target="upso").remedy == 'did you mean "upos"?'
    assert trouble(read, tmp_path, CONLLU, target="misc").code == "data.no-tags"


# Schemes


@pytest.mark.parametrize(
    ("tags", "scheme"),
    [
        ("O B-x I-x O B-y", "bio"),
        ("O I-x I-x O I-y B-y", "iob1"),
        ("O S-x B-y I-y E-y", "iobes"),
        ("O U-x B-y I-y L-y", "bilou"),
        ("I-x B-x O B-y", "bio"),
        ("NOUN VERB", "none"),
        ("O O", "none"),
        ("O B-x NOUN", "none"),
        ("O E-x L-x", "none"),
    ],
)
def test_schemes_are_recognised(tags, scheme):
    assert entities.recognise([tags.split()]) == scheme


LETTERS = {"bio": "BI", "iobes": "BIES", "bilou": "BILU"}
STRICT = {"bio": IOB2, "iobes": IOBES, "bilou": BILOU}


def drawn(scheme, kinds=("x", "y-z")):
    tag = st.sampled_from(["O", *(f"{letter}-{kind}" for letter in LETTERS[scheme] for kind in kinds)])
    return st.lists(st.lists(tag, min_size=1, max_size=8), min_size=1, max_size=4)


def as_iobes(sentences):
    """seqeval's default mode knows no L and U."""
    names = {"L": "E", "U": "S"}
    return [[names.get(tag[0], tag[0]) + tag[1:] for tag in tags] for tags in sentences]


@st.composite
def pairs(draw):
    scheme = draw(st.sampled_from(sorted(LETTERS)))
    true = draw(drawn(scheme))
    tag = st.sampled_from(["O", *(f"{letter}-{kind}" for letter in LETTERS[scheme] for kind in ("x", "y-z"))])
    predicted = [draw(st.lists(tag, min_size=len(one), max_size=len(one))) for one in true]
    return scheme, true, predicted


@settings(max_examples=300, deadline=None)
@given(pairs())
def test_spans_and_scores_are_those_of_seqeval(pair):
    _, true, predicted = pair
    for tags in as_iobes([*true, *predicted]):
        assert entities.spans(tags) == [(kind, first, last + 1) for kind, first, last in get_entities(tags)]
    whole, types = entities.score(true, predicted)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        peers = as_iobes(true), as_iobes(predicted)
        assert whole.precision == pytest.approx(precision_score(*peers), abs=1e-12)
        assert whole.recall == pytest.approx(recall_score(*peers), abs=1e-12)
        assert whole.f1 == pytest.approx(f1_score(*peers), abs=1e-12)
        if types:
            report = classification_report(*peers, output_dict=True)
            for kind, one in types.items():
                assert one.f1 == pytest.approx(report[kind]["f1-score"], abs=1e-12)
                assert one.there == report[kind]["support"]


@settings(max_examples=300, deadline=None)
@given(pairs())
def test_tags_put_right_mean_the_same_and_are_strictly_well_formed(pair):
    scheme, true, predicted = pair
    mended = [[entities.repair(tags, scheme) for tags in one] for one in (true, predicted)]
    for before, after in zip([*true, *predicted], [*mended[0], *mended[1]], strict=True):
        assert entities.spans(after) == entities.spans(before)
        assert entities.repair(after, scheme) == after
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        strict = f1_score(*mended, mode="strict", scheme=STRICT[scheme])
    assert entities.score(true, predicted)[0].f1 == pytest.approx(strict, abs=1e-12)


def test_iob1_becomes_bio():
    assert entities.repair(["I-x", "I-x", "B-x", "I-y", "O", "I-y"], "iob1") == ["B-x", "I-x", "B-x", "B-y", "O", "B-y"]


# Parts


def parts(tmp_path, text, **options):
    said = []
    values = {"source": write(tmp_path / "t.conll", text), "fractions": (0.5, 0.5, 0.0), **options}
    return tagged.read(tagged.TagSettings(**values), None, said.append), said


def test_iob1_is_recognised_and_written_as_bio(tmp_path):
    found, said = parts(tmp_path, "a O\nb I-x\n\nc I-x\nd I-x\n\ne B-x\n\nf B-y\n")
    assert found.scheme == "bio"
    assert found.train.tags == [["O", "B-x"], ["B-x", "I-x"]]
    assert "the tags mark entities, as IOB1" in said
    assert any(note.startswith("train: 2 tags of IOB1 are written as BIO") for note in said)


def test_a_slip_among_bio_tags_is_told_once_a_kind(tmp_path):
    text = "a B-x\nb O\nc I-x\n\nd I-x\n\ne B-x\n\nf B-x\n"
    found, said = parts(tmp_path, text)
    assert found.train.tags == [["B-x", "O", "B-x"], ["B-x"]]
    assert "train: 2 tags I-x without a B- before: read as B-x (t.conll, line 3 and others)" in said


def test_a_tag_that_does_not_fit_the_scheme_is_an_error_where_the_scheme_is_named(tmp_path):
    error = trouble(parts, tmp_path, "a B-x\nb NOUN\n\nc O\n", scheme="bio")
    assert (error.code, "t.conll, line 2" in error.cause) == ("data.scheme", True)
    found, said = parts(tmp_path, "a B-x\nb NOUN\n\nc O\n")
    assert found.scheme == "none"
    assert any('line 2: "NOUN" marks no entity' in note for note in said)


def test_too_few_sentences_to_split(tmp_path):
    assert trouble(parts, tmp_path, "a X\nb Y\n").code == "data.too-short"


def test_columns_may_be_numbers_in_yaml(tmp_path):
    found, _ = parts(tmp_path, COLUMNS, target=2, scheme="none")
    assert found.train.tags == [["PRP", "VBP"]]
