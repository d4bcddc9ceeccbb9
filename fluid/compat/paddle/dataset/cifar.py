"""CIFAR-10 and CIFAR-100: small images, 50,000 for training and 10,000 for testing.

The parts of the archives are pickles; they are parsed as data, and nothing in them is called.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TypeAlias, cast

import numpy as np

from compiler.ir.types import Array
from fluid.saving.state_file import load_tables

from .archive import checked, members, whole
from .common import download

__all__ = ["fetch", "test10", "test100", "train10", "train100"]

URL_PREFIX = "https://dataset.bj.bcebos.com/cifar/"
CIFAR10_URL = URL_PREFIX + "cifar-10-python.tar.gz"
CIFAR10_MD5 = "c58f30108f718f92721af3b95e74349a"
CIFAR100_URL = URL_PREFIX + "cifar-100-python.tar.gz"
CIFAR100_MD5 = "eb9058c3a382ffc7106e4002c42a8d85"
SIZE = 3 * 32 * 32

Reader: TypeAlias = Callable[[], Iterator[tuple[Array, int]]]


def reader_creator(url: str, md5: str, sub_name: str, cycle: bool = False) -> Reader:
    """A reader of the images in the matching members of an archive; `cycle` repeats forever.

    Raises DatasetError for a missing file now, for a damaged one when it is read.
    """
    path = download(url, "cifar", md5)

    def samples() -> Iterator[tuple[Array, int]]:
        yield from _pictures(path, md5, sub_name)
        while cycle:
            yield from _pictures(path, md5, sub_name)

    return samples


def _pictures(path: str, md5: str, sub_name: str) -> Iterator[tuple[Array, int]]:
    with checked(path, md5):
        for name, file in members(path, sub_name):
            for pixels, label in zip(*_part(whole(file), name), strict=True):
                yield (pixels / 255.0).astype(np.float32), int(label)


def _part(data: bytes, name: str) -> tuple[Array, list[int]]:
    """Pixels uint8 [n, 3072] and labels of one part."""
    tables = load_tables(data, name)
    pixels, labels = tables.get("data"), tables.get("labels", tables.get("fine_labels"))
    if not isinstance(pixels, np.ndarray) or not isinstance(labels, list):
        raise ValueError(f"{name} has no 'data' and 'labels', but {', '.join(tables)}")
    images, kinds = cast(Array, pixels), cast(list[int], labels)
    if images.shape != (len(kinds), SIZE) or images.dtype != np.uint8:
        raise ValueError(f"{name}: {images.dtype} {images.shape} for {len(kinds)} labels")
    return images, kinds


def train10(cycle: bool = False) -> Reader:
    """A reader of 10 kinds to learn from: pixels of 0 to 1, float32 [3072], and the kind."""
    return reader_creator(CIFAR10_URL, CIFAR10_MD5, "data_batch", cycle)


def test10(cycle: bool = False) -> Reader:
    """A reader of 10 kinds to test with: pixels of 0 to 1, float32 [3072], and the kind."""
    return reader_creator(CIFAR10_URL, CIFAR10_MD5, "test_batch", cycle)


def train100() -> Reader:
    """A reader of 100 kinds to learn from: pixels of 0 to 1, float32 [3072], and the kind."""
    return reader_creator(CIFAR100_URL, CIFAR100_MD5, "train")


def test100() -> Reader:
    """A reader of 100 kinds to test with: pixels of 0 to 1, float32 [3072], and the kind."""
    return reader_creator(CIFAR100_URL, CIFAR100_MD5, "test")


def fetch() -> None:
    """Make sure that the files are there."""
    download(CIFAR10_URL, "cifar", CIFAR10_MD5)
    download(CIFAR100_URL, "cifar", CIFAR100_MD5)
