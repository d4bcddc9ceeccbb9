"""Runs code without cyclic garbage collections."""

from __future__ import annotations

import gc
import os
from collections.abc import Generator
from contextlib import contextmanager
from threading import Lock


@contextmanager
def gc_disabled() -> Generator[None]:
    """Disable the cyclic garbage collector within the block, which threads may be in at once.

    A compilation allocates many objects and keeps them all, so that collections find nothing: they
    took 13 % of the CPU time of compiling a network of 50 convolutions for training. The same holds
    for loading what was compiled.
    """
    block = object()
    try:
        _pause.begin(block)
        yield
    finally:
        _pause.end(block)


class _Pause:
    """The open blocks, and whether the collector was enabled before the first of them."""

    def __init__(self) -> None:
        self._open: set[object] = set()
        self._was_enabled = False
        self._lock = Lock()

    def begin(self, block: object) -> None:
        """Open a block."""
        with self._lock:
            if not self._open:
                self._was_enabled = gc.isenabled()
            self._open.add(block)
            gc.disable()

    def end(self, block: object) -> None:
        """Close a block, if it is open."""
        with self._lock:
            if block in self._open:
                self._open.remove(block)
                if not self._open and self._was_enabled:
                    gc.enable()

    def end_all(self) -> None:
        """Close all blocks: in a forked child, the threads that opened them are gone."""
        if self._open and self._was_enabled:
            gc.enable()
        self._open.clear()
        self._lock = Lock()


_pause = _Pause()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_pause.end_all)
