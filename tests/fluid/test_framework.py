"""Programs, blocks, ops and variables: what they hold, what they refuse, and what copies keep."""

import inspect
import re
from copy import copy
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fluid
from compiler.errors import BadAttribute, CompileError, ShapeError, UnknownOp
from compiler.ir.program import OpRole
from fluid.core import VarDesc
from fluid.framework import Block, Operator, Parameter, default_main_program
from fluid.recording.op_records import user_line

VarType = VarDesc.VarType
pytestmark = pytest.mark.usefixtures("fresh_programs")


@pytest.fixture
def block() -> Block:
    """A block with x [-1, 3], y [-1, 1] and w [3, 1]."""
    block = default_main_program().global_block()
    block.create_var(name="x", shape=[-1, 3], dtype="float32")
    block.create_var(name="y", shape=[-1, 1], dtype="float32")
    block.create_parameter(name="w", shape=[3, 1], dtype="float32")
    return block


def product(block: Block, out: str = "out") -> Operator:
    block.create_var(name=out, dtype="float32")
    return block.append_op("mul", inputs={"X": "x", "Y": "w"}, outputs={"Out": out})


# ---- variables


def test_variable_reports_what_it_is(block: Block) -> None:
    x = block.var("x")
    assert (x.shape, x.dtype, x.type) == ((-1, 3), VarType.FP32, VarType.LOD_TENSOR)
    assert (x.dtype, x.type) == (5, 7)
    assert (x.persistable, x.stop_gradient, x.lod_level, x.grad_name) == (False, False, 0, "x@GRAD")
    assert block.var("w").persistable


@pytest.mark.parametrize("dtype", ["int64", np.int64, np.dtype("int64"), VarType.INT64, 3])
def test_element_types_by_every_name(block: Block, dtype: Any) -> None:
    assert block.create_var(dtype=dtype).dtype is VarType.INT64


def test_unnamed_variables_are_numbered(block: Block) -> None:
    assert [block.create_var().name for _ in range(2)] == ["_generated_var_0", "_generated_var_1"]


def test_declaring_again_has_the_same_variable(block: Block) -> None:
    assert block.create_var(name="x", shape=(-1, 3), dtype="float32") is block.var("x")


@pytest.mark.parametrize(
    ("field", "value", "previous", "new"),
    [
        ("shape", [-1, 4], "(-1, 3)", "(-1, 4)"),
        ("dtype", "int64", "VarType.FP32", "VarType.INT64"),
        ("lod_level", 1, "0", "1"),
        ("persistable", True, "False", "True"),
        ("type", VarType.SELECTED_ROWS, "VarType.LOD_TENSOR", "VarType.SELECTED_ROWS"),
    ],
)
def test_declaring_as_something_else_is_rejected(
    block: Block, field: str, value: Any, previous: str, new: str
) -> None:
    message = (
        f"x has been created before. The previous {field} is {previous}; the new {field} is {new}"
    )
    with pytest.raises(ValueError, match=re.escape(message)):
        block.create_var(name="x", **{field: value})


def test_unknown_element_type_is_rejected(block: Block) -> None:
    with pytest.raises(ValueError, match="'complex64' is not an element type fluid has"):
        block.create_var(dtype="complex64")


@pytest.mark.parametrize("shape", [[], [3, 0], [-1, 3]])
def test_parameter_needs_known_sizes(block: Block, shape: list[int]) -> None:
    with pytest.raises(ValueError, match="must be greater than 0"):
        block.create_parameter(name="p", shape=shape, dtype="float32")


def test_parameter_lives_in_the_global_block() -> None:
    program = default_main_program()
    program._create_block()
    param = program.current_block().create_parameter(name="p", shape=[1], dtype="float32")
    assert (param.block, program.all_parameters()) == (program.global_block(), [param])
    assert param.optimize_attr == {"learning_rate": 1.0}


def test_parameter_shared_by_name_is_one(block: Block) -> None:
    again = block.create_parameter(name="w", shape=[3, 1], dtype="float32", trainable=False)
    assert again is block.var("w")
    assert not again.trainable
    with pytest.raises(ValueError, match="The previous shape is"):
        block.create_parameter(name="w", shape=[4, 1], dtype="float32")


def test_var_of_a_block(block: Block) -> None:
    with pytest.raises(TypeError, match="requires a string as parameter, but got int"):
        block.var(3)
    with pytest.raises(ValueError, match="var z not in this block"):
        block.var("z")
    inner = default_main_program()._create_block()
    assert not inner.has_var("x")
    assert inner._var_recursive("x") is block.var("x")
    with pytest.raises(ValueError, match="Var z is not found recursively"):
        inner._var_recursive("z")


# ---- arithmetic


def test_numbers_become_one_scale() -> None:
    x = fluid.layers.data("x", [3])
    results = [x + 1, 1 - x, x / 2, -x, np.float32(3) * x]
    ops = default_main_program().global_block().ops
    assert [(op.type, op.attr("scale"), op.attr("bias")) for op in ops] == [
        ("scale", 1.0, 1.0),
        ("scale", -1.0, 1.0),
        ("scale", 0.5, 0.0),
        ("scale", -1.0, 0.0),
        ("scale", 3.0, 0.0),
    ]
    assert [var.name for var in results] == ["tmp_0", "tmp_1", "tmp_2", "tmp_3", "tmp_4"]


def test_variables_become_elementwise_ops() -> None:
    x, y = fluid.layers.data("x", [3]), fluid.layers.data("y", [3])
    power, less = x**2, x < y
    ops = default_main_program().global_block().ops
    assert [op.type for op in ops] == ["fill_constant", "elementwise_pow", "less_than"]
    assert ops[0].attr("shape") == [1]
    assert ops[2].attr("axis") == 0
    assert (power.dtype, less.dtype) == (VarType.FP32, VarType.BOOL)


def test_variables_are_keys_and_differ_from_none() -> None:
    x = fluid.layers.data("x", [3])
    assert {x: 1}[x] == 1
    assert (x == None, x != None) == (False, True)  # noqa: E711
    assert default_main_program().global_block().ops == []


def test_half_of_an_integer_is_rejected() -> None:
    n = fluid.layers.data("n", [1], dtype="int64")
    with pytest.raises(ValueError, match=r"'n' holds i64, which cannot hold 0\.5"):
        _ = n + 0.5


# ---- ops


def test_op_has_all_slots_and_attributes(block: Block) -> None:
    op = product(block)
    assert (op.type, op.input("X"), op.output("Out"), op.idx) == ("mul", ["x"], ["out"], 0)
    assert (op.input_names, op.input_arg_names) == (["X", "Y"], ["x", "w"])
    assert (op.attr("x_num_col_dims"), op.has_attr("epsilon")) == (1, False)
    assert op.attr("op_role") == 0
    assert (block.var("out").shape, block.var("out").op) == ((-1, 1), op)


def test_optional_slots_are_there_and_empty() -> None:
    image = fluid.layers.data("image", [1, 8, 8])
    fluid.layers.conv2d(image, 2, 3, bias_attr=False)
    op = default_main_program().global_block().ops[0]
    assert list(op.inputs) == sorted(op.inputs)
    assert op.input("Bias") == []


def test_what_an_op_has_not(block: Block) -> None:
    op = product(block)
    with pytest.raises(ValueError, match="mul has no input 'Z'; it has: X, Y"):
        op.input("Z")
    with pytest.raises(
        ValueError, match=r"no attribute 'x_num_cols'; did you mean 'x_num_col_dims'"
    ):
        op.attr("x_num_cols")


def fails(block: Block, **fields: Any) -> str:
    """Return the message of an op that is refused, and see that nothing was appended."""
    block.create_var(name="out", dtype="float32")
    version, line = block.program.version, inspect.currentframe().f_lineno + 2
    with pytest.raises(fields.pop("error")) as caught:
        block.append_op(**fields)
    assert (block.ops, block.program.version) == ([], version)
    if isinstance(caught.value, CompileError):
        assert caught.value.source.endswith(f"test_framework.py:{line}")
    return str(caught.value)


def test_op_of_unknown_type(block: Block) -> None:
    with pytest.raises(UnknownOp) as caught:
        block.append_op(type="mull", inputs={"X": "x"}, outputs={"Out": "out"})
    assert str(caught.value) == 'Operator "mull" has not been registered.'
    restored = copy(caught.value)
    for error in (caught.value, restored):
        assert error.__notes__[-1] == "  hint: did you mean 'mul'?" and len(error.__notes__) == 3


def test_op_without_type(block: Block) -> None:
    assert "can not be None" in fails(block, error=ValueError)


def test_op_without_a_needed_slot(block: Block) -> None:
    inputs = {"type": "mul", "inputs": {"X": "x"}, "outputs": {"Out": "out"}}
    assert fails(block, error=AssertionError, **inputs).startswith("Input Y not found")
    assert "(Out=out) = mul(X=x)" in fails(block, error=ValueError, **inputs)


def test_op_with_an_unknown_slot(block: Block) -> None:
    inputs = {"X": "x", "Y": "w", "Z": "y"}
    text = fails(block, error=ValueError, type="mul", inputs=inputs, outputs={"Out": "out"})
    assert "mul has no input slot 'Z'; it has: X, Y" in text


def test_op_with_an_unknown_attribute(block: Block) -> None:
    inputs = {"inputs": {"X": "x", "Y": "w"}, "outputs": {"Out": "out"}, "attrs": {"x_num_cols": 1}}
    with pytest.warns(UserWarning, match="mul has no attribute 'x_num_cols'") as found:
        op = block.append_op(type="mul", **inputs)
    assert "'x_num_cols' is ignored (did you mean 'x_num_col_dims'?)" in str(found[0].message)
    assert not op.has_attr("x_num_cols")
    assert op.attr("x_num_col_dims") == 1


def test_op_without_a_needed_attribute(block: Block) -> None:
    inputs = {"inputs": {"X": "x"}, "outputs": {"Out": "out"}, "attrs": {"in_dtype": 5}}
    text = fails(block, error=BadAttribute, type="cast", **inputs)
    assert "cast needs the attribute 'out_dtype'" in text


def test_op_whose_shapes_do_not_fit(block: Block) -> None:
    inputs = {"inputs": {"X": "x", "Y": "x"}, "outputs": {"Out": "out"}}
    block.var("x").dims = (4, 3)
    assert "do not fit" in fails(block, error=ShapeError, type="mul", **inputs)


def test_slot_with_something_else(block: Block) -> None:
    inputs = {"inputs": {"X": "x", "Y": 3.0}, "outputs": {"Out": "out"}}
    text = fails(block, error=TypeError, type="mul", **inputs)
    assert text == "mul: slot Y takes a Variable or its name, not float"


def test_attributes_are_plain_values() -> None:
    var = fluid.layers.fill_constant(np.array([2, 3]).tolist(), VarType.FP32, np.float32(2))
    attrs = var.op.all_attrs()
    assert (attrs["shape"], attrs["value"]) == ([2, 3], 2.0)
    assert (type(attrs["dtype"]), attrs["dtype"]) == (int, 5)


def test_edits_increase_the_program_version(block: Block) -> None:
    op = product(block)
    versions = [block.program.version]
    for edit in (
        lambda: op._set_attr("y_num_col_dims", 1),
        lambda: op._rename_input("x", "y"),
        lambda: setattr(block.var("x"), "stop_gradient", True),
        lambda: setattr(block.var("x"), "persistable", True),
        lambda: block._rename_var("out", "result"),
        lambda: block._remove_op(0),
        lambda: block._remove_var("result"),
    ):
        edit()
        versions.append(block.program.version)
    assert all(after > before for before, after in pairwise(versions))
    assert block.ops == []
    assert list(block.vars) == ["x", "y", "w"]


def test_renaming_reaches_every_op(block: Block) -> None:
    product(block)
    block._rename_var("w", "weight")
    assert block.ops[0].input("Y") == ["weight"]
    assert isinstance(block.var("weight"), Parameter)


def test_prepending_and_inserting(block: Block) -> None:
    product(block, "a")
    block.create_var(name="b", dtype="float32")
    block._prepend_op(type="relu", inputs={"X": "x"}, outputs={"Out": "b"})
    block._insert_op(1, type="relu", inputs={"X": "y"}, outputs={"Out": "b"})
    assert [op.type for op in block.ops] == ["relu", "relu", "mul"]
    assert [op.idx for op in block._slice_ops(1, 3)] == [1, 2]


# ---- the user's line


def test_ops_carry_the_user_s_line() -> None:
    line = inspect.currentframe().f_lineno + 1
    loss = fluid.layers.mean(fluid.layers.fc(fluid.layers.data("x", [3]), 1))
    fluid.optimizer.SGD(0.1).minimize(loss)
    ops = default_main_program().global_block().ops
    assert {Path(op.source).name for op in ops[:3]} == {f"test_framework.py:{line}"}
    assert Path(ops[-1].source).name == f"test_framework.py:{line + 1}"
    # A gradient belongs to the line of the op it is the gradient of.
    assert all(op.source == ops[0].source for op in ops if op.role & OpRole.BACKWARD)


def test_lines_in_blocks_are_the_user_s() -> None:
    rate = fluid.layers.piecewise_decay([1], [0.1, 0.2])
    line = inspect.currentframe().f_lineno - 1
    ops = [op for block in rate.block.program.blocks for op in block.ops]
    assert {Path(op.source).name for op in ops} == {f"test_framework.py:{line}"}


def test_lines_below_the_working_directory_are_relative(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code = compile("line = user_line()", str(tmp_path / "models" / "net.py"), "exec")
    for here, shown in (
        (tmp_path, "models/net.py:1"),
        (Path("/"), None),
        (tmp_path / "x", "net.py:1"),
    ):
        here.mkdir(exist_ok=True)
        monkeypatch.chdir(here)
        space: dict[str, Any] = {"user_line": user_line}
        exec(code, space)
        assert space["line"] == (shown or f"{tmp_path.relative_to('/')}/models/net.py:1")


# ---- what else 1.8.5 has


@pytest.mark.parametrize(
    ("method", "arguments"),
    [
        ("detach", ()),
        ("numpy", ()),
        ("set_value", (1.0,)),
        ("backward", ()),
        ("gradient", ()),
        ("clear_gradient", ()),
    ],
)
def test_methods_of_dygraph_report_what_to_do(method: str, arguments: Any) -> None:
    x = fluid.layers.data("x", [3])
    with pytest.raises(AssertionError, match=f"'{method}' is for dygraph mode"):
        getattr(x, method)(*arguments)


def test_notes_on_a_variable_are_its_own(block: Block) -> None:
    x, w = block.var("x"), block.var("w")
    x._set_info("part", 3)
    assert (x._get_info("part"), x._get_info("other"), w._get_info("part")) == (3, None, None)


def test_a_variable_takes_the_fields_of_the_reference(block: Block) -> None:
    var = fluid.Variable(block, name="v", shape=[2], dtype="float32", capacity=3, error_clip=None)
    assert (var.name, var.grad_name, var.shape) == ("v", "v@GRAD", (2,))


def test_attributes_have_their_types_and_blocks() -> None:
    x = fluid.layers.data("x", [1], append_batch_size=False)
    with fluid.layers.Switch() as switch, switch.case(x < 1.0):
        fluid.layers.assign(x + 1.0, x)
    program = default_main_program()
    op = program.global_block().ops[-1]
    assert op.type == "conditional_block"
    assert (op._block_attr_id("sub_block"), op._block_attr("sub_block")) == (1, program.block(1))
    assert op.all_attrs()["sub_block"] is program.block(1)
    kinds = {name: op.attr_type(name).name for name in ("sub_block", "op_role", "op_namescope")}
    assert kinds == {"sub_block": "BLOCK", "op_role": "INT", "op_namescope": "STRING"}
    op._set_attr("blocks", [program.block(0), program.block(1)])
    assert op._blocks_attr_ids("blocks") == [0, 1]
    assert op._blocks_attr("blocks") == program.blocks


def test_generators_are_switched_as_pairs() -> None:
    with fluid.unique_name.guard():
        assert fluid.unique_name.generate("fc") == "fc_0"
        before, checker = fluid.unique_name.switch()
        assert fluid.unique_name.generate("fc") == "fc_0"
        fluid.unique_name.switch(before, checker)
        assert fluid.unique_name.generate("fc") == "fc_1"
        with fluid.unique_name.guard("pre_"), fluid.unique_name.guard(b"in_"):
            assert fluid.unique_name.generate("fc") == "in_fc_0"


def test_what_is_data_is_copied_from_another_program(fresh_programs):
    fluid.layers.scale(fluid.data("x", [1]))
    main = fluid.default_main_program()
    parsed = fluid.Program.parse_from_string(main.desc.serialize_to_string())
    parsed.global_block().var("x").is_data = False
    parsed.global_block().var("x").stop_gradient = False
    parsed._copy_data_info_from(main, {0: 0})
    x = parsed.global_block().var("x")
    assert x.is_data and x.stop_gradient and x.need_check_feed
    assert not parsed.global_block().var("scale_0.tmp_0").is_data
    with pytest.raises(TypeError, match="Program"):
        parsed._copy_data_info_from("program", {})
