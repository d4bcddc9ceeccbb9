"""Batch normalisation: `batch_norm`, in training and with running statistics."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import ClassVar

import numpy as np

from compiler.errors import BadAttribute, ShapeError
from compiler.ir.dims import product
from compiler.ir.opdef import OpDef, RecomputeRule, Slots, Types, attr, reads, writes
from compiler.ir.opdef.kernel_builder import (
    DeviceOperand,
    KernelBuilder,
    KernelSlots,
    Operand,
    SourceBuilder,
)
from compiler.ir.opdef.layout_rules import Order, PermutedOp
from compiler.ir.types import HALVES, Array, DType, Shape, TensorType
from compiler.ir.windows import is_channels_last
from compiler.ops.image.layouts import permuted_layout
from compiler.ops.norm import batch_norm_kernels as kernels
from compiler.ops.norm.batch_norm_numpy import (
    channel_rows,
    normalised,
    normalize_by_batch,
    normalize_by_running,
    normalize_gradient,
    renormalize,
    rows_gradient,
    rows_like,
)
from compiler.ops.norm.channel_kernels import Channels
from compiler.ops.type_checks import differ, shown


class Layouts(OpDef):
    """Base of ops that normalise channels in any layout."""

    gaps = frozenset({"X", "Y"})

    def supports_strided_rows(self, slot: str, axes: int) -> bool:
        """Allow strided images only in layouts with channels first."""
        return super().supports_strided_rows(slot, axes) and not is_channels_last(self.data_layout)

    data_layout = attr("NCHW")

    def permuted(self, types: Types, order: Order) -> PermutedOp | None:
        return permuted_layout("data_layout", self.data_layout, order, "X", "Y")

    def channel_axis(self, rank: int) -> int:
        """Return the axis of the channels."""
        return rank - 1 if is_channels_last(self.data_layout) else 1

    def expect_vectors(self, X: TensorType, **vectors: TensorType) -> None:
        """Raise ShapeError unless vectors are [C], float32 if X is half precision."""
        channels = X.shape[self.channel_axis(X.rank)]
        wide = DType.FP32 if X.dtype in HALVES else X.dtype
        for slot, vector in vectors.items():
            if vector.rank != 1 or differ(vector.shape[0], channels) or vector.dtype != wide:
                shapes = shown(X=X, **{slot: vector})
                raise ShapeError(f"{self.kind}: {shapes} do not fit: there are {channels} channels")

    def npc(self, k: SourceBuilder, X: Operand) -> str:
        """Return an expression for X as [N, positions, C]."""
        axis = self.channel_axis(X.type.rank)
        before, channels, after = (
            product(X.shape[:axis]),
            X.shape[axis],
            product(X.shape[axis + 1 :]),
        )
        if after == 1:
            return X.view((1, before, channels))
        return k.at_bind(f"{X.view((before, channels, after))}.mT", [X], "npc")


class BatchNormalisation(Layouts):
    """Y = (X - mean) / sqrt(variance + epsilon) * Scale + Bias, for each channel.

    X is [N, C, …], or […, C] with data_layout NHWC; all others are [C], float32 if X is half
    precision. In training, mean and (biased) variance are those of the batch, and MeanOut =
    momentum*Mean + (1 - momentum)*mean, VarianceOut likewise, in the storage of Mean and Variance;
    MomentumTensor [1] overrides the attribute.

    With is_test (unless trainable_statistics) or use_global_stats they are Mean and Variance, which
    are not updated. SavedMean is the mean and SavedVariance 1/sqrt(variance + epsilon), as used for
    Y. A channel of one value has no variance: in training Y = X then, with no gradient for Scale
    and Bias. ReserveSpace is for other devices, and empty. Reference: batch_norm_op.cc.
    """

    grad_like: ClassVar[Mapping[str, str]] = {"X": "Y", "Mean": "Scale", "Variance": "Scale"}

    X = reads()
    Scale = reads()
    Bias = reads()
    Mean = reads(no_grad=True)
    Variance = reads(no_grad=True)
    MomentumTensor = reads(optional=True, no_grad=True)
    Y = writes()
    MeanOut = writes(optional=True, inplace="Mean")
    VarianceOut = writes(optional=True, inplace="Variance")
    SavedMean = writes(optional=True)
    SavedVariance = writes(optional=True)
    ReserveSpace = writes(optional=True)
    momentum = attr(0.9)
    epsilon = attr(1e-5)
    is_test = attr(False)
    data_layout = attr("NCHW")
    use_global_stats = attr(False)
    trainable_statistics = attr(False)
    use_mkldnn = attr(False)
    fuse_with_relu = attr(False)

    def infer(self, s: Slots[TensorType]) -> dict[str, TensorType]:
        X, Mean = s.X, s.Mean
        if self.use_mkldnn and self.fuse_with_relu:
            raise BadAttribute(
                f"{self.kind}: fuse_with_relu beside use_mkldnn is not computed",
                hint="append a relu instead, or unset use_mkldnn",
            )
        if X.rank < 2 or not X.dtype.is_float:
            raise ShapeError(f"{self.kind}: X is {X}, expected floats with a batch and channels")
        self.expect_vectors(X, Scale=s.Scale, Bias=s.Bias, Mean=Mean, Variance=s.Variance)
        saved = dict.fromkeys(("SavedMean", "SavedVariance"), Mean)
        statistics = {
            "MeanOut": Mean,
            "VarianceOut": s.Variance,
            "ReserveSpace": X.with_shape((0,)),
        }
        return {"Y": X, **statistics, **saved}

    @property
    def is_frozen(self) -> bool:
        """True if the statistics are the running ones, not those of the batch."""
        return self.use_global_stats or (self.is_test and not self.trainable_statistics)

    def kernel(self, k: KernelBuilder, s: KernelSlots) -> None:
        X, Scale, Bias, Mean = s.X, s.Scale, s.Bias, s.Mean
        Y, MeanOut, VarianceOut = s.get("Y"), s.get("MeanOut"), s.get("VarianceOut")
        SavedMean, SavedVariance = s.get("SavedMean"), s.get("SavedVariance")
        channels, running = Channels.of(self.data_layout, X.shape), (Mean, s.Variance)
        channels.expect(k, Scale, Bias, *running)
        if self.is_frozen:
            outs = [
                out if out and not k.aliased(out, a) else None
                for a, out in zip(running, (MeanOut, VarianceOut), strict=True)
            ]
            kernels.normalise_by_running(k, channels, X, (Scale, Bias), running, self.epsilon, Y)
            saved = (SavedMean, SavedVariance)
            kernels.store_running(k, running, self.epsilon, saved, (outs[0], outs[1]))
            return
        outs, numbers = (MeanOut, VarianceOut), (self.momentum, self.epsilon)
        statistics = kernels.Statistics(running, outs, *numbers, s.get("MomentumTensor"))
        mean, inverse = (
            output or k.scratch(Mean.shape, Mean.type.dtype)
            for output in (SavedMean, SavedVariance)
        )
        self.triton_batch(k, channels, X, (Scale, Bias), Y, (mean, inverse), statistics)

    def triton_batch(
        self,
        k: KernelBuilder,
        s: Channels,
        X: DeviceOperand,
        affine: tuple[DeviceOperand, DeviceOperand],
        Y: DeviceOperand | None,
        saved: tuple[DeviceOperand, DeviceOperand],
        kept: kernels.Statistics,
    ) -> None:
        """Normalise by the statistics of the batch; `affine` is Scale and Bias."""
        kernels.normalise_by_batch(k, s, X, affine, Y, saved, kept)


class BatchNorm(BatchNormalisation, op="batch_norm"):
    """Batch normalisation."""

    device_epilogue = "Y"
    epilogue_grad = "X"

    in_place: ClassVar[Mapping[str, tuple[str, ...]]] = {"Y": ("X",)}
    in_place_grad: ClassVar[Mapping[str, tuple[str, ...]]] = {"X": ("X",)}

    def again(self) -> RecomputeRule | None:
        """Return the op that recomputes Y from X and the statistics that backward reads."""
        inputs = {slot: slot for slot in ("X", "Scale", "Bias", "SavedMean", "SavedVariance")}
        attrs = {"frozen": self.is_frozen, "data_layout": self.data_layout}
        return RecomputeRule("batch_norm_again", inputs, {"Y": "Y"}, attrs)

    def numpy(
        self,
        X: Array,
        Scale: Array,
        Bias: Array,
        Mean: Array,
        Variance: Array,
        MomentumTensor: Array | None,
    ) -> dict[str, Array]:
        keep = self.momentum if MomentumTensor is None else float(MomentumTensor.ravel()[0])
        frozen = self.use_global_stats or (self.is_test and not self.trainable_statistics)
        settings = (Mean, Variance, keep, self.epsilon, frozen, self.data_layout)
        return normalised(X, Scale, Bias, *settings)

    def grad(
        self,
        X: Array,
        Scale: Array,
        Bias: Shape,
        SavedMean: Array,
        SavedVariance: Array,
        d_Y: Array,
    ) -> dict[str, Array]:
        x, upstream = (channel_rows(array, self.data_layout) for array in (X, d_Y))
        frozen = self.use_global_stats or (self.is_test and not self.trainable_statistics)
        if len(x) <= 1 and not frozen:
            return {"X": d_Y, "Scale": np.zeros_like(Scale), "Bias": np.zeros_like(Scale)}
        normal = (x - SavedMean) * SavedVariance
        d_x, d_scale, d_bias = rows_gradient(normal, upstream, Scale * SavedVariance, frozen)
        return {"X": rows_like(d_x, X, self.data_layout), "Scale": d_scale, "Bias": d_bias}

    def lower(self, k: SourceBuilder, s: Slots[Operand]) -> None:
        X, Scale, Bias, Mean, Variance = s.X, s.Scale, s.Bias, s.Mean, s.Variance
        MomentumTensor, Y = s.get("MomentumTensor"), s.get("Y")
        images = f"{self.npc(k, X)}, {self.npc(k, Y or like(k, X))}, {Scale}, {Bias}"
        saved = [vector or like(k, Mean) for vector in (s.get("SavedMean"), s.get("SavedVariance"))]
        running = [
            (Mean, s.get("MeanOut") or like(k, Mean)),
            (Variance, s.get("VarianceOut") or like(k, Mean)),
        ]
        if self.is_frozen:
            vectors = f"{Mean}, {Variance}, {self.epsilon}, {_tuple(saved)}, {like(k, Mean)}"
            k.line(f"{k.function(normalize_by_running)}({images}, {vectors})")
            for source, out in running:
                _copy(k, source, out)
        else:
            vectors = f"{_tuple(saved)}, {_tuple(map(_tuple, running))}"
            momentum = self.momentum if MomentumTensor is None else f"{MomentumTensor}.item(0)"
            rest = f"{momentum}, {self.epsilon}, {like(k, Mean)}"
            name, last = self.batch_function(k)
            k.line(f"{name}({images}, {vectors}, {rest}{last})")

    def batch_function(self, k: SourceBuilder) -> tuple[str, str]:
        """Return the function that normalises by the batch, and its further arguments."""
        return k.function(normalize_by_batch), ""

    def gradient_function(self, k: SourceBuilder) -> tuple[str, str]:
        """Return the function of the gradient, and its last argument."""
        return k.function(normalize_gradient), f"{self.is_frozen}"

    def lower_grad(self, k: SourceBuilder, s: Slots[Operand]) -> None:
        Scale, SavedMean, SavedVariance = s.Scale, s.SavedMean, s.SavedVariance
        d_Scale, d_Bias = s.get("d_Scale"), s.get("d_Bias")
        operands = [s.X, s.d_Y, s.get("d_X") or like(k, s.X)]
        images = ", ".join(self.npc(k, operand) for operand in operands)
        vectors = f"{Scale}, {SavedMean}, {SavedVariance}"
        result = f"{d_Scale or like(k, Scale)}, {d_Bias or like(k, Scale)}, {like(k, Scale)}"
        name, last = self.gradient_function(k)
        k.line(f"{name}({images}, {vectors}, {result}, {last})")

    def kernel_grad(self, k: KernelBuilder, s: KernelSlots) -> None:
        channels = Channels.of(self.data_layout, s.X.shape)
        operands = (s.X, s.d_Y, s.Scale, s.SavedMean, s.SavedVariance)
        self.kernel_gradient(
            k, channels, operands, (s.get("d_X"), s.get("d_Scale"), s.get("d_Bias"))
        )

    def kernel_gradient(
        self,
        k: KernelBuilder,
        s: Channels,
        given: tuple[DeviceOperand, DeviceOperand, DeviceOperand, DeviceOperand, DeviceOperand],
        outs: tuple[DeviceOperand | None, DeviceOperand | None, DeviceOperand | None],
    ) -> None:
        """Emit the gradients of X, Scale and Bias from X, d_Y, Scale, mean and 1/deviation."""
        kernels.gradient(k, s, given, outs, self.is_frozen)


class BatchNormRecomputed(Layouts, op="batch_norm_again"):
    """Y of a `batch_norm`, recomputed bit-identically from its saved statistics.

    Programs do not contain it; the pass `recompute` creates it. `frozen` is true for running
    statistics.
    """

    X = reads()
    Scale = reads()
    Bias = reads()
    SavedMean = reads()
    SavedVariance = reads()
    Y = writes()
    frozen = attr(False)
    in_place: ClassVar[Mapping[str, tuple[str, ...]]] = {"Y": ("X",)}

    def infer(self, s: Slots[TensorType]) -> TensorType:
        saved = {"SavedMean": s.SavedMean, "SavedVariance": s.SavedVariance}
        self.expect_vectors(s.X, Scale=s.Scale, Bias=s.Bias, **saved)
        return s.X

    def numpy(
        self, X: Array, Scale: Array, Bias: Array, SavedMean: Array, SavedVariance: Array
    ) -> Array:
        x = channel_rows(X, self.data_layout)
        if len(x) <= 1 and not self.frozen:
            return X
        return rows_like((x - SavedMean) * SavedVariance * Scale + Bias, X, self.data_layout)

    def lower(self, k: SourceBuilder, s: Slots[Operand]) -> None:
        X, Scale, Bias, SavedMean = s.X, s.Scale, s.Bias, s.SavedMean
        SavedVariance, Y = s.SavedVariance, s.Y
        images = f"{self.npc(k, X)}, {self.npc(k, Y)}, {Scale}, {Bias}"
        rest = f"{SavedMean}, {SavedVariance}, {like(k, Scale)}, {like(k, Scale)}, {self.frozen}"
        k.line(f"{k.function(renormalize)}({images}, {rest})")

    def kernel(self, k: KernelBuilder, s: KernelSlots) -> None:
        channels, saved = Channels.of(self.data_layout, s.X.shape), (s.SavedMean, s.SavedVariance)
        kernels.again(k, channels, s.X, (s.Scale, s.Bias), saved, s.Y, self.frozen)


def like(k: SourceBuilder, value: Operand) -> Operand:
    """Return scratch of the same type."""
    return k.scratch(value.shape, value.type.dtype)


def _tuple(items: Iterable[object]) -> str:
    return f"({', '.join(map(str, items))})"


def _copy(k: SourceBuilder, given: Operand, out: Operand) -> None:
    if not k.aliased(given, out):
        k.line(f"np.copyto({out}, {given})")
