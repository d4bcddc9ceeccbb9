"""`fluid compile`: a saved model as code, its kernels built for GPUs that are not here."""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from compiler.cost.plan_cost import Account, Side, account
from compiler.escape import one_line
from compiler.ir.types import Array
from compiler.options import Cache
from compiler.report.memory import size_text
from compiler.report.table import count, table
from fluid.cli.model import load_model
from fluid.cli.terminal import progress_line
from fluid.inference.packages import write_package

COMPILE = """\
Compile a saved model into a package: a folder with a module of generated code, the parameters as it
takes them, and for GPUs the machine code of every kernel. It is made on any Linux machine, and runs
where such a GPU is without compiling anything: no Triton kernel is compiled there, and neither nvcc
nor gcc is asked for. The table tells of each kernel its registers, what did not fit into them, its
shared memory and code, and how often a run launches it, what it moves and computes then.

Kernels that were built before, for any model, come from ~/.cache/fluid, or from the folder that
FLUID_CACHE names; what is not used is dropped when they take more than FLUID_CACHE_SIZE (2GB).

Run a package with `fluid infer OUT` or `fluid.load_compiled("OUT")`. Its module.py is Python that
is executed: load packages only from where you would run programs from. Each file is held against
the SHA-256 in kernels.json, so that a file that was damaged or changed is told and not used.
"""
COMPILE_EXAMPLES = """\
examples:
  fluid compile DIR -o out                                   NumPy code, out/module.py
  fluid compile DIR --target cuda:90 -o out                  for an H100 or H200
  fluid compile DIR --target cuda:80,cuda:100,hip:gfx942 -o out
  fluid infer out --input x.npy                              on the machine with the GPU
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
        "--without-params", action="store_true",
        help="leave the parameters out; fluid.load_compiled is given them, as the model saved them",
    )  # fmt: skip
    command.add_argument(
        "--large", action="store_true", help="values may have 2^31 elements or more"
    )
    command.add_argument(
        "--batch", type=int, default=1, metavar="N",
        help="what the table takes every open size for (%(default)s); the code is for any",
    )  # fmt: skip
    command.add_argument(
        "--processes", type=int, metavar="N", help="kernels compiled at once (one a processor)"
    )
    command.add_argument("--json", action="store_true", help="print the table as JSON")
    command.add_argument("--model-filename", metavar="FILE", help="if it is not __model__")
    command.add_argument("--params-filename", metavar="FILE", help="if all are in one file")


def compile_model(given: argparse.Namespace) -> int:
    """Write the package, its kernels built before; show what they need."""
    model = load_model(given.model_dir, given.model_filename, given.params_filename)
    gpus: Any = None if given.target == "numpy" else import_module("compiler.codegen.ahead.gpus")
    targets = gpus.gpus(given.target) if gpus else []
    params: dict[str, Array] | None = None if given.without_params else dict(model.params)
    stages = import_module("compiler.driver").compile_stages(
        model.program, feed=[var.name for var in model.feeds], fetch=model.fetch_names,
        params=params, target="triton" if gpus else "numpy",
    )  # fmt: skip
    code, rows = _built(stages.module, targets, given) if gpus else ({}, [])
    write_package(given.out, stages.module, model.path.read_bytes(), params, code, rows)
    told = _with_costs(rows, account(stages.plan, dict.fromkeys(stages.plan.dims, given.batch)))
    if given.json:
        print(json.dumps(told, indent=1))
    else:
        _tell(stages, given, told)
    return 0


def _tell(stages: Any, given: argparse.Namespace, rows: Sequence[Mapping[str, Any]]) -> None:
    """What was written, what has no kernels and why, and the table."""
    module = stages.module
    print(f"{given.out / 'module.py'}: {count(len(module.source.splitlines()), 'line')}")
    if module.target == "numpy":
        return
    _tell_host_ops(stages.context.missed)
    print(_shown(rows) if rows else "the model has no kernels: all of it runs on the host")
    spilled = sum(bool(row["spilled"]) for row in rows)
    print(f"{count(len(rows), 'kernel')} built, {spilled} spill; see {given.out / 'kernels.json'}")


def _tell_host_ops(missed: Sequence[Any]) -> None:
    """What no kernel is written for, by name and reason."""
    mine = [each for each in missed if each.name == "assign_targets"]
    if mine:
        print(f"{count(len(mine), 'op')} will run on the host:")
    for each in mine:
        print(f"  {one_line(each.op)}: {one_line(each.reason)}")


def _built(
    module: Any, targets: Sequence[Any], given: argparse.Namespace
) -> tuple[dict[str, bytes], list[dict[str, Any]]]:
    """The code of the kernels by file, and a row for each."""
    ahead = import_module("compiler.codegen.ahead.build")
    manifest = import_module("compiler.codegen.ahead.manifest")
    cache = Cache.from_env()
    (built,) = ahead.build(
        [module], targets, cache.folder, cache.limit, _progress(), given.processes, given.large
    )
    return manifest.code_files(built), manifest.kernel_rows(built)


def _progress() -> Callable[[int, int, str], None]:
    """What writes a line on a terminal, how many kernels are done and how long the rest takes."""
    start, before = time.perf_counter(), -1

    def told(done: int, whole: int, name: str) -> None:
        nonlocal before
        before = done - 1 if before < 0 else before  # those were built in another run
        left = (time.perf_counter() - start) / (done - before) * (whole - done)
        progress_line(f"[{done}/{whole}] {name}, {left:.0f} s left" if done < whole else "")

    return told


def _with_costs(rows: Sequence[Mapping[str, Any]], costs: Account) -> list[dict[str, Any]]:
    """The rows of kernels with what all their launches in one run move and compute."""
    return [{**row, **_cost(str(row["kernel"]), costs)} for row in rows]


def _cost(kernel: str, costs: Account) -> dict[str, int]:
    mine = [each for each in costs.of(Side.DEVICE) if each.kernel == kernel]
    return {
        "launches": len(mine),
        "moved": sum(each.moved for each in mine),
        "operations": sum(each.operations + each.products for each in mine),
    }


def _shown(rows: Sequence[Mapping[str, Any]]) -> str:
    head = ("kernel", "gpu", "registers", "spilled", "shared", "code", "launches", "moved", "ops")
    cells = [
        (row["kernel"], row["gpu"], _said(row["registers"]), _said(row["spilled"]),
         size_text(row["shared"]), size_text(row["bytes"]), str(row["launches"]),
         size_text(row["moved"]), f"{row['operations']:,}")
        for row in rows
    ]  # fmt: skip
    return table([head, *cells], indent="", left=2)


def _said(number: int | None) -> str:
    return "?" if number is None else str(number)
