"""Causes: which worker of a pool is at fault, by how processes ended and what workers reported."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from runtime.collective.processes import host_name
from runtime.collective.record import Record
from runtime.collective.rings import Rings
from runtime.errors import CollectiveError, RankError, ScheduleError, WorkerError
from runtime.parallel.process import WorkerProcess

RING = 0
"""The ring that all ranks of a pool are in."""

SECONDARY = ("RankError", "CollectiveError")
"""Types of errors that may only follow from the fault of another rank."""

HINT = "the pool has ended; the next run starts another"

Report = Mapping[str, Any]
"""The message in which a worker reports an error."""


def find_cause(
    workers: Sequence[WorkerProcess], rings: Rings, own_rank: int
) -> tuple[CollectiveError, bool]:
    """What ended a worker, and whether it cannot follow from the fault of another rank.

    A worker that was killed comes first, then one that raised an error of its own, then what
    workers report of other ranks.
    """
    reports: list[Report] = []
    for worker in workers:
        worker.drain()
        found = [each for each in worker.inbox if each["do"] == "error"]
        reports += found[:1]
        if worker.has_ended() and not found:
            return _ended(worker, rings), True
    reports.sort(key=lambda report: (report["kind"] in SECONDARY, report["blames"] < 0))
    if not reports:
        return CollectiveError("the connection to a worker was lost", hint=HINT), False
    first = reports[0]
    if first["blames"] >= 0 and first["blames"] != own_rank:
        return _blamed(first, rings), False
    return _reported(first), first["kind"] not in SECONDARY


def _ended(worker: WorkerProcess, rings: Rings) -> RankError:
    record = rings.record_of(RING, worker.rank)
    cause = worker.cause()
    if record is None:
        text = f"rank {worker.rank} (host {host_name()}, process {worker.pid}) ended: {cause}"
        text += ", before it joined the others"
        return RankError(text, rank=worker.rank, host=host_name(), pid=worker.pid, cause=cause)
    return RankError(
        f"{record.where()} ended: {cause}", rank=worker.rank, host=record.host, pid=worker.pid,
        step=record.step, last=record.call, cause=cause, hint=HINT,
    )  # fmt: skip


def _blamed(report: Report, rings: Rings) -> RankError:
    """What a worker found of another rank."""
    rank, text = int(report["blames"]), str(report["text"])
    record = rings.record_of(RING, rank) or Record(rank)
    return RankError(
        text, rank=rank, host=record.host, pid=record.pid, step=record.step, last=record.call,
        cause=f"rank {report['rank']} found it at fault",
    )  # fmt: skip


def _reported(report: Report) -> CollectiveError:
    """The error that a worker reported, with its traceback."""
    kind, text, trace = str(report["kind"]), str(report["text"]), str(report["trace"])
    if kind == ScheduleError.__name__:
        return ScheduleError(text)
    rank, host, pid = int(report["rank"]), str(report["host"]), int(report["pid"])
    shown = "\n".join(f"    {line}" for line in trace.splitlines())
    where = f"rank {rank} (host {host}, process {pid})"
    return WorkerError(
        f"{where} raised {kind}: {text}\n  its traceback:\n{shown}",
        kind=kind, trace=trace, rank=rank, host=host, pid=pid, cause=f"it raised {kind}: {text}",
    )  # fmt: skip
