"""Counters, comparisons, and blocks that run only under a condition."""

from __future__ import annotations

from collections.abc import Sequence
from types import TracebackType
from typing import Any

from fluid.checks import check_type, check_variable, check_variable_and_dtype
from fluid.core import VarDesc
from fluid.framework import Program, Variable
from fluid.layer_helper import LayerHelper

__all__ = [
    "ConditionalBlock",
    "Switch",
    "equal",
    "greater_equal",
    "greater_than",
    "increment",
    "less_equal",
    "less_than",
    "logical_and",
    "logical_not",
    "logical_or",
    "logical_xor",
    "not_equal",
]


def increment(x: Variable, value: float = 1.0, in_place: bool = True) -> Variable:
    """`x + value` for a tensor of one element, in place or as a new one."""
    check_variable(x, "x", "increment")
    helper = LayerHelper("increment")
    out = x if in_place else helper.create_variable_for_type_inference(x.dtype)
    attrs = {"step": float(value)}
    helper.append_op("increment", inputs={"X": x}, outputs={"Out": out}, attrs=attrs)
    return out


# ---- comparisons and logic ----------------------------------------------------------------------


def _boolean(
    op_type: str,
    inputs: dict[str, Variable],
    out: Variable | None,
    name: str | None = None,
    **attrs: Any,
) -> Variable:
    """Append an op whose result is of booleans, into `out` if given."""
    for slot, var in inputs.items():
        check_variable(var, slot.lower(), op_type)
    helper = LayerHelper(op_type, name=name)
    if out is None:
        out = helper.create_variable_for_type_inference("bool", stop_gradient=True)
    helper.append_op(op_type, inputs=inputs, outputs={"Out": out}, attrs=attrs)
    return out


def less_than(
    x: Variable, y: Variable, force_cpu: bool | None = None, cond: Variable | None = None
) -> Variable:
    """`x < y`, element by element, into `cond` if given."""
    return _boolean("less_than", {"X": x, "Y": y}, cond, force_cpu=force_cpu)


def less_equal(x: Variable, y: Variable, cond: Variable | None = None) -> Variable:
    """`x <= y`, element by element, into `cond` if given."""
    return _boolean("less_equal", {"X": x, "Y": y}, cond)


def greater_than(x: Variable, y: Variable, cond: Variable | None = None) -> Variable:
    """`x > y`, element by element, into `cond` if given."""
    return _boolean("greater_than", {"X": x, "Y": y}, cond)


def greater_equal(x: Variable, y: Variable, cond: Variable | None = None) -> Variable:
    """`x >= y`, element by element, into `cond` if given."""
    return _boolean("greater_equal", {"X": x, "Y": y}, cond)


def equal(x: Variable, y: Variable, cond: Variable | None = None) -> Variable:
    """`x == y`, element by element, into `cond` if given."""
    return _boolean("equal", {"X": x, "Y": y}, cond)


def not_equal(x: Variable, y: Variable, cond: Variable | None = None) -> Variable:
    """`x != y`, element by element, into `cond` if given."""
    return _boolean("not_equal", {"X": x, "Y": y}, cond)


def logical_and(
    x: Variable, y: Variable, out: Variable | None = None, name: str | None = None
) -> Variable:
    """`x and y`, element by element, into `out` if given."""
    return _boolean("logical_and", {"X": x, "Y": y}, out, name)


def logical_or(
    x: Variable, y: Variable, out: Variable | None = None, name: str | None = None
) -> Variable:
    """`x or y`, element by element, into `out` if given."""
    return _boolean("logical_or", {"X": x, "Y": y}, out, name)


def logical_xor(
    x: Variable, y: Variable, out: Variable | None = None, name: str | None = None
) -> Variable:
    """Exactly one of x and y, element by element, into `out` if given."""
    return _boolean("logical_xor", {"X": x, "Y": y}, out, name)


def logical_not(x: Variable, out: Variable | None = None, name: str | None = None) -> Variable:
    """Not x, element by element, into `out` if given."""
    return _boolean("logical_not", {"X": x}, out, name)


# ---- blocks -------------------------------------------------------------------------------------


class BlockGuard:
    """Layers called within a `with` block append to a new block inside the current one.

    An error within takes the block out again.
    """

    def __init__(self, main_program: Program) -> None:
        check_type(main_program, "main_program", Program, "BlockGuard")
        self.main_program = main_program

    def __enter__(self) -> None:
        self.main_program._create_block()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        index = self.main_program.current_block_idx
        self.main_program._rollback()
        if kind is not None:
            del self.main_program.blocks[index:]


class ConditionalBlock:
    """A block that runs where all elements of `inputs` are true, or their only one is.

    with ConditionalBlock([condition], is_scalar_condition=True).block(): …
    """

    def __init__(
        self,
        inputs: Sequence[Variable],
        is_scalar_condition: bool = False,
        name: str | None = None,
    ) -> None:
        for each in inputs:
            check_variable(each, "inputs", "ConditionalBlock")
        self.inputs = list(inputs)
        self.is_scalar_condition = is_scalar_condition
        self.helper = LayerHelper("conditional_block", name=name)

    def block(self) -> ConditionalBlockGuard:
        """The guard of a `with` statement; layers called within it go into the block."""
        return ConditionalBlockGuard(self)

    def complete(self) -> None:
        """Append the op that owns the current block to the block around it."""
        program = self.helper.main_program
        inside = program.current_block()
        parent = program.block(inside.parent_idx)
        read, written = _traffic(inside)
        outer = [name for name in written if parent._find_var_recursive(name) is not None]
        scope = parent.create_var(type=VarDesc.VarType.STEP_SCOPES)
        parent.append_op(
            "conditional_block",
            inputs={"Cond": self.inputs, "Input": [parent._var_recursive(n) for n in read]},
            outputs={"Out": outer, "Scope": scope},
            attrs={"sub_block": inside, "is_scalar_condition": self.is_scalar_condition},
        )


def _traffic(block: Any) -> tuple[list[str], list[str]]:
    """Names a block reads before it writes them, and names it writes, in order of appearance."""
    read: dict[str, None] = {}
    written: dict[str, None] = {}
    for op in block.ops:
        read |= {name: None for name in op.reads() if name not in written}
        written |= dict.fromkeys(op.writes())
    return list(read), list(written)


class ConditionalBlockGuard(BlockGuard):
    """The guard that `ConditionalBlock.block` returns."""

    def __init__(self, block: ConditionalBlock) -> None:
        check_type(block, "block", ConditionalBlock, "ConditionalBlockGuard")
        super().__init__(block.helper.main_program)
        self.block = block

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if kind is None:
            self.block.complete()
        super().__exit__(kind, error, trace)


class Switch:
    """The first case whose condition is true, or else the default.

    with Switch() as switch:
        with switch.case(step < 10): …
        with switch.default(): …
    """

    def __init__(self, name: str | None = None) -> None:
        self.helper = LayerHelper("switch", name=name)
        self.inside_scope = False
        self.pre_not_conditions: list[Variable] = []

    def case(self, condition: Variable) -> ConditionalBlockGuard:
        """What to do where `condition`, one boolean, is true and none before it was.

        Raises ValueError outside of `with Switch()`, TypeError for what is no boolean.
        """
        if not self.inside_scope:
            raise ValueError("case should be called inside with")
        check_variable_and_dtype(condition, "condition", ["bool"], "Switch.case")
        refused = logical_not(condition)
        if self.pre_not_conditions:
            before = self.pre_not_conditions[-1]
            refused = logical_and(before, refused)
            condition = logical_and(before, condition)
        self.pre_not_conditions.append(refused)
        return ConditionalBlock([condition], is_scalar_condition=True).block()

    def default(self) -> ConditionalBlockGuard:
        """What to do where no case was taken; ValueError where there is none before it."""
        if not self.pre_not_conditions:
            raise ValueError("there should be at least one condition")
        last = self.pre_not_conditions[-1]
        return ConditionalBlock([last], is_scalar_condition=True).block()

    def __enter__(self) -> Switch:
        self.inside_scope = True
        return self

    def __exit__(self, *error: object) -> None:
        self.inside_scope = False
