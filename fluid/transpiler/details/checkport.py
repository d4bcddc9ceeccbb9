"""Waiting for the ports of servers."""

from __future__ import annotations

from collections.abc import Sequence

from fluid.transpiler.distribute.endpoints import parse_endpoints, wait_for_endpoints

__all__ = ["wait_server_ready"]


def wait_server_ready(endpoints: Sequence[str]) -> None:
    """Wait until every endpoint accepts connections; those awaited are printed on stderr.

    Raises AssertionError for a single string, ValueError for an endpoint that is not host:port.
    """
    assert not isinstance(endpoints, str), "endpoints must be a list of host:port"
    wait_for_endpoints(parse_endpoints(endpoints, "endpoints"))
