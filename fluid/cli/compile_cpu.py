"""`fluid compile` for CPUs: a module and object files for each level of an instruction set."""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import TypedDict

from compiler.codegen.module import Module
from compiler.codegen.native.host import host_machine
from compiler.codegen.native.machine import MACHINES
from compiler.codegen.native.target import NativeTarget
from compiler.cost.plan_cost import Cost, Side, account
from compiler.errors import CompileError
from compiler.ir.types import Array
from compiler.passes.base import Remark
from compiler.plan import Plan
from compiler.report.memory import size_text
from compiler.report.roofline import scaled
from compiler.report.table import count, table
from compiler.support.escape import one_line
from fluid.cli.model import SavedModel
from fluid.inference.packages import write_cpu_package
from runtime.native.sequence import build_objects

LISTED = 40
"""Kernels listed for each level, those with the most operations and bytes first."""

_PREFIX = "cpu:"


class CpuKernelRow(TypedDict):
    """The table's row of a kernel: its bytes of code; the calls, bytes and operations of a run."""

    kernel: str
    cpu: str
    bytes: int
    calls: int
    moved: int
    operations: int


def cpu_levels(target: str) -> list[str]:
    """The levels that a `--target` names, without duplicates; empty if it names no CPU.

    `native` is this CPU. Raises CompileError for an unknown level, and for CPUs and GPUs in one
    package.

    >>> cpu_levels("cpu:avx2,cpu:neon,cpu:avx2"), cpu_levels("cuda:90")
    (['avx2', 'neon'], [])
    """
    if target == "native":
        return [host_machine().name]
    names = [part.strip() for part in target.split(",")]
    mine = [name for name in names if name.startswith(_PREFIX)]
    if mine and len(mine) < len(names):
        raise CompileError(f"a package is for CPUs or for GPUs, not for both: {target}")
    levels = list(dict.fromkeys(name.removeprefix(_PREFIX) for name in mine))
    for level in levels:
        if level not in MACHINES:
            level_names = ", ".join(f"{_PREFIX}{name}" for name in MACHINES)
            raise CompileError(
                f"{level!r} is not a known level of CPUs", hint=f"expected: {level_names}"
            )
    return levels


def compile_for_cpus(model: SavedModel, levels: Sequence[str], given: argparse.Namespace) -> int:
    """Write the package for these levels, and print what their kernels are and cost."""
    params: dict[str, Array] | None = None if given.without_params else dict(model.params)
    stages = import_module("compiler.driver").compile_stages(
        model.program, feed=[var.name for var in model.feeds], fetch=model.fetch_names,
        params=params, target=f"native:{levels[0]}",
    )  # fmt: skip
    modules = {levels[0]: stages.module} | {
        level: _module(stages.plan, level) for level in levels[1:]
    }
    objects = {level: build_objects(module.kernels_ir, level) for level, module in modules.items()}
    write_cpu_package(given.out, modules, model.path.read_bytes(), params, objects)
    dims: tuple[str, ...] = stages.plan.dims
    sizes = dict.fromkeys(dims, int(given.batch))
    rows = [
        row
        for level in levels
        for row in _rows(level, objects[level], _costs(stages.plan, level, sizes))
    ]
    if given.json:
        print(json.dumps(rows, indent=1))
    else:
        _report(stages.context.missed, given, rows, modules)
    return 0


def _module(plan: Plan, level: str) -> Module:
    """The module of another level; the passes ran once for all."""
    return NativeTarget(MACHINES[level]).emit(plan)


def _costs(plan: Plan, level: str, sizes: Mapping[str, int]) -> list[Cost]:
    """The calls of native kernels in one run."""
    return account(plan, sizes, MACHINES[level]).of(Side.DEVICE)


def _rows(level: str, objects: Mapping[str, bytes], costs: Sequence[Cost]) -> list[CpuKernelRow]:
    """A row for each kernel: the bytes of its object file, and its calls and cost in one run.

    Kernels without calls prepare constants, when the package is loaded.
    """
    rows: list[CpuKernelRow] = []
    for name, code in objects.items():
        mine = [cost for cost in costs if cost.kernel == name]
        moved, operations = sum(cost.moved for cost in mine), sum(cost.operations for cost in mine)
        rows.append({
            "kernel": name, "cpu": level, "bytes": len(code), "calls": len(mine), "moved": moved,
            "operations": operations,
        })  # fmt: skip
    return sorted(rows, key=lambda row: -row["moved"] - row["operations"])


def _report(
    missed: Sequence[Remark],
    given: argparse.Namespace,
    rows: Sequence[CpuKernelRow],
    modules: Mapping[str, Module],
) -> None:
    """Print the kernels of each level, and the ops that run in NumPy with the reason."""
    for note in (note for note in missed if note.name == "assign_targets"):
        print(f"in NumPy: {one_line(note.op)}: {one_line(note.reason)}")
    for level, module in modules.items():
        mine = [row for row in rows if row["cpu"] == level]
        print(_shown(mine))
        code = size_text(sum(row["bytes"] for row in mine))
        kernels = count(len(module.kernels_ir), "kernel")
        print(f"{kernels} for CPUs with {level}, {code}: {given.out / level}\n")


def _shown(rows: Sequence[CpuKernelRow]) -> str:
    cells = [
        (_short(row["kernel"]), row["cpu"], size_text(row["bytes"]), str(row["calls"]),
         f"{scaled(row['moved'])}B", scaled(row["operations"]))
        for row in rows[:LISTED]
    ]  # fmt: skip
    left = len(rows) - LISTED
    cells += [(f"and {left} more", "", "", "", "", "")] * (left > 0)
    head = ("kernel", "cpu", "code", "calls", "moved", "operations")
    return table([head, *cells], indent="", left=2)


def _short(name: str, most: int = 56) -> str:
    return name if len(name) <= most else f"{name[: most - 1]}…"
