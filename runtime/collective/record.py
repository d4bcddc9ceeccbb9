"""The record of a rank: its last activity, published for the others as JSON text."""

from __future__ import annotations

import json
from dataclasses import asdict, field
from typing import Any, cast

from compiler.support.dataclass import dataclass
from runtime.collective.processes import host_name, machine_id, own_pid, start_time

MAX_RECORD_BYTES = 1 << 16
"""Maximum size of a record in bytes; longer ones are not read."""

MAX_FAILURE_CHARS = 4000
"""Maximum number of characters of an error in a record."""


@dataclass
class RankRecord:
    """The published state of a rank.

    `beat` grows with every publication. `issued` counts the collectives of each ring, `history`
    has such a count with the checksum of all calls up to it; `call` is the last of them, as
    `all_reduce of 'x' (sum, float32[4])` on ring `ring`, and `program` the digest of the schedule
    it last compared. `failure` is the error that ended it, `named_rank` the rank that its error
    names, -1 for none; `has_left` is true when it finished.
    """

    rank: int
    host: str = field(default_factory=host_name)
    machine: str = field(default_factory=machine_id)
    pid: int = field(default_factory=own_pid)
    started: int = field(default_factory=lambda: start_time(own_pid()))
    beat: int = 0
    step: int = 0
    ring: int = -1
    call: str = ""
    issued: dict[str, int] = field(default_factory=dict[str, int])
    history: dict[str, tuple[int, int]] = field(default_factory=dict[str, tuple[int, int]])
    program: str = ""
    failure: str = ""
    named_rank: int = -1
    has_left: bool = False

    def text(self) -> str:
        """Serialise the record as JSON."""
        return json.dumps(asdict(self))

    @staticmethod
    def parse(text: bytes) -> RankRecord:
        """Parse a record. Raises ValueError if it is malformed."""
        if len(text) > MAX_RECORD_BYTES:
            raise ValueError(f"a record of {len(text)} bytes is longer than {MAX_RECORD_BYTES}")
        loaded = json.loads(text)
        default = asdict(RankRecord(0))
        if not isinstance(loaded, dict) or set(cast("dict[str, Any]", loaded)) != set(default):
            raise ValueError(f"this is not a record: {text[:80]!r}")
        values = cast("dict[str, Any]", loaded)
        for name, value in default.items():
            if type(values[name]) is not type(value):
                raise ValueError(f"{name} of a record is {values[name]!r:.80}")
        if not all(type(count) is int for count in values["issued"].values()):
            raise ValueError(f"issued of a record is {values['issued']!r:.80}")
        values["history"] = {ring: _pair(pair) for ring, pair in values["history"].items()}
        return RankRecord(**values)

    def add_ring(self, ring: int) -> None:
        """Start counting from 0; the dictionaries are replaced, since a thread may be reading the
        old ones.
        """
        self.issued = {str(ring): 0} | self.issued
        self.history = {str(ring): (0, 0)} | self.history

    def count(self, ring: int) -> int:
        """The number of collectives issued on a ring."""
        return self.issued.get(str(ring), 0)

    def where(self) -> str:
        """The process and its last activity, as shown in messages."""
        last = f"after {self.call}, number {self.count(self.ring)} of ring {self.ring}"
        at = last if self.call else "before its first collective"
        return f"rank {self.rank} (host {self.host}, process {self.pid}, step {self.step}, {at})"


def _pair(loaded: Any) -> tuple[int, int]:
    if isinstance(loaded, list):
        match cast("list[Any]", loaded):
            case [int(count), int(checksum)]:
                return count, checksum
            case _:
                pass
    raise ValueError(f"history of a record is {loaded!r:.80}")
