"""Which slices of which variables are on which parameter servers."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias, overload

from fluid.framework import Variable

__all__ = ["VarDistributed", "VarStruct", "VarsDistributed"]


@dataclass
class VarStruct:
    """The declaration of a variable: what `Variable` has of the same names."""

    name: str
    shape: Sequence[int]
    dtype: object
    type: object
    lod_level: int
    persistable: bool


VarLike: TypeAlias = Variable | VarStruct


class VarDistributed:
    """A slice of a variable and the server that has it.

    `offset` counts elements, `block_id` slices; a slice that equals its variable is the whole.
    """

    def __init__(
        self,
        origin_var: VarLike,
        slice_var: VarLike,
        is_slice: bool | None = None,
        block_id: int | None = None,
        offset: int | None = None,
        vtype: str | None = None,
        endpoint: str | None = None,
    ) -> None:
        self.origin, self.slice = _struct(origin_var), _struct(slice_var)
        differs = not self.equal(self.origin, self.slice)
        self.is_slice = differs if is_slice is None else is_slice
        self.block_id = block_id or 0
        self.offset = offset or 0
        self.vtype = vtype
        self.endpoint = endpoint

    @staticmethod
    def equal(var1: VarStruct, var2: VarStruct) -> bool:
        """Whether two declarations are equal."""
        return var1 == var2

    def __str__(self) -> str:
        return (
            f"var owned: {self.vtype}, origin var: ( {_text(self.origin)} ), slice var: "
            f"( {_text(self.slice)}.slice({self.is_slice}).block({self.block_id})"
            f".offset({self.offset}) ), endpoint: {self.endpoint} "
        )


def _struct(var: VarLike) -> VarStruct:
    if isinstance(var, VarStruct):
        return var
    return VarStruct(var.name, var.shape, var.dtype, var.type, var.lod_level, var.persistable)


def _text(var: VarStruct) -> str:
    return f"{var.name} : fluid.{var.type}.shape{var.shape}.astype({var.dtype})"


class VarsDistributed:
    """The slices of all variables of a job."""

    def __init__(self) -> None:
        self.distributed_vars: list[VarDistributed] = []

    def add_distributed_var(
        self,
        origin_var: VarLike,
        slice_var: VarLike,
        is_slice: bool | None = None,
        block_id: int | None = None,
        offset: int | None = None,
        vtype: str | None = None,
        endpoint: str | None = None,
    ) -> None:
        """Add a slice, with the arguments of `VarDistributed`."""
        added = VarDistributed(origin_var, slice_var, is_slice, block_id, offset, vtype, endpoint)
        self.distributed_vars.append(added)

    def get_distributed_var_by_slice(self, var_name: str) -> VarDistributed | None:
        """The slice of a name, or None."""
        return next((var for var in self.distributed_vars if var.slice.name == var_name), None)

    @staticmethod
    def equal(var1: VarStruct, var2: VarStruct) -> bool:
        """Whether two declarations are equal."""
        return VarDistributed.equal(_struct(var1), _struct(var2))

    def get_distributed_var_by_origin_and_ep(
        self, origin_var_name: str, endpoint: str
    ) -> VarDistributed | None:
        """The first slice of a variable on a server, or None."""
        slices = self.get_distributed_vars_by_ep(endpoint)
        return next((var for var in slices if var.origin.name == origin_var_name), None)

    @overload
    def get_distributed_vars_by_vtypes(
        self, vtypes: Collection[str], groupby: Literal[False] = False
    ) -> list[VarDistributed]: ...

    @overload
    def get_distributed_vars_by_vtypes(
        self, vtypes: Collection[str], groupby: Literal[True]
    ) -> dict[str, list[VarDistributed]]: ...

    def get_distributed_vars_by_vtypes(
        self, vtypes: Collection[str], groupby: bool = False
    ) -> list[VarDistributed] | dict[str, list[VarDistributed]]:
        """The slices of some kinds ("Param", "Optimizer", …); `groupby` groups by variable."""
        slices = [var for var in self.distributed_vars if var.vtype in vtypes]
        if not groupby:
            return slices
        groups: dict[str, list[VarDistributed]] = {}
        for var in slices:
            groups.setdefault(var.origin.name, []).append(var)
        return groups

    def get_distributed_vars_by_ep(
        self, endpoint: str, vtype: str | None = None
    ) -> list[VarDistributed]:
        """The slices on a server, optionally of one kind."""
        slices = [var for var in self.distributed_vars if var.endpoint == endpoint]
        return [var for var in slices if not vtype or var.vtype == vtype]

    def overview(self) -> str:
        """All slices, one a line."""
        return "\n".join(map(str, self.distributed_vars))
