"""Schedules: the text of a program's collectives, compared between ranks before the first of them.

Ranks exchange digests; if these differ, the texts are read and the first different line is shown.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Sequence
from itertools import zip_longest

from runtime.collective.member import Member
from runtime.collective.monitor import RankDifference
from runtime.collective.slices import call_in_slices
from runtime.errors import ScheduleError

MAX_SCHEDULE_BYTES = 1 << 24
"""Maximum size of a schedule in bytes."""


def schedule_digest(text: str) -> str:
    """The digest of a schedule, as shown in records."""
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def exchange_schedules(
    member: Member, ring: int, number: int, text: str, check: Callable[[], None]
) -> None:
    """Compare a schedule with those of all ranks; `number` counts the comparisons of a ring.

    Raises ScheduleError, on every rank, if one differs.
    """
    encoded = text.encode()
    if len(encoded) > MAX_SCHEDULE_BYTES:
        raise ScheduleError(
            f"a schedule of {len(encoded)} bytes is longer than {MAX_SCHEDULE_BYTES}"
        )
    digest = schedule_digest(text)
    member.call(lambda store: store.set(member.key("schedule", digest), text), check)
    digests = member.exchange(f"schedules/{ring}/{number}", digest, check)
    different = [rank for rank, other in enumerate(digests) if other != digest]
    if different:
        other = read_schedule(member, digests[different[0]], check)
        equal = [rank for rank, rank_digest in enumerate(digests) if rank_digest == digest]
        groups = [rank for rank in different if digests[rank] == digests[different[0]]]
        raise different_schedules(ring, text, other, equal, groups)


def read_schedule(member: Member, digest: str, check: Callable[[], None]) -> str:
    """Return the text of a schedule that some rank published, or "".

    It uses a separate connection: that of the member may be blocked in an exchange.
    """
    key = member.key("schedule", digest)

    def read() -> str:
        engine = member.store.connect(member.deadline)
        return engine.get(key).decode() if engine.check([key]) else ""

    return call_in_slices(read, check)


def different_schedules(
    ring: int, mine: str, other: str, my_ranks: Sequence[int], other_ranks: Sequence[int]
) -> ScheduleError:
    r"""Build the error for two schedules: their first different line and the ranks that have each.

    >>> error = different_schedules(0, "sum x\nsum y", "sum x\nsum z", [0], [1])
    >>> print(error)
    ranks do not run the same collectives on ring 0: line 2 of the schedule is 'sum y' on rank 0
    and 'sum z' on rank 1
      hint: all ranks must run the same program, built for the same shapes
    """
    lines = list(zip_longest(mine.splitlines(), other.splitlines()))
    at = next((i for i, (a, b) in enumerate(lines) if a != b), 0)
    a, b = lines[at] if lines else ("", "")
    shown = [repr(line) if line is not None else "missing" for line in (a, b)]
    return ScheduleError(
        f"ranks do not run the same collectives on ring {ring}: line {at + 1} of the schedule is "
        f"{shown[0]} on {_ranks(my_ranks)} and {shown[1]} on {_ranks(other_ranks)}",
        hint="all ranks must run the same program, built for the same shapes",
    )


def different_histories(found: RankDifference, rank: int) -> ScheduleError:
    """Build the error for two ranks that made different calls, or the same in another order."""
    shown = (rank, found.mine or "not known"), (found.rank, found.other or "not known")
    if found.count == found.agreed + 1:
        return different_calls(found.ring, found.count, *shown)
    calls = " and ".join(f"{call} on rank {peer}" for peer, call in shown)
    return ScheduleError(
        f"ranks {rank} and {found.rank} issued different collectives on ring {found.ring}, or the "
        f"same ones in another order: the first of them has a number from {found.agreed + 1} to "
        f"{found.count}, which is {calls}; what was computed since then is wrong",
        hint="load the last checkpoint; no rank may choose the next collective by its own data",
    )


def different_calls(
    ring: int, count: int, mine: tuple[int, str], other: tuple[int, str]
) -> ScheduleError:
    """Build the error for two ranks, each with its call of one number."""
    return ScheduleError(
        f"ranks {mine[0]} and {other[0]} issue different collectives: number {count} of ring "
        f"{ring} is {mine[1]} on rank {mine[0]} and {other[1]} on rank {other[0]}",
        hint="all ranks must run the same program on equal shapes",
    )


def ring_lines(lines: Sequence[str], ring: int) -> list[str]:
    """Return the schedule lines of one ring; lines that name no ring belong to ring 0.

    >>> ring_lines(["sum x (ring_id=1)", "sum y (ring_id=10)", "barrier z ()"], 1)
    ['sum x (ring_id=1)']
    """
    matches = ((line, re.search(r"\bring_id=(\d+)", line)) for line in lines)
    return [line for line, named in matches if int(named[1] if named else 0) == ring]


def _ranks(ranks: Sequence[int]) -> str:
    return f"rank{'s' * (len(ranks) > 1)} {', '.join(map(str, ranks))}"
