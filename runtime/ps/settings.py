"""Settings of parameter servers and their trainers, from the environment (docs/settings.md)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field, replace
from typing import Any, TypeVar

from compiler.support.dataclass import dataclass
from compiler.support.settings.paddle import FLAGS_rpc_deadline
from compiler.support.settings.parameter_servers import (
    FLUID_PS_HEARTBEAT_SECONDS,
    FLUID_PS_LOG,
    FLUID_PS_LOST_SECONDS,
    FLUID_PS_POLICY,
    FLUID_PS_RECONNECT_SECONDS,
    FLUID_PS_RETURN_SECONDS,
    FLUID_PS_SAVE_DIR,
    FLUID_PS_SNAPSHOT_DIR,
    FLUID_PS_SNAPSHOT_STEPS,
    FLUID_PS_TRACE,
)
from compiler.support.settings.setting import Environ, Setting
from runtime.errors import WireError
from runtime.ps.wire.security import Security

T = TypeVar("T")

GONE_SECONDS = 5.0
"""How long a server that answered before may be away if no other can continue in its place."""
POLICIES = ("fail", "shrink", "wait")
SECURITY_FIELDS = ("ps_token", "ps_cert", "ps_key", "ps_ca")


@dataclass(frozen=True)
class Settings:
    """The settings of one process; times are in seconds. docs/settings.md describes them."""

    policy: str = FLUID_PS_POLICY.default
    heartbeat: float = FLUID_PS_HEARTBEAT_SECONDS.default
    lost_after: float = FLUID_PS_LOST_SECONDS.default
    return_within: float = FLUID_PS_RETURN_SECONDS.default
    reconnect: float = FLUID_PS_RECONNECT_SECONDS.default
    deadline: float = FLAGS_rpc_deadline.default / 1000
    snapshot_dir: str = ""
    snapshot_steps: int = FLUID_PS_SNAPSHOT_STEPS.default
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
    def from_env(environ: Environ = None, given: Mapping[str, Any] | None = None) -> Settings:
        """Read the environment; it has priority over `given`, which has fields by name.

        `given` may also have `ps_token`, `ps_cert`, `ps_key` and `ps_ca`, see `Security.from_env`.
        Raises WireError naming a variable with an invalid value.
        """
        fields = {name: value for name, value in (given or {}).items() if value is not None}
        secret = {name: fields.pop(name) for name in SECURITY_FIELDS if name in fields}
        security = Security.from_env(environ, secret)
        base = replace(Settings(), **{"security": security, **fields})

        def read(setting: Setting[T], configured: T) -> T:
            return setting.read_or(configured, environ, WireError)

        return replace(
            base,
            policy=read(FLUID_PS_POLICY, base.policy),
            log=read(FLUID_PS_LOG, base.log),
            trace_dir=read(FLUID_PS_TRACE, base.trace_dir),
            heartbeat=read(FLUID_PS_HEARTBEAT_SECONDS, base.heartbeat),
            lost_after=read(FLUID_PS_LOST_SECONDS, base.lost_after),
            return_within=read(FLUID_PS_RETURN_SECONDS, base.return_within),
            reconnect=read(FLUID_PS_RECONNECT_SECONDS, base.reconnect),
            deadline=FLAGS_rpc_deadline.read(environ, WireError) / 1000
            if FLAGS_rpc_deadline.is_set(environ)
            else base.deadline,
            snapshot_dir=read(FLUID_PS_SNAPSHOT_DIR, base.snapshot_dir),
            save_dir=read(FLUID_PS_SAVE_DIR, base.save_dir),
            snapshot_steps=read(FLUID_PS_SNAPSHOT_STEPS, base.snapshot_steps),
        )
