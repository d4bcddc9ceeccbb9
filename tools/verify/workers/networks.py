"""Takes one training step of a network of `nets/full.py` in any fluid, for `networks.py`.

The request is JSON: what to do, the network, the folder of its files, whether it is tiny, whether
its sizes are fixed. `begin` writes the initial state and the batch; `step` reads them, takes the
step, and writes the loss, the output, every gradient and the state afterwards. Python 3.7, only
NumPy and a fluid.
"""

from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

from tests.support.nets import full, timed

OFFSETS = (-0.1, 0.3)
"""Range of what is added to constant parameters."""

LENGTHS = " lengths"
"""Suffix of the name of an array of the lengths of sequences."""


def main():
    """Process the request."""
    answer(importlib.import_module(sys.argv[1]), json.loads(sys.argv[2]))


def answer(fluid, request):
    """Write the files that are asked for."""
    entry, folder = full.network(request["network"], request["quick"]), Path(request["folder"])
    if request["do"] == "begin":
        np.savez(str(folder / "state.npz"), **initial_state(fluid, entry))
        np.savez(str(folder / "feed.npz"), **packed(full.draw(entry)))
    else:
        state, feed = read(folder / "state.npz"), read(folder / "feed.npz")
        np.savez(request["out"], **step(fluid, entry, state, feed, request["fixed"]))


def initial_state(fluid, entry):
    """The persistable variables after the startup program.

    Vectors that are all ones or zeros, such as biases and the scales of norms, get random offsets:
    otherwise a step that ignores them would agree.
    """
    recorded, scope, random = full.record(fluid, entry), fluid.Scope(), np.random.RandomState(3)
    with fluid.scope_guard(scope):
        fluid.Executor(fluid.CPUPlace()).run(recorded.startup)
        state = {name: array_in(scope, name) for name in persistable(recorded.main)}
    for parameter in recorded.main.all_parameters():
        array = state[parameter.name]
        if array.min() == array.max():
            offsets = random.uniform(*OFFSETS, size=array.shape)
            state[parameter.name] = (array + offsets).astype(np.float32)
    return state


def step(fluid, entry, state, feed, fixed=False):
    """The results of one training step from a state: arrays by name.

    `loss`, `output`, `features`, the gradients that are dense, and every persistable variable
    afterwards.
    """
    recorded, scope = full.record(fluid, entry, fixed), fluid.Scope()
    names = fetched_names(fluid, recorded)
    with fluid.scope_guard(scope):
        executor = fluid.Executor(fluid.CPUPlace())
        executor.run(recorded.startup)
        for name, array in state.items():
            scope.find_var(name).get_tensor().set(array, fluid.CPUPlace())
        results = executor.run(
            recorded.main, timed.fed(fluid, unpacked(feed)), list(names), return_numpy=False
        )
        after = {name: array_in(scope, name) for name in state}
    after.update(zip(names.values(), map(np.array, results)))  # noqa: B905, of Python 3.10
    return after


def fetched_names(fluid, recorded):
    """What is fetched: names of variables to names of results.

    Among them is the output of the first batch norm, the largest map in many networks.
    """
    norms = [op for op in recorded.main.global_block().ops if op.type == "batch_norm"]
    names = {op.output("Y")[0]: "features" for op in norms[:1]}
    names.update({recorded.loss.name: "loss", recorded.output.name: "output"})
    names.update((name, name) for name in dense_gradients(fluid, recorded.main))
    return names


def dense_gradients(fluid, program):
    """The names of the gradients of a program's parameters, without those of sparse rows."""
    names = [param.name + "@GRAD" for param in program.all_parameters() if param.trainable]
    sparse = fluid.core.VarDesc.VarType.SELECTED_ROWS
    return [name for name in names if program.global_block().var(name).type != sparse]


def persistable(program):
    """The names of the persistable variables of a program, sorted."""
    return sorted(var.name for var in program.list_vars() if var.persistable)


def array_in(scope, name):
    """A copy of a variable's array."""
    return np.array(scope.find_var(name).get_tensor())


def packed(batch):
    """A batch as arrays: the lengths of sequences have a name of their own."""
    arrays = {}
    for name, value in batch.items():
        array, lengths = value if isinstance(value, tuple) else (value, None)
        arrays[name] = array
        if lengths is not None:
            arrays[name + LENGTHS] = np.array(lengths)
    return arrays


def unpacked(arrays):
    """The batch that `packed` made arrays of."""
    return {
        name: (array, [int(length) for length in arrays[name + LENGTHS]])
        if name + LENGTHS in arrays
        else array
        for name, array in arrays.items()
        if not name.endswith(LENGTHS)
    }


def read(path):
    """The arrays of a file."""
    with np.load(str(path)) as arrays:
        return dict(arrays.items())


if __name__ == "__main__":
    main()
