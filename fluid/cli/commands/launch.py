"""The commands `fluid launch` and `fluid launch_ps`."""

from __future__ import annotations

import argparse

from fleet.launch.agent import run_job
from fleet.launch.arguments import DESCRIPTION as LAUNCH
from fleet.launch.arguments import EXAMPLES as LAUNCH_EXAMPLES
from fleet.launch.arguments import add_arguments, job_of
from fleet.launch.server_arguments import DESCRIPTION as LAUNCH_PS
from fleet.launch.server_arguments import EXAMPLES as LAUNCH_PS_EXAMPLES
from fleet.launch.server_arguments import add_server_arguments, server_job
from fleet.launch.servers import run_server_job
from fluid.cli.model import CommandError
from fluid.cli.subcommands import Subcommands


def add_launch(commands: Subcommands) -> None:
    """Add `launch` to the subcommands."""
    command = commands.add_parser(
        "launch",
        help="run a script in several processes, on one machine or many",
        description=LAUNCH,
        epilog=LAUNCH_EXAMPLES,
    )
    command.set_defaults(command=_launch)
    add_arguments(command)


def _launch(given: argparse.Namespace) -> int:
    """Run a script in several processes; returns the exit code of the first that failed, or 0."""
    try:
        job = job_of(given)
    except ValueError as error:
        raise CommandError(str(error)) from error
    return run_job(job)


def add_launch_ps(commands: Subcommands) -> None:
    """Add `launch_ps` to the subcommands."""
    command = commands.add_parser(
        "launch_ps",
        help="run a script as parameter servers and workers",
        description=LAUNCH_PS,
        epilog=LAUNCH_PS_EXAMPLES,
    )
    command.set_defaults(command=_launch_ps)
    add_server_arguments(command)


def _launch_ps(given: argparse.Namespace) -> int:
    """Run a script as servers and workers; returns the exit code of the first that failed, or 0."""
    try:
        job = server_job(given)
    except ValueError as error:
        raise CommandError(str(error)) from error
    return run_server_job(job)
