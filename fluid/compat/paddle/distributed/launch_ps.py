"""`python -m paddle.distributed.launch_ps` of release 1.8: `fluid launch_ps` under its old name.

Run as `fluid run -m paddle.distributed.launch_ps --worker_num 2 --server_num 2 train.py`.
"""

from __future__ import annotations

import argparse
import sys

from fleet.launch.server_arguments import server_job
from fleet.launch.servers import main, parse, run_server_job

__all__ = ["launch", "main", "parse_args", "start_procs"]


def parse_args() -> argparse.Namespace:
    """Parse this process's command line."""
    return parse()


def start_procs(args: argparse.Namespace) -> None:
    """Run the job of a command line to its end: `server_num` servers, `worker_num` workers.

    Raises SystemExit with its exit code if it fails, ValueError for flags that do not go together.
    """
    code = run_server_job(server_job(args))
    if code:
        raise SystemExit(code)


def launch() -> None:
    """Run the job of this process's command line, as `start_procs`."""
    start_procs(parse_args())


if __name__ == "__main__":
    sys.exit(main())
