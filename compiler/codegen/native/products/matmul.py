"""Products of matrices: out[batch…, m, n] = Σ over k of a[batch…, m, k] * b[batch…, k, n]."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from compiler.codegen.native.llvm_ir import Type
from compiler.codegen.native.machine import Machine
from compiler.codegen.native.products.axes import Axis, contiguous, merged
from compiler.codegen.native.products.contraction import Contraction, Steps
from compiler.codegen.native.products.dots import dot_of
from compiler.codegen.native.products.epilogue import Epilogue
from compiler.codegen.native.products.nest import contraction_kernel
from compiler.codegen.native.products.one_column import is_one_column, one_column_steps
from compiler.codegen.native.products.packed import packed_steps
from compiler.codegen.native.products.tiles import (
    FIRST_CACHE,
    Tiling,
    assumed,
    choose_tiling,
    extent,
    few_rows_tiling,
)
from compiler.ir.dims import Size, is_multiple, product
from compiler.support.thresholds import threshold

FEW_ROWS = threshold(
    "few_rows", 24, "rows", "a right operand in rows is packed for a product of more", small=3
)


def matmul(
    machine: Machine, element: Type, batch: Sequence[Size], m: Size, k: Size, n: Size, *,
    a: Sequence[Size] | None = None, b: Sequence[Size] | None = None,
    out: Sequence[Size] | None = None, epilogue: Epilogue | None = None,
    constant: bool = False, tiling: Tiling | None = None, few_rows: bool = False,
) -> Steps:  # fmt: skip
    """Kernels of a product of matrices.

    `a`, `b` and `out` are the strides of their axes (batch…, rows, columns) in elements, by default
    those of arrays without gaps; a transposed operand is one with its last strides exchanged, a
    broadcast one has stride 0. `constant` says that b never changes: it is packed by `prepare`.
    `few_rows` says that `m`, which is open, is small: tiles are chosen for that.
    Operands: "a", "b", "out", those of the epilogue; scratch: "packed" if b is packed.
    """
    epilogue = epilogue or Epilogue()
    strides: dict[str, Sequence[Size]] = {
        "a": a or contiguous([*batch, m, k]), "b": b or contiguous([*batch, k, n])
    }  # fmt: skip
    results = epilogue.strides(out or contiguous([*batch, m, n]))
    spec = _contraction(machine, element, batch, (m, k, n), strides, results, epilogue)
    if tiling is None and is_one_column(spec, machine):
        return one_column_steps(spec, machine)
    if tiling is None and few_rows:
        tiling = few_rows_tiling(machine, spec.sums[-1].count)
    if spec.dot is None and not constant and _reads_in_place(machine, spec):
        tiling = tiling or choose_tiling(machine, element, extent(spec), False)
        return Steps((contraction_kernel(spec, machine, tiling),))
    return packed_steps(spec, machine, constant, tiling=tiling)


def _reads_in_place(machine: Machine, spec: Contraction) -> bool:
    """Whether b is read where it lies: its columns are neighbours and packing would not pay."""
    if spec.columns.stride("b") != 1:
        return False
    lanes = machine.lanes(spec.element)
    columns, depth = spec.columns.count, product(axis.count for axis in spec.sums)
    if machine.registers == 32 and not (machine.has_masks or is_multiple(columns, lanes)):
        return False
    rows = product(axis.count for axis in spec.rows)
    small = assumed(columns) * assumed(depth) * spec.element.nbytes <= FIRST_CACHE.value
    return small or assumed(rows) <= FEW_ROWS.value


def _contraction(
    machine: Machine, element: Type, batch: Sequence[Size], sizes: tuple[Size, Size, Size],
    operands: Mapping[str, Sequence[Size]], results: Mapping[str, Sequence[Size]],
    epilogue: Epilogue,
) -> Contraction:  # fmt: skip
    """The contraction of a product; batch axes that b does not have are rows."""
    m, k, n = sizes
    every = {**operands, **results}
    axes = [_axis(count, every, place) for place, count in enumerate(batch)]
    place = len(batch)
    rows = Axis(
        m, {"a": operands["a"][-2]} | {name: strides[place] for name, strides in results.items()}
    )
    columns = Axis(
        n, {"b": operands["b"][-1]} | {name: strides[-1] for name, strides in results.items()}
    )
    shared = len(axes)
    while shared and axes[shared - 1].stride("b") == 0:
        shared -= 1
    dot = dot_of(machine, element)
    sums = dot.sums if dot else element
    types = {"a": element, "b": element} | epilogue.types(dot.result if dot else element)
    return Contraction(
        _label(epilogue, sizes), sums, axes[:shared], merged([*axes[shared:], rows]),
        (Axis(k, {"a": operands["a"][-1], "b": operands["b"][-2]}),), columns, types,
        start=epilogue.start, finish=epilogue.finish, outputs=epilogue.outputs,
        dot=dot,
    )  # fmt: skip


def _axis(count: Size, strides: Mapping[str, Sequence[Size]], place: int) -> Axis:
    return Axis(count, {name: axis_strides[place] for name, axis_strides in strides.items()})


def _label(epilogue: Epilogue, sizes: Sequence[Size]) -> str:
    sizes_text = "x".join(str(size) if isinstance(size, int) else "n" for size in sizes)
    return "_".join(filter(None, ["matmul", sizes_text, epilogue.label]))
