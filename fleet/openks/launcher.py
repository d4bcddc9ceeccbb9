"""`python -m fleet.openks.launcher --mode cpu|gpu …`: the launcher of OpenKS.

With `--mode cpu` it is `fluid launch_ps`, with `--mode gpu` `fluid launch`; each takes the flags of
that command too.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from fleet.launch import arguments as workers
from fleet.launch import servers

__all__ = ["command_line", "main"]


def command_line(arguments: Sequence[str]) -> tuple[str, list[str]]:
    """The mode, and the arguments of the launcher of that mode.

    >>> command_line(["--mode", "gpu", "--worker_num", "2", "train.py", "--mode", "fast"])
    ('gpu', ['--nproc_per_node', '2', 'train.py', '--mode', 'fast'])
    """
    command = argparse.ArgumentParser("fleet.openks.launcher", description=__doc__)
    command.add_argument("--mode", choices=("cpu", "gpu"), default="cpu", help="(%(default)s)")
    command.add_argument("--worker_num", type=int, help="workers")
    command.add_argument("--server_num", type=int, help="servers, with --mode cpu")
    command.add_argument("rest", nargs=argparse.REMAINDER, help="other flags, script, arguments")
    options, others = command.parse_known_args(arguments)
    return options.mode, [*_numbers(options), *others, *options.rest]


def _numbers(given: argparse.Namespace) -> list[str]:
    """The flags for the numbers of processes, as the launcher of the mode names them."""
    if given.mode == "gpu":
        return [] if given.worker_num is None else ["--nproc_per_node", str(given.worker_num)]
    named = {"--worker_num": given.worker_num, "--server_num": given.server_num}
    return [word for flag, n in named.items() if n is not None for word in (flag, str(n))]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the launcher of a mode; return its exit code."""
    mode, rest = command_line(sys.argv[1:] if arguments is None else arguments)
    return (servers if mode == "cpu" else workers).main(rest)


if __name__ == "__main__":
    sys.exit(main())
