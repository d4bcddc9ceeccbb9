"""Spans of one server or trainer, kept in memory and written as a Chrome trace when it exits.

FLUID_PS_TRACE names the folder; `merge` joins the files of all roles. Times are of the machine's
clock (`time.time_ns`), so that processes of one machine agree; a trainer also records the offset of
each server's clock from its own, for jobs of several machines.
"""

from __future__ import annotations

import os
from collections import deque
from itertools import chain
from pathlib import Path
from time import perf_counter_ns, time_ns
from typing import Any

from runtime.chrome_trace import (
    Event,
    complete_event,
    flow_event,
    process_name,
    thread_name,
    trace_text,
)

MAX_SPANS = 100_000
"""Maximum number of spans kept; in a longer job, the last ones."""

Kept = tuple[str, int, int, int, dict[str, Any], str, bool]


class RoleTrace:
    """Records spans of one process; any thread may add one.

    `rows` are the labels of the rows that show the spans, by number.
    """

    def __init__(self, folder: str, role: str, number: int, endpoint: str = "") -> None:
        self.role, self.number, self.endpoint = role, number, endpoint
        self._path = Path(folder) / f"{role}_{number}.{os.getpid()}.json"
        self._spans: deque[Kept] = deque(maxlen=MAX_SPANS)
        self._ahead = time_ns() - perf_counter_ns()
        self.rows: dict[int, str] = {}
        self.clocks: dict[str, int] = {}
        """The offset of each server's clock from this one, in nanoseconds."""

    def span(
        self, name: str, row: int, start: int, *, begins: str = "", ends: str = "", **args: Any
    ) -> int:
        """Record a span from `start` (`perf_counter_ns`) to now; returns now.

        `begins` and `ends` name an arrow that begins or ends here.
        """
        stop = perf_counter_ns()
        self._spans.append((name, row, start, stop, args, begins or ends, bool(ends)))
        return stop

    def write(self) -> None:
        """Write the trace atomically."""
        self._path.parent.mkdir(parents=True, exist_ok=True)
        temporary = self._path.with_suffix(".part")
        temporary.write_text(self._text())
        temporary.replace(self._path)

    def _text(self) -> str:
        label = f"{self.role} {self.number}" + (f" ({self.endpoint})" if self.endpoint else "")
        events = process_name(0, label)
        events += [thread_name(row, name) for row, name in sorted(self.rows.items())]
        spans = chain.from_iterable(self._events(*span) for span in list(self._spans))
        about = {"role": self.role, "number": self.number, "endpoint": self.endpoint}
        return trace_text([*events, *spans], about | {"clocks": self.clocks})

    def _events(
        self, name: str, row: int, start: int, stop: int, args: dict[str, Any], flow: str,
        ends: bool,
    ) -> list[Event]:  # fmt: skip
        start, stop = start + self._ahead, stop + self._ahead
        event = complete_event(name, self.role, start, stop, 0, row, **args)
        if not flow:
            return [event]
        when = max(start, stop - 1) if ends else start
        return [event, flow_event(flow, when, 0, row, ends=ends)]
