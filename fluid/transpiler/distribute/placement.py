"""Placement of a program's variables, for saving and loading of a distributed job."""

from __future__ import annotations

from collections.abc import Iterable

from fluid.distributed.placement import VarDistributed, VarsDistributed, VarStruct
from fluid.distributed.sharding import DistributedMode, ShardingPlan, Slice
from fluid.framework import Program
from fluid.transpiler.distribute.updates import Updates, private_names

__all__ = ["make_placement"]

PARAM, OPTIMIZER, PREFETCH = "Param", "Optimizer", "RemotePrefetch"


def make_placement(origin: Program, updates: Updates, plan: ShardingPlan) -> VarsDistributed:
    """The placement of a program's parameters and their optimizer state."""
    blocks: list[VarDistributed] = []
    by_trainers = plan.mode is DistributedMode.GEO  # trainers update, and hold optimizer state
    by_param = {update.param: update for update in updates.updates}
    for shards in plan.shards:
        kind = PREFETCH if shards.is_remote else PARAM
        private = private_names(origin, updates, by_param[shards.param])
        for part in shards.slices:
            blocks.append(_placed(origin, shards.param, part.name, part, kind))
            names = [] if by_trainers else _kept(origin, private, plan, part)
            blocks += [_placed(origin, old, new, part, OPTIMIZER) for old, new in names]
    return VarsDistributed(blocks)


def _kept(
    origin: Program, private: Iterable[str], plan: ShardingPlan, part: Slice
) -> list[tuple[str, str]]:
    """The optimizer state of a slice: pairs of original name and name on the server."""
    block = origin.global_block()
    persistable = [name for name in private if name in block.vars and block.vars[name].persistable]
    return [(name, plan.private_name(name, part)) for name in persistable]


def _placed(origin: Program, name: str, here: str, part: Slice, kind: str) -> VarDistributed:
    var = origin.global_block().var(name)
    cut = not part.is_whole and var.shape == part.whole
    same = (var.dtype, var.type, var.lod_level, var.persistable)
    return VarDistributed(
        origin_var=VarStruct(name, var.shape, *same),
        slice_var=VarStruct(here, part.shape if cut else var.shape, *same),
        is_slice=cut,
        block_id=part.index if cut else 0,
        offset=part.offset if cut else 0,
        vtype=kind,
        endpoint=part.endpoint,
    )
