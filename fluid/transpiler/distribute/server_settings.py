"""Fields of `DistributeTranspilerConfig` that configure the runtime of servers and trainers.

Each corresponds to the variable `FLUID_PS_...` of docs/parameter_servers.md in lower case. The
environment variable has priority, so that one process of a job may differ from the others.
"""

from __future__ import annotations

from collections.abc import Mapping

from runtime.ps.settings import POLICIES, SECURITY_FIELDS

__all__ = ["FIELDS", "SECONDS", "server_settings"]

SECONDS = {
    "ps_heartbeat_seconds": "heartbeat",
    "ps_lost_seconds": "lost_after",
    "ps_return_seconds": "return_within",
    "ps_reconnect_seconds": "reconnect",
    "ps_deadline_seconds": "deadline",
}
"""Fields that are positive numbers of seconds, with the name of each in `Settings`."""
TEXTS = ("ps_snapshot_dir", "ps_save_dir", *SECURITY_FIELDS)


FIELDS = ("ps_policy", *SECONDS, "ps_snapshot_steps", *TEXTS)
"""All fields."""


def server_settings(config: Mapping[str, object]) -> dict[str, str | float]:
    """Those of the `FIELDS` of a config that are not None, as `Settings.from_env` takes them.

    Raises TypeError and ValueError naming the field with an invalid value.
    """
    given = {field: value for field, value in config.items() if value is not None}
    fields: dict[str, str | float] = {}
    if "ps_policy" in given:
        fields["policy"] = _policy(given["ps_policy"])
    for field, name in SECONDS.items():
        if field in given:
            fields[name] = _positive(field, given[field])
    if "ps_snapshot_steps" in given:
        steps = given["ps_snapshot_steps"]
        fields["snapshot_steps"] = _positive("ps_snapshot_steps", steps, is_whole=True)
    for field in TEXTS:
        if field in given:
            fields[field] = _text(field, given[field])
    if ("ps_cert" in fields) != ("ps_key" in fields):
        raise ValueError("config.ps_cert and config.ps_key belong together: one is not set")
    for field in ("ps_snapshot_dir", "ps_save_dir"):
        if field in fields:
            fields[field.removeprefix("ps_")] = fields.pop(field)
    return fields


def _policy(value: object) -> str:
    if value not in POLICIES:
        raise ValueError(f"config.ps_policy must be one of {', '.join(POLICIES)}, not {value!r}")
    return str(value)


def _positive(field: str, value: object, is_whole: bool = False) -> float:
    if (
        not isinstance(value, int | float)
        or isinstance(value, bool)
        or (is_whole and not isinstance(value, int))
    ):
        raise TypeError(f"config.{field} must be a number, not {type(value).__name__} {value!r}")
    if not 0 < value < float("inf"):
        raise ValueError(f"config.{field} must be positive, but is {value}")
    return value


def _text(field: str, value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(f"config.{field} must be a str, not {type(value).__name__}")
    return value
