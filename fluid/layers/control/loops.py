"""While loops: `While` and `while_loop`."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import cast

from fluid.framework import Variable, in_dygraph_mode
from fluid.layer_helper import LayerHelper
from fluid.layers.control.blocks import BlockGuard, inputs_and_outputs, parent_block
from fluid.layers.control.nested import (
    Structure,
    assert_same_structure,
    flatten,
    is_sequence,
    map_structure,
    pack_sequence_as,
)
from fluid.layers.tensor import assign
from fluid.recording import narrowing
from fluid.recording.checks import check_type
from fluid.recording.var_types import VarDesc

__all__ = ["While", "while_loop"]


class While:
    """A block that runs as long as `cond`, one boolean, is true; it must change `cond`.

    For example::

        loop = While(cond)
        with loop.block():
            …
            layers.less_than(step, last, cond=cond)

    Raises TypeError for a condition that is no boolean or more than one.
    """

    BEFORE_WHILE_BLOCK = 0
    IN_WHILE_BLOCK = 1
    AFTER_WHILE_BLOCK = 2

    def __init__(self, cond: Variable, is_test: bool = False, name: str | None = None) -> None:
        self.helper = LayerHelper("while", name=name)
        self.status = self.BEFORE_WHILE_BLOCK
        _check_condition(cond, "condition", "be")
        self.cond_var = cond
        self.is_test = is_test

    def block(self) -> WhileGuard:
        """Return a guard: layers called in its `with` statement are appended to the loop body."""
        return WhileGuard(self)

    def complete(self) -> None:
        """Append the op that owns the current block to its parent block."""
        program = self.helper.main_program
        inside, parent = program.current_block(), parent_block(program)
        read, written = inputs_and_outputs(inside.ops, [self.cond_var.name])
        outer = [name for name in written if parent.find_var_recursive(name) is not None]
        scopes = parent.create_var(type=VarDesc.VarType.STEP_SCOPES)
        parent.append_op(
            "while",
            inputs={"X": [parent.var_recursive(n) for n in read], "Condition": self.cond_var},
            outputs={"Out": outer, "StepScopes": scopes},
            attrs={"sub_block": inside, "is_test": self.is_test},
        )


def _check_condition(cond: object, what: str, must: str) -> None:
    if not isinstance(cond, Variable):
        raise TypeError(f"{what} should {must} a variable, but received {type(cond).__name__}")
    if cond.dtype != VarDesc.VarType.BOOL:
        raise TypeError(
            f"{what} should {must} a boolean variable, but {cond.name!r} is {cond.dtype.name}"
        )
    if math.prod(cond.shape) != 1:
        raise TypeError(
            f"{what} should {must} one boolean, but {cond.name!r} has the shape {list(cond.shape)}"
        )


class WhileGuard(BlockGuard):
    """Guard returned by `While.block`."""

    def __init__(self, while_op: While) -> None:
        check_type(while_op, "while_op", While, "WhileGuard")
        super().__init__(while_op.helper.main_program)
        self.while_op = while_op

    def __enter__(self) -> None:
        self.while_op.status = While.IN_WHILE_BLOCK
        super().__enter__()

    def complete(self) -> None:
        """Append the op that owns the block."""
        self.while_op.status = While.AFTER_WHILE_BLOCK
        self.while_op.complete()


def while_loop(
    cond: Callable[..., Variable],
    body: Callable[..., Structure],
    loop_vars: list[Structure] | tuple[Structure, ...],
    is_test: bool = False,
    name: str | None = None,
) -> list[Structure] | tuple[Structure, ...]:
    """Run `loop_vars = body(*loop_vars)` while `cond(*loop_vars)` is true.

    `body` returns as many variables as it takes, in the same structure. Returns `loop_vars`, which
    hold the final values. Raises TypeError for arguments of other types and for a condition that is
    not boolean, ValueError if `body` returns another structure.

    >>> import fluid
    >>> i, ten = (fluid.layers.fill_constant([1], "int64", n) for n in (0, 10))
    >>> (i,) = fluid.layers.while_loop(lambda i: i < ten, lambda i: i + 1, [i])
    """
    LayerHelper("while_loop", name=name)
    for function, argument in ((cond, "cond"), (body, "body")):
        if not callable(function):
            raise TypeError(f"{argument} in while_loop should be callable")
    if len(loop_vars) == 0:
        raise ValueError("loop_vars in while_loop should not be empty")
    if in_dygraph_mode():
        return _looped(cond, body, loop_vars)
    condition = cond(*loop_vars)
    _check_condition(condition, "cond in while_loop", "return")
    with While(condition, is_test, name).block():
        _append_step(cond, body, loop_vars, condition)
    return loop_vars


def _looped(
    cond: Callable[..., Variable],
    body: Callable[..., Structure],
    loop_vars: list[Structure] | tuple[Structure, ...],
) -> list[Structure] | tuple[Structure, ...]:
    """Run a loop in Python, on eager variables."""
    values = loop_vars
    while cond(*values).is_true():
        result: object = body(*values)
        several = narrowing.is_sequence(result)
        values = cast("list[Structure]", list(result) if several else [result])
        if len(values) != len(loop_vars):
            raise ValueError(
                "body in while_loop should return the same arity (length and structure) as "
                f"loop_vars: {len(values)} and {len(loop_vars)} items"
            )
    return values


def _append_step(
    cond: Callable[..., Variable],
    body: Callable[..., Structure],
    loop_vars: list[Structure] | tuple[Structure, ...],
    condition: Variable,
) -> None:
    """Append one iteration: the body, then copies of its results to the loop variables."""
    # The body receives copies of lists and dicts, which it may modify.
    nested = any(is_sequence(variable) for variable in loop_vars)
    arguments = pack_sequence_as(loop_vars, flatten(loop_vars)) if nested else loop_vars
    result: object = body(*arguments)
    results = result if narrowing.is_sequence(result) else [result]
    try:
        assert_same_structure(results, loop_vars, check_types=False)
    except ValueError as error:
        raise ValueError(
            "body in while_loop should return the same arity (length and structure) as "
            f"loop_vars: {error}"
        ) from None
    again = cond(*results)
    map_structure(assign, results, loop_vars)
    assign(again, condition)
