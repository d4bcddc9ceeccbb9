"""Times training steps of small networks, eager and static; prints JSON by model.

Runs with this package (`--fluid fluid`) and with Paddle 1.8.5 (`--fluid paddle.fluid`, the
default), so it is written for Python 3.7.
"""

import argparse
import importlib
import json
import sys
import time

import numpy as np

ROUNDS = 5
STEPS = 40


def lenet(fluid):
    """Two convolutions and three products."""
    layers, dygraph = fluid.layers, fluid.dygraph

    class LeNet(dygraph.Layer):
        def __init__(self):
            super().__init__()
            self.first = dygraph.Conv2D(1, 6, 5, act="relu")
            self.second = dygraph.Conv2D(6, 16, 5, act="relu")
            self.pool = dygraph.Pool2D(2, "max", 2)
            self.dense = [dygraph.Linear(256, 120, act="relu"), dygraph.Linear(120, 84, act="relu")]
            self.add_sublayer("third", self.dense[0])
            self.add_sublayer("fourth", self.dense[1])
            self.out = dygraph.Linear(84, 10, act="softmax")

        def forward(self, x):
            x = self.pool(self.second(self.pool(self.first(x))))
            x = layers.reshape(x, [-1, 256])
            for layer in self.dense:
                x = layer(x)
            return self.out(x)

    return LeNet


def deep(fluid):
    """21 small products."""
    dygraph = fluid.dygraph

    class Deep(dygraph.Layer):
        def __init__(self):
            super().__init__()
            self.hidden = [dygraph.Linear(16, 16, act="relu") for _ in range(20)]
            for number, layer in enumerate(self.hidden):
                self.add_sublayer("hidden{}".format(number), layer)  # noqa: UP032 - Python 3.7
            self.out = dygraph.Linear(16, 10, act="softmax")

        def forward(self, x):
            for layer in self.hidden:
                x = layer(x)
            return self.out(x)

    return Deep


def recurrent(fluid):
    """Twelve steps of a gated unit, written with operators."""
    layers, dygraph = fluid.layers, fluid.dygraph

    class Recurrent(dygraph.Layer):
        def __init__(self):
            super().__init__()
            self.gates = dygraph.Linear(32, 16, act="sigmoid")
            self.values = dygraph.Linear(32, 16, act="tanh")
            self.out = dygraph.Linear(16, 10, act="softmax")

        def forward(self, x):
            state = layers.slice(x, [1], [0], [16])
            for step in range(12):
                part = layers.slice(x, [1], [16 * step], [16 * step + 16])
                both = layers.concat([part, state], 1)
                state = state + self.gates(both) * (self.values(both) - state)
            return self.out(state)

    return Recurrent


NETWORKS = {"lenet": (lenet, [1, 28, 28]), "deep": (deep, [16]), "recurrent": (recurrent, [192])}
"""What makes each network, and the shape of its inputs."""


def losses(fluid, output, labels):
    """The loss of a batch."""
    return fluid.layers.mean(fluid.layers.cross_entropy(output, labels))


def measured(step):
    """Milliseconds of processor time of a step: the least of several rounds."""
    for _ in range(5):
        step()
    rounds = []
    for _ in range(ROUNDS):
        start = time.process_time()
        for _ in range(STEPS):
            step()
        rounds.append((time.process_time() - start) / STEPS * 1e3)
    return min(rounds)


def eager(fluid, network, images, labels):
    """Milliseconds of an eager step."""
    dygraph = fluid.dygraph
    with dygraph.guard():
        net = network()
        optimizer = fluid.optimizer.Adam(0.001, parameter_list=net.parameters())

        def step():
            x, y = dygraph.to_variable(images), dygraph.to_variable(labels)
            loss = losses(fluid, net(x), y)
            loss.backward()
            optimizer.minimize(loss)
            net.clear_gradients()
            return loss.numpy()

        return measured(step)


def static(fluid, network, images, labels):
    """Milliseconds of a static step, and the number of ops without those of gradients."""
    main, startup = fluid.Program(), fluid.Program()
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        x = fluid.data("x", [None, *images.shape[1:]])
        y = fluid.data("y", [None, 1], "int64")
        loss = losses(fluid, network()(x), y)
        fluid.optimizer.Adam(0.001).minimize(loss)
    executor = fluid.Executor(fluid.CPUPlace())
    feed = {"x": images, "y": labels}
    ops = [op for op in main.global_block().ops if not op.attr("op_role") & 1]
    with fluid.scope_guard(fluid.core.Scope()):
        executor.run(startup)
        run = {"feed": feed, "fetch_list": [loss], "use_program_cache": True}
        return measured(lambda: executor.run(main, **run)), len(ops)


def main():
    """Measure the models that are named."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--fluid", default="paddle.fluid")
    parser.add_argument("models", nargs="*")
    arguments = parser.parse_args()
    fluid = importlib.import_module(arguments.fluid)
    random, result = np.random.RandomState(0), {}
    for name in arguments.models or NETWORKS:
        make, shape = NETWORKS[name]
        network = make(fluid)
        images = random.rand(16, *shape).astype("float32")
        labels = random.randint(0, 10, (16, 1)).astype("int64")
        milliseconds, ops = static(fluid, network, images, labels)
        result[name] = {
            "eager": eager(fluid, network, images, labels), "static": milliseconds, "ops": ops,
        }  # fmt: skip
    json.dump(result, sys.stdout)


if __name__ == "__main__":
    main()
