"""Results of benchmarks as lines of JSON: first the machine and versions, then one row per line."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

from bench.support.table import Row

PACKAGES = ("numpy", "networkx", "torch")


def machine() -> dict[str, Any]:
    """The processor, its cores, and the versions of Python and of libraries that affect numbers."""
    return {
        "machine": _processor(),
        "cpus": os.cpu_count(),
        "system": platform.system(),
        "python": platform.python_version(),
        **{name: version(name) for name in PACKAGES},
    }


def _processor() -> str:
    """The processor's name if Linux reports it, else its architecture."""
    path = Path("/proc/cpuinfo")
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


def json_lines(rows: Mapping[str, Sequence[Row]]) -> str:
    """The machine, then every row with the name of its benchmark."""
    records = [{"bench": "machine", **machine()}]
    records += [
        {"bench": bench, **row} for bench, rows_of_bench in rows.items() for row in rows_of_bench
    ]
    return "".join(json.dumps(record, ensure_ascii=False) + "\n" for record in records)


def append(path: Path, rows: Mapping[str, Sequence[Row]]) -> None:
    """Append rows, by the names of their benchmarks, to a file, created if missing."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a", encoding="utf-8") as file:
        file.write(json_lines(rows))
