"""Random parts and orders of tensors, from a seed that a variable carries from step to step."""

from __future__ import annotations

import numpy as np

from compiler.errors import BadAttribute, ShapeError
from compiler.ir.dims import product
from compiler.ir.opdef import OpDef, attr, reads, writes
from compiler.ir.types import Array, DType, TensorType
from compiler.ops.checks import differ

SEED_RANGE = 2**31


def seeded(Seed: Array) -> np.random.Generator:
    """A source of random numbers from the seed that a tensor holds."""
    return np.random.default_rng(int(Seed.reshape(-1)[0]) % SEED_RANGE)


def next_seed(source: np.random.Generator, Seed: Array) -> Array:
    """The seed of the next step, in the shape of this one's."""
    return np.full(Seed.shape, source.integers(SEED_RANGE), np.int64)


def require_seed(op: str, Seed: TensorType) -> TensorType:
    """The type of the seed of the next step; ShapeError unless the seed is one number."""
    if differ(Seed.numel, 1):
        raise ShapeError(f"{op}: Seed is {Seed}, expected one number")
    return Seed.with_dtype(DType.INT64)


class SeedOf(OpDef, op="seed"):
    """Out = `seed`, or a random number if that is 0; int32 [1]. Reference: seed_op.h."""

    is_random = True

    Out = writes()
    seed = attr(0)

    def infer(self) -> TensorType:
        return TensorType(DType.INT32, (1,))

    def numpy(self) -> Array:
        drawn = int(np.random.default_rng().integers(1, SEED_RANGE))
        return np.array([self.seed or drawn], np.int32)


class RandomCrop(OpDef, op="random_crop"):
    """Out = of each instance of X a part of the shape `shape`, at a random place of its own.

    The last axes of X are those of `shape`, and the axes in front of them count instances. SeedOut
    is the seed of the next step. Reference: random_crop_op.h.
    """

    lod_like = ""
    is_random = True

    X = reads(no_grad=True)
    Seed = reads(no_grad=True)
    Out = writes()
    SeedOut = writes(optional=True)
    shape = attr(list[int]())
    startup_seed = attr(0)

    def infer(self, X: TensorType, Seed: TensorType) -> dict[str, TensorType]:
        ahead = X.rank - len(self.shape)
        pairs = list(zip(X.shape[max(ahead, 0) :], self.shape, strict=False))
        large = any(isinstance(size, int) and part > size for size, part in pairs)
        if ahead < 0 or not self.shape or large or min(self.shape) < 1:
            raise BadAttribute(f"random_crop: X is {X}, of which {self.shape} is no part")
        out = X.with_shape((*X.shape[:ahead], *self.shape))
        return {"Out": out, "SeedOut": require_seed(self.kind, Seed)}

    def numpy(self, X: Array, Seed: Array) -> dict[str, Array]:
        source, ahead = seeded(Seed), X.ndim - len(self.shape)
        count = int(np.prod(X.shape[:ahead]))
        flat = X.reshape((count, *X.shape[ahead:]))
        Out = np.empty((count, *self.shape), X.dtype)
        spare = [size - part + 1 for size, part in zip(X.shape[ahead:], self.shape, strict=True)]
        for index in range(count):
            starts = source.integers(0, spare)
            place = tuple(slice(s, s + n) for s, n in zip(starts, self.shape, strict=True))
            Out[index] = flat[index][place]
        sizes = (*X.shape[:ahead], *self.shape)
        return {"Out": Out.reshape(sizes), "SeedOut": next_seed(source, Seed)}


class ShuffleBatch(OpDef, op="shuffle_batch"):
    """Out = the rows of X, all axes but the last counting them, in a random order.

    ShuffleIdx says which row stands at each place, SeedOut is the seed of the next step.
    Reference: shuffle_batch_op.h.
    """

    lod_like = ""
    is_random = True

    X = reads()
    Seed = reads(no_grad=True)
    Out = writes()
    ShuffleIdx = writes()
    SeedOut = writes(optional=True)
    startup_seed = attr(0)

    def infer(self, X: TensorType, Seed: TensorType) -> dict[str, TensorType]:
        rows = TensorType(DType.INT64, (product(X.shape[:-1]),))
        return {"Out": X, "ShuffleIdx": rows, "SeedOut": require_seed(self.kind, Seed)}

    def numpy(self, X: Array, Seed: Array) -> dict[str, Array]:
        source, table = seeded(Seed), X.reshape((-1, X.shape[-1]))
        order = source.permutation(len(table))
        Out = table[order].reshape(X.shape)
        return {"Out": Out, "ShuffleIdx": order, "SeedOut": next_seed(source, Seed)}

    def infer_grad(self, ShuffleIdx: TensorType, d_Out: TensorType) -> dict[str, TensorType]:
        return {"X": d_Out}

    def grad(self, ShuffleIdx: Array, d_Out: Array) -> dict[str, Array]:
        table = d_Out.reshape((-1, d_Out.shape[-1]))
        return {"X": table[np.argsort(ShuffleIdx)].reshape(d_Out.shape)}
