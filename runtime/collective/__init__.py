"""Collectives between ranks, over torch.distributed: rendezvous, groups, and faults with a name.

Read `rings` (what modules call) and `table` (how rings are made and waited for) first, then
`rendezvous`, `group` and `vigil`. This package is the door of torch.distributed; torch is imported
when the first ring is made, and the files of this package when a program first has collectives.
"""

from compiler.lazy_loading import lazy_names

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "runtime.collective.rings": "Rings",
        "runtime.collective.scopes": "rings_of",
        "runtime.collective.slices": "rpc_deadline",
    },
)
