"""`fluid ps status`: what parameter servers are doing."""

from __future__ import annotations

import argparse
import json
from typing import Any

from fluid.transpiler.distribute.endpoints import parse_endpoints
from runtime.errors import WireError
from runtime.ps.settings import Settings
from runtime.ps.status import read_status, status_lines

PS = """\
Ask running parameter servers for their steps a second, the bytes they have received and sent, their
trainers with the last heartbeat of each, which of them a step waits for, and the sizes of their
variables. The token and certificates are those of FLUID_PS_TOKEN, FLUID_PS_CA and so on.
"""
PS_EXAMPLES = """\
examples:
  fluid ps status 127.0.0.1:6174,127.0.0.1:6175
  fluid ps status 127.0.0.1:6174 --json
"""
NO_ANSWER = 1


def add_ps(commands: Any) -> None:
    """Add the command to those of `fluid`."""
    command = commands.add_parser(
        "ps", help="show what parameter servers are doing", description=PS, epilog=PS_EXAMPLES
    )
    command.set_defaults(command=show_status)
    command.add_argument("what", choices=["status"], help="status: one page about each server")
    command.add_argument("endpoints", metavar="ENDPOINTS", help="host:port, separated by commas")
    command.add_argument("--json", action="store_true", help="one line of JSON for each server")


def show_status(given: argparse.Namespace) -> int:
    """Print the status of servers; 1 where one does not answer."""
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
