"""Ops and variables on gradient paths, for programs that rewrite programs."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import cast

from compiler.ir.autodiff.append_backward import PASS
from compiler.ir.program import GRAD
from fluid.compat.native_ops import has_non_empty_grad_op_maker
from fluid.framework import Block, Operator, Program, Variable, block_of

__all__ = [
    "all_in_set", "as_list", "find_no_grad_vars", "find_op_path", "is_grad_var",
    "no_grad_set_names", "some_in_set", "stop_gradients", "strip_grad_suffix",
]  # fmt: skip


def strip_grad_suffix(name: str) -> str:
    """Return the variable name of a gradient name; other names are returned unchanged.

    >>> strip_grad_suffix("x@GRAD"), strip_grad_suffix("grad/grad/y@GRAD@RENAME@1")
    ('x', 'y')
    """
    return name.partition(GRAD)[0].rpartition(PASS)[2]


def is_grad_var(name: str) -> bool:
    """Return whether a name is that of a gradient."""
    return GRAD in name


def as_list(value: object) -> list[object]:
    """Return a value, a sequence of values or None as a list."""
    if value is None:
        return []
    return list(cast(Sequence[object], value)) if isinstance(value, Sequence) else [value]


def some_in_set(names: Collection[str], known: Collection[str]) -> bool:
    """Return whether any of the names is known."""
    return not set(names).isdisjoint(known)


def all_in_set(names: Collection[str], known: Collection[str]) -> bool:
    """Return whether `names` is not empty and all are known."""
    return bool(names) and set(names) <= set(known)


def no_grad_set_names(no_grad_set: object) -> set[str]:
    """Return the names in a `no_grad_set`; TypeError unless a set, list or tuple of variables."""
    if no_grad_set is None:
        return set()
    if not isinstance(no_grad_set, set | list | tuple):
        kind = type(no_grad_set).__name__
        raise TypeError(f"no_grad_set must be a set, list or tuple, but received {kind}")
    return {_member_name(member) for member in cast(Collection[object], no_grad_set)}


def _member_name(member: object) -> str:
    if not isinstance(member, Variable | str):
        kind = type(member).__name__
        raise TypeError(f"members of no_grad_set must be Variable or str, but received {kind}")
    return member.name if isinstance(member, Variable) else member


def stop_gradients(program: Program) -> dict[int, set[str]]:
    """Return the gradients of variables that stop gradients, by block index."""
    assert isinstance(program, Program), f"a Program is expected, not {type(program).__name__}"
    return {
        block.idx: {name + GRAD for name, var in block.vars.items() if var.stop_gradient}
        for block in program.blocks
    }


def find_op_path(
    block: Block,
    outputs: Sequence[Variable],
    inputs: Sequence[Variable],
    no_grad_set: set[str],
) -> list[Operator]:
    """Return the ops on paths from outputs back to inputs; to all inputs if none are listed.

    Adds to `no_grad_set` the variables read on the path that stop gradients and depend on no input.
    """
    reached = {var.name for var in inputs}
    ops = _forward_ops(block, reached, no_grad_set) if inputs else list(block.ops)
    needed = _target_names(block, outputs)
    path: list[Operator] = []
    for op in reversed(ops):
        if needed.intersection(op.writes()) and has_non_empty_grad_op_maker(op.type):
            path.insert(0, op)
            needed.update(name for name in op.reads() if name not in no_grad_set)
    if inputs:
        read = {name for op in path for name in op.reads()} - reached
        no_grad_set.update(name for name in read if block.vars[name].stop_gradient)
    return path


def _forward_ops(block: Block, reached: set[str], no_grad_set: Collection[str]) -> list[Operator]:
    """Return the ops reachable from inputs; their outputs are added to `reached`."""
    ops: list[Operator] = []
    for op in block.ops:
        if reached.intersection(op.reads()) and has_non_empty_grad_op_maker(op.type):
            ops.append(op)
            reached.update(name for name in op.writes() if name not in no_grad_set)
    return ops


def find_no_grad_vars(
    block: Block,
    op_path: Sequence[Operator],
    targets: Sequence[Variable],
    no_grad_set: Collection[str],
) -> set[str]:
    """Return outputs of ops on a path that no later op on it reads, except the targets."""
    needed = _target_names(block, targets)
    unused: set[str] = set()
    for op in reversed(op_path):
        if not op.has_attr("sub_block"):
            loose = set(op.writes()) - needed - set(op.reads())
            unused.update(name for name in loose if not block.vars[name].stop_gradient)
        needed.update(name for name in op.reads() if name not in no_grad_set)
    return unused


def _target_names(block: Block, targets: Sequence[Variable]) -> set[str]:
    """Return the targets, and for those of an inner block the inputs of its ops."""
    names = {var.name for var in targets}
    inner = block_of(targets[0]) if targets else block
    if _is_inside(inner=block, outer=inner):
        return set()
    while inner.idx != block.idx and inner.parent is not None:
        for op in reversed(inner.ops):
            if names.intersection(op.writes()):
                names.update(op.reads())
        inner = inner.parent
    return names


def _is_inside(inner: Block, outer: Block) -> bool:
    parent = inner.parent
    while parent is not None and parent.idx != outer.idx:
        parent = parent.parent
    return parent is not None
