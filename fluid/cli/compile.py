"""`fluid compile`: a saved model as code, its kernels built for GPUs that are not here."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from compiler.options import Cache
from compiler.report.memory import size_text
from compiler.report.table import count, table
from fluid.cli.model import load_model

COMPILE = """\
Compile a saved model into a module of generated code. For GPUs every kernel is built as well, on
any Linux machine: the table tells registers, shared memory and what did not fit into registers.
What was built before is taken from ~/.cache/fluid, or the folder that FLUID_CACHE names.
"""
COMPILE_EXAMPLES = """\
examples:
  fluid compile DIR -o out                                   NumPy code, out/module.py
  fluid compile DIR --target cuda:90 -o out                  for an H100 or H200
  fluid compile DIR --target cuda:80,cuda:100,hip:gfx942 -o out
"""


def add_compile(commands: Any) -> None:
    """Add the command to those of `fluid`."""
    command = commands.add_parser(
        "compile",
        help="write a saved model as code, its kernels built for GPUs that need not be here",
        description=COMPILE,
        epilog=COMPILE_EXAMPLES,
    )
    command.set_defaults(command=compile_model)
    command.add_argument("model_dir", type=Path, metavar="MODEL_DIR", help="a saved model")
    command.add_argument("-o", "--out", type=Path, required=True, metavar="DIR", help="where to")
    command.add_argument(
        "--target", default="numpy", metavar="GPU[,GPU…]",
        help="cuda:80, cuda:90, cuda:100, hip:gfx942, … (numpy unless given)",
    )  # fmt: skip
    command.add_argument(
        "--large", action="store_true", help="values may have 2^31 elements or more"
    )
    command.add_argument(
        "--processes", type=int, metavar="N", help="kernels compiled at once (one a processor)"
    )
    command.add_argument("--json", action="store_true", help="print the table as JSON")
    command.add_argument("--model-filename", metavar="FILE", help="if it is not __model__")
    command.add_argument("--params-filename", metavar="FILE", help="if all are in one file")


def compile_model(given: argparse.Namespace) -> int:
    """Write the module, build its kernels, show what they need."""
    model = load_model(given.model_dir, given.model_filename, given.params_filename)
    gpus: Any = None if given.target == "numpy" else import_module("compiler.codegen.triton.gpus")
    targets = gpus.gpus(given.target) if gpus else []
    stages = import_module("compiler.driver").compile_stages(
        model.program, feed=[var.name for var in model.feeds], fetch=model.fetch_names,
        params=dict(model.params), target="triton" if gpus else "numpy",
    )  # fmt: skip
    module = stages.module
    tell: Callable[[str], None] = (lambda _: None) if given.json else print
    rows = _built(module, targets, given) if gpus else []
    given.out.mkdir(parents=True, exist_ok=True)
    module.save(given.out / "module.py")
    tell(f"{given.out / 'module.py'}: {count(len(module.source.splitlines()), 'line')}")
    if gpus:
        _tell_host_ops(stages.context.refusals, tell)
        tell(_shown(rows) if rows else "the model has no kernels: all of it runs on the host")
        spilled = sum(bool(row["spilled"]) for row in rows)
        tell(f"{count(len(rows), 'kernel')} built, {spilled} spill; see {given.out / KERNELS}")
    if given.json:
        print(json.dumps(rows, indent=1))
    return 0


KERNELS = "kernels.json"


def _tell_host_ops(refusals: Sequence[Any], tell: Callable[[str], None]) -> None:
    """What no kernel is written for, by name and reason."""
    mine = [each for each in refusals if each.name == "assign_targets"]
    if mine:
        tell(f"{count(len(mine), 'op')} will run on the host:")
    for each in mine:
        tell(f"  {each.op}: {each.reason}")


def _built(module: Any, targets: Sequence[Any], given: argparse.Namespace) -> list[dict[str, Any]]:
    """Build the kernels, write their code and a row for each."""
    ahead = import_module("compiler.codegen.triton.ahead")
    manifest = import_module("compiler.codegen.triton.manifest")
    cache = Cache.from_env()
    (built,) = ahead.build(
        [module], targets, cache.folder, cache.limit, _progress(), given.processes,
        index="int64" if given.large else "int32",
    )  # fmt: skip
    for name, held in manifest.code_files(built).items():
        file = given.out / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(held)
    rows: list[dict[str, Any]] = manifest.kernel_rows(built)
    (given.out / KERNELS).write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")
    return rows


def _progress() -> Callable[[int, int, str], None]:
    """What writes a line on a terminal, how many kernels are done and how long the rest takes."""
    start, before = time.perf_counter(), 0

    def told(done: int, whole: int, name: str) -> None:
        nonlocal before
        before = before or done - 1  # those were built in another run
        left = (time.perf_counter() - start) / (done - before) * (whole - done)
        _line(f"[{done}/{whole}] {name}, {left:.0f} s left" if done < whole else "")

    return told


def _line(text: str) -> None:
    if sys.stderr.isatty():
        print(f"\r\033[K{text}", end="", file=sys.stderr, flush=True)


def _shown(rows: Sequence[dict[str, Any]]) -> str:
    head = ("kernel", "gpu", "registers", "spilled", "shared", "code")
    cells = [
        (row["kernel"], row["gpu"], _said(row["registers"]), _said(row["spilled"]),
         size_text(row["shared"]), size_text(row["bytes"]))
        for row in rows
    ]  # fmt: skip
    return table([head, *cells], indent="", left=2)


def _said(number: int | None) -> str:
    return "?" if number is None else str(number)
