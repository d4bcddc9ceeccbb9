"""`fluid ps`: the status of running parameter servers, and the trace of a finished job."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from fluid.cli.subcommands import Subcommands
from fluid.saving.files import replace_file
from fluid.transpiler.distribute.endpoints import parse_endpoints
from runtime.errors import WireError
from runtime.ps.settings import Settings
from runtime.ps.status import read_status, status_lines
from runtime.ps.telemetry.merge import merge_traces

PS = "Show the status of running parameter servers, or merge the traces of a finished job."
STATUS = """\
Ask running parameter servers for their steps per second, the bytes received and sent, their
trainers with the last heartbeat of each, the trainers that a step waits for, and the sizes of their
variables. The token and certificates are read from FLUID_PS_TOKEN, FLUID_PS_CA and so on.
"""
TRACE = """\
Merge the traces that the servers and trainers of a job wrote into the folder FLUID_PS_TRACE. The
result shows all processes on one time axis in ui.perfetto.dev or chrome://tracing, with arrows from
gradients sent to gradients received, and from parameters sent to parameters received.
"""
PS_EXAMPLES = """\
examples:
  fluid ps status 127.0.0.1:6174,127.0.0.1:6175
  fluid ps status 127.0.0.1:6174 --json
  FLUID_PS_TRACE=traces fluid launch_ps train.py; fluid ps trace traces -o trace.json
"""
STATUS_EXAMPLES = """\
examples:
  fluid ps status 127.0.0.1:6174,127.0.0.1:6175
  fluid ps status 127.0.0.1:6174 --json           one line of JSON for each server
"""
TRACE_EXAMPLES = """\
examples:
  FLUID_PS_TRACE=traces fluid launch_ps train.py  each process writes a trace
  fluid ps trace traces -o trace.json
"""
NO_ANSWER = 1


def add_ps(commands: Subcommands) -> None:
    """Add `ps` to the subcommands."""
    command = commands.add_parser(
        "ps",
        help="show status and traces of parameter-server jobs",
        description=PS,
        epilog=PS_EXAMPLES,
    )
    what = command.add_subparsers(title="commands", metavar="WHAT", required=True)
    status = what.add_parser(
        "status",
        help="show the status of each server",
        description=STATUS,
        epilog=STATUS_EXAMPLES,
    )
    status.set_defaults(command=show_status)
    status.add_argument("endpoints", metavar="ENDPOINTS", help="host:port, separated by commas")
    status.add_argument("--json", action="store_true", help="one line of JSON for each server")
    trace = what.add_parser(
        "trace",
        help="merge the traces of all processes",
        description=TRACE,
        epilog=TRACE_EXAMPLES,
    )
    trace.set_defaults(command=join_traces)
    trace.add_argument("folder", type=Path, metavar="FOLDER", help="the folder with the traces")
    trace.add_argument("-o", "--output", type=Path, default=Path("trace.json"), metavar="FILE",
                       help="output file (default: %(default)s)")  # fmt: skip


def show_status(given: argparse.Namespace) -> int:
    """Print the status of servers; exit code 1 where one does not answer."""
    code = 0
    settings = Settings.from_env()
    for endpoint in parse_endpoints(given.endpoints, "ENDPOINTS"):
        try:
            status = read_status(endpoint, settings)
        except WireError as error:
            print(error)
            code = NO_ANSWER
            continue
        print(json.dumps(status) if given.json else "\n".join(status_lines(status)))
    return code


def join_traces(given: argparse.Namespace) -> int:
    """Merge the traces of all processes of a job into one file."""
    replace_file(given.output, merge_traces(given.folder).encode())
    print(f"trace of the job in {given.output}: open it in ui.perfetto.dev or chrome://tracing")
    return 0
