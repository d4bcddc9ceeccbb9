"""Signatures of ops: what recording an op infers, cached by type, operands and attributes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import chain, count
from typing import TypeAlias

from compiler.errors import CompileError
from compiler.ir.autodiff.grad_ops import gradient_ops
from compiler.ir.opdef import find
from compiler.ir.program import EMPTY, GRAD, OpDesc
from compiler.ir.types import DType
from compiler.support.dataclass import dataclass
from compiler.support.tracebacks import entry_point
from fluid.framework import Program
from fluid.recording.annotations import Attributes
from fluid.recording.variable import Variable

__all__ = ["Output", "Signature", "infer"]

Slots: TypeAlias = Sequence[tuple[str, int]]
"""Names of slots and the numbers of variables in them."""

_families: dict[str, int] = {}


@dataclass(frozen=True)
class Output:
    """The type of an operand: of an output, the inferred one."""

    dims: tuple[int, ...]
    element: DType


@dataclass(frozen=True, eq=False)
class Signature:
    """An op without its variables.

    `passing` are the inputs of floating point that get a gradient, `saved_inputs` and
    `saved_outputs` those whose values its gradient ops read: indices over all slots; `sparse` are
    those of `passing` with a sparse gradient. `writes_rows`: its outputs are sparse. `is_dynamic`:
    a size depends on data.
    Signatures of a `family` differ in sizes only.
    """

    type: str
    attrs: Mapping[str, object]
    inputs: Slots
    outputs: Slots
    types: Sequence[Output]
    input_types: Sequence[Output]
    passing: frozenset[int]
    sparse: frozenset[int]
    saved_inputs: frozenset[int]
    saved_outputs: frozenset[int]
    writes_rows: bool
    is_dynamic: bool
    family: int

    def slots(self, names: Sequence[str], slots: Slots) -> dict[str, list[str]]:
        """Divide names, those of all slots, among the slots."""
        divided, start = dict[str, list[str]](), 0
        for slot, size in slots:
            divided[slot] = list(names[start : start + size])
            start += size
        return divided


@entry_point
def infer(
    program: Program,
    op_type: str,
    inputs: Sequence[tuple[str, Sequence[Variable]]],
    outputs: Sequence[tuple[str, Sequence[Variable]]],
    attrs: Attributes | None,
) -> Signature:
    """Check an op and infer its outputs by appending it to `program`, an empty one.

    Raises what `Block.append_op` raises, with the user's line.
    """
    block = program.global_block()
    names: dict[int, str] = {}
    for _, variables in [*inputs, *outputs]:
        for var in variables:
            if id(var) not in names:
                names[id(var)] = name = _unused(var.name, names)
                shape = var.dims if var.dims is not None else None
                declared = block.create_var(
                    name=name, shape=shape, dtype=var.dtype, persistable=var.persistable
                )
                declared.lod_level = var.lod_level
    named_inputs = {slot: [names[id(v)] for v in variables] for slot, variables in inputs}
    named_outputs = {slot: [names[id(v)] for v in variables] for slot, variables in outputs}
    op = block.append_op(op_type, named_inputs, named_outputs, attrs)
    types = [block.vars[name] for slot, _ in outputs for name in named_outputs[slot]]
    read = [(slot, len(variables)) for slot, variables in inputs]
    written = [(slot, len(variables)) for slot, variables in outputs]
    passing, saved_inputs, saved_outputs = _gradient_reads(op, read, written)
    input_types = [Output(v.dims or (), v.element) for _, variables in inputs for v in variables]
    return Signature(
        op_type, op.attrs, read, written,
        [Output(var.dims or (), var.element) for var in types],
        input_types,
        frozenset(index for index in passing if input_types[index].element.is_float),
        _sparse_gradients(op, read),
        saved_inputs, saved_outputs,
        any(slot.companion == "rows" for slot in find(op.type).outputs().values()),
        any(-1 in (var.dims or ()) for var in types),
        _family(op, read, written, _ranks(block.vars.values())),
    )  # fmt: skip


def _ranks(variables: Iterable[Variable]) -> list[tuple[int, DType]]:
    return [(len(var.dims or ()), var.element) for var in variables]


def _family(op: OpDesc, inputs: Slots, outputs: Slots, ranks: Sequence[object]) -> int:
    """Return the number of the signatures that differ from an op's in sizes only."""
    attrs = {name: value for name, value in op.attrs.items() if name != "op_callstack"}
    key = repr((op.type, inputs, outputs, ranks, sorted(attrs.items())))
    return _families.setdefault(key, len(_families))


def _unused(name: str, names: Mapping[int, str]) -> str:
    taken = set(names.values())
    candidates = chain([name], (f"{name}@{number}" for number in count(1)))
    return next(each for each in candidates if each not in taken)


def _gradient_reads(
    op: OpDesc, inputs: Slots, outputs: Slots
) -> tuple[frozenset[int], frozenset[int], frozenset[int]]:
    """The inputs that get a gradient, and the operands whose values gradient ops read."""
    ins, outs = _numbered("in", inputs), _numbered("out", outputs)
    renamed = OpDesc(op.type, _slots(inputs, ins), _slots(outputs, outs), op.attrs)
    try:
        ops = gradient_ops(renamed, lambda name: name + GRAD)
    except CompileError:
        ops = []
    written = {name for gradient_op in ops for name in gradient_op.writes()}
    read: set[str] = set()
    for gradient_op in ops:
        slots = find(gradient_op.type).slots
        for slot, names in gradient_op.inputs.items():
            if slot not in slots or not slots[slot].shape_only:
                read.update(names)
    return (
        frozenset(i for i, name in enumerate(ins) if name + GRAD in written),
        frozenset(i for i, name in enumerate(ins) if name in read),
        frozenset(i for i, name in enumerate(outs) if name in read),
    )


def _sparse_gradients(op: OpDesc, inputs: Slots) -> frozenset[int]:
    """The inputs whose gradient is sparse: tables of lookups, and of losses over many classes."""
    tables = find(op.type).sparse_grads if op.attrs.get("is_sparse") else ()
    slots = [slot for slot, size in inputs for _ in range(size)]
    return frozenset(index for index, slot in enumerate(slots) if slot in tables)


def _numbered(prefix: str, slots: Slots) -> list[str]:
    return [f"{prefix}{number}" for number in range(sum(size for _, size in slots))]


def _slots(slots: Slots, names: Sequence[str]) -> dict[str, list[str]]:
    divided, start = dict[str, list[str]](), 0
    for slot, size in slots:
        divided[slot] = list(names[start : start + size]) or []
        start += size
    return {slot: listed for slot, listed in divided.items() if listed != [EMPTY]}
