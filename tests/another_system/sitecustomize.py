"""Another operating system, as far as Python shows it.

Every process started with this folder in PYTHONPATH lacks what Python has on Linux only, and the
modules that FLUID_HIDDEN names, separated by spaces. With FLUID_LOCKS=windows it locks files as
Windows does.
"""

import ctypes
import ctypes.util
import importlib
import logging
import multiprocessing.util
import os
import random
import select
import selectors
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from typing import Any

BUSY = (
    ctypes.util,
    logging,
    multiprocessing.util,
    random,
    selectors,
    shutil,
    subprocess,
    tempfile,
)
"""Modules of Python that take what is hidden below, each when it is imported."""

HIDDEN = {
    os: "O_CLOEXEC O_DIRECTORY O_NOFOLLOW chown copy_file_range eventfd fchmod fdatasync fork "
    "forkpty getegid geteuid getgid getloadavg getpgid getuid killpg memfd_create mkfifo nice "
    "pidfd_open posix_fadvise register_at_fork sched_getaffinity sched_setaffinity "
    "setsid statvfs sync sysconf",
    signal: "ITIMER_REAL SIGALRM SIGCHLD SIGCONT SIGHUP SIGSTOP SIGUSR1 SIGUSR2 pthread_sigmask "
    "setitimer sigwait",
    select: "epoll poll",
    socket: "AF_UNIX SOCK_SEQPACKET",
}
FOLDERS = ("/proc", "/sys")


def refuse(event: str, arguments: tuple[Any, ...]) -> None:
    """Refuse the files that Linux alone has, and the library that is the program itself."""
    if event == "open" and str(arguments[0]).startswith(FOLDERS):
        raise FileNotFoundError(2, "No such file or directory", arguments[0])
    if event == "ctypes.dlopen" and arguments[0] is None:
        raise TypeError("bad argument type for built-in operation")


for module, names in HIDDEN.items():
    for name in names.split():
        delattr(module, name)
if os.environ.get("FLUID_LOCKS") == "windows":
    sys.modules["msvcrt"] = importlib.import_module("windows_locks")
for name in os.environ.get("FLUID_HIDDEN", "").split():
    sys.modules[name] = None  # which import and find_spec take as absent
sys.addaudithook(refuse)
