"""Tiny files in the formats of the real data sets, in a folder as `~/.cache/paddle/dataset` is."""

import gzip
import io
import pickle  # noqa: TID251  what the parts of cifar are made with
import struct
import tarfile
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
from scipy.io import savemat

DRAW = np.random.RandomState


def tar(path: Path, files: Mapping[str, bytes]) -> None:
    """Write a gzipped tar archive of files by name."""
    with tarfile.open(path, "w:gz") as archive:
        for name, data in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))


def package(path: Path, files: Mapping[str, bytes]) -> None:
    """Write a zip archive of files by name."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in files.items():
            archive.writestr(name, data)


def uci_housing(folder: Path) -> None:
    rows = DRAW(0).rand(20, 14) * 10
    text = "\n".join(" ".join(f"{number:8.4f}" for number in row) for row in rows)
    (folder / "housing.data").write_text(text + "\n")


def mnist(folder: Path) -> None:
    for seed, part in enumerate(("train", "t10k")):
        draw = DRAW(seed)
        pixels, labels = draw.randint(0, 256, (100, 28, 28)), draw.randint(0, 10, 100)
        for kind, array in (("images-idx3", pixels), ("labels-idx1", labels)):
            head = struct.pack(f">{1 + array.ndim}I", 0x800 + array.ndim, *array.shape)
            data = gzip.compress(head + array.astype(np.uint8).tobytes())
            (folder / f"{part}-{kind}-ubyte.gz").write_bytes(data)


def cifar(folder: Path) -> None:
    draw = DRAW(1)

    def part(count: int, labels: str, kinds: int) -> bytes:
        pixels = draw.randint(0, 256, (count, 3072)).astype(np.uint8)
        results = {"batch_label": "part", labels: draw.randint(0, kinds, count).tolist()}
        results |= {"data": pixels, "filenames": [f"{i}.png" for i in range(count)]}
        return pickle.dumps(results, protocol=2)

    names = [*(f"data_batch_{index}" for index in (1, 2)), "test_batch"]
    ten = {f"cifar-10-batches-py/{name}": part(4, "labels", 10) for name in names}
    tar(folder / "cifar-10-python.tar.gz", ten)
    hundred = {
        f"cifar-100-python/{name}": part(3, "fine_labels", 100) for name in ("train", "test")
    }
    tar(folder / "cifar-100-python.tar.gz", {"cifar-100-python/meta": b"none", **hundred})


REVIEWS = {
    "train/pos/0_9.txt": "A film -- so good, so GOOD!\n",
    "train/neg/0_2.txt": "So bad. A bad film",
    "test/pos/1_8.txt": "Good film?\r\n",
    "test/neg/1_1.txt": "Bad...",
    "train/unsup/2_0.txt": "not counted",
}


def imdb(folder: Path) -> None:
    files = {f"aclImdb/{name}": text.encode() for name, text in REVIEWS.items()}
    tar(folder / "imdb%2FaclImdb_v1.tar.gz", {**files, "aclImdb/README": b"words"})


def imikolov(folder: Path) -> None:
    train = b" the cat sat on the mat \n the cat <unk> away \n it 's a dog \n a dog \n"
    valid = b" the dog sat \n"
    files = {"ptb.train.txt": train, "ptb.valid.txt": valid, "ptb.test.txt": b"a\n"}
    data = {f"./simple-examples/data/{name}": text for name, text in files.items()}
    tar(folder / "imikolov%2Fsimple-examples.tgz", data)


def movielens(folder: Path) -> None:
    movies = "1::Toy Story (1995)::Animation|Comedy\n3::Café Noir (1988)::Drama\n"
    users = "1::F::1::10::48067\n4::M::45::7::02460\n"
    pairs = [(user, movie) for user in (1, 4) for movie in (1, 3)] * 10
    ratings = "".join(
        f"{user}::{movie}::{1 + place % 5}::978300760\n"
        for place, (user, movie) in enumerate(pairs)
    )
    texts = {"movies": movies, "users": users, "ratings": ratings}
    files = {f"ml-1m/{name}.dat": text.encode("latin1") for name, text in texts.items()}
    package(folder / "movielens%2Fml-1m.zip", {"ml-1m/README": b"about", **files})


SENTENCES = [
    [("The", "-", "(A0*"), ("cat", "-", "*)"), ("sat", "sit", "(V*)"), ("down", "-", "*")],
    [("Go", "go", "(V*)", "*"), ("and", "-", "*", "*"), ("see", "see", "(A1*)", "(V*)")],
    [("Silence", "-")],
]


def conll05(folder: Path) -> None:
    words, props = (
        "".join("".join(line(row) for row in rows) + "\n" for rows in SENTENCES)
        for line in (lambda row: f"{row[0]}\n", lambda row: "  ".join(row[1:]) + "\n")
    )
    base = "conll05st-release/test.wsj"
    texts = {f"{base}/words/test.wsj.words.gz": words, f"{base}/props/test.wsj.props.gz": props}
    files = {name: gzip.compress(text.encode()) for name, text in texts.items()}
    tar(folder / "conll05st-tests.tar.gz", files)
    for name, text in {
        "wordDict": "<unk>\nbos\neos\nThe\ncat\nsat\n",
        "verbDict": "sit\ngo\nsee\n",
        "targetDict": "B-A1\nI-A1\nB-A0\nI-A0\nB-V\nI-V\nO\n",
    }.items():
        (folder / f"conll05st%2F{name}.txt").write_text(text)
    (folder / "conll05st%2Femb").write_bytes(bytes(16) + bytes(6 * 32 * 4))


PAIRS = "a cat\tun chat\nno pair\na very big dog\tun très grand chien\n"


def wmt14(folder: Path) -> None:
    marks = "<s>\n<e>\n<unk>\n"
    texts = {"src.dict": marks + "a\ncat\ndog\n", "trg.dict": marks + "un\nchat\nchien\n"}
    texts |= dict.fromkeys(("train/train", "test/test", "gen/gen"), PAIRS + "x " * 90 + "\ty\n")
    tar(folder / "wmt14.tgz", {f"wmt14/{name}": text.encode() for name, text in texts.items()})


def wmt16(folder: Path) -> None:
    text = "a cat\teine Katze\na dog\tein Hund\nno pair\na cat sat\teine Katze saß\n"
    files = {f"wmt16/{name}": text.encode() for name in ("train", "test", "val")}
    tar(folder / "wmt16.tar.gz", files)


def flowers(folder: Path) -> None:
    pictures = {f"jpg/image_{number:05d}.jpg": b"JPEG %d" % number for number in range(1, 7)}
    tar(folder / "102flowers.tgz", pictures)
    savemat(folder / "imagelabels.mat", {"labels": np.array([[5, 5, 7, 7, 102, 1]], np.uint8)})
    parts = {"trnid": [[1, 3]], "valid": [[6]], "tstid": [[2, 4, 5]]}
    arrays = {name: np.array(numbers, np.uint16) for name, numbers in parts.items()}
    savemat(folder / "setid.mat", arrays, do_compression=True)


def sentiment(folder: Path) -> None:
    texts = {"neg/cv000_1": "bad , bad plot .", "neg/cv001_2": "it's dull", "pos/cv000_3": "good !"}
    texts |= {"pos/cv001_4": "good plot , good cast ."}
    files = {f"movie_reviews/{name}.txt": text.encode() for name, text in texts.items()}
    package(folder / "movie_reviews.zip", {"movie_reviews/README": b"about", **files})


def voc2012(folder: Path) -> None:
    lists = "VOCdevkit/VOC2012/ImageSets/Segmentation"
    tar(folder / "VOCtrainval_11-May-2012.tar", {f"{lists}/val.txt": b""})


MAKERS: dict[str, Callable[[Path], None]] = {
    "cifar": cifar,
    "conll05st": conll05,
    "corpora": sentiment,
    "flowers": flowers,
    "imdb": imdb,
    "imikolov": imikolov,
    "mnist": mnist,
    "movielens": movielens,
    "uci_housing": uci_housing,
    "voc2012": voc2012,
    "wmt14": wmt14,
    "wmt16": wmt16,
}
"""What writes the files of a folder of the cache."""


def make_all(home: Path) -> None:
    """Write every data set below a folder."""
    for name, make in MAKERS.items():
        (home / name).mkdir(parents=True)
        make(home / name)
