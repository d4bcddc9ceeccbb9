"""`--target` of commands that run programs: NumPy, or machine code for this CPU."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from functools import partial

from compiler.codegen.native.host import host_machine
from compiler.errors import did_you_mean
from compiler.support.extras import install, missing
from compiler.support.settings.fluid import FLUID_TARGET
from compiler.support.settings.setting import export, exported
from fluid.cli.model import CommandError
from fluid.running.targets import default_target
from runtime.native.build import llvm_version

__all__ = ["GPU", "add_script_options", "add_target", "on_target", "use_target"]

KNOWN = ("numpy", "native")

HELP = f"""\
how programs run on the CPU: numpy calls NumPy, in Python that can be read; native compiles machine
code for this CPU with LLVM, usually several times faster (default: {FLUID_TARGET.name}, or
{default_target()})"""


GPU = "cuda"
"""The target of commands that run a model on the first GPU."""


def add_target(add: Callable[..., argparse.Action], gpu: bool = False) -> None:
    """Add `--target` by a parser's `add_argument`; with `gpu`, `--target cuda` runs on a GPU."""
    choices, more = (*KNOWN, *([GPU] if gpu else [])), "; cuda runs on the first GPU" * gpu
    add(
        "--target", type=partial(target, known=choices), metavar=f"{{{','.join(choices)}}}",
        help=HELP + more,
    )  # fmt: skip


def add_script_options(command: argparse.ArgumentParser) -> None:
    """Add the options of commands that run scripts: `--force`, `--cpu`, `--target`."""
    command.add_argument(
        "--force", action="store_true", help="use this package even if another paddle is installed"
    )
    command.add_argument(
        "--cpu", action="store_true", help="run on the CPU: CUDAPlace becomes CPUPlace"
    )
    add_target(command.add_argument)


def target(name: str, known: Sequence[str] = KNOWN) -> str:
    """Parse `--target`; raises ArgumentTypeError for an unknown name.

    >>> target("native")
    'native'
    """
    if name not in known:
        hint = did_you_mean(name, known)
        expected = f"expected {', '.join(known[:-1])} or {known[-1]}"
        raise argparse.ArgumentTypeError(
            f"{name!r} is no target, {expected}" + f"; {hint}" * bool(hint)
        )
    return name


def use_target(name: str | None) -> None:
    """Compile for a target from now on, also in processes that this one starts; None changes
    nothing.

    Raises CommandError if packages that a target needs are not installed, and CompileError if
    there is none for this CPU.
    """
    if name == "native":
        host_machine()
        if not llvm_version():
            raise CommandError(
                "--target native compiles with LLVM, which the package llvmlite brings: "
                f"{install('native')}, or take --target numpy"
            )
    if name == GPU and (absent := missing("gpu")):
        raise CommandError(
            f"--target {GPU} needs {' and '.join(absent)}: "
            f"{install('gpu')}, or take --target native"
        )
    if name not in (None, GPU):
        export({FLUID_TARGET.name: name})


@contextmanager
def on_target(name: str | None) -> Generator[None]:
    """Compile for a target within a `with` block; raises as `use_target`."""
    with exported({FLUID_TARGET.name: FLUID_TARGET.text() or None}):
        use_target(name)
        yield
