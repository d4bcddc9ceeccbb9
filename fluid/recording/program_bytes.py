"""Serialisation of a whole program, including parameter and stop-gradient flags.

Release 1.8.5 does not store which variables are parameters and which stop gradients; as later
releases do, the flags are written in fields of a VarDesc that 1.8.5 ignores. For bytes from 1.8.5,
a parameter is a trained variable or, without training, one that is read but only a startup program
can have initialised. Its ops of readers (`create_py_reader`, `read`) belong to the process that
wrote them: what they read is fed instead.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import TypeVar

from compiler.ir.model_format.program_desc import load_program, program_dumped, program_message
from compiler.ir.model_format.protobuf import Message, parse
from compiler.ir.program import MAIN_BLOCK, Block, OpRole, Program, VarDesc, VarKind

__all__ = ["flagged_message", "program_bytes", "program_from_bytes"]

P = TypeVar("P", bound=Program)

_FLAGS = {"is_parameter": 5 << 3, "stop_gradient": 6 << 3}
"""Field of a variable and its tag in a VarDesc, as later releases number them."""
_TRUE = b"\x01"
_NOT_FORWARD = OpRole.BACKWARD | OpRole.OPTIMIZE | OpRole.LRSCHED


def program_bytes(program: Program) -> bytes:
    """Serialise a program with the flags of its variables."""
    return program_dumped(flagged_message(program))


def flagged_message(program: Program) -> Message:
    """Convert a program to a `ProgramDesc` with the flags of its variables."""
    message = program_message(program)
    blocks = zip(program.blocks, message.many("blocks", Message), strict=True)
    flagged = tuple(_with_flags(block, desc) for block, desc in blocks)
    return replace(message, values={**message.values, "blocks": flagged})


def program_from_bytes(data: bytes, where: str, factory: Callable[[], P]) -> P:
    """Parse the bytes of `program_bytes` or of release 1.8.5.

    Raises TypeError for a non-bytes argument, and CompileError, naming the origin `where`, for
    invalid bytes.
    """
    if not isinstance(data, bytes):  # pyright: ignore[reportUnnecessaryIsInstance] - users pass str
        raise TypeError(f"{where} must be bytes, not {type(data).__name__}")
    program = load_program(data, where, factory=factory)
    flags = [_flags(message) for message in parse(data).many("blocks", Message)]
    if not any(value for block in flags for value in block.values()):
        flags[MAIN_BLOCK] = dict(_guessed(program))
    for block, variable_flags in zip(program.blocks, flags, strict=True):
        for name in variable_flags:
            _apply(block, block.vars[name], variable_flags[name])
    for block in program.blocks:
        _feed_what_is_read(block)
    return program


def _feed_what_is_read(block: Block) -> None:
    """Drop the ops of readers; the variables that they read are fed."""
    kinds = {op: {block.vars[n].kind for n in op.writes() if n in block.vars} for op in block.ops}
    read = {name for op in block.ops if op.type == "read" for name in op.writes()}
    for name in read & block.vars.keys():
        vars(block.vars[name]).update(need_check_feed=True, is_data=True, stop_gradient=True)
    block.ops[:] = [op for op in block.ops if op.type != "read" and kinds[op] != {VarKind.READER}]


def _with_flags(block: Block, message: Message) -> Message:
    pairs = zip(block.vars.values(), message.many("vars", Message), strict=True)
    flagged = tuple(replace(desc, unknown=_set(var)) for var, desc in pairs)
    return replace(message, values={**message.values, **({"vars": flagged} if flagged else {})})


def _set(var: VarDesc) -> tuple[tuple[int, bytes], ...]:
    """The flag fields of a variable; an untrained parameter stops gradients."""
    stops = var.stop_gradient or not getattr(var, "trainable", True)
    holds = {"is_parameter": var.is_parameter, "stop_gradient": stops}
    return tuple((tag, _TRUE) for flag, tag in _FLAGS.items() if holds[flag])


def _flags(block: Message) -> dict[str, set[str]]:
    """The variables of each flag that is set."""
    return {
        var.one("name", str): {flag for flag, tag in _FLAGS.items() if (tag, _TRUE) in var.unknown}
        for var in block.many("vars", Message)
    }


def _apply(block: Block, var: VarDesc, flags: set[str]) -> None:
    if "is_parameter" in flags and _may_be_parameter(var):
        fields = {"shape": var.dims, "dtype": var.element, "lod_level": var.lod_level}
        var = block.add_var(var.name, is_parameter=True, **fields)
        vars(var)["trainable"] = "stop_gradient" not in flags
    if "stop_gradient" in flags:
        var.stop_gradient = True


def _may_be_parameter(var: VarDesc) -> bool:
    sized = var.kind is VarKind.TENSOR and var.dims is not None and min(var.dims) > 0
    return sized and var.persistable


# ---- bytes of 1.8.5


def _guessed(program: Program) -> Iterator[tuple[str, set[str]]]:
    """The names and inferred flags of parameters in a program without flags.

    Variables that forward ops both read and write, such as running means, are not trained.
    """
    main = program.blocks[MAIN_BLOCK]
    trained = {name for op in main.ops for name in op.attrs.get("op_role_var", [])[::2]}
    forward = [op for op in main.ops if not op.role & _NOT_FORWARD]
    read = {name for op in forward for name in op.reads()}
    written = {name for op in forward for name in op.writes()}
    for var in main.vars.values():
        if not _may_be_parameter(var) or not var.element.is_float or var.name not in read:
            continue
        if var.name in written:
            yield var.name, {"is_parameter", "stop_gradient"}
        elif not trained or var.name in trained:
            yield var.name, {"is_parameter"}
