"""`core.ops`: a function for each op, which runs it in eager mode.

`core.ops.matmul(x, y, out, "transpose_Y", True)`: inputs by position, then outputs that the caller
makes, then how many outputs there are where an op has a list of them, then names and values of
attributes. Inputs that may be omitted are no arguments, but for those of `_INPUTS`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache, partial
from typing import cast

from fluid.compat.op_protos import OpProto, OpProtoHolder
from fluid.eager.programs import EagerBlock
from fluid.eager.variables import VarBase
from fluid.framework import default_main_program
from fluid.recording.annotations import SlotValue

__all__ = ["OpFunctions", "ops"]

_BLOCKS = frozenset(
    (
        "array_to_lod_tensor beam_search_decode c_comm_init c_comm_init_all c_sync_calc_stream "
        "c_sync_comm_stream checkpoint_notify conditional_block conditional_block_infer "
        "create_double_buffer_reader create_py_reader delete_var fake_init feed fetch "
        "fetch_barrier fl_listen_and_serv get_places listen_and_serv lod_array_length "
        "lod_rank_table lod_tensor_to_array lookup_sparse_table max_sequence_len merge_lod_tensor "
        "merge_lod_tensor_infer prefetch print py_func read read_from_array recurrent recv "
        "reorder_lod_tensor_by_rank rnn_memory_helper rnn_memory_helper_grad select_input "
        "select_output send send_barrier shrink_rnn_memory split_lod_tensor "
        "tensor_array_to_tensor while write_to_array"
    ).split()
)
"""Ops of programs: on blocks, tensor arrays, readers and servers."""

_MOMENTS = "Param Grad Moment LearningRate"
_INPUTS = {
    "adagrad": _MOMENTS,
    "adam": ("Param Grad LearningRate Moment1 Moment2 Beta1Pow Beta2Pow"),
    "decayed_adagrad": _MOMENTS,
    "deformable_conv": "Input Offset Mask Filter",
    "dgc_clip_by_norm": "current_step X",
    "dgc_momentum": "current_step nranks Param Grad Velocity LearningRate",
    "fill_constant": "",
    "ftrl": "Param SquaredAccumulator LinearAccumulator Grad LearningRate",
    "fused_embedding_fc_lstm": "Ids Embeddings WeightH Bias",
    "fusion_lstm": "X WeightX WeightH Bias",
    "gru_unit": "Input HiddenPrev Weight Bias",
    "instance_norm": "X Scale Bias",
    "label_smooth": "X PriorDist",
    "lars_momentum": "Param Grad Velocity LearningRate",
    "layer_norm": "X Scale Bias",
    "lstmp": "Input Weight ProjWeight Bias",
    "momentum": "Param Grad Velocity LearningRate",
    "multiplex": "Ids X",
    "proximal_adagrad": "Param Moment Grad LearningRate",
    "pyramid_hash": "X W WhiteList BlackList",
    "retinanet_target_assign": "Anchor GtBoxes GtLabels IsCrowd ImInfo",
    "rmsprop": "Param MeanSquare LearningRate Grad Moment",
    "sgd": "Param LearningRate Grad",
    "where": "Condition X Y",
}
"""The inputs in order, where they are others than the required ones as they are declared."""

_OUTPUTS = {
    "batch_norm": "Y MeanOut VarianceOut SavedMean SavedVariance",
    "chunk_eval": (
        "Precision Recall F1-Score NumInferChunks NumLabelChunks NumCorrectChunks"
    ),
    "coalesce_tensor": "Output FusedOutput",
    "dgc_momentum": "Grad_out ParamOut VelocityOut",
    "fusion_gru": "ReorderedH0 XX BatchedInput BatchedOut Hidden",
    "inplace_abn": "Y MeanOut VarianceOut SavedMean SavedVariance",
    "lstm": "Hidden Cell BatchGate BatchCellPreAct",
    "lstmp": "Projection Cell BatchGate BatchCellPreAct BatchHidden",
    "rmsprop": "ParamOut MomentOut MeanSquareOut MeanGradOut",
    "shuffle_batch": "Out ShuffleIdx SeedOut",
    "unique": "Out Index",
}  # fmt: skip
"""The outputs in order, where they are others than the required ones as they are declared."""

_GIVEN = {
    "accuracy": "Correct Total",
    "adam": "ParamOut Moment1Out Moment2Out Beta1PowOut Beta2PowOut",
    "batch_norm": "MeanOut VarianceOut",
    "fill_constant": "Out",
    "matmul": "Out",
    "momentum": "ParamOut VelocityOut",
    "sgd": "ParamOut",
}
"""The outputs that the caller makes; a new one is made where it is omitted."""


class OpFunctions:
    """The functions, found by the types of ops."""

    def __getattr__(self, op_type: str) -> Callable[..., object]:
        """Return the function of an op; AttributeError for what is no op of eager mode."""
        if op_type.startswith("__") or not _is_op(op_type):
            raise AttributeError(f"core.ops has no {op_type!r}: it is no op of eager mode")
        return partial(_run, op_type)

    def __dir__(self) -> list[str]:
        return sorted(filter(_is_op, OpProtoHolder.instance().op_proto_map))


ops = OpFunctions()


def _is_op(op_type: str) -> bool:
    return op_type not in _BLOCKS and op_type in OpProtoHolder.instance().op_proto_map


def _run(op_type: str, *args: object) -> object:
    """Run an op; return its output, or a tuple of several.

    Raises AssertionError outside eager mode, TypeError for arguments that are missing or of another
    kind, and what recording the op raises.
    """
    block = default_main_program().current_block()
    if not isinstance(block, EagerBlock):
        raise AssertionError(f"core.ops.{op_type} runs an op: call it within fluid.dygraph.guard()")
    signature = _signature(op_type)
    waiting = list(args)
    inputs: dict[str, SlotValue] = {}
    for slot in signature.inputs:
        value = signature.take(slot, waiting)
        if value is not None:
            inputs[slot.name] = value
    given: dict[str, SlotValue] = {}
    for slot in signature.outputs:
        if slot.name in signature.given and (not waiting or not isinstance(waiting[0], str)):
            given[slot.name] = signature.take(slot, waiting)
    outputs: dict[str, SlotValue] = {}
    for slot in signature.outputs:
        count = signature.take_count(slot, waiting) if slot.duplicable else 1
        made = [block.create_temporary("generated_tensor", "float32") for _ in range(count)]
        value = given.get(slot.name)
        outputs[slot.name] = value if value is not None else made if slot.duplicable else made[0]
    block.append_op(op_type, inputs, outputs, signature.attributes(waiting))
    results = tuple(outputs.values())
    return results[0] if len(results) == 1 else results


class _Signature:
    """What the function of an op takes."""

    def __init__(self, proto: OpProto) -> None:
        self.type = proto.type
        self.inputs = _chosen(proto.inputs, _INPUTS.get(proto.type))
        self.outputs = _chosen(proto.outputs, _OUTPUTS.get(proto.type))
        self.given = _GIVEN.get(proto.type, "").split()

    def take(self, slot: OpProto.Var, waiting: list[object]) -> SlotValue:
        """Remove the next argument, and return it as the value of a slot."""
        value = waiting.pop(0) if waiting else self
        if value is None or (isinstance(value, VarBase) and not slot.duplicable):
            return value
        if slot.duplicable and isinstance(value, list | tuple | VarBase):
            items: list[object] = [*value]
            if all(isinstance(item, VarBase) for item in items):
                return cast("list[VarBase]", items)
        received = "nothing" if value is self else f"{value!r:.60}"
        kind = "a list of variables" if slot.duplicable else "a variable"
        raise TypeError(f"{self}: {slot.name} must be {kind}, but received {received}")

    def take_count(self, slot: OpProto.Var, waiting: list[object]) -> int:
        """Remove and return the number of outputs in a slot."""
        count = waiting.pop(0) if waiting else None
        if not isinstance(count, int) or count < 1:
            raise TypeError(
                f"{self}: the number of variables of {slot.name} comes before the attributes, but "
                f"received {count!r:.60}"
            )
        return count

    def attributes(self, rest: Sequence[object]) -> dict[str, object]:
        """Return the attributes, of which names and values alternate."""
        names, values = rest[::2], rest[1::2]
        wrong = next((name for name in names if not isinstance(name, str)), None)
        if len(rest) % 2 or wrong is not None:
            problem = "a name has no value" if wrong is None else f"{wrong!r:.60} is no name"
            raise TypeError(f"{self}: names and values of attributes alternate, but {problem}")
        return dict(zip(cast("Sequence[str]", names), values, strict=True))

    def __str__(self) -> str:
        counts = [f"number of {slot.name}" for slot in self.outputs if slot.duplicable]
        names = [slot.name for slot in self.inputs]
        return f"core.ops.{self.type}({', '.join([*names, *self.given, *counts, '*attributes'])})"


@cache
def _signature(op_type: str) -> _Signature:
    return _Signature(OpProtoHolder.instance().get_op_proto(op_type))


def _chosen(slots: Sequence[OpProto.Var], names: str | None) -> list[OpProto.Var]:
    """The slots of these names in this order; by default those that have to be there."""
    if names is None:
        return [slot for slot in slots if not slot.dispensable]
    by_name = {slot.name: slot for slot in slots}
    return [by_name[name] for name in names.split() if name in by_name]
