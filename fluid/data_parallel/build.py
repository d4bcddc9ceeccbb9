"""Builds the programs of a data-parallel run from the user's program: one clone for all ranks.

With the Reduce strategy there is a clone for each rank, since only the owner of a parameter
updates it. The user's program is never edited.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path

from compiler.ir.opdef.type_inference import op_text
from compiler.support.dataclass import dataclass
from fluid.data_parallel.batch_merge import merge_batches
from fluid.data_parallel.graphviz import program_dot
from fluid.data_parallel.rewrite import (
    computes_gradients,
    insert_all_reduces,
    remove_loss_gradients,
    synchronize_batch_norms,
)
from fluid.data_parallel.sharding import find_shards, sharded
from fluid.data_parallel.strategies import BuildStrategy
from fluid.framework import Program
from fluid.recording.pruning import unwritten_state
from runtime.errors import PlaceError

__all__ = ["RankPrograms", "build", "expect_no_python"]

_SCALES = BuildStrategy.GradientScaleStrategy


@dataclass(frozen=True)
class RankPrograms:
    """The program of each rank; all are the same object unless parameters have owners.

    `owners` maps optimizer variables held by a single rank to that rank.
    """

    programs: list[Program]
    owners: Mapping[str, int]


def build(
    program: Program,
    strategy: BuildStrategy,
    ranks: int,
    fetch: Collection[str] = (),
    writes: bool = True,
    rings: int = 1,
) -> RankPrograms:
    """Build the programs of `ranks` ranks according to the strategy; see `BuildStrategy`.

    The all-reduces are distributed round-robin over `rings` rings. With `writes`, the files that
    the strategy names are written.
    """
    built = _built(program, strategy, ranks, fetch, rings)
    if writes:
        _write(built.programs[0], strategy)
    return built


def _built(
    program: Program, strategy: BuildStrategy, ranks: int, fetch: Collection[str], rings: int
) -> RankPrograms:
    clone = program.clone()
    clone.undo_renaming()
    _feed_each_run(clone)
    for pass_ in strategy.finalized_passes().all_passes():
        if pass_.repeats > 1:
            merge_batches(clone, pass_.repeats)
    scale = strategy.gradient_scale_strategy is _SCALES.CoeffNumDevice and ranks > 1
    if strategy.gradient_scale_strategy is _SCALES.Customized:
        remove_loss_gradients(clone)
    if strategy.sync_batch_norm and ranks > 1:
        synchronize_batch_norms(clone)
    if ranks == 1:
        return RankPrograms([clone], {})
    fuse = strategy.fuse_all_reduce_ops and not strategy.enable_sequential_execution
    shards = find_shards(clone, ranks)
    reduces = strategy.reduce_strategy is BuildStrategy.ReduceStrategy.Reduce
    if reduces and shards.are_spread(ranks // strategy.num_trainers, ranks):
        programs = sharded(clone, shards, ranks, scale, fetch, fuse)
        return RankPrograms(programs, shards.owners_of_state())
    if computes_gradients(clone):
        insert_all_reduces(clone, ranks, rings, scale, fuse)
    return RankPrograms([clone] * ranks, {})


def _feed_each_run(program: Program) -> None:
    """Let persistable variables of dynamic size that no op writes be feeds like others.

    Devices share state by its size, which is only known for these when they are fed.
    """
    main = program.global_block()
    for name in unwritten_state(main):
        if -1 in (main.vars[name].dims or ()):
            main.vars[name].persistable = False


def _write(program: Program, strategy: BuildStrategy) -> None:
    """Write the program of rank 0 to the files named in the strategy."""
    if strategy.debug_graphviz_path:
        Path(strategy.debug_graphviz_path).write_text(program_dot(program), encoding="utf-8")
    for pass_ in strategy.finalized_passes().all_passes():
        pass_.apply(program)


def expect_no_python(program: Program, devices: int) -> None:
    """Raise PlaceError for `py_func` on several devices: workers do not have the function."""
    if devices == 1:
        return
    for op in (op for block in program.blocks for op in block.ops):
        if op.type == "py_func":
            raise PlaceError(
                f"py_func calls a Python function of this process, which the other {devices - 1} "
                "devices of a data-parallel run do not have",
                op=op_text(op),
                source=op.source,
                hint="run it on one device, or compute it from what is fetched",
            )
