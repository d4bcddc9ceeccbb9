"""Functions that generate layers from op types, and decorators for layers."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable
from typing import TypeVar, cast

from compiler.ir.opdef import find
from fluid.framework import Variable
from fluid.layer_helper import LayerHelper, append_simple_op
from fluid.recording.checks import check_variable
from fluid.recording.narrowing import is_sequence
from fluid.recording.op_records import slot_names

__all__ = ["autodoc", "deprecated", "generate_activation_fn", "generate_layer_fn", "templatedoc"]

F = TypeVar("F", bound=Callable[..., object])


def generate_layer_fn(op_type: str) -> Callable[..., Variable]:
    """Return a layer that appends one op; its keyword arguments are inputs and attributes.

    Positional inputs fill the slots in order; slot names may be lower case. The layer returns the
    op's first output; a keyword with the name of that slot is the variable to write. Raises
    UnknownOp for an unregistered type.
    """
    defn = find(op_type)
    slots = [name for name, slot in defn.inputs().items() if not slot.companion]
    outputs = [name for name, slot in defn.outputs().items() if not slot.companion]

    def layer(*args: object, **kwargs: object) -> Variable:
        act, name = kwargs.pop("act", None), kwargs.pop("name", None)
        helper = LayerHelper(op_type, act=act, name=name)
        inputs = dict(zip(slots, args, strict=False))
        for slot in slots:
            keyword = slot if slot in kwargs else slot.lower()
            if keyword in kwargs:
                inputs[slot] = kwargs.pop(keyword)
        first = next(iter(inputs.values()))
        dtype = check_variable(first[0] if is_sequence(first) else first, slots[0], op_type).dtype
        out = kwargs.pop(outputs[0].lower(), None)
        results = {
            slot: helper.create_variable_for_type_inference(dtype)
            if out is None or slot != outputs[0]
            else check_variable(out, slot, op_type)
            for slot in outputs
        }
        helper.append_op(op_type, slot_names(op_type, inputs), results, kwargs)
        return helper.append_activation(results[outputs[0]])

    layer.__name__ = op_type
    layer.__doc__ = defn.__doc__
    return layer


def generate_activation_fn(op_type: str) -> Callable[..., Variable]:
    """Return a layer that applies an elementwise op; its arguments are `x` and `name`.

    Raises UnknownOp for an unregistered type.
    """
    defn = find(op_type)

    def layer(x: Variable, name: str | None = None) -> Variable:
        return append_simple_op(op_type, {"X": x}, name=name)

    layer.__name__ = op_type
    layer.__doc__ = defn.__doc__
    return layer


def deprecated(func_or_class: F) -> F:
    """Decorate a function or class to warn on each call that it is deprecated."""

    @functools.wraps(func_or_class)
    def call(*args: object, **kwargs: object) -> object:
        name = func_or_class.__name__
        warnings.warn(f"API {name} is deprecated since 1.0.0", DeprecationWarning, stacklevel=2)
        return func_or_class(*args, **kwargs)

    return cast(F, call)


def autodoc(comment: str = "") -> Callable[[F], F]:
    """Return a decorator that appends the op's documentation to `comment` as the docstring."""

    def decorate(function: F) -> F:
        function.__doc__ = comment + (find(function.__name__).__doc__ or "")
        return function

    return decorate


def templatedoc(op_type: str | None = None) -> Callable[[F], F]:
    """Return a decorator that substitutes the op's documentation for `${comment}`."""

    def decorate(function: F) -> F:
        text = find(op_type or function.__name__).__doc__ or ""
        function.__doc__ = (function.__doc__ or "").replace("${comment}", text)
        return function

    return decorate
