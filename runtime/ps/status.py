"""The output of `fluid ps status`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from runtime.ps.settings import Settings
from runtime.ps.wire.peers import Peers

STATUS_SECONDS = 5.0
"""Timeout of a server's answer."""
MAX_TABLES = 8
"""Maximum number of tables listed, the largest first."""


def read_status(endpoint: str, settings: Settings) -> dict[str, Any]:
    """Request the status of a server. Raises WireError if it does not answer."""
    peers = Peers(settings)
    try:
        return peers.call(endpoint, {"do": "status"}, seconds=STATUS_SECONDS)[0]
    finally:
        peers.close()


def status_lines(status: Mapping[str, Any]) -> list[str]:
    """Format the status of a server as lines of text."""
    seconds = max(1e-9, float(status["seconds"]))
    step, kind = int(status["step"]), "steps" if status["synchronous"] else "updates"
    lines = [
        f"server {status['endpoint']}  pid {status['pid']}  up {seconds:.0f} s",
        f"  {kind} {step}, {step / seconds:.1f} a second since the start; last snapshot: "
        f"{status['snapshot']}",
        f"  received {_mega(status['received'])}, sent {_mega(status['sent'])}, "
        f"{status['messages']} messages",
    ]
    for trainer in status["trainers"]:
        beat = "never" if trainer["beat"] is None else f"{float(trainer['beat']):.1f} s ago"
        late = ", the step waits for it" if trainer["trainer"] in status["waiting_for"] else ""
        lines.append(f"  trainer {trainer['trainer']}: {trainer['state']}, last seen {beat}{late}")
    tables = sorted(status["tables"].items(), key=lambda each: -each[1][1])
    lines += [f"  {name} {shape}, {_mega(size)}" for name, (shape, size) in tables[:MAX_TABLES]]
    if len(tables) > MAX_TABLES:
        lines.append(f"  and {len(tables) - MAX_TABLES} smaller variables")
    return [*lines, f"  failed: {status['failure']}"] if status["failure"] else lines


def _mega(count: Any) -> str:
    return f"{int(count) / 1e6:.2f} MB"
