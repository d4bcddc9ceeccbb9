"""Samples of losses over sequences: with LoD and padded, empty and single ones, odd labels."""

import numpy as np

from tests.ops.samples import Sample, integers, numbers


def lod(*lengths):
    """Return the offsets of sequences of these lengths, as the only level."""
    return [np.append(0, np.cumsum(lengths)).astype(np.int64)]


def lengths(*counts):
    """Return lengths as [lines, 1]."""
    return np.array(counts).reshape(-1, 1)


EMISSION = {"Emission": numbers(8, 4, low=-2.0, high=2.0), "Emission_lod": lod(3, 0, 1, 4)}
FIELD = {"Transition": numbers(6, 4, seed=1)}
TAGS = {"Label": integers(8, 1, high=4, seed=2), "Label_lod": lod(3, 0, 1, 4)}
LINES = {"Emission": numbers(3, 5, 4, low=-2.0, high=2.0, seed=3), "Length": lengths(5, 1, 3)}
IN_LINES = {"Label": integers(3, 5, 1, high=4, seed=4)}
LEARNT = ("Emission", "Transition")

SAMPLES = [
    Sample("linear_chain_crf", {**EMISSION, **FIELD, **TAGS}, {}, LEARNT),
    Sample("linear_chain_crf", {**LINES, **FIELD, **IN_LINES}, {}, LEARNT),
    Sample("linear_chain_crf", {**LINES, **FIELD, "Label": IN_LINES["Label"][..., 0]}, {}, LEARNT),
    Sample("crf_decoding", {**EMISSION, **FIELD}),
    Sample("crf_decoding", {**EMISSION, **FIELD, "Label": TAGS["Label"]}),
    Sample("crf_decoding", {**LINES, **FIELD}),
    Sample("crf_decoding", {**LINES, **FIELD, **IN_LINES}),
]

SCORES = {"Logits": numbers(12, 4, low=-2.0, high=2.0, seed=5), "Logits_lod": lod(5, 4, 3)}
WORDS = {
    "Label": np.array([[1], [1], [2], [3]], np.int32),
    "Label_lod": lod(2, 0, 2),
}
PADDED_SCORES = {
    "Logits": numbers(6, 3, 4, low=-2.0, high=2.0, seed=6),
    "LogitsLength": np.array([6, 2, 5]),
    "Label": np.array([[2, 2, 1], [3, 0, 0], [3, 2, 3]], np.int32),
    "LabelLength": np.array([3, 1, 3]),
}
IMPOSSIBLE = {
    **SCORES,
    "Label": np.array([[1], [1], [2], [3]], np.int32),
    "Label_lod": lod(0, 0, 4),
}
SAMPLES += [
    Sample("warpctc", {**SCORES, **WORDS}, {}, ("Logits",)),
    Sample("warpctc", PADDED_SCORES, {}, ("Logits",)),
    Sample("warpctc", {**PADDED_SCORES, "Label": PADDED_SCORES["Label"] - 1}, {"blank": 3}, ("Logits",)),
    Sample("warpctc", IMPOSSIBLE, {}, ("Logits",)),
]  # fmt: skip

PATH = np.array([0, 1, 1, 0, 2, 2, 0, 0, 3, 3, 1, 0, 1, 1]).reshape(-1, 1)
SAMPLES += [
    Sample("ctc_align", {"Input": PATH, "Input_lod": lod(6, 2, 5, 1)}),
    Sample("ctc_align", {"Input": PATH, "Input_lod": lod(7, 7)}, {"merge_repeated": False}),
    Sample("ctc_align", {"Input": PATH * 0, "Input_lod": lod(7, 7)}),
    Sample(
        "ctc_align",
        {"Input": PATH.reshape(2, 7).astype(np.int32), "InputLength": np.array([[5], [7]])},
        {"blank": 1, "padding_value": 9},
    ),
]

HYPS = {"Hyps": integers(9, 1, high=4, seed=7), "Hyps_lod": lod(4, 0, 5)}
REFS = {"Refs": integers(8, 1, high=4, seed=8), "Refs_lod": lod(5, 2, 1)}
IN_BOXES = {
    "Hyps": integers(3, 4, high=4, seed=9),
    "HypsLength": lengths(4, 2, 0),
    "Refs": integers(3, 5, high=4, seed=10),
    "RefsLength": lengths(1, 5, 3),
}
SAMPLES += [
    Sample("edit_distance", inputs, {"normalized": normalized})
    for inputs in ({**HYPS, **REFS}, IN_BOXES)
    for normalized in (False, True)
]

GUESSED = integers(14, 1, high=7, seed=11)
REAL = np.where(integers(14, 1, high=4, seed=12) > 0, GUESSED, integers(14, 1, high=7, seed=13))
SAMPLES += [
    Sample(
        "chunk_eval",
        {"Inference": GUESSED % most, "Label": REAL % most, "Label_lod": lod(5, 1, 8)},
        {"num_chunk_types": 3, "chunk_scheme": scheme, "excluded_chunk_types": excluded},
    )
    for scheme, most in (("IOB", 7), ("IOE", 7), ("IOBES", 13), ("plain", 4))
    for excluded in ([], [1])
]
SAMPLES += [
    Sample(
        "chunk_eval",
        {
            "Inference": GUESSED.reshape(2, 7),
            "Label": REAL.reshape(2, 7),
            "SeqLength": lengths(5, 7),
        },
        {"num_chunk_types": 3, "chunk_scheme": "IOB"},
    )
]
