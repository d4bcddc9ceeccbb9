"""What rewritten functions call: Python's operators, which become ops for variables of programs.

`branches` and `loops` have control flow. Everything does what Python does unless a variable of a
program is involved; variables of eager mode have values.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from types import FunctionType
from typing import cast as cast_type

import numpy as np

from fluid.dygraph.dygraph_to_static.branches import convert_if, convert_return
from fluid.dygraph.dygraph_to_static.conversion import convert_function
from fluid.dygraph.dygraph_to_static.loops import TensorRange, convert_for, convert_while
from fluid.dygraph.dygraph_to_static.values import (
    UNDEFINED,
    State,
    Value,
    as_condition,
    is_array,
    is_static,
    truth,
)
from fluid.dygraph.layers import Layer
from fluid.eager.mode import to_variable
from fluid.eager.variables import VarBase
from fluid.framework import Variable, in_dygraph_mode
from fluid.layers.control.arrays import array_length, array_read, array_write
from fluid.layers.control.host import Assert, Print
from fluid.layers.control.logic import logical_and as tensor_and
from fluid.layers.control.logic import logical_not as tensor_not
from fluid.layers.control.logic import logical_or as tensor_or
from fluid.layers.mathematics.shapes import shape as tensor_shape
from fluid.layers.tensor import assign, cast, fill_constant
from fluid.recording.var_types import VarDesc

__all__ = [
    "UNDEFINED", "State", "append", "chain", "choose", "convert_assert", "convert_call",
    "convert_for", "convert_if", "convert_return", "convert_while", "converted", "get_item",
    "iterate", "logical_and", "logical_not", "logical_or", "set_item", "shape", "value",
]  # fmt: skip


BOOL = VarDesc.VarType.BOOL


# ---- logic


def logical_and(*operands: Callable[[], Value]) -> Value:
    """Return `a and b`; an operand after a tensor is always evaluated."""
    return _joined(operands, tensor_and, False)


def logical_or(*operands: Callable[[], Value]) -> Value:
    """Return `a or b`, as `logical_and`."""
    return _joined(operands, tensor_or, True)


def _joined(operands: Sequence[Callable[[], Value]], function: Value, deciding: bool) -> Value:
    result: Value = None
    joined: Variable | None = None
    for operand in operands:
        result = operand()
        if is_static(result):
            condition = as_condition(result)
            joined = condition if joined is None else function(joined, condition)
        elif truth(result) is deciding:
            return result if joined is None or not isinstance(result, bool) else deciding
    if joined is None:
        return result
    return joined


def logical_not(operand: Value) -> Value:
    """Return `not a`."""
    return tensor_not(as_condition(operand)) if is_static(operand) else not truth(operand)


def chain(
    operands: Sequence[Callable[[], Value]], compare: Sequence[Callable[..., Value]]
) -> Value:
    """Return `a < b < c`, with each operand evaluated once."""
    values = [operands[0]()]

    def compared(index: int) -> Value:
        values.append(operands[index + 1]())
        return compare[index](values[index], values[index + 1])

    return logical_and(*(partial(compared, index) for index in range(len(compare))))


def choose(test: Value, taken: Callable[[], Value], other: Callable[[], Value]) -> Value:
    """Return `a if test else b`."""
    if not is_static(test):
        return taken() if truth(test) else other()
    return convert_return(test, taken, other, State((), (), _ignore, ()))


def _ignore(values: Sequence[object]) -> None:
    """Set nothing."""


def convert_assert(test: Value, message: Callable[[], Value]) -> None:
    """Assert that a test is true: in each run, if it is a tensor."""
    if is_static(test):
        Assert(as_condition(test))
    elif not truth(test):
        raise AssertionError(message())


def value(tensor: Value) -> Value:
    """Return `x.numpy()`, which in a test of a program is the tensor itself."""
    return tensor if is_static(tensor) else tensor.numpy()


# ---- sizes and items


class _Shape(tuple[Value, ...]):
    """A shape, in which sizes that are not known are tensors, made when they are read."""

    variable: Variable

    def __getitem__(self, index: Value) -> Value:
        if isinstance(index, slice):
            return [self[position] for position in range(*index.indices(len(self)))]
        size = super().__getitem__(index)
        if size != -1:
            return size
        return tensor_shape(self.variable)[range(len(self))[index]]

    def __iter__(self) -> Iterator[Value]:
        return iter([self[position] for position in range(len(self))])


def shape(x: Value) -> Value:
    """Return `x.shape`; sizes of a tensor that are not known are tensors."""
    if not is_static(x) or -1 not in x.shape or is_array(x):
        return x.shape
    sizes = _Shape(x.shape)
    sizes.variable = x
    return sizes


def _length(x: Value) -> Value:
    if not is_static(x):
        return len(x)
    return array_length(x) if is_array(x) else shape(x)[0]


def iterate(x: Value) -> Value:
    """Return the items of a tensor whose first size is known; anything else as it is."""
    if not is_static(x):
        return x
    if is_array(x) or not x.shape or x.shape[0] < 0:
        raise TypeError(
            f"{x.name!r} has no known number of items, so that it cannot be unpacked or iterated "
            "over here: write a `for` statement, or give the size of its first axis"
        )
    return [x[index] for index in range(x.shape[0])]


def _index(index: Value) -> Variable:
    return (
        cast(index, "int64") if isinstance(index, Variable) else fill_constant([1], "int64", index)
    )


def get_item(x: Value, index: Value) -> Value:
    """Return `x[index]`, also of a tensor array."""
    if not is_array(x):
        return x[index]
    if not is_static(index) and index < 0:
        index = array_length(x) + index
    return array_read(x, _index(index))


def set_item(x: Value, index: Value, item: Value) -> None:
    """Do `x[index] = item`, also for a tensor array."""
    if is_array(x):
        array_write(_tensor(item), _index(index), x)
    else:
        x[index] = item


def append(x: Value, item: Value) -> Value:
    """Do `x.append(item)`, also for a tensor array."""
    if not is_array(x):
        return convert_call(x.append)(item)
    array_write(_tensor(item), array_length(x), x)
    return None


def _tensor(item: Value) -> Variable:
    return item if isinstance(item, Variable) else assign(np.asarray(item))


# ---- calls


def convert_call(function: Value) -> Value:
    """Return what to call for a function: a rewritten one, or one that takes tensors."""
    if in_dygraph_mode():
        return function
    if isinstance(function, Layer):
        return converted(function)
    try:
        known = _BUILTINS.get(function)
    except TypeError:
        known = None
    if known is not None:
        return known
    members: Mapping[str, object] = vars(cast_type(object, function).__class__)
    if isinstance(members.get("__call__"), FunctionType):
        return converted(function.__call__)
    return converted(function)


def converted(function: Value, *, required: bool = False) -> Value:
    """Return a function, method or layer whose control flow on tensors becomes ops when called.

    Raises OSError for a function whose source is not available, if it is `required`.
    """
    if isinstance(function, Layer):
        return partial(function.call_forward, converted(function.forward, required=required))
    return convert_function(function, _runtime(), required=required)


def _runtime() -> object:
    return sys.modules[__name__]


def _print(*values: Value, **options: Value) -> None:
    """Print; tensors are printed in each run."""
    if not any(map(is_static, values)):
        print(*values, **options)
        return
    words: list[str] = []
    for item in values:
        if is_static(item):
            Print(item, message=" ".join(words) or None)
            words = []
        else:
            words.append(str(item))
    if words:
        print(*words, **options)


def _int(*args: Value, **options: Value) -> Value:
    if not args or not is_static(args[0]):
        return int(*args, **options)
    x = args[0]
    return cast(x, "int64") if x.element.is_float or x.dtype == BOOL else x


def _float(*args: Value) -> Value:
    if not args or not is_static(args[0]):
        return float(*args)
    return args[0] if args[0].element.is_float else cast(args[0], "float32")


def _bool(*args: Value) -> Value:
    return as_condition(args[0]) if args and is_static(args[0]) else bool(*map(_truthy, args))


def _truthy(x: Value) -> Value:
    return truth(x) if isinstance(x, VarBase) else x


def _range(*args: Value) -> Value:
    return TensorRange.of(*args) if any(map(is_static, args)) else range(*args)


def _enumerate(iterable: Value, start: Value = 0) -> Value:
    if is_static(iterable) or isinstance(iterable, TensorRange):
        return TensorRange.enumerated(iterable, start)
    return enumerate(iterable, start)


def _zip(*iterables: Value, strict: bool = False) -> Value:
    return zip(*map(iterate, iterables), strict=strict)


def _to_variable(value: Value, name: str | None = None, zero_copy: bool | None = None) -> Value:
    if isinstance(value, Variable):
        return value
    return assign(np.asarray(value))


_BUILTINS: dict[object, Callable[..., Value]] = {
    print: _print,
    len: _length,
    int: _int,
    float: _float,
    bool: _bool,
    range: _range,
    enumerate: _enumerate,
    zip: _zip,
    to_variable: _to_variable,
}
