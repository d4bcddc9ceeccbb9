"""Programs to and from the bytes of saved models: real ones, ones made here, and damaged ones."""

import bz2
import gc
import gzip
import io
import lzma
import math
import random
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fluid
from compiler.errors import BadAttribute, CompileError
from compiler.ir.model_format.attributes import dump_attr, load_attr
from compiler.ir.model_format.program_desc import MODEL_VERSION, Opaque, dump_program, load_program
from compiler.ir.model_format.protobuf import AttrType, Message, VarTypeId, build, dump, parse
from compiler.ir.program import BlockRef, OpDesc, Program, VarKind
from compiler.ir.types import DType

GOLDEN = Path(__file__).parents[2] / "golden" / "inference"
MODELS = sorted(GOLDEN.glob("*__separate/__model__"))
SMALLEST = GOLDEN / "fit_a_line__separate" / "__model__"


def content(program: Program) -> list[Any]:
    """The content of a program as plain values; attributes with their exact types."""
    return [
        (
            (block.idx, block.parent_idx, block.forward_block_idx),
            {name: vars(var) for name, var in block.vars.items()},
            [(vars(op), [type(value) for value in op.attrs.values()]) for op in block.ops],
        )
        for block in program.blocks
    ]


def desc(*blocks: Message) -> bytes:
    return dump(build("ProgramDesc", blocks=blocks))


def block(idx: int = 0, parent_idx: int = -1, **fields: Any) -> Message:
    return build("BlockDesc", idx=idx, parent_idx=parent_idx, **fields)


def var(name: str = "x", type: int = VarTypeId.LOD_TENSOR, **fields: Any) -> Message:
    return build("VarDesc", name=name, type=build("VarType", type=type, **fields))


def tensor(*dims: int, data_type: int = VarTypeId.FP32, lod_level: int = 0) -> Message:
    desc = build("VarType.TensorDesc", data_type=data_type, dims=dims)
    return build("VarType.LoDTensorDesc", tensor=desc, lod_level=lod_level)


def op(*attrs: Message, type: str = "relu", **slots: list[Message]) -> Message:
    return build("OpDesc", type=type, attrs=attrs, **slots)


def attr(name: str, type: int, **value: Any) -> Message:
    return build("OpDesc.Attr", name=name, type=type, **value)


def slot(name: str, *arguments: str) -> Message:
    return build("OpDesc.Var", parameter=name, arguments=arguments)


# ---- what the reference wrote ----


def test_a_real_file_is_the_program_it_holds():
    (main,) = load_program(SMALLEST.read_bytes()).blocks
    assert [op.type for op in main.ops] == ["feed", "mul", "elementwise_add", "scale", "fetch"]
    assert main.ops[3].inputs == {"ScaleTensor": [], "X": ["fc_0.tmp_1"]}
    assert main.ops[1].attrs["x_num_col_dims"] == 1
    assert main.ops[1].attrs["op_role_var"] == []
    x, weight = main.vars["x"], main.vars["fc_0.w_0"]
    assert (x.dims, x.element, x.persistable) == ((-1, 13), DType.FP32, False)
    assert (weight.dims, weight.persistable, weight.is_parameter) == ((13, 1), True, False)
    kinds = {name: main.vars[name].kind for name in ("feed", "fetch")}
    assert kinds == {"feed": VarKind.FEED, "fetch": VarKind.FETCH}


@pytest.mark.parametrize("path", MODELS, ids=lambda path: path.parent.name)
def test_real_programs_come_back_the_same(path: Path):
    program = load_program(path.read_bytes())
    written = dump_program(program)
    assert content(load_program(written)) == content(program)
    assert dump_program(load_program(written)) == written


@pytest.mark.parametrize("path", MODELS, ids=lambda path: path.parent.name)
def test_attributes_are_written_with_the_types_of_the_reference(path: Path):
    def types(data: bytes) -> list[Any]:
        ops = [op for b in parse(data).many("blocks", Message) for op in b.many("ops", Message)]
        pairs = [(op.one("type", str), attr) for op in ops for attr in op.many("attrs", Message)]
        return [(kind, a.one("name", str), AttrType(a.one("type", int))) for kind, a in pairs]

    original = path.read_bytes()
    assert types(dump_program(load_program(original))) == types(original)


# ---- what is written ----


def test_a_program_of_several_blocks_comes_back_the_same():
    program = Program()
    inner = program.add_block(0)
    inner.forward_block_idx = 0
    main = program.blocks[0]
    main.add_var("rows", shape=(-1, 8), dtype=DType.INT64, lod_level=2, need_check_feed=True)
    main.add_var("sparse", shape=(40, 8), dtype=DType.FP64, kind=VarKind.SELECTED_ROWS)
    main.add_var("array", shape=(3,), dtype=DType.BOOL, kind=VarKind.TENSOR_ARRAY, lod_level=1)
    main.add_var("scopes", kind=VarKind.STEP_SCOPES)
    main.add_var("untyped")
    inner.add_var("w", shape=(4, 3), persistable=True)
    attrs = {"sub_block": BlockRef(1), "blocks": [BlockRef(0), BlockRef(1)], "is_test": True}
    main.add_op("while", {"X": ["rows", "w"], "Condition": []}, {"Out": []}, attrs)
    inner.add_op("nobody_has_this", {}, {}, {"é": [1, 1 << 40], "deep": "α", "half": 0.5})
    again = load_program(dump_program(program))
    assert content(again) == content(program)
    assert type(again.blocks[0].ops[0].attrs["sub_block"]) is BlockRef
    assert again.blocks[0].ops[0].inputs == {"Condition": [], "X": ["rows", "w"]}


INTEGERS = st.integers(-(1 << 63), (1 << 63) - 1)
ITEMS = (st.booleans(), INTEGERS, st.floats(width=32, allow_nan=False), st.text(max_size=5))
VALUES = st.one_of(*ITEMS, *(st.lists(item, min_size=1, max_size=3) for item in ITEMS))
NAMES = st.text("ab@_.é", min_size=1, max_size=4)
SLOTS = st.dictionaries(NAMES, st.lists(NAMES, max_size=3), max_size=2)


@st.composite
def programs(draw: st.DrawFn) -> Program:
    """Give programs of a few blocks, each behind its parent, with variables and ops at will."""
    program = Program()
    for count in range(1, draw(st.integers(1, 3))):
        program.add_block(draw(st.integers(0, count - 1)))
    for block in program.blocks:
        for name in draw(st.lists(NAMES, max_size=3, unique=True)):
            block.add_var(
                name,
                shape=draw(st.lists(st.integers(-1, 9), min_size=1, max_size=3).map(tuple)),
                dtype=draw(st.sampled_from([DType.FP32, DType.INT64, DType.BOOL])),
                lod_level=draw(st.integers(0, 2)),
                persistable=draw(st.booleans()),
            )
        for _ in range(draw(st.integers(0, 2))):
            attrs = draw(st.dictionaries(NAMES, VALUES, max_size=3))
            block.add_op("nobody_has_this", draw(SLOTS), draw(SLOTS), attrs)
    return program


@given(programs())
@settings(max_examples=60, deadline=None)
def test_any_program_comes_back_the_same(program: Program):
    data = dump_program(program)
    again = load_program(data)
    assert content(again) == content(program)
    assert dump_program(again) == data


def test_the_file_has_its_version_and_what_ops_it_needs():
    message = parse(dump_program(Program()))
    assert message.one("version", Message).one("version", int) == MODEL_VERSION == 1_008_005
    needs = message.one("op_compatible_map", Message)
    assert needs.one("default_required_version", str) == "1.6.0"


def test_no_garbage_is_collected_while_a_program_is_read():
    program, enabled = Program(), list[bool]()
    for n in range(3):
        program.blocks[0].add_var(f"x{n}", shape=[2], dtype=DType.FP32)

    def make() -> Program:
        enabled.append(gc.isenabled())
        return Program()

    assert len(load_program(dump_program(program), factory=make).blocks[0].vars) == 3
    assert enabled == [False] and gc.isenabled()


def test_a_program_is_filled_into_what_the_factory_makes():
    class Derived(Program): ...

    assert type(load_program(SMALLEST.read_bytes(), factory=Derived)) is Derived


@pytest.mark.parametrize(
    ("value", "kind", "stored"),
    [
        (3, AttrType.INT, 3),
        (-(1 << 31), AttrType.INT, -(1 << 31)),
        (1 << 31, AttrType.LONG, 1 << 31),
        (0.1, AttrType.FLOAT, 0.10000000149011612),
        (1e300, AttrType.FLOAT, math.inf),
        ("NCHW", AttrType.STRING, "NCHW"),
        (True, AttrType.BOOLEAN, True),
        (BlockRef(2), AttrType.BLOCK, 2),
        (np.int64(7), AttrType.INT, 7),
        (DType.INT64, AttrType.INT, 3),
        ((1, 2), AttrType.INTS, (1, 2)),
        ([1, 1 << 33], AttrType.LONGS, (1, 1 << 33)),
        ([1, 0.5], AttrType.FLOATS, (1.0, 0.5)),
        (np.array([1.5], np.float32), AttrType.FLOATS, (1.5,)),
        (["a", "b"], AttrType.STRINGS, ("a", "b")),
        ([True, False], AttrType.BOOLEANS, (True, False)),
        ([BlockRef(0)], AttrType.BLOCKS, (0,)),
        ([], AttrType.INTS, None),
    ],
)
def test_undeclared_attributes_go_by_their_python_type(value: Any, kind: AttrType, stored: Any):
    message = dump_attr("nobody_has_this", "a", value)
    fields = {k: v for k, v in message.values.items() if k not in ("name", "type")}
    assert message.one("type", int) == kind
    assert list(fields.values()) == ([] if stored is None else [stored])
    loaded = load_attr(parse(dump(message), "OpDesc.Attr"))
    assert loaded == (
        list(stored or ()) if isinstance(value, list | tuple | np.ndarray) else stored
    )


def test_declared_attributes_go_by_their_declaration():
    assert dump_attr("scale", "scale", 2).one("type", int) == AttrType.FLOAT
    assert dump_attr("scale", "bias_after_scale", 1).one("type", int) == AttrType.BOOLEAN
    assert dump_attr("mul", "x_num_col_dims", True).one("type", int) == AttrType.INT


def test_empty_lists_of_the_reference_keep_their_type():
    assert dump_attr("mul", "op_role_var", []).one("type", int) == AttrType.STRINGS
    assert dump_attr("assign_value", "fp32_values", []).one("type", int) == AttrType.FLOATS


@pytest.mark.parametrize("value", [{"a": 1}, [[1]], [1, "a"], 1 << 63, b"raw"])
def test_what_no_attribute_can_hold_is_rejected(value: Any):
    program = Program()
    program.blocks[0].add_op("custom", {}, {}, {"strange": value})
    with pytest.raises(
        CompileError, match=r"custom: attribute 'strange' is .* saved programs cannot"
    ):
        dump_program(program)


def test_a_declared_attribute_of_another_type_is_rejected():
    with pytest.raises(BadAttribute, match="'scale' is str 'two', not float"):
        dump_attr("scale", "scale", "two")


def test_names_that_are_no_text_are_rejected():
    program = Program()
    program.blocks[0].add_var("\ud800")
    with pytest.raises(CompileError, match=r"the program cannot be saved: VarDesc\.name"):
        dump_program(program)


# ---- call stacks ----

STACK = [
    '  File "/site-packages/paddle/fluid/framework.py", line 2610, in append_op\n    attrs\n',
    '  File "/site-packages/paddle/fluid/layers/nn.py", line 1721, in fc\n    "y": 1})\n',
    '  File "/home/me/train.py", line 13, in net\n    fluid.layers.fc(x, 2)\n',
    '  File "/home/me/main.py", line 4, in <module>\n    net()\n',
]


def test_a_call_stack_returns_the_users_line_and_is_not_written_again():
    stack = attr("op_callstack", AttrType.STRINGS, strings=STACK)
    program = load_program(desc(block(ops=[op(stack)])))
    (loaded,) = program.blocks[0].ops
    assert loaded.source == "/home/me/train.py:13"
    assert loaded.attrs == {}
    loaded.attrs["op_callstack"] = STACK
    assert b"/home/me" not in dump_program(program)


@pytest.mark.parametrize(
    "stack",
    [
        attr("op_callstack", AttrType.STRINGS, strings=STACK[:2]),
        attr("op_callstack", AttrType.STRINGS, strings=["gibberish"]),
        attr("op_callstack", AttrType.INT, i=3),
    ],
)
def test_a_call_stack_without_a_users_line_has_none(stack: Message):
    assert load_program(desc(block(ops=[op(stack)]))).blocks[0].ops[0].source == ""


# ---- what other releases write ----


def test_attribute_types_of_later_releases_are_kept():
    message = attr("precise", 99)
    later = Message(message.kind, message.values, ((29 << 3 | 1, bytes(range(8))),))
    data = desc(block(ops=[op(later)]))
    program = load_program(data)
    (loaded,) = program.blocks[0].ops
    assert loaded.attrs == {"precise": Opaque(later)}
    assert content(load_program(dump_program(program))) == content(program)
    assert bytes(range(8)) in dump_program(program)


def test_ops_nobody_registered_a_missing_version_and_open_sizes_are_read():
    shape = tensor(-1, -64, 3)  # the reference multiplies unknown sizes too
    data = desc(block(vars=[var(lod_tensor=shape)], ops=[op(type="future_op")]))
    (main,) = load_program(data).blocks
    assert main.ops[0].type == "future_op"
    assert main.vars["x"].dims == (-1, -64, 3)


def test_a_variable_that_nobody_gave_a_shape_has_none():
    (main,) = load_program(desc(block(vars=[var(), var("y", lod_tensor=tensor())]))).blocks
    assert (main.vars["x"].dims, main.vars["x"].element) == (None, DType.FP32)
    assert main.vars["y"].dims is None


# ---- bad input ----

BAD = {
    "nothing": (b"", "it has no blocks"),
    "text": (b"import paddle", "m: "),
    "only a version": (
        dump(build("ProgramDesc", version=build("Version", version=0))),
        "it has no blocks",
    ),
    "main inside itself": (desc(block(parent_idx=0)), "block 0 of 1 cannot have the parent 0"),
    "a parent too far": (desc(block(), block(1, 2)), "block 1 of 2 cannot have the parent 2"),
    "a second main": (desc(block(), block(1, -1)), "block 1 of 2 cannot have the parent -1"),
    "another number": (desc(block(3)), "block 0 has the index 3"),
    "a forward block too far": (
        desc(block(forward_block_idx=1)),
        "block 0 of 1 cannot be the backward of block 1",
    ),
    "a variable twice": (
        desc(block(vars=[var(), var()])),
        "block 0: variable 'x' is declared twice",
    ),
    "a type of variable": (
        desc(block(vars=[var(type=99)])),
        "block 0: variable 'x' is of type 99, none of 7 (TENSOR)",
    ),
    "a data type": (
        desc(block(vars=[var(lod_tensor=tensor(2, data_type=23))])),
        "block 0: variable 'x' is of data type 23, none of 0 (BOOL)",
    ),
    "a token": (desc(block(vars=[var(lod_tensor=tensor(2, data_type=-1))])), "is of data type -1"),
    "huge dims": (
        desc(block(vars=[var(lod_tensor=tensor(1 << 40, -1, 1 << 40))])),
        "variable 'x' has the shape [1099511627776, -1, 1099511627776], whose size in bytes",
    ),
    "LoD levels": (
        desc(block(vars=[var(lod_tensor=tensor(2, lod_level=-2))])),
        "variable 'x' has -2 LoD levels, not 0 to 64",
    ),
    "too many LoD levels": (
        desc(block(vars=[var(lod_tensor=tensor(2, lod_level=(1 << 31) - 1))])),
        "variable 'x' has 2147483647 LoD levels, not 0 to 64",
    ),
    "a role that is no number": (
        desc(block(ops=[op(attr("op_role", AttrType.STRING, s="forward"))])),
        "block 0: op 0 (relu): attribute 'op_role' is 'forward', not a number",
    ),
    "a slot twice": (
        desc(block(ops=[op(inputs=[slot("X", "a"), slot("X", "b")])])),
        "block 0: op 0 (relu): slot 'X' appears twice",
    ),
    "an attribute twice": (
        desc(block(ops=[op(), op(attr("a", AttrType.INT), attr("a", AttrType.FLOAT))])),
        "block 0: op 1 (relu): attribute 'a' appears twice",
    ),
    "a block too far": (
        desc(block(ops=[op(attr("sub_block", AttrType.BLOCK, block_idx=1))])),
        "block 0: op 0 (relu): attribute 'sub_block' is block 1; there are 1",
    ),
    "a block below 0": (
        desc(block(ops=[op(attr("blocks", AttrType.BLOCKS, blocks_idx=[0, -1]))])),
        "attribute 'blocks' is block -1; there are 1",
    ),
}


@pytest.mark.parametrize(("data", "message"), BAD.values(), ids=BAD)
def test_bad_input_is_named(data: bytes, message: str):
    with pytest.raises(CompileError) as caught:
        load_program(data, "some/m")
    assert str(caught.value).startswith("some/m is not a saved program: ")
    assert message in str(caught.value)
    assert "hint: is the file complete" in str(caught.value)


PACKERS = [("gzip", gzip.compress), ("bzip2", bz2.compress), ("xz", lzma.compress)]


@pytest.mark.parametrize(("kind", "pack"), PACKERS)
def test_a_compressed_program_is_to_be_unpacked(kind: str, pack: Callable[[bytes], bytes]):
    with pytest.raises(CompileError, match=f"hint: it is packed with {kind}: unpack it first"):
        load_program(pack(desc(block())))


def test_an_archive_is_to_be_unpacked():
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w") as archive:
        archive.addfile(tarfile.TarInfo("__model__"))
    with pytest.raises(CompileError, match="hint: it is packed with tar: unpack it first"):
        load_program(stream.getvalue())


def test_names_that_the_factory_rejects_are_named():
    data = desc(block(vars=[var("@EMPTY@")]))
    with pytest.raises(
        CompileError, match=r"block 0: variable '@EMPTY@': .*is not a valid variable name"
    ):
        load_program(data, factory=fluid.Program)


def test_truncated_files_are_rejected_or_end_between_messages():
    data = SMALLEST.read_bytes()
    whole = content(load_program(data))
    for length in range(0, len(data), 5):
        try:
            program = load_program(data[:length], "cut")
        except CompileError as error:
            assert str(error).startswith("cut is not a saved program: ")
        else:
            assert content(program) == whole  # all blocks are there; only the tail is not


def test_corrupt_files_load_or_are_rejected_and_nothing_else():
    data = (GOLDEN / "lenet_bn__separate" / "__model__").read_bytes()
    draw = random.Random(7)
    refused = 0
    for _ in range(400):
        damaged = bytearray(data)
        for _ in range(draw.choice([1, 1, 2, 8])):
            damaged[draw.randrange(len(data))] = draw.randrange(256)
        try:
            dump_program(load_program(bytes(damaged)))
        except CompileError:
            refused += 1
    assert 40 < refused < 400


def test_two_dumps_of_one_program_are_the_same_bytes():
    program = Program()
    program.blocks[0].ops.append(OpDesc("relu", {"X": ["a"]}, {"Out": ["b"]}, {"z": 1, "a": 2}))
    assert dump_program(program) == dump_program(program)
