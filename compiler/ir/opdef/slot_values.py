"""The values in an op's slots, as the methods of its class take them: one object, typed by value.

def infer(self, s: Slots[TensorType]) -> TensorType:
    require_same_dtype(self.kind, X=s.X, Bias=s.get("Bias"))
    return s.X
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Mapping
from functools import cache
from types import CodeType
from typing import Any, Generic, Self, TypeVar, cast

from compiler.errors import MissingSlot, did_you_mean
from compiler.ir.program import GRAD
from compiler.ir.types import Shape
from compiler.support.dataclass import dataclass

T = TypeVar("T")


class Slots(Generic[T]):
    """The values in the slots of one op: types, arrays, or operands of generated code.

    `s.X` is the value in a slot; MissingSlot is raised if there is none. `s.get("Bias")` is the
    value in an optional slot, or None; `s.all("X")` the list in a slot that takes several
    variables, and in one with LoD. `s.d_Out` is the slot `Out@GRAD`, as in parameters of `grad`.
    A name that the op does not declare raises MissingSlot.
    """

    def __init__(self, op: str, declared: Collection[str], values: Mapping[str, Any]) -> None:
        self._op = op
        self._declared = declared
        self._values = values

    @classmethod
    def of(cls, op: str, **values: T) -> Self:
        """Return slots with these values, to call a method of another op."""
        return cls(op, tuple(map(slot_of, values)), {slot_of(n): v for n, v in values.items()})

    def __getattr__(self, name: str) -> T:
        if name.startswith("_"):
            raise AttributeError(name)
        value = self.get(name)
        if value is None:
            raise MissingSlot(f"{self._op} needs {slot_of(name)}, which it was not passed")
        return value

    def get(self, name: str) -> T | None:
        """Return the value in a slot, or None."""
        return self._value(name)

    def all(self, name: str) -> list[T]:
        """Return the list in a slot; an empty one if there is nothing in it."""
        return self._value(name) or []

    def shape(self, name: str) -> Shape:
        """Return the shape of the value in a slot, whose data may have been freed."""
        return cast(Any, self.__getattr__(name)).shape

    def _value(self, name: str) -> Any:
        slot = slot_of(name)
        if slot not in self._declared:
            listed = ", ".join(self._declared)
            hint = did_you_mean(slot, self._declared)
            raise MissingSlot(f"{self._op} has no slot {slot!r}; it has: {listed}", hint=hint)
        return self._values.get(slot)


def slot_of(name: str) -> str:
    """Return the slot of a name in a body: `d_Out` is `Out@GRAD`."""
    return name.removeprefix("d_") + GRAD if name.startswith("d_") else name


@dataclass(frozen=True)
class SlotReads:
    """The names that a method may read: as attributes, which must have a value, or by `get`."""

    needed: frozenset[str]
    optional: frozenset[str]

    @property
    def names(self) -> frozenset[str]:
        """All of them."""
        return self.needed | self.optional


@cache
def slot_reads(cls: type, method: str) -> SlotReads:
    """Return the names that a method reads of its `Slots`, as found in its code.

    Methods and functions that it passes them to are included. Names that the op does not declare
    may be among them: attributes and texts of other objects.
    """
    needed, optional = set[str](), set[str]()
    waiting, done = [_function(cls, method)], set[Callable[..., Any]]()
    while waiting:
        function = waiting.pop()
        if function in done:
            continue
        done.add(function)
        for code in _nested(function.__code__):
            needed |= set(code.co_names)
            optional |= {constant for constant in code.co_consts if isinstance(constant, str)}
            waiting += _readers(cls, function, code)
    return SlotReads(frozenset(needed), frozenset(optional))


def _function(cls: type, name: str) -> Any:
    return inspect.unwrap(getattr(cls, name))


def _nested(code: CodeType) -> list[CodeType]:
    """Return a code object, and those of the functions defined in it."""
    inner = (constant for constant in code.co_consts if isinstance(constant, CodeType))
    return [code, *(each for nested in inner for each in _nested(nested))]


def _readers(cls: type, function: Any, code: CodeType) -> list[Any]:
    """Return the methods of a class, and the functions of a module, that take `Slots`."""
    inherited = [vars(base).get(name) for base in cls.__mro__ for name in code.co_names]
    functions = [function.__globals__.get(name) for name in code.co_names]
    return [each for each in (*inherited, *functions) if takes_slots(each)]


def takes_slots(function: Any) -> bool:
    """Return whether a function has a parameter `s` for slots."""
    return inspect.isfunction(function) and "Slots" in str(function.__annotations__.get("s"))
