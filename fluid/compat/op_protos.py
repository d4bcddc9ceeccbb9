"""What is declared of every op type, with the names of the reference's `OpProto` messages."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from functools import cache

from compiler.errors import BadAttribute, UnknownOp
from compiler.ir.model_format.attributes import dump_attr
from compiler.ir.model_format.protobuf import AttrType
from compiler.ir.opdef import OpDef, find, is_registered, registered
from compiler.ir.opdef.slots import GRAPH_ONLY, Slot
from compiler.ir.opdef.slots import Attr as DeclaredAttr
from compiler.support.dataclass import dataclass
from fluid.compat.library_attributes import library_attributes

__all__ = ["OpProto", "OpProtoHolder", "get_all_op_protos"]

_EVERY_OP = {
    "op_role": AttrType.INT,
    "op_role_var": AttrType.STRINGS,
    "op_namescope": AttrType.STRING,
    "op_callstack": AttrType.STRINGS,
    "op_device": AttrType.STRING,
}
"""Attributes that a program adds to each op, and how they are written in files."""

_INTERMEDIATE = frozenset(
    (
        "attention_lstm.AttentionFCOut attention_lstm.AttentionedX attention_lstm.LSTMOUT "
        "attention_lstm.LSTMX batch_norm.SavedMean batch_norm.SavedVariance cos_sim.XNorm "
        "cos_sim.YNorm data_norm.Means data_norm.Scales dropout.Mask flatten2.XShape "
        "fused_elemwise_activation.IntermediateOut fused_embedding_fc_lstm.BatchedCell "
        "fused_embedding_fc_lstm.BatchedHidden fused_embedding_fc_lstm.BatchedInput "
        "fused_embedding_fc_lstm.ReorderedC0 fused_embedding_fc_lstm.ReorderedH0 "
        "fused_embedding_fc_lstm.XX fusion_gru.BatchedInput fusion_gru.BatchedOut "
        "fusion_gru.ReorderedH0 fusion_gru.XX fusion_lstm.BatchedCell fusion_lstm.BatchedHidden "
        "fusion_lstm.BatchedInput fusion_lstm.CheckedCell fusion_lstm.ReorderedC0 "
        "fusion_lstm.ReorderedH0 fusion_lstm.XX fusion_repeated_fc_relu.ReluOut "
        "fusion_seqconv_eltadd_relu.ColMat fusion_seqexpand_concat_fc.FCOut "
        "fusion_squared_mat_sub.SquaredX fusion_squared_mat_sub.SquaredXY "
        "fusion_squared_mat_sub.SquaredY group_norm.Mean group_norm.Variance gru.BatchGate "
        "gru.BatchHidden gru.BatchResetHiddenPrev gru_unit.Gate gru_unit.ResetHiddenPrev "
        "hierarchical_sigmoid.PreOut hierarchical_sigmoid.W_Out huber_loss.Residual "
        "inplace_abn.SavedMean inplace_abn.SavedVariance instance_norm.SavedMean "
        "instance_norm.SavedVariance layer_norm.Mean layer_norm.Variance linear_chain_crf.Alpha "
        "linear_chain_crf.EmissionExps linear_chain_crf.TransitionExps lstm.BatchCellPreAct "
        "lstm.BatchGate lstmp.BatchCellPreAct lstmp.BatchGate lstmp.BatchHidden "
        "margin_rank_loss.Activated modified_huber_loss.IntermediateVal multiclass_nms2.Index "
        "nce.SampleLabels nce.SampleLogits norm.Norm pyramid_hash.X_Temp_Out "
        "random_crop.SeedOut reshape2.XShape roi_perspective_transform.Out2InIdx "
        "roi_perspective_transform.Out2InWeights roi_pool.Argmax sample_logits.LabelsDim "
        "sample_logits.LogitsDim sample_logits.Probabilities sample_logits.SampledLogits "
        "sample_logits.Samples sequence_pool.MaxIndex sequence_topk_avg_pooling.pos "
        "smooth_l1_loss.Diff softmax_with_cross_entropy.Softmax squared_l2_distance.sub_result "
        "squeeze2.XShape transpose2.XShape unsqueeze2.XShape warpctc.WarpCTCGrad "
        "yolov3_loss.GTMatchMask yolov3_loss.ObjectnessMask"
    ).split()
)
"""Outputs of ops of 1.8.5 that are only for their gradient op, and need not be named."""


@dataclass(frozen=True)
class OpProto:
    """An op type: its input and output slots and its attributes, in order of declaration."""

    @dataclass(frozen=True)
    class Var:
        """A slot; `duplicable` ones hold a list.

        `dispensable` inputs and `intermediate` outputs may stay empty.
        """

        name: str
        comment: str = ""
        duplicable: bool = False
        intermediate: bool = False
        dispensable: bool = False

    @dataclass(frozen=True)
    class Attr:
        """An attribute and how it is written in files."""

        name: str
        type: int
        comment: str = ""
        generated: bool = False

    type: str
    inputs: list[Var] = field(default_factory=list[Var])
    outputs: list[Var] = field(default_factory=list[Var])
    attrs: list[Attr] = field(default_factory=list[Attr])
    comment: str = ""

    def IsInitialized(self) -> bool:
        """True: type, slots and attributes are set."""
        return bool(self.type)


@cache
def _proto(kind: str) -> OpProto:
    defn = find(kind)
    attrs = [
        OpProto.Attr(name, int(_written(kind, name, attr)))
        for name, attr in defn.attrs.items()
        if name not in GRAPH_ONLY
    ]
    declared = {attr.name for attr in attrs}
    attrs += [
        OpProto.Attr(name, dump_attr("", name, default).one("type", int))
        for name, default in library_attributes(kind).items()
        if name not in declared
    ]
    attrs += [OpProto.Attr(name, int(type)) for name, type in _EVERY_OP.items()]
    read, written = _vars(kind, defn.inputs()), _vars(kind, defn.outputs())
    return OpProto(kind, read, written, attrs, _comment(defn))


def _vars(kind: str, slots: Mapping[str, Slot]) -> list[OpProto.Var]:
    declared = [slot for slot in slots.values() if not slot.companion]
    return [_var(kind, slot) for slot in declared]


def _var(kind: str, slot: Slot) -> OpProto.Var:
    spared = f"{kind}.{slot.name}" in _INTERMEDIATE
    return OpProto.Var(slot.name, "", slot.many, spared, slot.optional and not spared)


def _comment(defn: type[OpDef]) -> str:
    """The first line of the class's docstring."""
    return (vars(defn).get("__doc__") or "").partition("\n")[0]


def _written(kind: str, name: str, attr: DeclaredAttr[object]) -> AttrType:
    """How an attribute is written: as its default is, or where there is none, as a zero."""
    value = attr.default
    if value is None:
        value = [attr.item()] if attr.item else attr.kind()
    try:
        message = dump_attr(kind, name, value)
    except BadAttribute:  # the op rejects 0: use the general attribute
        message = dump_attr("", name, value)
    return AttrType(message.one("type", int))


def get_all_op_protos() -> list[OpProto]:
    """What is declared of every op type, gradient ops included, in alphabetical order."""
    return [_proto(kind) for kind in registered()]


class OpProtoHolder:
    """What is declared of op types, by type; `OpProtoHolder.instance()` is the only one needed."""

    @classmethod
    def instance(cls) -> OpProtoHolder:
        """The one of this process."""
        return _holder()

    @property
    def op_proto_map(self) -> dict[str, OpProto]:
        """What is declared of every op type, by type."""
        return {proto.type: proto for proto in get_all_op_protos()}

    def has_op_proto(self, type: str) -> bool:
        """Whether there is an op of this type."""
        return is_registered(type)

    def get_op_proto(self, type: str) -> OpProto:
        """What is declared of an op type; ValueError where it is not registered."""
        try:
            return _proto(type)
        except UnknownOp as error:
            raise ValueError(str(error)) from None

    def update_op_proto(self) -> None:
        """Do nothing: newly registered ops are found on lookup."""

    @staticmethod
    def generated_op_attr_names() -> set[str]:
        """The attributes that a program adds to each op."""
        return set(_EVERY_OP)


@cache
def _holder() -> OpProtoHolder:
    return OpProtoHolder()
