"""What fields of messages accept, and repeated fields as lists."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from numbers import Integral, Real
from struct import pack, unpack
from typing import Any, Self, SupportsIndex

from compiler.ir.model_format.protobuf import BOUNDS
from compiler.ir.model_format.schema import ENUMS, Field

__all__ = ["Repeated", "checked"]

_EXPECTED = {
    **dict.fromkeys(BOUNDS, "int"), "float": "int, float", "double": "int, float",
    "bool": "bool, int", "string": "bytes, unicode",
}  # fmt: skip


def checked(field: Field, value: object) -> int | float | str | bytes:
    """A value as a scalar field keeps it: floats in 32 bits, bytes as text.

    Raises TypeError for a value of another type and ValueError for one that is out of range, or
    that an enum does not have.

    >>> field = Field(4, "f", "optional", "float", 0.0, "OpDesc.Attr.f", False)
    >>> checked(field, 0.1)
    0.10000000149011612
    """
    if field.kind in BOUNDS and isinstance(value, Integral):
        return _integer(field, int(value))
    if field.kind == "bool" and isinstance(value, Integral):
        return bool(value)
    if field.kind in ("float", "double") and isinstance(value, Real):
        return _in_32_bits(float(value)) if field.kind == "float" else float(value)
    if field.kind == "string" and isinstance(value, str | bytes):
        return value if isinstance(value, str) else value.decode("utf-8", "surrogateescape")
    if field.kind == "bytes" and isinstance(value, bytes):
        return value
    kind = type(value).__name__
    expected = _EXPECTED.get(field.kind, field.kind)
    raise TypeError(f"{field.where}: {value!r} has type {kind}, but expected one of: {expected}")


def _integer(field: Field, value: int) -> int:
    lowest, bound = BOUNDS[field.kind]
    if not lowest <= value < bound:
        raise ValueError(f"{field.where}: Value out of range: {value}")
    if field.enum and value not in ENUMS[field.enum].values():
        raise ValueError(f"{field.where}: Unknown enum value: {value}")
    return value


def _in_32_bits(value: float) -> float:
    try:
        return unpack("<f", pack("<f", value))[0]
    except OverflowError:
        return float("inf") if value > 0 else float("-inf")


class Repeated(list[Any]):
    """A repeated field: a list whose items are checked; messages are copied into it.

    `make` makes a message from its fields, and is None for scalars; `touch` is called on changes.
    """

    def __init__(
        self, field: Field, make: Callable[..., Any] | None, touch: Callable[[], None]
    ) -> None:
        super().__init__()
        self._field, self._make, self._touch = field, make, touch

    def add(self, **fields: object) -> Any:
        """Append a message with these fields and return it."""
        if self._make is None:
            raise AttributeError(f"{self._field.where} holds no messages: use append")
        message = self._make(**fields)
        super().append(message)
        self._touch()
        return message

    def append(self, value: object) -> None:
        """Append a value, a message as a copy."""
        super().append(self._own(value))
        self._touch()

    def append_read(self, value: object) -> None:
        """Append a value that was read from bytes, which is valid."""
        super().append(value)

    def insert(self, index: SupportsIndex, value: object) -> None:
        """Insert a value before an index."""
        super().insert(index, self._own(value))
        self._touch()

    def extend(self, values: Iterable[object]) -> None:
        """Append values; TypeError leaves the field as it was."""
        super().extend([self._own(value) for value in values])
        self._touch()

    MergeFrom = extend

    def __iadd__(self, values: Iterable[object]) -> Self:
        self.extend(values)
        return self

    def __setitem__(self, key: Any, value: Any) -> None:
        if self._make is not None:
            raise TypeError(f"{self._field.where}: messages are not assigned; use CopyFrom")
        many = isinstance(key, slice)
        super().__setitem__(key, [self._own(item) for item in value] if many else self._own(value))

    def __reduce__(self) -> tuple[object, ...]:
        return list, (list(self),)

    def _own(self, value: object) -> Any:
        if self._make is None:
            return checked(self._field, value)
        message = self._make()
        message.CopyFrom(value)
        return message
