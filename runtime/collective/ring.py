"""Ring: the process groups of one ring of ranks, and its pending work."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import field
from typing import Any

from compiler.support.dataclass import dataclass
from runtime.collective.engine import distributed, torch_module
from runtime.collective.groups.engine_group import EngineGroup, gloo_engine, nccl_engine
from runtime.collective.groups.group import Group, Work
from runtime.collective.groups.segment import Segment
from runtime.collective.groups.shared_group import SharedGroup
from runtime.collective.member import Member
from runtime.collective.slices import call_in_slices

Stage = Callable[[], "Work | None"]
"""Starts one stage of a collective; None if there is nothing to wait for."""


@dataclass
class Pending:
    """A started collective: its description, its work, and the remaining stages.

    `count` is its number on the ring if it completes only after all ranks took part, else 0.
    """

    what: str
    work: Work | None
    stages: list[Stage]
    count: int = 0


@dataclass
class Ring:
    """One ring: rank and size in it, its host process group, and its GPU group, created on first
    use.

    `inner` and `outer` are the groups of a hierarchical all-reduce: consecutive ranks, and the
    first of each. `seen` are calls that all ranks made, `schedules` the digests of programs that
    all ranks run, `lines` the schedule of the module that used the ring last. `row_capacities` are
    the most rows of sparse gradients that a rank has sent, by name, as all ranks know.
    """

    number: int
    member: Member
    rank: int
    size: int
    group: Group | None
    gpus: Group | None = None
    asked_gpus: bool = False
    inner: Group | None = None
    outer: Group | None = None
    is_hierarchical: bool = False
    seen: set[str] = field(default_factory=set[str])
    pending: dict[str, Pending] = field(default_factory=dict[str, Pending])
    exchanges: list[str] = field(default_factory=list[str])
    schedules: set[str] = field(default_factory=set[str])
    lines: tuple[str, ...] = ()
    row_capacities: dict[str, int] = field(default_factory=dict[str, int])

    @property
    def shares_memory(self) -> bool:
        """Whether its ranks exchange host memory without Gloo."""
        return isinstance(self.group, SharedGroup)


def ring_group(ring: Ring, shared: Segment | None, spin: float, check: Callable[[], None]) -> Group:
    """Create the group that moves the host memory of a ring: by memory that its ranks share, if
    they are processes of one caller, or by Gloo.
    """
    if shared is not None:
        return SharedGroup(shared, ring.number, ring.rank, spin)
    return gloo_group(ring.member, f"ring{ring.number}", list(range(ring.size)), check)


def gloo_group(member: Member, prefix: str, ranks: list[int], check: Callable[[], None]) -> Group:
    """Create a Gloo group of these ranks of a rendezvous, including this one; all must call it."""
    rank, store = ranks.index(member.seat.rank), member.store

    def make() -> Any:
        return gloo_engine(
            store.engine, member.key(prefix), rank, len(ranks), member.deadline, store.reached
        )

    return EngineGroup(call_in_slices(make, check), rank, len(ranks))


def gpu_group(ring: Ring, tensor: Any, check: Callable[[], None]) -> Group | None:
    """Create an NCCL group for the GPUs of a ring; None if two ranks share one, or NCCL is missing.

    Ranks decide together: they exchange the identity of their GPUs first.
    """
    torch = torch_module()
    member = ring.member
    usable = distributed().is_nccl_available()
    identity = str(torch.cuda.get_device_properties(tensor.device).uuid) if usable else ""
    own = f"{member.record.machine} {identity}" if usable else ""
    gpus = member.exchange(f"gpus/{ring.number}", own, check)
    if "" in gpus or len(set(gpus)) < ring.size:
        return None
    prefix = member.key("nccl", ring.number)

    def make() -> Any:
        engine = member.store.connect(member.deadline)
        return nccl_engine(engine, prefix, ring.rank, ring.size, member.deadline)

    return EngineGroup(call_in_slices(make, check), ring.rank, ring.size, polls=True)


def engine_tensor(ring: Ring, tensor: Any, check: Callable[[], None]) -> tuple[Any, Any]:
    """Return the group that moves a GPU tensor, and the tensor it moves: a host copy if staged."""
    if not ring.asked_gpus and ring.size > 1:
        ring.gpus, ring.asked_gpus = gpu_group(ring, tensor, check), True
    return (ring.gpus, tensor) if ring.gpus is not None else (ring.group, tensor.cpu())


def release(ring: Ring) -> None:
    """Close the host groups of a ring without pending work, which ends the threads of engines.

    Otherwise a thread that still drops the tensors of the last work could ask for Python's lock
    while the interpreter ends, which aborts the process.
    """
    if ring.pending:
        keep_alive(ring)
    for group in (ring.group, ring.inner, ring.outer):
        if group is not None:
            group.close()


def keep_alive(ring: Ring) -> None:
    """Abandon the groups of a ring, whose work cannot finish."""
    for group in (ring.group, ring.gpus, ring.inner, ring.outer):
        if group is not None:
            group.abandon()
