"""The protobuf codec against files that the reference wrote, and against damaged ones."""

import random
import time
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from compiler.ir.model_format.protobuf import (
    AttrType,
    Message,
    ProtoError,
    VarTypeId,
    build,
    dump,
    parse,
)
from compiler.ir.model_format.schema import SCHEMA

GOLDEN = Path(__file__).parents[2] / "golden" / "inference"
MODELS = sorted([*GOLDEN.glob("*__combined/model"), *GOLDEN.glob("*__separate/__model__")])
SMALLEST = GOLDEN / "fit_a_line__combined" / "model"

SCALARS = {
    "int32": st.integers(-(2**31), 2**31 - 1),
    "enum": st.integers(0, 30),
    "int64": st.integers(-(2**63), 2**63 - 1),
    "bool": st.booleans(),
    "float": st.floats(width=32, allow_nan=False),
    "double": st.floats(allow_nan=False),
    "string": st.text(max_size=8),
}
UNKNOWN_TAIL = {0: b"\x96\x01", 1: b"12345678", 2: b"\x03abc", 5: b"1234"}
STRANGERS = st.dictionaries(
    st.integers(22, 2**20), st.sampled_from(sorted(UNKNOWN_TAIL)), max_size=2
)
"""Fields that no message has, by number, with what the wire holds of them."""


@cache
def messages(kind: str) -> st.SearchStrategy[Message]:
    """Random messages of `kind`: required fields set, others and unknown ones at will."""
    required: dict[str, st.SearchStrategy[object]] = {}
    optional: dict[str, st.SearchStrategy[object]] = {}
    for field in SCHEMA[kind]:
        item = SCALARS[field.kind] if field.kind in SCALARS else messages(field.kind)
        values = st.lists(item, max_size=2) if field.repeated else item
        (required if field.label == "required" else optional)[field.name] = values
    fields = st.fixed_dictionaries(required, optional=optional)
    return st.builds(lambda values, more: grown(build(kind, **values), more), fields, STRANGERS)


def grown(message: Message, strangers: dict[int, int]) -> Message:
    """Add unknown fields to a message."""
    unknown = ((n << 3 | wire, UNKNOWN_TAIL[wire]) for n, wire in sorted(strangers.items()))
    return replace(message, unknown=tuple(unknown))


def one_op_program(op: Message) -> Message:
    return build("ProgramDesc", blocks=[build("BlockDesc", idx=0, parent_idx=-1, ops=[op])])


# ---- what the reference wrote ----


def test_there_are_golden_models():
    assert len(MODELS) == 26


@pytest.mark.parametrize("path", MODELS, ids=lambda path: "/".join(path.parts[-2:]))
def test_real_files_come_back_byte_for_byte(path: Path):
    data = path.read_bytes()
    assert dump(parse(data)) == data


def test_a_real_file_reads_as_the_program_it_is():
    program = parse(SMALLEST.read_bytes())
    (block,) = program.many("blocks", Message)
    ops = block.many("ops", Message)
    assert [op.one("type", str) for op in ops] == [
        "feed",
        "mul",
        "elementwise_add",
        "scale",
        "fetch",
    ]
    assert (block.one("idx", int), block.one("parent_idx", int)) == (0, -1)
    assert block.one("forward_block_idx", int) == -1
    attributes = {attr.one("name", str): attr for attr in ops[1].many("attrs", Message)}
    assert attributes["x_num_col_dims"].one("type", int) == AttrType.INT
    assert attributes["x_num_col_dims"].one("i", int) == 1
    assert attributes["scale_x"].one("f", float) == 1.0
    x = next(var for var in block.many("vars", Message) if var.one("name", str) == "x")
    dense = x.one("type", Message).one("lod_tensor", Message)
    assert x.one("type", Message).one("type", int) == VarTypeId.LOD_TENSOR
    assert dense.one("tensor", Message).many("dims", int) == (-1, 13)


def test_no_real_file_has_fields_that_the_tables_lack():
    def strangers(message: Message) -> int:
        inner = [
            value if isinstance(value, tuple) else (value,) for value in message.values.values()
        ]
        parts = [part for items in inner for part in items if isinstance(part, Message)]
        return len(message.unknown) + sum(map(strangers, parts))

    assert sum(strangers(parse(path.read_bytes())) for path in MODELS) == 0


def test_the_tables_bound_the_nesting():
    def depth(kind: str) -> int:
        return 1 + max((depth(f.kind) for f in SCHEMA[kind] if f.kind in SCHEMA), default=0)

    assert depth("ProgramDesc") == 7


# ---- the wire format ----


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        (build("VarType.TensorDesc", data_type=VarTypeId.FP32, dims=[128, 10]), "0805108001100a"),
        (build("VarType.TensorDesc", data_type=VarTypeId.INT64, dims=[5, 1]), "080310051001"),
        (
            build("BlockDesc", idx=0, parent_idx=-1),
            "0800" + "10ffffffffffffffffff01",
        ),
        (
            build("OpDesc.Attr", name="f", type=AttrType.FLOAT, f=1),
            "0a0166" + "1001" + "250000803f",
        ),
        (
            build("OpDesc.Attr", name="b", type=7, bools=[True, False]),
            "0a0162" + "1007" + "58015800",
        ),
        (build("OpDesc", type="t", is_target=False), "1a0174" + "2800"),
    ],
)
def test_bytes(message: Message, expected: str):
    assert dump(message).hex() == expected
    assert parse(bytes.fromhex(expected), message.kind) == message


@given(messages("ProgramDesc"))
@settings(max_examples=60, deadline=None)
def test_programs_round_trip(program: Message):
    data = dump(program)
    assert parse(data) == program
    assert dump(parse(data)) == data


@given(messages("OpDesc.Attr"))
def test_attributes_round_trip(attr: Message):
    data = dump(attr)
    assert parse(data, "OpDesc.Attr") == attr
    assert dump(parse(data, "OpDesc.Attr")) == data


def test_attributes_of_later_releases_are_read():
    data = bytes.fromhex("0a0166" + "100f" + "99019a9999999999b93f" + "a201040802187b")
    attr = parse(data, "OpDesc.Attr")
    assert attr.one("type", int) == AttrType.FLOAT64
    assert attr.one("float64", float) == 0.1
    assert attr.one("scalar", Message) == build("Scalar", type=2, i=123)
    assert dump(attr) == data


def test_fields_of_releases_to_come_are_kept():
    data = bytes.fromhex("0a0166" + "1063" + "b9019a9999999999b93f" + "c20103616263")
    attr = parse(data, "OpDesc.Attr")
    assert attr.one("type", int) == 99
    assert [tag >> 3 for tag, _ in attr.unknown] == [23, 24]
    assert dump(attr) == data


def test_unknown_fields_go_back_between_their_neighbours():
    data = bytes.fromhex("0a00" + "1007" + "4a0178" + "5001")
    attr = parse(data, "OpDesc.Attr")
    assert attr.unknown == ((0x4A, b"\x01x"),)
    assert dump(attr) == data


def test_packed_lists_are_read():
    packed = bytes.fromhex("0805" + "1203" + "800101")
    assert parse(packed, "VarType.TensorDesc").many("dims", int) == (128, 1)
    floats = parse(bytes.fromhex("0a00" + "1004" + "3a080000803f00000040"), "OpDesc.Attr")
    assert floats.many("floats", float) == (1.0, 2.0)


def test_strings_that_are_no_utf8_come_back():
    attr = parse(b"\x0a\x02\xff\xfe\x10\x02", "OpDesc.Attr")
    assert dump(attr) == b"\x0a\x02\xff\xfe\x10\x02"


def test_a_large_program_is_read_at_once():
    stack = [f'  File "train_{line}.py", line {line}, in main\n' * 2 for line in range(12)]
    attrs = [build("OpDesc.Attr", name=f"a{i}", type=AttrType.INT, i=i) for i in range(12)]
    attrs.append(build("OpDesc.Attr", name="op_callstack", type=AttrType.STRINGS, strings=stack))
    op = build("OpDesc", type="relu", attrs=attrs)
    block = build("BlockDesc", idx=0, parent_idx=-1, ops=[op] * 1500)
    data = dump(build("ProgramDesc", blocks=[block]))
    assert len(data) > 1_000_000
    start = time.thread_time()  # without threads and processes of other tests
    parse(data)
    assert time.thread_time() - start < 10.0  # of which it takes one at most


# ---- damage ----


def test_every_truncation_is_rejected_or_a_shorter_program():
    data = SMALLEST.read_bytes()
    refused = 0
    for length in range(len(data)):
        try:
            assert dump(parse(data[:length])) == data[:length]
        except ProtoError:
            refused += 1
    assert refused >= len(data) - 3  # empty, before the op map, before the version


def test_random_damage_is_rejected_or_read():
    chance = random.Random(1)
    originals = [path.read_bytes() for path in MODELS]
    outcomes = {"read": 0, "refused": 0}
    for _ in range(400):
        data = bytearray(chance.choice(originals))
        for _ in range(chance.randint(1, 4)):
            data[chance.randrange(len(data))] = chance.randrange(256)
        try:
            once = dump(parse(bytes(data)))
            assert dump(parse(once)) == once
            outcomes["read"] += 1
        except ProtoError as error:
            assert error.offset is not None and 0 <= error.offset <= len(data)
            outcomes["refused"] += 1
    assert min(outcomes.values()) > 50


@given(st.binary(max_size=64), st.sampled_from(sorted(SCHEMA)))
def test_noise_is_rejected_or_read(data: bytes, kind: str):
    try:
        once = dump(parse(data, kind))
    except ProtoError as error:
        assert error.offset is not None
    else:
        assert dump(parse(once, kind)) == once


@pytest.mark.parametrize(
    ("data", "kind", "message"),
    [
        ("0a", "ProgramDesc", r"byte 1: ProgramDesc.blocks: the data ends inside a varint"),
        (
            "0aff7f",
            "ProgramDesc",
            r"byte 3: .*blocks: expected 16383 bytes, got the 0 that remain",
        ),
        ("0a00", "ProgramDesc", r"byte 2: BlockDesc has no idx"),
        ("08000800", "BlockDesc", r"byte 0: BlockDesc has no parent_idx"),
        ("080008001000", "BlockDesc", r"byte 0: BlockDesc.idx appears 2 times, not once"),
        ("0a0101", "BlockDesc", r"byte 0: BlockDesc.idx: expected a varint, got a length"),
        ("0d01000000", "BlockDesc", r"byte 0: BlockDesc.idx: expected a varint, got 4 bytes"),
        (
            "0880808080808080808080",
            "BlockDesc",
            r"byte 1: BlockDesc.idx: expected a varint of 64 bits",
        ),
        (
            "08ffffffffffffffffff02",
            "BlockDesc",
            r"byte 1: BlockDesc.idx: expected a varint of 64 bits",
        ),
        (
            "088080808010",
            "BlockDesc",
            r"byte 1: BlockDesc.idx: expected an int32, got 4294967296",
        ),
        ("2500", "OpDesc.Attr", r"byte 2: OpDesc.Attr.f: the data ends inside a float"),
        ("0000", "Version", r"byte 0: Version: there is no field number 0"),
        ("80808080800100", "Version", r"byte 0: Version: there is no field number"),
        ("13", "Version", r"byte 0: Version field 2: there is no wire type 3"),
        ("1101", "Version", r"byte 2: Version field 2: the data ends inside 8 bytes"),
        (
            "1205",
            "Version",
            r"byte 2: Version field 2: expected 5 bytes, got the 0 that remain",
        ),
        ("1201ff", "VarType.TensorDesc", r"byte 3: VarType.TensorDesc.dims: .* inside a varint"),
        ("", "VarDesc", r"byte 0: VarDesc has no name"),
    ],
)
def test_a_refusal_names_byte_field_and_expectation(data: str, kind: str, message: str):
    with pytest.raises(ProtoError, match=message):
        parse(bytes.fromhex(data), kind)


# ---- misuse ----


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        (build("OpDesc"), "OpDesc lacks the required field type"),
        (build("OpDesc", type=3), "OpDesc.type: expected required string, got 3"),
        (build("OpDesc", type=["relu"]), "OpDesc.type: expected required string"),
        (build("OpDesc", type="t", attrs="a"), "OpDesc.attrs: expected repeated OpDesc.Attr"),
        (
            build("OpDesc", type="t", is_target=1),
            "OpDesc.is_target: expected optional bool, got 1",
        ),
        (build("OpDesc", type="t", attrs=[build("Version")]), "got Version"),
        (build("OpDesc", type="\ud800"), "OpDesc.type: expected required string"),
        (build("BlockDesc", idx=2**31, parent_idx=0), "BlockDesc.idx: expected required int32"),
        (build("OpDesc.Attr", name="f", type=1, f=1e39), "OpDesc.Attr.f: expected optional float"),
        (build("OpDesc.Attr", name="f", type=1, f="1"), "OpDesc.Attr.f: expected optional float"),
        (Message("OpDesc", {"type": "t", "kind": 1}), "OpDesc has no field 'kind'; it has inputs"),
        (Message("Opus", {}), "there is no message 'Opus'; there are ProgramDesc"),
    ],
)
def test_a_message_that_cannot_be_written_reports_why(message: Message, expected: str):
    with pytest.raises(ProtoError, match=expected):
        dump(message)


def test_asking_for_what_is_not_there_reports_why():
    op = build("OpDesc", type="relu")
    with pytest.raises(ProtoError, match="OpDesc has no field 'name'"):
        op.has("name")
    with pytest.raises(ProtoError, match=r"OpDesc\.type is required string; one int was requested"):
        op.one("type", int)
    with pytest.raises(
        ProtoError, match=r"OpDesc\.attrs is repeated .*; one Message was requested"
    ):
        op.one("attrs", Message)
    with pytest.raises(
        ProtoError, match=r"OpDesc\.type is required string; many str were requested"
    ):
        op.many("type", str)
    with pytest.raises(ProtoError, match=r"lod_tensor is optional .* and not set; one Message"):
        build("VarType", type=VarTypeId.RAW).one("lod_tensor", Message)
