"""Counters of launches on the PTX machine: sectors, bank passes, instructions, divergence.

`Counting` (counting.py) observes the launches of a `Library`; `KernelCounters` (results.py) are
what it counts. sectors.py counts accesses of global memory, banks.py those of shared memory, mix.py
sorts instructions into classes, observers.py reads addresses before an instruction runs.
"""

from tools.ptx.counters.counting import Counting
from tools.ptx.counters.results import Banks, KernelCounters, Line, Traffic

__all__ = ["Banks", "Counting", "KernelCounters", "Line", "Traffic"]
