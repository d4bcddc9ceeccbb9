"""Endpoints (`host:port`) of the processes of a job: parsing, and waiting for them."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence

from fluid.recording.narrowing import is_sequence
from runtime.collective.endpoint import accepts_connections

__all__ = ["check_rank", "endpoint_list", "parse_endpoints", "wait_for_endpoints"]

CONNECT_SECONDS, RETRY_SECONDS = 2.0, 3.0
"""Timeout of a connection attempt and delay between attempts, as in the reference."""


def parse_endpoints(text: object, argument: str) -> list[str]:
    """Parse a comma-separated string or a list of endpoints.

    Raises TypeError for anything else, ValueError for an endpoint that is not host:port, and for
    duplicates.
    """
    parts: Sequence[object]
    if isinstance(text, str):
        parts = text.split(",")
    elif is_sequence(text):
        parts = text
    else:
        raise TypeError(
            f"{argument} must be endpoints separated by commas, such as '127.0.0.1:6174,"
            f"127.0.0.1:6175', not {type(text).__name__}"
        )
    endpoints = [str(part).strip() for part in parts]
    for endpoint in endpoints:
        host, _, port = endpoint.rpartition(":")
        if not host or not port.isdigit() or int(port) > 65535:
            raise ValueError(f"{argument}: {endpoint!r} is no endpoint; expected host:port")
    twice = [endpoint for endpoint in endpoints if endpoints.count(endpoint) > 1]
    if twice:
        raise ValueError(
            f"{argument} has the endpoint {twice[0]} twice; each process needs its own"
        )
    return endpoints


def check_rank(rank: object, count: int, argument: str = "trainer_id") -> None:
    """TypeError for a rank that is no int, ValueError for one outside of 0 to `count` - 1."""
    if not isinstance(rank, int) or isinstance(rank, bool):
        raise TypeError(f"{argument} must be an int, not {type(rank).__name__}")
    if not 0 <= rank < count:
        raise ValueError(
            f"{argument} must be from 0 to {count - 1}, for {count} trainers, but is {rank}"
        )


def endpoint_list(trainers: object, rank: int, current: str) -> list[str]:
    """The endpoints of all trainers, checked against the rank and endpoint of this one.

    Raises ValueError where they contradict each other, TypeError for arguments of other types.
    """
    if isinstance(trainers, int):
        raise ValueError(
            "trainers must list the endpoints of all trainers, 'host:port,host:port', in this "
            f"mode, but is the number {trainers}"
        )
    endpoints = parse_endpoints(trainers, "trainers")
    check_rank(rank, len(endpoints))
    if current not in endpoints:
        raise ValueError(
            f"current_endpoint {current!r} is none of the trainers {', '.join(endpoints)}"
        )
    if endpoints[rank] != current:
        raise ValueError(
            f"trainer {rank} has endpoint {endpoints[rank]}, but current_endpoint is {current}; "
            f"pass trainer_id={endpoints.index(current)} or the other endpoint"
        )
    return endpoints


def wait_for_endpoints(endpoints: Sequence[str], deadline: float | None = None) -> None:
    """Wait until every endpoint accepts connections, and print on stderr which ones are awaited.

    Raises TimeoutError naming those that did not answer within `deadline` seconds; None waits
    forever.
    """
    started = time.monotonic()
    while missing := [
        endpoint for endpoint in endpoints if not accepts_connections(endpoint, CONNECT_SECONDS)
    ]:
        if deadline is not None and time.monotonic() - started > deadline:
            raise TimeoutError(f"no connection to {', '.join(missing)} within {deadline:g} s")
        print(f"not ready endpoints: {', '.join(missing)}; waiting", file=sys.stderr)
        time.sleep(RETRY_SECONDS)
