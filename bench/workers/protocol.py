"""A process that takes steps on request: the server of `peers.py`.

It keeps to Python 3.7 and the standard library, for the reference's sake.
"""

from __future__ import annotations

import gc
import json
import os
import sys
import time

WARM_STEPS = 2
"""Steps before the clock starts, in every round."""


def serve(prepare):
    """Answer requests until the input closes.

    A request is `{"model": …, "mode": …, "steps": n}`; the reply is `{"ms": milliseconds per
    step}`. With `"warm": n` the reply is that of `each`, after n steps untimed. `prepare(model,
    mode)` returns a function that takes one step; it is called once for each pair. A request of no
    steps drops all models.
    """
    replies = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what libraries print must not stand between the replies
    prepared = {}
    for line in sys.stdin:
        request = json.loads(line)
        print(json.dumps(_answer(request, prepared, prepare)), file=replies, flush=True)


def _answer(request, known, prepare):
    """The reply to a request; models that it needs or drops are in `known`."""
    if not request["steps"]:
        known.clear()
        gc.collect()
        return {"ms": 0.0}
    key = request["model"], request["mode"]
    if key not in known:
        known[key] = prepare(*key)
    if "warm" in request:
        return each(known[key], request["steps"], request["warm"])
    return {"ms": milliseconds(known[key], request["steps"])}


def milliseconds(step, steps):
    """Milliseconds per step, the mean of `steps` consecutive ones after a warm-up."""
    return measured(step, steps)["ms"]


def measured(step, steps):
    """Milliseconds per step, as `ms`, and the CPU time of this process's threads, as `cpu`."""
    for _ in range(WARM_STEPS):
        step()
    start, busy = time.perf_counter(), time.process_time()
    for _ in range(steps):
        step()
    passed = time.perf_counter() - start, time.process_time() - busy
    return {"ms": passed[0] / steps * 1e3, "cpu": passed[1] / steps * 1e3}


def each(step, steps, warm):
    """The wall time of every step, and the CPU times of this thread and of the process per step.

    All in milliseconds, as `walls`, `thread` and `process`.
    """
    for _ in range(warm):
        step()
    walls, thread, process = [], time.thread_time(), time.process_time()
    for _ in range(steps):
        start = time.perf_counter()
        step()
        walls.append((time.perf_counter() - start) * 1e3)
    spent = (time.thread_time() - thread) * 1e3, (time.process_time() - process) * 1e3
    return {"walls": walls, "thread": spent[0] / steps, "process": spent[1] / steps}
