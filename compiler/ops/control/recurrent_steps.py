"""The ops around the loop that a `recurrent` op is converted to: counting, slicing and stacking.

Not program ops: program conversion creates them.
"""

from __future__ import annotations

import numpy as np

from compiler.ir.dims import parse_size
from compiler.ir.opdef import OpDef, Slots, attr, attr_list, reads, writes
from compiler.ir.types import Array, DType, Shape, TensorType

COUNTER = TensorType(DType.INT64, (1,))
"""Type of a step counter."""


class StepCount(OpDef, op="step_count"):
    """Out = the number of steps of X: its first size."""

    no_kernel_reason = "the host counts loop iterations"

    X = reads(shape_only=True)
    Out = writes()

    def infer(self, s: Slots[TensorType]) -> TensorType:
        return COUNTER

    def numpy(self, X: Shape) -> Array:
        return np.array([X[0]], np.int64)


class StepIndex(OpDef, op="step_index"):
    """Out = the index of step I among Count steps, from the end if `reverse`."""

    no_kernel_reason = "the host counts loop iterations"

    I = reads()  # noqa: E741
    Count = reads()
    Out = writes()
    reverse = attr(False)

    def infer(self, s: Slots[TensorType]) -> TensorType:
        return COUNTER

    def numpy(self, I: Array, Count: Array) -> Array:  # noqa: E741
        return Count - 1 - I if self.reverse else np.array(I)


class TakeStep(OpDef, op="take_step"):
    """Out = X[I], without the first axis."""

    no_kernel_reason = "tensor arrays are host values"

    lod_source = ""

    X = reads()
    I = reads()  # noqa: E741
    Out = writes()

    def infer(self, s: Slots[TensorType]) -> TensorType:
        return s.X.with_shape(s.X.shape[1:])

    def numpy(self, X: Array, I: Array) -> Array:  # noqa: E741
        return X[int(I[0])]


class StackSteps(OpDef, op="stack_steps"):
    """Out = the tensors of array X stacked along a new first axis.

    `sizes` are the sizes of Out as text, since the array may be empty.
    """

    no_kernel_reason = "tensor arrays are host values"

    lod_source = ""

    X = reads()
    Out = writes()
    sizes = attr_list(str)

    def infer(self, s: Slots[TensorType]) -> TensorType:
        return TensorType(s.X.dtype, tuple(map(parse_size, self.sizes)))

    def numpy(self, X: list[Array]) -> Array:
        return np.stack(X) if X else np.zeros([0] * len(self.sizes))


class EmptyArray(OpDef, op="empty_array"):
    """Out = an empty tensor array, for tensors of the type of X or of the items of array X."""

    no_kernel_reason = "tensor arrays are host values"

    lod_source = ""

    X = reads(shape_only=True, optional=True)
    Out = writes()
    dtype = attr(DType.FP32.code)
    sizes = attr_list(str)

    def infer(self, s: Slots[TensorType]) -> TensorType:
        if (X := s.get("X")) is not None:
            return TensorType(X.dtype, X.shape, is_array=True)
        return TensorType(DType.of(self.dtype), tuple(map(parse_size, self.sizes)), is_array=True)

    def numpy(self) -> list[Array]:
        return []


class CopyArray(OpDef, op="copy_array"):
    """Out = a copy of the list of tensors of array X."""

    no_kernel_reason = "tensor arrays are host values"

    lod_source = ""

    X = reads()
    Out = writes()

    def infer(self, s: Slots[TensorType]) -> TensorType:
        return s.X

    def numpy(self, X: list[Array]) -> list[Array]:
        return [*X]


class SumArrays(OpDef, op="sum_arrays"):
    """Out = the elementwise sum of the arrays of X; holes add nothing."""

    no_kernel_reason = "tensor arrays are host values"

    lod_source = ""

    X = reads(many=True)
    Out = writes()

    def infer(self, s: Slots[TensorType]) -> TensorType:
        return s.all("X")[0]

    def numpy(self, X: list[list[Array | None]]) -> list[Array | None]:
        Out: list[Array | None] = [None] * max(map(len, X))
        for array in X:
            for index, tensor in enumerate(array):
                if tensor is not None:
                    previous = Out[index]
                    Out[index] = tensor if previous is None else previous + tensor
        return Out
