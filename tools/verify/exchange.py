"""Model files exchanged with Paddle 1.8.5 in both directions: loaded there, they compute the same.

Each side trains every model of the zoo for a step and saves it in every way that fluid has: for
inference, with parameters in separate files and combined, by `save_params`, `save_persistables` and
`fluid.save`, and its training program. `fluid convert` then rewrites the inference models. Both
sides read all of it, predict, and continue training: with their own programs, and with the program
of the file. The results are compared with those of the writer.

`--reference PYTHON` is a Python with Paddle 1.8.5; without it, this package reads its own files.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from numpy.typing import NDArray

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from bench.real_models import DIFFERENCE, difference
from bench.support.lines import append
from bench.support.table import Row, goal, table
from fluid.cli.main import main as fluid_command
from tests.support.nets import images, joined, zoo

ROOT = Path(__file__).resolve().parents[2]
LOSSES = ("persistables", "together", "state", "program")
"""Ways of reading whose results are losses of continued training; those of the others are
outputs.
"""

INFERENCE = {
    "separate": ("separate", None, None),
    "combined": ("combined", "model", "params"),
    "to combined": ("to_combined", "__model__", "__params__"),
    "to separate": ("to_separate", None, None),
    "to pdmodel": ("to_pdmodel", "inference.pdmodel", "inference.pdiparams"),
    "and back": ("back", None, None),
}
"""Inference models by name: folder, program and parameters."""

CONVERSIONS = (
    ("separate", "to_combined", "--combined"),
    ("combined/model", "to_separate"),
    ("combined/model", "to_pdmodel/inference.pdmodel"),
    ("to_pdmodel", "back"),
)
"""Arguments of `fluid convert`, in the folder of a writer."""

UNSTEADY = frozenset(images.MODELS) | frozenset(joined.MODELS)
"""Models that train with dropout, or with batch norms over so few pixels that they divide by nearly
zero: their losses diverge with any reader, and are not compared.
"""

COLUMNS = {"model": "", "written by": "", "read by": "", "ways": ",d", "outputs": ".1e"}
COLUMNS |= {"losses": ".1e"}


# ---- processes ----------------------------------------------------------------------------------


def run_worker(python: str | None, request: Mapping[str, Any]) -> None:
    """Run a process that writes or reads; RuntimeError with its last output if it dies."""
    threads = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
    path = {"PYTHONPATH": "" if python else str(ROOT), "GLOG_minloglevel": "2"}
    environment = {**os.environ, **threads, **path}
    command = [python or sys.executable, str(ROOT / "tools/verify/workers/exchange.py")]
    command += ["paddle.fluid" if python else "fluid", json.dumps(request)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{request['model']}: {done.stderr[-600:]}")


def write(python: str | None, model: str, folder: Path) -> None:
    """Write every kind of files into a folder, and convert those for inference."""
    folder.mkdir()
    run_worker(python, {"do": "write", "model": model, "folder": str(folder)})
    for source, target, *options in CONVERSIONS:
        convert(str(folder / source), str(folder / target), *options)


def convert(*arguments: str) -> None:
    """Run `fluid convert` silently; RuntimeError if it fails."""
    with contextlib.redirect_stdout(io.StringIO()):
        code = fluid_command(["convert", *arguments])
    if code:
        raise RuntimeError(f"fluid convert {' '.join(arguments)} ended with {code}")


def read(python: str | None, model: str, folder: Path) -> dict[str, NDArray[Any]]:
    """The results computed from each kind of files in a folder; texts for failures."""
    out = folder / "found.npz"
    request = {"do": "read", "model": model, "folder": str(folder), "out": str(out)}
    run_worker(python, {**request, "models": INFERENCE})
    with np.load(out) as arrays:
        return dict(arrays)


# ---- results ------------------------------------------------------------------------------------


def measure(names: Sequence[str], reference: str | None) -> Iterator[Row]:
    """A row for each model, writer and reader."""
    sides = {"ours": None, **({"1.8.5": reference} if reference else {})}
    for name in names:
        with TemporaryDirectory(prefix="exchange-") as space:
            for writer, python in sides.items():
                folder = Path(space, writer)
                write(python, name, folder)
                for reader, other in sides.items():
                    if reader == "ours" or writer == "ours":
                        row = {"model": name, "written by": writer, "read by": reader}
                        yield {**row, **compared(name, folder, read(other, name, folder))}


def compared(model: str, folder: Path, found: Mapping[str, NDArray[Any]]) -> Row:
    """The number of ways of reading, the largest differences, and the failures."""
    failed = {way: str(value) for way, value in found.items() if value.dtype.kind == "U"}
    read = {way: value for way, value in found.items() if way not in failed}
    losses = [value for way, value in read.items() if way in LOSSES]
    outputs = [value for way, value in read.items() if way not in LOSSES]
    row = {"ways": len(found), "failed": failed}
    with np.load(folder / "numbers.npz") as wanted:
        row["outputs"] = max((difference([o], [wanted["output"]]) for o in outputs), default=None)
        if model not in UNSTEADY:
            row["losses"] = max((difference([o], [wanted["losses"]]) for o in losses), default=None)
    return row


def report(rows: Sequence[Row]) -> str:
    """The table, the failures, and whether the goal is met."""
    lines = [table("Files handed over", rows, COLUMNS)]
    for row in rows:
        who = f"{row['model']}, {row['written by']} → {row['read by']}"
        lines += [f"  {who}, {way}: {what[:300]}" for way, what in row["failed"].items()]
    failed = sum(len(row["failed"]) for row in rows)
    both = [row.get(kind) or 0.0 for row in rows for kind in ("outputs", "losses")]
    worst = max(both, default=0.0)
    ways = sum(row["ways"] for row in rows)
    lines.append(goal(f"{failed} of {ways:,} readings fail", not failed, "0"))
    lines.append(goal(f"numbers differ by {worst:.1e} at most", worst <= DIFFERENCE, "≤ 1e-4"))
    return "\n".join(lines)


def main() -> int:
    """Exchange and print; return 1 if a reading failed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", nargs="+", default=list(zoo.MODELS), choices=zoo.MODELS)
    parser.add_argument("--json", type=Path, help="append the rows to this file")
    parser.add_argument("--reference", default=os.environ.get("FLUID_REFERENCE_PYTHON"))
    options = parser.parse_args()
    rows = list(measure(options.models, options.reference))
    print(report(rows))
    if options.json:
        append(options.json, {"exchange": rows})
    return int(any(row["failed"] for row in rows))


if __name__ == "__main__":
    sys.exit(main())
