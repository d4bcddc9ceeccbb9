"""Variable names in programs of servers, and the variables they refer to."""

from __future__ import annotations

__all__ = ["BACKUP", "TRAINER", "backup_name"]

TRAINER = "@TRAINER_ID@"
"""The variable with the number of the trainer whose gradient a block handles, int64 [1]."""
BACKUP = "_bak"


def backup_name(name: str, trainer_id: int) -> str:
    """The variable with the parameter as a trainer received it last."""
    return f"{name}.trainer_{trainer_id}{BACKUP}"
