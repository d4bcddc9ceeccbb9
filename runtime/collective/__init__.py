"""Collectives between ranks, by torch.distributed or shared memory, and errors that name a rank.

Read `rings` (what modules call) first, then `groups` (how arrays are moved), `work` (how it is
waited for), `agreement` (which collectives ranks compare), `tensors`, `rendezvous` and `watchdog`.
Only this package imports torch.distributed; torch is imported when the first ring is created, and
the files of this package when a program first has collectives.
"""

from compiler.support.lazy_loading import lazy_names

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "runtime.collective.rings": "Rings",
        "runtime.collective.scopes": "rings_of",
        "runtime.collective.slices": "rpc_deadline",
    },
)
