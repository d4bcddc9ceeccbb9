"""Settings of parameter servers and their trainers, from environment variables.

| variable | default | meaning |
|---|---|---|
| FLUID_PS_POLICY | fail | a lost trainer: `fail` ends the job, `shrink` continues without it, `wait` waits for its return |
| FLUID_PS_HEARTBEAT_SECONDS | 10 | interval of trainers' heartbeats |
| FLUID_PS_LOST_SECONDS | 30 | a trainer without a heartbeat is lost after this time |
| FLUID_PS_RETURN_SECONDS | 5 | a trainer whose connection broke is lost after this time |
| FLUID_PS_RECONNECT_SECONDS | 60 | how long trainers wait for a server that has not started, or that restarts; 5 at most without snapshots, unless the policy is `wait` |
| FLUID_PS_SNAPSHOT_DIR | | folder of servers' snapshots; none are taken without it |
| FLUID_PS_SNAPSHOT_STEPS | 100 | steps between two snapshots |
| FLUID_PS_SAVE_DIR | | folder that trainers may let servers save tables to; without it they save none |
| FLUID_PS_TOKEN | | secret that every call must carry |
| FLUID_PS_CERT, FLUID_PS_KEY, FLUID_PS_CA | | PEM files: TLS, mutual if servers have a CA |
| FLUID_PS_LOG | | `text` or `json`: lines on stderr; without it, only the logger `fluid.ps` |
| FLUID_PS_TRACE | | folder in which each process writes a Chrome trace when it exits |
| FLAGS_rpc_deadline | 180000 | milliseconds until a step fails, and with `wait` a server that a trainer has never connected to |
"""  # noqa: E501

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from runtime.errors import WireError
from runtime.ps.telemetry.logs import FORMS
from runtime.ps.wire.security import Security

GONE_SECONDS = 5.0
"""How long a server that answered before may be away if no other can continue in its place."""
POLICIES = ("fail", "shrink", "wait")
SECURITY_FIELDS = ("ps_token", "ps_cert", "ps_key", "ps_ca")


@dataclass(frozen=True)
class Settings:
    """The settings of one process; times are in seconds. The module's docstring lists them."""

    policy: str = "fail"
    heartbeat: float = 10.0
    lost_after: float = 30.0
    return_within: float = 5.0
    reconnect: float = 60.0
    deadline: float = 180.0
    snapshot_dir: str = ""
    snapshot_steps: int = 100
    save_dir: str = ""
    security: Security = field(default_factory=Security)
    log: str = ""
    trace_dir: str = ""

    @property
    def away(self) -> float:
        """Seconds that a server may be away which has answered before: `reconnect` if another can
        continue in its place, from a snapshot or because the policy waits for it.
        """
        if self.policy == "wait" or self.snapshot_dir:
            return self.reconnect
        return min(self.reconnect, GONE_SECONDS)

    @staticmethod
    def from_env(
        environ: Mapping[str, str] = os.environ, given: Mapping[str, Any] | None = None
    ) -> Settings:
        """Read the environment; it has priority over `given`, which has fields by name.

        `given` may also have `ps_token`, `ps_cert`, `ps_key` and `ps_ca`, see `Security.from_env`.
        Raises WireError naming a variable with an invalid value.
        """
        known = {name: value for name, value in (given or {}).items() if value is not None}
        secret = {name: known.pop(name) for name in SECURITY_FIELDS if name in known}
        security = Security.from_env(environ, secret)
        base = replace(Settings(), **{"security": security, **known})
        policy = environ.get("FLUID_PS_POLICY") or base.policy
        if policy not in POLICIES:
            raise WireError(f"FLUID_PS_POLICY is {policy!r}; expected one of {', '.join(POLICIES)}")
        log = environ.get("FLUID_PS_LOG") or base.log
        if log not in ("", *FORMS):
            raise WireError(f"FLUID_PS_LOG is {log!r}; expected one of {', '.join(FORMS)}")
        return replace(
            base,
            policy=policy,
            log=log,
            trace_dir=environ.get("FLUID_PS_TRACE") or base.trace_dir,
            heartbeat=_number(environ, "FLUID_PS_HEARTBEAT_SECONDS", base.heartbeat),
            lost_after=_number(environ, "FLUID_PS_LOST_SECONDS", base.lost_after),
            return_within=_number(environ, "FLUID_PS_RETURN_SECONDS", base.return_within),
            reconnect=_number(environ, "FLUID_PS_RECONNECT_SECONDS", base.reconnect),
            deadline=_number(environ, "FLAGS_rpc_deadline", base.deadline * 1000) / 1000,
            snapshot_dir=environ.get("FLUID_PS_SNAPSHOT_DIR") or base.snapshot_dir,
            save_dir=environ.get("FLUID_PS_SAVE_DIR") or base.save_dir,
            snapshot_steps=int(_number(environ, "FLUID_PS_SNAPSHOT_STEPS", base.snapshot_steps)),
        )


def _number(environ: Mapping[str, str], name: str, default: float) -> float:
    """Read a positive number; WireError naming the variable if it is invalid."""
    text = environ.get(name) or str(default)
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < float("inf"):
        raise WireError(f"{name} must be a positive number, but is {text!r}")
    return value
