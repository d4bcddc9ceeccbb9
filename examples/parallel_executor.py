"""Concurrent training and testing by ParallelExecutor, as scripts of release 1.0 do it.

    python examples/parallel_executor.py [--steps N]

One executor trains a line through random points, another one reads the same parameters and tests
them. The number of devices is CPU_NUM in the environment, or one; a dict is fed to all of them
together, a list has a dict for each.
"""

from argparse import ArgumentParser
from contextlib import suppress

import numpy as np

import fluid

STEPS = 200
FALLS = 50  # Required reduction of the loss.


def points(draw, count):
    """Draw points near the line y = 2x + 1."""
    x = draw.uniform(-1, 1, (count, 1)).astype(np.float32)
    return {"x": x, "y": 2 * x + 1 + draw.normal(0, 0.05, (count, 1)).astype(np.float32)}


def recorded():
    """Record both programs, their startup program, and their loss."""
    main, startup = fluid.Program(), fluid.Program()
    with fluid.program_guard(main, startup):
        x, y = (fluid.data(name, [None, 1], "float32") for name in "xy")
        guess = fluid.layers.fc(x, size=1, param_attr="slope", bias_attr="height")
        loss = fluid.layers.mean(fluid.layers.square_error_cost(guess, y))
        test_program = main.clone(for_test=True)
        fluid.optimizer.SGD(learning_rate=0.1).minimize(loss)
    return main, startup, test_program, loss


def train(steps=STEPS):
    """Train on `steps` batches, testing periodically, and return the losses."""
    main, startup, test_program, loss = recorded()
    fluid.Executor(fluid.CPUPlace()).run(startup)
    learning = fluid.ParallelExecutor(use_cuda=False, loss_name=loss.name, main_program=main)
    testing = fluid.ParallelExecutor(
        use_cuda=False, main_program=test_program, share_vars_from=learning
    )
    draw, losses = np.random.default_rng(0), []
    unseen = points(draw, 100)

    with suppress(KeyboardInterrupt):  # Ctrl-C ends training only.
        while len(losses) < steps:
            (values,) = learning.run(feed=points(draw, 16), fetch_list=[loss.name])
            losses.append(float(values.mean()))
            if len(losses) % 50 == 0:
                (tested,) = testing.run(feed=unseen, fetch_list=[loss.name])
                print(f"step {len(losses):4d}  loss {losses[-1]:.4f}, tested {tested.mean():.4f}")

    shares = [points(draw, 16) for _ in range(testing.device_count)]
    (values,) = testing.run(feed=shares, fetch_list=[loss.name])
    print(f"{testing.device_count} device(s), each with its own points: {values.mean():.4f}")
    learning.drop_local_exe_scopes()
    slope, height = (fluid.global_scope().find_var(n).get_tensor() for n in ("slope", "height"))
    print(f"y = {np.array(slope).item():.2f} x + {np.array(height).item():.2f}")
    return losses


if __name__ == "__main__":
    parser = ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=STEPS, help="number of training batches")
    train(parser.parse_args().steps)
