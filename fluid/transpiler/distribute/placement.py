"""Placement of a program's variables, for saving and loading of a distributed job."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from fluid.framework import Program
from fluid.transpiler.distribute.config import DistributedMode
from fluid.transpiler.distribute.plan import ShardingPlan
from fluid.transpiler.distribute.slicing import Slice
from fluid.transpiler.distribute.updates import Updates, private_names

__all__ = ["VarDistributed", "VarStruct", "VarsDistributed", "make_placement"]

PARAM, OPTIMIZER, PREFETCH = "Param", "Optimizer", "RemotePrefetch"


@dataclass(frozen=True)
class VarStruct:
    """The properties of a variable, independent of its program."""

    name: str
    shape: tuple[int, ...]
    dtype: Any
    type: Any
    lod_level: int
    persistable: bool


@dataclass(frozen=True)
class VarDistributed:
    """A variable, or a block of one, on a server.

    `offset` counts elements; `vtype` is "Param", "Optimizer", or "RemotePrefetch" for tables that
    trainers do not hold.
    """

    origin: VarStruct
    slice: VarStruct
    is_slice: bool
    block_id: int
    offset: int
    vtype: str
    endpoint: str

    def __str__(self) -> str:
        return (
            f"{self.slice.name}: {self.slice.shape} of {self.origin.name} {self.origin.shape}, "
            f"block {self.block_id}, offset {self.offset}, {self.vtype} on {self.endpoint}"
        )


class VarsDistributed:
    """All variables of a job that are on servers."""

    def __init__(self, distributed_vars: Iterable[VarDistributed] = ()) -> None:
        self.distributed_vars = list(distributed_vars)

    def get_distributed_var_by_slice(self, var_name: str) -> VarDistributed | None:
        """The block with this name, or None."""
        return next((v for v in self.distributed_vars if v.slice.name == var_name), None)

    def get_distributed_var_by_origin_and_ep(
        self, origin_var_name: str, endpoint: str
    ) -> VarDistributed | None:
        """The block of a variable that a server holds, or None."""
        blocks = self.get_distributed_vars_by_ep(endpoint)
        return next((v for v in blocks if v.origin.name == origin_var_name), None)

    def get_distributed_vars_by_vtypes(self, vtypes: Sequence[str], groupby: bool = False) -> Any:
        """The blocks of some kinds: a list, or with `groupby` a dict by the whole variable."""
        blocks = [v for v in self.distributed_vars if v.vtype in vtypes]
        if not groupby:
            return blocks
        groups: dict[str, list[VarDistributed]] = {}
        for block in blocks:
            groups.setdefault(block.origin.name, []).append(block)
        return groups

    def get_distributed_vars_by_ep(
        self, endpoint: str, vtype: str | None = None
    ) -> list[VarDistributed]:
        """The blocks that a server holds, of one kind if that is given."""
        blocks = [v for v in self.distributed_vars if v.endpoint == endpoint]
        return [v for v in blocks if vtype in (None, v.vtype)]

    def overview(self) -> str:
        """A line for each block."""
        return "\n".join(map(str, self.distributed_vars))


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
        origin=VarStruct(name, var.shape, *same),
        slice=VarStruct(here, part.shape if cut else var.shape, *same),
        is_slice=cut,
        block_id=part.index if cut else 0,
        offset=part.offset if cut else 0,
        vtype=kind,
        endpoint=part.endpoint,
    )
