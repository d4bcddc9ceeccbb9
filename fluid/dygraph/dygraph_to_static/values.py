"""Values of names in branches and loops: structures of tensors and of Python's values."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeAlias, TypeGuard, cast

import numpy as np

from compiler.ir.program import VarKind
from compiler.support.dataclass import dataclass
from fluid.eager.variables import VarBase
from fluid.framework import Variable
from fluid.layers.nn import reshape
from fluid.layers.tensor import assign, fill_constant
from fluid.recording.op_records import user_line
from fluid.recording.var_types import VarDesc

__all__ = [
    "MISSING", "UNDEFINED", "State", "Value", "as_condition", "as_tensor", "is_array", "is_number",
    "is_static", "leaves", "placeholder", "rebuilt", "refilled", "same", "same_structure", "shown",
    "truth",
]  # fmt: skip

BOOL = VarDesc.VarType.BOOL

Value: TypeAlias = Any
"""What a name of a script may have: a variable of a program, or any value of Python."""


class _Undefined:
    """The value of a name that has none."""

    def __repr__(self) -> str:
        return "undefined"


UNDEFINED: Value = _Undefined()
MISSING: Value = _Undefined()
"""A leaf of a structure on a path that does not define it."""


def is_static(value: object) -> TypeGuard[Variable]:
    """Return whether a value is a variable of a program, which has no value yet."""
    return isinstance(value, Variable) and not isinstance(value, VarBase)


def is_array(value: object) -> TypeGuard[Variable]:
    """Return whether a value is a tensor array of a program."""
    return is_static(value) and value.kind is VarKind.TENSOR_ARRAY


def is_number(value: object) -> bool:
    """Return whether a value is a number or an array, which a tensor can have."""
    return isinstance(value, bool | int | float | np.ndarray | np.generic)


def truth(value: Value) -> bool:
    """Return the truth of a value of Python or eager mode."""
    return value.is_true() if isinstance(value, VarBase) else bool(value)


def as_condition(tensor: Variable) -> Variable:
    """Return a tensor of one element as a boolean: whether it is positive, as in eager mode."""
    if tensor.dtype != BOOL:
        tensor = tensor > fill_constant([1], tensor.dtype, 0)
    return tensor if tensor.shape == (1,) else reshape(tensor, [1])


def as_tensor(value: Value, like: Variable | None = None) -> Variable:
    """Return a number as a tensor; of the dtype and, if it is known, the shape of another one."""
    if isinstance(value, Variable):
        return value
    array = np.asarray(value)
    if array.ndim or array.dtype.kind not in "biuf":
        return assign(array)
    kind = {"b": "bool", "f": "float64"}.get(array.dtype.kind, "int64")
    sizes = [1]
    if like is not None:
        fits = like.element.is_float or (
            kind == "bool" if like.dtype == BOOL else kind != "float64"
        )
        if not fits:
            raise TypeError(
                f"{user_line()}: {value!r} cannot become a tensor of {like.element.text}, which it "
                "is on another path through a branch or loop on a tensor: write it as one of them"
            )
        kind, known = like.dtype, like.dims
        if known and min(known) > 0:
            sizes = list(known)
        elif known and len(known) > 1:
            raise TypeError(
                f"{user_line()}: {value!r} is a tensor of shape {list(known)} on another path "
                "through a branch or loop on a tensor, and its size is not known: begin with a "
                "tensor of that shape, such as layers.zeros_like(x)"
            )
    tensor = fill_constant(sizes, kind, array.item())
    tensor.stop_gradient = False
    return tensor


def placeholder(like: Variable) -> Variable:
    """Return a tensor for a name without a value: NaN, or zero if it is no float."""
    sizes = [max(size, 1) for size in like.shape] or [1]
    tensor = fill_constant(sizes, like.dtype, float("nan") if like.element.is_float else 0)
    tensor.stop_gradient = False
    return tensor


def shown(value: object) -> str:
    """Return what a value is, for messages."""
    if isinstance(value, Variable):
        return f"a tensor {value.element.text}{list(value.shape)}"
    return "undefined" if value is UNDEFINED else f"{value!r:.60}"


# ---- structures of lists, tuples and dicts


def _items(value: Value) -> list[Value] | None:
    if isinstance(value, dict):
        return list(cast(dict[Value, Value], value).values())
    return list(cast(Sequence[Value], value)) if isinstance(value, list | tuple) else None


def leaves(value: Value) -> list[Value]:
    """Return what a structure of lists, tuples and dicts has, in order."""
    items = _items(value)
    return [value] if items is None else [leaf for item in items for leaf in leaves(item)]


def rebuilt(value: Value, new_leaves: Sequence[Value]) -> Value:
    """Return a copy of a structure with other leaves."""
    return _rebuilt(value, iter(new_leaves))


def _rebuilt(value: Value, flat: Iterator[Value]) -> Value:
    if isinstance(value, dict):
        pairs: Value = cast(dict[Value, Value], value).items()
        kind: Value = type(cast(object, value))
        return kind((key, _rebuilt(item, flat)) for key, item in pairs)
    items = _items(value)
    if items is None:
        return next(flat)
    parts = [_rebuilt(item, flat) for item in items]
    if isinstance(value, list):
        return parts
    return type(value)(*parts) if hasattr(value, "_fields") else tuple(parts)


def same_structure(one: Value, two: Value) -> bool:
    """Return whether two structures differ in their leaves only."""
    first, second = _items(one), _items(two)
    if first is None or second is None:
        return first is None and second is None
    if isinstance(one, dict) and list(cast(dict[Value, Value], one)) != list(two):
        return False
    pairs = zip(first, second, strict=False)
    return len(first) == len(second) and all(same_structure(a, b) for a, b in pairs)


def same(one: Value, two: Value) -> bool:
    """Return whether two leaves are the same object, or equal numbers or strings."""
    if one is two:
        return True
    plain = isinstance(one, bool | int | float | str) and type(one) is type(two)
    return plain and one == two


def refilled(value: Value, contents: Value) -> Value:
    """Give a list or dict other contents and return it; return other contents as they are."""
    old: Value = value
    if isinstance(value, list) and isinstance(contents, list):
        old[:] = contents
    elif isinstance(value, dict) and isinstance(contents, dict):
        old.clear()
        old.update(contents)
    else:
        return contents
    return old


# ---- names


@dataclass(frozen=True)
class State:
    """The names that a statement writes: how to read and to set them, and which are read later."""

    names: tuple[str, ...]
    getters: tuple[Callable[[], Value], ...]
    setter: Callable[[Sequence[Value]], None]
    kept: Sequence[str]

    def current_values(self) -> list[Value]:
        """Return the values of the names; UNDEFINED for names without one."""
        return [_read(getter) for getter in self.getters]

    def values(self) -> list[Value]:
        """Return the values of the names, with copies of lists and dicts."""
        return [rebuilt(value, leaves(value)) for value in self.current_values()]

    def saved(self) -> list[tuple[Value, Value]]:
        """Return the values of the names, and copies of the lists and dicts among them."""
        return [(value, rebuilt(value, leaves(value))) for value in self.current_values()]

    def restore(self, saved: Sequence[tuple[Value, Value]]) -> None:
        """Set the names, and the contents of lists and dicts, to what they were."""
        self.set([refilled(value, rebuilt(copied, leaves(copied))) for value, copied in saved])

    def set(self, values: Sequence[Value]) -> None:
        """Set the names."""
        self.setter(values)

    def extended(
        self, name: str, getter: Callable[[], Value], setter: Callable[[Sequence[Value]], None]
    ) -> State:
        """Return a state with one more name, which is read later."""

        def set_all(values: Sequence[Value]) -> None:
            self.setter(values[:-1])
            setter(values[-1:])

        return State((*self.names, name), (*self.getters, getter), set_all, (*self.kept, name))


def _read(getter: Callable[[], Value]) -> Value:
    try:
        return getter()
    except (NameError, AttributeError):
        return UNDEFINED
