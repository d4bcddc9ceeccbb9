"""Photographs with the kind of object of each pixel (PASCAL VOC 2012); reading needs Pillow."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Callable, Iterator
from typing import IO, TypeAlias

import numpy as np

from compiler.ir.types import Array

from .archive import checked, lines, whole
from .common import DatasetError, download
from .image import pillow_images

__all__ = ["test", "train", "val"]

VOC_URL = "http://host.robots.ox.ac.uk/pascal/VOC/voc2012/VOCtrainval_11-May-2012.tar"
VOC_MD5 = "6cd6e144f989b92b3379bac3b3de84fd"
CACHE_DIR = "voc2012"
SET_FILE = "VOCdevkit/VOC2012/ImageSets/Segmentation/{}.txt"
DATA_FILE = "VOCdevkit/VOC2012/JPEGImages/{}.jpg"
LABEL_FILE = "VOCdevkit/VOC2012/SegmentationClass/{}.png"

Reader: TypeAlias = Callable[[], Iterator[tuple[Array, Array]]]


def reader_creator(filename: str, sub_name: str) -> Reader:
    """A reader of a part: pixels uint8 [height, width, 3] and their kinds uint8 [height, width].

    Kinds are 0 to 20, and 255 on borders. The reader raises DatasetError for a damaged file and
    without Pillow.
    """

    def reader() -> Iterator[tuple[Array, Array]]:
        with checked(filename, VOC_MD5), tarfile.open(filename) as archive:
            with _member(archive, SET_FILE.format(sub_name)) as listed:
                names = [line.decode().strip() for line in lines(listed)]
            for name in filter(None, names):
                yield (
                    _pixels(archive, DATA_FILE.format(name)),
                    _pixels(archive, LABEL_FILE.format(name)),
                )

    return reader


def train() -> Reader:
    """A reader of all 2,913 samples. Raises DatasetError for a missing file."""
    return reader_creator(download(VOC_URL, CACHE_DIR, VOC_MD5), "trainval")


def test() -> Reader:
    """A reader of 1,464 samples, those to learn from. Raises DatasetError for a missing file."""
    return reader_creator(download(VOC_URL, CACHE_DIR, VOC_MD5), "train")


def val() -> Reader:
    """A reader of 1,449 samples, those to validate. Raises DatasetError for a missing file."""
    return reader_creator(download(VOC_URL, CACHE_DIR, VOC_MD5), "val")


def _member(archive: tarfile.TarFile, name: str) -> IO[bytes]:
    """A file of an archive; ValueError for what is none."""
    file = archive.extractfile(name) if archive.getmember(name).isreg() else None
    if file is None:
        raise ValueError(f"{name} is no file")
    return file


def _pixels(archive: tarfile.TarFile, name: str) -> Array:
    """The numbers of a picture of an archive: colours, or kinds of a picture with a palette."""
    with _member(archive, name) as file:
        data = whole(file)
    try:
        return np.asarray(pillow_images().open(io.BytesIO(data)))
    except (OSError, ValueError) as error:
        raise DatasetError(f"{name} cannot be read: {error}") from error
