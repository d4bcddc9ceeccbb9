"""Losses and counts over whole sequences: CRF, CTC, edit distance, chunks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fluid.framework import Variable
from fluid.layer_helper import LayerHelper
from fluid.layers.mathematics.order import topk
from fluid.layers.mathematics.shapes import squeeze
from fluid.param_attr import ParamAttr
from fluid.recording.checks import check_variable_and_dtype

__all__ = [
    "chunk_eval",
    "crf_decoding",
    "ctc_greedy_decoder",
    "edit_distance",
    "linear_chain_crf",
    "warpctc",
]

_WIDE = ("float32", "float64")


def linear_chain_crf(
    input: Variable, label: Variable, param_attr: Any = None, length: Variable | None = None
) -> Variable:
    """The cost of each sequence of tags, -log of its probability in a linear chain: [count, 1].

    `input` [rows, tags] has the weight of each tag by row, `label` [rows, 1] the true ones, both
    with LoD; or [lines, longest, tags] and [lines, longest] with `length` [lines, 1]. The parameter
    [tags + 2, tags] has the weights to start, to end, and to go from tag to tag.

    >>> import fluid
    >>> scores = fluid.data("tag_scores", [None, 3], lod_level=1)
    >>> tags = fluid.data("tags", [None, 1], "int64", lod_level=1)
    >>> attr = fluid.ParamAttr(name="chain")
    >>> linear_chain_crf(scores, tags, attr).shape, crf_decoding(scores, attr).shape
    ((-1, 1), (-1, 1))
    """
    check_variable_and_dtype(input, "input", _WIDE, "linear_chain_crf")
    check_variable_and_dtype(label, "label", ("int64",), "linear_chain_crf")
    helper = LayerHelper("linear_chain_crf", input=input, param_attr=param_attr)
    size, dtype = input.shape[1 if length is None else 2], helper.input_dtype()
    transition = helper.create_parameter(helper.param_attr, [size + 2, size], dtype)
    slots = ("Alpha", "EmissionExps", "TransitionExps", "LogLikelihood")
    outputs = {slot: helper.create_variable_for_type_inference(dtype) for slot in slots}
    inputs = {"Emission": input, "Transition": transition, "Label": label, "Length": length}
    helper.append_op("linear_chain_crf", inputs=inputs, outputs=outputs)
    return outputs["LogLikelihood"]


def crf_decoding(
    input: Variable,
    param_attr: ParamAttr,
    label: Variable | None = None,
    length: Variable | None = None,
) -> Variable:
    """The likeliest tags of each row; given `label`, 1 where they are right and 0 elsewhere.

    `param_attr.name` names the parameter of `linear_chain_crf`, whose shapes `input` and `length`
    have. The tags are int64 [rows, 1], or [lines, longest] with `length`.
    """
    check_variable_and_dtype(input, "input", _WIDE, "crf_decoding")
    helper = LayerHelper("crf_decoding")
    transition = helper.get_parameter(param_attr.name)
    inputs = {"Emission": input, "Transition": transition, "Label": label, "Length": length}
    return helper.append_result("crf_decoding", inputs, dtype="int64", slot="ViterbiPath")


def warpctc(
    input: Variable,
    label: Variable,
    blank: int = 0,
    norm_by_times: bool = False,
    input_length: Variable | None = None,
    label_length: Variable | None = None,
) -> Variable:
    """The CTC cost of each sequence, -log of the probability of its labels: [count, 1].

    `input` [rows, classes] (unscaled, the blank one of them) and `label` [labels, 1] int32 have
    LoD; or they are [longest, count, classes] and [count, longest] with both lengths [count].
    `norm_by_times` divides the gradient of each sequence by its length.
    """
    check_variable_and_dtype(input, "input", ("float32",), "warpctc")
    check_variable_and_dtype(label, "label", ("int32",), "warpctc")
    lengths = _both(LogitsLength=input_length, LabelLength=label_length)
    for slot, length in lengths.items():
        check_variable_and_dtype(length, slot, ("int64",), "warpctc")
    helper = LayerHelper("warpctc")
    gradient, loss = (helper.create_variable_for_type_inference(input.dtype) for _ in range(2))
    helper.append_op(
        "warpctc",
        inputs={"Logits": input, "Label": label, **lengths},
        outputs={"WarpCTCGrad": gradient, "Loss": loss},
        attrs={"blank": blank, "norm_by_times": norm_by_times},
    )
    return loss


def ctc_greedy_decoder(
    input: Variable,
    blank: int,
    input_length: Variable | None = None,
    padding_value: int = 0,
    name: str | None = None,
) -> Variable | tuple[Variable, Variable]:
    """The labels of the likeliest path: of repeated classes one, and no blanks, int64.

    `input` is [rows, classes] with LoD, and so are the labels: [labels, 1], or -1 alone if there
    are none at all. Or it is [lines, longest, classes] with `input_length` [lines, 1]; then the
    labels are filled up with `padding_value`, and how many they are [lines, 1] is returned too.
    """
    helper = LayerHelper("ctc_greedy_decoder", name=name)
    _, path = topk(input, k=1)
    attrs: dict[str, Any] = {"merge_repeated": True, "blank": blank}
    if input_length is None:
        return helper.append_result("ctc_align", {"Input": path}, attrs, slot="Output")
    labels, counts = (helper.create_variable_for_type_inference("int64") for _ in range(2))
    helper.append_op(
        "ctc_align",
        inputs={"Input": squeeze(path, [2]), "InputLength": input_length},
        outputs={"Output": labels, "OutputLength": counts},
        attrs={**attrs, "padding_value": padding_value},
    )
    return labels, counts


def _both(**lengths: Variable | None) -> dict[str, Variable]:
    """Lengths by slot; none of them unless all are given."""
    given = {slot: length for slot, length in lengths.items() if length is not None}
    return given if len(given) == len(lengths) else {}


def edit_distance(
    input: Variable,
    label: Variable,
    normalized: bool = True,
    ignored_tokens: Sequence[int] | None = None,
    input_length: Variable | None = None,
    label_length: Variable | None = None,
) -> tuple[Variable, Variable]:
    """How many tokens must be put in, left out or changed to make `label` of `input`: [count, 1].

    Both are int64 [tokens, 1] with LoD, or [count, longest] with both lengths. `normalized` divides
    by the length of `label`; `ignored_tokens` are taken out of both first, which needs LoD. Also
    returns the number of sequences, [1] int64.
    """
    check_variable_and_dtype(input, "input", ("int64",), "edit_distance")
    check_variable_and_dtype(label, "label", ("int64",), "edit_distance")
    helper = LayerHelper("edit_distance")
    if ignored_tokens:
        attrs = {"tokens": list(ignored_tokens)}
        input, label = (
            helper.append_result("sequence_erase", {"X": each}, attrs) for each in (input, label)
        )
    lengths = _both(HypsLength=input_length, RefsLength=label_length)
    distance, count = (helper.create_variable_for_type_inference("int64") for _ in range(2))
    helper.append_op(
        "edit_distance",
        inputs={"Hyps": input, "Refs": label, **lengths},
        outputs={"Out": distance, "SequenceNum": count},
        attrs={"normalized": normalized},
    )
    return distance, count


def chunk_eval(
    input: Variable,
    label: Variable,
    chunk_scheme: str,
    num_chunk_types: int,
    excluded_chunk_types: Sequence[int] | None = None,
    seq_length: Variable | None = None,
) -> tuple[Variable, ...]:
    """Precision, recall, F1, and the chunks in `input`, in `label` and in both: six of shape [1].

    Both are int64 [rows, 1] with LoD, or [lines, longest] with `seq_length`; a label is the type of
    chunk times the tags of the scheme ("IOB", "IOE", "IOBES", "plain"), plus the tag.
    """
    check_variable_and_dtype(input, "input", ("int64",), "chunk_eval")
    check_variable_and_dtype(label, "label", ("int64",), "chunk_eval")
    helper = LayerHelper("chunk_eval")
    shares = ("Precision", "Recall", "F1-Score")
    counts = ("NumInferChunks", "NumLabelChunks", "NumCorrectChunks")
    outputs = {
        slot: helper.create_variable_for_type_inference(dtype)
        for slots, dtype in ((shares, "float32"), (counts, "int64"))
        for slot in slots
    }
    helper.append_op(
        "chunk_eval",
        inputs={"Inference": input, "Label": label, "SeqLength": seq_length},
        outputs=outputs,
        attrs={
            "num_chunk_types": num_chunk_types,
            "chunk_scheme": chunk_scheme,
            "excluded_chunk_types": list(excluded_chunk_types or []),
        },
    )
    return tuple(outputs.values())
