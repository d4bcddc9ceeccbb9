"""Programs as bytes: parameters stay parameters, and 1.8.5 is none the wiser."""

from typing import Any

import numpy as np
import pytest

import fluid
from compiler.errors import CompileError
from compiler.ir.model_format.program_desc import dump_program
from compiler.ir.model_format.protobuf import Message, parse
from fluid.compat.proto.framework_pb2 import OpDesc, ProgramDesc, VarType
from fluid.framework import Program
from runtime.errors import FeedError

pytestmark = pytest.mark.usefixtures("fresh_programs")


def model() -> fluid.Program:
    x = fluid.data("x", [None, 3])
    hidden = fluid.layers.batch_norm(fluid.layers.fc(x, 2))
    frozen = fluid.ParamAttr(name="frozen", trainable=False)
    fluid.layers.mean(fluid.layers.fc(hidden, 1, param_attr=frozen, bias_attr=False))
    return fluid.default_main_program()


def parameters(program: fluid.Program) -> dict[str, tuple[bool, bool]]:
    return {p.name: (p.trainable, p.stop_gradient) for p in program.all_parameters()}


def test_parameters_round_trip() -> None:
    main = model()
    parsed = Program.parse_from_string(main.desc.serialize_to_string())
    assert parsed.global_block().var("x").stop_gradient
    assert list(parameters(parsed)) == list(parameters(main))
    assert {name for name, (trained, _) in parameters(parsed).items() if not trained} == {
        "batch_norm_0.w_1",
        "batch_norm_0.w_2",
        "frozen",
    }
    assert parsed.desc.serialize_to_string() == main.desc.serialize_to_string()
    assert str(parsed) == str(main)


def test_a_parsed_program_trains() -> None:
    parsed = Program.parse_from_string(model().desc.serialize_to_string())
    loss = parsed.global_block().ops[-1].output("Out")[0]
    with fluid.program_guard(parsed, fluid.Program()):
        _, pairs = fluid.optimizer.SGD(0.1).minimize(parsed.global_block().var(loss))
    assert {"fc_0.w_0", "fc_0.b_0"} <= {param.name for param, _ in pairs}


def test_added_fields_are_unknown_to_1_8_5() -> None:
    main = model()
    (block,) = parse(main.desc.serialize_to_string()).many("blocks", Message)
    flags = {var.one("name", str): var.unknown for var in block.many("vars", Message)}
    assert flags["fc_0.b_0"] == ((40, b"\x01"),)
    assert flags["x"] == ((48, b"\x01"),)
    assert flags["fc_0.tmp_0"] == ()


def plain(program: fluid.Program) -> fluid.Program:
    """The program as bytes without anything added give it back."""
    return Program.parse_from_string(dump_program(program))


def test_unmarked_parameters_are_read_only_variables() -> None:
    main = model()
    main.global_block().create_var(name="counter", shape=[1], dtype="int64", persistable=True)
    result = parameters(plain(main))
    assert result.keys() == parameters(main).keys()
    assert not result["batch_norm_0.w_1"][0]


def test_unmarked_parameters_are_trained_variables() -> None:
    main = model()
    loss = main.global_block().var(main.global_block().ops[-1].output("Out")[0])
    fluid.optimizer.Momentum(0.1, 0.9).minimize(loss)
    result = parameters(plain(main))
    assert "learning_rate_0" not in result
    assert not any("velocity" in name for name in result)
    assert parameters(main).keys() - result.keys() == {"frozen"}


@pytest.mark.parametrize("data", [b"nonsense", b""])
def test_bytes_that_are_no_program(data: bytes) -> None:
    with pytest.raises(CompileError, match="the bytes given is not a saved program"):
        Program.parse_from_string(data)


def test_other_blocks_keep_their_flags() -> None:
    main: Any = model()
    inner = main._create_block()
    inner.create_var(name="inner", shape=[1], dtype="float32", stop_gradient=True)
    main._rollback()
    parsed = Program.parse_from_string(main.desc.serialize_to_string())
    assert parsed.block(1).var("inner").stop_gradient


def test_what_readers_of_1_8_5_read_is_fed() -> None:
    x = fluid.data("x", [None, 3])
    out = fluid.layers.reduce_sum(x)
    desc = ProgramDesc.FromString(fluid.default_main_program().desc.serialize_to_string())
    block = desc.blocks[0]
    block.vars.add(name="reader").type.type = VarType.READER
    reader = OpDesc(type="create_py_reader")
    reader.outputs.add(parameter="Out", arguments=["reader"])
    read = OpDesc(type="read")
    read.inputs.add(parameter="Reader", arguments=["reader"])
    read.outputs.add(parameter="Out", arguments=["x"])
    block.ops.insert(0, read)
    block.ops.insert(0, reader)
    parsed = Program.parse_from_string(desc.SerializeToString())
    assert [op.type for op in parsed.global_block().ops] == ["reduce_sum"]
    exe = fluid.Executor(fluid.CPUPlace())
    feed = {"x": np.ones([2, 3], "f4")}
    assert exe.run(parsed, feed=feed, fetch_list=[out.name])[0].tolist() == [6.0]
    with pytest.raises(FeedError, match="missing feed: 'x'"):
        exe.run(parsed, fetch_list=[out.name])
