"""The program of a trace, and how it runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple, TypeAlias, cast

import numpy as np

from compiler.ir.autodiff.append_backward import append_gradients_along
from compiler.ir.opdef import find
from compiler.ir.opdef.type_inference import infer_op
from compiler.ir.program import OpDesc, VarKind
from compiler.ir.types import Array, DType
from compiler.support.dataclass import dataclass
from fluid.eager.nodes import SCOPE, External, RowNumbers
from fluid.eager.signatures import Signature
from fluid.eager.sources import Source, source_text
from fluid.executor import Executor
from fluid.framework import Block, Program, Variable

__all__ = [
    "Computed", "Dims", "GradEntry", "OpEntry", "TracePlan", "RecordedTrace", "dims_of", "write",
]  # fmt: skip


VALUES, NUMBERS = "@VALUES", "@ROW_NUMBERS"
"""The suffixes of the feeds of a sparse value."""


class OpEntry(NamedTuple):
    """An op on numbered nodes; without signature, the new flag `stops_gradient` of a node."""

    signature: Signature | None
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    stops: tuple[bool, ...]


class GradEntry(NamedTuple):
    """Gradients of `targets`, pairs of a node and its initial gradient or -1, by `wanted` nodes.

    `steps` are the positions of the ops to differentiate, negative for those of earlier traces.
    """

    targets: tuple[tuple[int, int], ...]
    steps: tuple[int, ...]
    wanted: tuple[int, ...]
    gradients: tuple[int, ...]
    inputs: tuple[int, ...]
    no_grad: tuple[int, ...]


class RecordedTrace(NamedTuple):
    """All of a trace: nodes from before with their arrays, ops, and the nodes to return.

    `ghosts` and `sources` are the repeated ops of earlier traces and the users' lines of all ops.
    """

    externals: Sequence[tuple[External, Array | None]]
    ghosts: Sequence[OpEntry | GradEntry]
    entries: Sequence[OpEntry | GradEntry]
    sources: Mapping[int, Source]
    live: Sequence[int]


Computed: TypeAlias = "tuple[Array, RowNumbers | None]"
"""A result: of a sparse one the values and the rows."""

Dims: TypeAlias = Mapping[int, tuple[int, ...]]
"""The sizes of nodes by number, -1 where they are open."""


@dataclass
class TracePlan:
    """The program of a trace; `feeds` are its feeds, by index among the external nodes.

    `row_feeds` are the row numbers of sparse ones. `zeros` are feeds of which only the shape is
    read, whose values were not kept. `heights` has the number of dense rows of each sparse result,
    whose row numbers are fetched after all values. `is_open` if it has open sizes, for several
    traces.
    """

    program: Program
    feeds: Sequence[tuple[int, str]]
    row_feeds: Sequence[tuple[int, str]]
    zeros: Mapping[str, Array]
    fetch: tuple[str, ...]
    heights: Mapping[int, int]
    is_open: bool = False

    def run(self, executor: Executor, feed: Mapping[str, Array | None]) -> Sequence[Computed]:
        """Run the program on the arrays of its feeds; returns the fetches in order."""
        arrays = {name: array for name, array in feed.items() if array is not None}
        if self.zeros:
            arrays |= self.zeros
        fetched = executor.run_arrays(self.program, arrays, self.fetch, SCOPE)
        values = cast(Sequence[Array], fetched)
        if not self.heights:
            return [(value, None) for value in values]
        number = len(values) - len(self.heights)
        pairs = zip(self.heights.items(), values[number:], strict=True)
        rows = {index: RowNumbers(numbers, height) for (index, height), numbers in pairs}
        return [(value, rows.get(index)) for index, value in enumerate(values[:number])]


def dims_of(recorded: RecordedTrace) -> Dims:
    """Return the sizes of all nodes of a trace."""
    dims: dict[int, tuple[int, ...]] = {}
    for entry in [*recorded.ghosts, *recorded.entries]:
        if isinstance(entry, OpEntry) and entry.signature is not None:
            for number, operand in zip(entry.inputs, entry.signature.input_types, strict=True):
                dims.setdefault(number, operand.dims)
            for number, output in zip(entry.outputs, entry.signature.types, strict=True):
                dims[number] = output.dims
    for external, array in recorded.externals:
        if array is not None:
            height = external.height
            dims[external.number] = (height, *array.shape[1:]) if height else array.shape
    return dims


def write(recorded: RecordedTrace, dims: Dims) -> TracePlan:
    """Write the program of a trace with these sizes; raises what recording an op raises."""
    return _Writer(recorded, dims).plan()


class _Writer:
    """Writes the program of a trace."""

    def __init__(self, recorded: RecordedTrace, dims: Dims) -> None:
        self.recorded = recorded
        self.dims = dims
        self.program = Program()
        self.block: Block = self.program.global_block()
        self.names: dict[int, str] = {}
        self.states: set[str] = set()
        self.ops: dict[int, list[OpDesc]] = {}
        """The ops of each entry, by position."""
        self.tables: dict[str, Array] = {}
        """What is fed for the shape of the tables of sparse values."""

    def plan(self) -> TracePlan:
        """Write all ops and remove repeated ones that are not needed."""
        for external, array in self.recorded.externals:
            self._declare_external(external, array)
        for index, ghost in enumerate(self.recorded.ghosts):
            if isinstance(ghost, GradEntry):
                self._write_gradients(-1 - index, ghost)
            else:
                self._write_op(-1 - index, ghost)
        for position, entry in enumerate(self.recorded.entries):
            if isinstance(entry, GradEntry):
                self._write_gradients(position, entry)
            elif entry.signature is None:
                self._variable(entry.inputs[0]).stop_gradient = entry.stops[0]
            else:
                self._write_op(position, entry)
        results = [self.names[number] for number in self.recorded.live]
        heights = {
            index: (self.block.vars[name].dims or (0,))[0]
            for index, name in enumerate(results)
            if self.block.vars[name].kind == VarKind.SELECTED_ROWS
        }
        for index in heights:
            results[index], numbers = self._rows(results[index])
            results.append(numbers)
        fetch = tuple(results)
        zeros = self._remove_repeated(fetch)
        read = {name for op in self.block.ops for name in op.reads()} | set(fetch)
        fed = [
            (index, self.names[external.number], external.height)
            for index, (external, _) in enumerate(self.recorded.externals)
            if not external.state_name
            and external.has_value
            and self.names[external.number] in read
        ]
        feeds = [(index, f"{name}{VALUES}" if height else name) for index, name, height in fed]
        row_feeds = [(index, f"{name}{NUMBERS}") for index, name, height in fed if height]
        return TracePlan(self.program, feeds, row_feeds, zeros | self.tables, fetch, heights)

    def _variable(self, number: int) -> Variable:
        return self.block.vars[self.names[number]]

    def _declare_external(self, external: External, array: Array | None) -> None:
        number, state_name, stops_gradient, _, height = external
        self.names[number] = name = state_name or f"_{number}"
        if state_name:
            self.states.add(name)
        if array is not None and height:
            self._write_sparse(name, height, array)
        elif array is not None:
            self._declare(name, self.dims[number], DType.of(array.dtype), stops_gradient)

    def _write_sparse(self, name: str, height: int, values: Array) -> None:
        """Write a sparse value of which values and row numbers are fed: a gradient of a lookup."""
        element, width = DType.of(values.dtype), values.shape[1:]
        numbers, table, fed = f"{name}{NUMBERS}", f"{name}@TABLE", f"{name}{VALUES}"
        self._declare(numbers, [-1], DType.INT64, stops_gradient=True)
        self._declare(fed, [-1, *width], element, stops_gradient=True)
        self._declare(table, [height, *width], element, stops_gradient=True)
        self._declare(name, [height, *width], element, stops_gradient=True)
        self.tables[table] = np.broadcast_to(np.zeros((), values.dtype), (height, *width))
        slots = {"W": [table], "Ids": [numbers], "Out@GRAD": [fed]}
        gradient = {"W@GRAD": [name]}
        op = self.block.add_op("lookup_table_v2_grad", slots, gradient, {"is_sparse": True})
        infer_op(self.block, op)

    def _rows(self, name: str) -> tuple[str, str]:
        """Write the values and the row numbers of a sparse value; a sum has each row once."""
        var = self.block.vars[name]
        writers = [op for op in self.block.ops if name in op.writes()]
        if writers and writers[-1].type == "sum":
            self._declare(f"{name}@MERGED", var.dims or (), var.element, stops_gradient=True)
            merged = {"Out": [f"{name}@MERGED"]}
            infer_op(self.block, self.block.add_op("merge_selected_rows", {"X": [name]}, merged))
            name = f"{name}@MERGED"
        values, numbers = f"{name}@RESULT", f"{name}@NUMBERS"
        self._declare(values, var.dims or (), var.element, stops_gradient=True)
        self._declare(numbers, [-1], DType.INT64, stops_gradient=True)
        self.block.add_op("get_tensor_from_selected_rows", {"X": [name]}, {"Out": [values]})
        self.block.add_op("row_numbers", {"X": [name]}, {"Out": [numbers]})
        return values, numbers

    def _declare(
        self, name: str, dims: Sequence[int], element: DType, stops_gradient: bool
    ) -> None:
        is_state = name in self.states
        fields = {"stop_gradient": stops_gradient, "persistable": is_state}
        self.block.add_var(name, shape=dims, dtype=element, **fields)

    def _write_op(self, position: int, entry: OpEntry) -> None:
        """Write the op of an entry; the ghosts have the positions -1, -2, …"""
        signature = entry.signature
        assert signature is not None
        for number, output, stops in zip(entry.outputs, signature.types, entry.stops, strict=True):
            name = self.names.setdefault(number, f"_{number}")
            if name not in self.block.vars:
                self._declare(name, self.dims[number], output.element, stops)
        for number, operand in zip(entry.inputs, signature.input_types, strict=True):
            if self.names[number] not in self.block.vars:  # only its shape is read
                self._declare(self.names[number], self.dims[number], operand.element, True)
        inputs = signature.slots([self.names[number] for number in entry.inputs], signature.inputs)
        outputs = signature.slots(
            [self.names[number] for number in entry.outputs], signature.outputs
        )
        source = source_text(self.recorded.sources.get(position))
        op = self.block.add_op(signature.type, inputs, outputs, signature.attrs, source)
        self.ops[position] = [op]

    def _write_gradients(self, position: int, entry: GradEntry) -> None:
        """Write gradient ops; a wanted variable on which no target depends gets zeros."""
        start = len(self.block.ops)
        names = self.names
        found = append_gradients_along(
            self.block,
            {names[target]: None if seed < 0 else names[seed] for target, seed in entry.targets},
            [op for step in entry.steps for op in self.ops[step]],
            [names[number] for number in entry.no_grad],
            [names[number] for number in entry.inputs] or None,
        )
        for number, gradient in zip(entry.wanted, entry.gradients, strict=True):
            name = names[number]
            names[gradient] = found.get(name) or self._zeros_like(name, f"_{gradient}")
        self.ops[position] = list(self.block.ops[start:])

    def _zeros_like(self, name: str, out: str) -> str:
        var = self.block.vars[name]
        self._declare(out, var.dims or (), var.element, stops_gradient=True)
        self.block.add_op("fill_zeros_like", {"X": [name]}, {"Out": [out]})
        return out

    def _remove_repeated(self, fetch: Sequence[str]) -> dict[str, Array]:
        """Remove repeated ops whose outputs are fed or not read; return fed zeros.

        A value that was not kept is fed as zeros if only its shape is read.
        """
        if not self.recorded.ghosts:
            return {}
        repeated = {
            id(op) for index in range(len(self.recorded.ghosts)) for op in self.ops[-1 - index]
        }
        fed = {
            self.names[external.number]
            for external, _ in self.recorded.externals
            if external.has_value
        }
        needed, shapes = set(fetch), set[str]()
        kept: list[OpDesc] = []
        for op in reversed(self.block.ops):
            if id(op) in repeated and not (needed - fed).intersection(op.writes()):
                continue
            kept.append(op)
            needed.update(_data_reads(op))
            shapes.update(op.reads())
        written = {name for op in kept for name in op.writes()}
        kept_ids = {id(op) for op in kept}
        self.block.ops[:] = [op for op in self.block.ops if id(op) in kept_ids]
        self.program.touch()
        lost = shapes - written - fed
        variables = {name: self.block.vars[name] for name in sorted(lost)}
        return {
            name: np.zeros(var.dims or (), var.element.numpy) for name, var in variables.items()
        }


def _data_reads(op: OpDesc) -> list[str]:
    """The names of which an op reads the values, not only the shape."""
    slots = find(op.type).slots
    return [
        name
        for slot, names in op.inputs.items()
        if slot not in slots or not slots[slot].shape_only
        for name in names
    ]
