"""`freeze()`: convert a graph whose passes have run into an immutable plan.

Labels of ops and vars become steps, values and buffers.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from functools import reduce

from compiler.ir.analysis.liveness import kernels, lives
from compiler.ir.analysis.placement import device_vars
from compiler.ir.analysis.region_index import RegionIndex
from compiler.ir.conversion.block_walk import CAPTURED, RUNS, WRITTEN
from compiler.ir.dims import Dim, Size
from compiler.ir.graph import Graph, Op, Var, without_tokens
from compiler.ir.region import are_disjoint, at_most, end
from compiler.plan import Buffer, Plan, PlannedOp, PlannedValue, Step, StorageKind, Tensor, tensor
from compiler.plan_check import check_plan
from compiler.support.dataclass import dataclass


def freeze(g: Graph) -> Plan:
    """Return the plan of a graph whose passes have run; raise PlanError if a pass lost a value."""
    freezer = _Freezer(lives(g), device_vars(g))
    freezer.slots()
    steps = tuple(freezer.step(i, ops) for i, ops in enumerate(kernels(g)))
    params = [freezer.param(g, var) for var in g.params()]
    plan = Plan(
        name=g.name,
        dims=_dim_names(g),
        feeds=tuple(freezer.value(var) for var in g.feeds()),
        params=tuple(_with_use(params, [op for step in steps for op in _all_ops(step)])),
        results=tuple(freezer.value(var) for var in g.results),
        fetches=tuple(g.fetches),
        steps=steps,
        buffers=tuple(freezer.buffers),
    )
    check_plan(plan)
    return plan


def _all_ops(step: Step) -> Iterator[PlannedOp]:
    """Yield the ops of a step and of their bodies."""
    for op in step.ops:
        yield op
        for inner in op.body:
            yield from _all_ops(inner)


def _with_use(params: Iterable[Tensor], ops: Sequence[PlannedOp]) -> Iterator[Tensor]:
    """Yield params: `fixed` if no op writes them, `escapes` if Python functions get them."""
    written = {value.home for op in ops for value in _params_in(op.outputs)}
    callers = (op for op in ops if hasattr(op.defn, "callables"))
    passed = {value.home for op in callers for value in _params_in(op.inputs)}
    for param in params:
        is_passed = param.name in passed
        yield replace(param, fixed=param.name not in written and not is_passed, escapes=is_passed)


def _params_in(slots: Mapping[str, tuple[PlannedValue, ...]]) -> list[PlannedValue]:
    """Return the values that are persistable state, or views of it."""
    return [
        value for values in slots.values() for value in values if value.place is StorageKind.PARAM
    ]


def _dim_names(g: Graph) -> tuple[str, ...]:
    """Return the symbolic sizes that binding determines, in the order of the feeds."""
    sizes = (size for var in g.feeds() for size in var.type.shape if isinstance(size, Dim))
    return tuple(dict.fromkeys(name for size in sizes for name in size.names))


def _larger(a: Size, b: Size) -> Size:
    """Return the larger of two end offsets; the first if they cannot be compared."""
    return b if at_most(a, b) else a


@dataclass
class _Freezer:
    """The conversion of one graph: vars to values, slots to buffers."""

    lives: Mapping[Var, tuple[int, int]]
    on_device: frozenset[Var] = frozenset()
    buffers: list[Buffer] = field(default_factory=list[Buffer])
    values: dict[Var, PlannedValue] = field(default_factory=dict[Var, PlannedValue])
    buffer_of: dict[int, int] = field(default_factory=dict[int, int])
    held: dict[int, RegionIndex[Var]] = field(default_factory=lambda: dict[int, RegionIndex[Var]]())

    def slots(self) -> None:
        """Create a buffer for every slot, live from its first definition to its last use.

        It is named after its first var.
        """
        on_device = {var.slot for var in self.on_device}
        for var in self.lives:
            if var.slot is not None:
                regions = self.held.setdefault(var.slot, RegionIndex())
                regions.add(var, var.type, var.region)
        for slot, sharing in sorted(self.held.items()):
            start = min(self.lives[var][0] for var in sharing)
            stop = max(self.lives[var][1] for var in sharing)
            self.buffer_of[slot] = len(self.buffers)
            nbytes = reduce(_larger, (end(var.type, var.region) for var in sharing))
            self.buffers.append(
                Buffer(next(iter(sharing)).label, nbytes, start, stop, slot in on_device)
            )

    def value(self, var: Var) -> PlannedValue:
        """Return the frozen form of a var, created once."""
        if var not in self.values:
            place, home = self._storage(var)
            on_device = var in self.on_device
            self.values[var] = PlannedValue(var.label, var.type, place, home, on_device, var.region)
        return self.values[var]

    def param(self, g: Graph, var: Var) -> Tensor:
        """Return a persistable var as a tensor of the module's interface."""
        is_input = g.producer(var) is None
        return tensor(var.name, var.type, is_input, var in self.on_device)

    def _storage(self, var: Var) -> tuple[StorageKind, str | int]:
        if var.role == "feed":
            return StorageKind.FEED, var.name
        if var.role == "param":
            return StorageKind.PARAM, var.name
        if var.slot is not None:
            return StorageKind.BUFFER, self.buffer_of[var.slot]
        return (StorageKind.LOCAL if var in self.lives else StorageKind.INNER), var.storage.label

    def step(self, index: int, ops: list[Op]) -> Step:
        """Return the step of one kernel at an index of the schedule."""
        read = dict.fromkeys(var for op in ops for var in op.needs_data() if var in self.lives)
        dying = frozenset(self.value(var) for var in read if self._is_dead_after(var, index))
        return Step(index, tuple(self.op(op, index) for op in ops), dying)

    def _is_dead_after(self, var: Var, index: int) -> bool:
        """Whether the bytes of a var are dead after a step."""
        if self.lives[var][1] != index + 1:
            return False
        others = self.held[var.slot].near(var.type, var.region) if var.slot in self.held else ()
        alive = (v for v in others if self.lives[v][0] < index and self.lives[v][1] > index + 1)
        return all(are_disjoint(var.type, var.region, v.type, v.region) for v in alive)

    def op(self, op: Op, index: int) -> PlannedOp:
        """Return one planned op; the vars of its body map to values of the outer graph."""
        inputs, outputs = (
            {slot: tuple(map(self.value, vars)) for slot, vars in slots.items()}
            for slots in (without_tokens(op.inputs), without_tokens(op.outputs))
        )
        planned = PlannedOp(
            op.kind, op.defn, inputs, outputs, op.source, repr(op), op.target or "", op.part
        )
        return planned if op.body is None else self._with_body(planned, op, op.body, index)

    def _with_body(self, planned: PlannedOp, op: Op, body: Graph, index: int) -> PlannedOp:
        """Add the body: its vars are outer values, or values of the body in buffers or locals."""
        captured, written = op.inputs.get(CAPTURED, []), op.outputs.get(WRITTEN, [])
        feeds = body.feeds()
        saved, captures = feeds[: len(feeds) - len(captured)], feeds[len(feeds) - len(captured) :]
        pairs = [*zip(captures, captured, strict=True), *zip(body.results, written, strict=False)]
        self.values |= {inner: self.value(outer) for inner, outer in pairs}
        for inner, _ in pairs:
            first, (place, home, region) = inner.storage, self.values[inner].storage
            value = PlannedValue(first.label, first.type, place, home, region=region)
            self.values.setdefault(first, value)
        for var in (var for var in _in_text_order(body) if var not in self.values):
            place = StorageKind.LOCAL if var in saved or var.type.is_open else StorageKind.BUFFER
            self.values[var] = self._local_value(body, var, place, index)
        saved_values = body.results[len(written) :] if RUNS in op.outputs else []
        return replace(
            planned,
            body=tuple(Step(index, (self.op(inner, index),)) for inner in body.ops()),
            given=tuple(map(self.value, saved)),
            kept=tuple(map(self.value, saved_values)),
        )

    def _local_value(self, body: Graph, var: Var, place: StorageKind, index: int) -> PlannedValue:
        """Return a value local to a body; an overwritten one shares the later version's storage."""
        before = self.values.get(var.storage)
        if before is not None:
            place, home, region = before.storage
            return PlannedValue(var.label, var.type, place, home, region=region)
        name = f"{body.name}.{var.label}"
        if place is StorageKind.LOCAL:
            return PlannedValue(var.label, var.type, place, name)
        self.buffers.append(Buffer(name, var.type.nbytes, index, index + 1))
        return PlannedValue(var.label, var.type, place, len(self.buffers) - 1)


def _in_text_order(body: Graph) -> dict[Var, None]:
    """Return the vars in the order of the body's text: those no op writes, then each op's outputs.

    The text does not record the order of creation, so nothing may depend on it.
    """
    inputs = (var for var in body.vars() if body.producer(var) is None)
    return dict.fromkeys([*inputs, *(var for op in body.ops() for var in op.writes())])
