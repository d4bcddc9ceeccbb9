"""Worker processes of one machine: the pool (on the caller's side), the worker, and their channel.

Read `pool` first, then `worker`, `process`, `fork_server`, `channel` and `region`. The pool is
loaded when it is first needed.
"""

from compiler.support.lazy_loading import lazy_names

__all__: list[str] = []

__getattr__, __dir__ = lazy_names(__name__, {"runtime.parallel.pool": "Pool"}, exported="*")
