"""`fluid compile`: ahead-of-time compilation of a saved model, also for GPUs that are not
installed and for other CPUs.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import TypedDict

from compiler.codegen.module import Module
from compiler.cost.plan_cost import PlanCost, Side, account
from compiler.errors import CompileError
from compiler.ir.types import Array
from compiler.options import Cache, Options
from compiler.passes.base import Remark
from compiler.report.memory import size_text
from compiler.report.table import count, table
from compiler.support.escape import one_line
from fluid.cli.compile_cpu import compile_for_cpus, cpu_levels
from fluid.cli.model import SavedModel, add_file_names, load_model
from fluid.cli.subcommands import Subcommands
from fluid.cli.terminal import progress_line
from fluid.inference.packages import write_package
from fluid.running.targets import chosen_target
from fluid.running.tuning import is_at_hand, timed_options
from runtime.device import CUDAPlace
from runtime.gpu.cuda import device_of, gpu_count, gpu_of

COMPILE = """\
Compile a saved model ahead of time into a package: a folder with generated code, the parameters
and the machine code of every kernel. A package can be built on any Linux machine, without the GPU
or the CPU that it is for. Where it runs, nothing is compiled: neither Triton, nvcc and gcc nor
llvmlite are needed. The printed table shows for each kernel its code size, and per run its calls,
bytes moved and operations; for GPUs also registers, spilled registers and shared memory.

A package for CPUs can have code for several levels: avx512 and avx2 for x86-64, neon for AArch64.
It runs that of the most capable level that the CPU has; FLUID_CPU=avx2 selects another one.

Compiled kernels are cached in ~/.cache/fluid, or in the folder in FLUID_CACHE; the least recently
used are removed when the cache exceeds FLUID_CACHE_SIZE (2GB).

Run a package with `fluid infer OUT` or `fluid.load_compiled("OUT")`. Its module.py is Python code
that is executed: load only packages that you trust. Each file is checked against its SHA-256 in
kernels.json, and a damaged or modified file is an error.
"""
COMPILE_EXAMPLES = """\
examples:
  fluid compile DIR -o out                                   for this CPU
  fluid compile DIR --target cpu:avx2,cpu:avx512,cpu:neon -o out
  fluid compile DIR --target numpy -o out                    NumPy code, out/module.py
  fluid compile DIR --target cuda:90 -o out                  for an H100 or H200
  fluid compile DIR --target cuda:90 --tune -o out           on a machine with one: times tiles
  fluid compile DIR --target cuda:80,cuda:100,hip:gfx942 -o out
  fluid infer out --input x.npy                              run it, on the machine with the GPU
"""


class KernelRow(TypedDict):
    """The table's row of a kernel, of those that `compiler.codegen.ahead.manifest` makes."""

    kernel: str
    gpu: str
    registers: int | None
    spilled: int | None
    shared: int
    bytes: int


class KernelCost(TypedDict):
    """What a kernel does in one run: its launches, bytes and operations."""

    launches: int
    moved: int
    operations: int


class CostedRow(KernelRow, KernelCost):
    """A row with what the kernel does in one run."""


def add_compile(commands: Subcommands) -> None:
    """Add `compile` to the subcommands."""
    command = commands.add_parser(
        "compile",
        help="compile a saved model ahead of time into a package",
        description=COMPILE,
        epilog=COMPILE_EXAMPLES,
    )
    command.set_defaults(command=compile_model)
    command.add_argument("model_dir", type=Path, metavar="MODEL_DIR", help="a saved model")
    command.add_argument(
        "-o", "--out", type=Path, required=True, metavar="DIR", help="output folder"
    )
    command.add_argument(
        "--target", metavar="TARGET[,TARGET…]",
        help="cpu:avx2, cpu:avx512, cpu:neon, native (this CPU), numpy, or GPUs: cuda:80, cuda:90, "
        "cuda:100, hip:gfx942, … (default: this CPU)",
    )  # fmt: skip
    command.add_argument(
        "--without-params", action="store_true",
        help="omit the parameters; pass them to fluid.load_compiled, as the model saved them",
    )  # fmt: skip
    command.add_argument(
        "--large", action="store_true", help="tensors with 2^31 elements or more (64-bit indices)"
    )
    command.add_argument(
        "--batch", type=int, default=1, metavar="N",
        help="value of dynamic dims in the table (default: %(default)s); the code accepts any",
    )  # fmt: skip
    command.add_argument(
        "--processes", type=int, metavar="N",
        help="kernels compiled in parallel (default: one per CPU)",
    )  # fmt: skip
    command.add_argument(
        "--tune", action="store_true", help="time the tiles of products on the GPU that is here"
    )
    command.add_argument("--json", action="store_true", help="print the table as JSON")
    add_file_names(command.add_argument)


def compile_model(given: argparse.Namespace) -> int:
    """Write the package with its compiled kernels and print what they use."""
    target = given.target or chosen_target("", Options.from_env())
    levels = cpu_levels(target)
    model = load_model(given.model_dir, given.model_filename, given.params_filename)
    if levels:
        return compile_for_cpus(model, levels, given)
    gpus = None if target == "numpy" else import_module("compiler.codegen.ahead.gpus")
    targets: Sequence[object] = gpus.gpus(target) if gpus else []
    params: dict[str, Array] | None = None if given.without_params else dict(model.params)
    gpu = gpus.tuned_for(targets) if gpus else ""
    options = replace(Options.from_env(), gpu=gpu, libraries=False)
    options = _tuned(options, model) if given.tune else options
    stages = import_module("compiler.driver").compile_stages(
        model.program, feed=[var.name for var in model.feeds], fetch=model.fetch_names,
        params=params, target="triton" if gpus else "numpy",
        options=options,
    )  # fmt: skip
    code, rows = _built(stages.module, targets, given) if gpus else ({}, [])
    write_package(given.out, stages.module, model.path.read_bytes(), params, code, rows)
    table_rows = _with_costs(
        rows, account(stages.plan, dict.fromkeys(stages.plan.dims, int(given.batch)))
    )
    if given.json:
        print(json.dumps(table_rows, indent=1))
    else:
        _report(stages.module, stages.context.missed, given, table_rows)
    return 0


def _tuned(options: Options, model: SavedModel) -> Options:
    """The options with the tiles that are the fastest on the GPU of this machine.

    Raises CompileError if there is none, or if the package is for other GPUs.
    """
    place = CUDAPlace(0)
    if not gpu_count() or not is_at_hand(place):
        raise CompileError("--tune times tiles on a GPU, and this machine has none")
    here = gpu_of(device_of(place))
    if options.gpu != here:
        raise CompileError(f"--tune times tiles for {here}, and the package is for {options.gpu}")
    feed = [var.name for var in model.feeds]
    return timed_options(place, options, model.program, feed, model.fetch_names)


def _report(
    module: Module,
    missed: Sequence[Remark],
    given: argparse.Namespace,
    rows: Sequence[CostedRow],
) -> None:
    """Print what was written, the ops without a device kernel and why, and the kernel table."""
    print(f"{given.out / 'module.py'}: {count(len(module.source.splitlines()), 'line')}")
    if module.target == "numpy":
        return
    _report_host_ops(missed)
    print(_shown(rows) if rows else "the model has no kernels: all of it runs on the host")
    spilled = sum(bool(row["spilled"]) for row in rows)
    print(f"{count(len(rows), 'kernel')} built, {spilled} spill; see {given.out / 'kernels.json'}")


def _report_host_ops(missed: Sequence[Remark]) -> None:
    """Print the ops that have no device kernel, with the reason for each."""
    mine = [note for note in missed if note.name == "assign_targets"]
    if mine:
        print(f"{count(len(mine), 'op')} without a device kernel, run on the host:")
    for note in mine:
        print(f"  {one_line(note.op)}: {one_line(note.reason)}")


def _built(
    module: Module, targets: Sequence[object], given: argparse.Namespace
) -> tuple[dict[str, bytes], list[KernelRow]]:
    """Compile the kernels; return the binaries by file name and a table row for each kernel."""
    ahead = import_module("compiler.codegen.ahead.build")
    manifest = import_module("compiler.codegen.ahead.manifest")
    cache = Cache.from_env()
    (built,) = ahead.build(
        [module], targets, cache.folder, cache.limit, _progress(), given.processes, given.large
    )
    return manifest.code_files(built), manifest.kernel_rows(built)


def _progress() -> Callable[[int, int, str], None]:
    """Return a callback that shows on a terminal how many kernels are compiled and
    the time left.
    """
    start, before = time.perf_counter(), -1

    def show(done: int, whole: int, name: str) -> None:
        nonlocal before
        before = done - 1 if before < 0 else before  # these were cached
        left = (time.perf_counter() - start) / (done - before) * (whole - done)
        progress_line(f"[{done}/{whole}] {name}, {left:.0f} s left" if done < whole else "")

    return show


def _with_costs(rows: Sequence[KernelRow], costs: PlanCost) -> list[CostedRow]:
    """Add to each kernel's row the launches, bytes and operations of one run."""
    return [{**row, **_cost(row["kernel"], costs)} for row in rows]


def _cost(kernel: str, costs: PlanCost) -> KernelCost:
    mine = [cost for cost in costs.of(Side.DEVICE) if cost.kernel == kernel]
    return {
        "launches": len(mine),
        "moved": sum(cost.moved for cost in mine),
        "operations": sum(cost.operations + cost.products for cost in mine),
    }


def _shown(rows: Sequence[CostedRow]) -> str:
    head = ("kernel", "gpu", "registers", "spilled", "shared", "code", "launches", "moved", "ops")
    cells = [
        (row["kernel"], row["gpu"], _number_text(row["registers"]), _number_text(row["spilled"]),
         size_text(row["shared"]), size_text(row["bytes"]), str(row["launches"]),
         size_text(row["moved"]), f"{row['operations']:,}")
        for row in rows
    ]  # fmt: skip
    return table([head, *cells], indent="", left=2)


def _number_text(number: int | None) -> str:
    return "?" if number is None else str(number)
