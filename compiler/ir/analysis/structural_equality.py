"""Structural equality of kernels up to tensor sizes, so that equal ones share their code.

Tensors that are processed as a flat sequence of elements need no shape, only a count. Besides full
tensors, a kernel may read scalars, such as a learning rate, in every program.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from compiler.ir.dims import Size, product
from compiler.ir.graph import Graph, Op, Var
from compiler.ir.opdef import Pointwise, Rowwise, broadcast, parameters
from compiler.ir.opdef.global_reductions import KEY, Whole


def elements(op: Op) -> Size | None:
    """Return the number of elements an op processes one by one; None if it is not such an op.

    Scalar operands are allowed. A scalar output must overwrite a scalar input, except for the
    global reductions of a `Whole`.
    """
    if not isinstance(op.defn, Pointwise | Whole) or isinstance(op.defn, Rowwise):
        return None
    if op.defn.has_effects or any(var.type.is_open for var in (*op.reads(), *op.writes())):
        return None
    if len(op.needs_data()) < len(op.reads()) or _has_unsupported_inputs(op):
        return None
    keys = op.inputs.get(KEY, [])
    if keys and not isinstance(op.defn, Whole):
        return None  # random numbers depend on the index of an element in its own tensor
    counts = {var.type.numel for var in op.reads() or op.writes() if var not in keys} - {1}
    count: Size = next(iter(counts), 1)
    return (
        count
        if len(counts) < 2 and _is_aligned(op, count) and _has_full_outputs(op, count)
        else None
    )


def _has_unsupported_inputs(op: Op) -> bool:
    """Return whether a `Whole` has an optional input that its kernels do not accept.

    Any other op needs at least one input.
    """
    if not isinstance(op.defn, Whole):
        return not op.inputs
    taken = {name for body in ("measure", "compute") for name, _ in parameters(type(op.defn), body)}
    return any(op.defn.slots[slot].optional and slot not in taken for slot in op.inputs)


def _is_aligned(op: Op, count: Size) -> bool:
    """Return whether operands align element by element, without broadcasting."""
    if not isinstance(op.defn, Pointwise):
        return True
    views = op.defn.views(op.defn.types_of(op.inputs))
    return product(broadcast(op.kind, list(views.values()))) == count


def _has_full_outputs(op: Op, count: Size) -> bool:
    """Return whether each output has `count` elements, or is an allowed scalar."""
    scalars = [slot for slot, vars in op.outputs.items() if vars[0].type.numel != count]
    return all(
        var.type.numel in (1, count)
        and (isinstance(op.defn, Whole) or slot not in scalars or bool(op.defn.slots[slot].inplace))
        for slot, vars in op.outputs.items()
        for var in vars
    )


def width(ops: Sequence[Op]) -> Size:
    """Return the number of elements that a kernel processes, scalars aside."""
    counts = [count for op in ops if (count := elements(op)) is not None]
    return next((count for count in counts if count != 1), 1)


def is_needed_after(g: Graph, var: Var, made: Sequence[Var], ops: Sequence[Op]) -> bool:
    """Return whether a var is written by ops and must be in memory after them."""
    if var not in made:
        return False
    chained = var.overwrites is not None or g.overwriter(var) is not None
    if var.role != "temp" or chained or var in g.results:
        return True
    return any(reader not in ops and var in reader.needs_data() for reader in g.readers(var))


def structure(g: Graph, ops: Sequence[Op]) -> Hashable:
    """Return a key that is equal for kernels with equal kinds, attributes, dtypes and data flow."""
    index = {var: number for number, var in enumerate(operands(ops))}
    rows: list[Hashable] = []
    for op in ops:
        outputs = op.writes()
        operand_keys = [
            (
                slot,
                index[var],
                var.type.dtype,
                _overwritten_index(index, var),
                is_needed_after(g, var, outputs, ops),
            )
            for slot, var in _slot_operands(op)
        ]
        sizing = op.defn.sizing if isinstance(op.defn, Whole) else ()
        items = sorted(pair for pair in op.defn.attributes.items() if pair[0] not in sizing)
        attributes = repr(items)
        rows.append((op.kind, attributes, tuple(operand_keys), op.target))
    return tuple(rows)


def operands(ops: Sequence[Op]) -> list[Var]:
    """List the vars of a kernel, in an order that is the same for structurally equal kernels."""
    return list(dict.fromkeys(var for op in ops for _, var in _slot_operands(op)))


def spread(ops: Sequence[Op]) -> tuple[bool, ...]:
    """Return which operands are full tensors (not scalars); empty if all are scalars."""
    keys = [var for op in ops for var in op.inputs.get(KEY, ())]
    is_full = tuple(var.type.numel != 1 and var not in keys for var in operands(ops))
    return is_full if any(is_full) else ()


def _slot_operands(op: Op) -> list[tuple[str, Var]]:
    slots = (*sorted(op.inputs.items()), *sorted(op.outputs.items()))
    return [(slot, var) for slot, vars in slots for var in vars]


def _overwritten_index(index: dict[Var, int], var: Var) -> int | None:
    """Return the operand number of the var that `var` overwrites, or None."""
    return None if var.overwrites is None else index.get(var.overwrites)
