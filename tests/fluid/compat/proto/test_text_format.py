"""Messages read from text: what `str` of a program writes, and what is no message."""

import pytest

import fluid
from fluid.compat.proto.framework_pb2 import OpDesc, ProgramDesc, VarType
from fluid.compat.proto.text_format import TextError, merge_text


def merged(text, message):
    merge_text(text, message)
    return message


def test_the_text_of_a_program_is_read(fresh_programs):
    x = fluid.data("x\n\"'é", [None, 3])
    hidden = fluid.layers.fc(x, 2, act="relu")
    fluid.layers.clip(hidden, -1e-7, float("inf"))
    fluid.layers.cond(fluid.layers.mean(hidden) > 0.1, lambda: hidden, lambda: hidden * 2.0)
    main = fluid.default_main_program()
    message = merged(str(main), ProgramDesc())
    program = fluid.Program.parse_from_string(message.SerializeToString())
    assert str(program) == str(main) and program.num_blocks == 3


def test_forms_of_values():
    text = """
    # a comment
    type: 'a' "b\\x41\\101\\n"; is_target: t
    attrs { name: "i" type: INTS ints: [1, -2] ints: 0x10 },
    attrs: < name: "f" type: 1 f: 1.5f >
    attrs { name: "l" type: LONG l: -9000000000 }
    """
    op = merged(text, OpDesc())
    assert op.type == "abAA\n" and op.is_target
    assert [list(attr.ints) for attr in op.attrs] == [[1, -2, 16], [], []]
    assert (op.attrs[1].f, op.attrs[2].l) == (1.5, -9000000000)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('type: "a"\nkind: 3', "text, line 2: OpDesc has no field 'kind'"),
        ('type "a"', "expected ':' after type"),
        ("type: 3", "type: 3 has type int"),
        ("attrs: 3", "attrs is a message in braces, not '3'"),
        ('attrs { name: "a"', "the text ends too early"),
        ("is_target: maybe", "is_target cannot be 'maybe'"),
        ("attrs { i: 5000000000 }", "out of range"),
        ("attrs { type: 77 }", "Unknown enum value: 77"),
        ('type: "a', "unexpected '\"'"),
        ("\n\n%", "text, line 1: unexpected '%'"),
        ("attrs { ints: [1", "the text ends too early"),
    ],
)
def test_what_is_no_message_is_named_with_its_line(text, message):
    with pytest.raises(TextError) as caught:
        merged(text, OpDesc())
    assert message in str(caught.value)


def test_deep_nesting_is_an_error():
    text = "tensor_array { tensor { " * 3 + "}" * 6
    with pytest.raises(TextError, match="no field 'tensor_array'"):
        merged(text, VarType())
