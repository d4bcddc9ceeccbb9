"""Faults of ranks: each again and again, what the others saw of it, and after how long.

    python bench/faults.py --count 20            # all faults
    python bench/faults.py --only pool --count 3

Ranks that were started separately meet at endpoints; those of a pool are workers of a caller. A
fault counts as named where every rank that is left raises the error that is expected, of the rank
that is expected, within the deadline, and no process and no shared memory is left.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from bench.support.table import Row, goal, table  # noqa: E402

WORKERS = ROOT / "bench" / "workers"
START_LIMIT = 60.0
"""Seconds for imports and the rendezvous, on a machine that others use."""

MARGIN = 3.0
"""Seconds that an error may come after the deadline, on a machine that others use."""

COLUMNS = {"fault": "", "named": "", "median s": ".2f", "worst s": ".2f", "error": ""}

Spec = dict[str, Any]


@dataclass
class Outcome:
    """What came of one fault: what is wrong with it, if anything, and when it was seen."""

    problems: list[str] = field(default_factory=list[str])
    seconds: float = 0.0
    message: str = ""


@dataclass(frozen=True)
class Case:
    """A fault: how it is run, with a deadline in seconds."""

    name: str
    kind: str
    deadline: float
    run: Callable[[float], Outcome]


def free_ports(count: int) -> list[int]:
    """Ports of the loopback that nobody uses now."""
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]


def start(script: str, spec: Spec, deadline: float) -> subprocess.Popen[str]:
    """Start a script of `bench/workers` with a specification."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    environment["FLAGS_rpc_deadline"] = str(int(deadline * 1000))
    return subprocess.Popen(
        [sys.executable, str(WORKERS / script), json.dumps(spec)], env=environment, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True,
    )  # fmt: skip


def finish(process: subprocess.Popen[str], limit: float) -> tuple[list[Spec], str]:
    """The events that a process printed, and its last words; killed where it does not end."""
    try:
        out, complaints = process.communicate(timeout=limit)
    except subprocess.TimeoutExpired:
        process.kill()
        out, complaints = process.communicate()
        complaints += "\nHUNG"
    return [json.loads(line) for line in out.splitlines() if line.startswith("{")], complaints


@contextmanager
def nothing_left(outcome: Outcome) -> Iterator[None]:
    """See that no file of shared memory is left, and no process that is a worker of ours."""
    before = shared_memory()
    yield
    left = shared_memory() - before
    if left:
        outcome.problems.append(f"shared memory is left: {sorted(left)}")


def shared_memory() -> set[str]:
    """The names in /dev/shm."""
    return {path.name for path in Path("/dev/shm").iterdir()}


# Ranks that were started separately


def separate(
    specs: Sequence[Spec], wanted: Mapping[int, tuple[str, int, str]], deadline: float
) -> Outcome:
    """Run ranks; `wanted` maps those that are left to their error: type, rank named, text."""
    outcome = Outcome()
    with nothing_left(outcome):
        processes = [start("faulty_rank.py", spec, deadline) for spec in specs]
        results: dict[int, tuple[list[Spec], str]] = {}
        end = time.time() + START_LIMIT + deadline + MARGIN
        for index in wanted:
            results[index] = finish(processes[index], max(end - time.time(), 1.0))
        for index, process in enumerate(processes):
            process.kill()
            results.setdefault(index, finish(process, 10.0))
    began = began_at(results)
    for index, expected in wanted.items():
        judge(outcome, index, results[index], expected, began, deadline)
    return outcome


def began_at(results: Mapping[int, tuple[list[Spec], str]]) -> float:
    """When the fault was: as a rank said, or when the last one was ready, or had started."""
    events = [event for found, _ in results.values() for event in found]
    faults = [event["at"] for event in events if event["event"] == "fault"]
    ready = [event["at"] for event in events if event["event"] == "ready"]
    started = [event["at"] for event in events if event["event"] == "start"]
    return max(faults or ready or started or [0.0])


def judge(
    outcome: Outcome,
    index: int,
    result: tuple[list[Spec], str],
    expected: tuple[str, int, str],
    began: float,
    deadline: float,
) -> None:
    """Hold the error of one rank against what was expected."""
    events, complaints = result
    errors = [event for event in events if event["event"] == "error"]
    if not errors:
        shown = [event["event"] for event in events]
        outcome.problems.append(f"rank {index} raised nothing: {shown} {complaints[-500:]}")
        return
    error = errors[0]
    kind, rank, text = expected
    seconds = error["at"] - began if began else 0.0
    outcome.seconds = max(outcome.seconds, seconds)
    outcome.message = error["message"]
    named = error["type"] == kind and text in error["message"]
    if not named or (rank >= 0 and error["rank"] != rank):
        outcome.problems.append(f"rank {index} raised {error['type']}: {error['message']}")
    if seconds > deadline + MARGIN:
        outcome.problems.append(f"rank {index} raised after {seconds:.1f} s")


def ranks(size: int, **more: Any) -> list[Spec]:
    """Specifications of ranks that run the same program."""
    endpoints = [f"127.0.0.1:{port}" for port in free_ports(size)]
    return [{"rank": rank, "endpoints": endpoints, **more} for rank in range(size)]


def killed(size: int, rank: int, when: str, number: int, deadline: float) -> Outcome:
    """A rank that ends or stops itself at one place of a step."""
    fault = {"rank": rank, "when": when, "signal": number, "step": 3}
    specs = ranks(size, fault=fault)
    text = "ended" if number == signal.SIGKILL else "heartbeat"
    others = [each for each in range(size) if each != rank]
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


def port_taken(deadline: float) -> Outcome:
    """The port of the first endpoint is another program's, which listens and never answers."""
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
    texts = ("did not come", "nobody hosts") if which == 0 else ("endpoint 1 is",) * 2
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
    first, second = ("RendezvousError", -1, "did not come"), ("RendezvousError", -1, "rank ")
    return separate(specs, {0: first, 1: second, 2: second}, deadline)


# Ranks of a pool


def pooled(spec: Spec, expected: tuple[str, int, str], deadline: float) -> Outcome:
    """A pool of three with a fault, in a caller of its own."""
    outcome = Outcome()
    with nothing_left(outcome):
        process = start("faulty_pool.py", {"size": 3, **spec}, deadline)
        events, complaints = finish(process, START_LIMIT + deadline + MARGIN)
    ends = [event for event in events if event["event"] == "end"]
    if not ends or process.returncode:
        outcome.problems.append(f"code {process.returncode}: {complaints[-800:]}")
        return outcome
    seen = ends[0]
    kind, rank, text = expected
    outcome.seconds, outcome.message = seen["seconds"], seen["message"]
    if seen["type"] != kind or text not in seen["message"] or seen["rank"] not in (rank, -1):
        outcome.problems.append(f"the caller raised {seen['type']}: {seen['message']}")
    if seen["left"]:
        outcome.problems.append(f"processes are left: {seen['left']}")
    if seen["seconds"] > deadline + MARGIN:
        outcome.problems.append(f"the error came after {seen['seconds']:.1f} s")
    return outcome


def pool_signal(rank: int, when: str, number: int, deadline: float) -> Outcome:
    """A worker that ends or stops itself."""
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
    outcome = Outcome()
    with nothing_left(outcome):
        process = start("faulty_pool.py", {"size": 3, "steps": 10**6}, deadline)
        assert process.stdout is not None
        pids = json.loads(process.stdout.readline())["pids"]
        time.sleep(1.0)
        process.send_signal(number)
        began = time.time()
        while time.time() - began < deadline and any(map(runs, pids)):
            time.sleep(0.01)
        outcome.seconds = time.time() - began
        outcome.message = f"{signal.Signals(number).name} to the caller"
        left = [pid for pid in pids if runs(pid)]
        finish(process, 10.0)
    if left:
        outcome.problems.append(f"workers are left: {left}")
    return outcome


def runs(pid: int) -> bool:
    """Whether a process is there and is no zombie."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8")
    except OSError:
        return False
    return text.rpartition(")")[2].split()[0] not in "ZX"


# All of them


def cases() -> list[Case]:
    """Every fault, by name."""
    kill, stop = int(signal.SIGKILL), int(signal.SIGSTOP)
    made: list[Case] = []

    def add(kind: str, name: str, deadline: float, run: Callable[..., Outcome], *more: Any) -> None:
        made.append(Case(f"{kind}: {name}", kind, deadline, lambda limit: run(*more, limit)))

    for rank in (1, 0):
        for when in ("before", "during", "after"):
            add("separate", f"SIGKILL of rank {rank} {when}", 30, killed, 3, rank, when, kill)
        add("separate", f"SIGSTOP of rank {rank}", 9, killed, 3, rank, "during", stop)
    add("separate", "a rank raises", 30, raised)
    for variant in ("size", "dtype", "name", "order"):
        add("separate", f"schedule, {variant}", 30, different, variant, True)
        add("separate", f"calls, {variant}", 30, different, variant, False)
    add("separate", "port taken", 5, port_taken)
    add("separate", "first endpoint wrong", 5, wrong_endpoints, 0)
    add("separate", "another endpoint wrong", 5, wrong_endpoints, 1)
    add("separate", "size wrong", 5, wrong_size)
    add("separate", "two of a rank", 5, same_rank)
    for when in ("before", "during", "after"):
        add("pool", f"SIGKILL of a worker {when}", 30, pool_signal, 1, when, kill)
    add("pool", "SIGSTOP of a worker", 9, pool_signal, 2, "during", stop)
    add("pool", "a worker raises", 30, pool_raises)
    for variant in ("size", "dtype", "name"):
        add("pool", f"a module differs, {variant}", 30, pool_program, variant)
    for number in (signal.SIGKILL, signal.SIGTERM, signal.SIGINT):
        add("pool", f"{number.name} of the caller", 10, pool_caller, int(number))
    return made


def measure(case: Case, count: int) -> tuple[Row, list[str]]:
    """Run a fault `count` times: a line of the table, and what went wrong."""
    outcomes = [case.run(case.deadline) for _ in range(count)]
    good = [each for each in outcomes if not each.problems]
    seconds = sorted(each.seconds for each in outcomes)
    message = (good or outcomes)[0].message.partition("\n")[0]
    row: Row = {
        "fault": case.name, "named": f"{len(good)} of {count}", "median s": seconds[count // 2],
        "worst s": seconds[-1], "error": message[:110],
    }  # fmt: skip
    return row, [f"{case.name}: {text}" for each in outcomes for text in each.problems]


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--count", type=int, default=20)
    parser.add_argument("--only", default="", help="a part of the names of faults")
    given = parser.parse_args(arguments)
    rows: list[Row] = []
    problems: list[str] = []
    chosen = [case for case in cases() if given.only in case.name]
    for case in chosen:
        row, found = measure(case, given.count)
        rows.append(row)
        problems += found
        print(table(case.name, [row], COLUMNS), flush=True)
    print(table("Faults", rows, COLUMNS))
    print("\n".join(problems))
    total = len(chosen) * given.count
    bad = sum(given.count - int(str(row["named"]).split()[0]) for row in rows)
    print(goal(f"{total - bad} of {total} named, nothing left", not bad, "all"))
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
