"""Branches whose results differ in rank or dtype: one specialised program per taken branch.

Every value of compiled code has one static type. If `cond`, `case` or `switch_case` makes a type
depend on the condition, the condition is computed first, and the program that runs has the taken
branch inlined in place of the op. So it is with `Switch` if a branch changes the type of
persistable state.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import cast

import numpy as np

from compiler.errors import ShapeError
from compiler.ir.opdef.type_inference import op_text
from compiler.ir.program import EMPTY, GRAD, BlockRef
from compiler.ir.types import Array
from compiler.support.dataclass import dataclass
from compiler.support.per_version import PerVersion
from fluid.framework import Block, Operator, Program
from fluid.recording.pruning import drop_blocks
from fluid.running.fetched_values import Value
from fluid.running.route import ProgramRunner
from fluid.running.state_types import retyped_state
from runtime.device import CPUPlace
from runtime.tensors.scope import Scope

__all__ = ["BranchesTaken", "expect_one_type"]


@dataclass
class _Choice:
    """The first branch op of a program that decides a type, by the variable of its condition.

    It is the `Mask` of a `select_input`, or the `Cond` of a `conditional_block` that writes state.
    `conditions` are the programs that compute it, by the names of their feeds; `branches` those
    with a branch inlined, by the value of the condition; `latest` is the one that ran last, with
    all further choices made.
    """

    mask: str
    slot: str
    conditions: dict[tuple[str, ...], Program] = field(
        default_factory=dict[tuple[str, ...], Program]
    )
    branches: dict[int, Program] = field(default_factory=dict[int, Program])
    latest: Program | None = None


class BranchesTaken:
    """Runs programs specialised to the branches now taken, which are cached by the conditions.

    `routes` runs the specialised programs, and those that compute the conditions.
    """

    def __init__(self, routes: ProgramRunner) -> None:
        self._routes = routes
        self._choices = PerVersion(_first_choice)

    def applies(self, program: Program) -> bool:
        """Whether a branch op decides a type. Raises ShapeError if it is in a loop."""
        return self._choices[program] is not None

    def run(
        self, program: Program, feed: Mapping[str, Array], fetch: tuple[str, ...], scope: Scope,
        on_device: bool = False,
    ) -> Sequence[Value]:  # fmt: skip
        """Run the specialised program; raises ShapeError as `settled`, and what its run raises."""
        settled = self.settled(program, feed, scope)
        return self._routes.run(settled, feed, fetch, scope, on_device)

    def latest(self, program: Program) -> Program:
        """The program that ran last for the current version of `program`."""
        choice = self._choices.get(program)
        return program if choice is None else choice.latest or program

    def settled(self, program: Program, feed: Mapping[str, Array], scope: Scope) -> Program:
        """Return the program, with every type-deciding branch op replaced by the branch now taken.

        The conditions are computed first; state that this changes is restored. Raises ShapeError
        for a type-deciding branch in a loop.
        """
        first = choice = self._choices[program]
        while choice is not None:
            taken = int(np.asarray(self._condition(program, choice, feed, scope)).item())
            if taken not in choice.branches:
                choice.branches[taken] = _with_branch(program, choice, taken)
            program = choice.branches[taken]
            choice = self._choices[program]
        if first is not None:
            first.latest = program
        return program

    def _condition(
        self, program: Program, choice: _Choice, feed: Mapping[str, Array], scope: Scope
    ) -> Value:
        """Compute the condition of a choice in a run of the program pruned to it."""
        names = tuple(sorted(feed))
        if names not in choice.conditions:
            choice.conditions[names] = program.prune_with_input(list(names), [choice.mask])
        pruned = choice.conditions[names]
        before = saved_state(pruned, scope)
        try:
            return self._routes.run(pruned, dict(feed), (choice.mask,), scope)[0]
        finally:
            restore(before, scope)


def _first_choice(program: Program) -> _Choice | None:
    """The first branch op of the main block that decides a type, or contains one that does."""
    inner = [op for block in program.blocks for op in block.ops if _decides(block, op)]
    retyping = _retyping(program)
    if not inner and not retyping:
        return None
    for op in program.global_block().ops:
        if op in inner or any(
            branch in retyping or _holds(program, branch, [*inner, *retyping])
            for branch in _branches(program, op)
        ):
            slot = "Mask" if op.type == "select_input" else "Cond"
            return _Choice(op.inputs[slot][0], slot)
    if not inner:
        return None
    raise _differing(
        inner[0], "in a loop", "return values of the same rank and dtype from all branches"
    )


def _branches(program: Program, op: Operator) -> list[Operator]:
    """The branches of a `select_input`, or the op itself if it is a branch that none selects."""
    ops = program.global_block().ops
    if op.type == "select_input":
        return [branch for branch in ops if _makes(branch, op.inputs["X"])]
    selects = (other.inputs["X"] for other in ops if other.type == "select_input")
    is_branch = op.type == "conditional_block" and op.attrs.get("is_scalar_condition")
    return [op] if is_branch and not any(_makes(op, names) for names in selects) else []


def _retyping(program: Program) -> list[Operator]:
    """The branches that write state to which a branch or another op gives another type."""
    branches = [
        op
        for block in program.blocks
        for op in block.ops
        if op.type == "conditional_block" and op.attrs.get("is_scalar_condition")
    ]
    written = {name for op in branches for name in op.writes()}
    if not any(var.persistable and var.name in written for var in program.all_vars()):
        return []
    retyped = retyped_state(program)
    return [op for op in branches if not retyped.isdisjoint(op.writes())]


def expect_one_type(program: Program) -> None:
    """Raise ShapeError if a condition decides a type, since devices could take
    different branches.
    """
    for block in program.blocks:
        for op in (op for op in block.ops if _decides(block, op)):
            raise _differing(op, "on several devices", "run the program on one device")


def _differing(op: Operator, where: str, hint: str) -> ShapeError:
    """The error for branches with results of different types."""
    block = cast(Block, op.block)
    listed = ", ".join(str(block.var_recursive(name).shape) for name in op.inputs["X"])
    what = f"the branches have the shapes {listed} or differ in dtype, {where}"
    return ShapeError(f"select_input: {what}", op=op_text(op), source=op.source, hint=hint)


def _decides(block: Block, op: Operator) -> bool:
    """Whether the type of a branch op's result depends on the condition."""
    if op.type != "select_input":
        return False
    ways = [block.find_var_recursive(name) for name in op.inputs["X"]]
    typed = {(len(v.dims), v.element) for v in ways if v is not None and v.dims is not None}
    return len(typed) > 1


def _makes(op: Operator, names: list[str]) -> bool:
    return op.type == "conditional_block" and not set(names).isdisjoint(op.writes())


def _holds(program: Program, op: Operator, wanted: list[Operator]) -> bool:
    """Whether the blocks of `op` contain one of `wanted`."""
    for ref in (value for value in op.attrs.values() if isinstance(value, BlockRef)):
        ops = program.blocks[ref].ops
        if any(inner_op in wanted or _holds(program, inner_op, wanted) for inner_op in ops):
            return True
    return False


def saved_state(program: Program, scope: Scope) -> dict[str, Array]:
    """Copies of the persistable variables that a program writes."""
    written = {name for op in program.global_block().ops for name in op.writes()}
    names = [var.name for var in program.list_vars() if var.persistable and var.name in written]
    variables = {name: scope.find_var(name) for name in names}
    return {n: np.array(var.get_tensor()) for n, var in variables.items() if var is not None}


def restore(state: dict[str, Array], scope: Scope) -> None:
    """Restore variables to the values of `saved_state`."""
    for name, value in state.items():
        scope.var(name).get_tensor().set(value, CPUPlace())


# ---- a program with one branch of a choice


def _with_branch(program: Program, choice: _Choice, mask: int) -> Program:
    """A copy of the program with all branch ops on a choice's variable resolved to one value."""
    copied = program.copied()
    rewriter = _Taking if choice.slot == "Mask" else _TakingBlock
    rewriter(copied, choice.mask, mask).rewrite()
    drop_blocks(copied)
    copied.touch()
    return copied


class _Taking:
    """Rewriter of the main block for one value of a mask."""

    def __init__(self, program: Program, name: str, mask: int) -> None:
        self.program, self.main = program, program.global_block()
        self.name, self.mask, self.made = name, mask, list[Operator]()
        selects = [op for op in self.main.ops if self._is_choice(op, "select_input")]
        ways = [op.inputs["X"] for op in selects]
        self.taken = {way[mask] for way in ways}
        self.left = {name for way in ways for i, name in enumerate(way) if i != mask}

    def rewrite(self) -> None:
        """Replace the branch ops and their blocks by the taken branch."""
        ops, self.main.ops = list(self.main.ops), []
        for op in ops:
            self._op(op)
        self.main.ops = self.made
        for op in self.made:
            self.main.claim(op)

    def _is_choice(self, op: Operator, kind: str) -> bool:
        return op.type == kind and op.inputs["Mask"] == [self.name]

    def _op(self, op: Operator) -> None:
        grads = op.type == "conditional_block_grad"
        outs = set(op.inputs.get("Out", ()) if grads else op.writes())
        if self._is_choice(op, "select_input"):
            self._assign(op, op.inputs["X"][self.mask], op.outputs["Out"][0])
        elif self._is_choice(op, "select_output"):
            self._assign(op, op.inputs["X"][0], op.outputs["Out"][self.mask])
        elif grads and outs & self.left:
            self._zeros(op)
        elif op.type == "conditional_block" and outs & self.left:
            return
        elif grads and outs & self.taken:
            self._inline_grad(op)
        elif op.type == "conditional_block" and outs & self.taken:
            self._inline(op, {})
        else:
            self.made.append(op)

    def _assign(self, op: Operator, source: str, target: str) -> None:
        self._add(op, "assign", source, target)

    def _add(self, like: Operator, kind: str, source: str, target: str) -> None:
        if target == EMPTY:
            return
        fields = (kind, {"X": [source]}, {"Out": [target]}, {"op_role": like.role}, like.source)
        self.made.append(Operator(self.main, *fields))

    def _zeros(self, op: Operator) -> None:
        """Append zero gradients for a branch that did not run."""
        pairs = zip(op.inputs["Input"], op.outputs["Input@GRAD"], strict=False)
        for name, grad in pairs:
            self._add(op, "fill_zeros_like", name, grad)

    def _inline(self, op: Operator, names: dict[str, str]) -> None:
        """Inline the block of an op in its place; `names` are new names of the
        block's variables.
        """
        block = self.program.block(op.attrs["sub_block"])
        for name, var in block.vars.items():
            moved = var.copied_to(self.main)
            moved.name = names.get(name, name)
            self.main.vars.setdefault(moved.name, moved)
        for inner in block.ops:
            copied = inner.copied_to(self.main)
            _rename(self.program, copied, names)
            self.made.append(copied)
        for inner_block in self.program.blocks:
            inner_block.parent_idx = (
                0 if inner_block.parent_idx == block.idx else inner_block.parent_idx
            )
        block.ops = []

    def _inline_grad(self, op: Operator) -> None:
        """Inline the gradient of a branch, with its captured variables renamed."""
        block = self.program.block(op.attrs["sub_block"])
        written = {name for inner in block.ops for name in inner.writes() if name in block.vars}
        names = {name: f"{name}@BLOCK{block.idx}" for name in written}
        self._inline(op, names)
        pairs = zip(op.inputs["Input"], op.outputs["Input@GRAD"], strict=False)
        for name, grad in pairs:
            if name + GRAD in names:
                self._assign(op, names[name + GRAD], grad)
            else:
                self._add(op, "fill_zeros_like", name, grad)


class _TakingBlock(_Taking):
    """Rewriter of the main block for one value of a condition of `conditional_block`."""

    def _op(self, op: Operator) -> None:
        """Inline or remove a block that depends on the condition; keep any other op."""
        blocks = ("conditional_block", "conditional_block_grad")
        if op.type not in blocks or op.inputs["Cond"] != [self.name]:
            self.made.append(op)
        elif op.type == "conditional_block" and self.mask:
            self._inline(op, {})
        elif op.type == "conditional_block_grad":
            self._inline_grad(op) if self.mask else self._zeros(op)


def _rename(program: Program, op: Operator, names: dict[str, str]) -> None:
    """Rename variables of an op and of the blocks it owns."""
    if not names:
        return
    for slots in (op.inputs, op.outputs):
        for slot, slot_names in slots.items():
            slots[slot] = [names.get(name, name) for name in slot_names]
    for ref in (value for value in op.attrs.values() if isinstance(value, BlockRef)):
        block = program.blocks[ref]
        outer = {old: new for old, new in names.items() if old not in block.vars}
        for inner in block.ops:
            _rename(program, inner, outer)
