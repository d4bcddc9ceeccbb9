"""Nodes, the values of eager variables, and records, the ops that gradients are computed for."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import count
from typing import NamedTuple, Protocol

import numpy as np

from compiler.ir.types import Array
from fluid.eager.signatures import Signature
from fluid.eager.sources import Source
from runtime.tensors.scope import Scope

__all__ = [
    "SCOPE",
    "External",
    "GradRequest",
    "RowNumbers",
    "RunsNodes",
    "TraceNode",
    "TraceRecord",
    "new_state_name",
]

SCOPE = Scope()
"""The parameters and other state of all eager programs."""


class External(NamedTuple):
    """A node computed before the trace: its number, and the name of its array if it is state.

    `height` is the number of dense rows of a sparse value, 0 of a dense one.
    """

    number: int
    state_name: str
    stops_gradient: bool
    has_value: bool
    height: int = 0


class RowNumbers(NamedTuple):
    """Which rows of a table of `height` rows a sparse gradient has; a number may occur twice."""

    numbers: Array
    height: int

    def densified(self, values: Array) -> Array:
        """Return the whole table of the values of the rows: those of one number are added."""
        table = np.zeros((self.height, *values.shape[1:]), values.dtype)
        np.add.at(table, self.numbers, values)
        return table


class RunsNodes(Protocol):
    """A trace, as far as nodes know of it."""

    error: BaseException | None
    has_run: bool

    def run(self) -> None:
        """Compute the nodes of the trace."""
        ...


class TraceNode:
    """The value of a variable between two writes; state has the name of its array in `SCOPE`.

    `number` is its number in `trace`, the last trace that used it, and `external` what state was in
    the key of one; while `is_pending`, that trace
    has not run yet. `is_saved` marks what a gradient op may read, `stops_gradient` is the flag of
    its variable when an op last used it. `handle` refers to the variable. A sparse gradient has its
    rows in `sparse`, and their values in `array`.
    """

    __slots__ = (
        "__weakref__", "array", "external", "handle", "is_pending", "is_saved", "number", "sparse",
        "state_name", "stops_gradient", "trace",
    )  # fmt: skip

    def __init__(self, handle: Callable[[], object], state_name: str = "") -> None:
        self.array: Array | None = None
        self.external: External | None = None
        self.handle = handle
        self.is_pending = False
        self.is_saved = False
        self.number = 0
        self.sparse: RowNumbers | None = None
        self.state_name = state_name
        self.stops_gradient = True
        self.trace: RunsNodes | None = None

    def value(self) -> Array:
        """The array, computed if necessary, dense; state may change later.

        Raises RuntimeError if the trace that should compute it has failed, or it was not kept.
        """
        array = self.stored()
        return array if self.sparse is None else self.sparse.densified(array)

    def stored(self) -> Array:
        """The array as it is kept, computed if necessary: of a sparse gradient, its rows.

        Raises as `value` does.
        """
        trace = self.trace
        if self.is_pending and trace is not None:
            trace.run()
        array = self.peek()
        if array is None:
            error = None if trace is None else trace.error
            why = "no op wrote it, or it was not kept"
            if error is not None:
                why = "the trace of ops that computes it has failed, see the error before"
            raise RuntimeError(f"this variable has no value: {why}") from error
        return array

    def peek(self) -> Array | None:
        """The array as it is, None if there is none."""
        if not self.state_name:
            return self.array
        variable = SCOPE.find_var(self.state_name)
        return None if variable is None else variable.get_tensor().read()


class GradRequest:
    """Gradients to compute: of `targets`, with the given initial gradients, by `wanted` nodes.

    `steps` are the records that lead to the targets, in order. With `inputs`, only what depends on
    them is differentiated.
    """

    def __init__(
        self,
        targets: Sequence[tuple[TraceNode, TraceNode | None]],
        steps: Sequence[TraceRecord],
        wanted: Sequence[TraceNode],
        gradients: Sequence[TraceNode],
        inputs: Sequence[TraceNode] = (),
        no_grad: Sequence[TraceNode] = (),
    ) -> None:
        self.targets = targets
        self.steps = steps
        self.wanted = wanted
        self.gradients = gradients
        self.inputs = inputs
        self.no_grad = no_grad


class TraceRecord:
    """An op whose outputs have gradients, or a request whose gradients are differentiated again.

    `producers` are the records of the inputs that get a gradient. After `backward` it is released:
    it refers to nothing.
    """

    __slots__ = ("inputs", "order", "outputs", "position", "producers", "source", "trace", "what")

    def __init__(
        self,
        what: Signature | GradRequest,
        inputs: Sequence[TraceNode],
        outputs: Sequence[TraceNode],
        producers: Sequence[TraceRecord],
        order: int,
        source: Source,
    ) -> None:
        self.what: Signature | GradRequest | None = what
        self.inputs = inputs
        self.outputs = outputs
        self.producers = producers
        self.order = order
        self.source = source
        self.trace: RunsNodes | None = None
        self.position = 0

    def release(self) -> None:
        """Forget the op and all values."""
        self.what = None
        self.inputs = self.outputs = ()
        self.producers = ()


def new_state_name(name: str) -> str:
    """Return a name that no other state has."""
    if SCOPE.find_var(name) is None:
        return name
    return next(
        each for each in (f"{name}@{number}" for number in count(1)) if SCOPE.find_var(each) is None
    )
