"""Fields of `DistributeTranspilerConfig` that configure the runtime of servers and trainers.

Each corresponds to the variable `FLUID_PS_...` of docs/parameter_servers.md in lower case. The
environment variable has priority, so that one process of a job may differ from the others.
"""

from __future__ import annotations

from typing import Any

from runtime.ps.settings import POLICIES, SECURITY_FIELDS

__all__ = ["SECONDS", "server_settings"]

SECONDS = {
    "ps_heartbeat_seconds": "heartbeat",
    "ps_lost_seconds": "lost_after",
    "ps_return_seconds": "return_within",
    "ps_reconnect_seconds": "reconnect",
    "ps_deadline_seconds": "deadline",
}
"""Fields that are positive numbers of seconds, with the name of each in `Settings`."""


def server_settings(config: Any) -> dict[str, Any]:
    """The fields of a config that are set, as `runtime.ps.settings.Settings.from_env` takes them.

    Raises TypeError and ValueError naming the field with an invalid value.
    """
    fields: dict[str, Any] = {}
    if config.ps_policy is not None:
        fields["policy"] = _policy(config.ps_policy)
    for field, name in SECONDS.items():
        if getattr(config, field) is not None:
            fields[name] = _positive(field, getattr(config, field), (int, float))
    if config.ps_snapshot_steps is not None:
        fields["snapshot_steps"] = _positive("ps_snapshot_steps", config.ps_snapshot_steps, int)
    for field in ("ps_snapshot_dir", "ps_save_dir", *SECURITY_FIELDS):
        if getattr(config, field) is not None:
            fields[field] = _text(field, getattr(config, field))
    if ("ps_cert" in fields) != ("ps_key" in fields):
        raise ValueError("config.ps_cert and config.ps_key belong together: one is not set")
    for field in ("ps_snapshot_dir", "ps_save_dir"):
        if field in fields:
            fields[field.removeprefix("ps_")] = fields.pop(field)
    return fields


def _policy(value: Any) -> str:
    if value not in POLICIES:
        raise ValueError(f"config.ps_policy must be one of {', '.join(POLICIES)}, not {value!r}")
    return str(value)


def _positive(field: str, value: Any, kinds: Any) -> Any:
    if not isinstance(value, kinds) or isinstance(value, bool):
        raise TypeError(f"config.{field} must be a number, not {type(value).__name__} {value!r}")
    if not 0 < value < float("inf"):
        raise ValueError(f"config.{field} must be positive, but is {value}")
    return value


def _text(field: str, value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"config.{field} must be a str, not {type(value).__name__}")
    return value
