"""Ops that need sums over whole tensors first: a launch for all sums, and one for all updates.

A program of the first sums up blocks of a part and leaves one number for each sum, at most as many
as a program of the second reads at once. Every sum is made in the same order in every run.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

from compiler.codegen.bind_and_run import Frame, NumpyOperand
from compiler.codegen.trace import Expr
from compiler.codegen.triton.emit import Written
from compiler.codegen.triton.expressions import held_in
from compiler.codegen.triton.kernel_ir import KernelBody, Ref
from compiler.codegen.triton.multi_tensor.blocks import Block
from compiler.codegen.triton.multi_tensor.kernels import Argument, Launch, blockwise, told
from compiler.codegen.triton.multi_tensor.operand_tables import Columns
from compiler.codegen.triton.numpy_names import POINTERS, TYPES
from compiler.codegen.triton.tiling.schedules import LANES
from compiler.ir.opdef import call, listed
from compiler.ir.region import WHOLE
from compiler.ir.types import DType, TensorType
from compiler.plan import Place, PlannedOp, Step, Value

_TURNS = {
    "turn": "tl.arange(0, LANES)",
    "own": "turn < tl.minimum(tl.cdiv(size, LANES), LANES)",
}
"""Where a part's sums stand, and how many there are."""


def emit_whole(
    frame: Frame, step: Step, name: str, comment: Sequence[str], launch: Callable[[Written], None]
) -> None:
    """Both launches of a step whose parts are one such op each."""
    columns = Columns(frame, step.parts)
    said = told(columns, comment)
    op = columns.model[0]
    lanes = KernelBody(name, (columns.width,))
    terms = cast("dict[str, Expr]", _said(op, "measure", columns, lanes, {}))
    held = max((held_in(term.dtype) for term in terms.values()), key=_wide, default=DType.FP32)
    arguments, totals = dict[str, Argument](), dict[str, str]()
    if terms:
        count = len(columns.parts) * len(terms) * LANES
        sums = frame.scratch((count,), held, on_device=True)
        arguments["sums"] = Argument(POINTERS[held], sums.name)
        totals = _TURNS | {term: _added_up(number, len(terms)) for number, term in enumerate(terms)}
        first = Launch(frame, columns, frame.names.make(f"{name}_sums"), said, dict(arguments))
        launch(_summed(first, lanes, terms, held))
    second = Launch(frame, columns, frame.names.make(name), said, arguments, totals)
    launch(second.update(*_updates(op, columns, name, list(terms), held)))


def _wide(dtype: DType) -> int:
    return dtype.itemsize


def _added_up(number: int, count: int) -> str:
    """The sum of what the programs of a part have left."""
    return f"tl.sum(tl.load(sums + (row * {count} + {number}) * LANES + turn, own, 0))"


def _summed(launch: Launch, lanes: KernelBody, terms: Mapping[str, Expr], held: DType) -> Written:
    """The kernel of the first launch."""
    block = Block(lanes, f"{launch.name}_block", (), known=launch.columns.numbers)
    function = block.returned(list(terms.values()), [held] * len(terms))
    parts = [f"{term}_part" for term in terms]
    loop = blockwise(block.call, ", ".join(parts))
    loop += [f"    {part} = tl.where(lane < size, {part}, 0)" for part in parts]
    loop += [f"{term} += {part}" for term, part in zip(terms, parts, strict=True)]
    lines = [
        "programs = tl.minimum(tl.cdiv(size, LANES), LANES)",
        *(f"{term} = tl.zeros((LANES,), {TYPES[held]})" for term in terms),
        "for start in range(block.to(INDEX) * LANES, size, programs * LANES):",
        *(f"    {line}" for line in loop),
    ]
    for number, term in enumerate(terms):
        place = f"(row * {len(terms)} + {number}) * LANES + block"
        lines.append(f"tl.store(sums + {place}, tl.sum({term}))")
    body = [*launch.opening([block]), *(f"    {line}" for line in lines)]
    return launch.written([*function, *launch.kernel(body)], [block], most=LANES)


def _updates(
    op: PlannedOp, columns: Columns, name: str, terms: Sequence[str], held: DType
) -> tuple[KernelBody | None, KernelBody | None]:
    """What the second launch does for each element, and to single numbers."""
    lanes, lone = KernelBody(name, (columns.width,)), KernelBody(name, (1,))
    type = TensorType(held, (1,))
    totals = {
        term: NumpyOperand(columns.frame, term, type, True, (Place.INNER, term, WHOLE))
        for term in terms
    }
    given = {term: Ref(lanes, operand, (1,)).at(0) for term, operand in totals.items()}
    results = op.defn.named(_said(op, "compute", columns, lanes, given))
    for slot, values in op.outputs.items():
        for value, result in zip(values, listed(results[slot]), strict=True):
            column = columns.column(value)
            if column.is_number:
                lone.store(Ref(lone, column.operand, (1,)), (0,), result)
            else:
                lanes.store(Ref(lanes, column.operand, lanes.shape), lanes.indices, result)
    return lanes if lanes.stores else None, lone if lone.stores else None


def _said(
    op: PlannedOp, body: str, columns: Columns, lanes: KernelBody, given: Mapping[str, Expr]
) -> Any:
    """What a body of the op makes of the elements in its slots."""
    slots = {
        slot: op.defn.slots[slot].hold([_element(columns, lanes, each) for each in values])
        for slot, values in op.inputs.items()
    }
    return call(op.defn, body, {**slots, **given}, lanes)


def _element(columns: Columns, lanes: KernelBody, value: Value) -> Expr:
    """An element, or a number; narrow floats are widened, as what is summed."""
    column = columns.column(value)
    if column.is_number:
        found = Ref(lanes, column.operand, (1,)).at(0)
    else:
        found = Ref(lanes, column.operand, lanes.shape).at(*lanes.indices)
    return found.astype(held_in(found.dtype))
