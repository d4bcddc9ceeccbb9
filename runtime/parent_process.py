"""Processes that end with their parent, however it ends."""

from __future__ import annotations

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1
"""prctl(2): a signal to receive when the parent ends."""


def end_with(parent: int) -> None:
    """Ask the kernel to kill this process when its parent ends, even while it is stopped.

    `parent` is the PID that the parent had; if it has ended already, this process ends here. Only
    Linux has this: elsewhere a parent that is killed leaves its children.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it ended before the call
        os._exit(1)
