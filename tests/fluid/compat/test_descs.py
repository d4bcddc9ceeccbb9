"""Descriptions of programs, blocks, ops and variables, as scripts that rewrite programs use them."""

import pytest

import fluid
from compiler.errors import CompileError
from fluid import core, layers

pytestmark = pytest.mark.usefixtures("fresh_programs")

VarType = core.VarDesc.VarType


@pytest.fixture
def program():
    main = fluid.Program()
    with fluid.program_guard(main, fluid.Program()):
        layers.fc(fluid.data("x", [None, 3]), 4)
    return main


def test_a_description_reads_the_program(program):
    desc = program.desc
    block = desc.block(0)
    assert (desc.num_blocks(), block.id, block.parent, block.op_size()) == (1, 0, -1, 2)
    op = block.op(0)
    assert (op.type(), op.inputs()) == ("mul", {"X": ["x"], "Y": ["fc_0.w_0"]})
    assert op.attr_type("x_num_col_dims") == core.AttrType.INT
    assert op.block() == block
    var = block.find_var(b"x")
    assert (var.shape(), var.dtype(), var.persistable()) == ([-1, 3], VarType.FP32, False)
    assert block.find_var(b"y") is None


def test_desc_edits_change_the_program(program):
    block = program.desc.block(0)
    version = program.version
    block.op(0)._set_attr("y_num_col_dims", 2)
    block.var(b"x").set_shape([8, 3])
    block._rename_var(b"x", b"input")
    assert program.version > version
    assert program.global_block().ops[0].attr("y_num_col_dims") == 2
    assert program.global_block().var("input").shape == (8, 3)
    assert program.global_block().ops[0].input("X") == ["input"]
    block._remove_op(1, 2)
    assert [op.type for op in program.global_block().ops] == ["mul"]


def test_program_is_built_from_descs():
    desc = core.ProgramDesc()
    block = desc.block(0)
    for name, shape in ((b"x", [2, 3]), (b"y", [3, 4])):
        block.var(name).set_shape(shape)
    block.var(b"out")
    op = block.append_op()
    op.set_type("mul")
    op.set_input("X", ["x"])
    op.set_input("Y", ["y"])
    op.set_output("Out", ["out"])
    op.check_attrs()
    op.infer_var_type(block)
    op.infer_shape(block)
    assert block.var(b"out").shape() == [2, 4]
    assert op.attr("x_num_col_dims") == 1
    again = core.ProgramDesc(desc.serialize_to_string())
    assert again.block(0).op(0).outputs() == {"Out": ["out"]}
    copied = fluid.Program.parse_from_string(desc.serialize_to_string())
    assert copied.global_block().ops[0].type == "mul"


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        (1, "INT"), (1 << 40, "LONG"), (1.5, "FLOAT"), ("s", "STRING"), (True, "BOOL"),
        ([1, 2], "INTS"), ([0.1], "FLOATS"), (["a"], "STRINGS"), ([True, False], "BOOLS"),
    ],
)  # fmt: skip
def test_an_attribute_has_the_type_of_its_value(value, kind):
    op = core.ProgramDesc().block(0).append_op()
    op._set_attr("value", value)
    assert op.attr_type("value") == core.AttrType[kind]
    assert op.attr("value") == value
    op.remove_attr("value")
    assert not op.has_attr("value")


def test_attributes_refer_to_blocks():
    desc = core.ProgramDesc()
    inner = desc.append_block(desc.block(0))
    op = desc.block(0).append_op()
    op.set_block_attr("sub_block", inner)
    op.set_blocks_attr("several", [inner, inner])
    assert (op._block_attr_id("sub_block"), op._blocks_attr_ids("several")) == (1, [1, 1])
    assert op.attr_type("sub_block") == core.AttrType.BLOCK


def test_a_reader_has_several_shapes():
    var = core.ProgramDesc().block(0).var(b"reader")
    var.set_type(VarType.READER)
    var.set_shapes([[2, 3], [4, 5, 6]])
    var.set_dtypes([VarType.INT64, VarType.FP64])
    var.set_lod_levels([1, 0])
    assert var.shapes() == [[2, 3], [4, 5, 6]]
    assert var.dtypes() == [VarType.INT64, VarType.FP64]
    assert var.lod_levels() == [1, 0]
    with pytest.raises(CompileError, match="'reader' is a READER"):
        var.shape()


def test_errors_of_descriptions(program):
    block = program.desc.block(0)
    for wrong in (lambda: block.op(2), lambda: program.desc.block(1)):
        with pytest.raises(IndexError):
            wrong()
    for wrong in (lambda: block.op(0).attr("z"), lambda: block.op(0).input("Z")):
        with pytest.raises(core.EnforceNotMet, match="mul"):
            wrong()
    with pytest.raises(TypeError, match="bytes"):
        block.var("x")
    with pytest.raises(TypeError, match="object"):
        block.op(0)._set_attr("a", object())
