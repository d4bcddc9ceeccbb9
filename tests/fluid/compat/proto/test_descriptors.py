"""`google.protobuf` reads and writes messages of programs as text and as JSON."""

from types import ModuleType

import pytest

import fluid
from fluid.compat.proto.framework_pb2 import OpDesc, ProgramDesc, VarType


@pytest.fixture
def program(fresh_programs) -> ProgramDesc:
    x = fluid.data("x", [None, 3])
    hidden = fluid.layers.fc(x, 2, act="relu")
    fluid.layers.clip(hidden, -1e-7, 0.5)
    fluid.layers.cond(fluid.layers.mean(hidden) > 0.1, lambda: hidden, lambda: hidden * 2.0)
    return ProgramDesc.FromString(fluid.default_main_program().desc.serialize_to_string())


def imported(name: str) -> ModuleType:
    return pytest.importorskip(f"google.protobuf.{name}")


def test_text_of_protobuf(program: ProgramDesc) -> None:
    text_format = imported("text_format")
    text = text_format.MessageToString(program)
    assert text == program.text(shortest=True)
    for read in (text_format.Merge, text_format.Parse):
        copied = read(text, ProgramDesc())
        assert text_format.MessageToString(copied) == text
    with pytest.raises(text_format.ParseError, match='has no field named "kind"'):
        text_format.Parse("kind: 3", OpDesc())
    with pytest.raises(text_format.ParseError, match="should not have multiple"):
        text_format.Parse('type: "a" type: "b"', OpDesc())


def test_json_of_protobuf(program: ProgramDesc) -> None:
    json_format = imported("json_format")
    text = json_format.MessageToJson(program)
    assert '"parentIdx": -1' in text and '"FP32"' in text
    assert json_format.MessageToJson(json_format.Parse(text, ProgramDesc())) == text


def test_descriptors() -> None:
    attr = OpDesc.DESCRIPTOR.fields_by_name["attrs"]
    assert attr.message_type is not None and attr.message_type.full_name.endswith(".OpDesc.Attr")
    assert attr.is_repeated and attr.message_type.containing_type is OpDesc.DESCRIPTOR
    kind = attr.message_type.fields_by_name["type"]
    assert kind.enum_type is not None and kind.enum_type.values_by_number[6].name == "BOOLEAN"
    assert kind.is_required and kind.type == kind.TYPE_ENUM == 14
    assert VarType.DESCRIPTOR.fields_by_number[1].cpp_type == kind.CPPTYPE_ENUM == 8
    assert attr.message_type.fields_by_name["block_idx"].json_name == "blockIdx"
