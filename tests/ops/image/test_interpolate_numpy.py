"""Sizes that a variable gives to an interpolation are refused before any work if nothing fits."""

from typing import Any

import numpy as np
import pytest

from compiler.ir.opdef import find
from compiler.ops.image import interpolate_numpy


@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
def test_an_output_that_fits_in_no_memory_is_refused_at_once(
    layout: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_taps(*_: Any) -> Any:
        raise AssertionError("positions were computed")

    monkeypatch.setattr(interpolate_numpy, "axis_taps", no_taps)
    op = find("bilinear_interp")({"interp_method": "bilinear", "data_layout": layout})
    images, scale = np.zeros((2, 3, 3, 3), np.float32), np.array([1e6], np.float32)
    with pytest.raises(MemoryError):
        op.evaluate({"X": images, "Scale": scale})
