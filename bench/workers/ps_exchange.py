"""A job of `ps_role.py` whose trainers compute nothing: the cost of the exchange alone.

    ps_exchange.py ROLE NUMBER ENDPOINTS NET STEPS

Trainers send the same gradients in every step, and copy the parameters that they receive.
"""

from __future__ import annotations

import json
import sys
import time
from typing import Any

import numpy as np

import fluid
from bench.workers.ps_role import WARM, build, serve
from fluid.parameter_server import session_for


def names_by_server(program: Any, kind: str, slot: str) -> list[tuple[str, str]]:
    """Names and endpoints of the variables that ops of a kind exchange."""
    ops = [op for op in program.global_block().ops if op.type == kind]
    slots = [op.inputs if slot == "X" else op.outputs for op in ops]
    pairs = zip(slots, ops, strict=True)
    return [
        pair for names, op in pairs for pair in zip(names[slot], op.attrs["epmap"], strict=True)
    ]


def exchange(program: Any, number: int, steps: int) -> None:
    """Exchange steps with the servers, and print steps per second."""
    session, block = session_for(program), program.global_block()
    sent, received = names_by_server(program, "send", "X"), names_by_server(program, "recv", "Out")
    gradients = {name: np.ones(block.var(name).shape, np.float32) * 1e-3 for name, _ in sent}
    received_arrays = {name: np.empty(block.var(name).shape, np.float32) for name, _ in received}
    endpoints = list(dict.fromkeys(endpoint for _, endpoint in sent))

    def run(count: int) -> None:
        for _ in range(count):
            for name, endpoint in sent:
                session.send([name], [endpoint], [gradients[name]], None, number, False, True)
            session.send_barrier(endpoints, number, False)
            for name, endpoint in received:
                np.copyto(received_arrays[name], session.recv([name], [endpoint], number)[0])
            session.fetch_barrier(endpoints, number)

    run(WARM)
    cpu, started = time.process_time(), time.time()
    run(steps)
    seconds, cpu = time.time() - started, time.process_time() - cpu
    print(json.dumps({"rate": steps / seconds, "cpu": cpu / steps}), flush=True)
    session.complete()


def main(role: str, number: str, endpoints: str, net: str, steps: str) -> None:
    """Run one role."""
    build(fluid, net)
    transpiler = fluid.DistributeTranspiler()
    trainer = int(number) if role == "trainer" else 0
    transpiler.transpile(trainer, pservers=endpoints, trainers=2)
    if role == "server":
        serve(fluid, transpiler, fluid.Executor(), endpoints.split(",")[int(number)])
    else:
        exchange(transpiler.get_trainer_program(), int(number), int(steps))


if __name__ == "__main__":
    main(*sys.argv[1:])
