"""Cumulative sums along an axis. Reference: cumsum_op.cc, cum_op.h."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from compiler.errors import CompileError
from compiler.ir.dims import Size
from compiler.ir.opdef import OpDef, Slots, attr, reads, writes
from compiler.ir.opdef.kernel_builder import DeviceOperand, KernelBuilder, KernelSlots, Number
from compiler.ir.program import OpDesc
from compiler.ir.types import Array, DType, TensorType
from compiler.ops.math.elementwise import gradient_op
from compiler.ops.math.sort import check_axis
from compiler.ops.shared_kernels import split_at
from compiler.support.thresholds import threshold

BLOCK = threshold(
    "scan_block", 1024, "elements", "a longer contiguous axis is scanned in blocks of so many",
    small=4,
)  # fmt: skip
STRIDED_BLOCK = threshold(
    "strided_scan_block", 128, "elements",
    "a longer axis that is not contiguous is scanned in blocks of so many", small=4,
)  # fmt: skip


def running_sum(X: Array, axis: int, exclusive: bool, reverse: bool) -> Array:
    """Return the cumulative sum along an axis, without the element itself if `exclusive`."""
    flipped = np.flip(X, axis) if reverse else X
    total = np.cumsum(flipped, axis=axis, dtype=X.dtype)
    if exclusive:
        first, last = np.split(total, [1], axis=axis)[0], total.shape[axis] - 1
        before = np.split(total, [max(last, 0)], axis=axis)[0]
        total = np.concatenate([np.zeros_like(first), before], axis=axis)
    return np.flip(total, axis) if reverse else total


class Cumsum(OpDef, op="cumsum"):
    """Out = the cumulative sum of X along `axis`, from the end if `reverse`.

    With `exclusive` the element itself is not included. With `flatten` (Paddle 2) X is flattened
    first.
    """

    X = reads()
    Out = writes()
    axis = attr(-1)
    exclusive = attr(False)
    reverse = attr(False)
    flatten = attr(False)

    def infer(self, s: Slots[TensorType]) -> TensorType:
        X = s.X
        check_axis(self.kind, X, self.axis)
        return X.with_shape((X.numel,)) if self.flatten else X

    def numpy(self, X: Array) -> Array:
        if self.flatten:
            return running_sum(X.reshape(-1), 0, self.exclusive, self.reverse)
        return running_sum(X, self.axis, self.exclusive, self.reverse)

    def kernel(self, k: KernelBuilder, s: KernelSlots) -> None:
        X = s.X
        axis = self.axis % X.type.rank
        whole = (1, X.type.numel, 1) if self.flatten else split_at(X.shape, axis)
        x, out = X.reshaped(whole), s.Out.reshaped(whole)
        outer, size, inner = whole
        part = BLOCK.value if inner == 1 else STRIDED_BLOCK.value
        if isinstance(size, int) and size <= part:
            self.scan(k, x, out, size, None)
            return
        dtype = DType.FP32 if X.type.dtype is DType.FP16 else X.type.dtype
        starts = k.scratch((outer, (size + part - 1) // part, inner), dtype)
        self.block_sums(k, x, part, starts)
        self.scan(k, x, out, part, starts)

    def scan_index(self, k: KernelBuilder, n: Number, size: Size) -> Number:
        """Return the index along the axis of the n-th element of the scan."""
        return k.size(size) - 1 - n if self.reverse else n

    def block_sums(
        self, k: KernelBuilder, x: DeviceOperand, size: int, starts: DeviceOperand
    ) -> None:
        """Emit kernels for `starts`: the sum of all blocks of `size` elements before each block."""
        sums = k.scratch(starts.shape, starts.type.dtype)
        i, part, j = k.grid(*sums.shape)
        r = k.loop(size)
        n = part * size + r
        inside = n < k.size(x.shape[1])
        value = x.at(i, self.scan_index(k, n, x.shape[1]), j, where=inside, other=0)
        k.store(sums, (i, part, j), k.sum(value, r))
        i, part, j = k.grid(*sums.shape)
        r = k.loop(sums.shape[1])
        k.store(starts, (i, part, j), k.sum(sums.at(i, r, j, where=r < part, other=0), r))

    def scan(
        self, k: KernelBuilder, x: DeviceOperand, out: DeviceOperand, length: int,
        starts: DeviceOperand | None,
    ) -> None:  # fmt: skip
        """Emit a kernel that scans each block, starting from the sum of the blocks before it."""
        outer, size, inner = x.shape
        i, part, j = k.grid(outer, 1 if starts is None else starts.shape[1], inner)
        r = k.loop(length)
        n = r if starts is None else part * length + r
        inside = n < k.size(size)
        taken = n - 1 if self.exclusive else n
        counts = inside & (r > 0) if self.exclusive else inside
        value = k.cumsum(x.at(i, self.scan_index(k, taken, size), j, where=counts, other=0), r)
        total = value if starts is None else value + starts[i, part, j]
        k.store(out, (i, self.scan_index(k, n, size), j), total, inside)

    def grad_ops(self, op: OpDesc, grad: Callable[[str], str]) -> list[OpDesc]:
        if self.flatten:
            raise CompileError("cumsum: no gradient with 'flatten'", hint="reshape X first")
        attrs = {"axis": self.axis, "exclusive": self.exclusive, "reverse": not self.reverse}
        return [gradient_op("cumsum", op, grad, attrs)]
