"""`conv2d_fusion`, a convolution with an epilogue. Reference: conv_fusion_op.cc."""

from __future__ import annotations

from compiler.ir.opdef import attr, attr_list, find, reads, writes
from compiler.ir.opdef.attribute_bounds import Accepted
from compiler.ir.opdef.composite import Composite, CompositeSteps
from compiler.ops.fused.activations import activate

ACTIVATIONS = Accepted(choices=("identity", "relu", "relu6", "sigmoid", "tanh"))


class Conv2dFusion(Composite, op="conv2d_fusion"):
    """Output = activation(conv2d(Input, Filter) + ResidualData + Bias).

    Outputs are Output split along channels by `split_channels`, if there are any.
    """

    Input = reads()
    Filter = reads()
    Bias = reads(optional=True)
    ResidualData = reads(optional=True)
    Output = writes()
    Outputs = writes(optional=True, many=True)
    strides = attr([1, 1])
    paddings = attr([0, 0])
    dilations = attr([1, 1])
    groups = attr(1)
    padding_algorithm = attr("EXPLICIT")
    data_format = attr("NCHW", Accepted(choices=("NCHW", "AnyLayout")))
    activation = attr("relu", ACTIVATIONS)
    split_channels = attr_list(int)

    def expand(self, steps: CompositeSteps) -> None:
        """Expand to the convolution, additions, the activation and a split."""
        declared = find("conv2d").attrs
        attrs = {name: value for name, value in self.attributes.items() if name in declared}
        result = steps("conv2d", attrs, **steps.given("Input", "Filter"))
        if steps.has("ResidualData"):
            result = steps("elementwise_add", X=result, Y=steps["ResidualData"])
        if steps.has("Bias"):
            result = steps("elementwise_add", {"axis": 1}, X=result, Y=steps["Bias"])
        active = activate(steps, self.activation, result)
        steps.write("Output", active)
        if self.split_channels:
            parts, attrs = {"Out": len(self.split_channels)}, {"axis": 1}
            attrs = {"axis": 1, "sections": self.split_channels}
            steps.write("Outputs", *steps.outputs("split", parts, attrs, X=active)["Out"])


class FusionTransposeFlattenConcat(Composite, op="fusion_transpose_flatten_concat"):
    """Out = each X transposed by `trans_axis`, flattened to a matrix, and concatenated."""

    X = reads(many=True)
    Out = writes()
    trans_axis = attr_list(int)
    flatten_axis = attr(1)
    concat_axis = attr(1)

    def expand(self, steps: CompositeSteps) -> None:
        """Expand to `transpose` and `flatten` of each input, and `concat`."""
        moved = [steps("transpose", {"axis": self.trans_axis}, X=name) for name in steps.all("X")]
        flat = [steps("flatten", {"axis": self.flatten_axis}, X=name) for name in moved]
        steps.write("Out", steps("concat", {"axis": self.concat_axis}, X=flat))
