"""What is counted of a kernel's launches."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

SECTOR = 32
"""Bytes that a GPU moves between its caches and memory at least."""


@dataclass
class Traffic:
    """Loads, or stores and atomics, of global memory.

    `accesses` are instructions of warps, `requests` the sectors that each touches, summed, and
    `used` the distinct bytes of each, summed. `fetched` are the sectors that pass between a
    multiprocessor and the L2 cache. `touched` and `ideal` are the distinct sectors and bytes of
    each launch, summed: what device memory moves if the L2 cache holds them all, and the least.
    """

    accesses: int = 0
    requests: int = 0
    used: int = 0
    fetched: int = 0
    touched: int = 0
    ideal: int = 0

    def data(self) -> dict[str, int]:
        """The numbers by name."""
        return dict(vars(self))


@dataclass
class Banks:
    """Accesses of shared memory, of at most 128 bytes each, and the passes that they take.

    One pass serves one word of 4 bytes in each of 32 banks.
    """

    accesses: int = 0
    passes: int = 0

    @property
    def per_access(self) -> float:
        """Passes per access: 1 without conflicts, also if there is no access."""
        return self.passes / self.accesses if self.accesses else 1.0


@dataclass
class Line:
    """Accesses of one line of the Triton source, in launches of one kernel."""

    traffic: Traffic = field(default_factory=Traffic)
    banks: Banks = field(default_factory=Banks)


@dataclass
class KernelCounters:
    """Counters of all launches of a kernel.

    `instructions` are those of warps by class; `lanes` the threads that execute them and `slots`
    the threads of these warps. `lines` are accesses by line of the source.
    """

    kernel: str
    launches: int = 0
    loads: Traffic = field(default_factory=Traffic)
    stores: Traffic = field(default_factory=Traffic)
    banks: Banks = field(default_factory=Banks)
    instructions: Counter[str] = field(default_factory=Counter[str])
    lanes: int = 0
    slots: int = 0
    lines: dict[str, Line] = field(default_factory=dict[str, Line])

    @property
    def ideal(self) -> int:
        """Bytes that must be moved: each that a launch reads or writes, once."""
        return self.loads.ideal + self.stores.ideal

    @property
    def fetched_ratio(self) -> float:
        """Bytes that multiprocessors fetch and store in whole sectors ÷ ideal bytes."""
        return _ratio(SECTOR * (self.loads.fetched + self.stores.fetched), self.ideal)

    @property
    def memory_ratio(self) -> float:
        """Bytes of distinct sectors ÷ ideal bytes."""
        return _ratio(SECTOR * (self.loads.touched + self.stores.touched), self.ideal)

    @property
    def divergence(self) -> float:
        """Share of the threads of executing warps that do not take part."""
        return 1 - self.lanes / self.slots if self.slots else 0.0

    def data(self) -> dict[str, Any]:
        """The counters as plain values."""
        return {
            "kernel": self.kernel,
            "launches": self.launches,
            "loads": self.loads.data(),
            "stores": self.stores.data(),
            "fetched_ratio": round(self.fetched_ratio, 4),
            "memory_ratio": round(self.memory_ratio, 4),
            "shared_accesses": self.banks.accesses,
            "bank_passes": self.banks.passes,
            "passes_per_access": round(self.banks.per_access, 4),
            "instructions": dict(self.instructions),
            "divergence": round(self.divergence, 4),
        }


def _ratio(moved: int, ideal: int) -> float:
    return moved / ideal if ideal else 1.0
