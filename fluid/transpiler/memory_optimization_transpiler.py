"""`memory_optimize` and `release_memory`: programs rewritten to need fewer, or shorter, lives.

Release 1.8.5 keeps the names and does nothing; here they do what they did up to release 1.5, on
programs of any nesting, and without effect on any number (fluid_spec D, surprises 7-11, 54-56).
The compiler plans memory by itself: these calls are for those who read, save or hand on a program.
"""

from __future__ import annotations

import warnings
from collections.abc import Collection
from typing import Any

from compiler.errors import VerifyError, did_you_mean
from compiler.ir.program import Block, OpDesc
from fluid.framework import Program, Variable
from fluid.recording.checks import check_type
from fluid.recording.op_records import user_line
from fluid.transpiler.flow import DELETE, Source, sources
from fluid.transpiler.reuse import Move, apply_moves, planned_moves
from fluid.transpiler.units import Step, Unit, is_temporary, kept_names, units
from fluid.transpiler.whole import whole

__all__ = ["memory_optimize", "release_memory"]


def memory_optimize(
    input_program: Program,
    skip_opt_set: Collection[Variable | str] | None = None,
    print_log: bool = False,
    level: int = 0,
    skip_grads: bool = True,
) -> None:
    """Let variables that are never alive together share a name, in place.

    With `level` 0 both must have one shape; with 1 the later one may be smaller. Feeds, fetches,
    losses, what no op reads, gradients that optimizers read (unless `skip_grads` is False) and
    what `skip_opt_set` lists keep their names. `print_log` prints a line for each. Whatever was
    renamed can still be fetched by its own name. Doing it again changes nothing.

    Raises TypeError for what is no Program and for an item of `skip_opt_set` that is neither a
    Variable nor a name, ValueError for another level and a `skip_opt_set` that is no set or list.
    """
    _expect_program(input_program, "memory_optimize")
    if level not in (0, 1):
        raise ValueError(f"only support opt_level 0 or 1 in memory_optimize, but received {level}")
    skip = _skipped(input_program, skip_opt_set)
    before = sources(input_program)
    kept = kept_names(input_program, skip, gradients=bool(skip_grads))
    with whole(input_program):
        for unit in units(input_program):
            moves = planned_moves(unit, kept, level)
            for count, move in enumerate(moves) if print_log else ():
                print(_told(count, move))
            apply_moves(unit, moves)
        input_program._is_mem_optimized = True
        input_program.touch()
        expect_same_flow(before, input_program)


def release_memory(
    input_program: Program, skip_opt_set: Collection[Variable | str] | None = None
) -> None:
    """Insert a `delete_var` behind the last op that reads each temporary variable, in place.

    Feeds, fetches, losses, what no op reads and what `skip_opt_set` lists stay. What was deleted
    can still be fetched: a run that is asked for it keeps it. Doing it again changes nothing.

    Raises TypeError and ValueError as `memory_optimize` does.
    """
    _expect_program(input_program, "release_memory")
    skip = _skipped(input_program, skip_opt_set)
    before = sources(input_program)
    kept = kept_names(input_program, skip, gradients=False)
    with whole(input_program):
        for step, names in deletions(input_program, kept):
            _insert(step.block, step.op, names)
        expect_same_flow(before, input_program)


def deletions(program: Program, kept: Collection[str]) -> list[tuple[Step, list[str]]]:
    """After which ops which variables may be deleted, unit by unit; none of `kept` is among them.

    An op with a block counts as reading whatever its block reads.
    """
    found = [(step, _ending(unit, step, kept)) for unit in units(program) for step in unit.steps]
    return [(step, names) for step, names in found if names]


def _ending(unit: Unit, step: Step, kept: Collection[str]) -> list[str]:
    """What may be deleted after a step: a block of gradients also deletes what was kept for it."""
    if step.op.type == DELETE:
        return []
    blocks = {id(each.block): each.block for each in unit.steps}.values()
    around = [unit.steps[0].block, step.block] if len(blocks) > 1 else [step.block]
    ending = (name for name in step.dying if any(is_temporary(b, name) for b in around))
    return sorted(name for name in ending if name not in kept)


def _insert(block: Block, op: OpDesc, names: list[str]) -> None:
    """Put a deletion behind an op; it is as much of the backward pass as that op is."""
    index = next(at for at, each in enumerate(block.ops) if each is op) + 1
    attrs = {"op_role": int(op.attrs.get("op_role", 0))}
    block.add_op(DELETE, {"X": names}, {}, attrs, user_line(), index)


def expect_same_flow(before: list[Source], program: Program) -> None:
    """VerifyError unless every op still reads what the same op wrote before a rewrite."""
    for was, now in zip(before, sources(program), strict=True):
        if was != now:
            raise VerifyError(f"op {was[0]} of the program read {was[2]}, and would read {now[2]}")


def _told(count: int, move: Move) -> str:
    """A move as release 1.5 logs it."""
    var, place = (f"{each.name}{each.dims}" for each in (move.var, move.storage))
    return f"!!! {count},  {var} => {place}, cache idx {move.index}, pool size {move.size}"


# ---- arguments


def _expect_program(program: Any, function: str) -> None:
    check_type(program, "input_program", Program, function)


def _skipped(program: Program, given: Any) -> set[str]:
    """The names in a `skip_opt_set`; a warning for those that the program does not have."""
    if given is None:
        return set()
    if not isinstance(given, set | frozenset | list | tuple):
        kind = type(given).__name__
        raise ValueError(f"only support skip_opt_set as set or list, but received {kind}")
    for each in given:
        if not isinstance(each, str | Variable):
            kind = type(each).__name__
            raise TypeError(f"an item of skip_opt_set should be Variable or str, but is {kind}")
    names = {each if isinstance(each, str) else each.name for each in given}
    known = {var.name for var in program.all_vars()}
    for name in sorted(names - known):
        hint = did_you_mean(name, sorted(known)) or "it protects nothing"
        warnings.warn(f"skip_opt_set: the program has no variable {name!r}; {hint}", stacklevel=3)
    return names
