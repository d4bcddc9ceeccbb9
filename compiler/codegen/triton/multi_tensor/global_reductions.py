"""Ops that need global reductions: a launch for all sums (two-phase), and one for all updates.

Each program of the first sums blocks of a part and stores one partial sum for each reduction; there
are at most as many programs as the second launch loads at once. The order of summation is fixed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

from compiler.codegen.kernel.analysis import accumulator_type
from compiler.codegen.kernel.body import KernelBody, Ref
from compiler.codegen.module_writer import ModuleWriter, NumpyOperand
from compiler.codegen.trace import Expr
from compiler.codegen.triton.kernel_source import KernelSource
from compiler.codegen.triton.multi_tensor.blocks import BlockBody
from compiler.codegen.triton.multi_tensor.kernels import Argument, Launch, blockwise, launch_comment
from compiler.codegen.triton.multi_tensor.operand_tables import OperandTable
from compiler.codegen.triton.numpy_names import POINTERS, TYPES
from compiler.codegen.triton.tiling.schedules import BLOCK_SIZE
from compiler.ir.opdef import call, listed
from compiler.ir.region import WHOLE
from compiler.ir.types import DType, TensorType
from compiler.plan import PlannedOp, PlannedValue, Step, StorageKind

_PARTIAL_SUMS = {
    "lane": "tl.arange(0, LANES)",
    "own": "lane < tl.minimum(tl.cdiv(size, LANES), LANES)",
}
"""The indices of a part's partial sums, and the mask of those that exist."""


def emit_global_reduction(
    writer: ModuleWriter,
    step: Step,
    name: str,
    comment: Sequence[str],
    launch: Callable[[KernelSource], None],
) -> None:
    """Emit both launches of a step of global reductions, one op per part."""
    table = OperandTable(writer, step.parts)
    comment_lines = launch_comment(table, comment)
    op = table.model[0]
    kernel = KernelBody(name, (table.width,))
    terms = cast("dict[str, Expr]", _trace_body(op, "measure", table, kernel, {}))
    dtype = max(
        (accumulator_type(term.dtype) for term in terms.values()), key=_wide, default=DType.FP32
    )
    arguments, totals = dict[str, Argument](), dict[str, str]()
    if terms:
        count = len(table.parts) * len(terms) * BLOCK_SIZE.value
        sums = writer.scratch((count,), dtype, on_device=True)
        arguments["sums"] = Argument(POINTERS[dtype], sums.name)
        totals = _PARTIAL_SUMS | {
            term: _total_text(number, len(terms)) for number, term in enumerate(terms)
        }
        first = Launch(
            writer, table, writer.names.make(f"{name}_sums"), comment_lines, dict(arguments)
        )
        launch(_sums_kernel(first, kernel, terms, dtype))
    second = Launch(writer, table, writer.names.make(name), comment_lines, arguments, totals)
    launch(second.update(*_updates(op, table, name, list(terms), dtype)))


def _wide(dtype: DType) -> int:
    return dtype.itemsize


def _total_text(number: int, count: int) -> str:
    """The total of a part's partial sums, as source text."""
    return f"tl.sum(tl.load(sums + (row * {count} + {number}) * LANES + lane, own, 0))"


def _sums_kernel(
    launch: Launch, kernel: KernelBody, terms: Mapping[str, Expr], held: DType
) -> KernelSource:
    """The kernel of the first launch, which computes partial sums."""
    block = BlockBody(kernel, f"{launch.name}_block", (), known=launch.table.numbers)
    function = block.return_function(list(terms.values()), [held] * len(terms))
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
    return launch.kernel_source(
        [*function, *launch.kernel_text(body)], [block], most=BLOCK_SIZE.value
    )


def _updates(
    op: PlannedOp, table: OperandTable, name: str, terms: Sequence[str], held: DType
) -> tuple[KernelBody | None, KernelBody | None]:
    """The updates of the second launch: of tensor elements, and of scalars."""
    kernel, scalars = KernelBody(name, (table.width,)), KernelBody(name, (1,))
    type = TensorType(held, (1,))
    totals = {
        term: NumpyOperand(table.writer, term, type, True, (StorageKind.INNER, term, WHOLE))
        for term in terms
    }
    totals = {term: Ref(kernel, operand, (1,)).at(0) for term, operand in totals.items()}
    results = op.defn.named(_trace_body(op, "compute", table, kernel, totals))
    for slot, values in op.outputs.items():
        for value, result in zip(values, listed(results[slot]), strict=True):
            column = table.column(value)
            if column.is_number:
                scalars.store(Ref(scalars, column.operand, (1,)), (0,), result)
            else:
                kernel.store(Ref(kernel, column.operand, kernel.shape), kernel.indices, result)
    return kernel if kernel.stores else None, scalars if scalars.stores else None


def _trace_body(
    op: PlannedOp, body: str, table: OperandTable, kernel: KernelBody, totals: Mapping[str, Expr]
) -> Any:
    """Trace a body of the op over the elements of its operands."""
    slots = {
        slot: op.defn.slots[slot].hold([_element(table, kernel, value) for value in values])
        for slot, values in op.inputs.items()
    }
    return call(op.defn, body, {**slots, **totals}, kernel)


def _element(table: OperandTable, kernel: KernelBody, value: PlannedValue) -> Expr:
    """Load an element or a scalar, cast to its accumulator type."""
    column = table.column(value)
    if column.is_number:
        element = Ref(kernel, column.operand, (1,)).at(0)
    else:
        element = Ref(kernel, column.operand, kernel.shape).at(*kernel.indices)
    return element.astype(accumulator_type(element.dtype))
