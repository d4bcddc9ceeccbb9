"""Checkpoints of collective training: numbered folders with parameters and the epoch.

A folder `__paddle_fleet_checkpoint__.<n>` has all persistable variables in `_paddle_fleet_param__`
and the last complete epoch in `fleet_train_status`, JSON, as release 1.8 writes them. Every worker
has equal parameters, so any number of workers can load what another number saved.
"""

from __future__ import annotations

import json
from pathlib import Path

from fleet.file_systems import FS
from fluid.recording.narrowing import is_mapping

__all__ = ["PARAMS", "PREFIX", "TrainStatus", "last_number", "numbers", "read_status"]

PREFIX = "__paddle_fleet_checkpoint__"
PARAMS = "_paddle_fleet_param__"
STATUS = "fleet_train_status"
STATUS_BYTES = 4096
"""Maximum size of a status file in bytes."""


class TrainStatus:
    """Training progress: the last complete epoch, -1 before the first."""

    def __init__(self, epoch_no: int = -1) -> None:
        self._epoch_no = epoch_no

    def next(self) -> int:
        """The next epoch to train."""
        return self._epoch_no + 1

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TrainStatus) and self._epoch_no == other._epoch_no

    def __hash__(self) -> int:
        return hash(self._epoch_no)

    def __repr__(self) -> str:
        return f"TrainStatus(epoch_no={self._epoch_no})"


def numbers(fs: FS, root: str) -> list[int]:
    """The numbers of complete checkpoints in a folder, ascending; other names are skipped."""
    parts = [name.split(".") for name in fs.list_dirs(root)]
    numbers_of_checkpoints = [part[1] for part in parts if len(part) == 2 and part[0] == PREFIX]
    return sorted(
        int(text) for text in numbers_of_checkpoints if text.isascii() and text.isdecimal()
    )


def last_number(fs: FS, root: str) -> int:
    """The number of the newest checkpoint, -1 if there is none."""
    return max(numbers(fs, root), default=-1)


def write_status(folder: str, status: TrainStatus) -> None:
    """Write the status of a checkpoint."""
    text = json.dumps({"epoch_no": status.next() - 1})
    (Path(folder) / STATUS).write_text(text, encoding="utf-8")


def read_status(folder: str) -> TrainStatus:
    """Read the status of a checkpoint; a new one if it has none.

    Raises ValueError naming the file if it is malformed.
    """
    path = Path(folder) / STATUS
    if not path.is_file():
        return TrainStatus()
    return TrainStatus(_epoch(path))


def _epoch(path: Path) -> int:
    if path.stat().st_size > STATUS_BYTES:
        raise ValueError(f"{path} is larger than {STATUS_BYTES} bytes: it is no train status")
    try:
        content: object = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"{path} is no JSON: {error}") from error
    epoch = content.get("epoch_no") if is_mapping(content) else None
    if isinstance(epoch, bool) or not isinstance(epoch, int) or epoch < 0:
        raise ValueError(
            f'{path}: expected {{"epoch_no": NUMBER}}, a number from 0, got {content!r}'
        )
    return epoch
