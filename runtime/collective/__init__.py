"""Collectives between ranks, over torch.distributed: rendezvous, groups, and faults with a name.

Read `rings` (what modules call) and `table` (how rings are made and waited for) first, then
`rendezvous`, `group` and `vigil`. This package is the door of torch.distributed; torch is imported
when the first ring is made.
"""

from runtime.collective.rings import Rings
from runtime.collective.scopes import rings_of
from runtime.collective.slices import rpc_deadline

__all__ = ["Rings", "rings_of", "rpc_deadline"]
