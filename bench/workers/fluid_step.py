"""Training steps on the reference, Paddle 1.8.5, for `step.py` and `cpu.py`.

It is run by a Python that has the reference.

With `--fluid fluid` the same code takes steps on this package. Python 3.7, only NumPy and a fluid.
"""

from __future__ import annotations

import argparse
import importlib
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from bench.workers import protocol
from tests.support.nets import steps


def preparing(fluid):
    """The `prepare` of `protocol.serve`; `mode` is `plain`, or `cached` for the program cache."""

    def prepare(name, mode):
        recorded = steps.model(fluid, name)
        scope = fluid.Scope()
        executor = fluid.Executor(fluid.CPUPlace())
        executor.run(recorded.startup, scope=scope)
        batches = steps.drawn(name, fluid=fluid)

        def step():
            executor.run(
                recorded.main, feed=next(batches), fetch_list=[recorded.loss], scope=scope,
                use_program_cache=mode == "cached",
            )  # fmt: skip

        return step

    return prepare


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--fluid", default="paddle.fluid", help="the module to record with")
    protocol.serve(preparing(importlib.import_module(parser.parse_args().fluid)))
