"""Fused fully connected layers.

Reference: fc_op.cc, fused_fc_elementwise_layernorm_op.cc, fusion_repeated_fc_relu_op.cc,
fusion_squared_mat_sub_op.cc.
"""

from __future__ import annotations

from compiler.errors import BadAttribute, ShapeError
from compiler.ir.opdef import attr, reads, writes
from compiler.ir.opdef.attribute_bounds import Accepted
from compiler.ir.opdef.composite import Composite, CompositeSteps
from compiler.ops.fused.activations import activate
from compiler.ops.type_checks import differ, shown

RELU_OR_NONE = Accepted(choices=("", "relu"))
_PADDING = 4
"""Number of extra rows and columns of a padded weight."""


def linear(steps: CompositeSteps, x: str, weight: str, bias: list[str], axes: int = 1) -> str:
    """Append x @ weight + bias, with the first `axes` axes of x as rows; return its name."""
    product = steps("mul", {"x_num_col_dims": axes}, X=x, Y=weight)
    if not bias:
        return product
    return steps("elementwise_add", {"axis": -1}, X=product, Y=flat(steps, bias[0]))


def flat(steps: CompositeSteps, name: str) -> str:
    """Append a flattened view of a value."""
    return steps("reshape", {"shape": [-1]}, X=name)


class Fc(Composite, op="fc"):
    """Out = activation(Input @ W + Bias), Input flattened to a matrix after `in_num_col_dims` axes.

    With `padding_weights` the last 4 rows and columns of W are ignored.
    """

    Input = reads()
    W = reads()
    Bias = reads(optional=True)
    Out = writes()
    in_num_col_dims = attr(1)
    activation_type = attr("", RELU_OR_NONE)
    padding_weights = attr(False)

    def expand(self, steps: CompositeSteps) -> None:
        """Expand to a product, an addition if there is a Bias, and an activation."""
        weight = self.weight(steps)
        self.check_bias(steps)
        out = linear(steps, steps["Input"], weight, steps.all("Bias"), self.in_num_col_dims)
        steps.write("Out", activate(steps, self.activation_type, out))

    def weight(self, steps: CompositeSteps) -> str:
        """Return the name of W without its padding; raise ShapeError unless it is a matrix."""
        if steps.type("W").rank != 2:
            raise ShapeError(f"fc: W is {steps.type('W')}, expected two axes")
        if not self.padding_weights:
            return steps["W"]
        cut = {"axes": [0, 1], "starts": [0, 0], "ends": [-_PADDING, -_PADDING]}
        return steps("slice", cut, Input=steps["W"])

    def check_bias(self, steps: CompositeSteps) -> None:
        """Raise ShapeError unless Bias has one element per column of W."""
        if not steps.has("Bias"):
            return
        weight, bias = steps.type("W"), steps.type("Bias")
        columns = weight.shape[1] - _PADDING * self.padding_weights
        if differ(bias.numel, columns):
            shapes = shown(W=weight, Bias=bias)
            raise ShapeError(f"fc: {shapes} do not fit: expected Bias with {columns} elements")


class FusedFcElementwiseLayernorm(Composite, op="fused_fc_elementwise_layernorm"):
    """Out = layer_norm(activation(X @ W + Bias0) + Y, Scale, Bias1)."""

    X = reads()
    W = reads()
    Bias0 = reads(optional=True)
    Y = reads()
    Scale = reads(optional=True)
    Bias1 = reads(optional=True)
    Out = writes()
    Mean = writes(optional=True)
    Variance = writes(optional=True)
    x_num_col_dims = attr(1)
    activation_type = attr("", RELU_OR_NONE)
    epsilon = attr(1e-5)
    begin_norm_axis = attr(1)

    def expand(self, steps: CompositeSteps) -> None:
        """Expand to `fc`, an addition and `layer_norm`."""
        product = linear(steps, steps["X"], steps["W"], steps.all("Bias0"), self.x_num_col_dims)
        active = activate(steps, self.activation_type, product)
        added = steps("elementwise_add", X=active, Y=steps["Y"])
        attrs = {"epsilon": self.epsilon, "begin_norm_axis": self.begin_norm_axis}
        vectors = {"Scale": steps.all("Scale"), "Bias": steps.all("Bias1")}
        wanted = {"Mean": 1, "Variance": 1}
        outputs = steps.outputs("layer_norm", wanted, attrs, X=added, **vectors)
        for slot, source in (("Out", "Y"), ("Mean", "Mean"), ("Variance", "Variance")):
            steps.write(slot, *outputs[source])


class FusionRepeatedFcRelu(Composite, op="fusion_repeated_fc_relu"):
    """Out = relu(… relu(X @ W[0] + Bias[0]) … @ W[n] + Bias[n]).

    ReluOut are the intermediate results.
    """

    X = reads()
    W = reads(many=True)
    Bias = reads(many=True)
    ReluOut = writes(many=True, optional=True)
    Out = writes()

    def expand(self, steps: CompositeSteps) -> None:
        """Expand to a product, an addition and `relu` per weight."""
        weights, biases = steps.all("W"), steps.all("Bias")
        if len(weights) < 2 or len(weights) != len(biases):
            counts = f"{len(weights)} W and {len(biases)} Bias"
            raise BadAttribute(f"{self.kind}: there are {counts}, expected equal counts, 2 or more")
        activations = [steps["X"]]
        for weight, bias in zip(weights, biases, strict=True):
            activations.append(steps("relu", X=linear(steps, activations[-1], weight, [bias])))
        steps.write("ReluOut", *activations[1:-1])
        steps.write("Out", activations[-1])


class FusionSquaredMatSub(Composite, op="fusion_squared_mat_sub"):
    """Out = scalar * ((X @ Y)² - X² @ Y²); SquaredXY is (X @ Y)²."""

    X = reads()
    Y = reads()
    SquaredX = writes(optional=True)
    SquaredY = writes(optional=True)
    SquaredXY = writes(optional=True)
    Out = writes()
    scalar = attr(1.0)

    def expand(self, steps: CompositeSteps) -> None:
        """Expand to three squares, two products and a difference."""
        for slot in ("X", "Y"):
            if steps.type(slot).rank != 2:
                raise ShapeError(f"{self.kind}: {slot} is {steps.type(slot)}, expected two axes")
        x, y = (steps("square", X=steps[slot]) for slot in ("X", "Y"))
        both = steps("square", X=steps("matmul", X=steps["X"], Y=steps["Y"]))
        less = steps("elementwise_sub", X=both, Y=steps("matmul", X=x, Y=y))
        outputs = {"SquaredX": x, "SquaredY": y, "SquaredXY": both}
        for slot, name in outputs.items():
            steps.write(slot, name)
        steps.write("Out", steps("scale", {"scale": self.scalar}, X=less))
