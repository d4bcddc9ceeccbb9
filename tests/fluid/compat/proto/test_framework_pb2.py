"""`framework_pb2`: messages of saved programs behave as those that protobuf generates."""

import copy
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fluid
from compiler.ir.model_format.protobuf import ProtoError
from fluid.compat.proto import framework_pb2 as pb

ROOT = Path(__file__).parents[4]
MODELS = ROOT / "tests" / "golden" / "inference"
TEXT = r"""
blocks {
  idx: 0
  parent_idx: -1
  vars {
    name: "x"
    type {
      type: LOD_TENSOR
      lod_tensor {
        tensor {
          data_type: FP32
          dims: -1
          dims: 4
        }
      }
    }
    persistable: true
  }
  ops {
    inputs {
      parameter: "X"
      arguments: "x"
    }
    type: "relu"
    attrs {
      name: "s"
      type: STRING
      s: "hello \"q\"\n"
    }
  }
}
"""
BYTES = (
    "0a4e080010ffffffffffffffffff011a1c0a0178121508071a110a0f080510ffffffffffffffffff0110041801"
    "22210a060a01581201781a0472656c7522110a017310022a0a68656c6c6f202271220a"
)


def program() -> Any:
    """The program of `TEXT`, whose bytes protobuf 3.20 wrote as `BYTES`."""
    desc = pb.ProgramDesc()
    block = desc.blocks.add()
    block.idx, block.parent_idx = 0, -1
    var = block.vars.add(name="x")
    var.type.type = pb.VarType.LOD_TENSOR
    var.type.lod_tensor.tensor.data_type = pb.VarType.FP32
    var.type.lod_tensor.tensor.dims.extend([-1, 4])
    var.persistable = True
    op = block.ops.add(type="relu", inputs=[pb.OpDesc.Var(parameter="X", arguments=["x"])])
    op.attrs.add(name="s", type=pb.STRING, s='hello "q"\n')
    return desc


def test_text_and_bytes_are_those_of_protobuf() -> None:
    assert str(program()) == TEXT.lstrip()
    assert program().SerializeToString().hex() == BYTES
    assert program() == pb.ProgramDesc.FromString(bytes.fromhex(BYTES))
    assert program().ByteSize() == len(BYTES) // 2


@pytest.mark.parametrize("path", sorted(MODELS.glob("*/__model__")), ids=lambda p: p.parent.name)
def test_models_round_trip_byte_for_byte(path: Path) -> None:
    desc = pb.ProgramDesc()
    assert desc.ParseFromString(path.read_bytes()) == path.stat().st_size
    assert desc.SerializeToString() == path.read_bytes()


def test_a_changed_model_runs() -> None:
    main = fluid.Program()
    with fluid.program_guard(main, fluid.Program()):
        out = fluid.layers.scale(fluid.data("x", [2]), scale=3.0)
    desc = pb.ProgramDesc.FromString(main.desc.serialize_to_string())
    (op,) = desc.blocks[0].ops
    next(attr for attr in op.attrs if attr.name == "scale").f = 5.0
    changed = fluid.Program.parse_from_string(desc.SerializeToString())
    feed = {"x": np.array([1, 2], np.float32)}
    (got,) = fluid.Executor(fluid.CPUPlace()).run(changed, feed, [out.name])
    assert got.tolist() == [5.0, 10.0]


def test_presence_and_defaults() -> None:
    var = pb.VarDesc()
    assert var.type.lod_tensor.lod_level == 0
    assert not var.HasField("type")
    var.type.lod_tensor.lod_level = 0
    assert var.HasField("type")
    assert var.type.HasField("lod_tensor")
    assert [field.name for field, _ in var.ListFields()] == ["type"]
    var.ClearField("type")
    assert not var.HasField("type")
    block = pb.BlockDesc()
    assert block.forward_block_idx == -1
    assert not block.HasField("forward_block_idx")
    assert not pb.OpDesc().IsInitialized()
    assert pb.OpDesc().SerializePartialToString() == b""
    assert pb.OpDesc.Attr(f=0.1).f == 0.10000000149011612


def test_copies_are_of_their_own() -> None:
    desc = program()
    copied = pb.ProgramDesc()
    copied.CopyFrom(desc)
    del copied.blocks[0].ops[:]
    assert (len(desc.blocks[0].ops), len(copied.blocks[0].ops)) == (1, 0)
    copied.MergeFrom(desc)
    assert len(copied.blocks) == 2
    again = copy.deepcopy(desc)
    assert again == desc
    again.blocks[0].ops[0].type = "tanh"
    assert desc.blocks[0].ops[0].type == "relu"
    desc.blocks[0].ops.remove(desc.blocks[0].ops[0])
    assert str(desc.blocks[0].ops) == "[]"


def test_enums() -> None:
    assert (pb.VarType.Type.Name(5), pb.VarType.Type.Value("FP32")) == ("FP32", 5)
    assert pb.AttrType.keys()[:3] == ["INT", "FLOAT", "STRING"]
    assert (pb.AttrType.Name(pb.LONGS), pb.VarType.SELECTED_ROWS) == ("LONGS", 8)
    with pytest.raises(ValueError, match="no name defined for value 99"):
        pb.VarType.Type.Name(99)


def assign(message: Any, name: str, value: Any) -> None:
    setattr(message, name, value)


@pytest.mark.parametrize(
    ("kind", "name", "value", "error", "text"),
    [
        (pb.BlockDesc, "idx", "x", TypeError, "'x' has type str, but expected one of: int"),
        (pb.BlockDesc, "idx", 1 << 40, ValueError, "Value out of range: 1099511627776"),
        (pb.BlockDesc, "ops", [], AttributeError, 'not allowed to repeated field "ops"'),
        (pb.BlockDesc, "nosuch", 1, AttributeError, "'BlockDesc' object has no attribute 'nosuch'"),
        (pb.VarDesc, "type", pb.VarType(), AttributeError, 'not allowed to field "type"'),
        (pb.VarDesc, "name", 3, TypeError, "3 has type int"),
        (pb.VarType, "type", 77, ValueError, "Unknown enum value: 77"),
    ],
)
def test_field_type_errors(
    kind: Any, name: str, value: Any, error: type[Exception], text: str
) -> None:
    with pytest.raises(error, match=text):
        assign(kind(), name, value)


def test_bytes_that_are_no_program() -> None:
    with pytest.raises(ProtoError, match="byte 2"):
        pb.ProgramDesc().ParseFromString(b"\x0a\xff")
    with pytest.raises(TypeError, match="bytes-like object is required, not 'str'"):
        pb.ProgramDesc().ParseFromString("abc")
    with pytest.raises(ProtoError, match="OpDesc lacks the required field type"):
        pb.OpDesc().SerializeToString()


def test_protobuf_is_not_needed() -> None:
    code = (
        "import sys, fluid.compat.proto.framework_pb2; sys.exit('google.protobuf' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=False).returncode == 0


def test_declarations_of_ops_are_messages() -> None:
    protos = [pb.OpProto.FromString(each) for each in fluid.core.get_all_op_protos()]
    (mean,) = [each for each in protos if each.type == "mean"]
    assert [slot.name for slot in (*mean.inputs, *mean.outputs)] == ["X", "Out"]
    assert mean.comment
    (reshape,) = [each for each in protos if each.type == "reshape2"]
    marks = {slot.name: (slot.duplicable, slot.dispensable) for slot in reshape.inputs}
    assert marks == {"X": (False, False), "Shape": (False, True), "ShapeTensor": (True, True)}
    assert [slot.intermediate for slot in reshape.outputs] == [False, True]
    types = {attr.name: attr.type for attr in reshape.attrs}
    assert (types["shape"], types["op_role"]) == (pb.INTS, pb.INT)
    assert pb.OpProto.Var.DESCRIPTOR.full_name == "paddle.framework.proto.OpProto.Var"
