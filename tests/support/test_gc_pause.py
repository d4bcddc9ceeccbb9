"""Blocks without garbage collections."""

from __future__ import annotations

import gc
import os
from threading import Event, Thread

import pytest

from compiler.support.gc_pause import gc_disabled


def test_collections_stop_within_blocks_of_any_depth() -> None:
    assert gc.isenabled()
    with gc_disabled(), gc_disabled():
        assert not gc.isenabled()
    assert gc.isenabled()
    with pytest.raises(KeyError), gc_disabled():
        raise KeyError
    assert gc.isenabled()


def test_a_collector_that_was_disabled_stays_so() -> None:
    gc.disable()
    try:
        with gc_disabled():
            pass
        assert not gc.isenabled()
    finally:
        gc.enable()


def test_a_block_of_another_thread_that_ends_first_enables_nothing() -> None:
    begun, ended = Event(), Event()

    def other() -> None:
        with gc_disabled():
            begun.set()
            ended.wait(10)

    thread = Thread(target=other)
    thread.start()
    begun.wait(10)
    with gc_disabled():
        ended.set()
        thread.join()
        assert not gc.isenabled()
    assert gc.isenabled()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
def test_a_forked_child_collects() -> None:
    with gc_disabled():
        child = os.fork()
        if not child:
            os._exit(0 if gc.isenabled() else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
