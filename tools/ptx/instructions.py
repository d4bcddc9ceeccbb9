"""A kernel of PTX as data: what the parser returns and the machine executes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

BYTES = {
    "b8": 1, "u8": 1, "s8": 1, "b16": 2, "u16": 2, "s16": 2, "f16": 2, "bf16": 2, "b32": 4,
    "u32": 4, "s32": 4, "f32": 4, "f16x2": 4, "bf16x2": 4, "tf32": 4, "b64": 8, "u64": 8,
    "s64": 8, "f64": 8,
}  # fmt: skip
"""Bytes of a value of each type; a predicate (`pred`) has none."""


@dataclass(frozen=True, slots=True)
class Register:
    """A register of a thread: its number, and its bytes (0: a predicate)."""

    name: str
    slot: int
    width: int


@dataclass(frozen=True, slots=True)
class Special:
    """A register that the machine provides, such as `%tid.x`."""

    name: str


@dataclass(frozen=True, slots=True)
class Immediate:
    """A constant: an integer, or the bits of a float of `width` bytes."""

    value: int
    width: int = 0


@dataclass(frozen=True, slots=True)
class Symbol:
    """The name of a parameter, a variable or a label."""

    name: str


@dataclass(frozen=True, slots=True)
class Not:
    """A predicate that is read inverted."""

    register: Register


@dataclass(frozen=True, slots=True)
class Address:
    """`[base + offset]`; an absolute address has an immediate as its base."""

    base: Register | Symbol | Immediate
    offset: int


@dataclass(frozen=True, slots=True)
class Vector:
    """`{a, b}`; `_` is None."""

    parts: tuple[Operand | None, ...]


@dataclass(frozen=True, slots=True)
class Pair:
    """`a|b`: two destinations."""

    first: Operand | None
    second: Operand | None


Operand = Register | Special | Immediate | Symbol | Not | Address | Vector | Pair


@dataclass(frozen=True, slots=True)
class Instruction:
    """One instruction; `line` is that of the PTX, `place` that of the source (of `.loc`)."""

    opcode: str
    modifiers: tuple[str, ...]
    operands: tuple[Operand | None, ...]
    guard: Register | Not | None
    line: int
    place: str
    text: str

    @property
    def name(self) -> str:
        """The opcode with its modifiers."""
        return ".".join((self.opcode, *self.modifiers))

    @property
    def type(self) -> str:
        """The last modifier, which is the type of most instructions."""
        return self.modifiers[-1] if self.modifiers else ""

    def has(self, modifier: str) -> bool:
        """Whether a modifier is there."""
        return modifier in self.modifiers


@dataclass(frozen=True, slots=True)
class Parameter:
    """A parameter of a kernel; `count` is 1, or the elements of an array."""

    name: str
    type: str
    count: int = 1

    @property
    def nbytes(self) -> int:
        """Its size in bytes."""
        return BYTES[self.type] * self.count


@dataclass(frozen=True, slots=True)
class Variable:
    """A variable of a state space; one without a size ends shared memory."""

    name: str
    space: str
    align: int
    nbytes: int
    data: bytes = b""


@dataclass(frozen=True)
class Kernel:
    """A kernel: `labels` gives the index of the instruction that follows each label."""

    name: str
    target: str
    parameters: tuple[Parameter, ...]
    registers: tuple[Register, ...]
    variables: Mapping[str, Variable]
    instructions: tuple[Instruction, ...]
    labels: Mapping[str, int]
    required_threads: tuple[int, int, int] | None = None
    most_threads: int = 1024
    notes: Mapping[str, str] = field(default_factory=dict[str, str])
