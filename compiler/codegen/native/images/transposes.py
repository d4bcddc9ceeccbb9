"""Transposition of arrays of any rank: blocks in registers, or runs that stay contiguous."""

from __future__ import annotations

from collections.abc import Sequence

from compiler.codegen.native.images.blocks import block_kernel
from compiler.codegen.native.images.runs import run_kernel
from compiler.codegen.native.images.transposition import Transposition
from compiler.codegen.native.llvm_ir import Type
from compiler.codegen.native.machine import Machine
from compiler.codegen.native.products.contraction import Call, Steps
from compiler.ir.dims import Dim, Size, product


def transpose(
    machine: Machine, element: Type, shape: Sequence[Size], order: Sequence[int],
    source: str = "X", target: str = "Out",
) -> Steps:  # fmt: skip
    """Return the kernel of Out = X transposed: axis i of Out is axis order[i] of X.

    `element` is an integer type of 1, 2, 4 or 8 bytes, whatever the elements mean. X has the shape
    and is contiguous; Out is another array.
    """
    sizes, axes = collapsed(shape, order)
    if not sizes:
        sizes, axes = [1], [0]
    make = run_kernel if axes[-1] == len(axes) - 1 else block_kernel
    kernel = make(Transposition(machine, element, tuple(sizes), tuple(axes)))
    opened = dict.fromkeys(size for size in sizes if isinstance(size, Dim))
    return Steps((Call(kernel, (source, target, *opened)),))


def collapsed(shape: Sequence[Size], order: Sequence[int]) -> tuple[list[Size], list[int]]:
    """Drop axes of size 1 and merge axes that stay adjacent; returns sizes of X and the order."""
    groups: list[list[int]] = []
    nontrivial = [axis for axis in range(len(shape)) if shape[axis] != 1]
    for axis in (axis for axis in order if shape[axis] != 1):
        if groups and nontrivial.index(groups[-1][-1]) + 1 == nontrivial.index(axis):
            groups[-1].append(axis)
        else:
            groups.append([axis])
    ordered = sorted(groups)
    sizes = [product(shape[axis] for axis in group) for group in ordered]
    return sizes, [ordered.index(group) for group in groups]
