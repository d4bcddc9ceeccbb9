"""Perspective transforms of pictures in half precision, in native code."""

from dataclasses import replace

import numpy as np
import pytest

import runtime
from compiler.codegen.native.host import detected
from compiler.codegen.native.target import NativeTarget
from compiler.freeze import freeze
from compiler.ir.types import DType
from compiler.options import Options
from compiler.passes.base import Context
from compiler.passes.manager import run_passes
from compiler.passes.pipeline import pipeline
from tests.ops.samples import samples
from tests.ops.test_generated import NOBODY, forward, graph_of

pytestmark = pytest.mark.skipif(detected() is None, reason="no native code for this CPU")


def test_maps_are_used_before_they_are_rounded() -> None:
    sample = next(s for s in samples() if s.op == "roi_perspective_transform")
    narrow = {name: sample.inputs[name].astype(DType.BF16.numpy) for name in ("X", "ROIs")}
    case = forward(replace(sample, inputs={**sample.inputs, **narrow}))
    slots = ["Mask", "Out2InIdx", "TransformMatrix"]
    graph, feed = graph_of(case, slots, NOBODY)
    run_passes(graph, pipeline(Options(), NativeTarget()), Context())
    result = runtime.load(NativeTarget().emit(freeze(graph)))(feed)
    for slot, array in zip(slots[:2], result, strict=False):
        np.testing.assert_array_equal(array, case.results[slot])
