"""Ops on float64 keep its precision: no constant, table or position of theirs is rounded to float32.

Inputs and attributes are numbers that float32 cannot hold. Generated code gives what the reference
implementation gives, to a few units in the last place of float64.
"""

import importlib
from collections.abc import Callable
from dataclasses import replace
from math import isfinite
from typing import Any

import numpy as np
import pytest

import runtime
from compiler.codegen.native.host import detected
from compiler.codegen.native.target import NativeTarget
from compiler.codegen.numpy import NumpyTarget
from compiler.codegen.target import Target
from compiler.errors import CompileError
from compiler.freeze import freeze
from compiler.ir.opdef import Attr, find, listed
from compiler.ir.text.printer import parse
from compiler.options import Options
from compiler.passes.base import Context
from compiler.passes.manager import run_passes
from compiler.passes.pipeline import pipeline
from tests.ops.backward import each
from tests.ops.compiled_samples import FIRST
from tests.ops.samples import Sample
from tests.ops.test_generated import (
    ALONE,
    DIFFERENTIATED,
    NOBODY,
    Case,
    backward,
    forward,
    graph_of,
    with_elements,
)

BITS = {"lookup_table_dequant", "pyramid_hash", "dequantize_log", "mean_iou"}
"""Ops whose floats hold bytes, or are float32 always."""
HANDFUL = frozenset(
    "bicubic_interp conv2d deformable_psroi_pooling dropout gelu layer_norm mean psroi_pool "
    "roi_align roi_pool scale softmax".split()
)
"""Ops that the fast tests check; the others are for `make slow`."""


def wide(sample: Sample) -> Sample:
    """A sample in float64, with inputs and attributes that float32 cannot hold."""
    rng = np.random.default_rng(5)

    def widened(array: Any) -> Any:
        if getattr(array, "dtype", None) != np.float32:
            return array
        return array.astype(np.float64) * (1 + 3e-8 * rng.uniform(-1, 1, array.shape))

    inputs = {slot: each(value, widened) for slot, value in sample.inputs.items()}
    return replace(sample, inputs=inputs, attrs=awkward(sample))


def awkward(sample: Sample) -> dict[str, Any]:
    """The attributes of a sample, numbers other than 0 changed by a few percent."""
    attrs, cls = dict(sample.attrs), find(sample.op)
    for name in dir(cls):
        declared = getattr(cls, name, None)
        if isinstance(declared, Attr) and declared.kind is float:
            value = attrs.get(name, declared.default)
            if value and isfinite(value):
                attrs[name] = value * 0.97371
    return attrs


ON_DEVICE = ("atan", "bicubic_interp", "expm1", "roi_align", "tanh", "yolov3_loss")
"""Ops of which kernels for devices have constants, positions or series of their own."""
TARGETS = [NumpyTarget(), *([NativeTarget()] if detected() else [])]


def check(
    make: Callable[[Sample], Case],
    sample: Sample,
    target: Target,
    place: runtime.Place | None = None,
) -> None:
    try:
        case = make(wide(sample))
    except CompileError as error:
        pytest.skip(f"it does not take float64: {error.message}")
    if find(case.op).is_random and "Key" not in case.values:
        pytest.skip("its numbers are random")
    graph, feed = graph_of(case, with_elements(case), NOBODY)
    run_passes(graph, pipeline(Options(), target), Context())
    actual = runtime.load(target.emit(freeze(graph)), place)(feed)
    wants = [(slot, want) for slot in with_elements(case) for want in listed(case.results[slot])]
    for (slot, want), got in zip(wants, actual, strict=True):
        tolerance = 1e-5 if want.dtype == np.float32 else 1e-12
        largest = np.abs(want, where=np.isfinite(want), out=np.zeros(want.shape)).max(initial=0)
        np.testing.assert_allclose(got, want, tolerance, tolerance * largest, err_msg=slot)


def parameters(chosen: list[Sample]) -> list[Any]:
    """The first sample of each op; those of most ops are for `make slow`."""
    firsts = [s for s in chosen if s is FIRST[s.op] and s.op not in BITS]
    return [
        pytest.param(s, id=s.op, marks=() if s.op in HANDFUL else (pytest.mark.slow,))
        for s in firsts
    ]


@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.name)
@pytest.mark.parametrize("sample", parameters(ALONE))
def test_forward(sample: Sample, target: Target) -> None:
    check(forward, sample, target)


@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.name)
@pytest.mark.parametrize("sample", parameters(DIFFERENTIATED))
def test_backward(sample: Sample, target: Target) -> None:
    check(backward, sample, target)


@pytest.mark.device
@pytest.mark.parametrize("op", ON_DEVICE)
def test_forward_on_device(op: str) -> None:
    pytest.importorskip("triton")
    triton = importlib.import_module("compiler.codegen.triton.target")
    check(forward, FIRST[op], triton.TritonTarget(), runtime.CUDAPlace(0))


@pytest.mark.device
def test_constants_of_kernels_are_float64() -> None:
    """Triton gives a plain number float32 wherever another type does not meet it."""
    pytest.importorskip("triton")
    triton = importlib.import_module("compiler.codegen.triton.target")
    graph = parse(
        """graph main {
          (Out=a: f64[3]) = fill_constant() {'dtype': 6, 'shape': [3], 'str_value': '0.1'}
          return a
        }"""
    )
    run_passes(graph, pipeline(Options(), triton.TritonTarget()), Context())
    (result,) = runtime.load(triton.TritonTarget().emit(freeze(graph)), runtime.CUDAPlace(0))({})
    np.testing.assert_array_equal(result, np.full(3, 0.1))


def test_positions_of_bicubic_resampling_are_float64() -> None:
    """Numbers of PaddlePaddle 1.8.5."""
    attrs = {"interp_method": "bicubic", "out_h": 1, "out_w": 7, "align_corners": False}
    images = np.array([0.0, 1.0, -2.0, 3.0]).reshape(1, 1, 1, 4)
    result = find("bicubic_interp")(attrs).evaluate({"X": images})["Out"].reshape(-1)
    want = [
        -0.0992164696151332,
        0.5252369509917579,
        1.0813592788613826,
        -0.8750004023313411,
        -1.852496056135856,
        1.1117902322245827,
        3.4960825362406984,
    ]
    np.testing.assert_allclose(result, want, rtol=1e-12)
