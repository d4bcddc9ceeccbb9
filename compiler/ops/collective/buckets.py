"""Ops created by the pass `bucket_all_reduces`: several gradients in one buffer.

Not program ops. `pack_bucket` and `unpack_bucket` only move elements, and are no-ops where the
gradients are views of the bucket.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any, ClassVar, TypeVar

import numpy as np

from compiler.errors import ShapeError
from compiler.ir.opdef import HostOp, OpDef, Share, Slots, Types, attr, reads, writes
from compiler.ir.opdef.kernel_builder import (
    DeviceOperand,
    KernelBuilder,
    KernelSlots,
    Operand,
    SourceBuilder,
)
from compiler.ir.types import Array, TensorType
from compiler.ops.collective.base import InPlaceCollective
from compiler.ops.collective.data_movement import CBroadcast
from compiler.ops.collective.reduce import AllReduce, CReduceSum, all_reduced
from compiler.ops.collective.single_rank import SingleRank

P = TypeVar("P", Operand, DeviceOperand)

ALIGNED = 16
"""Alignment of the parts of a bucket, in elements, sufficient for any device."""


def part_offsets(sizes: Sequence[int]) -> list[int]:
    """Return the start of each part of a bucket, and the bucket's size.

    >>> part_offsets([10, 16, 3])
    [0, 16, 32, 48]
    """
    starts = [0]
    for size in sizes:
        starts.append(starts[-1] + -(-size // ALIGNED) * ALIGNED)
    return starts


def known_sizes(types: Sequence[TensorType]) -> list[int]:
    """Return the number of elements of each type; raise ShapeError if one is unknown."""
    sizes = [tensor_type.numel for tensor_type in types]
    fixed = [size for size in sizes if isinstance(size, int)]
    if len(fixed) != len(sizes):
        raise ShapeError(f"a bucket requires known sizes, got {', '.join(map(str, types))}")
    return fixed


def bucket_shares(whole: str, part: str, sizes: Sequence[int]) -> list[Share]:
    """Return the part of the bucket that each value of a slot occupies."""
    starts = part_offsets(sizes)
    return [
        Share((whole, 0), (part, i), 0, starts[i], size, stays=True) for i, size in enumerate(sizes)
    ]


class PackBucket(OpDef, op="pack_bucket"):
    """Out [size] = the elements of X, each value aligned to 16 elements; padding is undefined.

    All values of X have one dtype and known sizes.
    """

    lod_source = ""
    computes_in_fp32 = False
    schedule_early = True

    X = reads(many=True)
    Out = writes()

    def infer(self, s: Slots[TensorType]) -> TensorType:
        X = s.all("X")
        if any(tensor_type.dtype is not X[0].dtype for tensor_type in X):
            raise ShapeError(f"pack_bucket: X is {', '.join(map(str, X))}, expected one dtype")
        return X[0].with_shape((part_offsets(known_sizes(X))[-1],))

    def numpy(self, X: list[Array]) -> Array:
        starts = part_offsets([array.size for array in X])
        out = np.zeros(starts[-1], X[0].dtype)
        for start, array in zip(starts, X, strict=False):
            out[start : start + array.size] = array.reshape(-1)
        return out

    def shares(self, types: Types) -> list[Share]:
        return bucket_shares("Out", "X", known_sizes(types["X"]))

    def lower(self, k: SourceBuilder, s: Slots[Operand]) -> None:
        Out = s.Out
        for part, share, cut in bucket_parts("Out", "X", s.all("X")):
            if not k.is_view_of(part, Out, share):
                target = k.at_bind(f"{Out}[{cut}]", [Out], "place")
                k.line(f"np.copyto({target}, {part.view((part.type.numel,))})")

    def kernel(self, k: KernelBuilder, s: KernelSlots) -> None:
        Out = s.Out
        moved = [
            part
            for part in bucket_parts("Out", "X", s.all("X"))
            if not k.is_view_of(part[0], Out, part[1])
        ]
        multi_tensor_copy(k, [(f"{Out}[{cut}]", f"{part}.reshape(-1)") for part, _, cut in moved])


class UnpackBucket(OpDef, op="unpack_bucket"):
    """Out = the parts of a bucket X, in the shapes `shapes`."""

    lod_source = ""
    computes_in_fp32 = False
    schedule_late = True

    X = reads()
    Out = writes(many=True)
    shapes = attr(list[list[int]]())

    def infer(self, s: Slots[TensorType]) -> dict[str, list[TensorType]]:
        X = s.X
        out = [X.with_shape(shape) for shape in self.shapes]
        if part_offsets(known_sizes(out))[-1] != X.shape[0]:
            raise ShapeError(
                f"unpack_bucket: X is {X}, expected {part_offsets(known_sizes(out))[-1]}"
            )
        return {"Out": out}

    def numpy(self, X: Array) -> dict[str, list[Array]]:
        sizes = [prod(shape) for shape in self.shapes]
        parts = zip(part_offsets(sizes), sizes, self.shapes, strict=False)
        return {"Out": [X[start : start + n].reshape(shape) for start, n, shape in parts]}

    def shares(self, types: Types) -> list[Share]:
        return bucket_shares("X", "Out", known_sizes(types["Out"]))

    def lower(self, k: SourceBuilder, s: Slots[Operand]) -> None:
        X = s.X
        for part, share, cut in bucket_parts("X", "Out", s.all("Out")):
            if not k.is_view_of(part, X, share):
                target = k.at_bind(f"{X}[{cut}]", [X], "place")
                k.line(f"np.copyto({part.view((part.type.numel,))}, {target})")

    def kernel(self, k: KernelBuilder, s: KernelSlots) -> None:
        X = s.X
        moved = [
            part
            for part in bucket_parts("X", "Out", s.all("Out"))
            if not k.is_view_of(part[0], X, part[1])
        ]
        multi_tensor_copy(k, [(f"{part}.reshape(-1)", f"{X}[{cut}]") for part, _, cut in moved])


def bucket_parts(whole: str, part: str, held: Sequence[P]) -> list[tuple[P, Share, str]]:
    """Return the values of a slot, each with its part of the bucket, and that as slice text."""
    sizes = known_sizes([operand.type for operand in held])
    texts = (
        f"{start}:{start + size}" for start, size in zip(part_offsets(sizes), sizes, strict=False)
    )
    return list(zip(held, bucket_shares(whole, part, sizes), texts, strict=True))


def multi_tensor_copy(k: KernelBuilder, pairs: Sequence[tuple[str, str]]) -> None:
    """Copy device tensors, as (target, source) pairs, by one multi-tensor copy."""
    if pairs:
        targets, sources = (", ".join(side) for side in zip(*pairs, strict=True))
        k.line(f"torch._foreach_copy_([{targets}], [{sources}])")


class StartAllReduce(InPlaceCollective, op="start_all_reduce"):
    """Start an asynchronous all-reduce of X over ring `ring_id`; Out is valid after the wait.

    `described` lists the names and types contained in X, for the schedule that ranks compare.
    """

    schedule_early = True

    ring_id = attr(0)
    described = attr("")

    def call(self, out: str) -> str:
        return f"collective.start_all_reduce({self.ring_id}, {self.variable!r}, 'sum', {out})"

    def numpy(self, X: Array) -> dict[str, Array]:
        out = np.array(X)
        self.collective.start_all_reduce(self.ring_id, self.variable, "sum", out)
        return {"Out": out}


class AllReduceBucket(AllReduce, op="all_reduce_bucket"):
    """`c_allreduce_sum` of a bucket; `described` as in `start_all_reduce`."""

    described = attr("")

    def numpy(self, X: Array) -> dict[str, Array]:
        return {"Out": all_reduced(self.collective, self.ring_id, self.variable, "sum", X)}


class ReduceBucket(CReduceSum, op="reduce_bucket"):
    """`c_reduce_sum` of a bucket; `described` as in `start_all_reduce`."""

    described = attr("")


class BroadcastBucket(CBroadcast, op="broadcast_bucket"):
    """`c_broadcast` of a bucket; `described` as in `start_all_reduce`."""

    described = attr("")


class WaitAllReduce(HostOp, op="wait_all_reduce"):
    """Out = X, after waiting for the all-reduce that `start_all_reduce` started as `variable`.

    Each rank waits independently, so waits are not ordered with the collectives.
    """

    lod_source = ""
    schedule_late = True

    X = reads()
    Out = writes(inplace="X")
    ring_id = attr(0)
    variable = attr("")
    collective: ClassVar[Any] = SingleRank()

    def infer(self, s: Slots[TensorType]) -> dict[str, TensorType]:
        return {"Out": s.X}

    def call(self) -> str:
        """Return source text of the `collective` call that waits."""
        return f"collective.wait({self.ring_id}, {self.variable!r})"

    def numpy(self, X: Array) -> dict[str, Array]:
        self.collective.wait(self.ring_id, self.variable)
        return {"Out": X}

    def lower(self, k: SourceBuilder, s: Slots[Operand]) -> None:
        X, Out = s.X, s.Out
        k.line(self.call())
        if not k.aliased(X, Out):
            k.line(f"np.copyto({Out}, {X})")

    def kernel(self, k: KernelBuilder, s: KernelSlots) -> None:
        X, Out = s.X, s.Out
        k.line(self.call())
        if not k.aliased(X, Out):
            k.line(f"{Out}.copy_({X})")
