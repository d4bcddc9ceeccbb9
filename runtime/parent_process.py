"""Processes that end with their parent, however it ends."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import time
from threading import Thread

PR_SET_PDEATHSIG = 1
"""prctl(2): a signal to receive when the parent ends."""


POLL_SECONDS = 0.5
"""Interval at which `watch` asks for the parent."""


def end_with(parent: int) -> None:
    """Ask the kernel to kill this process when its parent ends, even while it is stopped.

    `parent` is the PID that the parent passed on: `os.getppid` would return that of another process
    if the parent has ended already, in which case this process ends here. Only Linux has this:
    elsewhere a parent that is killed leaves its children.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it ended before the call
        os._exit(1)


def watch(parent: int) -> None:
    """End this process within a second after its parent, from a thread.

    For processes that any thread of the parent may start: the kernel takes the end of that thread
    for the end of the parent.
    """

    def wait() -> None:
        while os.getppid() == parent:
            time.sleep(POLL_SECONDS)
        os._exit(1)

    Thread(target=wait, daemon=True, name="parent").start()
