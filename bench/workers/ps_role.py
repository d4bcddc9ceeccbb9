"""One process of a job with parameter servers, in this package or in the reference.

    ps_role.py MODULE ROLE NUMBER ENDPOINTS NET STEPS

MODULE is `fluid` or `paddle.fluid`. Trainers print their steps a second. Python 3.7 runs this.
"""

import importlib
import sys
import time

import numpy as np

WARM = 20


def build(fluid, net):
    """The loss of a network."""
    width = {"fit_a_line": 13, "two_layers_wide": 1000}[net]
    x, y = fluid.layers.data("x", [width]), fluid.layers.data("y", [1])
    if net == "two_layers_wide":
        x = fluid.layers.fc(x, 1000, act="relu")
    loss = fluid.layers.mean(fluid.layers.square_error_cost(fluid.layers.fc(x, 1), y))
    fluid.optimizer.SGD(1e-4).minimize(loss)
    return loss, width


def main(module, role, number, endpoints, net, steps):
    """Run one role."""
    fluid = importlib.import_module(module)
    loss, width = build(fluid, net)
    transpiler = fluid.DistributeTranspiler()
    number = int(number)
    trainer = number if role == "trainer" else 0
    transpiler.transpile(trainer, pservers=endpoints, trainers=2, sync_mode=True)
    executor = fluid.Executor(fluid.CPUPlace())
    if role == "server":
        program, startup = transpiler.get_pserver_programs(endpoints.split(",")[number])
        executor.run(startup)
        executor.run(program)
        return
    program = transpiler.get_trainer_program()
    executor.run(fluid.default_startup_program())
    rows = 20 if net == "fit_a_line" else 4
    random = np.random.RandomState(number)
    feed = {"x": random.rand(rows, width).astype("f4"), "y": random.rand(rows, 1).astype("f4")}
    for _ in range(WARM):
        executor.run(program, feed=feed, fetch_list=[loss])
    started = time.time()
    for _ in range(int(steps)):
        executor.run(program, feed=feed, fetch_list=[loss])
    print("%.2f" % (int(steps) / (time.time() - started)), flush=True)
    executor.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
