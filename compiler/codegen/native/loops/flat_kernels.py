"""Kernels over the elements of arrays of one size, whose number is an argument.

A program updates parameters of many sizes, and fills as many arrays. The code of such a kernel does
not depend on their shapes, so that one is compiled for all sizes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import cast

from compiler.codegen.kernel.analysis import needed
from compiler.codegen.kernel.body import KernelBody, Source, Store
from compiler.codegen.module_writer import NumpyOperand
from compiler.codegen.trace import ELEMENTWISE, Expr, Term, all_parts
from compiler.ir.dims import Dim
from compiler.ir.types import TensorType

ELEMENTS = Dim.named("elements")
"""The number of elements in the kernel of any number."""

_BY_ELEMENT = ELEMENTWISE | {"where", "astype", "full"}


def of_any_size(kernel: KernelBody) -> KernelBody | None:
    """The kernel with `ELEMENTS` as its size; None if its code depends on a size or a shape.

    Kernels of a single element stay scalar, and those of an open size as they are.
    """
    if len(kernel.shape) != 1 or not isinstance(kernel.shape[0], int) or kernel.shape[0] < 2:
        return None
    if kernel.loops or kernel.programs or not all(_is_whole(kernel, e) for e in kernel.stores):
        return None
    parts = all_parts(needed(kernel))
    if not all(_is_by_element(kernel, part) for part in parts):
        return None
    result = KernelBody(kernel.name, (ELEMENTS,))
    terms: dict[Expr, Term] = {}
    for part in parts:
        terms[part] = _rebuilt(kernel, part, result, terms)
    result.stores = [
        Store(_flat(e.operand), result.shape, result.indices, _term(e.value, terms), None, False)
        for e in kernel.stores
    ]
    return result


def _is_whole(kernel: KernelBody, store: Store) -> bool:
    """True for a store of each element of an array without gaps, in order."""
    is_plain = store.where is None and not store.atomic and not store.operand.region.is_strided
    return is_plain and store.shape == kernel.shape and store.indices[0] is kernel.indices[0]


def _is_by_element(kernel: KernelBody, part: Expr) -> bool:
    """True for an expression that reads no index, but to load its own element, or the only one."""
    if part.fn == "load":
        source = cast(Source, part.extra)
        if len(part.args) != 1 or source.operand.region.is_strided:
            return False
        is_own = part.args[0] is kernel.indices[0] and source.shape == kernel.shape
        return is_own or (isinstance(part.args[0], int) and source.shape == (1,))
    if part.fn == "index":
        return True
    return part.fn in _BY_ELEMENT and not any(arg is kernel.indices[0] for arg in part.args)


def _rebuilt(
    kernel: KernelBody, part: Expr, result: KernelBody, terms: Mapping[Expr, Term]
) -> Term:
    if part.fn == "index":
        return result.indices[0]
    extra = part.extra
    if isinstance(extra, Source) and extra.shape == kernel.shape:
        extra = Source(_flat(extra.operand), result.shape)
    args = tuple(_term(arg, terms) for arg in part.args)
    return result.node(part.fn, args, part.dtype, extra)


def _term(term: Term, terms: Mapping[Expr, Term]) -> Term:
    return terms[term] if isinstance(term, Expr) else term


def _flat(operand: NumpyOperand) -> NumpyOperand:
    return replace(operand, type=TensorType(operand.type.dtype, (ELEMENTS,)))
