"""Samples of fused ops, which are short programs of other ops."""

from compiler.ir.opdef import find
from tests.ops.samples import Sample, numbers

X, Y = numbers(3, 4, low=-2.0, high=2.0), numbers(3, 4, seed=1)
PAIRS = [
    ("elementwise_add", "relu"),
    ("elementwise_mul", "scale"),
    ("elementwise_mul", "sigmoid"),
    ("gelu", "elementwise_add"),
    ("scale", "elementwise_mul"),
    ("tanh", "elementwise_add"),
]


def fused(x, y, *functions, **attrs):
    """Return a sample of `fused_elemwise_activation`."""
    attrs = {"functor_list": list(functions), "scale": 0.3, **attrs}
    return Sample("fused_elemwise_activation", {"X": x, "Y": y}, attrs, ("X", "Y"))


def fused_gradient(**attrs):
    """Return a sample of its gradient op, with values that fit."""
    attrs = {"functor_list": ["elementwise_mul_grad", "tanh_grad"], **attrs}
    forward = find("fused_elemwise_activation")(attrs).evaluate({"X": X, "Y": Y})
    inputs = {"X": X, "Y": Y, **forward, "Out@GRAD": numbers(3, 4, seed=2)}
    return Sample("fused_elemwise_activation_grad", inputs, attrs)


SAMPLES = [
    *(fused(X, Y, *pair) for pair in PAIRS),
    fused(numbers(2, 3, 4), numbers(3, seed=1), "relu", "elementwise_add", axis=1),
    fused(numbers(4), numbers(3, 4, seed=1), "elementwise_add", "tanh", save_intermediate_out=True),
    fused_gradient(save_intermediate_out=True),
]
