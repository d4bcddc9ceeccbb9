"""Locks in processes created by `os.fork`: a child has only the thread that forked.

A lock that another thread held stays locked in the child forever. So owners of locks recreate them
in each child.
"""

from __future__ import annotations

import os
from typing import Protocol
from weakref import WeakSet


class HasLocks(Protocol):
    """An object that recreates its locks on request."""

    def renew_locks(self) -> None:
        """Replace every lock with a free one; called in a child, where no other thread runs."""
        ...


_OWNERS: WeakSet[HasLocks] = WeakSet()


def renew_in_children(owner: HasLocks) -> None:
    """Call `owner.renew_locks()` in every child of this process, for as long as `owner` lives."""
    _OWNERS.add(owner)


def _renew() -> None:
    for owner in list(_OWNERS):
        owner.renew_locks()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew)
