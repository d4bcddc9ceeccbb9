"""Training steps of this package on one device and on two, for `distributed.py`.

Modes are `one` (a plain Executor), `half` (it with half a batch), `two`, `late` (gradients are
reduced after the backward pass) and `single` (each gradient by itself). The model `empty` ignores
its feeds. A reply has `ms`, a step's milliseconds, `cpu`, the CPU time of a rank, and `exposed`,
those in which rank 0 waits for gradients.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

import fluid  # noqa: E402
from bench.workers import protocol  # noqa: E402
from compiler.options import Options  # noqa: E402
from tests.support.nets import wide  # noqa: E402

Step = Callable[[], object]
LATE = "late"
"""The mode in which communication does not overlap with computing."""


class Clock:
    """Wraps the rings of rank 0, and sums their waiting time."""

    def __init__(self, rings: Any) -> None:
        self.seconds = 0.0
        rings.wait = self._timed(rings.wait)  # all_reduce calls it, too

    def _timed(self, call: Callable[..., None]) -> Callable[..., None]:
        def timed(*arguments: Any) -> None:
            start = time.perf_counter()
            call(*arguments)
            self.seconds += time.perf_counter() - start

        return timed


CLOCKS: dict[int, Clock] = {}


def prepare(name: str, mode: str) -> tuple[Step, Clock | None]:
    """A function that makes one step, and the clock of its waits."""
    if name == "empty":
        return _empty(), None
    recorded = wide.model(fluid, name)
    scope, executor = fluid.Scope(), fluid.Executor()
    executor.run(recorded.startup, scope=scope)
    batches = wide.drawn(name, 2 if mode == "half" else 1)
    if mode in ("one", "half"):
        run = {"fetch_list": [recorded.loss], "scope": scope}
        return lambda: executor.run(recorded.main, feed=next(batches), **run), None
    runner = _runner(recorded.main, recorded.loss.name, scope, fuse=mode != "single")
    fetch = [recorded.loss.name]
    with patch.object(Options, "from_env", lambda: Options(overlap=mode != LATE)):
        runner.run(fetch, next(batches))  # which compiles
    return lambda: runner.run(fetch, next(batches)), _clock(runner)


def _runner(program: Any, loss: str | None, scope: Any, fuse: bool = True) -> Any:
    os.environ["CPU_NUM"] = "2"
    strategy = fluid.BuildStrategy()
    strategy.fuse_all_reduce_ops = fuse
    return fluid.ParallelExecutor(
        False, loss_name=loss, main_program=program, build_strategy=strategy, scope=scope
    )


def _clock(runner: Any) -> Clock:
    """The clock of the processes that executors share."""
    rings = runner._program.runner(runner._scope, runner._places[0]).devices.pool().rings
    return CLOCKS.setdefault(id(rings), Clock(rings))


def _empty() -> Step:
    program = fluid.Program()
    with fluid.program_guard(program, fluid.Program()):
        fluid.layers.scale(fluid.data("x", [None, 1]), 2.0)
    runner = _runner(program, None, fluid.Scope())
    feed = {"x": np.ones((2, 1), "float32")}
    return lambda: runner.run([], feed)


def first_run() -> dict[str, float]:
    """Seconds from the creation of an executor with two devices to the end of its first step.

    `cpu` is the CPU time of this process.
    """
    recorded, scope = wide.model(fluid, "lenet_bn"), fluid.Scope()
    fluid.Executor().run(recorded.startup, scope=scope)
    batch = next(wide.drawn("lenet_bn"))
    start, busy = time.perf_counter(), time.process_time()
    _runner(recorded.main, recorded.loss.name, scope).run([recorded.loss.name], batch)
    return {"seconds": time.perf_counter() - start, "cpu": time.process_time() - busy}


def serve() -> None:
    """Answer requests until the input closes."""
    replies = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what libraries print must not come between the replies
    prepared: dict[tuple[str, str], tuple[Step, Clock | None]] = {}
    for line in sys.stdin:
        request = json.loads(line)
        key = request["model"], request["mode"]
        if key not in prepared:
            prepared[key] = prepare(*key)
        step, clock = prepared[key]
        before = clock.seconds if clock else 0.0
        steps = request["steps"]
        reply = protocol.measured(step, steps)
        reply["cpu"] /= 1 if clock is None else 2  # both ranks are this process
        waited = clock.seconds - before if clock else 0.0
        reply["exposed"] = waited / (steps + protocol.WARM_STEPS) * 1e3
        print(json.dumps(reply), file=replies, flush=True)


if __name__ == "__main__":
    if sys.argv[1:] == ["first"]:
        print(json.dumps(first_run()))
    else:
        serve()
