"""A process that takes steps of ResNet-50 and reports its peak memory.

It also runs under the reference's Python, so it keeps to Python 3.7, NumPy and a fluid by name.
Arguments: who (ours, reference, torch, compiled), mode (training, inference), batch, image, steps.
The last line it prints is JSON: peak bytes after the imports and after the steps (VmHWM of the
kernel), milliseconds of the fastest step.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
import time
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.support.nets import zoo


def highest():
    """The peak memory of this process so far, in bytes."""
    lines = Path("/proc/self/status").read_text().splitlines()
    line = next(line for line in lines if line.startswith("VmHWM"))
    return int(line.split()[1]) * 1024


def fluid_step(module, mode, batch, image):
    """A function that takes one step on a fluid, ours or the reference's."""
    fluid = importlib.import_module(module)
    imported = highest()
    settings = {"image": image, "classes": 1000}
    recorded = zoo.build(fluid, "resnet50", train=mode == "training", **settings)
    feed = zoo.draw("resnet50", np.random.RandomState(0), batch, **settings)
    executor = fluid.Executor(fluid.CPUPlace())
    executor.run(recorded.startup)
    program = recorded.main if mode == "training" else recorded.test
    fetched = recorded.loss if mode == "training" else recorded.output
    return imported, lambda: executor.run(program, feed=feed, fetch_list=[fetched])


def torch_step(compiled, mode, batch, image):
    """A function that takes one step on torch."""
    torch = importlib.import_module("torch")
    model = (
        importlib.import_module("bench.workers.torch_resnet").resnet50().train(mode == "training")
    )
    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))
    imported = highest()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    random = np.random.RandomState(0)
    pictures = torch.from_numpy(random.rand(batch, 3, image, image).astype(np.float32))
    labels = torch.from_numpy(random.randint(0, 1000, batch))
    called = torch.compile(model) if compiled else model

    def train():
        loss = torch.nn.functional.cross_entropy(called(pictures), labels)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()

    def infer():
        with torch.no_grad():
            called(pictures)

    return imported, train if mode == "training" else infer


def main():
    """Take the steps and print."""
    who, mode, batch, image, steps = sys.argv[1], sys.argv[2], *map(int, sys.argv[3:6])
    if who in ("torch", "compiled"):
        imported, step = torch_step(who == "compiled", mode, batch, image)
    else:
        imported, step = fluid_step(
            "fluid" if who == "ours" else "paddle.fluid", mode, batch, image
        )
    times = []
    for _ in range(steps):
        start = time.perf_counter()
        step()
        times.append((time.perf_counter() - start) * 1e3)
    print(json.dumps({"imported": imported, "peak": highest(), "ms": min(times)}))


if __name__ == "__main__":
    main()
