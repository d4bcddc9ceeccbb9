"""Writes a model's files in every way that fluid has, or reads them, for `exchange.py`.

The request is JSON: whether to write or to read, the model of the zoo, the folder. A reader also
has the inference models to read, and the output path. The writer's own numbers are stored next to
its files. The same code runs on this package and on Paddle 1.8.5: Python 3.7 and NumPy.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

from tests.support.nets import timed, zoo

BATCH, BATCHES, STEPS = 4, 3, 4
"""Rows of a batch, number of batches, and steps after which numbers are compared."""

FAULTS = (AttributeError, LookupError, OSError, RuntimeError, TypeError, ValueError)
"""Errors of reading and running, in addition to the reference's own error."""


def main():
    """Process the request."""
    fluid, request = importlib.import_module(sys.argv[1]), json.loads(sys.argv[2])
    side = Side(fluid, request["model"])
    os.chdir(request["folder"])
    if request["do"] == "write":
        np.savez("numbers.npz", **side.write())
    else:
        np.savez(request["out"], **side.read(request["models"]))


class Side:
    """A model of the zoo in one fluid, and its feeds."""

    def __init__(self, fluid, name):
        self.fluid, self.executor = fluid, fluid.Executor(fluid.CPUPlace())
        settings = zoo.small(name)
        self.recorded = zoo.build(fluid, name, **settings)
        random = np.random.RandomState(3)
        drawn = [zoo.draw(name, random, BATCH, **settings) for _ in range(BATCHES)]
        self.batches = [timed.fed(fluid, batch) for batch in drawn]
        wanted = needed(self.recorded.test, self.recorded.output.name)
        self.names = [drawn_name for drawn_name in sorted(drawn[0]) if drawn_name in wanted]
        self.feed = {drawn_name: self.batches[0][drawn_name] for drawn_name in self.names}

    # ---- writing ----

    def write(self):
        """Write every kind of files after a step of training, and the results then and later."""
        recorded, executor = self.recorded, self.executor
        executor.run(recorded.startup)
        self.losses(recorded.main, steps=1)
        self.save_models()
        self.fluid.io.save_params(executor, "params", recorded.main)
        self.fluid.io.save_persistables(executor, "persistables", recorded.main)
        self.fluid.io.save_persistables(executor, "together", recorded.main, "all")
        self.fluid.save(recorded.main, "state/model")
        return {"output": self.output(), "losses": self.losses(recorded.main)}

    def save_models(self):
        """Save the inference model with separate parameters, and combined."""
        arguments = self.names, [self.recorded.output], self.executor, self.recorded.test
        self.fluid.io.save_inference_model("separate", *arguments)
        self.fluid.io.save_inference_model("combined", *arguments, "model", "params")

    # ---- reading ----

    def read(self, inference):
        """The results of each kind of files, by name."""
        io, main = self.fluid.io, self.recorded.main
        results = {name: self.apart(self.inferred, files) for name, files in inference.items()}
        results["params"] = self.apart(self.loaded, io.load_params, "params")
        for name, files in (("persistables", ("persistables",)), ("together", ("together", "all"))):
            results[name] = self.apart(self.trained, main, files)
        results["state"] = self.apart(self.resumed)
        results["program"] = self.apart(self.parsed)
        return results

    def apart(self, call, *arguments):
        """The result of a call in a new scope, or its error as text."""
        with self.fluid.scope_guard(self.fluid.Scope()):
            try:
                return call(*arguments)
            except (*FAULTS, self.fluid.core.EnforceNotMet) as error:
                return np.array(f"{type(error).__name__}: {error}")

    def inferred(self, files):
        """The output of an inference model: a folder, its program and its parameters."""
        program, names, fetches = self.fluid.io.load_inference_model(
            files[0], self.executor, files[1], files[2]
        )
        feed = {name: self.feed[name] for name in names}
        return dense(self.executor.run(program, feed, fetches, return_numpy=False)[0])

    def loaded(self, load, folder):
        """The output of this side's own program with the parameters of a folder."""
        self.executor.run(self.recorded.startup)
        load(self.executor, folder, self.recorded.main)
        return self.output()

    def trained(self, program, files):
        """The losses of a program that continues training from saved files."""
        self.executor.run(self.recorded.startup)
        folder, file = files if len(files) > 1 else (files[0], None)
        self.fluid.io.load_persistables(self.executor, folder, program, file)
        return self.losses(program)

    def resumed(self):
        """The losses of this side's own program with the state of `fluid.save`."""
        self.executor.run(self.recorded.startup)
        self.fluid.load(self.recorded.main, "state/model", self.executor)
        return self.losses(self.recorded.main)

    def parsed(self):
        """The losses of the other side's training program."""
        data = Path("state/model.pdmodel").read_bytes()
        program = self.fluid.Program.parse_from_string(data)
        return self.trained(program, ("persistables",))

    # ---- running ----

    def output(self):
        """The output of the inference program for the first batch."""
        test, output = self.recorded.test, [self.recorded.output]
        test = test._prune([variable.name for variable in output])
        return dense(self.executor.run(test, self.feed, output, return_numpy=False)[0])

    def losses(self, program, steps=STEPS):
        """The losses of some steps of training."""
        loss = self.recorded.loss.name
        feeds = [self.batches[step % BATCHES] for step in range(steps)]
        return np.array([self.executor.run(program, f, [loss])[0].ravel()[0] for f in feeds])


def needed(program, name):
    """The variables that a variable depends on, in a program's main block."""
    names = {name}
    for op in reversed(program.global_block().ops):
        if names.intersection(op.output_arg_names):
            names.update(op.input_arg_names)
    return names


def dense(tensor):
    """The elements of a fetched tensor."""
    return np.array(tensor)


if __name__ == "__main__":
    main()
