"""Run every benchmark: print tables, and write JSON lines with `--json FILE`.

The first line of the file has the machine and the versions; each other line is a row of one table,
named by `bench`. Several runs may be appended to one file.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench import compile_time, memory, step
from bench.packing import files
from bench.support.lines import append, machine
from bench.support.table import Row
from tests.support.nets import timed


def run_all(given: argparse.Namespace) -> dict[str, list[Row]]:
    """Rows by benchmark, every table printed as soon as it is available."""
    rows: dict[str, list[Row]] = {"memory": list(memory.measure())}
    print(memory.report(rows["memory"]), flush=True)
    rows["buffers"] = list(files.measure_files())
    print(files.report_files(rows["buffers"]), flush=True)
    rows["compile_time"] = [compile_time.measure_model(), *compile_time.measure_synthetic()]
    rows["torch_compile"] = list(compile_time.measure_peer()) if given.peer else []
    print(_compile_report(rows), flush=True)
    whom, names = step.Whom(given.reference), list(timed.MODELS)
    rows["step"] = [row for n in step.THREADS for row in step.measure(names, whom, n)]
    rows["binding"] = list(step.measure_binding(names))
    print(step.report(rows["step"], rows["binding"]), flush=True)
    return rows


def _compile_report(rows: dict[str, list[Row]]) -> str:
    model, *synthetic = rows["compile_time"]
    return compile_time.report(model, synthetic, rows["torch_compile"])


def main() -> None:
    """Run all and write the requested files."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", type=Path, help="append the rows to this file")
    parser.add_argument("--peer", action="store_true", help="also time torch.compile, slow")
    parser.add_argument("--reference", default=os.environ.get("FLUID_REFERENCE_PYTHON"))
    options = parser.parse_args()
    print(", ".join(f"{name} {value}" for name, value in machine().items()), flush=True)
    rows = run_all(options)
    if options.json:
        append(options.json, rows)


if __name__ == "__main__":
    main()
