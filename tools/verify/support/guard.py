"""A guard against actions of untrusted programs while they are read, compiled or run."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

FORBIDDEN = (
    "os.system", "os.exec", "os.posix_spawn", "os.spawn", "os.fork", "os.forkpty", "os.putenv",
    "os.unsetenv", "os.kill", "os.chmod", "os.chown", "os.link", "os.symlink", "subprocess.Popen",
    "socket.connect", "socket.bind", "socket.sendto", "urllib.Request", "webbrowser.open",
    "pty.spawn", "ctypes.dlopen", "pickle.find_class", "code.__new__",
)  # fmt: skip
"""Python audit events that reading, compiling and running a model never raise."""

WRITES = ("w", "a", "x", "+")


class Guard:
    """Blocks forbidden actions from its creation on; an audit hook cannot be removed.

    `folder` is where files may be written. Violations are recorded in `seen`.
    """

    def __init__(self, folder: Path) -> None:
        self.seen: list[str] = []
        self._folder = str(folder)
        sys.addaudithook(self._watch)

    def _watch(self, event: str, given: tuple[Any, ...]) -> None:
        outside = event == "shutil.rmtree" and not str(given[0]).startswith(self._folder)
        if event in FORBIDDEN or outside or (event == "open" and self._is_written(given)):
            self.seen.append(f"{event} {given!r:.80}")
            raise RuntimeError(f"forbidden: {event}")

    def _is_written(self, given: tuple[Any, ...]) -> bool:
        path, mode = given[0], given[1] or "r"
        if not any(letter in str(mode) for letter in WRITES) or not isinstance(path, str):
            return False
        return not path.startswith((self._folder, "/dev/"))
