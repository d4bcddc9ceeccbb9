"""Pooling, expansion and convolution of sequences, fused with the following ops.

Reference: the files fusion_seq*_op.cc.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from compiler.errors import BadAttribute, ShapeError
from compiler.ir.opdef import attr, reads, reads_lod, required, writes, writes_lod
from compiler.ir.opdef.attribute_bounds import Accepted
from compiler.ir.opdef.composite import Composite, CompositeSteps
from compiler.ops.fused.activations import activate
from compiler.ops.fused.fully_connected import flat, linear
from compiler.ops.type_checks import differ

POOLS = Accepted(choices=("AVERAGE", "SUM", "SQRT"))


class FusionSeqpoolConcat(Composite, op="fusion_seqpool_concat"):
    """Out [count, …] = the pooled sequences of each X, concatenated; `axis` must be 1."""

    lod_source = ""

    X = reads(many=True)
    X_lod = reads_lod("X")
    Out = writes()
    Out_lod = writes_lod("Out")
    pooltype = attr("SUM", POOLS)
    axis = attr(1, Accepted(choices=(1,)))

    def expand(self, steps: CompositeSteps) -> None:
        """Expand to `sequence_pool` of each input and `concat`."""
        attrs = {"pooltype": self.pooltype}
        pooled = [steps("sequence_pool", attrs, X=name) for name in steps.all("X")]
        joined = steps("concat", {"axis": self.axis}, X=pooled)
        steps.write("Out", steps("row_sequences", X=joined))


class FusionSeqpoolCvmConcat(Composite, op="fusion_seqpool_cvm_concat"):
    """`fusion_seqpool_concat` with `cvm` of each pooled X, which starts with show and click."""

    lod_source = ""

    X = reads(many=True)
    X_lod = reads_lod("X")
    CVM = reads()
    Out = writes()
    Out_lod = writes_lod("Out")
    pooltype = attr("SUM", POOLS)
    use_cvm = attr(True, Accepted(choices=(True,)))
    axis = attr(1, Accepted(choices=(1,)))

    def expand(self, steps: CompositeSteps) -> None:
        """Expand to `sequence_pool` and `cvm` of each input, and `concat`."""
        attrs, cvm = {"pooltype": self.pooltype}, {"use_cvm": self.use_cvm}
        pooled = [steps("sequence_pool", attrs, X=name) for name in steps.all("X")]
        features = [steps("cvm", cvm, X=name, CVM=steps["CVM"]) for name in pooled]
        joined = steps("concat", {"axis": self.axis}, X=features)
        steps.write("Out", steps("row_sequences", X=joined))


class FusionSeqexpandConcatFc(Composite, op="fusion_seqexpand_concat_fc"):
    """Out = activation([X[0], X[1], …] @ FCWeight + FCBias).

    X[1], … have one row per sequence of X[0].
    """

    X = reads(many=True)
    FCWeight = reads()
    FCBias = reads(optional=True)
    Out = writes()
    FCOut = writes(optional=True)
    fc_activation = attr("identity", Accepted(choices=("identity", "relu", "sigmoid", "tanh")))

    def infer_types(self, types: Mapping[str, Any]) -> dict[str, Any]:
        """Return a type with a row per row of X[0]; raise ShapeError if FCWeight does not match."""
        first, weight = types["X"][0], types["FCWeight"]
        if weight.rank != 2 or any(tensor_type.rank != 2 for tensor_type in types["X"]):
            raise ShapeError(f"{self.kind}: FCWeight is {weight}, expected rank 2 for it and all X")
        columns = sum((tensor_type.shape[1] for tensor_type in types["X"][1:]), first.shape[1])
        if differ(columns, weight.shape[0]):
            raise ShapeError(f"{self.kind}: FCWeight is {weight}, expected {columns} rows")
        return {"Out": first.with_shape((first.shape[0], weight.shape[1]))}

    def expand(self, steps: CompositeSteps) -> None:
        """Expand to `sequence_expand` of the other inputs, product, addition and activation."""
        first, *others = steps.all("X")
        if not others:
            raise BadAttribute(f"{self.kind}: there is one X, expected 2 or more")
        attrs = {"ref_level": 0}
        spread = [steps("sequence_expand", attrs, X=name, Y=first) for name in others]
        joined = steps("concat", {"axis": 1}, X=[first, *spread])
        out = linear(steps, joined, steps["FCWeight"], steps.all("FCBias"))
        steps.write("Out", activate(steps, self.fc_activation, out))


class FusionSeqconvEltaddRelu(Composite, op="fusion_seqconv_eltadd_relu"):
    """Out = relu(sequence_conv(X, Filter) + Bias)."""

    X = reads()
    X_lod = reads_lod("X")
    Filter = reads()
    Bias = reads()
    Out = writes()
    ColMat = writes(optional=True)
    contextLength = required(int)
    contextStart = attr(0)
    contextStride = attr(1, Accepted(choices=(1,)))

    def expand(self, steps: CompositeSteps) -> None:
        """Expand to the convolution, an addition and `relu`."""
        attrs = {"contextLength": self.contextLength, "contextStart": self.contextStart}
        convolved = steps("sequence_conv", attrs, **steps.given("X", "Filter"))
        added = steps("elementwise_add", {"axis": 1}, X=convolved, Y=flat(steps, steps["Bias"]))
        steps.write("Out", steps("relu", X=added))
