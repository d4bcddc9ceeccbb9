"""`memory_optimize` and `release_memory`: rewrite programs to reuse or delete variables earlier.

Release 1.8.5 keeps the names and does nothing; here they work as up to release 1.5, on
programs of any nesting, without changing results (docs/reference_behaviour.md, "Memory reuse").
The compiler plans memory itself: these calls are for users who read, save or export a program.
"""

from __future__ import annotations

import warnings
from collections.abc import Collection

from compiler.errors import VerifyError, did_you_mean
from fluid.framework import Block, Operator, Program, Variable
from fluid.recording.checks import check_type
from fluid.recording.narrowing import is_collection
from fluid.recording.op_records import user_line
from fluid.transpiler.flow import DELETE, Source, sources
from fluid.transpiler.reuse import Move, apply_moves, planned_moves
from fluid.transpiler.units import OpAccesses, Unit, is_temporary, kept_names, units
from fluid.transpiler.whole import whole

__all__ = ["memory_optimize", "release_memory"]


def memory_optimize(
    input_program: Program,
    skip_opt_set: Collection[Variable | str] | None = None,
    print_log: bool = False,
    level: int = 0,
    skip_grads: bool = True,
) -> None:
    """Let variables with disjoint live ranges share a name, in place.

    With `level` 0 both must have the same shape; with 1 the later one may be smaller. Feeds,
    fetches, losses, variables that no op reads, gradients that optimizers read (unless `skip_grads`
    is False) and those in `skip_opt_set` keep their names. `print_log` prints a line for each.
    Renamed variables can still be fetched under their own names. Idempotent.

    Raises TypeError for an invalid Program and for an item of `skip_opt_set` that is neither a
    Variable nor a name, ValueError for another level and a `skip_opt_set` that is no set or list.
    """
    _expect_program(input_program, "memory_optimize")
    if level not in (0, 1):
        raise ValueError(f"only support opt_level 0 or 1 in memory_optimize, but received {level}")
    skip = _skipped(input_program, skip_opt_set)
    before = sources(input_program)
    protected = kept_names(input_program, skip, gradients=bool(skip_grads))
    with whole(input_program):
        for unit in units(input_program):
            moves = planned_moves(unit, protected, level)
            for count, move in enumerate(moves) if print_log else ():
                print(_log_line(count, move))
            apply_moves(unit, moves)
        input_program.is_mem_optimized = True
        input_program.touch()
        expect_same_flow(before, input_program)


def release_memory(
    input_program: Program, skip_opt_set: Collection[Variable | str] | None = None
) -> None:
    """Insert a `delete_var` after the last op that reads each temporary variable, in place.

    Feeds, fetches, losses, variables that no op reads and those in `skip_opt_set` are kept. Deleted
    variables can still be fetched: a run that fetches one keeps it. Idempotent.

    Raises TypeError and ValueError as `memory_optimize` does.
    """
    _expect_program(input_program, "release_memory")
    skip = _skipped(input_program, skip_opt_set)
    before = sources(input_program)
    protected = kept_names(input_program, skip, gradients=False)
    with whole(input_program):
        for step, names in deletions(input_program, protected):
            _insert(step.block, step.op, names)
        expect_same_flow(before, input_program)


def deletions(program: Program, kept: Collection[str]) -> list[tuple[OpAccesses, list[str]]]:
    """The variables to delete after each op, unit by unit; none of `kept` is among them.

    An op with a block counts as reading everything its block reads.
    """
    ending = [(step, _ending(unit, step, kept)) for unit in units(program) for step in unit.steps]
    return [(step, names) for step, names in ending if names]


def _ending(unit: Unit, step: OpAccesses, kept: Collection[str]) -> list[str]:
    """The variables to delete after a step; a gradient block also deletes those kept for it."""
    if step.op.type == DELETE:
        return []
    blocks = {id(other.block): other.block for other in unit.steps}.values()
    around = [unit.steps[0].block, step.block] if len(blocks) > 1 else [step.block]
    ending = (name for name in step.dying if any(is_temporary(b, name) for b in around))
    return sorted(name for name in ending if name not in kept)


def _insert(block: Block, op: Operator, names: list[str]) -> None:
    """Insert a deletion after an op, with the same op role."""
    index = next(at for at, other in enumerate(block.ops) if other is op) + 1
    attrs = {"op_role": int(op.attrs.get("op_role", 0))}
    block.add_op(DELETE, {"X": names}, {}, attrs, user_line(), index)


def expect_same_flow(before: list[Source], program: Program) -> None:
    """Raise VerifyError unless every op still reads values of the same ops as before a rewrite."""
    for was, now in zip(before, sources(program), strict=True):
        if was != now:
            raise VerifyError(f"op {was[0]} of the program read {was[2]}, and would read {now[2]}")


def _log_line(count: int, move: Move) -> str:
    """A move in the log format of release 1.5."""
    var, place = (f"{variable.name}{variable.dims}" for variable in (move.var, move.storage))
    return f"!!! {count},  {var} => {place}, cache idx {move.index}, pool size {move.size}"


# ---- arguments


def _expect_program(program: object, function: str) -> None:
    check_type(program, "input_program", Program, function)


def _skipped(program: Program, given: object) -> set[str]:
    """The names in a `skip_opt_set`; warns about those that the program does not have."""
    if given is None:
        return set()
    if not is_collection(given):
        kind = type(given).__name__
        raise ValueError(f"only support skip_opt_set as set or list, but received {kind}")
    names = {_skipped_name(item) for item in given}
    names_in_program = {var.name for var in program.list_vars()}
    for name in sorted(names - names_in_program):
        hint = did_you_mean(name, sorted(names_in_program)) or "it protects nothing"
        warnings.warn(f"skip_opt_set: the program has no variable {name!r}; {hint}", stacklevel=3)
    return names


def _skipped_name(item: object) -> str:
    """The name of an item of a `skip_opt_set`."""
    if not isinstance(item, str | Variable):
        kind = type(item).__name__
        raise TypeError(f"an item of skip_opt_set should be Variable or str, but is {kind}")
    return item if isinstance(item, str) else item.name
