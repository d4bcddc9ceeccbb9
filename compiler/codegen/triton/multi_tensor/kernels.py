"""One kernel for many tensors: kernels that differ in sizes only, as one launch.

A table on the device has a row for each part: its size, and the addresses of its tensors. Each
program looks up which part it has and which block of it. Blocks that are full need no mask, so that
memory is read in vectors whatever the sizes are. Numbers that a part advances for the next step,
as the powers of beta, are written by the last of its programs: all have read them by then.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from compiler.codegen.bind_and_run import Frame, NumpyOperand
from compiler.codegen.triton.cost import Access, Sizes, Traffic, whole, work_on
from compiler.codegen.triton.emit import Written
from compiler.codegen.triton.kernel_ir import KernelBody
from compiler.codegen.triton.multi_tensor.blocks import Block
from compiler.codegen.triton.multi_tensor.operand_tables import Columns, width
from compiler.codegen.triton.pointwise import kernels_of
from compiler.codegen.triton.tiling.schedules import LANES
from compiler.codegen.writer import Writer, comment_lines
from compiler.ir.dims import product
from compiler.plan import Step

ADDRESSED = '''def addressed(rows, lanes, most=None):
    """Sizes and addresses of the tensors in each row, and which row and block each program has.

    A row has a program for every so many lanes, or `most`, if that is less.
    """
    sizes = [row[0].numel() for row in rows]
    table = [[size, *(each.data_ptr() for each in row)] for size, row in zip(sizes, rows)]
    counts = [max(1, -(-size // lanes)) for size in sizes]
    counts = [min(count, most or count) for count in counts]
    row = torch.arange(len(rows), dtype=torch.int32).repeat_interleave(torch.tensor(counts))
    block = torch.cat([torch.arange(count, dtype=torch.int32) for count in counts])
    device = rows[0][0].device
    table = torch.tensor(table, dtype=torch.int64, device=device)
    table.held = rows  # what addresses stand for stays where it is
    return table, torch.stack([row, block], 1).to(device)'''

_LAST = (
    "    tl.debug_barrier()",
    "    if tl.atomic_add(turns + row, 1) + 1 == tl.cdiv(size, LANES):",
    "        tl.store(turns + row, 0)",
)
"""Where the last program of a part goes on: what the others have read they need no more."""


def emit_several(
    frame: Frame, step: Step, name: str, comment: Sequence[str], launch: Callable[[Written], None]
) -> None:
    """The launch of a step whose parts are alike."""
    columns = Columns(frame, step.parts)
    kernels = kernels_of(replace(step, ops=tuple(columns.model)), name, columns)
    wide = next((each for each in kernels if product(each.shape) != 1), None)
    lone = next((each for each in kernels if product(each.shape) == 1), None)
    writer = Launch(frame, columns, frame.names.make(name), told(columns, comment))
    launch(writer.update(wide, lone))


def told(columns: Columns, comment: Sequence[str]) -> list[str]:
    """What is said of the first part, and how many are like it."""
    others = len(columns.parts) - 1
    more = [f"and {others} more like it, of any size"] if others else []
    return [*comment[: len(columns.parts[0])], *more]


@dataclass(frozen=True)
class Argument:
    """What a kernel is given besides its table: a type, as Triton has it, and a value."""

    kind: str
    value: str


@dataclass
class Launch:
    """Writes a kernel over the rows of a table.

    `totals` are numbers that it has for each part, with the lines that find them.
    """

    frame: Frame
    columns: Columns
    name: str
    comment: Sequence[str]
    arguments: dict[str, Argument] = field(default_factory=dict[str, Argument])
    totals: Mapping[str, str] = field(default_factory=dict[str, str])

    def update(self, wide: KernelBody | None, lone: KernelBody | None) -> Written:
        """The kernel that updates tensors block by block, and numbers at last."""
        known = self.columns.numbers | set(self.totals)
        block = Block(wide or KernelBody(self.name, ()), f"{self.name}_block", (), known=known)
        last = Block(lone or KernelBody(self.name, ()), self.name, (), known=known)
        function = block.stored() if wide is not None else []
        closing = last.advanced(1 if wide is None else 2)
        body = self.opening([block, last])
        if wide is not None:
            lines = ["start = block.to(INDEX) * LANES", *blockwise(block.call)]
            body += [f"    {line}" for line in lines]
            body += self._at_last(block, last) if lone is not None else []
        return self.written([*function, *self.kernel([*body, *closing])], [block, last],
                            most=1 if wide is None else None)  # fmt: skip

    def _at_last(self, block: Block, last: Block) -> Sequence[str]:
        """Lines before numbers are written: by the last program, where blocks read them."""
        if last.written().isdisjoint(block.used):
            return ["    if block == 0:"]
        turns = self.frame.names.make(f"{self.name}_turns")
        rows = len(self.columns.parts)
        device = self.columns.rows[0].parts[0].name
        text = f"torch.zeros({rows}, dtype=torch.int32, device={device}.device)"
        self._writer().line(f"{turns} = {text}")
        self.arguments["turns"] = Argument("*i32", turns)
        return _LAST

    # ---- text ----

    def opening(self, blocks: Iterable[Block]) -> list[str]:
        """Lines that find a program's row and block, and what blocks need of it."""
        pointers = {name for block in blocks for name in block.pointers.values()}
        numbers = {name for block in blocks for name in block.used}
        lines = [
            "place = places + 2 * tl.program_id(0)",
            "row, block = tl.load(place), tl.load(place + 1)",
            f"entry = table + row * {len(self.columns.all) + 1}",
            "size = tl.load(entry).to(INDEX)",
        ]
        for number, column in enumerate(self.columns.rows, 1):
            name = column.operand.name
            if column.pointer in pointers or name in numbers:
                lines.append(f"{column.pointer} = {column.found(number)}")
            if name in numbers:
                lines.append(f"{name} = tl.load({column.pointer})")
        lines += [f"{total} = {text}" for total, text in self.totals.items()]
        return [f"    {line}" for line in lines]

    def kernel(self, body: Sequence[str]) -> list[str]:
        """The kernel's text."""
        names = ", ".join(["table", "places", *self.arguments])
        head = f"def {self.name}({names}, LANES: tl.constexpr, INDEX: tl.constexpr):"
        return ["@triton.jit", head, *comment_lines(self.comment), *body]

    def written(
        self, lines: list[str], blocks: Sequence[Block], most: int | None = None
    ) -> Written:
        """The kernel, and its launch: `most` programs for a part, or one for each block."""
        each = self._addressed(most)
        given = "".join(f", {argument.value}" for argument in self.arguments.values())
        launch = f"{self.name}[(len({each}[1]),)](*{each}{given}, LANES={LANES}, INDEX=INDEX)"
        helpers = list(dict.fromkeys(name for block in blocks for name in block.helpers))
        types = {"table": "*i64", "places": "*i32"}
        types |= {name: argument.kind for name, argument in self.arguments.items()}
        traffic = self._traffic(blocks)
        return Written(self.name, lines, helpers, launch, types, {"LANES": LANES}, traffic)

    def _traffic(self, blocks: Sequence[Block]) -> Traffic:
        """What all parts read and write, each tensor once."""
        read = {name for block in blocks for name in block.read()}
        written = {name for block in blocks for name in block.written()}
        work: Counter[Sizes] = Counter()
        for part in self.columns.parts:
            for block in blocks:
                work[(width(part) if block.is_wide else 1,)] += work_on(block.terms)
        return Traffic(self._accesses(read), self._accesses(written), work)

    def _accesses(self, names: Collection[str]) -> tuple[Access, ...]:
        columns = [column for column in self.columns.rows if column.operand.name in names]
        return tuple(
            _one(each) if column.is_number else whole(each)
            for column in columns
            for each in column.parts
        )

    def _addressed(self, most: int | None) -> str:
        """The name of the table and of the programs' places, made once where tensors stay."""
        if ADDRESSED not in self.frame.functions:
            self.frame.functions.append(ADDRESSED)
        rows, each = (self.frame.names.make(f"{self.name}_{x}") for x in ("rows", "each"))
        writer, columns = self._writer(), self.columns.rows
        writer.line(f"{rows} = (")
        for number in range(len(self.columns.parts)):
            names = "".join(f"{column.parts[number].name}, " for column in columns)
            writer.line(f"    ({names.rstrip()}),")
        writer.line(")")
        writer.line(f"{each} = addressed({rows}, {LANES}{f', {most}' if most else ''})")
        return each

    def _writer(self) -> Writer:
        """Where what depends on addresses is written: at binding, unless a tensor moves."""
        steady = all(each.steady for column in self.columns.all for each in column.parts)
        return self.frame.setup if steady else self.frame.body


def _one(operand: NumpyOperand) -> Access:
    """A single number."""
    return Access(operand.storage, 1, operand.type.dtype.itemsize, (1,), 0)


def blockwise(call: Callable[[str], str], result: str = "") -> list[str]:
    """Lines for a block that begins at `start`: without a mask where it is full."""
    given = f"{result} = " if result else ""
    return [
        "lane = start + tl.arange(0, LANES)",
        "if start + LANES <= size:",
        f"    {given}{call('None')}",
        "else:",
        f"    {given}{call('lane < size')}",
    ]
