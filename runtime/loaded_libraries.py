"""The shared libraries that this process has loaded; known on Linux, from /proc."""

from __future__ import annotations

from pathlib import Path

_MAPS = Path("/proc/self/maps")


def loaded_libraries(name: str) -> list[str]:
    """Return the paths of loaded files whose own name contains `name`; [] where it is unknown."""
    try:
        lines = _MAPS.read_text(encoding="utf-8").splitlines()
    except OSError:
        return []
    paths = dict.fromkeys(line.split(maxsplit=5)[-1] for line in lines if name in line)
    return [path for path in paths if path.startswith("/") and name in Path(path).name]
