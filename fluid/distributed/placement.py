"""Where the variables of a job lie: which block of which variable is on which server."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal, Protocol, overload

from compiler.ir.types import VarTypeId
from compiler.support.dataclass import dataclass

__all__ = ["VarDistributed", "VarStruct", "VarsDistributed"]


@dataclass(frozen=True)
class VarStruct:
    """The declaration of a variable, independent of its program."""

    name: str
    shape: tuple[int, ...]
    dtype: VarTypeId
    type: VarTypeId
    lod_level: int
    persistable: bool


class VariableProperties(Protocol):
    """What a `Variable` and a `VarStruct` have in common."""

    @property
    def name(self) -> str: ...
    @property
    def shape(self) -> Sequence[int]: ...
    @property
    def dtype(self) -> VarTypeId: ...
    @property
    def type(self) -> VarTypeId: ...
    @property
    def lod_level(self) -> int: ...
    @property
    def persistable(self) -> bool: ...


class VarDistributed:
    """A variable, or a block of one, on a server.

    `offset` counts elements; `vtype` is "Param", "Optimizer", or "RemotePrefetch" for tables that
    trainers do not hold. Without `is_slice`, a block is one that differs from its variable.
    """

    def __init__(
        self,
        origin_var: VariableProperties,
        slice_var: VariableProperties,
        is_slice: bool | None = None,
        block_id: int | None = None,
        offset: int | None = None,
        vtype: str | None = None,
        endpoint: str | None = None,
    ) -> None:
        self.origin, self.slice = _struct(origin_var), _struct(slice_var)
        self.is_slice = self.origin != self.slice if is_slice is None else is_slice
        self.block_id, self.offset = block_id or 0, offset or 0
        self.vtype, self.endpoint = vtype or "", endpoint or ""

    @staticmethod
    def equal(var1: VarStruct, var2: VarStruct) -> bool:
        """Return whether two declarations are equal."""
        return var1 == var2

    def __str__(self) -> str:
        return (
            f"{self.slice.name}: {self.slice.shape} of {self.origin.name} {self.origin.shape}, "
            f"block {self.block_id}, offset {self.offset}, {self.vtype} on {self.endpoint}"
        )


def _struct(var: VariableProperties) -> VarStruct:
    same = (var.dtype, var.type, var.lod_level, var.persistable)
    return VarStruct(var.name, tuple(var.shape), *same)


class VarsDistributed:
    """All variables of a job that are on servers."""

    def __init__(self, distributed_vars: Iterable[VarDistributed] = ()) -> None:
        self.distributed_vars = list(distributed_vars)

    def add_distributed_var(
        self,
        origin_var: VariableProperties,
        slice_var: VariableProperties,
        is_slice: bool | None = None,
        block_id: int | None = None,
        offset: int | None = None,
        vtype: str | None = None,
        endpoint: str | None = None,
    ) -> None:
        """Add a block, with the arguments of `VarDistributed`."""
        added = VarDistributed(origin_var, slice_var, is_slice, block_id, offset, vtype, endpoint)
        self.distributed_vars.append(added)

    @staticmethod
    def equal(var1: VariableProperties, var2: VariableProperties) -> bool:
        """Return whether two declarations are equal."""
        return _struct(var1) == _struct(var2)

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
