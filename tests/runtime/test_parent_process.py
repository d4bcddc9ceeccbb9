"""Processes that end with their parent."""

import os
import select
from collections.abc import Callable

import pytest

from runtime import parent_process
from runtime.parent_process import end_with, watch

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no forks")


def ends(child: Callable[[int], None], when: str) -> bool:
    """Whether a process ends that runs `child` with the PID of a parent that exits.

    The parent exits `before` or `after` its child calls the function.
    """
    ended, alive = os.pipe()
    called, calls = os.pipe()
    parent = os.fork()
    if not parent:
        if os.fork():  # the parent: it is read from the pipe when the child has called
            if when == "after":
                os.read(called, 1)
            os._exit(0)
        parent = os.getppid()
        while when == "before" and os.getppid() == parent:
            pass
        child(parent)
        os.write(calls, b"x")
        select.select([], [], [], 10)
        os._exit(0)
    os.waitpid(parent, 0)
    os.close(alive)
    readable, _, _ = select.select([ended], [], [], 5)
    for each in (ended, called, calls):
        os.close(each)
    return bool(readable)


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("function", [end_with, watch])
def test_a_child_ends_with_its_parent(
    function: Callable[[int], None], when: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parent_process, "POLL_SECONDS", 0.01)
    assert ends(function, when)
