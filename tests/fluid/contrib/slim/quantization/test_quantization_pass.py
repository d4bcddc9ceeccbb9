"""Passes of quantization make the programs that release 1.8.5 makes, op by op.

`tests/golden/quantized` has the programs of 1.8.5, and the weights and predictions of the frozen
ones; `tests/fluid/inference/test_quantized_models.py` runs the recorded programs.
"""

import re

import numpy as np
import pytest

import fluid
from fluid import core, unique_name
from fluid.contrib.slim.quantization import (
    AddQuantDequantPass,
    ConvertToInt8Pass,
    OutScaleForInferencePass,
    OutScaleForTrainingPass,
    QuantizationFreezePass,
    QuantizationTransformPass,
    TransformForMobilePass,
)
from fluid.framework import IrGraph
from tests.fluid.contrib.quantized_network import network, recording

CPU = fluid.CPUPlace()
TYPES = {
    "abs_max": ("abs_max", "abs_max", 10000),
    "range": ("range_abs_max", "channel_wise_abs_max", 3),
    "moving": ("moving_average_abs_max", "channel_wise_abs_max", 10000),
}
"""Types of the quantization of activations and weights, and the window, of each recording."""
UNIMPORTANT = {"op_callstack", "op_role_var", "op_namescope", "op_device"}
OF_PASSES = {"quantization_type", "activation_bits", "skip_quant", "bit_length", "out_threshold"}


def quantized(program, name, for_test):
    """The graph of a program, transformed as for a recording."""
    graph = IrGraph(core.Graph(program.desc), for_test=for_test)
    scope = fluid.global_scope()
    activation, weight, window = TYPES[name]
    QuantizationTransformPass(
        scope,
        CPU,
        activation_quantize_type=activation,
        weight_quantize_type=weight,
        window_size=window,
    ).apply(graph)
    if name == "moving":
        AddQuantDequantPass(scope, CPU).apply(graph)
        if not for_test:
            OutScaleForTrainingPass(scope, CPU).apply(graph)
    return graph


def plain(names):
    """Names without the numbers of state, which 1.8.5 gives in any order."""
    return [re.sub(r"(state|accum|state@|accum@|scales)_\d+$", r"\1", name) for name in names]


def slots(op):
    sides = op.inputs, op.outputs
    return [{slot: plain(names) for slot, names in side.items() if names} for side in sides]


def expect_same_ops(program, recorded):
    """Compare types in order, and the rest by slots: 1.8.5 gives scales of results any order."""
    ops, expected = (p.global_block().ops for p in (program, recorded))
    assert [op.type for op in ops] == [op.type for op in expected]
    pairs = zip(
        *(sorted(each, key=lambda op: repr((op.type, slots(op)))) for each in (ops, expected)),
        strict=True,
    )
    for op, other in pairs:
        assert slots(op) == slots(other), op.type
        for name in op.attrs.keys() & other.attrs.keys() - UNIMPORTANT:
            assert op.attrs[name] == pytest.approx(other.attrs[name]), (op.type, name)
        assert op.attrs.keys() & OF_PASSES == other.attrs.keys() & OF_PASSES, op.type


@pytest.mark.parametrize("name", TYPES)
def test_passes_make_the_programs_of_the_reference(name, exe, fresh_programs):
    recorded, (main, test, frozen) = recording(name)
    programs = network()
    with unique_name.guard():
        expect_same_ops(quantized(programs[0], name, for_test=False).to_program(), main)
    with unique_name.guard():
        graph = quantized(programs[1], name, for_test=True)
        expect_same_ops(graph.to_program(), test)
    for variable, value in recorded.items():
        if variable.startswith("final."):
            fluid.global_scope().var(variable.removeprefix("final.")).get_tensor().set(value, CPU)
    with unique_name.guard():
        QuantizationFreezePass(
            fluid.global_scope(), CPU, weight_quantize_type=TYPES[name][1]
        ).apply(graph)
    expect_same_ops(graph.to_program(), frozen)
    for variable, value in recorded.items():
        if variable.startswith("frozen."):
            tensor = fluid.global_scope().find_var(variable.removeprefix("frozen.")).get_tensor()
            np.testing.assert_allclose(np.array(tensor), value, rtol=1e-6)
    feed = {name: recorded[f"feed5.{name}"] for name in ("img", "y")}
    (predicted,) = exe.run(graph.to_program(), feed=feed, fetch_list=["fc_0.tmp_2"])
    np.testing.assert_allclose(predicted, recorded["predicted"], rtol=1e-3, atol=1e-4)


def test_frozen_weights_become_int8_and_ops_those_of_mobile_devices(exe, fresh_programs):
    _, test, startup = network()
    exe.run(startup)
    scope = fluid.global_scope()
    graph = quantized(test, "abs_max", for_test=True)
    QuantizationFreezePass(scope, CPU).apply(graph)
    weight = np.array(scope.find_var("fc_0.w_0").get_tensor())
    assert np.abs(weight).max() == 127
    ConvertToInt8Pass(scope, CPU).apply(graph)
    block = graph.to_program().global_block()
    assert block.var("fc_0.w_0.int8").dtype == core.VarDesc.VarType.INT8
    assert not block.has_var("fc_0.w_0")
    int8 = np.array(scope.find_var("fc_0.w_0.int8").get_tensor())
    assert int8.dtype == np.int8
    np.testing.assert_array_equal(int8, weight)
    TransformForMobilePass().apply(graph)
    kinds = [op.type for op in graph.to_program().global_block().ops]
    assert kinds[:3] == ["quantize", "conv2d", "dequantize"]


def test_scales_of_results_become_attributes(exe, fresh_programs):
    main, test, startup = network()
    exe.run(startup)
    scope = fluid.global_scope()
    training = IrGraph(core.Graph(main.desc))
    OutScaleForTrainingPass(scope, CPU, moving_rate=0.5).apply(training)
    feed = {"img": np.ones((2, 1, 6, 6), np.float32), "y": np.zeros((2, 1), np.int64)}
    (relu,) = exe.run(training.to_program(), feed=feed, fetch_list=["conv2d_0.tmp_2"])
    graph = IrGraph(core.Graph(test.desc), for_test=True)
    OutScaleForInferencePass(scope).apply(graph)
    op = next(op for op in graph.to_program().global_block().ops if op.type == "relu")
    assert op.attr("out_threshold") == pytest.approx((0.5 + relu.max()) / 1.5)


def test_ops_in_a_skipped_scope_and_products_of_activations_stay(fresh_programs):
    x = fluid.data("x", [4, 4])
    with fluid.name_scope("skip_quant"):
        hidden = fluid.layers.fc(x, 4)
    fluid.layers.mul(hidden, x)
    graph = IrGraph(core.Graph(fluid.default_main_program().desc), for_test=True)
    QuantizationTransformPass(fluid.global_scope(), CPU).apply(graph)
    kinds = [op.type for op in graph.to_program().global_block().ops]
    assert kinds == ["mul", "elementwise_add", "mul"]


def test_parameters_of_the_user_s_functions_are_trained(exe, fresh_programs):
    """A bound of activations, as in PACT: values above it are clipped, and it is trained."""

    def bounded(x):
        name, initial = f"{x.name}.bound", fluid.initializer.Constant(0.5)
        bound = fluid.layers.create_parameter([1], "float32", name, default_initializer=initial)
        return x - fluid.layers.relu(x - bound)

    x = fluid.data("x", [-1, 2])
    weight = fluid.initializer.NumpyArrayInitializer(np.float32([[0.6, 0.1], [0.6, 0.1]]))
    hidden = fluid.layers.fc(x, 2, param_attr=weight, bias_attr=False)
    loss = fluid.layers.mean(fluid.layers.fc(hidden, 1, bias_attr=False))
    fluid.layers.fc(hidden, 1)  # the loss does not depend on it
    fluid.optimizer.SGD(0.1).minimize(loss)
    exe.run(fluid.default_startup_program())
    graph = IrGraph(core.Graph(fluid.default_main_program().desc))
    scope = fluid.global_scope()
    QuantizationTransformPass(
        scope,
        CPU,
        act_preprocess_func=bounded,
        weight_quantize_func=fluid.layers.tanh,
        optimizer_func=lambda: fluid.optimizer.SGD(0.1),
        executor=exe,
    ).apply(graph)
    program = graph.to_program()
    assert "fc_0.w_0.quantized" not in program.global_block().vars
    feed = {"x": np.full((1, 2), 0.8, np.float32)}
    exe.run(program, feed=feed, fetch_list=[loss.name])
    names = [f"{name}_tmp_input.bound" for name in ("x", hidden.name)]
    bounds = [float(np.array(scope.find_var(name).get_tensor())[0]) for name in names]
    assert 0.5 not in bounds


def test_wrong_settings_raise():
    with pytest.raises(ValueError, match="Unknown weight_quantize_type: 'max'"):
        QuantizationTransformPass(weight_quantize_type="max")
    with pytest.raises(AssertionError, match="does not support 'channel_wise_abs_max'"):
        QuantizationTransformPass(activation_quantize_type="channel_wise_abs_max")
    with pytest.raises(AssertionError, match="relu is not supported"):
        QuantizationTransformPass(quantizable_op_type=["relu"])
    with pytest.raises(AssertionError, match="scope cannot be set None"):
        QuantizationFreezePass(None, CPU)
