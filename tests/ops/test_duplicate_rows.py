"""Native kernels that group thousands of repeated rows give the reference's numbers."""

import numpy as np
import pytest

from compiler.codegen.native.host import detected
from compiler.codegen.native.target import NativeTarget
from compiler.freeze import freeze
from compiler.options import Options
from compiler.passes.base import Context
from compiler.passes.manager import run_passes
from compiler.passes.pipeline import pipeline
from tests.ops.compiled_samples import Compiled
from tests.ops.samples import Sample, numbers
from tests.ops.test_generated import NOBODY, forward, graph_of, with_elements

pytestmark = pytest.mark.skipif(detected() is None, reason="no native code for this CPU")

ROWS = np.random.default_rng(0).integers(0, 700, 1501)
VALUES = numbers(1501, 3)
SCATTERED = {"X": numbers(900, 3), "Ids": ROWS, "Updates": VALUES}
CENTERS = {"Centers": numbers(700, 3), "CenterUpdateRate": np.array([0.5], np.float32)}


@pytest.mark.parametrize(
    "sample",
    [
        Sample("scatter", SCATTERED, {"overwrite": True}),
        Sample("scatter", SCATTERED, {"overwrite": False}),
        Sample("merge_rows", {"X": VALUES, "X_rows": ROWS}, {}),
        Sample("center_loss", {"X": VALUES, "Label": ROWS[:, None], **CENTERS},
               {"cluster_num": 700, "need_update": True}),
        Sample("shuffle_batch", {"X": VALUES, "Seed": np.array([7])}, {}),
    ],
    ids=lambda sample: sample.op,
)  # fmt: skip
def test_many_repeated_rows(sample: Sample) -> None:
    target, case = NativeTarget(), forward(sample)
    graph, _ = graph_of(case, with_elements(case), NOBODY)
    run_passes(graph, pipeline(Options(), target), Context())
    assert not target.module_writer(freeze(graph)).fallbacks
    Compiled(target, once=True).check(case, sample)
