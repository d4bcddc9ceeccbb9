"""`fluid compile`: a saved model as code, its kernels built for GPUs that are not here."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from compiler.codegen.module import Module
from compiler.report.memory import size_text
from compiler.report.table import count, table
from fluid.cli.model import load_model

COMPILE = """\
Compile a saved model into a module of generated code. For GPUs every kernel is built as well, on
any Linux machine: the table tells registers, shared memory and what did not fit into registers.
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
    command.add_argument("--model-filename", metavar="FILE", help="if it is not __model__")
    command.add_argument("--params-filename", metavar="FILE", help="if all are in one file")


def compile_model(given: argparse.Namespace) -> int:
    """Write the module, build its kernels, show what they need."""
    model = load_model(given.model_dir, given.model_filename, given.params_filename)
    ahead: Any = None if given.target == "numpy" else import_module("compiler.codegen.triton.ahead")
    targets = ahead.gpus(given.target) if ahead else []
    stages = import_module("compiler.driver").compile_stages(
        model.program, feed=[var.name for var in model.feeds], fetch=model.fetch_names,
        params=dict(model.params), target="triton" if ahead else "numpy",
    )  # fmt: skip
    module = stages.module
    given.out.mkdir(parents=True, exist_ok=True)
    module.save(given.out / "module.py")
    print(f"{given.out / 'module.py'}: {count(len(module.source.splitlines()), 'line')}")
    if ahead:
        _tell_host_ops(stages.context.refusals)
        _build(ahead, module, targets, given.out)
    return 0


def _tell_host_ops(refusals: Sequence[Any]) -> None:
    """What no kernel is written for, by name and reason."""
    mine = [each for each in refusals if each.name == "assign_targets"]
    if mine:
        print(f"{count(len(mine), 'op')} will run on the host:")
    for each in mine:
        print(f"  {each.op}: {each.reason}")


def _build(ahead: Any, module: Module, targets: Sequence[Any], out: Path) -> None:
    made: list[Any] = []
    whole = len(module.kernels) * len(targets)

    def begun(kernel: str, gpu: Any) -> None:
        _progress(f"[{len(made) + 1}/{whole}] {gpu} {kernel}")

    for each in ahead.build(module, targets, begun):
        made.append(each)
    _progress("")
    ahead.save(out, made)
    print(_shown(made) if made else "the model has no kernels: all of it runs on the host")
    spilled = [each for each in made if each.spilled]
    print(f"{count(len(made), 'kernel')} built, {len(spilled)} spill; see {out / ahead.MANIFEST}")


def _progress(text: str) -> None:
    if sys.stderr.isatty():
        print(f"\r\033[K{text}", end="", file=sys.stderr, flush=True)


def _shown(made: Sequence[Any]) -> str:
    head = ("kernel", "gpu", "registers", "spilled", "shared", "code")
    rows = [
        (each.kernel, str(each.gpu), _said(each.registers), _said(each.spilled),
         size_text(each.shared), size_text(max(map(len, each.code.values()))))
        for each in made
    ]  # fmt: skip
    return table([head, *rows], indent="", left=2)


def _said(number: int | None) -> str:
    return "?" if number is None else str(number)
