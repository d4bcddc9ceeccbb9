"""Conversion of programs to and from `__model__` bytes, compatible with release 1.8.5.

`protobuf` reads and writes messages, `attributes` the attributes; this module converts and checks
blocks, variables and ops (spec G.3). A file is untrusted data: every index in it is checked before
use.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar, cast, overload

from compiler.errors import CompileError
from compiler.ir.model_format.attributes import Opaque, dump_attr, load_attr
from compiler.ir.model_format.grad_op_attributes import required_attributes
from compiler.ir.model_format.op_upgrades import is_newer_release, upgrade_program
from compiler.ir.model_format.protobuf import Message, ProtoError, VarTypeId, build, dump, parse
from compiler.ir.program import NO_BLOCK, Block, BlockRef, OpDesc, Program, VarDesc, VarKind
from compiler.ir.types import DType
from compiler.support.gc_pause import gc_disabled
from compiler.support.limits import MAX_BYTES, MAX_LOD_LEVELS, MAX_NESTED_BLOCKS, MAX_RANK

__all__ = [
    "MODEL_VERSION", "Opaque", "dump_program", "load_program", "program_dumped", "program_message",
    "program_version",
]  # fmt: skip

P = TypeVar("P", bound=Program)

MODEL_VERSION = 1_008_005
"""The program version that release 1.8.5 writes; every version can be read."""

CALL_STACK, OP_ROLE = "op_callstack", "op_role"
_OPS_SINCE = "1.6.0"  # the last release that changed an op of 1.8.5; its predictor requires it
_DTYPES = {dtype.code: dtype for dtype in DType if dtype is not DType.TOKEN}
_KINDS = {int(VarTypeId[kind.value]): kind for kind in VarKind}
_TENSOR_FIELDS = {
    VarKind.TENSOR: ("lod_tensor", "VarType.LoDTensorDesc"),
    VarKind.TENSOR_ARRAY: ("tensor_array", "VarType.LoDTensorArrayDesc"),
    VarKind.SELECTED_ROWS: ("selected_rows", ""),
}
"""The field of `VarType` with the TensorDesc of a kind, and the enclosing message with LoD."""


def program_message(program: Program) -> Message:
    """Convert a program to a `ProgramDesc`, deterministically.

    Call stacks are left out: they reveal the user's directories and are most of a file's size.
    Raises CompileError, naming the op, for an attribute that the format cannot represent.
    """
    with gc_disabled():
        return build(
            "ProgramDesc",
            blocks=[_dump_block(block) for block in program.blocks],
            op_compatible_map=build("OpCompatibleMap", default_required_version=_OPS_SINCE),
            version=build("Version", version=MODEL_VERSION),
        )


def dump_program(program: Program) -> bytes:
    """Convert a program to the bytes of its `program_message`; raises CompileError as that does."""
    return program_dumped(program_message(program))


def program_dumped(message: Message) -> bytes:
    """Return the bytes of a `ProgramDesc` or of a part; CompileError for values that do not fit."""
    try:
        return dump(message)
    except ProtoError as error:
        raise CompileError(f"the program cannot be saved: {error}") from error


PACKED = {
    b"\x1f\x8b": "gzip", b"BZh": "bzip2", b"\xfd7zXZ": "xz", b"PK\x03\x04": "zip",
    b"\x28\xb5\x2f\xfd": "Zstandard",
}  # fmt: skip
"""Kinds of archives and compressed files, by their first bytes."""


def _packed(data: bytes) -> str:
    """A hint to unpack what is compressed or an archive; empty for other data."""
    kind = next((kind for start, kind in PACKED.items() if data.startswith(start)), "")
    kind = kind or "tar" * (data[257:262] == b"ustar")
    return kind and f"it is packed with {kind}: unpack it first, and pass the folder"


@overload
def load_program(data: bytes, name: str = "__model__") -> Program: ...
@overload
def load_program(data: bytes, name: str = "__model__", *, factory: Callable[[], P]) -> P: ...
def load_program(
    data: bytes, name: str = "__model__", *, factory: Callable[[], Program] = Program
) -> Program:
    """Convert `ProgramDesc` bytes to a program, filling the empty one that `factory` creates.

    Unregistered op types and attributes are kept. Programs of releases after 1.8.5 are converted,
    see `op_upgrades`. If an op has a call stack, the user's line in it becomes `source`. Parameters
    are loaded as persistable variables, since the format does not distinguish them. Raises
    CompileError, with the file's `name`, for truncated or invalid data.
    """
    try:
        with gc_disabled():
            message = parse(data)
            program = _load_blocks(factory(), message.many("blocks", Message))
    except ProtoError as error:
        hint = _packed(data) or "is the file complete, and was it written by save_inference_model?"
        raise CompileError(f"{name} is not a saved program: {error}", hint=hint) from error
    if is_newer_release(program_version(message)):
        upgrade_program(program)
    return program


def program_version(message: Message) -> int:
    """Return the version in a `ProgramDesc`, 1_008_005 for release 1.8.5; 0 if it is missing.

    >>> program_version(build("ProgramDesc"))
    0
    """
    return message.one("version", Message).one("version", int) if message.has("version") else 0


# ---- writing ----


def _dump_block(block: Block) -> Message:
    return build(
        "BlockDesc",
        idx=block.idx,
        parent_idx=block.parent_idx,
        vars=[_dump_var(var) for var in block.vars.values()],
        ops=[_dump_op(op) for op in block.ops],
        forward_block_idx=block.forward_block_idx,
    )


def _dump_var(var: VarDesc) -> Message:
    return build(
        "VarDesc",
        name=var.name,
        type=build("VarType", type=VarTypeId[var.kind.value], **_dump_tensor(var)),
        persistable=var.persistable,
        need_check_feed=var.need_check_feed,
    )


def _dump_tensor(var: VarDesc) -> dict[str, Message]:
    if var.kind not in _TENSOR_FIELDS:
        return {}
    field, outer = _TENSOR_FIELDS[var.kind]
    tensor = build("VarType.TensorDesc", data_type=var.element.code, dims=var.dims or ())
    return {field: build(outer, tensor=tensor, lod_level=var.lod_level) if outer else tensor}


def _dump_op(op: OpDesc) -> Message:
    present = {name: value for name, value in op.attrs.items() if value is not None}
    attrs = {**required_attributes(op.type), **present}
    return build(
        "OpDesc",
        inputs=_dump_slots(op.inputs),
        outputs=_dump_slots(op.outputs),
        type=op.type,
        attrs=[dump_attr(op.type, n, v) for n, v in attrs.items() if n != CALL_STACK],
    )


def _dump_slots(slots: Mapping[str, Sequence[str]]) -> list[Message]:
    return [build("OpDesc.Var", parameter=slot, arguments=names) for slot, names in slots.items()]


# ---- reading: `where` names block and variable or op in messages ----


def _load_blocks(program: Program, messages: Sequence[Message]) -> Program:
    if not messages:
        raise ProtoError("it has no blocks")
    for index, message in enumerate(messages):
        _check_block(message, index, len(messages))
    for message in messages[1:]:
        block = program.add_block(message.one("parent_idx", int))
        if block.depth > MAX_NESTED_BLOCKS:
            raise ProtoError(f"block {block.idx} nests more than {MAX_NESTED_BLOCKS} blocks")
    for block, message in zip(program.blocks, messages, strict=True):
        block.forward_block_idx = message.one("forward_block_idx", int)
        for var in message.many("vars", Message):
            _load_var(block, var)
        for op in message.many("ops", Message):
            _load_op(block, op)
    return program


def _check_block(message: Message, index: int, count: int) -> None:
    """Check that a block comes after its parent, so that parent links have no cycle."""
    idx, parent = message.one("idx", int), message.one("parent_idx", int)
    forward = message.one("forward_block_idx", int)
    if idx != index:
        raise ProtoError(f"block {index} has the index {idx}")
    if parent not in (range(index) if index else (NO_BLOCK,)):
        raise ProtoError(f"block {index} of {count} cannot have the parent {parent}")
    if forward not in range(NO_BLOCK, count):
        raise ProtoError(f"block {index} of {count} cannot be the backward of block {forward}")


def _load_var(block: Block, message: Message) -> None:
    name = message.one("name", str)
    where = f"block {block.idx}: variable {name!r}"
    var_type = message.one("type", Message)
    kind = _KINDS.get(number := var_type.one("type", int))
    if name in block.vars:
        raise ProtoError(f"{where} is declared twice")
    if kind is None:
        raise ProtoError(f"{where} is of type {number}, none of {_listed(_KINDS)}")
    flags = {flag: message.one(flag, bool) for flag in ("persistable", "need_check_feed")}
    tensor = _load_tensor(var_type, kind, where)
    try:
        block.add_var(name, kind=kind, **flags, **tensor)
    except ValueError as error:
        raise ProtoError(f"{where}: {error}") from error


def _load_tensor(message: Message, kind: VarKind, where: str) -> dict[str, Any]:
    """Return shape, element type and LoD level; `{}` for a variable without shape."""
    field, outer = _TENSOR_FIELDS.get(kind, ("", ""))
    if not field or not message.has(field):
        return {}
    desc = message.one(field, Message)
    tensor = desc.one("tensor", Message) if outer else desc
    level = desc.one("lod_level", int) if outer else 0
    dtype = _DTYPES.get(code := tensor.one("data_type", int))
    dims = tensor.many("dims", int)
    if dtype is None:
        raise ProtoError(f"{where} is of data type {code}, none of {_listed(_DTYPES)}")
    if level not in range(MAX_LOD_LEVELS + 1):
        raise ProtoError(f"{where} has {level} LoD levels, not 0 to {MAX_LOD_LEVELS}")
    if len(dims) > MAX_RANK:
        raise ProtoError(f"{where} has {len(dims)} dims, more than {MAX_RANK}")
    if math.prod(max(dim, 1) for dim in dims) * dtype.itemsize > MAX_BYTES:
        raise ProtoError(f"{where} has the shape {list(dims)}, whose size in bytes exceeds 63 bits")
    return {"shape": dims or None, "dtype": dtype, "lod_level": level}


def _load_op(block: Block, message: Message) -> None:
    kind = message.one("type", str)
    where = f"block {block.idx}: op {len(block.ops)} ({kind})"
    pairs = [(attr.one("name", str), load_attr(attr)) for attr in message.many("attrs", Message)]
    attrs = _unique(pairs, f"{where}: attribute")
    for name, value in attrs.items():
        _check_refs(value, len(block.owner.blocks), f"{where}: attribute {name!r}")
    if not isinstance(role := attrs.get(OP_ROLE, 0), int):
        raise ProtoError(f"{where}: attribute {OP_ROLE!r} is {role!r}, not a number")
    source = _user_line(attrs.pop(CALL_STACK, []))
    inputs, outputs = (_load_slots(message, side, where) for side in ("inputs", "outputs"))
    block.add_op(kind, inputs, outputs, attrs, source)


def _load_slots(message: Message, side: str, where: str) -> dict[str, list[str]]:
    slots = message.many(side, Message)
    pairs = [(slot.one("parameter", str), list(slot.many("arguments", str))) for slot in slots]
    return _unique(pairs, f"{where}: slot")


V = TypeVar("V")


def _unique(pairs: Iterable[tuple[str, V]], what: str) -> dict[str, V]:
    by_name: dict[str, V] = {}
    for name, value in pairs:
        if name in by_name:
            raise ProtoError(f"{what} {name!r} appears twice")
        by_name[name] = value
    return by_name


def _check_refs(value: Any, count: int, where: str) -> None:
    for item in cast("list[Any]", value) if isinstance(value, list) else [value]:
        if isinstance(item, BlockRef) and item not in range(count):
            raise ProtoError(f"{where} is block {int(item)}; there are {count}")


_FRAME = re.compile(r'\s*File "(?P<file>[^"]+)", line (?P<line>\d+)')
_REFERENCE = re.compile(r"[/\\]paddle[/\\]")


def _user_line(stack: Any) -> str:
    """Return the innermost stack line outside the reference, which writes innermost calls first."""
    entries = cast("list[Any]", stack) if isinstance(stack, list) else []
    frames = [_FRAME.match(entry) for entry in entries if isinstance(entry, str)]
    lines = [f"{frame['file']}:{frame['line']}" for frame in frames if frame]
    return next((line for line in lines if not _REFERENCE.search(line)), "")


def _listed(known: Mapping[int, VarKind] | Mapping[int, DType]) -> str:
    return ", ".join(f"{number} ({item.name})" for number, item in known.items())
