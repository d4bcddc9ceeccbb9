"""Branches: `cond`, `case`, `switch_case`, `Switch`, and row-wise `IfElse`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import TracebackType

from fluid import unique_name
from fluid.framework import Block, Variable, in_dygraph_mode
from fluid.layer_helper import LayerHelper
from fluid.layers.control.arrays import merge_lod_tensor, select_input
from fluid.layers.control.blocks import (
    ConditionalBlock,
    ConditionalBlockGuard,
    create_parent_variable,
    parent_block,
)
from fluid.layers.control.logic import equal, logical_and, logical_not
from fluid.layers.control.nested import Structure, assert_same_structure, is_dict, map_structure
from fluid.layers.tensor import assign, cast, fill_constant
from fluid.recording.checks import (
    check_type,
    check_variable,
    check_variable_and_dtype,
    convert_dtype,
)
from fluid.recording.narrowing import is_sequence

__all__ = ["IfElse", "Switch", "case", "cond", "switch_case"]

Branch = Callable[[], object]


def cond(
    pred: Variable,
    true_fn: Branch | None = None,
    false_fn: Branch | None = None,
    name: str | None = None,
) -> Structure:
    """Return the result of `true_fn` if `pred` (one boolean) is true, else that of `false_fn`.

    Only the selected branch runs. Both return the same structure of variables, or None. Raises
    TypeError for a branch that is not callable or a predicate that is not boolean, ValueError if
    the structures differ.

    >>> import fluid
    >>> x = fluid.data("x", [3])
    >>> small = fluid.layers.reduce_mean(x) < 1.0
    >>> y = fluid.layers.cond(small, lambda: x * 2.0, lambda: x - 1.0)
    >>> y.shape
    (3,)
    """
    check_variable_and_dtype(pred, "pred", ["bool"], "fluid.layers.cond")
    check_type(name, "name", (str, type(None)), "fluid.layers.cond")
    if in_dygraph_mode():
        branch = true_fn if pred.is_true() else false_fn
        return None if branch is None else branch()
    helper = LayerHelper("cond", name=name)
    taken = None if true_fn is None else _append_branch(pred, true_fn, "true_fn", helper)
    other = None
    if false_fn is not None:
        _check_function(false_fn, "false_fn")
        other = _append_branch(logical_not(pred), false_fn, "false_fn", helper)
    if taken is None and other is None:
        return None
    _check_same(taken, other)
    mask = cast(pred, dtype="int32")
    return map_structure(lambda no, yes: select_input([no, yes], mask), other, taken)


def _check_function(function: object, argument: str) -> None:
    if not callable(function):
        kind = type(function).__name__
        raise TypeError(f"The {argument} in cond must be callable, but received {kind}")


def _append_branch(
    condition: Variable, function: Branch, argument: str, helper: LayerHelper
) -> Structure:
    """Append a conditional block; copy the results of `function` to variables of this block."""
    _check_function(function, argument)
    block = ConditionalBlock([condition], is_scalar_condition=True)
    with block.block():
        result = function()
        if result is None:
            return None
        return map_structure(lambda var: _copy_to_parent(var, helper), result)


def _copy_to_parent(var: Variable | None, helper: LayerHelper) -> Variable | None:
    if var is None:
        return None
    check_variable(var, "the result of a function", "fluid.layers.cond")
    outside = create_parent_variable(helper.main_program, var)
    assign(var, outside)
    return outside


def _check_same(taken: Structure, other: Structure) -> None:
    """Raise ValueError if the branches of `cond` return different structures."""
    intro = "Incompatible return values of true_fn and false_fn in cond: "
    if taken is None or other is None:
        sides = ("true_fn", "false_fn") if taken is None else ("false_fn", "true_fn")
        raise ValueError(f"{intro}{sides[0]} returns None while {sides[1]} returns non-None")
    try:
        assert_same_structure(taken, other, check_types=False)
    except ValueError as error:
        raise ValueError(f"{intro}{error}") from None


def case(
    pred_fn_pairs: Sequence[tuple[Variable, Branch]],
    default: Branch | None = None,
    name: str | None = None,
) -> Structure:
    """Return the result of the first pair (predicate, function) whose predicate is true.

    If none is true, `default` runs; without it, the last pair's function. Raises TypeError for
    malformed pairs.

    >>> import fluid
    >>> x = fluid.data("x", [3])
    >>> mean = fluid.layers.reduce_mean(x)
    >>> fluid.layers.case([(mean < 1.0, lambda: x), (mean < 2.0, lambda: x * 2.0)]).shape
    (3,)
    """
    LayerHelper("case", name=name)
    check_type(pred_fn_pairs, "pred_fn_pairs", (list, tuple), "case")
    for pair in pred_fn_pairs:
        _check_pair(pair)
    if default is None:
        *pred_fn_pairs, (_, default) = pred_fn_pairs
    elif not callable(default):
        raise TypeError("The default in Op(case) must be callable.")
    return _nested_cond(list(reversed(pred_fn_pairs)), default)


def _check_pair(pair: object) -> None:
    if not is_sequence(pair) or not isinstance(pair, tuple):
        kind = type(pair).__name__
        raise TypeError(f"The elements of 'pred_fn_pairs' in case must be tuples, not {kind}")
    if len(pair) != 2:
        raise TypeError(f"The tuples of 'pred_fn_pairs' in case have 2 items, not {len(pair)}")
    pred, function = pair
    if not isinstance(pred, Variable):
        kind = type(pred).__name__
        raise TypeError(f"The pred of 'pred_fn_pairs' in case must be a Variable, not {kind}")
    if not callable(function):
        raise TypeError(f"The fn for {pred.name} of pred_fn_pairs in Op(case) must be callable.")


def _nested_cond(pairs: Sequence[tuple[Variable, Branch]], default: Branch) -> Structure:
    """Append nested `cond` layers, the last pair outermost."""
    function = default
    for pred, branch in pairs:
        function = _cond_branch(pred, branch, function)
    return function()


def _cond_branch(pred: Variable, branch: Branch, otherwise: Branch) -> Branch:
    return lambda: cond(pred, branch, otherwise)


def switch_case(
    branch_index: Variable,
    branch_fns: Mapping[int, Branch] | Sequence[Branch] | Sequence[tuple[int, Branch]],
    default: Branch | None = None,
    name: str | None = None,
) -> Structure:
    """Return the result of the branch with index `branch_index`, else that of `default`.

    Branches are listed with their indices, or have indices 0, 1, …; without `default`, the branch
    of the largest index is the default. Raises TypeError for malformed branches, ValueError for
    duplicate indices.

    >>> import fluid
    >>> x, way = fluid.data("x", [3]), fluid.data("way", [1], "int32")
    >>> fluid.layers.switch_case(way, {1: lambda: x, 2: lambda: x * 2.0}).shape
    (3,)
    """
    LayerHelper("switch_case", name=name)
    indices = ["uint8", "int32", "int64"]
    check_variable_and_dtype(branch_index, "branch_index", indices, "switch_case")
    if convert_dtype(branch_index.dtype) != "int64":
        branch_index = cast(branch_index, "int64")
    branches = _branches_by_index(branch_fns)
    if default is None:
        *branches, (_, default) = sorted(branches, key=lambda branch: branch[0])
    elif not callable(default):
        raise TypeError("The default in Op(case) must be callable.")
    pairs: list[tuple[Variable, Branch]] = []
    for index, function in branches:
        number = fill_constant(shape=[1], dtype="int64", value=index)
        pairs.append((equal(branch_index, number), function))
    return _nested_cond(pairs, default)


def _branches_by_index(branches: object) -> list[tuple[int, Branch]]:
    """Return branches with their indices; TypeError or ValueError if malformed."""
    check_type(branches, "branch_fns", (list, tuple, dict), "switch_case")
    listed = list(branches.items()) if is_dict(branches) else branches
    items: list[object] = list(listed) if is_sequence(listed) else []
    if all(callable(item) for item in items):
        items = list(enumerate(items))
    by_index: dict[int, Branch] = {}
    for item in items:
        index, function = _checked_branch(item)
        if index in by_index:
            raise ValueError(f"The key in 'branch_fns' must be unique, but {index} appears twice")
        if not callable(function):
            raise TypeError(f"The function for key {index} in switch_case must be callable")
        by_index[index] = function
    return list(by_index.items())


def _checked_branch(item: object) -> tuple[int, object]:
    if not is_sequence(item) or not isinstance(item, tuple) or len(item) != 2:
        raise TypeError(f"'branch_fns' in switch_case holds {item!r}, not (index, function)")
    index, function = item
    if not isinstance(index, int):
        kind = type(index).__name__
        raise TypeError(f"The key of 'branch_fns' in switch_case must be an int, not {kind}")
    return index, function


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
        """Return a guard for the block that runs if `condition` is the first true one.

        Raises ValueError outside `with Switch()`, TypeError if `condition` is not boolean.
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
        """Return a guard for the block that runs if no case matches; ValueError without cases."""
        if not self.pre_not_conditions:
            raise ValueError("there should be at least one condition")
        last = self.pre_not_conditions[-1]
        return ConditionalBlock([last], is_scalar_condition=True).block()

    def __enter__(self) -> Switch:
        self.inside_scope = True
        return self

    def __exit__(self, *error: object) -> None:
        self.inside_scope = False


class IfElse:
    """Two blocks for the rows of a batch: those for which `cond` [rows, 1] is true, and the others.

    For example::

        choice = IfElse(cond)
        with choice.true_block():
            choice.output(layers.fc(choice.input(x), 3))
        with choice.false_block():
            choice.output(layers.fc(choice.input(x), 3, act="relu"))
        (out,) = choice()
    """

    OUT_IF_ELSE_BLOCKS = 0
    IN_IF_ELSE_TRUE_BLOCKS = 1
    IN_IF_ELSE_FALSE_BLOCKS = 2

    def __init__(self, cond: Variable, name: str | None = None) -> None:
        check_variable(cond, "cond", "fluid.layers.IfElse")
        check_type(name, "name", (str, type(None)), "fluid.layers.IfElse")
        self.helper = LayerHelper("ifelse", name=name)
        self.cond = cond
        self.input_table: dict[str, tuple[Variable, Variable]] = {}
        self.status = self.OUT_IF_ELSE_BLOCKS
        self.conditional_true_block = ConditionalBlock([cond])
        self.conditional_false_block = ConditionalBlock([cond])
        self.output_table: tuple[list[Variable], list[Variable]] = ([], [])

    def input(self, x: Variable) -> Variable:
        """Return the rows of `x` for the current block; ValueError outside the blocks."""
        if self.status == self.OUT_IF_ELSE_BLOCKS:
            raise ValueError("input must in true/false blocks")
        check_variable(x, "x", "fluid.layers.IfElse.input")
        if x.name not in self.input_table:
            self.input_table[x.name] = self._split(x)
        true_rows, false_rows = self.input_table[x.name]
        return true_rows if self.status == self.IN_IF_ELSE_TRUE_BLOCKS else false_rows

    def _split(self, x: Variable) -> tuple[Variable, Variable]:
        parent, stem = self._parent_block(), "ifelse_input" + self.helper.name
        true_rows = parent.create_var(name=unique_name.generate(stem), dtype=x.dtype)
        false_rows = parent.create_var(name=unique_name.generate(stem), dtype=x.dtype)
        parent.append_op(
            "split_lod_tensor",
            inputs={"X": x, "Mask": self.cond},
            outputs={"OutTrue": true_rows, "OutFalse": false_rows},
            attrs={"level": 0},
        )
        return true_rows, false_rows

    def _parent_block(self) -> Block:
        return parent_block(self.helper.main_program)

    def true_block(self) -> IfElseBlockGuard:
        """Return the guard of the block for rows whose condition is true."""
        return IfElseBlockGuard(True, self)

    def false_block(self) -> IfElseBlockGuard:
        """Return the guard of the block for rows whose condition is false."""
        return IfElseBlockGuard(False, self)

    def output(self, *outs: Variable) -> None:
        """Append to the outputs of the current block; ValueError outside the blocks."""
        if self.status == self.OUT_IF_ELSE_BLOCKS:
            raise ValueError("output can only be invoked in the sub-block")
        for variable in outs:
            check_variable(variable, "each output", "fluid.layers.IfElse.output")
            name = unique_name.generate(f"{self.helper.name}_output")
            outside = self._parent_block().create_var(name=name, dtype=variable.dtype)
            self.output_table[self.status == self.IN_IF_ELSE_TRUE_BLOCKS].append(outside)
            assign(variable, outside)

    def __call__(self) -> list[Variable]:
        """Return the outputs of both blocks merged by row, or those of the only block.

        Raises ValueError inside a block, without any block, and if the numbers of outputs differ.
        """
        if self.status != self.OUT_IF_ELSE_BLOCKS:
            raise ValueError("IfElse::__call__ must be out of sub-block")
        of_false, of_true = self.output_table
        if not of_false and not of_true:
            raise ValueError("Must invoke true_block/false_block before __call__")
        if not of_false or not of_true:
            return of_false or of_true
        if len(of_false) != len(of_true):
            raise ValueError(
                f"The output side must be same, but {len(of_true)} come from true_block and "
                f"{len(of_false)} from false_block"
            )
        pairs = zip(of_true, of_false, strict=True)
        return [merge_lod_tensor(yes, no, self.cond, self.cond, 0) for yes, no in pairs]


class IfElseBlockGuard:
    """Guard returned by `IfElse.true_block` and `IfElse.false_block`."""

    def __init__(self, is_true: bool, ifelse: IfElse) -> None:
        check_type(ifelse, "ifelse", IfElse, "IfElseBlockGuard")
        if ifelse.status != IfElse.OUT_IF_ELSE_BLOCKS:
            raise ValueError("You cannot invoke IfElse.block() inside a block")
        self.is_true = is_true
        self.ifelse = ifelse
        blocks = ifelse.conditional_false_block, ifelse.conditional_true_block
        self.guard = blocks[is_true].block()

    def __enter__(self) -> None:
        inside = IfElse.IN_IF_ELSE_TRUE_BLOCKS, IfElse.IN_IF_ELSE_FALSE_BLOCKS
        self.ifelse.status = inside[not self.is_true]
        self.guard.__enter__()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.guard.__exit__(kind, error, trace)
        self.ifelse.status = IfElse.OUT_IF_ELSE_BLOCKS
        if kind is None and not self.ifelse.output_table[self.is_true]:
            raise ValueError("Must set output inside block")
