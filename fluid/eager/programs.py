"""The program and the block to which layers append in eager mode."""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from itertools import count, islice
from math import prod
from threading import local
from typing import Any, NoReturn, Unpack, cast
from weakref import WeakValueDictionary

import numpy as np

from compiler.ir.opdef.type_inference import bind
from compiler.ir.program import NO_BLOCK, OpRole, VarKind
from compiler.ir.types import Array, DType
from fluid import unique_name
from fluid.eager import traces
from fluid.eager.nodes import SCOPE, TraceNode, TraceRecord, new_state_name
from fluid.eager.signatures import Signature, infer
from fluid.eager.sources import Source, user_source
from fluid.eager.variables import ParamBase, VarBase
from fluid.framework import Program
from fluid.recording.annotations import Attributes, DTypeLike, Slots
from fluid.recording.block import Block, BlockProgram, Fill
from fluid.recording.op_records import plain_values
from fluid.recording.operator import Operator
from fluid.recording.variable import (
    ParameterFields,
    Variable,
    VariableFields,
    VarType,
    check_parameter,
    convert_np_dtype_to_dtype_,
)
from runtime.device import CPUPlace

__all__ = ["EagerBlock", "EagerProgram", "KnownOp", "constant", "gradients_disabled", "next_order"]

MAX_SIGNATURES = 1 << 16
"""Maximum number of cached signatures; past it all are dropped."""

_signatures: dict[tuple[object, ...], Signature] = {}
_elements: dict[object, DType] = {}
_orders = count()
_scales: dict[Source, tuple[float, float] | None] = {}
"""The numbers of the scale at a line of a script; None once they have changed."""

VALUES = {"assign_value", "fill_constant", "scale"}
"""Ops whose attributes are values that scripts change in each step."""


class _Threads(local):
    """What differs between threads."""

    without_gradients = False
    newest: VarBase | None = None
    """The parameter that was created last."""


_threads = _Threads()


@contextmanager
def gradients_disabled() -> Generator[None]:
    """Within the context, eager programs do not train in this thread."""
    before, _threads.without_gradients = _threads.without_gradients, True
    try:
        yield
    finally:
        _threads.without_gradients = before


class KnownOp:
    """An op that is recorded in every step, on variables of the same types.

    Its `inputs` are those that stay the same; its signature is found at its first use.
    """

    def __init__(
        self, op_type: str, inputs: Mapping[str, Variable], outputs: Mapping[str, Variable]
    ) -> None:
        self.type = op_type
        self.inputs = inputs
        self.outputs = outputs
        self.attrs: Attributes = {}
        self.signature: Signature | None = None


class EagerProgram(Program):
    """The default program of eager mode: ops that are appended are recorded in the trace."""

    is_eager = True
    follows_layers = True
    tracer: object = None
    """The tracer that scripts ask for, made when one does."""
    _trains = True

    @property
    def trains(self) -> bool:  # pyright: ignore[reportIncompatibleVariableOverride] - watched
        """Whether ops get gradients and dropout is applied, see `Program.trains`."""
        return self._trains and not _threads.without_gradients

    @trains.setter
    def trains(self, value: bool) -> None:
        if not _threads.without_gradients:  # otherwise it ends with that context
            self._trains = value

    def make_block(self, idx: int, parent_idx: int) -> EagerBlock:
        """Create the only block."""
        return EagerBlock(self, idx, parent_idx)

    def create_block(self, parent_idx: int | None = None) -> NoReturn:
        """Raise RuntimeError: control flow is Python's own in eager mode."""
        raise RuntimeError(
            "While, Switch, IfElse, StaticRNN and DynamicRNN record blocks of a program, which "
            "there are none of under dygraph.guard(): write the loop or branch in Python"
        )

    @property
    def role(self) -> OpRole:
        """The role of the next op."""
        return self._op_role

    def fresh_seed(self) -> int:
        """Return the program's seed, the same for every op, as the reference does."""
        return self._seed

    def touch(self) -> None:
        """Do nothing: the program itself is never compiled."""
        self.version = 0


class EagerBlock(Block):
    """The block of an `EagerProgram`; it holds no ops, and refers weakly to its variables."""

    def __init__(self, program: BlockProgram, idx: int, parent_idx: int = NO_BLOCK) -> None:
        super().__init__(program, idx, parent_idx)
        self.vars = cast(Any, WeakValueDictionary[str, VarBase]())
        self.eager_program = cast(EagerProgram, program)

    # ---- variables

    def create_var(
        self, initializer: Fill | None = None, **fields: Unpack[VariableFields]
    ) -> VarBase:
        """Create a variable; one that is persistable and has a shape is state.

        A live variable of the same name is returned instead if it gets an initializer.
        """
        name = fields.get("name") or unique_name.generate("_generated_var")
        if initializer is not None:
            existing = self.vars.get(name)
            if isinstance(existing, VarBase):
                initializer(existing, self)
                return existing
        element = _element(fields.get("dtype"))
        shape = fields.get("shape")
        dims = None if shape is None else tuple([int(size) for size in shape])
        is_state = bool(fields.get("persistable")) and dims is not None
        var = VarBase.of(
            self, name, element, dims, fields.get("stop_gradient", False),
            new_state_name(name) if is_state else "",
        )  # fmt: skip
        if dims is not None:
            self.vars[name] = var
        if is_state:
            var.persistable = True
            if initializer is not None:
                initializer(var, self)
        return var

    def create_temporary(
        self, key: str, dtype: DTypeLike, *, stop_gradient: bool = False
    ) -> VarBase:
        """Create a variable for the output of an op."""
        var = VarBase.of(self, None, _element(dtype), None, stop_gradient)
        var.name_key = key
        return var

    def create_parameter(
        self, initializer: Fill | None = None, **fields: Unpack[ParameterFields]
    ) -> ParamBase:
        """Create and initialize a parameter; without initializer, the one just created is returned.

        Raises ValueError as a `Parameter` does, for sizes below 1, and for a name of another one.
        """
        newest = _threads.newest
        name = fields.get("name") or unique_name.generate("_eager_parameter")
        is_newest = newest is not None and newest.name == name and newest.block is self
        if initializer is None and isinstance(newest, ParamBase) and is_newest:
            _threads.newest = None
            return newest
        shape = fields["shape"]
        check_parameter(name, shape, fields["dtype"])
        names = unique_name.generator.parameters
        if name in names:
            raise ValueError(
                f"parameter name [{name}] have be been used. In dygraph mode, the name of "
                "parameter can't be same. Please check the parameter attr value passed to "
                "self.create_parameter or constructor of dygraph Layers"
            )
        names.add(name)
        param = ParamBase(
            shape, fields["dtype"], name=name, trainable=fields.get("trainable", True),
            optimize_attr=fields.get("optimize_attr"), regularizer=fields.get("regularizer"),
            do_model_average=fields.get("do_model_average"),
        )  # fmt: skip
        param.block = self
        self.vars[name] = _threads.newest = param
        if initializer is not None:
            initializer(param, self)
        return param

    # ---- ops

    def append_op(
        self,
        type: str | None = None,
        inputs: Slots | None = None,
        outputs: Slots | None = None,
        attrs: Attributes | None = None,
        stop_gradient: bool = False,
    ) -> Operator:
        """Record an op; slots as in a `Block`. Raises what appending it to a program raises."""
        assert type is not None, "`type` of an Operator can not be None"
        with traces.LOCK:
            trace = traces.current()
            if trace.must_run():
                trace.run()
                trace = traces.current()
            if type in VALUES and self._is_constant(type, inputs, outputs, attrs or {}):
                return cast(Operator, None)
            signature, ins, outs = self._signature(type, inputs, outputs, attrs)
            if not ins and _initializes(outs):
                _initialize(signature, outs[0])
            else:
                self._record(trace, signature, ins, outs)
        return cast(Operator, None)  # nothing refers to recorded ops

    def append_known(
        self, known: KnownOp, inputs: Mapping[str, Variable], attrs: Attributes
    ) -> None:
        """Record an op as `append_op`, with the signature of its last use if attributes are equal.

        `inputs` have the same slots and types as then.
        """
        with traces.LOCK:
            trace = traces.current()
            signature = known.signature
            if signature is None or attrs != known.attrs or trace.must_run():
                key_of = self._signature(known.type, inputs, known.outputs, attrs)
                known.signature, known.attrs = key_of[0], attrs
                self.append_op(known.type, inputs, known.outputs, attrs)
                return
            ins = cast("list[VarBase]", list(inputs.values()))
            outs = cast("list[VarBase]", list(known.outputs.values()))
            self._record(trace, signature, ins, outs)

    def _signature(
        self, op_type: str, inputs: Slots | None, outputs: Slots | None, attrs: Attributes | None
    ) -> tuple[Signature, list[VarBase], list[VarBase]]:
        """Return the signature of an op, and the variables that it reads and writes."""
        parts: list[object] = [op_type, self.eager_program.role]
        ins = self._read(op_type, inputs, parts)
        outs = self._written(op_type, outputs, ins, parts)
        _freeze(attrs, parts)
        key = tuple(parts)
        signature = _signatures.get(key)
        if signature is None:
            if len(_signatures) >= MAX_SIGNATURES:
                _signatures.clear()
            read, written = self._by_slot(inputs, ins), self._by_slot(outputs, outs)
            signature = _signatures[key] = infer(Program(), op_type, read, written, attrs)
        return signature, ins, outs

    def insert_op(
        self,
        index: int,
        type: str | None = None,
        inputs: Slots | None = None,
        outputs: Slots | None = None,
        attrs: Attributes | None = None,
    ) -> Operator:
        """Record an op, see `append_op`: the index has no effect."""
        return self.append_op(type, inputs, outputs, attrs)

    def prepend_op(
        self,
        type: str | None = None,
        inputs: Slots | None = None,
        outputs: Slots | None = None,
        attrs: Attributes | None = None,
        stop_gradient: bool = False,
    ) -> Operator:
        """Record an op, see `append_op`."""
        return self.append_op(type, inputs, outputs, attrs)

    def _read(self, op_type: str, slots: Slots | None, parts: list[object]) -> list[VarBase]:
        """Return the variables of the input slots; adds what a signature depends on to `parts`."""
        variables: list[VarBase] = []
        for slot, value in slots.items() if slots else ():
            if isinstance(value, VarBase):
                variables.append(value)
                parts += (slot, value.dims, value.element)
            elif value is not None:
                parts.append(slot)
                for item in value if isinstance(value, list | tuple) else (value,):
                    var = item if isinstance(item, VarBase) else self._variable(op_type, slot, item)
                    variables.append(var)
                    parts += (var.dims, var.element)
        return variables

    def _written(
        self, op_type: str, slots: Slots | None, ins: Sequence[VarBase], parts: list[object]
    ) -> list[VarBase]:
        """Return the variables of the output slots; adds what a signature depends on to `parts`.

        That is which of them is an input too, and whether it gets no gradient.
        """
        variables: list[VarBase] = []
        parts.append(None)
        for slot, value in slots.items() if slots else ():
            if isinstance(value, VarBase) and value.dims is None:
                variables.append(value)
                parts += (slot, value.element, value.stops)
            elif value is not None:
                parts.append(slot)
                for item in value if isinstance(value, list | tuple) else (value,):
                    var = item if isinstance(item, VarBase) else self._variable(op_type, slot, item)
                    variables.append(var)
                    parts += (var.element, var.stops)
                    if var.dims is not None:
                        parts += (var.dims, _index(ins, var))
        return variables

    def _is_constant(
        self, op_type: str, inputs: Slots | None, outputs: Slots | None, attrs: Attributes
    ) -> bool:
        """Whether an op's output has been set at once: a value is no part of a known trace.

        Otherwise each value of `fill_constant`, and each factor of a line of the script after the
        first, would make another trace.
        """
        if op_type == "scale":
            return self._is_scaled(inputs, outputs, attrs)
        if inputs or not outputs or (op_type == "fill_constant" and not _is_one(attrs)):
            return False
        var = outputs["Out"]
        var = var[0] if isinstance(var, list | tuple) else var
        if not isinstance(var, VarBase) or var.node.state_name:
            return False
        slot = {"Out": [var.name]}
        op = Operator(self, op_type, {}, slot, plain_values(attrs))
        array = np.asarray(bind(op).evaluate({})["Out"])
        if var.node.array is not None or var.node.trace is not None:
            var.renew()
        var.dims, var.element, var.stops = array.shape, _element(array.dtype), True
        var.node.array = array
        return True

    def _is_scaled(self, inputs: Slots | None, outputs: Slots | None, attrs: Attributes) -> bool:
        """Whether a scale by other numbers than before was recorded as arithmetic on variables."""
        scale, shift = attrs.get("scale", 1.0), attrs.get("bias", 0.0)
        numbers = float(cast(float, scale)), float(cast(float, shift))
        line = user_source(3)
        known = _scales.setdefault(line, numbers)
        if known == numbers or not inputs or "ScaleTensor" in inputs or not outputs:
            return False
        _scales[line] = None
        x = inputs["X"]
        x = x[0] if isinstance(x, list | tuple) else x
        after = attrs.get("bias_after_scale", True)
        if not isinstance(x, VarBase) or not after or not x.element.is_float:
            return False
        factor, bias = [constant(self, np.full([1], n, x.element.numpy)) for n in numbers]
        product = outputs["Out"] if numbers[1] == 0.0 else x.temporary(x.dtype)
        ends = {"axis": -1}
        self.append_op("elementwise_mul", {"X": x, "Y": factor}, {"Out": product}, ends)
        if numbers[1] != 0.0:
            self.append_op("elementwise_add", {"X": product, "Y": bias}, outputs, ends)
        return True

    def _by_slot(
        self, slots: Slots | None, variables: Sequence[VarBase]
    ) -> list[tuple[str, list[VarBase]]]:
        """Divide variables, those of all slots, among the slots."""
        divided: list[tuple[str, list[VarBase]]] = []
        waiting = iter(variables)
        for slot, value in (slots or {}).items():
            if value is not None:
                size = len(value) if isinstance(value, list | tuple) else 1
                divided.append((slot, list(islice(waiting, size))))
        return divided

    def _variable(self, op_type: str, slot: str, item: object) -> VarBase:
        """Return the variable of a name; an array becomes a constant."""
        if isinstance(item, np.ndarray):
            return constant(self, item)
        var = self.vars.get(item) if isinstance(item, str) else None
        if not isinstance(var, VarBase):
            what = repr(item) if isinstance(item, str) else type(item).__name__
            if isinstance(item, Variable):
                what = f"{item.name!r}, a variable of a program without a value"
            raise TypeError(
                f"{op_type}: slot {slot} takes variables of dygraph, but received {what:.120}: "
                "fluid.dygraph.to_variable(array) makes one"
            )
        return var

    def _record(
        self,
        trace: traces.Trace,
        signature: Signature,
        ins: list[VarBase],
        outs: list[VarBase],
    ) -> None:
        in_nodes = [var.node for var in ins]
        inputs = tuple([
            node.number
            if node.trace is trace and node.stops_gradient is var.stops
            else trace.use(node, var.stops)
            for var, node in zip(ins, in_nodes, strict=True)
        ])  # fmt: skip
        needs_gradient = self.eager_program.trains and _need_gradient(signature, ins)
        numbers: list[int] = []
        for var, output in zip(outs, signature.types, strict=True):
            if not var.node.state_name:
                var.becomes(output.dims, output.element, needs_gradient)
            numbers.append(trace.compute(var.node, var.stops))
            if signature.writes_rows:
                var.kind = VarKind.SELECTED_ROWS
        stops = tuple([var.stops for var in outs])
        source = user_source(2)
        position = trace.record(signature, inputs, tuple(numbers), stops, source)
        if needs_gradient:
            record = _recorded(signature, ins, in_nodes, outs, source)
            record.trace, record.position = trace, position
        if signature.is_dynamic:
            trace.run()
            for var in outs:
                if var.node.array is not None:
                    var.dims = var.node.array.shape


def _index(variables: Sequence[VarBase], var: VarBase) -> int:
    """Return the index of a variable, -1 if it is not there; `==` records an op."""
    for index, other in enumerate(variables):
        if other is var:
            return index
    return -1


def _need_gradient(signature: Signature, ins: Sequence[VarBase]) -> bool:
    """Whether an input of an op gets a gradient."""
    return False in [ins[index].stops for index in signature.passing]


def _recorded(
    signature: Signature,
    ins: Sequence[VarBase],
    in_nodes: Sequence[TraceNode],
    outs: Sequence[VarBase],
    source: Source,
) -> TraceRecord:
    """Return the record of an op that gets a gradient; its outputs refer to it."""
    out_nodes = [var.node for var in outs]
    for index in signature.saved_inputs:
        in_nodes[index].is_saved = True
    for index in signature.saved_outputs:
        out_nodes[index].is_saved = True
    inputs = [ins[index] for index in signature.passing]
    producers = [var.record for var in inputs if var.record is not None and not var.stops]
    record = TraceRecord(signature, in_nodes, out_nodes, producers, next(_orders), source)
    for var, node in zip(outs, out_nodes, strict=True):
        if not var.stops and not node.state_name:
            var.record = record
    return record


def next_order() -> int:
    """Return a number that is greater than those of all earlier records."""
    return next(_orders)


def constant(block: EagerBlock, array: Any, name: str | None = None) -> VarBase:
    """Return a variable with a copy of an array as its value, which gets no gradient."""
    copied = np.array(array, order="C")
    name = unique_name.generate("generated_var") if name is None else name
    var = VarBase.of(block, name, _element(copied.dtype), copied.shape, True)
    var.node.array = copied
    return var


def _is_one(attrs: Attributes) -> bool:
    """Whether a shape has one element."""
    return prod(cast("Sequence[int]", attrs["shape"])) == 1


def _element(dtype: DTypeLike | None) -> DType:
    try:
        return _elements[dtype]
    except (KeyError, TypeError):
        chosen = VarType.FP32 if dtype is None else dtype
        element = DType.of(convert_np_dtype_to_dtype_(chosen))
    _elements[dtype] = element
    return element


def _freeze(attrs: Attributes | None, parts: list[object]) -> None:
    """Add the names and values of attributes to `parts` in a form that can be a key."""
    parts.append(None)
    for name, value in attrs.items() if attrs else ():
        if value.__class__ is int or value.__class__ is bool:
            parts += (name, value)
        elif value is not None:
            parts += (name, _hashable(value))


def _hashable(value: Any) -> object:
    kind = value.__class__
    if kind is list or kind is tuple:
        return tuple([_hashable(item) for item in value])
    if kind is float:
        return repr(value) if value != value or value == 0.0 else value
    if isinstance(value, np.ndarray):
        array = cast(Array, value)
        return array.tobytes(), array.shape
    return value


def _initializes(outs: Sequence[VarBase]) -> bool:
    """Whether an op without inputs fills a state variable."""
    return len(outs) == 1 and bool(outs[0].node.state_name)


def _initialize(signature: Signature, var: VarBase) -> None:
    """Run an initializer's op at once, in NumPy."""
    slot, _ = signature.outputs[0]
    op = Operator(var.block, signature.type, {}, {slot: [var.name]}, signature.attrs)
    value: Any = bind(op).evaluate({})[slot]
    array = np.asarray(value, dtype=var.element.numpy)
    SCOPE.var(var.node.state_name).get_tensor().set(array, CPUPlace())
