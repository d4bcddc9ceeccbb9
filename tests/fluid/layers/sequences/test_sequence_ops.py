"""Ops on sequences and recurrent ops in programs: compiled code equals the reference implementation.

A sample of each op of the two families runs as a program of one op and its gradient, with LoD fed,
and is compared with the op alone; also with data-dependent sizes. Compiled code of every sample is
compared in `tests/ops/test_native.py`.
"""

from typing import Any

import numpy as np
import pytest

import fluid
from compiler.ir.opdef import find
from tests.ops.backward import gradients
from tests.ops.samples import Sample, numbers, recurrent, sequence

pytestmark = pytest.mark.usefixtures("fresh_programs")

SAMPLES = list({sample.op: sample for sample in (*sequence.SAMPLES, *recurrent.SAMPLES)}.values())


def listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def lods_of(sample: Sample, slot: str) -> list[Any]:
    """The LoD of each tensor in a slot."""
    levels = sample.inputs.get(f"{slot}_lod", [])
    if isinstance(sample.inputs[slot], list):
        return [[level] for level in levels]
    return [levels]


def lengths_of(levels: Any) -> list[list[int]]:
    return [np.diff(level).tolist() for level in levels]


def declare(name: str, array: Any, levels: Any, trained: bool) -> Any:
    """Declare a variable and return what is fed to it."""
    shape = (-1, *array.shape[1:]) if levels else array.shape
    fluid.default_main_program().global_block().create_var(
        name=name,
        shape=shape,
        dtype=array.dtype,
        lod_level=len(levels),
        stop_gradient=not trained,
    )
    if not levels:
        return array
    return fluid.create_lod_tensor(array, lengths_of(levels), fluid.CPUPlace())


def append(sample: Sample) -> tuple[dict[str, Any], dict[str, list[str]], dict[str, str]]:
    """Append the op of a sample; return its feed, its input names and its output names."""
    block, feed, inputs = fluid.default_main_program().global_block(), {}, {}
    for slot in (slot for slot in sample.inputs if not slot.endswith("_lod")):
        tensors, levels = listed(sample.inputs[slot]), lods_of(sample, slot)
        inputs[slot] = [f"{slot}{index}" for index in range(len(tensors))]
        for name, array, lod in zip(inputs[slot], tensors, levels, strict=True):
            feed[name] = declare(name, array, lod, slot in sample.grads)
    slots = [name for name, slot in find(sample.op).outputs().items() if not slot.companion]
    outputs = {slot: f"out_{slot}" for slot in slots}
    for name in outputs.values():
        block.create_var(name=name, dtype="float32")
    named = {slot: [name] for slot, name in outputs.items()}
    block.append_op(type=sample.op, inputs=inputs, outputs=named, attrs=dict(sample.attrs))
    return feed, inputs, outputs


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda sample: sample.op)
def test_outputs(sample: Sample, exe: fluid.Executor) -> None:
    feed, _, outputs = append(sample)
    wanted = find(sample.op)(sample.attrs).evaluate(sample.inputs)
    actual = exe.run(feed=feed, fetch_list=list(outputs.values()), return_numpy=False)
    for slot, got in zip(outputs, actual, strict=True):
        np.testing.assert_allclose(np.array(got), wanted[slot], rtol=2e-5, atol=1e-6)
        if f"{slot}_lod" in wanted:
            assert got.recursive_sequence_lengths() == lengths_of(wanted[f"{slot}_lod"])


@pytest.mark.parametrize(
    "sample", [sample for sample in SAMPLES if sample.grads], ids=lambda sample: sample.op
)
def test_gradients(sample: Sample, exe: fluid.Executor) -> None:
    feed, inputs, outputs = append(sample)
    created, weights = find(sample.op)(sample.attrs).evaluate(sample.inputs), {}
    block, losses = fluid.default_main_program().global_block(), []
    for slot in differentiable(sample.op, outputs):
        weights[slot] = feed[f"weight_{slot}"] = numbers(*created[slot].shape, seed=9)
        factor = block.create_var(
            name=f"weight_{slot}",
            shape=[-1] * created[slot].ndim,
            dtype="float32",
            stop_gradient=True,
        )
        product = fluid.layers.elementwise_mul(block.var(outputs[slot]), factor)
        losses.append(fluid.layers.reduce_sum(product))
    wanted = gradients(sample.op, sample.attrs, sample.inputs, weights)
    names = [name for slot in sample.grads for name in inputs[slot]]
    actual = exe.run(
        feed=feed,
        fetch_list=fluid.gradients(losses, [block.var(name) for name in names]),
        return_numpy=False,
    )
    expected = [each for slot in sample.grads for each in listed(wanted[slot])]
    for got, want in zip(actual, expected, strict=True):
        np.testing.assert_allclose(np.array(got), want, rtol=2e-4, atol=1e-5)


def differentiable(kind: str, outputs: dict[str, str]) -> list[str]:
    """Return the output slots whose gradient an op's gradient reads."""
    result = find(kind).grad_class
    return [slot for slot in outputs if result is None or f"{slot}@GRAD" in result.inputs()]
