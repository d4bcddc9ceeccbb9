"""Stack, unstack and unbind: tensors joined along a new axis, and split along one."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from compiler.errors import ShapeError
from compiler.ir.opdef import OpDef, Slots, attr, reads, required, writes
from compiler.ir.opdef.kernel_builder import KernelBuilder, KernelSlots
from compiler.ir.program import OpDesc
from compiler.ir.types import Array, Shape, TensorType
from compiler.ops.math.axes import normalize_axis
from compiler.ops.shape.concat import common_shape
from compiler.ops.shape.concat_kernels import concat_parts, split_parts
from compiler.ops.shared_kernels import with_axis
from compiler.ops.type_checks import differ, expect_few_outputs


def stacked(types: Sequence[TensorType], axis: int, op: str) -> TensorType:
    """Return the type of tensors of equal shape stacked along a new axis."""
    sizes = common_shape(op, types)
    sizes.insert(normalize_axis(op, axis, len(sizes) + 1), len(types))
    return types[0].with_shape(sizes)


def unstacked(type: TensorType, axis: int, op: str) -> TensorType:
    """Return the type with one axis removed."""
    removed = normalize_axis(op, axis, type.rank)
    return type.with_shape([size for a, size in enumerate(type.shape) if a != removed])


def slices_along(X: Array, axis: int, count: int) -> list[Array]:
    """Return the slices along an axis; raise ValueError unless there are `count`."""
    if X.shape[axis] != count:
        raise ValueError(f"an axis of size {X.shape[axis]} is not {count}")
    return list(np.moveaxis(X, axis, 0))


class Stack(OpDef, op="stack"):
    """Y = the tensors of X, of equal shapes, stacked along a new axis. Reference: stack_op.cc."""

    is_cheap = True

    X = reads(many=True)
    Y = writes()
    axis = attr(0)

    def infer(self, s: Slots[TensorType]) -> TensorType:
        return stacked(s.all("X"), self.axis, self.kind)

    def numpy(self, X: list[Array]) -> Array:
        return np.stack(X, axis=self.axis)

    def grad(self, X: list[Shape], d_Y: Array) -> dict[str, list[Array]]:
        return {"X": slices_along(d_Y, self.axis, len(X))}

    def kernel(self, k: KernelBuilder, s: KernelSlots) -> None:
        axis = self.axis % s.Y.type.rank
        concat_parts(k, [with_axis(operand, axis) for operand in s.all("X")], s.Y, axis)

    def kernel_grad(self, k: KernelBuilder, s: KernelSlots) -> None:
        axis = self.axis % s.d_Y.type.rank
        split_parts(k, s.d_Y, [with_axis(operand, axis) for operand in s.all("d_X")], axis)


class Unstack(OpDef, op="unstack"):
    """Y = the `num` slices of X along an axis, which is removed. Reference: unstack_op.cc."""

    lod_source = ""

    X = reads()
    Y = writes(many=True)
    axis = required(int)
    num = required(int)

    def infer(self, s: Slots[TensorType]) -> dict[str, list[TensorType]]:
        X = s.X
        tensor_type = unstacked(X, self.axis, self.kind)
        expect_few_outputs(self.kind, self.num)
        if differ(X.shape[self.axis], self.num):
            size = X.shape[self.axis]
            raise ShapeError(f"unstack: 'num' is {self.num}, but that axis of X {X} has {size}")
        return {"Y": [tensor_type] * self.num}

    def numpy(self, X: Array) -> dict[str, list[Array]]:
        return {"Y": slices_along(X, self.axis, self.num)}

    def infer_grad(self, s: Slots[TensorType]) -> dict[str, TensorType]:
        return {"X": stacked(s.all("d_Y"), self.axis, self.kind)}

    def grad(self, d_Y: list[Array]) -> dict[str, Array]:
        return {"X": np.stack(d_Y, axis=self.axis)}

    def kernel(self, k: KernelBuilder, s: KernelSlots) -> None:
        axis = self.axis % s.X.type.rank
        split_parts(k, s.X, [with_axis(operand, axis) for operand in s.all("Y")], axis)

    def kernel_grad(self, k: KernelBuilder, s: KernelSlots) -> None:
        axis = self.axis % s.d_X.type.rank
        concat_parts(k, [with_axis(operand, axis) for operand in s.all("d_Y")], s.d_X, axis)


class Unbind(OpDef, op="unbind"):
    """Out = the slices of X along an axis, whose size is known.

    Reference: unbind_op.cc.
    """

    X = reads()
    Out = writes(many=True)
    axis = attr(0)

    def infer(self, s: Slots[TensorType]) -> dict[str, list[TensorType]]:
        X = s.X
        tensor_type = unstacked(X, self.axis, self.kind)
        count = X.shape[self.axis]
        if not isinstance(count, int):
            raise ShapeError(f"unbind: X is {X}, expected a known size at axis {self.axis}")
        expect_few_outputs(self.kind, count)
        return {"Out": [tensor_type] * count}

    def numpy(self, X: Array) -> dict[str, list[Array]]:
        return {"Out": slices_along(X, self.axis, X.shape[self.axis])}

    def kernel(self, k: KernelBuilder, s: KernelSlots) -> None:
        axis = self.axis % s.X.type.rank
        split_parts(k, s.X, [with_axis(operand, axis) for operand in s.all("Out")], axis)

    def grad_ops(self, op: OpDesc, grad: Callable[[str], str]) -> list[OpDesc]:
        inputs = {"X": [grad(name) for name in op.outputs["Out"]]}
        return [OpDesc("stack", inputs, {"Y": [grad(op.inputs["X"][0])]}, {"axis": self.axis})]
