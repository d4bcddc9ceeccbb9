"""Tiles of open numbers of rows, and what they prefetch."""

import re

import numpy as np
import pytest

from compiler.codegen.native.llvm_ir import F32, Function, Value
from compiler.codegen.native.machine import AVX512, NEON, Machine
from compiler.codegen.native.products.axes import EpilogueOperand
from compiler.codegen.native.products.epilogue import Epilogue
from compiler.codegen.native.products.matmul import matmul
from compiler.codegen.native.products.place import ResultAddresses
from compiler.codegen.native.products.tiles import MOST_ROWS, Extent, Tiling, choose_tiling
from compiler.ir.dims import Dim
from tests.codegen.native.support import run_steps
from tests.support.compiled_kernels import assembly, on_machines

N = Dim.named("N")


def _add(f: Function, values: list[Value], place: ResultAddresses) -> list[Value]:
    return [f.add(values[0], place.load("residual"))]


RESIDUAL = Epilogue("add", (EpilogueOperand("residual", F32),), _add)


@on_machines
@pytest.mark.parametrize("each", [7, 49, 96, 100, 128])
def test_rows_of_each_image_of_an_open_batch(machine: Machine, each: int) -> None:
    random = np.random.default_rng(0)
    steps = matmul(machine, F32, (), N * each, 40, 70, epilogue=RESIDUAL, constant=True)
    for count in (1, 3):
        a, b = random.random((count * each, 40), "f4"), random.random((40, 70), "f4")
        residual = random.random((count * each, 70), "f4")
        arrays = {"a": a, "b": b, "residual": residual, "out": np.zeros_like(residual)}
        got = run_steps(steps, machine, arrays, {"N": count})["out"]
        np.testing.assert_allclose(got, a @ b + residual, rtol=1e-5)


@pytest.mark.parametrize("vectors", MOST_ROWS[32])
def test_residuals_and_next_rows_are_prefetched_without_spills(vectors: int) -> None:
    high, columns = MOST_ROWS[32][vectors], vectors * 16
    tiling = Tiling(vectors, high, 1, 4, "panels", 1, True)
    steps = matmul(
        AVX512, F32, (), N * high, 64, columns, epilogue=RESIDUAL, constant=True, tiling=tiling
    )
    text = assembly(steps.calls[-1].kernel, AVX512)
    assert text.count("prefetcht0") >= vectors + 1
    assert not re.search(r"zmm\d.*\(%rsp", text)


def test_no_tiles_for_rows_that_cannot_be_left() -> None:
    """An open batch of 128 rows each is whole tiles of 8 rows, so that no others are compiled."""

    def length(rows: int) -> int:
        tiling = Tiling(2, 8, 1)
        steps = matmul(NEON, F32, (), N * rows, 64, 32, constant=True, tiling=tiling)
        return len(steps.calls[-1].kernel.text())

    assert length(128) < length(4) < length(1)


def test_tiles_of_one_image_fetch_a_whole_panel() -> None:
    """An open batch of 7 × 7 pixels has few tiles, which share the lines of the next panel."""
    extent = Extent(1, None, 1, 1024, 1024, 1024, 49 * 4096, 4096, 4096, 4, multiple=49)
    tiling = choose_tiling(AVX512, F32, extent, True)
    assert tiling.prefetch and tiling.block == -(-49 // tiling.high)
