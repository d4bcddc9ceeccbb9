"""Types of LLVM IR, typed values, and constants as LLVM writes them."""

from __future__ import annotations

import struct
from functools import cache

from compiler.support.cached_property import cached_property
from compiler.support.dataclass import dataclass


@dataclass(frozen=True)
class Type:
    """An IR type: an element's name in LLVM ("float", "i64", "ptr"), and lanes; 0 for a scalar."""

    element: str
    lanes: int = 0

    @staticmethod
    @cache
    def named(element: str, lanes: int = 0) -> Type:
        """The type of an element and lanes, of which there is one."""
        return Type(element, lanes)

    @cached_property
    def _text(self) -> str:
        return f"<{self.lanes} x {self.element}>" if self.lanes else self.element

    def __str__(self) -> str:
        return self._text

    @property
    def is_float(self) -> bool:
        """True for floating-point elements."""
        return self.element in _SUFFIXES

    @property
    def scalar(self) -> Type:
        """The type of one lane."""
        return Type.named(self.element)

    @property
    def bits(self) -> int:
        """The bits of an element; 64 for a pointer."""
        return _FLOAT_BITS.get(self.element) or int(self.element[1:])

    @property
    def nbytes(self) -> int:
        """The bytes of an element in memory; a boolean takes one."""
        return max(1, self.bits // 8)

    @property
    def suffix(self) -> str:
        """The suffix of overloaded intrinsics: "f32", "v16f32", "i64"."""
        element = _SUFFIXES.get(self.element, self.element)
        return f"v{self.lanes}{element}" if self.lanes else element

    def vector(self, lanes: int) -> Type:
        """The vector of `lanes` elements of this type; the scalar type for 0."""
        return Type.named(self.element, lanes)

    def of(self, element: Type) -> Type:
        """The type with as many lanes as this one and another element."""
        return Type.named(element.element, self.lanes)


_FLOAT_BITS = {"half": 16, "bfloat": 16, "float": 32, "double": 64, "ptr": 64}
_SUFFIXES = {"half": "f16", "bfloat": "bf16", "float": "f32", "double": "f64"}

F16, BF16, F32, F64 = Type("half"), Type("bfloat"), Type("float"), Type("double")
I1, I8, I16, I32, I64 = Type("i1"), Type("i8"), Type("i16"), Type("i32"), Type("i64")
POINTER, VOID = Type("ptr"), Type("void")


@dataclass(frozen=True)
class Value:
    """An operand: its name or constant as LLVM writes it, and its type."""

    name: str
    type: Type

    def __str__(self) -> str:
        return f"{self.type} {self.name}"

    @property
    def is_constant(self) -> bool:
        """True for a constant; other values are results of instructions, or parameters."""
        return not self.name.startswith("%")


def constant(type: Type, number: float) -> Value:
    """A number as a constant; the same in each lane of a vector."""
    text = _float_text(type, number) if type.is_float else _integer_text(type, int(number))
    if type.lanes:
        text = f"splat ({type.element} {text})"
    return Value(text, type)


def zero(type: Type) -> Value:
    """Zero in each lane."""
    return Value("zeroinitializer", type) if type.lanes else constant(type, 0)


def lane_numbers(type: Type) -> Value:
    """The vector 0, 1, 2, …; 0 for a scalar."""
    if not type.lanes:
        return constant(type, 0)
    numbers = (constant(type.scalar, lane).name for lane in range(type.lanes))
    return Value(f"<{', '.join(f'{type.element} {number}' for number in numbers)}>", type)


def _integer_text(type: Type, number: int) -> str:
    return str(bool(number)).lower() if type.element == "i1" else str(number)


def _float_text(type: Type, number: float) -> str:
    """A float in LLVM's notation: the bits of the number as a double, or those of a half."""
    if type.element == "half":
        return f"0xH{struct.unpack('<H', struct.pack('<e', number))[0]:04X}"
    if type.element == "bfloat":
        bits = struct.unpack("<I", struct.pack("<f", number))[0]
        return f"0xR{(bits + 0x7FFF + (bits >> 16 & 1)) >> 16:04X}"
    if type.element == "float":
        number = struct.unpack("<f", struct.pack("<f", number))[0]
    return f"0x{struct.unpack('<Q', struct.pack('<d', number))[0]:016X}"
