"""Run every benchmark: tables for people, and JSON lines with `--json FILE`.

The first line of the file says on what machine and with which versions; each other line is a row
of one table, named by `bench`. Several runs may be appended to one file.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench import compile_time, memory, models, step
from bench.table import Row

PACKAGES = ("numpy", "networkx", "torch")


def machine() -> dict[str, Any]:
    """The processor, how many of it, and the versions of Python and of what numbers depend on."""
    return {
        "machine": _processor(),
        "cpus": os.cpu_count(),
        "system": platform.system(),
        "python": platform.python_version(),
        **{name: version(name) for name in PACKAGES},
    }


def _processor() -> str:
    """The processor's name where Linux tells it, else its architecture."""
    path = Path("/proc/cpuinfo")
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


def run_all(given: argparse.Namespace) -> dict[str, list[Row]]:
    """Rows by benchmark, every table printed as soon as it is there."""
    rows: dict[str, list[Row]] = {"memory": list(memory.measure())}
    print(memory.report(rows["memory"]), flush=True)
    if given.buffers:
        rows["buffers"] = list(memory.measure_files(given.buffers))
        print(memory.report_files(rows["buffers"]), flush=True)
    rows["compile_time"] = [compile_time.measure_model(), *compile_time.measure_synthetic()]
    rows["torch_compile"] = list(compile_time.measure_peer()) if given.peer else []
    print(_compile_report(rows), flush=True)
    whom, names = step.Whom(given.reference), list(models.MODELS)
    rows["step"] = [row for n in step.THREADS for row in step.measure(names, whom, n)]
    rows["binding"] = list(step.measure_binding(names))
    print(step.report(rows["step"], rows["binding"]), flush=True)
    return rows


def _compile_report(rows: dict[str, list[Row]]) -> str:
    model, *synthetic = rows["compile_time"]
    return compile_time.report(model, synthetic, rows["torch_compile"])


def json_lines(rows: dict[str, Sequence[Row]]) -> str:
    """The machine, then every row with the name of its benchmark."""
    records = [{"bench": "machine", **machine()}]
    records += [{"bench": bench, **row} for bench, found in rows.items() for row in found]
    return "".join(json.dumps(record, ensure_ascii=False) + "\n" for record in records)


def main() -> None:
    """Run all and write what was asked for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", type=Path, help="append the rows to this file")
    parser.add_argument("--buffers", type=Path, help="also pack the lives in this folder")
    parser.add_argument("--peer", action="store_true", help="also time torch.compile, slow")
    parser.add_argument("--reference", default=os.environ.get("FLUID_REFERENCE_PYTHON"))
    given = parser.parse_args()
    print(", ".join(f"{name} {value}" for name, value in machine().items()), flush=True)
    rows = run_all(given)
    if given.json:
        given.json.parent.mkdir(parents=True, exist_ok=True)
        with given.json.open("a", encoding="utf-8") as file:
            file.write(json_lines(rows))


if __name__ == "__main__":
    main()
