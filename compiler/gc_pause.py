"""Runs code without cyclic garbage collections."""

from __future__ import annotations

import gc
import os
from collections.abc import Generator
from contextlib import contextmanager


@contextmanager
def gc_disabled() -> Generator[None]:
    """Disable the cyclic garbage collector within the block.

    A compilation allocates many objects and keeps them all, and so do the import of modules and the
    reading of a model: collections only cost time, and more the more objects there are.
    """
    enabled = gc.isenabled()
    try:
        if enabled:
            _HELD_BACK.append(None)
        gc.disable()
        yield
    finally:
        if enabled:
            gc.enable()
            _HELD_BACK.clear()


_HELD_BACK: list[None] = []
"""Non-empty while a block has disabled the garbage collector."""


def _collect_in_child() -> None:
    """Enable the garbage collector in a forked child, where no other thread is in a block."""
    if _HELD_BACK:
        _HELD_BACK.clear()
        gc.enable()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_collect_in_child)
