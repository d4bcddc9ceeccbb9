"""NCE kernels: sampling of classes from an RNG key, and costs of true and sampled classes."""

from __future__ import annotations

import math

from compiler.ir.dims import Size
from compiler.ir.opdef.kernel_builder import DeviceOperand, KernelBuilder, Number
from compiler.ir.types import DType
from compiler.ops.loss.samplers import LOG_UNIFORM, UNIFORM
from compiler.ops.shared_kernels import inside, listed
from compiler.support.dataclass import dataclass


@dataclass(frozen=True)
class Sampler:
    """A sampler of classes, the device version of `samplers`; `fixed` classes replace samples."""

    kind: int
    classes: int
    fixed: list[int]
    chances: DeviceOperand | None
    alias: DeviceOperand | None
    stays: DeviceOperand | None

    def draw(self, k: KernelBuilder, key: Number, index: Number) -> Number:
        """Draw the class of an element from a key."""
        if self.kind == UNIFORM:
            return k.randint(key, index, self.classes)
        if self.kind == LOG_UNIFORM or self.alias is None or self.stays is None:
            count = max(self.classes - 1, 1)
            power = k.exp(k.uniform(key, index, DType.FP64) * math.log(count + 1))
            return k.minimum(k.astype(power, DType.INT64), count) - 1
        drawn = k.randint(key, index, k.size(self.alias.type.numel))
        other = self.alias.reshaped((self.alias.type.numel,))[drawn]
        chance = self.stays.reshaped((self.alias.type.numel,))[drawn]
        return k.where((k.uniform(key, index, stream=1) < chance) | (other < 0), drawn, other)

    def chance(self, k: KernelBuilder, number: Number) -> Number:
        """Return the sampling probability of a class."""
        if self.kind == UNIFORM:
            return 1.0 / self.classes
        if self.kind == LOG_UNIFORM or self.chances is None:
            of = k.astype(number, DType.FP64) + 1.0
            return k.log1p(1.0 / of) / math.log(self.classes)
        return self.chances.reshaped((self.classes,)).at(
            number, where=inside(k, number, self.classes), other=0
        )


def choose(
    k: KernelBuilder, s: Sampler, trues: DeviceOperand, key: tuple[DeviceOperand | None, int],
    out: DeviceOperand,
) -> None:  # fmt: skip
    """Emit kernels for the classes of each row: the true ones, and the samples."""
    rows, count = trues.shape
    i, c = k.grid(rows, count)
    k.store(out, (i, c), trues[i, c])
    drawn = out.shape[1] - count
    i, c = k.grid(rows, drawn)
    if s.fixed:
        number = listed(k, c, s.fixed, DType.INT64)
    else:
        keys, place = key
        assert keys is not None
        number = s.draw(k, k.key(keys, place), i * k.size(drawn) + c)
    k.store(out, (i, c + k.size(count)), number)


def costs(
    k: KernelBuilder, s: Sampler, given: tuple[DeviceOperand, DeviceOperand, DeviceOperand | None],
    labels: DeviceOperand, trues: Size, drawn: int, weights: DeviceOperand | None,
    shares: DeviceOperand, out: DeviceOperand | None,
) -> None:  # fmt: skip
    """Emit kernels for the `shares` (sigmoids) of classes, and the cost of each row.

    `given` is (input, class weights, class biases or None). An invalid true class costs NaN.
    """
    X, W, bias = given
    i, c = k.grid(*labels.shape)
    r, number = k.loop(X.shape[1]), labels[i, c]
    in_range = inside(k, number, s.classes)
    score = k.sum(X[i, r] * W.at(number, r, where=in_range, other=float("nan")), r)
    if bias is not None:
        score = score + bias.reshaped((s.classes,)).at(number, where=in_range, other=0)
    k.store(shares, (i, c), 1.0 / (1.0 + k.exp(-score)))
    if out is None:
        return
    (i,) = k.grid(labels.shape[0])
    c = k.loop(labels.shape[1])
    share, expected = shares[i, c], s.chance(k, labels[i, c]) * float(drawn)
    chosen = k.where(c < k.size(trues), share, expected)
    total = k.sum(k.log(share + expected) - k.log(chosen), c)
    weight = 1.0 if weights is None else weights.reshaped((labels.shape[0],))[i]
    k.store(out, (i, 0), total * weight)


def score_gradients(
    k: KernelBuilder, s: Sampler, shares: DeviceOperand, labels: DeviceOperand, drawn: int,
    weights: DeviceOperand | None, d_Cost: DeviceOperand,
) -> tuple[DeviceOperand, DeviceOperand]:  # fmt: skip
    """Emit a kernel for the gradient of each score, 0 for an invalid class, and the classes."""
    gradients, numbers = (
        k.scratch(labels.shape, type) for type in (shares.type.dtype, DType.INT64)
    )
    i, c = k.grid(*labels.shape)
    share, expected = shares[i, c], s.chance(k, labels[i, c]) * float(drawn)
    slope = k.where(c < k.size(labels.shape[1]) - drawn, expected * -1.0, share)
    slope = slope * (1.0 - share) / (share + expected) * d_Cost[i, 0]
    slope = slope if weights is None else slope * weights.reshaped((labels.shape[0],))[i]
    in_range = inside(k, labels[i, c], s.classes)
    k.store(gradients, (i, c), k.where(in_range, slope, 0.0))
    k.store(numbers, (i, c), k.where(in_range, labels[i, c], 0))
    return gradients, numbers
