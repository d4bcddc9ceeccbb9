"""Updates by sparse gradients that touch only their rows: replace the dense op in graphs.

Other updates move all of a parameter even where its gradient is 0, so their gradient is densified.
The classes here are not ops of the reference, which has one op for both.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from compiler.errors import ShapeError
from compiler.ir.dims import Size, product
from compiler.ir.opdef import OpDef, Slots, attr, reads, reads_rows, writes
from compiler.ir.opdef.kernel_builder import (
    DeviceOperand,
    KernelBuilder,
    KernelSlots,
    Number,
    Operand,
    SourceBuilder,
)
from compiler.ir.types import Array
from compiler.ops.duplicate_rows import merged
from compiler.ops.math.axes import check_indices
from compiler.ops.shared_kernels import add_rows, copy, number
from compiler.ops.train.selected_rows import lower_add_rows, merge_rows
from compiler.ops.type_checks import (
    differ,
    require_same_dtype,
    require_same_shape,
    require_scalar,
    shown,
)
from compiler.support.dataclass import dataclass

_MOMENTS = ("Moment", "Moment1", "Moment2", "Velocity")
_NUMBERS = ("LearningRate", "Beta1Pow", "Beta2Pow", "Beta1Tensor", "Beta2Tensor")


class RowsUpdate(OpDef):
    """Grad[i] is part of the gradient of Param[Grad_rows[i]]; rows may repeat."""

    Param = reads()
    Grad = reads()
    Grad_rows = reads_rows("Grad")
    LearningRate = reads()
    ParamOut = writes(inplace="Param")

    def infer_types(self, types: Mapping[str, Any]) -> dict[str, Any]:
        """The types of the overwritten values; ShapeError if rows of Grad and Param differ."""
        param, grad = types["Param"], types["Grad"]
        require_same_dtype(self.kind, Param=param, Grad=grad)
        sizes = zip(param.shape[1:], grad.shape[1:], strict=False)
        if param.rank != grad.rank or any(differ(a, b) for a, b in sizes):
            raise ShapeError(f"{self.kind}: rows of {shown(Param=param, Grad=grad)} differ")
        moments = {slot: types[slot] for slot in _MOMENTS if types.get(slot)}
        require_same_shape(self.kind, Param=param, **moments)
        require_scalar(self.kind, **{slot: types[slot] for slot in _NUMBERS if types.get(slot)})
        return {name: types[slot.inplace] for name, slot in self.outputs().items()}

    def check_values(self, k: SourceBuilder, s: Slots[Operand]) -> None:
        k.line(f"{k.function(check_indices)}({s.Grad_rows}, {s.Param.shape[0]}, {self.kind!r})")


class SgdRows(RowsUpdate, op="sgd_rows"):
    """Param[row] -= LearningRate * Grad for every row."""

    def numpy(self, Param: Array, Grad: Array, Grad_rows: Array, LearningRate: Array) -> Array:
        check_indices(Grad_rows, len(Param), "sgd_rows")
        ParamOut = Param.copy()
        np.subtract.at(ParamOut, Grad_rows, LearningRate * Grad)
        return ParamOut

    def lower(self, k: SourceBuilder, s: Slots[Operand]) -> None:
        Grad, LearningRate = s.Grad, s.LearningRate
        self.check_values(k, s)
        keep_state(k, s.Param, s.ParamOut)
        scaled = k.scratch(Grad.shape, Grad.type.dtype)
        k.line(f"np.multiply({Grad}, {LearningRate}, out={scaled})")
        lower_add_rows(k, s.ParamOut, s.Grad_rows, scaled, "subtract")

    def kernel(self, k: KernelBuilder, s: KernelSlots) -> None:
        copy(k, s.Param, s.ParamOut)
        add_rows(k, s.Grad, s.Grad_rows, s.ParamOut, scale=s.LearningRate)


def move_by_adagrad(
    param: Array, moment: Array, grad: Array, rows: Array, rate: Array, epsilon: float
) -> None:
    """Update rows of a parameter and its moment in place."""
    numbers, total = merge_rows(grad, rows)
    squares = moment[numbers] + total * total
    moment[numbers] = squares
    param[numbers] -= rate * total / (np.sqrt(squares) + epsilon)


class AdagradRows(RowsUpdate, op="adagrad_rows"):
    """For every row and the sum g of its gradients: Moment[row] += g**2;

    Param[row] -= LearningRate * g / (sqrt(Moment[row]) + epsilon).
    """

    Moment = reads()
    MomentOut = writes(inplace="Moment")
    epsilon = attr(1e-6)

    def numpy(
        self, Param: Array, Grad: Array, Grad_rows: Array, Moment: Array, LearningRate: Array
    ) -> dict[str, Array]:
        check_indices(Grad_rows, len(Param), "adagrad_rows")
        param, moment = Param.copy(), Moment.copy()
        move_by_adagrad(param, moment, Grad, Grad_rows, LearningRate, self.epsilon)
        return {"ParamOut": param, "MomentOut": moment}

    def lower(self, k: SourceBuilder, s: Slots[Operand]) -> None:
        Grad, Grad_rows, LearningRate, ParamOut = s.Grad, s.Grad_rows, s.LearningRate, s.ParamOut
        MomentOut = s.MomentOut
        self.check_values(k, s)
        keep_state(k, s.Param, ParamOut)
        keep_state(k, s.Moment, MomentOut)
        arguments = f"{ParamOut}, {MomentOut}, {Grad}, {Grad_rows}, {LearningRate}"
        k.line(f"{k.function(move_by_adagrad)}({arguments}, {self.epsilon!r})")

    def kernel(self, k: KernelBuilder, s: KernelSlots) -> None:
        ParamOut, MomentOut = s.ParamOut, s.MomentOut
        copy(k, s.Param, ParamOut)
        copy(k, s.Moment, MomentOut)
        at = _Rows.found(k, s.Grad, s.Grad_rows, s.Param.shape)
        squares = at.read(MomentOut) + at.total * at.total
        step = number(k, s.LearningRate) * at.total / (k.sqrt(squares) + self.epsilon)
        at.write(ParamOut, at.read(ParamOut) - step)
        at.write(MomentOut, squares)


def move_by_adam(
    param: Array,
    moments: tuple[Array, Array],
    grad: Array,
    rows: Array,
    rate: Array,
    betas: tuple[Any, Any],
    epsilon: float,
) -> None:
    """Update rows of a parameter and its moments in place; `rate` is bias-corrected."""
    numbers, total = merge_rows(grad, rows)
    first = moments[0][numbers] * betas[0] + total * (1.0 - betas[0])
    second = moments[1][numbers] * betas[1] + total * total * (1.0 - betas[1])
    moments[0][numbers] = first
    moments[1][numbers] = second
    param[numbers] -= rate * (first / (np.sqrt(second) + epsilon))


class AdamRows(RowsUpdate, op="adam_rows"):
    """Adam in lazy mode: rows without a gradient are unchanged, and so are their moments.

    The rate is that of the dense op, with Beta1Pow and Beta2Pow before their update.
    The reference updates them first for sparse gradients, and so makes its first step shorter
    (adam_op.h).
    """

    Moment1 = reads()
    Moment2 = reads()
    Beta1Pow = reads()
    Beta2Pow = reads()
    Beta1Tensor = reads(optional=True)
    Beta2Tensor = reads(optional=True)
    Moment1Out = writes(inplace="Moment1")
    Moment2Out = writes(inplace="Moment2")
    Beta1PowOut = writes(inplace="Beta1Pow")
    Beta2PowOut = writes(inplace="Beta2Pow")
    beta1 = attr(0.9)
    beta2 = attr(0.999)
    epsilon = attr(1e-8)
    lazy_mode = attr(False)
    min_row_size_to_use_multithread = attr(1000)

    def numpy(
        self,
        Param: Array,
        Grad: Array,
        Grad_rows: Array,
        LearningRate: Array,
        Moment1: Array,
        Moment2: Array,
        Beta1Pow: Array,
        Beta2Pow: Array,
        Beta1Tensor: Array | None,
        Beta2Tensor: Array | None,
    ) -> dict[str, Array]:
        check_indices(Grad_rows, len(Param), "adam_rows")
        param, moments = Param.copy(), (Moment1.copy(), Moment2.copy())
        beta1 = self.beta1 if Beta1Tensor is None else Beta1Tensor.reshape(1)
        beta2 = self.beta2 if Beta2Tensor is None else Beta2Tensor.reshape(1)
        rate = LearningRate * np.sqrt(1.0 - Beta2Pow) / (1.0 - Beta1Pow)
        move_by_adam(param, moments, Grad, Grad_rows, rate, (beta1, beta2), self.epsilon)
        return {
            "ParamOut": param,
            "Moment1Out": moments[0],
            "Moment2Out": moments[1],
            "Beta1PowOut": Beta1Pow * beta1,
            "Beta2PowOut": Beta2Pow * beta2,
        }

    def lower(self, k: SourceBuilder, s: Slots[Operand]) -> None:
        Grad, Grad_rows, LearningRate, Beta1Pow = s.Grad, s.Grad_rows, s.LearningRate, s.Beta1Pow
        Beta2Pow, ParamOut, Moment1Out = s.Beta2Pow, s.ParamOut, s.Moment1Out
        Moment2Out, Beta1PowOut, Beta2PowOut = s.Moment2Out, s.Beta1PowOut, s.Beta2PowOut
        self.check_values(k, s)
        for before, after in (
            (s.Param, ParamOut),
            (s.Moment1, Moment1Out),
            (s.Moment2, Moment2Out),
        ):
            keep_state(k, before, after)
        beta_inputs = (s.get("Beta1Tensor"), self.beta1), (s.get("Beta2Tensor"), self.beta2)
        betas = [
            str(number if operand is None else operand.view((1,)))
            for operand, number in beta_inputs
        ]
        rate = f"{LearningRate} * np.sqrt(1.0 - {Beta2Pow}) / (1.0 - {Beta1Pow})"
        state = f"{ParamOut}, ({Moment1Out}, {Moment2Out}), {Grad}, {Grad_rows}, {rate}"
        move = k.function(move_by_adam)
        k.line(f"{move}({state}, ({betas[0]}, {betas[1]}), {self.epsilon!r})")
        k.line(f"np.multiply({Beta1Pow}, {betas[0]}, out={Beta1PowOut})")
        k.line(f"np.multiply({Beta2Pow}, {betas[1]}, out={Beta2PowOut})")

    def kernel(self, k: KernelBuilder, s: KernelSlots) -> None:
        ParamOut, Moment1Out, Moment2Out = s.ParamOut, s.Moment1Out, s.Moment2Out
        Beta1Tensor, Beta2Tensor = s.get("Beta1Tensor"), s.get("Beta2Tensor")
        for before, after in (
            (s.Param, ParamOut),
            (s.Moment1, Moment1Out),
            (s.Moment2, Moment2Out),
        ):
            copy(k, before, after)
        at = _Rows.found(k, s.Grad, s.Grad_rows, s.Param.shape)
        beta1 = self.beta1 if Beta1Tensor is None else number(k, Beta1Tensor)
        beta2 = self.beta2 if Beta2Tensor is None else number(k, Beta2Tensor)
        first = at.read(Moment1Out) * beta1 + at.total * (1.0 - beta1)
        second = at.read(Moment2Out) * beta2 + at.total * at.total * (1.0 - beta2)
        root = k.sqrt(1.0 - number(k, s.Beta2Pow))
        rate = number(k, s.LearningRate) * root / (1.0 - number(k, s.Beta1Pow))
        at.write(ParamOut, at.read(ParamOut) - rate * (first / (k.sqrt(second) + self.epsilon)))
        at.write(Moment1Out, first)
        at.write(Moment2Out, second)
        (one,) = k.grid(1)
        beta1 = self.beta1 if Beta1Tensor is None else Beta1Tensor.reshaped((1,))[one]
        beta2 = self.beta2 if Beta2Tensor is None else Beta2Tensor.reshaped((1,))[one]
        k.store(s.Beta1PowOut.reshaped((1,)), (one,), s.Beta1Pow.reshaped((1,))[one] * beta1)
        k.store(s.Beta2PowOut.reshaped((1,)), (one,), s.Beta2Pow.reshaped((1,))[one] * beta2)


@dataclass(frozen=True)
class _Rows:
    """The distinct rows of a sparse gradient: element j of row `row`.

    `total` is the sum of its gradients; `leads` is true for the elements that write it.
    """

    k: KernelBuilder
    row: Number
    j: Number
    total: Number
    leads: Number
    shape: tuple[Size, Size]

    @staticmethod
    def found(
        k: KernelBuilder, Grad: DeviceOperand, Grad_rows: DeviceOperand, shape: Sequence[Size]
    ) -> _Rows:
        """Merge repeated rows, and start a kernel over the elements of all rows."""
        count, width = Grad_rows.type.numel, product(shape[1:])
        rows = merged(k, Grad_rows, shape[0])
        n, j = k.grid(count, width)
        total, leads = rows.sums(k, Grad, n, j), rows.length[n] > 0
        row = Grad_rows.reshaped((count,))[n]
        return _Rows(k, row, j, total, leads, (shape[0], width))

    def read(self, table: DeviceOperand) -> Number:
        """Load the element of a table."""
        return table.reshaped(self.shape).at(self.row, self.j, where=self.leads, other=0)

    def write(self, table: DeviceOperand, value: Number) -> None:
        """Store the element of a table."""
        self.k.store(table.reshaped(self.shape), (self.row, self.j), value, self.leads)


def keep_state(k: SourceBuilder, before: Operand, after: Operand) -> None:
    """Copy the state to its output, unless both are the same memory."""
    if not k.aliased(before, after):
        k.line(f"np.copyto({after}, {before})")
