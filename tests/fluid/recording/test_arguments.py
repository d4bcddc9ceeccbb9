"""Arguments of another type: what annotations can say."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from fluid.recording.annotations import DTypeLike
from fluid.recording.arguments import ArgumentError, typed


def test_an_alias_means_its_value() -> None:
    """As NumPy 2.5 defines NDArray, on Python 3.12 and later."""

    def size(data: Any) -> int:
        return len(data)

    size.__annotations__["data"] = SimpleNamespace(__value__=np.ndarray)
    checked = typed(size)
    assert checked(np.zeros(3)) == 3
    with pytest.raises(ArgumentError, match="'data' in size must be "):
        checked("abc")


def test_typed_neither_checks_nor_converts_an_unchecked_argument() -> None:
    """The function checks it itself, or passes it on."""

    def same(dtype: DTypeLike, optional: DTypeLike | None, anything: object) -> Any:
        return dtype, optional, anything

    number = np.float32(1.5)
    assert typed(same)([1], {}, number) == ([1], {}, number)
    assert typed(same)(number, None, number)[::2] == (number, number)
    assert all(type(each) is np.float32 for each in typed(same)(number, None, number)[::2])
