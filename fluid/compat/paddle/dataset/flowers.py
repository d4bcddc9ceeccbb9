"""Photographs of flowers of 102 kinds (Nilsback and Zisserman, 2008); reading them needs Pillow."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import TypeAlias

import numpy as np

from compiler.ir.types import Array
from fluid.reading.decorators import map_readers, xmap_readers

from .archive import checked, members, whole
from .common import download
from .image import load_image_bytes, simple_transform
from .matlab import load_arrays

__all__ = ["fetch", "test", "train", "valid"]

DATA_URL = "http://paddlemodels.bj.bcebos.com/flowers/102flowers.tgz"
LABEL_URL = "http://paddlemodels.bj.bcebos.com/flowers/imagelabels.mat"
SETID_URL = "http://paddlemodels.bj.bcebos.com/flowers/setid.mat"
DATA_MD5 = "52808999861908f626f3c1f4e79d11fa"
LABEL_MD5 = "e0620be6f572b9609742df49c70aed4d"
SETID_MD5 = "a5357ecc9cb78c4bef273ce3793fc85c"
TRAIN_FLAG, TEST_FLAG, VALID_FLAG = "tstid", "trnid", "valid"
"""The names of the parts; as in release 1.8, the largest, `tstid`, is learnt from."""

Mapper: TypeAlias = Callable[[tuple[bytes, int]], object]
Reader: TypeAlias = Callable[[], Iterable[object]]


def default_mapper(is_train: bool, sample: tuple[bytes, int]) -> tuple[Array, int]:
    """224×224 pixels less their usual mean, float32 [150528], and the kind."""
    picture, label = sample
    mean = [103.94, 116.78, 123.68]
    pixels = simple_transform(load_image_bytes(picture), 256, 224, is_train, mean=mean)
    return pixels.flatten().astype(np.float32), label


train_mapper = partial(default_mapper, True)
test_mapper = partial(default_mapper, False)


def reader_creator(
    dataset_name: str,
    mapper: Mapper,
    buffered_size: int = 1024,
    use_xmap: bool = True,
    cycle: bool = False,
) -> Reader:
    """A reader of a part: each JPEG file and its kind, 0 to 101, as `mapper` makes them.

    With `use_xmap` several threads map; samples then come as they are ready. Raises DatasetError
    for a missing or damaged file.
    """
    archive = download(DATA_URL, "flowers", DATA_MD5)
    kinds = _kinds(dataset_name)

    def images() -> Iterator[tuple[bytes, int]]:
        yield from _pictures(archive, kinds)
        while cycle:
            yield from _pictures(archive, kinds)

    if not use_xmap:
        return map_readers(mapper, images)
    return xmap_readers(mapper, images, min(4, os.cpu_count() or 1), buffered_size)


def _pictures(archive: str, kinds: dict[str, int]) -> Iterator[tuple[bytes, int]]:
    with checked(archive, DATA_MD5):
        for name, file in members(archive, r"\.jpg$"):
            if name in kinds:
                yield whole(file), kinds[name]


def _kinds(dataset_name: str) -> dict[str, int]:
    """The kind of each picture of a part, by the name of its file."""
    labels = _numbers(LABEL_URL, LABEL_MD5, "labels")
    chosen = _numbers(SETID_URL, SETID_MD5, dataset_name)
    return {f"jpg/image_{number:05d}.jpg": labels[number - 1] - 1 for number in chosen}


def _numbers(url: str, md5: str, name: str) -> list[int]:
    path = download(url, "flowers", md5)
    with checked(path, md5), Path(path).open("rb") as file:
        return [int(number) for number in load_arrays(whole(file))[name].reshape(-1)]


def train(
    mapper: Mapper = train_mapper,
    buffered_size: int = 1024,
    use_xmap: bool = True,
    cycle: bool = False,
) -> Reader:
    """A reader of flowers to learn from: pixels, float32 [150528], and the kind of 0 to 101."""
    return reader_creator(TRAIN_FLAG, mapper, buffered_size, use_xmap, cycle)


def test(
    mapper: Mapper = test_mapper,
    buffered_size: int = 1024,
    use_xmap: bool = True,
    cycle: bool = False,
) -> Reader:
    """A reader of flowers to test with: pixels, float32 [150528], and the kind of 0 to 101."""
    return reader_creator(TEST_FLAG, mapper, buffered_size, use_xmap, cycle)


def valid(mapper: Mapper = test_mapper, buffered_size: int = 1024, use_xmap: bool = True) -> Reader:
    """A reader of flowers to choose a model by: pixels, float32 [150528], and the kind."""
    return reader_creator(VALID_FLAG, mapper, buffered_size, use_xmap)


def fetch() -> None:
    """Make sure that the files are there."""
    download(DATA_URL, "flowers", DATA_MD5)
    download(LABEL_URL, "flowers", LABEL_MD5)
    download(SETID_URL, "flowers", SETID_MD5)
