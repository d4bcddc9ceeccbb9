"""Handwritten digits: 60,000 to learn from and 10,000 to test with, 28×28 pixels (LeCun et al.)."""

from __future__ import annotations

import gzip
import math
import struct
from collections.abc import Callable, Iterator
from typing import TypeAlias

import numpy as np

from compiler.ir.types import Array

from .archive import MOST_BYTES, checked
from .common import download

__all__ = ["fetch", "test", "train"]

URL_PREFIX = "https://dataset.bj.bcebos.com/mnist/"
TEST_IMAGE_URL = URL_PREFIX + "t10k-images-idx3-ubyte.gz"
TEST_IMAGE_MD5 = "9fb629c4189551a2d022fa330f9573f3"
TEST_LABEL_URL = URL_PREFIX + "t10k-labels-idx1-ubyte.gz"
TEST_LABEL_MD5 = "ec29112dd5afa0611ce80d1b7f02629c"
TRAIN_IMAGE_URL = URL_PREFIX + "train-images-idx3-ubyte.gz"
TRAIN_IMAGE_MD5 = "f68b3c2dcbeaaa9fbdd348bbdeb94873"
TRAIN_LABEL_URL = URL_PREFIX + "train-labels-idx1-ubyte.gz"
TRAIN_LABEL_MD5 = "d53e105ee54ea40749a09fcbcd1e9432"

Reader: TypeAlias = Callable[[], Iterator[tuple[Array, int]]]


def train() -> Reader:
    """A reader of digits to learn from: pixels of -1 to 1, float32 [784], and the digit."""
    return reader_creator(
        (TRAIN_IMAGE_URL, TRAIN_IMAGE_MD5),
        (TRAIN_LABEL_URL, TRAIN_LABEL_MD5),
    )


def test() -> Reader:
    """A reader of digits to test with: pixels of -1 to 1, float32 [784], and the digit."""
    return reader_creator((TEST_IMAGE_URL, TEST_IMAGE_MD5), (TEST_LABEL_URL, TEST_LABEL_MD5))


def reader_creator(image: tuple[str, str], label: tuple[str, str]) -> Reader:
    """A reader of images and labels from two files, each with its URL and checksum.

    Raises DatasetError for a missing file now, for a damaged one when it is read.
    """
    images = download(image[0], "mnist", image[1])
    labels = download(label[0], "mnist", label[1])

    def samples() -> Iterator[tuple[Array, int]]:
        pixels, digits = _idx(images, image[1], rank=3), _idx(labels, label[1], rank=1)
        for picture, digit in zip(pixels, digits, strict=False):
            yield picture.reshape(-1).astype(np.float32) / 255.0 * 2.0 - 1.0, int(digit)

    return samples


def _idx(path: str, md5: str, rank: int) -> Array:
    """Read a gzipped IDX file as an array with the shape in its header."""
    with checked(path, md5), gzip.open(path) as file:
        magic, *shape = struct.unpack(f">{1 + rank}I", file.read(4 * (1 + rank)))
        size = math.prod(shape)
        if magic != 0x800 + rank or size > MOST_BYTES:
            raise ValueError(f"it starts with {magic} and sizes {shape}")
        data = file.read(size + 1)
        if len(data) != size:
            raise ValueError(f"{size} bytes were expected after its sizes {shape}")
        return np.frombuffer(data, np.uint8).reshape(shape)


def fetch() -> None:
    """Make sure that the files are there."""
    download(TRAIN_IMAGE_URL, "mnist", TRAIN_IMAGE_MD5)
    download(TRAIN_LABEL_URL, "mnist", TRAIN_LABEL_MD5)
    download(TEST_IMAGE_URL, "mnist", TEST_IMAGE_MD5)
    download(TEST_LABEL_URL, "mnist", TEST_LABEL_MD5)
