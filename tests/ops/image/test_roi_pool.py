"""Native kernels of cells whose size the boxes say: channels for no vector, one, and several."""

from __future__ import annotations

import numpy as np
import pytest

from compiler.codegen.native.host import detected
from compiler.codegen.native.target import NativeTarget
from compiler.freeze import freeze
from compiler.options import Options
from compiler.passes.base import Context
from compiler.passes.manager import run_passes
from compiler.passes.pipeline import pipeline
from tests.ops.compiled_samples import Compiled
from tests.ops.samples import Sample, numbers
from tests.ops.samples.sequence import lod
from tests.ops.test_generated import NOBODY, backward, forward, graph_of

pytestmark = pytest.mark.skipif(detected() is None, reason="no native code for this CPU")

TARGET = NativeTarget()
NATIVE = Compiled(TARGET)

BOXES = np.array([[-9, -7, 60, 44], [3.5, 2.25, 7.5, 30.75], [80, 2, 90, 9]], np.float32)
"""Boxes: around the whole image, narrow, and beside it."""


def pooled(op: str, channels: int, dtype: type = np.float32, **attrs: int) -> Sample:
    """Boxes of two images, in 2 · 3 cells."""
    images = numbers(2, channels, 37, 51).astype(dtype)
    inputs = {"X": images, "ROIs": BOXES.astype(dtype), "ROIs_lod": lod((1, 2))}
    cells = {"spatial_scale": 1.0, "pooled_height": 2, "pooled_width": 3}
    return Sample(op, inputs, {**cells, **attrs}, ("X",))


@pytest.mark.parametrize("channels", [1, 15, 16, 33])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_maxima_of_any_number_of_channels(channels: int, dtype: type) -> None:
    sample = pooled("roi_pool", channels, dtype)
    NATIVE.check(forward(sample), sample)
    NATIVE.check(backward(sample), sample)


@pytest.mark.parametrize("outputs", [1, 17])
def test_means_of_any_number_of_channels(outputs: int) -> None:
    sample = pooled("psroi_pool", outputs * 6, output_channels=outputs)
    NATIVE.check(forward(sample), sample)
    NATIVE.check(backward(sample), sample)


def test_positions_in_a_cell_are_those_of_all_channels() -> None:
    """Vectors are along channels: nothing is divided for each element of a vector."""
    case = forward(pooled("roi_pool", 64))
    graph, _ = graph_of(case, list(case.results), NOBODY)
    run_passes(graph, pipeline(Options(), TARGET), Context())
    (text,) = TARGET.module_writer(freeze(graph)).written.texts.values()
    assert "udiv i32" in text
    assert not any("fdiv <" in line for line in text.splitlines())
