"""Legacy memory optimisation: variables that share a name, and variables deleted after use.

    python examples/memory_optimize.py [--steps N]

The same network is trained three times from the same start: as it was recorded, after
`memory_optimize`, and after `release_memory`. Both rewrite the program and change no number; a
program always trains in planned memory here, so they are kept for the scripts that call them.
"""

from argparse import ArgumentParser

import numpy as np

import fluid

STEPS = 60
FALLS = 20  # Required reduction of the loss.


def recorded(rewrite):
    """Record a network and its startup program, and rewrite its training program."""
    main, startup = fluid.Program(), fluid.Program()
    startup.random_seed = 1
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        x, y = fluid.data("x", [None, 8], "float32"), fluid.data("y", [None, 1], "float32")
        hidden = fluid.layers.fc(fluid.layers.fc(x, 32, act="tanh"), 32, act="tanh")
        loss = fluid.layers.mean(fluid.layers.square_error_cost(fluid.layers.fc(hidden, 1), y))
        fluid.optimizer.Adam(learning_rate=0.01).minimize(loss)
    rewrite(main)
    return main, startup, loss


def learn(main, startup, loss, steps):
    """Train in a new scope; return the losses."""
    executor, draw = fluid.Executor(fluid.CPUPlace()), np.random.default_rng(0)
    losses = []
    with fluid.scope_guard(fluid.Scope()):
        executor.run(startup)
        for _ in range(steps):
            x = draw.uniform(-1, 1, (32, 8)).astype(np.float32)
            feed = {"x": x, "y": x.sum(axis=1, keepdims=True)}
            losses.append(executor.run(main, feed=feed, fetch_list=[loss])[0].item())
    return losses


def share(program):
    """Let variables share names where they fit, and print which."""
    fluid.memory_optimize(program, print_log=True, level=1)


WAYS = {"as recorded": lambda _: None, "memory_optimize": share}
WAYS["release_memory"] = fluid.release_memory


def train(steps=STEPS):
    """Train in all ways, print the memory of each program, and return the losses, which are
    equal.
    """
    losses_by_name = {}
    for name, rewrite in WAYS.items():
        main, startup, loss = recorded(rewrite)
        ops = main.global_block().ops
        used = {variable for op in ops for variable in (*op.input_arg_names, *op.output_arg_names)}
        drops = sum(op.type == "delete_var" for op in ops)
        losses_by_name[name] = learn(main, startup, loss, steps)
        last = f"{losses_by_name[name][-1]:.4f}" if steps else "none"
        print(f"{name:15s}  {len(used)} names, {drops} ops that drop, last loss {last}")
    first, *others = losses_by_name.values()
    print("the same losses" if all(other == first for other in others) else "losses differ")
    return first


if __name__ == "__main__":
    parser = ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=STEPS, help="number of training batches")
    train(parser.parse_args().steps)
