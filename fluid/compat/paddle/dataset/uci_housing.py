"""Prices of 506 houses in the suburbs of Boston, by 13 properties of each (UCI)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeAlias

import numpy as np

from compiler.ir.types import Array

from .archive import checked, whole
from .common import download

__all__ = ["fetch", "predict_reader", "test", "train"]

URL = "http://paddlemodels.bj.bcebos.com/uci_housing/housing.data"
MD5 = "d4accdce7a25600298819f8e28e8d593"
feature_names = "CRIM ZN INDUS CHAS NOX RM AGE DIS RAD TAX PTRATIO B LSTAT".split()

Reader: TypeAlias = Callable[[], Iterator[tuple[Array, Array]]]


def load_data(filename: str, feature_num: int = 14, ratio: float = 0.8) -> tuple[Array, Array]:
    """Rows to learn from and rows to test with, float64 [n, feature_num], the price last.

    The others are brought to mean 0 and range 1 over both. Raises DatasetError for what is no such
    table.
    """
    with checked(filename, MD5), Path(filename).open("rb") as file:
        numbers = np.array(whole(file).split(), np.float64)
        data = numbers.reshape(len(numbers) // feature_num, feature_num)
        spread, mean = np.ptp(data, axis=0), data.sum(axis=0) / len(data)
    data[:, :-1] = ((data - mean) / spread)[:, :-1]
    offset = int(len(data) * ratio)
    return data[:offset], data[offset:]


def _reader(part: int) -> Reader:
    rows = load_data(download(URL, "uci_housing", MD5))[part]
    return lambda: ((row[:-1], row[-1:]) for row in rows)


def train() -> Reader:
    """A reader of four fifths of the houses: 13 properties and the price, float64 arrays."""
    return _reader(0)


def test() -> Reader:
    """A reader of the other houses: 13 properties and the price, float64 arrays."""
    return _reader(1)


def predict_reader() -> tuple[Array]:
    """The properties of one house."""
    return (next(test()())[0],)


def fetch() -> None:
    """Make sure that the file is there."""
    download(URL, "uci_housing", MD5)
