"""Convolutions with an epilogue: `conv2d_fusion`, and those of programs for oneDNN.

Reference: conv_fusion_op.cc, mkldnn/conv_mkldnn_op.cc.
"""

from __future__ import annotations

from typing import ClassVar

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


class ConvolutionEpilogue(Composite):
    """Output = activation(convolution(Input, Filter, Bias) + ResidualData).

    Graphs have it instead of the convolution with `use_mkldnn` and an attribute `fuse_…`;
    `fuse_alpha` is the bound of relu6, the slope of relu and leaky_relu, and the factor of swish.
    """

    convolution: ClassVar[str]

    Input = reads()
    Filter = reads()
    Bias = reads(optional=True)
    ResidualData = reads(optional=True)
    Output = writes()
    strides = attr([1, 1])
    paddings = attr([0, 0])
    dilations = attr([1, 1])
    groups = attr(1)
    padding_algorithm = attr("EXPLICIT")
    data_format = attr("NCHW")
    fuse_activation = attr("", Accepted(choices=("", "relu", "relu6", "leaky_relu", "swish")))
    fuse_alpha = attr(0.0)
    fuse_relu = attr(False)
    fuse_brelu = attr(False)
    fuse_brelu_threshold = attr(6.0)
    fuse_residual_connection = attr(False)

    def expand(self, steps: CompositeSteps) -> None:
        """Expand to the convolution, the addition and the activation."""
        inner = find(self.convolution)
        declared = {name for name in inner.attrs if not name.startswith("fuse_")}
        attrs = {name: value for name, value in self.attributes.items() if name in declared}
        operands = [slot for slot in ("Input", "Filter", "Bias") if slot in inner.slots]
        result = steps(self.convolution, attrs, **steps.given(*operands))
        if self.fuse_residual_connection and steps.has("ResidualData"):
            result = steps("elementwise_add", X=result, Y=steps["ResidualData"])
        kind, alpha = self.fuse_activation or "relu" * self.fuse_relu, self.fuse_alpha
        if not kind and self.fuse_brelu:
            kind, alpha = "relu6", self.fuse_brelu_threshold
        if kind in ("relu", "leaky_relu"):
            result = steps("leaky_relu", {"alpha": alpha}, X=result)
        elif kind:
            result = steps(kind, {"threshold" if kind == "relu6" else "beta": alpha}, X=result)
        steps.write("Output", result)


class Conv2dEpilogue(ConvolutionEpilogue, op="conv2d_epilogue"):
    """Output = activation(conv2d(Input, Filter, Bias) + ResidualData): conv2d with these attrs."""

    convolution = "conv2d"


class Conv3dEpilogue(ConvolutionEpilogue, op="conv3d_epilogue"):
    """Output = activation(conv3d(Input, Filter) + ResidualData): `conv3d` with these attributes."""

    convolution = "conv3d"

    strides = attr([1, 1, 1])
    paddings = attr([0, 0, 0])
    dilations = attr([1, 1, 1])
    data_format = attr("NCDHW")


class Conv2dTransposeEpilogue(ConvolutionEpilogue, op="conv2d_transpose_epilogue"):
    """Output = activation(conv2d_transpose(Input, Filter, Bias)), the op with these attributes."""

    convolution = "conv2d_transpose"

    output_size = attr_list(int)
    output_padding = attr_list(int)


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
