"""A caller with a pool of workers that have a fault, repeatedly, each time in a new pool.

    python faulty_pool.py '{"size": 3, "repeat": 20, "fault": {"rank": 1, "when": "during", ...}}'

It prints a line of JSON for each: the error in the caller, its delay, and what remained.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

import runtime
from compiler.codegen.module import Module
from runtime.errors import CollectiveError, RankError
from runtime.parallel import Pool

SOURCE = """
import os
import numpy as np
DIMS = ()
FEEDS = (("number", "int64", (1,)),)
PARAMS = ()
FETCHES = (("y", "float32", (4,)),)
BUFFERS = ()
NAME = "step"
TARGET = "numpy"
FAULT = {fault!r}

def fault(when, number):
    spec = FAULT
    if spec and spec["rank"] == collective.rank(0) and spec["when"] == when:
        if number == spec["step"]:
            if spec.get("raises"):
                raise ZeroDivisionError("a fault of this rank alone")
            os.kill(os.getpid(), spec["signal"])

def bind(take, params):
    a, b = np.ones({elements}, {first!r}), np.ones({elements}, "float32")
    def step(number):
        fault("before", number[0])
        collective.start_all_reduce(0, "a", "sum", a)
        fault("during", number[0])
        collective.wait(0, "a")
        collective.all_reduce(0, {second!r}, "sum", b)
        fault("after", number[0])
        return (b[:4],)
    return step
"""


def module(fault: dict[str, Any], variant: str = "") -> Module:
    """A step of two all-reduces, with a fault, or with a difference to the others."""
    return Module.parse(
        SOURCE.format(
            fault=fault,
            elements=1 << (13 if variant == "size" else 18),
            first="float64" if variant == "dtype" else "float32",
            second="c" if variant == "name" else "b",
        )
    )


def steps(pool: Pool, spec: dict[str, Any]) -> None:
    """Load the modules and run steps until one fails."""
    fault = spec.get("fault", {})
    own = module({})
    theirs = [module(fault, spec.get("variant", "")), *[module({})] * (pool.size - 2)]
    if fault and fault["rank"] != 1:
        theirs.reverse()
    pool.load("step", theirs)
    executable = runtime.load(own, names={"collective": pool.rings})
    for number in range(spec.get("steps", 6)):
        feed = {"number": np.array([number])}
        pool.run("step", [feed] * (pool.size - 1), lambda feed=feed: executable(feed))
        time.sleep(spec.get("pause", 0.0))


def attempt(spec: dict[str, Any]) -> dict[str, Any]:
    """Run one pool with one fault; return the caller's error."""
    started = time.perf_counter()
    pool = Pool([runtime.CPUPlace()] * spec["size"])
    pids = [worker.pid for worker in pool.workers]
    seen: dict[str, Any] = {"type": "", "rank": -1, "message": "", "start": 0.0}
    seen["start"] = time.perf_counter() - started
    print(json.dumps({"event": "ready", "pids": pids}), flush=True)
    started = time.perf_counter()
    try:
        steps(pool, spec)
    except (CollectiveError, KeyboardInterrupt) as error:
        rank = error.rank if isinstance(error, RankError) else -1
        seen |= {"type": type(error).__name__, "rank": rank, "message": str(error)}
    seen["seconds"] = time.perf_counter() - started
    pool.close()
    seen["left"] = [pid for pid in pids if Path(f"/proc/{pid}").exists()]
    return seen


def main() -> None:
    spec = json.loads(sys.argv[1])
    for _ in range(spec.get("repeat", 1)):
        seen = attempt(spec)
        seen["descriptors"] = len(os.listdir("/proc/self/fd"))  # noqa: PTH208 - as a count
        print(json.dumps({"event": "end", **seen}), flush=True)
    with contextlib.suppress(BrokenPipeError):
        sys.stdout.flush()


if __name__ == "__main__":
    main()
