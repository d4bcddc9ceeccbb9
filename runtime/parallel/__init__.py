"""Worker processes of one machine: the pool (on the caller's side), the worker, and their channel.

Read `pool` first, then `worker`, `process`, `fork_server`, `channel` and `region`.
"""

from runtime.parallel.pool import Pool

__all__ = ["Pool"]
