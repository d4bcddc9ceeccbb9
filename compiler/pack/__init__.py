"""Memory packing: assigns byte offsets in one arena to values with live ranges and sizes.

Two values live in the same step must not overlap; the arena should be little higher than the
largest sum of sizes live at one step, which is a lower bound. Finding the lowest arena is NP-hard
(dynamic storage allocation), so a greedy packing comes first, which nearly always reaches the bound
for networks; if it does not, a search follows, which ends at the bound, at a proof of optimality,
or when its step budget is used up, and reports which. A packing that was found once is reused for
other sizes in one sweep. Packing happens when sizes become known, which is at every new batch size.

Read `life` (inputs and results), `plan` (`pack`: how much effort to spend), `greedy`, then
`sections` and `search` (the exact search); `stack` repacks other sizes, `rules` verifies a packing.
"""

from __future__ import annotations

from compiler.pack.life import Lifetime, PackError, Packing, lower_bound
from compiler.pack.plan import EFFORT, pack
from compiler.pack.rules import check
from compiler.pack.stack import Stack

__all__ = ["EFFORT", "Lifetime", "PackError", "Packing", "Stack", "check", "lower_bound", "pack"]
