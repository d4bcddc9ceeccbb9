"""Helpers of scripts that start processes, `paddle.distributed.utils` of release 1.8."""

from __future__ import annotations

import argparse
import logging
import socket
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

from fleet.launch.cluster import Cluster, Pod, Trainer, get_cluster
from fleet.launch.variables import listener

__all__ = [
    "Cluster",
    "Pod",
    "Trainer",
    "add_arguments",
    "find_free_ports",
    "get_cluster",
    "get_host_name_ip",
    "get_logger",
]

TRUE = ("1", "on", "t", "true", "y", "yes")
FALSE = ("0", "f", "false", "n", "no", "off")


def find_free_ports(num: int) -> set[int]:
    """Return `num` ports that nothing on this machine uses.

    >>> len(find_free_ports(2))
    2
    """
    with ExitStack() as stack:
        sockets = [stack.enter_context(listener("")) for _ in range(num)]
        return {int(each.getsockname()[1]) for each in sockets}


def get_host_name_ip() -> tuple[str, str] | None:
    """Return the name and the address of this machine; None where its name is unknown."""
    name = socket.gethostname()
    try:
        return name, socket.gethostbyname(name)
    except OSError:
        return None


def get_logger(log_level: int | str, name: str = "root") -> logging.Logger:
    """Return a logger with a level, which writes lines with their time to stderr."""
    logger = logging.getLogger(name)
    logger.setLevel(log_level)
    handler = logging.StreamHandler()
    line = "%(levelname)s %(asctime)s %(filename)s:%(lineno)d] %(message)s"
    handler.setFormatter(logging.Formatter(line))
    logger.addHandler(handler)
    return logger


def add_arguments(
    argname: str,
    type: Callable[[str], object],
    default: object,
    help: str,
    argparser: argparse.ArgumentParser,
    **kwargs: Any,
) -> None:
    """Add `--argname` to a command line; a bool is written as true, yes, 1, … or false, no, 0, …

    >>> parser = argparse.ArgumentParser()
    >>> add_arguments("use_gpu", bool, True, "On a GPU.", parser)
    >>> parser.parse_args(["--use_gpu", "no"]).use_gpu
    False
    """
    convert = _truth if type is bool else type
    text = f"{help} Default: %(default)s."
    argparser.add_argument(f"--{argname}", default=default, type=convert, help=text, **kwargs)


def _truth(text: str) -> bool:
    if text.lower() not in TRUE + FALSE:
        raise argparse.ArgumentTypeError(f"{text!r}, expected true or false")
    return text.lower() in TRUE
