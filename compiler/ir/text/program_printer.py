"""Programs as text, and their digests, without imports that graphs need.

A process that loads a cached compilation by its digest imports no compiler modules.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence

from compiler.errors import UnknownOp
from compiler.ir.opdef import find
from compiler.ir.opdef.slots import Slot
from compiler.ir.program import NO_BLOCK, Block, OpDesc, Program, VarDesc, VarKind
from compiler.ir.text.literals import attributes_text, name_text, value_text
from compiler.ir.types import from_fluid

INDENT = "  "


def program_text(program: Program) -> str:
    """Format a program; `parse_program` reads it back."""
    return "\n".join(_program_lines(program)) + "\n"


def program_digest(program: Program) -> str:
    """Return the SHA-256 of the text, in hex: equal for equal programs.

    It is computed once per version of a program.
    """
    return _digest(program, "text", program_text)


def recorded_digest(program: Program) -> str:
    """Return the SHA-256 of a program as recorded or saved, in hex, without loading op classes.

    Programs with equal digests are equal; equal programs may have different digests if one of them
    contains attributes at their defaults. It is computed once per version of a program.
    """
    return _digest(program, "recorded", _recorded_text)


def _digest(program: Program, kind: str, text: Callable[[Program], str]) -> str:
    """Return the digest of a text of a program, which is made once per version."""
    cached = program.known_digests.get(kind)
    if cached is None or cached[0] != program.version:
        cached = program.version, hashlib.sha256(text(program).encode()).hexdigest()
        program.known_digests[kind] = cached
    return cached[1]


def _recorded_text(program: Program) -> str:
    return "\n".join(_program_lines(program, _recorded_line))


def _recorded_line(op: OpDesc) -> str:
    attrs = {name: value_text(op.attrs[name]) for name in sorted(op.attrs)}
    return f"{op.type!r} {op.inputs} {op.outputs} {attrs}"


def _program_lines(
    program: Program, line: Callable[[OpDesc], str] = lambda op: desc_line(op)
) -> Iterator[str]:
    yield "program {"
    for block in program.blocks:
        yield f"{INDENT}block {block.idx}{_relations(block)} {{"
        for var in block.vars.values():
            yield f"{INDENT * 2}var {_desc_declaration(var)}"
        for op in block.ops:
            yield INDENT * 2 + line(op) + source_text(op.source)
        yield f"{INDENT}}}"
    yield "}"


def _relations(block: Block) -> str:
    """Format the relations of a block to others: ` (parent 0, forward 1)`."""
    relations = {"parent": block.parent_idx, "forward": block.forward_block_idx}
    texts = [f"{name} {index}" for name, index in relations.items() if index != NO_BLOCK]
    return f" ({', '.join(texts)})" if texts else ""


def _desc_declaration(var: VarDesc) -> str:
    type = var.element.text if var.dims is None else str(from_fluid(var.dims, var.element))
    fields = {
        "kind": str(var.kind) if var.kind is not VarKind.TENSOR else "",
        "lod_level": var.lod_level,
        "persistable": var.persistable,
        "stop_gradient": var.stop_gradient,
        "need_check_feed": var.need_check_feed,
        "is_parameter": var.is_parameter,
    }
    attrs = {name: value for name, value in fields.items() if value}
    return f"{name_text(var.name)}: {type}{f' {attrs}' if attrs else ''}"


def desc_line(op: OpDesc) -> str:
    """Format an op of a program as one line, without its source."""
    inputs = {slot: list(map(name_text, names)) for slot, names in op.inputs.items()}
    outputs = {slot: list(map(name_text, names)) for slot, names in op.outputs.items()}
    call = call_text(op.type, inputs, outputs)
    return f"{call} {attributes_text(op.type, op.attrs)}".rstrip()


def call_text(
    kind: str, inputs: Mapping[str, Sequence[str]], outputs: Mapping[str, Sequence[str]]
) -> str:
    """Format a call, `(Out=y) = sum(X=[a, b])`, with brackets for slots that hold a list."""
    slots = _slots(kind)
    written, read = _slots_text(slots, outputs), _slots_text(slots, inputs)
    return f"({written}) = {name_text(kind)}({read})"


def _slots(kind: str) -> Mapping[str, Slot]:
    try:
        return find(kind).slots
    except UnknownOp:
        return {}


def _slots_text(declared: Mapping[str, Slot], given: Mapping[str, Sequence[str]]) -> str:
    texts: list[str] = []
    for slot, vars in given.items():
        many = len(vars) != 1 or (slot in declared and declared[slot].many)
        text = ", ".join(vars)
        texts.append(f"{name_text(slot)}=[{text}]" if many else f"{name_text(slot)}={text}")
    return ", ".join(texts)


def source_text(source: str) -> str:
    """Format the user's line as a comment, quoted if it could not be parsed back otherwise."""
    if not source:
        return ""
    plain = source.isprintable() and source == source.strip() and not source.startswith('"')
    return f"  // {source if plain else json.dumps(source)}"
