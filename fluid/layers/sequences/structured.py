"""Structured losses and metrics on sequences: CRF, CTC, edit distance, chunks."""

from __future__ import annotations

from collections.abc import Sequence

from fluid.framework import Variable
from fluid.layer_helper import LayerHelper
from fluid.layers.mathematics.order import topk
from fluid.layers.mathematics.shapes import squeeze
from fluid.param_attr import ParamAttr, ParamAttrLike
from fluid.recording.checks import check_variable_and_dtype

__all__ = [
    "chunk_eval",
    "crf_decoding",
    "ctc_greedy_decoder",
    "edit_distance",
    "linear_chain_crf",
    "warpctc",
]

_FULL_PRECISION = ("float32", "float64")


def linear_chain_crf(
    input: Variable,
    label: Variable,
    param_attr: ParamAttrLike = None,
    length: Variable | None = None,
) -> Variable:
    """Negative log-likelihood of tag sequences under a linear-chain CRF: [count, 1].

    `input` [rows, tags] are the emission scores, `label` [rows, 1] the true tags, both with LoD; or
    [batch, max length, tags] and [batch, max length] with `length` [batch, 1]. The parameter [tags
    + 2, tags] has the start, end and transition weights.

    >>> import fluid
    >>> scores = fluid.data("tag_scores", [None, 3], lod_level=1)
    >>> tags = fluid.data("tags", [None, 1], "int64", lod_level=1)
    >>> attr = fluid.ParamAttr(name="chain")
    >>> linear_chain_crf(scores, tags, attr).shape, crf_decoding(scores, attr).shape
    ((-1, 1), (-1, 1))
    """
    check_variable_and_dtype(input, "input", _FULL_PRECISION, "linear_chain_crf")
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
    """Viterbi decoding of a linear-chain CRF; with `label`, 1 where the tag is correct, else 0.

    `param_attr.name` is the parameter of `linear_chain_crf`; `input` and `length` are as there. The
    tags are int64 [rows, 1], or [batch, max length] with `length`.
    """
    check_variable_and_dtype(input, "input", _FULL_PRECISION, "crf_decoding")
    helper = LayerHelper("crf_decoding")
    transition = helper.get_parameter(str(param_attr.name))
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
    """CTC loss, the negative log-likelihood of each sequence's labels: [count, 1].

    `input` [rows, classes] (logits, including the blank) and `label` [labels, 1] int32 have LoD; or
    they are [max length, count, classes] and [count, max length] with both lengths [count].
    `norm_by_times` divides the gradient of each sequence by its length.
    """
    check_variable_and_dtype(input, "input", ("float32",), "warpctc")
    check_variable_and_dtype(label, "label", ("int32",), "warpctc")
    lengths = _length_inputs(LogitsLength=input_length, LabelLength=label_length)
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
    """Labels of the best CTC path, repeated classes merged and blanks removed, int64.

    `input` is [rows, classes] with LoD, and so are the labels: [labels, 1], or a single -1 if there
    are none. Or it is [batch, max length, classes] with `input_length` [batch, 1]; then the labels
    are padded with `padding_value`, and their lengths [batch, 1] are returned too. Raises
    ValueError for such an input without `input_length`.
    """
    if input_length is None and len(input.shape) == 3:
        raise ValueError(
            f"ctc_greedy_decoder needs input_length for an input of shape {input.shape}, "
            "[batch, max length, classes]; without it input is [rows, classes] with LoD"
        )
    helper = LayerHelper("ctc_greedy_decoder", name=name)
    _, path = topk(input, k=1)
    attrs: dict[str, object] = {"merge_repeated": True, "blank": blank}
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


def _length_inputs(**lengths: Variable | None) -> dict[str, Variable]:
    """Return the lengths by slot, or none unless all are set."""
    present = {slot: length for slot, length in lengths.items() if length is not None}
    return present if len(present) == len(lengths) else {}


def edit_distance(
    input: Variable,
    label: Variable,
    normalized: bool = True,
    ignored_tokens: Sequence[int] | None = None,
    input_length: Variable | None = None,
    label_length: Variable | None = None,
) -> tuple[Variable, Variable]:
    """Levenshtein distance between `input` and `label` per sequence: [count, 1].

    Both are int64 [tokens, 1] with LoD, or [count, max length] with both lengths. `normalized`
    divides by the length of `label`; `ignored_tokens` are removed from both first, which requires
    LoD. Also returns the number of sequences, [1] int64.
    """
    check_variable_and_dtype(input, "input", ("int64",), "edit_distance")
    check_variable_and_dtype(label, "label", ("int64",), "edit_distance")
    helper = LayerHelper("edit_distance")
    if ignored_tokens:
        attrs = {"tokens": list(ignored_tokens)}
        input, label = (
            helper.append_result("sequence_erase", {"X": variable}, attrs)
            for variable in (input, label)
        )
    lengths = _length_inputs(HypsLength=input_length, RefsLength=label_length)
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
    """Precision, recall, F1 and the chunk counts of `input`, `label` and both: six of shape [1].

    Both are int64 [rows, 1] with LoD, or [batch, max length] with `seq_length`; a label is the
    chunk type times the number of tags of the scheme ("IOB", "IOE", "IOBES", "plain"), plus the
    tag.
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
