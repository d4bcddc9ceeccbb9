"""Contractions whose right operand is packed into panels first."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from compiler.codegen.native.machine import Machine
from compiler.codegen.native.products.axes import Axis, merged
from compiler.codegen.native.products.contraction import Contraction, Steps
from compiler.codegen.native.products.nest import contraction_kernel
from compiler.codegen.native.products.packing import pack_call, packed_size
from compiler.codegen.native.products.tiles import Tiling, choose_tiling, extent
from compiler.ir.dims import Size, product


def packed_steps(
    spec: Contraction, machine: Machine, constant: bool, *, tiling: Tiling | None = None,
    names: tuple[str, str] = ("a", "b"), scratch: str = "packed",
) -> Steps:  # fmt: skip
    """Kernels that pack the right operand and contract it with the left one.

    `names` are the operands that the caller gives for "a" and "b", `scratch` is what the packed one
    is called. `constant` says that b never changes: it is packed by `prepare`.
    """
    sums, run = _steps(spec)
    depth = product(axis.count for axis in sums) + (spec.dot.header if spec.dot else 0)
    size = packed_size(machine, spec, depth)
    batch, count = _packed_batch(spec.batch, size)
    inner = replace(_of_panels(spec, batch), sums=sums, tail=run - run // spec.pack * spec.pack)
    tiling = tiling or choose_tiling(machine, spec.element, extent(inner), True)
    moving = [axis for axis in batch if "packed" in axis.strides]
    pack = pack_call(replace(spec, batch=moving), machine, tiling, (names[1], scratch), depth, run)
    call = contraction_kernel(inner, machine, tiling)
    call = replace(call, arguments=(names[0], scratch, *call.arguments[2:]))
    scratches = {scratch: product([size, count])}
    if constant:
        return Steps((call,), (pack,), scratches)
    return Steps((pack, call), (), scratches)


def _packed_batch(batch: Sequence[Axis], size: Size) -> tuple[list[Axis], Size]:
    """The batch axes with strides of "packed" where b moves, and how many packed operands exist."""
    axes: list[Axis] = []
    count: Size = 1
    for axis in reversed(batch):
        if axis.stride("b") != 0:
            axis = Axis(axis.count, {**axis.strides, "packed": product([size, count])})
            count = product([count, axis.count])
        axes.append(axis)
    return axes[::-1], count


def _of_panels(spec: Contraction, batch: Sequence[Axis]) -> Contraction:
    """The contraction with b in panels."""
    axes = [
        Axis(axis.count, {**_without_right(axis).strides, "b": axis.stride("packed")})
        for axis in batch
    ]
    return replace(
        spec, batch=[_without(axis, "packed") for axis in axes], panels="b",
        columns=_without_right(spec.columns),
        offsets={name: offset for name, offset in spec.offsets.items() if name != "b"},
    )  # fmt: skip


def _steps(spec: Contraction) -> tuple[Sequence[Axis], Size]:
    """The axes of the sum without b, the last one in words, and the elements of that one."""
    *outer, run = _sums(spec)
    words = (run.count + (spec.pack - 1)) // spec.pack
    return (*outer, Axis(words, {"a": product([run.stride("a"), spec.pack])})), run.count


def _sums(spec: Contraction) -> Sequence[Axis]:
    """The axes of the sum without b; a divided one stays by itself."""
    axes = [_without_right(axis) for axis in spec.sums]
    if spec.part_of == 0 or len(axes) == 1:
        return merged(axes) if spec.part_of == 0 else axes
    return (axes[0], *merged(axes[1:]))


def _without_right(axis: Axis) -> Axis:
    return _without(axis, "b")


def _without(axis: Axis, operand: str) -> Axis:
    return Axis(
        axis.count, {name: stride for name, stride in axis.strides.items() if name != operand}
    )
