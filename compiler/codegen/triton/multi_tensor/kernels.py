"""Multi-tensor kernels: kernels that differ only in sizes, merged into one launch.

A table on the device has a row for each part: its size, and the addresses of its tensors. Each
program looks up its part and its block of it. Full blocks need no mask, so that memory accesses are
vectorised whatever the sizes. Scalars that a part updates for the next step, such as powers of
beta, are written by the last of its programs to finish, when all have read them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import field, replace

from compiler.codegen.kernel.body import KernelBody
from compiler.codegen.kernel.pointwise import kernels_of
from compiler.codegen.module_writer import ModuleWriter, NumpyOperand
from compiler.codegen.triton.cost import (
    KernelTraffic,
    MovedElements,
    Sizes,
    all_elements,
    operation_count,
)
from compiler.codegen.triton.kernel_source import KernelSource
from compiler.codegen.triton.multi_tensor.blocks import BlockBody
from compiler.codegen.triton.multi_tensor.operand_tables import OperandTable, width
from compiler.codegen.triton.tiling.schedules import BLOCK_SIZE
from compiler.codegen.writer import Writer, comment_lines
from compiler.ir.dims import product
from compiler.plan import Step
from compiler.support.dataclass import dataclass

ADDRESSED = '''def addressed(rows, lanes, most=None):
    """Sizes and addresses of the tensors in each row, and the row and block of each program.

    A row has a program for every `lanes` elements, but at most `most`.
    """
    sizes = [row[0].numel() for row in rows]
    table = [[size, *(each.data_ptr() for each in row)] for size, row in zip(sizes, rows)]
    counts = [max(1, -(-size // lanes)) for size in sizes]
    counts = [min(count, most or count) for count in counts]
    row = torch.arange(len(rows), dtype=torch.int32).repeat_interleave(torch.tensor(counts))
    block = torch.cat([torch.arange(count, dtype=torch.int32) for count in counts])
    device = rows[0][0].device
    table = torch.tensor(table, dtype=torch.int64, device=device)
    table.held = rows  # keeps the tensors at these addresses alive
    return table, torch.stack([row, block], 1).to(device)'''

_LAST = (
    "    tl.debug_barrier()",
    "    if tl.atomic_add(finished + row, 1) + 1 == tl.cdiv(size, LANES):",
    "        tl.store(finished + row, 0)",
)
"""The condition of the part's last program: all others have read the scalars by then."""


def emit_multi_tensor(
    writer: ModuleWriter,
    step: Step,
    name: str,
    comment: Sequence[str],
    launch: Callable[[KernelSource], None],
) -> None:
    """Emit the launch of a step whose parts are structurally equal."""
    table = OperandTable(writer, step.parts)
    kernels = kernels_of(replace(step, ops=tuple(table.model)), name, table)
    tensors = next((kernel for kernel in kernels if product(kernel.shape) != 1), None)
    scalars = next((kernel for kernel in kernels if product(kernel.shape) == 1), None)
    update = Launch(writer, table, writer.names.make(name), launch_comment(table, comment))
    launch(update.update(tensors, scalars))


def launch_comment(table: OperandTable, comment: Sequence[str]) -> list[str]:
    """The comment of a launch: the ops of the first part, and the number of other parts."""
    others = len(table.parts) - 1
    more = [f"and {others} more of the same structure, of any size"] if others else []
    return [*comment[: len(table.parts[0])], *more]


@dataclass(frozen=True)
class Argument:
    """A kernel argument in addition to the table: its Triton type, and its value."""

    kind: str
    value: str


@dataclass
class Launch:
    """Emits a kernel over the rows of an operand table.

    `totals` are per-part scalars, with the expressions that compute them.
    """

    writer: ModuleWriter
    table: OperandTable
    name: str
    comment: Sequence[str]
    arguments: dict[str, Argument] = field(default_factory=dict[str, Argument])
    totals: Mapping[str, str] = field(default_factory=dict[str, str])

    def update(self, tensors: KernelBody | None, scalars: KernelBody | None) -> KernelSource:
        """The kernel that updates tensors block by block, then scalars."""
        names = self.table.numbers | set(self.totals)
        block = BlockBody(
            tensors or KernelBody(self.name, ()), f"{self.name}_block", (), known=names
        )
        last = BlockBody(scalars or KernelBody(self.name, ()), self.name, (), known=names)
        function = block.store_function() if tensors is not None else []
        closing = last.scalar_stores(1 if tensors is None else 2)
        body = self.opening([block, last])
        if tensors is not None:
            lines = ["start = block.to(INDEX) * LANES", *blockwise(block.call)]
            body += [f"    {line}" for line in lines]
            body += self._scalar_guard(block, last) if scalars is not None else []
        return self.kernel_source([*function, *self.kernel_text([*body, *closing])], [block, last],
                            most=1 if tensors is None else None)  # fmt: skip

    def _scalar_guard(self, block: BlockBody, last: BlockBody) -> Sequence[str]:
        """The condition of the program that writes scalars: the last one, if blocks read them."""
        if last.writes().isdisjoint(block.used):
            return ["    if block == 0:"]
        counters = self.writer.names.make(f"{self.name}_finished")
        rows = len(self.table.parts)
        device = self.table.rows[0].parts[0].name
        text = f"torch.zeros({rows}, dtype=torch.int32, device={device}.device)"
        self._writer().line(f"{counters} = {text}")
        self.arguments["finished"] = Argument("*i32", counters)
        return _LAST

    # ---- text ----

    def opening(self, blocks: Iterable[BlockBody]) -> list[str]:
        """Lines that look up a program's row and block, and load what blocks need of it."""
        pointers = {name for block in blocks for name in block.pointers.values()}
        numbers = {name for block in blocks for name in block.used}
        lines = [
            "place = places + 2 * tl.program_id(0)",
            "row, block = tl.load(place), tl.load(place + 1)",
            f"entry = table + row * {len(self.table.all) + 1}",
            "size = tl.load(entry).to(INDEX)",
        ]
        for number, column in enumerate(self.table.rows, 1):
            name = column.operand.name
            if column.pointer in pointers or name in numbers:
                lines.append(f"{column.pointer} = {column.address_text(number)}")
            if name in numbers:
                lines.append(f"{name} = tl.load({column.pointer})")
        lines += [f"{total} = {text}" for total, text in self.totals.items()]
        return [f"    {line}" for line in lines]

    def kernel_text(self, body: Sequence[str]) -> list[str]:
        """The kernel's source."""
        names = ", ".join(["table", "places", *self.arguments])
        head = f"def {self.name}({names}, LANES: tl.constexpr, INDEX: tl.constexpr):"
        return ["@triton.jit", head, *comment_lines(self.comment), *body]

    def kernel_source(
        self, lines: list[str], blocks: Sequence[BlockBody], most: int | None = None
    ) -> KernelSource:
        """The kernel and its launch, with `most` programs per part, or one per block."""
        rows = self._launch_tables(most)
        extra = "".join(f", {argument.value}" for argument in self.arguments.values())
        launch = (
            f"{self.name}[(len({rows}[1]),)](*{rows}{extra}, LANES={BLOCK_SIZE.value}, INDEX=INDEX)"
        )
        helpers = list(dict.fromkeys(name for block in blocks for name in block.helpers))
        types = {"table": "*i64", "places": "*i32"}
        types |= {name: argument.kind for name, argument in self.arguments.items()}
        traffic = self._cost(blocks)
        return KernelSource(
            self.name, lines, helpers, launch, types, {"LANES": BLOCK_SIZE.value}, traffic
        )

    def _cost(self, blocks: Sequence[BlockBody]) -> KernelTraffic:
        """The cost of all parts; each tensor is read and written once."""
        read = {name for block in blocks for name in block.reads()}
        written = {name for block in blocks for name in block.writes()}
        work: Counter[Sizes] = Counter()
        for part in self.table.parts:
            for block in blocks:
                work[(width(part) if block.is_wide else 1,)] += operation_count(block.terms)
        return KernelTraffic(self._accesses(read), self._accesses(written), work)

    def _accesses(self, names: Collection[str]) -> tuple[MovedElements, ...]:
        columns = [column for column in self.table.rows if column.operand.name in names]
        return tuple(
            _single(part) if column.is_number else all_elements(part)
            for column in columns
            for part in column.parts
        )

    def _launch_tables(self, most: int | None) -> str:
        """Write the address table and program map, at bind time if no tensor moves."""
        if ADDRESSED not in self.writer.functions:
            self.writer.functions.append(ADDRESSED)
        rows, each = (self.writer.names.make(f"{self.name}_{x}") for x in ("rows", "each"))
        writer, columns = self._writer(), self.table.rows
        writer.line(f"{rows} = (")
        for number in range(len(self.table.parts)):
            names = "".join(f"{column.parts[number].name}, " for column in columns)
            writer.line(f"    ({names.rstrip()}),")
        writer.line(")")
        writer.line(f"{each} = addressed({rows}, {BLOCK_SIZE.value}{f', {most}' if most else ''})")
        return each

    def _writer(self) -> Writer:
        """The scope that code depending on addresses belongs to: bind, unless a tensor moves."""
        steady = all(part.steady for column in self.table.all for part in column.parts)
        return self.writer.setup if steady else self.writer.body


def _single(operand: NumpyOperand) -> MovedElements:
    """An access to a scalar."""
    return MovedElements(operand.storage, 1, operand.type.dtype.itemsize, (1,), 0)


def blockwise(call: Callable[[str], str], result: str = "") -> list[str]:
    """Lines that process the block from `start`: without a mask if it is full.

    With a mask there are no vector accesses: adjacent threads take adjacent elements.
    """
    extra = f"{result} = " if result else ""
    return [
        "if start + LANES <= size:",
        "    lane = start + tl.arange(0, LANES)",
        f"    {extra}{call('None')}",
        "else:",
        "    lane = tl.max_contiguous(start + tl.arange(0, LANES), 1)",
        f"    {extra}{call('lane < size')}",
    ]
