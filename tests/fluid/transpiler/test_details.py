"""`fluid.transpiler.details`, as release 1.8.5 has it."""

import socket
from contextlib import closing
from io import StringIO

import pytest

import fluid
from fluid.transpiler import details

CODE = """\
{ // block 0
    persist trainable parameter w : fluid.VarType.LOD_TENSOR.shape(2, 3).astype(VarType.FP32)
    var x : fluid.VarType.LOD_TENSOR.shape(-1, 2).astype(VarType.FP32)
    var y : fluid.VarType.LOD_TENSOR.shape(-1, 3).astype(VarType.FP32)

    {Out=['y']} = mul(inputs={X=['x'], Y=['w']}, op_device = , op_namescope = /, op_role = 0, \
op_role_var = [], x_num_col_dims = 1, y_num_col_dims = 1)
}
"""


@pytest.fixture
def block():
    block = fluid.Program().global_block()
    x = block.create_var(name="x", shape=[-1, 2], dtype="float32")
    w = block.create_parameter(name="w", shape=[2, 3], dtype="float32")
    y = block.create_var(name="y", dtype="float32")
    block.append_op("mul", {"X": x, "Y": w}, {"Out": y}, {"x_num_col_dims": 1})
    return block


def test_programs_are_printed_as_code(block):
    details.program_to_code(block.program, text := StringIO())
    assert text.getvalue() == CODE


def test_ops_are_searched_by_variable_and_deleted(block):
    block.append_op("relu", {"X": "y"}, {"Out": "y"})
    find = details.find_op_by_output_arg
    assert (find(block, "y"), find(block, "y", reverse=True), find(block, "x")) == (0, 1, -1)
    assert details.find_op_by_input_arg(block, "y") == 1
    details.delete_ops(block, block.ops[:1])
    assert [op.type for op in block.ops] == ["relu"]


def test_slices_of_variables_are_selected_by_server_and_kind(block):
    table = details.VarsDistributed()
    piece = details.VarStruct(
        "w.block1", (1, 3), block.var("w").dtype, block.var("w").type, 0, True
    )
    table.add_distributed_var(block.var("w"), piece, None, 1, 3, "Param", "a:1")
    table.add_distributed_var(block.var("x"), block.var("x"), vtype="Optimizer", endpoint="b:1")
    sliced, whole = table.distributed_vars
    assert (sliced.is_slice, sliced.block_id, sliced.offset, whole.is_slice) == (True, 1, 3, False)
    assert table.get_distributed_var_by_slice("w.block1") is sliced
    assert table.get_distributed_var_by_origin_and_ep("w", "b:1") is None
    assert table.get_distributed_vars_by_ep("b:1", "Optimizer") == [whole]
    assert table.get_distributed_vars_by_vtypes(["Param"], groupby=True) == {"w": [sliced]}
    assert "block 1, offset 3, Param on a:1" in table.overview()


def test_listening_servers_are_ready():
    with closing(socket.create_server(("127.0.0.1", 0))) as server:
        details.wait_server_ready([f"127.0.0.1:{server.getsockname()[1]}"])
    with pytest.raises(AssertionError, match="list"):
        details.wait_server_ready("127.0.0.1:1")
