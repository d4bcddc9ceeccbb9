"""Events of the Chrome trace format, which chrome://tracing and ui.perfetto.dev open.

Times are in nanoseconds, of any clock that all events of a trace share; the format itself uses
microseconds. A process and a thread are numbers, which `process_name` and `thread_name` label.
Format: "Trace Event Format", Google, 2016.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

Event = dict[str, Any]


def complete_event(
    name: str, category: str, start: int, stop: int, process: int = 0, thread: int = 0, **args: Any
) -> Event:
    """An event with a beginning and an end; `args` are shown when it is selected."""
    return {
        "name": name,
        "cat": category,
        "ph": "X",
        "ts": start / 1e3,
        "dur": (stop - start) / 1e3,
        "pid": process,
        "tid": thread,
        "args": args,
    }


def counter_event(name: str, when: int, process: int = 0, **values: float) -> Event:
    """A sample of a counter, with one curve for each of `values`."""
    return {"name": name, "ph": "C", "ts": when / 1e3, "pid": process, "args": values}


def flow_event(
    flow: str, when: int, process: int = 0, thread: int = 0, *, ends: bool = False
) -> Event:
    """The beginning or the end of an arrow between two events that enclose `when`.

    Both ends have the same `flow`.
    """
    event = {"name": "message", "cat": "flow", "id": flow, "ts": when / 1e3}
    kind: Event = {"ph": "f", "bp": "e"} if ends else {"ph": "s"}
    return event | kind | {"pid": process, "tid": thread}


def process_name(process: int, name: str) -> list[Event]:
    """The label of a process and its sort index: processes are listed by their numbers."""
    return [
        {"name": "process_name", "ph": "M", "pid": process, "tid": 0, "args": {"name": name}},
        {
            "name": "process_sort_index", "ph": "M", "pid": process, "tid": 0,
            "args": {"sort_index": process},
        },
    ]  # fmt: skip


def thread_name(thread: int, name: str, process: int = 0) -> Event:
    """The label of a thread."""
    return {"name": "thread_name", "ph": "M", "pid": process, "tid": thread, "args": {"name": name}}


def trace_text(events: Iterable[Event], about: Mapping[str, Any] | None = None) -> str:
    """Return a trace file as JSON; `about` is stored as metadata that viewers do not show."""
    whole = {"traceEvents": list(events), "displayTimeUnit": "ms"}
    return json.dumps(whole if about is None else whole | {"otherData": dict(about)})
