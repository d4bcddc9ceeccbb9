"""Code for ops that read or write a value with data-dependent sizes.

Such values have no planned memory: the op's reference implementation runs on the arrays as they
are, and its results become the values.
"""

from __future__ import annotations

from typing import Any, cast

import numpy as np

from compiler.codegen.module_writer import ModuleWriter, shape_text
from compiler.codegen.reference_calls import attributes_name, pick, reference_body, result_key
from compiler.ir.opdef import GradOp, Pointwise, parameters, slot_of
from compiler.ir.program import GRAD
from compiler.ir.types import DType, Shape
from compiler.plan import PlannedOp, PlannedValue
from compiler.support.free_memory import expect_memory


def owned(item: Any, inputs: Any) -> Any:
    """Return a result that owns its memory: views and returned inputs are copied."""
    if item is None:
        return None
    if hasattr(item, "append"):
        return [owned(entry, inputs) for entry in item]
    item = np.asarray(item)
    shared = item.base is not None
    for x in inputs:
        shared = shared or item is x
    if not shared:
        return item
    expect_memory(item.shape, item.itemsize)
    return item.copy()


def owned_items(items: Any, inputs: Any, arrays: Any) -> Any:
    """Return a tensor array whose items own their memory, as those of the input `arrays` do."""
    known = {id(None)}.union(*(map(id, array) for array in arrays))
    result, ids = list(items), list(map(id, items))
    for new in set(ids) - known:
        position = -1
        for _ in range(ids.count(new)):
            position = ids.index(new, position + 1)
            result[position] = owned(items[position], inputs)
    return result


def fitted(item: Any, dtype: str, shape: Any, view: Any) -> Any:
    """Fit a pointwise result to its type: sum over broadcast axes, or broadcast it."""
    item = np.asarray(item)
    if item.shape != view:
        padded = (1,) * (item.ndim - len(view)) + view
        pairs = enumerate(zip(item.shape, padded, strict=True))
        axes = tuple(axis for axis, (size, want) in pairs if want == 1 and size != 1)
        if axes:
            item = item.sum(axis=axes, keepdims=True)
    if item.shape != shape:
        fits = item.size == np.prod(shape, dtype=int)
        item = item.reshape(shape) if fits else np.broadcast_to(item, shape)
    return item.astype(dtype, copy=False)


def broadcast_shape(first: Any, *others: Any) -> Any:
    """Return the shape that shapes broadcast to."""
    for other in others:
        if other != first:
            return np.broadcast_shapes(first, *others)
    return first


def emit_dynamic(writer: ModuleWriter, op: PlannedOp) -> None:
    """Lower an op to a call of its reference; results of known size are copied to their memory."""
    emitter = (
        _Pointwise(writer, op) if isinstance(op.defn, Pointwise) else _ReferenceCall(writer, op)
    )
    emitter.emit()


def _is_bfloat16(value: PlannedValue) -> bool:
    return value.type.dtype is DType.BF16 and not value.type.is_array


class _ReferenceCall:
    """Emits a call of an op's `numpy`, or of its `grad`."""

    def __init__(self, writer: ModuleWriter, op: PlannedOp) -> None:
        self.writer = writer
        self.op = op
        self.owner, self.body = reference_body(op.defn)

    def emit(self) -> None:
        """Write the call, then the assignment of each output."""
        writer, op = self.writer, self.op
        function = writer.function(getattr(type(self.owner), self.body), f"{op.kind}_reference")
        names = parameters(type(self.owner), self.body)
        arguments = [f"{name}={self.argument(slot_of(name), kind)}" for name, kind in names]
        first = attributes_name(writer, op.kind, self.owner)
        writer.line(f"result = {function}({', '.join([first, *arguments])})")
        for slot, values in op.outputs.items():
            for index, value in enumerate(values):
                self.store(value, self.item(slot, index))

    def argument(self, slot: str, annotation: str) -> str:
        """The argument for a slot: an array, a shape, a list of them, or None."""
        if slot == "xp":
            return "np"
        values = self.op.inputs.get(slot)
        if not values:
            return "None"
        items = [self.text(slot, i, value, "Shape" in annotation) for i, value in enumerate(values)]
        return f"[{', '.join(items)}]" if self.op.defn.slots[slot].many else items[0]

    def text(self, slot: str, index: int, value: PlannedValue, shape: bool) -> str:
        """One value, or its shape, as source text."""
        if shape:
            return (
                f"{self.name(value)}.shape" if value.type.is_open else shape_text(value.type.shape)
            )
        return self.computable(value)

    def name(self, value: PlannedValue) -> str:
        """The Python name of a value."""
        return self.writer.operand(value).name

    def computable(self, value: PlannedValue) -> str:
        """The array to compute with: upcast to float32 for bfloat16."""
        name = self.name(value)
        return f"{name}.astype(np.float32)" if _is_bfloat16(value) else name

    def item(self, slot: str, index: int) -> str:
        """Select one output of the call's result."""
        picked = f"{self.writer.function(pick)}(result, {result_key(self.op.defn, slot)!r})"
        return f"{picked}[{index}]" if self.op.defn.slots[slot].many else picked

    def store(self, value: PlannedValue, item: str) -> None:
        """Bind a result to the value's name, or copy it into the value's memory."""
        operand = self.writer.operand(value)
        if _is_bfloat16(value):
            item = f"{item}.astype({DType.BF16.numpy.name!r})"
        if value.type.is_array:
            both = f"[{self.arrays()}], [{self.tensor_arrays()}]"
            self.writer.line(f"{operand} = {self.writer.function(owned_items)}({item}, {both})")
        elif value.type.is_open:
            self.writer.line(
                f"{operand} = {self.writer.function(owned)}({item}, [{self.arrays()}])"
            )
        else:
            shape = shape_text(operand.shape)
            self.writer.line(f"np.copyto({operand}, np.reshape({item}, {shape}))")

    def arrays(self) -> str:
        """Names of the tensors the op reads."""
        values = dict.fromkeys(
            value
            for slot, values in self.op.inputs.items()
            for value in values
            if not value.type.is_array
            and (value.type.is_open or not self.op.defn.slots[slot].shape_only)
        )
        return ", ".join(map(self.name, values))

    def tensor_arrays(self) -> str:
        """Names of the tensor arrays the op reads."""
        values = (value for values in self.op.inputs.values() for value in values)
        return ", ".join(dict.fromkeys(self.name(v) for v in values if v.type.is_array))


class _Pointwise(_ReferenceCall):
    """Emits a call of an op's `compute`, or of its `grad`, on arrays reshaped to aligned shapes."""

    def __init__(self, writer: ModuleWriter, op: PlannedOp) -> None:
        super().__init__(writer, op)
        self.defn = cast(Pointwise, op.defn)
        self.body = "grad" if isinstance(op.defn, GradOp) else "compute"
        self.types = self.defn.types_of(op.inputs)
        self.views = self.defn.views(self.types)

    def text(self, slot: str, index: int, value: PlannedValue, shape: bool) -> str:
        """One value in its aligned shape, or that shape, as source text."""
        view = self.view(slot, index, value)
        if shape:
            return view
        aligned = self.views.get(slot) or self.views.get(f"{slot}.{index}") or value.type.shape
        same = tuple(aligned) == value.type.shape
        array = self.computable(value)
        return array if same else f"{array}.reshape({view})"

    def view(self, slot: str, index: int, value: PlannedValue) -> str:
        """The aligned shape of a value as source text."""
        aligned = self.views.get(slot) or self.views.get(f"{slot}.{index}") or value.type.shape
        return _shape(aligned, value, self.name(value) if value.type.is_open else "")

    def store(self, value: PlannedValue, item: str) -> None:
        """Convert the result to the value's type, then store it."""
        slot = next(slot for slot, values in self.op.outputs.items() if value in values)
        shape, view = self.result_shape(slot)
        fit = self.writer.function(fitted)
        super().store(value, f"{fit}({item}, {value.type.dtype.numpy.name!r}, {shape}, {view})")

    def result_shape(self, slot: str) -> tuple[str, str]:
        """The shape of an output, and its aligned view."""
        like = self.op.defn.slots[slot].inplace or slot.removesuffix(GRAD)
        if like in self.op.inputs:
            value = self.op.inputs[like][0]
            return self._own_shape(value), self.view(like, 0, value)
        if isinstance(self.defn, GradOp):
            first = next(s for s in self.defn.inputs() if s.endswith(GRAD) and s in self.op.inputs)
            shape = self._own_shape(self.op.inputs[first][0])
            return shape, shape
        values = [(slot, i, v) for slot, vs in self.op.inputs.items() for i, v in enumerate(vs)]
        shapes = list(dict.fromkeys(self.view(*operand) for operand in values))
        shape = shapes[0]
        if len(shapes) > 1:
            shape = f"{self.writer.function(broadcast_shape)}({', '.join(shapes)})"
        return shape, shape

    def _own_shape(self, value: PlannedValue) -> str:
        return _shape(value.type.shape, value, self.name(value) if value.type.is_open else "")


def _shape(aligned: Shape, value: PlannedValue, name: str) -> str:
    """Format a shape; unknown sizes are read from the array, axis by axis."""
    open_axes = (axis for axis, size in enumerate(value.type.shape) if str(size) == "?")
    sizes = [f"{name}.shape[{next(open_axes)}]" if str(n) == "?" else str(n) for n in aligned]
    return f"({', '.join(sizes)}{',' if len(sizes) == 1 else ''})"
