"""Composite ops as users meet them: in programs, which become graphs of other ops."""

from typing import Any

import numpy as np
import pytest

import fluid
from compiler.errors import BadAttribute, CompileError, ShapeError
from compiler.ir.conversion.program_to_graph import to_graph
from compiler.ir.opdef import find, listed
from tests.ops.samples import Sample, samples

SAMPLES = [s for s in samples() if find(s.op).is_composite and not s.attrs.get("is_sparse")]
each_sample = pytest.mark.parametrize("sample", SAMPLES, ids=lambda sample: sample.op)


def program_of(sample: Sample) -> tuple[Any, dict[str, Any], list[tuple[str, str]]]:
    """Return a program of one op, its feed, and its outputs by slot and name."""
    program, feed, inputs = fluid.Program(), dict[str, Any](), dict[str, list[str]]()
    block, defn = program.global_block(), find(sample.op)
    lods = {s.of: sample.inputs.get(s.name) for s in defn.inputs().values() if s.of}
    for slot in (slot for slot in sample.inputs if not defn.slots[slot].companion):
        for index, array in enumerate(listed(sample.inputs[slot])):
            name = f"{slot.lower()}{index}"
            levels = lods.get(slot)
            levels = [levels[index]] if levels and defn.slots[slot].many else levels or []
            lengths = [np.diff(level).tolist() for level in levels]
            about = {"dtype": str(array.dtype), "lod_level": len(lengths)}
            block.create_var(name=name, shape=array.shape, **about)
            place = fluid.CPUPlace()
            feed[name] = fluid.create_lod_tensor(array, lengths, place) if lengths else array
            inputs.setdefault(slot, []).append(name)
    results = meant(sample)
    created = [(s, f"{s}.{i}") for s, value in results.items() for i in range(len(listed(value)))]
    for _, name in created:
        block.create_var(name=name, dtype="float32")
    outputs = {slot: [n for s, n in created if s == slot] for slot in results}
    block.append_op(sample.op, inputs, outputs, sample.attrs)
    return program, feed, created


def meant(sample: Sample) -> dict[str, Any]:
    """Return the outputs that a program names, dense ones."""
    defn = find(sample.op)(sample.attrs)
    results, slots = defn.evaluate(sample.inputs), defn.slots
    return {slot: value for slot, value in results.items() if not slots[slot].companion}


@each_sample
def test_a_program_computes_what_the_steps_mean(sample: Sample) -> None:
    program, feed, created = program_of(sample)
    wanted = meant(sample)
    names = [name for _, name in created]
    with fluid.scope_guard(fluid.Scope()):
        actual = fluid.Executor(fluid.CPUPlace()).run(program, feed, names, return_numpy=False)
    arrays = [value for slot in wanted for value in listed(wanted[slot])]
    for got, want in zip(actual, arrays, strict=True):
        np.testing.assert_allclose(np.asarray(got), want, rtol=2e-5, atol=2e-6)


def graph_of(kind: str, inputs: dict[str, Any], outputs: dict[str, Any], **attrs: Any) -> Any:
    """Return the graph of a program of one op."""
    program = fluid.Program()
    block = program.global_block()
    for name, shape in {n: s for input_ in inputs.values() for n, s in input_.items()}.items():
        block.create_var(name=name, shape=shape, dtype="float32")
    slots = {slot: list(input_) for slot, input_ in inputs.items()}
    for name in (name for names in outputs.values() for name in names):
        if not block.has_var(name):
            block.create_var(name=name, dtype="float32")
    block.append_op(kind, slots, outputs, attrs)
    shapes = {n: s for input_ in inputs.values() for n, s in input_.items()}
    return to_graph(program, shapes, [name for names in outputs.values() for name in names])


def test_a_graph_has_the_steps_and_the_names_of_the_program() -> None:
    functions = ["relu", "elementwise_add"]
    inputs = {"X": {"x": (2, 3)}, "Y": {"y": (3,)}}
    graph = graph_of("fused_elemwise_activation", inputs, {"Out": ["o"]}, functor_list=functions)
    assert [op.kind for op in graph.ops()] == ["elementwise_add", "relu"]
    assert [var.label for var in graph.results] == ["o"]


def test_an_output_may_overwrite_an_input() -> None:
    functions = ["elementwise_add", "relu"]
    inputs = {"X": {"x": (2, 3)}, "Y": {"y": (3,)}}
    graph = graph_of("fused_elemwise_activation", inputs, {"Out": ["x"]}, functor_list=functions)
    assert [op.kind for op in graph.ops()] == ["relu", "elementwise_add", "assign"]


@pytest.mark.parametrize("functions", [["relu"], ["relu", "tanh"], ["exp", "elementwise_add"]])
def test_functions_that_do_not_fit(functions: list[str]) -> None:
    inputs = {"X": {"x": (2, 3)}, "Y": {"y": (3,)}}
    with pytest.raises(BadAttribute, match="functor_list"):
        graph_of("fused_elemwise_activation", inputs, {"Out": ["o"]}, functor_list=functions)


def test_shapes_that_do_not_fit_are_reported_with_the_kind_of_the_whole() -> None:
    inputs = {"X": {"x": (2, 3)}, "Y": {"y": (4,)}}
    functions = ["relu", "elementwise_add"]
    with pytest.raises(CompileError, match=r"fused_elemwise_activation: .*3.*4") as caught:
        graph_of("fused_elemwise_activation", inputs, {"Out": ["o"]}, functor_list=functions)
    assert caught.type is ShapeError


def test_types_of_operands_are_checked() -> None:
    values = {"X": np.ones((2, 3), np.int64), "Y": np.ones((2, 3), np.int64)}
    functions = {"functor_list": ["relu", "elementwise_add"]}
    with pytest.raises(ShapeError, match="expected a float"):
        find("fused_elemwise_activation")(functions).evaluate(values)
