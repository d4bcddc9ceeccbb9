"""Samples of ops of models that recommend: hashes, tags, counts of clicks, columns of tables."""

import numpy as np

from tests.ops.samples import Sample, numbers
from tests.ops.samples.sequence import column, lod, rows

TABLES = [numbers(2, 5, seed=seed) for seed in range(3)]
WORDS = np.array([[7, -8, 9], [2**31 - 1, 0, -(2**31)]])
SHOWN = rows((3, 0, 2), 4)
NO_COUNTS = np.zeros((5, 2), np.float32)
TAGS = {"Ins_tag": column(0, 1, 1, 3, 0, 3, 2, 6), "Ins_tag_lod": lod((2, 2, 1, 3))}
WIDE = {**rows((1, 0, 3, 2), 2, slot="Ins"), **TAGS}


def filtered(*wanted, is_lod=True, empty=0):
    """Return a sample that keeps what has one of the wanted tags."""
    inputs = WIDE if is_lod else {"Ins": numbers(4, 3), **TAGS}
    attrs = {"is_lod": is_lod, "out_val_if_empty": empty}
    return Sample("filter_by_instag", {**inputs, "Filter_tag": np.array(wanted)}, attrs, ("Ins",))


SAMPLES = [
    *(
        Sample("hash", {"X": WORDS[:, :width].astype(dtype)}, {"num_hash": 3, "mod_by": 1003})
        for width in (1, 2, 3)
        for dtype in (np.int32, np.int64)
    ),
    Sample("hash", {"X": np.arange(22).reshape(2, 11)}),
    # What X@GRAD has for show and click is CVM and no derivative, unless that is 0.
    Sample("cvm", {**SHOWN, "CVM": NO_COUNTS}, {"use_cvm": False}, ("X",)),
    Sample("cvm", {"X": numbers(5, 4), "CVM": NO_COUNTS}, {"use_cvm": False}, ("X",)),
    Sample("cvm", {"X": numbers(5, 4, low=1, high=9), "CVM": NO_COUNTS}),
    filtered(1, 6),
    filtered(3),
    filtered(9, empty=7),
    filtered(6, 0, is_lod=False),
    filtered(9, is_lod=False),
    *(
        Sample(op, {"X": TABLES}, {"start_index": start, "length": length}, ("X",))
        for op in ("partial_concat", "partial_sum")
        for start, length in ((0, -1), (1, 2), (3, -1), (-2, 1))
    ),
    Sample("partial_sum", {"X": TABLES[:1]}, {}, ("X",)),
]
