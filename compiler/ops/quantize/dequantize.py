"""Dequantization: levels to floats. Reference: fake_dequantize_op.cc, dequantize_abs_max_op.cc,
dequantize_log_op.cc, lookup_table_dequant_op.h. None of these ops has a gradient there.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from compiler.errors import BadAttribute, ShapeError
from compiler.ir.opdef import OpDef, Pointwise, Slots, Value, Xp, attr, reads, required, writes
from compiler.ir.opdef.attribute_bounds import WIDE, between
from compiler.ir.opdef.kernel_builder import KernelBuilder, KernelSlots
from compiler.ir.types import Array, DType, Shape, TensorType
from compiler.ops.quantize.levels import level_count, require_count, require_float
from compiler.ops.type_checks import differ, require_dtype, require_same_dtype

MAX_BITS = 64
"""Maximum bits of a channel-wise level: floats are divided by powers of 2."""


class FakeDequantizeMaxAbs(Pointwise, op="fake_dequantize_max_abs"):
    """Out = X * Scale / max_range, where Scale has one element."""

    X = reads()
    Scale = reads()
    Out = writes()
    max_range = required(float)

    def infer_types(self, types: Mapping[str, Any]) -> dict[str, Any]:
        """Return the type of X; raises ShapeError unless Scale is one number of that dtype."""
        require_float(self.kind, "X", types["X"])
        require_count(self.kind, "Scale", types["Scale"], 1)
        require_same_dtype(self.kind, X=types["X"], Scale=types["Scale"])
        return {"Out": types["X"]}

    def align(self, types: Mapping[str, TensorType]) -> dict[str, Shape]:
        """Reshape Scale to [1]."""
        return {"Scale": (1,)}

    def compute(self, xp: Xp, X: Value, Scale: Value) -> Value:
        return X * Scale / self.max_range


class DequantizeAbsMax(Pointwise, op="dequantize_abs_max"):
    """Out = X * Scale / max_range in float32, where X is int8 and Scale has one element."""

    X = reads()
    Scale = reads()
    Out = writes()
    max_range = required(float)

    def infer_types(self, types: Mapping[str, Any]) -> dict[str, Any]:
        """Return the shape of X in float32; raises ShapeError unless Scale is one number."""
        require_dtype(self.kind, "X", types["X"], DType.INT8)
        require_dtype(self.kind, "Scale", types["Scale"], DType.FP32)
        require_count(self.kind, "Scale", types["Scale"], 1)
        return {"Out": types["X"].with_dtype(DType.FP32)}

    def align(self, types: Mapping[str, TensorType]) -> dict[str, Shape]:
        """Reshape Scale to [1]."""
        return {"Scale": (1,)}

    def compute(self, xp: Xp, X: Value, Scale: Value) -> Value:
        return xp.astype(X, np.float32) * Scale / self.max_range


class FakeChannelWiseDequantizeMaxAbs(OpDef, op="fake_channel_wise_dequantize_max_abs"):
    """Out = X * scale / levels per channel; `quant_bits` has the bits of each of Scales.

    One Scales tensor has an element per index of the first axis of X. Of two, for weights and
    inputs of a layer, the first has an element per index of the second axis, the second one
    element; both are multiplied, and so are their levels.
    """

    X = reads()
    Scales = reads(many=True)
    Out = writes()
    quant_bits = attr([8], between(1, MAX_BITS))

    def infer(self, s: Slots[TensorType]) -> TensorType:
        X = s.X
        Scales = s.all("Scales")
        require_float(self.kind, "X", X)
        if not 1 <= len(Scales) <= 2:
            raise ShapeError(f"{self.kind}: Scales are {len(Scales)}, expected 1 or 2")
        if len(self.quant_bits) < len(Scales):
            actual = f"'quant_bits' is {self.quant_bits}"
            raise BadAttribute(f"{self.kind}: {actual}, expected one for each of {len(Scales)}")
        self.check_channels(X, Scales)
        return X

    def check_channels(self, X: TensorType, Scales: list[TensorType]) -> None:
        """Raise ShapeError unless the first scale has an element per channel."""
        axis = len(Scales) - 1
        require_same_dtype(self.kind, X=X, **{f"Scales[{i}]": t for i, t in enumerate(Scales)})
        if X.rank <= axis or differ(Scales[0].numel, X.shape[axis]):
            raise ShapeError(
                f"{self.kind}: Scales[0] is {Scales[0]}, expected one number per index of "
                f"axis {axis} of X {X}"
            )
        for scale in Scales[1:]:
            require_count(self.kind, "Scales[1]", scale, 1)

    def numpy(self, X: Array, Scales: list[Array]) -> Array:
        axis = len(Scales) - 1
        factor = Scales[0].reshape(-1, *(1,) * (X.ndim - axis - 1))
        for scale in Scales[1:]:
            factor = factor * scale.reshape(1)
        with np.errstate(divide="ignore", invalid="ignore"):
            return X * factor / X.dtype.type(divisor(self.quant_bits, len(Scales)))

    def kernel(self, k: KernelBuilder, s: KernelSlots) -> None:
        X = s.X
        Scales = s.all("Scales")
        indices, axis = k.grid(*X.shape), len(Scales) - 1
        factor = Scales[0].reshaped((X.shape[axis],))[indices[axis]]
        for scale in Scales[1:]:
            factor = factor * scale.reshaped((1,))[0]
        k.store(s.Out, indices, X[indices] * factor / divisor(self.quant_bits, len(Scales)))


def divisor(bits: list[int], scales: int) -> float:
    """Return the product of the largest levels of the first `scales` bit widths."""
    return float(np.prod([level_count(bit_count) for bit_count in bits[:scales]]))


class DequantizeLog(OpDef, op="dequantize_log"):
    """Out = Dict[X], and -Dict[X + 128] where X is negative; X is int8, Dict has 128 numbers."""

    X = reads()
    Dict = reads()
    Out = writes()

    def infer(self, s: Slots[TensorType]) -> TensorType:
        require_dtype(self.kind, "X", s.X, DType.INT8)
        require_dtype(self.kind, "Dict", s.Dict, DType.FP32)
        require_count(self.kind, "Dict", s.Dict, 128)
        return s.X.with_dtype(DType.FP32)

    def numpy(self, X: Array, Dict: Array) -> Array:
        entries = Dict.reshape(-1)[X.astype(np.int64) % 128]
        return np.where(X < 0, -entries, entries)

    def kernel(self, k: KernelBuilder, s: KernelSlots) -> None:
        indices = k.grid(*s.X.shape)
        x = k.astype(s.X[indices], DType.INT32)
        entry = s.Dict.reshaped((128,))[k.where(x < 0, x + 128, x)]
        k.store(s.Out, indices, k.where(x < 0, -entry, entry))


class LookupTableDequant(OpDef, op="lookup_table_dequant"):
    """Out[i] = min + (max - min) / 256 * level of the row Ids[i] of W, float32.

    A row holds min, max, and then four levels in the bytes of each float. Ids have a last axis of
    size 1, which Out lacks; the row `padding_idx` is zeros, and -1 means no padding.
    """

    no_kernel_reason = "kernels cannot read the bytes of floats"
    lod_source = "Ids"

    W = reads()
    Ids = reads(no_grad=True)
    Out = writes()
    padding_idx = attr(-1, WIDE)

    def infer(self, s: Slots[TensorType]) -> TensorType:
        W, Ids = s.W, s.Ids
        require_dtype(self.kind, "W", W, DType.FP32)
        require_dtype(self.kind, "Ids", Ids, DType.INT64)
        if W.rank != 2 or (isinstance(W.shape[1], int) and W.shape[1] < 2):
            raise ShapeError(f"{self.kind}: W is {W}, expected rows of 2 numbers or more")
        if Ids.rank < 1 or differ(Ids.shape[-1], 1):
            raise ShapeError(f"{self.kind}: Ids are {Ids}, expected a last axis of size 1")
        return W.with_shape((*Ids.shape[:-1], (W.shape[1] - 2) * 4))

    def numpy(self, W: Array, Ids: Array) -> Array:
        ids = Ids.reshape(-1)
        padded = (ids == self.padding_idx) & (self.padding_idx != -1)
        rows = unpacked_rows(W, np.where(padded, 0, ids))
        rows[padded] = 0.0
        return rows.reshape(*Ids.shape[:-1], rows.shape[1])


def unpacked_rows(table: Array, ids: Array) -> Array:
    """Return dequantized rows of a table; raises ValueError for an id that is not a row of it."""
    wrong = (ids < 0) | (ids >= table.shape[0])
    if wrong.any():
        raise ValueError(
            f"id {ids[wrong][0]} at position {int(wrong.argmax())} is not a row of the table W: "
            f"expected 0 to {table.shape[0] - 1}"
        )
    rows = table[ids]
    levels = np.ascontiguousarray(rows[:, 2:]).view(np.uint8).astype(np.float32)
    return (rows[:, 1:2] - rows[:, :1]) / np.float32(256) * levels + rows[:, :1]
