"""Failures of ranks, each repeated: the errors of the other ranks, and their delay.

    python -m tools.verify.faults --count 20            # all faults
    python -m tools.verify.faults --only pool --count 3 --jobs 1

Ranks that were started separately meet at endpoints; those of a pool are workers of a caller. A
fault counts as named if every remaining rank raises the expected error, naming the expected rank,
within the deadline, and exits; and no process and no shared memory remains.
"""

from __future__ import annotations

import argparse
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from bench.support.lines import append  # noqa: E402
from bench.support.table import Row, goal, table  # noqa: E402
from tests.support.ports import free_ports  # noqa: E402
from tools.verify.support.faulted import (  # noqa: E402
    MARGIN,
    Ended,
    Expected,
    Outcome,
    Spec,
    began_at,
    events,
    judge,
    nothing_left,
    runs,
    settles,
    shared_memory,
)
from tools.verify.support.forked import Forked, Forks  # noqa: E402

WORKERS = ROOT / "tools" / "verify" / "workers"
START_LIMIT = 60.0
"""Seconds for imports and the rendezvous, on a busy machine."""

ENDING = 10.0
"""Seconds that a rank may take to exit after its error."""

COLUMNS = {"fault": "", "named": "d", "of": "d", "median s": ".2f", "worst s": ".2f", "error": ""}


@dataclass(frozen=True)
class Case:
    """A fault: how it is run, with a deadline in seconds."""

    name: str
    deadline: float
    run: Callable[[float], Outcome]


@cache
def forks() -> Forks:
    """The process from which ranks and callers are forked: one for all faults."""
    return Forks()


def start(script: str, spec: Spec, deadline: float) -> Forked:
    """Start a script of `tools/verify/workers` with a specification, in a separate process."""
    return forks().start(script, spec, {"FLAGS_rpc_deadline": str(int(deadline * 1000))})


def finish(process: Forked, limit: float) -> Ended:
    """The output of a process until its end, or until a timeout."""
    process.wait(limit)
    out, complaints = process.wrote()
    return Ended(events(out), complaints, process.code)


# Ranks that were started separately


def separate(specs: Sequence[Spec], wanted: Mapping[int, Expected], deadline: float) -> Outcome:
    """Run ranks; `wanted` maps those that remain to their error: type, rank named, text."""
    outcome, before = Outcome(), shared_memory()
    processes = [start("faulty_rank", spec, deadline) for spec in specs]
    end = time.monotonic() + START_LIMIT + deadline + MARGIN + ENDING
    results = {i: finish(processes[i], end - time.monotonic()) for i in wanted}
    for index, process in enumerate(processes):
        if index not in wanted:
            process.send(signal.SIGKILL)
            results[index] = finish(process, ENDING)
    began = began_at(results.values())
    for index, expected in wanted.items():
        judge(outcome, index, results[index], expected, began, deadline)
    nothing_left(outcome, before, [process.pid for process in processes])
    for process in processes:
        process.end()
    return outcome


def ranks(size: int, **more: Any) -> list[Spec]:
    """Specifications of ranks that run the same program."""
    endpoints = [f"127.0.0.1:{port}" for port in free_ports(size)]
    return [{"rank": rank, "endpoints": endpoints, **more} for rank in range(size)]


def killed(size: int, rank: int, when: str, number: int, deadline: float) -> Outcome:
    """A rank that kills or stops itself at one point of a step."""
    fault = {"rank": rank, "when": when, "signal": number, "step": 3}
    specs = ranks(size, fault=fault)
    text = "ended" if number == signal.SIGKILL else "heartbeat"
    others = [other for other in range(size) if other != rank]
    return separate(specs, dict.fromkeys(others, ("RankError", rank, text)), deadline)


def raised(deadline: float) -> Outcome:
    """A rank whose own code raises an error."""
    specs = ranks(2, raises=[1, 3])
    return separate(specs, {0: ("RankError", 1, "bad record")}, deadline)


def different(variant: str, compares: bool, deadline: float) -> Outcome:
    """A rank with another program."""
    specs = ranks(2, compares=compares)
    specs[1]["variant"] = variant
    return separate(specs, dict.fromkeys((0, 1), ("ScheduleError", -1, "rank")), deadline)


def swapped(deadline: float) -> Outcome:
    """A rank that swaps two sums of one shape once, after both ranks have seen both orders."""
    specs = ranks(2, compares=False, alternates=True, steps=10**6)
    specs[1]["variant"] = "swap"
    wanted = ("ScheduleError", -1, "different collectives")
    return separate(specs, dict.fromkeys((0, 1), wanted), deadline)


def port_taken(deadline: float) -> Outcome:
    """The port of the first endpoint is used by another program, which listens and never
    answers.
    """
    specs = ranks(2)
    host, port = specs[0]["endpoints"][0].split(":")
    with socket.create_server((host, int(port))):
        wanted = {0: ("RendezvousError", -1, "in use"), 1: ("RendezvousError", -1, "not the ren")}
        return separate(specs, wanted, deadline)


def wrong_endpoints(which: int, deadline: float) -> Outcome:
    """One rank has another list: its first endpoint is elsewhere, or another entry differs."""
    specs = ranks(2)
    other = list(specs[0]["endpoints"])
    other[which] = f"127.0.0.1:{free_ports(1)[0]}"
    specs[1]["endpoints"] = other
    texts = ("did not arrive", "nobody hosts") if which == 0 else ("endpoint 1 is",) * 2
    wanted = {rank: ("RendezvousError", -1, text) for rank, text in enumerate(texts)}
    return separate(specs, wanted, deadline)


def wrong_size(deadline: float) -> Outcome:
    """One rank has a list of three endpoints where the other has two."""
    specs = ranks(2)
    specs[1]["endpoints"] = [*specs[0]["endpoints"], "127.0.0.1:9"]
    return separate(specs, dict.fromkeys((0, 1), ("RendezvousError", -1, "expects")), deadline)


def same_rank(deadline: float) -> Outcome:
    """Two processes have rank 1 of 3."""
    specs = ranks(3)
    specs[2]["rank"] = 1
    first, second = ("RendezvousError", -1, "did not arrive"), ("RendezvousError", -1, "rank ")
    return separate(specs, {0: first, 1: second, 2: second}, deadline)


# Ranks of a pool


def pooled(spec: Spec, expected: Expected, deadline: float) -> Outcome:
    """A pool of three with a fault, in a separate caller."""
    outcome, before = Outcome(), shared_memory()
    process = start("faulty_pool", {"size": 3, **spec}, deadline)
    result = finish(process, START_LIMIT + deadline + MARGIN + ENDING)
    ends = [event for event in result.events if event["event"] == "end"]
    if ends and result.code == 0:
        _judge_caller(outcome, ends[0], expected, deadline)
    else:
        outcome.problems.append(f"the caller ended by {process.code}: {result.complaints[-800:]}")
    nothing_left(outcome, before, [process.pid])
    process.end()
    return outcome


def _judge_caller(outcome: Outcome, seen: Spec, expected: Expected, deadline: float) -> None:
    kind, rank, text = expected
    outcome.seconds, outcome.message = seen["seconds"], seen["message"]
    if seen["type"] != kind or text not in seen["message"] or seen["rank"] not in (rank, -1):
        outcome.problems.append(f"the caller raised {seen['type']}: {seen['message']}")
    if seen["left"]:
        outcome.problems.append(f"processes remain: {seen['left']}")
    if seen["seconds"] > deadline + MARGIN:
        outcome.problems.append(f"the error came after {seen['seconds']:.1f} s")


def pool_signal(rank: int, when: str, number: int, deadline: float) -> Outcome:
    """A worker that kills or stops itself."""
    fault = {"rank": rank, "when": when, "signal": number, "step": 3}
    text = "SIGKILL" if number == signal.SIGKILL else "heartbeat"
    return pooled({"fault": fault}, ("RankError", rank, text), deadline)


def pool_raises(deadline: float) -> Outcome:
    """A worker whose module raises an error between its collectives."""
    fault = {"rank": 2, "when": "during", "step": 3, "raises": True}
    return pooled({"fault": fault}, ("WorkerError", 2, "a fault of this rank alone"), deadline)


def pool_program(variant: str, deadline: float) -> Outcome:
    """A worker with another module."""
    return pooled({"variant": variant}, ("ScheduleError", -1, "rank"), deadline)


def pool_caller(number: int, deadline: float) -> Outcome:
    """The caller is killed, stopped by Ctrl-C, or terminated, while its pool runs steps."""
    outcome, before = Outcome(), shared_memory()
    process = start("faulty_pool", {"size": 3, "steps": 10**6}, deadline)
    if settles(lambda: bool(events(process.wrote()[0])), START_LIMIT):
        pids = events(process.wrote()[0])[0]["pids"]
        time.sleep(0.5)  # it runs steps
        outcome.message = f"{signal.Signals(number).name} to the caller"
        _end_by(outcome, lambda: process.send(number), pids, deadline)
    else:
        outcome.problems.append(f"no pool was started: {process.wrote()[1][-500:]}")
    if not process.wait(ENDING):
        outcome.problems.append("the caller did not end")
    process.end()
    nothing_left(outcome, before, [process.pid])
    return outcome


def _end_by(outcome: Outcome, end: Callable[[], None], pids: list[int], deadline: float) -> None:
    """Run `end`, and check that the processes exit within the deadline."""
    end()
    began = time.monotonic()
    if not settles(lambda: not any(map(runs, pids)), deadline):
        outcome.problems.append(f"workers remain: {[pid for pid in pids if runs(pid)]}")
    outcome.seconds = time.monotonic() - began


# The launcher


def launcher(number: int, deadline: float) -> Outcome:
    """`fluid launch` is killed or stopped while its two ranks run steps."""
    outcome, before = Outcome(), shared_memory()
    command = [sys.executable, "-m", "fluid", "launch", "--nproc_per_node", "2"]
    process = subprocess.Popen(
        [*command, str(WORKERS / "launched_rank.py")], stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT, start_new_session=True, text=True, cwd=ROOT,
        env={
            **os.environ, "OMP_NUM_THREADS": "1", "PYTHONFAULTHANDLER": "1",
            "FLAGS_rpc_deadline": str(int(deadline * 1000)),
        },
    )  # fmt: skip
    assert process.stdout is not None
    lines = [process.stdout.readline(), process.stdout.readline()]
    pids = [int(line.split()[-1]) for line in lines if " ready " in line]
    if len(pids) == 2:
        outcome.message = f"{signal.Signals(number).name} to the launcher"
        _end_by(outcome, lambda: process.send_signal(number), pids, deadline)
    else:
        outcome.problems.append(f"the ranks were not ready: {lines}")
    try:
        process.communicate(timeout=deadline)
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGABRT)  # it shows where it is
        outcome.problems.append(f"the launcher did not end: {process.communicate()[0][-3000:]}")
    nothing_left(outcome, before, [process.pid, *pids])
    return outcome


# All of them


def cases() -> list[Case]:
    """Every fault, by name."""
    kill, stop = int(signal.SIGKILL), int(signal.SIGSTOP)
    all_cases: list[Case] = []

    def add(name: str, deadline: float, run: Callable[..., Outcome], *more: Any) -> None:
        all_cases.append(Case(name, deadline, lambda limit: run(*more, limit)))

    for rank in (1, 0):
        for when in ("before", "during", "after"):
            add(f"separate: SIGKILL of rank {rank} {when}", 30, killed, 3, rank, when, kill)
        add(f"separate: SIGSTOP of rank {rank}", 9, killed, 3, rank, "during", stop)
    add("separate: a rank raises", 30, raised)
    for variant in ("size", "dtype", "name", "order"):
        add(f"separate: schedule, {variant}", 30, different, variant, True)
        add(f"separate: calls, {variant}", 30, different, variant, False)
    add("separate: calls, swapped in one step", 30, swapped)
    add("separate: port taken", 5, port_taken)
    add("separate: first endpoint wrong", 5, wrong_endpoints, 0)
    add("separate: another endpoint wrong", 5, wrong_endpoints, 1)
    add("separate: size wrong", 5, wrong_size)
    add("separate: two of a rank", 5, same_rank)
    for when in ("before", "during", "after"):
        add(f"pool: SIGKILL of a worker {when}", 30, pool_signal, 1, when, kill)
    add("pool: SIGSTOP of a worker", 9, pool_signal, 2, "during", stop)
    add("pool: a worker raises", 30, pool_raises)
    for variant in ("size", "dtype", "name"):
        add(f"pool: a module differs, {variant}", 30, pool_program, variant)
    for number in (signal.SIGKILL, signal.SIGTERM, signal.SIGINT):
        add(f"pool: {number.name} of the caller", 10, pool_caller, int(number))
    for number in (signal.SIGKILL, signal.SIGTERM, signal.SIGINT):
        add(f"launcher: {number.name}", 30, launcher, int(number))
    return all_cases


def measure(case: Case, count: int, jobs: int) -> tuple[Row, list[str]]:
    """Run a fault `count` times, `jobs` at once: a row of the table, and the failures."""
    with ThreadPoolExecutor(jobs) as threads:
        outcomes = list(threads.map(lambda _: case.run(case.deadline), range(count)))
    good = [outcome for outcome in outcomes if not outcome.problems]
    seconds = sorted(outcome.seconds for outcome in outcomes)
    message = (good or outcomes)[0].message.partition("\n")[0]
    row: Row = {
        "fault": case.name, "named": len(good), "of": count, "median s": seconds[count // 2],
        "worst s": seconds[-1], "error": message[:110],
    }  # fmt: skip
    return row, [f"{case.name}: {text}" for outcome in outcomes for text in outcome.problems]


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--count", type=int, default=20)
    parser.add_argument("--only", default="", help="a part of the names of faults")
    parser.add_argument("--jobs", type=int, default=3, help="how many at once (%(default)s)")
    parser.add_argument("--json", type=Path, help="append a row for each fault to this file")
    options = parser.parse_args(arguments)
    rows: list[Row] = []
    problems: list[str] = []
    for case in (case for case in cases() if options.only in case.name):
        row, found_problems = measure(case, options.count, options.jobs)
        rows.append(row)
        problems += found_problems
        print(table(case.name, [row], COLUMNS), *found_problems, sep="\n", flush=True)
    print(table("Faults", rows, COLUMNS), *problems, sep="\n")
    named, total = (sum(int(row[key]) for row in rows) for key in ("named", "of"))
    if options.json:
        append(options.json, {"faults": rows})
    print(goal(f"{named} of {total} faults named", named == total, "all"))
    return named < total


if __name__ == "__main__":
    sys.exit(main())
