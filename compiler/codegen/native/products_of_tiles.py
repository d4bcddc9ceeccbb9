"""Products of ops as register-tiled products: matches a product kernel's factors to strides."""

from __future__ import annotations

from typing import cast

from compiler.codegen.kernel.body import MatmulBody, Source
from compiler.codegen.module_writer import NumpyOperand
from compiler.codegen.native.affine import strides
from compiler.codegen.native.loops import NotLowered
from compiler.codegen.native.module_writer import NativeModuleWriter
from compiler.codegen.native.narrow_factors import product_factors
from compiler.codegen.native.products.matmul import matmul
from compiler.codegen.native.register_epilogues import RegisterEpilogue, products_of
from compiler.codegen.native.step_draft import StepDraft
from compiler.codegen.trace import Expr
from compiler.ir.dims import Size
from compiler.ir.types import HALVES, DType


def product_draft(writer: NativeModuleWriter, tiles: MatmulBody) -> StepDraft:
    """The kernels of a product.

    Raises NotLowered unless its factors are loads that move with rows, columns and K alone.
    """
    dots = products_of(tiles, "dot")
    if len(dots) != 1 or tiles.parts > 1:
        raise NotLowered("its kernel has several products")
    if tiles.ends:
        raise NotLowered("its products have sums of different lengths")
    (dot,) = dots
    a, b = (cast(Expr, factor) for factor in dot.args)
    epilogue = RegisterEpilogue(tiles, dot, writer.machine)
    *stack, rows, columns = tiles.shape
    left, right = tiles.iterations
    *batch, i, j = tiles.indices
    a_strides, a_array = _factor(a, [*batch, i, left])
    b_strides, b_array = _factor(b, [*batch, right, j])
    factors = product_factors(writer.machine, a_array, b_array, a_strides[-1] == 1)
    steps = writer.made(
        matmul, writer.machine, factors.element, tuple(stack), rows, tiles.loops[0], columns,
        a=tuple(a_strides), b=tuple(b_strides), epilogue=epilogue.epilogue,
        constant=writer.is_constant(b_array), few_rows=writer.varies_in_loop(rows),
    )  # fmt: skip
    return StepDraft(steps, factors.element, epilogue.arrays, factors, ("a",), ("b",))


def _before_widening(factor: Expr) -> Expr:
    """What a factor is widened from, if that is in half precision; else the factor."""
    if factor.fn == "astype" and factor.dtype is DType.FP32:
        (half,) = factor.parts()
        return half if half.dtype in HALVES else factor
    return factor


def _factor(factor: Expr, symbols: list[Expr]) -> tuple[list[Size], NumpyOperand]:
    """The strides of a factor that is a load, and its array."""
    factor = _before_widening(factor)
    layout = strides(factor, symbols) if factor.fn == "load" else None
    if layout is None or layout[1] != 0:
        raise NotLowered("its factors are computed or gathered")
    return layout[0], cast(Source, factor.extra).operand
