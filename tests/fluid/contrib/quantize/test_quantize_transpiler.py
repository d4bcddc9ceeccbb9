"""`QuantizeTranspiler` trains and predicts as the passes of release 1.8.5 do."""

import numpy as np
import pytest

import fluid
from fluid import core
from fluid.contrib import QuantizeTranspiler
from tests.fluid.contrib.quantized_network import network, recording

CPU = fluid.CPUPlace()


def value(name):
    return np.array(fluid.global_scope().find_var(name).get_tensor())


def test_a_transpiled_program_trains_and_predicts_as_recorded(exe, fresh_programs):
    recorded, _ = recording("abs_max")
    main, _, startup = network()
    transpiler = QuantizeTranspiler()
    transpiler.training_transpile(main, startup)
    test = main.clone(for_test=True)
    for prefix, steps in (("init", 2), ("final", 0)):
        for name in ("conv2d_0.w_0", "conv2d_0.b_0", "fc_0.w_0", "fc_0.b_0", "learning_rate_0"):
            tensor = fluid.global_scope().var(name).get_tensor()
            tensor.set(recorded[f"{prefix}.{name}"], CPU)
        for step in range(steps):
            feed = {name: recorded[f"feed{step}.{name}"] for name in ("img", "y")}
            (loss,) = exe.run(main, feed=feed, fetch_list=["mean_0.tmp_0"])
            np.testing.assert_allclose(loss, recorded["losses"][step].reshape(1), rtol=1e-4)
    transpiler.freeze_program(test, CPU)
    for name in ("conv2d_0.w_0", "fc_0.w_0"):
        np.testing.assert_array_equal(value(name), recorded[f"frozen.{name}"])
    feed = {name: recorded[f"feed5.{name}"] for name in ("img", "y")}
    (predicted,) = exe.run(test, feed=feed, fetch_list=["fc_0.tmp_2"])
    np.testing.assert_allclose(predicted, recorded["predicted"], rtol=1e-3, atol=1e-4)
    transpiler.convert_to_int8(test, CPU)
    assert test.global_block().var("fc_0.w_0.int8").dtype == core.VarDesc.VarType.INT8
    np.testing.assert_array_equal(value("fc_0.w_0.int8"), recorded["frozen.fc_0.w_0"])


@pytest.mark.parametrize("kind", ["range_abs_max", "moving_average_abs_max"])
def test_scales_are_state_of_the_startup_program(kind, exe, fresh_programs):
    main, _, startup = network()
    QuantizeTranspiler(activation_quantize_type=kind, window_size=2).training_transpile(
        main, startup
    )
    kinds = [op.type for op in main.global_block().ops]
    assert kinds.count(f"fake_quantize_{kind}") == 2
    exe.run(startup)
    assert value("img.scale") == np.float32(0.001)
    feed = {"img": np.full((2, 1, 6, 6), 2, np.float32), "y": np.zeros((2, 1), np.int64)}
    exe.run(main, feed=feed, fetch_list=["mean_0.tmp_0"])
    expected = 2.0 if kind == "range_abs_max" else (0.9 + 2) / (0.9 + 1)
    np.testing.assert_allclose(value("img.scale"), expected, rtol=1e-5)


def test_an_unknown_type_raises():
    with pytest.raises(ValueError, match="Unknown activation_quantize_type: 'max'"):
        QuantizeTranspiler(activation_quantize_type="max")
