"""Traces: the ops recorded since the last run, which run as one program.

A node has a number in the trace that used it last. Numbers are given in the order of first use, so
that equal sequences of ops have equal keys.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from threading import RLock
from weakref import ref

from compiler.errors import CompileError
from compiler.ir.types import Array
from fluid.eager import plans
from fluid.eager.nodes import External, GradRequest, TraceNode, TraceRecord
from fluid.eager.signatures import Signature
from fluid.eager.sources import Source
from fluid.eager.trace_programs import Computed, GradEntry, OpEntry, RecordedTrace, TracePlan
from fluid.executor import Executor
from runtime.device import CPUPlace, Place

__all__ = ["LOCK", "Trace", "current", "place", "set_place"]

MAX_OPS = 4096
"""A trace with more ops runs before the next one is recorded."""

LOCK = RLock()
"""Held while an op is recorded or a trace runs: threads share the trace."""

_executors: dict[str, Executor] = {}


class _State:
    """The current trace, and the place it will run on."""

    trace: Trace
    place: Place = CPUPlace()


class Trace:
    """Ops that have not run yet.

    `is_complete` after an optimizer's updates: the trace runs before the next op.
    """

    def __init__(self) -> None:
        self.error: BaseException | None = None
        self.has_run = False
        self.is_complete = False
        self._key: list[object] = []
        self._entries: list[OpEntry | GradEntry] = []
        self._ghosts: list[OpEntry | GradEntry] = []
        self._sources: dict[int, Source] = {}
        self._externals: list[tuple[External, TraceNode]] = []
        self._computed: list[ref[TraceNode]] = []
        self._count = 0

    # ---- recording

    def must_run(self) -> bool:
        """Whether it is to run before another op is recorded."""
        return self.is_complete or len(self._entries) > MAX_OPS

    def use(self, node: TraceNode, stops_gradient: bool) -> int:
        """Return the number of a node that an op reads; `stops_gradient` is its variable's flag."""
        if node.trace is not self:
            return self._adopt(node, stops_gradient)
        if node.stops_gradient != stops_gradient:
            node.stops_gradient = stops_gradient
            entry = OpEntry(None, (node.number,), (), (stops_gradient,))
            self._key.append(entry)
            self._entries.append(entry)
        return node.number

    def compute(self, node: TraceNode, stops_gradient: bool) -> int:
        """Return the number of a node that an op writes; state keeps its number."""
        if node.state_name:
            number = self.use(node, stops_gradient)
            node.is_pending = True
            return number
        self._enter(node, stops_gradient)
        node.is_pending = True
        self._computed.append(ref(node))
        return node.number

    def record(
        self, signature: Signature, inputs: tuple[int, ...], outputs: tuple[int, ...],
        stops: tuple[bool, ...], source: Source,
    ) -> int:  # fmt: skip
        """Append an op on numbered nodes; return its position."""
        entry = OpEntry(signature, inputs, outputs, stops)
        position = len(self._entries)
        self._key.append(entry)
        self._entries.append(entry)
        self._sources[position] = source
        return position

    def request(self, request: GradRequest) -> int:
        """Append the gradients of a request, whose results are new nodes; return its position."""
        entry = self._entry(request, lambda node: self.compute(node, node.stops_gradient))
        self._key.append(entry)
        self._entries.append(entry)
        return len(self._entries) - 1

    def _entry(self, request: GradRequest, write: Callable[[TraceNode], int]) -> GradEntry:
        """Return the entry of a request; `write` numbers the nodes of its results."""
        number = self._number
        targets = tuple(
            (number(node), -1 if given is None else number(given))
            for node, given in request.targets
        )
        steps = tuple([self._position(record) for record in request.steps])
        wanted = tuple([number(node) for node in request.wanted])
        inputs = tuple([number(node) for node in request.inputs])
        no_grad = tuple([number(node) for node in request.no_grad])
        gradients = tuple([write(node) for node in request.gradients])
        return GradEntry(targets, steps, wanted, gradients, inputs, no_grad)

    def _number(self, node: TraceNode) -> int:
        return node.number if node.trace is self else self._adopt(node, node.stops_gradient)

    def _enter(self, node: TraceNode, stops_gradient: bool) -> int:
        node.trace, node.number, node.stops_gradient = self, self._count, stops_gradient
        self._count += 1
        return node.number

    def _adopt(self, node: TraceNode, stops_gradient: bool) -> int:
        """Number a node that was computed before; it may have no value any more."""
        if node.is_pending and node.trace is not None and not node.trace.has_run:
            node.trace.run()
        number = self._enter(node, stops_gradient)
        external = node.external  # that of the last trace: equal in each step, compared by identity
        if external is None or external[0] != number or external[2] is not stops_gradient:
            has_value = bool(node.state_name) or node.array is not None
            height = 0 if node.sparse is None else node.sparse.height
            external = External(number, node.state_name, stops_gradient, has_value, height)
            if node.state_name:
                node.external = external
        self._key.append(external)
        self._externals.append((external, node))
        return number

    def _position(self, record: TraceRecord) -> int:
        """The position of a record's op; an op of an earlier trace is repeated, at -1, -2, …"""
        if record.trace is self:
            return record.position
        what = record.what
        assert what is not None, "steps_to found no released record"
        ghost: OpEntry | GradEntry
        if isinstance(what, GradRequest):
            ghost = self._entry(what, self._number)
        else:
            inputs = tuple([self._number(node) for node in record.inputs])
            outputs = tuple([self._number(node) for node in record.outputs])
            stops = tuple([node.stops_gradient for node in record.outputs])
            ghost = OpEntry(what, inputs, outputs, stops)
        self._key.append(("again", ghost))
        self._ghosts.append(ghost)
        record.trace, record.position = self, -len(self._ghosts)
        self._sources[record.position] = record.source
        return record.position

    # ---- running

    def run(self) -> None:
        """Compute the nodes that are needed; a new trace becomes the current one.

        Raises what compiling and running raise; the nodes then have no value.
        """
        with LOCK:
            if not self.has_run:
                self._run()

    def _run(self) -> None:
        if _State.trace is self:
            _State.trace = Trace()
        self.has_run = True
        live = self._live()
        try:
            numbers = tuple([node.number for node in live])
            values: Sequence[Computed] = self._values(numbers) if self._entries else ()
        except BaseException as error:
            self.error = error
            raise
        finally:
            externals, self._externals = self._externals, []
            self._entries, self._ghosts, self._key, self._computed = [], [], [], []
            self._sources = {}
        del externals
        for node, (array, sparse) in zip(live, values, strict=True):
            node.array, node.sparse, node.is_pending = array, sparse, False

    def _live(self) -> list[TraceNode]:
        """The computed nodes that a variable holds or a gradient op may read."""
        nodes = [node() for node in self._computed]
        return [node for node in nodes if node and (node.is_saved or node.handle() is not None)]

    def _values(self, live: tuple[int, ...]) -> Sequence[Computed]:
        key = (*self._key, live)
        plan = plans.find(key) or plans.make(key, self._recorded(live))
        try:
            return plan.run(_executor(), self._feed(plan))
        except CompileError:
            if not plan.is_open:
                raise
        plan = plans.exact(key, self._recorded(live))
        return plan.run(_executor(), self._feed(plan))

    def _recorded(self, live: tuple[int, ...]) -> RecordedTrace:
        externals = [(external, node.peek()) for external, node in self._externals]
        return RecordedTrace(externals, self._ghosts, self._entries, self._sources, live)

    def _feed(self, plan: TracePlan) -> dict[str, Array | None]:
        nodes = [node for _, node in self._externals]
        feed = {name: nodes[index].array for index, name in plan.feeds}
        for index, name in plan.row_feeds:
            rows = nodes[index].sparse
            feed[name] = None if rows is None else rows.numbers
        return feed


_State.trace = Trace()


def current() -> Trace:
    """The trace to which ops are recorded."""
    return _State.trace


def place() -> Place:
    """The place that traces run on."""
    return _State.place


def set_place(where: Place | None) -> Place:
    """Set the place of later traces (None: the CPU); returns the previous one."""
    where = CPUPlace() if where is None else where
    previous = _State.place
    if str(where) != str(previous):
        _State.trace.run()
    _State.place = where
    return previous


def _executor() -> Executor:
    name = str(_State.place)
    if name not in _executors:
        _executors[name] = Executor(_State.place)
    return _executors[name]
