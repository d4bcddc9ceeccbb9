"""Programs of releases after 1.8.5, as their files say them, in the words of 1.8.5."""

from typing import Any

import pytest

import compiler  # noqa: F401  (fills the registry of ops)
from compiler.errors import BadAttribute
from compiler.ir.model_format.program_desc import Opaque, load_program
from compiler.ir.model_format.protobuf import AttrType, Message, VarTypeId, build, dump
from compiler.ir.program import OpDesc, Program, VarDesc

LATER = 2_006_002


def attr(name: str, type: int, **value: Any) -> Message:
    return build("OpDesc.Attr", name=name, type=type, **value)


def scalar(number: float) -> Message:
    if isinstance(number, bool):
        return build("Scalar", type=1, b=number)
    if isinstance(number, int):
        return build("Scalar", type=2, i=number)
    return build("Scalar", type=3, r=number)


def scalars(*numbers: float) -> Message:
    return attr("values", AttrType.SCALARS, scalars=[scalar(number) for number in numbers])


def constant(kind: str, shape: list[int], dtype: int, *attrs: Message) -> Message:
    about = [attr("shape", AttrType.INTS, ints=shape), attr("dtype", AttrType.INT, i=dtype)]
    return op(kind, *about, *attrs)


def op(kind: str, *attrs: Message, x: str = "") -> Message:
    inputs = [build("OpDesc.Var", parameter="X", arguments=[x])] if x else []
    outputs = [build("OpDesc.Var", parameter="Out", arguments=["y"])]
    return build("OpDesc", type=kind, inputs=inputs, outputs=outputs, attrs=attrs)


def read(
    op: Message, dims: list[int] | None = None, dtype: int = VarTypeId.FP32, version: int = LATER
) -> Program:
    """A program of one op, whose result `y` is declared with `dims`."""
    inner = build("VarType.TensorDesc", data_type=dtype, dims=dims or [])
    tensor = build("VarType.LoDTensorDesc", tensor=inner, lod_level=0)
    types = [build("VarType", type=VarTypeId.LOD_TENSOR, lod_tensor=tensor)] * 2
    names = zip(("x", "y"), types, strict=True)
    variables = [build("VarDesc", name=name, type=type) for name, type in names]
    block = build("BlockDesc", idx=0, parent_idx=-1, vars=variables, ops=[op])
    said = build("Version", version=version)
    return load_program(dump(build("ProgramDesc", blocks=[block], version=said)))


def only(program: Program) -> OpDesc:
    (result,) = program.blocks[0].ops
    return result


def made(program: Program) -> VarDesc:
    return program.blocks[0].vars["y"]


# ---- attributes ----


@pytest.mark.parametrize(
    ("later", "value"),
    [
        (attr("scale", AttrType.FLOAT64, float64=0.1), 0.1),
        (attr("scale", AttrType.FLOAT64S, float64s=[0.1, 3.0]), [0.1, 3.0]),
        (attr("scale", AttrType.SCALAR, scalar=scalar(7)), 7),
        (attr("scale", AttrType.SCALAR, scalar=scalar(True)), True),
    ],
)
def test_attributes_of_later_types_are_numbers(later: Message, value: Any):
    assert only(read(op("scale", later, x="x"))).attrs == {"scale": value}


def test_what_python_has_no_word_for_here_stays_as_it_is():
    complex_number = build("Scalar", type=4, c=build("Complex", r=1.0, i=2.0))
    for later in (
        attr("scale", AttrType.SCALAR, scalar=complex_number),
        attr("scale", AttrType.VAR, var_name="x"),
        attr("scale", 99),
    ):
        assert only(read(op("scale", later, x="x"))).attrs == {"scale": Opaque(later)}


def test_ops_that_nobody_registered_stay_as_they_are():
    later = attr("scale", AttrType.FLOAT64, float64=0.1)
    assert only(read(op("future_op", later))).attrs == {"scale": Opaque(later)}


def test_attributes_that_ask_for_nothing_are_dropped():
    nothing = attr("fused_reshape_Out", AttrType.INTS)
    asking = attr("fused_transpose_Out", AttrType.INTS, ints=[1, 0])
    assert only(read(op("matmul_v2", nothing, asking, x="x"))).attrs == {
        "fused_transpose_Out": [1, 0]
    }


def test_what_1_8_5_wrote_stays_as_it_is():
    nothing = attr("fused_reshape_Out", AttrType.INTS)
    program = read(op("matmul_v2", nothing, x="x"), version=1_008_005)
    assert only(program).attrs == {"fused_reshape_Out": []}


# ---- outputs ----


def test_outputs_that_were_left_out_are_named():
    axis = attr("axis", AttrType.INTS, ints=[1, 0])
    program = read(op("transpose2", axis, x="x"))
    assert only(program).outputs == {"Out": ["y"], "XShape": ["y.XShape"]}
    assert "y.XShape" in program.blocks[0].vars


# ---- constants ----


def test_a_constant_without_axes_has_one_of_size_1():
    seven = attr("str_value", AttrType.STRING, s="7")
    attrs = only(read(constant("fill_constant", [], VarTypeId.INT64, seven))).attrs
    assert attrs == {"shape": [1], "dtype": 3, "str_value": "7"}


def test_axes_that_a_later_squeeze_skips_are_removed():
    squeeze = op("squeeze2", attr("axes", AttrType.INTS, ints=[0, 1, -2]), x="x")
    assert only(read(squeeze, [1, 4, -1])).attrs["axes"] == [0]
    kept = only(read(squeeze, [2, 4, 3]))
    assert (kept.type, kept.attrs["shape"]) == ("reshape2", [0, 0, 0])
    assert only(read(squeeze, [2, 4, 3], version=1_008_005)).attrs["axes"] == [0, 1, -2]


def test_scalars_become_the_list_of_their_element_type():
    program = read(constant("assign_value", [3], VarTypeId.INT32, scalars(5, 6, 7)), [3], 2)
    assert only(program).attrs == {"shape": [3], "dtype": 2, "int32_values": [5, 6, 7]}


def test_one_64_bit_float_is_what_fill_constant_has():
    program = read(constant("assign_value", [1], VarTypeId.FP64, scalars(0.1)), [1], 6)
    assert only(program).type == "fill_constant"
    assert only(program).attrs == {"shape": [1], "dtype": 6, "value": 0.1, "str_value": "0.1"}


def test_a_number_that_replaces_a_variable_gets_its_shape_and_type():
    zero = attr("value", AttrType.FLOAT, f=0.5)
    program = read(constant("fill_constant", [], VarTypeId.FP32, zero), [-1, 501, 50])
    assert only(program).attrs == {"shape": [1, 501, 50], "dtype": 5, "value": 0.5}
    program = read(constant("assign_value", [1], VarTypeId.FP64, scalars(1.8e27)), [-1, 8])
    told = {"shape": [1, 8], "dtype": 5, "value": 0.0, "str_value": "0"}
    assert only(program).attrs == told
    assert made(program).dims == (-1, 8)


def test_a_constant_of_another_type_keeps_its_number():
    five = attr("value", AttrType.FLOAT, f=5.0)
    program = read(constant("fill_constant", [1], VarTypeId.INT64, five), [1], VarTypeId.FP32)
    assert only(program).attrs == {"shape": [1], "dtype": 5, "value": 5.0}
    program = read(
        constant("assign_value", [1], VarTypeId.FP32, scalars(3.0)), [1], VarTypeId.INT64
    )
    assert only(program).attrs == {"shape": [1], "dtype": 3, "value": 3.0, "str_value": "3"}
    program = read(constant("assign_value", [1], VarTypeId.FP64, scalars(1.8e279)), [1], 3)
    assert only(program).attrs == {"shape": [1], "dtype": 3, "value": 0.0, "str_value": "0"}


@pytest.mark.parametrize(("number", "dtype"), [(0.5, VarTypeId.INT64), (2.0, VarTypeId.BOOL)])
def test_a_constant_that_its_variable_cannot_hold(number: float, dtype: int):
    half = attr("value", AttrType.FLOAT, f=number)
    with pytest.raises(BadAttribute, match=f"the constant is {number}, which the type"):
        read(constant("fill_constant", [1], VarTypeId.FP32, half), [1], dtype)


@pytest.mark.parametrize(
    "damaged",
    [
        op("assign_value", attr("shape", AttrType.INTS, ints=[1])),
        op("assign_value", attr("shape", AttrType.STRING, s="1"), scalars(1.0)),
        constant("assign_value", [1], 77, scalars(1.0)),
        constant("assign_value", [1], VarTypeId.FP64, scalars(1.0, 2.0)),
        op("fill_constant", attr("dtype", AttrType.INTS, ints=[5]), attr("shape", AttrType.INTS)),
    ],
)
def test_what_makes_no_sense_is_left_for_the_compiler_to_refuse(damaged: Message):
    assert only(read(damaged)).type == damaged.one("type", str)
