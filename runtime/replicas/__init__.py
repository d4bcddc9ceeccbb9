"""Replicas: the ranks of one process, each with its own copy of the state of a program.

Read `replicas` first, then `turns` (threads of which a few run at a time) and `collectives`.
"""

from runtime.replicas.replicas import Replicas

__all__ = ["Replicas"]
