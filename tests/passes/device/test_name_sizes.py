"""Sizes that kernels set have names on CPUs too, so that what reads them has kernels."""

from __future__ import annotations

import numpy as np
import pytest

import runtime
from compiler.codegen.native.host import detected
from compiler.codegen.native.target import NativeTarget
from compiler.freeze import freeze
from compiler.ir.dims import UNKNOWN
from compiler.ir.text.printer import parse
from compiler.options import Options
from compiler.passes.base import Context
from compiler.passes.device.name_sizes import NameSizes
from compiler.passes.manager import run_passes
from compiler.passes.pipeline import pipeline

EXPANDED = """graph main {
  feed x: f32[4, 2]
  feed y: f32[M, 1]
  feed starts: i64[5]
  feed offsets: i64[5]
  (Out=rows: f32[?, 2], Out_lod=levels: i64[?]) = sequence_expand(X=x, Y=y, X_lod=starts, Y_lod=offsets)
  (Out=doubled: f32[?, 2]) = scale(X=rows) {'scale': 2.0}
  (Out=where: i64[?, 2]) = where_index(Condition=x)
  return doubled, where
}
"""


def test_sizes_that_kernels_set_have_names_everywhere() -> None:
    graph = parse(EXPANDED)
    NameSizes(everywhere=False).run(graph, Context())
    sizes = {var.name: var.type.shape[0] for op in graph.ops() for var in op.writes()}
    assert sizes["rows"] == sizes["doubled"] != UNKNOWN
    assert sizes["where"] == UNKNOWN


@pytest.mark.skipif(detected() is None, reason="no native code for this CPU")
@pytest.mark.parametrize("lengths", [(2, 1, 1, 0), (0, 0, 0, 0), (40, 0, 1, 3)])
def test_what_reads_them_has_kernels(lengths: tuple[int, ...]) -> None:
    graph, target = parse(EXPANDED), NativeTarget()
    run_passes(graph, pipeline(Options(), target), Context())
    module = target.emit(freeze(graph))
    assert any(name.startswith("scale") for name in module.kernels_ir)
    x, offsets = np.arange(8, dtype=np.float32).reshape(4, 2), np.cumsum([0, *lengths])
    feed = {
        "x": x,
        "y": np.ones((sum(lengths), 1), np.float32),
        "offsets": offsets,
        "starts": np.arange(5),
    }
    doubled, _ = runtime.load(module)(feed)
    np.testing.assert_array_equal(doubled, np.repeat(x, lengths, axis=0) * 2)
