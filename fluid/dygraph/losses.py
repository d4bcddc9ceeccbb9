"""Loss layer objects; `reduction` is 'mean', 'sum' or 'none'."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from fluid.dygraph.layers import Layer
from fluid.framework import Variable
from fluid.layer_helper import append_simple_op
from fluid.layers.mathematics.arithmetic import elementwise_mul, elementwise_sub
from fluid.layers.mathematics.reductions import reduce_mean, reduce_sum
from fluid.layers.nn import reshape
from fluid.recording.checks import check_variable_and_dtype

__all__ = ["BCELoss", "L1Loss", "MSELoss", "NLLLoss"]


def _unreduced(loss: Variable) -> Variable:
    return loss


_REDUCTIONS: dict[str, Callable[[Variable], Variable]] = {
    "mean": reduce_mean,
    "sum": reduce_sum,
    "none": _unreduced,
}
_FLOATS = ("float32", "float64")


def _elementwise(op: str, value: Variable) -> Variable:
    return append_simple_op(op, {"X": value})


class _Loss(Layer):
    """Base class of losses; ValueError for an invalid reduction."""

    def __init__(self, reduction: str) -> None:
        if reduction not in _REDUCTIONS:
            raise ValueError(
                f"The value of 'reduction' in {type(self).__name__} should be 'sum', 'mean' or "
                f"'none', but received {reduction!r}"
            )
        super().__init__()
        self.reduction = reduction

    def _reduce(self, loss: Variable) -> Variable:
        return _REDUCTIONS[self.reduction](loss)

    def _check(self, input: Variable, label: Variable, dtypes: Sequence[str]) -> None:
        for name, variable in (("input", input), ("label", label)):
            check_variable_and_dtype(variable, name, dtypes, type(self).__name__)


def _expect_variable(weight: object) -> None:
    if not isinstance(weight, Variable):
        raise ValueError(f"the weight must be a Variable, not {weight!r:.60}")


class MSELoss(_Loss):
    """Squared error of input and label."""

    def __init__(self, reduction: str = "mean") -> None:
        super().__init__(reduction)

    def forward(self, input: Variable, label: Variable) -> Variable:
        """Return the loss, reduced or of the shape of `input`."""
        self._check(input, label, ["float32"])
        return self._reduce(_elementwise("square", elementwise_sub(input, label)))


class L1Loss(_Loss):
    """Absolute error of input and label."""

    def __init__(self, reduction: str = "mean") -> None:
        super().__init__(reduction)

    def forward(self, input: Variable, label: Variable) -> Variable:
        """Return the loss, reduced or of the shape of `input`."""
        self._check(input, label, [*_FLOATS, "int32", "int64"])
        return self._reduce(_elementwise("abs", elementwise_sub(input, label)))


class BCELoss(_Loss):
    """Binary cross entropy of probabilities, times `weight` if it is not None."""

    def __init__(self, weight: Variable | None = None, reduction: str = "mean") -> None:
        super().__init__(reduction)
        self.weight = weight

    def forward(self, input: Variable, label: Variable) -> Variable:
        """Return the loss, reduced or of the shape of `input`."""
        self._check(input, label, _FLOATS)
        loss = self._helper.append_result("bce_loss", {"X": input, "Label": label})
        if self.weight is not None:
            _expect_variable(self.weight)
            loss = elementwise_mul(loss, self.weight)
        return self._reduce(loss)


class NLLLoss(_Loss):
    """Negative log-likelihood loss of log-probabilities.

    `weight` has one element per class; labels equal to `ignore_index` are ignored.
    """

    def __init__(
        self, weight: Variable | None = None, reduction: str = "mean", ignore_index: int = -100
    ) -> None:
        super().__init__(reduction)
        self.weight, self.ignore_index = weight, ignore_index

    def forward(self, input: Variable, label: Variable) -> Variable:
        """Return the loss of `input`, [batch, classes, …], for `label`, [batch, …]."""
        check_variable_and_dtype(input, "input", _FLOATS, "NLLLoss")
        check_variable_and_dtype(label, "label", ["int64"], "NLLLoss")
        sizes = list(input.shape)
        if len(sizes) < 2:
            raise ValueError(f"Expected 2 or more dimensions (got {len(sizes)})")
        folded = len(sizes) not in (2, 4)
        if folded:
            input = reshape(input, [*sizes[:2], 1, -1])
            label = reshape(label, [sizes[0], 1, -1])
        out = self._append(input, label)
        unfolds = folded and self.reduction == "none"
        return reshape(out, [sizes[0], *sizes[2:]]) if unfolds else out

    def _append(self, input: Variable, label: Variable) -> Variable:
        make = self._helper.create_variable_for_type_inference
        out, total = make(input.dtype), make(input.dtype)
        self._helper.append_op(
            "nll_loss",
            {"X": input, "Label": label, "Weight": self.weight},
            {"Out": out, "Total_weight": total},
            {"reduction": self.reduction, "ignore_index": self.ignore_index},
        )
        return out
