"""Kernels with several products, or products of shifted rows: each product, then the rest.

The sums of a recurrent step, for example, are four products of one state with columns of one
weight. They become one product into scratch; what is computed from the sums reads it there. A left
factor that is gathered, such as the previous states of sequences, is copied first.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from compiler.codegen.kernel.body import KernelBody, MatmulBody, Ref, Source, size_of
from compiler.codegen.kernel.split_reductions import substitute
from compiler.codegen.module_writer import NumpyOperand
from compiler.codegen.native.affine import strides
from compiler.codegen.native.llvm_ir import Type
from compiler.codegen.native.loops import NotLowered
from compiler.codegen.native.module_writer import NativeModuleWriter
from compiler.codegen.native.narrow_factors import Factors, has_gaps, product_type
from compiler.codegen.native.products.axes import contiguous
from compiler.codegen.native.products.matmul import matmul
from compiler.codegen.native.register_epilogues import products_of
from compiler.codegen.trace import Expr, Term, all_parts
from compiler.ir.dims import Size
from compiler.ir.types import Shape
from compiler.support.dataclass import dataclass


@dataclass(frozen=True)
class _Copy:
    """A copy of an array that a load gathers; its axes are in the order of the load's indices."""

    load: Expr
    axes: Sequence[Expr]
    shape: Shape

    def write(self, writer: NativeModuleWriter, name: str) -> NumpyOperand:
        """Append the kernel that copies."""
        kernel = KernelBody(f"{name}_gathered", self.shape)
        copy = writer.scratch(self.shape, self.load.dtype)
        terms: dict[Expr, Term] = dict(zip(self.axes, kernel.indices, strict=True))
        value = substitute(kernel, self.load, terms)
        kernel.store(Ref(kernel, copy, self.shape), kernel.indices, value)
        writer.loops(kernel)
        return copy


@dataclass(frozen=True)
class _Factor:
    """An array, its strides over rows or columns and K, and the offset of its first element.

    `rows` are those that exist, if fewer than the product has: the others count as zero. With a
    `copy`, strides are those of the copy of the array.
    """

    array: NumpyOperand
    strides: list[Size]
    offset: Size
    rows: Size | None = None
    copy: _Copy | None = None

    @property
    def has_gaps(self) -> bool:
        """True if the factor cannot be widened."""
        return self.copy is None and has_gaps(self.array)


@dataclass(frozen=True)
class _Product:
    """Products of one left factor with neighbouring columns of one right factor.

    They compute in the type `element`, to which factors are widened if there is a reason `why`.
    """

    left: _Factor
    right: _Factor
    dots: list[Expr]
    element: Type
    why: str

    def write(
        self, writer: NativeModuleWriter, tiles: MatmulBody, left: NumpyOperand, sums: NumpyOperand
    ) -> None:
        """Append the product of an array, the left factor or its copy; sums go to another one."""
        *stack, every, columns = tiles.shape
        rows = every if self.left.rows is None else self.left.rows
        factors = Factors(left, self.right.array, self.element, self.why).write(writer)
        a, b = (
            writer.shifted(array, factor.offset)
            for array, factor in zip(factors, (self.left, self.right), strict=True)
        )
        steps = matmul(
            writer.machine, self.element, stack, rows, tiles.loops[0], columns * len(self.dots),
            a=self.left.strides, b=self.right.strides, constant=True,
            few_rows=writer.varies_in_loop(rows),
        )  # fmt: skip
        writer.steps(steps, {"a": a, "b": b, "out": sums}, self.element)


@dataclass(frozen=True)
class SeparateProducts:
    """The products of a kernel, before any of it is written."""

    tiles: MatmulBody
    products: Sequence[_Product]

    def write(self, writer: NativeModuleWriter) -> KernelBody:
        """Append the products to the step; returns the kernel of the rest."""
        tiles = self.tiles
        *stack, rows, columns = tiles.shape
        rest = KernelBody(tiles.name, tiles.shape)
        terms: dict[Expr, Term] = dict(zip(tiles.indices, rest.indices, strict=True))
        *batch, i, j = rest.indices
        for product, left in zip(self.products, self._left_arrays(writer), strict=True):
            shape = (*stack, rows, columns * len(product.dots))
            sums = writer.scratch(shape, product.dots[0].dtype)
            product.write(writer, tiles, left, sums)
            for number, dot in enumerate(product.dots):
                column = j + rest.size(columns * number) if number else j
                live = None if product.left.rows is None else i < rest.size(product.left.rows)
                read = Ref(rest, sums, shape)
                terms[dot] = read.at(*batch, i, column, where=live, other=0)
        _store_rest(tiles, rest, terms)
        return rest

    def _left_arrays(self, writer: NativeModuleWriter) -> list[NumpyOperand]:
        """The left factors; those that are gathered are copied first."""
        factors = [product.left for product in self.products]
        return [
            factor.copy.write(writer, self.tiles.name) if factor.copy else factor.array
            for factor in factors
        ]


def _store_rest(tiles: MatmulBody, rest: KernelBody, terms: dict[Expr, Term]) -> None:
    """Add the stores of a kernel of products to the kernel of the rest, with other terms."""
    for store in tiles.stores:
        where = None if store.where is None else substitute(rest, store.where, terms)
        at = [substitute(rest, index, terms) for index in store.indices]
        out, value = Ref(rest, store.operand, store.shape), substitute(rest, store.value, terms)
        (rest.add if store.atomic else rest.store)(out, at, value, where)


def separate_products(writer: NativeModuleWriter, tiles: MatmulBody) -> SeparateProducts:
    """The products of a kernel one by one.

    Raises NotLowered unless right factors are loads that move with columns and K alone, and left
    ones move with rows and K, or are gathered by them.
    """
    if tiles.parts > 1 or tiles.ends:
        raise NotLowered("its products are split, or have sums of different lengths")
    products = [_product(writer, tiles, dot) for dot in products_of(tiles, "dot")]
    return SeparateProducts(tiles, _merged(products, tiles.shape[-1]))


def _product(writer: NativeModuleWriter, tiles: MatmulBody, dot: Expr) -> _Product:
    a, b = (cast(Expr, factor) for factor in dot.args)
    if a.fn != "load" or b.fn != "load":
        raise NotLowered("its factors are computed")
    (*batch, i, j), (left, right) = tiles.indices, tiles.iterations
    second = _factor(b, [*batch, right, j])
    if second is None:
        raise NotLowered("its right factor is gathered")
    first = _factor(a, [*batch, i, left]) or _gathered(tiles, a, [*batch, i, left])
    if first.rows is not None and len(tiles.shape) > 2:
        raise NotLowered("some rows of its stacked products do not exist")
    near = first.strides[-1] == 1
    element, why = product_type(writer.machine, a.dtype, second.array.type.dtype, near)
    if why and (first.has_gaps or second.has_gaps):
        raise NotLowered("a factor in half precision has gaps")
    return _Product(first, second, [dot], element, why)


def _factor(factor: Expr, symbols: Sequence[Expr]) -> _Factor | None:
    """A factor that is a load; None if it is gathered."""
    source = cast(Source, factor.extra)
    plain, rows = factor, None
    if len(factor.args) == len(source.shape) + 2:
        rows = _existing_rows(factor.args[-2], symbols[-2])
        if rows is None or factor.args[-1] != 0:
            raise NotLowered("its factors are loaded under a condition")
        kernel = factor.tracer
        assert isinstance(kernel, KernelBody)
        plain = kernel.node("load", factor.args[:-2], factor.dtype, factor.extra)
    layout = strides(plain, symbols)
    return None if layout is None else _Factor(source.operand, layout[0], layout[1], rows)


def _gathered(tiles: MatmulBody, load: Expr, symbols: Sequence[Expr]) -> _Factor:
    """A copy of a gathered factor.

    Raises NotLowered if an index moves with two axes, since the copy is then larger than the array.
    """
    axes = _axes(load, symbols)
    sizes = dict(zip(symbols, (*tiles.shape[:-1], tiles.loops[0]), strict=True))
    shape = tuple(sizes[axis] for axis in axes)
    steps = dict(zip(axes, contiguous(shape), strict=True))
    array = cast(Source, load.extra).operand
    strides = [steps.get(symbol, 0) for symbol in symbols]
    return _Factor(array, strides, 0, copy=_Copy(load, axes, shape))


def _axes(load: Expr, symbols: Sequence[Expr]) -> list[Expr]:
    """The symbol that each index of a load moves with, in order; NotLowered for several."""
    known_symbols = dict.fromkeys(symbols)
    used: dict[Expr, None] = {}
    for index in load.args:
        parts = all_parts([index]) if isinstance(index, Expr) else []
        moved = [symbol for symbol in parts if symbol in known_symbols]
        if len(moved) > 1 or (moved and moved[0] in used):
            raise NotLowered("its left factor has windows of an array")
        used |= dict.fromkeys(moved)
    return [*used]


def _existing_rows(condition: Term, row: Expr) -> Size | None:
    """The rows for which a condition `row < size` holds; None for other conditions."""
    if isinstance(condition, Expr) and condition.fn == "less" and condition.args[0] is row:
        return size_of(condition.args[1])
    return None


def _merged(products: Sequence[_Product], columns: Size) -> list[_Product]:
    """Join products whose right factors are neighbouring columns of one array."""
    result: list[_Product] = []
    for product in products:
        last = result[-1] if result else None
        if last is not None and _continues(last, product, columns):
            last.dots.extend(product.dots)
        else:
            result.append(product)
    return result


def _continues(last: _Product, each: _Product, columns: Size) -> bool:
    same = last.dots[0].args[0] is each.dots[0].args[0] and last.right.array == each.right.array
    following = last.right.offset + columns * len(last.dots)
    moved = each.right.strides == last.right.strides and each.right.strides[-1] == 1
    return same and moved and each.right.offset == following
