"""Reports of errors that ended the step of another rank: where, what, and what to do."""

from __future__ import annotations

import os
import traceback
from collections.abc import Mapping
from textwrap import indent
from typing import Any

from compiler.errors import CompileError
from compiler.support.settings.fluid import FLUID_TRACEBACK
from compiler.support.tracebacks import first_lines, last_line
from runtime.collective.processes import host_name
from runtime.errors import CollectiveError, RankError, ScheduleError, WorkerError

MAX_TRACE_CHARS = 20000
"""Maximum number of characters of a traceback that are reported, from its end."""

ALL_FRAMES = "set FLUID_TRACEBACK=full to see the traceback of that process"

Report = Mapping[str, Any]
"""A report as plain data, which processes can exchange."""


def error_report(error: BaseException, rank: int) -> dict[str, Any]:
    """The report of an error that a rank of this process raised."""
    trace = "".join(traceback.format_exception(error))[-MAX_TRACE_CHARS:]
    named_rank = error.rank if isinstance(error, RankError) else -1
    parts = {"text": str(error), "op": "", "source": last_line(error)}
    if isinstance(error, CompileError):
        parts = {"text": error.message, "op": error.op, "source": error.source}
        parts["hint"] = error.hint
    return {
        "rank": rank, "host": host_name(), "pid": os.getpid(), "kind": type(error).__name__,
        "trace": trace, "named_rank": named_rank,
        **{name: text[:MAX_TRACE_CHARS] for name, text in parts.items()},
    }  # fmt: skip


def reported_error(report: Report) -> CollectiveError:
    """Convert a report to an error of a few lines."""
    kind, text, trace = str(report["kind"]), str(report["text"]), str(report["trace"])
    if kind == ScheduleError.__name__:
        return ScheduleError(text)
    rank, host, pid = int(report["rank"]), str(report["host"]), int(report["pid"])
    where = f"rank {rank} (host {host}, process {pid})"
    message = first_lines(f"{where} raised {kind}: {text}")
    if FLUID_TRACEBACK.text() == "full":
        message += "\n  its traceback:\n" + indent(trace, "    ")
    return WorkerError(
        message, kind=kind, trace=trace, rank=rank, host=host, pid=pid,
        cause=f"it raised {kind}: {text}", op=str(report["op"]), source=str(report["source"]),
        hint=str(report.get("hint", "")) or ("" if report["op"] else ALL_FRAMES),
    )  # fmt: skip
