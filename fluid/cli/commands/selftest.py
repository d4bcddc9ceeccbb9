"""The arguments and help text of `fluid selftest`."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from functools import partial
from importlib import import_module

from compiler.support.lazy_loading import load
from fluid.cli.subcommands import Subcommands

SELFTEST = """\
Run every family of native kernels on this machine and compare each step with the reference
implementations of its ops in float64: at sizes of real models, and at small odd sizes with all
thresholds of sizes lowered, for each level of vector instructions that the CPU has, by one thread
and by all. Run it after installing, and after an upgrade of the system, LLVM or the CPU. Prints one
line a family: cases, largest relative error, seconds, ok or FAILED; a failure comes with its op,
sizes and the command that repeats it. Nothing is written to disk. Exit code 1 if a case fails.
"""
SELFTEST_EXAMPLES = """\
examples:
  fluid selftest                             two minutes
  fluid selftest --quick                     ten seconds
  fluid selftest --family convolutions       one family, for all of the time
"""
NAMES = (
    "pointwise", "reductions", "norms", "products", "convolutions", "pooling", "losses",
    "embeddings", "optimizers", "sequences", "shapes", "sorting", "casts", "random",
)  # fmt: skip
"""The families, in the order in which they run."""


def add_selftest(commands: Subcommands) -> None:
    """Add `selftest` to the subcommands."""
    command = commands.add_parser(
        "selftest",
        help="compare every family of native kernels with the reference on this machine",
        description=SELFTEST,
        epilog=SELFTEST_EXAMPLES,
    )
    command.set_defaults(command=_selftest)
    command.add_argument("--quick", action="store_true", help="take about ten seconds")
    command.add_argument(
        "--seconds", type=_positive(float), default=120.0, metavar="S",
        help="time to take; each family has an equal share, its first cases always run "
        "(default: 120)",
    )  # fmt: skip
    command.add_argument("--family", default="", choices=NAMES, help="run one family only")
    command.add_argument("--case", default="", metavar="NAME", help="run one case only")
    command.add_argument(
        "--cpu", default="", metavar="LEVEL", help="one level of the CPU only, such as avx2"
    )
    command.add_argument(
        "--threads", type=_positive(int), default=0, metavar="N",
        help="this number of threads only (default: 1 and all)",
    )  # fmt: skip
    command.add_argument("--sizes", default="", choices=("small", "large"), help="these sizes only")


def _positive(kind: type[float] | type[int]) -> Callable[[str], float]:
    def parsed(text: str) -> float:
        try:
            number = kind(text)
        except ValueError:
            number = kind(0)
        if not 0 < number < 1e9:
            raise argparse.ArgumentTypeError(f"{text!r} is not a positive number")
        return number

    return parsed


def _selftest(given: argparse.Namespace) -> int:
    """Run the command, whose module imports all layers."""
    return int(load(partial(import_module, "fluid.selftest.command")).selftest(given))
