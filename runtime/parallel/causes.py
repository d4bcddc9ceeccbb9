"""Finds the worker of a pool that failed first, by process exits and worker reports."""

from __future__ import annotations

from collections.abc import Sequence

from runtime.collective.processes import host_name
from runtime.collective.record import RankRecord
from runtime.collective.rings import Rings
from runtime.error_reports import Report, reported_error
from runtime.errors import CollectiveError, RankError
from runtime.parallel.process import WorkerProcess

RING = 0
"""The ring of all ranks of a pool."""

SECONDARY = ("RankError", "CollectiveError")
"""Error types that may be a mere consequence of another rank's failure."""

HINT = "the pool has ended; the next run starts another"


def find_cause(
    workers: Sequence[WorkerProcess], rings: Rings, own_rank: int
) -> tuple[CollectiveError, bool]:
    """Return the error that ended a worker, and whether it is a root cause, not a consequence.

    A worker that was killed comes first, then one whose own step raised an error, then reports
    about other ranks.
    """
    reports: list[Report] = []
    for worker in workers:
        worker.drain()
        errors = [message for message in worker.inbox if message["do"] == "error"]
        reports += errors[:1]
        if worker.has_ended() and not errors:
            return _ended(worker, rings), True
    reports.sort(key=lambda report: (report["kind"] in SECONDARY, report["named_rank"] < 0))
    if not reports:
        return CollectiveError("the connection to a worker was lost", hint=HINT), False
    first = reports[0]
    if first["named_rank"] >= 0 and first["named_rank"] != own_rank:
        return _error_of_named_rank(first, rings), False
    return reported_error(first), first["kind"] not in SECONDARY


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


def _error_of_named_rank(report: Report, rings: Rings) -> RankError:
    """Convert a worker's report about another rank to an error."""
    rank, text = int(report["named_rank"]), str(report["text"])
    record = rings.record_of(RING, rank) or RankRecord(rank)
    return RankError(
        text, rank=rank, host=record.host, pid=record.pid, step=record.step, last=record.call,
        cause=f"rank {report['rank']} reported it", hint=str(report.get("hint", "")),
    )  # fmt: skip
