"""Where the variables of a job lie: which block of which variable is on which server."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, overload

from compiler.ir.types import VarTypeId

__all__ = ["VarDistributed", "VarStruct", "VarsDistributed"]


@dataclass(frozen=True)
class VarStruct:
    """The properties of a variable, independent of its program."""

    name: str
    shape: tuple[int, ...]
    dtype: VarTypeId
    type: VarTypeId
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

    @overload
    def get_distributed_vars_by_vtypes(
        self, vtypes: Sequence[str], groupby: Literal[False] = False
    ) -> list[VarDistributed]: ...

    @overload
    def get_distributed_vars_by_vtypes(
        self, vtypes: Sequence[str], groupby: Literal[True]
    ) -> dict[str, list[VarDistributed]]: ...

    def get_distributed_vars_by_vtypes(
        self, vtypes: Sequence[str], groupby: bool = False
    ) -> list[VarDistributed] | dict[str, list[VarDistributed]]:
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
