"""Layers with host side effects: Print, py_func, Assert."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from fluid.framework import Operator, Variable, default_main_program
from fluid.layer_helper import LayerHelper
from fluid.recording.annotations import Array
from fluid.recording.checks import check_type, check_variable, check_variable_and_dtype
from fluid.recording.narrowing import is_sequence
from runtime.tensors.lod_tensor import LoDTensor

__all__ = ["Assert", "Print", "py_func"]

Variables = Variable | Sequence[Variable] | None


def Print(
    input: Variable,
    first_n: int = -1,
    message: str | None = None,
    summarize: int = 20,
    print_tensor_name: bool = True,
    print_tensor_type: bool = True,
    print_tensor_shape: bool = True,
    print_tensor_lod: bool = True,
    print_phase: str = "both",
) -> Variable:
    """Print `input` in each run, at most `first_n` times unless -1; returns `input`.

    `summarize` elements are printed, all if -1. `print_phase` "forward" prints the value,
    "backward" its gradient, "both" both.

    >>> import fluid
    >>> x = fluid.data("x", [3])
    >>> fluid.layers.Print(x, message="here").shape
    (3,)
    """
    kinds = ["float32", "float64", "int32", "int64", "bool"]
    check_variable_and_dtype(input, "input", kinds, "fluid.layers.Print")
    helper = LayerHelper(f"print_{input.name}")
    attrs = {
        "first_n": first_n,
        "summarize": summarize,
        "message": message or "",
        "print_tensor_name": print_tensor_name,
        "print_tensor_type": print_tensor_type,
        "print_tensor_shape": print_tensor_shape,
        "print_tensor_lod": print_tensor_lod,
        "print_phase": print_phase.upper(),
    }
    return helper.append_result("print", {"In": input}, attrs)


def Assert(
    cond: Variable,
    data: Sequence[Variable] | None = None,
    summarize: int = 20,
    name: str | None = None,
) -> Operator:
    """Abort the program unless `cond` is true, printing `summarize` elements of each of `data`.

    >>> import fluid
    >>> x = fluid.data("x", [1])
    >>> fluid.layers.Assert(x < 1.0, [x]).type
    'assert'
    """
    check_variable_and_dtype(cond, "cond", ["bool"], "Assert")
    check_type(data, "data", (list, tuple, type(None)), "Assert")
    for variable in data or ():
        check_variable(variable, "data", "Assert")
    helper = LayerHelper("assert", name=name)
    inputs = {"Cond": cond, "Data": list(data or ())}
    return helper.append_op("assert", inputs=inputs, attrs={"summarize": summarize})


def py_func(
    func: Callable[..., object],
    x: Variables,
    out: Variables,
    backward_func: Callable[..., object] | None = None,
    skip_vars_in_backward_input: Variables = None,
) -> Variables:
    """Call a Python function that computes `out`, variables with declared shape and dtype.

    `func` takes a LoDTensor for each variable of `x` and returns an array for each of `out`.
    `backward_func` takes those of `x`, of `out` and the gradients of `out`, except the variables of
    `skip_vars_in_backward_input`, and returns the gradients of `x`. Raises TypeError for arguments
    of other types, ValueError for an `out` without shape or a skipped variable that is neither
    input nor output.

    >>> import fluid, numpy as np
    >>> x, y = fluid.data("x", [3]), fluid.data("y", [3])
    >>> fluid.layers.py_func(np.tanh, x, y).name
    'y'
    """
    helper = LayerHelper("py_func")
    read, written = _listed(x, "x"), _listed(out, "out")
    for variable in written:
        if len(variable.shape) == 0:
            raise ValueError("Output shapes of py_func op should be provided by users manually")
    skipped = _listed(skip_vars_in_backward_input, "skip_vars_in_backward_input")
    declared = [var.name for var in (*read, *written)]
    for var in skipped if backward_func is not None else ():
        if var.name not in declared:
            raise ValueError(f"Variable {var.name} is not found in forward inputs and outputs")
    forward = _register_function(func, "func", [var.name for var in written])
    backward = -1 if backward_func is None else _register_function(backward_func, "backward_func")
    names = [] if backward_func is None else list(dict.fromkeys(var.name for var in skipped))
    helper.append_op(
        "py_func",
        inputs={"X": read},
        outputs={"Out": written},
        attrs={
            "forward_callable_id": forward,
            "backward_callable_id": backward,
            "backward_skip_vars": names,
        },
    )
    return out


def _listed(variables: Variables, name: str) -> list[Variable]:
    check_type(variables, name, (list, tuple, Variable, type(None)), "py_func")
    listed = [variables] if isinstance(variables, Variable) else list(variables or ())
    for variable in listed:
        check_variable(variable, name, "py_func")
    return listed


def _register_function(
    function: Callable[..., object], name: str, written: Sequence[str] = ()
) -> int:
    """Register a function in the program and return its id; `written` are its results, if they are
    to be counted.
    """
    if not callable(function):
        raise TypeError(f"{name} of py_func must be a Python function, not {function!r}")
    callables = default_main_program().callables
    callables.append(_ArrayFunction(function, written))
    return len(callables) - 1


class _ArrayFunction:
    """Adapter from the user's function to the program's convention: list of arrays to list of
    arrays.
    """

    def __init__(self, function: Callable[..., object], written: Sequence[str]) -> None:
        self.function = function
        self.written = written

    def __call__(self, arrays: Sequence[Array]) -> list[Array | None]:
        result = self.function(*map(LoDTensor, arrays))
        values = result if is_sequence(result) else [result]
        if self.written and len(values) != len(self.written):
            name = getattr(self.function, "__name__", repr(self.function))
            raise ValueError(
                f"py_func: {name} returned {len(values)} values, expected {len(self.written)}: "
                f"one each for {', '.join(self.written)}"
            )
        return [None if value is None else np.asarray(value) for value in values]
