"""Eager variables: `VarBase` and `ParamBase`, with the names and methods of release 1.8.5."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from operator import attrgetter
from typing import Any, NoReturn, Self, cast
from weakref import finalize, ref

import numpy as np

from compiler.ir.program import VarKind
from compiler.ir.types import Array, DType
from compiler.support.cached_property import cached_property
from fluid import unique_name
from fluid.eager import traces
from fluid.eager.declarations import declared
from fluid.eager.nodes import SCOPE, GradRequest, TraceNode, TraceRecord, new_state_name
from fluid.eager.signatures import Signature
from fluid.eager.sizes import Sizes
from fluid.framework import default_main_program, in_dygraph_mode
from fluid.recording.annotations import Attributes, DTypeLike, Slots
from fluid.recording.op_records import is_ours
from fluid.recording.variable import (
    AbstractBlock,
    Parameter,
    Regularizer,
    Variable,
    check_parameter,
    convert_np_dtype_to_dtype_,
    grad_var_name,
)
from fluid.running.fetched_values import number_like
from runtime.device import CPUPlace, Place
from runtime.tensors.lod_tensor import LoDTensor
from runtime.tensors.scope_values import SelectedRows

__all__ = [
    "ParamBase", "VarBase", "backward", "gradient_of", "reached_nodes", "release", "steps_to",
]  # fmt: skip


class VarBase(Variable):
    """A variable with a value, which is computed when it is needed.

    `record` is the op that computed it, if it gets a gradient; `stops` its flag `stop_gradient`.
    Outputs of ops have no name until somebody reads it.
    """

    kind = VarKind.TENSOR
    lod_level = 0
    is_data = False
    need_check_feed = False
    is_parameter = False
    belong_to_optimizer = False
    error_clip = None
    op = None
    record: TraceRecord | None = None
    gradient_variable: VarBase | None = None
    had_gradient = False
    name_key = "_generated_var"
    _persistable = False
    _copies = 0

    def __init__(  # pyright: ignore[reportMissingSuperCall] - a fraction of the cost
        self, *args: object, **kwargs: object
    ) -> None:
        """Make a variable of an array, as scripts do: `VarBase(value, place, persistable=False)`.

        Further keywords are `name` and `zero_copy`; it gets no gradient. The form `VarBase(dtype,
        shape, name, type, persistable)` has no value yet: an op writes it. Our own code calls `of`.

        Raises AssertionError outside eager mode and TypeError for other arguments.
        """
        made = declared(args, kwargs)
        block = default_main_program().current_block()
        if not in_dygraph_mode():
            raise AssertionError(
                f"variable {made.name!r} can only be made in dygraph mode: within "
                "fluid.dygraph.guard()"
            )
        self._set_up(block, made.name, made.element, made.dims, made.dims is not None, "")
        self.node.array = made.array
        self._persistable = made.persistable

    @classmethod
    def of(
        cls,
        block: AbstractBlock,
        name: str | None,
        element: DType,
        dims: tuple[int, ...] | None = None,
        stop_gradient: bool = False,
        state_name: str = "",
    ) -> Self:
        """Create a variable of a block, without a value unless it is state."""
        var = cls.__new__(cls)
        var._set_up(block, name, element, dims, stop_gradient, state_name)
        return var

    def _set_up(
        self,
        block: AbstractBlock,
        name: str | None,
        element: DType,
        dims: tuple[int, ...] | None,
        stop_gradient: bool,
        state_name: str,
    ) -> None:
        self.block = block
        if name is not None:
            vars(self)["name"] = name
        self.element = element
        self.dims = dims
        self.stops = stop_gradient
        self.handle = ref(self)
        self.node = TraceNode(self.handle, state_name)
        if state_name:
            finalize(self.node, SCOPE.erase, [state_name])

    @cached_property
    def name(self) -> str:  # pyright: ignore[reportIncompatibleVariableOverride] - set if known
        """Its name, generated from `name_key` when it is first read unless it was given one."""
        return unique_name.generate(self.name_key)

    @property
    def persistable(self) -> bool:
        """Whether it is state, as scripts mark it; without an effect here."""
        return self._persistable

    @persistable.setter
    def persistable(self, value: bool) -> None:
        self._persistable = value

    @property
    def stop_gradient(self) -> bool:
        """Whether it gets no gradient in ops that are called from now on."""
        return self.stops

    @stop_gradient.setter
    def stop_gradient(self, value: bool) -> None:
        self.stops = bool(value)

    @property
    def shape(self) -> tuple[int, ...]:
        """Its shape, which also equals a list."""
        return Sizes(self.dims or ())

    # ---- its value

    def numpy(self) -> Array:
        """Return a copy of its value, which is computed if necessary."""
        value = np.array(self.array())
        return number_like(value)  # pyright: ignore[reportReturnType] - an array of one

    def array(self) -> Array:
        """Return its value itself."""
        return self.node.value()

    def has_value(self) -> bool:
        """Whether it has a value, or ops that compute it are recorded."""
        return self.node.is_pending or self.node.peek() is not None

    def value(self) -> VarBase:
        """Return itself, with `get_tensor` and `get_selected_rows` as a native variable."""
        return self

    def get_selected_rows(self) -> SelectedRows:
        """Return its value as sparse rows; TypeError for a dense one."""
        values, sparse = self.node.stored(), self.node.sparse
        if sparse is None:
            raise TypeError(f"variable {self.name!r} is dense: use get_tensor")
        rows = SelectedRows(sparse.numbers.tolist(), sparse.height)
        rows.get_tensor().set(values, CPUPlace())
        return rows

    def get_tensor(self) -> LoDTensor:
        """Return its value as a native tensor, whose `set` is `set_value`."""
        return _ValueTensor(self)

    def set_value(self, value: object) -> None:
        """Set its value to an array or that of another variable.

        Raises AssertionError, as the reference does, for another shape or dtype.
        """
        array = value.array() if isinstance(value, VarBase) else np.asarray(value)
        if tuple(array.shape) != self.dims:
            raise AssertionError(
                f"Variable Shape not match, Variable [ {self.name} ] need tensor with shape "
                f"{self.dims} but load set tensor with shape {tuple(array.shape)}"
            )
        if array.dtype != self.element.numpy:
            raise AssertionError(
                f"Variable dtype not match, Variable [ {self.name} ] need tensor with dtype "
                f"{self.element.numpy}  but load tensor with dtype {array.dtype}"
            )
        self.put(array)

    def put(self, array: Array) -> None:
        """Store an array; ops that were recorded before read the old one."""
        if self.node.state_name:
            trace = self.node.trace
            if trace is not None and not trace.has_run:
                trace.run()
            SCOPE.var(self.node.state_name).get_tensor().set(array, CPUPlace())
        else:
            self.renew()
            self.node.array = np.array(array, order="C")

    def becomes(self, dims: tuple[int, ...], element: DType, needs_gradient: bool) -> None:
        """Prepare to be the output of an op; a value that it had before is no longer its own."""
        if self.dims is None:
            self.stops = self.stops or not needs_gradient or not element.is_float
        else:
            if self.node.array is not None or self.node.trace is not None:
                self.renew()
            self.stops = self.stops and not needs_gradient
        self.dims, self.element = dims, element

    def renew(self) -> TraceNode:
        """Replace its node by a new one, which has no value yet."""
        self.node = TraceNode(self.handle)
        self.record = None
        return self.node

    def detach(self) -> VarBase:
        """Return a variable of the same value that gets no gradient."""
        copied = self.temporary(self.element, "generated_var", stop_gradient=True)
        self.append("assign", {"X": self}, copied, {})
        copied.record, copied.stops = None, True
        return copied

    # ---- conversion to Python

    def _number(self, kind: str) -> float:
        array = self.array()
        assert array.size == 1, f"only one element variable can be converted to {kind}."
        return array.item()

    def __float__(self) -> float:
        return float(self._number("float"))

    def __int__(self) -> int:
        return int(self._number("int"))

    def __index__(self) -> int:
        return int(self._number("python index"))

    def __bool__(self) -> bool:
        """Whether its only element is positive; in our own code, that it is no None."""
        caller = sys._getframe(1)  # pyright: ignore[reportPrivateUsage] - inspect is slower
        return True if is_ours(caller.f_code.co_filename) else self.is_true()

    def is_true(self) -> bool:
        """Whether its only element is positive, as a condition in a script."""
        array = self.array()
        assert array.size == 1, (
            "When Variable is used as the condition of if/while , Variable can only contain one "
            "element."
        )
        return bool(array.item() > 0)

    __long__ = __int__
    __nonzero__ = is_true

    def __len__(self) -> int:
        return self.shape[0]

    def __iter__(self) -> Iterator[Variable]:  # pyright: ignore[reportIncompatibleVariableOverride]
        for index in range(len(self)):
            yield self[index]

    def __array__(self, dtype: DTypeLike | None = None, copy: bool | None = None) -> Array:
        return np.array(self.array(), cast("np.dtype[np.generic] | None", dtype))

    def __reduce_ex__(self, protocol: object) -> NoReturn:
        """Raise TypeError, also for `copy` and `deepcopy`: a value belongs to one variable."""
        raise TypeError(
            f"variable {self.name!r} can be neither copied nor pickled: use numpy() and to_variable"
        )

    def to_string(self, throw_on_error: bool, with_details: bool = False) -> str:
        """Return its type and value as text."""
        return str(self)

    def __str__(self) -> str:
        if not self.has_value():
            return f"name {self.name}, shape: {list(self.shape)}, not inited"
        array = self.array()
        kinds = {"float32": "float", "float64": "double", "int32": "int", "int64": "int64_t"}
        elements = " ".join(f"{element:.6g}" for element in array.ravel().tolist())
        sizes = ", ".join(map(str, array.shape))
        return (
            f"name {self.name}, dtype: {self.dtype} shape: {list(array.shape)} \tlod: {{}}\n"
            f"\tdim: {sizes}\n\tlayout: NCHW\n\tdtype: {kinds.get(array.dtype.name, array.dtype)}\n"
            f"\tdata: [{elements}]\n"
        )

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name}: {self.element.text}{list(self.shape)}>"

    # ---- operators record where layers do: within a static program, in that

    def temporary(
        self, dtype: DTypeLike, name: str | None = "tmp", *, stop_gradient: bool = False
    ) -> Any:
        """Create a variable in the current block of the default program."""
        block = default_main_program().current_block()
        key = "_generated_var" if name is None else name
        return block.create_temporary(key, dtype, stop_gradient=stop_gradient)

    def append(
        self, op_type: str, inputs: Mapping[str, object], out: Variable, attrs: Attributes
    ) -> Any:
        """Append an op to the current block of the default program; returns its output `out`."""
        default_main_program().current_block().append_op(
            op_type, cast(Slots, inputs), {"Out": out}, attrs
        )
        return out

    # ---- gradients

    def backward(self, backward_strategy: object = None, retain_graph: bool = False) -> None:
        """Compute the gradients of all variables that it depends on, in place of earlier ones.

        The graph is released unless `retain_graph` is set. A variable without a graph is ignored,
        as in the reference. Raises RuntimeError for a graph of which a part was released, and
        TypeError for anything but a `BackwardStrategy`.
        """
        if backward_strategy is not None and not hasattr(backward_strategy, "sort_sum_gradient"):
            raise TypeError(f"{backward_strategy!r:.60} is no BackwardStrategy")
        if self.record is not None:
            backward(self, retain_graph)

    def gradient(self) -> Any:
        """Return the gradient as an array; None before `backward`.

        A sparse one, of an embedding with `is_sparse`, is a pair: the values of its rows, and their
        numbers.
        """
        gradient = self.gradient_or_zeros()
        if gradient is None:
            return None
        values, sparse = gradient.node.stored(), gradient.node.sparse
        return gradient.numpy() if sparse is None else (values.copy(), sparse.numbers.copy())

    def gradient_or_zeros(self) -> VarBase | None:
        """Return the gradient as a variable; after `clear_gradient` zeros, None if it is sparse."""
        if self.gradient_variable is None and self.had_gradient:
            zeros = VarBase.of(self.block, self._grad_name(), self.element, self.dims, True)
            zeros.node.array = np.zeros(self.dims or (), self.element.numpy)
            self.gradient_variable = zeros
        return self.gradient_variable

    def _grad_name(self) -> str:
        return grad_var_name(self.name)

    _grad_value = gradient
    _grad_ivar = gradient_or_zeros

    def _set_grad_type(self, type: int) -> None:
        """Accepted without effect: ops decide whether a gradient is sparse."""

    def _run_backward(
        self, backward_strategy: object, tracer: object, retain_graph: bool = False
    ) -> None:
        """Compute gradients, see `backward`."""
        self.backward(backward_strategy, retain_graph)

    def _alive_vars(self) -> list[str]:
        """The names of variables that only native code refers to: none."""
        return []

    def _copy_to(self, place: Place, blocking: bool) -> VarBase:
        """Return a copy, named after it with the number of copies; traces have one place."""
        copied = VarBase.of(self.block, f"{self.name}{self._copies}", self.element, self.dims, True)
        copied._persistable, self._copies = self._persistable, self._copies + 1
        copied.node.array = np.array(self.array())
        return copied

    def clear_gradient(self) -> None:
        """Set the gradient, if there is one, to zero; a sparse one to none."""
        gradient, self.gradient_variable = self.gradient_variable, None
        if gradient is not None and gradient.kind == VarKind.SELECTED_ROWS:
            self.had_gradient = False


class _ValueTensor(LoDTensor):
    """The value of a variable as a native tensor."""

    def __init__(self, variable: VarBase) -> None:
        super().__init__(variable.array())
        self._variable = variable

    def set(self, array: object, place: Place) -> None:
        """Set the value of the variable, see `VarBase.set_value`."""
        self._variable.set_value(array)
        self.adopt(self._variable.array())


class ParamBase(VarBase, Parameter):
    """A parameter: its array is state that optimizers update in place."""

    _persistable = True
    is_parameter = True
    regularizer: Regularizer | None = None
    do_model_average: bool | None = None
    gradient_clip_attr: object = None
    is_distributed = False

    def __init__(  # pyright: ignore[reportMissingSuperCall] - a fraction of the cost
        self,
        shape: Sequence[int],
        dtype: DTypeLike,
        *,
        name: str | None = None,
        trainable: bool = True,
        optimize_attr: Mapping[str, float | Variable] | None = None,
        regularizer: Regularizer | None = None,
        do_model_average: bool | None = None,
        **kwargs: object,
    ) -> None:
        """Make a parameter that has no value before `set_value`; other keywords have no effect."""
        name = unique_name.generate("_param_base") if name is None else name
        element = DType.of(convert_np_dtype_to_dtype_(dtype))
        check_parameter(name, shape, dtype)
        sizes = tuple([int(size) for size in shape])
        block = default_main_program().current_block()
        self._set_up(block, name, element, sizes, not trainable, new_state_name(name))
        self.trainable = trainable
        self.optimize_attr: dict[str, float | Variable] = {
            "learning_rate": 1.0,
            **(optimize_attr or {}),
        }
        self.regularizer, self.do_model_average = regularizer, do_model_average


# ---- gradients


def backward(loss: VarBase, retain_graph: bool = False) -> None:
    """Record the gradients of a loss; returns without computing anything.

    Leaves get a new gradient, and so does every other variable on the way that is referred to. That
    of a variable that was written between its uses is the sum of theirs.
    """
    steps = steps_to([loss])
    reached = reached_nodes([loss], steps)
    wanted = {id(loss.node): (loss.node, loss)}
    for step in steps:
        for node in (*step.inputs, *step.outputs):
            var = node.handle()
            if id(node) in reached and isinstance(var, VarBase) and _gets_gradient(var):
                wanted[id(node)] = node, var
    nodes = [node for node, _ in wanted.values()]
    variables = [var for _, var in wanted.values()]
    gradients = [gradient_of(var) for var in variables]
    sparse = _sparse_nodes(steps, reached)
    for (node, _), gradient in zip(wanted.values(), gradients, strict=True):
        if id(node) in sparse:
            gradient.kind = VarKind.SELECTED_ROWS
    request = GradRequest([(loss.node, None)], steps, nodes, [g.node for g in gradients])
    with traces.LOCK:
        traces.current().request(request)
    if len(set(map(id, variables))) < len(variables):
        variables, gradients = _summed(variables, gradients)
    for var, gradient in zip(variables, gradients, strict=True):
        var.gradient_variable, var.had_gradient = gradient, True
    if not retain_graph:
        release([loss], steps)


def _sparse_nodes(steps: Sequence[TraceRecord], reached: set[int]) -> set[int]:
    """Return the ids of the nodes whose gradient is sparse: that of every op that reads them is."""
    tables = [(step, _tables(step)) for step in steps]
    if not any(indices for _, indices in tables):
        return set()
    sparse, dense = set[int](), set[int]()
    for step, indices in tables:
        if any(id(node) in reached for node in step.outputs):
            for index, node in enumerate(step.inputs):
                (sparse if index in indices else dense).add(id(node))
    return sparse - dense


def _tables(step: TraceRecord) -> frozenset[int]:
    """The inputs of an op whose gradient is sparse."""
    return step.what.sparse if isinstance(step.what, Signature) else frozenset()


def release(targets: Sequence[VarBase], steps: Sequence[TraceRecord]) -> None:
    """Release the graph of variables."""
    for target in targets:
        target.record = None
    for step in steps:
        step.release()


def _summed(
    variables: Sequence[VarBase], gradients: Sequence[VarBase]
) -> tuple[list[VarBase], list[VarBase]]:
    """Return each variable once, with the sum of its gradients."""
    distinct = list({id(var): var for var in variables}.values())
    totals: list[VarBase] = []
    for var in distinct:
        pairs = zip(variables, gradients, strict=True)
        parts = [gradient for other, gradient in pairs if other is var]
        total = parts[0]
        if len(parts) > 1:
            total = var.append("sum", {"X": parts}, gradient_of(var), {})
        totals.append(total)
    return distinct, totals


def _gets_gradient(var: VarBase) -> bool:
    return not var.stop_gradient and var.element.is_float


def gradient_of(var: VarBase) -> VarBase:
    """Return a new variable for the gradient of another one."""
    return VarBase.of(var.block, grad_var_name(var.name), var.element, var.dims, True)


def steps_to(targets: Sequence[VarBase]) -> list[TraceRecord]:
    """Return the records that lead to variables, in the order of their calls.

    Raises RuntimeError if one of them was released by an earlier `backward`.
    """
    waiting = [target.record for target in targets if target.record is not None]
    found: dict[int, TraceRecord] = {}
    while waiting:
        record = waiting.pop()
        if id(record) in found:
            continue
        if record.what is None:
            raise RuntimeError(
                "Trying to backward twice for the same subgraph without setting retain_graph=True: "
                "part of it was released by an earlier backward(). Set retain_graph=True in the "
                "first backward call, or use detach()"
            )
        found[id(record)] = record
        waiting.extend(record.producers)
    return sorted(found.values(), key=attrgetter("order"))


def reached_nodes(targets: Sequence[VarBase], steps: Sequence[TraceRecord]) -> set[int]:
    """Return the ids of the nodes that get a gradient."""
    reached = {id(target.node) for target in targets}
    for step in reversed(steps):
        if any(id(node) in reached for node in step.outputs):
            what = step.what
            passing = what.passing if isinstance(what, Signature) else None
            for index, node in enumerate(step.inputs):
                if passing is None or index in passing:
                    reached.add(id(node))
    return reached
