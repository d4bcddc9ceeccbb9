"""Arguments of another type: what annotations can say."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

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
