"""A process that takes steps on request: the server of `peers.py`.

It keeps to Python 3.7 and the standard library, for the reference's sake.
"""

from __future__ import annotations

import json
import os
import sys
import time

WARM_STEPS = 2
"""Steps before the clock starts, in every round."""


def serve(prepare):
    """Answer requests until the input closes.

    A request is `{"model": …, "mode": …, "steps": n}`; the reply is `{"ms": milliseconds per
    step}`. `prepare(model, mode)` returns a function that takes one step; it is called once for
    each pair.
    """
    replies = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what libraries print must not stand between the replies
    known = {}
    for line in sys.stdin:
        request = json.loads(line)
        key = request["model"], request["mode"]
        if key not in known:
            known[key] = prepare(*key)
        reply = {"ms": milliseconds(known[key], request["steps"])}
        print(json.dumps(reply), file=replies, flush=True)


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
