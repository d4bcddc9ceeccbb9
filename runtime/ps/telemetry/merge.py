"""Merges the traces of all servers and trainers of a job into one, on one clock.

The clock is that of the first trainer. It has recorded the clock offsets of the servers; another
trainer's clock is compared through a server whose offset both have recorded.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

from compiler.support.dataclass import dataclass
from runtime.chrome_trace import Event, process_name, trace_text
from runtime.errors import WireError

LARGEST = 1 << 28
"""Maximum bytes read of one role's trace."""


@dataclass(frozen=True)
class RoleFile:
    """The trace of one process, as read from its file."""

    path: Path
    role: str
    number: int
    endpoint: str
    clocks: Mapping[str, int]
    events: Sequence[Event]

    @property
    def label(self) -> str:
        """The label of the process in the trace."""
        where = f" ({self.endpoint})" if self.endpoint else ""
        return f"{self.role} {self.number}{where}, {self.path.suffixes[0][1:]}"


def merge_traces(folder: Path) -> str:
    """Return one Chrome trace of all `ROLE_NUMBER.PID.json` of a folder, servers first; times from
    0.

    Raises WireError if there are none, and for a file that is not a trace of a role.
    """
    files = [read_role(path) for path in sorted(folder.glob("*_*.*.json"))]
    if not files:
        raise WireError(f"{folder} has no traces", hint="run the job with FLUID_PS_TRACE=FOLDER")
    files.sort(key=lambda each: (each.role != "server", each.number))
    ahead = clocks_ahead(files)
    events: list[Event] = []
    for process, (file, shift) in enumerate(zip(files, ahead, strict=True)):
        events += process_name(process, file.label)
        events += [_moved(event, process, shift) for event in file.events if _is_shown(event)]
    return trace_text(_from_zero(events))


def clocks_ahead(files: Sequence[RoleFile]) -> list[int]:
    """The offset of each file's clock from the first trainer's, in nanoseconds."""
    first = next((file for file in files if file.role == "trainer"), None)
    clocks: Mapping[str, int] = {} if first is None else first.clocks
    offsets: list[int] = []
    for file in files:
        common = [name for name in file.clocks if name in clocks]
        through = clocks[common[0]] - file.clocks[common[0]] if common else 0
        offsets.append(clocks.get(file.endpoint, 0) if file.role == "server" else through)
    return offsets


def read_role(path: Path) -> RoleFile:
    """Read one file. Raises WireError naming it if it is too large or not a trace of a role."""
    if path.stat().st_size > LARGEST:
        raise WireError(f"{path} has {path.stat().st_size:,d} bytes, more than {LARGEST:,d}")
    try:
        trace = json.loads(path.read_bytes())
        about = trace["otherData"]
        clocks = {str(name): int(ahead) for name, ahead in about["clocks"].items()}
        role, number = str(about["role"]), int(about["number"])
        events = [_event(event) for event in trace["traceEvents"]]
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise WireError(f"{path} is not a trace of a server or trainer: {error}") from error
    return RoleFile(path, role, number, str(about["endpoint"]), clocks, events)


def _event(value: Any) -> Event:
    """Parse an event whose time, if any, is a number. Raises TypeError or ValueError."""
    event = cast("Event", dict(value))
    return event | {"ts": float(event["ts"])} if "ts" in event else event


def _is_shown(event: Event) -> bool:
    """Whether an event is kept: names of processes are replaced."""
    return event.get("name") not in ("process_name", "process_sort_index")


def _moved(event: Event, process: int, ahead: int) -> Event:
    moved = event | {"pid": process}
    return moved | {"ts": event["ts"] - ahead / 1e3} if "ts" in event else moved


def _from_zero(events: list[Event]) -> list[Event]:
    first = min((event["ts"] for event in events if "ts" in event), default=0.0)
    return [e | {"ts": round(e["ts"] - first, 3)} if "ts" in e else e for e in events]
