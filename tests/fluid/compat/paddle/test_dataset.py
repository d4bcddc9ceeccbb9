"""Data sets yield the samples of release 1.8.5; missing and damaged files are reported."""

import gzip
import io
import json
import os
import pickle  # noqa: TID251  what a hostile part of cifar is made with
import shutil
import struct
import sys
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.io import savemat

from fluid.compat.paddle import dataset
from fluid.compat.paddle.dataset import cifar, common, image, matlab, mnist, uci_housing
from fluid.compat.paddle.dataset.common import DatasetError
from tests.fluid.compat.paddle.dataset_files import make_all, package, tar
from tests.fluid.compat.paddle.dataset_samples import plain, questions

RECORDED = json.loads((Path(__file__).parents[3] / "data" / "dataset_samples.json").read_text())


@pytest.fixture(scope="session")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Give a folder with tiny files of every data set, which is read only."""
    home = tmp_path_factory.mktemp("datasets")
    make_all(home)
    return home


@pytest.fixture
def home(made: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Give the folder of tiny files, as the cache folder."""
    monkeypatch.setattr(common, "DATA_HOME", str(made))
    return made


@pytest.fixture
def own_home(made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Give a copy of it, which a test may spoil."""
    shutil.copytree(made, tmp_path / "home")
    monkeypatch.setattr(common, "DATA_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


@pytest.mark.parametrize("name", RECORDED)
def test_samples_are_those_of_the_reference(name: str, home: Path) -> None:
    answer = questions(dataset)[name]()
    assert json.loads(json.dumps(plain(answer))) == RECORDED[name]


def test_houses_are_brought_to_one_range(home: Path) -> None:
    table = np.loadtxt(home / "uci_housing" / "housing.data")
    scaled = (table - table.mean(axis=0)) / np.ptp(table, axis=0)
    rows = [*uci_housing.train()(), *uci_housing.test()()]
    assert len(list(uci_housing.train()())) == 16
    np.testing.assert_allclose([row[0] for row in rows], scaled[:, :-1], atol=1e-12)
    np.testing.assert_array_equal([row[1] for row in rows], table[:, -1:])
    np.testing.assert_array_equal(uci_housing.predict_reader()[0], rows[16][0])


def test_digits_are_between_minus_one_and_one(home: Path) -> None:
    samples = list(mnist.train()())
    draw = np.random.RandomState(0)
    pixels, labels = draw.randint(0, 256, (100, 28 * 28)), draw.randint(0, 10, 100)
    expected = pixels.astype(np.float32) / 255.0 * 2.0 - 1.0
    np.testing.assert_array_equal([pixels for pixels, _ in samples], expected)
    assert [label for _, label in samples] == labels.tolist()
    assert samples[0][0].dtype == np.float32 and len(list(mnist.test()())) == 100


def test_images_are_between_zero_and_one(home: Path) -> None:
    draw = np.random.RandomState(1)
    pixels, labels = draw.randint(0, 256, (4, 3072)), draw.randint(0, 10, 4)
    samples = list(cifar.train10()())
    assert len(samples) == 8
    np.testing.assert_array_equal([found for found, _ in samples[:4]], np.float32(pixels / 255.0))
    assert [label for _, label in samples[:4]] == labels.tolist()
    assert len(list(cifar.test10()())) == 4
    assert [len(list(each()())) for each in (cifar.train100, cifar.test100)] == [3, 3]


def test_image_readers_repeat_on_request(home: Path) -> None:
    cycled = cifar.test10(cycle=True)()
    labels = [next(cycled)[1] for _ in range(9)]
    assert labels[4:8] == labels[:4] and labels[8] == labels[0]


def python2_part(pixels: Any, labels: list[int]) -> bytes:
    """Write a part as Python 2 did: texts as plain strings, protocol 2."""
    text = lambda value: b"U%c" % len(value) + value  # noqa: E731
    numbers = b"](" + b"".join(b"K%c" % label for label in labels) + b"e"
    head = b"cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\x00\x85" + text(b"b")
    dtype = b"cnumpy\ndtype\n" + text(b"u1") + b"K\x00K\x01\x87R(K\x03" + text(b"|")
    shape = b"K%cM" % len(labels) + struct.pack("<H", 3072) + b"\x86"
    data = b"T" + struct.pack("<I", pixels.size) + pixels.tobytes()
    array = (
        head + b"\x87R(K\x01" + shape + dtype + b"NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb\x89"
    )
    array += data + b"tb"
    return b"\x80\x02}(" + text(b"labels") + numbers + text(b"data") + array + b"u."


def test_part_that_python_2_wrote_is_read(own_home: Path) -> None:
    pixels = np.arange(2 * 3072, dtype=np.int64).astype(np.uint8).reshape(2, 3072)
    part = python2_part(pixels, [3, 8])
    known = pickle.loads(part, encoding="bytes")  # noqa: S301  the test's own bytes
    assert known[b"labels"] == [3, 8] and (known[b"data"] == pixels).all()
    tar(own_home / "cifar" / "cifar-10-python.tar.gz", {"cifar-10-batches-py/test_batch": part})
    samples = list(cifar.test10()())
    np.testing.assert_array_equal([sample for sample, _ in samples], np.float32(pixels / 255.0))
    assert [label for _, label in samples] == [3, 8]


class Hostile:
    def __reduce__(self) -> Any:
        return os.mkdir, ("called",)


def test_nothing_in_a_pickle_is_called(
    own_home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    part = pickle.dumps({"data": Hostile(), "labels": [1]}, protocol=2)
    tar(own_home / "cifar" / "cifar-10-python.tar.gz", {"a/test_batch": part})
    monkeypatch.chdir(tmp_path)
    with pytest.raises(DatasetError, match=r"it uses (posix|nt)\.mkdir"):
        list(cifar.test10()())
    assert not (tmp_path / "called").exists()


def test_photographs_have_the_kinds_of_their_pixels(own_home: Path) -> None:
    images = pytest.importorskip("PIL.Image")
    root = "VOCdevkit/VOC2012"
    files = {f"{root}/ImageSets/Segmentation/{n}.txt": b"b\na\n" for n in ("trainval", "train")}
    for number, name in enumerate("ab"):
        photograph, kinds = io.BytesIO(), io.BytesIO()
        images.new("RGB", (4, 3), (200, 0, 0)).save(photograph, "JPEG")
        palette = images.new("P", (4, 3), number)
        palette.putpalette([0, 0, 0, 9, 9, 9])
        palette.save(kinds, "PNG")
        files[f"{root}/JPEGImages/{name}.jpg"] = photograph.getvalue()
        files[f"{root}/SegmentationClass/{name}.png"] = kinds.getvalue()
    assert list(dataset.voc2012.val()()) == []
    tar(own_home / "voc2012" / "VOCtrainval_11-May-2012.tar", files)
    for part in (dataset.voc2012.train, dataset.voc2012.test):
        samples = list(part()())
        assert [(x.shape, x.dtype.name, y.shape, y.max()) for x, y in samples] == [
            ((3, 4, 3), "uint8", (3, 4), 1),
            ((3, 4, 3), "uint8", (3, 4), 0),
        ]
    with pytest.raises(DatasetError, match=r"val.txt.* not found.*; its MD5 is"):
        list(dataset.voc2012.val()())


# What is missing or damaged


ASKED = {
    "uci_housing": lambda: dataset.uci_housing.train(),
    "mnist": lambda: dataset.mnist.test(),
    "cifar": lambda: dataset.cifar.train100(),
    "imdb": lambda: dataset.imdb.word_dict(),
    "imikolov": lambda: dataset.imikolov.build_dict(),
    "movielens": lambda: dataset.movielens.max_user_id(),
    "conll05st": lambda: dataset.conll05.test(),
    "wmt14": lambda: dataset.wmt14.train(10),
    "wmt16": lambda: dataset.wmt16.train(10, 10),
    "flowers": lambda: dataset.flowers.train(),
    "corpora": lambda: dataset.sentiment.get_word_dict(),
    "voc2012": lambda: dataset.voc2012.val(),
}


@pytest.mark.parametrize("folder", ASKED)
def test_a_missing_file_is_reported_with_its_source_and_destination(
    folder: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(common, "DATA_HOME", str(tmp_path))
    with pytest.raises(DatasetError) as raised:
        ASKED[folder]()
    said = str(raised.value)
    assert "is missing, and nothing is downloaded here: get it from http" in said
    assert f"put it at {tmp_path / folder}" in said and "PADDLE_DATASET_HOME" in said
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["cifar", "conll05", "flowers", "imdb", "imikolov", "mnist"])
def test_fetch_reports_that_all_is_there(name: str, home: Path) -> None:
    getattr(dataset, name).fetch()


def test_gzip_that_ends_early(own_home: Path) -> None:
    path = own_home / "mnist" / "t10k-images-idx3-ubyte.gz"
    path.write_bytes(path.read_bytes()[:500])
    with pytest.raises(
        DatasetError, match=r"cannot be read: .*; its MD5 is .* published file 9fb6"
    ):
        list(mnist.test()())


@pytest.mark.parametrize(
    ("head", "said"),
    [
        (struct.pack(">IIII", 0x801, 1, 2, 2) + bytes(4), "it starts with 2049"),
        (struct.pack(">IIII", 0x803, 2**31, 2**16, 2**16), "it starts with 2051 and sizes"),
        (struct.pack(">IIII", 0x803, 3, 2, 2) + bytes(11), "12 bytes were expected"),
        (struct.pack(">IIII", 0x803, 3, 2, 2) + bytes(13), "12 bytes were expected"),
        (b"\0\0", "unpack requires"),
    ],
)
def test_digits_that_are_none(own_home: Path, head: bytes, said: str) -> None:
    (own_home / "mnist" / "t10k-images-idx3-ubyte.gz").write_bytes(gzip.compress(head))
    with pytest.raises(DatasetError, match=said):
        list(mnist.test()())


@pytest.mark.parametrize(
    ("part", "said"),
    [
        ({"labels": [1]}, "has no 'data' and 'labels', but labels"),
        ({"data": np.zeros((1, 5), np.uint8), "labels": [1]}, r"uint8 \(1, 5\) for 1 labels"),
        ({"data": np.zeros((1, 3072), np.uint8), "labels": [1, 2]}, "for 2 labels"),
        ([1, 2], "got list"),
    ],
)
def test_part_of_cifar_that_is_none(own_home: Path, part: Any, said: str) -> None:
    files = {"a/test_batch": pickle.dumps(part, protocol=2)}
    tar(own_home / "cifar" / "cifar-10-python.tar.gz", files)
    with pytest.raises(DatasetError, match=said):
        list(cifar.test10()())


def test_archives_that_are_none_or_lack_a_file(own_home: Path) -> None:
    (own_home / "wmt14" / "wmt14.tgz").write_bytes(b"no archive")
    with pytest.raises(DatasetError, match="cannot be read: file could not be opened"):
        dataset.wmt14.get_dict(3)
    tar(own_home / "wmt16" / "wmt16.tar.gz", {"wmt16/other": b""})
    with pytest.raises(
        DatasetError, match=r"it holds no file whose name matches '\^wmt16/train\$'"
    ):
        dataset.wmt16.get_dict("en", 5)
    package(own_home / "movielens" / "movielens%2Fml-1m.zip", {"ml-1m/movies.dat": b"1::A"})
    with pytest.raises(DatasetError, match="not enough values to unpack"):
        dataset.movielens.movie_info()
    with pytest.raises(DatasetError, match=r"no item named 'ml-1m/users\.dat'"):
        dataset.movielens.user_info()


@pytest.mark.parametrize("text", ["", "1.0 2.0", "1.0 x"])
def test_table_of_houses_that_is_none(own_home: Path, text: str) -> None:
    (own_home / "uci_housing" / "housing.data").write_text(text)
    with pytest.raises(DatasetError, match=r"housing\.data cannot be read"):
        uci_housing.train()


def test_archive_with_a_password(own_home: Path) -> None:
    path = own_home / "movielens" / "movielens%2Fml-1m.zip"
    data = bytearray(path.read_bytes())
    entry = data.rindex(b"ml-1m/movies.dat") - 46
    data[entry + 8] |= 1
    path.write_bytes(data)
    with pytest.raises(DatasetError, match=r"movies\.dat' is encrypted"):
        dataset.movielens.movie_info()


def test_line_without_end(own_home: Path) -> None:
    files = {"wmt14/src.dict": b"x" * (1 << 20 | 1), "wmt14/trg.dict": b"y"}
    tar(own_home / "wmt14" / "wmt14.tgz", files)
    with pytest.raises(DatasetError, match="a line has more than 1,048,576 bytes"):
        dataset.wmt14.get_dict(3)


def test_member_that_is_too_large(own_home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fluid.compat.paddle.dataset.archive.whole.__defaults__", (10,))
    with pytest.raises(DatasetError, match="it has more than 10 bytes"):
        list(cifar.test10()())


def test_links_in_archives_are_passed_over(own_home: Path) -> None:
    member = tarfile.TarInfo("a/test_batch")
    member.type, member.linkname = tarfile.SYMTYPE, "/etc/passwd"
    with tarfile.open(own_home / "cifar" / "cifar-10-python.tar.gz", "w:gz") as archive:
        archive.addfile(member)
    with pytest.raises(DatasetError, match="it holds no file whose name matches 'test_batch'"):
        list(cifar.test10()())


# The rest of common, and pictures


def test_samples_split_over_files_come_back(tmp_path: Path) -> None:
    suffix = str(tmp_path / "part-%02d.json")
    common.split(lambda: iter(range(7)), 3, suffix)
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "part-00.json",
        "part-01.json",
        "part-02.json",
    ]
    pattern = str(tmp_path / "part-*.json")
    assert list(common.cluster_files_reader(pattern, 2, 0)()) == [0, 1, 2, 6]
    assert list(common.cluster_files_reader(pattern, 2, 1)()) == [3, 4, 5]
    for wrong in (
        lambda: common.split(lambda: iter(()), 3, suffix, dumper=None),
        lambda: common.cluster_files_reader(pattern, 1, 0, loader=None),
    ):
        with pytest.raises(TypeError, match="should be callable"):
            wrong()


def test_dictionary_that_the_reference_left_is_taken(own_home: Path) -> None:
    (own_home / "wmt16" / "en_4.dict").write_text("<s>\n<e>\n<unk>\nzebra\n")
    assert dataset.wmt16.get_dict("en", 4)["zebra"] == 3
    assert "zebra" not in dataset.wmt16.get_dict("en", 5)
    with pytest.raises(ValueError, match=r"en \(English\) and de \(German\), not 'fr'"):
        dataset.wmt16.test(3, 3, "fr")


@pytest.mark.parametrize("compressed", [False, True])
def test_matlab_arrays(compressed: bool, tmp_path: Path) -> None:
    arrays = {
        "ids": np.arange(6, dtype=np.uint16).reshape(2, 3),
        "x": np.array([[0.5, -2.0]]),
        "name": "a text, passed over",
        "tiny": np.array([[7]], np.int8),
    }
    savemat(tmp_path / "a.mat", arrays, do_compression=compressed)
    result = matlab.load_arrays((tmp_path / "a.mat").read_bytes())
    for name in ("ids", "x", "tiny"):
        np.testing.assert_array_equal(result[name], arrays[name])


def test_matlab_files_that_are_none(tmp_path: Path) -> None:
    savemat(tmp_path / "a.mat", {"x": np.arange(9.0)})
    data = (tmp_path / "a.mat").read_bytes()
    for spoiled, said in ((data[:100], "no MATLAB file"), (data[:180], "ends in the middle")):
        with pytest.raises(ValueError, match=said):
            matlab.load_arrays(spoiled)


def test_images_need_a_package_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("PIL", "PIL.Image"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(DatasetError, match="reading images requires Pillow: pip install pillow"):
        image.load_image_bytes(b"")


def test_picture_is_resized_cropped_and_centred() -> None:
    ramp = np.indices((20, 30)).sum(axis=0).astype(np.uint8)
    colours = np.stack([ramp, ramp * 2, ramp * 3], axis=2)
    result = image.simple_transform(colours, 40, 24, is_train=False, mean=[1.0, 2.0, 3.0])
    assert result.shape == (3, 24, 24) and result.dtype == np.float32
    np.testing.assert_allclose(
        result[1], 2 * result[0], atol=2
    )  # Twice as bright, but for rounding.
    np.random.seed(0)
    assert image.simple_transform(colours, 40, 24, is_train=True).shape == (3, 24, 24)
