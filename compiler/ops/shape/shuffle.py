"""Random crops and permutations, from a seed carried in a variable from step to step."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import numpy as np

from compiler.errors import BadAttribute, ShapeError
from compiler.ir.dims import product
from compiler.ir.opdef import OpDef, Slots, attr, attr_list, reads, writes
from compiler.ir.opdef.kernel_builder import (
    DeviceOperand,
    KernelBuilder,
    KernelSlots,
    Operand,
    SourceBuilder,
)
from compiler.ir.opdef.size_comparison import is_less
from compiler.ir.philox import randint_by_key
from compiler.ir.types import Array, DType, TensorType
from compiler.ops.math.sort_kernels import MAX_RANKED
from compiler.ops.shape.random_kernels import draw_permutation, permutation_by_key
from compiler.ops.shared_kernels import gather_slices
from compiler.ops.type_checks import differ

SEED_RANGE = 2**31

NEXT = 2**16
"""RNG stream of the next step's seed; the other streams are those of axes."""


def next_seed(Seed: Array) -> Array:
    """Return the seed of the next step, in the shape of the current one."""
    return np.full(Seed.shape, randint_by_key(Seed, 0, [1], SEED_RANGE, NEXT)[0], np.int64)


def draw_next_seed(k: KernelBuilder, Seed: DeviceOperand, SeedOut: DeviceOperand | None) -> None:
    """Emit a kernel for the seed of the next step."""
    if SeedOut is not None:
        (i,) = k.grid(1)
        k.store(SeedOut.reshaped((1,)), (i,), k.randint(k.key(Seed, 0), i, SEED_RANGE, NEXT))


def require_seed(op: str, Seed: TensorType) -> TensorType:
    """Return the type of the next seed; raise ShapeError unless Seed has one element."""
    if differ(Seed.numel, 1):
        raise ShapeError(f"{op}: Seed is {Seed}, expected one number")
    return Seed.with_dtype(DType.INT64)


class SeedOf(OpDef, op="seed"):
    """Out = `seed`, or a random number if that is 0; int32 [1]. Reference: seed_op.h."""

    is_random = True

    Key = reads(optional=True, no_grad=True)
    Out = writes()
    seed = attr(0)
    place = attr(0)

    def infer(self, s: Slots[TensorType]) -> TensorType:
        return TensorType(DType.INT32, (1,))

    def numpy(self, Key: Array | None) -> Array:
        if Key is None:
            drawn = int(np.random.default_rng().integers(1, SEED_RANGE))
        else:
            drawn = int(randint_by_key(Key, self.place, [1], SEED_RANGE - 1)[0]) + 1
        return np.array([self.seed or drawn], np.int32)

    def kernel(self, k: KernelBuilder, s: KernelSlots) -> None:
        (i,) = k.grid(1)
        k.store(
            s.Out, (i,), self.seed or k.randint(k.key(s.Key, self.place), i, SEED_RANGE - 1) + 1
        )


class RandomCrop(OpDef, op="random_crop"):
    """Out = a random crop of shape `shape` of each instance of X.

    The trailing axes of X are cropped; the leading axes are batch axes. SeedOut is the seed of the
    next step. Reference: random_crop_op.h.
    """

    lod_source = ""

    X = reads(no_grad=True)
    Seed = reads(no_grad=True)
    Out = writes()
    SeedOut = writes(optional=True)
    shape = attr_list(int)
    startup_seed = attr(0)

    def infer(self, s: Slots[TensorType]) -> dict[str, TensorType]:
        X = s.X
        leading = X.rank - len(self.shape)
        pairs = zip(X.shape[max(leading, 0) :], self.shape, strict=False)
        fits = leading >= 0 and self.shape and min(self.shape) >= 1
        if not fits or any(is_less(size, part) for size, part in pairs):
            raise BadAttribute(f"random_crop: X is {X}, which is smaller than {self.shape}")
        out = X.with_shape((*X.shape[:leading], *self.shape))
        return {"Out": out, "SeedOut": require_seed(self.kind, s.Seed)}

    def numpy(self, X: Array, Seed: Array) -> dict[str, Array]:
        leading = X.ndim - len(self.shape)
        count = int(np.prod(X.shape[:leading]))
        flat = X.reshape((count, *X.shape[leading:]))
        Out = np.empty((count, *self.shape), X.dtype)
        spare = [size - part + 1 for size, part in zip(X.shape[leading:], self.shape, strict=True)]
        drawn = [randint_by_key(Seed, 0, [count], n, axis) for axis, n in enumerate(spare)]
        for index in range(count):
            starts = [int(starts[index]) for starts in drawn]
            position = tuple(slice(s, s + n) for s, n in zip(starts, self.shape, strict=True))
            Out[index] = flat[index][position]
        sizes = (*X.shape[:leading], *self.shape)
        return {"Out": Out.reshape(sizes), "SeedOut": next_seed(Seed)}

    def kernel(self, k: KernelBuilder, s: KernelSlots) -> None:
        if (Out := s.get("Out")) is not None:
            self.crop(k, s.X, s.Seed, Out)
        draw_next_seed(k, s.Seed, s.get("SeedOut"))

    def crop(
        self, k: KernelBuilder, X: DeviceOperand, Seed: DeviceOperand, Out: DeviceOperand
    ) -> None:
        """Emit a kernel for the crops: each element draws the offset of its instance."""
        leading = len(X.shape) - len(self.shape)
        count = product(X.shape[:leading])
        i, *positions = k.grid(count, *self.shape)
        key, source = k.key(Seed, 0), [i]
        for axis, (size, part, position) in enumerate(
            zip(X.shape[leading:], self.shape, positions, strict=True)
        ):
            source.append(k.randint(key, i, k.size(size) - (part - 1), axis) + position)
        value = X.reshaped((count, *X.shape[leading:]))[tuple(source)]
        k.store(Out.reshaped((count, *self.shape)), (i, *positions), value)


def expect_permutation(order: Array) -> None:
    """Raise ValueError unless each of the indices of an array is in it once."""
    if not np.array_equal(np.sort(order, axis=None), np.arange(order.size)):
        raise ValueError(f"ShuffleIdx is no permutation of the {order.size} rows")


class ShuffleBatch(OpDef, op="shuffle_batch"):
    """Out = the rows of X (its last axis) in a random order.

    ShuffleIdx is the permutation, SeedOut the seed of the next step. Reference: shuffle_batch_op.h.
    """

    lod_source = ""

    grad_like: ClassVar[Mapping[str, str]] = {"X": "Out@GRAD"}

    X = reads()
    Seed = reads(no_grad=True)
    Out = writes()
    ShuffleIdx = writes()
    SeedOut = writes(optional=True)
    startup_seed = attr(0)

    def infer(self, s: Slots[TensorType]) -> dict[str, TensorType]:
        rows = TensorType(DType.INT64, (product(s.X.shape[:-1]),))
        return {"Out": s.X, "ShuffleIdx": rows, "SeedOut": require_seed(self.kind, s.Seed)}

    def numpy(self, X: Array, Seed: Array) -> dict[str, Array]:
        table = X.reshape((int(np.prod(X.shape[:-1])), X.shape[-1]))
        order = permutation_by_key(Seed, 0, len(table))
        Out = table[order].reshape(X.shape)
        return {"Out": Out, "ShuffleIdx": order, "SeedOut": next_seed(Seed)}

    def host_instead_of_gpu(self, types: Mapping[str, TensorType]) -> str:
        """Return why a forward call has no kernel on a GPU; empty if it has one."""
        rows = product(types["X"].shape[:-1]) if "X" in types else 0
        many = isinstance(rows, int) and rows > MAX_RANKED.value
        return f"it sorts more than {MAX_RANKED.value} rows" if many else ""

    def kernel(self, k: KernelBuilder, s: KernelSlots) -> None:
        X = s.X
        rows, width = product(X.shape[:-1]), X.shape[-1]
        order = s.get("ShuffleIdx") or k.scratch((rows,), DType.INT64)
        draw_permutation(k, s.Seed, 0, order)
        if (Out := s.get("Out")) is not None:
            gather_slices(k, X.reshaped((rows, width)), order, Out.reshaped((rows, width)), 0)
        draw_next_seed(k, s.Seed, s.get("SeedOut"))

    def infer_grad(self, s: Slots[TensorType]) -> dict[str, TensorType]:
        ShuffleIdx, d_Out = s.ShuffleIdx, s.d_Out
        if not d_Out.rank or differ(product(d_Out.shape[:-1]), ShuffleIdx.numel):
            raise ShapeError(
                f"shuffle_batch_grad: Out@GRAD is {d_Out}, expected {ShuffleIdx.numel} rows"
            )
        return {"X": d_Out}

    def grad(self, ShuffleIdx: Array, d_Out: Array) -> dict[str, Array]:
        table = d_Out.reshape((len(ShuffleIdx), d_Out.shape[-1]))
        return {"X": table[np.argsort(ShuffleIdx)].reshape(d_Out.shape)}

    def check_grad_values(self, k: SourceBuilder, s: Slots[Operand]) -> None:
        k.line(f"{k.function(expect_permutation)}({s.ShuffleIdx})")

    def kernel_grad(self, k: KernelBuilder, s: KernelSlots) -> None:
        d_Out = s.d_Out
        rows, width = product(d_Out.shape[:-1]), d_Out.shape[-1]
        i, j = k.grid(rows, width)
        value = d_Out.reshaped((rows, width))[i, j]
        k.store(s.d_X.reshaped((rows, width)), (s.ShuffleIdx[i], j), value)
