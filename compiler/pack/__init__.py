"""Packs values that live for a while into one arena: lives and sizes in, byte offsets out.

Two lives that share a step must not share a byte; the arena should be little higher than the
largest sum of sizes alive at one step, below which nothing can go. Finding the lowest arena is
NP-hard, so what is quick comes first: a greedy packing (`greedy`), which nearly always reaches the
bound for networks; where it does not, a search (`search`, directed by `plan`) that ends at the
bound, at a proof that nothing is lower, or when its steps are used up, and says which. An order
that was found once packs other sizes in one sweep (`stack`). Nothing here knows what a value is:
a plan is packed when its sizes become known, which is at every new batch size.
"""

from __future__ import annotations

from compiler.pack.life import Life, PackError, Packing, lower_bound
from compiler.pack.plan import EFFORT, pack
from compiler.pack.rules import check
from compiler.pack.stack import Stack

__all__ = ["EFFORT", "Life", "PackError", "Packing", "Stack", "check", "lower_bound", "pack"]
