"""The arguments and help text of `fluid doctor` and `fluid cache`."""

from __future__ import annotations

import argparse
from functools import partial
from importlib import import_module

from compiler.support.lazy_loading import load
from fluid.cli.subcommands import Subcommands

__all__ = ["add_cache", "add_doctor"]

DOCTOR = """\
Look at what this machine and environment have: versions and where each package comes from, the CPU
and its vector widths, GPUs, the caches of compiled code, ports and shared memory for distributed
jobs, and what old scripts need. Takes a second and changes nothing. Each problem comes with what to
do; a note is for those who need that part. Exit code 1 if there is a problem.
"""
DOCTOR_EXAMPLES = """\
examples:
  fluid doctor
  fluid doctor --json                        to attach to a question
"""
CACHE = """\
Show the caches of compiled code, or empty them. What was removed is compiled again when it is next
needed; programs that run meanwhile are not disturbed.
"""
CACHE_EXAMPLES = """\
examples:
  fluid cache                                where they are and how large
  fluid cache clear
  fluid cache clear modules                  one of them: modules, native or kernels
"""


def add_doctor(commands: Subcommands) -> None:
    """Add `doctor` to the subcommands."""
    command = commands.add_parser(
        "doctor",
        help="check packages, CPU, GPUs, caches and ports of this machine",
        description=DOCTOR,
        epilog=DOCTOR_EXAMPLES,
    )
    command.set_defaults(command=_doctor)
    command.add_argument("--json", action="store_true", help="print the report as JSON")


def add_cache(commands: Subcommands) -> None:
    """Add `cache` to the subcommands."""
    command = commands.add_parser(
        "cache",
        help="show or empty the caches of compiled code",
        description=CACHE,
        epilog=CACHE_EXAMPLES,
    )
    command.set_defaults(command=_cache)
    command.add_argument("action", nargs="?", choices=("show", "clear"), default="show")
    command.add_argument("kind", nargs="?", metavar="KIND", help="one cache (default: all)")


def _doctor(args: argparse.Namespace) -> int:
    return int(load(partial(import_module, "fluid.doctor.command")).doctor(args))


def _cache(args: argparse.Namespace) -> int:
    return int(load(partial(import_module, "fluid.doctor.command")).cache(args))
