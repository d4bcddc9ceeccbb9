"""Names of eager mode that the reference's modules use: its tracer, guards and decorators."""

import numpy as np
import pytest

import fluid
from fluid import core, framework, layers
from fluid.dygraph import base, to_variable


def test_tracer_records_ops_and_gradients() -> None:
    assert framework._dygraph_tracer() is None
    assert framework._current_expected_place() is None
    with fluid.dygraph.guard():
        tracer = framework._dygraph_tracer()
        assert tracer is framework._dygraph_tracer()
        assert isinstance(tracer, core.Tracer)
        assert str(framework._current_expected_place()) == "CPUPlace"
        x = to_variable(np.array([3.0], "float32"))
        x.stop_gradient = False
        outputs = [framework._varbase_creator(dtype="float32") for _ in range(3)]
        tracer.trace_op("square", {"X": [x]}, {"Out": [outputs[0]]}, {})
        tracer.trace_op("square", {"X": [x]}, {"Out": [outputs[1]]}, {}, stop_gradient=True)
        tracer.eval_mode()
        tracer.trace_op("square", {"X": [x]}, {"Out": [outputs[2]]}, {})
        tracer.train_mode()
        assert [var.stop_gradient for var in outputs] == [False, True, True]
        outputs[0].backward()
        assert x.gradient().tolist() == [6.0]


def test_static_programs_within_eager_mode() -> None:
    @base.switch_to_static_graph
    def declared() -> int:
        layers.relu(fluid.data("x", [2, 3], "float32"))
        assert not fluid.in_dygraph_mode()
        return len(fluid.default_main_program().global_block().ops)

    with fluid.program_guard(fluid.Program(), fluid.Program()):
        with fluid.dygraph.guard():
            assert [declared(), declared()] == [1, 2]
            assert fluid.in_dygraph_mode()
            with framework._dygraph_guard(framework._dygraph_tracer()):
                assert fluid.in_dygraph_mode()
        assert declared() == 1


def test_program_guard_stays_in_eager_mode() -> None:
    main, startup = fluid.Program(), fluid.Program()
    with fluid.dygraph.guard():
        with fluid.program_guard(main, startup):
            assert fluid.in_dygraph_mode()
            assert layers.fill_constant([1], "float32", 3.0).numpy() == 3.0
            previous = framework.switch_main_program(fluid.Program())
            assert (previous, fluid.in_dygraph_mode()) == (main, True)
            with framework.recording_guard(main, startup):
                layers.fill_constant([1], "float32", 3.0)
                assert not fluid.in_dygraph_mode()
            assert fluid.in_dygraph_mode()
        assert fluid.in_dygraph_mode()
    assert len(main.global_block().ops) == 1
    with fluid.program_guard(main, startup):
        with fluid.dygraph.guard():
            assert fluid.in_dygraph_mode()
        assert fluid.default_main_program() is main


def test_decorators_of_modes() -> None:
    eager, static = framework.dygraph_only(int), framework.dygraph_not_support(int)
    fake = framework.fake_interface_only(int)
    with fluid.dygraph.guard():
        assert eager(3) == 3
        with pytest.raises(AssertionError, match="We don't support int in imperative mode"):
            static(3)
        with pytest.raises(AssertionError, match="'int' should be called by imperative"):
            fake(3)
    assert static(3) == 3
    with pytest.raises(AssertionError, match="We Only support int in imperative mode"):
        eager(3)


def test_variables_made_by_their_class() -> None:
    with fluid.dygraph.guard():
        array = np.array([[1.0, 2.0]], "float32")
        var = core.VarBase(array, fluid.CPUPlace(), True, False, "v")
        array[:] = 0
        assert (var.name, var.persistable, var.stop_gradient) == ("v", True, True)
        assert var.numpy().tolist() == [[1.0, 2.0]]
        assert core.VarBase(value=array, place=fluid.CPUPlace(), name="w").name == "w"
        copied = var._copy_to(fluid.CPUPlace(), True)
        assert (copied.name, var._copy_to(fluid.CPUPlace(), True).name) == ("v0", "v1")
        assert copied.numpy().tolist() == [[1.0, 2.0]]
        for args, message in (
            (([1.0],), "must be an array, but received list"),
            ((), "value is missing"),
            ((array, fluid.CPUPlace(), True, True, "n", 3), "too many values"),
        ):
            with pytest.raises(TypeError, match=message):
                core.VarBase(*args)
    with pytest.raises(AssertionError, match="can only be made in dygraph mode"):
        core.VarBase(array)


def test_variables_without_value() -> None:
    with fluid.dygraph.guard():
        var = framework._varbase_creator(shape=[2, 3], name="u")
        param = framework.ParamBase([2, 3], "float32", name="p", trainable=False)
        for each in (var, param):
            assert str(each) == f"name {each.name}, shape: [2, 3], not inited"
            with pytest.raises(RuntimeError, match="no op wrote it"):
                each.numpy()
        param.set_value(np.ones([2, 3], "float32"))
        assert param.stop_gradient
        assert param.numpy().sum() == 6
        with pytest.raises(ValueError, match="must be greater than 0"):
            framework.ParamBase([2, -3], "float32")
        with pytest.raises(ValueError, match=r"shape of Parameter .* should not be None"):
            framework.ParamBase(None, "float32")
