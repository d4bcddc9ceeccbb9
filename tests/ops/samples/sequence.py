"""Samples of ops on sequences: several lengths, empty ones, one alone, and two LoD levels."""

import numpy as np

from tests.ops.samples import Sample, integers, numbers

LENGTHS = ((3, 1, 2), (2, 0, 3), (4,), (1, 1))


def lod(*levels):
    """Return offsets a level, from lengths."""
    return [np.append(0, np.cumsum(lengths)).astype(np.int64) for lengths in levels]


def rows(lengths, *sizes, slot="X", seed=0):
    """Return rows in sequences of these lengths, and their LoD, as inputs of an op."""
    return {slot: numbers(sum(lengths), *sizes, seed=seed), f"{slot}_lod": lod(lengths)}


def pooled(kind, lengths, **attrs):
    """Return a sample of a pool."""
    return Sample("sequence_pool", rows(lengths, 2), {"pooltype": kind, **attrs}, ("X",))


def convolved(lengths, start, length, padding=0):
    """Return a sample of a convolution, with trained padding of so many rows if any."""
    inputs = {**rows(lengths, 2), "Filter": numbers(2 * length, 3, seed=1)}
    attrs = {"contextStart": start, "contextLength": length}
    if not padding:
        return Sample("sequence_conv", inputs, attrs, ("X", "Filter"))
    inputs["PaddingData"] = numbers(padding, 2, seed=2)
    trained = {**attrs, "paddingTrainable": True}
    return Sample("sequence_conv", inputs, trained, ("X", "Filter", "PaddingData"))


def expanded(X, times, **attrs):
    """Return a sample of sequence_expand: times is a list of levels."""
    reference = {"Y": numbers(sum(times[-1]), 1), "Y_lod": lod(*times)}
    return Sample("sequence_expand", {**X, **reference}, attrs, ("X",))


def column(*values, dtype=np.int64):
    """Return whole numbers as [count, 1]."""
    return np.array(values, dtype).reshape(-1, 1)


KINDS = ("AVERAGE", "SUM", "SQRT", "MAX", "LAST", "FIRST")
POOLS = [pooled(kind, lengths, pad_value=0.5) for kind in KINDS for lengths in LENGTHS[:3]]

WORDS = {"X": column(4, 2, 4, 1, 3, 2), "X_lod": lod((3, 0, 2, 1))}

SAMPLES = [
    *POOLS,
    pooled("MAX", (3, 2), is_test=True),
    Sample(
        "sequence_pool",
        {"X": numbers(6, 2, 2), "X_lod": lod((2, 0, 1), (1, 3, 2))},
        {"pooltype": "SUM"},
        ("X",),
    ),
    *(Sample("sequence_softmax", rows(lengths, 1), {}, ("X",)) for lengths in LENGTHS),
    Sample("sequence_softmax", rows((3, 1)), {}, ("X",)),
    Sample(
        "sequence_softmax", {"X": numbers(6, 1), "X_lod": lod((2, 0, 1), (1, 3, 2))}, {}, ("X",)
    ),
    *(convolved(lengths, -1, 3) for lengths in LENGTHS),
    convolved((3, 1, 2), -2, 4),
    convolved((3, 1, 2), 0, 2),
    convolved((3, 1, 2), 1, 2),
    convolved((2, 0, 3), -1, 3, padding=2),
    convolved((3, 1), -2, 2, padding=2),
    convolved((3, 1), 1, 2, padding=2),
    *(
        Sample(
            "row_conv", {**rows(lengths, 2), "Filter": numbers(k, 2, seed=1)}, {}, ("X", "Filter")
        )
        for lengths, k in ((LENGTHS[0], 2), (LENGTHS[1], 3), (LENGTHS[2], 1))
    ),
    Sample(
        "row_conv",
        {"X": numbers(2, 4, 3), "Filter": numbers(2, 3, seed=1)},
        {},
        ("X", "Filter"),
    ),
    expanded(rows((2, 2), 1), [(2, 2), (3, 3, 1, 1)], ref_level=0),
    expanded(rows((1, 0, 3), 2), [(2, 3, 0)]),
    expanded({"X": numbers(4, 2)}, [(2, 2), (3, 0, 1, 1)]),
    expanded({"X": numbers(2, 3)}, [(0, 4), (3, 3, 0, 2)], ref_level=0),
    Sample(
        "sequence_expand_as",
        {"X": numbers(3, 2), "Y": numbers(4, 1, seed=1), "Y_lod": lod((1, 0, 3))},
        {},
        ("X",),
    ),
    Sample(
        "lod_reset",
        {"X": numbers(6, 2)},
        {"target_lod": [0, 1, 6]},
        ("X",),
    ),
    Sample(
        "lod_reset",
        {**rows((2, 4), 2), "Y": np.array([0, 2, 2, 6], np.int32)},
        {"append": True},
        ("X",),
    ),
    Sample("lod_reset", {**rows((2, 4), 2), **rows((3, 3), 1, slot="Y", seed=1)}, {}, ("X",)),
    Sample(
        "sequence_concat",
        {
            "X": [numbers(3, 2), numbers(4, 2, seed=1), numbers(2, 2, seed=2)],
            "X_lod": lod((1, 2)) + lod((0, 4)) + lod((2, 0)),
        },
        {},
        ("X",),
    ),
    *(Sample("sequence_reverse", rows(lengths, 2), {}, ("X",)) for lengths in LENGTHS),
    Sample(
        "sequence_slice",
        {**rows((3, 0, 4), 2), "Offset": column(1, 0, 0), "Length": column(2, 0, 3)},
        {},
        ("X",),
    ),
    Sample("sequence_reshape", rows((2, 0, 4), 2), {"new_dim": 4}, ("X",)),
    Sample("sequence_reshape", rows((2, 1), 4), {"new_dim": 2}, ("X",)),
    Sample("sequence_erase", WORDS, {"tokens": [2, 4]}),
    Sample("sequence_erase", {**WORDS, "X_lod": lod((2, 1), (3, 0, 3))}, {"tokens": [1]}),
    Sample("sequence_enumerate", WORDS, {"win_size": 2, "pad_value": 9}),
    Sample("sequence_enumerate", WORDS, {"win_size": 5}),
    Sample(
        "sequence_scatter",
        {
            "X": numbers(3, 4),
            "Ids": column(0, 2, 0, 3, 3, dtype=np.int32),
            "Ids_lod": lod((2, 0, 3)),
            "Updates": numbers(5, 1, seed=1),
        },
        {},
        ("X", "Updates"),
    ),
    Sample("sequence_pad", {**rows((3, 0, 2), 2), "PadValue": numbers(1, seed=1)}, {}, ("X",)),
    Sample(
        "sequence_pad",
        {**rows((3, 1), 2, 3), "PadValue": numbers(2, 3, seed=1)},
        {"padded_length": 4},
        ("X",),
    ),
    Sample("sequence_unpad", {"X": numbers(3, 4, 2), "Length": np.array([2, 0, 4])}, {}, ("X",)),
    Sample("sequence_unpad", {"X": numbers(2, 3), "Length": np.array([1, 3])}, {}, ("X",)),
    Sample(
        "sequence_mask",
        {"X": integers(3, 2, high=5)},
        {"maxlen": 4, "out_dtype": 5},
    ),
    Sample("sequence_mask", {"X": np.array([1, 3])}, {"out_dtype": 3}),
    Sample(
        "sequence_mask",
        {"X": np.array([1, 3]), "MaxLenTensor": np.array([2], np.int32)},
        {"out_dtype": 0},
    ),
]
