"""Collectives between ranks, over torch.distributed: rendezvous, groups, and errors naming a rank.

Read `rings` (what modules call) first, then `work` (how it is waited for), `agreement` (which
collectives ranks compare), `tensors`, `rendezvous`, `group` and `watchdog`. Only this package
imports torch.distributed; torch is imported when the first ring is created, and the files of this
package when a program first has collectives.
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
