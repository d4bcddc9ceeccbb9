"""Modules that only old scripts import: `paddle.fluid.op`, `.debugger`, `.install_check`, …"""

import gc
import logging

import numpy as np
import pytest

import fluid
from compiler.errors import CompileError
from fluid.compat.old_names import debugger, default_scope_funcs, install_check, log_helper
from fluid.compat.old_names import distribute_lookup_table as tables
from fluid.compat.old_names.annotations import deprecated
from fluid.compat.old_names.op import OpDescCreationMethod, Operator
from fluid.compat.old_names.wrapped_decorator import (
    signature_safe_contextmanager,
    wrap_decorator,
)
from fluid.compat.proto import framework_pb2
from fluid.layers.control.nested import convert_to_list, copy_mutable_vars, hold_mutable_vars


@pytest.fixture
def network():
    main = fluid.Program()
    with fluid.program_guard(main, fluid.Program()), fluid.unique_name.guard():
        fluid.layers.fc(fluid.layers.data("x", [3]), 2)
        yield main


def test_an_op_runs_in_a_scope():
    scope, place = fluid.Scope(), fluid.CPUPlace()
    scope.var("x").get_tensor().set(np.ones((2, 3), "float32"), place)
    op = Operator("scale", X="x", Out="y", scale=2.0)
    op.run(scope, place)
    assert np.array(scope.find_var("y").get_tensor()).tolist() == [[2.0] * 3] * 2
    assert op.type() == "scale" and op.inputs() == {"X": ["x"]} and op.output_vars() == ["y"]
    assert op.input("X") == ["x"] and op.output("Out") == ["y"] and op.outputs() == {"Out": ["y"]}


def test_a_result_of_fewer_rows_than_its_sequences_has_no_sequences():
    scope, place = fluid.Scope(), fluid.CPUPlace()
    blanks = fluid.create_lod_tensor(np.zeros((5, 1), "int32"), [[5]], place)
    scope.var("x").get_tensor().set(blanks, place)
    scope.find_var("x").get_tensor().set_lod(blanks.lod())
    Operator("ctc_align", Input="x", Output="y", blank=0, merge_repeated=True).run(scope, place)
    assert np.array(scope.find_var("y").get_tensor()).tolist() == [[-1]]


def test_ops_that_run_on_a_gpu():
    assert Operator("scale", X="x", Out="y").support_gpu() is fluid.core.op_support_gpu("scale")


def test_an_op_keeps_sequences():
    scope, place = fluid.Scope(), fluid.CPUPlace()
    words = fluid.create_lod_tensor(np.arange(4.0).reshape(4, 1), [[3, 1]], place)
    scope.var("x").get_tensor().set(words.array, place)
    scope.var("x").get_tensor().set_lod(words.lod())
    Operator("sequence_softmax", X="x", Out="y").run(scope, place)
    assert scope.find_var("y").get_tensor().lod() == [[0, 3, 4]]


def test_ops_that_cannot_run():
    with pytest.warns(UserWarning, match="neither a slot nor an attribute 'rate'"):
        Operator("scale", X="x", Out="y", rate=1.0)
    remote = {"remote_prefetch": True, "table_names": ["w"]}
    on_servers = Operator("hierarchical_sigmoid", X="x", W="w", Out="y", W_Out="w", **remote)
    assert on_servers.output_vars() == ["y"]
    with pytest.raises(ValueError, match="variable 'x' has no value in the scope"):
        Operator("scale", X="x", Out="y").run(fluid.Scope(), fluid.CPUPlace())


def test_programs_as_text_and_drawing(network, capsys, tmp_path):
    debugger.pprint_program_codes(network)
    printed = capsys.readouterr().out
    assert "persistable fc_0.w_0: float32[3, 2]" in printed
    assert "(Out=fc_0.tmp_0) = mul(X=x, Y=fc_0.w_0)" in printed
    debugger.draw_block_graphviz(network.global_block(), ["x"], str(tmp_path / "net.dot"))
    drawn = (tmp_path / "net.dot").read_text()
    assert '"x" [shape=box, style=filled, fillcolor=orange];' in drawn
    assert '"x" -> op_0;' in drawn and 'op_0 -> "fc_0.tmp_0";' in drawn


def test_an_installation_is_checked(capsys):
    install_check.run_check()
    assert capsys.readouterr().out.splitlines() == [
        "One device works: a layer was compiled and trained for a step.",
        "Two devices work: it was trained with half of the rows on each.",
        "fluid is installed and works.",
    ]


def test_scopes_of_a_thread():
    outer = default_scope_funcs.get_cur_scope()
    default_scope_funcs.var("outside")

    def inside():
        assert default_scope_funcs.get_cur_scope() is not outer
        assert default_scope_funcs.find_var("outside") is not None
        default_scope_funcs.var("inside")

    default_scope_funcs.scoped_function(inside)
    assert default_scope_funcs.get_cur_scope() is outer
    assert default_scope_funcs.find_var("inside") is None
    with pytest.raises(RuntimeError, match="without enter_local_scope"):
        default_scope_funcs.leave_local_scope()


def test_decorators_keep_names():
    @wrap_decorator(lambda function: lambda: function() + 1)
    def one():
        """One."""
        return 1

    @signature_safe_contextmanager
    def guard():
        yield 3

    assert (one(), one.__name__, one.__doc__) == (2, "one", "One.")
    with guard() as value:
        assert value == 3


def test_a_deprecated_function_warns():
    @deprecated(since="1.0", instead="fluid.new")
    def old():
        return 5

    with pytest.warns(
        DeprecationWarning, match="old is deprecated since 1.0. Please use fluid.new"
    ):
        assert old() == 5


def test_loggers(capsys):
    logger = log_helper.get_logger("tests.old_names", logging.INFO, fmt="%(levelname)s-%(message)s")
    assert log_helper.get_logger("tests.old_names", logging.INFO) is logger
    assert len(logger.handlers) == 1


def test_core_and_flags():
    core = fluid.core
    assert core.op_proto_and_checker_maker.OpRole.Optimize == 2
    assert core.op_proto_and_checker_maker.kOpRoleAttrName() == "op_role"
    assert core.grad_var_suffix() == "@GRAD" and core.empty_var_name() == "@EMPTY@"
    flags = core.globals()
    assert flags["FLAGS_benchmark"] is False and len(flags) == len(list(flags))
    flags["FLAGS_eager_delete_tensor_gb"] = 1
    assert fluid.get_flags("FLAGS_eager_delete_tensor_gb")["FLAGS_eager_delete_tensor_gb"] == 1.0
    flags["FLAGS_eager_delete_tensor_gb"] = 0.0
    with pytest.raises(TypeError, match="cannot be removed"):
        del flags["FLAGS_benchmark"]
    with pytest.raises(core.EnforceNotMet, match="FLAGS_use_mkldnn is not writable"):
        flags["FLAGS_use_mkldnn"] = True
    assert flags["FLAGS_use_mkldnn"] is False and not flags.is_public("FLAGS_use_mkldnn")
    assert "FLAGS_nothing" not in flags and flags.get("FLAGS_nothing", -1) == -1
    with pytest.raises(core.EnforceNotMet, match="FLAGS_nothing"):
        flags["FLAGS_nothing"]


def test_values_of_parameters_and_gradients(network):
    with fluid.scope_guard(fluid.Scope()):
        executor = fluid.Executor()
        executor.run(fluid.default_startup_program())
        bias = fluid.io.get_parameter_value_by_name("fc_0.b_0", executor, network)
        assert bias.tolist() == [0, 0]
        assert fluid.executor._fetch_var("fc_0.b_0").tolist() == [0, 0]
        with pytest.raises(AssertionError, match="Cannot find fc_9 in scope"):
            fluid.executor._fetch_var("fc_9")
    weight = network.global_block().var("fc_0.w_0")
    out = network.global_block().var("fc_0.tmp_1")
    result = fluid.backward.calc_gradient(out, weight)
    assert result.name.startswith(fluid.backward._append_grad_suffix_("fc_0.w_0"))


def test_lists_and_structures():
    assert convert_to_list(3, 2, "stride") == [3, 3]
    with pytest.raises(ValueError, match="The stride's length must be 2"):
        convert_to_list([1], 2, "stride")
    with pytest.raises(ValueError, match="The stride must be int or a list of 2 of them"):
        convert_to_list("ab", 2, "stride")
    assert hold_mutable_vars([1, [2]]) and not hold_mutable_vars([1, 2])
    assert copy_mutable_vars([1, (2,)]) == [1, (2,)]


def test_declarations_of_ops_are_read():
    holder = fluid.framework.OpProtoHolder.instance()
    proto = holder.get_op_proto("lstm")
    assert proto.type == "lstm" and holder.has_op_proto("lstm")
    inputs = {slot.name: slot.dispensable for slot in proto.inputs}
    assert inputs == {"Input": False, "H0": True, "C0": True, "Weight": False, "Bias": False}
    assert next(slot.duplicable for slot in holder.get_op_proto("concat").inputs)
    assert "use_peepholes" in {attr.name for attr in proto.attrs}
    assert "op_role" in holder.generated_op_attr_names()
    assert holder.get_op_proto("mul").IsInitialized()
    with pytest.raises(ValueError, match="nix"):
        holder.get_op_proto("nix")
    assert proto in fluid.framework.get_all_op_protos()


def rows_of_a_scope(scope, name, rows, values):
    """SelectedRows of a table of ten rows."""
    created = scope.var(name).get_selected_rows()
    created.set_height(10)
    created.set_rows(rows)
    created.get_tensor().set(np.array(values, "float32"), fluid.CPUPlace())
    return created


@pytest.mark.parametrize(
    ("terms", "rows", "sums"),
    [
        ([[7, 1], [5, 2]], [7, 1, 5, 2], [1, 5, 1, 5]),
        ([[7, 1, 7], [5, 2]], [1, 2, 5, 7], [5, 5, 1, 10]),
        ([[7, 1], []], [7, 1], [1, 5]),
        ([[1, 1]], [1], [6]),
    ],
)
def test_a_sum_of_rows_has_each_once(terms, rows, sums):
    """Numbers are those of release 1.8.5."""
    scope, names = fluid.Scope(), [f"x{i}" for i in range(len(terms))]
    for name, numbers in zip(names, terms, strict=True):
        values = np.arange(len(numbers) * 4).reshape(len(numbers), 4)
        rows_of_a_scope(scope, name, numbers, values)
    out = scope.var("Out").get_selected_rows()
    Operator("sum", X=names, Out="Out").run(scope, fluid.CPUPlace())
    assert (out.rows(), out.height()) == (rows, 10)
    assert np.array(out.get_tensor())[:, 1].tolist() == sums


def test_a_sum_of_no_rows_has_none():
    scope = fluid.Scope()
    for name in ("a", "b"):
        scope.var(name).get_selected_rows().set_height(10)
    rows = scope.var("y").get_selected_rows()
    rows.set_rows([1])
    Operator("sum", X=["a", "b"], Out="y").run(scope, fluid.CPUPlace())
    assert (list(rows.rows()), rows.height()) == ([], 10)


def test_results_that_an_op_does_not_compute_are_left_alone():
    scope = fluid.Scope()
    for name, shape in (("x", (3, 2)), ("wx", (2, 12)), ("wh", (3, 12)), ("b", (1, 12))):
        tensor = scope.var(name).get_tensor()
        tensor.set(np.ones(shape, "float32"), fluid.CPUPlace())
    scope.find_var("x").get_tensor().set_recursive_sequence_lengths([[1, 2]])
    slots = {"X": "x", "WeightX": "wx", "WeightH": "wh", "Bias": "b", "Hidden": "h", "Cell": "c"}
    lstm = Operator("fusion_lstm", **slots, XX="xx", ReorderedH0="r", use_peepholes=False)
    lstm.run(scope, fluid.CPUPlace())
    shapes = [scope.find_var(name).get_tensor().shape() for name in ("h", "c", "xx")]
    assert shapes == [[3, 3], [3, 3], [3, 12]]


def test_rows_of_a_scope_update_a_parameter():
    scope, place = fluid.Scope(), fluid.CPUPlace()
    gradient = rows_of_a_scope(scope, "g", [0, 4, 0], [[1, 2]] * 3)
    assert (gradient.numel(), gradient.rows()) == (6, [0, 4, 0])
    weights = scope.var("w").get_tensor()
    weights.set(np.full((10, 2), 5.0, "float32"), place)
    scope.var("rate").get_tensor().set(np.full(1, 2.0, "float32"), place)
    Operator("sgd", Param="w", Grad="g", ParamOut="w", LearningRate="rate").run(scope, place)
    assert np.array(weights)[[0, 1, 4]].tolist() == [[1, -3], [5, 5], [3, 1]]


def test_rows_of_a_scope_that_do_not_fit():
    scope, place = fluid.Scope(), fluid.CPUPlace()
    rows_of_a_scope(scope, "g", [0, 10], [[1, 2]] * 2)
    scale = Operator("merge_selected_rows", X="g", Out="y")
    with pytest.raises(ValueError, match="'g' has the row number 10, and a height of 10"):
        scale.run(scope, place)
    scope.var("g").get_selected_rows().set_rows([0])
    with pytest.raises(ValueError, match=r"'g' has values of shape \(2, 2\) and 1 row numbers"):
        scale.run(scope, place)
    with pytest.raises(
        CompileError, match=r"a variable of a scope holds SelectedRows, not a tensor"
    ):
        scope.find_var("g").get_tensor()
    scope.var("x").get_tensor().set(np.ones(2, "float32"), place)
    with pytest.raises(
        CompileError, match=r"a variable of a scope holds LoDTensor, not a SelectedRows"
    ):
        scope.find_var("x").get_selected_rows()
    assert "g" not in scope.arrays()


def test_the_current_generator_of_names():
    with fluid.unique_name.guard("a_"):
        assert fluid.unique_name.generate("fc") == "a_fc_0"
        assert (fluid.unique_name.generator.prefix, fluid.unique_name.generator.ids) == (
            "a_",
            {"fc": 1},
        )


def test_weights_of_weight_norm_are_listed_while_their_programs_live():
    attr = fluid.WeightNormParamAttr
    gc.collect()
    before = len(attr.params_with_weight_norm)
    with fluid.program_guard(fluid.Program(), fluid.Program()), fluid.unique_name.guard():
        fluid.layers.fc(fluid.data("x", [None, 3]), 2, param_attr=attr(dim=0, name="w"))
        (weight,) = attr.params_with_weight_norm[before:]
        assert (weight.name, weight.op.type) == ("fc_0.weight_norm_weight_0", "elementwise_mul")
    del weight
    gc.collect()
    assert len(attr.params_with_weight_norm) == before


@pytest.mark.parametrize(
    ("kind", "inputs", "attrs", "rows", "values"),
    [
        ("square", {}, {}, [7, 1, 7], [[0, 1], [4, 9], [16, 25]]),
        ("assign", {}, {}, [7, 1, 7], [[0, 1], [2, 3], [4, 5]]),
        ("clip", {}, {"min": 1.0, "max": 3.0}, [1, 7], [[2, 3], [3, 3]]),
        ("sum", {"X": ["x", "none"]}, {}, [1, 7], [[2, 3], [4, 6]]),
        ("fill_constant", None, {"shape": [2, 1], "value": 3.0}, [], [[3], [3]]),
    ],
)
def test_ops_of_rows_of_a_scope(kind, inputs, attrs, rows, values):
    """Rows and numbers are those of release 1.8.5."""
    scope = fluid.Scope()
    rows_of_a_scope(scope, "x", [7, 1, 7], np.arange(6).reshape(3, 2))
    for name in ("none", "y"):
        scope.var(name).get_selected_rows()
    slots = {} if inputs is None else {"X": "x"} | inputs
    Operator(kind, **slots, Out="y", **attrs).run(scope, fluid.CPUPlace())
    out = scope.var("y").get_selected_rows()
    assert (out.rows(), np.array(out.get_tensor()).tolist()) == (rows, values)


def test_rows_of_a_scope_are_divided():
    scope, place = fluid.Scope(), fluid.CPUPlace()
    rows_of_a_scope(scope, "x", [0, 4, 3, 6], np.arange(4).reshape(4, 1))
    for name in "abcd":
        scope.var(name).get_selected_rows()
    Operator("split_ids", Ids="x", Out=["a", "b"]).run(scope, place)
    Operator("split_selected_rows", X="x", Out=["c", "d"], height_sections=[4, 6]).run(scope, place)
    parts = [scope.var(name).get_selected_rows() for name in "abcd"]
    assert [part.rows() for part in parts] == [[0, 4, 6], [3], [0, 3], [0, 2]]
    assert [part.height() for part in parts] == [10, 10, 4, 6]


def test_a_table_of_rows_is_updated_and_saved(tmp_path):
    scope, place = fluid.Scope(), fluid.CPUPlace()
    rows_of_a_scope(scope, "table", [1, 4, 3], np.ones((3, 1), "float32"))
    rows_of_a_scope(scope, "gradient", [3, 1, 3], np.array([[1], [2], [4]], "float32"))
    scope.var("rate").get_tensor().set(np.array([0.5], "float32"), place)
    slots = {"Param": "table", "Grad": "gradient", "LearningRate": "rate"}
    Operator("sgd", **slots, ParamOut="table").run(scope, place)
    Operator("save", X="table", file_path=str(tmp_path / "rows")).run(scope, place)
    assert (tmp_path / "rows").read_bytes()[:12] == b"\0\0\0\0\3\0\0\0\0\0\0\0"
    loaded = scope.var("loaded").get_selected_rows()
    Operator("load", Out="loaded", file_path=str(tmp_path / "rows")).run(scope, place)
    assert (loaded.rows(), loaded.height()) == ([1, 4, 3], 10)
    assert np.array(loaded.get_tensor()).tolist() == [[0.0], [1.0], [-1.5]]


def test_tensor_arrays_of_a_scope():
    scope, place = fluid.Scope(), fluid.CPUPlace()
    steps = scope.var("steps").get_lod_tensor_array()
    scope.var("x").get_tensor().set(np.ones((3, 2), "float32"), place)
    scope.var("x").get_tensor().set_lod([[0, 1, 3]])
    for index in (1, 2):
        scope.var("i").get_tensor().set(np.array([index]), place)
        Operator("write_to_array", X="x", I="i", Out="steps").run(scope, place)
    assert [step.lod() for step in steps] == [[], [[0, 1, 3]], [[0, 1, 3]]]
    Operator("read_from_array", X="steps", I="i", Out="y").run(scope, place)
    Operator("lod_array_length", X="steps", Out="n").run(scope, place)
    y, n = scope.var("y").get_tensor(), scope.var("n").get_tensor()
    assert (y.shape(), y.lod(), np.array(n).tolist()) == ([3, 2], [[0, 1, 3]], [3])


def test_op_messages_are_made_from_keywords() -> None:
    proto = framework_pb2.OpProto()
    proto.type = "join"
    for name, duplicable in (("X", True), ("Axis", False)):
        slot = proto.inputs.add()
        slot.name, slot.comment, slot.duplicable = name, "", duplicable
    attr = proto.attrs.add()
    attr.name, attr.comment, attr.type = "sizes", "", framework_pb2.INTS
    make = OpDescCreationMethod(proto)
    message = make(X=["a", "b"], Axis="c", sizes=[1, 2])
    assert [list(slot.arguments) for slot in message.inputs] == [["a", "b"], ["c"]]
    assert list(message.attrs[0].ints) == [1, 2]
    with pytest.raises(ValueError, match="Axis is not duplicable"):
        make(X="a", Axis=["c", "d"])
    with pytest.raises(ValueError, match="Only keyword arguments"):
        make("a")


def test_slots_and_attributes_of_op_types() -> None:
    assert Operator.get_op_input_names("mul") == ["X", "Y"]
    assert Operator.get_op_outputs("split") == [("Out", True)]
    assert {"x_num_col_dims", "use_mkldnn", "op_role"} <= {*Operator.get_op_attr_names("mul")}
    assert "relu" in Operator.types()


def test_the_distributed_table_of_a_program_is_found() -> None:
    with fluid.program_guard(fluid.Program(), fluid.Program()), fluid.unique_name.guard():
        main = fluid.default_main_program()
        assert tables.find_distributed_lookup_table(main) is None
        ids = fluid.layers.data("ids", [1], dtype="int64")
        fluid.layers.embedding(ids, [5, 2], param_attr="plain")
        rows = fluid.layers.embedding(ids, [9, 2], param_attr="table", is_distributed=True)
        assert tables.find_distributed_lookup_table(main) == "table"
        assert tables.find_distributed_lookup_table_inputs(main, "table") == [ids]
        assert tables.find_distributed_lookup_table_outputs(main, "table") == [rows]
        fluid.layers.embedding(ids, [9, 2], param_attr="table")
        with pytest.raises(AssertionError, match="table is read by other look-ups"):
            tables.find_distributed_lookup_table(main)
        fluid.layers.embedding(ids, [9, 2], param_attr="second", is_distributed=True)
        with pytest.raises(RuntimeError, match="only one table"):
            tables.find_distributed_lookup_table(main)
