"""Branches of rewritten functions: Python's, or both of them as ops of the current program.

A condition that is a variable of a program is recorded, with the names that the statement writes as
outputs. Python's values stay Python's where both branches agree on them, and otherwise become
tensors.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from compiler.support.dataclass import dataclass
from fluid.dygraph.dygraph_to_static.program_states import ProgramState
from fluid.dygraph.dygraph_to_static.recorded_blocks import (
    common_sizes,
    list_lengths_differ,
    lists_to_arrays,
    new_block,
    within,
)
from fluid.dygraph.dygraph_to_static.values import (
    MISSING,
    UNDEFINED,
    State,
    Value,
    as_condition,
    as_tensor,
    is_array,
    is_number,
    is_static,
    leaves,
    placeholder,
    rebuilt,
    refilled,
    same,
    same_structure,
    shown,
    truth,
)
from fluid.framework import Block, Variable, default_main_program
from fluid.layers.control.arrays import select_input
from fluid.layers.control.blocks import ConditionalBlock
from fluid.layers.control.logic import logical_not
from fluid.layers.tensor import assign, cast
from fluid.recording.op_records import user_line

__all__ = ["convert_if", "convert_return"]

Part = Callable[[], Value]


def convert_if(test: Value, taken: Part, other: Part, state: State) -> None:
    """Run one of two parts, or record both as the branches of a tensor."""
    if is_static(test):
        _record_branches(as_condition(test), (taken, other), state, returns=False)
    else:
        (taken if truth(test) else other)()


def convert_return(test: Value, taken: Part, other: Part, state: State) -> Value:
    """Return the result of one of two parts, or what a tensor selects of both results."""
    if is_static(test):
        return _record_branches(as_condition(test), (taken, other), state, returns=True)
    return (taken if truth(test) else other)()


@dataclass
class _Branch:
    """A recorded branch: its condition and block, and the values after it.

    `objects` has the values of the names themselves, `values` copies of them and the result.
    """

    condition: Variable
    block: Block
    objects: list[Value]
    values: list[Value]


def _record_branches(
    test: Variable, parts: tuple[Part, Part], state: State, returns: bool
) -> Value:
    before, program_before = state.saved(), ProgramState()
    arrays: set[int] = set()
    while True:
        branches: list[_Branch] = []
        for condition, part in zip((test, logical_not(test)), parts, strict=True):
            state.restore(before)
            lists_to_arrays(state, arrays)
            branches.append(_recorded_branch(condition, part, state, returns))
        grown = _different_lists(branches, state) - arrays
        if not grown:
            break
        arrays |= grown
        program_before.restore()
    merged = _Merge(test, branches)
    names = [*state.names, *(["the result"] if returns else [])]
    kept = {*state.kept, "the result"}
    values = [
        merged.value(name, [branch.values[index] for branch in branches])
        if name in kept
        else UNDEFINED
        for index, name in enumerate(names)
    ]
    merged.complete()
    selected = [merged.selected(value) for value in values]
    state.restore(before)
    pairs = zip(branches[0].objects, branches[1].objects, selected, strict=False)
    state.set([refilled(one, new) if one is two else new for one, two, new in pairs])
    return selected[-1] if returns else None


def _recorded_branch(condition: Variable, part: Part, state: State, returns: bool) -> _Branch:
    with new_block() as block:
        result = part()
    values = [*state.values(), *([result] if returns else [])]
    return _Branch(condition, block, state.current_values(), values)


def _different_lists(branches: Sequence[_Branch], state: State) -> set[int]:
    """Return the indices of names that are lists of different lengths after the branches."""
    pairs = zip(state.names, branches[0].values, branches[1].values, strict=False)
    return {
        index
        for index, (name, one, two) in enumerate(pairs)
        if name in state.kept and list_lengths_differ(one, two)
    }


class _Merge:
    """The values that two branches give to names, as values after them."""

    def __init__(self, test: Variable, branches: Sequence[_Branch]) -> None:
        self._test = test
        self._branches = branches
        self._mask: Variable | None = None
        self._pairs: dict[int, tuple[Variable, Variable]] = {}

    def value(self, name: str, values: Sequence[Value]) -> Value:
        """Return a value of a name, in which tensors still have to be selected.

        Raises TypeError if the branches give values that no tensor can have.
        """
        taken, other = values
        if taken is UNDEFINED or other is UNDEFINED:
            defined = other if taken is UNDEFINED else taken
            if defined is UNDEFINED:
                return UNDEFINED
            filled = [MISSING if isinstance(leaf, Variable) else leaf for leaf in leaves(defined)]
            values = [rebuilt(defined, filled) if value is UNDEFINED else value for value in values]
            taken, other = values
        if not same_structure(taken, other):
            raise _differs(name, taken, other)
        pairs = zip(leaves(taken), leaves(other), strict=True)
        return rebuilt(taken, [self._leaf(name, *pair, values) for pair in pairs])

    def _leaf(self, name: str, taken: Value, other: Value, values: Sequence[Value]) -> Value:
        if same(taken, other) or is_array(taken):
            return taken
        leaf = [taken, other]
        known = [value for value in leaf if isinstance(value, Variable)]
        if not all(
            isinstance(value, Variable) or is_number(value) or value is MISSING for value in leaf
        ):
            raise _differs(name, *values)
        like = known[0] if known else None
        if len(known) == 2 and known[0].dtype != known[1].dtype:
            raise TypeError(
                f"{user_line()}: {name!r} is {known[0].element.text} in one branch of an `if` on a "
                f"tensor and {known[1].element.text} in the other: cast one of them"
            )
        outside: list[Variable] = []
        block = default_main_program().current_block()
        for branch, value in zip(self._branches, leaf, strict=True):
            with within(branch.block):
                tensor = placeholder(known[0]) if value is MISSING else as_tensor(value, like)
                out = block.create_var(dtype=tensor.dtype, shape=tensor.shape, type=tensor.type)
                assign(tensor, out)
            outside.append(out)
        return _Selected(outside[0], outside[1])

    def complete(self) -> None:
        """Append the ops that own the blocks."""
        for branch in self._branches:
            with within(branch.block):
                ConditionalBlock([branch.condition], is_scalar_condition=True).complete()

    def selected(self, value: Value) -> Value:
        """Return a value with the tensors of the branch that ran."""
        return rebuilt(value, [self._select(leaf) for leaf in leaves(value)])

    def _select(self, leaf: Value) -> Value:
        if not isinstance(leaf, _Selected):
            return leaf
        if self._mask is None:
            self._mask = cast(self._test, "int32")
        out = select_input([leaf.other, leaf.taken], self._mask)
        out.dims = common_sizes(leaf.taken.dims, leaf.other.dims)
        return out


@dataclass(frozen=True)
class _Selected:
    """A tensor that is one of two."""

    taken: Variable
    other: Variable


def _differs(name: str, taken: object, other: object) -> TypeError:
    return TypeError(
        f"{user_line()}: {name!r} is {shown(taken)} in one branch of an `if` on a tensor, and "
        f"{shown(other)} in the other: both branches are recorded, so let both give tensors, or "
        "the same value"
    )
