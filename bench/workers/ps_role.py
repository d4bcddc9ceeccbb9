"""One process of a job with parameter servers, in this package or in the reference.

    ps_role.py MODULE ROLE NUMBER ENDPOINTS NET STEPS

MODULE is `fluid` or `paddle.fluid`. Trainers print a line of JSON: steps per second, CPU seconds
per step, and bytes per step on their TCP connections, sent and received. With STEPS 0 they train
until they are ended. Runs on Python 3.7.
"""

import importlib
import json
import os
import socket
import stat
import struct
import sys
import time
from pathlib import Path

import numpy as np

WARM = 20
ROWS, WIDTH, IDS = 5000000, 16, 100000
BATCH = {"fit_a_line": 20, "two_layers_wide": 4, "table": IDS}
TCP_BYTES = struct.Struct("=QQ")
ACKED = 120
"""Offset of `tcpi_bytes_acked` and `tcpi_bytes_received` in Linux' `struct tcp_info`."""


def build(fluid, net):
    """The loss of a network."""
    if net == "table":
        ids = fluid.layers.data("ids", [1], dtype="int64")
        rows = fluid.layers.embedding(ids, [ROWS, WIDTH], is_sparse=True)
        loss = fluid.layers.mean(rows)
    else:
        x = fluid.layers.data("x", [13 if net == "fit_a_line" else 1000])
        y = fluid.layers.data("y", [1])
        hidden = fluid.layers.fc(x, 1000, act="relu") if net == "two_layers_wide" else x
        loss = fluid.layers.mean(fluid.layers.square_error_cost(fluid.layers.fc(hidden, 1), y))
    fluid.optimizer.SGD(1e-4).minimize(loss)
    return loss


def draw(net, random):
    """A batch."""
    rows = BATCH[net]
    if net == "table":
        return {"ids": random.randint(0, ROWS, (rows, 1)).astype("int64")}
    width = 13 if net == "fit_a_line" else 1000
    return {"x": random.rand(rows, width).astype("f4"), "y": random.rand(rows, 1).astype("f4")}


def tcp_bytes():
    """Bytes that all TCP connections of this process have sent and received so far."""
    sent = received = 0
    for path in list(Path("/proc/self/fd").iterdir()):
        try:
            if not stat.S_ISSOCK(path.stat().st_mode):
                continue
            with socket.socket(fileno=os.dup(int(path.name))) as connection:
                info = connection.getsockopt(socket.IPPROTO_TCP, 11, 256)
        except OSError:
            continue
        if len(info) >= ACKED + TCP_BYTES.size:
            acked, arrived = TCP_BYTES.unpack_from(info, ACKED)
            sent, received = sent + acked, received + arrived
    return sent, received


def serve(fluid, transpiler, executor, endpoint):
    """Run a server."""
    program, startup = transpiler.get_pserver_programs(endpoint)
    executor.run(startup)
    executor.run(program)


def train(fluid, transpiler, executor, number, net, loss, steps):
    """Run a trainer."""
    program = transpiler.get_trainer_program()
    executor.run(fluid.default_startup_program())
    random = np.random.RandomState(number)
    feeds = [draw(net, random) for _ in range(8)]

    def run(count):
        for step in range(count):
            executor.run(program, feed=feeds[step % len(feeds)], fetch_list=[loss])

    run(WARM)
    while not steps:
        run(WARM)
    before, cpu, started = tcp_bytes(), time.process_time(), time.time()
    run(steps)
    seconds, cpu, after = time.time() - started, time.process_time() - cpu, tcp_bytes()
    rates = {"rate": steps / seconds, "cpu": cpu / steps}
    rates["sent"], rates["received"] = ((np.array(after) - before) / steps).tolist()
    print(json.dumps(rates), flush=True)
    executor.close()


def main(module, role, number, endpoints, net, steps):
    """Run one role."""
    fluid = importlib.import_module(module)
    loss = build(fluid, net)
    transpiler = fluid.DistributeTranspiler()
    number = int(number)
    trainer = number if role == "trainer" else 0
    transpiler.transpile(trainer, pservers=endpoints, trainers=2, sync_mode=True)
    executor = fluid.Executor(fluid.CPUPlace())
    if role == "server":
        serve(fluid, transpiler, executor, endpoints.split(",")[number])
    else:
        train(fluid, transpiler, executor, number, net, loss, int(steps))


if __name__ == "__main__":
    main(*sys.argv[1:])
