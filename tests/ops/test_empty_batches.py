"""A batch of no rows is computed: results have no rows either, and gradients of parameters are 0.

Each target, with sizes that are known and with a named one that is 0 when the step is run.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import runtime
from compiler.codegen.native.host import detected
from compiler.driver import compile_graph
from compiler.ir.opdef import find, listed
from compiler.ir.program import GRAD
from compiler.options import Options
from tests.ops.backward import each
from tests.ops.samples import Sample, samples
from tests.ops.test_generated import (
    DIFFERENTIATED,
    NOBODY,
    Case,
    batch_of,
    forward,
    graph_of,
    is_array,
)

OPS = frozenset(
    """
bpr_loss conv2d conv2d_transpose conv3d cos_sim crf_decoding cudnn_lstm
generate_proposals im2sequence layer_norm linear_chain_crf locality_aware_nms matrix_nms
mine_hard_examples multiclass_nms multiclass_nms2 multiclass_nms3 reduce_mean
sample_logits smooth_l1_loss space_to_depth squared_l2_distance yolo_box
""".split()
)
TARGETS = ["numpy", *["native"] * (detected() is not None)]


def has_batch(sample: Sample) -> bool:
    """Whether the first axis of the first input is a batch, and of no parameter."""
    batch = batch_of(forward(sample))
    parameters = set("Filter W Transition Scale Bias Anchors Variances InitH InitC".split())
    return not any(
        "lod" in slot.lower() or (slot in parameters and is_array(value) and len(value) == batch)
        for slot, value in sample.inputs.items()
        if value is not None
    )


SAMPLES = {
    (sample.op, sample.attrs.get("data_format", "")): sample
    for sample in samples()
    if sample.op in OPS and has_batch(sample)
}.values()


def cases(sample: Sample) -> Iterator[Case]:
    """The op and its gradient of a sample without rows."""
    batch = batch_of(forward(sample))

    def without_rows(array: Any) -> Any:
        return array[:0] if np.ndim(array) and len(array) == batch else array

    inputs = {
        slot: None if value is None else each(value, without_rows)
        for slot, value in sample.inputs.items()
    }
    results = find(sample.op)(sample.attrs).evaluate(inputs)
    yield Case(sample.op, sample.attrs, inputs, results)
    if sample in DIFFERENTIATED:
        cls: Any = find(sample.op).grad_class
        known = {**inputs, **results}
        known |= {slot + GRAD: each(value, np.zeros_like) for slot, value in results.items()}
        values = {s: known[s] for s in cls.inputs() if known.get(s) is not None}
        gradients = cls(sample.attrs).evaluate(values)
        present = {
            s: g for s, g in gradients.items() if inputs.get(s.removesuffix(GRAD)) is not None
        }
        yield Case(cls.kind, sample.attrs, values, present)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("sample", SAMPLES, ids=lambda sample: sample.op)
def test_batches_of_no_rows(sample: Sample, target: str) -> None:
    for case in cases(sample):
        slots = [slot for slot, value in case.results.items() if value is not None]
        expected = [array for slot in slots for array in listed(case.results[slot])]
        for batch in (NOBODY, 0):
            graph, feed = graph_of(case, slots, batch)
            compute = runtime.load(compile_graph(graph, target=target, options=Options()).module)
            for result, array in zip(compute(feed), expected, strict=True):
                np.testing.assert_allclose(result, array, rtol=1e-5, err_msg=case.op)


def test_every_op_has_a_sample() -> None:
    assert {sample.op for sample in SAMPLES} == OPS
