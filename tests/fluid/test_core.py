"""What scripts ask of `core` and of private helpers: op types, gradients, scopes, feeds."""

import numpy as np
import pytest

import fluid
from fluid import backward, core, executor, framework, layers

pytestmark = pytest.mark.usefixtures("fresh_programs")


def test_what_is_declared_of_an_op_type():
    proto = framework.OpProtoHolder.instance().get_op_proto("adam")
    assert [slot.name for slot in proto.inputs][:3] == ["Param", "Grad", "LearningRate"]
    assert {slot.name for slot in proto.inputs if slot.dispensable} == {
        "Beta1Tensor",
        "Beta2Tensor",
    }
    kinds = {attr.name: attr.type for attr in proto.attrs}
    assert (kinds["beta1"], kinds["lazy_mode"]) == (core.AttrType.FLOAT, core.AttrType.BOOL)
    assert "mul" in [proto.type for proto in framework.get_all_op_protos()]
    with pytest.raises(ValueError, match="no_such_op"):
        framework.OpProtoHolder.instance().get_op_proto("no_such_op")


def test_the_gradient_of_an_op():
    main = fluid.Program()
    with fluid.program_guard(main, fluid.Program()):
        layers.fc(fluid.data("x", [None, 3]), 4)
    op = main.desc.block(0).op(0)
    (grad,), known = core.get_grad_op_desc(op, {"x@GRAD"}, [])
    assert grad.type() == "mul_grad"
    assert grad.outputs() == {"X@GRAD": [], "Y@GRAD": ["fc_0.w_0@GRAD"]}
    assert known == {"fc_0.tmp_0@GRAD": "fc_0.tmp_0", "fc_0.w_0@GRAD": "fc_0.w_0"}
    assert core.has_non_empty_grad_op_maker("mul")
    assert not core.has_non_empty_grad_op_maker("sgd")
    assert core.infer_no_need_buffer_slots("concat_grad", {}, {}, {}) == {"X"}


def test_a_variable_of_a_scope_holds_one_thing():
    scope = core.Scope()
    var = scope.var("number")
    var.set_int(3)
    assert (var.get_int(), var.is_int(), var.is_float()) == (3, True, False)
    with pytest.raises(core.EnforceNotMet, match="tensor"):
        var.get_tensor()
    with pytest.raises(core.EnforceNotMet, match="nothing"):
        scope.var("other").get_int()
    rows = scope.var("sparse").get_selected_rows()
    rows.set_rows([0, 4, 7])
    rows.set_height(10)
    rows.get_tensor().set(np.ones((3, 2), "float32"), core.CPUPlace())
    again = scope.find_var("sparse").get_selected_rows()
    assert (again.rows(), again.height(), again.numel()) == ([0, 4, 7], 10, 6)
    tensor = core.LoDTensor()
    tensor.set(np.ones(3), core.CPUPlace())
    scope.var("list").get_lod_tensor_array().append(tensor)
    assert len(scope.find_var("list").get_lod_tensor_array()) == 1


def test_a_program_runs_beside_values_that_are_no_tensors():
    scope = core.Scope()
    scope.var("number").set_int(3)
    main = fluid.Program()
    with fluid.program_guard(main, fluid.Program()):
        out = layers.fill_constant([1], "float32", 2.0)
    result = fluid.Executor().run(main, fetch_list=[out], scope=scope)
    assert result[0].tolist() == [2.0]


def graph():
    """A loss of x and w, an op that nothing needs, and a variable that stops gradients."""
    x = fluid.data("x", [2, 3])
    w = layers.create_parameter([3, 4], "float32", name="w")
    stopped = layers.scale(x, 2.0)
    stopped.stop_gradient = True
    hidden = layers.mul(layers.elementwise_add(x, stopped), w)
    layers.scale(hidden, name="unused")
    return x, w, layers.reduce_mean(hidden)


def test_the_path_of_gradients():
    main = fluid.Program()
    with fluid.program_guard(main, fluid.Program()):
        _, w, loss = graph()
    block = main.global_block()
    stops = backward._get_stop_gradients_(main)
    assert stops == {0: {"x@GRAD", "scale_0.tmp_0@GRAD"}}
    no_grad = {backward._strip_grad_suffix_(name) for name in stops[0]}
    path = backward._find_op_path_(block, [loss], [], set(no_grad))
    assert [op.type for op in path] == ["elementwise_add", "mul", "reduce_mean"]
    from_w = set()
    path = backward._find_op_path_(block, [loss], [w], from_w)
    assert [op.type for op in path] == ["mul", "reduce_mean"]
    everything = list(block.ops)
    unused = backward._find_no_grad_vars(block, everything, [loss], no_grad)
    assert unused == {"unused.tmp_0"}
    assert backward._get_no_grad_set_name({w, "x"}) == {"w", "x"}
    with pytest.raises(TypeError, match="no_grad_set"):
        backward._get_no_grad_set_name("x")


def test_whether_feeds_fit():
    main = fluid.Program()
    with fluid.program_guard(main, fluid.Program()):
        x = fluid.data("x", [None, 3])
    place = fluid.CPUPlace()
    fits = executor._as_lodtensor(np.ones((2, 3), "float32"), place)
    assert executor.check_feed_shape_type(x, fits)
    for array, message in (
        (np.ones((2, 4), "float32"), r"shape = \(-1, 3\)"),
        (np.ones((2, 3), "int64"), "must be 'float32', but received 'int64'"),
    ):
        with pytest.raises(ValueError, match=message):
            executor.check_feed_shape_type(x, executor._as_lodtensor(array, place))
    assert executor._to_name_str([x, "y"]) == "x,y"
    with pytest.raises(RuntimeError, match="LoDTensor"):
        executor._as_lodtensor([1, 2], place)
    assert executor._as_lodtensor(3, place, "int64").shape() == [1]


def test_outputs_that_only_gradients_read_are_intermediate():
    proto = framework.OpProtoHolder.instance().get_op_proto("sequence_pool")
    assert {slot.name for slot in proto.outputs if slot.intermediate} == {"MaxIndex"}
    kinds = {
        attr.name: attr.type
        for attr in framework.OpProtoHolder.instance().get_op_proto("eye").attrs
    }
    assert kinds["num_rows"] == core.AttrType.LONG
