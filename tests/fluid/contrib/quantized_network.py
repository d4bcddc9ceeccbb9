"""The network of `tests/golden/quantized`, which 1.8.5 quantized in three ways, trained and froze."""

from pathlib import Path

import numpy as np

import fluid
from fluid import unique_name

FOLDER = Path(__file__).parents[2] / "golden" / "quantized"


def network():
    """Record the network of the recordings; returns main, test and startup."""
    main, startup = fluid.Program(), fluid.Program()
    with fluid.program_guard(main, startup), unique_name.guard():
        image = fluid.data("img", [-1, 1, 6, 6])
        label = fluid.data("y", [-1, 1], "int64")
        hidden = fluid.layers.conv2d(image, 4, 3, act="relu")
        pooled = fluid.layers.pool2d(hidden, 2, "avg", 2)
        predicted = fluid.layers.fc(fluid.layers.elementwise_add(pooled, pooled), 3, act="softmax")
        loss = fluid.layers.mean(fluid.layers.cross_entropy(predicted, label))
        test = main.clone(for_test=True)
        fluid.optimizer.SGD(0.1).minimize(loss)
    return main, test, startup


def recording(name):
    recorded = dict(np.load(FOLDER / f"{name}.npz"))
    programs = [
        fluid.Program.parse_from_string(recorded[kind].tobytes())
        for kind in ("main", "test", "frozen")
    ]
    return recorded, programs
